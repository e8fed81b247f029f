"""A real longwired process in a temporary folder, and the tests' HTTP calls to it."""

import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import tempfile
import time
import uuid

from ports import free_ports

HERE = pathlib.Path(__file__).resolve().parent
APP = {"appId": "demo", "appKey": "demoKey", "appSecret": "demo-app-secret", "masterSecret": "demo-master-secret"}
ADMIN_TOKEN = "integration-admin-token-1"
HANDOFF_TOKEN = "integration-handoff-token-1"
TIMEOUT = 60.0  # the bound of every wait, which only matters for failures


def binary(name):
    """Returns a built program's path: in LONGWIRE_BIN_DIR (or LONGWIRE_BIN), else in .build/debug."""
    folder = os.environ.get("LONGWIRE_BIN_DIR") or os.environ.get("LONGWIRE_BIN") or HERE.parents[2] / ".build/debug"
    path = pathlib.Path(folder).resolve() / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is not built; run: swift build --product {name}")
    return str(path)


def eventually(look, what="a condition", timeout=TIMEOUT):
    """Polls until the result is true, and returns it; `what` is a text, or a function that describes the failure."""
    end = time.monotonic() + timeout
    while True:
        answer = look()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"{what() if callable(what) else what} did not come true within {timeout} s")
        time.sleep(0.02)


def wait_out_midnight():
    """Sleeps while the day (UTC) is about to end, for tests of daily counts."""
    while time.time() % 86_400 > 86_400 - 60:
        time.sleep(1)


def full_pipe():
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 65_536)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x")
    os.set_blocking(writing, True)
    return reading, writing


class Refused(Exception):
    """An HTTP answer other than 2xx; `body` is its JSON."""

    def __init__(self, status, body):
        super().__init__(f"HTTP {status}: {body}")
        self.status, self.body = status, body


