"""A load with the same work in every run.

A group of messages is sent in one write, and the next group starts when all messages of this one are delivered, answered and
acked. The number of messages in a turn of the gateway's loops then depends on the group, not on the machine's speed. A message's
cost in instructions, allocations and system calls can therefore be counted and compared.
"""

import hashlib
import hmac
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "Tests/Integration/parties"))
import gateway as integration  # noqa: E402

HELLO, WELCOME, CLOSE, PING, PONG, DELIVER, ACK, PUBLISH, RESULT = 1, 2, 3, 4, 5, 6, 7, 14, 15
TIMEOUT = 180.0  # the bound of every wait; an instrumented gateway is fifty times slower


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def text(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value


def frame(kind, body):
    return bytes([kind]) + len(body).to_bytes(3, "big") + body


def fields(body):
    """Returns the top-level fields of a message: number → value, bytes for length-delimited fields."""
    found, place = {}, 0

    def take():
        nonlocal place
        value, shift = 0, 0
        while True:
            byte = body[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(body):
        key = take()
        value = take()
        if key & 7 == 2:
            found[key >> 3] = body[place : place + value]
            place += value
        else:
            found[key >> 3] = value
    return found


class Link:
    """Frames over one connection."""

    def __init__(self, port, hello, key):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        proof = hmac.new(key, b"longwire hello 1" + hello, hashlib.sha256).digest()
        self.socket.sendall(frame(HELLO, hello + text(6, proof)))

    def welcomed(self):
        """Returns the fields of the Welcome, which must be the next frame."""
        return fields(self.next(WELCOME))

    def next(self, kind):
        """Returns the body of the next frame, which must be of this kind; answers Pings until then."""
        while True:
            size = 4 + int.from_bytes(self.buffer[1:4], "big")
            if len(self.buffer) < max(4, size):
                data = self.socket.recv(1 << 16)
                if not data:
                    raise RuntimeError("the gateway closed a connection")
                self.buffer += data
                continue
            found, body = self.buffer[0], self.buffer[4:size]
            self.buffer = self.buffer[size:]
            if found == kind:
                return body
            if found != PING:
                raise RuntimeError(f"a frame of type {found} came in place of {kind}: {fields(body)}")
            self.socket.sendall(frame(PONG, body))


class Gateway(integration.Gateway):
    """A gateway under a tool: `words` precede its command line, `environment` is added to its own."""

    start_timeout = TIMEOUT

    def __init__(self, words=(), environment=None, **sections):
        super().__init__(**sections)
        self.words, self.environment = list(words), environment or {}

    def spawn(self, *arguments, **options):
        command = self.words + [integration.binary("longwired"), "--config", str(self.config), *arguments]
        environment = {**os.environ, "SWIFT_BACKTRACE": "enable=no", **self.environment}
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT, cwd=self.folder,
            env=environment)

    def end(self):
        """Sends SIGTERM to the gateway itself, which is the tool's child or replaced the tool; its report is complete then."""
        process = self.process.pid
        children = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()
        os.kill(int(children[0]) if children else process, signal.SIGTERM)
        if self.process.wait(TIMEOUT) not in (0, -15):
            raise RuntimeError(f"the gateway ended badly:\n{self.log()[-2000:]}")


class Party:
    """Connected devices and one sender.

    `token` maps a device's number to the fields of its VendorToken. `content` replaces the `push_channel` of each push.
    """

    def __init__(self, gateway, devices, token=None, content=None):
        self.gateway, self.new_token, self.content = gateway, token, content
        self.devices, self.cids = [], []
        self.add(devices)
        self.payload = b'{"order":1,"pad":"' + b"x" * (256 - 20) + b'"}'
        self.request = 0
        self.sender = None
        self.token = None
        self.callers = []

    def add(self, count):
        """Registers and connects `count` more devices, a hundred at a time."""
        app = self.gateway.app
        app_id, secret = app["appId"].encode(), app["appSecret"].encode()
        while count > 0:
            links = []
            for _ in range(min(count, 100)):
                hello = text(1, app_id) + number(4, 1) + number(5, int(time.time() * 1000)) + text(18, os.urandom(16))
                if self.new_token:
                    hello += text(13, self.new_token(len(self.devices) + len(links)))
                links.append(Link(self.gateway.device, hello, secret))
            for link in links:
                self.cids.append(link.welcomed()[8])
            self.devices += links
            count -= len(links)

    def connect_sender(self):
        app = self.gateway.app
        hello = text(1, app["appId"].encode()) + number(2, 1) + number(5, int(time.time() * 1000))
        hello += text(18, os.urandom(16))
        self.sender = Link(self.gateway.senders, hello, app["masterSecret"].encode())
        self.sender.welcomed()

    def rounds(self, count, group):
        """Publishes `count` groups of `group` messages over the senders' channel; each is delivered, answered, acked."""
        place = 0
        for _ in range(count):
            chosen = [(place + offset) % len(self.devices) for offset in range(group)]
            place += group
            frames = []
            for index in chosen:
                self.request += 1
                body = number(1, self.request) + text(2, self.cids[index]) + text(3, self.payload)
                frames.append(frame(PUBLISH, body))
            self.sender.socket.sendall(b"".join(frames))
            for _ in chosen:
                result = fields(self.sender.next(RESULT))
                if result.get(2, 0) != 0:
                    raise RuntimeError(f"a publish was refused: {result}")
            self.acknowledge(chosen)

    def acknowledge(self, chosen):
        """Reads a message of each of these devices before the first ack, so that the acks are a group, too."""
        acks = [(index, fields(self.devices[index].next(DELIVER))[2]) for index in chosen]
        for index, sequence in acks:
            self.devices[index].socket.sendall(frame(ACK, text(1, number(2, sequence))))

    def settle(self):
        """Waits until the gateway has processed everything: each device sends a Ping after its last ack."""
        for index, link in enumerate(self.devices):
            link.socket.sendall(frame(PING, number(1, index + 1)))
        for link in self.devices:
            link.next(PONG)

    def requests(self, count, group):
        """Sends `count` groups of `group` requests `push/single/cid`, each on a separate keep-alive connection."""
        self.token = self.token or self.gateway.authenticate()
        while len(self.callers) < group:
            caller = socket.create_connection(("127.0.0.1", self.gateway.http), timeout=TIMEOUT)
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.callers.append(caller)
        place = 0
        for _ in range(count):
            chosen = [(place + offset) % len(self.devices) for offset in range(group)]
            place += group
            for caller, index in zip(self.callers, chosen):
                caller.sendall(self.post(index))
            for caller in self.callers[:group]:
                answer = b""
                # The answer's last bytes are its JSON's end.
                while not answer.endswith(b"}]}}"):
                    data = caller.recv(1 << 16)
                    if not data:
                        raise RuntimeError("the gateway closed an HTTP connection")
                    answer += data
                if not answer.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(f"a push was refused: {answer}")
            self.acknowledge(chosen)

    def post(self, index):
        """Returns the bytes of one request of a business server's usual size."""
        self.request += 1
        push = self.gateway.push_body(
            self.cids[index].hex(), self.payload.decode(), alert="Your order is on its way", badge="+1",
            request_id=f"bench-check-{self.request:012d}", ttl=7_200_000, strategy=1)
        if self.content:
            push["push_channel"] = self.content
        body = json.dumps(push, separators=(",", ":")).encode()
        head = (
            f"POST /v2/{self.gateway.app['appId']}/push/single/cid HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"token: {self.token}\r\nContent-Type: application/json;charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\n\r\n")
        return head.encode() + body
