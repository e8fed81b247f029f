"""Vendors besides Apple: tokens, contents, choice of the channel, strategies, and the answers about them."""

import pytest
from gateway import HANDOFF_TOKEN, Refused, eventually
from longwire_client import pb

CHANNELS = ["fcm", "hms", "harmony", "honor", "xiaomi", "oppo", "vivo", "meizu", "webPush"]
NUMBERS = {name: number for number, name in enumerate(CHANNELS, 1)}
UPS = {"notification": {"title": "T", "body": "B", "click_type": "startapp"}, "options": {"HW": {"/message/android/urgency": "HIGH"}}}
HARMONY = {"notification": {"title": "T", "body": "B", "click_type": "startapp", "slot_type": 1}}
SUBSCRIPTION = "https://push.example/s#" + "B" * 87 + "." + "c" * 22


def text(channel):
    return SUBSCRIPTION if channel == "webPush" else f"token-of-{channel}"


def tokens(*channels):
    return [pb.VendorToken(channel=NUMBERS[channel], token=text(channel), topic="com.example.app") for channel in channels]


def lease(gateway, channel):
    body = {"channel": channel, "max": 100, "leaseSeconds": 30, "waitSeconds": 0}
    return gateway.admin_call("POST", "/v1/handoff/lease", body, token=HANDOFF_TOKEN)["jobs"]


@pytest.fixture
def away(new_device):
    def make(gateway, *channels):
        device = new_device(gateway)
        device.close()
        device.connect(tokens=tokens(*channels))
        device.close()
        eventually(lambda: not gateway.view(device.cid)["connected"])
        return device

    return make


def push(gateway, cid, android=UPS, harmony=HARMONY, **settings):
    body = gateway.push_body(cid, "x", **settings)
    body["push_channel"] = {"android": {"ups": android}} if android else {}
    if harmony:
        body["push_channel"]["harmony"] = harmony
    answer = gateway.api("POST", "push/single/cid", body)
    return answer["longwire"]["messages"][0]


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_job_has_the_content_of_the_platform_and_the_token_of_its_vendor(gateway, away, channel):
    device = away(gateway, channel)
    message = push(gateway, device.cid)
    assert (message["fallback"], message["vendor"]) == ("due", channel)
    assert all(lease(gateway, other) == [] for other in [*CHANNELS, "apns"] if other != channel)
    job, = lease(gateway, channel)
    expected = HARMONY if channel == "harmony" else UPS
    assert (job["channel"], job["deviceToken"], job["topic"]) == (channel, text(channel), "com.example.app")
    assert job["body"] == expected and job["msgId"] == message["msgId"] and job["expiration"] > 0
    assert "apnsId" not in job and "pushType" not in job
    assert gateway.settle(job, "accepted", vendorId="v-1") == "recorded"
    trace = gateway.trace(message["msgId"])
    assert {step["channel"] for step in trace["steps"] if "channel" in step} == {channel}
    view = gateway.view(device.cid)
    assert [token["channel"] for token in view["tokens"]] == [channel]
    detail = gateway.api("GET", f"user/detail/{device.cid}")["data"]["validCids"][device.cid]
    assert (detail["phone_type"], detail["device_token"]) == (3 if channel == "harmony" else 1, text(channel))
    device.connect()
    assert device.receive_and_ack(1)[0].alerted_at > 0


def test_a_transmission_for_android(gateway, away):
    device = away(gateway, "xiaomi")
    push(gateway, device.cid, android={"transmission": "data"}, harmony=None)
    job, = lease(gateway, "xiaomi")
    assert job["body"] == {"transmission": "data"}
    gateway.settle(job, "accepted")


def test_a_bad_token_moves_the_job_to_the_next_vendor_at_once(gateway, away):
    device = away(gateway, "hms", "fcm")
    push(gateway, device.cid)
    job, = lease(gateway, "hms")
    assert gateway.settle(job, "badToken", reason="80300007") == "recorded"
    second, = lease(gateway, "fcm")
    assert (second["msgId"], second["attempt"]) == (job["msgId"], 2)
    gateway.settle(second, "accepted")


