"""A scripted gateway that checks each frame of a client. The test chooses the answers, including invalid ones.

    gateway = Gateway("tcp")
    session = gateway.welcome()          # the next connection: its Hello is checked and answered
    session.deliver(1, 2, 3)
    session.until_acked(3)
    session.cut()

`gateway.faults` lists the client's protocol violations. Any violation fails the test. The gateway records the messages
and the Acks of each device, because a later Hello must cover each message that an Ack covered.
"""

import collections
import os
import queue
import select
import socket
import ssl
import threading
import time

from pipes import Pipe, WebSocketPipe
from wire import (
    BODY_LIMIT, DEVICE_BODY_LIMIT, DEVICE_FRAMES, MESSAGES, NAME_BYTES, OPENED, REJECTIONS, RANGES, SERVER_TOKEN_BYTES,
    TAGS, TOKENS, Malformed, alias_of, covers, encode, has_proof, pb, position_faults)

APP, SECRET = "conformance", "the secret of the app, 32 bytes!"
SKEW_MS = 120_000


class Broken(AssertionError):
    """The client did not keep the rule of the test."""


class Device:
    """The gateway's knowledge of one device."""

    def __init__(self):
        self.cid, self.secret = os.urandom(16), os.urandom(32)
        self.accepted = 0  # the timestamp of the last accepted Hello
        self.generation = 0
        self.upstream = {}  # payload and task by request number
        self.aliases, self.tags = {}, []  # the device's aliases by type, and its tags
        self.epochs = {0}  # the epochs that a Hello may name
        self.start(epoch=7)

    def start(self, epoch):
        """Begins another queue, whose sequences begin anew."""
        self.epoch = epoch
        self.epochs.add(epoch)
        self.messages = {}  # by (stream, sequence)
        self.acked = set()
        self.revoked = set()  # task ids
        self.unfinished = set()  # sent in the last session, and not finished by the app; only with `is_manual`

    def acked_in(self, stream):
        """Returns the sequences of a stream that Acks have covered."""
        return {sequence for number, sequence in list(self.acked) if number == stream}

    def message(self, stream, sequence, **fields):
        """Returns the message of this number, the same one each time; fields such as `offline` may change."""
        old = self.messages.get((stream, sequence))
        if old is None:
            old = pb.Deliver(
                stream=stream, sequence=sequence, msg_id=os.urandom(16), task_id=os.urandom(16),
                payload=f"{stream}/{sequence}".encode(), accepted_at=int(time.time() * 1000), attempt=1)
            self.messages[stream, sequence] = old
        old.MergeFrom(pb.Deliver(**fields))
        return old

    def change_names(self, names):
        """Applies a DeviceNames; returns the code, alias and tags of its result."""
        if names.operation == pb.DeviceNames.QUERY:
            return {"alias": self.aliases.get(names.alias_type, ""), "tags": self.tags}
        if names.operation == pb.DeviceNames.BIND_ALIAS:
            self.aliases[names.alias_type] = alias_of(names.token) if names.token else names.alias
        elif names.operation == pb.DeviceNames.UNBIND_ALIAS:
            if self.aliases.get(names.alias_type) == names.alias:
                del self.aliases[names.alias_type]
        elif names.operation == pb.DeviceNames.SET_TAGS:
            self.tags = list(dict.fromkeys(names.tags))
        elif names.operation == pb.DeviceNames.ADD_TAGS:
            self.tags = list(dict.fromkeys([*self.tags, *names.tags]))
        else:
            self.tags = [tag for tag in self.tags if tag not in names.tags]
        return {}


