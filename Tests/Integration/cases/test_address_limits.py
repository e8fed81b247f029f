"""Limits per network address: one address cannot use up shared resources, and other addresses are not affected."""

import contextlib
import json
import os
import signal
import socket
import struct
import time

from conftest import QUICK
from gateway import Gateway, eventually
from hostile import Watch
from longwire_client import Connection, pb, prove

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def header(client):
    family = socket.AF_INET6 if ":" in client else socket.AF_INET
    local = "2001:db8::1" if ":" in client else "192.0.2.1"
    addresses = socket.inet_pton(family, client) + socket.inet_pton(family, local) + struct.pack(">HH", 4_000, 7_000)
    return SIGNATURE + struct.pack(">BBH", 0x21, 0x21 if ":" in client else 0x11, len(addresses)) + addresses


@contextlib.contextmanager
def behind_a_balancer(**limits):
    gateway = Gateway(limits={**QUICK, **limits})
    for name in ("device", "http", "senders"):
        gateway.sections[name]["balancers"] = ["127.0.0.0/8"]
    gateway.sections["device"]["allowPlaintextRegistration"] = True
    with gateway:
        yield gateway


def come(port, client):
    connection = Connection("127.0.0.1", port)
    connection.socket.sendall(header(client))
    return connection


def word(connection, seconds=0.3):
    """Returns the Close of a new connection, or None if it was admitted."""
    try:
        frame = connection.frame(timeout=seconds)
    except TimeoutError:
        return None
    assert isinstance(frame, pb.Close), frame
    return frame


def ask(one, path="/nothing"):
    """Sends one request; returns status, headers and body of its answer."""
    one.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return answer(one)


def answer(one):
    one.settimeout(10)
    data = b""
    while b"\r\n\r\n" not in data:
        part = one.recv(65_536)
        assert part, data
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    while len(body) < int(headers.get("content-length", 0)):
        body += one.recv(65_536)
    return int(lines[0].split()[1]), headers, body


def http(gateway, client):
    one = socket.create_connection(("127.0.0.1", gateway.http), timeout=10)
    one.sendall(header(client))
    return one


def registered(gateway, client):
    """Returns a session of a new device of this client."""
    app = gateway.app
    hello = pb.Hello(app_id=app["appId"], registration=True, timestamp=int(time.time() * 1000), nonce=os.urandom(16))
    connection = come(gateway.device, client)
    connection.socket.sendall(prove(hello, app["appSecret"].encode()))
    assert connection.receive(pb.Welcome).cid
    return connection


def test_connections_at_once_are_held_by_address_and_freed_with_their_end():
    with behind_a_balancer(connectionsPerAddress=3) as gateway:
        watch = Watch(gateway)
        crowd = [come(gateway.device, "203.0.113.9") for _ in range(3)]
        assert all(word(one) is None for one in crowd)
        close = word(come(gateway.device, "203.0.113.9"), 5)
        assert close.code == 201 and "address" in close.reason, close
        assert (close.retry_after_min_ms, close.retry_after_max_ms) == (30_000, 60_000)
        # All listeners count together, and an HTTP client gets an HTTP answer.
        status, headers, _ = answer(http(gateway, "203.0.113.9"))
        assert (status, headers["retry-after"]) == (429, "30")
        # Another address behind the same balancer is admitted. An IPv6 /64 network counts as one address.
        other = come(gateway.device, "203.0.113.10")
        six = [come(gateway.device, f"2001:db8:0:1::{number}") for number in range(1, 5)]
        neighbour = come(gateway.device, "2001:db8:0:2::1")
        assert word(other) is None and word(neighbour) is None
        assert sorted(one is None for one in [word(one) for one in six]) == [False, True, True, True]
        crowd[0].close()
        eventually(lambda: word(come(gateway.device, "203.0.113.9")) is None, "the place of the one that left", 10)
        assert watch.grown('longwire_address_refusals_total{kind="connections"}') >= 3
        eventually(lambda: "addressRefused" in gateway.log() and "connections " in gateway.log(), "the log line", 10)


