"""longwire-sender between a real gateway and a fake Apple: deliveries, retries, logs and metrics."""

import json
import random
import shutil
import socket
import ssl
import subprocess
import time
import urllib.parse

import longwire_client
import pytest
from apple import FakeApple, FaultyProxy, OtherApple, Sender, settled
from certificates import EXPIRED, Certificate, authority
from conftest import QUICK
from gateway import binary, eventually
from painter import answering

HOOK_SECRET = "whsec_" + "bG9uZ3dpcmUgaW50ZWdyYXRpb24gaG9vayBzZWNyZXQ="


@pytest.fixture
def apple():
    with FakeApple() as apple:
        yield apple


@pytest.fixture
def away(new_device):
    """Creates registered, disconnected devices, each with its own token."""

    def make(gateway, count=1, prefix="ab"):
        made = []
        for number in range(count):
            device = new_device(gateway, token=prefix + f"{number:062x}")
            device.token = prefix + f"{number:062x}"
            device.close()
            made.append(device)
        eventually(lambda: not gateway.view(made[-1].cid)["connected"])
        return made

    return make


def test_an_offline_devices_message_appears_on_its_phone_and_its_tap_ends_it(own_gateway, new_device, away, apple):
    gateway = own_gateway()
    device = away(gateway)[0]
    with Sender(gateway, apple) as sender:
        message = gateway.push(device.cid, "hello", alert="Hello", badge=3)
        phone = eventually(lambda: apple.phones().get(device.token))
        shown = phone["shown"][0]
        assert (shown["title"], phone["badge"]) == ("Hello", 3)
        assert shown["id"].replace("-", "") == message["msgId"]
        eventually(lambda: "vendorAccepted" in gateway.steps(message["msgId"]))
        # The tap launches the app, which reports the opened message.
        tap = apple.tap(device.token, shown["id"])
        assert message["msgId"] in tap["userInfo"]["_gmid_"]
        device.connect(opened=[bytes.fromhex(message["msgId"])])
        gateway.ends_as(message["msgId"], "opened")
        assert gateway.view(device.cid)["queue"]["messages"] == 0
        assert sender.get("/readyz") == (200, "ready\n")


def test_a_requests_delay_counts_from_when_its_job_fell_due(own_gateway, away, apple):
    gateway = own_gateway()
    device = away(gateway)[0]
    message = gateway.push(device.cid, "x", strategy=2, alert="A")["msgId"]
    due = time.monotonic()
    eventually(lambda: time.monotonic() > due + 0.3)
    starts = time.monotonic()
    with Sender(gateway, apple) as sender:
        gateway.ends_as(message, "handedOff")
        assert sender.metric("request_delay_seconds_count") == 1
        # Both clocks have a resolution of a millisecond.
        assert sender.metric("request_delay_seconds_sum") > starts - due - 0.01


def test_a_bad_token_is_quarantined_and_named_in_the_trace(own_gateway, away, apple):
    gateway = own_gateway()
    gone, wrong = away(gateway, prefix="dead")[0], away(gateway, prefix="bad0")[0]
    with Sender(gateway, apple) as sender:
        first = gateway.push(gone.cid, "x", strategy=2, alert="A")
        second = gateway.push(wrong.cid, "y", strategy=2, alert="B")
        assert gateway.ends_as(first["msgId"], "failed")["reason"] == "badToken"
        trace = gateway.ends_as(second["msgId"], "failed")
        assert any("BadDeviceToken" in str(step) for step in trace["steps"])
        # The token might have belonged to the other environment, so it was tried there, once.
        assert {request["environment"] for request in apple.requests() if request["token"] == wrong.token} == {
            "production", "sandbox"
        }
        assert sender.metric('outcomes_total{outcome="badToken"}') == 2
        count = len(apple.requests())
        third = gateway.push(gone.cid, "z", alert="C")
        assert gateway.trace(third["msgId"])["fallback"] != "due" and len(apple.requests()) == count


