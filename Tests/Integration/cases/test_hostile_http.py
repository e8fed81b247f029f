"""Hostile HTTP clients on the public and admin listeners, faulty hooks and sender services; others are not affected."""

import contextlib
import json
import socket
import threading
import time

import pytest
from conftest import QUICK
from gateway import ADMIN_TOKEN, HANDOFF_TOKEN, Gateway, eventually
from hostile import Watch, besieged, raw, reset

CALM = {
    **QUICK, "liveDeadlineMilliseconds": 600_000, "suspectSilenceMilliseconds": 600_000,
    "httpRequestTimeoutSeconds": 2, "httpIdleTimeoutSeconds": 3}
SECRET = "whsec_" + "bG9uZ3dpcmUgaW50ZWdyYXRpb24gaG9vayBzZWNyZXQ="


@pytest.fixture(scope="module")
def calm():
    with Gateway(limits=CALM) as gateway:
        yield gateway


def head(path, length, *more):
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {length}", "Content-Type: application/json", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def answer_of(one, timeout=20):
    """Returns the bytes up to the peer's end of the connection."""
    one.settimeout(timeout)
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while (part := one.recv(65536)):
            data += part
    return data


@pytest.mark.parametrize("listener", ["http", "admin"])
def test_slow_bodies_and_half_headers(calm, new_device, listener):
    port = getattr(calm, listener)
    path = f"/v2/{calm.app['appId']}/push/single/cid" if listener == "http" else "/v1/handoff/lease"
    with besieged(calm, new_device) as watch:
        starts = (head(path, 10_000) + b'{"request_id":', b"POST /v2/demo/push HTT", b"GET / HTTP/1.1\r\nX-A: b\r\n", b"\r\n")
        storm = [raw(port, starts[index % 4]) for index in range(600)]
        for _ in range(10):
            for one in storm[::4]:
                with contextlib.suppress(OSError):
                    one.sendall(b" ")
            time.sleep(0.02)  # the pace of these clients, not synchronization
        # Other clients' calls are still answered, and by the same listener.
        assert calm.call("GET", "/healthz", port=port) is not None
        # The gateway closes all slow connections. The test closes none.
        eventually(lambda: watch.open_files() <= watch.descriptors + 60, "the end of the slow ones", timeout=40)
        for one in storm:
            one.close()


@pytest.mark.parametrize("listener", ["http", "admin"])
def test_pipelining_without_reading(calm, new_device, listener):
    port = getattr(calm, listener)
    with besieged(calm, new_device) as watch:
        before = watch.resident()
        flood = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 500
        storm = []
        for _ in range(8):
            one = raw(port)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            one.settimeout(0.5)
            storm.append(one)
            with contextlib.suppress(OSError):
                for _ in range(20):
                    one.sendall(flood)
        assert calm.call("GET", "/healthz", port=port) is not None
        assert watch.resident() - before < 128 << 20
        for one in storm:
            reset(one)


@pytest.mark.parametrize("listener", ["http", "admin"])
def test_huge_headers_and_lengths(calm, new_device, listener):
    port = getattr(calm, listener)
    attacks = {
        "one header of a megabyte": b"GET /healthz HTTP/1.1\r\nX-A: " + b"a" * (1 << 20) + b"\r\n\r\n",
        "fifty thousand headers": b"GET /healthz HTTP/1.1\r\n" + b"X-A: b\r\n" * 50_000 + b"\r\n",
        "a request line of a megabyte": b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\n\r\n",
        "a length of 2^63": head("/v2/demo/auth", 2**63),
        "a length of minus one": head("/v2/demo/auth", -1),
        "two lengths": head("/v2/demo/auth", 2, "Content-Length: 3") + b"{}",
        "a chunk of 2^64": head("/v2/demo/auth", 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        + b"ffffffffffffffff\r\n",
        "control characters": b"GET /\x00\x01\x7f HTTP/1.1\r\nHost: \x00\r\n\r\n",
    }
    with besieged(calm, new_device):
        for name, data in attacks.items():
            one = raw(port)
            one.settimeout(10)
            with contextlib.suppress(OSError):
                one.sendall(data)
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_WR)
            assert b" 200 " not in answer_of(one).split(b"\r\n")[0], name
            one.close()
        assert calm.call("GET", "/healthz", port=port) is not None


def test_thousands_of_idle_connections(calm, new_device):
    with besieged(calm, new_device) as watch:
        storm = [raw(port) for _ in range(1_000) for port in (calm.http, calm.admin)]
        device = new_device(calm)
        assert calm.push(device.cid, "between them")["channel"] == "live"
        assert device.receive_and_ack(1)
        eventually(lambda: watch.open_files() <= watch.descriptors + 60, "the end of the idle ones", timeout=40)
        for one in storm:
            one.close()


def test_guesses_at_tokens_are_counted(calm, new_device):
    with besieged(calm, new_device) as watch:
        for number in range(100):
            one = raw(calm.admin, f"GET /metrics HTTP/1.0\r\nAuthorization: Bearer guess-{number}\r\n\r\n".encode())
            assert b" 401 " in answer_of(one).split(b"\r\n")[0]
            one.close()
        assert watch.grown("longwire_http_requests_total", listener="admin", status="4xx") == 100


# Sender services


def away(gateway, new_device):
    device = new_device(gateway, token="ab" * 32)
    device.close()
    eventually(lambda: not gateway.view(device.cid)["connected"])
    return device


