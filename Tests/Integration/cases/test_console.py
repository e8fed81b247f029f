"""The console in a real browser: displayed content, user actions, and protection against misuse."""

import http.client
import json
import os
import pathlib
import pty
import re
import select
import urllib.error
import urllib.parse
import urllib.request

import pytest
from browser import Page
from gateway import ADMIN_TOKEN, HANDOFF_TOKEN, TIMEOUT, Gateway, eventually
from selenium.webdriver.common.keys import Keys

ROOT = pathlib.Path(__file__).resolve().parents[3]
MARKUP = "<img src=x onerror=document.title='pwned'>"


def test_a_person_signs_in_and_sees_how_the_gateway_is(page, gateway, new_device):
    page.sign_in("a-token-that-nobody-gave")
    page.shows("rejected this token", "body")
    page.sign_in(ADMIN_TOKEN)
    page.shows("ready")
    device = new_device(gateway)
    gateway.push(device.cid, "one")
    device.receive_and_ack(1)
    page.shows("accepted")
    # A plot has a line once two pages of metrics were read.
    page.find("svg polyline.line-0")
    assert "demo" in page.text("table")


class Trial(Gateway):
    """A gateway with the demo app and without credentials, whose standard output is a terminal."""

    def __init__(self):
        super().__init__(demo=True)
        del self.sections["apps"], self.sections["credentials"]
        self.terminal, self.output = pty.openpty()

    def spawn(self, *arguments, **options):
        return super().spawn(*arguments, **{**options, "stdout": self.output})

    def link(self):
        """Returns the one-time link of the output."""
        text = ""
        while not (found := re.search(r"http://\S+/console#/enter/\w+", text)):
            assert select.select([self.terminal], [], [], TIMEOUT)[0], text
            text += os.read(self.terminal, 4_096).decode()
        return found.group()

    def __exit__(self, *error):
        super().__exit__(*error)
        for end in (self.terminal, self.output):
            os.close(end)


def test_the_link_of_a_trial_start_signs_in_once(page):
    with Trial() as trial:
        driver, house, link = page.driver, Page(page.driver, trial), trial.link()
        driver.get(link)
        house.find(".tiles")
        assert driver.execute_script("return location.hash") == "#/", "the code does not stay in the address"
        driver.execute_script("sessionStorage.clear()")
        driver.get("about:blank")
        driver.get(link)
        house.shows("The link was used", "body")
        # The token still signs in, and a console that is signed in says that a link is wrong, and stays signed in.
        house.sign_in(json.loads((trial.folder / "data/demo.json").read_text())["adminToken"])
        house.find(".tiles")
        driver.execute_script("location.hash = '#/enter/00'")
        house.until(lambda: driver.execute_script("return location.hash") == "#/", "the address without the code")
        house.shows("You stay signed in", "main")
        house.find(".tiles")
        # The page must not ask a gateway that has ended.
        driver.get("about:blank")


def test_without_a_terminal_no_link_is_printed():
    trial = Gateway(demo=True)
    del trial.sections["apps"], trial.sections["credentials"]
    with trial:
        eventually(lambda: "is ready." in trial.log(), "the greeting")
        eventually(lambda: "console   " in trial.log(), "the console's address")
        assert "/enter/" not in trial.log()


def test_apps_and_whether_they_are_served(page, gateway):
    gateway.admin_call("POST", "/v1/apps", {"appId": "seen"})
    gateway.admin_call("POST", "/v1/apps/seen/disable")
    page.sign_in(ADMIN_TOKEN)
    page.shows("seen")
    page.shows("disabled")
    page.shows("admin API")
    gateway.admin_call("DELETE", "/v1/apps/seen")


def test_why_did_this_message_not_arrive(page, gateway, new_device):
    """Leads from a cid to the device, from its last refusal to the message, and to each step as a sentence."""
    device = new_device(gateway, token="cd" * 32)
    device.close()
    eventually(lambda: not gateway.view(device.cid)["connected"], "the device as absent")
    message = gateway.push(device.cid, "one", alert="Hello")
    (job,) = [job for job in gateway.lease(wait=5) if job["msgId"] == message["msgId"]]
    # The vendor's reason is untrusted text: the page displays it and does not run it.
    assert gateway.settle(job, "rejected", reason=MARKUP) == "recorded"
    page.sign_in(ADMIN_TOKEN)
    page.find(".tiles")
    page.go(f"#/devices/{gateway.app['appId']}/{device.cid}")
    page.shows("not connected")
    page.shows(MARKUP)
    page.click(f"a[href='#/messages/{message['msgId']}']")
    page.shows("The vendor rejected the notification permanently.")
    page.shows("A sender service leased the job.")
    page.shows(MARKUP, ".steps, .facts")
    assert page.all("main img") == [] and "pwned" not in page.driver.title
    page.go("#/messages/" + "0" * 32)
    page.shows("No such message")


