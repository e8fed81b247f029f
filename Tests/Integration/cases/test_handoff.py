"""The handoff queue: leases, expired leases, retries, bad tokens, badges, and the hook."""

import json
import socket
import threading

import pytest
from conftest import QUICK
from gateway import eventually
from hook_receiver import Receiver
from longwire_client import pb

SECRET = "whsec_" + "bG9uZ3dpcmUgaW50ZWdyYXRpb24gaG9vayBzZWNyZXQ="


@pytest.fixture
def away(new_device):
    """Creates registered, disconnected devices, each with a token."""

    def make(gateway, token="ab" * 32, **fields):
        device = new_device(gateway, token=token, **fields)
        device.close()
        eventually(lambda: not gateway.view(device.cid)["connected"])
        return device

    return make


def test_a_lapsed_lease_returns_the_job_and_the_last_attempt_exhausts_it(own_gateway, away):
    gateway = own_gateway(app={"maxAttempts": 2})
    device = away(gateway)
    message = gateway.push(device.cid, "x", strategy=2, alert="A")
    first = gateway.lease(lease=5)[0]
    assert first["attempt"] == 1 and gateway.lease() == [], "leased once at a time"
    second = eventually(lambda: gateway.lease(lease=5, wait=10))[0]
    assert (second["jobId"], second["attempt"]) == (first["jobId"], 2)
    assert second["leaseId"] != first["leaseId"]
    assert gateway.settle(first, "retry") == "stale"
    trace = gateway.ends_as(message["msgId"], "failed")
    assert [step["event"] for step in trace["steps"]].count("leaseLapsed") == 2


def test_a_late_accepted_counts(own_gateway, away):
    gateway = own_gateway()
    device = away(gateway)
    message = gateway.push(device.cid, "x", alert="A")
    first = gateway.lease(lease=5)[0]
    eventually(lambda: "leaseLapsed" in gateway.steps(message["msgId"]))
    assert gateway.settle(first, "accepted") == "recorded"
    assert gateway.lease() == [], "its unleased copy is cancelled"
    device.connect()
    assert device.receive_and_ack(1)[0].alerted_at > 0


def test_extend_keeps_a_lease(own_gateway, away):
    gateway = own_gateway()
    device = away(gateway)
    gateway.push(device.cid, "x", alert="A")
    job = gateway.lease(lease=5)[0]
    assert gateway.extend(job, 60) == "recorded"
    assert gateway.lease(wait=6) == []
    assert gateway.settle(job, "accepted") == "recorded"
    assert gateway.extend({**job, "leaseId": "0" * 31 + "1"}) in ("stale", "cancelled", "unknownJob")


def test_extend_of_a_job_whose_message_was_acked_is_cancelled(gateway, away):
    device = away(gateway)
    gateway.push(device.cid, "x", alert="A")
    job = gateway.lease()[0]
    device.connect()
    device.receive_and_ack(1)
    eventually(lambda: gateway.view(device.cid)["queue"]["messages"] == 0)
    assert gateway.extend(job) == "cancelled"


def test_retry_waits_and_rejected_ends(gateway, away):
    device = away(gateway)
    message = gateway.push(device.cid, "x", strategy=2, alert="A")
    job = gateway.lease()[0]
    assert gateway.settle(job, "retry", retryAfterSeconds=1, reason="busy") == "recorded"
    assert gateway.lease() == []
    again = gateway.lease(wait=10)[0]
    assert (again["jobId"], again["attempt"]) == (job["jobId"], 2)
    assert gateway.settle(again, "rejected", reason="BadTopic") == "recorded"
    trace = gateway.ends_as(message["msgId"], "failed")
    assert "BadTopic" in json.dumps(trace)


def test_a_bad_token_is_quarantined_and_a_new_one_is_used(gateway, away):
    device = away(gateway, token="aa" * 32)
    gateway.push(device.cid, "x", alert="A")
    job = gateway.lease()[0]
    assert gateway.settle(job, "badToken", reason="Unregistered", timestamp=2**41) == "recorded"
    assert gateway.view(device.cid)["tokens"][0]["quarantined"]
    assert gateway.push(device.cid, "y", alert="A")["fallbackReason"] == "noToken"
    device.connect(tokens=[pb.VendorToken(token="bb" * 32, environment=pb.VendorToken.SANDBOX)])
    device.receive_and_ack(2)
    device.close()
    eventually(lambda: not gateway.view(device.cid)["connected"])
    gateway.push(device.cid, "z", alert="A")
    job = gateway.lease()[0]
    assert (job["deviceToken"], job["environment"]) == ("bb" * 32, "sandbox")
    gateway.settle(job, "accepted")


