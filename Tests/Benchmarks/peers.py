#!/usr/bin/env python3
"""Longwire compared with its peers: every figure of the speed contract, each as a ratio of one run on one machine.

    Tests/Benchmarks/peers.py [--runs 3] [--full] [--only live,http] [--json FILE] [--markdown FILE]

Each run measures Longwire and its peer one right after the other, with a new process for each. Every second run begins with the
peer. A figure is the ratio within one run. The table has its median and range over the runs, the goal, and whether the median
reaches it. On a busy machine no goal of a rate or a latency is claimed. The loads, in the order in which they run:

    live       publish → deliver → ack, 19,000 devices: Longwire with fsync, a bare router in C, mosquitto QoS 1 storing nothing;
               and the journal's bytes a message
    few        the same with 1,000 devices, beside the bare router
    paced      20,000 messages a second, for the latencies: Longwire, mosquitto
    enqueue    durable enqueue: Longwire, redis-server `appendfsync always` with 32 senders, a stream a device
    handoff    lease and settle 500 at a time: Longwire, redis-server with a consumer group
    steady     enqueue with a job each: its 20th to 50th second; with --full five minutes
    http       push/single/cid to connected devices: Longwire, nginx that answers 200 to the same requests
    drain      10,000 absent devices × 100 messages return
    broadcast  push/all to 15,000 devices: Longwire, two threads in C that write a frame to each and read the acks
    storm      all devices reconnect: Longwire, mosquitto with 64 handshakes in flight, its best
    hello      the same without messages, beside the bare router
    disk       bytes on disk of a queued message with a job, and of an ended one; once, with --full in each run

Only when --only names them: absent (mosquitto), stream (Redis with one stream for all), bare-paced (bare router).

A peer that is not installed is named in the table with advice; the other figures are measured. Everything is on loopback and in a
temporary folder, which must be on the disk that is to be measured (--folder; default: under .build). All started processes are
stopped by process id, and the folder is removed. Needs `swift build -c release` (done here unless --no-build), a C compiler, and
`deploy/install-dependencies.sh bench`. Exits with 1 if a load failed; its rows have the reason.
"""

import argparse
import hashlib
import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))

import contract  # noqa: E402
import servers  # noqa: E402
from servers import ADMIN_TOKEN, APP, ROOT, Bare, Failed, Fanout, Longwire, Missing, Mosquitto, Nginx, Redis  # noqa: E402

PAYLOAD = 256  # bytes of a message of `longwire bench` and of the drivers
ALWAYS = ("live", "few", "paced", "enqueue", "handoff", "steady", "http", "drain", "broadcast", "storm", "hello", "disk")
NAMED = ("absent", "stream", "bare-paced")
ACCEPTED = "longwire_messages_accepted_total"
COMMITTED = "longwire_store_commit_bytes_total"
YOUNG = "longwire_store_young_rows"
FILES = "longwire_store_row_file_bytes"
ENDED = "longwire_messages_ended_total"


