"""Many unauthenticated connections and bodies, more than there are descriptors: other clients are not affected."""

import contextlib
import json
import resource
import socket
import threading
import time

import pytest
from conftest import QUICK
from gateway import HANDOFF_TOKEN, Refused, eventually
from hostile import Watch, hello_frame, raw
from longwire_client import Sender, pb
from test_hostile_http import answer_of, head

PATIENT = {**QUICK, "helloTimeoutMilliseconds": 60_000, "httpRequestTimeoutSeconds": 60, "httpIdleTimeoutSeconds": 600}


@pytest.fixture(autouse=True)
def many_files():
    """Raises the test's own limit of open files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def limit(gateway, listener):
    return int(Watch(gateway).metrics()[f'longwire_connection_limit{{listener="{listener}"}}'])


def crowd(port, count, data=b""):
    """Opens `count` connections; the other side may have closed some."""
    made = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            made.append(raw(port, data))
    return made


@pytest.mark.parametrize("tables", ["shared", "own"])
def test_more_strangers_than_descriptors_cost_nobody_anything(own_gateway, new_device, tables):
    gateway = own_gateway(files=768, loopTables=tables, limits={**PATIENT, "spillAfterSeconds": 1})
    device = new_device(gateway)
    limits = {name: limit(gateway, name) for name in ("device", "senders", "http", "admin")}
    assert sum(limits.values()) < (768 if tables == "shared" else 2 * 768)
    assert "fewDescriptors" in gateway.log()
    strangers = crowd(gateway.device, limits["device"] + 50) + crowd(gateway.http, limits["http"] + 50)
    strangers += crowd(gateway.http, 50, b"GET / HT") + crowd(gateway.senders, limits["senders"] + 20)
    strangers += crowd(gateway.admin, limits["admin"] + 20)
    # All clients are served, and their messages are durable and move to the ordered store.
    before = Watch(gateway).metrics()
    app = gateway.app
    with contextlib.closing(Sender("127.0.0.1", gateway.senders, app["appId"], app["masterSecret"])) as sender:
        for number in range(50):
            (result,) = sender.publish([{"cid": device.state.cid, "payload": b"from a sender"}])
            assert result.code == 0
            gateway.push(device.cid, f"by HTTP {number}")
            assert device.receive_and_ack(2)
    newcomer = new_device(gateway)
    assert newcomer.ping().nonce == 1 and device.ping().nonce == 1
    newcomer.close()
    eventually(lambda: not gateway.view(newcomer.cid)["connected"])
    for number in range(50):
        gateway.push(newcomer.cid, f"for later {number}")
    spilled = "longwire_store_spilled_rows_total"
    eventually(lambda: Watch(gateway).metrics()[spilled] > before[spilled], "a spill")
    assert Watch(gateway).metrics()["longwire_store_accepts_writes"] == 1
    displaced = Watch(gateway).metrics()
    assert displaced['longwire_connections_displaced_total{listener="device"}'] > 0
    assert displaced['longwire_connections_displaced_total{listener="http"}'] > 0
    for one in strangers:
        one.close()
    assert gateway.stop() == 0
    gateway.start()
    assert gateway.view(newcomer.cid)["queue"]["messages"] == 50


def test_too_few_descriptors_are_a_refusal_at_the_start(own_gateway):
    gateway = own_gateway()
    assert gateway.stop() == 0
    gateway.files = 120
    process = gateway.spawn()
    assert process.wait(60) == 78
    assert "limit of open files is 120" in gateway.log()


def test_longest_idle_http_connections_make_room_and_requests_under_way_stay(own_gateway, new_device):
    gateway = own_gateway(loops=1, limits={**PATIENT, "httpConnections": 20, "adminConnections": 20})
    device = new_device(gateway)
    poll = json.dumps({"channel": "apns", "waitSeconds": 30}).encode()
    waiting = [
        raw(gateway.admin, head("/v1/handoff/lease", len(poll), f"Authorization: Bearer {HANDOFF_TOKEN}") + poll)
        for _ in range(5)]
    eventually(lambda: Watch(gateway).metrics()["longwire_handoff_long_polls"] == 5)
    strangers = crowd(gateway.admin, 60) + crowd(gateway.http, 60)
    for number in range(30):
        assert gateway.push(device.cid, f"{number}")["channel"] == "live"
    device.close()
    eventually(lambda: Watch(gateway).metrics()["longwire_handoff_long_polls"] == 5)
    for one in waiting:
        one.close()
    for one in strangers:
        one.close()


# Bodies


def begun(gateway, length, sent, *more, path="push/single/cid"):
    """Starts a request and sends `sent` bytes of its body, as far as they were accepted."""
    one = raw(gateway.http, head(f"/v2/{gateway.app['appId']}/{path}", length, *more))
    one.settimeout(5)
    with contextlib.suppress(OSError):
        one.sendall(b" " * sent)
    return one


def refusal(one):
    text = answer_of(one)
    start, body = text.split(b"\r\n\r\n", 1)
    assert b"Connection: close" in start, start
    return int(start.split()[1]), json.loads(body)["code"]


def test_bodies_of_strangers_and_oversized_ones_are_refused_at_the_head(own_gateway, new_device):
    gateway = own_gateway(limits={**PATIENT, "httpRequestTimeoutSeconds": 60})
    device = new_device(gateway)
    token = f"token: {gateway.authenticate()}"
    before = Watch(gateway).resident()
    storm, threads = [None] * 50, []
    for number in range(50):
        def send(number=number):
            storm[number] = begun(gateway, 33_554_432, 4 << 20)
        threads.append(threading.Thread(target=send))
        threads[-1].start()
    for thread in threads:
        thread.join()
    # An answer may be cut off by bytes that its client still sends. Most of them arrive.
    said = []
    for one in storm:
        with contextlib.suppress(OSError, ValueError):
            said.append(refusal(one))
    assert set(said) == {(401, 10001)}
    assert Watch(gateway).resident() - before < 64 << 20
    assert refusal(begun(gateway, 33_554_432, 0, token)) == (400, 20001)
    assert refusal(begun(gateway, 5_000, 0, path="auth")) == (400, 20001)
    chunked = raw(gateway.http, head(f"/v2/{gateway.app['appId']}/auth", 0).replace(
        b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"2000\r\n")
    assert refusal(chunked) == (400, 20001)
    assert gateway.push(device.cid, "as ever")["channel"] == "live"


def test_bodies_under_way_are_bounded_together_and_by_address(own_gateway, new_device):
    gateway = own_gateway(limits={**PATIENT, "httpBodyBytes": 20 << 20, "httpBodyBytesPerAddress": 8 << 20})
    device = new_device(gateway)
    token = f"token: {gateway.authenticate()}"
    first = begun(gateway, 6 << 20, 1_000, token)
    eventually(lambda: Watch(gateway).metrics()["longwire_http_body_bytes"] == 6 << 20)
    assert refusal(begun(gateway, 6 << 20, 0, token)) == (403, 30019)
    assert gateway.push(device.cid, "a small one")["channel"] == "live"
    first.close()
    eventually(lambda: Watch(gateway).metrics()["longwire_http_body_bytes"] == 0)
    second = begun(gateway, 6 << 20, 6 << 20, token)
    assert b" 200 " in second.recv(100), "not JSON, but taken"
    second.close()
    # From other addresses, up to the total bound.
    others = []
    for number in range(2, 6):
        one = socket.socket()
        one.bind((f"127.0.0.{number}", 0))
        one.connect(("127.0.0.1", gateway.http))
        one.sendall(head(f"/v2/{gateway.app['appId']}/push/single/cid", 6 << 20, token))
        others.append(one)
    told = 0
    for one in others:
        one.settimeout(1)
        with contextlib.suppress(TimeoutError):
            told += b" 403 " in one.recv(1_000)
    assert told == 1
    for one in others:
        one.close()


# Sums over many connections


def from_address(last, port, data=b""):
    """Opens a connection from the address 127.0.0.`last` and sends these bytes."""
    one = socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(f"127.0.0.{last}", 0))
    one.sendall(data)
    return one


def test_half_requests_of_one_address_keep_no_other_out(own_gateway):
    gateway = own_gateway(loops=1, limits={**PATIENT, "httpConnections": 40})
    half = head(f"/v2/{gateway.app['appId']}/auth", 4_096) + b"{" + b" " * 100
    crowd = []
    for _ in range(3):
        for _ in range(40):
            with contextlib.suppress(OSError):
                crowd.append(from_address(9, gateway.http, half))
        for _ in range(4):
            assert gateway.authenticate()
    for one in crowd:
        one.close()


def test_half_hellos_take_bounded_memory_and_devices_still_come(own_gateway, new_device):
    gateway = own_gateway(limits={**PATIENT, "peerBytes": 16 << 20})
    device = new_device(gateway)
    half = hello_frame(gateway, device)
    half = bytes([half[0]]) + (20_000).to_bytes(3, "big") + b"\0" * 19_000
    crowd = []
    for _ in range(600):
        with contextlib.suppress(OSError):
            crowd.append(from_address(9, gateway.device, half))
    watch = Watch(gateway)
    eventually(lambda: watch.metrics()["longwire_peer_streams_closed_total"] > 0)
    # A quarter is for devices before their Hello, and each loop may hold 64 KiB that are not reported yet.
    eventually(lambda: watch.metrics()['longwire_peer_bytes{kind="streams"}'] < 5 << 20)
    assert device.ping().nonce >= 1
    newcomer = new_device(gateway)
    assert newcomer.ping().nonce >= 1
    for one in crowd:
        one.close()


def test_a_burst_of_upstream_messages_takes_bounded_memory(own_gateway, new_device):
    gateway = own_gateway(app={"upstream": {}}, limits={**PATIENT, "peerBytes": 16 << 20})
    devices = [new_device(gateway) for _ in range(40)]
    before = Watch(gateway).resident()
    burst = [pb.Upstream(request=number, payload=b"%05d" % number + b"x" * 16_379) for number in range(1, 66)]
    codes = [None] * len(devices)

    def send(place):
        devices[place].connection.send(*burst)
        results = sorted((devices[place].receive(pb.UpstreamResult) for _ in burst), key=lambda result: result.request)
        codes[place] = [result.code for result in results]

    threads = [threading.Thread(target=send, args=(place,)) for place in range(len(devices))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {code for one in codes for code in one} <= {0, 100, 101, 102}
    # After a message refused as retryable no later one is accepted.
    assert all(one == sorted(one, key=bool) for one in codes), codes
    metrics = Watch(gateway).metrics()
    assert metrics["longwire_peer_refusals_total"] > 0
    assert metrics['longwire_peer_bytes{kind="upstream"}'] == 0
    assert Watch(gateway).resident() - before < 64 << 20
    # A refused message is accepted when the device sends it again.
    device = devices[-1]
    first = next(place for place, code in enumerate(codes[-1]) if code)
    device.connection.send(burst[first])
    assert device.receive(pb.UpstreamResult).code in (0, 100, 101)


def test_strangers_use_up_no_authentications_and_voiding_counts(own_gateway):
    gateway = own_gateway(app={"push": {"authenticationsPerMinute": 8}})
    wait_out_minute()
    for number in range(20):
        body = {"appkey": gateway.app["appKey"], "timestamp": str(int(time.time() * 1000)), "sign": "0000"}
        with pytest.raises(Refused) as refused:
            gateway.call("POST", f"/v2/{gateway.app['appId']}/auth", body)
        assert refused.value.body["code"] == 20001, number
    tokens = [gateway.authenticate() for _ in range(4)]
    for token in tokens:
        path = f"/v2/{gateway.app['appId']}/auth/{token}"
        assert gateway.call("DELETE", path)["code"] == 0
        # The token is already void: nothing is written or counted.
        assert gateway.call("DELETE", path)["code"] == 0
    with pytest.raises(Refused) as refused:
        gateway.authenticate()
    assert refused.value.body["code"] == 10003


def wait_out_minute():
    """Waits until enough of a minute is left for a few dozen calls."""
    left = 60 - time.time() % 60
    if left < 20:
        eventually(lambda: 60 - time.time() % 60 > 20, "the next minute")
