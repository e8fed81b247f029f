"""`longwire drain`: disconnects a gateway's devices at a rate, with progress, and can be undone."""

import os
import subprocess
import time

import pytest
from gateway import ADMIN_TOKEN, Refused, binary, eventually
from longwire_client import Closed


def command(gateway, *words):
    environment = {**os.environ, "LONGWIRE_ADMIN_TOKEN": ADMIN_TOKEN}
    return subprocess.Popen(
        [binary("longwire"), "drain", *words, "--admin", f"127.0.0.1:{gateway.admin}"], env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def readiness(gateway):
    try:
        return gateway.call("GET", "/readyz", port=gateway.admin)["status"]
    except Refused as refused:
        assert refused.status == 503
        return refused.body["status"]


def parting(device):
    """Returns a device's Close; earlier deliveries stay unacked."""
    with pytest.raises(Closed) as closed:
        while True:
            device.receive(timeout=30)
    return closed.value.close


def test_a_gateway_empties_itself_at_a_pace_and_fills_again(own_gateway, new_device):
    gateway = own_gateway()
    devices = [new_device(gateway) for _ in range(40)]
    began = time.monotonic()
    drain = command(gateway, "--pace", "10/s", "--alternate", "gw2.example:7000")
    eventually(lambda: readiness(gateway) == "draining", "a drain")
    # The drain is in progress, and publishes are still accepted.
    assert gateway.admin_call("GET", "/v1/drain")["connections"] > 20
    assert gateway.metrics().count("longwire_draining 1\n") == 1
    assert gateway.push(devices[0].cid, "kept for later")["status"].startswith("successed")
    closes = [parting(device) for device in devices]
    seconds = time.monotonic() - began
    assert 3 < seconds < 12, seconds
    assert {close.code for close in closes} == {200}
    assert {close.alternate for close in closes} == {"gw2.example:7000"}
    assert {(close.retry_after_min_ms, close.retry_after_max_ms) for close in closes} == {(500, 2_000)}
    output, _ = drain.communicate(timeout=30)
    lines = output.splitlines()
    assert drain.returncode == 0, output
    assert "connections left, about" in lines[0] and lines[-1] == "no device is connected", lines
    left = [int(line.split()[0]) for line in lines[:-1]]
    assert len(left) >= 3 and left == sorted(left, reverse=True), lines
    # A device that connects anyway also gets a Close.
    with pytest.raises(Closed) as closed:
        devices[0].connect()
    assert closed.value.code == 200 and closed.value.close.alternate == "gw2.example:7000"
    assert gateway.admin_call("GET", "/v1/drain")["state"] == "drained"
    # The gateway logs the end at its next check, within a second. An undo would prevent the log line.
    eventually(lambda: "drainEnded" in gateway.log(), "the end of the drain in the log")
    undo = command(gateway, "--undo")
    assert undo.communicate(timeout=30)[0] == "devices are accepted again; 0 are connected\n"
    assert readiness(gateway) == "ready"
    devices[0].connect()
    assert [message.payload for message in devices[0].receive_and_ack(1)] == [b"kept for later"]
    for event in ("drainBegan", "drainEnded", "drainUndone"):
        assert event in gateway.log()


def test_what_is_no_pace_and_no_address_is_refused(own_gateway):
    gateway = own_gateway()
    for body in ({}, {"pace": 0}, {"pace": 1_000_001}, {"pace": "5"}, {"pace": 5, "alternate": "no port"},
                 {"pace": 5, "alternate": "a b:70"}, {"pace": 5, "alternate": "x:0"}, {"pace": 5, "speed": 1}, {"undo": 1}):
        with pytest.raises(Refused) as refused:
            gateway.admin_call("POST", "/v1/drain", body)
        assert refused.value.status == 400, body
    assert gateway.admin_call("GET", "/v1/drain") == {"state": "none", "connections": 0}
    for words in (["--pace", "fast"], ["--pace", "0/s"], [], ["--undo", "--pace", "5"]):
        one = command(gateway, *words)
        assert "--" in one.communicate(timeout=30)[0] and one.returncode == 64, words
    assert readiness(gateway) == "ready"
