"""Operator actions on a running gateway: limits, reloads and stops, each observed from outside."""

import contextlib
import json
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

import neighbour_party
import pytest
from conftest import QUICK
from gateway import ADMIN_TOKEN, Refused, binary, eventually, free_ports, full_pipe
from longwire_client import Closed, Connection, Sender, encode, pb

HOOK_SECRET = "whsec_" + "A" * 44


def reload(gateway):
    """Reloads with `gateway.sections` and waits until they are in effect."""
    before = gateway.call("GET", "/readyz")["configuration"]
    gateway.config.write_text(json.dumps(gateway.sections))
    gateway.process.send_signal(signal.SIGHUP)
    eventually(lambda: gateway.call("GET", "/readyz")["configuration"] == before + 1, "the reload")


def closed_with(connect):
    with pytest.raises(Closed) as closed:
        connect()
    return closed.value.code


def make_certificate(folder, name):
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command += ["-subj", f"/CN={name}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    key.chmod(0o600)
    return certificate, key


def certificate_of(port):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
        with context.wrap_socket(plain) as secure:
            return secure.getpeercert(True)


def test_delivery_limits_change_at_a_reload(own_gateway, new_device):
    gateway = own_gateway()
    assert new_device(gateway).welcome.window == 32
    gateway.sections["limits"] = {**gateway.sections["limits"], "windowMessages": 2}
    reload(gateway)
    assert new_device(gateway).welcome.window == 2


def test_connections_are_limited_over_all_loops(own_gateway, new_device):
    gateway = own_gateway(limits={"connections": 3, "senderConnections": 1}, loops=4)
    devices = [new_device(gateway) for _ in range(3)]
    # Senders and devices use separate places.
    another = lambda: Sender("127.0.0.1", gateway.senders, gateway.app["appId"], gateway.app["masterSecret"])  # noqa: E731
    sender = another()
    assert closed_with(lambda: new_device(gateway)) == 201
    assert closed_with(another) == 201
    assert all(device.ping().nonce == 1 for device in devices), "those that are in stay"
    devices[0].close()
    eventually(lambda: 'longwire_sessions{role="device"} 2' in gateway.metrics())
    assert new_device(gateway).ping().nonce == 1
    sender.close()
    eventually(lambda: 'longwire_sessions{role="sender"} 0' in gateway.metrics())
    another().close()
    gateway.sections["limits"] = {"connections": 4, "senderConnections": 1}
    reload(gateway)
    assert new_device(gateway).ping().nonce == 1
    assert closed_with(lambda: new_device(gateway)) == 201


def test_connections_before_hello_are_limited_over_all_loops(own_gateway):
    gateway = own_gateway(limits={"connectionsBeforeHello": 4}, loops=4)
    silent = [Connection("127.0.0.1", gateway.device) for _ in range(5)]
    codes = [closed_with(lambda: one.receive(pb.Welcome)) for one in silent]
    assert sorted(codes) == [103, 103, 103, 103, 201]
    for one in silent:
        one.close()


def test_long_polls_are_limited(own_gateway):
    gateway = own_gateway(limits={"longPolls": 1}, loops=2)
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(gateway.lease(wait=30)))
    waiting.start()
    eventually(lambda: "longwire_handoff_long_polls 1" in gateway.metrics(), "a waiting lease")
    for _ in range(4):  # whichever loop accepts them
        with pytest.raises(Refused) as refused:
            gateway.lease()
        assert (refused.value.status, refused.value.body["error"]["code"]) == (503, "unavailable")
    assert gateway.stop() == 0
    waiting.join(20)
    assert answers == [[]], "a stop answers who waits"


def test_metrics_by_app_name_those_that_the_credential_may_see(new_device):
    with neighbour_party.two_apps() as gateway:
        quiet = neighbour_party.neighbour_of(gateway)
        name = gateway.app["appId"]
        device, absent = new_device(gateway), new_device(quiet, token="ab" * 32)
        absent.close()
        eventually(lambda: 'longwire_app_connected_devices{app="quiet"} 0' in gateway.metrics(), "the end of a session")
        for number in range(3):
            gateway.push(device.cid, str(number))
        assert quiet.push(absent.cid, "late", alert="A")["channel"] == "queued"
        page = gateway.metrics().splitlines()
        for line in (
                "longwire_messages_accepted_total 4", 'longwire_handoff_jobs_created_total{channel="apns"} 1', 'longwire_handoff_jobs_due{channel="apns"} 1',
                f'longwire_app_connected_devices{{app="{name}"}} 1',
                f'longwire_app_messages_accepted_total{{app="{name}"}} 3',
                'longwire_app_messages_accepted_total{app="quiet"} 1',
                f'longwire_app_handoff_jobs_due{{app="{name}",channel="apns"}} 0',
                'longwire_app_handoff_jobs_due{app="quiet",channel="apns"} 1',
                "longwire_store_damaged_rows_total 0", "longwire_store_read_failures_total 0"):
            assert line in page, line
        seen = gateway.admin_call("GET", "/metrics", token=neighbour_party.NEIGHBOUR_TOKEN)["text"]
        assert 'longwire_app_handoff_jobs_due{app="quiet",channel="apns"} 1' in seen
        assert name not in seen, "another app's figures are not for this credential"
        assert gateway.stop() == 0


