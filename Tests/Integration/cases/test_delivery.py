"""Acks, windows, TTL, collapse, overflow, request ids and batches from the view of a device and a publisher."""

import threading
import time
import uuid

import pytest
from gateway import Refused, eventually
from longwire_client import pb


def test_ranges_settle_what_they_name_and_nothing_else(gateway, new_device):
    device = new_device(gateway)
    sent = [gateway.push(device.cid, str(number)) for number in range(5)]
    got = [device.receive() for _ in range(5)]
    numbers = [one.sequence for one in got]
    assert numbers == sorted(set(numbers))
    # 0 cumulatively, then 2 and 4 as ranges.
    device.ack(numbers[0], ranges=[(numbers[2], numbers[2]), (numbers[4], numbers[4])])
    for index in (0, 2, 4):
        gateway.ends_as(sent[index]["msgId"], "delivered")
    assert [gateway.trace(sent[index]["msgId"])["state"] for index in (1, 3)] == ["pending", "pending"]
    device.connect()
    assert [one.payload for one in device.receive_and_ack(2)] == [b"1", b"3"]


def test_position_in_hello_settles_what_a_lost_ack_meant(gateway, new_device):
    device = new_device(gateway)
    message = gateway.push(device.cid, "x")
    device.state.positions[0] = device.receive().sequence  # processed and remembered; the ack was never sent
    device.close()
    assert device.connect().backlog == 0
    gateway.ends_as(message["msgId"], "delivered")
    gateway.push(device.cid, "y")
    assert device.receive_and_ack(1)[0].payload == b"y"


def test_a_rejected_message_fails_and_frees_the_window(gateway, new_device):
    device = new_device(gateway, window=1)
    poison, good = gateway.push(device.cid, "poison"), gateway.push(device.cid, "good")
    device.reject(device.receive().sequence, "cannot read it")
    assert device.receive().payload == b"good"
    trace = gateway.ends_as(poison["msgId"], "failed")
    assert "rejectedByClient" in trace["reason"]
    assert gateway.trace(good["msgId"])["state"] == "pending"


def test_window_holds_back_and_acks_open_it(gateway, new_device):
    device = new_device(gateway, window=3)
    assert device.welcome.window == 3
    for number in range(7):
        gateway.push(device.cid, str(number))
    for number in range(3):
        assert device.receive().payload == str(number).encode()
    with pytest.raises(TimeoutError):
        device.receive(timeout=0.2)
    # Whether suspect or not, each ack lets the next messages through in order.
    first = device.welcome and gateway.view(device.cid)["queue"]["nextSequence"] - 7
    device.ack(first + 2)
    assert device.receive().payload == b"3"


def test_order_holds_while_two_publishers_write(gateway, new_device):
    device = new_device(gateway)
    gateway.push(device.cid, "warm up")
    device.receive_and_ack(1)

    def publish(name):
        for number in range(50):
            gateway.push(device.cid, f"{name} {number}")

    writers = [threading.Thread(target=publish, args=(name,)) for name in "ab"]
    for writer in writers:
        writer.start()
    got = device.receive_and_ack(100)
    for writer in writers:
        writer.join()
    for name in "ab":
        own = [one.payload.decode() for one in got if one.payload.decode().startswith(name)]
        assert own == [f"{name} {number}" for number in range(50)], "each publisher's own order is kept"
    assert [one.sequence for one in got] == sorted({one.sequence for one in got})


def test_ttl_ends_a_queued_message_and_welcome_counts_it(gateway, new_device):
    device = new_device(gateway)
    device.close()
    eventually(lambda: not gateway.view(device.cid)["connected"])
    short, long = gateway.push(device.cid, "short", ttl=300), gateway.push(device.cid, "long", ttl=60_000)
    gateway.ends_as(short["msgId"], "expired")
    welcome = device.connect()
    assert {one.reason: one.count for one in welcome.dropped} == {"expired": 1}
    assert [one.payload for one in device.receive_and_ack(1)] == [b"long"]
    gateway.ends_as(long["msgId"], "deliveredOffline")


def test_ttl_zero_is_one_live_attempt(gateway, new_device):
    device = new_device(gateway, token="ab" * 32)
    live = gateway.push(device.cid, "now or never", ttl=0, alert="A")
    assert live["channel"] == "live" and live["fallback"] == "none"
    device.receive()
    gateway.ends_as(live["msgId"], "expired")
    assert gateway.lease() == []


