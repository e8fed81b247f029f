#!/usr/bin/env python3
"""A reconnect storm beside live sessions, with and without the admission control: docs/results/Performance.md, "Storms".

    .build/python/bin/python Tests/Benchmarks/storm.py [--runs 3] [--devices 15000] [--rate 2000] [--seconds 3]
        [--durability fsync|os] [--only governed,free,apart] [--nice 0] [--no-build] [--folder DIR] [--binaries DIR]

Each run starts its own gateway, registers the devices, and publishes --rate messages a second to 200 sessions: first alone
(calm), then while all devices connect at once, as `longwire-return-benchmark` does for the client. The programs that make the
load share the machine with the gateway.

    governed  the defaults
    free      the longest slices and waits that the configuration allows, so that a turn welcomes all accepted devices
    apart     the storm reaches another gateway of the same machine, which shows the latencies that the machine itself causes

Exits with 1 if a message was lost, or a device was not back within a minute.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("LONGWIRE_BIN_DIR", str(ROOT / ".build/release"))
sys.path[:0] = [str(ROOT / "Tests" / folder) for folder in ("Benchmarks/peers", "Integration/parties", "Integration/rigs")]

from servers import APP, Failed, Longwire  # noqa: E402

KINDS = {"governed": {}, "free": {"welcomeSliceMicroseconds": 100_000, "welcomeWaitMilliseconds": 8_000}, "apart": {}}


class Storm:
    """All devices of a file, connecting at once; `back()` returns when the last one was welcomed."""

    def __init__(self, gateway, devices, count, niceness):
        words = [str(gateway.binaries / "longwire-return-benchmark"), "--handshakes", str(count), APP["appId"], str(devices),
                 str(gateway.port)]
        self.count, self.began = count, time.monotonic_ns()
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.nice(niceness))
        self.refused = 0

    def back(self):
        end = time.monotonic() + 60
        last = 0
        while time.monotonic() < end:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            found = json.loads(self.process.stdout.readline())
            last = max(last, found["lastWelcome"])
            self.refused += found["turnedAway"]
            if found["welcome"] == self.count:
                return (last - self.began) / 1e9
            time.sleep(0.1)
        raise Failed(f"{self.count - found['welcome']} devices were not back within a minute: {found}")

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Bench:
    def __init__(self, options):
        self.options, self.found = options, {}

    def note(self, kind, what, value):
        self.found.setdefault((kind, what), []).append(value)

    def live(self, gateway, name):
        words = ["live", "--devices", "200", "--rate", str(self.options.rate), "--warmup", "1", "--duration", str(self.options.seconds)]
        report = gateway.folder / f"{name}.json"
        process = subprocess.Popen(
            [*gateway.bench_words(*words), "--json", str(report)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return process, report

    def latencies(self, process, report):
        process.wait(180)
        metrics = json.loads(report.read_text())["metrics"]
        if metrics["loss"] or metrics["delivered"] != metrics["accepted"]:
            raise Failed(f"messages were lost: {metrics}")
        return metrics

    def measure(self, kind):
        class Tuned(Longwire):
            limits = {**Longwire.limits, **KINDS[kind]}

            def introduce(self):
                super().introduce()
                self.sections = {"store": {"path": str(self.data), "durability": options.durability}}

        options = self.options
        with contextlib.ExitStack() as stack:
            gateway = stack.enter_context(Tuned(options.folder, options.binaries))
            stormed = stack.enter_context(Tuned(options.folder, options.binaries)) if kind == "apart" else gateway
            devices = stormed.folder / "devices"
            stormed.bench("idle", "--connections", str(options.devices), "--hold", "0", "--devices-file", str(devices))
            stormed.without_connections()
            lines = devices.read_text().splitlines()[1:]
            devices.write_text("\n".join(lines) + "\n")
            self.latencies(*self.live(gateway, "first"))
            calm = self.latencies(*self.live(gateway, "calm"))
            process, report = self.live(gateway, "storm")
            time.sleep(options.after)
            before = stormed.metrics()["process_cpu_seconds_total"]
            storm = Storm(stormed, devices, options.devices, options.nice)
            try:
                back = storm.back()
                used = stormed.metrics()["process_cpu_seconds_total"] - before
                stormy = self.latencies(process, report)
                metrics = gateway.metrics()
            finally:
                storm.end()
        self.note(kind, "all back, s", back)
        self.note(kind, "cores that the stormed gateway used", used / back)
        self.note(kind, "sent away", storm.refused)
        self.note(kind, "waited", metrics.get("longwire_newcomers_waited_total", 0))
        self.note(kind, "slowest commit, ms", 1e3 * metrics.get("longwire_store_longest_commit_seconds", 0))
        self.note(kind, "cost of a newcomer, µs", 1e6 * metrics.get("longwire_newcomer_cost_seconds", 0))
        for name in ("p50", "p99", "p99.9", "max"):
            self.note(kind, f"calm {name}, ms", calm[f"deliver.{name}"] / 1e6)
            self.note(kind, f"storm {name}, ms", stormy[f"deliver.{name}"] / 1e6)
        self.note(kind, "p99, storm by calm", stormy["deliver.p99"] / calm["deliver.p99"])

    def table(self):
        kinds = list(dict.fromkeys(kind for kind, _ in self.found))
        whats = list(dict.fromkeys(what for _, what in self.found))
        lines = ["| | " + " | ".join(kinds) + " |", "|---|" + "---|" * len(kinds)]
        for what in whats:
            cells = []
            for kind in kinds:
                values = self.found[kind, what]
                cells.append(f"{statistics.median(values):,.2f} ({min(values):,.2f} – {max(values):,.2f})")
            lines.append(f"| {what} | " + " | ".join(cells) + " |")
        return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--devices", type=int, default=15_000)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--after", type=float, default=1.6, help="seconds after the start of the live messages, one of them warm-up")
    parser.add_argument("--durability", default="fsync", help="os leaves the disk out")
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--nice", type=int, default=0, help="the priority of the storm's program; 19 leaves the cores to the others first")
    parser.add_argument("--no-build", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / ".build")
    parser.add_argument("--binaries", type=pathlib.Path, default=ROOT / ".build/release")
    options = parser.parse_args()
    if not options.no_build:
        for product in ("longwired", "longwire", "longwire-return-benchmark"):
            subprocess.run(["swift", "build", "-c", "release", "-debug-info-format", "none", "--product", product], cwd=ROOT, check=True, stdout=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="storm-bench.", dir=options.folder) as folder:
        options.folder = pathlib.Path(folder)
        bench = Bench(options)
        for run in range(options.runs):
            # Alternating, so that other load of the machine affects both equally.
            for kind in options.only.split(","):
                print(f"run {run + 1}, {kind}", file=sys.stderr, flush=True)
                try:
                    bench.measure(kind)
                except Failed as error:
                    sys.exit(str(error))
    print(f"Machine: {os.cpu_count()} cores, {os.uname().sysname} {os.uname().release}.\n")
    print(bench.table())


if __name__ == "__main__":
    main()