def test_a_device_stays_counted_on_whichever_loop_it_is():
    with behind_a_balancer(connectionsPerAddress=8) as gateway:
        sessions = [registered(gateway, "203.0.113.20") for _ in range(8)]
        assert word(come(gateway.device, "203.0.113.20"), 5).code == 201
        for one in sessions:
            one.close()
        # Exactly eight places are free again.
        held = []

        def is_in():
            one = come(gateway.device, "203.0.113.20")
            if word(one, 0.1) is None:
                held.append(one)
            return len(held) == 8
        eventually(is_in, "room for eight", 20)
        assert word(come(gateway.device, "203.0.113.20"), 5).code == 201


def test_new_connections_come_at_the_rate_and_are_told_when():
    with behind_a_balancer(newConnectionsPerSecondPerAddress=5) as gateway:
        closes = []
        for _ in range(30):
            one = come(gateway.device, "203.0.113.9")
            if close := word(one, 0.02):
                closes.append(close)
            one.close()
        assert 10 <= len(closes) <= 20, len(closes)
        assert all(close.code == 201 and close.retry_after_min_ms >= 1_000 for close in closes)
        assert closes[-1].retry_after_min_ms > closes[0].retry_after_min_ms
        assert word(come(gateway.device, "203.0.113.10")) is None
        eventually(lambda: word(come(gateway.device, "203.0.113.9")) is None, "the rate's next one")


def test_requests_are_held_with_a_word_that_getuis_clients_read_and_a_reload_lifts_it():
    with behind_a_balancer(requestsPerSecondPerAddress=10) as gateway:
        one = http(gateway, "203.0.113.9")
        statuses = [ask(one)[0] for _ in range(40)]
        assert statuses.count(404) >= 20 and statuses.count(429) >= 10, statuses
        status, headers, body = ask(one, "/v2/demo/user/status/x")
        assert status == 403 and b'"code":30905' in body and int(headers["retry-after"]) >= 1, (status, body)
        assert ask(one)[0] == 429
        assert ask(http(gateway, "203.0.113.10"))[0] == 404
        # Health checks are always answered.
        assert [ask(one, path)[0] for path in ("/healthz", "/readyz", "/healthz?deep=1") * 10] == [200] * 30
        assert ask(one, "/healthzz")[0] == 429
        # The connection stays open, and its next request is answered once the rate allows it.
        eventually(lambda: ask(one)[0] == 404, "the rate's next one")
        gateway.sections["limits"]["exemptAddresses"] = ["203.0.113.0/24"]
        gateway.config.write_text(json.dumps(gateway.sections))
        gateway.process.send_signal(signal.SIGHUP)
        eventually(lambda: "reloaded" in gateway.log(), "the reload")
        two = http(gateway, "203.0.113.9")
        assert [ask(two)[0] for _ in range(60)] == [404] * 60


def send_body(gateway, client, body, path="/v2/demo/push/single/cid", token="-"):
    """Sends one POST with that body, or one of that size, on a new connection; returns the answer."""
    one = http(gateway, client)
    body = b"x" * body if isinstance(body, int) else body
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\ntoken: {token}\r\nContent-Length: {len(body)}\r\n\r\n"
    one.sendall(head.encode() + body)
    try:
        return answer(one)
    finally:
        one.close()


