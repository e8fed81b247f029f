"""Heartbeats, Pongs, half-open connections, the learnt heartbeat."""

import time

import pytest
from wire import frame, pb


@pytest.mark.broken_by("never-pings", "own-heartbeat", "pings-often")
def test_pings_in_the_granted_interval(bench):
    """A client that has sent nothing for the granted heartbeat sends a Ping, and not much more often."""
    bench.start(heartbeat=60)
    session = bench.gateway.welcome(heartbeat_seconds=1)
    for _ in range(6):
        session.expect(pb.Ping)
    times = session.times(pb.Ping)
    # Five intervals of a second. Only a late reading of the first Ping makes them shorter here.
    assert times[5] - times[0] > 2.0, times


@pytest.mark.broken_by("no-pong", "narrow-numbers")
@pytest.mark.each_transport
def test_pong_repeats_the_nonce(bench):
    """A Ping is answered at once by a Pong with its nonce, whatever the 64 bits are."""
    bench.start()
    session = bench.gateway.welcome()
    for nonce in (0, 1, 2**31, 2**53 + 1, 2**63 + 5, 2**64 - 1):
        session.send(pb.Ping(nonce=nonce))
        assert session.expect(pb.Pong).nonce == nonce


@pytest.mark.broken_by("keeps-dead-connections")
def test_half_open_connection(bench):
    """Without any frame within 10 s of its Ping the client drops the connection and reconnects."""
    driver = bench.start()
    session = bench.gateway.welcome(answers=False, heartbeat_seconds=1)
    driver.expect("welcomed")
    session.until_over(patience=bench.patience + 15)
    assert session.frames(pb.Ping)
    driver.expect("disconnected")
    driver.expect("retrying")
    bench.gateway.welcome()
    driver.expect("welcomed")


@pytest.mark.broken_by("keeps-dead-connections")
def test_half_a_frame_is_no_answer(bench):
    """A gateway that stops in the middle of a frame is given up like one that sends nothing."""
    driver = bench.start()
    session = bench.gateway.welcome(answers=False, heartbeat_seconds=1)
    driver.expect("welcomed")
    session.raw(frame(pb.DELIVER, b"\x10\x01", length=40_000))
    session.until_over(patience=bench.patience + 15)
    bench.gateway.welcome()
    driver.expect("welcomed")


@pytest.mark.broken_by("pings-answer-late")
def test_any_frame_answers_a_ping(bench):
    """A frame other than the Pong also shows that the gateway is there: the connection stays."""
    driver = bench.start()
    session = bench.gateway.welcome(answers=False, heartbeat_seconds=1)
    driver.expect("welcomed")
    for sequence in range(1, 6):
        session.expect(pb.Ping)
        session.deliver(sequence)
        session.until_acked(sequence)
    # Longer than the 10 s after which an unanswered Ping ends a connection.
    end = time.monotonic() + 11
    sequence = 6
    while time.monotonic() < end:
        session.deliver(sequence)
        session.until_acked(sequence)
        sequence += 1
        time.sleep(0.7)
    assert not session.is_over
    session.round_trip()


@pytest.mark.broken_by("learns-nothing")
def test_lost_heartbeat_is_learnt(bench):
    """A connection that died in the silence of a heartbeat halves the next requested one, down to 30 s."""
    driver = bench.start(heartbeat=240)
    session = bench.gateway.welcome(answers=False, heartbeat_seconds=1)
    assert session.hello.heartbeat_seconds == 240
    session.until_over(patience=bench.patience + 15)
    session = bench.gateway.welcome()
    assert session.hello.heartbeat_seconds == 30
    driver.expect("welcomed")
    bench.restart(heartbeat=240)
    assert bench.gateway.welcome().hello.heartbeat_seconds == 30
    # Another requested heartbeat is a new beginning.
    session = bench.gateway.connections[-1]
    bench.driver.expect("welcomed")
    bench.driver.do("heartbeat", seconds=120)
    assert session.expect(pb.DeviceUpdate, lambda update: update.heartbeat_seconds).heartbeat_seconds == 120


@pytest.mark.broken_by("waits-for-welcome")
def test_no_welcome(bench):
    """A gateway that accepts the connection and does not answer the Hello is given up."""
    bench.start()
    session = bench.gateway.hello()
    session.until_over(patience=bench.patience + 15)
    bench.gateway.welcome()
    bench.driver.expect("welcomed")


@pytest.mark.broken_by("own-heartbeat")
def test_update_changes_the_heartbeat(bench):
    """The command `heartbeat` requests another one, and the client uses the one that the UpdateResult grants."""
    driver = bench.start(heartbeat=300)
    session = bench.gateway.welcome(answers=False)
    driver.expect("welcomed")
    driver.do("heartbeat", seconds=45)
    update = session.expect(pb.DeviceUpdate)
    assert update.heartbeat_seconds == 45
    session.send(pb.UpdateResult(request=update.request, heartbeat_seconds=1))
    assert int(driver.expect("updated")["code"]) == 0
    for _ in range(2):
        session.pong(session.expect(pb.Ping).nonce)
