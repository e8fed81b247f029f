"""Display receipts: reports of a service extension over HTTPS while its app does not run."""

import hashlib
import hmac
import json
import time

import pytest
from gateway import Refused, eventually


@pytest.fixture
def away(new_device):
    """Creates registered, disconnected devices, each with a token."""

    def make(gateway, token="ab" * 32, **fields):
        device = new_device(gateway, token=token, **fields)
        device.close()
        eventually(lambda: not gateway.view(device.cid)["connected"])
        return device

    return make


def event(message, kind="shown", **fields):
    return {"msgId": message["msgId"], "event": kind, **fields}


def body_of(device, *events, timestamp=None):
    cid = device.state.cid.hex()
    return json.dumps({"cid": cid, "timestamp": timestamp or int(time.time() * 1000), "events": events}).encode()


def prove(gateway, device, body):
    transcript = b"longwire receipt 1\0" + gateway.app["appId"].encode() + b"\0" + body
    return hmac.new(device.state.secret, transcript, hashlib.sha256).hexdigest()


def send(gateway, body, proof):
    path = f"/v2/{gateway.app['appId']}/receipt"
    return gateway.call("POST", path, raw=body, headers={"X-Longwire-Proof": proof} if proof else {})


def report(gateway, device, *events, **fields):
    """Returns the gateway's result for each event of an authenticated call."""
    body = body_of(device, *events, **fields)
    return send(gateway, body, prove(gateway, device, body))["data"]["results"]


def alerted(gateway, device, **fields):
    message = gateway.push(device.cid, "x", alert="A", **fields)
    assert gateway.settle(gateway.lease()[0], "accepted") == "recorded"
    return message


def numbers(gateway, message):
    return gateway.api("GET", f"report/push/task/{message['taskId']}")["data"][message["taskId"]]


def refusal(gateway, body, proof):
    with pytest.raises(Refused) as refused:
        send(gateway, body, proof)
    return refused.value


def test_a_dead_app_shows_and_it_counts_once_also_after_a_restart(own_gateway, away):
    gateway = own_gateway()
    device = away(gateway)
    message = alerted(gateway, device)
    shown_at = int(time.time() * 1000)
    body = body_of(device, event(message, at=shown_at), event(message, "action", action=90001))
    proof = prove(gateway, device, body)
    assert send(gateway, body, proof)["data"]["results"] == ["recorded", "recorded"]
    assert send(gateway, body, proof)["data"]["results"] == ["repeated", "repeated"], "a replay counts nothing"
    assert gateway.view(device.cid)["connected"] is False
    gateway.kill()
    gateway.start()
    assert send(gateway, body, proof)["data"]["results"] == ["repeated", "repeated"]
    counts = numbers(gateway, message)
    assert (counts["ios"]["display_num"], counts["total"]["display_num"]) == (1, 1)
    assert counts["actionCntMap"] == {"90001": 1}
    steps = [step for step in gateway.trace(message["msgId"])["steps"] if step["event"] == "shown"]
    assert len(steps) == 1
    assert 'longwire_receipt_events_total{result="repeated"} 2\n' in gateway.metrics()


def test_an_open_ends_the_message_and_the_app_does_not_get_it_again(gateway, away):
    device = away(gateway)
    message = alerted(gateway, device)
    assert report(gateway, device, event(message), event(message, "opened")) == ["recorded", "recorded"]
    assert gateway.ends_as(message["msgId"], "opened")
    assert report(gateway, device, event(message, "opened")) == ["repeated"]
    assert device.connect().backlog == 0


def test_strangers_learn_nothing(gateway, away):
    device, other = away(gateway), away(gateway, token="cd" * 32)
    message = alerted(gateway, device)
    body = body_of(device, event(message))
    proof = prove(gateway, device, body)
    wrong = refusal(gateway, body, prove(gateway, other, body))
    unknown = body.replace(device.state.cid.hex().encode(), b"0" * 32)
    assert (wrong.status, wrong.body["code"]) == (401, 30903)
    assert refusal(gateway, unknown, prove(gateway, device, unknown)).body == wrong.body
    assert refusal(gateway, body.replace(b"shown", b"opened"), proof).body == wrong.body, "the proof covers the body"
    assert refusal(gateway, body, None).body["code"] == 30903
    assert report(gateway, other, event(message)) == ["ignored"], "another device's message"
    assert "shown" not in gateway.steps(message["msgId"])


def test_a_wrong_clock_is_told_the_time_and_repeats_once(gateway, away):
    device = away(gateway)
    message = alerted(gateway, device)
    hour = 3_600_000
    body = body_of(device, event(message), timestamp=int(time.time() * 1000) - hour)
    skewed = refusal(gateway, body, prove(gateway, device, body))
    assert (skewed.status, skewed.body["code"]) == (403, 30904)
    offset = skewed.body["data"]["serverTime"] - (int(time.time() * 1000) - hour)
    assert report(gateway, device, event(message), timestamp=int(time.time() * 1000) - hour + offset) == ["recorded"]


def test_strangers_use_up_nothing_of_an_apps_receipts(own_gateway, away):
    gateway = own_gateway(app={"push": {"receiptsPerMinute": 3}})
    device, other = away(gateway), away(gateway, token="cd" * 32)
    message = alerted(gateway, device)
    for _ in range(12):
        body = body_of(device, event(message))
        assert refusal(gateway, body, prove(gateway, other, body)).body["code"] == 30903
    assert report(gateway, device, event(message)) == ["recorded"]


def test_an_alert_whose_open_comes_first_is_shown_once(own_gateway, away):
    gateway = own_gateway()
    device = away(gateway)
    message = alerted(gateway, device)
    assert report(gateway, device, event(message, "opened")) == ["recorded"]
    assert report(gateway, device, event(message)) == ["repeated"], "an open says that it was shown"
    counts = numbers(gateway, message)
    assert (counts["total"]["display_num"], counts["total"]["click_num"]) == (1, 1)


def test_an_apps_receipts_of_a_minute_are_bounded(own_gateway, away):
    gateway = own_gateway(app={"push": {"receiptsPerMinute": 2}})
    device = away(gateway)
    message = alerted(gateway, device)

    def is_refused():
        body = body_of(device, event(message))
        try:
            send(gateway, body, prove(gateway, device, body))
        except Refused as refused:
            return refused.body["code"] == 10005
        return False

    # The minute may change in between, once.
    assert any(is_refused() for _ in range(5))