def test_the_order_of_vendors_is_a_setting_of_the_app(own_gateway, away):
    gateway = own_gateway(app={"vendors": ["fcm", "hms"]})
    device = away(gateway, "hms", "fcm")
    push(gateway, device.cid)
    assert lease(gateway, "hms") == [] and len(lease(gateway, "fcm")) == 1


def test_an_app_without_an_apns_topic_reaches_android(own_gateway, new_device):
    gateway = own_gateway(app={"apns": {}})
    device = new_device(gateway)
    device.close()
    device.connect(tokens=[pb.VendorToken(channel=NUMBERS["fcm"], token="f")])
    device.close()
    assert eventually(lambda: gateway.view(device.cid))["fallback"] == "available"
    assert push(gateway, device.cid)["vendor"] == "fcm" and len(lease(gateway, "fcm")) == 1


def test_strategies_by_vendor(gateway, away):
    device = away(gateway, "oppo")
    body = gateway.push_body(device.cid, "x")
    body["settings"] = {"strategy": {"default": 1, "op": 3, "hw": 2}}
    body["push_channel"] = {"android": {"ups": UPS}}
    answer = gateway.api("POST", "push/single/cid", body)["longwire"]["messages"][0]
    assert (answer["fallback"], answer["fallbackReason"]) == ("none", "strategy")
    assert lease(gateway, "oppo") == []


@pytest.mark.parametrize("ups, word", [
    ({"notification": {"title": "T"}}, "body"),
    ({"notification": {"title": "T", "body": "B", "click_type": "fly"}}, "click_type"),
    ({"notification": {"title": "T", "body": "B", "click_type": "none"}, "transmission": "x"}, "exactly one"),
    ({"notification": {"title": "T" * 51, "body": "B", "click_type": "none"}}, "title"),
    ({"transmission": "x", "options": {"HW": {"no-pointer": 1}}}, "JSON pointers"),
    ({"transmission": "x", "options": {"HW": 5}}, "HW"),
    ({"notification": {"title": "T", "body": "B", "click_type": "intent"}}, "intent"),
    ({"notification": [1]}, "notification"), (7, "ups"),
])
def test_content_that_no_vendor_could_show_is_refused_by_its_field(gateway, away, ups, word):
    device = away(gateway, "fcm")
    body = gateway.push_body(device.cid, "x")
    body["push_channel"] = {"android": {"ups": ups}}
    with pytest.raises(Refused) as refused:
        gateway.api("POST", "push/single/cid", body)
    assert refused.value.body["code"] == 20001 and word in refused.value.body["msg"], refused.value.body


def test_a_revoke_for_vendors_is_named_as_ignored_and_the_call_is_served(gateway, away):
    device = away(gateway, "fcm")
    body = gateway.push_body(device.cid, "x")
    body["push_channel"] = {"android": {"ups": {"notification": UPS["notification"], "revoke": {"old_task_id": "RASS_x"}}}}
    answer = gateway.api("POST", "push/single/cid", body)["longwire"]
    assert "push_channel.android.ups.revoke" in answer["ignored"]
    assert len(lease(gateway, "fcm")) == 1


def test_vendors_that_would_refuse_the_content_are_named_in_the_answer(gateway, away):
    device = away(gateway, "fcm")

    def refused(ups):
        body = gateway.push_body(device.cid, "x")
        body["push_channel"] = {"android": {"ups": ups}}
        answer = gateway.api("POST", "push/single/cid", body)["longwire"]
        return {entry["vendor"]: entry["reason"] for entry in answer.get("refusedBy", [])}

    assert refused(UPS) == {}
    assert set(refused({"notification": {**UPS["notification"], "title": "T" * 45}})) == {"vivo", "meizu"}
    assert set(refused({"transmission": "x"})) == {"oppo", "vivo", "meizu"}


