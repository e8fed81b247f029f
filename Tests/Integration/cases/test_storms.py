"""Reconnect storms: more devices connect at once than a loop admits in a turn. Sessions stay, and all devices reconnect."""

import concurrent.futures
import contextlib
import os
import signal
import subprocess
import time

import pytest
from conftest import QUICK
from gateway import eventually
from hostile import Watch, besieged, raw
from longwire_client import Closed, Connection, pb

pytestmark = pytest.mark.alone

# Slices so short that a few hundred devices are a storm.
NARROW = {**QUICK, "welcomeSliceMicroseconds": 100, "helloTimeoutMilliseconds": 60_000}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate")
    chain, key = folder / "chain.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-keyout", key, "-out", chain], check=True, capture_output=True)
    return chain, key


@contextlib.contextmanager
def held(gateway):
    """Pauses the gateway: connections made during the pause wait in the kernel and are accepted at once afterwards."""
    os.kill(gateway.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(gateway.process.pid, signal.SIGCONT)


def last_word(connection):
    """Returns a connection's Close, or None if it ended without one or still waits."""
    try:
        frame = connection.frame(timeout=0.2)
        assert isinstance(frame, pb.Close), frame
        return frame
    except (Closed, TimeoutError, OSError):
        return None


def coming_again(new_device):
    """Creates devices that reconnect after a refusal, because a loop with debt has no room yet."""

    def make(gateway):
        end = time.monotonic() + 10
        while True:
            try:
                return new_device(gateway)
            except Closed as closed:
                if closed.code != 201 or time.monotonic() > end:
                    raise
                time.sleep(0.1)

    return make


def test_who_cannot_wait_is_told_when_to_come_back_and_sessions_go_on(own_gateway, new_device):
    gateway = own_gateway(limits={**NARROW, "welcomeWaitMilliseconds": 0})
    with besieged(gateway, coming_again(new_device)) as watch:
        with held(gateway):
            crowd = [Connection("127.0.0.1", gateway.device) for _ in range(600)]
        words = [close for one in crowd if (close := last_word(one))]
        # A few were admitted in the first turns of the two loops. Their timeout for a Hello may have expired.
        assert {close.code for close in words} <= {103, 201}
        closes = [close for close in words if close.code == 201]
        assert len(closes) > 100, len(closes)
        windows = sorted((close.retry_after_min_ms, close.retry_after_max_ms) for close in closes)
        assert windows[0][0] >= 1_000 and windows[-1][1] <= 60_500, (windows[0], windows[-1])
        # The slots are consecutive, so these hundreds do not reconnect in one wave.
        assert all(most > least for least, most in windows)
        assert watch.grown("longwire_newcomers_sent_away_total") >= len(closes)
        assert watch.grown("longwire_newcomers_waited_total") == 0
        for one in crowd:
            one.close()
        # A device that connects later is welcomed.
        assert coming_again(new_device)(gateway).ping().nonce == 1
    eventually(lambda: "stormEnded" in gateway.log(), "the end of the storm in the log")
    assert "stormBegan" in gateway.log()


def test_devices_wait_for_their_turn_and_all_are_back(own_gateway, new_device):
    gateway = own_gateway(limits=NARROW)
    devices = [new_device(gateway) for _ in range(150)]
    for device in devices:
        device.close()
    watch = Watch(gateway)
    with concurrent.futures.ThreadPoolExecutor(len(devices)) as pool:
        with held(gateway):
            coming = [pool.submit(device.connect) for device in devices]
            time.sleep(0.5)
        began = time.monotonic()
        for one in coming:
            one.result(timeout=30)
    print(f"150 devices were back after {time.monotonic() - began:.2f} s")
    assert watch.grown("longwire_newcomers_waited_total") > 50
    assert watch.grown("longwire_newcomers_sent_away_total") == 0
    assert watch.metrics()["longwire_newcomers_waiting"] == 0
    assert watch.metrics()["longwire_newcomer_cost_seconds"] > 0
    assert all(device.ping().nonce == 1 for device in devices)


def test_before_tls_the_surplus_is_refused_without_a_handshake(own_gateway, new_device, certificate):
    gateway = own_gateway(limits={**NARROW, "welcomeWaitMilliseconds": 0}, certificate=certificate)
    watch = Watch(gateway)
    with held(gateway):
        crowd = [raw(gateway.device_tls) for _ in range(400)]
    ended = 0
    for one in crowd:
        one.settimeout(0.02)
        with contextlib.suppress(TimeoutError):
            try:
                assert one.recv(100) == b""
            except ConnectionResetError:
                pass
            ended += 1
    assert ended > 200
    assert watch.grown("longwire_newcomers_sent_away_total") == ended


def test_a_stop_sends_away_those_who_wait(own_gateway):
    gateway = own_gateway(limits={**NARROW, "welcomeWaitMilliseconds": 8_000})
    with held(gateway):
        crowd = [Connection("127.0.0.1", gateway.device) for _ in range(2_000)]
        os.kill(gateway.process.pid, signal.SIGTERM)
    codes = {close.code for one in crowd if (close := last_word(one))}
    assert gateway.process.wait(30) == 0
    assert codes <= {200}, codes
