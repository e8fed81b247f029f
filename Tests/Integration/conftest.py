"""Fixtures of the integration tests. LONGWIRE_BIN_DIR names the folder of the built programs (default: .build/debug)."""

import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / folder) for folder in ("parties", "rigs")]

import longwire_client  # noqa: E402
from gateway import Gateway  # noqa: E402

# Deadlines of seconds instead of tens of seconds, with the same rules. They are not shorter, because most tests must not reach
# them on a busy machine.
QUICK = {
    "liveDeadlineMilliseconds": 2_000,
    "backgroundLiveDeadlineMilliseconds": 1_500,
    "unannouncedCloseDelayMilliseconds": 1_000,
    "suspectSilenceMilliseconds": 6_000,
    "vendorFirstPatienceMilliseconds": 3_000,
    "helloTimeoutMilliseconds": 2_000,
}


@pytest.fixture(scope="module")
def gateway():
    """One gateway for a file of independent tests: each has its own devices."""
    with Gateway(limits=QUICK) as gateway:
        yield gateway


@pytest.fixture
def own_gateway():
    """Creates gateways for tests that configure, kill or count; ends them all."""
    made = []

    def make(**options):
        options.setdefault("limits", QUICK)
        one = Gateway(**options).__enter__()
        made.append(one)
        return one

    yield make
    for one in made:
        one.__exit__()


@pytest.fixture
def new_device():
    """Creates registered, connected devices; closes their connections at the end."""
    made = []

    def make(gateway, token=None, **fields):
        device = longwire_client.Device("127.0.0.1", gateway.device, gateway.app["appId"])
        made.append(device)
        if token:
            fields["tokens"] = [longwire_client.pb.VendorToken(token=token)]
        device.register(gateway.app["appSecret"], **fields)
        device.cid = device.state.cid.hex()
        return device

    yield make
    for device in made:
        device.close()


@pytest.fixture(scope="module")
def driver():
    """A headless Chromium for a file of tests."""
    from browser import browser

    with browser() as driver:
        yield driver


@pytest.fixture
def page(driver, gateway):
    """The console before its sign-in, without data of earlier tests; at the end the browser's log must have no errors."""
    from browser import Page

    page = Page(driver, gateway)
    page.open()
    driver.execute_script("sessionStorage.clear(); localStorage.clear()")
    driver.get_log("browser")
    page.open()
    yield page
    assert page.complaints() == []
    driver.get("about:blank")
