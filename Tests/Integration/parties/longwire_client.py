"""A small Longwire client: a device, and a trusted sender.

It uses the stock protobuf package; protoc generates the message classes when this module is imported. It is for tests: it does
one thing at a time, never reconnects automatically, and keeps its state in an object that a test may damage or lose.

    device = Device("127.0.0.1", 7000, "demo")
    device.register("the app's secret")
    message = device.receive(pb.Deliver)
    device.ack(message.sequence)
"""

import hashlib
import hmac
import os
import pathlib
import socket
import struct
import subprocess
import time
import types

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.internal import builder

PROTO = pathlib.Path(__file__).resolve().parents[3] / "Proto"


def _generate():
    """Compiles the schema over a pipe, so that a killed process leaves no file."""
    schema = "longwire/v1/longwire.proto"
    described = subprocess.run(
        ["protoc", f"--proto_path={PROTO}", "--descriptor_set_out=/dev/stdout", schema], check=True,
        stdout=subprocess.PIPE).stdout
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(described).file
    descriptor = descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
    module = types.ModuleType("longwire.v1.longwire_pb2")
    # As in the code that protoc writes.
    builder.BuildMessageAndEnumDescriptors(descriptor, vars(module))
    builder.BuildTopDescriptorsAndMessages(descriptor, module.__name__, vars(module))
    return module


pb = _generate()

MESSAGES = {
    number: getattr(pb, "".join(word.capitalize() for word in name.split("_")))
    for name, number in pb.FrameType.items()
    if number != pb.FRAME_TYPE_UNSPECIFIED
}
TYPES = {message: number for number, message in MESSAGES.items()}


class Closed(Exception):
    """The gateway closed the connection; `close` is its Close frame, or None."""

    def __init__(self, close=None):
        super().__init__(f"{close.code}: {close.reason}" if close else "without a Close frame")
        self.close = close
        self.code = close.code if close else None


def encode(message):
    """Returns one complete frame."""
    body = message.SerializeToString()
    return struct.pack(">I", TYPES[type(message)] << 24 | len(body)) + body


def prove(hello, key):
    """Returns the frame of a Hello: encoded once without a proof, with the proof field appended."""
    hello.ClearField("proof")
    body = hello.SerializeToString()
    body += b"\x32\x20" + hmac.new(key, b"longwire hello 1" + body, hashlib.sha256).digest()
    return struct.pack(">I", pb.HELLO << 24 | len(body)) + body


class Connection:
    """Frames over a socket, with a timeout on every read; `tls` is an ssl.SSLContext, or None for plain TCP.

    `wire` creates the socket or a substitute from the address and the timeout.
    """

    def __init__(self, host, port, timeout=10.0, tls=None, wire=None):
        self.timeout = timeout
        self.socket = (wire or socket.create_connection)((host, port), timeout=timeout)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self.buffer = bytearray()

    def send(self, *messages):
        self.socket.sendall(b"".join(map(encode, messages)))

    def frame(self, timeout=None):
        """Returns the next frame of any kind; raises TimeoutError after the timeout, Closed at the end of the stream."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            kind, length = self.buffer[0:1], int.from_bytes(self.buffer[1:4], "big")
            if len(self.buffer) >= 4 + length:
                body = bytes(self.buffer[4 : 4 + length])
                del self.buffer[: 4 + length]
                return MESSAGES[kind[0]].FromString(body)
            # A socket with timeout 0 would not block at all. An expired deadline still polls once.
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                raise Closed()
            self.buffer += data

    def receive(self, kind, timeout=None):
        """Returns the next frame of this kind (or these); answers Pings until then, and raises a Close as Closed."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            frame = self.frame(max(0.0, deadline - time.monotonic()))
            if isinstance(frame, kind):
                return frame
            if isinstance(frame, pb.Close):
                raise Closed(frame)
            if not isinstance(frame, pb.Ping):
                raise AssertionError(f"expected {kind}, got {type(frame).__name__}: {frame}")
            self.send(pb.Pong(nonce=frame.nonce))

    def close(self):
        self.socket.close()


class DeviceState:
    def __init__(self):
        self.cid, self.secret = b"", b""
        self.epoch = 0
        self.positions = {}  # stream → highest sequence processed; this client works in order, so it has no ranges
        self.timestamp, self.offset = 0, 0  # ms; the offset is the gateway's clock − ours
        self.accepted = 0  # the timestamp of the last Hello that was welcomed


