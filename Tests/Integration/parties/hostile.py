"""Shared parts of the tests with hostile clients: correct clients, and a monitor of the gateway's process."""

import contextlib
import pathlib
import re
import socket
import statistics
import struct
import threading
import time

from gateway import eventually
from longwire_client import Closed, Connection, Sender, encode, pb, prove

RESET = struct.pack("ii", 1, 0)
# Generous, because pools of blocks and the allocator's arenas keep memory that a storm once needed. A leak per connection or
# frame would exceed it, because each test makes thousands of either.
MEMORY_BOUND = 192 << 20


class Neighbours:
    """Devices and a sender that behave correctly while another client does not.

    At the end every published message must have arrived in order and unflagged. The duration is printed, but not checked.
    """

    def __init__(self, gateway, new_device, count=3, pause=0.01):
        self.gateway, self.pause = gateway, pause
        self.devices = [new_device(gateway) for _ in range(count)]
        self.published, self.arrived = [0] * count, [[] for _ in range(count)]
        self.latencies, self.failures, self.is_over = [], [], False

    def __enter__(self):
        self.threads = [threading.Thread(target=self._guard, args=(self._publish,))]
        self.threads += [
            threading.Thread(target=self._guard, args=(self._read, index)) for index in range(len(self.devices))]
        for thread in self.threads:
            thread.start()
        return self

    def _guard(self, work, *arguments):
        try:
            work(*arguments)
        except Exception as error:  # reported by the main thread, which fails
            self.failures.append(f"{work.__name__}: {type(error).__name__} {error}")

    def _publish(self):
        app = self.gateway.app
        sender = Sender("127.0.0.1", self.gateway.senders, app["appId"], app["masterSecret"], timeout=60)
        with contextlib.closing(sender):
            while not self.is_over:
                frames = [{"cid": device.state.cid, "payload": str(time.time()).encode()} for device in self.devices]
                for index, result in enumerate(sender.publish(frames)):
                    assert result.code == 0 and result.live, result
                    self.published[index] += 1
                time.sleep(self.pause)

    def _read(self, index):
        device, last = self.devices[index], 0
        while not self.is_over or len(self.arrived[index]) < self.published[index] or self.threads[0].is_alive():
            try:
                message = device.receive(timeout=0.1)
            except TimeoutError:
                if self.failures:
                    return
                continue
            assert message.sequence > last and not message.offline, message
            last = message.sequence
            self.latencies.append(time.time() - float(message.payload))
            self.arrived[index].append(last)
            device.ack(last)

    def __exit__(self, kind, *_):
        self.is_over = True
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive() or kind
        if kind:
            return
        assert not self.failures, self.failures
        assert [len(one) for one in self.arrived] == self.published and min(self.published) > 0
        worst = sorted(self.latencies)
        print(
            f"\nneighbours: {len(worst)} messages, median {statistics.median(worst) * 1000:.1f} ms, "
            f"p99 {worst[len(worst) * 99 // 100] * 1000:.1f} ms, worst {worst[-1] * 1000:.1f} ms")


class Watch:
    """The gateway's process: alive, memory bounded, no descriptor leaked, abuse counted."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.proc = pathlib.Path(f"/proc/{gateway.process.pid}")
        self.memory, self.descriptors, self.counts = self.resident(), self.open_files(), self.metrics()

    def resident(self):
        return int(re.search(r"VmRSS:\s+(\d+)", (self.proc / "status").read_text())[1]) << 10

    def open_files(self):
        return len(list((self.proc / "fd").iterdir()))

    def metrics(self):
        return {name: float(value) for name, value in re.findall(r"^(\w+(?:\{.*\})?) (\S+)$", self.gateway.metrics(), re.M)}

    def grown(self, name, **labels):
        """Returns the increase of a counter since the start."""
        if labels:
            name += "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"
        assert name in self.counts, sorted(self.counts)
        return self.metrics()[name] - self.counts[name]

    def closed(self, reason):
        return self.grown("longwire_connections_closed_total", reason=reason)

    def end(self, slack=8):
        assert self.gateway.process.poll() is None, self.gateway.log()[-4000:]
        eventually(lambda: self.open_files() <= self.descriptors + slack, "the descriptors' return", timeout=40)
        grown = self.resident() - self.memory
        print(f"memory grew by {grown >> 20} MiB to {self.resident() >> 20} MiB")
        assert grown < MEMORY_BOUND


@contextlib.contextmanager
def besieged(gateway, new_device, count=3):
    """Runs correct clients and a monitor during an attack."""
    watch = Watch(gateway)
    with Neighbours(gateway, new_device, count) as neighbours:
        eventually(lambda: min(neighbours.published) > 2 or neighbours.failures, "the neighbours' first messages")
        yield watch
    for device in neighbours.devices:
        device.close()
    watch.end()


def raw(port, data=b"", timeout=10.0):
    """Opens a plain connection and sends these bytes."""
    one = socket.create_connection(("127.0.0.1", port), timeout=timeout)
    if data:
        one.sendall(data)
    return one


def reset(one):
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    one.close()


def close_code(connection):
    """Returns the code of the Close that ends this connection, or None if it ends without one."""
    try:
        while True:
            message = connection.frame(timeout=20)
            if isinstance(message, pb.Close):
                return message.code
    except Closed:
        return None


def frame(kind, body):
    return struct.pack(">I", kind << 24 | len(body)) + body


def session(gateway, device):
    """Connects an existing device again on a second connection."""
    device.close()
    device.connect()
    return device.connection


def survives(connection):
    """Returns whether the session still answers a ping."""
    try:
        connection.socket.sendall(encode(pb.Ping(nonce=77)))
        while True:
            message = connection.frame(timeout=120)
            if isinstance(message, pb.Pong) and message.nonce == 77:
                return True
            if isinstance(message, pb.Close):
                return False
    except (Closed, OSError):
        return False


def code_after(connection, data):
    """Returns the gateway's close code after these bytes, or None if the connection ended without a Close."""
    with contextlib.suppress(OSError):
        connection.socket.sendall(data)
    return close_code(connection)


def filler(length, field=100, kind=2):
    """Returns an unknown length-delimited field of exactly `length` bytes."""
    tag = varint(field << 3 | kind)
    for width in range(1, 5):
        inner = length - len(tag) - width
        if inner >= 0 and len(varint(inner)) == width:
            return tag + varint(inner) + b"\x00" * inner
    raise AssertionError(f"no field of {length} bytes")


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def nested(depth, field):
    body = b""
    for _ in range(depth):
        body = varint(field << 3 | 2) + varint(len(body)) + body
    return body


def hello_frame(gateway, device, key=None, **fields):
    values = {"app_id": gateway.app["appId"], "cid": device.state.cid, "timestamp": int(time.time() * 1000)}
    return prove(pb.Hello(**{**values, **fields}), key or device.state.secret)


def said_hello(gateway, data, port=None):
    connection = Connection("127.0.0.1", port or gateway.device, timeout=20)
    connection.socket.sendall(data)
    return connection
