"""Plays the tour of three gateways in docs/use/Cluster.md: `make cluster` at one terminal, a device and a caller at others.

    python cluster_tour.py [--chinese]

As in tour.py, LONGWIRE_BIN names the folder of the built programs. The ports are those of the page, in a separate network
namespace if the machine allows one.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import sys
import tempfile
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / folder) for folder in ("parties", "rigs")]

import network  # noqa: E402
from gateway import ADMIN_TOKEN, binary, eventually  # noqa: E402
from tour import ROOT, Terminal, blocks, last_step, said  # noqa: E402

PAGES = {False: ("docs/use/Cluster.md", "## Try it on one machine"), True: ("docs/use/Cluster.zh-CN.md", "## 在一台机器上试用")}
READY = "Ctrl-C ends all of it."


def start(folder):
    """Runs the part of `make cluster` after its builds, in a folder that stands in for the checkout.

    The folder gets these programs, and a folder `temporary` for the files of the gateways and servers.
    """
    (folder / ".build").mkdir()
    (folder / ".build/release").symlink_to(pathlib.Path(binary("longwired")).resolve().parent)
    (folder / ".build/python").symlink_to(pathlib.Path(sys.prefix))
    (folder / "Tests").symlink_to(ROOT / "Tests")
    (folder / "temporary").mkdir()
    return f"TMPDIR={folder / 'temporary'} " + last_step("cluster").replace(str(ROOT), str(folder))


def processes(folder):
    """Returns the commands of the processes whose working folder is this one, as for all processes of a rig."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return [words for words in found if words]


def servers(folder):
    return sum(words.startswith("redis-server") for words in processes(folder))


def remains(folder):
    """Returns the remains of a rig that ran in this folder: its files and its processes."""
    return [*map(str, (folder / "temporary").iterdir()), *processes(folder)]


def messages(device, count):
    def look():
        lines = [json.loads(line) for line in device.text.splitlines() if '"event":"message"' in line and line.endswith("}")]
        return lines if len(lines) >= count else None
    return eventually(look, f"{count} messages; shown: {device.text}")


def payloads(commands):
    return re.findall(r"--payload '([^']*)'", commands)


def play(folder, is_chinese):
    page, heading = PAGES[is_chinese]
    section, (run, device_words, push, leave, third, back) = blocks(page, heading)
    assert run == "make cluster\n"
    *exports, connect = device_words.splitlines()
    assert len(exports) == 2 and all(one.startswith("export ") for one in exports)
    exports = "\n".join(exports) + "\n"
    with contextlib.ExitStack() as terminals:
        gateways = terminals.enter_context(Terminal(folder, start(folder)))
        eventually(lambda: gateways.process.poll() is not None or READY in gateways.text, "three gateways")
        assert gateways.process.poll() is None, gateways.text
        pids = dict(re.findall(r"gateway (\d): pid (\d+)", gateways.text))
        assert len(pids) == 3

        device = terminals.enter_context(Terminal(folder, exports + connect))
        cid = device.event("registered")["cid"]
        assert "CID=…" in push
        given, live, status = push.replace("CID=…", f"CID={cid}").splitlines()
        assert said(folder, f"{exports}{given}\n{live}")
        (message,) = messages(device, 1)
        assert [message["payload"]] == payloads(live) and not message["offline"]
        table = said(folder, exports + status)
        assert nodes(table) == 3, table
        device.end()

        taken, pid, kill = leave.splitlines()
        said(folder, f"{exports}{given}\n{taken}")
        assert pid.startswith("PID=…")
        said(folder, f"PID={pids['2']}\n{kill}")
        status, later = third.splitlines()
        # The command exits with 1 while a partition has no owner.
        eventually(lambda: nodes(said(folder, exports + status, codes=(0, 1))) == 2, "two gateways with all parts", 10)
        said(folder, f"{exports}{given}\n{later}")

        connect, trace = back.splitlines()
        device = terminals.enter_context(Terminal(folder, exports + connect))
        both = messages(device, 2)
        assert [one["payload"] for one in both] == payloads(taken + later), both
        assert all(one["offline"] for one in both), both
        # A gateway that takes a device over leaves a gap after the numbers that the former owner may have assigned.
        assert message["sequence"] < both[0]["sequence"] < both[1]["sequence"], both
        def has_ended(one):
            text = said(folder, exports + trace.replace("MSGID", one["msgId"]))
            return "deliveredOffline" in text or "acked" in text
        for one in both:
            eventually(lambda one=one: has_ended(one), "the message's story")
        device.end()
        # No old message can arrive after the messages of a new connection.
        again = terminals.enter_context(Terminal(folder, exports + connect))
        again.event("welcome")
        said(folder, f"{exports}{given}\n{later}")
        assert [one["offline"] for one in messages(again, 1)] == [False], again.text
        again.end()

        address = re.search(r"http://[^`\s]*/console", section).group()
        assert urllib.request.urlopen(address, timeout=10).status == 200
        assert "`LONGWIRE_ADMIN_TOKEN`" in section and f"LONGWIRE_ADMIN_TOKEN={ADMIN_TOKEN}\n" in exports
        assert gateways.end() == 0, gateways.text
    assert remains(folder) == []


def nodes(table):
    """Returns the number of gateways in the table of `cluster status`, or 0 while a partition has no owner."""
    if "parts without owner: none" not in table:
        return 0
    return len(set(re.findall(r"127\.0\.0\.1:71[123]5\b", table)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--chinese", action="store_true")
    options = parser.parse_args()
    network.inside()
    if os.environ.get(network.INSIDE):
        network.ip("link", "set", "lo", "up")
    with tempfile.TemporaryDirectory(prefix="longwire-tour-") as name:
        play(pathlib.Path(name), options.chinese)


if __name__ == "__main__":
    main()
