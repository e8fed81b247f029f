#!/usr/bin/env python3
"""A driver with a client in Python: it tests the suite itself, and `--fault NAME` plants one defect in it.

One thread, one `select`. The algorithm is the one of docs/use/Protocol.md; the state is one file, replaced as a whole.
"""

import argparse
import base64
import bisect
import hashlib
import json
import os
import pathlib
import random
import re
import select
import socket
import ssl
import sys
import time

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]

from wire import (  # noqa: E402
    BODY_LIMIT, MESSAGES, NAME_BYTES, SERVER_TOKEN_BYTES, TAGS, encode, frame, pb, prove)

CONNECT_SECONDS, PONG_SECONDS, STEADY_SECONDS, REPLACED_MS = 10, 10, 60, 30_000
OPENED, REPORTS, OUTGOING, NAMES, HOLES = 256, 256, 128, 32, 1_024
BUSY_SECONDS, FULL_SECONDS = 3, 60
GATEWAY_FRAMES = {
    pb.WELCOME, pb.CLOSE, pb.PING, pb.PONG, pb.DELIVER, pb.UPDATE_RESULT, pb.REVOKE, pb.UPSTREAM_RESULT,
    pb.DEVICE_NAMES_RESULT}
OPERATIONS = {
    "query": pb.DeviceNames.QUERY, "bindAlias": pb.DeviceNames.BIND_ALIAS, "unbindAlias": pb.DeviceNames.UNBIND_ALIAS,
    "setTags": pb.DeviceNames.SET_TAGS, "addTags": pb.DeviceNames.ADD_TAGS, "removeTags": pb.DeviceNames.REMOVE_TAGS}


class Lost(Exception):
    """The connection is over; the text is the reason."""


class Damaged(Exception):
    """The stored state cannot be used."""


def say(name, **fields):
    sys.stdout.write(json.dumps({"event": name, **fields}) + "\n")
    sys.stdout.flush()


class Stream:
    """A position, the ranges beyond it, and the messages of this session that are not finished."""

    def __init__(self, position=0, ranges=()):
        self.position, self.ranges, self.unfinished = position, [tuple(one) for one in ranges], []

    def covers(self, sequence):
        return sequence <= self.position or any(first <= sequence <= last for first, last in self.ranges)

    def received(self, sequence):
        if sequence not in self.unfinished:
            bisect.insort(self.unfinished, sequence)

    def processed(self, sequence, alone=False):
        if sequence in self.unfinished:
            self.unfinished.remove(sequence)
        below = [other for other in self.unfinished if other < sequence]
        if alone:
            self.ranges.append((sequence, sequence))
        elif below:
            self.position = max(self.position, below[0] - 1)
            self.ranges.append((below[-1] + 1, sequence))
        else:
            self.position = max(self.position, sequence)
        joined = []
        for first, last in sorted(self.ranges):
            if last <= self.position:
                continue
            if first <= self.position + 1:
                self.position = last
            elif joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(joined[-1][1], last))
            else:
                joined.append((first, last))
        self.ranges = joined


class State:
    """Everything that must survive a kill; `save` replaces the file as a whole."""

    def __init__(self, folder, fault):
        self.path, self.fault = pathlib.Path(folder) / "state.json", fault
        self.reset()

    def reset(self):
        self.cid = self.secret = b""
        self.epoch = self.last_timestamp = self.accepted_timestamp = 0
        if not hasattr(self, "offset"):
            self.offset, self.outgoing, self.last_outgoing, self.heartbeat = 0, [], 0, 0
        self.streams, self.opened, self.unreported, self.reports, self.rejected = {}, [], [], [], []
        self.removed = []  # channels whose removed token no UpdateResult has confirmed

    def load(self):
        if not self.path.exists():
            if self.path.parent.exists() and not self.path.parent.is_dir():
                raise Damaged(f"{self.path.parent} is no folder; remove it")
            return
        try:
            check, text = self.path.read_text().split("\n", 1)
            if "no-check-sum" not in self.fault and check != hashlib.sha256(text.encode()).hexdigest():
                raise ValueError("the check sum is wrong")
            held = json.loads(text)
            self.cid, self.secret = bytes.fromhex(held["cid"]), bytes.fromhex(held["secret"])
            for name in ("epoch", "last_timestamp", "accepted_timestamp", "offset", "opened", "unreported", "reports",
                         "rejected", "removed", "outgoing", "last_outgoing", "heartbeat"):
                setattr(self, name, held[name])
            self.streams = {int(number): Stream(*one) for number, one in held["streams"].items()}
        except (ValueError, TypeError, KeyError) as error:
            self.reset()
            if "damaged-is-new" in self.fault:
                return
            raise Damaged(f"{self.path} is damaged ({error}); restore or remove it") from None

    def save(self):
        text = json.dumps({
            "cid": self.cid.hex(), "secret": self.secret.hex(), "epoch": self.epoch, "offset": self.offset,
            "last_timestamp": self.last_timestamp, "accepted_timestamp": self.accepted_timestamp,
            "streams": {number: (one.position, one.ranges) for number, one in self.streams.items()},
            "opened": self.opened, "unreported": self.unreported, "reports": self.reports, "rejected": self.rejected,
            "removed": [] if "forgets-removed-tokens" in self.fault else self.removed,
            "outgoing": self.outgoing, "last_outgoing": self.last_outgoing, "heartbeat": self.heartbeat})
        if "registration-not-stored" in self.fault:
            text = json.dumps({**json.loads(text), "cid": "", "secret": ""})
        if "forgets-rejections" in self.fault:
            text = json.dumps({**json.loads(text), "rejected": []})
        if "forgets-opened" in self.fault:
            text = json.dumps({**json.loads(text), "opened": [], "unreported": []})
        if "forgets-upstream" in self.fault:
            text = json.dumps({**json.loads(text), "outgoing": []})
        if "reuses-upstream-numbers" in self.fault:
            text = json.dumps({**json.loads(text), "last_outgoing": 0})
        data = f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}".encode()
        if "writes-in-place" in self.fault:
            with open(self.path, "wb") as file:
                for at in range(0, len(data), 64):
                    file.write(data[at : at + 64])
                    file.flush()
                    time.sleep(0.001)
            return
        draft = self.path.with_suffix(".new")
        try:
            with open(draft, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self.path)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError:
            draft.unlink(missing_ok=True) if self.path.parent.is_dir() else None
            raise


