"""The real `longwire-sender` against a stub of the gateway and fake vendors, for each vendor's channel."""

import base64
import glob
import hashlib
import hmac
import http.client
import json
import pathlib
import shutil
import signal
import subprocess
import time
from collections import Counter

import pytest
from gateway import eventually, free_ports
from handoff_stub import HandoffStub
from http2_front import Front
from vendor_sender import FAKES, VendorSender
from vendors import Answer, closing, dropped, html, lost, receipts, slow

CHANNELS = list(FAKES)


@pytest.fixture
def stub():
    with HandoffStub() as stub:
        yield stub


@pytest.fixture
def sending(stub):
    """Starts fakes and a sender for channels; returns the sender."""
    made = []

    def make(*channels, options=None, starts=True, **settings):
        fakes = {}
        for channel in channels:
            fakes[channel] = FAKES[channel](**(options or {})).__enter__()
            made.append(fakes[channel])
        sender = VendorSender(stub, fakes, **settings)
        if starts:
            made.append(sender.__enter__())
        return sender

    yield make
    for one in reversed(made):
        one.__exit__(None, None, None)


def test_a_vendor_with_http2_gets_requests_over_few_connections_also_while_it_restarts(stub, tmp_path):
    with FAKES["fcm"]() as fake, Front(fake, tmp_path, streams=20) as front:
        sender = VendorSender(stub, {"fcm": fake})
        sender.sections["credentials"][0]["baseURL"] = front.url
        sender.sections["vendors"]["fcm"]["authoritiesFile"] = str(front.certificate)
        with sender:
            def send(count):
                return [stub.add("fcm", deviceToken=fake.device()) for _ in range(count)]

            first = send(150)
            assert {stub.result(job)["outcome"] for job in first} == {"accepted"}
            jobs = send(100)
            front.reload()
            jobs += send(100)
            assert {stub.result(job)["outcome"] for job in jobs} == {"accepted"}
            assert len(fake.sent) == 350 and sender.metric("requests_unknown_total") == 0
        requests = eventually(lambda: (found := front.requests()) and len(found) >= 350 and found)
        assert {tuple(one[::2]) for one in requests} == {("HTTP/2.0", "200")} and len(requests) == 350
        # Four connections before the restart and four after it, with some that a closing worker still refused.
        assert 2 <= len({connection for _, connection, _ in requests}) <= 12


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_notification_is_delivered(stub, sending, channel):
    """Goal: a job becomes one accepted message with title, body and the id that the app filters by."""
    sender = sending(channel)
    fake = sender.fakes[channel]
    token = fake.device()
    job = stub.add(channel, deviceToken=token, topic="com.example.app")
    result = stub.result(job)
    assert (result["outcome"], [one[:2] for one in fake.refused]) == ("accepted", []), result
    sent, = fake.sent
    assert (sent.title, sent.body) == ("Hello", "World")
    assert stub.gmid(job) in sent.ids or sent.ids == []
    assert sender.metric("outcomes_total", channel=channel, outcome="accepted") == 1
    assert sender.get("/readyz") == (200, "ready\n")
    assert [lane["state"] for lane in sender.lanes(channel)] == ["ready"]


def outcomes(stub, job):
    return [(one["outcome"], one.get("reason", "")) for one in stub.results[job]]


def fakes_of(sender):
    (fake,) = sender.fakes.values()
    return fake


# Access tokens

TOKEN_PATHS = {"fcm": "/token", "hms": "/oauth2", "honor": "/auth/token", "oppo": "/server/v1/auth", "vivo": "/message/auth"}


@pytest.mark.parametrize("channel", TOKEN_PATHS)
def test_one_access_token_serves_many_messages(stub, sending, channel):
    """Goal: concurrent jobs wait for one token request, and all use its token."""
    sender = sending(channel)
    fake = fakes_of(sender)
    jobs = [stub.add(channel, deviceToken=fake.device()) for _ in range(40)]
    assert {one["outcome"] for one in stub.settled(*jobs)} == {"accepted"}
    assert len(fake.taken(TOKEN_PATHS[channel])) == 1
    assert sender.metric("token_requests_total", channel=channel) == 1


@pytest.mark.parametrize("channel", TOKEN_PATHS)
def test_a_refused_access_token_is_renewed_once(stub, sending, channel):
    """Goal: a token that the vendor revokes costs one renewal and no message. Method: revoke between two jobs."""
    sender = sending(channel)
    fake = fakes_of(sender)
    stub.final(stub.add(channel, deviceToken=fake.device()))
    fake.access.revoke()
    jobs = [stub.add(channel, deviceToken=fake.device()) for _ in range(5)]
    assert [outcomes(stub, job) for job in jobs if stub.final(job)] == [[("accepted", "")]] * 5
    assert len(fake.taken(TOKEN_PATHS[channel])) == 2
    assert len(fake.sent) == 6


def test_a_token_endpoint_in_trouble_is_retried(stub, sending):
    """Goal: jobs wait for a token that comes after three failures: 503, HTML and a cut connection."""
    fake = FAKES["fcm"]()
    fake.script((503, {}, "later"), html(200), dropped(), path="/token")
    with fake, VendorSender(stub, {"fcm": fake}) as sender:
        job = stub.add("fcm", deviceToken=fake.device())
        assert stub.final(job)["outcome"] == "accepted"
        assert outcomes(stub, job) == [("accepted", "")]
        # curl retries a request itself if a reused connection closes before the answer.
        assert sender.metric("token_failures_total", channel="fcm") >= 2


def test_a_refused_service_account_rests_and_names_the_remedy(stub, sending):
    """Goal: a deleted key gives jobs back unsent, without an attempt, and the log has the remedy."""
    sender = sending("fcm")
    fake = fakes_of(sender)
    fake.account.key_id = "another"
    job = stub.add("fcm", deviceToken=fake.device())
    result = stub.result(job)
    assert (result["outcome"], result["reason"]) == ("unsent", "invalid_grant")
    assert 1 <= result["retryAfterSeconds"] <= 30
    assert "service account" in sender.logged("credentialRefused", "fcm/our fcm")["detail"]
    status, text = sender.get("/readyz")
    assert status == 503 and "fcm/our fcm rests: invalid_grant" in text
    assert sender.metric("vendor_lane_state", state="refused") == 1
    # The next job returns to the gateway at once, without a request to the vendor.
    count = len(fake.requests)
    assert stub.result(stub.add("fcm", deviceToken=fake.device()))["outcome"] == "unsent"
    assert len(fake.requests) == count


def test_a_refused_secret_without_access_tokens(stub, sending):
    sender = sending("xiaomi")
    fake = fakes_of(sender)
    fake.app.secret = "changed"
    result = stub.result(stub.add("xiaomi", deviceToken=fake.device()))
    assert (result["outcome"], result["reason"]) == ("unsent", "21301")
    assert sender.logged("credentialRefused", "xiaomi")["level"] == "error"