@pytest.mark.parametrize("seed", [1, 2])
def test_a_sender_killed_under_load_loses_nothing_and_repeats_little(own_gateway, away, apple, seed):
    chance = random.Random(seed)
    gateway = own_gateway()
    devices = away(gateway, count=20)
    with Sender(gateway, apple, None, {"requestMilliseconds": 5_000}, leaseSeconds=10, jobs=50) as sender:
        messages, kills = [], 0
        for round_number in range(4):
            for device in devices:
                messages.append(gateway.push(device.cid, f"{round_number}", strategy=2, alert="A")["msgId"])
            time.sleep(chance.uniform(0, 0.1))
            sender.kill()
            kills += 1
            sender.start()
        for message in messages:
            gateway.ends_as(message, "handedOff")
        taken = [request["id"].replace("-", "") for request in apple.requests() if request["taken"]]
        assert set(messages) <= set(taken), "nothing is lost"
        assert len(taken) - len(set(taken)) <= kills * 50, "at most the jobs in flight are repeated"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_proxy_that_cuts_loses_nothing_and_repeats_what_was_in_flight(own_gateway, away, apple, seed):
    chance = random.Random(seed)
    # Five connections break, in the handshake or under load, so that no job is returned more than once.
    faults = [(chance.choice(("cut", "reset", "stall")), chance.randint(1, 30_000)) for _ in range(5)]
    faults.insert(chance.randrange(6), ("delay", 0.02))
    gateway = own_gateway()
    devices = away(gateway, count=20)
    streams = 10
    apple.play({"streams": streams})
    with FaultyProxy(apple, faults) as proxy:
        settings = {"requestMilliseconds": 2_000, "connections": 2}
        with Sender(gateway, proxy, None, settings, leaseSeconds=10, jobs=100) as sender:
            messages = []
            for number in range(15):
                messages += [gateway.push(device.cid, f"{number}", strategy=2, alert="A")["msgId"] for device in devices]
            for message in messages:
                gateway.ends_as(message, "handedOff")
            eventually(lambda: sender.metric("jobs_held") == 0)
            taken = [request["id"].replace("-", "") for request in apple.requests() if request["taken"]]
            assert set(taken) == set(messages), "nothing is lost, nothing is made up"
            repeats = len(taken) - len(set(taken))
            # Each repetition follows a request without an answer, which the sender counts. A broken connection has as many as it
            # had streams.
            assert repeats <= sender.metric("requests_unknown_total") <= proxy.cuts * streams
            assert proxy.cuts >= 1


@pytest.mark.parametrize("way", ["deaf", "slow"])
def test_a_slow_apple_stops_no_other_and_holds_no_more_than_its_bounds(
    own_gateway, new_device, away, apple, way
):
    gateway = own_gateway()
    devices = away(gateway, count=30)
    sandbox = longwire_client.pb.VendorToken(token="cd" * 32, environment=longwire_client.pb.VendorToken.SANDBOX)
    near = new_device(gateway, tokens=[sandbox])
    near.close()
    limits = {"requestMilliseconds": 4_000, "connections": 1, "streams": 20}
    apple.play({"streams": 20})
    with OtherApple(apple, streams=20, deaf=2 if way == "deaf" else 0, delay=0.3 if way == "slow" else 0) as other:
        sender = Sender(gateway, apple, None, limits, leaseSeconds=20, jobs=25)
        # Production is slow, and another credential serves the sandbox.
        sender.sections["apple"]["production"] = f"localhost:{other.production}"
        key = sender.sections["credentials"][0]["key"]
        sender.sections["credentials"] = [
            {"name": "slow", "key": key, "environments": ["production"]},
            {"name": "quick", "key": key, "environments": ["sandbox"]},
        ]
        with sender:
            messages = [gateway.push(device.cid, "x", strategy=2, alert="A" * 3_000)["msgId"] for device in devices]
            eventually(lambda: sender.metric('streams{credential="slow",environment="production"}') > 0)
            quick = gateway.push(near.cid, "y", strategy=2, alert="B")["msgId"]
            gateway.ends_as(quick, "handedOff")
            most = {"streams": 0, "held": 0}

            def look():
                most["streams"] = max(most["streams"], sender.metric('streams{credential="slow",environment="production"}'))
                most["held"] = max(most["held"], sender.metric("jobs_held"))
                return all("vendorAccepted" in gateway.steps(message) for message in messages)

            eventually(look, "all handed off", timeout=90)
            # As many additional jobs as the bound, while production does not answer.
            assert most["streams"] <= 40 and most["held"] <= 50, most
            assert all("leaseLapsed" not in gateway.steps(message) for message in messages), "a lease lapsed"