def test_more_than_a_mailbox_holds_goes_in_pieces(own_gateway, new_device):
    gateway = own_gateway(limits={"mailboxItems": 64}, loops=2)
    devices = [new_device(gateway) for _ in range(3)]
    known = [device.cid for device in devices]
    unknown = [f"{number:032x}" for number in range(1, 998)]
    statuses = gateway.api("GET", "user/status/" + ",".join(unknown + known))["data"]
    assert sorted(statuses) == sorted(known)
    for device in devices:
        assert gateway.push(device.cid, "x")["status"] == "successed_online"
        assert device.receive_and_ack(1)[0].payload == b"x"


def test_certificates_change_at_a_reload(own_gateway, tmp_path):
    certificate, key = make_certificate(tmp_path, "first")
    gateway = own_gateway(certificate=(certificate, key))
    gateway.stop()
    # The test's own certificate was used for the devices. The push API uses it, too, on any port.
    (https,) = free_ports(1)
    gateway.sections["http"]["tls"] = {"listen": f"127.0.0.1:{https}", "certificate": str(certificate), "key": str(key)}
    gateway.start()
    assert b"first" in certificate_of(gateway.device_tls) and b"first" in certificate_of(https)
    make_certificate(tmp_path, "second")
    reload(gateway)
    eventually(lambda: b"second" in certificate_of(gateway.device_tls))
    eventually(lambda: b"second" in certificate_of(https))
    certificate.write_text("no certificate")
    gateway.process.send_signal(signal.SIGHUP)
    eventually(lambda: "reloadRefused" in gateway.log(), "the refusal of a bad certificate")
    assert b"second" in certificate_of(gateway.device_tls), "the old one stays"


