"""The content of an APNs body: the transmission, the publisher's own keys, and the additions of the app's template."""

import json

import pytest
from apple import FakeApple, Sender
from gateway import Refused, eventually
from longwire_client import Closed, pb
from longwire_client import Sender as NativeSender
from test_bounds import reload


@pytest.fixture
def absent(new_device):
    """Creates registered, disconnected devices, each with a token."""

    def make(gateway, token="ab" * 32):
        device = new_device(gateway, token=token)
        device.token = token
        device.close()
        eventually(lambda: not gateway.view(device.cid)["connected"])
        return device

    return make


def push(gateway, cid, transmission, ios, request_id):
    body = gateway.push_body(cid, transmission, request_id=request_id)
    body["push_channel"] = {"ios": ios}
    return gateway.api("POST", "push/single/cid", body)["longwire"]


def body_of(job):
    return json.loads(job["body"]) if isinstance(job["body"], str) else job["body"]


def test_the_phone_gets_the_transmission_and_the_publishers_keys(own_gateway, absent):
    gateway = own_gateway()
    device = absent(gateway)
    with FakeApple() as apple, Sender(gateway, apple):
        ios = {"aps": {"alert": "Hello"}, "jump": {"page": "order", "id": 7}}
        answer = push(gateway, device.cid, '{"order":7}', ios, "body-00000001")
        assert answer["topLevelKeys"] == ["push_channel.ios.jump"] and "idsOnly" not in answer
        phone = eventually(lambda: apple.phones().get(device.token))
        seen = apple.tap(device.token, phone["shown"][0]["id"])["userInfo"]
        assert seen["payload"] == '{"order":7}' and seen["jump"] == {"page": "order", "id": 7}
        assert answer["messages"][0]["msgId"] in seen["_gmid_"]


def test_what_does_not_fit_is_said_and_comes_over_the_connection(own_gateway, new_device, absent):
    gateway = own_gateway(app={"push": {"transmissionCharacters": 8_192}})
    device = absent(gateway)
    large = "x" * 5_000
    assert push(gateway, device.cid, large, {"aps": {"alert": "A"}}, "body-00000002")["idsOnly"] == [0]
    batch = [gateway.push_body(device.cid, text, alert="B") for text in ("small", large)]
    answer = gateway.api("POST", "push/single/batch/cid", {"msg_list": batch})
    assert answer["longwire"]["idsOnly"] == [1]
    jobs = gateway.lease()
    assert ["payload" in body_of(job) for job in jobs] == [False, True, False]
    device.connect()
    assert [message.payload.decode() for message in device.receive_and_ack(3)] == [large, "small", large]


LONG = "x" * 3_000
LONG_ALERT = {"aps": {"alert": {"title": "A", "body": "a" * 1_500}}}


def test_a_tap_leaves_what_the_alert_did_not_carry(own_gateway, absent):
    gateway = own_gateway()
    device = absent(gateway)
    pushes = [
        push(gateway, device.cid, LONG, LONG_ALERT, "tap-0000000001"),
        push(gateway, device.cid, "other", {"aps": {"alert": "A"}, "payload": "own"}, "tap-0000000002"),
        push(gateway, device.cid, "whole", {"aps": {"alert": "A"}}, "tap-0000000003"),
    ]
    long, other, whole = (answer["messages"][0]["msgId"] for answer in pushes)
    for job in gateway.lease():
        assert gateway.settle(job, "accepted") == "recorded"
    device.connect(opened=[bytes.fromhex(message) for message in (long, other, whole)])
    got = device.receive_and_ack(2)
    assert [(one.payload.decode(), one.offline, one.alerted_at > 0) for one in got] == [
        (LONG, True, True), ("other", True, True)]
    gateway.ends_as(whole, "opened")
    for message in (long, other):
        gateway.ends_as(message, "deliveredOffline")
        assert "opened" in gateway.steps(message)


def test_the_template_may_leave_the_transmission_to_the_connection(own_gateway, absent):
    gateway = own_gateway(app={"apns": {"topic": "com.example.app", "template": {"transmission": "none"}}})
    device = absent(gateway)
    message = push(gateway, device.cid, "secret", {"aps": {"alert": "A"}}, "tap-0000000004")["messages"][0]["msgId"]
    assert gateway.settle(gateway.lease()[0], "accepted") == "recorded"
    device.connect(application_state=pb.BACKGROUND)
    device.feedback(bytes.fromhex(message))
    eventually(lambda: "opened" in gateway.steps(message))
    device.update(application_state=pb.FOREGROUND)
    assert device.receive_and_ack(1)[0].payload == b"secret"


