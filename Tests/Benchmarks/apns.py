#!/usr/bin/env python3
"""The capacity of `longwire-sender` with its fake Apple on this machine: the APNs rows of docs/results/Performance.md.

    .build/python/bin/python Tests/Benchmarks/apns.py [--runs 3] [--only source,peer,latency,backlog] [--seconds 10] [--json FILE]

The fake and the source of jobs run on one core, the sender on the other (taskset). The sender therefore shares its core
with the kernel alone.

    source   notifications a second, jobs from a handoff API in memory (senders/handoff_source.py)
    peer     the same notifications to the same fake with aioapns on uvloop (senders/peer_aioapns.py), right after `source`
    latency  1,000 pushes a second through a real gateway: from the publisher's clock before its call to the fake's record
    backlog  a real gateway with 10,000 and with 200,000 jobs: notifications a second, memory of the sender

A notification counts when the fake has accepted it and the source or the gateway has its result. CPU is the sender's user and
system time, of all its threads, over the measured window. Needs a release build (done here unless --no-build) and
`deploy/install-dependencies.sh test bench`. Exits with 1 if a notification was lost, refused or repeated.
"""

import argparse
import concurrent.futures
import http.client
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("LONGWIRE_BIN_DIR", str(ROOT / ".build/release"))
sys.path[:0] = [str(ROOT / "Tests" / folder) for folder in ("Benchmarks/senders", "Integration/parties")]

import handoff_source  # noqa: E402
import longwire_client  # noqa: E402
from apple import FakeApple, Sender  # noqa: E402
from gateway import Gateway, eventually  # noqa: E402
from source_process import Source  # noqa: E402

PEER = ROOT / ".build/apns-peer/bin/python"
BODY = 256
ROWS = ("source", "peer", "latency", "backlog")


def pinned(core):
    """Returns words that pin a process to a core, or none if that is impossible."""
    if not shutil.which("taskset") or os.cpu_count() < 2:
        return []
    return ["taskset", "--cpu-list", str(core)]


def cpu(pid):
    """Returns the CPU seconds of all threads of a process."""
    return time.clock_gettime((~pid << 3) | 2)


def memory(pid, name="Rss"):
    """Returns the resident bytes of a process, or their maximum with `VmHWM`."""
    if name == "VmHWM":
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    else:
        lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


class Window:
    """Rates and CPU between two samples of a sender, its fake and its source."""

    def __init__(self, apple, sender, feeder):
        self.apple, self.processes = apple, {"sender": sender.pid, "fake": apple.process.pid, "feeder": feeder.pid}
        self.began = self.look()

    def look(self):
        return {
            "time": time.monotonic(), "taken": json.loads(self.apple.call("GET", "/counts")[1])["production"]["taken"],
            **{name: cpu(pid) for name, pid in self.processes.items()},
        }

    def end(self):
        before, after = self.began, self.look()
        seconds, count = after["time"] - before["time"], after["taken"] - before["taken"]
        used = {name: after[name] - before[name] for name in self.processes}
        return {
            "rate": count / seconds, "cpu": used["sender"] / count,
            **{f"{name}Cores": value / seconds for name, value in used.items()},
        }