class Gateway:
    """`with Gateway() as gateway:` runs one until the end of the block, and removes its folder."""

    start_timeout = TIMEOUT  # the bound of a start

    def __init__(self, limits=None, app=None, hook=None, certificate=None, files=None, place=None, **sections):
        self._folder = tempfile.TemporaryDirectory(prefix="longwire-test-")
        self.folder = pathlib.Path(self._folder.name)
        self.device, self.senders, self.http, self.admin, self.device_tls = free_ports(5)
        self.place, self.host = place, place.host if place else "127.0.0.1"  # a place of network.py
        self.app = {**APP, "apns": {"topic": "com.example.demo"}, **(app or {})}
        self.process, self._token, self._log = None, None, None
        self.files = files  # its initial limit of open files
        for name, token in (("admin", ADMIN_TOKEN), ("handoff", HANDOFF_TOKEN)):
            self._secret(name, token)
        self.sections = {
            "device": {"listen": f"{self.host}:{self.device}"},
            "senders": {"listen": f"{self.host}:{self.senders}"},
            "http": {"listen": f"{self.host}:{self.http}"},
            "admin": {"listen": f"{self.host}:{self.admin}"},
            "store": {"path": str(self.folder / "data"), "durability": "fsync"},
            "loops": 2,
            "loopTables": os.environ.get("LONGWIRE_TEST_TABLES", "shared"),
            # Tests reconnect devices faster than the damping of flapping devices allows.
            "limits": {"drainSeconds": 0, "flappingConnects": 0, **(limits or {})},
            "apps": [self.app],
            "credentials": [
                {"name": "admin", "tokenFile": str(self.folder / "admin"), "may": ["admin"]},
                {"name": "sender", "tokenFile": str(self.folder / "handoff"), "may": ["handoff"]},
            ],
            **sections,
        }
        if certificate:
            files = {"certificate": str(certificate[0]), "key": str(certificate[1])}
            self.sections["device"]["tls"] = {"listen": f"{self.host}:{self.device_tls}", **files}
        if hook:
            self._secret("hook", hook["secret"])
            self.sections["hook"] = {"url": hook["url"], "secretFile": str(self.folder / "hook")}
        self.config = self.folder / "longwired.json5"

    def _secret(self, name, text):
        path = self.folder / name
        path.write_text(text + "\n")
        path.chmod(0o600)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._log:
            self._log.close()
        self._folder.cleanup()

    # The process

    def start(self):
        """Starts on the existing data folder, if any, and waits until it is ready."""
        self.launch()
        eventually(self.is_ready, "readiness of the gateway", self.start_timeout)
        return self

    def launch(self):
        """Starts without waiting."""
        self.config.write_text("// Written by the integration tests.\n" + json.dumps(self.sections, indent=2))
        self.config.chmod(0o600)
        self._log = self._log or open(self.folder / "log", "ab")
        self.process = self.spawn()
        self._token = None

    def spawn(self, *arguments, **options):
        """Runs longwired on this gateway's configuration; its output goes to the log unless `options` redirect it."""
        words = [binary("longwired"), "--config", str(self.config), *arguments]
        if self.place:
            words = self.place.words(words)
        environment = {**os.environ, "SWIFT_BACKTRACE": "enable=no"}
        options = {"stdout": self._log, "stderr": subprocess.STDOUT, **options}
        if self.files:
            options["preexec_fn"] = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (self.files, self.files))
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, env=environment, cwd=self.folder, **options)

    def is_ready(self):
        code = self.process.poll()
        if code is not None:
            raise AssertionError(f"longwired ended with {code}:\n{self.log()[-4000:]}")
        try:
            self.call("GET", "/readyz", port=self.admin)
            return True
        except (OSError, Refused, http.client.HTTPException):
            return False

    def kill(self):
        """Sends SIGKILL, which allows no flush."""
        self.process.kill()
        self.process.wait(TIMEOUT)

    def stop(self):
        """Sends SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT)

    def log(self):
        """Returns the log. The gateway's log thread writes its lines later, so the log must not have grown for a tenth of a second."""
        path, end = self.folder / "log", time.monotonic() + 2
        size = path.stat().st_size
        while self.process and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
            last, size = size, path.stat().st_size
            if last == size:
                break
        return path.read_text(errors="replace")

    # HTTP

    def call(self, method, path, body=None, port=None, headers=None, raw=None, timeout=TIMEOUT):
        """Returns the JSON of a 2xx answer; raises Refused for any other."""
        connection = http.client.HTTPConnection(self.host, port or self.http, timeout=timeout)
        try:
            data = raw if raw is not None else None if body is None else json.dumps(body).encode()
            headers = {"Content-Type": "application/json;charset=utf-8", **(headers or {})}
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        try:
            answer = json.loads(text) if text else {}
        except ValueError:
            answer = {"text": text.decode(errors="replace")}
        if response.status // 100 != 2:
            raise Refused(response.status, answer)
        return answer

    def credentials(self):
        """Returns the body of a token request."""
        stamp = str(int(time.time() * 1000))
        sign = hashlib.sha256((self.app["appKey"] + stamp + self.app["masterSecret"]).encode()).hexdigest()
        return {"appkey": self.app["appKey"], "timestamp": stamp, "sign": sign}

    def authenticate(self):
        return self.call("POST", f"/v2/{self.app['appId']}/auth", self.credentials())["data"]["token"]

    def api(self, method, path, body=None, **options):
        """Makes an authenticated call to the push API."""
        self._token = self._token or self.authenticate()
        headers = {"token": self._token}
        return self.call(method, f"/v2/{self.app['appId']}/{path}", body, headers=headers, **options)

    def admin_call(self, method, path, body=None, token=ADMIN_TOKEN, **options):
        headers = {"Authorization": f"Bearer {token}"}
        return self.call(method, path, body, port=self.admin, headers=headers, **options)

    # The push API

    @staticmethod
    def push_body(cid, payload, alert=None, badge=None, request_id=None, **settings):
        """Returns the body for one message; `settings` are Getui's (ttl, strategy, collapse_key)."""
        if "strategy" in settings:
            settings["strategy"] = {"default": settings["strategy"]}
        body = {
            "request_id": request_id or uuid.uuid4().hex,
            "audience": {"cid": [cid]},
            "settings": settings,
            "push_message": {"transmission": payload},
        }
        if alert:
            ios = {"type": "notify", "aps": {"alert": {"title": alert, "body": "…"}}}
            body["push_channel"] = {"ios": {**ios, **({"auto_badge": badge} if badge else {})}}
        return body

    def push(self, cid, payload, **fields):
        """Publishes one message; returns the gateway's result: msgId, taskId, channel, fallback …, and `status`."""
        answer = self.api("POST", "push/single/cid", self.push_body(cid, payload, **fields))
        message = answer["longwire"]["messages"][0]
        return {**message, "status": answer["data"][message["taskId"]][cid], "answer": answer}

    # The handoff and admin API

    def lease(self, maximum=100, lease=30, wait=0):
        body = {"channel": "apns", "max": maximum, "leaseSeconds": lease, "waitSeconds": wait}
        return self.admin_call("POST", "/v1/handoff/lease", body, token=HANDOFF_TOKEN)["jobs"]

    def settle(self, job, outcome, **fields):
        """Returns the gateway's verdict on one result."""
        result = {"jobId": job["jobId"], "leaseId": job["leaseId"], "outcome": outcome, **fields}
        answer = self.admin_call("POST", "/v1/handoff/results", [result], token=HANDOFF_TOKEN)
        return answer["results"][0]["verdict"]

    def extend(self, job, lease=30):
        body = {"jobs": [{"jobId": job["jobId"], "leaseId": job["leaseId"]}], "leaseSeconds": lease}
        return self.admin_call("POST", "/v1/handoff/extend", body, token=HANDOFF_TOKEN)["results"][0]["verdict"]

    def trace(self, message_id):
        return self.admin_call("GET", f"/v1/messages/{message_id}")

    def steps(self, message_id):
        return [step["event"] for step in self.trace(message_id)["steps"]]

    def ends_as(self, message_id, state):
        trace = {}

        def look():
            trace.update(self.trace(message_id))
            assert trace["state"] in ("pending", state), trace
            return trace["state"] == state

        eventually(look, f"{message_id} as {state}")
        return trace

    def view(self, cid):
        """Returns the admin API's view of the device."""
        return self.admin_call("GET", f"/v1/apps/{self.app['appId']}/devices/{cid}")

    def metrics(self):
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        return self.call("GET", "/metrics", port=self.admin, headers=headers)["text"]
