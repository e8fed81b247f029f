"""Reconnecting: backoff, Close codes, retry windows, replaced sessions, stops."""

import time

import pytest
from gateway import Broken
from wire import pb

STOPS = [401, 402, 403, 404, 410, 411, 412, 413, 414, 450, 499]
RETRIES = [100, 101, 102, 103, 104, 150, 200, 201, 202, 203, 299, 500, 501, 599]
# Timers count whole milliseconds, some of them coarsely.
TIMER_MS = 20


def greet(bench, is_welcomed):
    """Returns the next session, answered by a Welcome or not yet."""
    session = bench.gateway.hello()
    if is_welcomed:
        session.welcome()
        bench.driver.expect("welcomed")
    return session


def registered(bench, **options):
    """Starts a driver on a state that has a registration."""
    bench.start(**options)
    bench.gateway.welcome()
    bench.driver.expect("welcomed")
    return bench.restart(**options)


@pytest.mark.broken_by("no-jitter", "long-backoff", "constant-backoff", "stops-when-refused")
def test_backoff_has_bounds_and_jitter(bench):
    """The n-th delay in a row is a random time between 0 and min(1 s × 2ⁿ, 120 s), or what the driver was given."""
    bench.gateway.stop_listening()
    driver = bench.start(backoff=(10, 320))
    count = 4 if "backoff" in bench.client.lacks else 16
    delays = [int(driver.expect("retrying")["ms"]) for _ in range(count)]
    limits = [bench.backoff(attempt, (10, 320)) for attempt in range(count)]
    assert all(0 <= delay <= limit for delay, limit in zip(delays, limits)), (delays, limits)
    assert len(set(delays)) > 1, f"no jitter: {delays}"
    if count > 4:
        last = delays[5:]
        assert min(last) < 290 and max(last) > 30, f"delays at the cap of 320 ms without full jitter: {last}"
    bench.gateway.listen()
    bench.gateway.welcome()
    driver.expect("welcomed")


@pytest.mark.broken_by("backoff-reset-by-welcome", "constant-backoff", "no-backoff")
def test_short_sessions_do_not_reset_the_backoff(bench):
    """Sessions that end right after their Welcome do not reset the backoff: the delays continue to grow."""
    driver = bench.start(backoff=(10, 640))
    count = 6 if "backoff" in bench.client.lacks else 14
    delays = []
    for attempt in range(count):
        session = bench.gateway.welcome(patience=bench.patience + 2 * bench.backoff(attempt, (10, 640)) / 1000)
        driver.expect("welcomed")
        if attempt % 2:
            session.close(100)
        else:
            session.cut()
        delays.append(int(driver.expect("retrying")["ms"]))
        assert delays[-1] <= bench.backoff(attempt, (10, 640)), delays
    assert max(delays) > bench.backoff(0, (10, 640)), f"the delays did not grow: {delays}"


@pytest.mark.slow
@pytest.mark.broken_by("never-forgives")
def test_session_of_a_minute_resets_the_backoff(bench):
    """A session that lasted a minute resets the backoff."""
    bench.gateway.stop_listening()
    driver = bench.start(backoff=(5, 5_120))
    count = 4 if "backoff" in bench.client.lacks else 11
    for _ in range(count):
        driver.expect("retrying", patience=bench.patience + 10)
    bench.gateway.listen()
    session = bench.gateway.welcome(patience=bench.patience + 20)
    driver.expect("welcomed")
    # The rule itself is a duration; a longer wait on a slow machine keeps it.
    time.sleep(61)
    session.cut()
    for attempt in range(2):
        assert int(driver.expect("retrying")["ms"]) <= bench.backoff(attempt, (5, 5_120))
        if attempt == 0:
            bench.gateway.welcome().cut()


@pytest.mark.each_transport
@pytest.mark.broken_by("stops-when-cut")
@pytest.mark.parametrize("way", ["end", "reset", "half"])
def test_reconnects_after_a_lost_connection(bench, way):
    """A connection that ends without a Close, by an end or a reset, is reported and followed by the next one."""
    driver = registered(bench)
    session = greet(bench, True)
    if way == "half":
        session.pipe.end()
    else:
        session.cut(with_reset=way == "reset")
    driver.expect("disconnected")
    assert 0 <= int(driver.expect("retrying")["ms"]) <= bench.backoff(0)
    greet(bench, True)


@pytest.mark.broken_by("stops-at-1xx", "stops-at-unknown-codes")
@pytest.mark.parametrize("code", RETRIES)
def test_close_codes_that_retry(bench, code):
    """After 1xx, 2xx and 5xx, also of unknown codes, the client reports the Close and reconnects with backoff."""
    driver = registered(bench)
    for attempt, is_welcomed in enumerate((True, False)):
        greet(bench, is_welcomed).close(code, f"reason {code}")
        closed = driver.expect("closed")
        assert (int(closed["code"]), closed["reason"]) == (code, f"reason {code}")
        assert int(driver.expect("retrying")["ms"]) <= bench.backoff(attempt)
    greet(bench, True)
    assert not driver.has("stopped")


@pytest.mark.broken_by("never-stops")
@pytest.mark.parametrize("code", STOPS)
def test_close_codes_that_stop(bench, code):
    """After 4xx other than 400, also of unknown codes, the client stops, says why, and does not reconnect."""
    for is_welcomed in (True, False):
        driver = registered(bench)
        greet(bench, is_welcomed).close(code)
        assert int(driver.expect("closed")["code"]) == code
        assert driver.expect("stopped")["reason"]
        bench.gateway.stays_alone(0.3)
        driver.kill()


