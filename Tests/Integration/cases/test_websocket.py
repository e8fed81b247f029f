"""Devices over a WebSocket: the rules for devices apply, and a client that violates the WebSocket protocol gets the code.

The table has the cases of the public Autobahn suite (its groups 1 to 7, 9 and 10; 12 and 13 are compression, which is never
negotiated). The suite's published release does not run on Python 3 and needs an echo server, so the cases are handwritten here. A
case of text ends with 1003, because messages are binary.
"""

import os
import shutil
import socket
import ssl
import struct
import time

import longwire_client
import pytest
import websocket as ws
from certificates import authority
from gateway import ADMIN_TOKEN, APP, eventually
from longwire_client import Closed, pb
from websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, closing, frame


@pytest.fixture
def web_device():
    """Creates registered devices connected through a WebSocket; closes their connections at the end."""
    made = []

    def make(gateway, port=None, tls=None, **fields):
        wire = lambda address, timeout: ws.Wire.to(address, timeout, tls=tls)  # noqa: E731
        device = longwire_client.Device("127.0.0.1", port or gateway.device, APP["appId"], wire=wire)
        made.append(device)
        device.register(APP["appSecret"], **fields)
        device.cid = device.state.cid.hex()
        return device

    yield make
    for device in made:
        device.close()


def hello():
    """Returns a registration's frame."""
    return longwire_client.prove(
        pb.Hello(app_id=APP["appId"], registration=True, timestamp=int(time.time() * 1000), nonce=os.urandom(16)),
        APP["appSecret"].encode())


def test_a_device_over_a_websocket_is_a_device(gateway, web_device):
    device = web_device(gateway)
    view = gateway.view(device.cid)
    assert view["connected"] and view["reachable"]
    for number in range(40):
        gateway.push(device.cid, f"message {number}")
    assert [message.payload for message in device.receive_and_ack(40)] == [b"message %d" % number for number in range(40)]
    assert device.ping(7).nonce == 7
    device.update(application_state=pb.BACKGROUND)
    assert gateway.view(device.cid)["state"] == "background"
    device.close()
    eventually(lambda: not gateway.view(device.cid)["connected"], "the device as absent")
    gateway.push(device.cid, "later")
    device.connect()
    message = device.receive_and_ack(1)[0]
    assert message.payload == b"later" and message.offline
    # A plain connection of the same device replaces it, and the close code has the reason.
    wire, plain = device.connection.socket, longwire_client.Device("127.0.0.1", gateway.device, APP["appId"], state=device.state)
    plain.connect()
    with pytest.raises(Closed) as closed:
        device.receive()
    assert closed.value.code == 400
    assert wire.websocket.end()[2] == 4400
    plain.close()