def test_what_only_apns_would_carry_is_refused_unless_all_of_it_fits(own_gateway, absent):
    gateway = own_gateway()
    device = absent(gateway)
    audience = {"audience": {"cid": [device.cid]}, "request_id": "refused-000001"}
    content = {"push_message": {"transmission": LONG}, "push_channel": {"ios": LONG_ALERT}}
    for strategy, ttl in ((2, 60_000), (4, 0), (4, -1)):
        settings = {"strategy": {"ios": strategy}, "ttl": ttl}
        for path, rest in (("single/cid", audience), ("list/message", {}), ("all", {**audience, "audience": "all"})):
            with pytest.raises(Refused) as refused:
                gateway.api("POST", f"push/{path}", {**rest, **content, "settings": settings})
            answer = refused.value.body
            assert answer["code"] == 20001 and "strategy is invalid" in answer["msg"] and "too large" in answer["msg"]
    assert gateway.push(device.cid, "fits", strategy=2, alert="A")["status"] == "successed_offline"


def test_strategy_4_keeps_for_the_connection_what_the_alert_did_not_carry(own_gateway, absent):
    gateway = own_gateway()
    device = absent(gateway)
    content = {
        "push_message": {"transmission": LONG}, "push_channel": {"ios": LONG_ALERT},
        "settings": {"strategy": {"ios": 4}}}
    single = {**content, "request_id": "four-0000000001", "audience": {"cid": [device.cid]}}
    gateway.api("POST", "push/single/cid", single)
    task = gateway.api("POST", "push/list/message", content)["data"]["taskid"]
    gateway.api("POST", "push/list/cid", {"taskid": task, "audience": {"cid": [device.cid]}})
    gateway.api("POST", "push/all", {**single, "request_id": "four-0000000002", "audience": "all"})
    jobs = []
    eventually(lambda: jobs.extend(gateway.lease()) or len(jobs) == 3)
    for job in jobs:
        assert gateway.settle(job, "accepted") == "recorded"
    device.connect()
    got = device.receive_and_ack(3)
    assert {one.payload.decode() for one in got} == {LONG}
    assert all(one.offline and one.alerted_at > 0 for one in got)
    for job in jobs:
        gateway.ends_as(job["msgId"], "deliveredOffline")


def test_the_template_shapes_native_alerts_and_a_reload_changes_it(own_gateway, absent):
    gateway = own_gateway()
    device = absent(gateway)
    sender = NativeSender("127.0.0.1", gateway.senders, gateway.app["appId"], gateway.app["masterSecret"])
    try:
        fields = {"cid": device.state.cid, "alert": {"title": "T", "body": "B"}}
        text, binary, silent = sender.publish(
            [{**fields, "payload": b"hi"}, {**fields, "payload": b"\xff"}, {"cid": device.state.cid, "payload": b"s"}])
        assert (text.ids_only, binary.ids_only) == (False, True)
        assert silent.fallback_reason == "noContent"
        first, second = map(body_of, gateway.lease())
        assert first["aps"] == {"alert": {"title": "T", "body": "B"}, "sound": "default"} and first["payload"] == "hi"
        assert "payload" not in second
        gateway.app["apns"]["template"] = {
            "transmission": "members", "sound": "", "badge": "+1", "mutableContent": True, "wake": True
        }
        reload(gateway)
        sender.publish([{**fields, "payload": b'{"order":7,"aps":1}'}, {"cid": device.state.cid, "payload": b"s"}])
        third, fourth = gateway.lease()
        assert body_of(third)["aps"] == {"alert": {"title": "T", "body": "B"}, "mutable-content": 1, "badge": 1}
        assert body_of(third)["order"] == 7
        assert body_of(fourth)["aps"] == {"content-available": 1}
        assert (fourth["pushType"], fourth["priority"]) == ("background", 5)
        # A sender of a removed app gets a Close with the reason.
        gateway.app["appId"] = "another"
        reload(gateway)
        with pytest.raises(Closed) as closed:
            sender.connection.receive(pb.PublishResult)
        assert closed.value.code == 402
    finally:
        sender.close()


def test_a_device_says_why_the_vendor_did_not_take_its_last_message(own_gateway, absent):
    gateway = own_gateway()
    device = absent(gateway)
    view = gateway.view(device.cid)
    assert view["fallback"] == "available" and "vendorFailure" not in view
    message = gateway.push(device.cid, "x", alert="A")["msgId"]
    assert gateway.settle(gateway.lease()[0], "badToken", reason="Unregistered") == "recorded"
    view = gateway.view(device.cid)
    assert (view["fallback"], view["fallbackReason"]) == ("none", "tokenQuarantined")
    failure = view["vendorFailure"]
    assert (failure["msgId"], failure["outcome"], failure["attempts"]) == (message, "badToken", 1)
    assert failure["reason"] == "Unregistered"
    trace = gateway.trace(message)
    assert (trace["attempts"], trace["vendorReason"]) == (1, "Unregistered")
    gateway.kill()
    gateway.start()
    assert gateway.view(device.cid)["vendorFailure"] == failure
