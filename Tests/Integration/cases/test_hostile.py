"""Hostile clients on the device and senders listeners, while correct devices get their messages."""

import random
import socket
import ssl
import struct
import subprocess
import time

import pytest
from conftest import QUICK
from gateway import Gateway, eventually
from hostile import (
    Watch, besieged, close_code, code_after, filler, frame, hello_frame, nested, raw, reset, said_hello, session,
    survives, varint)
from longwire_client import Closed, Connection, Device, Sender, encode, pb, prove

DEVICES = 'longwire_connections{listener="device"}'
BODY_LIMIT = 65_536
# Live attempts must not time out on a busy machine, because the other devices' messages must stay unflagged.
CALM = {
    **QUICK, "liveDeadlineMilliseconds": 600_000, "suspectSilenceMilliseconds": 600_000,
    "helloTimeoutMilliseconds": 1_500, "connectionsBeforeHello": 2_000}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate")
    files = folder / "certificate.pem", folder / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=localhost", "-keyout", str(files[1]), "-out", str(files[0])]
    subprocess.run(words, check=True, capture_output=True)
    return files


@pytest.fixture(scope="module")
def calm(certificate):
    with Gateway(limits=CALM, certificate=certificate) as gateway:
        yield gateway


def test_hellos_byte_by_byte_and_half_done_handshakes(own_gateway, new_device):
    # Enough time for a busy machine to accept more connections than may perform handshakes at once.
    calm = own_gateway(limits={**CALM, "helloTimeoutMilliseconds": 6_000})
    spy = new_device(calm)
    spy.close()
    with besieged(calm, new_device) as watch:
        slow = [raw(calm.device) for _ in range(50)]
        # More connections than may perform handshakes at once. Each has sent one byte, half a Hello, or nothing.
        hello = hello_frame(calm, spy)
        parts = (b"\x01", hello[: len(hello) // 2], b"")
        storm = [raw(calm.device, parts[index % 3]) for index in range(3_000)]
        for byte in hello[:20]:
            for one in slow:
                try:
                    one.sendall(bytes([byte]))
                except OSError:
                    pass
            time.sleep(0.02)  # the pace of these clients, not synchronization
        eventually(
            lambda: watch.closed("helloTimeout") + watch.closed("overloaded") >= 3_000, "the end of the storm",
            timeout=40)
        assert watch.closed("overloaded") >= 500, "above the limit they are turned away at once"
        assert watch.closed("helloTimeout") >= 1_000
        for one in slow + storm:
            one.close()


def test_half_done_handshakes_over_tls(calm, new_device):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with besieged(calm, new_device) as watch:
        # Silent, within a ClientHello, with garbage instead of one, and with a completed handshake but no Hello.
        starts = (b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x16\x03\x01\x00\x05hello", b"GET / HTTP/1.1\r\n\r\n")
        storm = [raw(calm.device_tls, starts[index % 4]) for index in range(600)]
        done = [context.wrap_socket(raw(calm.device_tls), server_hostname="localhost") for _ in range(60)]
        eventually(
            lambda: watch.metrics()[DEVICES] <= watch.counts[DEVICES] + 4,
            "the end of all handshakes", timeout=40)
        assert watch.grown("longwire_connections_accepted_total", listener="device") >= 660
        assert watch.closed("helloTimeout") >= 60
        for one in storm + done:
            one.close()


def test_a_client_that_never_reads(calm, new_device):
    mute = new_device(calm)
    with besieged(calm, new_device) as watch:
        sender = Sender("127.0.0.1", calm.senders, calm.app["appId"], calm.app["masterSecret"], timeout=60)
        payload = b"x" * 16_000
        results = []
        for _ in range(10):
            results += sender.publish([{"cid": mute.state.cid, "payload": payload}] * 40)
        sender.close()
        refused = [result for result in results if result.code]
        assert {result.code for result in refused} <= {2}, "its queue is full, and nothing else is wrong"
        assert refused, "4 MiB is the bound of one queue"
        view = calm.view(mute.cid)
        assert view["queue"]["inFlight"] <= 5, "64 KiB in flight, whatever waits"
        assert view["queue"]["bytes"] <= 4 << 20
        assert watch.grown("longwire_publishes_refused_total", reason="queueFull") == len(refused)
        # The device also requests answers that it does not read. The gateway's memory for it stays bounded.
        mute.connection.socket.settimeout(2)
        try:
            for _ in range(40):
                mute.connection.socket.sendall(encode(pb.Ping(nonce=1)) * 20)
        except OSError:
            pass
    # No message is lost: the device may reconnect and read.
    mute.close()
    mute.connect()
    assert mute.receive().payload == payload


def ack_body(positions, rejected=()):
    ack = pb.Ack()
    for stream, sequence, ranges in positions:
        position = ack.positions.add(stream=stream, sequence=sequence)
        for first, last in ranges:
            position.ranges.add(first=first, last=last)
    for sequence in rejected:
        ack.rejected.add(stream=0, sequence=sequence, reason="never sent")
    return encode(ack)


@pytest.mark.parametrize(
    ("ack", "code"),
    [
        (ack_body([(0, 2**64 - 1, [])]), 413),
        (ack_body([(0, 2**40, [])]), 413),
        (ack_body([(0, 0, [(1, 2**64 - 1)])]), 413),
        (ack_body([(0, 0, [(2**64 - 1, 2**64 - 1)])]), 413),
        (ack_body([(0, 5, [(3, 9)])]), 412),
        (ack_body([(0, 0, [(9, 3)])]), 412),
        (ack_body([(0, 0, [(2, 6), (5, 8)])]), 412),
        (ack_body([(0, 0, [(8, 9), (2, 3)])]), 412),
        (ack_body([(0, 1, []), (0, 2, [])]), 412),
        (ack_body([(0, 0, [(2 * n + 2, 2 * n + 2) for n in range(33)])]), 412),
        (ack_body([], [2**64 - 1, 0, 7, 7]), None),
        (ack_body([(1, 2**64 - 1, [])]), 413),
        (ack_body([(7, 2**64 - 1, [])]), None),
    ],
)
def test_acks_of_what_was_never_sent(calm, new_device, ack, code):
    device = new_device(calm)
    calm.push(device.cid, "kept")
    assert device.receive().payload == b"kept"
    connection = session(calm, device)
    connection.receive(pb.Deliver)
    connection.socket.sendall(ack)
    if code:
        assert close_code(connection) == code
    else:
        assert survives(connection)
    # The message is still there, whatever the device claimed.
    device.close()
    device.connect()
    assert device.receive_and_ack(1)[0].payload == b"kept"


def test_an_ack_settles_nothing_that_was_not_sent_in_this_session(calm, new_device):
    device = new_device(calm)
    with besieged(calm, new_device) as watch:
        device.update(application_state=pb.BACKGROUND)
        messages = [calm.push(device.cid, f"{number}") for number in range(5)]
        device.connection.socket.sendall(ack_body([(0, 5, [])]) * 200)
        assert device.ping().nonce == 1
        assert watch.grown("longwire_acks_ignored_total") >= 200
        assert {calm.trace(message["msgId"])["state"] for message in messages} == {"pending"}
        assert calm.view(device.cid)["queue"]["messages"] == 5


def test_another_devices_cid(calm, new_device):
    victim, thief = new_device(calm), new_device(calm)
    with besieged(calm, new_device) as watch:
        now = int(time.time() * 1000)
        keys = [thief.state.secret, b"", b"\x00" * 32, calm.app["appSecret"].encode(), victim.state.cid]
        for number in range(200):
            key = keys[number % len(keys)] or b"\x01"
            assert close_code(said_hello(calm, hello_frame(calm, victim, key, timestamp=now + number))) == 401
        assert watch.closed("authentication") == 200
        assert victim.ping().nonce == 1, "its session is not disturbed"
    message = calm.push(victim.cid, "for the victim only")
    assert message["channel"] == "live" and victim.receive_and_ack(1)


def test_a_captured_hello(calm, own_gateway, new_device):
    gateway = own_gateway(limits=CALM)
    device = new_device(gateway)
    device.close()
    captured = hello_frame(gateway, device, timestamp=int(time.time() * 1000) + 500)
    connection = said_hello(gateway, captured)
    connection.receive(pb.Welcome)
    # On the same connection, on another one, afterwards, and on the gateway after a restart.
    assert code_after(connection, captured) == 410
    assert close_code(said_hello(gateway, captured)) == 300
    device.state.timestamp = int(time.time() * 1000) + 600
    device.connect()
    assert close_code(said_hello(gateway, captured)) == 300
    assert device.ping().nonce == 1, "the rightful session goes on"
    gateway.kill()
    gateway.start()
    assert close_code(said_hello(gateway, captured)) == 300
    changed = bytearray(captured)
    changed[-1] ^= 1
    assert close_code(said_hello(gateway, bytes(changed))) == 401


def test_clocks_far_off(calm, new_device):
    device = new_device(calm)
    now = int(time.time() * 1000)
    watch = Watch(calm)
    for stamp in (0, 1, now - 3_600_000, now + 3_600_000, 2**63 - 1, 2**63, 2**64 - 1):
        assert close_code(said_hello(calm, hello_frame(calm, device, timestamp=stamp))) == 300, stamp
    assert watch.closed("clockSkew") == 7
    assert device.ping().nonce == 1


@pytest.mark.parametrize("offset", [3_600_000, -3_600_000, 2**62])
def test_a_registration_with_a_clock_far_off_is_corrected_and_goes_through(calm, offset):
    stamp = int(time.time() * 1000) + offset
    registration = pb.Hello(app_id=calm.app["appId"], registration=True, timestamp=stamp)
    connection = said_hello(calm, prove(registration, calm.app["appSecret"].encode()))
    with pytest.raises(Closed) as refused:
        connection.receive(pb.Welcome)
    connection.close()
    assert refused.value.code == 300
    assert abs(refused.value.close.server_time - time.time() * 1000) < 60_000
    device = Device("127.0.0.1", calm.device, calm.app["appId"])
    device.state.timestamp = device.state.accepted
    device.state.offset = refused.value.close.server_time - int(time.time() * 1000)
    generation = device.register(calm.app["appSecret"]).generation
    assert device.connect().generation > generation
    device.close()


def test_a_captured_registration_or_sender_hello_is_taken_once(own_gateway):
    gateway = own_gateway(limits=CALM)
    stamp = int(time.time() * 1000)
    registration = prove(
        pb.Hello(app_id=gateway.app["appId"], registration=True, timestamp=stamp), gateway.app["appSecret"].encode())
    sender = prove(
        pb.Hello(app_id=gateway.app["appId"], role=pb.ROLE_SENDER, timestamp=stamp, nonce=b"12345678"),
        gateway.app["masterSecret"].encode())
    for captured, port in ((registration, gateway.device), (sender, gateway.senders)):
        first = Connection("127.0.0.1", port)
        first.socket.sendall(captured)
        first.receive(pb.Welcome)
        again = Connection("127.0.0.1", port)
        again.socket.sendall(captured)
        assert close_code(again) == 300
        first.close()
    # The process that accepted them is gone, and they precede the start of the next one.
    gateway.kill()
    gateway.start()
    for captured, port in ((registration, gateway.device), (sender, gateway.senders)):
        again = Connection("127.0.0.1", port)
        again.socket.sendall(captured)
        assert close_code(again) == 300
    Sender("127.0.0.1", gateway.senders, gateway.app["appId"], gateway.app["masterSecret"]).close()


FLOODS = {
    "pings": encode(pb.Ping(nonce=1)), "updates": encode(pb.DeviceUpdate(request=1, badge=1)),
    "states": encode(pb.DeviceUpdate(request=1, application_state=pb.BACKGROUND)),
    "upstreams": encode(pb.Upstream(request=1, payload=b"x" * 100)),
    "pongs": encode(pb.Pong(nonce=1)),
    "tokens": encode(pb.DeviceUpdate(request=1, tokens=[pb.VendorToken(token="ab" * 32)])),
    "acks": frame(pb.ACK, b""),
    "feedback": encode(pb.Feedback(kind=pb.Feedback.SHOWN, msg_id=b"\x01" * 16)),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_floods_are_closed(calm, new_device, kind):
    device = new_device(calm)
    with besieged(calm, new_device) as watch:
        count = {"feedback": 10_050, "acks": 10_050, "tokens": 150}.get(kind, 1_050)
        assert code_after(device.connection, FLOODS[kind] * count) == 414
        assert watch.closed("protocol") == 1


def test_feedback_for_its_own_message_over_and_over(calm, new_device):
    device = new_device(calm)
    with besieged(calm, new_device):
        message = calm.push(device.cid, "x")
        shown = encode(pb.Feedback(kind=pb.Feedback.SHOWN, msg_id=bytes.fromhex(message["msgId"])))
        device.receive()
        device.connection.socket.sendall(shown * 2_000)
        assert device.ping().nonce == 1
        assert len(calm.trace(message["msgId"])["steps"]) <= 64, "its trace is bounded"


def test_hundreds_of_thousands_of_tiny_frames_in_one_write(calm, new_device):
    device, acker = new_device(calm), new_device(calm)
    with besieged(calm, new_device) as watch:
        for one, kind in ((device, pb.PONG), (acker, pb.ACK)):
            one.connection.socket.settimeout(60)
            assert code_after(one.connection, frame(kind, b"") * 1_000_000) in (414, None)
        assert watch.closed("protocol") == 2
        for data in (b"\x00" * 100_000, b"\xff" * 100_000, frame(pb.PONG, b"") * 25_000):
            assert close_code(said_hello(calm, data)) in (410, 411, None)


def repeated(kind):
    """Returns a body full of valid repeated fields, if this message has any."""
    if kind == pb.HELLO:
        return pb.Hello(positions=[pb.StreamPosition(stream=n) for n in range(9_000)]).SerializeToString()[:BODY_LIMIT]
    if kind == pb.ACK:
        return pb.Ack(rejected=[pb.Rejected(sequence=n) for n in range(9_000)]).SerializeToString()[:BODY_LIMIT]
    if kind == pb.DEVICE_UPDATE:
        return pb.DeviceUpdate(tokens=[pb.VendorToken(token="ab")] * 9_000).SerializeToString()[:BODY_LIMIT]
    if kind == pb.WELCOME:
        return pb.Welcome(dropped=[pb.Dropped(reason="expired", count=1)] * 5_000).SerializeToString()[:BODY_LIMIT]
    # One scalar repeated: the last one counts.
    return (b"\x08" + varint(2**32 - 1)) * (BODY_LIMIT // 6)


MAXIMAL = {
    "unknown field": lambda kind: filler(BODY_LIMIT),
    "unknown fields": lambda kind: filler(16) * (BODY_LIMIT // 16),
    "repeated fields": repeated,
    "nesting in a known field": lambda kind: nested(9_000, 1)[:BODY_LIMIT],
    "nesting in an unknown field": lambda kind: nested(9_000, 200)[:BODY_LIMIT],
    "groups": lambda kind: b"\x0b" * BODY_LIMIT,
    "long varints": lambda kind: b"\xff" * BODY_LIMIT,
}
FROM_GATEWAY_ONLY = (pb.WELCOME, pb.DELIVER, pb.UPDATE_RESULT, pb.REVOKE, pb.UPSTREAM_RESULT, pb.PUBLISH_RESULT,
                     pb.DEVICE_NAMES_RESULT)


@pytest.mark.parametrize("shape", MAXIMAL)
def test_maximal_frames_of_every_type(calm, new_device, shape):
    device = new_device(calm)
    fine = {410, 411, 412, 413, 414, 100}
    with besieged(calm, new_device, count=1):
        for kind in range(1, 18):
            data = frame(kind, MAXIMAL[shape](kind))
            assert len(data) <= BODY_LIMIT + 4
            connection = session(calm, device)
            connection.socket.sendall(data)
            if survives(connection):
                assert kind not in FROM_GATEWAY_ONLY + (pb.HELLO, pb.PUBLISH)
            connection.close()
            assert close_code(said_hello(calm, data)) in fine | {402, 404, 401, 103}, "before a Hello"
            sender = Sender("127.0.0.1", calm.senders, calm.app["appId"], calm.app["masterSecret"])
            sender.connection.socket.sendall(data)
            sender.connection.socket.sendall(encode(pb.Ping(nonce=77)))
            while True:
                try:
                    answer = sender.connection.frame(timeout=20)
                except Closed:
                    break
                if isinstance(answer, pb.Pong):
                    assert kind in (pb.PING, pb.PONG, pb.PUBLISH)
                    break
                if isinstance(answer, pb.Close):
                    assert answer.code in fine
                    break
            sender.close()
        # One byte more than the limit, of every type.
        for kind in range(1, 16):
            connection = session(calm, device)
            assert code_after(connection, struct.pack(">I", kind << 24 | BODY_LIMIT + 1)) == 411


@pytest.mark.parametrize("kind", FROM_GATEWAY_ONLY + (pb.PUBLISH, pb.HELLO, 0, 18, 255))
def test_frames_that_are_not_a_devices(calm, new_device, kind):
    device = new_device(calm)
    watch = Watch(calm)
    assert code_after(device.connection, frame(kind, b"")) == 410
    assert watch.closed("protocol") == 1


def test_storms_of_connects_and_resets(calm, new_device):
    device = new_device(calm)
    device.close()
    chance = random.Random(1)
    with besieged(calm, new_device) as watch:
        for number in range(2_000):
            one = raw(calm.device if number % 4 else calm.senders)
            if number % 2:
                one.sendall(hello_frame(calm, device)[: chance.randrange(1, 120)])
            if chance.random() < 0.9:
                reset(one)
            else:
                one.close()
        for _ in range(200):
            # A complete Hello, and a disconnect before its Welcome.
            reset(raw(calm.device, hello_frame(calm, device, timestamp=int(time.time() * 1000))))
        eventually(
            lambda: watch.metrics()[DEVICES] <= watch.counts[DEVICES] + 4,
            "the end of the storm", timeout=40)
        assert watch.grown("longwire_connections_accepted_total", listener="device") >= 1_500
    device.state.timestamp = int(time.time() * 1000) + 1_000
    assert device.connect().generation > 0


def test_a_faulty_vendor_token_is_refused_alone_and_the_session_lives_on(calm, new_device):
    device = new_device(calm, token="ab" * 32)
    for bad in ({"token": "ab\0cd"}, {"token": " "}, {"token": "ab", "topic": "com.example\x00"}, {"token": "é"},
                {"token": "a" * 1025}, {"token": "ab", "activity": "a" * 65}):
        tokens = [pb.VendorToken(**bad)]
        assert device.update(tokens=tokens).reason.startswith("1 refused: ")
        device.connect(tokens=tokens)
        assert calm.push(device.cid, "still here")["channel"] == "live"
        assert device.receive_and_ack(1)[0].payload == b"still here"
    assert [one["token"] for one in calm.view(device.cid)["tokens"]] == ["ab" * 4 + "…"]
    assert "tokenRefused" in calm.log()


@pytest.mark.parametrize("text", ["abdd1122 " * 8, "<" + "abdd1122 " * 8 + ">", "abdd1122\r\n" * 8])
def test_a_vendor_token_with_blanks_counts_without_them(calm, new_device, text):
    device = new_device(calm)
    result = device.update(tokens=[pb.VendorToken(token=text)])
    assert (result.code, result.reason) == (0, "")
    device.close()
    eventually(lambda: not calm.view(device.cid)["connected"])
    calm.push(device.cid, "x", alert="A")
    job = calm.lease(wait=5)[0]
    assert job["deviceToken"] == "abdd1122" * 8
    calm.settle(job, "accepted")
    assert device.connect(tokens=[pb.VendorToken(token=text)]).generation > 1


# The senders' listener


def test_half_done_senders_and_wrong_proofs(calm, new_device):
    with besieged(calm, new_device) as watch:
        storm = [raw(calm.senders, b"\x01\x00"[: number % 3]) for number in range(1_000)]
        wrong = pb.Hello(app_id=calm.app["appId"], role=pb.ROLE_SENDER, timestamp=int(time.time() * 1000))
        for _ in range(50):
            assert close_code(said_hello(calm, prove(wrong, b"a guess"), port=calm.senders)) == 401
        assert watch.closed("authentication") == 50
        eventually(lambda: watch.closed("helloTimeout") >= 900, "the end of the storm", timeout=40)
        for one in storm:
            one.close()


def test_a_sender_that_never_reads_its_results(calm, new_device):
    device = new_device(calm)
    with besieged(calm, new_device) as watch:
        sender = Sender("127.0.0.1", calm.senders, calm.app["appId"], calm.app["masterSecret"])
        sender.connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        sender.connection.socket.settimeout(1)
        unknown = encode(pb.Publish(request=1, cid=b"\x01" * 16, payload=b"x"))
        refused = encode(pb.Publish(request=1, cid=device.state.cid, payload=b"x", collapse_key="k" * 65))
        try:
            # Each answer has some sixty bytes that the client does not read, far more in total than sockets and outbox hold.
            for _ in range(300):
                sender.connection.socket.sendall((unknown + refused * 4) * 200)
        except OSError:
            pass  # the gateway reads no more, or has closed the connection
        sender.close()
        assert watch.grown("longwire_publishes_refused_total", reason="invalid") > 1_000