@pytest.mark.skipif(not shutil.which("openssl"), reason="the openssl command makes the certificate")
def test_over_tls_it_is_one_too(own_gateway, web_device, tmp_path):
    root = authority(tmp_path)
    server = root.sign("server")
    gateway = own_gateway(certificate=(server.file, server.key))
    trusting = ssl.create_default_context(cafile=str(root.file))
    device = web_device(gateway, port=gateway.device_tls, tls=trusting)
    for number in range(40):
        gateway.push(device.cid, f"message {number}" + "x" * 2_000)
    got = [message.payload for message in device.receive_and_ack(40)]
    assert got == [b"message %d" % number + b"x" * 2_000 for number in range(40)]
    assert device.ping(7).nonce == 7
    device.close()
    eventually(lambda: not gateway.view(device.cid)["connected"], "the device as absent")
    gateway.push(device.cid, "later")
    device.connect()
    assert device.receive_and_ack(1)[0].payload == b"later"
    with pytest.raises(ssl.SSLCertVerificationError):
        web_device(gateway, port=gateway.device_tls, tls=ssl.create_default_context())
    # Neither TLS nor TCP ends before the client's close.
    plain = socket.create_connection(("127.0.0.1", gateway.device_tls), timeout=10)
    with trusting.wrap_socket(plain, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as one:
        one.sendall(request(*WANTED))
        assert one.recv(4_096).startswith(b"HTTP/1.1 101 ")
        one.sendall(frame(TEXT, b"a"))
        assert one.recv(4_096) == b"\x88\x02\x03\xeb"
        one.setblocking(False)
        with pytest.raises(ssl.SSLWantReadError):
            one.recv(1)
        one.setblocking(True)
        one.sendall(frame(CLOSE, closing(1003)))
        assert one.recv(1) == b""


def test_frames_may_be_cut_anywhere(gateway):
    """Many messages for one frame, one message for many frames, fragments, and pings in between."""
    greeting = hello()
    one = ws.WebSocket(gateway.device)
    for byte in greeting:
        one.send(BINARY, bytes([byte]))
    opcode, payload = one.receive()
    assert opcode == BINARY and payload[0] == pb.WELCOME
    ping = longwire_client.encode(pb.Ping(nonce=5))
    one.send(BINARY, ping * 20 + ping[:3], final=False)
    one.send(PING, b"between")
    one.send(CONTINUATION, b"", final=False)
    one.send(CONTINUATION, ping[3:])
    seen = [one.receive() for _ in range(22)]
    assert [opcode for opcode, _ in seen].count(BINARY) == 21 and (PONG, b"between") in seen
    one.close()


CASES = {
    # 1: messages. Text with each length encoding. Binary that is not a valid frame ends with our own code.
    **{f"1.1.{count}": (frame(TEXT, b"*" * count), 1003) for count in (0, 125, 126, 127, 128, 65_535, 65_536)},
    **{f"1.2.{count}": (frame(BINARY, b"\xfe" * count), 4410 if count else None) for count in (0, 125, 126, 127, 128, 65_535, 65_536)},
    # 2: pings and pongs.
    "2.1 an empty ping": (frame(PING), None, [b""]),
    "2.2 a ping with a payload": (frame(PING, b"Hello, world!"), None, [b"Hello, world!"]),
    "2.3 a ping of bytes": (frame(PING, bytes(range(0xF8, 0x100))), None, [bytes(range(0xF8, 0x100))]),
    "2.4 a ping of 125 bytes": (frame(PING, b"\xfe" * 125), None, [b"\xfe" * 125]),
    "2.5 a ping of 126 bytes": (frame(PING, b"\xfe" * 126), 1002),
    "2.6 a ping byte by byte": ([bytes([byte]) for byte in frame(PING, b"\xfe" * 125)], None, [b"\xfe" * 125]),
    "2.7 a pong that nobody asked for": (frame(PONG), None),
    "2.8 such a pong with a payload": (frame(PONG, b"unsolicited"), None),
    "2.9 such a pong, then a ping": (frame(PONG, b"unsolicited") + frame(PING, b"x"), None, [b"x"]),
    "2.10 ten pings": (b"".join(frame(PING, b"%d" % number) for number in range(10)), None, [b"%d" % number for number in range(10)]),
    "2.11 ten pings byte by byte": ([bytes([byte]) for number in range(10) for byte in frame(PING, b"%d" % number)], None,
                                    [b"%d" % number for number in range(10)]),
    # 3: reserved bits.
    **{f"3.{bits} reserved bits {bits:03b}": (frame(BINARY, b"", reserved=bits), 1002) for bits in range(1, 8)},
    "3.8 reserved bits of a ping": (frame(PING, b"x") + frame(PING, b"", reserved=1), 1002, [b"x"]),
    "3.9 reserved bits of a close": (frame(CLOSE, closing(1000), reserved=4), 1002),
    # 4: opcodes.
    **{f"4.1.{code} opcode {code}": (frame(code), 1002) for code in range(3, 8)},
    **{f"4.2.{code} opcode {code} with a payload": (frame(PING, b"x") + frame(code, b"reserved"), 1002, [b"x"]) for code in range(11, 16)},
    # 5: fragments.
    "5.1 a ping in fragments": (frame(PING, b"a", final=False) + frame(CONTINUATION, b"b"), 1002),
    "5.2 a pong in fragments": (frame(PONG, b"a", final=False) + frame(CONTINUATION, b"b"), 1002),
    "5.3 text in fragments": (frame(TEXT, b"a", final=False) + frame(CONTINUATION, b"b"), 1003),
    "5.6 a ping between fragments": (frame(BINARY, b"", final=False) + frame(PING, b"p") + frame(CONTINUATION), None, [b"p"]),
    "5.8 the same byte by byte": ([bytes([byte]) for byte in frame(BINARY, b"", final=False) + frame(PING, b"p") + frame(CONTINUATION)],
                                  None, [b"p"]),
    "5.9 a continuation of nothing": (frame(CONTINUATION, b"x"), 1002),
    "5.11 one that is not the last": (frame(CONTINUATION, b"x", final=False), 1002),
    "5.15 a continuation behind an end": (frame(BINARY, b"", final=False) + frame(CONTINUATION) + frame(CONTINUATION, b"x"), 1002),
    "5.18 a message within a message": (frame(BINARY, b"", final=False) + frame(BINARY), 1002),
    "5.19 pings around many fragments": (
        frame(BINARY, b"", final=False) + frame(PING, b"1") + frame(CONTINUATION, b"", final=False) * 9 + frame(PING, b"2") + frame(CONTINUATION),
        None, [b"1", b"2"]),
    # 6: text, valid and invalid. It is refused without a check of its content.
    **{f"6 {name}": (frame(TEXT, text), 1003) for name, text in {
        "valid": "Hello-µ@ßöäüàá-UTF-8!!".encode(), "cut off": "µ".encode()[:1], "surrogates": b"\xed\xa0\x80", "overlong": b"\xc0\xaf",
        "beyond": b"\xf4\x90\x80\x80"}.items()},
    # 7: closes.
    "7.1.1 a plain close": (frame(CLOSE, closing(1000)), 1000),
    "7.1.2 two closes": (frame(CLOSE, closing(1000)) * 2, 1000),
    "7.1.3 a ping behind the close": (frame(CLOSE, closing(1000)) + frame(PING, b"x"), 1000),
    "7.1.4 text behind the close": (frame(CLOSE, closing(1000)) + frame(TEXT, b"x"), 1000),
    "7.1.5 a close within a message": (frame(BINARY, b"", final=False) + frame(CLOSE, closing(1000)) + frame(CONTINUATION), 1000),
    "7.3.1 a close without a payload": (frame(CLOSE), 1000),
    "7.3.2 a close of one byte": (frame(CLOSE, b"a"), 1002),
    "7.3.4 a close with a reason": (frame(CLOSE, closing(1000, b"Hello World!")), 1000),
    "7.3.5 with the longest": (frame(CLOSE, closing(1000, b"*" * 123)), 1000),
    "7.3.6 with a longer one": (frame(CLOSE, closing(1000, b"*" * 124)), 1002),
    "7.5.1 a reason that is not UTF-8": (frame(CLOSE, closing(1000, b"\xce\xba\xed\xa0\x80")), 1007),
    **{f"7.7.{code} a good code": (frame(CLOSE, closing(code)), code)
       for code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)},
    **{f"7.9.{code} a bad code": (frame(CLOSE, closing(code)), 1002)
       for code in (0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65_535)},
    # 9 and 10: size. Messages are not buffered, so the first bytes decide.
    "9.1 text of a MiB": (frame(TEXT, b"*" * (1 << 20)), 1003),
    "9.2 binary of a MiB": (frame(BINARY, b"\xfe" * (1 << 20)), 4410),
    "9.4 fragments of a MiB": (frame(BINARY, b"\1\x10\0\0", final=False) + frame(CONTINUATION, b"*" * 1024, final=False) * 1024, 4411),
    "9 a length of 2 to the 63rd, less one": (b"\x82\xff\x7f" + b"\xff" * 7 + b"\0\0\0\0\xfe\0\0\0", 4410),
    "9 a length with its highest bit": (b"\x82\xff\x80" + b"\0" * 7 + b"\0\0\0\0", 1002),
    "10.1.1 auto-fragmentation": (b"".join(frame(BINARY if place == 0 else CONTINUATION, b"\xfe" * 1300, final=False) for place in range(50)), 4410),
    # Besides the suite.
    "a frame that is not masked": (frame(BINARY, b"\1\0\0\0", mask=None), 1002),
    "a ping that is not masked": (frame(PING, mask=None), 1002),
    **{f"a length in {bits} bits": (frame(BINARY, b"\1", length=bits), 1002) for bits in (16, 64)},
    "a plain Hello": (b"\1\0\0\4\n\2de", 1002),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 1002),
}


