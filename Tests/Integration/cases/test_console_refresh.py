"""Pages of the console that refresh keep the reader's focus, selection and scroll position."""

import pytest
from browser import Page
from cluster import Cluster
from conftest import QUICK
from gateway import ADMIN_TOKEN
from redis_rig import RedisRig
from selenium.webdriver.common.keys import Keys

REFRESHES = 3
# Counts the rounds of the page by the call that each of them makes once.
COUNT = """
window.rounds = 0;
if (!window.realFetch) window.realFetch = window.fetch;
window.fetch = async (to, ...more) => {
  const answer = await window.realFetch(to, ...more);
  if (String(to) === arguments[0]) window.rounds++;
  return answer;
};"""
# Marks the elements that the reader uses. A mark of an element that is replaced goes with it.
STATE = """
const scroll = document.querySelector(arguments[0]);
return {focus: document.activeElement.outerHTML.slice(0, 200), isKept: document.activeElement === window.focused,
        selection: String(getSelection()), left: scroll.scrollLeft, top: scrollY, isSame: scroll === window.scrolled};"""
SELECT = """
const [from, to, scroll] = arguments;
window.scrolled = document.querySelector(scroll);
window.scrolled.scrollLeft = 60;
getSelection().setBaseAndExtent(document.querySelector(from).firstChild, 0, document.querySelector(to), 1);"""


def wait_for_rounds(page, count=REFRESHES):
    begin = page.driver.execute_script("return window.rounds")
    page.until(lambda: page.driver.execute_script("return window.rounds") >= begin + count, f"{count} rounds")
    # One more animation frame: the answer of the last round is shown.
    page.driver.execute_async_script("setTimeout(arguments[0], 200)")


def styled(page, css):
    """Makes content wide enough to scroll. The policy of the page forbids style attributes."""
    page.driver.execute_script("const sheet = new CSSStyleSheet(); sheet.replaceSync(arguments[0]); document.adoptedStyleSheets = [sheet]", css)


def hold(page, call, focus, first, last, scroll=".scroll"):
    """Focuses, selects and scrolls, and requires the same of the page after three refreshes."""
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 390, "height": 700, "deviceScaleFactor": 1, "mobile": False})
    try:
        for selector in (focus, first, last, scroll):
            page.find(selector)
        page.driver.execute_script(COUNT, call)
        wait_for_rounds(page, 1)
        page.driver.execute_script(
            "window.focused = document.querySelector(arguments[0]); window.focused.focus(); scrollTo(0, 40)", focus)
        page.driver.execute_script(SELECT, first, last, scroll)
        before = page.driver.execute_script(STATE, scroll)
        assert before["isKept"] and before["selection"] and before["left"] > 0, before
        wait_for_rounds(page)
        after = page.driver.execute_script(STATE, scroll)
        # Figures between the two ends may have changed.
        ends = [(lines := state.pop("selection").splitlines())[0:1] + lines[-1:] for state in (before, after)]
        assert after == before and ends[0] == ends[1]
    finally:
        page.driver.execute_script("if (window.realFetch) window.fetch = window.realFetch; getSelection().removeAllRanges()")
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture
def reader(page, gateway, new_device):
    """The console, signed in, with a device and a message that waits."""
    device = new_device(gateway, token="ab" * 32)
    device.close()
    gateway.push(device.cid, "one", alert="Hello")
    page.cid = device.cid
    page.sign_in(ADMIN_TOKEN)
    page.find(".tiles")
    return page


def test_the_overview_keeps_the_readers_place(reader):
    hold(reader, "/metrics", "tbody a", ".tile span", "tbody th a")


def test_the_list_of_apps_keeps_the_readers_place(reader):
    reader.go("#/apps")
    hold(reader, "/metrics", "tbody a", "thead th", "tbody th a")


def test_the_page_of_an_app_keeps_the_readers_place(reader, gateway):
    gateway.admin_call("POST", "/v1/apps", {"appId": "held", "quotas": {"devices": 5, "storedBytes": 1 << 40}})
    try:
        reader.go("#/apps/held")
        hold(reader, "/metrics", ".reader", "tbody th", "tbody tr:last-child th")
        # The form beside the figures keeps its focus and what was typed.
        reader.driver.execute_script(COUNT, "/metrics")
        topic = reader.find("input[data-path='apns.topic']")
        topic.send_keys("com.example")
        wait_for_rounds(reader, 2)
        assert topic.get_attribute("value") == "com.example" and reader.driver.switch_to.active_element == topic
    finally:
        gateway.admin_call("POST", "/v1/apps/held/disable")
        gateway.admin_call("DELETE", "/v1/apps/held")


def test_the_handoff_queue_keeps_the_readers_place(reader, gateway):
    for job in gateway.lease(wait=5):
        gateway.settle(job, "accepted")
    reader.go("#/handoff")
    styled(reader, ".scroll table { width: 900px }")
    hold(reader, "/metrics", ".scroll", ".tile span", "tbody th")