# Answers

@pytest.mark.parametrize("channel", CHANNELS)
def test_a_token_of_a_removed_app_is_bad(stub, sending, channel):
    sender = sending(channel)
    fake = fakes_of(sender)
    token = fake.device()
    fake.unregister(token.partition("#")[0])
    good = stub.add(channel, deviceToken=fake.device())
    # A lane that accepted nothing voids no tokens for a reason that a wrong project explains, too.
    stub.final(good)
    bad = stub.add(channel, deviceToken=token)
    # HarmonyOS and Xiaomi have one answer for a token without the app and for an app without the right, so the token is kept.
    expected = "rejected" if channel in ("harmony", "xiaomi") else "badToken"
    assert (stub.final(good)["outcome"], stub.final(bad)["outcome"]) == ("accepted", expected)
    assert len(fake.sent) == 1


QUOTAS = ["xiaomi", "oppo", "vivo"]


@pytest.mark.parametrize("channel", QUOTAS)
def test_a_used_up_quota_rests_until_midnight_in_beijing(stub, sending, channel):
    """Goal: the job returns unsent until midnight, and later jobs cost no request."""
    sender = sending(channel, options={"day_quota": 1})
    fake = fakes_of(sender)
    assert stub.final(stub.add(channel, deviceToken=fake.device()))["outcome"] == "accepted"
    midnight = 86_400 - (int(time.time()) + 8 * 3_600) % 86_400
    result = stub.result(stub.add(channel, deviceToken=fake.device()))
    assert result["outcome"] == "unsent"
    assert abs(result["retryAfterSeconds"] - midnight) < 60 or midnight < 60
    sender.logged("quotaUsedUp")
    count = len(fake.requests)
    again = stub.result(stub.add(channel, deviceToken=fake.device()))
    assert (again["outcome"], again["reason"]) == ("unsent", result["reason"])
    assert len(fake.requests) == count and len(fake.sent) == 1
    assert sender.metric("vendor_lane_state", channel=channel, state="quota") == 1


@pytest.mark.parametrize("channel", CHANNELS)
def test_an_outage_is_retried_with_the_vendors_delay(stub, sending, channel):
    """Goal: 503 with Retry-After is `unsent` until then, as the vendor took nothing; 502 with a web page is `retry`."""
    sender = sending(channel)
    fake = fakes_of(sender)
    stub.final(stub.add(channel, deviceToken=fake.device()))
    fake.script((503, {"Retry-After": "77"}, ""))
    result = stub.result(stub.add(channel, deviceToken=fake.device()))
    assert (result["outcome"], result["reason"], result["retryAfterSeconds"]) == ("unsent", "HTTP503", 77)
    fake.script(html(502))
    assert stub.result(stub.add(channel, deviceToken=fake.device()))["outcome"] == "retry"
    assert len(fake.sent) == 1
    assert sender.metric("answers_total", channel=channel, reason="HTTP503") == 1


@pytest.mark.parametrize("channel", [one for one in CHANNELS if one != "webPush"])
def test_a_success_that_is_no_success_is_retried(stub, sending, channel):
    """Goal: status 200 with a page, an empty body or an unknown code accepts no message."""
    sender = sending(channel)
    fake = fakes_of(sender)
    stub.final(stub.add(channel, deviceToken=fake.device()))
    for answer in (html(200), (200, {}, ""), (200, {}, {"code": 987654, "result": 987654})):
        fake.script(answer)
        assert stub.result(stub.add(channel, deviceToken=fake.device()))["outcome"] == "retry"
    assert len(fake.sent) == 1


def test_a_refusal_within_status_200(stub, sending):
    """Goal: Huawei's "all tokens are invalid" with status 200 is a bad token, not a success."""
    sender = sending("hms")
    fake = fakes_of(sender)
    stub.final(stub.add("hms", deviceToken=fake.device()))
    job = stub.add("hms", deviceToken=fake.make_token())
    assert stub.final(job)["outcome"] == "badToken"
    assert len(fake.sent) == 1


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_lost_answer_is_retried(stub, sending, channel):
    """Goal: the vendor takes the message and cuts the connection; the result is unknown, so the gateway retries."""
    sender = sending(channel)
    fake = fakes_of(sender)
    # curl repeats a request itself if a used connection ends before its answer.
    fake.script(lost(), lost(), path=PATHS[channel])
    job = stub.add(channel, deviceToken=fake.device())
    result = stub.result(job)
    assert (result["outcome"], result["reason"]) == ("retry", "noAnswer")
    assert len(fake.sent) >= 1
    fake.clear_script()
    stub.requeue(job)
    assert stub.final(job)["outcome"] == "accepted"
    assert sender.metric("requests_unknown_total", channel=channel) >= 1


PATHS = {"fcm": "messages:send", "hms": "messages:send", "harmony": "messages:send", "honor": "sendMessage", "xiaomi": "/message/",
         "oppo": "unicast", "vivo": "/message/send", "meizu": "pushByPushId", "webPush": "/wpush/"}


def test_a_limited_rate_slows_the_lane_and_loses_nothing(stub, sending):
    """Goal: all messages arrive at a vendor that takes three a second, and none costs an attempt."""
    stub.is_eager = True
    sender = sending("fcm", options={"rate": (3, 1.0)})
    fake = fakes_of(sender)
    jobs = [stub.add("fcm", deviceToken=fake.device()) for _ in range(12)]
    for job in jobs:
        stub.final(job)
    assert len(fake.sent) == 12


# Answers that concern one device

FOREIGN = {"code": 401, "errno": 109, "error": "Unauthorized", "message": "VAPID public key mismatch"}


def denied(status, error):
    return (status, {}, {"error": {"code": status, "status": error, "message": "m"}})


def test_a_refusal_of_one_job_does_not_pause_a_credential_that_works(stub, sending):
    """Goal: refusals of four jobs cost these jobs an attempt each; only the fifth in a row pauses the lane."""
    sender = sending("fcm")
    fake = fakes_of(sender)
    stub.final(stub.add("fcm", deviceToken=fake.device()))
    for _ in range(2):
        fake.script(*[denied(403, "PERMISSION_DENIED")] * 4, path=PATHS["fcm"])
        for _ in range(4):
            result = stub.result(stub.add("fcm", deviceToken=fake.device()))
            assert (result["outcome"], result["reason"]) == ("retry", "PERMISSION_DENIED")
        # An accepted message starts the count again.
        assert stub.final(stub.add("fcm", deviceToken=fake.device()))["outcome"] == "accepted"
    assert sender.get("/readyz")[0] == 200
    fake.script(*[denied(403, "PERMISSION_DENIED")] * 5, path=PATHS["fcm"])
    found = [stub.result(stub.add("fcm", deviceToken=fake.device()))["outcome"] for _ in range(5)]
    assert found == ["retry"] * 4 + ["unsent"]
    assert sender.metric("vendor_lane_state", state="refused") == 1