@pytest.mark.parametrize("name", CASES)
def test_rules_of_rfc_6455(gateway, name):
    sent, code, *pongs = CASES[name]
    one = ws.WebSocket(gateway.device)
    try:
        for piece in [sent] if isinstance(sent, bytes) else sent:
            one.raw(piece)
        if code is None:
            # The connection stays open: a ping is answered, and a normal close completes.
            one.send(PING, b"alive?")
            one.send(CLOSE, closing(1000))
    except (BrokenPipeError, ConnectionResetError):
        pass
    try:
        data, answered, closed = one.end()
    except TimeoutError:
        raise AssertionError("the gateway keeps the connection") from None
    assert closed == (1000 if code is None else code)
    assert answered == (pongs[0] if pongs else []) + ([b"alive?"] if code is None else [])
    # Our own Close precedes the WebSocket's, with the same meaning.
    if closed > 4_000 and data:
        assert pb.Close.FromString(data[4:]).code == closed - 4_000
    one.close()


def test_requests_that_are_none_are_answered_with_why(gateway):
    for status, words, changed in (
        (403, "device.webSocket.origins", {"Origin": "http://evil.example"}), (404, "/v1/device", {"path": "/"}),
        (426, "version of WebSockets", {"Sec_WebSocket_Version": "12"}), (426, "Upgrade: websocket", {"leave": ("Upgrade",)}),
        (400, "Sec-WebSocket-Key", {"leave": ("Sec-WebSocket-Key",)}), (400, "no host", {"leave": ("Host",)}),
    ):
        with pytest.raises(ws.Refused) as refused:
            ws.WebSocket(gateway.device, **({"request": ws.head(**changed)} if "leave" in changed else changed))
        assert refused.value.status == status and words in refused.value.text
    for text in (b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000, b"GET \x00\r\n\r\n", b"G" * 9_000):
        with pytest.raises(ws.Refused) as refused:
            ws.WebSocket(gateway.device, request=text)
        assert refused.value.status in (400, 414, 431)
    # Bytes before the answer are indistinguishable from another request.
    with pytest.raises(ws.Refused) as refused:
        ws.WebSocket(gateway.device, request=ws.head() + frame(PING))
    assert refused.value.status == 400
    # Compression, which every browser offers, is never negotiated, but the subprotocol is.
    one = ws.WebSocket(gateway.device, Sec_WebSocket_Extensions="permessage-deflate", Sec_WebSocket_Protocol="longwire.v1")
    assert one.headers["sec-websocket-protocol"] == "longwire.v1"
    one.close()


