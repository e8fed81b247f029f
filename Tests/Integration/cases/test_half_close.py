"""Peers that close their sending half after their frames: all answers arrive before the connection ends."""

import os
import shutil
import socket
import ssl
import time

import pytest
from certificates import authority
from cluster import Cluster
from conftest import QUICK
from gateway import Gateway, eventually
from longwire_client import Closed, Connection, Device, encode, pb, prove
from redis_rig import RedisRig

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="the openssl command makes the certificate")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    """Runs a gateway with TLS on both listeners, and feeds."""
    root = authority(tmp_path_factory.mktemp("half-close"), "root")
    server = root.sign("server")
    options = {"certificate": (server.file, server.key), "app": {"upstream": {}}}
    with Gateway(limits=QUICK, **options) as gateway:
        gateway.root = root
        yield gateway


class Plain:
    """A connection whose last bytes and FIN are sent together."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30.0)

    def end(self, frames):
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        self.socket.sendall(frames)
        self.socket.shutdown(socket.SHUT_WR)

    def recv(self, count):
        return self.socket.recv(count)


class Secure:
    """The same over TLS: `close_notify` ends the sending half, and the peer's bytes are still read."""

    def __init__(self, port, context):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30.0)
        self.input, self.output = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.input, self.output, server_hostname="127.0.0.1")
        self._step(self.tls.do_handshake)

    def _step(self, call):
        while True:
            try:
                return call()
            except ssl.SSLWantReadError:
                self._flush()
                data = self.socket.recv(65536)
                if data:
                    self.input.write(data)
                else:
                    self.input.write_eof()
            finally:
                self._flush()

    def _flush(self):
        data = self.output.read()
        if data:
            self.socket.sendall(data)

    def end(self, frames):
        self.tls.write(frames)
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.unwrap()
        self._flush()
        self.socket.shutdown(socket.SHUT_WR)

    def recv(self, count):
        try:
            return self._step(lambda: self.tls.read(count))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""


def open_to(gateway, port, kind):
    """Opens a connection; `kind` is "plain" or "tls"."""
    if kind == "plain":
        return Plain(port)
    return Secure(port, ssl.create_default_context(cafile=str(gateway.root.file)))


def answers(wire):
    """Returns all frames up to the gateway's end."""
    connection = Connection.__new__(Connection)
    connection.timeout, connection.buffer = 30.0, bytearray()
    connection.socket = type("Wire", (), {"recv": lambda _, count: wire.recv(count), "settimeout": lambda *_: None})()
    found = []
    while True:
        try:
            found.append(connection.frame())
        except Closed:
            return found


def hello(gateway, key, **fields):
    message = pb.Hello(app_id=gateway.app["appId"], timestamp=int(time.time() * 1000), client="python-test")
    message.MergeFrom(pb.Hello(**fields))
    return prove(message, key)


def kinds(frames):
    return [type(frame).__name__ for frame in frames]


@pytest.mark.parametrize("has_close", [False, True])
@pytest.mark.parametrize("count", [20, 400])
def test_a_sender_that_sends_no_more_gets_a_result_for_each_publish(gateway, new_device, count, has_close):
    device = new_device(gateway)
    wire = open_to(gateway, gateway.senders, "plain")
    publishes = [
        pb.Publish(request=number, cid=device.state.cid, payload=b"%d" % number) for number in range(1, count + 1)]
    first = hello(gateway, gateway.app["masterSecret"].encode(), role=pb.ROLE_SENDER, nonce=os.urandom(16))
    last = [pb.Close(code=0, reason="done")] if has_close else []
    wire.end(first + b"".join(map(encode, publishes + last)))
    frames = answers(wire)
    assert kinds(frames) == ["Welcome"] + ["PublishResult"] * count
    assert sorted(frame.request for frame in frames[1:]) == list(range(1, count + 1))
    assert {frame.code for frame in frames[1:]} == {0}


@pytest.mark.parametrize("kind", ["plain", "tls"])
def test_a_device_that_sends_no_more_gets_all_that_it_is_owed(gateway, new_device, kind):
    device = new_device(gateway)
    sent = [gateway.push(device.cid, f"message {number}") for number in range(40)]
    received = device.receive_and_ack(32) + device.receive_and_ack(8)
    device.close()
    eventually(lambda: not gateway.view(device.cid)["connected"])
    port = gateway.device if kind == "plain" else gateway.device_tls
    wire = open_to(gateway, port, kind)
    ack = pb.Ack()
    ack.positions.add(stream=0, sequence=received[-1].sequence)
    behind = [
        ack, pb.DeviceUpdate(request=1, badge=3), pb.Upstream(request=1, payload=b"up 1"),
        pb.Upstream(request=2, payload=b"up 2"),
        *[pb.Feedback(kind=pb.Feedback.SHOWN, msg_id=message.msg_id) for message in received], pb.Ping(nonce=9)]
    first = hello(gateway, device.state.secret, cid=device.state.cid, queue_epoch=device.state.epoch)
    wire.end(first + b"".join(map(encode, behind)))
    frames = answers(wire)
    assert sorted(kinds(frames)) == ["Pong", "UpdateResult", "UpstreamResult", "UpstreamResult", "Welcome"], frames
    assert kinds(frames)[0] == "Welcome"
    assert [frame.code for frame in frames if isinstance(frame, pb.UpstreamResult)] == [0, 0]
    # The Pong confirmed that the reports are recorded.
    assert all("shown" in gateway.steps(message["msgId"]) for message in sent)
    eventually(lambda: not gateway.view(device.cid)["connected"], "the end of the session")


@pytest.mark.parametrize("kind", ["plain", "tls"])
def test_a_registration_that_sends_no_more_gets_its_welcome(gateway, kind):
    port = gateway.device if kind == "plain" else gateway.device_tls
    wire = open_to(gateway, port, kind)
    wire.end(hello(gateway, gateway.app["appSecret"].encode(), registration=True, nonce=os.urandom(16)))
    (welcome,) = answers(wire)
    assert len(welcome.device_secret) == 32
    device = Device("127.0.0.1", gateway.device, gateway.app["appId"])
    device.state.cid, device.state.secret = welcome.cid, welcome.device_secret
    device.connect()
    device.close()


def test_registrations_that_send_no_more_are_welcomed_through_any_gateway_of_a_cluster():
    with RedisRig() as rig, Cluster(rig, count=2, limits=QUICK) as cluster:
        gateway = cluster[0]
        for _ in range(8):
            wire = open_to(gateway, gateway.device, "plain")
            first = hello(gateway, gateway.app["appSecret"].encode(), registration=True, nonce=os.urandom(16))
            wire.end(first)
            assert kinds(answers(wire)) == ["Welcome"]


def test_a_connection_that_ends_amid_its_hello_is_closed(gateway):
    wire = open_to(gateway, gateway.device, "plain")
    whole = hello(gateway, gateway.app["appSecret"].encode(), registration=True, nonce=os.urandom(16))
    wire.end(whole[:-5])
    assert answers(wire) == []