class WebSocket:
    """The client's side of a WebSocket over a connected socket."""

    def __init__(self, sock, host, fault):
        self.sock, self.fault, self.buffer = sock, fault, bytearray()
        key = base64.b64encode(os.urandom(16)).decode()
        version = "12" if "websocket-version" in fault else "13"
        sock.sendall((
            f"GET /v1/device HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: {version}\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Protocol: longwire.v1\r\n\r\n").encode())
        while b"\r\n\r\n" not in self.buffer:
            data = sock.recv(4096)
            if not data or len(self.buffer) > 16_384:
                raise Lost("no answer to the request of the WebSocket")
            self.buffer += data
        head, _, rest = bytes(self.buffer).partition(b"\r\n\r\n")
        accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
        if not head.startswith(b"HTTP/1.1 101") or accept not in head and "takes-any-answer" not in fault:
            raise Lost(f"the WebSocket was refused: {head[:60]!r}")
        self.buffer = bytearray(rest)

    def write(self, opcode, payload):
        count, mask = len(payload), os.urandom(4)
        head = bytes([0x80 | opcode])
        flag = 0 if "websocket-unmasked" in self.fault else 0x80
        if count < 126:
            head += bytes([flag | count])
        elif count < 65_536:
            head += bytes([flag | 126]) + count.to_bytes(2, "big")
        else:
            head += bytes([flag | 127]) + count.to_bytes(8, "big")
        if flag:
            head += mask
            payload = bytes(byte ^ mask[index & 3] for index, byte in enumerate(payload))
        self.sock.sendall(head + payload)

    def take(self, data):
        """Returns the bytes of binary messages."""
        self.buffer += data
        payloads = b""
        while len(self.buffer) >= 2:
            opcode, size = self.buffer[0] & 15, self.buffer[1] & 127
            more = {126: 2, 127: 8}.get(size, 0)
            if len(self.buffer) < 2 + more:
                break
            count = int.from_bytes(self.buffer[2 : 2 + more], "big") if more else size
            if count > 16 << 20 or self.buffer[1] & 0x80:
                raise Lost("a WebSocket frame that a gateway does not send")
            if len(self.buffer) < 2 + more + count:
                break
            payload = bytes(self.buffer[2 + more : 2 + more + count])
            final = self.buffer[0] & 0x80
            del self.buffer[: 2 + more + count]
            if opcode == 9 and "websocket-no-pong" not in self.fault:
                self.write(10, payload)
            elif opcode == 8:
                raise Lost("the gateway closed the WebSocket")
            elif opcode == 2 or opcode == 0 and "websocket-no-fragments" not in self.fault:
                payloads += payload
                if "websocket-message-is-frame" in self.fault and final and len(payload) >= 4:
                    payloads = payload[: 4 + int.from_bytes(payload[1:4], "big")]
        return payloads