class Gateway:
    """A listener on loopback; `security` is an ssl.SSLContext of a server for `tls` and `wss`."""

    def __init__(self, transport="tcp", security=None, patience=20.0):
        self.transport, self.security, self.patience = transport, security, patience
        self.faults = []
        self.devices = {}
        self.nonces = set()
        self.clock_ms = 0  # this gateway's clock minus the machine's
        self.token = ""  # the token of the app's server that a registration must carry; empty: it proves the app secret
        self.is_manual = False  # whether the test finishes each message
        self.is_client_gone = lambda: False  # whether there is no driver that could connect
        self.connection_count = self.failed_handshakes = 0
        self.connected_at = []  # monotonic times
        self.greetings, self.connections = queue.Queue(), []
        self.port, self.listener, self.accepting = 0, None, None
        self.listen()

    # The listener

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def listen(self):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(64)
        listener.setblocking(False)
        self.port, self.listener = listener.getsockname()[1], listener
        self.accepting = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        self.accepting.start()

    def stop_listening(self):
        listener, self.listener = self.listener, None
        if listener:
            self.accepting.join()
            listener.close()

    def close(self):
        self.stop_listening()
        for connection in list(self.connections):
            connection.cut()

    def _accept(self, listener):
        while self.listener is listener:
            if not select.select([listener], [], [], 0.05)[0]:
                continue
            try:
                sock, _ = listener.accept()
            except OSError:
                continue
            self.connection_count += 1
            self.connected_at.append(time.monotonic())
            connection = Connection(self)
            self.connections.append(connection)
            threading.Thread(target=connection.run, args=(sock,), daemon=True).start()

    def fault(self, text):
        self.faults.append(text)

    # The script's calls

    def now(self):
        return int(time.time() * 1000) + self.clock_ms

    def hello(self, patience=None):
        """Returns the next connection whose Hello has arrived; nothing is answered yet."""
        deadline = time.monotonic() + (patience or self.patience)
        while True:
            try:
                return self.greetings.get(timeout=0.2)
            except queue.Empty:
                if self.is_client_gone():
                    raise Broken("no Hello came, and the driver has ended") from None
                if time.monotonic() > deadline:
                    raise Broken(f"no Hello came within {patience or self.patience} s") from None

    def welcome(self, patience=None, **fields):
        connection = self.hello(patience)
        connection.welcome(**fields)
        return connection

    def working(self, patience=None, **fields):
        """Returns the next session that answers a Ping; connections that ended before their Welcome are passed over."""
        deadline = time.monotonic() + (patience or self.patience)
        while True:
            session = self.welcome(max(0.1, deadline - time.monotonic()), **fields)
            try:
                session.round_trip()
                return session
            except Broken:
                if not session.is_over:
                    raise

    def stays_alone(self, seconds):
        """Fails when a client connects within this time."""
        count = self.connection_count
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.connection_count != count or not self.greetings.empty():
                raise Broken("the client connected, and should have stopped or still wait")
            time.sleep(0.02)

    def device_of(self, hello):
        return self.devices.get(hello.cid)


