#!/usr/bin/env python3
"""The rows of docs/results/Performance.md: measures a release build on this machine and prints each goal with its result.

    Tests/Benchmarks/figures.py [--runs 1] [--only live,idle] [--full] [--growth] [--json FILE] [--no-build]

Without --full it runs a short version of everything in under ten minutes; --full uses the sizes of the goals (a million
connections, ten million queued messages, five minutes of load) and about an hour a run. --growth measures three sizes of each
growing quantity and fits the growth. Each run has a new gateway in a temporary folder (--folder: on the disk that is to be
measured; default: under .build), which is removed.
"""

import argparse
import hashlib
import http.client
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from peers import ADMIN_TOKEN, APP, ROOT, Failed, Longwire  # noqa: E402
from servers import most_connections  # noqa: E402

# Enough loops to keep each one's descriptor table below the usual hard limit of such a machine.
MANY = {"loops": 56, "loopTables": "own", "limits": {"connections": 1_100_000, "connectionsBeforeHello": 65_536}}


def counted(value, unit):
    """Returns a figure in a readable form; times are in nanoseconds."""
    if value is None:
        return "–"
    match unit:
        case "/s": return f"{value:,.0f}/s"
        case "µs": return f"{value / 1_000:,.1f} µs"
        case "ms": return f"{value / 1_000_000:,.2f} ms"
        case "s": return f"{value:,.2f} s"
        case "B": return f"{value:,.0f} B"
        case "MiB": return f"{value / (1 << 20):,.0f} MiB"
        case _: return f"{value:,.2f}{unit}"


def memory(pid):
    """Returns the resident bytes of a process."""
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Rss:")) * 1024


def disk(folder):
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


