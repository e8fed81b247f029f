"""The main use case: live, offline with a handoff job, and the reconnect."""

import base64
import json
import subprocess
import sys

import pytest
from conftest import HERE
from gateway import HANDOFF_TOKEN, Refused, eventually
from longwire_client import Closed, pb


def test_whole_story(gateway, new_device):
    device = new_device(gateway, token="ab" * 32)

    # Online: sent at once, acked, delivered.
    live = gateway.push(device.cid, "one", alert="Hello")
    assert (live["status"], live["channel"], live["fallback"]) == ("successed_online", "live", "armed")
    assert live["answer"]["longwire"]["durability"] == "fsync"
    message = device.receive()
    assert (message.payload, message.offline, message.msg_id.hex()) == (b"one", False, live["msgId"])
    assert message.alert.title == "Hello"
    device.ack(message.sequence)
    trace = gateway.ends_as(live["msgId"], "delivered")
    assert [step["event"] for step in trace["steps"]][:2] == ["accepted", "sent"]

    # Offline: queued, and due for the vendor at once.
    device.close()
    eventually(lambda: not gateway.view(device.cid)["connected"], "the device as absent")
    away = [gateway.push(device.cid, text, alert=text) for text in ("two", "three", "four")]
    assert {(one["status"], one["channel"], one["fallback"]) for one in away} == {
        ("successed_offline", "queued", "due")
    }
    assert gateway.view(device.cid)["queue"]["messages"] == 3
    jobs = gateway.lease(wait=5)
    assert [job["msgId"] for job in jobs] == [one["msgId"] for one in away]
    for job in jobs:
        assert (job["deviceToken"], job["topic"], job["environment"]) == ("ab" * 32, "com.example.demo", "production")
        assert job["apnsId"].replace("-", "") == job["msgId"]
        assert job["body"]["aps"]["alert"]["title"] in ("two", "three", "four")
        assert gateway.settle(job, "accepted", vendorId="v") == "recorded"
        assert gateway.settle(job, "accepted", vendorId="v") == "recorded", "a result may be repeated"

    # Reconnected by a tap on the second one: the others arrive in order, flagged, with the time of the alert.
    welcome = device.connect(opened=[bytes.fromhex(away[1]["msgId"])])
    assert welcome.backlog == 2
    back = device.receive_and_ack(2)
    assert [one.payload for one in back] == [b"two", b"four"]
    assert all(one.offline and one.alerted_at > 0 for one in back)
    assert back[0].sequence < back[1].sequence
    gateway.ends_as(away[0]["msgId"], "deliveredOffline")
    gateway.ends_as(away[1]["msgId"], "opened")
    gateway.ends_as(away[2]["msgId"], "deliveredOffline")
    assert gateway.view(device.cid)["queue"]["messages"] == 0

    # Connected again: acked and opened messages are never sent again.
    assert device.connect().backlog == 0
    last = gateway.push(device.cid, "five")
    assert [one.payload for one in device.receive_and_ack(1)] == [b"five"]
    gateway.ends_as(last["msgId"], "delivered")


def test_python_sender_leases_and_settles(gateway, new_device):
    device = new_device(gateway, token="cd" * 32)
    device.close()
    eventually(lambda: not gateway.view(device.cid)["connected"])
    message = gateway.push(device.cid, "x", alert="Ding")
    words = [sys.executable, str(HERE / "parties/sender.py"), f"http://127.0.0.1:{gateway.admin}", HANDOFF_TOKEN, "--once"]
    output = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    assert [json.loads(line)["msgId"] for line in output.splitlines()] == [message["msgId"]]
    assert "vendorAccepted" in gateway.steps(message["msgId"])