@pytest.mark.parametrize(
    "place", ["#/%", "#/constructor", "#/__proto__", "#/toString/x", "#/%E0%A4%A", "#/devices/%/%25", "#/messages/%zz"])
def test_an_address_that_names_no_page_shows_one_all_the_same(page, place):
    page.sign_in(ADMIN_TOKEN)
    page.find(".tiles")
    page.go(place)
    page.until(lambda: page.text("#content").strip(), f"a page at {place}")
    page.go("#/overview")
    page.find(".tiles")
    assert page.complaints() == []


def test_a_task_is_found_by_its_id_a_request_and_an_alias(page, gateway, new_device):
    """Shows a report by final state; the device page has its names, its newest messages and refused publishes."""
    first, second = new_device(gateway), new_device(gateway)
    app = gateway.app["appId"]
    gateway.api("POST", "user/alias", {"data_list": [{"cid": first.cid, "alias": "console_alias"}]})
    gateway.api("POST", f"user/custom_tag/cid/{first.cid}", {"custom_tag": ["tag-of-the-console"]})
    task = gateway.api("POST", "push/list/message", {
        "request_id": "console-list-1", "settings": {"ttl": 600_000}, "push_message": {"transmission": MARKUP}})["data"]["taskid"]
    gateway.api("POST", "push/list/cid", {"audience": {"cid": [first.cid, second.cid]}, "taskid": task, "is_async": False})
    first.receive_and_ack(1)
    page.sign_in(ADMIN_TOKEN)
    page.find(".tiles")
    page.search(task)
    page.shows("delivered live")
    page.shows("pending")
    page.shows("50 %")
    second.receive_and_ack(1)
    # The page updates while the task continues. With a slow browser, the second device's live attempt may have ended already.
    page.until(lambda: "pending" not in page.text("#content"), "a report without a pending message")
    for name in ("console-list-1", "console_alias"):
        page.go(f"#/tasks/{app}/{name}")
        page.find("#content a[href^='#/tasks/'], #content a[href^='#/devices/']")
    page.click(f"#content a[href='#/devices/{app}/{first.cid}']")
    page.shows("console_alias")
    page.shows("tag-of-the-console")
    page.shows("Recent messages")
    page.click("#content table a[href^='#/messages/']")
    page.shows("The device acked the message.")
    page.click("#content a[href^='#/tasks/']")
    page.shows("delivered live")
    page.go(f"#/tasks/{app}/nobody-knows-it")
    page.shows("has no such task, request or alias")
    assert page.all("main img") == []


def test_a_test_message_is_confirmed_sent_and_logged(page, gateway, new_device):
    device = new_device(gateway)
    page.sign_in(ADMIN_TOKEN)
    page.find(".tiles")
    page.go(f"#/send/{gateway.app['appId']}/{device.cid}")
    page.type("textarea", '{"n":1}')
    page.click("main form button.main")
    page.click("dialog button")
    assert page.text(".badge") == "", "cancelled"
    page.click("main form button.main")
    page.click("dialog button.danger")
    page.shows("Sent over the device's connection.")
    assert device.receive_and_ack(1)[0].payload == b'{"n":1}'
    eventually(lambda: "operatorPush" in gateway.log() and "name=admin" in gateway.log(), "the log's line")
    page.click("a[href^='#/messages/']")
    page.shows("The device acked the message.")


def test_a_credential_with_fewer_rights_is_told_so(page, gateway, new_device):
    device = new_device(gateway)
    page.sign_in(HANDOFF_TOKEN)
    page.shows("ready")
    page.go(f"#/devices/{gateway.app['appId']}/{device.cid}")
    page.shows("This credential lacks a permission: credential sender lacks the permission trace")
    page.go(f"#/send/{gateway.app['appId']}/{device.cid}")
    page.click("main form button.main")
    page.click("dialog button.danger")
    page.shows("lacks the permission admin")
    page.go("#/cluster")
    page.shows("lacks the permission admin")


