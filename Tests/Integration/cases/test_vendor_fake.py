"""`longwire-sender fake` as all vendors, with a sender that has only the configuration that the fake wrote."""

import secrets
import uuid

import pytest
from fake_vendors import FakeVendors
from handoff_stub import HandoffStub

CHANNELS = ["fcm", "hms", "harmony", "honor", "xiaomi", "oppo", "vivo", "meizu", "webPush"]
APPLE = {"aps": {"alert": {"title": "Hello", "body": "World"}}}


@pytest.fixture
def stub():
    with HandoffStub() as stub:
        yield stub


def test_a_message_of_every_vendor_arrives_on_the_page(stub):
    """Goal: one message for each channel is accepted and shown, a dead token is bad, and both programs stop cleanly."""
    with FakeVendors(stub) as fakes:
        jobs = {one: stub.add(one, deviceToken=fakes.token(one, "phone-1"), topic="com.example.app") for one in CHANNELS}
        for channel, job in jobs.items():
            assert stub.final(job)["outcome"] == "accepted", (channel, stub.results[job])
        # Only now, because HarmonyOS's answer to a dead token counts after an accepted message has proven the credential.
        dead = {one: stub.add(one, deviceToken=fakes.token(one, "dead-1"), topic="com.example.app") for one in CHANNELS}
        for channel, job in dead.items():
            # Xiaomi's answer does not name the regid, so the token is kept.
            expected = "rejected" if channel == "xiaomi" else "badToken"
            assert stub.final(job)["outcome"] == expected, (channel, stub.results[job])
        shown = fakes.shown()
        assert {one: len(shown[one]) for one in shown} == dict.fromkeys(CHANNELS, 1)
        for channel, (one,) in shown.items():
            assert (one["vendor"], one["token"], one["title"], one["text"]) == (channel, "phone-1", "Hello", "World")
            assert stub.gmid(jobs[channel]) in one["data"] and one["at"] > 1_700_000_000_000
        taken = [(one["vendor"], one["tokens"]) for one in fakes.records() if one.get("taken")]
        assert sorted(taken) == sorted((channel, ["phone-1"]) for channel in CHANNELS)
        assert "苹果" in fakes.call("GET", "/")[1]


def test_apple_is_in_the_same_configuration(stub):
    with FakeVendors(stub) as fakes:
        token = secrets.token_hex(32)
        job = stub.add("apns", deviceToken=token, topic="com.example.app", environment="production", pushType="alert",
                       tokenKind="alert", apnsId=str(uuid.uuid4()), priority=10, body=APPLE)
        assert stub.final(job)["outcome"] == "accepted", stub.results[job]
        assert token in fakes.call("GET", "/phones")[1]


def test_a_foreign_configuration_and_a_restart(stub):
    """Goal: keys survive a restart, and a file that the fake did not write is kept."""
    with FakeVendors(stub) as fakes:
        first = fakes.token("webPush", "phone-1")
        fakes.restart()
        assert fakes.token("webPush", "phone-1") == first
        job = stub.add("webPush", deviceToken=first)
        assert stub.final(job)["outcome"] == "accepted", stub.results[job]
        (fakes.folder / "sender.json5").write_text("{}")
        fakes.restart(until="kept")
        assert (fakes.folder / "sender.json5").read_text() == "{}"


def test_scripts_by_vendor(stub):
    """Goal: scripted quotas, codes, cut connections and delays affect only the named vendor. A new script replaces the old one."""
    script = {"vendors": {
        "xiaomi": {"dayQuota": 0}, "oppo": {"rules": [{"code": "13"}]}, "meizu": {"rules": [{"deed": "cutTaken"}]},
        "hms": {"rules": [{"delayMilliseconds": 300}]}, "honor": {"rules": [{"deed": "silence", "prefix": "mute"}]}}}
    with FakeVendors(stub, script=script) as fakes:
        jobs = {one: stub.add(one, deviceToken="phone-1") for one in ("xiaomi", "oppo", "meizu", "hms", "vivo", "honor")}
        reasons = {one: stub.result(job).get("reason", "") for one, job in jobs.items()}
        assert reasons == {"xiaomi": "10034", "oppo": "13", "meizu": "noAnswer", "hms": "", "vivo": "", "honor": ""}
        shown = fakes.shown()
        assert set(shown) == {"meizu", "hms", "vivo", "honor"}
        silent = stub.result(stub.add("honor", deviceToken="mute-1"))
        assert (silent["outcome"], silent["reason"]) == ("retry", "noAnswer")
        assert fakes.call("POST", "/script", "{}")[0] == 204
        stub.requeue(jobs["meizu"])
        assert stub.final(jobs["meizu"])["outcome"] == "accepted"
        status, text = fakes.call("POST", "/script", '{"vendors": {"hms": {"quota": 1}}}')
        assert status == 400 and "vendors.hms.quota" in text