def test_an_environment_that_cannot_be_reached_does_not_stop_the_other(own_gateway, new_device, away, apple):
    gateway = own_gateway()
    tokens = [
        longwire_client.pb.VendorToken(token=f"cd{number:062x}", environment=longwire_client.pb.VendorToken.SANDBOX)
        for number in range(40)
    ]
    lost = [new_device(gateway, tokens=[token]) for token in tokens]
    for device in lost:
        device.close()
    near = away(gateway, count=20)
    sender = Sender(gateway, apple, jobs=20)
    sender.sections["apple"]["sandbox"] = "localhost:1"
    with sender:
        # Twice as many jobs as the sender holds wait for an unreachable Apple.
        waiting = [gateway.push(device.cid, "x", strategy=2, alert="A")["msgId"] for device in lost]
        eventually(lambda: sender.metric('failing{credential="main",environment="sandbox"}') == 1)
        eventually(lambda: sender.metric('outcomes_total{outcome="unsent"}') >= 20)
        for device in near:
            message = gateway.push(device.cid, "y", strategy=2, alert="B")["msgId"]
            gateway.ends_as(message, "handedOff")
        assert sender.metric("jobs_held") <= 40
        assert sender.metric('waiting{credential="main",environment="sandbox"}') <= 5
        assert all(gateway.trace(message)["state"] == "pending" for message in waiting)
        eventually(lambda: "main/sandbox fails for" in sender.get("/readyz")[1], timeout=60)


def resident(process):
    """Returns the process's resident memory in bytes."""
    with open(f"/proc/{process.pid}/status") as status:
        line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) << 10


def test_strangers_cannot_fill_the_senders_memory(own_gateway, apple):
    sender = Sender(own_gateway(), apple, hook=HOOK_SECRET)
    with sender:
        before = resident(sender.process)
        plain = f"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {8 << 20}\r\n"
        signed = plain + (
            f"webhook-id: a\r\nwebhook-timestamp: {int(time.time())}\r\nwebhook-signature: v1,AAAA\r\n"
            "Expect: 100-continue\r\n"
        )
        old = plain + "webhook-id: a\r\nwebhook-timestamp: 1\r\nwebhook-signature: v1,AAAA\r\n"
        for head, status in ((plain, 401), (old, 401), (signed.replace(str(8 << 20), str(9 << 20)), 413)):
            with socket.create_connection(("127.0.0.1", sender.hook), timeout=30) as stranger:
                stranger.sendall(head.encode() + b"\r\n")
                assert stranger.recv(64).startswith(f"HTTP/1.1 {status} ".encode())
        # Connections from the gateway's address share one bound: two are accepted, and the others are refused.
        strangers, answers = [], []
        try:
            for _ in range(40):
                stranger = socket.create_connection(("127.0.0.1", sender.hook), timeout=30)
                strangers.append(stranger)
                stranger.sendall(signed.encode() + b"\r\n")
                answers.append(stranger.recv(64)[:12])
            assert answers == [b"HTTP/1.1 100"] * 2 + [b"HTTP/1.1 503"] * 38
            for stranger in strangers[:2]:
                stranger.sendall(b"x" * (7 << 20))
            assert resident(sender.process) - before < 48 << 20
        finally:
            for stranger in strangers:
                stranger.close()
        # The channel paths refuse the body of a caller without the token.
        with socket.create_connection(("127.0.0.1", sender.admin), timeout=30) as stranger:
            stranger.sendall(b"POST /v1/broadcasts HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n")
            assert stranger.recv(64).startswith(b"HTTP/1.1 403 ")


def test_the_senders_and_the_fakes_pages_follow_the_rules_of_http(own_gateway, apple):
    from test_http_conformance import answers, exchange, get

    sender = Sender(own_gateway(), apple, hook=HOOK_SECRET)
    with sender:
        for port, path in ((sender.admin, b"/metrics"), (sender.admin, b"/healthz"), (apple.page, b"/"), (apple.page, b"/phones")):
            # The fake answers only under its own names.
            own = b"Host: 127.0.0.1:%d\r\n" % port
            wanted, = answers(exchange(port, get(b"Connection: close\r\n", path, host=own)))
            head = exchange(port, get(b"Connection: close\r\n", path, method=b"HEAD", host=own))
            assert wanted[0] == 200 and head.startswith(b"HTTP/1.1 200 ") and head.endswith(b"\r\n\r\n")
            assert b"Content-Type: " + wanted[1]["content-type"].encode() in head
            for request in (get(target=path, host=b""), get(target=path, host=b"Host: a b\r\n"), b"GET " + path + b" HTTP/1.0\n\n"):
                assert answers(exchange(port, request))[0][0] == 400
        for port, path, method, allow in ((sender.admin, b"/metrics", b"POST", "GET, HEAD"), (sender.hook, b"/", b"GET", "POST")):
            (status, headers, _), = answers(exchange(port, get(b"Connection: close\r\n", path, method=method)))
            assert (status, headers["allow"]) == (405, allow)