@pytest.mark.broken_by("corrects-forever")
def test_unknown_correction_is_tried_once(bench):
    """After an unknown code of 3xx the client reconnects once with backoff; the same code again stops it."""
    driver = registered(bench)
    bench.gateway.hello().close(350)
    assert int(driver.expect("retrying")["ms"]) <= bench.backoff(0)
    bench.gateway.hello().close(350)
    assert driver.expect("stopped")["reason"]
    bench.gateway.stays_alone(0.3)


@pytest.mark.broken_by("corrects-forever")
def test_correction_counts_in_a_row(bench):
    """A session between two Closes of 3xx makes the second one a first one."""
    driver = registered(bench)
    for _ in range(2):
        bench.gateway.hello(patience=bench.patience + 10).close(350)
        greet(bench, True).cut()
    assert not driver.has("stopped")
    bench.gateway.hello(patience=bench.patience + 30).close(350)
    bench.gateway.hello(patience=bench.patience + 60).close(350)
    driver.expect("stopped")


@pytest.mark.broken_by("fights-replacement", "stops-when-replaced")
def test_replaced_waits_half_a_minute(bench):
    """After Close 400 the client waits 30 s and the backoff delay before it reconnects."""
    driver = registered(bench)
    greet(bench, True).close(400)
    delay = int(driver.expect("retrying")["ms"])
    assert 30_000 <= delay <= 30_000 + bench.backoff(0)
    bench.gateway.stays_alone(0.5)


@pytest.mark.broken_by("ignores-window", "window-without-jitter")
def test_retry_window(bench):
    """A Close of 1xx, 2xx or 5xx with a retry window is followed by a random delay within the window."""
    delays = []
    for index, code in enumerate([100, 200, 201, 203, 299, 500, 501, 202]):
        driver = registered(bench)
        greet(bench, index % 2).close(code, retry_after_min_ms=20_000, retry_after_max_ms=40_000)
        delays.append(int(driver.expect("retrying")["ms"]))
        driver.kill()
    assert all(20_000 <= delay <= 40_000 for delay in delays), delays
    assert len(set(delays)) > 1, delays


@pytest.mark.broken_by("reconnects-early", "ignores-window")
def test_retry_window_is_kept(bench):
    """The next connection begins no earlier than the delay that the client drew from the window."""
    driver = registered(bench)
    closed_at = greet(bench, True).close(201, retry_after_min_ms=1_200, retry_after_max_ms=1_500)
    delay = int(driver.expect("retrying")["ms"])
    assert 1_200 <= delay <= 1_500
    greet(bench, True)
    assert (bench.gateway.connected_at[-1] - closed_at) * 1000 >= delay - TIMER_MS


@pytest.mark.broken_by("no-backoff")
def test_senseless_retry_windows(bench):
    """A window whose ends are swapped, or of weeks, makes no connection earlier than its lower end, and no crash."""
    for low, high, least in ((30_000, 20_000, 20_000), (2**32 - 1, 2**32 - 1, 3_600_000), (2**32 - 1, 0, 3_600_000)):
        driver = registered(bench)
        greet(bench, True).close(200, retry_after_min_ms=low, retry_after_max_ms=high)
        delay = int(driver.expect("retrying")["ms"])
        assert least <= delay <= 2**32, (low, high, delay)
        driver.kill()
    # Without a window a Close still has the backoff.
    driver = registered(bench)
    delays = []
    for _ in range(5):
        greet(bench, False).close(503)
        delays.append(int(driver.expect("retrying")["ms"]))
    assert max(delays) > 0


@pytest.mark.slow
@pytest.mark.broken_by("ignores-network")
def test_usable_network_ends_a_backoff(bench):
    """A network that became usable ends a long backoff within a second."""
    driver = registered(bench, backoff=(1_000, 120_000))
    bench.gateway.stop_listening()
    # A delay is long enough to be distinguished from an ended one.
    driver.expect("retrying", where=lambda event: int(event["ms"]) > 15_000, patience=120)
    bench.gateway.listen()
    driver.do("network", name="wifi")
    bench.gateway.hello(patience=8).welcome()
    driver.expect("welcomed")


@pytest.mark.broken_by("ignores-network", "network-ends-named-delays")
def test_usable_network_probes_a_session(bench):
    """A network change in a session sends a Ping at once, and ends no delay that the gateway named."""
    driver = registered(bench)
    session = greet(bench, True)
    driver.do("network", name="wifi")
    session.expect(pb.Ping)
    session.close(201, retry_after_min_ms=50_000, retry_after_max_ms=60_000)
    assert int(driver.expect("retrying")["ms"]) >= 50_000
    driver.do("network")
    bench.gateway.stays_alone(1.5)


@pytest.mark.broken_by("ignores-stop", "exits-with-1")
def test_stop(bench):
    """The command `stop` ends the session and the client; the end of input ends the process with 0."""
    driver = registered(bench)
    session = greet(bench, True)
    session.deliver(1)
    session.until_acked(1)
    driver.do("stop")
    assert driver.expect("stopped")["reason"] is None
    session.until_over()
    bench.gateway.stays_alone(0.3)
    if driver.stop() != 0:
        raise Broken("the driver did not exit with 0")
    # The end of input alone is a stop, too.
    driver = bench.start()
    session = greet(bench, True)
    if driver.stop() != 0:
        raise Broken("the driver did not exit with 0")
    session.until_over()
