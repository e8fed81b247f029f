#!/usr/bin/env python3
"""Several gateways on Redis compared with the embedded engine, on this machine: the figures of docs/use/Cluster.md, "Speed".

    .build/python/bin/python Tests/Benchmarks/cluster.py [--runs 3] [--only beside,gateways,parts,takeover,handover,register,memory]
        [--seconds 6] [--devices N] [--json FILE] [--no-build] [--folder DIR] [--quiet-within SECONDS]

    beside    one gateway on one primary with its replica, and right before it the embedded engine: live messages a second,
              CPU of the gateway and of each server, the median at 20,000/s
    gateways  1, 2, 3 and 5 gateways with 4,000 unfinished messages in all for devices that are connected to their owner;
              all messages are published at the first one, so that all but one in n cross a link. CPU of all processes
    parts     one gateway with 4, 16, 64 and 256 parts at 20,000/s
    takeover  --devices on four gateways behind an even balancer; SIGKILL of one: the last device that is served again.
              They reconnect as the client does: at random within a second, twice as long after each failure
    register  a renewal in registers of 16, 64 and 256 gateways with 256 parts: the server's time by its own count
    memory    the size of a registered device and of a queued message in a primary once they are rows there
    handover  the same devices; `longwire cluster drain` of one of two gateways: until it owns nothing

CPU is user and system time of a process, all its threads together, by its own clock. Needs a release build (done here unless
--no-build), redis-server, and as many open files as devices. Exits with 1 if a message was lost, refused or repeated.
"""

import argparse
import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("LONGWIRE_BIN_DIR", str(ROOT / ".build/release"))
sys.path[:0] = [str(ROOT / "Tests" / folder) for folder in ("Benchmarks/peers", "Integration/parties", "Integration/rigs")]

from gateway import eventually  # noqa: E402
from redis_rig import RedisRig  # noqa: E402
from servers import ADMIN_TOKEN, APP, Failed, Longwire, cpu_of, free_ports, most_connections  # noqa: E402

SECRET = "benchmark-cluster-secret-0123456789"
ROWS = ("beside", "gateways", "parts", "takeover", "handover", "register", "memory")
IN_FLIGHT = 4_000


def shown(value, unit):
    match unit:
        case "/s": return f"{value:,.0f}/s"
        case "µs" | "ms" | "s" | "×": return f"{value:,.2f} {unit}"
        case _: return f"{value:,.0f}{unit}"


class Member(Longwire):
    """A gateway whose store is on the rig's servers; `parts` are the cluster's."""

    def __init__(self, options, rig, name, parts, advertises=False):
        super().__init__(options.folder, options.binaries)
        self.limits = {**Longwire.limits, "spillAfterSeconds": 60}
        self.rig, self.name, self.parts, self.advertises = rig, name, parts, advertises

    def start(self):
        (port,) = free_ports(1)
        secret = self.folder / "cluster"
        secret.write_text(SECRET)
        secret.chmod(0o600)
        nodes = [server.address for server in self.rig.servers[: self.rig.primary_count]]
        self.sections = {
            "store": {"path": str(self.folder / "data"), "redis": {"nodes": nodes, "minReplicas": 1}},
            "limits": self.limits,
            "cluster": {"name": self.name, "parts": self.parts, "listen": f"127.0.0.1:{port}", "secretFile": str(secret)},
        }
        super().start()

    def introduce(self):
        super().introduce()
        if self.advertises:
            self.sections["cluster"]["advertiseDevices"] = {"plain": f"127.0.0.1:{self.port}"}

    def look(self, path):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.addresses['admin']}{path}", headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def owners(self):
        """Returns the node of each open partition, None for the others."""
        return [part.get("node") if part.get("state") == "open" else None for part in self.look("/v1/cluster")["parts"]]

    def tool(self, *words):
        environment = {**os.environ, "LONGWIRE_ADMIN_TOKEN": ADMIN_TOKEN}
        admin = f"127.0.0.1:{self.addresses['admin']}"
        subprocess.run(
            [str(self.binaries / "longwire"), "cluster", *words, "--admin", admin], env=environment, check=True,
            stdout=subprocess.DEVNULL, timeout=60)


