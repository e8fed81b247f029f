"""The sender and the fake Apple as processes, and a second fake Apple with another library (h2)."""

import http.client
import json
import pathlib
import re
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import threading

import h2.config
import h2.connection
import h2.events
import h2.settings
from gateway import HANDOFF_TOKEN, binary, eventually, free_ports


class FakeApple:
    """`with FakeApple() as apple:` runs `longwire-sender fake` until the end of the block.

    `words` precede its command line; without `records` it records nothing.
    """

    def __init__(self, script=None, words=(), records=True):
        self._folder = tempfile.TemporaryDirectory(prefix="longwire-apple-")
        self.folder = pathlib.Path(self._folder.name)
        ports = free_ports(6)
        self.production, self.sandbox, self.page, self.production_channels, self.sandbox_channels, self.vendors = ports
        self.record = self.folder / "record.jsonl"
        self.script, self.words, self.records = script, list(words), records
        self.process = None

    def __enter__(self):
        words = [*self.words, binary("longwire-sender"), "fake", "--folder", str(self.folder)]
        if self.records:
            words += ["--record", str(self.record)]
        for name in ("production", "sandbox", "page", "production_channels", "sandbox_channels", "vendors"):
            words += [f"--{name.replace('_', '-')}", f"127.0.0.1:{getattr(self, name)}"]
        if self.script is not None:
            (self.folder / "script.json5").write_text(json.dumps(self.script))
            words += ["--script", str(self.folder / "script.json5")]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert b"ready" in self.process.stdout.readline()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            assert self.process.wait(30) == 0
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self._folder.cleanup()

    @property
    def certificate(self):
        return self.folder / "certificate.pem"

    @property
    def key(self):
        return self.folder / "AuthKey.p8"

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.page, timeout=30)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def phones(self, environment="production"):
        page = json.loads(self.call("GET", "/phones")[1])[environment]["phones"]
        return {phone["token"]: phone for phone in page}

    def channels(self, environment="production"):
        page = json.loads(self.call("GET", "/channels")[1])[environment]["channels"]
        return {channel["id"]: channel for channel in page}

    def play(self, script):
        status, text = self.call("POST", "/script", json.dumps(script))
        assert status == 204, text

    def tap(self, token, notification, environment="production"):
        status, text = self.call("POST", f"/tap?environment={environment}&token={token}&id={notification}")
        assert status == 200, text
        return json.loads(text)

    def requests(self):
        """Returns the requests so far, oldest first."""
        if not self.record.exists():
            return []
        return [json.loads(line) for line in self.record.read_text().splitlines()]