def request(*lines, path="/v1/device", host="x", method="GET", version="HTTP/1.1"):
    key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
    return "\r\n".join([f"{method} {path} {version}", f"Host: {host}", key, *lines, "", ""]).encode()


WANTED = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
REQUESTS = {
    "as it should be": (request(*WANTED), 101),
    # Resource name: path and query (section 3).
    "a query": (request(*WANTED, path="/v1/device?app=shop&x=/"), 101),
    "an empty query": (request(*WANTED, path="/v1/device?"), 101),
    "a slash at the end": (request(*WANTED, path="/v1/device/"), 101),
    "an absolute URI": (request(*WANTED, path="http://x/v1/device?a"), 101),
    "more of a path": (request(*WANTED, path="/v1/device/x"), 404),
    "a longer word": (request(*WANTED, path="/v1/devices"), 404),
    # Lists in several lines, words in any case.
    "Upgrade in two lines": (request("Upgrade: h2c", *WANTED), 101),
    "Connection in two lines": (request("Connection: keep-alive", *WANTED), 101),
    "extensions in two lines": (request(*WANTED, "Sec-WebSocket-Extensions: a", "Sec-WebSocket-Extensions: b"), 101),
    "words in lower case": (request("upgrade: WEBSOCKET", "connection: upgrade", "sec-websocket-version: 13"), 101),
    "empty elements": (request("Upgrade: ,websocket,", "Connection: , Upgrade", "Sec-WebSocket-Version: 13"), 101),
    # Headers that a request must have exactly once.
    "no Upgrade": (request(*WANTED[1:]), 426),
    "no Connection": (request(WANTED[0], WANTED[2]), 426),
    "no version": (request(*WANTED[:2]), 426),
    "another version": (request(*WANTED[:2], "Sec-WebSocket-Version: 8"), 426),
    "two versions": (request(*WANTED, "Sec-WebSocket-Version: 8"), 426),
    "two keys": (request(*WANTED, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="), 400),
    "the same key twice": (request(*WANTED, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="), 101),
    "two origins": (request(*WANTED, "Origin: http://a", "Origin: http://b"), 400),
    "two hosts": (request(*WANTED, "Host: y"), 400),
    "a host that is none": (request(*WANTED, host="a b"), 400),
    "HTTP/1.0": (request(*WANTED, version="HTTP/1.0"), 400),
    "LF alone": (request(*WANTED).replace(b"\r\n", b"\n"), 400),
    "an endless line": (b"GET /" + b"a" * 20_000, 414),
}


def answer_to(port, data):
    """Returns status, headers and body of the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as one:
        one.sendall(data)
        head = b""
        while b"\r\n\r\n" not in head:
            part = one.recv(4_096)
            assert part, head
            head += part
    head, _, body = head.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_by_section_4_of_rfc_6455(gateway, name):
    data, status = REQUESTS[name]
    found, headers, _ = answer_to(gateway.device, data)
    assert found == status
    if status == 426:
        assert headers["Sec-WebSocket-Version"] == "13" and headers["Upgrade"] == "websocket"


def test_a_subprotocol_is_found_in_any_line_as_it_was_written(gateway):
    for lines, is_named in (
        (["chat, longwire.v1"], True), (["chat", "longwire.v1"], True), (["longwire.v1", "chat"], True), (["chat", "LONGWIRE.V1"], False)):
        status, headers, _ = answer_to(gateway.device, request(*WANTED, *(f"Sec-WebSocket-Protocol: {line}" for line in lines)))
        assert status == 101 and headers.get("Sec-WebSocket-Protocol") == ("longwire.v1" if is_named else None)


def test_the_consoles_origin_is_its_host_with_the_port_that_the_scheme_implies(gateway):
    for host, origin, status in (
        ("example.com", "https://example.com", 101), ("example.com:443", "https://example.com", 101), ("example.com:80", "http://example.com", 101),
        ("example.com", "http://example.com:80", 101), ("EXAMPLE.com", "https://example.com", 101), ("[::1]:443", "https://[::1]", 101),
        ("example.com:80", "https://example.com", 403), ("example.com:443", "http://example.com", 403), ("example.com:443", "https://evil.example", 403),
        ("example.com", "null", 403), ("example.com:8443", "https://example.com", 403),
    ):
        data = request(*WANTED, f"Origin: {origin}", path="/console/device?x=1", host=host)
        assert answer_to(gateway.admin, data)[0] == status, (host, origin)
    status, headers, body = answer_to(gateway.admin, request(*WANTED, "Origin: http://x", path="/console/device", method="HEAD"))
    assert (status, headers["Allow"], body) == (405, "GET", b"")
    status, headers, _ = answer_to(gateway.admin, request(*WANTED, "Origin: http://x", path="/console/device", method="POST"))
    assert (status, headers["Allow"]) == (405, "GET")


def test_the_gateways_half_ends_behind_the_clients_close(gateway):
    """A client that reads the end of the stream before it has answered the close reports an abnormal end (RFC 6455, section
    7.1.1)."""
    with socket.create_connection(("127.0.0.1", gateway.device), timeout=10) as one:
        one.sendall(request(*WANTED))
        assert one.recv(4_096).startswith(b"HTTP/1.1 101 ")
        one.sendall(frame(TEXT, b"a"))
        assert one.recv(4_096) == b"\x88\x02\x03\xeb"
        one.setblocking(False)
        with pytest.raises(BlockingIOError):
            one.recv(1)
        one.setblocking(True)
        one.sendall(frame(CLOSE, closing(1003)))
        assert one.recv(1) == b""


def test_the_consoles_door_is_for_its_own_page(gateway):
    for origin in (None, "http://evil.example", f"http://127.0.0.1:{gateway.device}", "null"):
        with pytest.raises(ws.Refused) as refused:
            ws.WebSocket(gateway.admin, path="/console/device", **({"Origin": origin} if origin else {}))
        assert refused.value.status == 403
    origin = f"http://127.0.0.1:{gateway.admin}"
    # No token is required or grants a right: the connection carries a device's protocol.
    one = ws.WebSocket(gateway.admin, path="/console/device", Origin=origin, Authorization=f"Bearer {ADMIN_TOKEN}")
    one.send(BINARY, longwire_client.prove(pb.Hello(app_id=APP["appId"], registration=True, timestamp=int(time.time() * 1000),
                                                    nonce=b"12345678"), ADMIN_TOKEN.encode()))
    assert one.end()[2] == 4401
    one = ws.WebSocket(gateway.admin, path="/console/device", Origin=origin)
    one.send(BINARY, longwire_client.prove(pb.Hello(app_id=APP["appId"], role=pb.ROLE_SENDER, timestamp=int(time.time() * 1000),
                                                    nonce=b"12345678"), APP["masterSecret"].encode()))
    assert one.end()[2] == 4404


def test_silence_floods_and_a_reader_that_does_not_read(gateway, web_device):
    # The timeout of the Hello is that of a plain connection, with or without the request.
    begun = time.monotonic()
    one = ws.WebSocket(gateway.device)
    data, _, code = one.end(15)
    assert code == 4103 and pb.Close.FromString(data[4:]).code == 103 and time.monotonic() - begun < 8
    # Control frames use the same budget, which is small before the Hello.
    one = ws.WebSocket(gateway.device)
    one.raw(frame(PING) * 70)
    assert one.end()[2] == 4414
    device = web_device(gateway)
    wire = device.connection.socket.websocket
    for burst in (frame(PONG) * 1_200, (frame(BINARY, b"", final=False) + frame(CONTINUATION)) * 600):
        with pytest.raises(Closed) as closed:
            wire.raw(burst)
            device.receive()
        assert closed.value.code == 414
        device.connect()
        wire = device.connection.socket.websocket
    # Pings with unread answers fill the outbox or exceed the budget. Either ends the connection.
    deadline = time.monotonic() + 20
    with pytest.raises((BrokenPipeError, ConnectionResetError, TimeoutError)):
        while time.monotonic() < deadline:
            wire.raw(frame(PING, b"*" * 125) * 200)
    assert time.monotonic() < deadline


def test_origins_and_the_switch_change_by_reload(own_gateway):
    gateway = own_gateway(device={})
    gateway.sections["device"] = {"listen": f"127.0.0.1:{gateway.device}", "webSocket": {"origins": ["https://app.example.com", "http://app.example.com:80"]}}
    gateway.stop()
    gateway.start()
    for origin in ("https://app.example.com", "https://app.example.com:443", "http://app.example.com", "http://app.example.com:80"):
        ws.WebSocket(gateway.device, Origin=origin).close()
    with pytest.raises(ws.Refused):
        ws.WebSocket(gateway.device, Origin="https://app.example.com.evil.example")


def test_through_a_balancer_the_client_is_known(own_gateway):
    """A PROXY header precedes a WebSocket as it precedes plain frames."""
    gateway = own_gateway(device={})
    gateway.sections["device"] = {"listen": f"127.0.0.1:{gateway.device}", "balancers": ["127.0.0.1"]}
    gateway.stop()
    gateway.start()
    header = b"\r\n\r\n\0\r\nQUIT\n" + bytes([0x21, 0x11]) + struct.pack(">H", 12)
    afar = header + socket.inet_aton("203.0.113.9") + socket.inet_aton("127.0.0.1") + struct.pack(">HH", 4000, 7000)
    one = ws.WebSocket(gateway.device, before=afar)
    one.send(BINARY, hello())
    # A registration from a remote address needs TLS.
    assert one.end()[2] == 4403