def test_keyboard_language_and_colours(page):
    page.find(".sign-in input").send_keys(ADMIN_TOKEN + Keys.ENTER)
    page.find(".tiles")
    active = page.driver.switch_to.active_element
    active.send_keys(Keys.TAB)
    assert page.driver.switch_to.active_element.get_attribute("class") == "skip"
    page.driver.switch_to.active_element.send_keys(Keys.TAB)
    page.driver.switch_to.active_element.send_keys(Keys.TAB + Keys.TAB)
    page.click(".foot button[lang='zh-CN']")
    page.shows("总览", "nav")
    assert page.driver.execute_script("return document.documentElement.lang") == "zh-CN"
    back = "return getComputedStyle(document.body).backgroundColor"
    before = page.driver.execute_script(back)
    page.click(".foot button[title]")
    assert page.driver.execute_script(back) != before
    page.driver.refresh()
    page.shows("总览", "nav")
    assert page.driver.execute_script(back) != before, "kept"
    page.click(".foot button:last-child")
    page.find(".sign-in")
    assert page.driver.execute_script("return sessionStorage.length") == 0


def test_a_gateway_that_goes_away_is_told_and_comes_back(driver, own_gateway):
    gateway = own_gateway()
    page = Page(driver, gateway)
    page.open()
    page.sign_in(ADMIN_TOKEN)
    page.shows("ready")
    gateway.kill()
    page.shows("The gateway does not respond")
    gateway.start()
    page.until(lambda: "does not respond" not in page.text() and "ready" in page.text(), "the gateway again")
    driver.get_log("browser")


def test_the_root_leads_to_the_console_and_the_api_is_described(gateway):
    connection = http.client.HTTPConnection("127.0.0.1", gateway.admin, timeout=10)
    connection.request("GET", "/")
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("Location")) == (302, "/console"), answer.read()
    answer.read()
    connection.request("GET", "/openapi.yaml")
    answer = connection.getresponse()
    assert answer.read() == (ROOT / "docs/use/openapi.yaml").read_bytes()
    assert answer.getheader("Content-Type").startswith("application/yaml")


def test_every_module_that_a_page_imports_is_embedded(gateway):
    """Checks that console.c of CConsole serves each module of Clients/javascript that another script imports."""
    base, seen, waiting = f"http://127.0.0.1:{gateway.admin}", set(), ["/console/main.js"]
    while waiting:
        path = waiting.pop()
        with urllib.request.urlopen(base + path, timeout=10) as answer:
            script = answer.read().decode()
        imports = re.findall(r"""(?:from|import)\s*\(?\s*["'](\.[^"']+)["']""", script)
        new = {urllib.parse.urljoin(path, name) for name in imports} - seen
        seen |= new
        waiting += new
    assert "/console/client/core.js" in seen and len(seen) > 20


def test_what_the_listener_serves_and_refuses(gateway):
    def ask(path, method="GET", **headers):
        request = urllib.request.Request(f"http://127.0.0.1:{gateway.admin}{path}", method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    status, headers, body = ask("/console")
    assert status == 200 and b"<!doctype html>" in body and "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Frame-Options"] == "DENY" and headers["X-Content-Type-Options"] == "nosniff"
    assert ask("/console/")[2] == body == ask("/console?x=1")[2]
    assert ask("/console/main.js")[1]["Content-Type"].startswith("text/javascript")
    assert ask("/console/main.js", "HEAD")[0] == 200
    for path in ("/console/../admin-token", "/console/%2e%2e/x", "/console/none", "/console//", "/consolex", "/console/index.html/x"):
        assert ask(path)[0] == (200 if path == "/console//" else 404), path
    assert ask("/console", "POST")[0] == 405
    # A request from another site has no token, and that site may not read the answer.
    status, headers, _ = ask(f"/v1/apps/{gateway.app['appId']}/push", "POST", Origin="http://evil.example", Cookie="a=b")
    assert status == 401 and headers["Access-Control-Allow-Origin"] is None
    status, headers, _ = ask("/v1/apps", "OPTIONS", Origin="http://evil.example")
    assert status in (401, 405) and headers["Access-Control-Allow-Origin"] is None