def test_the_page_of_a_device_keeps_the_readers_place(reader):
    reader.go(f"#/devices/demo/{reader.cid}")
    hold(reader, f"/v1/apps/demo/devices/{reader.cid}", "main .facts ~ p a, main .card a", ".facts dt", "tbody th")


def test_the_page_of_a_message_keeps_the_readers_place(reader, gateway):
    message = gateway.push(reader.cid, "two")["msgId"]
    reader.go(f"#/messages/{message}")
    styled(reader, ".card { overflow-x: auto } .facts { width: 900px }")
    hold(reader, f"/v1/messages/{message}", ".facts a", ".facts dt", ".steps time", ".card")


@pytest.fixture(scope="module")
def cluster():
    with RedisRig() as rig, Cluster(rig, limits=QUICK) as cluster:
        cluster.wait_until_served()
        yield cluster


def test_the_cluster_keeps_the_readers_place(driver, cluster):
    page = Page(driver, cluster.gateways[0])
    page.open()
    page.sign_in(ADMIN_TOKEN)
    page.find(".tiles")
    page.go("#/cluster")
    page.until(lambda: len(page.all("tbody tr")) == len(cluster.gateways), "all gateways")
    hold(page, "/v1/cluster", "tbody button", ".facts dt", "tbody th")
    # A button that stayed acts on its gateway.
    page.find("tbody button").send_keys(Keys.ENTER)
    page.shows("Drain gateway", "dialog")
    page.click("dialog button")
    driver.get("about:blank")


def test_a_row_that_moves_keeps_its_focus(page):
    """The row with the focus stays where it is, and the others are arranged around it."""
    result = page.driver.execute_async_script("""
        const done = arguments[0];
        import('/console/dom.js').then(({h, patch, table}) => {
          const place = document.createElement('div');
          document.body.append(place);
          const rows = names => table('t', ['name'], names.map(name => [h('a', {href: '#/' + name}, name)]), '');
          const names = () => [...place.querySelectorAll('a')].map(link => link.textContent).join('');
          const log = [];
          patch(place, rows(['a', 'b', 'c', 'd']));
          const elements = Object.fromEntries([...place.querySelectorAll('a')].map(link => [link.textContent, link]));
          elements.c.focus();
          for (const order of ['cabd', 'dbac', 'xcy', 'abcd', 'cc', 'ca']) {
            patch(place, rows([...order]));
            log.push([names(), document.activeElement === elements.c, place.querySelectorAll('tr').length - 1]);
          }
          patch(place, rows([]));
          log.push([names(), document.activeElement === document.body, place.textContent]);
          place.remove();
          done(log);
        });""")
    assert result == [[order, True, len(order)] for order in ("cabd", "dbac", "xcy", "abcd", "cc", "ca")] + [["", True, ""]]


def test_a_patched_element_has_the_new_attributes_text_and_handlers(page):
    result = page.driver.execute_async_script("""
        const done = arguments[0];
        import('/console/dom.js').then(({h, patch}) => {
          const place = document.createElement('div'), log = [];
          document.body.append(place);
          const view = (number, more) => [
            h('button', {class: 'b' + number, title: number === 1 ? 'x' : null, onclick: () => log.push(number), ...more}, 'count ', number),
            h('details', {}, h('summary', {}, 's'), h('input', {value: 'v' + number})),
          ];
          patch(place, view(1));
          const button = place.firstChild, details = place.querySelector('details'), input = place.querySelector('input');
          details.open = true;
          input.value = 'typed';
          const text = button.lastChild;
          patch(place, view(2));
          button.click();
          patch(place, view(3, {onclick: null, onfocus: () => log.push('focus')}));
          button.click();
          button.focus();
          log.push(place.firstChild === button, button.lastChild === text, button.textContent, button.className, button.title,
                   place.querySelector('details') === details && details.open, input.value, place.childNodes.length);
          patch(place, h('p', {}, 'other'));
          log.push(place.innerHTML);
          place.remove();
          done(log);
        });""")
    assert result == [2, "focus", True, True, "count 3", "b3", "", True, "typed", 2, "<p>other</p>"]


def test_a_selection_stays_while_its_text_changes(page):
    result = page.driver.execute_async_script("""
        const done = arguments[0];
        import('/console/dom.js').then(({h, patch}) => {
          const place = document.createElement('div'), log = [];
          document.body.append(place);
          const show = text => patch(place, h('p', {}, text), h('p', {}, 'end'));
          const select = (from, to) => { const node = place.firstChild.firstChild; getSelection().setBaseAndExtent(node, from, node, to); };
          show('accepted 120 since the start');
          select(0, 8);
          show('accepted 2345 since the start');
          log.push(String(getSelection()));
          show('accepted 120');
          select(0, 12);
          show('accepted 12345');
          log.push(String(getSelection()));
          place.remove();
          done(log);
        });""")
    assert result == ["accepted", "accepted 12345"]
