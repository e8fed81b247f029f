"""Every invalid input of a peer, a publisher or an operator gets a specific answer, and the gateway keeps running."""

import gzip
import json
import socket
import struct
import subprocess
import time
import uuid

import pytest
from gateway import Refused
from longwire_client import Closed, Connection, Device, DeviceState, Sender, encode, pb, prove


def close_code(gateway, *chunks, port=None):
    """Returns the gateway's close code after these bytes; the socket must then end."""
    connection = Connection("127.0.0.1", port or gateway.device)
    try:
        for chunk in chunks:
            connection.socket.sendall(chunk)
        with pytest.raises(Closed) as closed:
            while True:
                connection.receive((pb.Welcome, pb.Deliver, pb.Pong))
        return closed.value.code
    finally:
        connection.close()


def hello(gateway, device, key=None, **fields):
    values = {"app_id": gateway.app["appId"], "cid": device.state.cid, "timestamp": int(time.time() * 1000)}
    return prove(pb.Hello(**{**values, **fields}), key or device.state.secret)


def frame(kind, body):
    return struct.pack(">I", kind << 24 | len(body)) + body


def test_before_hello(gateway):
    assert close_code(gateway, frame(99, b"")) == 410, "unknown type"
    assert close_code(gateway, encode(pb.Ping(nonce=1))) == 410, "not a Hello"
    assert close_code(gateway, b"\x01\xff\xff\xff") == 411, "too large"
    assert close_code(gateway, frame(1, b"\xff\xff\xff")) == 412, "no message"
    # A WebSocket request to another path: the port answers in HTTP and closes the connection.
    with socket.create_connection(("127.0.0.1", gateway.device), timeout=10) as http:
        http.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b"".join(iter(lambda: http.recv(4_096), b""))
    assert answer.startswith(b"HTTP/1.1 4"), answer
    assert close_code(gateway, b"\x01\x00") == 103, "half a header, then silence"


def test_hello_refusals(gateway, new_device):
    device = new_device(gateway)
    now = int(time.time() * 1000)
    assert close_code(gateway, hello(gateway, device, key=b"x" * 32, timestamp=now + 1)) == 401
    assert close_code(gateway, hello(gateway, device, app_id="nobody", timestamp=now + 2)) == 402
    assert close_code(gateway, hello(gateway, device, cid=b"\x01" * 16, timestamp=now + 3)) == 301
    assert close_code(gateway, hello(gateway, device, timestamp=now - 3_600_000)) == 300, "too old"
    assert close_code(gateway, hello(gateway, device, timestamp=now + 3_600_000)) == 300, "too new"
    assert close_code(gateway, hello(gateway, device, cid=b"\x01" * 7)) == 412, "no identifier"
    bad = prove(pb.Hello(app_id=gateway.app["appId"], registration=True, timestamp=now), b"wrong secret")
    assert close_code(gateway, bad) == 401
    sender = pb.Hello(app_id=gateway.app["appId"], role=pb.ROLE_SENDER, timestamp=now)
    assert close_code(gateway, prove(sender, gateway.app["masterSecret"].encode())) == 404
    registration = pb.Hello(app_id=gateway.app["appId"], registration=True, timestamp=now)
    key = gateway.app["appSecret"].encode()
    assert close_code(gateway, prove(registration, key), port=gateway.senders) == 404


def test_a_hello_is_not_replayed(gateway, new_device):
    device = new_device(gateway)
    device.close()
    once = hello(gateway, device, timestamp=int(time.time() * 1000) + 50)
    connection = Connection("127.0.0.1", gateway.device)
    connection.socket.sendall(once)
    connection.receive(pb.Welcome)
    connection.close()
    assert close_code(gateway, once) == 300


def test_clock_skew_tells_the_time_and_one_retry_works(gateway, new_device):
    device = new_device(gateway)
    device.state.offset = 10_000_000
    assert device.connect().generation > 0
    assert abs(device.state.offset) < 120_000