def test_bytes_of_requests_are_held_and_a_debtors_body_is_not_read():
    with behind_a_balancer(requestBytesPerSecondPerAddress=1_000) as gateway:
        watch = Watch(gateway)
        credentials = json.dumps(gateway.credentials()).encode()
        granted = send_body(gateway, "203.0.113.8", credentials, "/v2/demo/auth")
        token = json.loads(granted[2])["data"]["token"]
        # A large body of an unauthenticated sender is refused and costs nothing.
        assert [send_body(gateway, "203.0.113.9", 32_000)[0] for _ in range(3)] == [401] * 3
        # The first body costs half a minute of the rate. The other requests happen within it, even on a slow machine.
        statuses = [send_body(gateway, "203.0.113.9", size, token=token)[::2] for size in (32_000, 4_000, 4_000)]
        assert [status for status, _ in statuses[1:]] == [403, 403] and statuses[0][0] != 403, statuses
        assert all(b'"code":30905' in body and b"request bytes" in body for _, body in statuses[1:]), statuses
        # A large body is answered after its head, before any byte of the body.
        one = http(gateway, "203.0.113.9")
        one.sendall(b"POST /v2/demo/push/list/cid HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n")
        status, headers, body = answer(one)
        assert (status, b'"code":30905' in body) == (403, True) and 1 <= int(headers["retry-after"]) <= 60
        # Requests without a body are limited, too, probes never, and another address is not affected.
        assert ask(http(gateway, "203.0.113.9"))[0] == 429
        assert ask(http(gateway, "203.0.113.9"), "/readyz")[0] == 200
        assert ask(http(gateway, "203.0.113.10"))[0] == 404
        # Two IPv4 addresses behind the same translator are limited separately.
        assert send_body(gateway, "64:ff9b::203.0.113.77", 4_000)[0] != 403
        assert send_body(gateway, "64:ff9b::203.0.113.77", 10)[0] == 403
        assert send_body(gateway, "64:ff9b::203.0.113.78", 10)[0] != 403
        assert watch.grown("longwire_address_refusals_total", kind="requestBytes") >= 5
        eventually(lambda: "requestBytes " in gateway.log(), "the log line", 10)
        gateway.sections["limits"]["requestBytesPerSecondPerAddress"] = 0
        gateway.config.write_text(json.dumps(gateway.sections))
        gateway.process.send_signal(signal.SIGHUP)
        eventually(lambda: "reloaded" in gateway.log(), "the reload")
        # Each of them would be in debt because of the previous one.
        statuses = [send_body(gateway, "203.0.113.9", 32_000, token=token)[0] for _ in range(3)]
        assert 403 not in statuses, statuses


def forwarded(gateway, value, lines=()):
    """The status of one request that an HTTP proxy passes on."""
    with socket.create_connection(("127.0.0.1", gateway.http), timeout=10) as one:
        extra = "".join(f"{line}\r\n" for line in (*lines, *([value] if value else [])))
        one.sendall(f"GET /nothing HTTP/1.1\r\nHost: x\r\n{extra}\r\n".encode())
        return answer(one)[0]


def test_requests_behind_an_http_proxy_count_by_the_client_that_it_names():
    gateway = Gateway(limits={**QUICK, "requestsPerSecondPerAddress": 10})
    gateway.sections["http"]["proxies"] = ["127.0.0.0/8"]
    with gateway:
        client = "X-Forwarded-For: 203.0.113.9"
        # A client cannot name another one: the proxy appends its address, on the same line or on a second one.
        flood = [forwarded(gateway, f"X-Forwarded-For: 198.51.100.{number}, 203.0.113.9") for number in range(30)]
        flood += [forwarded(gateway, client, (f"X-Forwarded-For: 198.51.100.{number}",)) for number in range(30)]
        flood += [forwarded(gateway, client, ("Forwarded: for=198.51.100.7",)) for _ in range(30)]
        assert flood.count(429) >= 50 and flood[-1] == 429, flood
        assert forwarded(gateway, "X-Forwarded-For: 203.0.113.10") == 404
        assert forwarded(gateway, "X-Forwarded-For: 203.0.113.9, 127.0.0.5") == 429
        # Loopback is exempt, so a header cannot claim it.
        claimed = [forwarded(gateway, f"X-Forwarded-For: {address}") for address in ("::1", "::ffff:127.0.0.1") for _ in range(30)]
        assert claimed.count(429) >= 20, claimed
        # Without a readable client the requests count as the proxy's own.
        unnamed = [forwarded(gateway, "X-Forwarded-For: unknown") for _ in range(60)]
        assert unnamed.count(429) >= 20, unnamed