class Loads:
    """Each load is a dictionary: the side's name → a function that measures it and returns metrics."""

    def __init__(self, settings):
        self.settings = settings

    def sides(self, name):
        return getattr(self, name.replace("-", "_"))()

    # The parts of a load

    def gateway(self, **sections):
        return Longwire(self.settings.folder, self.settings.binaries, **sections)

    def bare(self):
        return Bare(self.settings.folder, self.settings.binaries)

    @staticmethod
    def warm(server, devices):
        """Registers the devices, so that neither that nor the page faults of a new process are measured."""
        server.bench("idle", "--connections", str(devices), "--hold", "0")
        server.without_connections()

    def benched(self, make, devices, *words):
        """Returns a side that `longwire bench` loads with these words, in a new process."""
        def run():
            with make() as server:
                self.warm(server, devices)
                return server.bench(*words)

        return run

    def driven(self, kind, program, mode, *words):
        """Returns a side that one of the drivers in C loads."""
        def run():
            with kind(self.settings.folder, program) as server:
                driver = self.settings.folder / f"{program}_load"
                done = subprocess.run(
                    [str(driver), mode, "--port", str(server.port), "--server-pid", str(server.process.pid), *words],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=900)
                if done.returncode != 0:
                    raise Failed(f"{driver.name} {mode} {' '.join(words)}: {done.stderr}")
                found = json.loads(done.stdout)
                # Above this the figure is the driver's and not the peer's.
                found["bottleneck"] = "generator" if found["driverBusy"] >= 0.9 else "server"
                return found

        return run

    # Live messages

    def live_words(self, devices):
        s = self.settings
        return ["--devices", str(devices), "--in-flight", str(s.in_flight), "--duration", str(s.seconds)]

    def live(self):
        devices, words = self.settings.devices, self.live_words(self.settings.devices)
        return {
            "longwire": self.journalled(devices, "live", *words),
            "bare router": self.benched(self.bare, devices, "live", *words),
            "mosquitto": self.driven(Mosquitto, "mqtt", "live", *words),
        }

    def journalled(self, devices, *words):
        """Measures a live run with the journal's bytes per message; the bytes of the Hellos are subtracted."""
        def run():
            with self.gateway() as server:
                self.warm(server, devices)
                marks = [server.metrics()]
                self.warm(server, devices)
                time.sleep(0.5)  # an ack's batch waits milliseconds for the next sync
                marks.append(server.metrics())
                found = server.bench(*words)
                time.sleep(0.5)
                marks.append(server.metrics())
            hellos, all_bytes = (after[COMMITTED] - before[COMMITTED] for before, after in zip(marks, marks[1:]))
            count = marks[2][ACCEPTED] - marks[1][ACCEPTED]
            return {**found, "journalBytes": (all_bytes - hellos) / count - PAYLOAD, "helloBytes": hellos / devices}

        return run

    def few(self):
        devices = self.settings.few
        words = ["live", *self.live_words(devices)]
        return {
            "longwire": self.benched(self.gateway, devices, *words),
            "bare router": self.benched(self.bare, devices, *words),
        }

    def paced_words(self):
        s = self.settings
        return ["--devices", str(s.devices), "--rate", str(s.rate), "--duration", str(s.seconds + 2)]

    def paced(self):
        return {
            "longwire": self.benched(self.gateway, self.settings.devices, "live", *self.paced_words()),
            "mosquitto": self.driven(Mosquitto, "mqtt", "live", *self.paced_words()),
        }

    def bare_paced(self):
        return {
            "longwire": self.benched(self.gateway, self.settings.devices, "live", *self.paced_words()),
            "bare router": self.benched(self.bare, self.settings.devices, "live", *self.paced_words()),
        }

    # Queues

    def enqueue(self, streams=None):
        devices, messages = self.settings.devices, self.settings.messages
        words = ["--messages", str(messages), "--in-flight", "2000"]
        theirs = ["--devices", str(devices), *words]
        if streams:
            theirs = ["--devices", str(streams), "--messages", str(devices * messages // streams), "--in-flight", "2000"]
        return {
            "longwire": self.benched(self.gateway, devices, "offline", "--devices", str(devices), *words),
            # Redis reads 16 KiB of a connection before it syncs. With two connections its groups are small and it is six times as
            # slow.
            "redis-server": self.driven(Redis, "redis", "enqueue", *theirs, "--senders", "32"),
        }

    def stream(self):
        return self.enqueue(streams=1)

    def handoff(self):
        words = ["--devices", "5000", "--messages", str(self.settings.messages), "--in-flight", "2000"]
        return {
            "longwire": self.benched(self.gateway, 5_000, "handoff", *words, "--connections", "8", "--lease", "500"),
            "redis-server": self.driven(Redis, "redis", "handoff", *words, "--senders", "8", "--batch", "500"),
        }

    def drain(self):
        words = ["--devices", "10000", "--messages", "100", "--in-flight", "20000", "--timeout", "600", "--drain", "600"]
        return {"longwire": self.benched(self.gateway, 10_000, "offline", *words)}

    def absent(self):
        words = ["--devices", str(min(self.settings.devices, 10_000)), "--messages", str(self.settings.messages),
                 "--in-flight", "2000"]
        return {
            "longwire": self.benched(self.gateway, 10_000, "offline", *words, "--handshakes", "1000"),
            # mosquitto's listen backlog is a hundred: with more handshakes in flight it only waits for retransmitted SYNs.
            "mosquitto": self.driven(Mosquitto, "mqtt", "absent", *words, "--handshakes", "64"),
        }

    def storm(self):
        devices = self.settings.devices
        words = ["--devices", str(devices), "--messages", "1", "--in-flight", "2000"]
        return {
            "longwire": self.benched(self.gateway, devices, "storm", *words, "--handshakes", "1000"),
            "mosquitto": self.driven(Mosquitto, "mqtt", "absent", *words, "--handshakes", "64"),
        }

    def hello(self):
        devices = self.settings.devices
        words = ["storm", "--devices", str(devices), "--messages", "0", "--handshakes", "1000"]
        return {
            "longwire": self.benched(self.gateway, devices, *words),
            "bare router": self.benched(self.bare, devices, *words),
        }

    def steady(self):
        return {"longwire": self.enqueue_for_minutes}

    def enqueue_for_minutes(self):
        """Samples an endless load; it and the gateway are ended after the window."""
        start, seconds = self.settings.window
        queue = {"messages": 1_000_000, "bytes": 1 << 30}
        with self.gateway(apps=[{**APP, "apns": {"topic": "com.example.peers"}, "queue": queue}]) as server:
            words = server.bench_words(
                "handoff", "--devices", "60000", "--messages", "1000", "--in-flight", "20000", "--timeout", "1200",
                "--drain", "1200")
            with open(server.folder / "load", "wb") as log:
                load = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                counts, used, began = [], [], None
                while True:
                    now, found = time.monotonic(), server.metrics()
                    if found[ACCEPTED] > 0:
                        began = began or now
                        counts.append((now - began, found[ACCEPTED]))
                        used.append((now - began, server.cpu()))
                    if began and now - began >= start + seconds:
                        break
                    if load.poll() is not None:
                        raise Failed(f"the load ended early:\n{(server.folder / 'load').read_text()[-2000:]}")
                    time.sleep(0.5)
                longest = found["longwire_store_longest_commit_seconds"]
            finally:
                load.kill()
                load.wait()
                # The queued messages are not needed, and a clean stop would only take longer.
                server.process.kill()
                server.process.wait()
        rate = contract.rate_between(counts, start, start + seconds)
        each = [contract.rate_between([one, other], 0, start + seconds) for one, other in zip(counts, counts[1:])
                if one[0] >= start]
        return {"rate": rate, "serverCPU": contract.rate_between(used, start, start + seconds) / rate,
                "slowestSample": min(each), "longestCommit": longest, "accepted": counts[-1][1]}

    # HTTP and broadcasts

    def http(self):
        words = ["http", "--connections", "64", "--devices", str(Nginx.devices), "--duration", str(self.settings.seconds)]
        return {
            "longwire": self.benched(self.gateway, Nginx.devices, *words, "--connected"),
            "nginx": lambda: self.answered_by_nginx(words),
        }

    def answered_by_nginx(self, words):
        """Sends the same requests to nginx; the CPU is that of all its processes, including two workers, over all requests."""
        with Nginx(self.settings.folder, self.settings.binaries) as server:
            before = server.cpu()
            found = server.bench(*words)
            return {**found, "serverCPU": (server.cpu() - before) / found["accepted"]}

    def broadcast(self):
        s = self.settings
        words = ["broadcast", "--devices", str(s.reached), "--payload", "200", "--messages", "10", "--threads", "2"]
        app = {**APP, "push": {"broadcastsPerMinute": 0, "broadcastsPerDay": 0}}
        return {
            "longwire": self.benched(lambda: self.gateway(apps=[app]), s.reached, *words),
            "bare fan-out": self.benched(lambda: Fanout(s.folder, s.binaries), s.reached, *words),
        }

    # The disk

    def disk(self):
        return {"longwire": self.queued_and_ended}

    def queued_and_ended(self):
        """Pushes with a job each to disconnected devices with tokens, moved to the ordered store; then the devices fetch them.

        Only the files of the ordered store count, not the journal. They are measured when no young row is left and merging has
        ended.
        """
        devices, each = 10_000, self.settings.queued // 10_000
        queue = {"messages": 100_000, "bytes": 1 << 30}
        with self.gateway(apps=[{**APP, "apns": {"topic": "com.example.peers"}, "queue": queue}]) as server:
            # A Hello of this mode has a token. Each device's own job is settled.
            server.bench("handoff", "--devices", str(devices), "--messages", "1")
            lines = (server.data / "bench-devices").read_text().splitlines()[1:]
            Pusher(server, [line.split()[0] for line in lines]).push(devices * each)
            count = devices * each
            queued = self.settled_files(server)
            job = self.lease(server)
            content = len(Pusher.payload(0)) + len(json.dumps(job["body"], separators=(",", ":"), ensure_ascii=False))
            found = server.bench("offline", "--devices", str(devices), "--messages", "1", "--timeout", "900", "--drain", "900")
            metrics = server.metrics()
            ended = sum(value for name, value in metrics.items() if name.startswith(ENDED))
            if ended < metrics[ACCEPTED]:
                raise Failed(f"only {ended:,.0f} of {metrics[ACCEPTED]:,.0f} messages ended")
            left = self.settled_files(server)
            return {
                "queuedBytes": queued / count - content, "endedBytes": left / ended, "contentBytes": content, "count": count,
                "drainRate": (count + devices) / (found["drainSeconds"] / 1e9), "journal": metrics["longwire_store_journal_bytes"],
            }

    @staticmethod
    def settled_files(server):
        """Returns the size of the ordered store's files once all rows are there and merging has paused for ten seconds."""
        sizes, end = [], time.monotonic() + 600
        while time.monotonic() < end:
            found = server.metrics()
            sizes.append(found[FILES])
            if found[YOUNG] < 100 and len(sizes) > 5 and len(set(sizes[-6:])) == 1:
                return sizes[-1]
            time.sleep(2)
        raise Failed(f"the ordered store did not settle: {sizes[-6:]} bytes, {found[YOUNG]:,.0f} young rows")

    @staticmethod
    def lease(server):
        connection = http.client.HTTPConnection("127.0.0.1", server.addresses["admin"], timeout=60)
        connection.request(
            "POST", "/v1/handoff/lease", json.dumps({"channel": "apns", "max": 1, "leaseSeconds": 5}),
            {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": "application/json"})
        jobs = json.loads(connection.getresponse().read())["jobs"]
        connection.close()
        if not jobs:
            raise Failed("the pushes have no jobs")
        return jobs[0]


class Pusher:
    """Pushes in batches of a hundred, each with its request id and content for APNs, over four connections."""

    batch, connections = 100, 4

    def __init__(self, server, cids):
        self.cids, self.port, self.failure = cids, server.addresses["http"], None
        self.path = f"/v2/{APP['appId']}"
        now = str(int(time.time() * 1000))
        sign = hashlib.sha256((APP["appKey"] + now + APP["masterSecret"]).encode()).hexdigest()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        answer = self.call(connection, "auth", json.dumps({"sign": sign, "timestamp": now, "appkey": APP["appKey"]}).encode(), "")
        self.token = answer["data"]["token"]
        connection.close()

    @staticmethod
    def payload(number):
        return f"{number:064}"

    def call(self, connection, path, body, token):
        headers = {"Content-Type": "application/json;charset=utf-8", "token": token}
        connection.request("POST", f"{self.path}/{path}", body, headers)
        answer = json.loads(connection.getresponse().read())
        if answer["code"] != 0:
            raise Failed(f"{path}: {answer}")
        return answer

    def push(self, count):
        workers = [threading.Thread(target=self.work, args=(place, count)) for place in range(self.connections)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if self.failure:
            raise Failed(f"a push was refused: {self.failure}")

    def work(self, place, count):
        item = ('{"request_id":"peers-disk-%020d","audience":{"cid":["%s"]},"settings":{"ttl":7200000},'
                '"push_message":{"transmission":"%s"},'
                '"push_channel":{"ios":{"type":"notify","aps":{"alert":{"title":"Order","body":"On its way."}}}}}')
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
            for first in range(place * self.batch, count, self.batch * self.connections):
                items = ",".join(
                    item % (number, self.cids[number % len(self.cids)], self.payload(number))
                    for number in range(first, min(count, first + self.batch)))
                self.call(connection, "push/single/batch/cid", f'{{"is_async":false,"msg_list":[{items}]}}'.encode(), self.token)
            connection.close()
        except Exception as failure:  # a thread's failure is the caller's
            self.failure = failure


def busy_cores(tries=5):
    """Returns the cores that other processes use before a load; waits a few seconds for less than a tenth of one."""
    for _ in range(tries):
        found = used_cores(1.0)
        if found < 0.1:
            break
    return found


def used_cores(seconds):
    """Returns the cores that all processes used on average over some seconds."""
    def look():
        words = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(words), words[3] + words[4]

    (all_before, idle_before), _ = look(), time.sleep(seconds)
    all_after, idle_after = look()
    return (1 - (idle_after - idle_before) / max(1, all_after - all_before)) * os.cpu_count()


class Campaign:
    """The runs of all loads, with their results."""

    def __init__(self, settings, loads):
        self.settings, self.loads = settings, loads
        self.measured = {name: [] for name in settings.chosen}
        self.absent, self.failed = {}, []
        self.busy = {name: 0.0 for name in settings.chosen}  # the maximum of all runs

    def run(self):
        for number in range(1, self.settings.runs + 1):
            for name in self.settings.chosen:
                if name == "disk" and number > 1 and not self.settings.full:
                    continue
                self.busy[name] = max(self.busy[name], busy_cores())
                began = time.monotonic()
                self.measure(name, number)
                print(f"  {name} took {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
                self.save()

    def measure(self, name, number):
        sides = list(self.loads.sides(name).items())
        found = {}
        for side, run in sides if number % 2 else reversed(sides):
            try:
                found[side] = run()
            except Exception as problem:  # the other loads still run; the exit code reports the failure
                self.absent[name, side] = " ".join(str(problem).split())[:300]
                if not isinstance(problem, Missing):
                    self.failed.append(f"{name}, {side}, run {number}: {type(problem).__name__}: {problem}")
                print(f"  {name} {number}/{self.settings.runs} {side}: SKIPPED, {problem}", file=sys.stderr, flush=True)
                continue
            shown = [f"{row.ours} {contract.text(found[side][row.ours], row.unit)}" for row in contract.ROWS
                     if row.group == name and row.ours in found[side]]
            print(f"  {name} {number}/{self.settings.runs} {side}: {', '.join(dict.fromkeys(shown))}", file=sys.stderr, flush=True)
        self.measured[name].append(found)

    def rows(self):
        return [contract.summarise(row, self.measured[row.group], self.absent, self.settings.sizes, self.busy[row.group])
                for row in contract.ROWS if row.group in self.measured]

    def notes(self):
        s = self.settings
        lines = [
            f"{s.runs} run{'s' if s.runs > 1 else ''}, {'full' if s.full else 'short'} form, {os.cpu_count()} cores, "
            f"{os.uname().sysname} {os.uname().release}; load generators on the same machine. Before the loads began, "
            f"others used up to {max(self.busy.values()):.2f} cores."]
        for name, runs in self.measured.items():
            for side in dict.fromkeys(side for run in runs for side in run):
                limits = {run[side].get("bottleneck") for run in runs if side in run} & {"generator", "machine"}
                if limits:
                    lines.append(f"{name}, {side}: the {' and the '.join(sorted(limits))} was the limit in some run, not only the server.")
        return lines + [f"FAILED: {line}" for line in self.failed]

    def save(self):
        if self.settings.json:
            self.settings.json.write_text(json.dumps({
                "runs": self.settings.runs, "form": "full" if self.settings.full else "short", "notes": self.notes(),
                "rows": self.rows(), "measured": self.measured}, indent=1) + "\n")
        if self.settings.markdown:
            self.settings.markdown.write_text(contract.markdown(self.rows()) + "\n\n" + "\n".join(self.notes()) + "\n")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", "--rounds", type=int, default=3)
    parser.add_argument("--full", action="store_true", help="windows of 10 s, five minutes of enqueue, disk in each run")
    parser.add_argument("--only", help=f"loads, with commas, of {', '.join(ALWAYS + NAMED)}")
    parser.add_argument("--devices", type=int, default=19_000)
    parser.add_argument("--few", type=int, default=1_000, help="devices whose memory stays in the caches")
    parser.add_argument("--reached", type=int, default=15_000, help="devices that a broadcast reaches")
    parser.add_argument("--messages", type=int, default=20, help="for each absent device")
    parser.add_argument("--queued", type=int, default=1_000_000, help="messages that the load disk queues")
    parser.add_argument("--in-flight", type=int, default=4_000, help="of live messages")
    parser.add_argument("--rate", type=int, default=20_000, help="messages a second, for the latencies")
    parser.add_argument("--seconds", type=float, help="the window of a live load (4, with --full 10)")
    parser.add_argument("--folder", type=pathlib.Path, help="where data goes; on the disk that is to be measured")
    parser.add_argument("--binaries", type=pathlib.Path, help="longwired and longwire of another build; nothing is built then")
    parser.add_argument("--json", type=pathlib.Path, help="the rows and everything that was measured, after each load")
    parser.add_argument("--markdown", type=pathlib.Path, help="the table, after each load")
    parser.add_argument("--no-build", action="store_true")
    settings = parser.parse_args(arguments)
    settings.chosen = settings.only.split(",") if settings.only else list(ALWAYS)
    unknown = [name for name in settings.chosen if name not in ALWAYS + NAMED]
    if unknown:
        parser.error(f"--only: {', '.join(unknown)}; there are {', '.join(ALWAYS + NAMED)}")
    if settings.runs < 1 or settings.queued < 10_000:
        parser.error("--runs is at least 1, --queued at least 10000")
    settings.seconds = settings.seconds or (10.0 if settings.full else 4.0)
    # The first seconds move no rows and are not representative of later minutes.
    settings.window = (0, 300) if settings.full else (20, 30)
    return settings


def main():
    settings = parse(None)
    # Both processes of a pair need a descriptor a connection.
    most = servers.most_connections()
    if max(settings.devices, settings.reached) > most:
        settings.devices, settings.reached = min(settings.devices, most), min(settings.reached, most)
        print(f"The limit of open files allows {most:,} devices.", file=sys.stderr)
    start, seconds = settings.window
    settings.sizes = {
        "devices": f"{settings.devices:,}", "few": f"{settings.few:,}", "reached": f"{settings.reached:,}",
        "queued": f"{settings.queued:,}", "rate": f"{settings.rate:,}",
        "window": f"{seconds // 60} minutes" if settings.full else f"seconds {start} to {start + seconds}",
    }
    if not settings.no_build and not settings.binaries:
        for product in ("longwired", "longwire"):
            subprocess.run(["swift", "build", "-c", "release", "-debug-info-format", "none", "--product", product], cwd=ROOT, check=True, stdout=sys.stderr)
    settings.binaries = (settings.binaries or ROOT / ".build/release").resolve()
    for file in (settings.json, settings.markdown):
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
    parent = settings.folder or ROOT / ".build"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="peers.", dir=parent) as folder:
        settings.folder = pathlib.Path(folder).resolve()
        # nginx drops root for its workers, which read its folder.
        settings.folder.chmod(0o711)
        try:
            servers.compile_programs(settings.folder)
        except Missing as problem:
            raise SystemExit(f"peers: {problem}")
        campaign = Campaign(settings, Loads(settings))
        campaign.run()
    print(contract.markdown(campaign.rows()) + "\n")
    print("\n".join(campaign.notes()))
    return 1 if campaign.failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
