"""axe-core finds nothing on any page of the console: in both languages, light and dark, on a screen and on a phone."""

import pathlib

import longwire_client
import pytest
from browser import Page
from cluster import Cluster
from conftest import QUICK
from gateway import ADMIN_TOKEN, eventually
from redis_rig import RedisRig

ROOT = pathlib.Path(__file__).resolve().parents[3]
VARIANTS = [(language, dark, width) for language in ("en", "zh") for dark in (False, True) for width in (1280, 390)]
NAMES = [f"{language}-{'dark' if dark else 'light'}-{width}" for language, dark, width in VARIANTS]
RUN = """
const done = arguments[0];
axe.run(document, {resultTypes: ['violations']}).then(({violations, passes}) => done({
  passes: passes.length, violations: violations.flatMap(({id, nodes}) => nodes.map(node => `${id}: ${node.target} ${node.failureSummary}`))}))
  .catch(error => done({passes: 0, violations: [String(error)]}));"""


@pytest.fixture(scope="module")
def axe():
    """The text of axe-core."""
    found = list(ROOT.glob(".build/axe/lib/python3*/site-packages/axe_playwright_python/axe.min.js"))
    assert found, "axe-core is missing; run: deploy/install-dependencies.sh accessibility"
    return found[0].read_text()


@pytest.fixture(scope="module")
def places(gateway):
    """Each page with the element that shows that it is filled, for a gateway with objects of each kind."""
    app, devices = gateway.app["appId"], []
    for byte in ("ab", "cd", ""):
        device = longwire_client.Device("127.0.0.1", gateway.device, app)
        device.register(gateway.app["appSecret"], tokens=[longwire_client.pb.VendorToken(token=byte * 32)] if byte else [])
        device.cid = device.state.cid.hex()
        devices.append(device)
    live, away, _ = devices
    away.close()
    eventually(lambda: not gateway.view(away.cid)["connected"], "the device as absent")
    message = gateway.push(away.cid, "an order", alert="Your order")
    for job in gateway.lease(wait=5):
        gateway.settle(job, "badToken", reason="Unregistered")
    for device in (live, away):
        gateway.api("POST", "user/alias", {"data_list": [{"cid": device.cid, "alias": "both"}]})
    gateway.api("POST", f"user/custom_tag/cid/{away.cid}", {"custom_tag": ["beta", "北京"]})
    gateway.api("POST", f"user/black/cid/{devices[2].cid}", {})
    news = gateway.api("POST", "push/all", {
        "request_id": "news-of-today", "audience": "all", "settings": {"ttl": 3_600_000}, "push_message": {"transmission": "news"}})
    gateway.admin_call("POST", "/v1/apps", {
        "appId": "shop", "apns": {"topic": "com.example.shop"}, "upstream": {}, "events": {}, "quotas": {"devices": 5, "storedBytes": 1 << 40}})
    gateway.admin_call("POST", "/v1/apps", {"appId": "closed-shop"})
    gateway.admin_call("POST", "/v1/apps/closed-shop/disable")
    yield {
        "overview": ("overview", "polyline"), "apps": ("apps", "tbody"), "an app": ("apps/shop", "figure polyline"),
        "an app of the file": (f"apps/{app}", "figure"), "devices": (f"devices/{app}", "tbody"), "a device": (f"devices/{app}/{away.cid}", "tbody a"),
        "a message": (f"messages/{message['msgId']}", ".steps"), "a task": (f"tasks/{app}/{news['data']['taskid']}", "tbody, .quiet"),
        "a request": (f"tasks/{app}/news-of-today", "tbody"), "an alias": (f"tasks/{app}/both", "tbody"), "nothing found": ("find/nobody", ".problem"),
        "the way to the search": ("messages", ".card"), "handoff": ("handoff", "tbody"), "cluster": ("cluster", ".card"),
        "a test message": (f"send/{app}/{live.cid}", "textarea"), "own device": ("device", "main input[type=password]"),
    }
    for device in devices:
        device.close()


