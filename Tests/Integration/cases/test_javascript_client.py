"""The package of Clients/javascript in a real browser: Examples/WebPage against a real gateway."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from browser import Page
from gateway import APP, TIMEOUT, Gateway, binary, eventually
from ports import free_ports

ROOT = pathlib.Path(__file__).resolve().parents[3]
README = ROOT / "Clients/javascript/README.md"
SERVE = ROOT / "Examples/WebPage/serve.mjs"
SECRET = "an-example-master-secret-of-48-characters-000001"
NODE = shutil.which("node") or shutil.which("nodejs")
pytestmark = pytest.mark.skipif(NODE is None, reason="no Node")

STATE = """
const done = arguments[0];
import('/longwire/database.js').then(async ({openDatabase, inDatabase}) => {
  const database = await openDatabase();
  const text = await inDatabase(database, 'states', 'readonly', store => store.get('longwire.state.demo'));
  const inbox = await inDatabase(database, 'inbox', 'readonly', store => store.getAll());
  database.close();
  done({text: text ?? null, inbox});
}).catch(error => done({error: String(error)}));
"""
CLEAR = """
const done = arguments[0], request = indexedDB.deleteDatabase('longwire');
sessionStorage.clear();
localStorage.clear();
request.onsuccess = request.onerror = () => done();
"""
DROP_ACKS = """
WebSocket.prototype.realSend = WebSocket.prototype.send;
WebSocket.prototype.send = function (data) { if (new Uint8Array(data)[0] !== 7) this.realSend(data); };
"""


class WebPage(Page):
    """The example's page, from its own server."""

    address = None

    def open(self, place=""):
        self.driver.get(self.address + place)

    def connect(self, secret=APP["appSecret"]):
        self.type("input[name=url]", f"ws://127.0.0.1:{self.gateway.device}")
        self.type("input[name=appSecret]", secret)
        self.click("form button")
        self.is_in("connected")
        return self.text("#cid")

    def is_in(self, state):
        self.until(lambda: self.text("#state") == state, lambda: f"{state!r} as state, but {self.text('#state')!r}")

    def messages(self):
        return self.driver.execute_script(
            "return [...document.querySelectorAll('#messages li')].map(line => line.textContent)")

    def has(self, *messages):
        self.until(lambda: self.messages() == list(messages), lambda: f"{messages}, but {self.messages()}")

    def leave(self):
        """Goes to another page, and waits until the gateway has noticed."""
        cid = self.text("#cid")
        self.driver.get("about:blank")
        eventually(lambda: not self.gateway.view(cid)["connected"], "the device as absent")

    def state(self):
        return self.driver.execute_async_script(STATE)


@contextlib.contextmanager
def serving(script, **variables):
    """Runs the example's server."""
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [NODE, script, str(port)], stdout=subprocess.PIPE, text=True, env={**os.environ, **variables})
    try:
        assert process.stdout.readline().strip() == f"http://127.0.0.1:{port}/"
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(TIMEOUT)
        process.stdout.close()


@pytest.fixture(scope="module")
def server():
    with serving(SERVE, LONGWIRE_MASTER_SECRET=SECRET) as address:
        yield address


@pytest.fixture(scope="module")
def readme_server(tmp_path_factory):
    """The example's server with the page of the client's README beside its own."""
    root = tmp_path_factory.mktemp("readme")
    shutil.copytree(SERVE.parent, root / "Examples/WebPage")
    (root / "Clients").symlink_to(ROOT / "Clients")
    with serving(root / "Examples/WebPage/serve.mjs") as address:
        yield address, root / "Examples/WebPage/first.html"


@pytest.fixture(scope="module")
def gateway(server, readme_server):
    from conftest import QUICK

    gateway = Gateway(limits=QUICK, app={"masterSecret": SECRET})
    gateway.sections["device"]["webSocket"] = {"origins": [server, readme_server[0]]}
    with gateway:
        yield gateway


@pytest.fixture
def page(driver, gateway, server):
    page = WebPage(driver, gateway)
    page.address = server
    page.open()
    driver.execute_async_script(CLEAR)
    driver.get_log("browser")
    page.open()
    yield page
    assert page.complaints() == []
    driver.get("about:blank")


def test_a_message_arrives_live_and_is_acked(page, gateway):
    cid = page.connect()
    view = gateway.view(cid)
    assert view["connected"] and view["state"] == "foreground"
    for text in ("one", "两", "three"):
        gateway.push(cid, text)
    page.has("one", "两", "three")
    eventually(lambda: gateway.view(cid)["queue"]["messages"] == 0, "the acks")
    assert "\nstream 0 3\n" in page.state()["text"]