class Members:
    """`with Members(…) as members`: gateways of one cluster, and the bench's words for each."""

    def __init__(self, options, rig, count, parts, advertises=False):
        name = f"bench{time.monotonic_ns() % 1_000_000_000}"
        self.members = [Member(options, rig, name, parts, advertises) for _ in range(count)]

    def __enter__(self):
        try:
            for member in self.members:
                member.__enter__()
            self.wait()
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        for member in self.members:
            member.__exit__()

    def __getitem__(self, index):
        return self.members[index]

    def __iter__(self):
        return iter(self.members)

    def wait(self, timeout=60):
        """Waits until every partition is open and evenly distributed, and all gateways agree."""
        def look():
            try:
                maps = [member.owners() for member in self.members]
            except OSError:
                return False
            counts = [maps[0].count(node) for node in set(maps[0])]
            return None not in maps[0] and len({tuple(one) for one in maps}) == 1 \
                and len(counts) == min(len(self.members), len(maps[0])) and max(counts) - min(counts) <= 1

        eventually(look, "that all parts are served", timeout)


class Window:
    """CPU seconds of processes between two moments."""

    def __init__(self, **processes):
        self.processes = processes
        self.began = self.look()

    def look(self):
        return {name: sum(cpu_of(pid) for pid in pids) / 1e9 for name, pids in self.processes.items()}

    def end(self):
        after = self.look()
        return {name: after[name] - before for name, before in self.began.items()}


