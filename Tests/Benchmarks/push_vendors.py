#!/usr/bin/env python3
"""The cost of `longwire-sender` for the push vendors of Android and the web: rows of docs/results/Performance.md.

    .build/python/bin/python Tests/Benchmarks/push_vendors.py [--runs 3] [--only fcm,fcmPeer,…] [--seconds 10] [--json FILE]

nginx (senders/vendor_services.py) replaces all vendors. nginx and the source of jobs run on one core, the sender on the
other (taskset). The sender therefore shares its core with the kernel alone.

    fcm, webPush         notifications a second over HTTP/2, jobs from a handoff API in memory; Web Push with encryption
    hms … meizu          the same over HTTP/1.1 with 64 connections
    fcmPeer              the same messages to the same nginx with async-firebase and with firebase-admin (senders/peer_fcm.py)
    webPushPeer          the same with pywebpush (senders/peer_webpush.py)
    latency              1,000 pushes a second through a real gateway to nine vendors, `longwire-sender fake` in their place: from
                         the publisher's clock before its call to the fake's record
    content              the gateway's instructions for a push with Android content, compared to iOS content (callgrind)

A notification counts when nginx has answered it and the source has its result. CPU is the user and system time of all
sender threads in the measured window. Other load on the machine affects CPU far less than the rate. The script needs a
release build (built here unless --no-build) and `deploy/install-dependencies.sh test bench counting`. The exit code is
1 if a notification was lost, refused or repeated.
"""

import argparse
import functools
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import apns  # noqa: E402  (its paths make the next imports possible)
from apns import ROOT, cpu, memory, pinned  # noqa: E402
from fake_vendors import FakeVendors  # noqa: E402
from gateway import HANDOFF_TOKEN, binary, eventually, free_ports  # noqa: E402
from handoff_source import NOTICE  # noqa: E402
from source_process import Source  # noqa: E402
from vendor_services import VendorServices  # noqa: E402
import longwire_client  # noqa: E402

PEER = ROOT / ".build/vendor-peer/bin/python"
HTTP1 = ("hms", "harmony", "honor", "xiaomi", "oppo", "vivo", "meizu")
GOALS = {"fcm": 15_000, "webPush": 6_000, **{vendor: 8_000 for vendor in HTTP1}}
ROWS = ("fcm", "fcmPeer", "webPush", "webPushPeer", *HTTP1, "latency", "content")
VENDORS = tuple(GOALS)
CHANNELS = {"webPush": "WEB_PUSH"}
CONTENT = {
    "android": {"ups": {"notification": {**NOTICE, "click_type": "startapp"}}},
    "harmony": {"notification": {**NOTICE, "click_type": "startapp", "category": "EXPRESS"}},
}
IOS = {"ios": {"aps": {"alert": NOTICE, "sound": "default"}}}
FASTEST = 100_000  # the largest `requestsPerSecond` of a configuration