def test_a_user_registers_with_a_token_of_the_pages_server_and_gets_the_alias(page, gateway):
    page.type("input[name=url]", f"ws://127.0.0.1:{gateway.device}")
    page.type("input[name=user]", "page_user")
    page.click("form button")
    page.is_in("connected")
    cid = page.text("#cid")
    eventually(lambda: gateway.view(cid).get("aliases") == ["page_user"], "the alias")
    page.driver.refresh()
    page.is_in("connected")
    assert page.text("#cid") == cid
    gateway.push(cid, "to the user")
    page.has("to the user")


def test_messages_of_an_absence_arrive_after_it_and_none_twice(page, gateway):
    cid = page.connect()
    gateway.push(cid, "before")
    page.has("before")
    eventually(lambda: gateway.view(cid)["queue"]["messages"] == 0, "the ack")
    page.leave()
    gateway.push(cid, "during")
    page.open()
    page.is_in("connected")
    assert page.text("#cid") == cid
    page.has("during (queued)")
    page.driver.refresh()
    page.is_in("connected")
    gateway.push(cid, "after")
    page.has("after")


def test_lost_acks_repeat_no_message(page, gateway):
    cid = page.connect()
    page.driver.execute_script(DROP_ACKS)
    gateway.push(cid, "one")
    gateway.push(cid, "two")
    page.has("one", "two")
    page.leave()
    assert gateway.view(cid)["queue"]["messages"] == 2, "the acks were lost"
    page.open()
    page.is_in("connected")
    eventually(lambda: gateway.view(cid)["queue"]["messages"] == 0, "the acks")
    gateway.push(cid, "three")
    page.has("three")


def test_a_second_tab_waits_and_takes_over(page, gateway):
    cid = page.connect()
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    second = page.driver.current_window_handle
    try:
        page.open()
        page.type("input[name=url]", f"ws://127.0.0.1:{gateway.device}")
        page.click("form button")
        page.is_in("another tab is connected")
        gateway.push(cid, "to the first")
        page.driver.switch_to.window(first)
        page.has("to the first")
        assert gateway.view(cid)["connected"]
        page.driver.get("about:blank")
        page.driver.switch_to.window(second)
        page.is_in("connected")
        assert page.text("#cid") == cid
        gateway.push(cid, "to the second")
        page.has("to the second")
    finally:
        page.driver.switch_to.window(second)
        page.driver.close()
        page.driver.switch_to.window(first)


def test_without_web_locks_the_newest_tab_takes_the_connection(page, gateway):
    no_locks = "Object.defineProperty(Navigator.prototype, 'locks', {get() { return undefined; }})"
    script = page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": no_locks})
    first, handles = page.driver.current_window_handle, None
    try:
        page.open()
        cid = page.connect()
        page.driver.switch_to.new_window("tab")
        handles = page.driver.current_window_handle
        page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": no_locks})
        page.open()
        page.type("input[name=url]", f"ws://127.0.0.1:{gateway.device}")
        page.click("form button")
        page.is_in("connected")
        assert page.text("#cid") == cid
        gateway.push(cid, "to the newest")
        page.has("to the newest")
        page.driver.switch_to.window(first)
        page.is_in("stopped: another tab took over the connection and the state of this device; use that tab, or start "
                   "this client again")
        assert page.messages() == []
    finally:
        if handles:
            page.driver.switch_to.window(handles)
            page.driver.close()
            page.driver.switch_to.window(first)
        page.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": script["identifier"]})


def test_a_damaged_state_is_reported_and_kept(page, gateway):
    page.connect()
    page.leave()
    page.open("/longwire/limits.js")
    page.driver.execute_async_script("""
        const done = arguments[0];
        import('/longwire/database.js').then(async ({openDatabase, inDatabase}) => {
          const database = await openDatabase();
          await inDatabase(database, 'states', 'readwrite',
            store => store.put('longwire state 1\\n', 'longwire.state.demo'));
          database.close();
          done();
        });""")
    page.open()
    cut = "stopped: the state is cut short"
    page.until(lambda: page.text("#state").startswith(cut), lambda: page.text("#state"))
    assert page.state()["text"] == "longwire state 1\n"


# The programs of the client's README, word for word.

def program(name):
    """Returns the contents of a README's fence such as ```js node."""
    (found,) = re.findall(rf"^```\w+ {name}\n(.*?)^```$", README.read_text(), re.M | re.S)
    return found