class Client:
    def __init__(self, options):
        self.options = options
        self.fault = set(options.fault.split(",")) if options.fault else set()
        self.state = State(options.state, self.fault)
        self.home = self.target = options.address
        self.first_ms, self.most_ms = (int(part) for part in options.backoff_ms.split(":"))
        self.attempt = self.skews = self.corrections = self.losses = 0
        self.sock = self.web = None
        self.phase, self.until, self.is_named = "waiting", 0.0, False
        self.is_foreground, self.keeps_running, self.drop = True, False, None
        self.tokens, self.renewed, self.badge, self.push_off = {}, [], None, None
        self.waiting = []  # deliveries that wait until the app has finished the last message; only with `serial`
        self.attributes = None
        self.request, self.updates = 0, {}
        self.heartbeat = self.state_heartbeat = options.heartbeat
        self.held = {}  # messages that the app has: id → (stream, sequence, is of an earlier session)
        self.stdin, self.is_ended = b"", False
        self.redirected = 0
        self.vendor = set()
        self.names, self.names_sent, self.last_names = [], 0, 0  # the requests, and how many are in flight
        self.names_until = self.own_names_at = 0.0  # the deadline of the result; the next attempt at the token's alias
        self.owed = "" if self.has("ignores-tokens-alias") else options.token  # the token whose alias is to be bound
        self.has_apps_alias = False

    def has(self, name):
        return name in self.fault

    # The loop

    def run(self):
        try:
            self.state.load()
        except Damaged as error:
            self.phase = "stopped"
            say("stopped", reason=str(error))
        os.set_blocking(0, False)
        while not self.is_ended:
            if self.phase == "waiting" and time.monotonic() >= self.until:
                self.connect()
            readers = [0] + ([self.sock] if self.sock else [])
            if self.sock and isinstance(self.sock, ssl.SSLSocket) and self.sock.pending():
                ready = [self.sock]
            else:
                ready, _, _ = select.select(readers, [], [], self.timeout())
            if 0 in ready:
                self.read_commands()
            try:
                if self.sock and self.sock in ready:
                    self.read_socket()
                if self.sock:
                    self.tick()
            except Lost as error:
                self.lose(str(error))
            except OSError as error:
                self.lose(str(error))
        if self.phase == "ready":
            self.guard(lambda: self.send(pb.Close(code=100, reason="the client stops")))
        if self.phase != "stopped":
            say("stopped", reason=None)

    def guard(self, work):
        try:
            work()
        except (OSError, Lost):
            pass

    def timeout(self):
        now = time.monotonic()
        if self.phase == "waiting":
            return max(0.0, min(1.0, self.until - now))
        return 0.05 if self.sock else 1.0

    def read_commands(self):
        try:
            data = os.read(0, 65_536)
        except BlockingIOError:
            return
        if not data:
            self.is_ended = True
            return
        self.stdin += data
        while b"\n" in self.stdin:
            line, self.stdin = self.stdin.split(b"\n", 1)
            try:
                self.perform(json.loads(line))
            except (OSError, Lost) as error:
                self.lose(str(error))

    # Connecting

    def connect(self):
        say("connecting", address=self.target)
        try:
            host, port = self.target.rsplit(":", 1)
            sock = socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.options.transport in ("tls", "wss"):
                context = ssl.create_default_context(cafile=self.options.ca)
                if self.has("any-name"):
                    context.check_hostname = False
                if self.has("any-certificate"):
                    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                if self.has("hello-before-tls"):
                    sock.sendall(b"\x01\x00\x00\x00")
                sock = context.wrap_socket(sock, server_hostname=host)
            self.web = WebSocket(sock, self.target, self.fault) if self.options.transport in ("ws", "wss") else None
        except (OSError, ValueError, Lost) as error:
            if self.has("stops-when-refused"):
                return self.halt(str(error))
            return self.lose(str(error))
        sock.settimeout(CONNECT_SECONDS)
        self.sock, self.phase = sock, "greeting"
        self.buffer, self.skip = bytearray(self.web.take(b"")) if self.web else bytearray(), 0
        self.connected_at = self.sent_at = self.received_at = time.monotonic()
        self.ping_at, self.nonce, self.is_probing = None, 0, False
        self.owes_ack, self.is_dirty, self.to_reject, self.confirming = False, False, [], {}
        self.upstream_sent, self.upstream_at, self.reported = None, 0.0, {}
        self.updates, self.names_sent, self.own_names_at = {}, 0, 0.0
        if self.has("forgets-names"):
            self.names = []
        for stream in self.state.streams.values():
            stream.unfinished = sorted(sequence for number, sequence, _ in self.state.rejected
                                       if self.state.streams.get(number) is stream)
            if self.has("raises-position-to-ranges") and stream.ranges:
                stream.position, stream.ranges = stream.ranges[-1][1], []
        self.held = {name: (place[0], place[1], True) for name, place in self.held.items()}
        self.waiting = []
        try:
            self.greet()
        except (OSError, Lost) as error:
            self.lose(str(error))

    def clock(self):
        return int(time.time() * 1000) + self.state.offset

    def greet(self):
        state = self.state
        stamp = self.clock() if self.has("timestamp-of-clock") else max(self.clock(), state.last_timestamp + 1)
        hello = pb.Hello(
            app_id=self.options.app, timestamp=stamp, client="conformance-python/1", window=self.options.window)
        if state.cid:
            hello.cid, hello.queue_epoch = state.cid, 0 if self.has("forgets-epoch") else state.epoch
            if not self.has("no-positions"):
                hello.positions.extend(self.positions())
            hello.opened.extend(bytes.fromhex(one) for one in state.unreported[: 64 if self.has("many-opened") else 32])
        else:
            hello.registration = True
            hello.nonce = b"\x00" * 16 if self.has("same-nonce") else os.urandom(16)
        if not state.cid and not self.has("token-not-sent") or self.has("token-in-each-hello"):
            hello.registration_token = self.options.token
        hello.application_state = pb.FOREGROUND if self.is_foreground else pb.BACKGROUND
        hello.keeps_running = self.keeps_running
        hello.heartbeat_seconds = state.heartbeat or self.heartbeat
        if self.badge is not None and not self.has("forgets-badge"):
            hello.badge = self.badge
        if self.attributes is not None and not self.has("forgets-attributes"):
            hello.attributes.CopyFrom(self.attributes)
        self.greeted = {
            "stamp": stamp, "opened": list(state.unreported[:32]), "badge": self.badge,
            "state": (self.is_foreground, self.keeps_running), "tokens": dict(self.tokens)}
        if not self.has("tokens-not-in-hello"):
            hello.tokens.extend(self.tokens.values())
        key = state.secret or (self.options.token or self.options.secret).encode()
        if self.has("wrong-proof"):
            key = b"another secret"
        state.last_timestamp = stamp
        self.store()
        self.write(frame(pb.HELLO, prove(hello, key)))
        self.sent_at = time.monotonic()

    def positions(self):
        most = 1_000 if self.has("many-ranges") else 32
        for number, stream in sorted(self.state.streams.items()):
            one = pb.StreamPosition(stream=number, sequence=stream.position)
            if self.has("acks-highest") and stream.ranges:
                one.sequence = stream.ranges[-1][1]
            else:
                for first, last in stream.ranges[:most]:
                    one.ranges.add(first=first, last=last)
            yield one

    def write(self, data):
        if self.web:
            self.web.write(2, data)
        else:
            self.sock.sendall(data)

    def send(self, message):
        self.write(encode(message))
        self.sent_at = time.monotonic()

    def store(self):
        """Stores the state before the next send; a failure ends the connection, so that nothing is acked."""
        self.is_dirty = False
        try:
            self.state.save()
        except OSError as error:
            say("stateNotStored", reason=str(error))
            if not self.has("acks-without-store"):
                raise Lost(f"the state was not stored: {error}") from None

    # Reading

    def read_socket(self):
        try:
            data = self.sock.recv(65_536)
        except (ssl.SSLWantReadError, BlockingIOError):
            return
        if not data:
            raise Lost("the gateway ended the connection")
        self.received_at = time.monotonic()
        if self.web:
            data = self.web.take(data)
        self.buffer += data
        if data and not self.has("pings-answer-late"):
            self.ping_at, self.is_probing = None, False
        while len(self.buffer) >= 4 and self.sock:
            kind, size = self.buffer[0], int.from_bytes(self.buffer[1:4], "big")
            if size > BODY_LIMIT - (1_000 if self.has("small-frames") else 0) and not self.has("no-frame-limit"):
                raise Lost(f"a frame of {size} bytes; at most {BODY_LIMIT} are allowed")
            if len(self.buffer) < 4 + size:
                if self.has("half-frame-crashes") and len(self.buffer) > 4:
                    os._exit(3)
                break
            body = bytes(self.buffer[4 : 4 + size])
            del self.buffer[: 4 + size]
            if kind not in GATEWAY_FRAMES:
                if self.has("unknown-frames-skipped"):
                    continue
                if self.has("unknown-frames-stop"):
                    return self.halt(f"type {kind}")
                raise Lost(f"a frame of type {kind}, which this client does not know")
            try:
                message = MESSAGES[kind].FromString(body)
            except Exception:
                if self.has("malformed-crashes"):
                    os._exit(3)
                if self.has("malformed-skipped"):
                    continue
                raise Lost(f"a body that is no {MESSAGES[kind].__name__}") from None
            if self.has("unknown-fields-refused") and len(message.UnknownFields()):
                raise Lost("an unknown field")
            self.take(message)
        if self.sock:
            self.end_turn()

    def take(self, message):
        if isinstance(message, pb.Close):
            return self.closed(message)
        if self.phase == "greeting":
            if isinstance(message, pb.Welcome):
                return self.welcomed(message)
            if self.has("takes-frames-before-welcome"):
                self.phase = "ready"
                self.welcomed_at, self.period = time.monotonic(), 300
            else:
                raise Lost("a frame before the Welcome")
        if isinstance(message, pb.Welcome) and not self.has("takes-second-welcome"):
            raise Lost("a second Welcome")
        handler = {
            pb.Ping: self.pinged, pb.Pong: self.ponged, pb.Deliver: self.delivered, pb.Revoke: self.revoked,
            pb.UpdateResult: self.updated, pb.UpstreamResult: self.upstreamed,
            pb.DeviceNamesResult: self.named}.get(type(message))
        if handler:
            handler(message)

    def welcomed(self, welcome):
        state = self.state
        if not state.cid:
            if len(welcome.cid) != 16 or len(welcome.device_secret) != 32:
                if self.has("empty-registration"):
                    welcome.cid, welcome.device_secret = b"\0" * 16, b"\0" * 32
                else:
                    raise Lost("the Welcome of a registration without a cid or a secret")
            state.cid, state.secret, state.epoch = welcome.cid, welcome.device_secret, welcome.queue_epoch
            if self.has("registers-before-store"):
                say("registered", cid=state.cid.hex())
                time.sleep(0.05)
            self.store()
            say("registered", cid=state.cid.hex())
            may_owe = not self.has_apps_alias and not self.has("ignores-tokens-alias")
            if may_owe and not (self.losses and self.has("owes-alias-once")):
                self.owed = self.options.token
        elif welcome.queue_epoch != state.epoch and not self.has("ignores-epoch"):
            if state.streams:
                say("queueReset", **{"from": state.epoch, "to": welcome.queue_epoch})
            state.epoch, state.streams, state.rejected = welcome.queue_epoch, {}, []
            self.held = {}
        state.accepted_timestamp = self.greeted["stamp"]
        if not self.has("keeps-opened"):
            state.unreported = [one for one in state.unreported if one not in self.greeted["opened"]]
        if self.badge == self.greeted["badge"]:
            self.badge = None
        self.store()
        self.phase, self.welcomed_at, self.corrections = "ready", time.monotonic(), 0
        if self.has("backoff-reset-by-welcome"):
            self.attempt = 0
        self.period = welcome.heartbeat_seconds or 300
        if self.has("own-heartbeat"):
            self.period = 300
        self.drop = "update" if not self.is_foreground and not self.keeps_running else None
        say("welcomed", cid=state.cid.hex(), session=welcome.generation, epoch=welcome.queue_epoch,
            heartbeat=self.period, window=welcome.window, serverTime=welcome.server_time, pending=welcome.backlog)
        if (self.is_foreground, self.keeps_running) != self.greeted["state"]:
            self.update(application_state=pb.FOREGROUND if self.is_foreground else pb.BACKGROUND,
                        keeps_running=self.keeps_running)
        channels = list(self.greeted["tokens"])
        if not self.has("removes-only-in-a-session"):
            channels += [one for one in state.removed if one not in channels]
        removed = [pb.VendorToken(channel=one) for one in channels if one not in self.tokens]
        fresh = [one for one in self.renewed if not self.has("tokens-only-in-hello")]
        self.renewed = []
        if removed or fresh:
            self.update(tokens=removed + fresh)
        if self.badge is not None and not self.has("forgets-badge"):
            self.update(badge=self.badge)
        if self.push_off is not None and not self.has("forgets-push-mode"):
            self.update(push_mode_off=self.push_off)
        self.send_reports()
        self.send_upstream()
        self.send_names()

    def pinged(self, ping):
        if self.has("no-pong"):
            return
        self.send(pb.Pong(nonce=ping.nonce & 0x1F_FFFF_FFFF_FFFF if self.has("narrow-numbers") else ping.nonce))

    def ponged(self, pong):
        self.ping_at, self.is_probing = None, False
        for number, sequence, _ in self.confirming.pop(pong.nonce, []):
            self.state.rejected = [one for one in self.state.rejected if one[:2] != [number, sequence]]
            self.settle(number, sequence)
        opened, others = self.reported.pop(pong.nonce, ([], []))
        if opened or others:
            if not self.has("keeps-opened"):
                self.state.unreported = [one for one in self.state.unreported if one not in opened]
            self.state.reports = [one for one in self.state.reports if one not in others]
            self.is_dirty = True
            if not self.has("keeps-opened"):
                self.send_reports()

    # Messages

    def stream(self, number):
        most = 1_000 if self.has("no-stream-limit") else 8
        if number not in self.state.streams and len(self.state.streams) >= most:
            raise Lost("more streams than a gateway has")
        return self.state.streams.setdefault(number, Stream())

    def settle(self, number, sequence, alone=False):
        self.stream(number).processed(sequence, alone)
        self.is_dirty = True
        self.owes_ack = self.owes_ack or not alone

    def delivered(self, message):
        state, number, sequence = self.state, message.stream, message.sequence
        if not 0 < sequence < 1 << 62 and not self.has("zero-sequence"):
            raise Lost(f"{sequence} is no sequence")
        if self.has("narrow-numbers"):
            sequence = int(float(sequence))
        stream, name = self.stream(number), message.msg_id.hex()
        if stream.covers(sequence) and not self.has("shows-repeats"):
            if not self.has("repeats-not-acked"):
                self.owes_ack = True
            return say("suppressed", msgId=name, sequence=sequence, wasOpened=False)
        brought = set(stream.unfinished)
        known = len(state.rejected)
        state.rejected = [one for one in state.rejected if one[0] != number or one[1] >= sequence or one[1] in brought]
        self.is_dirty = self.is_dirty or len(state.rejected) != known
        if len(stream.unfinished) >= (1 << 30 if self.has("no-window-limit") else HOLES):
            raise Lost("more un-acked messages than any window")
        stream.received(sequence)
        if self.drop and not self.has("shows-stale"):
            return
        rejected = [one for one in state.rejected if one[:2] == [number, sequence]]
        if rejected and not self.has("shows-rejected"):
            self.to_reject += rejected
            return say("suppressed", msgId=name, sequence=sequence, wasOpened=False)
        if name in state.opened and (message.carried_by_vendor or self.has("opened-always-suppressed")) \
                and not self.has("shows-opened"):
            self.settle(number, sequence)
            return say("suppressed", msgId=name, sequence=sequence, wasOpened=True)
        if name in self.vendor and not self.has("shows-vendor-copies"):
            self.settle(number, sequence)
            return say("suppressed", msgId=name, sequence=sequence, wasOpened=False)
        if self.has("stores-before-show"):
            self.settle(number, sequence)
            self.store()
            time.sleep(0.01)
        elif self.has("acks-before-finish"):
            self.settle(number, sequence)
            self.end_turn()
        if name in self.held:
            self.held[name] = (number, sequence, False)
            return
        if self.options.serial and self.held:
            self.waiting.append(message)
            return
        self.show(message)

    def show(self, message):
        number, sequence, name = message.stream, message.sequence, message.msg_id.hex()
        shown = {"title": message.alert.title, "body": message.alert.body} if message.HasField("alert") else {}
        payload = message.payload[:8_000] if self.has("cuts-payload") else message.payload
        if not (self.has("loses-messages") and sequence % 5 == 3):
            say("message", msgId=name, taskId=message.task_id.hex(), sequence=sequence, offline=message.offline,
                **shown, payload=base64.b64encode(payload).decode(), kind="broadcast" if number == 1 else "message")
        if self.options.manual:
            self.held[name] = (number, sequence, False)
        else:
            self.settle(number, sequence)

    def finish(self, name, verdict, reason=""):
        place = self.held.pop(name, None)
        if place is None:
            return
        number, sequence, is_earlier = place
        if verdict == "rejected":
            rejection = [number, sequence, reason if self.has("long-reason") else reason[:128]]
            self.state.rejected.append(rejection)
            self.is_dirty = True
            if self.has("acks-rejected"):
                self.settle(number, sequence)
            if not is_earlier:
                self.to_reject.append(rejection)
        else:
            self.settle(number, sequence, alone=is_earlier)
        if self.waiting:
            self.show(self.waiting.pop(0))
        if self.sock and self.phase == "ready":
            self.end_turn()

    def revoked(self, revoke):
        stream = self.stream(0)
        if stream.covers(revoke.sequence) and not self.has("repeats-revokes"):
            self.owes_ack = True
            return
        stream.received(revoke.sequence)
        if self.drop:
            return
        if not self.has("shows-revoked"):
            gone = [one for one in self.waiting if one.task_id == revoke.revoked_task_id]
            self.waiting = [one for one in self.waiting if one not in gone]
            for one in gone:
                self.settle(one.stream, one.sequence)
        say("revoked", taskId=revoke.revoked_task_id.hex())
        if not self.has("revokes-not-acked"):
            self.settle(0, revoke.sequence)

    def end_turn(self):
        if self.has("acks-without-store") and self.owes_ack and self.phase == "ready":
            self.send(pb.Ack(positions=self.positions()))
            self.owes_ack = False
        if self.is_dirty and not self.has("stores-late"):
            self.store()
        if self.phase != "ready":
            return
        if self.to_reject:
            rejections = [pb.Rejected(stream=one[0], sequence=one[1], reason=one[2]) for one in self.to_reject]
            for start in range(0, len(rejections), 32):
                self.send(pb.Ack(rejected=rejections[start : start + 32]))
            if not self.has("no-ping-after-rejection"):
                self.confirming[self.ping()] = self.to_reject
            self.to_reject = []
        if self.owes_ack and not self.has("never-acks"):
            self.send(pb.Ack(positions=self.positions()))
            self.owes_ack = False

    # Time

    def ping(self):
        self.nonce += 1
        self.send(pb.Ping(nonce=self.nonce))
        self.ping_at = self.ping_at or time.monotonic()
        return self.nonce

    def tick(self):
        now = time.monotonic()
        if self.phase == "greeting" and now - self.connected_at > CONNECT_SECONDS and not self.has("waits-for-welcome"):
            raise Lost("no Welcome came")
        if self.phase != "ready":
            return
        if self.ping_at is not None and now - self.ping_at > PONG_SECONDS and not self.has("keeps-dead-connections"):
            if self.is_probing and not self.has("learns-nothing"):
                self.state.heartbeat = max(30, min(self.state.heartbeat or self.period, self.period) // 2)
            raise Lost("a Ping was not answered")
        quiet = self.period / 20 if self.has("pings-often") else self.period
        if now - self.sent_at >= quiet and not self.has("never-pings"):
            self.is_probing = now - self.received_at >= self.period * 0.9
            self.ping()
        if self.names_sent and now >= self.names_until and not self.has("waits-for-names"):
            raise Lost("no DeviceNamesResult came")
        if self.own_names_at and now >= self.own_names_at:
            self.send_names()
        if self.upstream_at and now >= self.upstream_at:
            self.upstream_at = 0.0
            self.send_upstream()

    # The end of a session

    def delay(self):
        most = min(self.most_ms, self.first_ms << min(self.attempt, 20))
        self.attempt += 1
        if self.has("no-jitter"):
            return most
        if self.has("constant-backoff"):
            return self.first_ms
        if self.has("no-backoff"):
            return 0
        return random.randint(0, most) * (3 if self.has("long-backoff") else 1)

    def wait(self, ms, target=None, is_named=False):
        self.drop_connection()
        self.target, self.is_named = target or self.home, is_named
        self.phase, self.until = "waiting", time.monotonic() + ms / 1000
        if self.has("reconnects-early"):
            self.until = time.monotonic()
        say("retrying", ms=int(ms))

    def drop_connection(self):
        if self.sock:
            self.guard(lambda: self.sock.close())
        self.sock = self.web = None

    def halt(self, reason):
        self.drop_connection()
        self.phase = "stopped"
        if not self.has("keeps-names"):
            for _ in self.names:
                say("names", code=None)
            self.names = []
        say("stopped", reason=reason)

    def forgive(self):
        is_steady = self.phase == "ready" and time.monotonic() - self.welcomed_at >= STEADY_SECONDS
        if is_steady and not self.has("never-forgives"):
            self.attempt = self.skews = self.losses = 0
            return True
        return False

    def lose(self, reason):
        say("disconnected", reason=reason)
        if self.phase == "stopped":
            return
        if self.phase == "ready" and self.has("stops-when-cut"):
            return self.halt(reason)
        self.forgive()
        self.wait(self.delay())

    def window(self, close):
        low, high = close.retry_after_min_ms, close.retry_after_max_ms
        if not low and not high or self.has("ignores-window"):
            return None
        low, high = min(low, 3_600_000), min(high, 3_600_000)
        if self.has("window-without-jitter"):
            return low
        return random.randint(low, max(low, high))

    def leave(self, close):
        window = self.window(close)
        if window is None:
            return self.wait(self.delay())
        self.wait(window if window >= self.first_ms else max(window, self.delay()), is_named=True)

    def closed(self, close):
        say("closed", code=close.code, reason=close.reason)
        was_ready, is_steady, state = self.phase == "ready", self.forgive(), self.state
        group = close.code // 100
        is_away = self.target != self.home
        if self.has("never-stops") and group == 4:
            group = 1
        if self.has("stops-at-unknown-codes") and close.code in (150, 299, 599):
            return self.halt(f"{close.code}")
        if self.has("stops-at-1xx") and group in (1, 5):
            return self.halt(f"{close.code}")
        if group == 2:
            alternate = close.alternate
            if not re.fullmatch(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[1-9][0-9]{0,4}", alternate) \
                    or int(alternate.rsplit(":", 1)[1]) > 65_535:
                if not self.has("any-alternate"):
                    alternate = ""
            if not alternate or alternate == self.target or not self.options.alternates_from_close \
                    or self.has("ignores-alternates"):
                return self.leave(close)
            pause = 0 if not is_away or is_steady or self.has("circles") else self.delay()
            window = self.window(close)
            self.wait(max(window or 0, pause), target=alternate, is_named=window is not None)
            if self.has("keeps-alternate"):
                self.home = alternate
            return
        is_refused_away = group in (3, 4) and is_away and not was_ready and close.code != 300
        if is_refused_away and not self.has("alternate-refusal-stops"):
            return self.wait(self.delay())
        if close.code == 300:
            if self.has("stops-at-300-without-time") and not 1 < close.server_time < 1 << 62:
                return self.halt("no server time")
            if 0 < close.server_time < 1 << 62 and not self.has("ignores-server-time"):
                state.offset = close.server_time - int(time.time() * 1000)
            if not self.has("keeps-refused-timestamp"):
                state.last_timestamp = state.accepted_timestamp
            self.skews += 1
            self.wait(0 if self.skews == 1 or self.has("skew-without-backoff") else self.delay(),
                      target=None if was_ready else self.target)
        elif close.code == 301:
            self.corrections += 1
            if (self.corrections > 1 or not state.cid) and not self.has("registers-forever"):
                return self.halt(f"{close.code}: {close.reason}")
            if self.has("keeps-lost-registration"):
                return self.wait(self.delay())
            say("registrationLost", cid=state.cid.hex())
            state.reset()
            self.held = {}
            self.losses += 1
            self.wait(0 if self.losses == 1 else self.delay())
        elif group == 3:
            self.corrections += 1
            if self.corrections > 1 and not self.has("corrects-forever"):
                return self.halt(f"{close.code}: {close.reason}")
            self.leave(close)
        elif group == 4:
            if close.code != 400 or self.has("stops-when-replaced"):
                return self.halt(f"{close.code}" if self.has("hides-close-reason") else f"{close.code}: {close.reason}")
            self.wait((0 if self.has("fights-replacement") else REPLACED_MS) + self.delay(), is_named=True)
        else:
            self.leave(close)

    # Commands

    def update(self, **fields):
        if self.phase != "ready":
            return
        self.end_turn()
        self.request += 1
        update = pb.DeviceUpdate(request=self.request, **fields)
        self.updates[self.request] = update
        if self.drop == "update":
            self.drop = self.request
        self.send(update)

    def updated(self, result):
        update = self.updates.pop(result.request, None)
        if update and result.code == 0:
            if update.HasField("push_mode_off") and update.push_mode_off == self.push_off:
                self.push_off = None
            if update.HasField("badge") and update.badge == self.badge:
                self.badge = None
            confirmed = [] if self.has("removes-again") else [one.channel for one in update.tokens if not one.token]
            if any(one in confirmed for one in self.state.removed):
                self.state.removed = [one for one in self.state.removed if one not in confirmed]
                self.is_dirty = True
        if result.heartbeat_seconds and not self.has("own-heartbeat"):
            self.period = result.heartbeat_seconds
        if self.drop == result.request:
            self.drop = None if self.is_foreground or self.keeps_running else "update"
        if result.reason and self.has("stops-at-refused-token"):
            return self.halt(result.reason)
        say("updated", request=result.request, code=result.code)

    def set_application_state(self, is_foreground, keeps_running=False):
        was_suspended = not self.is_foreground and not self.keeps_running
        self.is_foreground, self.keeps_running = is_foreground, keeps_running
        if self.has("no-background-update") and not is_foreground:
            return
        self.update(application_state=pb.FOREGROUND if is_foreground else pb.BACKGROUND, keeps_running=keeps_running)
        if not is_foreground and not keeps_running:
            self.drop = "update"
            if self.options.manual:
                self.held = {}
        elif was_suspended and self.phase == "ready":
            self.ping()

    def send_reports(self):
        state = self.state
        if self.phase != "ready" or self.reported or not state.unreported and not state.reports:
            return
        if self.has("no-feedback"):
            return
        for one in state.unreported:
            self.send(pb.Feedback(kind=pb.Feedback.OPENED, msg_id=bytes.fromhex(one)))
        for kind, one, action in state.reports:
            self.send(pb.Feedback(kind=kind, msg_id=bytes.fromhex(one), action=action))
        if self.has("feedback-without-ping"):
            state.unreported, state.reports = [], []
            return self.store()
        self.reported[self.ping()] = (list(state.unreported), list(state.reports))

    def send_upstream(self):
        if self.phase != "ready" or not self.state.outgoing or self.upstream_at:
            return
        if self.upstream_sent is not None and not self.has("upstream-in-parallel"):
            return
        if self.has("upstream-in-parallel"):
            for number, payload, task in self.state.outgoing:
                if number > (self.upstream_sent or 0):
                    self.send(pb.Upstream(request=number, payload=bytes.fromhex(payload), task_id=bytes.fromhex(task)))
                    self.upstream_sent = number
            return
        number, payload, task = self.state.outgoing[0]
        if self.has("renumbers-upstream"):
            self.state.last_outgoing += 1
            number = self.state.outgoing[0][0] = self.state.last_outgoing
        self.upstream_sent = number
        self.send(pb.Upstream(request=number, payload=bytes.fromhex(payload), task_id=bytes.fromhex(task)))

    def upstreamed(self, result):
        is_other = not self.state.outgoing or self.state.outgoing[0][0] != result.request
        if not self.state.outgoing or is_other and not self.has("takes-any-result") or self.upstream_sent is None:
            return
        self.upstream_sent = None
        if result.code >= 100 and not self.has("drops-delayed-upstream"):
            self.upstream_at = time.monotonic() + (BUSY_SECONDS if result.code == 102 else FULL_SECONDS)
            return
        if result.code == 0 or not self.has("repeats-refused-upstream"):
            self.state.outgoing.pop(0)
            self.store()
            if result.code == 0:
                say("taken", request=result.request)
            else:
                say("refused", request=result.request, code=result.code)
        self.send_upstream()

    def add_names(self, operation, alias="", alias_type="", tags=(), token=""):
        longest = max(len(name.encode()) for name in (alias, alias_type, *tags))
        is_valid = len(tags) <= TAGS and longest <= NAME_BYTES and len(token.encode()) <= SERVER_TOKEN_BYTES
        if not is_valid and not self.has("any-names-size") or self.phase == "stopped":
            return say("names", code=None)
        if len(self.names) >= NAMES and not self.has("no-names-bound"):
            return say("names", code=102)
        self.last_names += 1
        request = pb.DeviceNames(
            request=self.last_names, operation=OPERATIONS[operation], alias=alias, tags=tags,
            alias_type="" if self.has("names-without-type") else alias_type,
            token="" if self.has("names-without-token") else token)
        if operation in ("bindAlias", "unbindAlias") and not self.has("keeps-tokens-alias"):
            # The app's choice overrides the alias of the token that the client was started with.
            self.has_apps_alias, self.owed, self.own_names_at = True, "", 0.0
            if not self.names_sent:
                self.names = [one for one in self.names if one.request]
        self.names.insert(self.names_sent if self.has("newest-names-first") else len(self.names), request)
        self.send_names()

    def send_names(self):
        if self.phase != "ready":
            return
        is_first = bool(self.names) and not self.names[0].request
        if self.owed and not self.names_sent and not is_first and time.monotonic() >= self.own_names_at:
            self.own_names_at = 0.0
            self.names.insert(0, pb.DeviceNames(operation=pb.DeviceNames.BIND_ALIAS, token=self.owed))
        count = min(len(self.names), NAMES if self.has("names-in-parallel") else 1)
        if count > self.names_sent:
            self.names_until = time.monotonic() + self.options.names_ms / 1000
        for request in self.names[self.names_sent : count]:
            self.send(request)
        self.names_sent = count

    def named(self, result):
        is_other = not self.names or self.names[0].request != result.request
        if not self.names_sent or is_other and not self.has("takes-any-names-result"):
            return
        if result.code and self.has("repeats-refused-names"):
            self.names_sent = 0
            return self.send_names()
        if not self.names[0].request and self.owed:
            if result.code < 100 and not self.has("binds-tokens-alias-again"):
                self.owed = ""
            else:
                self.own_names_at = time.monotonic() + FULL_SECONDS
        del self.names[0]
        self.names_sent -= 1
        code = 0 if self.has("hides-names-codes") else result.code
        say("names", code=code, alias=result.alias or None, tags=list(result.tags))
        self.send_names()

    def note_opened(self, name):
        for known in (self.state.opened, self.state.unreported):
            if name in known:
                known.remove(name)
            known.append(name)
            del known[: max(0, len(known) - OPENED)]
        self.store()
        self.send_reports()

    def perform(self, command):
        name = command["do"]
        if name == "finish":
            self.finish(command["msgId"], command["verdict"], command.get("reason", ""))
        elif name == "send":
            payload = base64.b64decode(command["payload"])
            is_sendable = 1 <= len(payload) <= 16_384 or self.has("any-upstream-size")
            if not is_sendable or len(self.state.outgoing) >= OUTGOING:
                return say("refused", request=0, code=0)
            self.state.last_outgoing += 1
            self.state.outgoing.append([self.state.last_outgoing, payload.hex(), command.get("task", "")])
            self.store()
            self.send_upstream()
        elif name == "opened":
            self.note_opened(command["msgId"])
        elif name == "report":
            if command["kind"] == "clicked":
                return self.note_opened(command["msgId"])
            kind = pb.Feedback.SHOWN if command["kind"] == "shown" else pb.Feedback.ACTION
            entry = [kind, command["msgId"], command.get("action", 0)]
            if entry not in self.state.reports:
                self.state.reports = [*self.state.reports, entry][-REPORTS:]
                self.store()
                self.send_reports()
        elif name == "foreground":
            self.set_application_state(True)
        elif name == "background":
            self.set_application_state(False, command.get("keepsRunning", False))
        elif name == "network":
            if self.phase == "waiting" and not self.is_named and not self.has("ignores-network"):
                self.attempt = 0
                self.until = min(self.until, time.monotonic() + random.random() * self.first_ms / 1000)
            elif self.phase == "waiting" and self.has("network-ends-named-delays"):
                self.until = time.monotonic()
            elif self.phase == "ready" and self.ping_at is None and not self.has("ignores-network"):
                self.ping()
        elif name == "token":
            channel = pb.VendorToken.Channel.Value(command["vendor"].upper())
            token = pb.VendorToken(channel=channel, token=command["token"])
            self.tokens.pop(channel, None)
            known = list(self.state.removed)
            self.state.removed = [one for one in known if one != channel] + ([] if command["token"] else [channel])
            if self.state.removed != known:
                self.store()
            if command["token"]:
                self.tokens[channel] = token
                if self.phase != "ready":
                    self.renewed.append(token)
            self.update(tokens=[token])
        elif name == "badge":
            self.badge = command["value"]
            self.update(badge=self.badge)
        elif name == "attributes":
            permission = pb.DeviceAttributes.ALLOWED if command["allowed"] else pb.DeviceAttributes.DENIED
            self.attributes = pb.DeviceAttributes(
                model=command["model"], locale=command["locale"], notification_permission=permission)
        elif name == "push-mode":
            self.push_off = command["off"]
            self.update(push_mode_off=self.push_off)
        elif name == "heartbeat":
            self.heartbeat, self.state.heartbeat = command["seconds"], 0
            self.update(heartbeat_seconds=self.heartbeat)
        elif name == "names":
            self.add_names(command["operation"], command.get("alias", ""), command.get("aliasType", ""),
                           command.get("tags", []), command.get("token", ""))
        elif name == "vendor-message":
            known = command["msgId"]
            if known not in self.vendor:
                self.vendor.add(known)
                say("message", msgId=known, taskId=command.get("taskId", ""), sequence=0, offline=True,
                    payload=command.get("payload", ""))
        elif name == "stop":
            if self.phase == "ready":
                self.guard(lambda: self.send(pb.Close(code=100, reason="the client stops")))
            if self.has("ignores-stop"):
                say("stopped", reason=None)
                return self.wait(0)
            self.halt(None)
        else:
            say("unsupported", do=name)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("address", "transport", "app", "state"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--secret", default="")
    parser.add_argument("--token", default="")
    parser.add_argument("--ca")
    parser.add_argument("--window", type=int, default=0)
    parser.add_argument("--heartbeat", type=int, default=0)
    parser.add_argument("--manual", action="store_true")
    parser.add_argument("--serial", action="store_true")
    parser.add_argument("--alternates-from-close", action="store_true")
    parser.add_argument("--backoff-ms", default="1000:120000")
    parser.add_argument("--names-ms", type=int, default=30_000)
    parser.add_argument("--fault", default="", help="defects to plant, separated by commas")
    options = parser.parse_args()
    Client(options).run()
    if "exits-with-1" in options.fault:
        sys.exit(1)


if __name__ == "__main__":
    main()
