"""Registration, stored credentials and the Hello."""

import pytest
from wire import pb


@pytest.mark.broken_by("wrong-proof", "registration-not-stored")
@pytest.mark.each_transport
def test_registers_once(bench):
    """A new device registers with a proof by the app secret, and later runs prove the stored device secret."""
    driver = bench.start()
    session = bench.gateway.welcome()
    assert session.hello.registration
    cid = driver.expect("registered")["cid"]
    assert driver.expect("welcomed")["cid"] == cid == session.device.cid.hex()
    for _ in range(2):
        bench.restart()
        session = bench.gateway.welcome()
        assert not session.hello.registration and session.hello.cid.hex() == cid
        assert bench.driver.expect("welcomed")["cid"] == cid
        assert not bench.driver.has("registered")


@pytest.mark.broken_by("same-nonce")
def test_lost_welcome_of_a_registration(bench):
    """A registration whose Welcome was lost is repeated with another nonce and a later timestamp."""
    bench.start()
    first = bench.gateway.hello()
    first.cut()
    second = bench.gateway.welcome()
    assert first.hello.registration and second.hello.registration
    assert first.hello.nonce != second.hello.nonce
    bench.driver.expect("registered")


@pytest.mark.broken_by("empty-registration")
@pytest.mark.parametrize("cid, secret", [(b"", b"x" * 32), (b"\x01" * 16, b""), (b"", b"")])
def test_registration_without_credentials(bench, cid, secret):
    """A Welcome of a registration without a cid or without a secret registers nothing."""
    bench.start()
    session = bench.gateway.hello()
    session.is_welcomed = True
    session.send(pb.Welcome(
        generation=1, queue_epoch=7, heartbeat_seconds=300, window=32, cid=cid, device_secret=secret))
    session.until_over()
    assert not bench.driver.has("registered")
    assert bench.gateway.welcome().hello.registration
    bench.driver.expect("registered")


@pytest.mark.broken_by("keeps-lost-registration")
def test_unknown_device_registers_anew(bench):
    """After Close 301 the client discards cid, secret and positions, and registers a new device."""
    driver = bench.start()
    session = bench.gateway.welcome()
    driver.expect("welcomed")
    session.deliver(1)
    session.until_acked(1)
    cid = session.device.cid
    session.cut()
    again = bench.gateway.hello()
    again.close(301)
    assert driver.expect("registrationLost")["cid"] == cid.hex()
    third = bench.gateway.welcome()
    assert third.hello.registration
    new = driver.expect("registered", where=lambda event: event["cid"] != cid.hex())
    third.deliver(1)
    third.until_acked(1)
    bench.restart()
    assert bench.gateway.welcome().hello.cid.hex() == new["cid"]


@pytest.mark.broken_by("registers-forever")
def test_unknown_device_twice_stops(bench):
    """A second Close 301 in a row stops the client."""
    driver = bench.start()
    bench.gateway.welcome().cut()
    bench.gateway.hello().close(301)
    bench.gateway.hello().close(301)
    assert driver.expect("stopped")["reason"]
    bench.gateway.stays_alone(0.5)


@pytest.mark.broken_by("no-positions")
def test_hello_has_window_heartbeat_and_positions(bench):
    """A Hello has the requested window and heartbeat, and the positions of both streams under their epoch."""
    bench.start(window=5, heartbeat=120)
    session = bench.gateway.welcome(queue_epoch=3)
    assert (session.hello.window, session.hello.heartbeat_seconds) == (5, 120)
    session.deliver(1, 4, 9)
    session.deliver(2, 3, stream=1)
    session.until_acked(1, 4, 9)
    session.until_acked(2, 3, stream=1)
    session.cut()
    hello = bench.gateway.welcome().hello
    assert hello.queue_epoch == 3
    assert {one.stream: (one.sequence, len(one.ranges)) for one in hello.positions} == {0: (9, 0), 1: (3, 0)}


@pytest.mark.broken_by("timestamp-of-clock")
def test_timestamps_increase(bench):
    """Each Hello of a device has a higher timestamp than the one before, also when the gateway's clock runs back."""
    bench.start()
    bench.gateway.welcome().cut()
    stamps = []
    for offset in (60_000, 60_000, 0, -30_000, 0):
        bench.gateway.clock_ms = offset
        session = bench.gateway.hello()
        if not stamps:
            # The offset of a minute is learnt first.
            session.close(300, server_time=bench.gateway.now())
            session = bench.gateway.hello()
        stamps.append(session.hello.timestamp)
        session.welcome()
        bench.driver.expect("welcomed")
        if offset == 60_000 and len(stamps) == 2:
            session.close(300, server_time=bench.gateway.now() - 90_000)
        else:
            session.cut()
    assert stamps == sorted(set(stamps)), stamps
