"""An HTTP server for fakes of push vendors: HTTP/1.1 with keep-alive, and HTTP/2 by ALPN, over TLS or in plain text.

It records each request, answers by `handle` of the subclass, and replaces or damages answers by script:

    server.script((503, {"Retry-After": "2"}, ""))       # the next request gets this answer
    server.script(slow(2), lost(), path="messages:send") # the vendor's own answers: late, then processed and cut off
    server.script(html(502), times=3)
"""

import atexit
import functools
import http.client
import http.server
import io
import json
import pathlib
import re
import socket
import ssl
import struct
import tempfile
import threading
import time
import typing
import urllib.parse
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
from certificates import Certificate, authority

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close that sends a reset
LARGEST_BODY = 1 << 20


@dataclass
class Request:
    """One request as it arrived; header names are in lower case."""

    number: int
    connection: int  # the id of the connection, from 1
    protocol: str  # HTTP/1.1 or HTTP/2
    method: str
    path: str  # without the query
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    time: float  # Unix seconds, of the machine's clock
    status: int | None = None  # of the answer; None if the connection was cut before it

    def json(self) -> typing.Any:
        """Returns the body as JSON, or None if it is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def form(self) -> dict[str, str] | None:
        """Returns the fields of a URL-encoded form, or None if the body is no such form or has a field twice."""
        if not self.headers.get("content-type", "").lower().startswith("application/x-www-form-urlencoded"):
            return None
        try:
            pairs = urllib.parse.parse_qsl(
                self.body.decode(), keep_blank_values=True, strict_parsing=bool(self.body), errors="strict")
        except ValueError:
            return None
        return dict(pairs) if len(dict(pairs)) == len(pairs) else None

    def bearer(self) -> str | None:
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token if scheme == "Bearer" and token and token.strip() == token else None


@dataclass
class Answer:
    """An answer and its damage; a body that is no text is sent as JSON."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: typing.Any = ""
    delay: float = 0.0  # seconds before the first byte
    cut: int | None = None  # the connection ends after the head and this many bytes of the body; 0: before the head, by a reset
    refuses: bool = False  # HTTP/2: the stream is reset with REFUSED_STREAM. HTTP/1.1: the connection is closed.
    closes: bool = False  # HTTP/1.1: "Connection: close". HTTP/2: GOAWAY after this answer.

    def bytes(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body, ensure_ascii=False).encode()

    def fields(self) -> dict[str, str]:
        kind = "application/json; charset=UTF-8" if not isinstance(self.body, (bytes, str)) else "text/plain"
        return {"Content-Type": kind, **self.headers}


Own = Callable[[Request], Answer]
Scripted = Answer | tuple[int, dict[str, str], typing.Any] | Callable[[Request, Own], Answer]


def slow(seconds: float) -> Scripted:
    """Delays the vendor's own answer."""
    return lambda request, own: replace(own(request), delay=seconds)


def lost(after: int = 0) -> Scripted:
    """Lets the vendor process the request, and cuts the connection before the answer or after some bytes of its body."""
    return lambda request, own: replace(own(request), cut=after)


def dropped() -> Scripted:
    """Cuts the connection without processing the request."""
    return Answer(cut=0)


def html(status: int = 502) -> Scripted:
    """The answer of a proxy in front of the vendor."""
    page = f"<!DOCTYPE html>\n<html><head><title>{status}</title></head><body><h1>{status}</h1></body></html>\n"
    return Answer(status, {"Content-Type": "text/html; charset=UTF-8"}, page)


def closing() -> Scripted:
    """Ends the connection in an orderly way after the vendor's own answer."""
    return lambda request, own: replace(own(request), closes=True)


@functools.cache
def shared_certificate() -> tuple[pathlib.Path, Certificate]:
    """Returns the authority's file and one server certificate for localhost, made once per process."""
    folder = tempfile.TemporaryDirectory(prefix="longwire-vendors-")
    atexit.register(folder.cleanup)
    root = authority(pathlib.Path(folder.name), "vendors")
    return root.file, root.sign("localhost")


