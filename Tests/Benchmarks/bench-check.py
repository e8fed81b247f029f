#!/usr/bin/env python3
"""Compares the costs of a release build with the thresholds in Tests/Benchmarks/check/thresholds.json.

    make bench-check                            # builds, installs missing tools, compares
    Tests/Benchmarks/bench-check.py [--only WORD] [--record]

Every figure is a count, not a time, so a busy machine does not change it: instructions (callgrind), allocations (a small library
preloaded before the C library), system calls (strace), bytes of anonymous memory (smaps). Each is measured in one process between
two moments, or in two runs of different length, so that the gateway's start does not count.

A figure above its threshold by more than the tolerance fails. After the comparison each threshold is lowered below the measured
value, and the comparison must then fail, which proves that the check can fail. --record writes the measured values to the file;
commit it only with the reason for the change. --only measures figures with WORD in their name.
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
THRESHOLDS = HERE / "check/thresholds.json"
sys.path.insert(0, str(HERE / "check"))
import apns_lockstep  # noqa: E402
import lockstep  # noqa: E402

DEVICES = 64
# Two loops on every machine, so that half of the messages cross from one loop to another.
SECTIONS = {"loops": 2}


class Bench:
    """The tools and the measured programs, in a temporary folder."""

    def __init__(self, folder):
        self.folder = folder
        self.count = 0

    def prepare(self, release=None):
        """Copies the programs of `release`, else of this folder's release build."""
        release = release or pathlib.Path(subprocess.run(
            ["swift", "build", "-c", "release", "--show-bin-path"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.strip())
        for program in ("longwired", "longwire-sender"):
            if not (release / program).exists():
                raise SystemExit(f"bench-check: there is no release build of {program}; run: make bench-check")
            # Debian 12's valgrind cannot read Swift's debug information. Names are enough for a profile.
            subprocess.run(["objcopy", "--strip-debug", release / program, self.folder / program], check=True)
        os.environ["LONGWIRE_BIN_DIR"] = str(self.folder)
        self.shim = self.folder / "allocations.so"
        subprocess.run(
            ["cc", "-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", HERE / "check/allocations.c",
             "-o", self.shim], check=True)

    def file(self, name):
        self.count += 1
        return self.folder / f"{self.count}.{name}"

    # One kind of work each: `load(party, count)` does `count` rounds of it.

    def instructions(self, load, small, large, each, **party):
        """Returns the instructions for each of `each` items in a round; `party` has the fields of a `lockstep.Party`."""
        def run(count):
            report = self.file("callgrind")
            words = ["valgrind", "--tool=callgrind", "--fair-sched=yes", f"--callgrind-out-file={report}"]
            with lockstep.Gateway(words, **SECTIONS) as gateway:
                self.work(gateway, load, count, **party)
            return int(next(line for line in report.read_text().splitlines() if line.startswith("summary:")).split()[1])

        return (run(large) - run(small)) / (large - small) / each

    def system_calls(self, load, small, large, each):
        """Returns the system calls for a thousand of `each` items in a round."""
        def run(count):
            report = self.file("strace")
            with lockstep.Gateway(["strace", "-f", "-c", "-o", str(report)], **SECTIONS) as gateway:
                self.work(gateway, load, count)
            rows = [line.split() for line in report.read_text().splitlines()]
            return next(int(row[3]) for row in rows if row and row[-1] == "total")

        return 1_000 * (run(large) - run(small)) / (large - small) / each

    def allocations(self, load, small, large, each):
        """Returns the allocations for each of `each` items in a round."""
        report = self.file("allocations")
        report.write_bytes(bytes(8))
        environment = {"LD_PRELOAD": str(self.shim), "LONGWIRE_ALLOCATIONS": str(report)}
        with lockstep.Gateway(environment=environment, **SECTIONS) as gateway:
            party = lockstep.Party(gateway, DEVICES)
            load(party, small)
            party.settle()
            before = struct.unpack("Q", report.read_bytes())[0]
            load(party, large)
            party.settle()
            after = struct.unpack("Q", report.read_bytes())[0]
            gateway.end()
        if before < 1_000:
            raise RuntimeError("the library that counts allocations was not loaded")
        return (after - before) / large / each

    def work(self, gateway, load, count, **fields):
        party = lockstep.Party(gateway, DEVICES, **fields)
        load(party, count)
        party.settle()
        gateway.end()

    # The same of the sender: groups of `group` notifications.

    def sender_instructions(self, small, large, group):
        def run(count):
            report = self.file("callgrind")
            words = ["valgrind", "--tool=callgrind", "--fair-sched=yes", f"--callgrind-out-file={report}"]
            with apns_lockstep.Party(words) as party:
                party.rounds(count, group)
                party.sender.end()
            return int(next(line for line in report.read_text().splitlines() if line.startswith("summary:")).split()[1])

        return (run(large) - run(small)) / (large - small) / group

    def sender_allocations(self, small, large, group):
        report = self.file("allocations")
        report.write_bytes(bytes(8))
        environment = {"LD_PRELOAD": str(self.shim), "LONGWIRE_ALLOCATIONS": str(report)}
        with apns_lockstep.Party(environment=environment) as party:
            party.rounds(small, group)
            before = struct.unpack("Q", report.read_bytes())[0]
            party.rounds(large, group)
            after = struct.unpack("Q", report.read_bytes())[0]
            party.sender.end()
        if before < 1_000:
            raise RuntimeError("the library that counts allocations was not loaded")
        return (after - before) / large / group

    def memory(self, small, large):
        """Returns the gateway's anonymous bytes for each additional connection, including its device's new record."""
        with lockstep.Gateway(**SECTIONS) as gateway:
            party = lockstep.Party(gateway, small)
            before = self.anonymous(gateway)
            party.add(large)
            after = self.anonymous(gateway)
        return (after - before) / large

    @staticmethod
    def anonymous(gateway):
        time.sleep(0.5)  # lets the last connections settle, only to reduce noise
        for line in pathlib.Path(f"/proc/{gateway.process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Anonymous:"):
                return int(line.split()[1]) * 1_024
        raise RuntimeError("this kernel does not tell a process's anonymous memory")


def live(group):
    def load(party, count):
        if not party.sender:
            party.connect_sender()
        party.rounds(count, group)

    return load


def pushes(group):
    return lambda party, count: party.requests(count, group)


def heartbeats(party, count):
    for _ in range(count):
        party.settle()


def measurements(bench):
    """Returns measuring functions by name."""
    return {
        "live.instructionsPerMessage": lambda: bench.instructions(live(64), 20, 80, 64),
        "live.instructionsPerLoneMessage": lambda: bench.instructions(live(1), 200, 1_200, 1),
        "live.allocationsPerMessage": lambda: bench.allocations(live(64), 100, 400, 64),
        "live.systemCallsPerThousandMessages": lambda: bench.system_calls(live(64), 10, 50, 64),
        "live.systemCallsPerThousandLoneMessages": lambda: bench.system_calls(live(1), 100, 500, 1),
        "heartbeat.instructionsPerFrame": lambda: bench.instructions(heartbeats, 20, 420, DEVICES),
        "heartbeat.allocationsPerFrame": lambda: bench.allocations(heartbeats, 10, 100, DEVICES),
        "push.instructionsPerRequest": lambda: bench.instructions(pushes(16), 20, 100, 16),
        "push.allocationsPerRequest": lambda: bench.allocations(pushes(16), 50, 200, 16),
        "push.systemCallsPerThousandRequests": lambda: bench.system_calls(pushes(16), 10, 60, 16),
        "apns.instructionsPerNotification": lambda: bench.sender_instructions(10, 50, 64),
        "apns.allocationsPerNotification": lambda: bench.sender_allocations(20, 100, 64),
        "connection.anonymousBytes": lambda: bench.memory(1_000, min(6_000, open_files() - 1_500)),
    }


def open_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def faults(measured, thresholds):
    """Returns the faults, one line each; none if every figure has a threshold and keeps it."""
    found = []
    for name, value in measured.items():
        entry = thresholds.get(name)
        if entry is None:
            found.append(f"{name}: {value:,.2f} was measured and has no threshold")
            continue
        bound = entry["threshold"] * (1 + entry["tolerance"]) + entry.get("slack", 0)
        if value > bound:
            grown = value - entry["threshold"]
            share = f" ({100 * grown / entry['threshold']:+.1f} %)" if entry["threshold"] else ""
            found.append(
                f"{name}: {value:,.2f} is above the threshold {entry['threshold']:,.2f} by {grown:,.2f}{share}; "
                f"allowed is up to {bound:,.2f}")
    return found


def prove_that_it_can_fail(measured):
    """Checks that each figure alone fails the comparison when its threshold is a fifth lower, or missing."""
    for name, value in measured.items():
        tight = {other: {"threshold": figure * 2 + 1, "tolerance": 0.0} for other, figure in measured.items()}
        if faults(measured, tight):
            raise SystemExit("bench-check: the self-test's generous thresholds were not kept")
        tight[name] = {"threshold": value * 0.8 - 0.01, "tolerance": 0.1}
        if len(faults(measured, tight)) != 1:
            raise SystemExit(f"bench-check: a tightened threshold of {name} was not noticed")
        del tight[name]
        if len(faults(measured, tight)) != 1:
            raise SystemExit(f"bench-check: a missing threshold of {name} was not noticed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD", help="measure only what has WORD in its name")
    parser.add_argument("--record", action="store_true", help="write what was measured into the thresholds")
    options = parser.parse_args()
    for tool in ("valgrind", "strace", "objcopy", "cc"):
        if not shutil.which(tool):
            raise SystemExit(f"bench-check: there is no {tool}; run: deploy/install-dependencies.sh counting")
    open_files()
    thresholds = json.loads(THRESHOLDS.read_text()) if THRESHOLDS.exists() else {}
    with tempfile.TemporaryDirectory(prefix="longwire-bench-check-") as folder:
        bench = Bench(pathlib.Path(folder))
        bench.prepare()
        measured = {}
        for name, measure in measurements(bench).items():
            if options.only in name:
                measured[name] = measure()
                entry = thresholds.get(name, {})
                print(f"  {name:42} {measured[name]:12,.2f}   threshold {entry.get('threshold', float('nan')):12,.2f}",
                      flush=True)
    if not measured:
        raise SystemExit(f"bench-check: nothing has {options.only!r} in its name")
    if options.record:
        for name, value in measured.items():
            entry = thresholds.setdefault(name, {"threshold": 0.0, "tolerance": 0.08})
            entry["threshold"] = round(value, 2 if value < 100 else 0)
        THRESHOLDS.write_text(json.dumps(thresholds, indent=2, sort_keys=True) + "\n")
        return 0
    prove_that_it_can_fail(measured)
    found = faults(measured, thresholds)
    for line in found:
        print(f"bench-check: {line}", file=sys.stderr)
    if not found:
        print(f"bench-check: {len(measured)} figures keep their thresholds.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