class Bench:
    def __init__(self, options):
        self.options = options
        self.found = {}  # name → (goal, unit, [values])

    def note(self, what, goal, unit, value):
        self.found.setdefault(what, (goal, unit, []))[2].append(value)
        print(f"  {what}: {shown(value, unit)}", file=sys.stderr, flush=True)

    def table(self):
        lines = ["| what | goal | median | range |", "|---|---|---|---|"]
        for what, (goal, unit, values) in self.found.items():
            spread = f"{shown(min(values), unit)} – {shown(max(values), unit)}" if len(values) > 1 else ""
            lines.append(f"| {what} | {goal} | {shown(statistics.median(values), unit)} | {spread} |")
        return "\n".join(lines)

    def rig(self):
        return RedisRig(is_cluster=False)

    # One gateway compared with the embedded engine

    def beside(self):
        full = ["live", "--devices", "1000", "--in-flight", "4000", "--duration", str(self.options.seconds)]
        paced = ["live", "--devices", "1000", "--rate", "20000", "--duration", str(self.options.seconds)]
        with Longwire(self.options.folder, self.options.binaries) as alone:
            alone.bench("idle", "--connections", "1000", "--hold", "0")
            embedded = alone.bench(*full)
            embedded_paced = alone.bench(*paced)
        with self.rig() as rig, Members(self.options, rig, 1, 16) as members:
            gateway = members[0]
            gateway.bench("idle", "--connections", "1000", "--hold", "0")
            redis, servers = self.beside_redis(gateway, rig, full)
            paced_redis, paced_servers = self.beside_redis(gateway, rig, paced)
        self.note("embedded: live messages a second", "", "/s", embedded["rate"])
        self.note("on Redis: live messages a second", "", "/s", redis["rate"])
        self.note("on Redis to embedded: live messages a second", "≥ 0.6", "×", redis["rate"] / embedded["rate"])
        self.note("embedded: CPU of the gateway a message", "", "µs", embedded["serverCPU"] / 1e3)
        self.note("on Redis: CPU of the gateway a message", "", "µs", redis["serverCPU"] / 1e3)
        self.note("on Redis to embedded: CPU of the gateway", "≤ 1.5", "×", redis["serverCPU"] / embedded["serverCPU"])
        self.note("CPU of the primary a message", "≤ 3 µs", "µs", servers["primary"])
        self.note("CPU of its replica a message", "", "µs", servers["replica"])
        self.note("embedded, 20,000/s: p50", "", "ms", embedded_paced["deliver.p50"] / 1e6)
        self.note("on Redis, 20,000/s: p50", "", "ms", paced_redis["deliver.p50"] / 1e6)
        self.note("on Redis to embedded, 20,000/s: p50", "≤ 2", "×",
                  paced_redis["deliver.p50"] / embedded_paced["deliver.p50"])
        self.note("embedded, 20,000/s: p99", "", "ms", embedded_paced["deliver.p99"] / 1e6)
        self.note("on Redis, 20,000/s: p99", "", "ms", paced_redis["deliver.p99"] / 1e6)
        self.note("embedded, 20,000/s: CPU of the gateway a message", "", "µs", embedded_paced["serverCPU"] / 1e3)
        self.note("on Redis, 20,000/s: CPU of the gateway a message", "", "µs", paced_redis["serverCPU"] / 1e3)
        self.note("20,000/s: CPU of the primary a message", "", "µs", paced_servers["primary"])
        self.note("20,000/s: CPU of its replica a message", "", "µs", paced_servers["replica"])

    def beside_redis(self, gateway, rig, words):
        """Returns the generator's figures, and each server's CPU per message over the whole run, including its warm-up."""
        primary, replica = (server.process.pid for server in rig.servers)
        window = Window(primary=[primary], replica=[replica])
        before = delivered(gateway)
        found = gateway.bench(*words)
        count = delivered(gateway) - before
        return found, {name: used / count * 1e6 for name, used in window.end().items()}

    # The cost of more gateways and partitions

    def gateways(self):
        base = None
        for count in (1, 2, 3, 5):
            with self.rig() as rig, Members(self.options, rig, count, 32) as members:
                used = self.spread(members, rig)
            for name, value in used.items():
                self.note(f"{count} gateways: CPU of {name} a message", "", "µs", value)
            base = base or used["all gateways"]
            self.note(f"{count} gateways to one: CPU of all gateways a message", "0.85 – 1.15", "×",
                      used["all gateways"] / base)

    def spread(self, members, rig):
        """Connects devices to their owners and publishes at the first gateway; returns CPU microseconds per message."""
        first = members[0]
        first.bench("idle", "--connections", "1000", "--hold", "0")
        relayed = sum(member.metrics().get("longwire_devices_relayed_total", 0) for member in members)
        shares = split_devices(first.data / "bench-devices", first.owners())
        by_node = {member.look("/v1/cluster")["node"]: member for member in members}
        runs, outputs = [], []
        before = sum(delivered(member) for member in members)
        window = Window(
            **{"all gateways": [member.process.pid for member in members],
               "the primary": [rig.servers[0].process.pid], "its replica": [rig.servers[1].process.pid]})
        for node, lines in shares.items():
            owner = by_node[node]
            path = first.folder / f"devices-{node}"
            path.write_text("\n".join([f"longwire-bench-devices 1 {APP['appId']}", *lines]) + "\n")
            path.chmod(0o600)
            report = first.folder / f"report-{node}.json"
            share = IN_FLIGHT * len(lines) // sum(map(len, shares.values()))
            words = first.bench_words(
                "live", "--devices", str(len(lines)), "--in-flight", str(share), "--duration", str(self.options.seconds),
                "--devices-file", str(path), "--device-address", f"127.0.0.1:{owner.addresses['device']}",
                "--senders", "1", "--json", str(report))
            outputs.append(report)
            runs.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
        for run in runs:
            _, text = run.communicate(timeout=300)
            if run.returncode != 0:
                raise Failed(f"longwire bench: {text}")
        used = window.end()
        count = sum(delivered(member) for member in members) - before
        for report in outputs:
            found = json.loads(report.read_text())["metrics"]
            if found["loss"] or found["repeats"]:
                raise Failed(f"the books do not agree: {found}")
        if sum(member.metrics().get("longwire_devices_relayed_total", 0) for member in members) != relayed:
            raise Failed("devices were relayed that were to be at their owners")
        return {name: value / count * 1e6 for name, value in used.items()}

    def parts(self):
        base = None
        for count in (4, 16, 64, 256):
            with self.rig() as rig, Members(self.options, rig, 1, count) as members:
                gateway = members[0]
                gateway.bench("idle", "--connections", "1000", "--hold", "0")
                words = ["live", "--devices", "1000", "--rate", "20000", "--duration", str(self.options.seconds)]
                found, servers = self.beside_redis(gateway, rig, words)
            used = found["serverCPU"] / 1e3
            base = base or used + servers["primary"]
            self.note(f"{count} parts, 20,000/s: CPU of the gateway a message", "", "µs", used)
            self.note(f"{count} parts, 20,000/s: CPU of the primary a message", "", "µs", servers["primary"])
            self.note(f"{count} parts to 4: CPU of gateway and primary", "0.85 – 1.15", "×",
                      (used + servers["primary"]) / base)
            self.note(f"{count} parts, 20,000/s: p50", "", "ms", found["deliver.p50"] / 1e6)


    # The effect of a gateway's end on the devices

    def takeover(self):
        self.lose_one("sent to their owners", True)
        self.lose_one("relayed", False)

    def lose_one(self, how, advertises):
        count, gateways = self.options.devices or min(most_connections(), 20_000), 4
        with self.rig() as rig, Members(self.options, rig, gateways, 16, advertises) as members, \
                Returning(members, count) as devices:
            time.sleep(3)
            victim = members[-1]
            parts = victim.owners().count(victim.look("/v1/cluster")["node"])
            devices.report()
            killed = time.monotonic_ns()
            victim.process.kill()
            victim.process.wait()
            found = devices.wait(lambda found: found["welcome"] == count and found["lost"] > 0)
            members.members.remove(victim)
            members.wait()
            victim.__exit__()
        self.note(f"SIGKILL of one of {gateways} gateways, {count:,} devices {how}: the last one served again", "≤ 3 s", "s",
                  (found["lastWelcome"] - killed) / 1e9)
        self.note(f"{how}: devices that lost their connection", "", "", found["lost"])
        self.note(f"{how}: times that one was turned away", "", "", found["turnedAway"])
        self.note(f"{how}: parts that moved", "", "", parts)

    def handover(self):
        count = self.options.devices or min(most_connections(), 20_000) // 2
        with self.rig() as rig, Members(self.options, rig, 2, 16) as members, Returning(members, count) as devices:
            time.sleep(3)
            giver, taker = members
            node = giver.look("/v1/cluster")["node"]
            parts = giver.owners().count(node)
            devices.report()
            began = time.monotonic_ns()
            giver.tool("drain", "--node", str(node))
            eventually(lambda: node not in taker.owners() and None not in taker.owners(), "the hand-over")
            ended = time.monotonic_ns()
            found = devices.wait(lambda found: found["welcome"] == count)
        self.note(f"hand-over of all {parts} parts of a gateway, {count:,} devices", "≤ 1 s", "s", (ended - began) / 1e9)
        self.note("the last device served again", "", "s", max(0, found["lastWelcome"] - began) / 1e9)
        self.note("devices that lost their connection", "", "", found["lost"])


    # Memory in Redis

    def memory(self):
        with self.rig() as rig:
            members = Members(self.options, rig, 1, 16)
            members[0].limits["spillAfterSeconds"] = 2
            with members:
                self.fill(members[0], rig.servers[0])

    def fill(self, gateway, primary):
        before = self.settled_memory(gateway, primary)
        gateway.bench("idle", "--connections", "10000", "--hold", "0")
        registered = self.settled_memory(gateway, primary)
        gateway.bench("http", "--devices", "1000", "--duration", "4", "--warmup", "0", "--connections", "16")
        queued = self.settled_memory(gateway, primary)
        count = delivered(gateway)
        self.note("memory of a primary a registered device", "", " B", (registered - before) / 10_000)
        self.note("memory of a primary a queued message of 256 B, with its request id and trace", "", " B",
                  (queued - registered) / count)

    def settled_memory(self, gateway, primary):
        """Returns the bytes of the primary's data once the log is empty and all data are rows."""
        gateway.without_connections()
        eventually(lambda: gateway.metrics()["longwire_store_young_rows"] == 0, "that all rows are cold", 180)
        time.sleep(2)
        return int(primary.info("memory")["used_memory_dataset"])

    # The register

    def register(self):
        script = renewal_script()
        with self.rig() as rig:
            for count in (16, 64, 256):
                primary = rig.servers[0]
                primary.call("FLUSHALL")
                keys = [f"{{lw:register}}:{name}" for name in "cnlowu"]
                with primary.connect() as one:
                    version, far = "77", str(int(time.time() * 1000) + 600_000)
                    one.call("HSET", keys[0], "version", version, "format", "1", "parts", "256", "tokenKey", "00" * 32,
                             "queueEpoch", "1", "clock", "1", "last", far)
                    for node in range(1, count + 1):
                        info = f"address=10.0.{node // 250}.{node % 250}:7100 release=0.1.0 mark=0123456789abcdef devices=gw-{node}.example.com:7443"
                        one.call("HSET", keys[1], node, f"{node + (1 << 60)} 1700000000000 {info}")
                        one.call("ZADD", keys[2], far, node)
                    for part in range(256):
                        one.call("HSET", keys[3], part, f"12:open:{part % count + 1}")
                    for what, seen in (("nothing new", version), ("a snapshot", "0")):
                        one.call("CONFIG", "RESETSTAT")
                        for turn in range(500):
                            node = turn % count + 1
                            info = f"address=10.0.{node // 250}.{node % 250}:7100 release=0.1.0 mark=0123456789abcdef devices=gw-{node}.example.com:7443"
                            reply = one.call("EVAL", script, 6, *keys, "99", "600000", node, node + (1 << 60), info, "1", seen)
                            assert reply[0] == (b"same" if seen == version else b"ok"), reply[:3]
                        found = primary.info("commandstats")["cmdstat_eval"]
                        self.note(f"register of {count} gateways, renewal with {what}: the server's time", "", "µs",
                                  float(found.split("usec_per_call=")[1].split(",")[0]))
                        if seen == "0":
                            self.note(f"register of {count} gateways: bytes of a snapshot", "", "", size_of(reply))