def test_the_senders_listeners_speak_tls_and_take_a_renewed_certificate(own_gateway, away, apple):
    from gateway import free_ports

    gateway = own_gateway()
    admin, hook = free_ports(2)
    sender = Sender(gateway, apple, hook=HOOK_SECRET)
    files = {"certificate": "own.pem", "key": "own-key.pem"}
    sender.sections["admin"]["tls"] = {"listen": f"127.0.0.1:{admin}", **files}
    sender.sections["hook"] = {"secretFile": "hook", "tls": {"listen": f"127.0.0.1:{hook}", **files}}

    def make():
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        words += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        words += ["-keyout", str(sender.folder / "own-key.pem"), "-out", str(sender.folder / "own.pem")]
        subprocess.run(words, check=True, capture_output=True, timeout=60)

    def shown(port):
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=30)

    make()
    with sender:
        first = (sender.folder / "own.pem").read_text()
        assert shown(admin).split() == first.split() and shown(hook).split() == first.split()
        assert sender.get("/healthz")[0] == 200, "the plain listener is there, too"
        context = ssl.create_default_context(cafile=str(sender.folder / "own.pem"))
        with socket.create_connection(("127.0.0.1", admin), timeout=30) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as stream:
                stream.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
                assert stream.recv(64).startswith(b"HTTP/1.1 200 ")
        make()
        sender.reload()
        eventually(lambda: "reloaded" in sender.log())
        second = (sender.folder / "own.pem").read_text()
        eventually(lambda: shown(admin).split() == second.split() and shown(hook).split() == second.split())
        # An unreadable certificate leaves the current one in use.
        (sender.folder / "own.pem").write_text("no certificate")
        sender.reload()
        eventually(lambda: "reloadRefused" in sender.log())
        assert shown(admin).split() == second.split()


def test_a_running_sender_tells_of_a_certificate_that_ends_soon(own_gateway, apple, tmp_path):
    gateway = own_gateway()
    sender = Sender(gateway, apple)
    # In a few seconds its expiry is less than three days away.
    end = int(time.time()) + 3 * 86_400 + 4
    dates = ("20200101000000Z", time.strftime("%Y%m%d%H%M%SZ", time.gmtime(end)))
    own = authority(tmp_path).sign("own", dates=dates)
    sender.sections["certificateWarningDays"] = 3
    sender.sections["admin"]["tls"] = {"listen": "127.0.0.1:0", **own.files()}
    with sender:
        assert "ends" not in sender.log(), sender.log()
        eventually(lambda: "certificateEnds" in sender.log(), "news of the certificate", 20)
        (line,) = [json.loads(line) for line in sender.log().splitlines() if "certificateEnds" in line]
        assert line["detail"].startswith("admin: the certificate ends in 2 days and 23 hours; put"), line
        page = sender.get("/metrics")[1]
        assert f'longwire_sender_certificate_end_seconds{{certificate="admin"}} {end}\n' in page
        assert f"longwire_sender_certificate_warning_seconds {3 * 86_400}\n" in page
        # A renewed certificate is in use after a reload, and is not logged.
        renewed = authority(tmp_path, "other").sign("renewed")
        own.file.write_bytes(renewed.file.read_bytes())
        own.key.write_bytes(renewed.key.read_bytes())
        sender.reload()
        eventually(lambda: f'{{certificate="admin"}} {end}\n' not in sender.get("/metrics")[1], "the new end", 20)
        assert sender.log().count("certificateEnds") == 1