class Sender:
    """`with Sender(gateway, apple) as sender:` runs longwire-sender until the end of the block."""

    words = ()  # the words before its command line

    def __init__(self, gateway, apple, hook=None, apple_section=None, **gateway_section):
        self._folder = tempfile.TemporaryDirectory(prefix="longwire-sender-")
        self.folder = pathlib.Path(self._folder.name)
        self.admin, self.hook = free_ports(2)
        self._secret("token", HANDOFF_TOKEN)
        sections = {
            "gateway": {
                "url": f"http://127.0.0.1:{gateway.admin}", "tokenFile": "token", "waitSeconds": 2, **gateway_section
            },
            "apple": {
                "production": f"localhost:{apple.production}", "sandbox": f"localhost:{apple.sandbox}",
                "authoritiesFile": str(apple.certificate), **(apple_section or {})
            },
            "credentials": [
                {"name": "main", "key": {"file": str(apple.key), "keyId": "FAKEKEY001", "teamId": "FAKETEAM01"}}
            ],
            "admin": {"listen": f"127.0.0.1:{self.admin}"},
            "stopSeconds": 5,
        }
        if hook:
            self._secret("hook", hook)
            sections["gateway"]["lease"] = False
            sections["hook"] = {"listen": f"127.0.0.1:{self.hook}", "secretFile": "hook"}
        self.config = self.folder / "sender.json5"
        self.sections = sections
        self.process = None

    def _secret(self, name, text):
        path = self.folder / name
        path.write_text(text + "\n")
        path.chmod(0o600)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self._log.close()
        self._folder.cleanup()

    def start(self):
        self.config.write_text(json.dumps(self.sections))
        self._log = open(self.folder / "log", "ab")
        words = [*self.words, binary("longwire-sender"), "--config", str(self.config)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=self._log)
        assert b"sends for" in self.process.stdout.readline(), self.log()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self._log.close()

    def stop(self):
        self.process.terminate()
        return self.process.wait(30)

    def reload(self):
        self.config.write_text(json.dumps(self.sections))
        self.process.send_signal(signal.SIGHUP)

    def log(self):
        return (self.folder / "log").read_text()

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def ask(self, method, path, body=None, token=None):
        """Makes a call to the back end's paths; returns status and JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=30)
        try:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def metric(self, name):
        """Returns the sum of the samples with these labels, of the channel apns where samples have one."""
        name, _, labels = name.partition("{")
        wanted = {*re.findall(r'\w+="[^"]*"', labels)}
        found = re.findall(rf"^longwire_sender_{name}(?:{{(.*)}})? (\S+)$", self.get("/metrics")[1], re.M)
        samples = [({*re.findall(r'\w+="[^"]*"', own)}, float(value)) for own, value in found]
        return sum(value for own, value in samples if wanted <= own and not any(
            label.startswith("channel=") and label != 'channel="apns"' for label in own))


class OtherApple:
    """A fake Apple with another library: h2 over Python's TLS, one thread per connection.

    `answer(token, count)` returns status and body of the count-th request for a token. A status of None resets the stream. A
    status of "goodbye" sends a GOAWAY whose last stream is below this one.
    """

    def __init__(
        self, apple, answer=lambda token, count: (200, b""), streams=100, asks_for_certificate=False, deaf=0, delay=0.0
    ):
        # Uses the certificate and the key of an existing fake.
        self.folder, self.certificate, self.key = apple.folder, apple.certificate, apple.key
        self.answer, self.streams = answer, streams
        # The first `deaf` connections get settings and are then not read. Each answer takes `delay` seconds.
        self.deaf, self.delay = deaf, delay
        self.taken, self.counts, self.headers = [], {}, []
        self._lock, self._threads, self._open = threading.Lock(), [], []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(apple.certificate, apple.folder / "key.pem")
        self._context.set_alpn_protocols(["h2"])
        if asks_for_certificate:
            # Trusts only the fake's own certificate.
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_verify_locations(apple.certificate)

    def __enter__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.production = self.sandbox = self._listener.getsockname()[1]
        self._stopping = False
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def __exit__(self, *_):
        self._stopping = True
        self._end.set()
        socket.create_connection(("127.0.0.1", self.production)).close()
        with self._lock:
            for one in self._open:
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        for thread in self._threads:
            thread.join(30)
        self._listener.close()

    def _accept(self):
        while True:
            plain, _ = self._listener.accept()
            if self._stopping:
                plain.close()
                return
            thread = threading.Thread(target=self._serve, args=(plain,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, plain):
        try:
            with self._context.wrap_socket(plain, server_side=True) as stream:
                with self._lock:
                    self._open.append(stream)
                    is_deaf, self.deaf = self.deaf > 0, max(0, self.deaf - 1)
                self._talk(stream, is_deaf)
        except (OSError, ssl.SSLError, h2.exceptions.ProtocolError):
            pass  # the sender disconnected

    def _talk(self, stream, is_deaf):
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        # Before the preface, because a later change would apply only after the sender's acknowledgement.
        bound = {h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: self.streams}
        connection.local_settings = h2.settings.Settings(client=False, initial_values=bound)
        connection.initiate_connection()
        stream.sendall(connection.data_to_send())
        if is_deaf:
            self._end.wait()
            return
        requests = {}
        while True:
            data = stream.recv(65_536)
            if not data:
                return
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    requests[event.stream_id] = (dict(event.headers), bytearray())
                elif isinstance(event, h2.events.DataReceived):
                    requests[event.stream_id][1].extend(event.data)
                    connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    if self._end.wait(self.delay):
                        return
                    if not self._handle(connection, event.stream_id, *requests.pop(event.stream_id)):
                        stream.sendall(connection.data_to_send())
                        return
            stream.sendall(connection.data_to_send())

    def _handle(self, connection, number, headers, body):
        headers = {name.decode() if isinstance(name, bytes) else name: value for name, value in headers.items()}
        headers = {name: value.decode() if isinstance(value, bytes) else value for name, value in headers.items()}
        token = headers[":path"].removeprefix("/3/device/")
        with self._lock:
            self.counts[token] = self.counts.get(token, 0) + 1
            status, text = self.answer(token, self.counts[token])
            self.headers.append(headers)
            if status == 200 or status is None:
                self.taken.append((token, headers["apns-id"], json.loads(bytes(body))))
        if status is None:
            connection.reset_stream(number)
        elif status == "goodbye":
            connection.close_connection(last_stream_id=max(0, number - 2))
            return False
        else:
            fields = [(":status", str(status)), ("apns-id", headers["apns-id"])]
            connection.send_headers(number, fields, end_stream=not text)
            if text:
                connection.send_data(number, text, end_stream=True)
        return True


class FaultyProxy:
    """A TCP proxy in front of an Apple whose first connections break; it can act as an Apple for `Sender`.

    `faults` has the fault of each connection in the order of arrival; later ones have none. `("cut", n)` closes it after `n`
    bytes, `("reset", n)` resets it, `("stall", n)` forwards no more and stays silent, `("delay", s)` delays each piece by `s`
    seconds. Bytes of both directions count.
    """

    def __init__(self, apple, faults):
        self.folder, self.certificate, self.key, self.apple = apple.folder, apple.certificate, apple.key, apple
        self.faults, self.cuts = list(faults), 0
        self._lock, self._threads, self._sockets, self._stopping = threading.Lock(), [], [], threading.Event()

    def __enter__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.production = self._listener.getsockname()[1]
        self.sandbox = self.apple.sandbox
        self._start(self._accept)
        return self

    def _start(self, work, *arguments):
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def __exit__(self, *_):
        self._stopping.set()
        socket.create_connection(("127.0.0.1", self.production)).close()
        with self._lock:
            for one in self._sockets:
                self._shut(one)
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()
        self._listener.close()
        for one in self._sockets:
            one.close()

    @staticmethod
    def _shut(one):
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it was already shut down

    def _accept(self):
        while True:
            near, _ = self._listener.accept()
            if self._stopping.is_set():
                near.close()
                return
            far = socket.create_connection(("127.0.0.1", self.apple.production))
            with self._lock:
                self._sockets += [near, far]
                way = _Way(near, far, *(self.faults.pop(0) if self.faults else (None, 0)))
            self._start(self._carry, way, near, far)
            self._start(self._carry, way, far, near)

    def _carry(self, way, source, target):
        try:
            while data := source.recv(4_096):
                if way.kind == "delay" and self._stopping.wait(way.size):
                    return
                data, is_broken = way.pass_through(data)
                target.sendall(data)
                if not is_broken:
                    continue
                with self._lock:
                    self.cuts += way.breaks_first()
                if way.kind == "stall":
                    self._stopping.wait()  # both ends stay open, and no byte is forwarded
                    return
                if way.kind == "reset":
                    for one in (way.near, way.far):
                        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
        except OSError:
            pass  # the other direction ended it
        finally:
            if way.kind != "stall" or self._stopping.is_set():
                for one in (way.near, way.far):
                    self._shut(one)


class _Way:
    """One connection through the proxy; `pass_through` returns the bytes to forward."""

    def __init__(self, near, far, kind, size):
        self.near, self.far, self.kind, self.size = near, far, kind, size
        self._left, self._lock, self._is_told = size, threading.Lock(), False

    def pass_through(self, data):
        if self.kind not in ("cut", "reset", "stall"):
            return data, False
        with self._lock:
            passed = data[:self._left]
            self._left -= len(passed)
            return passed, self._left == 0

    def breaks_first(self):
        """Returns 1 for the direction that broke it, 0 for the other one."""
        with self._lock:
            is_first, self._is_told = not self._is_told, True
            return int(is_first)


def settled(sender, jobs):
    """Waits until the sender has reported `jobs` outcomes and holds no job."""

    def look():
        kinds = ("accepted", "retry", "rejected", "badToken", "unsent")
        total = sum(sender.metric(f'outcomes_total{{outcome="{kind}"}}') for kind in kinds)
        return total >= jobs and sender.metric("jobs_held") == 0

    eventually(look, f"{jobs} outcomes")