def test_every_listener_speaks_tls_and_renews_its_certificate(own_gateway, new_device, tmp_path):
    certificate, key = make_certificate(tmp_path, "first")
    gateway = own_gateway(certificate=(certificate, key))
    gateway.stop()
    ports = dict(zip(("http", "senders", "admin"), free_ports(3)))
    files = {"certificate": str(certificate), "key": str(key)}
    for name, port in ports.items():
        gateway.sections[name]["tls"] = {"listen": f"127.0.0.1:{port}", **files}
    gateway.start()
    trusting = ssl.create_default_context(cafile=str(certificate))
    trusting.check_hostname = False

    # A native sender and an admin call over TLS, to completion.
    device = new_device(gateway)
    with contextlib.closing(
        Sender("127.0.0.1", ports["senders"], gateway.app["appId"], gateway.app["masterSecret"], tls=trusting)) as sender:
        (result,) = sender.publish([{"cid": device.state.cid, "payload": b"over TLS"}])
        assert result.code == 0
        assert device.receive_and_ack(1)[0].payload == b"over TLS"
    request = urllib.request.Request(
        f"https://127.0.0.1:{ports['admin']}/v1/apps/{gateway.app['appId']}/devices/{device.cid}",
        headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
    with urllib.request.urlopen(request, timeout=10, context=trusting) as answer:
        assert json.load(answer)["connected"]
    end = re.search(r'longwire_certificate_end_seconds\{listener="admin"\} (\d+)', gateway.metrics())
    assert 0 < int(end[1]) - time.time() <= 2 * 86_400
    eventually(lambda: "certificateEnds listener=admin" in gateway.log(), "the warning: it is good for two days")

    make_certificate(tmp_path, "second")
    reload(gateway)
    for port in (*ports.values(), gateway.device_tls):
        eventually(lambda port=port: b"second" in certificate_of(port), f"the new certificate at {port}")

    # Plain HTTP on the TLS ports and a wrong trust anchor do no harm.
    for port in ports.values():
        with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert b"HTTP" not in plain.recv(4_096)
    assert gateway.is_ready()


def test_check_tries_the_certificates(own_gateway, tmp_path):
    certificate, key = make_certificate(tmp_path, "good")
    gateway = own_gateway(certificate=(certificate, key))
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    assert gateway.spawn("--check", **output).wait(20) == 0
    key.write_text("no key")
    check = gateway.spawn("--check", **output)
    assert str(key) in check.communicate(timeout=20)[0]
    assert check.returncode == 78


def test_a_hook_can_be_added_at_a_reload(own_gateway, new_device):
    gateway = own_gateway()
    with socket.create_server(("127.0.0.1", 0)) as receiver:
        receiver.settimeout(20)
        gateway._secret("hook", HOOK_SECRET)
        url = f"http://127.0.0.1:{receiver.getsockname()[1]}/"
        gateway.sections["hook"] = {"url": url, "secretFile": str(gateway.folder / "hook")}
        reload(gateway)
        device = new_device(gateway, token="ab" * 32)
        device.close()
        gateway.push(device.cid, "x", alert="for the hook", strategy=2)
        caller, _ = receiver.accept()
        with caller:
            assert caller.recv(4) == b"POST"


def test_a_reload_whose_files_hold_no_certificate_changes_nothing(own_gateway, tmp_path):
    """A file of authorities, and the files of a listener that waits for a restart, must not fail first when they are used."""
    gateway = own_gateway()
    gateway._secret("hook", HOOK_SECRET)
    hook = {"url": "https://127.0.0.1:9/", "secretFile": str(gateway.folder / "hook")}
    gateway.sections["hook"] = hook
    reload(gateway)
    before = gateway.call("GET", "/readyz")["configuration"]
    junk, other = tmp_path / "junk.pem", tmp_path / "other"
    junk.write_text("junk")
    other.mkdir()
    (certificate, _), (_, key) = make_certificate(tmp_path, "one"), make_certificate(other, "two")
    tls = {"listen": f"127.0.0.1:{free_ports(1)[0]}", "certificate": str(certificate), "key": str(key)}
    cases = [("hook", {**hook, "authorities": str(junk)}, "holds no usable PEM certificates"),
             ("http", {**gateway.sections["http"], "tls": tls}, "holds no usable PEM private key")]
    for section, change, why in cases:
        gateway.config.write_text(json.dumps({**gateway.sections, section: change}))
        gateway.process.send_signal(signal.SIGHUP)
        eventually(lambda why=why: any("reloadRefused" in line and why in line for line in gateway.log().splitlines()), why)
    assert gateway.call("GET", "/readyz")["configuration"] == before and "restartNeeded" not in gateway.log()


def test_a_stop_answers_every_publish_it_took(own_gateway, new_device):
    gateway = own_gateway(
        app={"queue": {"messages": 1_000_000, "bytes": 1 << 30}}, loops=2, limits={**QUICK, "stopTimeoutSeconds": 60})
    devices = [new_device(gateway) for _ in range(8)]
    for device in devices:
        device.close()
    sender = Sender("127.0.0.1", gateway.senders, gateway.app["appId"], gateway.app["masterSecret"], timeout=60)

    def send():
        frames = b"".join(encode(pb.Publish(request=1, cid=device.state.cid, payload=b"x")) for device in devices)
        try:
            while True:
                sender.connection.socket.sendall(frames * 10)
        except OSError:
            pass  # the gateway closed the connection

    sending = threading.Thread(target=send)
    accepted = 0
    sending.start()
    with pytest.raises(Closed) as closed:
        while True:
            assert sender.connection.receive(pb.PublishResult).code == 0
            accepted += 1
            if accepted == 500:
                gateway.process.send_signal(signal.SIGTERM)
    assert closed.value.code == 200
    sender.close()
    assert gateway.process.wait(60) == 0
    sending.join(60)
    gateway.start()
    assert sum(gateway.view(device.cid)["queue"]["messages"] for device in devices) == accepted


def test_running_out_of_descriptors_is_survived_and_logged(own_gateway, new_device):
    gateway = own_gateway()
    device = new_device(gateway)
    limit = len(os.listdir(f"/proc/{gateway.process.pid}/fd")) + 20
    resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
    crowd = [socket.create_connection(("127.0.0.1", gateway.device), timeout=10) for _ in range(120)]
    eventually(lambda: "acceptFailed" in gateway.log(), "a line in the log")
    assert device.ping().nonce == 1
    for one in crowd:
        one.close()
    assert new_device(gateway).ping().nonce == 1
    assert gateway.stop() == 0


def test_a_stop_says_not_ready_first_and_goes_on_serving_meanwhile(own_gateway, new_device):
    gateway = own_gateway(limits={**QUICK, "drainSeconds": 600})
    device = new_device(gateway)
    gateway.process.send_signal(signal.SIGTERM)

    def readiness():
        try:
            return gateway.call("GET", "/readyz")["status"]
        except Refused as refused:
            return refused.status, refused.body["status"]

    eventually(lambda: readiness() == (503, "stopping"), "not ready")
    assert gateway.push(device.cid, "to the end")["channel"] == "live"
    assert device.receive_and_ack(1)
    newcomer = new_device(gateway)
    assert newcomer.ping().nonce == 1
    assert gateway.stop() == 0, "a second signal ends the wait"


def test_a_full_pipe_on_both_outputs_stops_neither_work_nor_the_end(own_gateway, new_device):
    gateway = own_gateway()
    assert gateway.stop() == 0
    reading, writing = full_pipe()
    try:
        gateway.process = gateway.spawn(stdout=writing, stderr=writing)
        eventually(gateway.is_ready, "readiness")
        device = new_device(gateway)
        for number in range(50):
            assert gateway.push(device.cid, f"{number}")["channel"] == "live"
        gateway.process.send_signal(signal.SIGHUP)
        assert gateway.stop() == 0
    finally:
        os.close(reading)
        os.close(writing)


def test_closed_standard_descriptors_take_no_part_in_the_store(own_gateway, new_device):
    gateway = own_gateway()
    assert gateway.stop() == 0
    words = f"exec {binary('longwired')} --config {gateway.config} <&- >&- 2>&-"
    gateway.process = subprocess.Popen(["sh", "-c", words], env={**os.environ, "SWIFT_BACKTRACE": "enable=no"})
    eventually(gateway.is_ready, "readiness")
    for number in range(3):
        opened = os.readlink(f"/proc/{gateway.process.pid}/fd/{number}")
        assert opened == "/dev/null", opened
    assert gateway.stop() == 0


def test_check_refuses_what_a_start_could_not_use(own_gateway, tmp_path):
    gateway = own_gateway()

    def check(**sections):
        gateway.config.write_text(json.dumps({**gateway.sections, **sections}))
        done = gateway.spawn("--check", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.communicate(timeout=30)[0], done.returncode

    def certificate(name, *dates):
        files = tmp_path / f"{name}.pem", tmp_path / f"{name}.key"
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                 "/CN=localhost", "-keyout", str(files[1]), "-out", str(files[0])]
        subprocess.run([*words, "-days", "2"], check=True, capture_output=True)
        if dates:
            request = tmp_path / "request.pem"
            key = ["-key", str(files[1]), "-subj", "/CN=localhost"]
            subprocess.run(["openssl", "req", "-new", *key, "-out", str(request)], check=True, capture_output=True)
            folder = tmp_path / f"{name}-ca"
            folder.mkdir()
            (folder / "index.txt").write_text("")
            (folder / "serial").write_text("01")
            (folder / "ca.cnf").write_text(
                f"[ca]\ndefault_ca=d\n[d]\ndatabase={folder}/index.txt\nserial={folder}/serial\nnew_certs_dir={folder}\n"
                "default_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n")
            subprocess.run(
                ["openssl", "ca", "-batch", "-selfsign", "-config", str(folder / "ca.cnf"), "-keyfile", str(files[1]),
                 "-in", str(request), "-out", str(files[0]), "-startdate", dates[0], "-enddate", dates[1], "-notext"],
                check=True, capture_output=True)
        return files

    def device(files):
        tls = {"listen": "127.0.0.1:0", "certificate": str(files[0]), "key": str(files[1])}
        return {"device": {"listen": "127.0.0.1:0", "tls": tls}}

    good, other = certificate("good"), certificate("other")
    text, code = check(**device(good))
    assert code == 0 and "The configuration is valid." in text, text
    refused = {
        "has expired": device(certificate("old", "20200101000000Z", "20200102000000Z")),
        "is not valid yet": device(certificate("new", "20900101000000Z", "20900102000000Z")),
        "key values mismatch": device((good[0], other[1])),
        "is no folder": {"store": {"path": str(good[0])}},
        "Not a directory": {"store": {"path": str(good[0] / "data")}},
        "appSecret that is a masterSecret": {"apps": [{**gateway.app, "appSecret": gateway.app["masterSecret"]}]},
        "stands twice": {"apps": [{**gateway.app, "appSecret": ["same-secret-1", "same-secret-1"]}]},
        "credential's token": {"apps": [{**gateway.app, "masterSecret": ADMIN_TOKEN}]},
    }
    for words, sections in refused.items():
        text, code = check(**sections)
        # A gateway starts with a certificate that its clients will refuse.
        assert code == (65 if words in ("has expired", "is not valid yet") else 78) and words in text, (words, text)
    twin = {**gateway.app, "appId": "twin"}
    text, code = check(apps=[gateway.app, twin])
    assert code == 0 and "share a secret" in text, text
