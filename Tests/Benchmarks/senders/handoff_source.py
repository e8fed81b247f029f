#!/usr/bin/env python3
"""A handoff API that leases jobs from memory and accepts their results, to measure a sender.

    handoff_source.py --port PORT [--jobs N] [--tokens 10000] [--body 256] [--push-service URL]

It has the gateway's handoff API (lease with a long poll, results with a verdict each) and stores only the leased jobs. Without
--jobs its backlog is endless. `GET /figures` returns JSON: the numbers of jobs leased, settled as accepted, settled otherwise,
settled without a lease, currently leased, and at most leased. It ends with SIGTERM.

Each job is a new message for one of `--tokens` devices in the gateway's format, of the channel that the lease names: for Apple
about 900 bytes. For the other channels it is a notification with a title of 10 and a text of 90 characters, which all vendors take.
Endpoints of Web Push begin with `--push-service`; all subscriptions have the keys of RFC 8291, section 5.
"""

import argparse
import json
import signal
import socket
import socketserver
import sys
import threading
import time

JOB = (
    '{"channel":"apns","jobId":"%(id)s","msgId":"%(id)s","taskId":"RASL_1123_0a1b2c3d4e5f60718293a4b5c6d7e8f9",'
    '"appId":"bench","cid":"%(cid)s","deviceToken":"%(token)s","tokenKind":"alert","environment":"production",'
    '"topic":"com.example.bench","pushType":"alert","priority":10,"expiration":%(expiration)d,"collapseId":"%(id)s",'
    '"apnsId":"%(uuid)s","body":%(body)s,"attempt":1,"acceptedAt":%(now)d,"leaseId":"%(id)s","leasedUntil":%(until)d}')

VENDOR_JOB = (
    '{"channel":"%(channel)s","jobId":"%(id)s","msgId":"%(id)s","taskId":"RASL_1123_0a1b2c3d4e5f60718293a4b5c6d7e8f9",'
    '"appId":"bench","cid":"%(cid)s","deviceToken":"%(token)s","topic":"com.example.app","expiration":%(expiration)d,'
    '"collapseId":"%(id)s","body":%(body)s,"attempt":1,"acceptedAt":%(now)d,"leaseId":"%(id)s","leasedUntil":%(until)d}')
NOTICE = {"title": "Your order", "body": "It is on its way. ".ljust(90, "x")}
VENDOR_BODY = json.dumps({"notification": {**NOTICE, "click_type": "startapp"}}, separators=(",", ":"))
BROWSER_KEYS = (
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4", "BTBZMqHH6r4Tts7J_aSIgg")


def body(byte_count):
    """Returns an alert of `byte_count` bytes, as an app's server writes them."""
    text = '{"aps":{"alert":{"title":"Your order","body":"%s"},"badge":3,"sound":"default"},"order":123456}'
    return text % ("x" * max(0, byte_count - len(text) + 2))


def identifier(number):
    """Returns a msgId, UUID or token derived from a number, so that no two jobs share one."""
    text = f"0199{number:028x}"
    return text, f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class Jobs:
    """The backlog and the leased jobs; each call takes the lock."""

    def __init__(self, count, tokens, body_bytes, push_service=""):
        self.left, self.tokens, self.body, self.push_service = count, tokens, body(body_bytes), push_service
        self.made, self.out = 0, set()
        self.leased = self.accepted = self.other = self.strangers = self.most_out = 0
        self.condition = threading.Condition()

    def token(self, channel, device):
        if channel == "apns":
            return f"ab{device:062x}"
        if channel == "webPush":
            return f"{self.push_service}{device:064x}#{'.'.join(BROWSER_KEYS)}"
        # The length of a registration token of FCM.
        return f"{device:022x}:".ljust(163, "A")

    def lease(self, channel, limit, lease_seconds, wait_seconds):
        end = time.monotonic() + wait_seconds
        with self.condition:
            while self.left == 0:
                if not self.condition.wait(end - time.monotonic()):
                    return b'{"jobs":[]}'
            count = limit if self.left is None else min(limit, self.left)
            if self.left is not None:
                self.left -= count
            now = int(time.time() * 1000)
            form, content = (JOB, self.body) if channel == "apns" else (VENDOR_JOB, VENDOR_BODY)
            shared = {
                "channel": channel, "now": now, "until": now + lease_seconds * 1000, "expiration": now // 1000 + 7200, "body": content}
            texts = []
            for number in range(self.made, self.made + count):
                (text, uuid), device = identifier(number), number % self.tokens
                self.out.add(text)
                texts.append(
                    form % {"id": text, "uuid": uuid, "cid": f"{device:032x}", "token": self.token(channel, device), **shared})
            self.made += count
            self.leased += count
            self.most_out = max(self.most_out, len(self.out))
        return ('{"jobs":[' + ",".join(texts) + "]}").encode()

    def settle(self, results):
        verdicts = []
        with self.condition:
            for result in results:
                if result["jobId"] not in self.out:
                    self.strangers += 1
                    verdict = "unknownJob"
                else:
                    self.out.remove(result["jobId"])
                    verdict = "recorded"
                    if result["outcome"] == "accepted":
                        self.accepted += 1
                    else:
                        self.other += 1
                verdicts.append('{"jobId":"%s","verdict":"%s"}' % (result["jobId"], verdict))
        return ('{"results":[' + ",".join(verdicts) + "]}").encode()

    def add(self, count):
        with self.condition:
            self.left = (self.left or 0) + count
            self.condition.notify_all()
        return b"{}"

    def figures(self):
        with self.condition:
            return json.dumps({
                "leased": self.leased, "accepted": self.accepted, "other": self.other, "strangers": self.strangers,
                "out": len(self.out), "mostOut": self.most_out,
            }).encode()


class Connection(socketserver.StreamRequestHandler):
    """HTTP/1.1 with keep-alive: only the requests of a sender and the benchmark."""

    disable_nagle_algorithm = True
    wbufsize = -1

    def handle(self):
        while True:
            line = self.rfile.readline(8192)
            if not line:
                return
            method, path, _ = line.decode().split(" ", 2)
            length = 0
            while (field := self.rfile.readline(8192)) not in (b"\r\n", b""):
                name, _, value = field.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            content = self.rfile.read(length)
            answer = self.answer(method, path, json.loads(content) if content else {})
            status = b"200 OK" if answer else b"404 Not Found"
            self.wfile.write(
                b"HTTP/1.1 " + status + b"\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)
            self.wfile.flush()

    def answer(self, method, path, request):
        jobs = self.server.jobs
        if path == "/v1/handoff/lease":
            return jobs.lease(request["channel"], request["max"], request["leaseSeconds"], request["waitSeconds"])
        if path == "/v1/handoff/results":
            return jobs.settle(request["results"])
        if path.startswith("/add?"):
            return jobs.add(int(path[5:]))
        return jobs.figures() if path == "/figures" else b""


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, request, client_address):
        # A sender that disconnects during a long poll is no error.
        if not isinstance(sys.exc_info()[1], (ConnectionError, socket.timeout)):
            super().handle_error(request, client_address)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--tokens", type=int, default=10_000)
    parser.add_argument("--body", type=int, default=256)
    parser.add_argument("--push-service", default="")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Short thread slices, because a result must not wait for a lease that is being written.
    sys.setswitchinterval(0.0005)
    server = Server(("127.0.0.1", options.port), Connection)
    server.jobs = Jobs(options.jobs, options.tokens, options.body, options.push_service)
    server.serve_forever(poll_interval=3600)


if __name__ == "__main__":
    main()