def test_a_token_that_is_refused_for_one_job_serves_the_others(stub, sending):
    sender = sending("fcm")
    fake = fakes_of(sender)
    stub.final(stub.add("fcm", deviceToken=fake.device()))
    fake.script(*[denied(401, "UNAUTHENTICATED")] * 2, path=PATHS["fcm"])
    result = stub.result(stub.add("fcm", deviceToken=fake.device()))
    assert (result["outcome"], result["reason"]) == ("retry", "UNAUTHENTICATED")
    assert stub.final(stub.add("fcm", deviceToken=fake.device()))["outcome"] == "accepted"
    assert len(fake.taken(TOKEN_PATHS["fcm"])) == 2


@pytest.mark.parametrize("channel, answer, reason", [
    ("webPush", (401, {}, FOREIGN), "HTTP401:VapidKeyMismatch"),
    ("fcm", denied(401, "THIRD_PARTY_AUTH_ERROR"), "THIRD_PARTY_AUTH_ERROR"),
])
def test_a_device_of_another_key_is_rejected(stub, sending, channel, answer, reason):
    """Goal: Mozilla's and Google's answer about one device is no answer about the credential, even at the first message."""
    sender = sending(channel)
    fake = fakes_of(sender)
    fake.script(answer, path=PATHS[channel])
    result = stub.final(stub.add(channel, deviceToken=fake.device()))
    assert (result["outcome"], result["reason"]) == ("rejected", reason)
    assert stub.final(stub.add(channel, deviceToken=fake.device()))["outcome"] == "accepted"


def test_a_topic_of_another_package_is_not_sent_to_xiaomi(stub, sending):
    sender = sending("xiaomi")
    fake = fakes_of(sender)
    result = stub.final(stub.add("xiaomi", deviceToken=fake.device(), topic="com.example.debug"))
    assert (result["outcome"], result["reason"]) == ("rejected", "BadPackageName")
    assert fake.requests == []
    assert stub.final(stub.add("xiaomi", deviceToken=fake.device(), topic=fake.app.package))["outcome"] == "accepted"


def test_a_web_push_token_without_a_permitted_endpoint_is_refused_alone(stub, sending):
    """Goal: such a token pauses nothing, neither the next one of its kind nor a good one."""
    sender = sending("webPush")
    fake = fakes_of(sender)
    keys = fake.device().partition("#")[2]
    for _ in range(2):
        foreign = stub.final(stub.add("webPush", deviceToken=f"https://push.unknown.example/x#{keys}"))
        assert (foreign["outcome"], foreign["reason"]) == ("rejected", "EndpointNotAllowed")
        malformed = stub.final(stub.add("webPush", deviceToken=f"https://127.0.0.1/x#{keys}"))
        assert (malformed["outcome"], malformed["reason"]) == ("badToken", "BadToken")
    assert stub.final(stub.add("webPush", deviceToken=fake.device()))["outcome"] == "accepted"
    assert not [one for one in sender.log if one["event"] == "credentialRefused"]


def test_a_wrong_project_voids_no_token(stub, sending):
    """Goal: a token of another project is kept until the credential has accepted a message."""
    sender = sending("fcm", "hms")
    fcm, hms = sender.fakes.values()
    token = fcm.device()
    fcm.mismatched.add(token)
    for channel, foreign, expected in [("fcm", token, "SENDER_ID_MISMATCH"), ("hms", hms.make_token(), "80300007")]:
        outcomes = []
        for before in (0, 1):
            if before:
                stub.final(stub.add(channel, deviceToken=sender.fakes[channel].device()))
            result = stub.final(stub.add(channel, deviceToken=foreign))
            outcomes.append(result["outcome"])
            assert result["reason"] == expected
        assert outcomes == ["rejected", "badToken"]


# Outages

