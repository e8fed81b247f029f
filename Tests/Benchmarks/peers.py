#!/usr/bin/env python3
"""Longwire beside its peers, in one run on one machine: Debian's mosquitto and redis-server under an equivalent load.

    Tests/Benchmarks/peers.py [--rounds 3] [--devices 19000] [--seconds 8] [--only live,storm] [--json FILE]

Each comparison alternates A/B/A/B with a fresh server process for every round, and prints medians, the ratio, and the
server's CPU a message, which is the steadiest figure on a noisy machine. What is compared:

    live     publish → deliver → ack among connected devices: Longwire with fsync, mosquitto QoS 1 storing nothing
    paced    the same at a fixed rate, for the latencies
    absent   enqueue for absent devices, then all reconnect and drain: likewise; mosquitto keeps the messages in memory
    storm    all devices reconnect at once, 1,000 handshakes in flight (mosquitto 64, its best); Longwire
             authenticates each, mosquitto nobody
    enqueue  durable enqueue: Longwire with fsync, redis-server `appendfsync always`, a stream entry a message,
             in a stream a device
    stream   the same, but with one stream for all: Redis at its best, though no device could drain its own from it
    handoff  lease and settle jobs 500 at a time: likewise, with a consumer group
    bare     live, beside a router in C in one thread that authenticates nobody and stores nothing: what this machine and
             this generator allow; bare-paced and bare-storm likewise

Everything is on loopback and in a folder of its own, which must be on the disk that is to be measured (--folder; default:
under .build). What is started is stopped by its process id, and the folder is removed. Needs `swift build -c release`
(done here unless --no-build), a C compiler, and `deploy/install-dependencies.sh bench`.
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
APP = {"appId": "peers", "appKey": "peersKey", "appSecret": "peers-app-secret", "masterSecret": "peers-master-secret"}
ADMIN_TOKEN = "peers-admin-token-0123456789"


def free_ports(count):
    """Ports that were free a moment ago; held together so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Server:
    """`with Server(…)`: a process that listens, in a folder that goes with it."""

    def __init__(self, parent, name):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}.", dir=parent))
        self.process, self.port = None, None

    def __enter__(self):
        try:
            self.start()
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def spawn(self, *words):
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        end = time.monotonic() + 30
        while True:
            if self.process.poll() is not None or time.monotonic() > end:
                text = (self.folder / "log").read_text(errors="replace")[-2000:]
                raise SystemExit(f"{words[0]} did not start:\n{text}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)


class Mosquitto(Server):
    """QoS 1 and persistent sessions; nothing is written to disk, and no queue or window is smaller than Longwire's."""

    def start(self):
        self.port, = free_ports(1)
        (self.folder / "mosquitto.conf").write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence false\nset_tcp_nodelay true\n"
            "max_inflight_messages 32\nmax_queued_messages 100000\nlog_type error\nmax_connections -1\n")
        if os.geteuid() == 0:
            # As root it would change to a user that may not read a private folder.
            with open(self.folder / "mosquitto.conf", "a") as file:
                file.write("user root\n")
        self.spawn("mosquitto", "-c", str(self.folder / "mosquitto.conf"))


class Redis(Server):
    """Every answer waits for its fsync; no snapshots and no rewriting of the log during a run."""

    def start(self):
        self.port, = free_ports(1)
        self.spawn(
            "redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--appendonly",
            "yes", "--appendfsync", "always", "--save", "", "--auto-aof-rewrite-percentage", "0", "--daemonize", "no",
            # Listening on loopback only; connections come from many of its addresses, which it would call strange.
            "--protected-mode", "no")


