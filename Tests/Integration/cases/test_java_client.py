"""The first program of the Java client's README, unchanged, against a real gateway."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest
from gateway import APP, TIMEOUT, Gateway, eventually

ROOT = pathlib.Path(__file__).resolve().parents[3]
README = ROOT / "Clients/java/README.md"
SOURCES = ("build.sh", "longwire-client", "longwire-android", "longwire-getui", "android-stubs", "driver")
pytestmark = pytest.mark.skipif(shutil.which("javac") is None, reason="no JDK")


@pytest.fixture(scope="module")
def gateway():
    from conftest import QUICK

    with Gateway(limits=QUICK) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Returns a folder with the files that the README uses and the library, as built by the README's first command."""
    root = tmp_path_factory.mktemp("readme")
    for name in SOURCES:
        source, copy = ROOT / "Clients/java" / name, root / "Clients/java" / name
        if source.is_dir():
            shutil.copytree(source, copy)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
    shutil.copytree(ROOT / "Examples/JavaDevice", root / "Examples/JavaDevice")
    (build,) = [one for one in shell_fences() if "build.sh" in one]
    subprocess.run(["bash", "-euc", build], cwd=root, check=True, timeout=10 * TIMEOUT)
    return root


def shell_fences():
    return re.findall(r"^```sh\n(.*?)^```$", README.read_text(), re.M | re.S)


def program():
    (found,) = re.findall(r"^```java Device.java\n(.*?)^```$", README.read_text(), re.M | re.S)
    return found


def commands(gateway):
    """Returns the README's commands, with the port of this test's gateway."""
    (found,) = [one for one in shell_fences() if "javac" in one]
    assert found.count(" 7000 ") == 1
    # `exec` replaces the shell with the program, so that a signal to the process reaches the program.
    return found.replace(" 7000 ", f" {gateway.device} ").replace("\njava ", "\nexec java ")


def test_the_readmes_program_receives_a_message_and_stays_the_same_device(gateway, root):
    assert program() == (root / "Examples/JavaDevice/Device.java").read_text()
    (root / "longwire-data").mkdir()
    (root / "longwire-data/demo.json").write_text(json.dumps(APP))
    cid, live = None, "hello from Java"
    for start in range(2):
        process = subprocess.Popen(
            ["bash", "-euc", commands(gateway)], cwd=root, stdout=subprocess.PIPE, text=True)
        try:
            word, found = process.stdout.readline().split()
            assert word == "cid" and cid in (None, found), "the second start is the same device"
            cid = found
            if start:
                assert process.stdout.readline() == "queued: again\n"
            gateway.push(cid, live)
            assert process.stdout.readline() == f"live: {live}\n"
            eventually(lambda: gateway.view(cid)["queue"]["messages"] == 0, "the ack")
        finally:
            process.kill()
            process.wait(TIMEOUT)
            process.stdout.close()
        if not start:
            eventually(lambda: not gateway.view(cid)["connected"], "the device as absent")
            gateway.push(cid, "again")
