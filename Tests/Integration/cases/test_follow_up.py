"""Follow-up channels: an SMS for a message that neither the connection nor a vendor has delivered in time."""

import json

import pytest
from gateway import HANDOFF_TOKEN, Refused, eventually
from longwire_client import pb

UPS = {"notification": {"title": "T", "body": "B", "click_type": "startapp"}}
CONTENT = {"template": "SHIPPED", "values": [7, "x"]}


def lease(gateway, channel, wait=0, seconds=30):
    body = {"channel": channel, "max": 100, "leaseSeconds": seconds, "waitSeconds": wait}
    return gateway.admin_call("POST", "/v1/handoff/lease", body, token=HANDOFF_TOKEN)["jobs"]


def body(gateway, cid, delay=1, channel="sms", **settings):
    body = gateway.push_body(cid, "x", **settings)
    body["push_channel"] = {"android": {"ups": UPS}, "custom": {channel: {"content": CONTENT, "delay": delay}}}
    return body


def push(gateway, cid, **fields):
    return gateway.api("POST", "push/single/cid", body(gateway, cid, **fields))["longwire"]["messages"][0]


@pytest.fixture
def away(new_device):
    def make(gateway, has_token=True):
        device = new_device(gateway)
        device.close()
        if has_token:
            device.connect(tokens=[pb.VendorToken(channel=1, token="f", topic="com.example.app")])
            device.close()
        eventually(lambda: not gateway.view(device.cid)["connected"])
        return device

    return make


@pytest.mark.parametrize("channel", ["sms", "mail", "voice", "custom"])
def test_a_device_without_a_token_is_followed_up(gateway, away, channel):
    device = away(gateway, has_token=False)
    message = push(gateway, device.cid, channel=channel)
    assert (message["fallback"], message["vendor"]) == ("due", channel)
    assert lease(gateway, channel) == []
    job, = lease(gateway, channel, wait=20)
    assert (job["channel"], job["msgId"], job["cid"]) == (channel, message["msgId"], device.cid)
    assert (job["body"], job["deviceToken"], job["attempt"]) == (CONTENT, "", 1)
    assert job["dueAt"] >= job["acceptedAt"] + 1_000
    assert gateway.settle(job, "accepted", vendorId="sms-1") == "recorded"
    assert {"leased", "vendorAccepted"} <= set(gateway.steps(message["msgId"]))
    figures = gateway.api("GET", f"report/push/task/{message['taskId']}")["data"][message["taskId"]]
    assert figures[channel]["target_num"] == 1
    # The device still gets the message.
    device.connect()
    delivered, = device.receive_and_ack(1)
    assert delivered.offline and delivered.alerted_at == 0, "an SMS shows nothing on the device"


def test_a_job_without_a_sender_moves_to_the_follow_up_also_after_a_kill(own_gateway, away):
    gateway = own_gateway()
    device = away(gateway)
    first, second = (push(gateway, device.cid) for _ in range(2))
    assert first["vendor"] == "fcm"
    gateway.kill()
    gateway.start()
    jobs = []
    eventually(lambda: jobs.extend(lease(gateway, "sms", wait=5)) or len(jobs) == 2)
    assert [job["msgId"] for job in jobs] == [first["msgId"], second["msgId"]]
    assert lease(gateway, "fcm") == []
    assert "followedUp" in gateway.steps(first["msgId"])


def test_what_the_vendor_accepted_or_the_device_acked_is_not_followed_up(gateway, away):
    device, other = away(gateway), away(gateway, has_token=False)
    taken, acked = push(gateway, device.cid), push(gateway, other.cid)
    job, = lease(gateway, "fcm")
    gateway.settle(job, "accepted")
    other.connect()
    other.receive_and_ack(1)
    gateway.ends_as(acked["msgId"], "deliveredOffline")
    # A later message of a third device shows that the time of the first two has passed.
    probe = push(gateway, away(gateway, has_token=False).cid)
    jobs = lease(gateway, "sms", wait=20)
    assert [job["msgId"] for job in jobs] == [probe["msgId"]]
    assert "followedUp" not in gateway.steps(taken["msgId"])
    gateway.settle(jobs[0], "accepted")


def test_a_refused_job_waits_for_the_delay_and_ends_under_strategy_2(gateway, away):
    device = away(gateway)
    message = push(gateway, device.cid, strategy=2)
    job, = lease(gateway, "fcm")
    gateway.settle(job, "rejected", reason="no")
    assert gateway.trace(message["msgId"])["state"] == "pending"
    job, = lease(gateway, "sms", wait=20)
    gateway.settle(job, "badToken", reason="unknown number")
    assert gateway.ends_as(message["msgId"], "failed")["reason"] == "unknown number"
    assert not gateway.view(device.cid)["tokens"][0]["quarantined"]


def test_lists_have_a_follow_up_and_broadcasts_are_refused(gateway, away):
    devices = [away(gateway, has_token=False) for _ in range(2)]
    created = body(gateway, devices[0].cid)
    del created["audience"]
    task = gateway.api("POST", "push/list/message", created)["data"]["taskid"]
    gateway.api("POST", "push/list/cid", {
        "audience": {"cid": [device.cid for device in devices]}, "taskid": task, "is_async": False})
    jobs = []
    eventually(lambda: jobs.extend(lease(gateway, "sms", wait=5)) or len(jobs) == 2)
    assert {job["cid"] for job in jobs} == {device.cid for device in devices}
    for job in jobs:
        gateway.settle(job, "accepted")
    everyone = {**body(gateway, devices[0].cid), "audience": "all"}
    with pytest.raises(Refused) as refused:
        gateway.api("POST", "push/all", everyone)
    assert "no follow-up" in json.dumps(refused.value.args, default=str)


def test_a_vendors_late_acceptance_replaces_the_follow_up_in_the_report(gateway, away):
    device = away(gateway)
    created = body(gateway, device.cid)
    del created["audience"]
    task = gateway.api("POST", "push/list/message", created)["data"]["taskid"]
    gateway.api("POST", "push/list/cid", {"audience": {"cid": [device.cid]}, "taskid": task, "is_async": False})
    late, = lease(gateway, "fcm", seconds=5)
    follow_up, = lease(gateway, "sms", wait=20)
    for job, channel in ((follow_up, "sms"), (late, "fcm")):
        assert gateway.settle(job, "accepted") == "recorded"
        figures = gateway.api("GET", f"report/push/task/{task}")["data"][task]
        assert [name for name in ("sms", "fcm") if figures.get(name, {}).get("target_num")] == [channel]
        assert gateway.extend(late) == "cancelled"
