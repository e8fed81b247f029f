"""Close with an alternate address."""

import pytest

START = {"alternates": True}


def begin(bench):
    bench.start(**START)
    bench.gateway.welcome()
    bench.driver.expect("welcomed")
    return bench.restart(**START)


@pytest.mark.broken_by("ignores-alternates", "keeps-alternate")
@pytest.mark.parametrize("is_welcomed", [True, False])
def test_alternate_serves_one_session(bench, is_welcomed):
    """An alternate without a window is tried at once, for one session; then follows the configured address."""
    driver, other = begin(bench), bench.another()
    session = bench.gateway.hello()
    if is_welcomed:
        session.welcome()
    session.close(202, alternate=other.address)
    assert int(driver.expect("retrying")["ms"]) == 0
    away = other.welcome()
    driver.expect("welcomed", where=lambda event: True)
    away.deliver(1)
    away.until_acked(1)
    away.cut()
    back = bench.gateway.welcome()
    back.deliver(1, 2)
    back.until_acked(1, 2)
    other.stays_alone(0.2)


@pytest.mark.broken_by("ignores-alternates", "ignores-window")
def test_alternate_with_a_window(bench):
    """An alternate with a window is tried after a random time within the window."""
    driver, other = begin(bench), bench.another()
    closed_at = bench.gateway.welcome().close(
        200, alternate=other.address, retry_after_min_ms=1_100, retry_after_max_ms=1_400)
    delay = int(driver.expect("retrying")["ms"])
    assert 1_100 <= delay <= 1_400
    other.welcome()
    assert (other.connected_at[-1] - closed_at) * 1000 >= delay - 20


@pytest.mark.broken_by("keeps-alternate", "alternate-refusal-stops")
@pytest.mark.parametrize("way", ["refused", "401", "402", "499", "301", "cut"])
def test_failed_alternate_leads_back(bench, way):
    """An alternate that cannot be reached, or refuses with any code, leads back to the configured address."""
    driver, other = begin(bench), bench.another()
    if way == "refused":
        other.stop_listening()
    bench.gateway.welcome().close(202, alternate=other.address)
    if way == "cut":
        other.hello().cut()
    elif way != "refused":
        other.hello().close(int(way))
    session = bench.gateway.welcome()
    assert not session.hello.registration
    assert not driver.has("stopped")


@pytest.mark.broken_by("circles")
def test_circle_of_alternates_backs_off(bench):
    """Gateways that name each other as alternates are tried with backoff, not in a busy loop."""
    driver, other = begin(bench), bench.another()
    gateways, delays = [bench.gateway, other], []
    count = 8 if "backoff" in bench.client.lacks else 16
    for turn in range(count):
        gateways[turn % 2].hello(patience=bench.patience + 30).close(202, alternate=gateways[1 - turn % 2].address)
        delays.append(int(driver.expect("retrying")["ms"]))
    assert delays[0] == 0
    assert sum(delays) > 0, f"no delay in {count} redirections: {delays}"


@pytest.mark.broken_by("any-alternate")
@pytest.mark.parametrize("alternate", [
    "gateway", ":7000", "127.0.0.1:0", "127.0.0.1:99999", "127.0.0.1:-1", "127.0.0.1:7000/path", "user@127.0.0.1:7000",
    "a b:7000", "[::1]", "127.0.0.1:", "127.0.0.1: 7000", "\n127.0.0.1:7000",
    pytest.param("x" * 5_000 + ":7000", id="long")])
def test_senseless_alternates(bench, alternate):
    """An alternate that is no HOST:PORT is ignored: the client returns to the configured address."""
    driver = begin(bench)
    bench.gateway.welcome().close(202, alternate=alternate)
    driver.expect("retrying")
    bench.gateway.welcome()
    tried = {event["address"] for event in driver.all("connecting")}
    if "x" not in alternate:
        assert tried == {bench.gateway.address}, tried


@pytest.mark.broken_by("ignores-alternates")
def test_only_2xx_has_alternates(bench):
    """A Close of another hundred ignores an alternate; a later one of 2xx uses it."""
    driver, other = begin(bench), bench.another()
    bench.gateway.welcome().close(100, alternate=other.address)
    session = bench.gateway.welcome()
    other.stays_alone(0.1)
    session.close(200, alternate=other.address)
    other.welcome()
    assert not driver.has("stopped")