class Device:
    """One device of one app. `connection` is None while it is disconnected."""

    def __init__(self, host, port, app_id, state=None, timeout=10.0, tls=None, wire=None):
        self.address, self.app_id, self.timeout, self.tls, self.wire = (host, port), app_id, timeout, tls, wire
        self.state = state or DeviceState()
        self.connection, self.welcome, self.request = None, None, 0

    def register(self, app_secret, **fields):
        """Registers a new device and stays connected. `fields` go into the Hello."""
        welcome = self._corrected(app_secret.encode(), registration=True, nonce=os.urandom(16), **fields)
        self.state.cid, self.state.secret = welcome.cid, welcome.device_secret
        return welcome

    def connect(self, **fields):
        """Connects as the device in `state`; one retry after clockSkew."""
        return self._corrected(self.state.secret, cid=self.state.cid, **fields)

    def _corrected(self, key, **fields):
        try:
            return self._hello(key, **fields)
        except Closed as closed:
            if closed.code != 300:
                raise
            self.state.offset = closed.close.server_time - int(time.time() * 1000)
            # The refused timestamp was never recorded by the gateway. Keeping it would lock out a client whose clock is ahead.
            self.state.timestamp = self.state.accepted
            return self._hello(key, **fields)

    def _hello(self, key, **fields):
        state = self.state
        state.timestamp = max(int(time.time() * 1000) + state.offset, state.timestamp + 1)
        hello = pb.Hello(app_id=self.app_id, timestamp=state.timestamp, queue_epoch=state.epoch, client="python-test")
        for stream, sequence in sorted(state.positions.items()):
            hello.positions.add(stream=stream, sequence=sequence)
        hello.MergeFrom(pb.Hello(**fields))
        self.close()
        self.connection = Connection(*self.address, timeout=self.timeout, tls=self.tls, wire=self.wire)
        self.connection.socket.sendall(prove(hello, key))
        self.welcome = self.connection.receive(pb.Welcome)
        state.accepted = state.timestamp
        if self.welcome.queue_epoch != state.epoch:
            state.positions.clear()
            state.epoch = self.welcome.queue_epoch
        return self.welcome

    def receive(self, kind=pb.Deliver, timeout=None):
        return self.connection.receive(kind, timeout)

    def receive_and_ack(self, count, timeout=None):
        """Processes `count` messages in order and acks each; messages covered by the position are acked and omitted."""
        fresh = []
        for _ in range(count):
            message = self.receive(timeout=timeout)
            if message.sequence > self.state.positions.get(message.stream, 0):
                fresh.append(message)
            self.ack(message.sequence, message.stream)
        return fresh

    def ack(self, sequence, stream=0, ranges=()):
        """Stores the position, then acks it. `ranges`: pairs (first, last) above it, sent but not stored."""
        self.state.positions[stream] = max(sequence, self.state.positions.get(stream, 0))
        ack = pb.Ack()
        position = ack.positions.add(stream=stream, sequence=self.state.positions[stream])
        for first, last in ranges:
            position.ranges.add(first=first, last=last)
        self.connection.send(ack)

    def reject(self, sequence, reason, stream=0):
        ack = pb.Ack()
        ack.rejected.add(stream=stream, sequence=sequence, reason=reason)
        self.connection.send(ack)

    def update(self, **fields):
        """Sends a DeviceUpdate and waits for its result; drops deliveries until then unacked, as the protocol requires."""
        self.request += 1
        self.connection.send(pb.DeviceUpdate(request=self.request, **fields))
        while True:
            frame = self.connection.receive((pb.UpdateResult, pb.Deliver, pb.Revoke))
            if isinstance(frame, pb.UpdateResult) and frame.request == self.request:
                return frame

    def feedback(self, msg_id, kind=pb.Feedback.OPENED, action=0):
        self.connection.send(pb.Feedback(kind=kind, msg_id=msg_id, action=action))

    def ping(self, nonce=1, timeout=None):
        self.connection.send(pb.Ping(nonce=nonce))
        return self.connection.receive(pb.Pong, timeout)

    def close(self):
        if self.connection:
            self.connection.close()
            self.connection = None


class Sender:
    """A trusted sender on the listener `senders`."""

    def __init__(self, host, port, app_id, master_secret, timeout=10.0, tls=None):
        self.connection, self.request = Connection(host, port, timeout, tls), 0
        hello = pb.Hello(
            app_id=app_id, role=pb.ROLE_SENDER, timestamp=int(time.time() * 1000), client="python-test",
            nonce=os.urandom(16))
        self.connection.socket.sendall(prove(hello, master_secret.encode()))
        self.welcome = self.connection.receive(pb.Welcome)

    def publish(self, messages, timeout=None):
        """Sends all (dicts of Publish's fields) in one write; returns results in the same order."""
        first = self.request + 1
        frames = []
        for fields in messages:
            self.request += 1
            frames.append(pb.Publish(request=self.request, **fields))
        self.connection.send(*frames)
        results = {}
        while len(results) < len(frames):
            result = self.connection.receive(pb.PublishResult, timeout)
            results[result.request] = result
        return [results[number] for number in range(first, self.request + 1)]

    def close(self):
        self.connection.close()