def test_in_session(gateway, new_device):
    def after_hello(*chunks):
        device = new_device(gateway)
        device.close()
        stamp = int(time.time() * 1000) + 10
        return close_code(gateway, hello(gateway, device, timestamp=stamp, queue_epoch=device.welcome.queue_epoch), *chunks)

    assert after_hello(frame(77, b"")) == 410
    assert after_hello(encode(pb.Welcome())) == 410, "a gateway's frame"
    assert after_hello(encode(pb.Publish(request=1))) == 410, "a sender's frame"
    assert after_hello(b"\x07\xff\xff\xff") == 411
    assert after_hello(frame(7, b"\x0a\xff")) == 412
    ack = pb.Ack()
    ack.positions.add(stream=0, sequence=2**40)
    assert after_hello(encode(ack)) == 413


def test_floods(gateway, new_device):
    for kind in (pb.Ping(nonce=1), pb.DeviceUpdate(request=1)):
        device = new_device(gateway)
        device.connection.send(*[kind] * 1_001)
        with pytest.raises(Closed) as closed:
            while True:
                device.receive((pb.Pong, pb.UpdateResult))
        assert closed.value.code == 414


def test_a_device_that_breaks_the_rules_loses_nothing(gateway, new_device):
    device = new_device(gateway)
    gateway.push(device.cid, "kept")
    device.receive()
    device.connection.socket.sendall(frame(6, b""))
    with pytest.raises(Closed):
        device.receive()
    device.connect()
    assert device.receive_and_ack(1)[0].payload == b"kept"


def refusal(call):
    with pytest.raises(Refused) as refused:
        call()
    return refused.value.status, refused.value.body


def test_push_refusals(gateway, new_device):
    device = new_device(gateway)

    def push(change=None, raw=None):
        body = gateway.push_body(device.cid, "x")
        if change:
            change(body)
        return refusal(lambda: gateway.api("POST", "push/single/cid", body, raw=raw))

    def code(*arguments, **options):
        status, body = push(*arguments, **options)
        assert body["msg"], body
        return status, body["code"]

    # Getui answers a body that is no JSON with 200 and code 1.
    answer = gateway.api("POST", "push/single/cid", raw=b'{"a":')
    assert answer["code"] == 1 and answer["msg"], answer
    assert code(lambda body: body.pop("request_id"))[0] == 400
    assert code(lambda body: body.update(request_id="short")) == (400, 20001)
    assert code(lambda body: body.update(audience={"cid": []})) == (400, 20001)
    assert code(lambda body: body.update(audience={"cid": ["0" * 32]})) == (400, 20001)
    assert code(lambda body: body.update(audience={"cid": ["nonsense"]})) == (400, 20001)
    assert code(lambda body: body.update(push_message={"transmission": ["x"]})) == (400, 20001)
    assert code(lambda body: body.update(push_message={"transmission": "y" * 20_000})) == (400, 20001)
    assert code(lambda body: body["settings"].update(ttl=10**12)) == (400, 20001)
    assert code(lambda body: body["settings"].update(strategy={"default": 9})) == (400, 20001)
    # Strategies that need a token, for a device without one.
    for strategy in (2, 4):
        assert code(lambda body: body["settings"].update(strategy={"default": strategy})) == (400, 20001)
    # The device received no message from these requests.
    assert gateway.view(device.cid)["queue"]["messages"] == 0


def test_authentication_refusals(gateway):
    app = gateway.app["appId"]
    status, body = refusal(lambda: gateway.call("POST", f"/v2/{app}/push/single/cid", {}, headers={"token": "no"}))
    assert (status, body["code"]) == (401, 10001)
    stamp = str(int(time.time() * 1000))
    wrong = {"appkey": gateway.app["appKey"], "timestamp": stamp, "sign": "0" * 64}
    status, body = refusal(lambda: gateway.call("POST", f"/v2/{app}/auth", wrong))
    assert (status, body["code"]) == (400, 20001)
    token = gateway.authenticate()
    gateway.call("DELETE", f"/v2/{app}/auth/{token}", headers={"token": token})
    status, body = refusal(lambda: gateway.call("GET", f"/v2/{app}/user/status/x", headers={"token": token}))
    assert (status, body["code"]) == (401, 10001), "a revoked token"