def test_tokens_that_no_vendor_issues_are_refused_alone(gateway, new_device):
    device = new_device(gateway)
    result = device.update(tokens=[
        pb.VendorToken(channel=NUMBERS["webPush"], token="http://push.example/s#a.b"),
        pb.VendorToken(channel=NUMBERS["fcm"], kind=pb.VendorToken.VOIP, token="v"),
        pb.VendorToken(channel=NUMBERS["fcm"], token="good")])
    assert "2 refused" in result.reason
    assert [token["channel"] for token in gateway.view(device.cid)["tokens"]] == ["fcm"]


def receipts(gateway, *items):
    return [one["verdict"] for one in gateway.admin_call("POST", "/v1/handoff/receipts", list(items), token=HANDOFF_TOKEN)["results"]]


def test_receipts_of_vendors_are_steps_of_the_message_and_quarantine_tokens(gateway, away):
    device = away(gateway, "vivo")
    message = push(gateway, device.cid)
    job, = lease(gateway, "vivo")
    gateway.settle(job, "accepted")
    delivered = {"msgId": job["msgId"], "appId": "demo", "channel": "vivo", "kind": "delivered", "at": 0}
    assert receipts(gateway, delivered, delivered, {"msgId": "0" * 31 + "1", "kind": "clicked"}) == ["recorded", "recorded", "unknownJob"]
    assert gateway.steps(message["msgId"]).count("shown") == 1
    for other in ({"appId": "other"}, {"channel": "harmony"}):
        assert receipts(gateway, {**delivered, **other, "kind": "clicked"}) == ["unknownJob"]
    assert receipts(gateway, {"msgId": job["msgId"], "kind": "badToken", "token": text("vivo")}) == ["recorded"]
    assert gateway.view(device.cid)["tokens"][0]["quarantined"]
    for wrong in ({"msgId": "x", "kind": "clicked"}, {"msgId": job["msgId"], "kind": "eaten"}, {"msgId": job["msgId"], "kind": "clicked", "token": "t" * 1025}):
        with pytest.raises(Refused) as refused:
            receipts(gateway, wrong)
        assert refused.value.status == 400


def test_reports_count_each_vendor(own_gateway, away):
    gateway = own_gateway()
    phones = [away(gateway, channel) for channel in ("hms", "honor", "harmony")]
    body = gateway.push_body("0" * 32, "x")
    body["push_channel"] = {"android": {"ups": UPS}, "harmony": HARMONY}
    del body["audience"]
    task = gateway.api("POST", "push/list/message", body)["data"]["taskid"]
    gateway.api("POST", "push/list/cid", {"taskid": task, "audience": {"cid": [phone.cid for phone in phones]}})
    jobs = lease(gateway, "hms") + lease(gateway, "honor") + lease(gateway, "harmony")
    assert len(jobs) == 3
    for job in jobs:
        gateway.settle(job, "accepted")
    receipts(gateway, {"msgId": jobs[0]["msgId"], "kind": "clicked"})
    report = gateway.api("GET", f"report/push/task/{task}")["data"][task]
    assert [report[name]["target_num"] for name in ("total", "android", "hw", "ho", "hoshw", "ios")] == [3, 2, 1, 1, 1, 0]
    assert report["hw"]["click_num"] == report["android"]["click_num"] == 1
    single = gateway.push_body(phones[2].cid, "x")
    single["push_channel"] = {"harmony": HARMONY}
    answer = gateway.api("POST", "push/single/cid", single)["longwire"]["messages"][0]
    gateway.settle(*lease(gateway, "harmony"), "accepted")
    report = gateway.api("GET", f"report/push/task/{answer['taskId']}")["data"][answer["taskId"]]
    assert report["hoshw"]["target_num"] == 1 and "android" not in report