def test_a_badge_is_applied_once_a_message(gateway, away):
    device = away(gateway, badge=3)
    gateway.push(device.cid, "x", alert="A", badge="+1")
    job = gateway.lease()[0]
    assert job["body"]["aps"]["badge"] == 4
    gateway.settle(job, "retry")
    gateway.push(device.cid, "y", alert="A", badge="+1")
    jobs = gateway.lease() or gateway.lease(wait=5)
    while len(jobs) < 2:
        jobs += gateway.lease(wait=5)
    assert [one["body"]["aps"]["badge"] for one in jobs] in ([4, 5], [5, 5], [5, 4]), "never lowered, never twice"
    assert gateway.view(device.cid)["badge"] == 5
    for one in jobs:
        gateway.settle(one, "accepted")


def test_an_ack_before_the_lease_cancels_the_job(gateway, new_device):
    device = new_device(gateway, token="cc" * 32)
    message = gateway.push(device.cid, "x", alert="A")
    device.receive_and_ack(1)
    gateway.ends_as(message["msgId"], "delivered")
    assert gateway.lease(wait=1) == []


def test_an_ack_after_the_lease_is_alerted_twice(gateway, away):
    device = away(gateway)
    message = gateway.push(device.cid, "x", alert="A")
    job = gateway.lease()[0]
    device.connect()
    device.receive_and_ack(1)
    gateway.ends_as(message["msgId"], "deliveredOffline")
    assert gateway.settle(job, "accepted") == "recorded"
    assert "alertedTwice" in gateway.steps(message["msgId"])
    assert gateway.trace(message["msgId"])["state"] == "deliveredOffline"


def test_strategy_4_goes_live_when_the_vendor_fails(own_gateway, new_device):
    gateway = own_gateway(limits={**QUICK, "vendorFirstPatienceMilliseconds": 60_000})
    device = new_device(gateway, token="dd" * 32)
    accepted, refused = (gateway.push(device.cid, text, strategy=4, alert="A") for text in ("vendor", "live"))
    jobs = {job["msgId"]: job for job in gateway.lease(wait=5)}
    gateway.settle(jobs[accepted["msgId"]], "accepted")
    gateway.settle(jobs[refused["msgId"]], "rejected")
    got = device.receive_and_ack(1)[0]
    assert (got.payload, got.offline) == (b"live", True)
    gateway.ends_as(accepted["msgId"], "handedOff")
    gateway.ends_as(refused["msgId"], "deliveredOffline")


def test_strategy_4_goes_live_when_nobody_leases(gateway, new_device):
    device = new_device(gateway, token="ee" * 32)
    gateway.push(device.cid, "unleased", strategy=4, alert="A")
    assert device.receive_and_ack(1)[0].payload == b"unleased"
    assert gateway.lease() == []


def test_a_long_poll_wakes_when_a_job_falls_due(gateway, away):
    device = away(gateway)
    found = []
    waiting = threading.Thread(target=lambda: found.extend(gateway.lease(wait=20)))
    waiting.start()
    message = gateway.push(device.cid, "x", alert="A")
    waiting.join(15)
    assert not waiting.is_alive() and [job["msgId"] for job in found] == [message["msgId"]]
    gateway.settle(found[0], "accepted")


def test_leases_survive_a_kill(own_gateway, away):
    gateway = own_gateway()
    device = away(gateway)
    message = gateway.push(device.cid, "x", alert="A")
    job = gateway.lease(lease=120)[0]
    gateway.kill()
    gateway.start()
    assert gateway.lease() == [], "still leased to the one who has it"
    assert gateway.settle(job, "accepted") == "recorded"
    assert "vendorAccepted" in gateway.steps(message["msgId"])


# The hook


@pytest.fixture
def hooked(own_gateway):
    """Creates a gateway with a hook whose receiver gives the test's answers."""
    receivers = []

    def make(answer):
        receiver = Receiver(SECRET, answer)
        receivers.append(receiver)
        gateway = own_gateway(limits=QUICK, hook={"url": receiver.url, "secret": SECRET})
        return gateway, receiver

    yield make
    for receiver in receivers:
        receiver.shutdown()
        receiver.server_close()


def test_hook_empty_200_accepts_all(hooked, away):
    gateway, receiver = hooked(lambda jobs: (200, b""))
    device = away(gateway)
    messages = [gateway.push(device.cid, "x", alert="A")["msgId"] for _ in range(3)]
    for message in messages:
        eventually(lambda: "vendorAccepted" in gateway.steps(message))
    assert {job["msgId"] for _, jobs in receiver.batches for job in jobs} == set(messages)
    assert all(name for name, _ in receiver.batches), "every signature was genuine"


