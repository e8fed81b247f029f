"""Inputs of the maximum size of one layer are refused or processed by the layers below, and the process keeps running."""

import json
import os
import signal

import pytest
from conftest import QUICK
from gateway import TIMEOUT, Refused, eventually
from longwire_client import Sender


@pytest.fixture
def gateway(own_gateway):
    """Runs a gateway with the smallest journal and the largest frames that can be configured."""
    limits = {**QUICK, "journalBytes": 16 << 20, "frameBytes": 131_072, "outboxBytes": 1 << 20}
    queue = {"messages": 30_000, "bytes": 1 << 30, "overflow": "dropOldest"}
    one = own_gateway(limits=limits, app={"queue": queue})
    yield one
    assert one.process.poll() is None, one.log()[-4_000:]
    assert "longwire_store_bound_breaches_total 0" in one.metrics()


def reload(gateway):
    before = gateway.call("GET", "/readyz")["configuration"]
    gateway.config.write_text(json.dumps(gateway.sections))
    gateway.process.send_signal(signal.SIGHUP)
    eventually(lambda: gateway.call("GET", "/readyz")["configuration"] == before + 1, "the reload")


def sender(gateway):
    return Sender("127.0.0.1", gateway.senders, gateway.app["appId"], gateway.app["masterSecret"])


def test_tag_conditions(gateway):
    conditions = [{"key": "custom_tag", "values": ["a"], "opt_type": "or"}]
    push = {"request_id": "bounds-000001", "push_message": {"transmission": "x"}}
    for path, body in (
        ("push/tag", {**push, "audience": {"tag": conditions * 15_000}}),
        ("user/count", {"tag": conditions * 20_000}),
    ):
        with pytest.raises(Refused) as refused:
            gateway.api("POST", path, body)
        assert (refused.value.status, refused.value.body["code"]) == (400, 20001)
        assert "tag size over limit, at most 100 conditions" in refused.value.body["msg"]
    assert gateway.api("POST", "push/tag", {**push, "audience": {"tag": conditions * 100}})["code"] == 0


def test_an_alert_beside_an_apns_object(gateway, new_device):
    device = new_device(gateway, token="aa" * 32)
    with_apns = {"cid": device.state.cid, "payload": b"x", "apns": b'{"aps":{"alert":"x"}}'}
    publisher = sender(gateway)
    results = publisher.publish([{**with_apns, "alert": {"body": "b" * count}} for count in (114_600, 4_096)])
    assert [result.code for result in results] == [65, 0], results
    assert "alert size over limit" in results[0].reason
    publisher.close()


def test_a_lowered_queue(gateway, new_device):
    device = new_device(gateway)
    cid = device.state.cid
    device.close()
    publisher = sender(gateway)
    left = 24_000
    while left > 0:
        results = publisher.publish([{"cid": cid, "payload": os.urandom(64)} for _ in range(min(left, 500))])
        left -= sum(result.code == 0 for result in results)
        assert {result.code for result in results} <= {0, 6}, "accepted, or busy for a moment"
    gateway.sections["apps"][0]["queue"]["messages"] = 1_000
    reload(gateway)
    assert publisher.publish([{"cid": cid, "payload": b"new"}], timeout=TIMEOUT)[0].code == 0
    assert gateway.view(cid.hex())["queue"]["messages"] == 1_000
    assert 'longwire_messages_ended_total{state="overflowed"} 23001' in gateway.metrics()
    publisher.close()