def test_a_sender_that_lies_and_floods(calm, new_device):
    device = away(calm, new_device)
    with besieged(calm, new_device) as watch:
        message = calm.push(device.cid, "x", strategy=2, alert="A")
        job = calm.lease()[0]
        outcomes = ["rejected", "accepted", "badToken", "retry"]
        forged = [{"jobId": job["jobId"], "leaseId": "f" * 32, "outcome": one} for one in outcomes]
        unknown = {"jobId": "0" * 32, "leaseId": job["leaseId"], "outcome": "accepted"}
        for _ in range(20):
            results = calm.admin_call("POST", "/v1/handoff/results", (forged + [unknown] * 4) * 62, token=HANDOFF_TOKEN)
            assert {one["verdict"] for one in results["results"]} == {"stale", "unknownJob"}
        assert calm.trace(message["msgId"])["state"] == "pending", "nothing of it counted"
        assert watch.grown("longwire_handoff_results_total", channel="apns", outcome="stale") >= 4_960
        assert calm.settle(job, "accepted") == "recorded"
        assert calm.settle(job, "accepted") == "recorded", "said twice"
        assert calm.settle(job, "rejected") == "stale", "a second thought comes too late"
        assert calm.trace(message["msgId"])["state"] == "handedOff"


def test_senders_that_vanish_in_long_polls_cost_no_attempt(calm, new_device):
    with besieged(calm, new_device) as watch:
        body = json.dumps({"channel": "apns", "max": 10, "leaseSeconds": 60, "waitSeconds": 30}).encode()
        words = head("/v1/handoff/lease", len(body), f"Authorization: Bearer {HANDOFF_TOKEN}") + body
        polls = [raw(calm.admin, words) for _ in range(50)]
        eventually(lambda: watch.metrics()["longwire_handoff_long_polls"] == 50, "fifty long polls")
        for index, one in enumerate(polls):
            reset(one) if index % 2 else one.close()
        device = away(calm, new_device)
        message = calm.push(device.cid, "x", strategy=2, alert="A")
        job = eventually(lambda: calm.lease(wait=5), "a lease for one who is there")[0]
        assert (job["msgId"], job["attempt"]) == (message["msgId"], 1)
        assert calm.settle(job, "accepted") == "recorded"


# Hooks


class BadHook(threading.Thread):
    """Answers each request with the next of `answers`, a function of the connection; then always with 200."""

    def __init__(self, answers):
        super().__init__(daemon=True)
        self.answers, self.names, self.open = list(answers), [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/hook"
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                one, _ = self.listener.accept()
                self.open.append(one)
                threading.Thread(target=self.serve, args=(one,), daemon=True).start()

    def serve(self, one):
        with contextlib.suppress(OSError):
            file = one.makefile("rb")
            while file.readline().strip():
                headers = {}
                while (line := file.readline().strip()):
                    name, value = line.decode().split(":", 1)
                    headers[name.lower()] = value.strip()
                file.read(int(headers["content-length"]))
                self.names.append(headers["webhook-id"])
                if not self.answers:
                    one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                elif self.answers.pop(0)(one) != "keep":
                    one.close()
                    return

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # a close alone does not end the accept
        self.join()
        self.listener.close()
        for one in self.open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def hang(one):
    return "keep"  # the next request on this connection is never answered, and the gateway times out


def say(text):
    return lambda one: one.sendall(text)


def endless_body(one):
    one.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    while True:
        one.sendall(chunk)


def endless_headers(one):
    one.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        one.sendall(b"X-A: " + b"a" * 1_000 + b"\r\n")


def late(one):
    time.sleep(1.6)  # after the timeout of a second
    one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


BAD_ANSWERS = {
    "hangs": hang, "answers late": late, "closes": lambda one: None, "resets": reset,
    "half an answer": say(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n[{"),
    "half a header": say(b"HTTP/1.1 200"), "no HTTP": say(b"\x16\x03\x01\x00rubbish\r\n\r\n"),
    "redirect": say(b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
    "error": say(b"HTTP/1.1 503 X\r\nContent-Length: 4\r\n\r\nbusy"),
    "a body without end": endless_body, "headers without end": endless_headers,
}


def test_a_hook_that_fails_in_every_way_costs_nobody_a_message(own_gateway, new_device):
    """Uses one receiver after another, set by a reload, which also ends the previous one's backoff."""
    gateway = own_gateway(limits=CALM, hook={"url": "http://127.0.0.1:9/hook", "secret": SECRET})
    hooks = []
    try:
        with besieged(gateway, new_device) as watch:
            device = away(gateway, new_device)
            for name, answer in BAD_ANSWERS.items():
                hook = BadHook([answer])
                hooks.append(hook)
                use_hook(gateway, hook.url)
                failed = watch.metrics()['longwire_hook_attempts_total{result="failed"}']
                message = gateway.push(device.cid, name, strategy=2, alert="A")["msgId"]
                gateway.ends_as(message, "handedOff")
                assert len(set(hook.names)) == 1 and len(hook.names) >= 2, f"{name}: again, under the same webhook-id"
                now = watch.metrics()
                assert now['longwire_hook_attempts_total{result="failed"}'] > failed, name
                assert now["longwire_hook_healthy"] == 1, name
    finally:
        for hook in hooks:
            hook.close()


def use_hook(gateway, url):
    """Reloads with another hook; the new receiver is in use when the configuration's number has increased."""
    gateway.sections["hook"].update(url=url, timeoutSeconds=1)
    gateway.config.write_text(json.dumps(gateway.sections))
    version = Watch(gateway).metrics()["longwire_configuration_version"]
    gateway.process.send_signal(1)
    eventually(lambda: Watch(gateway).metrics()["longwire_configuration_version"] > version, "the reload")
