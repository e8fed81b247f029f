"""The whole way: a gateway, `longwire-sender` and fake vendors, from one push to each vendor's phone and back by receipts."""

import threading
import types

import pytest
from gateway import HANDOFF_TOKEN, eventually, free_ports
from longwire_client import pb
from test_vendors import CHANNELS, HARMONY, NUMBERS, UPS
from vendor_sender import FAKES, VendorSender
from vendors import receipts

SECRET = "receipts-of-this-vendor-only"


@pytest.fixture
def sending(gateway):
    """Starts a sender beside the gateway with fakes of channels."""
    made = []

    def make(*channels, **sections):
        fakes = {channel: FAKES[channel]().__enter__() for channel in channels}
        made.extend(fakes.values())
        here = types.SimpleNamespace(url=f"http://127.0.0.1:{gateway.admin}", _changed=threading.Condition())
        sender = VendorSender(here, fakes, **sections)
        (sender.folder / "token").write_text(HANDOFF_TOKEN)
        for credential in sender.sections["credentials"]:
            if "receipts" in sections and credential["vendor"] in ("xiaomi", "oppo", "vivo"):
                credential["receipts"] = {"secret": SECRET}
        made.append(sender.__enter__())
        return sender

    yield make
    for one in reversed(made):
        one.__exit__(None, None, None)


@pytest.fixture
def phone(new_device):
    """A device that registered a vendor's token and left."""

    def make(gateway, channel, token):
        device = new_device(gateway)
        device.close()
        device.connect(tokens=[pb.VendorToken(channel=NUMBERS[channel], token=token, topic="com.example.app")])
        device.close()
        eventually(lambda: not gateway.view(device.cid)["connected"])
        return device

    return make


def push_all(gateway, devices):
    """One call of a list for all devices; returns the msgIds by cid."""
    body = gateway.push_body("0" * 32, "x")
    del body["audience"]
    body["push_channel"] = {"android": {"ups": UPS}, "harmony": HARMONY}
    task = gateway.api("POST", "push/list/message", body)["data"]["taskid"]
    cids = [device.cid for device in devices]
    gateway.api("POST", "push/list/cid", {"taskid": task, "audience": {"cid": cids}})
    return {cid: gateway.admin_call("GET", f"/v1/apps/demo/devices/{cid}/messages")["messages"][0]["msgId"] for cid in cids}


def test_one_push_reaches_a_phone_of_each_vendor(gateway, sending, phone):
    sender = sending(*CHANNELS)
    tokens = {channel: sender.fakes[channel].device() for channel in CHANNELS}
    devices = {channel: phone(gateway, channel, tokens[channel]) for channel in CHANNELS}
    ids = push_all(gateway, devices.values())
    for channel, device in devices.items():
        fake = sender.fakes[channel]
        sent = eventually(lambda fake=fake: fake.sent, f"the message at {channel}")[0]
        assert (sent.title, sent.body) == ("T", "B"), channel
        eventually(lambda device=device: "vendorAccepted" in gateway.steps(ids[device.cid]), f"the result of {channel}")
        device.connect()
        message, = device.receive_and_ack(1)
        assert message.alerted_at > 0 and message.msg_id.hex() == ids[device.cid]


def test_a_removed_app_is_found_by_the_vendor_and_the_next_vendor_takes_over(gateway, sending, phone, new_device):
    sender = sending("hms", "fcm")
    hms, fcm = (sender.fakes[channel] for channel in ("hms", "fcm"))
    # Huawei's answer voids tokens only after the credential had a message accepted.
    push_all(gateway, [phone(gateway, "hms", hms.device())])
    eventually(lambda: len(hms.sent) == 1, "the message of the other phone")
    gone, good = hms.device(), fcm.device()
    hms.unregister(gone)
    device = new_device(gateway)
    device.close()
    device.connect(tokens=[pb.VendorToken(channel=NUMBERS[name], token=token) for name, token in (("hms", gone), ("fcm", good))])
    device.close()
    eventually(lambda: not gateway.view(device.cid)["connected"])
    message, = push_all(gateway, [device]).values()
    eventually(lambda: fcm.sent, "the message at the second vendor")
    steps = eventually(lambda: gateway.steps(message) if "vendorAccepted" in gateway.steps(message) else None)
    assert steps.count("badToken") == 1 and len(hms.sent) == 1
    assert {one["channel"]: one["quarantined"] for one in gateway.view(device.cid)["tokens"]} == {"hms": True, "fcm": False}