def test_hook_202_leaves_the_results_to_the_api(hooked, away):
    gateway, receiver = hooked(lambda jobs: (202, b""))
    device = away(gateway)
    message = gateway.push(device.cid, "x", strategy=2, alert="A")["msgId"]
    eventually(lambda: receiver.batches)
    assert gateway.trace(message)["state"] == "pending"
    assert gateway.settle(receiver.batches[0][1][0], "accepted") == "recorded"
    gateway.ends_as(message, "handedOff")


def test_hook_body_names_outcomes_and_the_rest_is_accepted(hooked, away):
    def answer(jobs):
        bad = [job for job in jobs if "bad" in json.dumps(job["body"])]
        results = [{"jobId": job["jobId"], "outcome": "rejected", "reason": "no"} for job in bad]
        return 200, json.dumps({"results": results}).encode()

    gateway, _ = hooked(answer)
    device = away(gateway)
    good, bad = (gateway.push(device.cid, "x", strategy=2, alert=alert)["msgId"] for alert in ("good", "bad"))
    gateway.ends_as(good, "handedOff")
    gateway.ends_as(bad, "failed")


def test_hook_failures_are_repeated_under_the_same_id(hooked, away):
    answers = iter([(500, b""), (302, b"elsewhere"), (200, b"rubbish"), (200, b"")])
    gateway, receiver = hooked(lambda jobs: next(answers, (200, b"")))
    device = away(gateway)
    message = gateway.push(device.cid, "x", strategy=2, alert="A")["msgId"]
    eventually(lambda: gateway.trace(message)["state"] == "handedOff", "acceptance by the hook", timeout=60)
    assert len(receiver.batches) == 4
    assert len({name for name, _ in receiver.batches}) == 1, "one webhook-id for one delivery"
    assert "hook" in gateway.metrics()


def test_a_restart_while_the_hook_is_down_costs_no_attempt_and_no_lease(own_gateway, away):
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))
    gateway = own_gateway(
        limits=QUICK, hook={"url": f"http://127.0.0.1:{closed.getsockname()[1]}/", "secret": SECRET})
    device = away(gateway)
    message = gateway.push(device.cid, "x", strategy=2, alert="A")["msgId"]
    eventually(lambda: 'longwire_hook_attempts_total{result="failed"} 1' in gateway.metrics(), "an attempt")
    assert gateway.stop() == 0
    closed.close()
    receiver = Receiver(SECRET, lambda jobs: (200, b""))
    try:
        gateway.sections["hook"]["url"] = receiver.url
        gateway.start()
        # The lease of the first attempt would have lasted five minutes.
        eventually(lambda: gateway.trace(message)["state"] == "handedOff", "acceptance by the hook", timeout=60)
        trace = gateway.trace(message)
        assert trace["attempts"] == 1 and "unsent" in [step["event"] for step in trace["steps"]]
    finally:
        receiver.shutdown()
        receiver.server_close()


def test_a_credential_of_another_app_ends_nothing(own_gateway, away):
    gateway = own_gateway()
    device = away(gateway)
    message = gateway.push(device.cid, "x", strategy=2, alert="A")
    job = gateway.lease(lease=60)[0]
    assert gateway.stop() == 0
    other = {**gateway.app, "appId": "strangers", "appKey": "strangersKey"}
    other.update({name: gateway.app[name][::-1] for name in ("appSecret", "masterSecret")})
    gateway.sections["apps"].append(other)
    token = "integration-stranger-token-1"
    gateway._secret("stranger", token)
    gateway.sections["credentials"].append(
        {"name": "stranger", "tokenFile": str(gateway.folder / "stranger"), "may": ["handoff"], "apps": ["strangers"]})
    gateway.start()
    lease = {"jobId": job["jobId"], "leaseId": job["leaseId"]}
    for outcome in ("accepted", "badToken", "rejected", "retry"):
        told = gateway.admin_call("POST", "/v1/handoff/results", [{**lease, "outcome": outcome}], token=token)
        assert told["results"][0]["verdict"] == "unknownJob"
    extended = gateway.admin_call("POST", "/v1/handoff/extend", {"jobs": [lease], "leaseSeconds": 60}, token=token)
    assert extended["results"][0]["verdict"] == "unknownJob"
    assert gateway.trace(message["msgId"])["state"] == "pending"
    assert gateway.settle({**job, "leaseId": "f" * 32}, "accepted") == "stale"
    assert [gateway.settle(job, "accepted") for _ in range(3)] == ["recorded"] * 3
    assert gateway.trace(message["msgId"])["state"] == "handedOff"