def test_the_readmes_program_for_node_receives_a_message(gateway, tmp_path):
    (tmp_path / "device.mjs").write_text(program("node"))
    (tmp_path / "Clients").symlink_to(ROOT / "Clients")
    (tmp_path / "longwire-data").mkdir()
    values = {**APP, "deviceAddress": f"127.0.0.1:{gateway.device}"}
    (tmp_path / "longwire-data/demo.json").write_text(json.dumps(values))
    cids = []
    for payload in ("hello", "again"):
        process = subprocess.Popen([NODE, "device.mjs"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        try:
            cids.append(process.stdout.readline().split()[1])
            gateway.push(cids[-1], payload)
            assert process.stdout.readline() == f"live {payload}\n"
            eventually(lambda: gateway.view(cids[-1])["queue"]["messages"] == 0, "the ack")
        finally:
            process.kill()
            process.wait(TIMEOUT)
            process.stdout.close()
    assert cids[0] == cids[1], "the second start is the same device"


def test_the_readmes_page_receives_a_message(page, gateway, readme_server, tmp_path):
    configuration, (address, file), text = tmp_path / "gateway.json5", readme_server, program("browser")
    configuration.write_text(program("gateway"))
    configuration.chmod(0o600)
    subprocess.run(
        [binary("longwired"), "--config", configuration, "--check"], check=True, cwd=tmp_path, timeout=TIMEOUT)
    assert 'origins: ["http://127.0.0.1:8000"]' in configuration.read_text()
    # The address and the secret of this test's gateway instead of the page's.
    for words, others in (
        ("ws://127.0.0.1:7000", f"ws://127.0.0.1:{gateway.device}"),
        ('"demo-app-secret"', json.dumps(APP["appSecret"])),
    ):
        assert words.split("://")[-1].strip('"') in configuration.read_text() and words in text
        text = text.replace(words, others)
    file.write_text(text)
    page.driver.get(f"{address}/first.html")
    page.until(lambda: len(page.driver.title) == 32, lambda: f"a cid as title: {page.driver.title!r}")
    gateway.push(page.driver.title, "hello")
    page.until(lambda: page.text("body").strip() == "hello", lambda: page.text("body"))


# Web Push. A browser without a network has no push service: its own debugging interface delivers the push.

REGISTER = """
const done = arguments[0];
navigator.serviceWorker.register('/service-worker.js').then(() => navigator.serviceWorker.ready)
  .then(() => done('ready')).catch(error => done(String(error)));
"""
NOTIFICATIONS = """
const done = arguments[0];
navigator.serviceWorker.ready.then(registration => registration.getNotifications())
  .then(all => done(all.map(({title, body, tag, data, silent}) => ({title, body, tag, data, silent}))));
"""


def test_the_service_worker_shows_a_push_once_and_the_page_reports_it(page, gateway, server):
    cid = page.connect()
    gateway.push(cid, "over the connection")
    page.has("over the connection")
    (known,) = eventually(lambda: re.findall(r"^seen (\w+)$", page.state()["text"], re.M), "its id")
    page.driver.execute_cdp_cmd("Browser.grantPermissions", {"origin": server, "permissions": ["notifications"]})
    assert page.driver.execute_async_script(REGISTER) == "ready"
    page.driver.execute_cdp_cmd("ServiceWorker.enable", {})
    shown = lambda: page.driver.execute_async_script(NOTIFICATIONS)  # noqa: E731
    new = "03d301a2281c4f7788fff9957c9f6bf3"

    def deliver(text):
        page.driver.execute_cdp_cmd(
            "ServiceWorker.deliverPushMessage", {"origin": server, "registrationId": "0", "data": text})

    def push(message, title):
        deliver(json.dumps({
            "_gmid_": f"RASS_1129_3d309ebcb6dce799a54d6c68:{message}", "payload": "p",
            "notification": {"title": title, "body": "text"}}))

    # A browser that has just started does not list its first notification, so that one is not looked for.
    push("f" * 32, "first")
    eventually(lambda: "longwire_feedback_ignored_total 1\n" in gateway.metrics(), "the report of the first one")
    push(new, "new")
    page.until(lambda: "new" in {one["title"] for one in shown()}, lambda: f"the notification: {shown()}")
    one = next(one for one in shown() if one["title"] == "new")
    assert (one["body"], one["tag"], one["data"]["msgId"], one["silent"]) == ("text", new, new, False)
    # The page's client reports it to the gateway, which knows no such message, and the worker's record is removed.
    eventually(lambda: "longwire_feedback_ignored_total 2\n" in gateway.metrics(), "the report")
    eventually(lambda: page.state()["inbox"] == [], "the worker's record as taken")
    # The message that came over the connection is not shown while the page is visible, and another sender's push never.
    push(known, "repeat")
    deliver("no JSON")
    push("1" * 32, "last")
    page.until(lambda: "last" in {one["title"] for one in shown()}, lambda: f"the last notification: {shown()}")
    assert "repeat" not in {one["title"] for one in shown()}
    closed = page.driver.execute_async_script("""
        const done = arguments[0];
        import('/longwire/webpush.js')
          .then(({closeNotifications}) => closeNotifications('010b1d003d309ebcb6dce799a54d6c68')).then(done);""")
    assert closed >= 2 and shown() == []