def load_check():
    """Returns bench-check.py as a module; its name has a dash."""
    found = importlib.util.spec_from_file_location("bench_check", HERE / "bench-check.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


check = load_check()


def vendor_token(channel, number):
    """Returns the fields of a VendorToken: 0 is Apple's channel, 1 FCM's."""
    token = f"ab{number:062x}" if channel == 0 else f"{number:022x}:".ljust(163, "A")
    kind = check.lockstep.number(5, channel) if channel else b""
    return check.lockstep.text(3, b"com.example.app") + check.lockstep.text(4, token.encode()) + kind


class MixedFakes(FakeVendors):
    """`longwire-sender fake` on nginx's core, and a sender for nine vendors on the other."""

    def __init__(self, gateway):
        super().__init__(Stub(f"http://127.0.0.1:{gateway.admin}"))

    def __enter__(self):
        (self.folder / "sender-token").touch(0o600)
        (self.folder / "sender-token").write_text(HANDOFF_TOKEN)
        words = ["fake", "--folder", str(self.folder), "--record", str(self.record), "--gateway", self.stub.url]
        for name, port in self.ports.items():
            words += [f"--{name}", f"127.0.0.1:{port}"]
        self._words = [*pinned(0), binary("longwire-sender"), *words]
        self._start("/push/")
        self.sender = subprocess.Popen(
            [*pinned(1), binary("longwire-sender"), "--config", str(self.folder / "sender.json5")], stdout=subprocess.DEVNULL)
        return self

    def taken(self):
        return sum(b'"taken":true' in line for line in self.record.read_bytes().splitlines())


class Stub:
    def __init__(self, url):
        self.url = url


def register(gateway, fakes, count):
    """Registers devices, each with a token of one vendor, and disconnects them; returns cid → vendor and token."""
    tokens = {}
    for number in range(count):
        vendor = VENDORS[number % len(VENDORS)]
        name = f"device-{number}"
        device = longwire_client.Device("127.0.0.1", gateway.device, gateway.app["appId"])
        token = longwire_client.pb.VendorToken(
            channel=getattr(longwire_client.pb.VendorToken, CHANNELS.get(vendor, vendor.upper())), token=fakes.token(vendor, name))
        device.register(gateway.app["appSecret"], tokens=[token])
        tokens[device.state.cid.hex()] = (vendor, name)
        device.close()
    eventually(lambda: not gateway.view(device.state.cid.hex())["connected"])
    return tokens


class Sender:
    """`longwire-sender` for one vendor, with jobs from `source`."""

    def __init__(self, source, services, vendor, words=(), **settings):
        self._folder = tempfile.TemporaryDirectory(prefix="longwire-sender-")
        self.folder = pathlib.Path(self._folder.name)
        (self.folder / "token").touch(0o600)
        (self.folder / "token").write_text(HANDOFF_TOKEN)
        bounds = {"requestsPerSecond": FASTEST, "authoritiesFile": str(services.certificate)}
        if vendor in HTTP1:
            bounds |= {"connections": 64, "requests": 64}
        (self.folder / "sender.json5").write_text(json.dumps({
            "gateway": {"url": f"http://127.0.0.1:{source.admin}", "tokenFile": "token", "waitSeconds": 2},
            "credentials": [services.credential(vendor)], "vendors": {vendor: {**bounds, **settings}}, "stopSeconds": 5,
        }))
        self.words = list(words)

    def __enter__(self):
        self._log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(
            [*self.words, binary("longwire-sender"), "--config", str(self.folder / "sender.json5")], stdout=subprocess.DEVNULL,
            stderr=self._log)
        return self

    def stop(self):
        self.process.terminate()
        return self.process.wait(30)

    def log(self):
        return (self.folder / "log").read_text()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._log.close()
        self._folder.cleanup()


class Bench(apns.Bench):
    def __init__(self, options):
        super().__init__(options)
        self.ours = {}  # vendor → this run's figures

    def vendor(self, name):
        with VendorServices(pinned(0)) as services, \
                Source(words=pinned(0), push_service=services.push_service) as source, \
                Sender(source, services, name, pinned(1)) as sender:
            try:
                eventually(lambda: source.figures()["accepted"] > 1_000, "a first thousand")
            except AssertionError:
                raise SystemExit(f"{name}: nothing is accepted: {source.figures()}\n{sender.log()[-3_000:]}")
            time.sleep(2)
            used = {"sender": sender.process.pid, "nginx": services.worker, "source": source.process.pid}
            look = lambda: (time.monotonic(), source.figures()["accepted"], {key: cpu(pid) for key, pid in used.items()})  # noqa: E731
            before = look()
            time.sleep(self.options.seconds)
            after = look()
            seconds, count = after[0] - before[0], after[1] - before[1]
            spent = {key: after[2][key] - before[2][key] for key in used}
            settled = source.figures()
            peak = memory(sender.process.pid, "VmHWM")
            if sender.stop() != 0:
                raise SystemExit(f"{name}: the sender ended badly:\n{sender.log()[-3_000:]}")
            # nginx counts two looks at its status page and the token request, too. Waiting jobs return unsent at the stop.
            found, last = source.figures(), services.requests() - 3
            if settled["other"] or found["strangers"] or found["out"] or not -1 <= last - found["accepted"] <= 0:
                raise SystemExit(f"{name}: the books do not agree: {last} requests, {found}\n{sender.log()[-3_000:]}")
        figures = {"rate": count / seconds, "cpu": spent["sender"] / count}
        self.ours[name] = figures
        self.note(f"{name}: notifications a second", f"≥ {GOALS[name]:,}/s", "/s", figures["rate"])
        self.note(f"{name}: CPU a notification", "", "µs", figures["cpu"] * 1e6)
        self.note(f"{name}: a second of the sender's CPU", f"≥ {GOALS[name]:,}/s", "/s", 1 / figures["cpu"])
        for key, value in spent.items():
            self.note(f"{name}: cores: {key}", "", "", value / seconds)
        self.note(f"{name}: memory of the sender at most", "", "MiB", peak / (1 << 20))

    def peer(self, vendor, script, *words):
        """Runs a peer's script with nginx as the vendor; the sender's row of the same run is the other side of the ratio."""
        if not PEER.exists():
            raise SystemExit("the peers are not here; run: deploy/install-dependencies.sh bench")
        if vendor not in self.ours:
            self.vendor(vendor)
        with VendorServices(pinned(0)) as services:
            words = [*pinned(1), str(PEER), str(HERE / "senders" / script), *words, "--seconds", str(self.options.seconds),
                     "--certificate", str(services.certificate)]
            if vendor == "fcm":
                words += ["--account", services.service_account("fcm"), "--url", services.url]
            else:
                # Python does not resolve names below localhost.
                words += ["--key", str(services.folder / "vapid-key.pem"), "--push-service", f"{services.url}/push/"]
            done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=600)
            if done.returncode != 0:
                raise SystemExit(f"{script} ended with {done.returncode}")
            found, asked = json.loads(done.stdout), services.requests()
        if found["refused"] or asked < found["taken"]:
            raise SystemExit(f"{script}: not all were taken: {found}, {asked} requests")
        rate, used, name = found["measured"] / found["seconds"], found["cpuSeconds"] / found["measured"], found["name"]
        self.note(f"{name}: notifications a second", "", "/s", rate)
        self.note(f"{name}: CPU a notification", "", "µs", used * 1e6)
        self.note(f"longwire-sender to {name}: notifications a second", "", "×", self.ours[vendor]["rate"] / rate)
        self.note(f"{name} to longwire-sender: CPU a notification", "", "×", used / self.ours[vendor]["cpu"])

    def fcmPeer(self):
        self.peer("fcm", "peer_fcm.py", "--client", "async-firebase")
        self.peer("fcm", "peer_fcm.py", "--client", "firebase-admin")

    def webPushPeer(self):
        self.peer("webPush", "peer_webpush.py")

    def latency(self):
        rate, group, seconds = 1_000, 10, self.options.seconds
        count = rate * seconds
        with apns.PinnedGateway(
                limits={"drainSeconds": 0}, app={"queue": {"messages": 10_000, "bytes": 1 << 26}, "push": {}}) as gateway:
            with MixedFakes(gateway) as fakes:
                tokens = register(gateway, fakes, 900)
                sent = {}
                self.mixed(gateway, tokens, rate, rate, group, {})  # opens connections, requests access tokens
                eventually(lambda: fakes.taken() == rate, "the warm-up's requests")
                began = cpu(fakes.sender.pid)
                self.mixed(gateway, tokens, count, rate, group, sent)
                eventually(lambda: fakes.taken() >= rate + count, "every request")
                used = cpu(fakes.sender.pid) - began
                records = [one for one in fakes.records() if one["taken"]]
        delays, by_vendor = [], {}
        # Messages of a device are about 0.9 s apart, so they arrive in their order.
        arrived = {}
        for one in records:
            arrived.setdefault((one["vendor"], one["tokens"][0]), []).append(one["at"])
        for key, times in sent.items():
            found = arrived.get(key, [])
            if len(found) < len(times):
                raise SystemExit(f"{key}: {len(found)} requests for {len(times)} pushes and the warm-up's")
            own = [at - when for at, when in zip(found[-len(times):], times)]
            by_vendor.setdefault(key[0], []).extend(own)
            delays += own
        if len(delays) != count or len(records) != rate + count:
            raise SystemExit(f"{len(records)} requests, {len(delays)} delays for {rate + count} pushes")
        print("  p50 by vendor: " + ", ".join(
            f"{vendor} {sorted(own)[len(own) // 2]:.0f} ms" for vendor, own in by_vendor.items()), file=sys.stderr)
        delays.sort()
        for share, goal in ((0.5, ""), (0.99, "≤ 50 ms"), (0.999, "")):
            value = delays[min(count - 1, int(share * count))]
            self.note(f"{rate:,}/s over nine vendors, publish to request at the fake: p{share * 100:g}", goal, "ms", value)
        self.note(f"{rate:,}/s over nine vendors: CPU a notification", "", "µs", used / count * 1e6)

    def mixed(self, gateway, tokens, count, rate, group, sent):
        """Sends pushes for offline devices, vendors in turn; notes the time of each call by vendor and token."""
        devices = list(tokens)

        def contents(first):
            when, found = time.time() * 1_000, []
            for number in range(first, first + group):
                cid = devices[number % len(devices)]
                sent.setdefault(tokens[cid], []).append(when)
                body = gateway.push_body(cid, "x" * 64, strategy=2)
                body["push_channel"] = CONTENT
                found.append(body)
            return found

        self.batches(gateway, count, rate, group, contents)

    def content(self):
        """Instructions of a gateway for a push to a connected device with a token, with content of its platform."""
        found = {}
        with tempfile.TemporaryDirectory(prefix="longwire-content-") as folder:
            counting = check.Bench(pathlib.Path(folder))
            counting.prepare(pathlib.Path(binary("longwired")).parent)
            for name, channel, content in (("ios", 0, IOS), ("android", 1, {"android": CONTENT["android"]})):
                found[name] = counting.instructions(
                    check.pushes(16), 20, 100, 16, content=content, token=functools.partial(vendor_token, channel))
        for name, value in found.items():
            self.note(f"gateway, push with content for {name}: instructions", "", "", value)
        self.note("gateway, android to ios: instructions", "≤ 1.1", "×", found["android"] / found["ios"])

    def row(self, name):
        self.vendor(name) if name in GOALS else getattr(self, name)()


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
        apns.build()
    bench = Bench(options)
    for run in range(options.runs):
        bench.ours = {}
        for name in options.chosen:
            print(f"run {run + 1}, {name}", file=sys.stderr, flush=True)
            bench.row(name)
    bench.report()


if __name__ == "__main__":
    main()