class Bench:
    def __init__(self, options):
        self.options = options
        self.found = {}  # name → (goal, unit, [values])

    def note(self, what, goal, unit, value):
        self.found.setdefault(what, (goal, unit, []))[2].append(value)
        print(f"  {what}: {shown(value, unit)}", file=sys.stderr, flush=True)

    def sender(self, feeder, apple, **gateway):
        sender = Sender(feeder, apple, **gateway)
        sender.words = pinned(1)
        return sender

    def apple(self, **options):
        return FakeApple(words=pinned(0), **options)

    # The rows

    def source(self):
        with Source(body=BODY, words=pinned(0)) as source, self.apple(records=False) as apple, self.sender(source, apple) as sender:
            eventually(lambda: source.figures()["accepted"] > 1_000, "a first thousand")
            time.sleep(2)
            window = Window(apple, sender.process, source.process)
            time.sleep(self.options.seconds)
            found = window.end()
            figures = source.figures()
            peak = memory(sender.process.pid, "VmHWM")
            if sender.stop() != 0 or figures["other"] or figures["strangers"]:
                raise SystemExit(f"not all went well: {figures}\n{sender.log()}")
            left = source.figures()
            taken = json.loads(apple.call("GET", "/counts")[1])["production"]["taken"]
            if taken != left["accepted"] or left["out"]:
                raise SystemExit(f"the books do not agree: Apple took {taken}, the source has {left}")
        self.note("notifications a second", "≥ 15,000/s", "/s", found["rate"])
        self.note("CPU a notification", "", "µs", found["cpu"] * 1e6)
        self.note("a second of the sender's CPU", "", "/s", 1 / found["cpu"])
        self.note("cores: sender", "", "", found["senderCores"])
        self.note("cores: fake", "", "", found["fakeCores"])
        self.note("cores: source", "", "", found["feederCores"])
        self.note("memory of the sender at most", "", "MiB", peak / (1 << 20))
        self.note("jobs in the sender at most", "", "jobs", figures["mostOut"])
        return found

    def peer(self):
        if not PEER.exists():
            raise SystemExit("aioapns is not here; run: deploy/install-dependencies.sh bench")
        ours = self.source() if "source" not in self.options.chosen else self.ours
        with self.apple(records=False) as apple:
            words = [
                *pinned(1), str(PEER), str(ROOT / "Tests/Benchmarks/senders/peer_aioapns.py"), "--port", str(apple.production),
                "--certificate", str(apple.certificate), "--key", str(apple.key), "--body", str(BODY),
                "--count", str(1_500 * self.options.seconds),
            ]
            done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=600)
            if done.returncode != 0:
                raise SystemExit(f"aioapns ended with {done.returncode}")
            found = json.loads(done.stdout)
        if found["taken"] != 1_500 * self.options.seconds:
            raise SystemExit(f"aioapns: not all were taken: {found}")
        rate, used = found["taken"] / found["seconds"], found["cpuSeconds"] / found["taken"]
        self.note("aioapns: notifications a second", "", "/s", rate)
        self.note("aioapns: CPU a notification", "", "µs", used * 1e6)
        self.note("longwire-sender to aioapns: notifications a second", "≥ 3", "×", ours["rate"] / rate)
        self.note("aioapns to longwire-sender: CPU a notification", "≥ 3", "×", used / ours["cpu"])

    def latency(self):
        rate, group = 1_000, 10
        count = rate * self.options.seconds
        with self.gateway() as gateway, self.apple() as apple, self.sender(gateway, apple) as sender:
            cids = register(gateway, 1_000)
            self.paced(gateway, cids, rate, rate, group)  # opens connections, warms caches
            eventually(lambda: len(apple.requests()) == rate, "the warm-up's requests")
            window = Window(apple, sender.process, gateway.process)
            self.paced(gateway, cids, count, rate, group)
            found = window.end()
            eventually(lambda: len(apple.requests()) >= rate + count, "every request")
            requests = apple.requests()[rate:]
            delays = sorted(one["at"] - int(one["body"]["payload"]) / 1_000 for one in requests)
            if len({one["id"] for one in requests}) != count or len(requests) != count:
                raise SystemExit(f"{len(requests)} requests for {count} pushes")
        for share, goal in ((0.5, ""), (0.99, "≤ 50 ms"), (0.999, "")):
            value = delays[min(count - 1, int(share * count))]
            self.note(f"{rate:,}/s, publish to request at the fake: p{share * 100:g}", goal, "ms", value)
        self.note(f"{rate:,}/s: CPU a notification", "", "µs", found["cpu"] * 1e6)

    def backlog(self):
        for count in (10_000, 200_000):
            with self.gateway() as gateway, self.apple(records=False) as apple:
                cids = register(gateway, 1_000)
                enqueue(gateway, cids, count // len(cids))
                with self.sender(gateway, apple, waitSeconds=1) as sender:
                    window = Window(apple, sender.process, gateway.process)
                    eventually(lambda: window.look()["taken"] >= count, f"{count} notifications", 300)
                    found = window.end()
                    eventually(lambda: sender.metric('outcomes_total{outcome="accepted"}') == count
                               and sender.metric("jobs_held") == 0, "every result")
                    self.note(f"backlog of {count:,}: memory of the sender at most", "", "MiB",
                              memory(sender.process.pid, "VmHWM") / (1 << 20))
                    if window.look()["taken"] != count:
                        raise SystemExit("some notification went twice")
            if count > 100_000:
                self.note(f"backlog of {count:,}, gateway on the fake's core: notifications a second", "", "/s", found["rate"])
                self.note("backlog: CPU a notification", "", "µs", found["cpu"] * 1e6)
                self.note("backlog: cores: gateway", "", "", found["feederCores"])
                self.note("backlog: cores: fake", "", "", found["fakeCores"])
                self.note("backlog: cores: sender", "", "", found["senderCores"])

    # Parts

    def gateway(self):
        gateway = PinnedGateway(
            limits={"drainSeconds": 0}, app={"queue": {"messages": 10_000, "bytes": 1 << 26}, "push": {}})
        return gateway

    def paced(self, gateway, cids, count, rate, group):
        """Sends `count` pushes for offline devices; the time of each is in its content."""
        def contents(first):
            items = []
            for number in range(first, first + group):
                # The transmission is the same as Apple's payload: under strategy 2 nothing else would carry it.
                sent = str(time.time_ns() // 1_000)
                body = gateway.push_body(cids[number % len(cids)], sent, strategy=2)
                body["push_channel"] = {"ios": {"aps": {"alert": {"title": "Your order", "body": "It is on its way"}}, "payload": sent}}
                items.append(body)
            return items

        self.batches(gateway, count, rate, group, contents)

    def batches(self, gateway, count, rate, group, contents):
        """Sends `count` pushes in calls of `group`, each at its time, whether earlier calls have returned or not.

        `contents` returns the pushes of a call from the number of its first one.
        """
        token = gateway.authenticate()
        path = f"/v2/{gateway.app['appId']}/push/single/batch/cid"
        headers = {"Content-Type": "application/json;charset=utf-8", "token": token}

        def call(first, connections=[]):
            connection = connections.pop() if connections else http.client.HTTPConnection("127.0.0.1", gateway.http, timeout=60)
            connection.request("POST", path, json.dumps({"msg_list": contents(first)}), headers)
            answer = json.loads(connection.getresponse().read())
            if answer["code"] != 0:
                raise SystemExit(f"a push was refused: {answer}")
            connections.append(connection)

        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            calls = []
            for first in range(0, count, group):
                time.sleep(max(0, began + first / rate - time.monotonic()))
                calls.append(pool.submit(call, first))
            for one in calls:
                one.result()

    def table(self):
        lines = ["| what | goal | median | range |", "|---|---|---|---|"]
        for what, (goal, unit, values) in self.found.items():
            spread = f"{shown(min(values), unit)} – {shown(max(values), unit)}" if len(values) > 1 else ""
            lines.append(f"| {what} | {goal} | {shown(statistics.median(values), unit)} | {spread} |")
        return "\n".join(lines)


    def report(self):
        """Prints the table, and writes the figures to the file of --json."""
        print(f"Machine: {os.cpu_count()} cores, {os.uname().sysname} {os.uname().release}.\n")
        print(self.table())
        if self.options.json:
            self.options.json.write_text(json.dumps(
                {what: {"goal": goal, "unit": unit, "values": values} for what, (goal, unit, values) in self.found.items()},
                indent=1) + "\n")


class PinnedGateway(Gateway):
    """A gateway that shares the fake's core."""

    def spawn(self, *arguments, **options):
        if pinned(0):
            # All threads inherit the core of the one that starts them.
            options["preexec_fn"] = lambda: os.sched_setaffinity(0, {0})
        return super().spawn(*arguments, **options)


def register(gateway, count):
    """Registers devices with one token each and disconnects them; returns their cids."""
    cids = []
    for number in range(count):
        device = longwire_client.Device("127.0.0.1", gateway.device, gateway.app["appId"])
        device.register(
            gateway.app["appSecret"], tokens=[longwire_client.pb.VendorToken(token=f"ab{number:062x}")])
        cids.append(device.state.cid.hex())
        device.close()
    eventually(lambda: not gateway.view(cids[-1])["connected"])
    return cids


def enqueue(gateway, cids, each):
    """Enqueues `each` jobs for every device by lists."""
    for _ in range(each):
        made = gateway.api("POST", "push/list/message", {
            "push_message": {"transmission": "x" * 64}, "settings": {"strategy": {"default": 2}, "ttl": 7_200_000},
            "push_channel": {"ios": json.loads(handoff_source.body(BODY))}})
        gateway.api("POST", "push/list/cid", {"taskid": made["data"]["taskid"], "audience": {"cid": cids}, "is_async": False})


def shown(value, unit):
    match unit:
        case "/s": return f"{value:,.0f}/s"
        case "jobs": return f"{value:,.0f}"
        case "MiB" | "µs" | "ms": return f"{value:,.1f} {unit}"
        case "×": return f"{value:,.2f} ×"
        case _: return f"{value:,.2f}"


def build():
    for product in ("longwired", "longwire-sender"):
        subprocess.run(
            ["swift", "build", "-c", "release", "-debug-info-format", "none", "--product", product], cwd=ROOT, check=True,
            stdout=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--only", default=",".join(ROWS))
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--no-build", action="store_true")
    options = parser.parse_args()
    options.chosen = options.only.split(",")
    for name in options.chosen:
        if name not in ROWS:
            sys.exit(f"there is no row {name}: {', '.join(ROWS)}")
    if not options.no_build:
        build()
    bench = Bench(options)
    for run in range(options.runs):
        for name in options.chosen:
            print(f"run {run + 1}, {name}", file=sys.stderr, flush=True)
            bench.ours = getattr(bench, name)()
    bench.report()


if __name__ == "__main__":
    main()
