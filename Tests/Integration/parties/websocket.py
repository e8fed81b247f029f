"""A WebSocket client that is strict with the gateway and lets a test violate any rule (RFC 6455, handwritten)."""

import base64
import contextlib
import hashlib
import os
import socket
import ssl
import struct
import time

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def head(path="/v1/device", host="127.0.0.1", key=None, leave=(), **fields):
    """Returns a client's request; `leave` names headers to omit, `fields` replaces or adds some (_ for -)."""
    lines = {
        "Host": host, "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": key or base64.b64encode(os.urandom(16)).decode(),
    }
    lines.update({name.replace("_", "-"): value for name, value in fields.items()})
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if name not in leave)
    return f"GET {path} HTTP/1.1\r\n{text}\r\n".encode()


def frame(opcode, payload=b"", final=True, reserved=0, mask=b"\x37\xfa\x21\x3d", length=None):
    """Returns one frame; `mask` None leaves it unmasked, `length` forces an encoding (7, 16 or 64 bits)."""
    count = len(payload)
    length = length or (7 if count < 126 else 16 if count < 65_536 else 64)
    start = bytes([final << 7 | reserved << 4 | opcode])
    flag = 0x80 if mask is not None else 0
    if length == 7:
        start += bytes([flag | count])
    elif length == 16:
        start += bytes([flag | 126]) + struct.pack(">H", count)
    else:
        start += bytes([flag | 127]) + struct.pack(">Q", count)
    if mask is None:
        return start + payload
    return start + mask + bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))


def closing(code=None, reason=b""):
    return b"" if code is None else struct.pack(">H", code) + reason


class Refused(Exception):
    """The answer was not 101."""

    def __init__(self, status, text):
        super().__init__(f"HTTP {status}: {text}")
        self.status, self.text = status, text


class WebSocket:
    """One connection; a violation by the gateway is an AssertionError."""

    def __init__(self, port, timeout=10.0, tls=None, request=None, host="127.0.0.1", path="/v1/device", before=b"", **fields):
        self.timeout, self.buffer = timeout, bytearray()
        self.socket = socket.create_connection((host, port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if before:
            self.socket.sendall(before)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(request or head(path, f"{host}:{port}", key, **fields))
        while b"\r\n\r\n" not in self.buffer:
            if not self._fill(time.monotonic() + timeout):
                raise Refused(0, "the connection ended")
        answer, _, rest = bytes(self.buffer).partition(b"\r\n\r\n")
        lines = answer.decode().split("\r\n")
        status = int(lines[0].split()[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        if status != 101:
            while self._fill(time.monotonic() + timeout):
                pass
            raise Refused(status, bytes(self.buffer).partition(b"\r\n\r\n")[2].decode())
        self.buffer = bytearray(rest)
        if not request:
            proof = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
            assert self.headers["sec-websocket-accept"] == base64.b64encode(proof).decode()
        assert self.headers["upgrade"].lower() == "websocket" and self.headers["connection"].lower() == "upgrade"
        assert "sec-websocket-extensions" not in self.headers, "an extension that was never agreed on"

    def _fill(self, deadline):
        """Reads some bytes; returns False at the end of the stream, raises TimeoutError after the timeout."""
        self.socket.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            data = self.socket.recv(65_536)
        except (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):
            data = b""
        self.buffer += data
        return bool(data)

    def send(self, opcode, payload=b"", **rules):
        self.socket.sendall(frame(opcode, payload, **rules))

    def raw(self, data):
        self.socket.sendall(data)

    def receive(self, timeout=None):
        """Returns (opcode, payload) of the next frame, or None at the end of the stream."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            if len(self.buffer) >= 2:
                start, size = self.buffer[0], self.buffer[1]
                assert start & 0x70 == 0 and start & 0x80, "reserved bits, or a fragment that was never needed"
                assert size & 0x80 == 0, "a server's frame is masked"
                opcode, more = start & 0x0F, {126: 2, 127: 8}.get(size, 0)
                if len(self.buffer) >= 2 + more:
                    count = int.from_bytes(self.buffer[2 : 2 + more], "big") if more else size
                    assert not more or count > (125 if more == 2 else 65_535), "a length in more bytes than it takes"
                    assert opcode in (BINARY, CLOSE, PING, PONG), f"opcode {opcode}"
                    assert opcode == BINARY or count <= 125
                    if len(self.buffer) >= 2 + more + count:
                        payload = bytes(self.buffer[2 + more : 2 + more + count])
                        del self.buffer[: 2 + more + count]
                        if opcode == CLOSE:
                            # The gateway keeps its half open for the answer (RFC 6455, section 7.1.1).
                            with contextlib.suppress(OSError):
                                self.send(CLOSE, payload[:2])
                        return opcode, payload
            if not self._fill(deadline):
                assert not self.buffer, "the stream ends within a frame"
                return None

    def end(self, timeout=None):
        """Reads to the end: returns the joined payloads of binary messages, the pongs, and the close code (None: no close)."""
        data, pongs, code = b"", [], None
        while (received := self.receive(timeout)) is not None:
            opcode, payload = received
            assert code is None, "a frame behind the close"
            if opcode == BINARY:
                data += payload
            elif opcode == PONG:
                pongs.append(payload)
            elif opcode == CLOSE:
                code = int.from_bytes(payload[:2], "big") if payload else 1005
        return data, pongs, code

    def close(self):
        self.socket.close()


class Wire:
    """A socket for `longwire_client.Connection` that sends its bytes as WebSocket messages."""

    def __init__(self, websocket):
        self.websocket, self.code = websocket, None

    @classmethod
    def to(cls, address, timeout, **fields):
        return cls(WebSocket(address[1], timeout, host=address[0], **fields))

    def sendall(self, data):
        self.websocket.send(BINARY, data, mask=os.urandom(4))

    def settimeout(self, timeout):
        self.websocket.timeout = timeout

    def recv(self, _):
        while True:
            received = self.websocket.receive()
            if received is None:
                return b""
            opcode, payload = received
            if opcode == BINARY and payload:
                return payload
            if opcode == CLOSE:
                self.code = int.from_bytes(payload[:2], "big")
                return b""
            if opcode == PING:
                self.websocket.send(PONG, payload)

    def close(self):
        self.websocket.close()
