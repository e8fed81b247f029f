"""The clock offset."""

import pytest

DAY_MS = 86_400_000


def skew(bench):
    """Refuses the next Hello as a gateway does whose clock is `clock_ms` ahead; returns the Hello."""
    session = bench.gateway.hello()
    assert abs(session.hello.timestamp - bench.gateway.now()) > 120_000
    session.close(300, server_time=bench.gateway.now())
    return session.hello


@pytest.mark.broken_by("ignores-server-time", "keeps-refused-timestamp")
@pytest.mark.parametrize("days", [1, -1, 3_650])
def test_clock_a_day_off(bench, days):
    """After one Close 300 (clockSkew), a client adopts the gateway's time and reconnects at once."""
    bench.gateway.clock_ms = days * DAY_MS
    driver = bench.start()
    skew(bench)
    assert int(driver.expect("retrying")["ms"]) == 0
    session = bench.gateway.welcome()
    driver.expect("welcomed")
    session.deliver(1)
    session.until_acked(1)
    bench.restart()
    # The offset is stored if possible; without it one more clockSkew is allowed.
    session = bench.gateway.hello()
    if abs(session.hello.timestamp - bench.gateway.now()) > 120_000:
        session.close(300, server_time=bench.gateway.now())
        session = bench.gateway.hello()
    session.welcome()
    assert not session.hello.registration
    bench.driver.expect("welcomed")


@pytest.mark.broken_by("keeps-refused-timestamp")
def test_stored_timestamp_of_the_future_is_forgotten(bench):
    """A stored timestamp far above the gateway's clock is forgotten after clockSkew, also one of an earlier run."""
    bench.gateway.clock_ms = -DAY_MS
    bench.start()
    assert bench.gateway.hello().hello.timestamp > bench.gateway.now() + 120_000
    bench.restart()
    skew(bench)
    bench.gateway.welcome()
    bench.driver.expect("welcomed")


@pytest.mark.broken_by("skew-without-backoff")
def test_repeated_clock_skew_backs_off(bench):
    """The first clockSkew in a row reconnects at once, the next ones with backoff, and none stops the client."""
    driver = bench.start()
    delays = []
    count = 4 if "backoff" in bench.client.lacks else 8
    for _ in range(count):
        session = bench.gateway.hello(patience=bench.patience + 20)
        session.close(300, server_time=bench.gateway.now())
        delays.append(int(driver.expect("retrying")["ms"]))
    assert delays[0] == 0
    assert sum(delays[1:]) > 0, f"no backoff: {delays}"
    assert all(delay <= bench.backoff(attempt) for attempt, delay in enumerate(delays)), delays
    bench.gateway.welcome(patience=bench.patience + 30)
    driver.expect("welcomed")


@pytest.mark.broken_by("stops-at-300-without-time")
def test_clock_skew_without_server_time(bench):
    """A clockSkew without a server time, or with an absurd one, neither stops nor crashes the client."""
    driver = bench.start()
    for server_time in (0, 2**64 - 1, 1):
        bench.gateway.hello().close(300, server_time=server_time)
        driver.expect("retrying")
    session = bench.gateway.hello()
    session.close(300, server_time=bench.gateway.now())
    bench.gateway.welcome()
    driver.expect("welcomed")
