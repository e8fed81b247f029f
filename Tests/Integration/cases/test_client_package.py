"""An external package that depends on LongwireClient: its visible names, its link step, and a received message."""

import pathlib
import shutil
import subprocess

import pytest
from gateway import APP, TIMEOUT

ROOT = pathlib.Path(__file__).resolve().parents[3]

MANIFEST = """\
// swift-tools-version: 6.2
import PackageDescription

let package = Package(
    name: "consumer",
    platforms: [.iOS(.v16), .macOS(.v13)],
    dependencies: [.package(name: "longwire", path: "%s")],
    targets: [
        .executableTarget(
            name: "consumer", dependencies: [.product(name: "LongwireClient", package: "longwire")],
            swiftSettings: [
                .enableUpcomingFeature("MemberImportVisibility"), .enableUpcomingFeature("InternalImportsByDefault"),
            ]),
        .executableTarget(name: "driver", dependencies: [.product(name: "LongwireClient", package: "longwire")]),
    ])
"""


@pytest.fixture(scope="module")
def consumer(tmp_path_factory):
    """Builds the Linux example as a separate package, and the app of test_client.py beside it."""
    if shutil.which("swift") is None:
        pytest.skip("no Swift toolchain")
    folder = tmp_path_factory.mktemp("consumer")
    (folder / "Package.swift").write_text(MANIFEST % ROOT)
    for name, source in (("consumer", "Examples/LinuxDevice"), ("driver", "Tests/Integration/parties/client")):
        (folder / "Sources" / name).mkdir(parents=True)
        shutil.copy(ROOT / source / "main.swift", folder / "Sources" / name / "main.swift")
    # Kept between runs, so that only the first one compiles the client.
    scratch = ROOT / ".build/consumer"
    subprocess.run(
        ["swift", "build", "--package-path", folder, "--scratch-path", scratch], check=True, cwd=folder, timeout=600
    )
    return scratch / "debug"


def test_a_package_of_15_lines_receives_a_message(consumer, gateway, tmp_path):
    arguments = ["127.0.0.1", str(gateway.device), APP["appId"], APP["appSecret"], str(tmp_path / "state")]
    process = subprocess.Popen(["stdbuf", "-oL", consumer / "consumer", *arguments], stdout=subprocess.PIPE, text=True)
    try:
        cid = process.stdout.readline().split()[-1]
        gateway.push(cid, "hello")
        assert process.stdout.readline().split() == ["live", "hello"]
    finally:
        process.terminate()
        process.wait(TIMEOUT)


def test_the_client_links_nothing_of_the_gateways(consumer):
    linked = subprocess.run(["ldd", consumer / "consumer"], check=True, capture_output=True, text=True).stdout
    for library in ("event", "rocksdb", "simdjson", "curl", "nghttp2"):
        assert f"lib{library}" not in linked
    modules = {path.name for path in (consumer / "Modules").glob("*.swiftmodule")}
    assert modules <= {f"{name}.swiftmodule" for name in ("Wire", "Cryptography", "LongwireClient", "consumer", "driver")}
