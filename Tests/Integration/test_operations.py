"""What an operator does to a running gateway: limits, reloads and stops, each seen from outside."""

import json
import os
import resource
import signal
import socket
import ssl
import subprocess
import threading

import pytest
from conftest import QUICK
from gateway import Refused, eventually
from longwire_client import Closed, Connection, Sender, encode, pb

HOOK_SECRET = "whsec_" + "A" * 44


def reload(gateway):
    """Puts `gateway.sections` in force, and waits until it is."""
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
    gateway = own_gateway(limits={"connections": 4}, loops=4)
    devices = [new_device(gateway) for _ in range(3)]
    sender = Sender("127.0.0.1", gateway.senders, gateway.app["appId"], gateway.app["masterSecret"])
    assert closed_with(lambda: new_device(gateway)) == 201
    assert all(device.ping().nonce == 1 for device in devices), "those that are in stay"
    sender.close()
    eventually(lambda: 'longwire_sessions{role="sender"} 0' in gateway.metrics())
    assert new_device(gateway).ping().nonce == 1
    gateway.sections["limits"] = {"connections": 5}
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
    for _ in range(4):  # whichever loop takes them
        with pytest.raises(Refused) as refused:
            gateway.lease()
        assert (refused.value.status, refused.value.body["error"]["code"]) == (503, "unavailable")
    assert gateway.stop() == 0
    waiting.join(20)
    assert answers == [[]], "a stop answers who waits"


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
    # Ours was held for the devices; the push API takes it, too, at any port.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        https = free.getsockname()[1]
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
            pass  # the gateway hung up

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
