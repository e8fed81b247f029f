"""Byte streams to a client: TCP, TLS, and the server's side of a WebSocket (RFC 6455)."""

import base64
import hashlib
import select
import socket
import ssl
import struct
import threading
import time

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
RESET = struct.pack("ii", 1, 0)
SEND_SECONDS = 30


class Pipe:
    """A socket that one thread reads and another one writes; TLS objects allow no parallel calls, hence the lock."""

    def __init__(self, sock):
        self.sock, self.lock, self.is_shut = sock, threading.RLock(), False
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def recv(self):
        """Returns the next bytes, or b"" at the end of the stream."""
        while not self.is_shut:
            try:
                with self.lock:
                    return self.sock.recv(65_536)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            except OSError:
                return b""
            try:
                select.select([self.sock], [], [], 0.2)
            except (OSError, ValueError):
                return b""
        return b""

    def write(self, data):
        """Sends all bytes; raises OSError when the client has gone, or does not read for half a minute."""
        view, deadline = memoryview(data), time.monotonic() + SEND_SECONDS
        while view:
            try:
                with self.lock:
                    view = view[self.sock.send(view) :]
                continue
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            if time.monotonic() > deadline:
                raise TimeoutError("the client does not read")
            select.select([], [self.sock], [], 0.2)

    send = write

    def end(self):
        """Ends the sending half; with TLS after a close_notify."""
        with self.lock:
            if isinstance(self.sock, ssl.SSLSocket):
                try:
                    self.sock.unwrap()
                except (OSError, ValueError):
                    # The client's close_notify has not come yet; reading continues.
                    pass
            try:
                # SSLSocket's own method would also end the decryption of what the client sends.
                socket.socket.shutdown(self.sock, socket.SHUT_WR)
            except OSError:
                pass

    def close(self, with_reset=False):
        self.is_shut = True
        with self.lock:
            try:
                if with_reset:
                    self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                else:
                    self.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            self.sock.close()


def message(opcode, payload, final=True):
    """Returns one frame of a server, which has no mask."""
    count = len(payload)
    start = bytes([final << 7 | opcode])
    if count < 126:
        return start + bytes([count]) + payload
    if count < 65_536:
        return start + bytes([126]) + struct.pack(">H", count) + payload
    return start + bytes([127]) + struct.pack(">Q", count) + payload


class WebSocketPipe(Pipe):
    """The server's side of a WebSocket; `report` receives each fault of the client."""

    def __init__(self, sock, report):
        super().__init__(sock)
        self.report, self.buffer, self.ready = report, bytearray(), bytearray()
        self.fragment = None
        self.pongs, self.close_code = [], None
        self._handshake()

    def _more(self):
        data = super().recv()
        self.buffer += data
        return bool(data)

    def _handshake(self):
        while b"\r\n\r\n" not in self.buffer:
            if len(self.buffer) > 16_384 or not self._more():
                raise ConnectionError("no complete request")
        head, _, rest = bytes(self.buffer).partition(b"\r\n\r\n")
        self.buffer = bytearray(rest)
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if first.split("?")[0].split()[:2] not in (["GET", "/v1/device"], ["GET", "/v1/device/"]):
            self.report(f"the request of the WebSocket is {first!r}")
        for name, value in (("upgrade", "websocket"), ("sec-websocket-version", "13")):
            if headers.get(name, "").lower() != value:
                self.report(f"the request has {name}: {headers.get(name)}")
        key = headers.get("sec-websocket-key", "")
        digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        answer += f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}\r\n"
        if "longwire.v1" in headers.get("sec-websocket-protocol", ""):
            answer += "Sec-WebSocket-Protocol: longwire.v1\r\n"
        self.write((answer + "\r\n").encode())

    def recv(self):
        """Returns bytes of binary messages; answers pings, and notes pongs and the close code."""
        while True:
            if self.ready:
                data, self.ready = bytes(self.ready), bytearray()
                return data
            if not self._frame() and not self._more():
                return b""

    def _frame(self):
        """Takes one frame from the buffer; returns False when it is not complete."""
        if len(self.buffer) < 2:
            return False
        first, second = self.buffer[0], self.buffer[1]
        opcode, size = first & 0x0F, second & 0x7F
        more = {126: 2, 127: 8}.get(size, 0)
        if len(self.buffer) < 6 + more:
            return False
        count = int.from_bytes(self.buffer[2 : 2 + more], "big") if more else size
        if len(self.buffer) < 6 + more + count:
            return False
        mask = bytes(self.buffer[2 + more : 6 + more])
        payload = bytes(self.buffer[6 + more : 6 + more + count])
        del self.buffer[: 6 + more + count]
        if first & 0x70:
            self.report("a WebSocket frame with reserved bits")
        if not second & 0x80:
            self.report("a WebSocket frame without a mask")
        else:
            payload = bytes(byte ^ mask[index & 3] for index, byte in enumerate(payload))
        if opcode in (BINARY, CONTINUATION):
            self.ready += payload
        elif opcode == PING:
            super().send(message(PONG, payload))
        elif opcode == PONG:
            self.pongs.append(payload)
        elif opcode == CLOSE:
            self.close_code = int.from_bytes(payload[:2], "big") if payload else 1005
        else:
            self.report(f"a WebSocket frame with opcode {opcode}")
        return True

    def send(self, data):
        """Sends bytes as one binary message."""
        self.write(message(BINARY, data))

    def send_fragments(self, data, size):
        """Sends bytes as one message in fragments of this size, with a ping behind the first."""
        parts = [data[at : at + size] for at in range(0, len(data), size)]
        for index, part in enumerate(parts):
            self.write(message(CONTINUATION if index else BINARY, part, final=index == len(parts) - 1))
            if index == 0:
                self.write(message(PING, b"between fragments"))

    def ping(self, payload):
        self.write(message(PING, payload))

    def close_message(self, code):
        self.write(message(CLOSE, struct.pack(">H", code)))