class Connection:
    """One connection of a client."""

    def __init__(self, gateway):
        self.gateway, self.pipe = gateway, None
        self.received = []  # (frame, time) in order
        self.changed = threading.Condition()
        self.cursors = collections.Counter()
        self.hello = self.device = None
        self.is_welcomed = self.is_over = False
        self.close_frame = None  # the client's Close
        self.ended_at = None
        self.bytes_in = 0
        # The automatic answers, each of which a test may turn off.
        self.answers_pings = self.answers_updates = self.answers_upstream = self.answers_names = True
        self.sent = set()  # (stream, sequence) of this session
        self.rejections = []  # (stream, sequence) whose Ping has not come
        self.pending_pongs = {}  # nonce → rejections that this Pong confirms
        self.upstream_in_flight = self.names_in_flight = None
        self.split = None  # None, or the number of bytes of each write
        self.units, self.started = 0, time.monotonic()

    # Reading

    def run(self, sock):
        try:
            if self.gateway.security:
                sock.settimeout(self.gateway.patience)
                sock = self.gateway.security.wrap_socket(sock, server_side=True)
            if self.gateway.transport in ("ws", "wss"):
                self.pipe = WebSocketPipe(sock, self.gateway.fault)
            else:
                self.pipe = Pipe(sock)
        except (OSError, ValueError):
            self.gateway.failed_handshakes += 1
            sock.close()
            self._end()
            return
        buffer = bytearray()
        while data := self.pipe.recv():
            self.bytes_in += len(data)
            buffer += data
            try:
                while len(buffer) >= 4 and len(buffer) >= 4 + (size := int.from_bytes(buffer[1:4], "big")):
                    body = bytes(buffer[4 : 4 + size])
                    kind = buffer[0]
                    del buffer[: 4 + size]
                    self._take(kind, body)
                if len(buffer) >= 4 and size > DEVICE_BODY_LIMIT:
                    raise Malformed(f"a frame of {size} bytes, at most {DEVICE_BODY_LIMIT} are allowed")
            except Malformed as error:
                self.gateway.fault(str(error))
                break
            except OSError:
                break
            except Exception as error:
                # Otherwise the test would only see a client without answers.
                self.gateway.fault(f"the gateway of the suite failed: {type(error).__name__} {error}")
                self._end()
                raise
        self._end()

    def _end(self):
        with self.changed:
            self.is_over, self.ended_at = True, time.monotonic()
            self.changed.notify_all()
        if self.pipe:
            self.pipe.close()

    def _take(self, kind, body):
        if kind not in DEVICE_FRAMES:
            raise Malformed(f"a frame of type {kind}, which a device does not send")
        if len(body) > DEVICE_BODY_LIMIT:
            raise Malformed(f"a frame of {len(body)} bytes, at most {DEVICE_BODY_LIMIT} are allowed")
        try:
            message = MESSAGES[kind].FromString(body)
        except Exception as error:
            raise Malformed(f"a body that is no {MESSAGES[kind].__name__}: {error}") from None
        if self.close_frame is not None:
            raise Malformed("a frame after the client's Close")
        if (kind == pb.HELLO) != (self.hello is None):
            raise Malformed("the first frame, and no other, is a Hello")
        self.units += 1 + len(body) // 256
        if kind in (pb.PING, pb.PONG, pb.DEVICE_UPDATE, pb.UPSTREAM):
            self.units += 9
        if self.units > 10_000 * (1 + (time.monotonic() - self.started) / 10) + 3 * len(self.sent):
            raise Malformed("more frames than the protocol's rate limit allows")
        if kind == pb.HELLO:
            self._greet(message, body)
        else:
            check = getattr(self, f"_check_{type(message).__name__.lower()}", None)
            if check:
                check(message)
        with self.changed:
            self.received.append((message, time.monotonic()))
            self.changed.notify_all()
        self._answer(message)
        if kind == pb.HELLO:
            self.gateway.greetings.put(self)

    # Checks

    def _greet(self, hello, body):
        gateway, self.hello = self.gateway, hello
        report = gateway.fault
        self.device = gateway.device_of(hello)
        if hello.registration:
            key = (gateway.token or SECRET).encode()
            if hello.registration_token != gateway.token:
                report(f"a registration with the token {hello.registration_token!r} instead of {gateway.token!r}")
            if hello.cid or hello.positions:
                report("a registration with a cid or with positions")
            if not 8 <= len(hello.nonce) <= 16:
                report(f"a registration with a nonce of {len(hello.nonce)} bytes, 8 to 16 are required")
            if hello.nonce in gateway.nonces:
                report("two registrations with one nonce")
            gateway.nonces.add(hello.nonce)
        elif self.device is None:
            raise Malformed(f"a Hello with the cid {hello.cid.hex()!r}, which was never given")
        else:
            key = self.device.secret
            if hello.registration_token:
                report("a Hello of a registered device with a token of the app's server")
        if not has_proof(body, key):
            report("a Hello whose proof is wrong")
        if hello.app_id != APP or hello.role != pb.ROLE_DEVICE:
            report(f"a Hello for the app {hello.app_id!r} with the role {hello.role}")
        if len(hello.client) > 64 or len(hello.client.encode()) > 256:
            report("a client's name of more than 64 characters")
        if len(hello.opened) > OPENED or len(hello.tokens) > TOKENS:
            report(f"{len(hello.opened)} opened ids (at most {OPENED}), {len(hello.tokens)} tokens (at most {TOKENS})")
        for fault in position_faults(hello.positions):
            report(f"Hello: {fault}")
        if hello.heartbeat_seconds and not 30 <= hello.heartbeat_seconds <= 1_800:
            report(f"a requested heartbeat of {hello.heartbeat_seconds} s, 30 to 1,800 are allowed")
        if self.device:
            self._check_state(hello)

    def _check_state(self, hello):
        """The Hello of a known device must be newer than the last one, and know what the device acked."""
        device, report = self.device, self.gateway.fault
        if hello.timestamp <= device.accepted and abs(hello.timestamp - self.gateway.now()) <= SKEW_MS:
            report(f"a timestamp that does not increase: {device.accepted}, then {hello.timestamp}")
        if hello.queue_epoch != device.epoch:
            # The test may have changed the epoch. Positions of another queue count for nothing.
            if hello.queue_epoch not in device.epochs or device.acked:
                report(f"a Hello with the epoch {hello.queue_epoch}, and the last Welcome had {device.epoch}")
            return
        positions = {one.stream: one for one in hello.positions}
        self._check_bounds(hello.positions, "Hello")
        for stream, sequence in sorted(device.acked):
            is_full = stream in positions and len(positions[stream].ranges) == RANGES
            if not covers(positions.get(stream), sequence) and not is_full:
                report(f"{sequence} of stream {stream} was acked and not stored: the next Hello does not cover it")
        for stream, sequence in sorted(device.unfinished):
            if covers(positions.get(stream), sequence):
                report(f"a Hello covers {sequence} of stream {stream}, which the app has not finished")

    def _check_bounds(self, positions, name):
        for one in positions:
            sent = [sequence for stream, sequence in list(self.device.messages) if stream == one.stream]
            highest = max([one.sequence, *(each.last for each in one.ranges)])
            if highest > max(sent, default=0):
                self.gateway.fault(f"{name}: {highest} of stream {one.stream} was never sent")

    def _check_ack(self, ack):
        report = self.gateway.fault
        if not self.is_welcomed:
            report("an Ack before the Welcome")
        if not ack.positions and not ack.rejected:
            report("an empty Ack")
        for fault in position_faults(ack.positions):
            report(f"Ack: {fault}")
        if len(ack.rejected) > REJECTIONS or any(len(one.reason) > 128 for one in ack.rejected):
            report("an Ack with too many rejections, or with a reason of more than 128 characters")
        self._check_bounds(ack.positions, "Ack")
        positions = {one.stream: one for one in ack.positions}
        # Copies, because the test's thread sends more while this thread reads.
        for stream, sequence in list(self.sent):
            if covers(positions.get(stream), sequence):
                if (stream, sequence) in self.device.unfinished:
                    report(f"an Ack covers {sequence} of stream {stream}, which the app has not finished")
                self.device.acked.add((stream, sequence))
        for one in ack.rejected:
            if (one.stream, one.sequence) not in self.sent:
                report(f"a rejection of {one.sequence} of stream {one.stream}, which this session was not sent")
            self.rejections.append((one.stream, one.sequence))

    def _check_ping(self, ping):
        self.pending_pongs[ping.nonce], self.rejections = self.rejections, []

    def _check_upstream(self, upstream):
        report, device = self.gateway.fault, self.device
        if not 1 <= len(upstream.payload) <= 16_384:
            report(f"an Upstream of {len(upstream.payload)} bytes, 1 to 16,384 are allowed")
        content = (upstream.payload, upstream.task_id)
        if device.upstream.setdefault(upstream.request, content) != content:
            report(f"two messages with the number {upstream.request}")
        if self.upstream_in_flight is not None:
            report(f"Upstream {upstream.request} before the result of {self.upstream_in_flight}")
        self.upstream_in_flight = upstream.request

    def _check_devicenames(self, names):
        report = self.gateway.fault
        if not self.is_welcomed:
            report("a DeviceNames before the Welcome")
        if names.operation not in pb.DeviceNames.Operation.values():
            report(f"a DeviceNames with the operation {names.operation}")
        longest = max(len(name.encode()) for name in (names.alias, names.alias_type, *names.tags))
        if len(names.tags) > TAGS or longest > NAME_BYTES:
            report(f"{len(names.tags)} tags (at most {TAGS}), a name of {longest} bytes (at most {NAME_BYTES})")
        if len(names.token.encode()) > SERVER_TOKEN_BYTES:
            report(f"a token of {len(names.token.encode())} bytes, at most {SERVER_TOKEN_BYTES} are allowed")
        if names.token and names.operation != pb.DeviceNames.BIND_ALIAS:
            report(f"a DeviceNames with a token and the operation {names.operation}")
        if self.names_in_flight is not None:
            report(f"DeviceNames {names.request} before the result of {self.names_in_flight}")
        self.names_in_flight = names.request

    def _check_deviceupdate(self, update):
        if update.heartbeat_seconds and not 30 <= update.heartbeat_seconds <= 1_800:
            self.gateway.fault(f"a requested heartbeat of {update.heartbeat_seconds} s, 30 to 1,800 are allowed")
        if len(update.tokens) > TOKENS:
            self.gateway.fault(f"an update with {len(update.tokens)} tokens, at most {TOKENS} are allowed")

    def _check_feedback(self, feedback):
        if len(feedback.msg_id) != 16:
            self.gateway.fault(f"a Feedback whose message id has {len(feedback.msg_id)} bytes")

    def _check_close(self, close):
        self.close_frame = close

    # Answers

    def _answer(self, message):
        if isinstance(message, pb.Ping) and self.answers_pings and self.is_welcomed:
            self.pong(message.nonce)
        elif isinstance(message, pb.DeviceUpdate) and self.answers_updates:
            self.send(pb.UpdateResult(request=message.request, heartbeat_seconds=message.heartbeat_seconds))
        elif isinstance(message, pb.Upstream) and self.answers_upstream:
            self.upstream_result(message.request)
        elif isinstance(message, pb.DeviceNames) and self.answers_names:
            self.names_result(message.request, **self.device.change_names(message))

    def welcome(self, answers=True, **fields):
        """Accepts the Hello, and registers a device if it asks for one; `fields` replace those of the Welcome."""
        gateway, hello = self.gateway, self.hello
        if abs(hello.timestamp - gateway.now()) > SKEW_MS:
            gateway.fault(f"a Hello whose timestamp is {hello.timestamp - gateway.now()} ms off the gateway's clock")
        created = None
        if hello.registration:
            self.device = created = Device()
            gateway.devices[created.cid] = created
            created.start(fields.get("queue_epoch", created.epoch))
        device = self.device
        if fields.get("queue_epoch", device.epoch) != device.epoch:
            device.start(fields["queue_epoch"])
        device.accepted = max(device.accepted, hello.timestamp)
        device.generation += 1
        device.unfinished = set()
        self.answers_pings = self.answers_updates = self.answers_upstream = self.answers_names = answers
        welcome = pb.Welcome(
            generation=device.generation, queue_epoch=device.epoch, heartbeat_seconds=hello.heartbeat_seconds or 300,
            window=hello.window or 32, server_time=gateway.now())
        if created:
            welcome.cid, welcome.device_secret = device.cid, device.secret
        welcome.MergeFrom(pb.Welcome(**fields))
        self.is_welcomed = True
        self.send(welcome)
        return welcome

    def pong(self, nonce):
        for place in self.pending_pongs.pop(nonce, []):
            if self.device:
                self.device.unfinished.discard(place)
        self.send(pb.Pong(nonce=nonce))

    def upstream_result(self, request, code=0, reason=""):
        self.upstream_in_flight = None
        self.send(pb.UpstreamResult(request=request, code=code, reason=reason))

    def names_result(self, request, **fields):
        self.names_in_flight = None
        self.send(pb.DeviceNamesResult(request=request, **fields))

    def send(self, *messages):
        self.raw(b"".join(map(encode, messages)))

    def raw(self, data):
        """Sends bytes; a client that has gone is no error here, the test sees it by the end of the connection."""
        try:
            if self.split:
                for at in range(0, len(data), self.split):
                    self.pipe.send(data[at : at + self.split])
            else:
                self.pipe.send(data)
        except OSError:
            pass

    def deliver(self, *sequences, stream=0, **fields):
        """Sends these messages in one write; returns them."""
        messages = [self.mark(stream, sequence, **fields) for sequence in sequences]
        self.send(*messages)
        return messages

    def mark(self, stream, sequence, **fields):
        """Returns a message of the device, recorded as sent in this session."""
        one = self.device.message(stream, sequence, **fields)
        self._note(stream, sequence)
        return pb.Deliver.FromString(one.SerializeToString())

    def _note(self, stream, sequence):
        # Before the bytes leave, since the client's answer may be here before `send` returns.
        self.sent.add((stream, sequence))
        if self.gateway.is_manual and (stream, sequence) not in self.device.acked:
            self.device.unfinished.add((stream, sequence))

    def revoke(self, sequence, task):
        self.device.messages.setdefault((0, sequence), pb.Deliver(sequence=sequence, msg_id=os.urandom(16)))
        self.sent.add((0, sequence))
        self.device.revoked.add(task)
        name = self.device.messages[0, sequence].msg_id
        self.send(pb.Revoke(sequence=sequence, msg_id=name, task_id=os.urandom(16), revoked_task_id=task))

    def close(self, code, reason="scripted", **fields):
        """Sends a Close and closes, after the client's end of the stream or two seconds; returns the time before it."""
        # A delay of the client begins later than this, however slow the machine is.
        closed_at = time.monotonic()
        self.send(pb.Close(code=code, reason=reason, **fields))
        if self.pipe:
            if isinstance(self.pipe, WebSocketPipe):
                try:
                    self.pipe.close_message(4000 + code if code < 1000 else 4999)
                except OSError:
                    pass
            self.pipe.end()
        with self.changed:
            self.changed.wait_for(lambda: self.is_over, timeout=2)
        if self.pipe:
            self.pipe.close()
        return closed_at

    def cut(self, with_reset=False):
        if self.pipe:
            self.pipe.close(with_reset)

    # Waiting

    def expect(self, kind, where=lambda message: True, patience=None):
        """Returns the next frame of this kind for which `where` holds; others of the kind are passed over."""
        patience = patience or self.gateway.patience
        found = []

        def search():
            while self.cursors[kind] < len(self.received):
                message = self.received[self.cursors[kind]][0]
                self.cursors[kind] += 1
                if isinstance(message, kind) and where(message):
                    found.append(message)
                    return True
            return self.is_over

        with self.changed:
            self.changed.wait_for(search, timeout=patience)
        if not found:
            end = "the connection ended" if self.is_over else f"none came within {patience} s"
            raise Broken(f"expected a {kind.__name__}: {end}; received: {self.names()}")
        return found[0]

    def names(self):
        return " ".join(type(message).__name__ for message, _ in self.received[-40:])

    def frames(self, kind):
        with self.changed:
            return [message for message, _ in self.received if isinstance(message, kind)]

    def times(self, kind):
        with self.changed:
            return [at for message, at in self.received if isinstance(message, kind)]

    def until_acked(self, *sequences, stream=0, patience=None):
        """Waits until Acks of this session cover these messages; returns the last Ack."""
        wanted = {(stream, sequence) for sequence in sequences}
        patience = patience or self.gateway.patience

        def covered():
            done = set()
            for message, _ in self.received:
                if isinstance(message, pb.Ack):
                    for one in message.positions:
                        done |= {place for place in wanted if place[0] == one.stream and covers(one, place[1])}
            return done == wanted

        with self.changed:
            self.changed.wait_for(lambda: covered() or self.is_over, timeout=patience)
            if not covered():
                raise Broken(f"no Ack of {sequences} came; received: {self.names()}")
            return [message for message, _ in self.received if isinstance(message, pb.Ack)][-1]

    def until_over(self, patience=None):
        """Waits until the client has ended the connection."""
        patience = patience or self.gateway.patience
        with self.changed:
            if not self.changed.wait_for(lambda: self.is_over, timeout=patience):
                raise Broken(f"the client kept the connection for {patience} s; received: {self.names()}")

    def round_trip(self):
        """Sends a Ping and waits for its Pong: the client has then read all frames before it."""
        nonce = int.from_bytes(os.urandom(4), "big") + 1
        self.send(pb.Ping(nonce=nonce))
        self.expect(pb.Pong, lambda pong: pong.nonce == nonce)


__all__ = ["APP", "BODY_LIMIT", "Broken", "Connection", "Device", "Gateway", "SECRET"]