@pytest.fixture(scope="session")
def slow_resolver(tmp_path_factory):
    """Compiles a library for LD_PRELOAD whose names with "slow-dns" fail after eight seconds."""
    library = tmp_path_factory.mktemp("resolver") / "resolver.so"
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))))
    source = pathlib.Path(__file__).parents[1] / "rigs/shim/resolver.c"
    subprocess.run([compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def test_a_slow_resolver_holds_up_no_other_vendor(stub, sending, slow_resolver, monkeypatch):
    """Goal: a transfer that times out while its name is resolved does not block the thread of all HTTP/1.1 vendors."""
    sender = sending("hms", "xiaomi", starts=False, vendors={"hms": {"timeoutMilliseconds": 500}})
    sender.sections["credentials"][0]["tokenURL"] = "https://slow-dns.example/t"
    for fake in sender.fakes.values():
        fake.__enter__()
    monkeypatch.setenv("LD_PRELOAD", str(slow_resolver))
    with sender:
        monkeypatch.delenv("LD_PRELOAD")
        fake = sender.fakes["xiaomi"]
        stub.final(stub.add("xiaomi", deviceToken=fake.device()))
        stub.add("hms", deviceToken="token")
        begun = time.monotonic()
        while time.monotonic() < begun + 4:
            sent = time.monotonic()
            assert stub.final(stub.add("xiaomi", deviceToken=fake.device()))["outcome"] == "accepted"
            assert time.monotonic() < sent + 2
            time.sleep(0.1)
        sender.logged("connectionFailed", "hms")


def test_an_outage_is_probed_with_one_request_at_a_time(stub, sending):
    """Goal: 50 jobs during an outage with 503 cost a few requests and no attempt, and arrive after it."""
    stub.is_eager = True
    sender = sending("xiaomi", vendors={"xiaomi": {"requests": 4}})
    fake = fakes_of(sender)
    stub.final(stub.add("xiaomi", deviceToken=fake.device()))
    fake.script((503, {}, ""), times=2_000)
    jobs = [stub.add("xiaomi", deviceToken=fake.device()) for _ in range(50)]
    sender.logged("vendorFails", "xiaomi/our xiaomi")
    time.sleep(2)
    assert len(fake.requests) <= 15
    assert sender.metric("vendor_lane_state", channel="xiaomi", state="failing") == 1
    fake.clear_script()
    assert {one["outcome"] for one in stub.settled(*jobs)} == {"accepted"}
    assert not any(one["outcome"] == "retry" for job in jobs for one in stub.results[job])


def test_an_outage_with_500_counts_attempts_of_probes_only(stub, sending):
    sender = sending("meizu", vendors={"meizu": {"requests": 1}})
    fake = fakes_of(sender)
    fake.script((500, {}, ""), times=2_000)
    jobs = [stub.add("meizu", deviceToken=fake.device()) for _ in range(30)]
    sender.logged("vendorFails", "meizu/our meizu")
    time.sleep(1.5)
    found = [stub.results[job][0]["outcome"] for job in jobs if stub.results[job]]
    assert set(found) == {"retry"} and len(found) == len(fake.requests) <= 8


@pytest.mark.parametrize("channel", ["hms", "harmony", "honor"])
def test_503_of_huawei_is_flow_control_with_any_body(stub, sending, channel):
    sender = sending(channel)
    fake = fakes_of(sender)
    stub.final(stub.add(channel, deviceToken=fake.device()))
    fake.script(html(503), (503, {}, {"code": "80000000"}), path=PATHS[channel])
    for _ in range(2):
        result = stub.result(stub.add(channel, deviceToken=fake.device()))
        assert (result["outcome"], result["reason"]) == ("unsent", "HTTP503")
    assert sender.metric("vendor_lane_state", channel=channel, state="failing") == 0


def test_push_services_that_never_answer_leave_room_for_others(stub, sending):
    """Goal: 256 origins of faulty subscriptions keep their lanes only until another push service needs one."""
    closed, = free_ports(1)
    sender = sending("webPush", starts=False)
    fake = fakes_of(sender).__enter__()
    sender.sections["credentials"][0]["allowedHosts"] += f" *.push.localhost:{closed}"
    token = fake.device()
    with sender:
        sender.logged("started")
        keys = token.partition("#")[2]
        for number in range(256):
            stub.add("webPush", deviceToken=f"https://x{number}.push.localhost:{closed}/w#{keys}")
        # Not with `stub.wait`: its lock stops the reader of the log, and the sender waits while the log's pipe is full.
        end = time.monotonic() + 30
        while sender.metric("vendor_lane_state", state="failing") < 256:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert stub.result(stub.add("webPush", deviceToken=token))["outcome"] == "accepted"


FAKETIME = next(iter(glob.glob("/usr/lib/*/faketime/libfaketime.so.1")), None)


@pytest.mark.skipif(not FAKETIME, reason="needs Debian's faketime")
def test_a_busy_lane_renews_its_access_token_early(stub, sending, monkeypatch, tmp_path):
    """Goal: the token is renewed while jobs wait. Method: a clock that steps to five minutes before the token's end."""
    clock = tmp_path / "clock"
    clock.write_text("+0\n")
    sender = sending("hms", starts=False, vendors={"hms": {"requests": 1}})
    fake = fakes_of(sender).__enter__()
    names = {"LD_PRELOAD": FAKETIME, "FAKETIME_NO_CACHE": "1", "FAKETIME_TIMESTAMP_FILE": str(clock),
             "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1", "SWIFT_BACKTRACE": "enable=no"}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    # libfaketime changes the environment of the first program that loads it, after which Swift loses its arguments.
    sender.wrapper = ["sh", "-c", 'exec "$0" "$@"']
    with sender:
        for name in names:
            monkeypatch.delenv(name)
        stub.final(stub.add("hms", deviceToken=fake.device()))
        fake.script(slow(0.3), times=100, path=PATHS["hms"])
        jobs = [stub.add("hms", deviceToken=fake.device(), expiration=int(time.time()) + 86_400) for _ in range(40)]
        stub.wait(lambda: len(fake.sent) >= 3)
        clock.write_text("+3400\n")
        stub.wait(lambda: len(fake.taken(TOKEN_PATHS["hms"])) == 2)
        assert sum(1 for job in jobs if stub.results[job]) < 30
        fake.clear_script()
        assert {one["outcome"] for one in stub.settled(*jobs)} == {"accepted"}


def test_a_used_up_quota_of_one_vendor_keeps_the_sender_ready(stub, sending):
    """Goal: `/readyz` is 503 only if no channel can send; `/status` has each lane's state."""
    sender = sending("oppo", "fcm", starts=False)
    oppo, fcm = (fake.__enter__() for fake in sender.fakes.values())
    oppo.day_quota = 0
    with sender:
        stub.final(stub.add("fcm", deviceToken=fcm.device()))
        stub.result(stub.add("oppo", deviceToken=oppo.device()))
        assert [lane["state"] for lane in sender.lanes("oppo")] == ["quota"]
        assert sender.get("/readyz") == (200, "ready\n")
        fcm.script(*[denied(403, "PERMISSION_DENIED")] * 5, path=PATHS["fcm"])
        for _ in range(5):
            stub.result(stub.add("fcm", deviceToken=fcm.device()))
        status, text = sender.get("/readyz")
        assert status == 503 and "oppo/our oppo rests" in text and "fcm/our fcm rests" in text


def test_unknown_answers_are_counted(stub, sending):
    sender = sending("xiaomi")
    fake = fakes_of(sender)
    fake.script((200, {}, {"code": 987654}))
    assert stub.result(stub.add("xiaomi", deviceToken=fake.device()))["outcome"] == "retry"
    assert sender.metric("unknown_answers_total", channel="xiaomi") == 1


@pytest.mark.parametrize("channel, name, pointer", [
    ("hms", "HW", "/message/android/bi_tag"), ("hms", "HW", "/message/android/receipt_id"),
    ("harmony", "HARMONY", "/pushOptions/biTag"), ("honor", "HO", "/android/biTag"),
])
def test_options_do_not_change_the_tag_of_receipts(stub, sending, channel, name, pointer):
    sender = sending(channel)
    fake = fakes_of(sender)
    body = {"notification": {"title": "t", "body": "b"}, "options": {name: {pointer: "x"}}}
    result = stub.final(stub.add(channel, deviceToken=fake.device(), body=body))
    assert (result["outcome"], result["reason"]) == ("rejected", "ProtectedOption")


def test_a_transmission_to_huawei_is_of_normal_urgency(stub, sending):
    sender = sending("hms")
    fake = fakes_of(sender)
    option = {"HW": {"/message/android/urgency": "HIGH"}}
    bodies = [{"transmission": "x"}, {"transmission": "x", "options": option}, {"notification": {"title": "t", "body": "b"}}]
    for body in bodies:
        stub.final(stub.add("hms", deviceToken=fake.device(), body=body))
    urgencies = [json.loads(one.body)["message"]["android"]["urgency"] for one in fake.taken(PATHS["hms"])]
    assert urgencies == ["NORMAL", "HIGH", "HIGH"]


def test_an_unreadable_content_is_rejected_with_its_field(stub, sending):
    sender = sending("fcm")
    fake = fakes_of(sender)
    job = stub.add("fcm", deviceToken=fake.device(), body={"notification": {"title": 5, "body": "x"}})
    assert (stub.final(job)["outcome"], stub.final(job)["reason"]) == ("rejected", "unreadable notification.title")
    assert fake.sent == []


def test_a_message_against_the_vendors_rules_is_not_sent(stub, sending):
    sender = sending("oppo")
    fake = fakes_of(sender)
    job = stub.add("oppo", deviceToken=fake.device(), body={"transmission": "for the app"})
    assert stub.final(job)["outcome"] == "rejected"
    assert fake.requests == [] or fake.sent == []


def test_an_app_without_a_credential(stub, sending):
    sender = sending("fcm")
    sender.stop()
    sender.sections["credentials"][0]["apps"] = ["one"]
    sender.start()
    fake = fakes_of(sender)
    good, other = (stub.add("fcm", deviceToken=fake.device(), appId=app) for app in ("one", "two"))
    assert stub.final(good)["outcome"] == "accepted"
    result = stub.result(other)
    assert (result["outcome"], result["reason"], result["retryAfterSeconds"]) == ("unsent", "noCredential", 300)
    sender.logged("noCredential", "app two, fcm")
    # The sender stays ready for its other apps, and each page names the app that no credential serves.
    (unserved,) = json.loads(sender.get("/status")[1])["unserved"]
    assert (unserved["channel"], unserved["app"]) == ("fcm", "two") and unserved["secondsSinceJob"] < 60
    assert sender.get("/readyz")[1].splitlines() == ["ready", "app two, fcm: no credential is configured for it"]
    assert 'longwire_sender_unserved_apps{channel="fcm"} 1\n' in sender.get("/metrics")[1]


# Several vendors

HOOK_KEY = bytes(range(24))


def post_hook(port, body, call):
    """Posts a batch to the sender's hook as the gateway does (Standard Webhooks); returns the status."""
    stamp = str(int(time.time()))
    code = hmac.new(HOOK_KEY, f"{call}.{stamp}.".encode() + body, hashlib.sha256).digest()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", "/", body, {
            "webhook-id": call, "webhook-timestamp": stamp, "webhook-signature": "v1," + base64.b64encode(code).decode(),
            "Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_hook_takes_jobs_of_every_channel(stub, sending):
    """Goal: one call has jobs of two channels, of one without a credential, and of an unknown one; a repeated call sends nothing."""
    port, = free_ports(1)
    secret = "whsec_" + base64.b64encode(HOOK_KEY).decode()
    sender = sending(
        "fcm", "hms", gateway={"lease": False}, hook={"listen": f"127.0.0.1:{port}", "secret": secret})
    sender.logged("started")
    jobs = [stub.add(channel, deviceToken=fake.device()) for channel, fake in sender.fakes.items()]
    jobs += [stub.add("oppo", deviceToken="x"), stub.add("pigeon", deviceToken="x")]
    body = stub.batch(*jobs)
    assert [post_hook(port, body, "call-1"), post_hook(port, body, "call-1")] == [202, 202]
    assert [one["outcome"] for one in stub.settled(*jobs[:2])] == ["accepted"] * 2
    assert [stub.result(job)["reason"] for job in jobs[2:]] == ["noCredential"] * 2
    assert [len(fake.sent) for fake in sender.fakes.values()] == [1, 1]
    assert stub.leases == {}
    assert sender.metric("hook_calls_repeated_total") == 1
    stub.wait(lambda: sender.metric("jobs_held") == 0)


@pytest.mark.parametrize("place", ["vendors", "root", "variable", "excepted"])
def test_requests_take_the_configured_proxy(stub, sending, place, monkeypatch):
    """Goal: token request and messages go through the proxy of the vendor, of all vendors, or of HTTPS_PROXY."""
    from test_apns_edges import ConnectProxy
    with ConnectProxy() as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        match place:
            case "vendors":
                sender = sending("fcm", vendors={"fcm": {"proxy": {"url": url}}})
            case "root":
                sender = sending("fcm", proxy={"url": url})
            case _:
                monkeypatch.setenv("HTTPS_PROXY", url)
                monkeypatch.setenv("NO_PROXY", "localhost" if place == "excepted" else "")
                sender = sending("fcm")
        fake = fakes_of(sender)
        assert stub.final(stub.add("fcm", deviceToken=fake.device()))["outcome"] == "accepted"
        assert bool(proxy.asked) == (place != "excepted")


def test_a_server_without_a_trusted_certificate_gets_nothing(stub, sending):
    sender = sending("fcm", vendors={"fcm": {"authoritiesFile": "/etc/ssl/certs/ca-certificates.crt"}})
    fake = fakes_of(sender)
    stub.add("fcm", deviceToken=fake.device())
    sender.logged("connectionFailed", "certificate")
    assert fake.requests == []


def test_one_dead_vendor_holds_up_no_other(stub, sending):
    """Goal: three vendors deliver while a fourth accepts no connection, and that one's jobs return unsent."""
    sender = sending("fcm", "hms", "xiaomi", "oppo", gateway={"jobs": 8})
    dead = sender.fakes["oppo"]
    tokens = [dead.device() for _ in range(30)]
    dead.stop()
    lost_jobs = [stub.add("oppo", deviceToken=token) for token in tokens]
    sender.logged("connectionFailed", "oppo/our oppo")
    for channel in ("fcm", "hms", "xiaomi"):
        fake = sender.fakes[channel]
        jobs = [stub.add(channel, deviceToken=fake.device()) for _ in range(50)]
        assert {one["outcome"] for one in stub.settled(*jobs)} == {"accepted"}
        assert len(fake.sent) == 50
    assert stub.result(lost_jobs[0])["outcome"] == "unsent"
    assert sender.metric("vendor_lane_state", channel="oppo", state="failing") == 1
    assert {channel for channel in stub.leases if stub.leases[channel]} == set(sender.fakes)


def test_a_hanging_vendor_holds_up_no_other(stub, sending):
    """Goal: a vendor that answers nothing within the timeout fails alone, and delivers once it answers again."""
    sender = sending("fcm", "meizu", vendors={"meizu": {"timeoutMilliseconds": 300}})
    slow_one, fake = sender.fakes["meizu"], sender.fakes["fcm"]
    slow_one.script(slow(30), times=3)
    job = stub.add("meizu", deviceToken=slow_one.device())
    assert (stub.result(job)["outcome"], stub.result(job)["reason"]) == ("retry", "noAnswer")
    assert stub.final(stub.add("fcm", deviceToken=fake.device()))["outcome"] == "accepted"
    slow_one.clear_script()
    stub.requeue(job)
    assert stub.final(job)["outcome"] == "accepted"


def test_http2_shares_connections(stub, sending):
    """Goal: hundreds of requests use at most the configured connections."""
    sender = sending("fcm", vendors={"fcm": {"connections": 2}})
    fake = fakes_of(sender)
    jobs = [stub.add("fcm", deviceToken=fake.device()) for _ in range(300)]
    stub.settled(*jobs)
    assert {one.protocol for one in fake.taken("messages:send")} == {"HTTP/2"}
    assert len({one.connection for one in fake.requests}) <= 2


def test_a_refused_stream_is_sent_again(stub, sending):
    """Goal: a stream that the server refused unprocessed, and a connection that it ends in order, cost no message."""
    sender = sending("fcm")
    fake = fakes_of(sender)
    stub.final(stub.add("fcm", deviceToken=fake.device()))
    fake.script(Answer(refuses=True), closing(), path=PATHS["fcm"])
    jobs = [stub.add("fcm", deviceToken=fake.device()) for _ in range(5)]
    stub.is_eager = True
    assert {one["outcome"] for one in stub.settled(*jobs)} == {"accepted"}
    # A request on the ended connection whose answer was lost may be there twice; the app filters it by the id.
    assert {one.ids[0] for one in fake.sent[1:]} == {stub.gmid(job) for job in jobs} and len(fake.sent) <= 7


def test_http1_keeps_connections(stub, sending):
    sender = sending("hms", vendors={"hms": {"connections": 3}})
    fake = fakes_of(sender)
    jobs = [stub.add("hms", deviceToken=fake.device()) for _ in range(100)]
    stub.settled(*jobs)
    assert len({one.connection for one in fake.requests}) <= 3


def test_endpoints_in_private_networks_are_not_called(stub, sending):
    """Goal: a permitted name that leads to this machine gets no request, unless the configuration names it for tests."""
    sender = sending("webPush")
    fake = fakes_of(sender)
    sender.stop()
    sender.sections["credentials"][0]["allowedHosts"] = f"localhost.example:{fake.port}"
    sender.start()
    token = fake.device().replace("push.localhost", "localhost.example")
    # The name does not exist or, on a machine with such a name, leads to loopback: no request in either case.
    job = stub.add("webPush", deviceToken=token)
    sender.logged("connectionFailed", "localhost.example")
    assert fake.requests == [] and job not in stub.results


# The end of the process

def test_a_killed_sender_loses_nothing(stub, sending):
    """Goal: after SIGKILL under load, each message arrives; at most those in flight arrive twice."""
    sender = sending("fcm", "hms", gateway={"jobs": 100}, vendors={"fcm": {"requests": 20}, "hms": {"requests": 20}})
    jobs = [stub.add(channel, deviceToken=fake.device()) for _ in range(400) for channel, fake in sender.fakes.items()]
    stub.wait(lambda: len(stub.results) >= 100)
    sender.kill()
    in_flight = stub.expire()
    sender.start()
    assert {one["outcome"] for one in stub.settled(*jobs)} == {"accepted"}
    for channel, fake in sender.fakes.items():
        counts = Counter(sent.ids[0] for sent in fake.sent)
        assert set(counts) == {stub.gmid(job) for job in jobs if stub.jobs[job]["channel"] == channel}
        assert sum(counts.values()) - len(counts) <= sum(stub.jobs[job]["channel"] == channel for job in in_flight)


def test_a_stop_gives_waiting_jobs_back(stub, sending):
    """Goal: at SIGTERM the request in flight is reported, waiting jobs return unsent, and the exit code is 0."""
    sender = sending("meizu", vendors={"meizu": {"requests": 1}})
    fake = fakes_of(sender)
    fake.script(slow(1))
    jobs = [stub.add("meizu", deviceToken=fake.device()) for _ in range(10)]
    stub.wait(lambda: fake.requests and len(stub.leased) == 10)
    assert sender.stop() == 0
    found = Counter((stub.results[job][0]["outcome"], stub.results[job][0].get("reason", "")) for job in jobs)
    assert found == {("accepted", ""): 1, ("unsent", "senderStops"): 9}
    assert stub.leased == set()


def test_a_stop_ends_a_request_without_an_answer(stub, sending):
    sender = sending("meizu", stopSeconds=0)
    fake = fakes_of(sender)
    fake.script(slow(30))
    job = stub.add("meizu", deviceToken=fake.device())
    stub.wait(lambda: fake.requests)
    assert sender.stop() == 0
    assert outcomes(stub, job) == [("retry", "senderStops")]


def test_a_stop_gives_requests_back_that_had_not_begun(stub, sending):
    """Goal: of six requests on a connection with one stream, one may have arrived and five are `unsent`."""
    sender = sending(
        "fcm", options={"streams": 1}, vendors={"fcm": {"connections": 1, "requests": 6}}, stopSeconds=0)
    fake = fakes_of(sender)
    stub.final(stub.add("fcm", deviceToken=fake.device()))
    fake.script(slow(30), times=10)
    jobs = [stub.add("fcm", deviceToken=fake.device()) for _ in range(6)]
    stub.wait(lambda: len(stub.leased) == 6 and len(fake.taken(PATHS["fcm"])) == 2)
    stub.wait(lambda: sender.metric("vendor_requests", channel="fcm") == 6)
    assert sender.stop() == 0
    found = Counter(stub.results[job][0]["outcome"] for job in jobs)
    assert found == {"retry": 1, "unsent": 5}


def test_a_lost_report_is_repeated_without_another_message(stub, sending):
    """Goal: results are kept while the gateway answers 503."""
    stub.refusals = 3
    sender = sending("fcm")
    fake = fakes_of(sender)
    job = stub.add("fcm", deviceToken=fake.device())
    assert stub.final(job)["outcome"] == "accepted"
    assert len(fake.sent) == 1


def test_a_job_leased_again_is_not_sent_again(stub, sending):
    """Goal: a lease that ends while the result cannot be reported costs no second message. Method: refuse reports, expire."""
    stub.refusals = 4
    sender = sending("fcm")
    fake = fakes_of(sender)
    job = stub.add("fcm", deviceToken=fake.device())
    stub.wait(lambda: fake.sent and stub.refusals < 4)
    stub.expire()
    assert stub.final(job)["outcome"] == "accepted"
    assert len(fake.sent) == 1


def test_a_reload_replaces_a_credential(stub, sending):
    """Goal: SIGHUP applies a new secret to later jobs."""
    sender = sending("xiaomi")
    fake = fakes_of(sender)
    stub.final(stub.add("xiaomi", deviceToken=fake.device()))
    fake.app.secret = "a-new-secret"
    pathlib.Path(sender.sections["credentials"][0]["appSecretFile"]).write_text("a-new-secret\n")
    sender.process.send_signal(signal.SIGHUP)
    sender.logged("reloaded")
    assert stub.final(stub.add("xiaomi", deviceToken=fake.device()))["outcome"] == "accepted"


def test_a_reload_keeps_an_unchanged_credentials_access_token(stub, sending):
    """Goal: SIGHUP costs no token request, and a credential of a new channel is announced for the next start."""
    sender = sending("fcm")
    fake = fakes_of(sender)
    stub.final(stub.add("fcm", deviceToken=fake.device()))
    sender.sections["credentials"].append(
        {"name": "new", "vendor": "meizu", "appId": "1", "appSecret": "secret"})
    assert sender.file.exists()
    sender.process.send_signal(signal.SIGHUP)
    sender.logged("configurationWarning", "credentials of meizu take effect after a restart")
    sender.logged("reloaded")
    assert stub.final(stub.add("fcm", deviceToken=fake.device()))["outcome"] == "accepted"
    assert len(fake.taken("/token")) == 1


# Configuration and doctor

def test_doctor_checks_every_credential(stub, sending):
    sender = sending(*CHANNELS)
    done = sender.run("doctor")
    assert done.returncode == 0, done.stdout
    for channel in CHANNELS:
        assert f"ok       {channel}, our {channel}: " in done.stdout
    for channel in ("fcm", "vivo"):
        assert sender.fakes[channel].sent == []


def test_doctor_names_a_refused_credential(stub, sending):
    sender = sending("fcm", "hms")
    sender.fakes["hms"].app.secret = "changed"
    done = sender.run("doctor")
    assert done.returncode == 1
    assert "PROBLEM  hms, our hms: " in done.stdout and "ok       fcm, our fcm: " in done.stdout


@pytest.mark.parametrize("answer", [(429, {}, ""), (413, {}, "")])
def test_doctor_takes_a_bare_status_for_no_proof(stub, sending, answer):
    sender = sending("hms")
    sender.fakes["hms"].script(answer, path=PATHS["hms"])
    done = sender.run("doctor")
    assert done.returncode == 1 and f"PROBLEM  hms, our hms: the vendor cannot be used now: HTTP{answer[0]}" in done.stdout


@pytest.mark.parametrize("change, text", [
    ({"vendor": "apple"}, 'credentials[0].vendor: "apple" is not allowed; one of "apns", "fcm"'),
    ({"serviceAccountFile": None}, "credentials[0].serviceAccount: missing; give serviceAccountFile"),
    ({"serviceAccount": "{}"}, "credentials[0].serviceAccountFile: not allowed beside serviceAccount"),
    ({"appSecret": "x"}, "credentials[0].appSecret: unknown key"),
    ({"baseURL": "http://example.com"}, "credentials[0].vendor: fcm: baseURL must be an https URL"),
    ({"name": ""}, "credentials[0].name: "),
])
def test_a_bad_credential_is_an_error(stub, sending, change, text):
    sender = sending("fcm", starts=False)
    entry = sender.sections["credentials"][0]
    entry.update(change)
    done = sender.run("--check")
    assert done.returncode == 78 and text in done.stderr, done.stderr


@pytest.mark.parametrize("vendors, text", [
    ({"fcn": {}}, "vendors.fcn: unknown key"),
    ({"fcm": {"requests": 0}}, "vendors.fcm.requests: 0 is not allowed"),
    ({"fcm": {"timeoutMilliseconds": 31_000}}, "vendors.fcm.timeoutMilliseconds: must be at most half"),
    ({"fcm": {"proxy": {"url": "socks5://x"}}}, "vendors.fcm.proxy.url"),
])
def test_a_bad_bound_is_an_error(stub, sending, vendors, text):
    sender = sending("fcm", starts=False)
    sender.sections["vendors"] = vendors
    done = sender.run("--check")
    assert done.returncode == 78 and text in done.stderr, done.stderr


def test_a_configuration_without_credentials_is_an_error(stub, sending):
    sender = sending("fcm", starts=False)
    for credentials in ([], None):
        sender.sections["credentials"] = credentials
        done = sender.run("--check")
        assert done.returncode == 78 and "at least one credential of a vendor" in done.stderr, done.stderr


# Receipts

SECRET = "a-secret-of-16-characters"
MESSAGES = [f"0123456789abcdef{number:016x}" for number in range(100)]


@pytest.fixture
def listening(stub, sending):
    """Starts a sender with a listener for receipts; returns the sender and the base of its URLs."""

    def make(channel, receipts):
        sender = sending(channel, starts=False)
        port, = free_ports(1)
        sender.sections["credentials"][0] |= {"receipts": receipts, "apps": ["app"]}
        sender.sections["receipts"] = {"listen": f"127.0.0.1:{port}"}
        sender.start()
        stub.wait(lambda: stub.leases[channel])
        started.append(sender)
        return sender, f"http://127.0.0.1:{port}/receipts/{channel}/our%20{channel}"

    started = []
    yield make
    for sender in started:
        sender.__exit__()


def test_receipts_of_xiaomi_reach_the_gateway(stub, listening):
    """Goal: receipts pass on with ids, tokens and kinds, also if the gateway refuses the first calls."""
    stub.refusals = 2
    sender, base = listening("xiaomi", {"secret": SECRET})
    message = MESSAGES[0]
    call = receipts.xiaomi("scm1", ["token-one", "token-two"], param=message)
    assert call.post(f"{base}/{SECRET}") == (200, b'{"code":"0","message":"success"}')
    assert receipts.xiaomi("scm2", ["token-three"], kind=16).post(f"{base}/{SECRET}")[0] == 200
    stub.wait(lambda: len(stub.receipts) >= 2)
    stub.wait(lambda: sender.metric("receipts_passed_total") == 3)
    found = {(one.get("token"), one.get("msgId"), one["kind"]) for one in stub.receipts}
    assert found == {("token-one", message, "delivered"), ("token-two", message, "delivered")}, "a receipt without an id is of no message"
    assert {(one["channel"], one["appId"]) for one in stub.receipts} == {("xiaomi", "app")}
    assert sender.metric("receipts_total", channel="xiaomi") == 3


def test_receipts_with_a_wrong_secret_are_refused(stub, listening):
    sender, base = listening("oppo", {"secret": SECRET})
    call = receipts.oppo([("m1", ["token-one"])], param="0123456789abcdef" * 2)
    assert [call.post(url)[0] for url in (base, f"{base}/{SECRET}x", f"{base}/", f"{base}/{SECRET}/more")] == [403, 403, 403, 404]
    assert call.post(base.replace("/oppo/", "/vivo/") + f"/{SECRET}")[0] == 404
    assert call.post(f"{base}/{SECRET}")[0] == 200
    stub.wait(lambda: stub.receipts)
    assert len(stub.receipts) == 1
    assert sender.metric("receipt_calls_refused_total", reason="forged") == 3


@pytest.mark.parametrize("channel, status", [("hms", receipts.huawei_status), ("harmony", receipts.harmony_status)])
def test_signed_receipts_of_huawei(stub, listening, channel, status):
    _, base = listening(channel, {"user": "longwire", "key": "the-key-of-the-console"})
    good = {"user": "longwire", "key": "the-key-of-the-console"}
    statuses = [status("token-one", "r1", tag="0123456789abcdef" * 2), status("token-two", "r2", 2, tag="fedcba9876543210" * 2)]
    forged = [
        receipts.huawei(statuses), receipts.huawei(statuses, **good, forged=True),
        receipts.huawei(statuses, **good, at=time.time() - 3_600),
        receipts.huawei(statuses, user="other", key=good["key"]),
    ]
    assert [call.post(base)[0] for call in forged] == [403] * 4
    assert receipts.huawei(statuses, **good).post(base)[0] == 200
    stub.wait(lambda: len(stub.receipts) >= 2)
    assert [(one["token"], one["kind"]) for one in stub.receipts] == [("token-one", "delivered"), ("token-two", "badToken")]


def test_unreadable_receipts_are_refused(stub, listening):
    _, base = listening("vivo", {"secret": SECRET})
    for body in (b"", b"[]", b"<html>", b'"x"'):
        assert receipts.Call({}, body).post(f"{base}/{SECRET}")[0] == 400
    assert receipts.Call({}, b"", "GET").post(f"{base}/{SECRET}")[0] == 405
    assert receipts.vivo([("t1", ["token-one"])]).post(f"{base}/{SECRET}")[0] == 200


def test_a_listener_of_receipts_in_the_clear_is_warned_of(stub, sending):
    sender = sending("oppo", starts=False)
    port, = free_ports(1)
    sender.sections["receipts"] = {"listen": f"0.0.0.0:{port}"}
    with sender:
        sender.logged("configurationWarning", f"receipts.listen 0.0.0.0:{port}: ")


def test_only_receipts_that_were_not_stored_are_sent_again(stub, listening):
    """Goal: of five receipts the gateway stores four at once, and only the fifth is repeated, until it is stored."""
    stub.unstored = {MESSAGES[2]: 3}
    sender, base = listening("vivo", {"secret": SECRET})
    for message in MESSAGES[:5]:
        assert receipts.vivo([("v", ["token"])], param=message).post(f"{base}/{SECRET}")[0] == 200
    stub.wait(lambda: sender.metric("receipts_passed_total") == 5)
    counts = Counter(message for call in stub.receipt_calls for message in call)
    assert counts == {message: 4 if message == MESSAGES[2] else 1 for message in MESSAGES[:5]}
    assert (sender.metric("receipts_dropped_total"), sender.metric("receipts_waiting")) == (0, 0)


def test_a_malformed_receipt_costs_no_other(stub, listening):
    """Goal: the gateway refuses batches with one receipt; the sender finds it and drops only that one."""
    stub.malformed_receipts = {MESSAGES[37]}
    sender, base = listening("vivo", {"secret": SECRET})
    body = json.dumps({f"v{number}": {"param": message, "targets": "token"} for number, message in enumerate(MESSAGES)})
    assert receipts.Call({}, body.encode()).post(f"{base}/{SECRET}")[0] == 200
    stub.wait(lambda: sender.metric("receipts_passed_total") == 99)
    assert {one["msgId"] for one in stub.receipts} == set(MESSAGES) - {MESSAGES[37]}
    assert len(stub.receipts) == 99
    sender.logged("receiptsDropped", "1 receipt is dropped")
    assert sender.metric("receipts_dropped_total") == 1


LONG = "t" * 1_025


@pytest.mark.parametrize("channel, make", [
    ("xiaomi", lambda token, param: receipts.xiaomi("m", [token], param=param)),
    ("oppo", lambda token, param: receipts.oppo([("m", [token])], param=param)),
    ("vivo", lambda token, param: receipts.vivo([("m", [token])], param=param)),
    ("honor", lambda token, param: receipts.honor([receipts.honor_status(token, "m", tag=param)])),
])
def test_receipts_with_long_tokens_are_dropped(stub, listening, channel, make):
    """Goal: a receipt with a token above 1,024 bytes is dropped, and one with 1,024 bytes is passed on to the gateway."""
    sender, base = listening(channel, {"secret": SECRET})
    for message, token in [(MESSAGES[0], LONG), (MESSAGES[1], LONG[1:])]:
        assert make(token, message).post(f"{base}/{SECRET}")[0] == 200
    stub.wait(lambda: stub.receipts)
    assert [(one["msgId"], one["token"]) for one in stub.receipts] == [(MESSAGES[1], LONG[1:])]
    assert sender.metric("receipts_total", channel=channel) == 1


def test_a_captured_signature_proves_no_other_body(stub, listening):
    """Goal: a signed call may be repeated by the vendor, but its signature serves no other body."""
    sender, base = listening("hms", {"user": "longwire", "key": "the-key-of-the-console"})
    call = receipts.huawei(
        [receipts.huawei_status("token", "r", tag=MESSAGES[0])], user="longwire", key="the-key-of-the-console")
    assert [call.post(base)[0] for _ in range(2)] == [200, 200]
    other = receipts.huawei([receipts.huawei_status("token", "r", 2, tag=MESSAGES[1])])
    other.headers = call.headers
    assert other.post(base)[0] == 403
    stub.wait(lambda: sender.metric("receipts_passed_total") == 2)
    assert {one["msgId"] for one in stub.receipts} == {MESSAGES[0]}


@pytest.mark.parametrize("channel, call, at", [
    ("xiaomi", receipts.xiaomi("m", ["t"], kind=16, param=MESSAGES[0], timestamp="1700000000123"), 1_700_000_000_123),
    ("xiaomi", receipts.xiaomi("m", ["t"], param=MESSAGES[0], timestamp="soon"), 0),
    ("vivo", receipts.vivo([("m", ["t"])], param=MESSAGES[0]), 0),
])
def test_receipts_have_the_vendors_time(stub, listening, channel, call, at):
    """Goal: the gateway gets the vendor's time or 0, so that a late receipt voids no token that was registered since."""
    _, base = listening(channel, {"secret": SECRET})
    assert call.post(f"{base}/{SECRET}")[0] == 200
    stub.wait(lambda: stub.receipts)
    assert stub.receipts[0]["at"] == at


@pytest.mark.parametrize("channel, status", [("hms", receipts.huawei_status), ("harmony", receipts.harmony_status)])
def test_receipts_of_huawei_have_its_time(stub, listening, channel, status):
    _, base = listening(channel, {"secret": SECRET})
    one = status("t", "r", tag=MESSAGES[0])
    one.get("deliveryStatus", one)["timestamp"] = 1_700_000_000_123
    assert receipts.huawei([one]).post(f"{base}/{SECRET}")[0] == 200
    stub.wait(lambda: stub.receipts)
    assert stub.receipts[0]["at"] == 1_700_000_000_123


@pytest.mark.parametrize("channel, receipt, text", [
    ("fcm", {"secret": SECRET}, "credentials[0].receipts.secret: not allowed; fcm sends no receipts"),
    ("oppo", {"user": "x", "key": "y"}, "credentials[0].receipts.user: not allowed; oppo signs nothing"),
    ("oppo", {"secret": "short"}, "credentials[0].receipts.secret: the value is not allowed"),
    ("oppo", {"secret": SECRET}, "receipts: missing; the listener"),
])
def test_a_bad_proof_of_receipts_is_an_error(stub, sending, channel, receipt, text):
    sender = sending(channel, starts=False)
    sender.sections["credentials"][0]["receipts"] = receipt
    done = sender.run("--check")
    assert done.returncode == 78 and text in done.stderr, done.stderr