class VendorServer:
    """`with VendorServer() as server:` listens on 127.0.0.1 until the end of the block.

    `url` begins with the scheme. `certificate` is the file of the authority that signed the server. `http2` offers HTTP/2.
    """

    def __init__(self, tls: bool = True, http2: bool = False, streams: int = 100, port: int = 0):
        self.tls, self.http2, self.streams = tls, http2, streams
        self.requests: list[Request] = []
        self.counts: Counter[str] = Counter()  # connections, handshakes failed, requests, "status 200", …
        self.certificate: pathlib.Path | None = None
        self._scripts: deque[tuple[str, Scripted]] = deque()
        self._context = None
        if tls:
            self.certificate, own = shared_certificate()
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(own.file, own.key)
            self._context.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
        self._lock = threading.RLock()
        self._ending = threading.Event()
        self._threads: set[threading.Thread] = set()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.host = f"localhost:{self.port}"
        self.url = f"{'https' if tls else 'http'}://{self.host}"

    def __enter__(self) -> typing.Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def stop(self) -> None:
        """Closes the port and every connection, and waits for the threads."""
        if self._ending.is_set():
            return
        self._ending.set()
        try:
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
        except OSError:
            pass
        self._listener.close()
        self.disconnect()
        while True:
            with self._lock:
                threads = list(self._threads)
            if not threads:
                return
            for thread in threads:
                thread.join(10)
                assert not thread.is_alive(), f"{thread.name} of {type(self).__name__} did not end"

    def disconnect(self) -> None:
        """Shuts down the open connections; the port stays open."""
        with self._lock:
            for one in self._open:
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    # Scripts and answers

    def script(self, *answers: Scripted, path: str = "", times: int = 1) -> None:
        """Queues answers for the next requests whose path contains `path`. Without a match the vendor answers itself."""
        with self._lock:
            self._scripts.extend((path, answer) for answer in answers for _ in range(times))

    @property
    def scripted(self) -> int:
        """The number of scripted answers that no request has taken."""
        return len(self._scripts)

    def clear_script(self) -> None:
        with self._lock:
            self._scripts.clear()

    def handle(self, request: Request) -> Answer:
        """Returns the vendor's own answer. It runs under the server's lock."""
        return Answer(404)

    def taken(self, path: str) -> list[Request]:
        """Returns the requests whose path contains `path`, oldest first."""
        with self._lock:
            return [one for one in self.requests if path in one.path]

    def _take(self, request: Request) -> Answer:
        with self._lock:
            request.number = len(self.requests) + 1
            self.requests.append(request)
            self.counts["requests"] += 1
            entry = next((one for one in self._scripts if one[0] in request.path), None)
            if entry is None:
                answer = self.handle(request)
            else:
                self._scripts.remove(entry)
                scripted = entry[1]
                if callable(scripted):
                    answer = scripted(request, self.handle)
                else:
                    answer = scripted if isinstance(scripted, Answer) else Answer(*scripted)
            if answer.cut is None and not answer.refuses:
                request.status = answer.status
                self.counts[f"status {answer.status}"] += 1
        return answer

    # Connections

    def _start(self, work: Callable, *arguments) -> None:
        def run():
            try:
                work(*arguments)
            finally:
                with self._lock:
                    self._threads.discard(threading.current_thread())

        thread = threading.Thread(target=run, name=f"{type(self).__name__}-{work.__name__}", daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._ending.is_set():
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                if self._ending.is_set():
                    plain.close()
                    return
                self.counts["connections"] += 1
                number = self.counts["connections"]
                self._open.add(plain)
            self._start(self._serve, plain, number)

    def _serve(self, plain: socket.socket, number: int) -> None:
        stream = plain
        try:
            if self._context:
                # Registered before the handshake, so that `stop` also ends a handshake that waits.
                stream = self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
                with self._lock:
                    self._open.discard(plain)
                    self._open.add(stream)
                    if self._ending.is_set():
                        return
                try:
                    stream.do_handshake()
                except (OSError, ssl.SSLError):
                    self.counts["handshakes failed"] += 1
                    return
            if self._context and stream.selected_alpn_protocol() == "h2":
                _HTTP2(self, stream, number).run()
            else:
                _HTTP1(self, stream, number).run()
        except (OSError, ssl.SSLError, h2.exceptions.ProtocolError):
            pass  # the client disconnected
        finally:
            with self._lock:
                self._open.discard(stream)
                self._open.discard(plain)
            stream.close()


def split(target: str) -> tuple[str, dict[str, str]]:
    path, _, query = target.partition("?")
    return path, dict(urllib.parse.parse_qsl(query, keep_blank_values=True))


class _HTTP1:
    def __init__(self, server: VendorServer, stream: socket.socket, number: int):
        self.server, self.stream, self.number = server, stream, number
        self.reader = stream.makefile("rb")

    def run(self) -> None:
        with self.reader:
            while self._one():
                pass

    def _one(self) -> bool:
        """Reads and answers one request; returns whether the connection stays open."""
        line = self.reader.readline(65_536).strip().decode("latin-1")
        if not line:
            return False
        parts = re.fullmatch(r"([A-Z]+) (\S+) HTTP/1\.([01])", line)
        if not parts:
            self.stream.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            return False
        headers = {name.lower(): value for name, value in http.client.parse_headers(self.reader).items()}
        if headers.get("expect", "").lower() == "100-continue":
            self.stream.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        path, query = split(parts[2])
        body = self._body(headers)
        request = Request(
            0, self.number, f"HTTP/1.{parts[3]}", parts[1], path, query, headers, body, time.time())
        answer = self.server._take(request)
        if answer.delay and self.server._ending.wait(answer.delay) or answer.refuses:
            return False
        content = answer.bytes()
        stays = parts[3] == "1" and headers.get("connection", "").lower() != "close" and not answer.closes
        fields = {**answer.fields(), "Content-Length": str(len(content))}
        if not stays:
            fields["Connection"] = "close"
        reason = http.server.BaseHTTPRequestHandler.responses.get(answer.status, ("",))[0]
        head = f"HTTP/1.1 {answer.status} {reason}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        if answer.cut == 0:
            self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            return False
        self.stream.sendall(head.encode() + b"\r\n" + (b"" if parts[1] == "HEAD" else content[:answer.cut]))
        return stays and answer.cut is None

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return self._exactly(int(headers.get("content-length", "0")))
        body = io.BytesIO()
        while size := int(self.reader.readline(100).split(b";")[0], 16):
            body.write(self._exactly(size))
            self.reader.readline(10)
        while self.reader.readline(65_536).strip():
            pass  # trailers
        return body.getvalue()

    def _exactly(self, size: int) -> bytes:
        if size > LARGEST_BODY:
            raise OSError("the body is too large for a fake")
        data = self.reader.read(size)
        if len(data) < size:
            raise OSError("the client disconnected within a body")
        return data


class _HTTP2:
    def __init__(self, server: VendorServer, stream: socket.socket, number: int):
        self.server, self.stream, self.number = server, stream, number
        self.connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        # Before the preface, because a later change would apply only after the client's acknowledgement.
        bound = {h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: server.streams}
        self.connection.local_settings = h2.settings.Settings(client=False, initial_values=bound)
        self.changed = threading.Condition(threading.RLock())
        self.bodies: dict[int, tuple[dict[str, str], bytearray]] = {}
        self.is_over = False

    def run(self) -> None:
        try:
            with self.changed:
                self.connection.initiate_connection()
                self._flush()
            while data := self.stream.recv(65_536):
                with self.changed:
                    for event in self.connection.receive_data(data):
                        self._see(event)
                    self._flush()
                    self.changed.notify_all()
                    if self.is_over:
                        return
        finally:
            with self.changed:
                self.is_over = True
                self.changed.notify_all()

    def _flush(self) -> None:
        if data := self.connection.data_to_send():
            self.stream.sendall(data)

    def _see(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            headers: dict[str, str] = {}
            for name, value in event.headers:
                headers[name] = f"{headers[name]}; {value}" if name in headers else value
            self.bodies[event.stream_id] = headers, bytearray()
        elif isinstance(event, h2.events.DataReceived):
            self.bodies[event.stream_id][1].extend(event.data)
            self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            self.bodies.pop(event.stream_id, None)
        elif isinstance(event, h2.events.StreamEnded):
            headers, body = self.bodies.pop(event.stream_id)
            path, query = split(headers[":path"])
            plain = {name: value for name, value in headers.items() if name[0] != ":"}
            plain.setdefault("host", headers.get(":authority", ""))
            request = Request(
                0, self.number, "HTTP/2", headers[":method"], path, query, plain, bytes(body), time.time())
            answer = self.server._take(request)
            if answer.delay or len(answer.bytes()) > 1_000:
                self.server._start(self._answer_later, event.stream_id, answer)
            else:
                self._answer(event.stream_id, answer)

    def _answer_later(self, number: int, answer: Answer) -> None:
        if answer.delay and self.server._ending.wait(answer.delay):
            return
        try:
            with self.changed:
                if not self.is_over:
                    self._answer(number, answer, waits=True)
                    self._flush()
        except (OSError, ssl.SSLError, h2.exceptions.ProtocolError):
            pass  # the client disconnected or reset the stream

    def _answer(self, number: int, answer: Answer, waits: bool = False) -> None:
        content = answer.bytes()
        if answer.refuses:
            self.connection.reset_stream(number, h2.errors.ErrorCodes.REFUSED_STREAM)
            return
        if answer.cut == 0:
            self._end(resets=True)
            return
        fields = {name.lower(): value for name, value in answer.fields().items()}
        self.connection.send_headers(
            number, [(":status", str(answer.status)), *fields.items()], end_stream=not content)
        content = content[:answer.cut]
        while content:
            window = min(self.connection.local_flow_control_window(number), self.connection.max_outbound_frame_size)
            if window <= 0:
                if not waits:
                    raise OSError("no window for a short answer")
                self._flush()
                self.changed.wait(1)
                if self.is_over:
                    return
                continue
            piece, content = content[:window], content[window:]
            self.connection.send_data(number, piece, end_stream=not content and answer.cut is None)
        if answer.cut is not None:
            self._flush()
            self._end()
        elif answer.closes:
            self.connection.close_connection(last_stream_id=number)
            self._flush()
            self._end()

    def _end(self, resets: bool = False) -> None:
        self.is_over = True
        if resets:
            self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        else:
            self.stream.shutdown(socket.SHUT_RDWR)
