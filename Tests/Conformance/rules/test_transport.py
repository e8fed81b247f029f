"""TLS and WebSocket."""

import socket

import gateway
import pytest
from pipes import Pipe
from wire import pb


@pytest.mark.transports("tls", "wss")
@pytest.mark.broken_by("any-certificate")
@pytest.mark.parametrize("kind", ["stranger", "expired"])
def test_wrong_certificate(bench, certificates, kind):
    """A certificate of another authority, or an expired one, is refused: nothing is sent, and the client retries."""
    _, contexts = certificates
    bench.gateway.security = contexts[kind]
    driver = bench.start()
    driver.expect("disconnected")
    driver.expect("retrying")
    assert bench.gateway.greetings.empty()
    bench.gateway.security = contexts["good"]
    bench.gateway.working()
    driver.expect("welcomed")
    assert all(connection.bytes_in == 0 for connection in bench.gateway.connections if not connection.hello)


@pytest.mark.transports("tls", "wss")
@pytest.mark.broken_by("any-name", "any-certificate")
def test_wrong_name(bench, certificates):
    """A certificate of the right authority with another name is refused."""
    _, contexts = certificates
    bench.gateway.security = contexts["name"]
    driver = bench.start()
    driver.expect("disconnected")
    driver.expect("retrying")
    assert bench.gateway.greetings.empty()
    bench.gateway.security = contexts["good"]
    bench.gateway.working()


@pytest.mark.transports("tls", "wss")
@pytest.mark.broken_by("hello-before-tls")
def test_gateway_without_tls(bench):
    """A client with TLS sends nothing in plain text to a gateway without TLS, and retries."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(bench.patience)
        driver = bench.start(address=f"127.0.0.1:{listener.getsockname()[1]}")
        sock, _ = listener.accept()
        with sock:
            sock.settimeout(bench.patience)
            start = sock.recv(65_536)
            # 0x16: a record of a TLS handshake.
            assert start[:1] == b"\x16", start[:16]
            sock.sendall(b"\x02\x00\x00\x04\x08\x01\x10\x07")
        driver.expect("disconnected")
        driver.expect("retrying")


@pytest.mark.transports("ws", "wss")
@pytest.mark.broken_by("websocket-unmasked", "websocket-version")
def test_websocket_request(bench):
    """The WebSocket is requested at /v1/device in version 13, and each frame of the client is masked."""
    bench.start()
    session = bench.gateway.welcome()
    session.deliver(1)
    session.until_acked(1)


@pytest.mark.transports("ws", "wss")
@pytest.mark.broken_by("websocket-no-fragments", "websocket-message-is-frame", "half-frame-crashes")
def test_websocket_messages_are_pieces_of_one_stream(bench):
    """Messages and fragments of a WebSocket may be split anywhere; one message may hold several frames."""
    bench.start()
    session = bench.gateway.welcome()
    bench.driver.expect("welcomed")
    pipe = session.pipe
    # Several frames in one message.
    session.deliver(1, 2, 3)
    session.until_acked(1, 2, 3)
    # One message in fragments, then frames across messages, then single bytes.
    send, pipe.send = pipe.send, lambda data: pipe.send_fragments(data, 5)
    session.deliver(4, 5)
    session.until_acked(4, 5)
    pipe.send = send
    for size in (1, 2, 3, 7, 100):
        session.split = size
        session.deliver(5 + size, 205 + size, stream=1) if size == 1 else session.deliver(300 + size)
    session.until_acked(302, 303, 307, 400)
    session.until_acked(6, 206, stream=1)
    # Empty messages have no meaning.
    session.split = None
    pipe.send(b"")
    session.deliver(500)
    session.until_acked(500)


@pytest.mark.transports("ws", "wss")
@pytest.mark.broken_by("websocket-no-pong")
def test_websocket_ping(bench):
    """A WebSocket ping is answered by a pong with its bytes, and counts for no heartbeat."""
    bench.start()
    session = bench.gateway.welcome(heartbeat_seconds=1)
    bench.driver.expect("welcomed")
    for payload in (b"", b"25 seconds", b"x" * 125):
        session.pipe.ping(payload)
        session.expect(pb.Ping)
    session.round_trip()
    assert [one for one in session.pipe.pongs if one != b"between fragments"] == [b"", b"25 seconds", b"x" * 125]


@pytest.mark.transports("ws", "wss")
@pytest.mark.broken_by("stops-when-cut")
@pytest.mark.parametrize("code", [1000, 1001, 1011, 4100, 4400])
def test_websocket_close(bench, code):
    """A close of the WebSocket without a Close frame is a lost connection: the client reconnects with backoff."""
    bench.start()
    session = bench.gateway.welcome()
    bench.driver.expect("welcomed")
    session.pipe.close_message(code)
    session.until_over()
    bench.driver.expect("disconnected")
    session = bench.gateway.welcome()
    session.deliver(1)
    session.until_acked(1)


@pytest.mark.transports("ws", "wss")
@pytest.mark.broken_by("takes-any-answer")
@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"\x02\x00\x00\x00", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: wrong\r\n\r\n"])
def test_websocket_refused(bench, answer):
    """An answer other than a correct 101 is a failed connection: no Hello is sent, and the client retries."""
    class Refusing(Pipe):
        def __init__(self, sock, report):
            super().__init__(sock)
            head = b""
            while b"\r\n\r\n" not in head and (data := self.recv()):
                head += data
            self.write(answer)
            self.end()
            rest = b""
            while data := self.recv():
                rest += data
            if rest:
                report(f"bytes after a refused request: {rest[:40]!r}")
            raise ConnectionError("refused")

    original = gateway.WebSocketPipe
    gateway.WebSocketPipe = Refusing
    try:
        driver = bench.start()
        driver.expect("disconnected")
        driver.expect("retrying")
    finally:
        gateway.WebSocketPipe = original
    bench.gateway.working()