def renewal_script():
    """Returns the Lua of a renewal in RegisterScripts.swift."""
    text = (ROOT / "Sources/Gateway/Gateway/Cluster/RegisterScripts.swift").read_text()

    def after(mark):
        begin = text.index('"""', text.index(mark)) + 3
        return text[begin : text.index('"""', begin)]

    return after("private static let opening") + after("static let renew")


def size_of(reply):
    """Returns the bytes of a reply on the wire."""
    if isinstance(reply, list):
        return len(str(len(reply))) + 3 + sum(map(size_of, reply))
    return len(reply) + len(str(len(reply))) + 5 if isinstance(reply, bytes) else len(str(reply)) + 3


class Returning:
    """The devices of `longwire-return-benchmark`, registered and connected at each gateway in turn."""

    def __init__(self, members, count):
        self.members, self.count, self.process = members, count, None
        self.found = {}

    def __enter__(self):
        lines = []
        for number, member in enumerate(self.members):
            # Each gateway registers a share, because a relayed connection costs its first gateway two open files.
            share = self.count // len(self.members.members) + (number < self.count % len(self.members.members))
            try:
                member.bench("idle", "--connections", str(share), "--hold", "0")
            except Failed:
                # The generator does not follow a redirect. All devices are registered by then.
                if not member.advertises:
                    raise
            member.without_connections()
            lines += (member.data / "bench-devices").read_text().splitlines()[1:]
        path = self.members[0].folder / "devices"
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o600)
        words = [str(self.members[0].binaries / "longwire-return-benchmark"), APP["appId"], str(path),
                 *(str(member.addresses["device"]) for member in self.members)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.wait(lambda found: found["welcome"] == self.count)
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def report(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def wait(self, condition, timeout=120):
        """Sums reports until they fulfil the condition; returns the sum."""
        total = {"lost": 0, "turnedAway": 0, "lastWelcome": 0, "closes": {}}

        def look():
            found = self.report()
            total["welcome"] = found["welcome"]
            for name in ("lost", "turnedAway"):
                total[name] += found[name]
            for code, number in found["closes"].items():
                total["closes"][code] = total["closes"].get(code, 0) + number
            total["lastWelcome"] = max(total["lastWelcome"], found["lastWelcome"])
            return condition(total)

        try:
            eventually(look, "the devices' return", timeout)
        except AssertionError as error:
            raise Failed(f"{error}: {total}") from error
        print(f"    {total}", file=sys.stderr)
        return total


def split_devices(path, owners):
    """Returns the lines of a devices file by the node that owns the device's partition."""
    shares = {}
    for line in path.read_text().splitlines()[1:]:
        digest = hashlib.sha256(APP["appId"].encode() + b"\0" + line.split()[0].encode()).digest()
        bucket = digest[0] << 4 | digest[1] >> 4
        shares.setdefault(owners[bucket % len(owners)], []).append(line)
    return shares


def delivered(gateway):
    """Returns the number of messages that the gateway has accepted since its start."""
    return sum(value for name, value in gateway.metrics().items() if name.startswith("longwire_messages_accepted_total"))


def quiet(most):
    """Waits at most `most` seconds until this machine is nearly idle for two seconds."""
    def busy():
        words = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        return sum(words) - words[3] - words[4], sum(words)

    end = time.monotonic() + most
    while time.monotonic() < end:
        used, all_ = busy()
        time.sleep(2)
        used, all_ = busy()[0] - used, busy()[1] - all_
        if used < 0.15 * all_:
            return
    if most:
        print("  other work is on the machine", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--only", default=",".join(ROWS))
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--devices", type=int, default=0)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--no-build", action="store_true")
    parser.add_argument("--quiet-within", type=int, default=0, help="seconds to wait, before each row, for a machine without other work")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / ".build")
    parser.add_argument("--binaries", type=pathlib.Path, default=ROOT / ".build/release")
    options = parser.parse_args()
    chosen = options.only.split(",")
    for name in chosen:
        if name not in ROWS:
            sys.exit(f"there is no row {name}: {', '.join(ROWS)}")
    if not options.no_build:
        for product in ("longwired", "longwire", "longwire-return-benchmark"):
            subprocess.run(["swift", "build", "-c", "release", "-debug-info-format", "none", "--product", product], cwd=ROOT, check=True, stdout=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="cluster-bench.", dir=options.folder) as folder:
        options.folder = pathlib.Path(folder)
        tempfile.tempdir = folder  # the servers' folders, too: on the disk that is measured
        bench = Bench(options)
        for run in range(options.runs):
            for name in chosen:
                print(f"run {run + 1}, {name}", file=sys.stderr, flush=True)
                quiet(options.quiet_within)
                try:
                    getattr(bench, name)()
                except Failed as error:
                    sys.exit(str(error))
    print(f"Machine: {os.cpu_count()} cores, {os.uname().sysname} {os.uname().release}.\n")
    print(bench.table())
    if options.json:
        options.json.write_text(json.dumps(
            {what: {"goal": goal, "unit": unit, "values": values} for what, (goal, unit, values) in bench.found.items()},
            indent=1) + "\n")


if __name__ == "__main__":
    main()