class Longwire(Server):
    """A release build on its defaults: fsync, a loop a core."""

    def __init__(self, parent, binaries, **sections):
        super().__init__(parent, "longwire")
        self.binaries, self.sections = binaries, sections

    def start(self):
        self.port, senders, http, admin = free_ports(4)
        data = self.folder / "data"
        data.mkdir(mode=0o700)
        token = self.folder / "token"
        token.write_text(ADMIN_TOKEN)
        token.chmod(0o600)
        addresses = {"device": self.port, "senders": senders, "http": http, "admin": admin}
        configuration = {name: {"listen": f"127.0.0.1:{port}"} for name, port in addresses.items()}
        configuration["store"] = {"path": str(data)}
        configuration["apps"] = [{**APP, "apns": {"topic": "com.example.peers"}}]
        configuration["credentials"] = [{"name": "peers", "tokenFile": str(token), "may": ["admin"]}]
        configuration |= self.sections
        path = self.folder / "longwired.json5"
        path.write_text(json.dumps(configuration))
        path.chmod(0o600)
        demo = {**APP, "adminToken": ADMIN_TOKEN}
        demo |= {f"{name}Address": f"127.0.0.1:{port}" for name, port in addresses.items()}
        (data / "demo.json").write_text(json.dumps(demo))
        self.addresses = addresses
        self.restart()

    def restart(self):
        """Starts the process on its folder as it stands; the one before it is over."""
        self.spawn(str(self.binaries / "longwired"), "--config", str(self.folder / "longwired.json5"))

    def bench(self, *words):
        """One run of `longwire bench`; its metrics, and who was the bottleneck."""
        report = self.folder / "report.json"
        done = subprocess.run(
            [str(self.binaries / "longwire"), "bench", *words, "--data", str(self.folder / "data"), "--quiet",
             "--server-pid", str(self.process.pid), "--json", str(report)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=900)
        if done.returncode != 0:
            raise SystemExit(f"longwire bench {' '.join(words)}: {done.stderr}")
        found = json.loads(report.read_text())
        if found["metrics"].get("loss") or found["metrics"].get("repeats"):
            raise SystemExit(f"longwire bench {' '.join(words)}: the books do not agree: {found['metrics']}")
        return {**found["metrics"], "bottleneck": found["bottleneck"]}


class Comparison:
    """How one load is put on both sides, and which of their figures correspond."""

    def __init__(self, settings):
        self.settings = settings

    def longwire(self, *words):
        with Longwire(self.settings.folder, self.settings.binaries) as server:
            # Registering, and the page faults of a fresh process, are no part of what is compared.
            server.bench("idle", "--connections", str(self.settings.devices), "--hold", "0")
            return server.bench(*words)

    def driver(self, kind, program, mode, *words):
        with kind(self.settings.folder, program) as server:
            driver = self.settings.folder / f"{program}_load"
            done = subprocess.run(
                [str(driver), mode, "--port", str(server.port), "--server-pid", str(server.process.pid), *words],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=900)
            if done.returncode != 0:
                raise SystemExit(f"{driver.name} {mode} {' '.join(words)}: {done.stderr}")
            found = json.loads(done.stdout)
            # Above this the figure is the driver's and not the peer's.
            found["bottleneck"] = "generator" if found["driverBusy"] >= 0.9 else "server"
            return found


class Live(Comparison):
    peer = "mosquitto"
    rows = [("delivered a second", "rate", "rate", "/s"), ("CPU a message", "serverCPU", "serverCPU", "µs"),
            ("deliver p99", "deliver.p99", "deliver.p99", "µs")]

    def words(self):
        s = self.settings
        return ["--devices", str(s.devices), "--in-flight", str(s.in_flight), "--duration", str(s.seconds)]

    def ours(self):
        return self.longwire("live", *self.words())

    def theirs(self):
        return self.driver(Mosquitto, "mqtt", "live", *self.words())


class Paced(Live):
    rows = [("deliver p50", "deliver.p50", "deliver.p50", "µs"), ("deliver p99", "deliver.p99", "deliver.p99", "µs"),
            ("CPU a message", "serverCPU", "serverCPU", "µs")]

    def words(self):
        s = self.settings
        return ["--devices", str(s.devices), "--rate", str(s.rate), "--duration", str(s.seconds)]


class Absent(Comparison):
    peer = "mosquitto"
    rows = [("enqueued a second", "enqueueRate", "enqueueRate", "/s"),
            ("CPU an enqueued message", "enqueueServerCPU", "enqueueServerCPU", "µs"),
            ("drained a second", "drainRate", "drainRate", "/s"),
            ("CPU a drained message", "drainServerCPU", "drainServerCPU", "µs")]

    def words(self):
        s = self.settings
        return ["--devices", str(min(s.devices, 10_000)), "--messages", str(s.messages), "--in-flight",
                str(s.in_flight), "--handshakes", "1000"]

    def ours(self):
        return self.longwire("offline", *self.words())

    def theirs(self):
        # mosquitto's listen backlog is a hundred: with more handshakes in flight it only waits for lost SYNs to return.
        words = self.words()
        words[words.index("--handshakes") + 1] = "64"
        return self.driver(Mosquitto, "mqtt", "absent", *words)


class Storm(Absent):
    rows = [("authenticated a second", "helloRate", "helloRate", "/s"),
            ("until all were drained", "drainedSeconds", "drainedSeconds", "ms")]

    def words(self):
        s = self.settings
        return ["--devices", str(s.devices), "--messages", "1", "--in-flight", str(s.in_flight), "--handshakes", "1000"]

    def ours(self):
        return self.longwire("storm", *self.words())

    def theirs(self):
        found = super().theirs()
        found["drainedSeconds"] *= 1e9
        return found


class Enqueue(Comparison):
    peer = "redis"
    # Redis reads 16 KiB of a connection before it syncs: with two, its groups are small and it is six times as slow.
    senders = ["--senders", "32"]
    rows = [("durably enqueued a second", "enqueueRate", "enqueueRate", "/s"),
            ("CPU an enqueued message", "enqueueServerCPU", "enqueueServerCPU", "µs")]

    def words(self):
        s = self.settings
        return ["--devices", str(s.devices), "--messages", str(s.messages), "--in-flight", str(s.in_flight)]

    def ours(self):
        return self.longwire("offline", *self.words())

    def theirs(self):
        return self.driver(Redis, "redis", "enqueue", *self.words(), *self.senders)


class OneStream(Enqueue):
    def theirs(self):
        words = self.words()
        total = self.settings.devices * self.settings.messages
        words[words.index("--devices") + 1] = "1"
        words[words.index("--messages") + 1] = str(total)
        return self.driver(Redis, "redis", "enqueue", *words, *self.senders)


class Handoff(Comparison):
    peer = "redis"
    rows = [("leased and settled a second", "rate", "rate", "/s"), ("CPU a job", "serverCPU", "serverCPU", "µs"),
            ("jobs created a second", "createRate", "createRate", "/s")]

    def words(self):
        s = self.settings
        return ["--devices", str(min(s.devices, 5_000)), "--messages", str(s.messages), "--in-flight", str(s.in_flight)]

    def ours(self):
        return self.longwire("handoff", *self.words(), "--connections", "8", "--lease", "500")

    def theirs(self):
        return self.driver(Redis, "redis", "handoff", *self.words(), "--senders", "8", "--batch", "500")


class Bare(Longwire):
    """The router of bare_router.c on Longwire's ports; `longwire bench` is told where they are as always."""

    def start(self):
        self.port, senders, http, admin = free_ports(4)
        data = self.folder / "data"
        data.mkdir(mode=0o700)
        addresses = {"device": self.port, "senders": senders, "http": http, "admin": admin}
        demo = {**APP, "adminToken": ADMIN_TOKEN}
        demo |= {f"{name}Address": f"127.0.0.1:{port}" for name, port in addresses.items()}
        (data / "demo.json").write_text(json.dumps(demo))
        self.spawn(str(self.folder.parent / "bare_router"), str(self.port), str(senders))


class BareLive(Live):
    peer = "bare router"

    def theirs(self):
        with Bare(self.settings.folder, self.settings.binaries) as server:
            server.bench("idle", "--connections", str(self.settings.devices), "--hold", "0")
            return server.bench(self.mode, *self.words())

    mode = "live"


class BarePaced(BareLive):
    rows, words = Paced.rows, Paced.words


class BareStorm(BareLive):
    rows = [("authenticated a second", "helloRate", "helloRate", "/s"), ("CPU a Hello", "helloServerCPU", "helloServerCPU", "µs")]
    mode = "storm"

    def words(self):
        return ["--devices", str(self.settings.devices), "--messages", "0", "--handshakes", "1000"]

    def ours(self):
        return self.longwire("storm", *self.words())


COMPARISONS = {"bare": BareLive, "bare-paced": BarePaced, "bare-storm": BareStorm, "live": Live, "paced": Paced, "absent": Absent, "storm": Storm, "enqueue": Enqueue, "stream": OneStream,
               "handoff": Handoff}


def text(value, unit):
    return f"{value:,.0f}{unit}" if unit == "/s" else f"{value / (1e6 if unit == 'ms' else 1e3):,.1f} {unit}"


def compare(name, comparison, rounds):
    """Alternating rounds; the rows of the table, and everything that was measured."""
    ours, theirs = [], []
    for number in range(1, rounds + 1):
        for side, results, title in ((comparison.ours, ours, "longwire"), (comparison.theirs, theirs, comparison.peer)):
            results.append(side())
            key = comparison.rows[0][1 if title == "longwire" else 2]
            print(f"  {name} {number}/{rounds} {title}: {results[-1][key]:,.0f}", file=sys.stderr, flush=True)
    rows = []
    for title, mine, peers, unit in comparison.rows:
        left = [found[mine] for found in ours if mine in found]
        right = [found[peers] for found in theirs if peers in found]
        if not left or not right:
            raise SystemExit(f"{name}: {title} was not measured on both sides")
        one, other = statistics.median(left), statistics.median(right)
        ratio = one / other if other else float("inf")
        spread = f"{text(min(left), unit)} – {text(max(left), unit)}"
        rows.append(f"| {name}: {title} | {text(one, unit)} | {spread} | {comparison.peer} {text(other, unit)} "
                    f"| {text(min(right), unit)} – {text(max(right), unit)} | {ratio:.2f} × |")
    limits = {found["bottleneck"] for found in ours + theirs if found.get("bottleneck")}
    return rows, {"longwire": ours, comparison.peer: theirs}, limits


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--devices", type=int, default=19_000)
    parser.add_argument("--messages", type=int, default=20, help="for each absent device")
    parser.add_argument("--in-flight", type=int, default=2_000)
    parser.add_argument("--rate", type=int, default=20_000, help="messages a second, for paced")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--only", default="live,paced,absent,storm,enqueue,stream,handoff")
    parser.add_argument("--folder", help="where data goes; on the disk that is to be measured")
    parser.add_argument("--json", help="everything that was measured, round by round")
    parser.add_argument("--no-build", action="store_true")
    settings = parser.parse_args()
    chosen = settings.only.split(",")
    unknown = [name for name in chosen if name not in COMPARISONS]
    if unknown:
        parser.error(f"--only: {', '.join(unknown)}; there are {', '.join(COMPARISONS)}")
    programs = {"mosquitto": "mosquitto", "redis": "redis-server"}
    for program in {programs[COMPARISONS[name].peer] for name in chosen if COMPARISONS[name].peer in programs}:
        if not shutil.which(program):
            raise SystemExit(f"there is no {program}: deploy/install-dependencies.sh bench")

    # Both processes of a pair need a descriptor a connection.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and settings.devices > hard - 1_000:
        settings.devices = hard - 1_000
        print(f"With {hard} open files a process, {settings.devices} devices.", file=sys.stderr)

    if not settings.no_build:
        for product in ("longwired", "longwire"):
            subprocess.run(["swift", "build", "-c", "release", "--product", product], cwd=ROOT, check=True,
                           stdout=sys.stderr)
    settings.binaries = (ROOT / ".build/release").resolve()
    parent = pathlib.Path(settings.folder or ROOT / ".build")
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="peers.", dir=parent) as folder:
        settings.folder = pathlib.Path(folder).resolve()
        sources = ROOT / "Tests/Benchmarks/peers"
        for program in ("mqtt", "redis"):
            subprocess.run(["cc", "-std=gnu17", "-O2", "-Wall", "-Wextra", "-o", str(settings.folder / f"{program}_load"),
                            str(sources / f"{program}_load.c"), str(sources / "net.c")], check=True)
        subprocess.run(["cc", "-std=gnu17", "-O2", "-Wall", "-Wextra", "-o", str(settings.folder / "bare_router"),
                        str(sources / "bare_router.c")], check=True)
        rows, measured, warnings = [], {}, []
        for name in chosen:
            found, measured[name], limits = compare(name, COMPARISONS[name](settings), settings.rounds)
            rows += found
            if limits & {"generator", "machine"}:
                warnings.append(f"{name}: in some rounds the {' and the '.join(sorted(limits & {'generator', 'machine'}))} "
                                "was the limit, not only the server.")
    print(f"{settings.rounds} rounds, {settings.devices} devices, {settings.in_flight} in flight, alternating")
    print("\n| what | Longwire, median | range | peer, median | range | ratio |\n|---|---|---|---|---|---|")
    print("\n".join(rows))
    for line in warnings:
        print(f"\n{line}")
    if settings.json:
        pathlib.Path(settings.json).write_text(json.dumps(measured, indent=1))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