def test_device_view_and_status(gateway, new_device):
    device = new_device(gateway, token="ef" * 32, badge=7)
    view = gateway.view(device.cid)
    assert view["connected"] and view["reachable"] and view["state"] == "foreground"
    assert view["badge"] == 7
    assert view["tokens"][0]["token"].startswith("efefefef") and "ef" * 32 not in json.dumps(view)
    status = gateway.api("GET", f"user/status/{device.cid}")["data"][device.cid]
    assert status["status"] == "online" and status["last_login_time"].isdigit()
    device.update(application_state=pb.BACKGROUND)
    assert gateway.view(device.cid)["state"] == "background"
    assert gateway.api("GET", f"user/status/{device.cid}")["data"][device.cid]["status"] == "offline"
    with pytest.raises(Refused) as refused:
        gateway.view("0" * 32)
    assert refused.value.status == 404


def test_background_counts_as_offline_and_return_resends_flagged(gateway, new_device):
    device = new_device(gateway, token="12" * 32)
    first = gateway.push(device.cid, "shown", alert="A")
    device.receive()  # read, not acked, then the app is frozen
    device.update(application_state=pb.BACKGROUND)
    job = gateway.lease(wait=5)[0]
    assert job["msgId"] == first["msgId"], "leaving makes the un-acked message's job due at once"
    gateway.settle(job, "accepted")
    second = gateway.push(device.cid, "queued", alert="B")
    assert second["channel"] == "queued"
    device.update(application_state=pb.FOREGROUND)
    back = device.receive_and_ack(2)
    assert [(one.payload, one.offline) for one in back] == [(b"shown", True), (b"queued", True)]
    assert back[0].alerted_at > 0 and back[1].alerted_at == 0


def test_live_attempt_that_times_out_falls_back_and_stays(gateway, new_device):
    device = new_device(gateway, token="34" * 32)
    message = gateway.push(device.cid, "slow", alert="A")
    delivered = device.receive()
    job = gateway.lease(wait=10)[0]
    assert job["msgId"] == message["msgId"]
    gateway.settle(job, "accepted")
    device.ack(delivered.sequence)
    gateway.ends_as(message["msgId"], "deliveredOffline")
    assert "timedOut" in gateway.steps(message["msgId"])


def test_newest_session_wins(gateway, new_device):
    device = new_device(gateway)
    old, device.connection = device.connection, None
    assert device.connect().generation > 0
    with pytest.raises(Closed) as closed:
        old.receive(pb.Deliver)
    assert closed.value.code == 400
    old.close()
    gateway.push(device.cid, "to the new one")
    assert device.receive_and_ack(1)[0].payload == b"to the new one"


def test_payload_is_kept_verbatim(gateway, new_device):
    device = new_device(gateway)
    for payload in ("漢字 🙂 \u0000 \" \\ / \n", json.dumps({"a": [1, None]}), base64.b64encode(bytes(range(256))).decode()):
        gateway.push(device.cid, payload)
        assert device.receive_and_ack(1)[0].payload == payload.encode()


def test_restart_keeps_queue_order_jobs_and_traces(own_gateway, new_device):
    gateway = own_gateway()
    device = new_device(gateway, token="56" * 32)
    done = gateway.push(device.cid, "before")
    device.receive_and_ack(1)
    gateway.ends_as(done["msgId"], "delivered")
    device.close()
    eventually(lambda: not gateway.view(device.cid)["connected"])
    kept = [gateway.push(device.cid, f"kept {number}", alert="K") for number in range(40)]
    assert gateway.stop() == 0
    gateway.start()
    assert gateway.trace(done["msgId"])["state"] == "delivered"
    assert {job["msgId"] for job in gateway.lease(wait=5)} == {one["msgId"] for one in kept}
    assert device.connect().backlog == 40
    assert [one.payload.decode() for one in device.receive_and_ack(40)] == [f"kept {number}" for number in range(40)]


def test_sigterm_tells_devices_to_come_back_and_ends_with_0(own_gateway, new_device):
    gateway = own_gateway()
    device = new_device(gateway)
    gateway.process.terminate()
    with pytest.raises(Closed) as closed:
        device.receive()
    assert closed.value.code == 200
    assert closed.value.close.retry_after_max_ms > 0
    assert gateway.process.wait(20) == 0