def turn(page, place):
    """Goes to a page. The elements of the page before are gone afterwards."""
    page.driver.execute_async_script(
        "const [place, done] = arguments; addEventListener('hashchange', () => done(), {once: true}); location.hash = place", place)


def judged(page, axe, what):
    """What axe-core has against the page as it is, and a page that is wider than its window."""
    page.driver.execute_script(axe)
    found = page.driver.execute_async_script(RUN)
    assert found["passes"] > 5 or found["violations"], f"axe-core judged {what}"
    wide = page.driver.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return [f"{what}: {violation}" for violation in found["violations"]] + ([f"{what}: {wide} px too wide"] if wide > 0 else [])


@pytest.fixture
def window(driver, request):
    """The browser in one variant, without anything kept of an earlier one."""
    language, dark, width = request.param

    def opened(gateway):
        page = Page(driver, gateway)
        page.prefer(dark)
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
        page.open()
        driver.execute_script("sessionStorage.clear(); localStorage.clear(); localStorage.setItem('longwire.language', arguments[0])", language)
        page.open()
        page.find(".sign-in")
        shown = driver.execute_script("return [document.documentElement.lang, getComputedStyle(document.body).backgroundColor, innerWidth]")
        assert shown == ["zh-CN" if language == "zh" else "en", "rgb(15, 21, 25)" if dark else "rgb(246, 247, 248)", width]
        return page
    yield opened
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    Page(driver, None).prefer(False)
    driver.get("about:blank")
    driver.get_log("browser")


@pytest.mark.parametrize("window", VARIANTS, ids=NAMES, indirect=True)
def test_no_page_has_a_fault(window, gateway, axe, places):
    page = window(gateway)
    found = judged(page, axe, "sign-in")
    page.sign_in("a-token-that-is-wrong")
    page.find(".problem")
    found += judged(page, axe, "a refused sign-in")
    page.sign_in(ADMIN_TOKEN)
    page.find(".tiles")
    for what, (place, filled) in places.items():
        turn(page, "#/" + place)
        page.find(filled)
        found += judged(page, axe, what)
    turn(page, "#/apps")
    page.click("p.buttons button.main")
    page.driver.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    found += judged(page, axe, "a new app")
    page.click("input[value=json]")
    found += judged(page, axe, "the expert view")
    turn(page, "#/apps/shop")
    page.click("p.buttons button.danger")
    page.find("dialog")
    found += judged(page, axe, "a question")
    page.click("dialog button")
    turn(page, "#/overview")
    reader = page.find(".reader")
    page.driver.execute_script("arguments[0].focus(); arguments[0].dispatchEvent(new KeyboardEvent('keydown', {key: 'End', bubbles: true}))", reader)
    page.find(".cursor")
    found += judged(page, axe, "a plot with its cursor")
    assert found == []


@pytest.fixture(scope="module")
def cluster():
    with RedisRig() as rig, Cluster(rig, limits=QUICK) as cluster:
        cluster.wait_until_served()
        yield cluster


@pytest.mark.parametrize("window", VARIANTS, ids=NAMES, indirect=True)
def test_the_page_of_a_cluster_has_no_fault(window, cluster, axe):
    page = window(cluster.gateways[0])
    page.sign_in(ADMIN_TOKEN)
    page.find(".tiles")
    turn(page, "#/cluster")
    page.find(".parts li")
    assert judged(page, axe, "cluster") == []


@pytest.mark.parametrize("window", VARIANTS[:1], ids=NAMES[:1], indirect=True)
def test_planted_faults_are_found(window, gateway, axe):
    page = window(gateway)
    page.driver.execute_script("""
        document.querySelector('h1').remove();
        document.querySelector('label').remove();
        const text = document.createElement('p');
        text.textContent = 'pale';
        text.style.color = '#ddd';
        document.querySelector('main').append(text, document.createElement('img'));
        document.querySelector('main').style.minWidth = '2000px';""")
    found = judged(page, axe, "sign-in")
    for rule in ("page-has-heading-one", "label", "color-contrast", "image-alt"):
        assert any(violation.startswith(f"sign-in: {rule}:") for violation in found), (rule, found)
    assert any(violation.endswith("px too wide") for violation in found), found