def test_a_certificate_of_several_uses_is_told_of_once(own_gateway, apple, tmp_path):
    gateway = own_gateway()
    sender = Sender(gateway, apple, hook=HOOK_SECRET)
    soon = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + 3 * 86_400 + 1_800))
    own = Certificate(tmp_path, "own", dates=("20200101000000Z", soon))
    proof = {"file": str(own.file), "keyFile": str(own.key)}
    # The same certificate in another file must be replaced, too.
    copy = tmp_path / "copy.pem"
    copy.write_bytes(own.file.read_bytes())
    sender.sections["admin"]["tls"] = {"listen": "127.0.0.1:0", **own.files()}
    sender.sections["hook"] = {"secretFile": "hook", "tls": {"listen": "127.0.0.1:0", **own.files()}}
    sender.sections["credentials"] += [
        {"name": "old", "certificate": proof, "apps": ["demo", "other"]},
        {"name": "copied", "certificate": {**proof, "file": str(copy)}, "apps": ["third"]},
    ]
    one, other = "admin, credential old, hook: the certificate ", "credential copied: the certificate "

    def told():
        lines = [json.loads(line) for line in sender.log().splitlines() if "the certificate" in line]
        return [(line["event"], line["detail"].partition(";")[0]) for line in lines]

    def check():
        words = [binary("longwire-sender"), "--config", str(sender.config), "--check"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, (done.stdout + done.stderr).splitlines()

    with sender:
        news = [("certificateEnds", names + "ends in 3 days and 0 hours") for names in (one, other)]
        eventually(lambda: len(told()) >= 2, "news of the certificates", 20)
        assert told() == news
        page = sender.get("/metrics")[1]
        for use in "admin", "credential copied", "credential old", "hook":
            assert f'longwire_sender_certificate_end_seconds{{certificate="{use}"}} ' in page
        code, lines = check()
        assert (code, lines[:2]) == (0, [f"warning: {names}ends in 3 days" for names in (one, other)]), lines
        # An expired certificate is also logged once, by the reload, and no daily line follows.
        ended = Certificate(tmp_path, "ended", dates=EXPIRED)
        own.file.write_bytes(ended.file.read_bytes())
        own.key.write_bytes(ended.key.read_bytes())
        copy.write_bytes(own.file.read_bytes())
        sender.reload()
        eventually(lambda: "reloaded" in sender.log(), "the reload", 20)
        assert told() == news + [("configurationWarning", names + "has expired") for names in (one, other)]
        code, lines = check()
        assert (code, lines) == (65, [f"longwire-sender: {one}has expired", f"{other}has expired"]), lines


def test_an_outage_uses_up_no_attempt(own_gateway, away, apple):
    gateway = own_gateway(app={"maxAttempts": 1})
    device = away(gateway)[0]
    sender = Sender(gateway, apple, None, {"requestMilliseconds": 4_000}, leaseSeconds=10)
    right = sender.sections["apple"]["production"]
    sender.sections["apple"]["production"] = "localhost:1"
    with sender:
        message = gateway.push(device.cid, "x", strategy=2, alert="A")["msgId"]
        eventually(lambda: "unsent" in gateway.steps(message), timeout=60)
        step = next(step for step in gateway.trace(message)["steps"] if step["event"] == "unsent")
        assert "connectionFailed" in step["detail"], step
        sender.stop()
        sender.process.stdout.close()
        sender.sections["apple"]["production"] = right
        sender.start()
        gateway.ends_as(message, "handedOff")
        assert len(apple.requests()) == 1


def test_an_expired_key_is_named_and_costs_no_message(own_gateway, away, apple):
    gateway = own_gateway(app={"maxAttempts": 1})
    device = away(gateway)[0]
    # Apple's clock is two hours ahead, so a token that was signed a moment ago is too old for it.
    apple.play({"clockSeconds": 7_230})
    with Sender(gateway, apple) as sender:
        message = gateway.push(device.cid, "x", strategy=2, alert="A")["msgId"]
        eventually(lambda: "unsent" in gateway.steps(message))
        assert "ExpiredProviderToken" in sender.log()
        assert "behind Apple's" in sender.log() and "2 h 0 min" in sender.log()
        eventually(lambda: "rests: ExpiredProviderToken" in sender.get("/readyz")[1])
        # No token is signed before Apple allows it: the same one was sent again, and nothing after that.
        assert len({request["issuedAt"] for request in apple.requests()}) == 1
        count = len(apple.requests())
        second = gateway.push(device.cid, "y", strategy=2, alert="A")["msgId"]
        eventually(lambda: "unsent" in gateway.steps(second))
        assert len(apple.requests()) == count and gateway.trace(message)["state"] == "pending"


def test_a_gateway_that_restarts_is_found_again(own_gateway, away, apple):
    gateway = own_gateway()
    device = away(gateway)[0]
    with Sender(gateway, apple) as sender:
        first = gateway.push(device.cid, "a", strategy=2, alert="A")["msgId"]
        gateway.ends_as(first, "handedOff")
        gateway.kill()
        eventually(lambda: sender.get("/readyz")[0] == 503)
        gateway.start()
        second = gateway.push(device.cid, "b", strategy=2, alert="B")["msgId"]
        gateway.ends_as(second, "handedOff")
        eventually(lambda: sender.get("/readyz")[0] == 200)
        assert "gatewayFailed" in sender.log()


def test_what_apple_accepted_while_the_gateway_was_away_is_reported_and_not_sent_again(own_gateway, away, apple):
    gateway = own_gateway()
    devices = away(gateway, count=10)
    apple.play({"rules": [{"delayMilliseconds": 500}]})
    settings = {"requestMilliseconds": 4_000}
    with Sender(gateway, apple, None, settings, leaseSeconds=10, waitSeconds=0) as sender:
        messages = [gateway.push(device.cid, "x", strategy=2, alert="A")["msgId"] for device in devices]
        eventually(lambda: len(apple.requests()) == 10)
        gateway.kill()
        away_since = time.monotonic()
        eventually(lambda: sender.metric('outcomes_total{outcome="accepted"}') > 0)
        # The leases expire before the gateway is back, so the jobs are due again when it starts.
        eventually(lambda: time.monotonic() > away_since + 11)
        assert sender.metric("results_waiting") > 0
        gateway.start()
        for message in messages:
            gateway.ends_as(message, "handedOff")
        settled(sender, 10)
        assert len(apple.requests()) == 10 and sender.metric("outcomes_dropped_total") == 0


def test_a_stop_finishes_what_is_on_its_way_and_gives_the_rest_back(own_gateway, away, apple):
    gateway = own_gateway()
    devices = away(gateway, count=8)
    apple.play({"streams": 1, "rules": [{"delayMilliseconds": 400}]})
    with Sender(gateway, apple, None, {"connections": 1}) as sender:
        messages = [gateway.push(device.cid, "x", strategy=2, alert="A")["msgId"] for device in devices]
        eventually(lambda: apple.requests())
        assert sender.stop() == 0
        assert "stopped" in sender.log()
        kinds = [gateway.steps(message)[-1] for message in messages]
        assert "leased" not in kinds, "each job has its result"
        apple.play({"rules": []})
        sender.start()
        for message in messages:
            gateway.ends_as(message, "handedOff")
        assert len([request for request in apple.requests() if request["taken"]]) == len(messages)


def test_the_hook_brings_jobs_too(own_gateway, away, apple):
    from gateway import free_ports

    port = free_ports(1)[0]
    gateway = own_gateway(hook={"url": f"http://127.0.0.1:{port}/", "secret": HOOK_SECRET})
    device = away(gateway)[0]
    sender = Sender(gateway, apple, hook=HOOK_SECRET)
    sender.sections["hook"]["listen"] = f"127.0.0.1:{port}"
    with sender:
        message = gateway.push(device.cid, "x", strategy=2, alert="A")["msgId"]
        gateway.ends_as(message, "handedOff")
        assert sender.metric("leases_total") == 0 and sender.metric("jobs_taken_total") == 1


def test_a_replaced_key_takes_effect_without_a_restart(own_gateway, away, apple):
    gateway = own_gateway()
    device = away(gateway)[0]
    sender = Sender(gateway, apple)
    right = dict(sender.sections["credentials"][0]["key"])
    sender.sections["credentials"][0]["key"]["keyId"] = "WRONGKEY01"
    with sender:
        message = gateway.push(device.cid, "x", strategy=2, alert="A")["msgId"]
        eventually(lambda: "credentialRefused" in sender.log())
        assert "check the key file" in sender.log()
        eventually(lambda: "rests: InvalidProviderToken" in sender.get("/readyz")[1])
        # The job waits at the gateway. A second one shows that the new key is used at once.
        sender.sections["credentials"][0]["key"] = right
        sender.reload()
        eventually(lambda: "reloaded" in sender.log())
        other = gateway.push(device.cid, "y", strategy=2, alert="A")["msgId"]
        gateway.ends_as(other, "handedOff")
        assert gateway.trace(message)["state"] == "pending"
        sender.config.write_text("{")
        sender.process.send_signal(1)
        eventually(lambda: "reloadRefused" in sender.log())


def test_an_apple_of_another_make_takes_everything_once(own_gateway, away, apple):
    gateway = own_gateway()
    devices = away(gateway, count=30)

    def answer(token, count):
        return ("goodbye", b"") if token.endswith("5") and count == 1 else (200, b"")

    with OtherApple(apple, answer, streams=3) as other:
        with Sender(gateway, other) as sender:
            messages = [gateway.push(device.cid, "x", strategy=2, alert="A")["msgId"] for device in devices]
            for message in messages:
                gateway.ends_as(message, "handedOff")
            settled(sender, len(messages))
            taken = sorted(identifier.replace("-", "") for _, identifier, _ in other.taken)
            assert taken == sorted(messages)
            assert sender.metric("requests_repeated_total") == 0 and sender.metric("goodbyes_total") >= 1
            headers = other.headers[0]
            assert headers["authorization"].startswith("bearer ") and headers["apns-topic"] == "com.example.demo"
            assert len({one["authorization"] for one in other.headers}) == 1, "one provider token serves all"


def test_an_apple_of_another_make_that_resets_gets_the_same_ids_again(own_gateway, away, apple):
    gateway = own_gateway()
    device = away(gateway)[0]
    with OtherApple(apple, lambda token, count: (None, b"") if count == 1 else (200, b"")) as other:
        with Sender(gateway, other) as sender:
            message = gateway.push(device.cid, "x", strategy=2, alert="A")["msgId"]
            gateway.ends_as(message, "handedOff")
            assert [identifier.replace("-", "") for _, identifier, _ in other.taken] == [message, message]
            eventually(lambda: sender.metric("requests_repeated_total") == 1)


@pytest.mark.parametrize("form", ["pem", "p12", "p12 of macOS"])
def test_a_certificate_takes_the_place_of_a_key(own_gateway, away, apple, form):
    gateway = own_gateway()
    device = away(gateway)[0]
    certificate = {"file": str(apple.certificate), "keyFile": str(apple.folder / "key.pem")}
    if form != "pem":
        bundle = apple.folder / "bundle.p12"
        words = ["openssl", "pkcs12", "-export", "-in", certificate["file"], "-inkey", certificate["keyFile"]]
        # RC2 and triple DES, as macOS Keychain writes them.
        words += ["-legacy"] if form == "p12 of macOS" else []
        subprocess.run([*words, "-out", str(bundle), "-passout", "pass:secret"], check=True, timeout=60)
        certificate = {"file": str(bundle), "password": "secret"}
    with OtherApple(apple, asks_for_certificate=True) as other:
        sender = Sender(gateway, other)
        sender.sections["credentials"] = [{"name": "old", "certificate": certificate}]
        with sender:
            message = gateway.push(device.cid, "x", strategy=2, alert="A")["msgId"]
            gateway.ends_as(message, "handedOff")
            assert "authorization" not in other.headers[0]
    sender.sections["credentials"][0]["certificate"] = {**certificate, "password": "wrong"}
    if form != "pem":
        sender.config.parent.mkdir(exist_ok=True)
        sender.config.write_text(json.dumps(sender.sections))
        (sender.config.parent / "token").write_text("x\n")
        words = [binary("longwire-sender"), "--config", str(sender.config), "--check"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 78 and "cannot be opened with its password" in done.stderr
        shutil.rmtree(sender.config.parent)


def test_the_doctor_names_what_is_wrong(own_gateway, apple):
    gateway = own_gateway()

    def doctor(sender, *words):
        sender.config.write_text(json.dumps(sender.sections))
        words = [binary("longwire-sender"), "doctor", "--config", str(sender.config), "--topic", "com.example.demo", *words]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout + done.stderr

    with Sender(gateway, apple) as sender:
        assert doctor(sender)[0] == 0, doctor(sender)[1]
        sender.sections["credentials"][0]["key"]["keyId"] = "WRONGKEY01"
        code, text = doctor(sender, "--environment", "production")
        assert code == 1 and "InvalidProviderToken" in text and "keyId" in text
        sender.sections["credentials"][0]["key"]["keyId"] = "FAKEKEY001"
        for seconds, words in ((7_230, "2 h 0 min behind"), (-930, "15 min 3")):
            apple.play({"clockSeconds": seconds, "rules": [{"prefix": "0" * 32, "status": 400, "reason": "BadDeviceToken"}]})
            code, text = doctor(sender, "--environment", "production")
            assert code == 1 and words in text, text
        apple.play({})
        sender.sections["apple"]["production"] = "localhost:1"
        code, text = doctor(sender, "--environment", "production")
        assert code == 1 and "Connection refused" in text
        sender.sections["gateway"]["url"] = "http://127.0.0.1:1"
        assert "is longwired running" in doctor(sender)[1]
        with answering(500, b"\x1b[H\x1b[J\nok       gateway: fine") as address:
            sender.sections["gateway"]["url"] = f"http://{address}"
            code, text = doctor(sender)
            assert code == 1 and "answers 500 \\u001b[H\\u001b[J\\u000aok" in text and "\x1b" not in text, text
        (sender.folder / "token").write_text("wrong\n")
        sender.sections["gateway"]["url"] = f"http://127.0.0.1:{gateway.admin}"
        assert "does not know our token" in doctor(sender)[1]
        sender.sections["credentials"][0]["key"]["file"] = "nowhere.p8"
        assert "cannot be read" in doctor(sender)[1]


def test_a_configuration_that_cannot_work_is_refused_with_every_reason(apple, own_gateway):
    sender = Sender(own_gateway(), apple)
    with sender:
        sender.sections["apple"]["production"] = "https://apple"
        sender.sections["credentials"][0]["key"]["keyId"] = "short"
        sender.sections["gateway"]["leases"] = 5
        sender.sections["admin"] = {"tls": {"listen": "nowhere", "key": "k"}}
        sender.config.write_text(json.dumps(sender.sections))
        done = subprocess.run(
            [binary("longwire-sender"), "--config", str(sender.config), "--check"], capture_output=True, text=True,
            timeout=60, check=False)
        assert done.returncode == 78
        for part in (
            "apple.production", "credentials[0].key.keyId", "gateway.leases", "ten characters", "admin.tls.listen",
            "admin.tls.certificate",
        ):
            assert part in done.stderr, done.stderr


def test_a_configuration_that_works_but_is_unwise_says_so(apple, own_gateway):
    sender = Sender(own_gateway(), apple)
    key = sender.sections["credentials"][0]["key"]
    with sender:
        sender.sections["credentials"] += [
            {"name": "second", "key": key}, {"name": "shop", "key": key, "apps": ["shop"], "environments": ["sandbox"]}
        ]
        sender.sections["admin"] = {"listen": "0.0.0.0:7090", "token": "0123456789abcdef0123"}
        sender.config.write_text(json.dumps(sender.sections))
        sender.config.chmod(0o600)
        done = subprocess.run(
            [binary("longwire-sender"), "--config", str(sender.config), "--check"], capture_output=True, text=True,
            timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert "second is never used" in done.stdout and "travel in the clear" in done.stdout
        assert "shop is never used" not in done.stdout


def test_channels_of_live_activities_by_the_back_end_and_by_the_command_line(own_gateway, apple):
    token = "a-token-of-the-back-end"
    sender = Sender(own_gateway(), apple)
    sender.sections["apple"]["productionChannels"] = f"localhost:{apple.production_channels}"
    sender.sections["apple"]["sandboxChannels"] = f"localhost:{apple.sandbox_channels}"
    topic = {"topic": "com.example.demo"}

    def command(*words, code=0):
        words = [binary("longwire-sender"), *words, "--config", str(sender.config), "--topic", "com.example.demo"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)

    with sender:
        # Without a token in the configuration the paths are closed. Others do not change.
        assert sender.ask("GET", "/v1/channels?topic=a", token=token)[0] == 403
        assert sender.get("/healthz")[0] == 200
        sender._secret("back-end", token)
        sender.sections["admin"]["tokenFile"] = "back-end"
        sender.reload()
        eventually(lambda: sender.ask("GET", "/v1/channels?topic=a.b", token=token)[0] == 200)
        assert sender.ask("GET", "/v1/channels?topic=a.b", token="wrong-wrong-wrong")[0] == 401
        status, made = sender.ask("POST", "/v1/channels", {**topic, "storage": "last"}, token)
        assert status == 201, made
        channel = made["channelId"]
        query = urllib.parse.urlencode({**topic, "channelId": channel})
        assert sender.ask("GET", f"/v1/channels?{query}", token=token)[1]["storage"] == "last"
        assert sender.ask("GET", f"/v1/channels?{query}&environment=sandbox", token=token)[0] == 400
        body = {"aps": {"timestamp": 1, "event": "update", "content-state": {"score": "1:0"}}}
        status, sent = sender.ask(
            "POST", "/v1/broadcasts", {**topic, "channelId": channel, "expiration": 2**31, "body": body}, token)
        assert status == 200 and sent["uniqueId"], sent
        shown = apple.channels()[channel]
        assert (shown["broadcasts"], shown["last"], shown["storage"]) == (1, body, "last")
        line = next(line for line in apple.requests() if line.get("path") == "/4/broadcasts/apps/com.example.demo")
        assert (line["channelId"], line["priority"], line["pushType"]) == (channel, "10", "liveactivity")
        # An operator does the same with the configuration's credentials.
        other = command("channel", "create", "--storage", "none")["channelId"]
        assert set(command("channel", "list")["channels"]) == {channel, other}
        assert command("channel", "show", "--channel", other)["storage"] == "none"
        command("broadcast", "--channel", other, "--priority", "5", "--body", json.dumps(body))
        assert apple.channels()[other]["broadcasts"] == 1
        refused = command("broadcast", "--channel", other, "--expiration", "5", "--body", json.dumps(body), code=1)
        assert refused["error"]["code"] == "BadExpirationDate"
        command("channel", "delete", "--channel", other)
        assert sender.ask("DELETE", f"/v1/channels?{query}", token=token)[0] == 200
        assert apple.channels() == {}
        assert sender.ask("POST", "/v1/broadcasts", {**topic, "channelId": channel, "body": body}, token)[1]["error"][
            "code"] == "ChannelNotRegistered"