@pytest.mark.parametrize("ttl", [0, -1])
def test_a_one_shot_message_is_acked_across_an_update(own_gateway, new_device, ttl):
    gateway = own_gateway(limits={"liveDeadlineMilliseconds": 30_000})
    device = new_device(gateway, token="ac" * 32)
    message = gateway.push(device.cid, "once", ttl=ttl, alert="A")["msgId"]
    sequence = device.receive().sequence
    device.update(application_state=pb.FOREGROUND)
    device.ack(sequence)
    gateway.ends_as(message, "delivered")
    assert gateway.lease() == []


def test_strategy_3_never_makes_a_job(gateway, new_device):
    device = new_device(gateway, token="cd" * 32)
    device.close()
    eventually(lambda: not gateway.view(device.cid)["connected"])
    message = gateway.push(device.cid, "x", strategy=3, alert="A")
    assert (message["fallback"], message["fallbackReason"]) == ("none", "strategy")
    assert gateway.lease() == []
    device.connect()
    assert device.receive_and_ack(1)[0].offline


def test_no_token_is_said(gateway, new_device):
    device = new_device(gateway)
    message = gateway.push(device.cid, "x", alert="A")
    assert (message["fallback"], message["fallbackReason"]) == ("none", "noToken")


def test_collapse_keeps_the_newest(gateway, new_device):
    device = new_device(gateway)
    device.close()
    eventually(lambda: not gateway.view(device.cid)["connected"])
    old = gateway.push(device.cid, "1:0", collapse_key="score")
    other = gateway.push(device.cid, "news")
    new = gateway.push(device.cid, "2:0", collapse_key="score")
    gateway.ends_as(old["msgId"], "collapsed")
    device.connect()
    got = device.receive_and_ack(2)
    assert [one.payload for one in got] == [b"news", b"2:0"]
    assert got[1].collapse_key == "score"
    gateway.ends_as(new["msgId"], "deliveredOffline")
    gateway.ends_as(other["msgId"], "deliveredOffline")


def test_overflow_refuses_by_name_or_drops_the_oldest(own_gateway, new_device):
    for policy in ("reject", "dropOldest"):
        gateway = own_gateway(app={"queue": {"messages": 3, "overflow": policy}})
        device = new_device(gateway)
        device.close()
        eventually(lambda: not gateway.view(device.cid)["connected"])
        sent = [gateway.push(device.cid, str(number)) for number in range(3)]
        if policy == "reject":
            with pytest.raises(Refused) as refused:
                gateway.push(device.cid, "3")
            assert refused.value.status == 403 and device.cid in refused.value.body["msg"]
            expected = [b"0", b"1", b"2"]
        else:
            gateway.push(device.cid, "3")
            gateway.ends_as(sent[0]["msgId"], "overflowed")
            expected = [b"1", b"2", b"3"]
        device.connect()
        assert [one.payload for one in device.receive_and_ack(3)] == expected


def test_a_request_id_counts_once_also_across_a_kill(own_gateway, new_device):
    gateway = own_gateway()
    device = new_device(gateway)
    name = uuid.uuid4().hex
    first = gateway.push(device.cid, "once", request_id=name)
    device.receive_and_ack(1)
    gateway.ends_as(first["msgId"], "delivered")
    again = gateway.push(device.cid, "once", request_id=name)
    assert (again["msgId"], again["taskId"], again["repeat"]) == (first["msgId"], first["taskId"], True)
    gateway.kill()
    gateway.start()
    assert gateway.push(device.cid, "once", request_id=name)["msgId"] == first["msgId"]
    with pytest.raises(Refused) as refused:
        gateway.push(device.cid, "another body", request_id=name)
    assert (refused.value.status, refused.value.body["code"]) == (400, 20001)
    assert device.connect().backlog == 0