class Figures:
    def __init__(self, options):
        self.options = options
        self.found = {}  # name → (goal, unit, [values], command)

    def gateway(self, **sections):
        return Longwire(self.options.folder, self.options.binaries, **sections)

    def note(self, what, goal, unit, value, command):
        _, _, values, _ = self.found.setdefault(what, (goal, unit, [], command))
        values.append(value)
        print(f"  {what}: {counted(value, unit)}", file=sys.stderr, flush=True)

    def bench(self, words, rows, warm=0, **sections):
        """Runs the generator once with a new gateway and registered devices."""
        with self.gateway(**sections) as server:
            if warm:
                server.bench("idle", "--connections", str(warm), "--hold", "0", "--timeout", "1800")
            found = server.bench(*words)
            for what, goal, metric, unit in rows:
                self.note(what, goal, unit, found.get(metric), "longwire bench " + " ".join(words))
            return found

    # The rows

    def idle(self):
        count = 1_000_000 if self.options.full else 15_000
        hold = "150" if self.options.full else "20"
        with self.gateway(**(MANY if self.options.full else {})) as server:
            server.bench("idle", "--connections", str(count), "--hold", "0", "--timeout", "1800")
            # A process that held connections would reuse freed memory and appear too small.
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(120)
            server.restart()
            words = ["idle", "--connections", str(count), "--hold", hold, "--timeout", "1800", "--handshakes", "1000"]
            found = server.bench(*words)
            command = "longwire bench " + " ".join(words)
            self.note(f"idle, {count:,} connections: resident memory each", "≤ 450 B", "B", found["rssPerConnection"], command)
            self.note("idle: kernel, both ends, each", "", "B", found["kernelPerConnection"], command)
            self.note("idle: connects", "", "/s", found["connectRate"], command)
            self.note("idle: cores while held", "≤ 0.12", "", found["serverCPUCores"], command)

    def live(self):
        seconds = "10" if self.options.full else "5"
        for devices, goal in ((self.options.many, "≥ 90,000/s"), (1_000, "≥ 160,000/s")):
            words = ["live", "--devices", str(devices), "--in-flight", "4000", "--duration", seconds]
            self.bench(words, [
                (f"live, {devices:,} devices", goal, "rate", "/s"),
                (f"live, {devices:,} devices: CPU a message", "≤ 11 µs" if devices > 1_000 else "", "serverCPU", "µs"),
            ], warm=devices)

    def paced(self):
        words = ["live", "--devices", str(self.options.many), "--rate", "20000", "--duration", "20" if self.options.full else "8"]
        self.bench(words, [
            (f"20,000/s, {self.options.many:,} devices: p50", "≤ 0.6 ms", "deliver.p50", "ms"),
            ("20,000/s: p99", "≤ 4 ms", "deliver.p99", "ms"),
            ("20,000/s: p99.9", "≤ 12 ms", "deliver.p99.9", "ms"),
            ("20,000/s: CPU a message", "", "serverCPU", "µs"),
        ], warm=self.options.many)

    def queue(self):
        messages = "200" if self.options.full else "20"
        words = ["offline", "--devices", "10000", "--messages", messages, "--in-flight", "20000", "--timeout", "600",
                 "--drain", "300"]
        self.bench(words, [
            ("durable enqueue for absent devices", "≥ 400,000/s", "enqueueRate", "/s"),
            ("enqueue: CPU a message", "", "enqueueServerCPU", "µs"),
            (f"drain, 10,000 devices × {messages}", "≥ 150,000/s", "drainRate", "/s"),
            ("drain: CPU a message", "", "drainServerCPU", "µs"),
        ], warm=10_000)

    def storm(self):
        words = ["storm", "--devices", str(self.options.many), "--messages", "1", "--handshakes", "1000"]
        self.bench(words, [(f"storm of {self.options.many:,}", "≥ 15,000/s", "helloRate", "/s"),
                           ("storm: CPU a Hello", "", "helloServerCPU", "µs")], warm=self.options.many)
        if self.options.full:
            words = ["storm", "--devices", "100000", "--messages", "5", "--handshakes", "1000", "--timeout", "600"]
            self.bench(words, [("100,000 devices back and drained of 5 each", "≤ 15 s", "drainedSeconds", "s")],
                       warm=100_000, **MANY)

    def handoff(self):
        words = ["handoff", "--devices", "1000", "--messages", "500" if self.options.full else "100", "--connections", "8",
                 "--in-flight", "4000"]
        self.bench(words, [("handoff, lease and settle", "≥ 130,000/s", "rate", "/s"),
                           ("handoff: CPU a job", "", "serverCPU", "µs")], warm=1_000)

    def http(self):
        seconds = "10" if self.options.full else "5"
        words = ["http", "--connections", "64", "--devices", "1000", "--connected", "--duration", seconds]
        self.bench(words, [("push/single/cid", "≥ 30,000/s", "rate", "/s"),
                           ("push/single/cid: CPU a request", "", "serverCPU", "µs")], warm=1_000)
        words = ["http", "--connections", "16", "--devices", "1000", "--batch", "100", "--connected", "--duration", seconds]
        self.bench(words, [("push/single/batch/cid, 100 each: messages", "≥ 100,000/s", "rate", "/s")], warm=1_000)

    def broadcast(self):
        registered = "1000000" if self.options.full else "100000"
        words = ["broadcast", "--devices", "15000", "--registered", registered, "--payload", "200", "--timeout", "900"]
        app = {**APP, "push": {"broadcastsPerMinute": 0, "broadcastsPerDay": 0}}
        self.bench(words, [
            (f"push/all, {int(registered):,} registered, 15,000 connected: answer, longest of five", "< 50 ms", "answer.max", "ms"),
            ("push/all: deliveries", "≥ 100,000/s", "rate", "/s"),
            ("push/all: CPU a delivery with its ack", "", "serverCPU", "µs"),
        ], apps=[app])

    def boot(self):
        count = 10_000_000 if self.options.full else 500_000
        seconds, resident, size = self.boot_with(count)
        command = "figures.py --only boot" + (" --full" if self.options.full else "")
        self.note(f"boot after kill -9 with {count:,} queued: ready in", "≤ 3 s", "s", seconds, command)
        self.note("boot: resident memory at ready", "≤ 256 MiB", "MiB", resident, command)
        self.note("boot: disk for each queued message", "", "B", size / count, command)

    def boot_with(self, count):
        """Enqueues until `count` are accepted, kills the process under load, restarts it."""
        devices = max(1_000, count // 900)
        with self.gateway(limits={"connections": 40_000}) as server:
            each = str(count // devices + 50)
            words = [str(server.binaries / "longwire"), "bench", "offline", "--devices", str(devices), "--messages", each,
                     "--in-flight", "20000", "--timeout", "900", "--data", str(server.folder / "data"), "--quiet"]
            load = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                end = time.monotonic() + 900
                while self.accepted(server) < count:
                    if load.poll() is not None or time.monotonic() > end:
                        raise SystemExit(f"the load ended before {count:,} messages were queued")
                    time.sleep(0.2)
                server.process.kill()
                server.process.wait()
            finally:
                load.kill()
                load.wait()
            began = time.monotonic()
            server.restart()
            while not self.is_ready(server):
                time.sleep(0.005)
            seconds = time.monotonic() - began
            return seconds, memory(server.process.pid), disk(server.folder / "data")

    def disk(self):
        """Measures a queued message on disk, and the remains after its ack."""
        devices, seconds = (10_000, "20") if self.options.full else (2_000, "5")
        words = ["http", "--connections", "16", "--devices", str(devices), "--batch", "100", "--duration", seconds]
        command = "figures.py --only disk" + (" --full" if self.options.full else "")
        with self.gateway(apps=[{**APP, "queue": {"messages": 100_000, "bytes": 1 << 30}}]) as server:
            server.bench("idle", "--connections", str(devices), "--hold", "0")
            data = server.folder / "data"
            before = disk(data)
            count = server.bench(*words)["accepted"]
            # New rows stay in the journal for a minute. Then they are moved, or removed and merged if they ended.
            queued = self.settled_disk(data, 75)
            self.note("disk for each queued message", "", "B", (queued - before) / count, command)
            server.bench("offline", "--devices", str(devices), "--messages", "1", "--drain", "600")
            left = self.settled_disk(data, 180)
            ended = self.metric(server, 'longwire_messages_ended_total{state="deliveredOffline"}')
            if not ended or ended < count:
                raise SystemExit(f"only {ended} of {count} messages were delivered")
            self.note("disk for each acked message (trace and request id, kept a day)", "", "B", (left - before) / count, command)
        self.expired_disk(devices, command)

    def expired_disk(self, devices, command):
        """Measures the remains on disk of expired messages that were moved to the ordered store before."""
        count, milliseconds = devices * 50, 240_000
        with self.gateway() as server:
            server.bench("idle", "--connections", str(devices), "--hold", "0")
            data = server.folder / "data"
            cids = [line.split()[0] for line in (data / "bench-devices").read_text().splitlines()[1:]]
            before = disk(data)
            self.push(server, cids, count, milliseconds)
            queued = self.settled_disk(data, 75)
            state = 'longwire_messages_ended_total{state="expired"}'
            if self.metric(server, state):
                raise SystemExit("messages expired before they had moved to the ordered store")
            end = time.monotonic() + milliseconds / 1000 + 120
            while (self.metric(server, state) or 0) < count:
                if time.monotonic() > end:
                    raise SystemExit(f"only {self.metric(server, state)} of {count} messages expired")
                time.sleep(5)
            left = self.settled_disk(data, 180)
            self.note("disk for each message queued with a TTL", "", "B", (queued - before) / count, command)
            self.note("disk for each expired message (trace and request id, kept a day)", "", "B", (left - before) / count, command)

    @staticmethod
    def push(server, cids, count, milliseconds):
        """Pushes `count` messages in batches of a hundred, each with its request id, over one connection."""
        host, port = "127.0.0.1", server.addresses["http"]
        connection = http.client.HTTPConnection(host, port, timeout=60)

        def call(path, body, token=""):
            headers = {"Content-Type": "application/json;charset=utf-8", "token": token}
            connection.request("POST", f"/v2/{APP['appId']}/{path}", json.dumps(body), headers)
            answer = json.loads(connection.getresponse().read())
            if answer["code"] != 0:
                raise SystemExit(f"{path}: {answer}")
            return answer.get("data")

        now = str(int(time.time() * 1000))
        sign = hashlib.sha256((APP["appKey"] + now + APP["masterSecret"]).encode()).hexdigest()
        token = call("auth", {"sign": sign, "timestamp": now, "appkey": APP["appKey"]})["token"]
        for first in range(0, count, 100):
            messages = [{
                "request_id": f"expiring-{number:020}", "audience": {"cid": [cids[number % len(cids)]]},
                "settings": {"ttl": milliseconds}, "push_message": {"transmission": "x" * 256},
            } for number in range(first, first + 100)]
            call("push/single/batch/cid", {"is_async": True, "msg_list": messages}, token)
        connection.close()

    def settled_disk(self, data, least):
        """Returns the folder's size once it has changed by less than a hundredth for half a minute, after at least `least`
        seconds."""
        sizes = []
        end = time.monotonic() + 600
        began = time.monotonic()
        while time.monotonic() < end:
            sizes.append(disk(data))
            recent = sizes[-4:]
            if time.monotonic() - began > least and len(recent) == 4 and max(recent) < min(recent) * 1.01:
                break
            time.sleep(10)
        return sizes[-1]

    def steady(self):
        """Enqueues with an armed job each for minutes, with constant moves to the ordered store; a stall would be a long commit.
        """
        # Forty million take more than five minutes.
        devices, messages = (40_000, 1_000) if self.options.full else (10_000, 40)
        queue = {"messages": 1_000_000, "bytes": 1 << 30}
        with self.gateway(apps=[{**APP, "apns": {"topic": "com.example.peers"}, "queue": queue}]) as server:
            words = ["handoff", "--devices", str(devices), "--messages", str(messages), "--in-flight", "20000", "--timeout",
                     "1200", "--drain", "1200"]
            found = server.bench(*words)
            command = "longwire bench " + " ".join(words)
            count = devices * messages
            self.note(f"steady enqueue of {count:,}, a job each", "≥ 120,000/s", "/s", found["createRate"], command)
            longest = self.metric(server, "longwire_store_longest_commit_seconds")
            self.note("steady enqueue: longest commit", "no stall", "s", longest, command)

    # Growth

    def growth(self):
        full = self.options.full
        sizes = (10_000, 100_000, 1_000_000) if full else (2_000, 6_000, 18_000)
        points = []
        for count in sizes:
            with self.gateway(**(MANY if full else {})) as server:
                server.bench("idle", "--connections", str(count), "--hold", "0", "--timeout", "1800")
                server.process.send_signal(signal.SIGTERM)
                server.process.wait(120)
                server.restart()
                found = server.bench("idle", "--connections", str(count), "--hold", "100" if full else "5",
                                     "--timeout", "1800", "--handshakes", "1000")
                points.append((count, found["rssPerConnection"] * count))
        self.fit("resident memory of connections", points, "B")
        boots = [(count, *self.boot_with(count)) for count in ((100_000, 1_000_000, 10_000_000) if full else (50_000, 150_000, 450_000))]
        self.fit("seconds to ready after kill -9, by queued messages", [(one[0], one[1]) for one in boots], "s")
        self.fit("resident memory at ready, by queued messages", [(one[0], one[2]) for one in boots], "B")
        self.fit("disk, by queued messages", [(one[0], one[3]) for one in boots], "B")
        drains = []
        for each in (1, 100, 1_000) if full else (1, 20, 200):
            with self.gateway() as server:
                devices = min(10_000, 1_000_000 // each)
                found = server.bench("offline", "--devices", str(devices), "--messages", str(each), "--in-flight", "20000",
                                     "--timeout", "600", "--drain", "600")
                drains.append((each, found["drainServerCPU"]))
        self.fit("CPU a drained message, by messages a device", drains, "ns")

    def fit(self, what, points, unit):
        """Returns the exponent between first and last size: 1 is linear, 0 does not grow."""
        (first, low), (last, high) = points[0], points[-1]
        exponent = math.log(high / low) / math.log(last / first) if low > 0 and high > 0 else float("nan")
        text = ", ".join(f"{count:,}: {counted(value, unit) if unit != 'ns' else counted(value, 'µs')}" for count, value in points)
        print(f"| {what} | {text} | n^{exponent:.2f} |", flush=True)

    # Queries of the gateway

    def metric(self, server, name):
        request = urllib.request.Request(
            f"http://127.0.0.1:{server.addresses['admin']}/metrics", headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                for line in answer.read().decode().splitlines():
                    if line.startswith(name + " "):
                        return float(line.split()[1])
        except OSError:
            return None
        return None

    def accepted(self, server):
        return self.metric(server, "longwire_messages_accepted_total") or 0

    def is_ready(self, server):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.addresses['admin']}/readyz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def table(self):
        lines = ["| what | goal | median | range | command |", "|---|---|---|---|---|"]
        for what, (goal, unit, values, command) in self.found.items():
            values = [value for value in values if value is not None]
            if not values:
                continue
            spread = f"{counted(min(values), unit)} – {counted(max(values), unit)}" if len(values) > 1 else ""
            lines.append(f"| {what} | {goal} | {counted(statistics.median(values), unit)} | {spread} | `{command}` |")
        return "\n".join(lines)


ROWS = ("idle", "live", "paced", "queue", "storm", "handoff", "http", "broadcast", "boot", "disk", "steady")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--only", help="rows, with commas; without it all, and disk, which takes five minutes, with --full only")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / ".build")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--no-build", action="store_true")
    options = parser.parse_args()
    chosen = options.only.split(",") if options.only else [name for name in ROWS if options.full or name != "disk"]
    for name in chosen:
        if name not in ROWS:
            sys.exit(f"there is no row {name}: {', '.join(ROWS)}")
    if not options.no_build:
        for product in ("longwired", "longwire"):
            subprocess.run(["swift", "build", "-c", "release", "-debug-info-format", "none", "--product", product], cwd=ROOT, check=True, stdout=sys.stderr)
    options.binaries = ROOT / ".build/release"
    options.many = min(19_000, most_connections())
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="figures.", dir=options.folder) as folder:
        options.folder = pathlib.Path(folder)
        figures = Figures(options)
        if options.growth:
            figures.growth()
            return
        for run in range(options.runs):
            for name in chosen:
                print(f"run {run + 1}, {name}", file=sys.stderr, flush=True)
                getattr(figures, name)()
        print(f"Machine: {os.cpu_count()} cores, {os.uname().sysname} {os.uname().release}; load generator on the same machine.\n")
        print(figures.table())
        if options.json:
            options.json.write_text(json.dumps(
                {what: {"goal": goal, "unit": unit, "values": values, "command": command}
                 for what, (goal, unit, values, command) in figures.found.items()}, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except Failed as problem:
        sys.exit(str(problem))