def test_the_event_feed_tells_what_a_vendor_and_its_user_did(own_gateway, new_device, phone):
    gateway = own_gateway(app={"events": {}})
    token = "token-of-honor"
    device = phone(gateway, "honor", token)
    message, = push_all(gateway, [device]).values()
    lease = {"channel": "honor", "max": 1, "waitSeconds": 5}
    job, = gateway.admin_call("POST", "/v1/handoff/lease", lease, token=HANDOFF_TOKEN)["jobs"]
    gateway.settle(job, "accepted", vendorId="request-7")
    for kind in ("delivered", "badToken"):
        gateway.admin_call("POST", "/v1/handoff/receipts", [{"msgId": message, "kind": kind, "token": token}], token=HANDOFF_TOKEN)

    def events():
        page = gateway.admin_call("GET", f"/v1/apps/{gateway.app['appId']}/events?after=0")
        found = [one for one in page["items"] if one.get("msgId") == message]
        return found if len(found) >= 3 else None

    alerted, shown, bad = eventually(events, "three events")
    assert (alerted["type"], alerted["channel"], alerted["vendorId"]) == ("alerted", "honor", "request-7")
    assert (shown["type"], shown["alert"], bad["type"], bad["channel"]) == ("shown", True, "tokenQuarantined", "honor")


def test_a_vendors_receipts_become_steps_and_figures(gateway, sending, phone):
    port, = free_ports(1)
    sender = sending("xiaomi", "oppo", receipts={"listen": f"127.0.0.1:{port}"})
    base = f"http://127.0.0.1:{port}/receipts"
    devices = {channel: phone(gateway, channel, sender.fakes[channel].device()) for channel in ("xiaomi", "oppo")}
    ids = push_all(gateway, devices.values())
    for channel in devices:
        eventually(lambda channel=channel: sender.fakes[channel].sent, channel)
    shown, gone = ids[devices["xiaomi"].cid], ids[devices["oppo"].cid]
    token = sender.fakes["oppo"].sent[0].token
    for _ in range(2):
        call = receipts.xiaomi("m1", [sender.fakes["xiaomi"].sent[0].token], param=shown)
        assert call.post(f"{base}/xiaomi/our%20xiaomi/{SECRET}")[0] == 200
    assert receipts.oppo([("m2", [token])], "regid_invalid", param=gone).post(f"{base}/oppo/our%20oppo/{SECRET}")[0] == 200
    eventually(lambda: "shown" in gateway.steps(shown), "the receipt's step")
    eventually(lambda: gateway.view(devices["oppo"].cid)["tokens"][0]["quarantined"], "the quarantine")
    assert gateway.steps(shown).count("shown") == 1 and gateway.trace(shown)["state"] == "pending"
    clicked = receipts.xiaomi("m1", [sender.fakes["xiaomi"].sent[0].token], 2, param=shown)
    assert clicked.post(f"{base}/xiaomi/our%20xiaomi/{SECRET}")[0] == 200
    eventually(lambda: {"opened", "shown"} <= {*gateway.steps(shown)} or gateway.trace(shown)["state"] == "opened", "the click")
    report = gateway.api("GET", f"report/push/task/{gateway.trace(shown)['taskId']}")["data"].popitem()[1]
    assert report["xm"]["click_num"] == 1 and report["op"]["target_num"] == 1