def test_http_refusals(gateway):
    assert refusal(lambda: gateway.call("GET", "/nowhere"))[0] == 404
    assert refusal(lambda: gateway.call("PUT", f"/v2/{gateway.app['appId']}/auth", {}))[0] == 405
    assert refusal(lambda: gateway.api("POST", "push/single/cid", raw=b" " * (9 << 20)))[0] in (400, 413)
    with socket.create_connection(("127.0.0.1", gateway.http), timeout=10) as raw:
        raw.sendall(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
        assert b"HTTP/1.1 200" not in raw.recv(4096)
    assert gateway.call("GET", "/healthz") is not None


def test_compressed_bodies_are_refused_by_every_listener(gateway, new_device):
    body = gzip.compress(json.dumps(gateway.push_body(new_device(gateway).cid, "x")).encode())
    headers = {"Content-Encoding": "gzip"}
    for port in (gateway.http, gateway.admin):
        answer = refusal(lambda: gateway.call("POST", "/v2/x/push/single/cid", raw=body, headers=headers, port=port))
        assert answer[0] == 415 and "gzip" in answer[1]["text"]


def test_one_bad_item_spoils_nothing_else(gateway, new_device):
    devices = [new_device(gateway) for _ in range(4)]
    items = [gateway.push_body(device.cid, f"number {place}") for place, device in enumerate(devices)]
    items[3]["push_channel"] = {"ios": {"aps": {"alert": "a"}, "order": 0}}
    text = json.dumps({"msg_list": items}).replace('"number 1"', '"cut \\ud83d"').replace('"number 2"', "NaN")
    answer = gateway.api("POST", "push/single/batch/cid", raw=text.replace('"order": 0', '"order": 1e400').encode())
    refused = {item["index"]: item["msg"] for item in answer["longwire"]["refused"]}
    assert set(refused) == {1, 2} and all("push_message.transmission" in message for message in refused.values())
    for place in (0, 3):
        assert devices[place].receive_and_ack(1)[0].payload == b"number %d" % place


def test_a_broadcast_with_a_filter_that_is_not_served_reaches_nobody(gateway, new_device):
    device = new_device(gateway)
    body = {"audience": "all", "push_message": {"transmission": "for some"}}
    now = int(time.time())
    for change, code, word in (
            ({"settings": {"activate_filter_day": 7, "activate_filter_type": -1}}, 20001, "settings.activate_filter_day"),
            ({"settings": {"filter_notify_off": True}}, 20001, "settings.filter_notify_off"),
            ({"tag": ["vip"]}, 20001, "tag is invalid"), ({"settings": {"schedule_time": now + 3_600}}, 22002, "milliseconds")):
        request = {"request_id": f"filter-{uuid.uuid4().hex[:20]}", **body, **change}
        status, answer = refusal(lambda: gateway.api("POST", "push/all", request))
        assert (status, answer["code"]) == (400, code) and word in answer["msg"]
    gateway.push(device.cid, "the first that comes")
    assert device.receive_and_ack(1)[0].payload == b"the first that comes"


def test_admin_refusals(gateway):
    def status(method, path, body=None, token="wrong-token-wrong"):
        return refusal(lambda: gateway.admin_call(method, path, body, token=token))[0]

    lease = {"channel": "apns", "max": 1, "leaseSeconds": 30, "waitSeconds": 0}
    assert status("POST", "/v1/handoff/lease", lease) == 401
    assert status("GET", "/metrics", token="integration-handoff-token-1x") == 401
    assert status("GET", "/v1/messages/" + "0" * 32, token="integration-handoff-token-1") == 403
    good = "integration-handoff-token-1"
    for change in ({"max": 501}, {"leaseSeconds": 4}, {"waitSeconds": 31}, {"channel": "fax"}, {"colour": 1}):
        assert status("POST", "/v1/handoff/lease", {**lease, **change}, token=good) == 400
    unknown = {"jobId": "0" * 32, "leaseId": "0" * 32, "outcome": "accepted"}
    answer = gateway.admin_call("POST", "/v1/handoff/results", [unknown], token=good)
    assert answer["results"][0]["verdict"] == "unknownJob"


def test_native_publish(gateway, new_device):
    device = new_device(gateway)
    sender = Sender("127.0.0.1", gateway.senders, gateway.app["appId"], gateway.app["masterSecret"])
    try:
        good, unknown, large = sender.publish(
            [
                {"cid": device.state.cid, "payload": b"\x00\xffraw"},
                {"cid": b"\x01" * 16, "payload": b"x"},
                {"cid": device.state.cid, "payload": b"x" * 20_000},
            ]
        )
        assert (good.code, good.live, good.fsync) == (0, True, True)
        assert unknown.code != 0 and unknown.reason
        assert large.code != 0 and large.reason
        assert device.receive_and_ack(1)[0].payload == b"\x00\xffraw"
    finally:
        sender.close()


def test_forged_proof_of_another_device(gateway, new_device):
    mine, other = new_device(gateway), new_device(gateway)
    state = DeviceState()
    state.cid, state.secret, state.epoch = other.state.cid, mine.state.secret, mine.state.epoch
    thief = Device("127.0.0.1", gateway.device, gateway.app["appId"], state)
    with pytest.raises(Closed) as closed:
        thief.connect()
    assert closed.value.code == 401
    assert other.ping().nonce == 1, "the real one is not disturbed"


# The operator


def run(gateway, *arguments):
    process = gateway.spawn(*arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output, _ = process.communicate(timeout=30)
    return process.returncode, output


def test_a_second_process_is_refused_by_name(own_gateway):
    gateway = own_gateway()
    config = dict(gateway.sections)
    path = gateway.folder / "second.json5"
    for name in ("device", "senders", "http", "admin"):
        config[name] = {"listen": "127.0.0.1:0"}
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    process = subprocess.run(
        [gateway.process.args[0], "--config", str(path)], capture_output=True, text=True, timeout=30
    )
    assert process.returncode == 74
    assert str(gateway.process.pid) in process.stderr + process.stdout
    assert gateway.call("GET", "/healthz") is not None, "the first goes on"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", []),
        ("{ apps: [], colour: 1 }", ["colour"]),
        ('{ demo: true, loops: "many" }', ["loops", "many"]),
        ('{ demo: true, store: { durability: "hope" } }', ["store.durability", "hope", "fsync"]),
        ('{ demo: true, device: { listen: "nowhere" } }', ["device.listen", "nowhere"]),
        ("{ demo: true, limits: { windowMessages: 0 } }", ["limits.windowMessages", "0"]),
        ('{ demo: true, hook: { url: "http://example.com/x", secret: "whsec_AAAA" } }', ["hook.url"]),
        ("{ demo: true, limits: { windowMesages: 5 } }", ["windowMesages"]),
    ],
)
def test_bad_configuration_names_key_and_value(gateway, tmp_path, text, words):
    path = tmp_path / "bad.json5"
    path.write_text(text)
    path.chmod(0o600)
    for more in ([], ["--check"]):
        command = [gateway.process.args[0], "--config", str(path), *more]
        process = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=tmp_path)
        assert process.returncode == 78, process.stderr
        for word in [*words, "bad.json5"]:
            assert word in process.stderr + process.stdout


def test_command_line(gateway, tmp_path):
    code, output = run(gateway, "--frobnicate")
    assert code == 64 and "--frobnicate" in output
    code, output = run(gateway, "--check")
    assert code == 0, output
    process = subprocess.run(
        [gateway.process.args[0], "--config", str(tmp_path / "none")], capture_output=True, text=True, timeout=30
    )
    assert process.returncode == 78 and "none" in process.stderr


def test_busy_port_is_named(gateway):
    other = dict(gateway.sections)
    path = gateway.folder / "busy.json5"
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        for name in ("senders", "http", "admin"):
            other[name] = {"listen": "127.0.0.1:0"}
        other["device"] = {"listen": f"127.0.0.1:{port}"}
        other["store"] = {"path": str(gateway.folder / "busy-data")}
        path.write_text(json.dumps(other))
        path.chmod(0o600)
        command = [gateway.process.args[0], "--config", str(path)]
        process = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert process.returncode not in (0, None)
    assert str(port) in process.stderr + process.stdout