def test_concurrent_copies_of_a_request_make_one_message(gateway, new_device):
    device = new_device(gateway)
    name = uuid.uuid4().hex
    ids, token = [], gateway.authenticate()

    def publish():
        body = gateway.push_body(device.cid, "once", request_id=name)
        while True:
            try:
                answer = gateway.call(
                    "POST", f"/v2/{gateway.app['appId']}/push/single/cid", body, headers={"token": token})
                break
            except Refused as refused:  # "the same request is under way": a retry gets its result
                assert refused.body["code"] == 30019
        ids.append(answer["longwire"]["messages"][0]["msgId"])

    callers = [threading.Thread(target=publish) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(20)
    assert len(ids) == 8 and len(set(ids)) == 1
    assert device.receive_and_ack(1)[0].payload == b"once"
    assert device.ping().nonce == 1, "and nothing besides"


def test_batch_reports_each_item(gateway, new_device):
    here, away = new_device(gateway), new_device(gateway)
    away.close()
    eventually(lambda: not gateway.view(away.cid)["connected"])
    bodies = [gateway.push_body(cid, f"to {cid}") for cid in (here.cid, "0" * 32, away.cid)]
    answer = gateway.api("POST", "push/single/batch/cid", {"is_async": False, "msg_list": bodies})
    words = {cid: word for task in answer["data"].values() for cid, word in task.items()}
    assert words == {here.cid: "successed_online", away.cid: "successed_offline"}
    assert [one["index"] for one in answer["longwire"]["refused"]] == [1]
    assert here.receive_and_ack(1)[0].payload == f"to {here.cid}".encode()
    quiet = gateway.api(
        "POST", "push/single/batch/cid", {"is_async": True, "msg_list": [gateway.push_body(here.cid, "quiet")]})
    assert quiet["code"] == 0 and "data" not in quiet
    assert here.receive_and_ack(1)[0].payload == b"quiet"
    with pytest.raises(Refused) as refused:
        gateway.api("POST", "push/single/batch/cid", {"msg_list": [gateway.push_body(here.cid, "x")] * 201})
    assert refused.value.body["code"] == 20001


def test_heartbeat_is_negotiated_and_pings_are_answered(gateway, new_device):
    assert new_device(gateway, heartbeat_seconds=5).welcome.heartbeat_seconds == 30
    assert new_device(gateway, heartbeat_seconds=99_999).welcome.heartbeat_seconds == 1_800
    device = new_device(gateway, heartbeat_seconds=100)
    assert device.welcome.heartbeat_seconds == 100
    assert device.update(heartbeat_seconds=60).heartbeat_seconds == 60
    assert device.ping(nonce=2**63).nonce == 2**63


def test_silence_closes(own_gateway, new_device):
    gateway = own_gateway(limits={"heartbeatMinimumSeconds": 1, "heartbeatDefaultSeconds": 30})
    begin = time.monotonic()
    device = new_device(gateway, heartbeat_seconds=1)
    close = None
    while close is None:
        frame = device.connection.frame(timeout=15)
        close = frame if isinstance(frame, pb.Close) else None
    assert close.code == 101
    assert time.monotonic() - begin > 1.2, "not before 1.5 times the heartbeat, give or take a tick"


def test_push_mode_off_queues_until_it_is_on(gateway, new_device):
    device = new_device(gateway, token="ab" * 32)
    device.update(push_mode_off=True)
    message = gateway.push(device.cid, "later", alert="A")
    assert message["channel"] == "queued"
    assert gateway.lease() == []
    assert device.ping().nonce == 1
    device.update(push_mode_off=False)
    assert device.receive_and_ack(1)[0].payload == b"later"


def test_an_ack_from_the_background_leaves_one_sent_step(gateway, new_device):
    device = new_device(gateway, token="ab" * 32)
    message = gateway.push(device.cid, "x", alert="A")
    sequence = device.receive().sequence
    device.update(application_state=pb.BACKGROUND)
    device.ack(sequence)
    gateway.ends_as(message["msgId"], "deliveredOffline")
    assert gateway.steps(message["msgId"]).count("sent") == 1


def test_metrics_add_up(own_gateway, new_device):
    gateway = own_gateway()
    device = new_device(gateway)
    for number in range(3):
        gateway.push(device.cid, str(number))
    device.receive_and_ack(3)
    eventually(lambda: gateway.view(device.cid)["queue"]["messages"] == 0)
    lines = [line for line in gateway.metrics().splitlines() if line and not line.startswith("#")]
    assert lines and all(len(line.rsplit(" ", 1)) == 2 for line in lines)
    text = gateway.metrics()
    assert gateway.app["appSecret"] not in text and gateway.app["masterSecret"] not in text
