"""Devices that repeatedly connect and disconnect are slowed, never locked out, and do not affect others."""

import json
import os
import signal
import time

import pytest
from conftest import QUICK
from gateway import eventually
from hostile import Watch
from longwire_client import Closed, Connection, pb, prove


def refusal(device):
    """Returns the Close for the device's Hello, or None if it was welcomed."""
    try:
        device.connect()
    except Closed as closed:
        return closed
    return None


def test_a_flapping_device_is_slowed_told_when_and_welcome_again(own_gateway, new_device):
    gateway = own_gateway(limits={**QUICK, "flappingConnects": 5})
    watch = Watch(gateway)
    device, neighbour = new_device(gateway), new_device(gateway)
    # Its registration was the first Welcome.
    for _ in range(5):
        device.close()
        assert refusal(device) is None
    device.close()
    told = refusal(device)
    assert told and told.close.code == 201 and "reconnects too often" in told.close.reason, told
    assert 1_000 <= told.close.retry_after_min_ms <= 2_000 <= told.close.retry_after_max_ms + 1_000
    shown = gateway.admin_call("GET", f"/v1/apps/{gateway.app['appId']}/devices/{device.cid}")
    assert 0 < shown["slowedUntil"] - time.time() * 1_000 <= 2_100
    assert watch.grown("longwire_flapping_welcomes_total") == 1
    assert watch.grown("longwire_flapping_refusals_total") == 1
    # A summary once a second.
    eventually(lambda: "deviceFlaps" in gateway.log() and device.cid in gateway.log(), "the log line", 5)
    # The other device connects as often as it likes, and the flapping one is admitted after its delay.
    neighbour.close()
    assert refusal(neighbour) is None
    assert "slowedUntil" not in gateway.admin_call("GET", f"/v1/apps/{gateway.app['appId']}/devices/{neighbour.cid}")
    eventually(lambda: refusal(device) is None, "the device's return", timeout=10)
    assert device.ping().nonce == 1


def test_a_stranger_with_the_cid_slows_nobody(own_gateway, new_device):
    gateway = own_gateway(limits={**QUICK, "flappingConnects": 2})
    device = new_device(gateway)
    for _ in range(10):
        hello = pb.Hello(app_id=gateway.app["appId"], cid=bytes.fromhex(device.cid), timestamp=int(time.time() * 1000), nonce=os.urandom(16))
        stranger = Connection("127.0.0.1", gateway.device)
        stranger.socket.sendall(prove(hello, b"not its secret"))
        with pytest.raises(Closed):
            stranger.receive(pb.Welcome)
    device.close()
    assert refusal(device) is None


def test_a_reload_switches_it_off(own_gateway, new_device):
    gateway = own_gateway(limits={**QUICK, "flappingConnects": 1})
    device = new_device(gateway)
    device.close()
    assert refusal(device) is None
    device.close()
    assert refusal(device) is not None
    gateway.sections["limits"]["flappingConnects"] = 0
    gateway.config.write_text(json.dumps(gateway.sections))
    gateway.process.send_signal(signal.SIGHUP)
    eventually(lambda: "reloaded" in gateway.log(), "the reload")
    for _ in range(5):
        assert refusal(device) is None
        device.close()
