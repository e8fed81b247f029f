"""The console's app pages: creating, changing and deleting apps, with the permissions of the admin API."""

import base64
import json
import pathlib
import re

import longwire_client
import neighbour_party
import pytest
from browser import Page
from conftest import QUICK
from gateway import ADMIN_TOKEN, HANDOFF_TOKEN
from longwire_client import Closed, pb
from selenium.webdriver.common.keys import Keys

DISABLED = 203
OPERATIONS = pathlib.Path(__file__).resolve().parents[3] / "docs/use/Operations.md"


@pytest.fixture
def app(page, gateway):
    """Returns the id of a test's app, which is deleted afterwards."""
    yield "shop"
    if any(one["appId"] == "shop" for one in gateway.admin_call("GET", "/v1/apps")["apps"]):
        gateway.admin_call("POST", "/v1/apps/shop/disable")
        gateway.admin_call("DELETE", "/v1/apps/shop")


def facts(page, selector="main"):
    """Returns the displayed names with their values."""
    return dict(page.driver.execute_script(
        "return [...document.querySelectorAll(arguments[0] + ' .facts > div')].map(one => "
        "[one.firstChild.innerText, (one.lastChild.querySelector('code') ?? one.lastChild).innerText])", selector))


def made(page, app, **typed):
    """Creates an app through the form; returns the values displayed once."""
    page.go("#/apps")
    page.click("p.buttons button.main")
    page.type("main form input", app)
    if "topic" in typed:
        page.type("input[data-path='apns.topic']", typed["topic"])
    page.click("main form button.main")
    page.shows("Store these secrets now", "[role=status]")
    return facts(page, "[role=status]")


def do(page, button, confirmed=True):
    page.click(button)
    page.click("dialog button.danger" if confirmed else "dialog button")
    page.until(lambda: not page.all("dialog"), "the end of the dialog")


def test_an_app_is_made_used_changed_and_ended(page, gateway, app):
    page.sign_in(ADMIN_TOKEN)
    page.find(".tiles")
    shown = made(page, app, topic="com.example.shop")
    assert set(shown) == {"appKey", "appSecret", "masterSecret"}
    phone = longwire_client.Device("127.0.0.1", gateway.device, app)
    phone.register(shown["appSecret"])
    page.click(f"a[href='#/apps/{app}']")
    assert page.find("input[data-path='apns.topic']").get_attribute("value") == "com.example.shop"
    page.click("input[value=json]")
    assert '"com.example.shop"' in page.find("textarea").get_attribute("value")
    # No page displays a secret again.
    assert not any(shown[name] in page.driver.page_source for name in ("appSecret", "masterSecret"))

    # Invalid JSON is reported at the field, and a refusal by the gateway in the gateway's text.
    page.type("textarea", "{queue")
    page.click("main form button.main")
    assert "Not a JSON object" in page.driver.execute_script("return document.querySelector('textarea').validationMessage")
    page.type("textarea", '{"apns":{"topic":"com.example.shop"},"queue":{"messages":0}}')
    do(page, "main form button.main")
    page.shows("queue.messages: 0 is not allowed")
    page.type("textarea", '{"queue":{"messages":500}}')
    page.click("main form button.main")
    # The question names the change and nothing else: what is missing goes back to its default.
    page.shows('{"apns":null,"queue":{"messages":500}}', "dialog")
    page.click("dialog button")
    assert gateway.admin_call("GET", f"/v1/apps/{app}")["settings"] == {"apns": {"topic": "com.example.shop"}}, "cancelled"
    do(page, "main form button.main")
    page.shows("new settings are in effect")
    assert gateway.admin_call("GET", f"/v1/apps/{app}")["settings"] == {"queue": {"messages": 500}}
    page.click("main form button.main")
    page.shows("No changes")

    # A new secret beside the old one, shown once.
    do(page, "main form.row button.main")
    page.shows("Store these secrets now", "[role=status]")
    new = facts(page, "[role=status]")["appSecret"]
    assert new != shown["appSecret"]
    page.shows("1 older, valid until")
    second = longwire_client.Device("127.0.0.1", gateway.device, app)
    second.register(new)
    second.close()

    do(page, "p.buttons button.danger", confirmed=False)
    phone.ping()
    do(page, "p.buttons button.danger")
    page.shows("disabled", ".facts")
    with pytest.raises(Closed) as closed:
        phone.receive()
    assert closed.value.code == DISABLED
    phone.close()
    do(page, "p.buttons button.main")
    page.shows("enabled", ".facts")
    do(page, "p.buttons button.danger")
    page.shows("disabled", ".facts")
    do(page, "p.buttons button.danger")
    page.until(lambda: app not in page.text("table") and "demo" in page.text("table"), "the list without the app")
    log = gateway.log()
    assert all(word in log for word in ("created", "changed", "rotated", "disabled", "enabled", "deleted"))
    assert not any(secret in log for secret in (shown["appSecret"], shown["masterSecret"], new))


def test_new_secrets_stay_until_the_reader_closes_them(page, gateway, app):
    page.sign_in(ADMIN_TOKEN)
    page.find(".tiles")
    # From here on the page's polls fail.
    page.driver.execute_script(
        "window.real = window.fetch; window.fetch = (to, ...more) => String(to).includes('/metrics')"
        " ? Promise.reject(new TypeError('gone')) : window.real(to, ...more)")
    shown = made(page, app)
    trouble = lambda: page.text("div.trouble").strip()  # noqa: E731
    page.until(lambda: trouble() != "", "the word of the poll that failed")
    assert facts(page, "[role=status]") == shown and {"appSecret", "masterSecret"} <= set(shown)
    page.driver.execute_script("window.fetch = window.real")
    page.until(lambda: trouble() == "", "the end of the trouble")
    assert facts(page, "[role=status]") == shown
    page.click("button.close")
    page.until(lambda: not page.all("[role=status]"), "the end of the secrets")


def setting(page, path):
    """The field of a setting, whose section is opened."""
    field = page.find(f"[data-path='{path}']")
    page.driver.execute_script("arguments[0].closest('details').open = true", field)
    return field


def save(page, change):
    """Saves the form; the question names this change."""
    page.click("main form button.main")
    page.shows(change, "dialog")
    page.click("dialog button.danger")
    page.shows("new settings are in effect")


def test_the_settings_are_a_form_with_the_json_as_the_expert_view(page, gateway, app):
    def held():
        return gateway.admin_call("GET", f"/v1/apps/{app}")["settings"]
    first = {"queue": {"messages": 500, "overflow": "reject"}, "events": {"webhook": {
        "url": "http://127.0.0.1:9/", "secret": "whsec_" + base64.b64encode(bytes(24)).decode()}}}
    gateway.admin_call("POST", "/v1/apps", {"appId": app, **first})
    page.sign_in(ADMIN_TOKEN)
    page.find(".tiles")
    page.go(f"#/apps/{app}")
    assert setting(page, "queue.messages").get_attribute("value") == "500"
    # Only the sections with settings, and the first, are open.
    assert page.driver.execute_script("return [...document.querySelectorAll('details')].map(one => one.open)") == [
        True, False, True, False, False, False, True]
    assert setting(page, "events").is_selected() and not setting(page, "upstream").is_selected()
    page.click("main form button.main")
    page.shows("No changes")

    setting(page, "queue.messages").clear()
    setting(page, "queue.bytes").send_keys("100000")
    setting(page, "apns.template.wake").click()
    setting(page, "apns.topic").send_keys("com.example.shop")
    setting(page, "upstream").click()
    setting(page, "queue.overflow").send_keys("dropOldest")
    page.click("input[value=json]")
    # The expert view has the typed values, and the secret stays hidden.
    shown = json.loads(page.find("textarea").get_attribute("value"))
    assert shown["queue"] == {"overflow": "dropOldest", "bytes": 100_000} and shown["upstream"] == {}
    assert shown["events"]["webhook"]["secret"] == "(not shown)"
    # A text that is no JSON keeps the expert view.
    page.find("textarea").send_keys("x")
    page.click("input[value=form]")
    assert page.all("textarea") and page.find("input[value=json]").is_selected()
    page.find("textarea").send_keys(Keys.BACKSPACE)
    page.click("input[value=form]")
    assert setting(page, "queue.bytes").get_attribute("value") == "100000"
    save(page, '"queue":{"messages":null,"overflow":"dropOldest","bytes":100000}')
    assert held() == {
        "queue": {"overflow": "dropOldest", "bytes": 100_000}, "apns": {"topic": "com.example.shop", "template": {"wake": True}},
        "upstream": {}, "events": {"webhook": {"url": "http://127.0.0.1:9/", "secret": "(not shown)"}}}

    # A removed value takes its empty object along. A feed that is switched off loses its settings.
    setting(page, "apns.template.wake").click()
    setting(page, "apns.topic").clear()
    setting(page, "events").click()
    save(page, '{"apns":null,"events":null}')
    assert held() == {"queue": {"overflow": "dropOldest", "bytes": 100_000}, "upstream": {}}

    # A value out of range is named by the browser or by the gateway, also in a section that was closed.
    field = setting(page, "quotas.devices")
    field.send_keys("-1")
    page.driver.execute_script("arguments[0].closest('details').open = false", field)
    page.click("main form button.main")
    assert not page.all("dialog") and page.driver.execute_script("return arguments[0].closest('details').open", field)
    field.clear()
    setting(page, "maxAttempts").send_keys("5000")
    page.click("main form button.main")
    page.click("dialog button.danger")
    page.shows("maxAttempts: 5000 is not allowed")
    assert held() == {"queue": {"overflow": "dropOldest", "bytes": 100_000}, "upstream": {}}


def test_every_setting_of_the_page_of_operations_has_a_field_or_the_expert_view(page, gateway, app):
    """Fields and documentation have the same keys, but for those that only the expert view and the file have."""
    gateway.admin_call("POST", "/v1/apps", {"appId": app})
    page.sign_in(ADMIN_TOKEN)
    page.find(".tiles")
    page.go(f"#/apps/{app}")
    page.find("[data-path]")
    fields = set(page.driver.execute_script("return [...document.querySelectorAll('[data-path]')].map(one => one.dataset.path)"))
    documented = set()
    for line in OPERATIONS.read_text().splitlines():
        if line.startswith("| `apps[]."):
            last = ""
            for name in re.findall(r"`([\w.\[\]]+)`", line.split("|")[1]):
                last = name.removeprefix("apps[].") if name.startswith("apps[].") else last.rpartition(".")[0] + name
                documented.add(last)
    not_settings = {"appId", "appKey", "appSecret", "appSecretFile", "masterSecret", "masterSecretFile"}
    expert = {f"{feed}.webhook.{key}" for feed in ("upstream", "events") for key in ("secretFile", "authorities")}
    expert |= {"registration.appSecret", "registration.publicKeys", "getuiReceipts.authorities"}
    assert fields == {name.lstrip(".") for name in documented} - not_settings - expert


def test_an_app_of_the_file_says_where_it_changes(page, gateway):
    page.sign_in(ADMIN_TOKEN)
    page.find(".tiles")
    page.go("#/apps/demo")
    page.shows("is defined in the configuration file")
    assert page.all("main form") == [] and page.all("main button") == []
    page.go("#/apps/nobody")
    page.shows("no such app")


def test_the_quotas_of_an_app_and_what_is_used_of_them(page, gateway, app):
    limits = {"devices": 2, "publishesPerSecond": 1_000, "requestBytesPerSecond": 1 << 20, "queuedMessages": 10, "queuedBytes": 1 << 20,
              "storedBytes": 1 << 40}
    secret = gateway.admin_call("POST", "/v1/apps", {"appId": app, "quotas": limits})["appSecret"]
    phone = longwire_client.Device("127.0.0.1", gateway.device, app)
    phone.register(secret)
    page.sign_in(ADMIN_TOKEN)
    page.find(".tiles")
    page.go(f"#/apps/{app}")

    def rows():
        # In one step, because the page may rebuild its rows between two.
        return dict(page.driver.execute_script(
            "return [...document.querySelectorAll('main tbody tr')].map(row => "
            "[row.querySelector('code').innerText, [...row.querySelectorAll('td')].map(cell => cell.innerText)])"))

    def reached():
        return page.driver.execute_script("return [...document.querySelectorAll('main tbody .badge.bad')].map(one => one.innerText)")
    page.until(lambda: rows().get("devices") == ["1", "2", "–", "0"], "the connected device")
    assert list(rows()) == list(limits)
    assert rows()["storedBytes"][0].endswith("B") and rows()["storedBytes"][1] == "1 TiB" and rows()["queuedBytes"][1] == "1 MiB", rows()
    # The table updates, and its color shows the distance to the limit.
    second = longwire_client.Device("127.0.0.1", gateway.device, app)
    second.register(secret)
    page.until(lambda: rows()["devices"][0] == "2", "the second device")
    page.until(lambda: reached() == ["2"], "the limit that is reached")
    page.shows("Disk use of this gateway (estimate)")
    page.click(".foot button[lang='zh-CN']")
    page.shows("磁盘字节")
    for device in (phone, second):
        device.close()
    page.go("#/apps/demo")
    page.until(lambda: facts(page).get("appKey") and not page.all("main table"), "the page of an app without quotas")


def test_a_session_with_too_few_rights_sees_why(page, gateway, app):
    gateway.admin_call("POST", "/v1/apps", {"appId": app})
    page.sign_in(HANDOFF_TOKEN)
    page.find(".tiles")
    page.go(f"#/apps/{app}")
    do(page, "p.buttons button.danger")
    page.shows("This credential lacks a permission: credential sender lacks the permission admin")
    do(page, "main form.row button.main")
    page.shows("lacks the permission admin")
    page.go("#/apps")
    page.click("p.buttons button.main")
    page.type("main form input", "another")
    page.click("main form button.main")
    page.shows("lacks the permission admin")
    assert {one["appId"]: one["state"] for one in gateway.admin_call("GET", "/v1/apps")["apps"]} == {"demo": "enabled", app: "enabled"}


def test_a_credential_for_some_apps_sees_those_alone(driver):
    gateway = neighbour_party.two_apps(limits=QUICK)
    gateway.sections["credentials"][-1]["may"].append("admin")
    with gateway:
        page = Page(driver, gateway)
        page.open()
        driver.get_log("browser")
        page.sign_in(neighbour_party.NEIGHBOUR_TOKEN)
        page.find(".tiles")
        page.go("#/apps")
        page.shows("quiet", "table")
        assert "demo" not in page.text("table")
        page.click("p.buttons button.main")
        page.type("main form input", "mine")
        page.click("main form button.main")
        page.shows("changes of apps need one for all apps")
        page.go("#/apps/demo")
        page.shows("not one of this credential's")
        assert page.complaints() == []
        driver.get("about:blank")


def test_by_keyboard_alone_and_in_chinese(page, gateway, app):
    page.find(".sign-in input").send_keys(ADMIN_TOKEN + Keys.ENTER)
    page.find(".tiles")
    page.click(".foot button[lang='zh-CN']")
    page.go("#/apps")
    page.find("p.buttons button.main").send_keys(Keys.ENTER)
    page.driver.switch_to.active_element.send_keys(app + Keys.ENTER)
    page.shows("密钥只显示这一次", "[role=status]")
    page.find(f"a[href='#/apps/{app}']").send_keys(Keys.ENTER)
    button = page.find("p.buttons button.danger")
    button.send_keys(Keys.ENTER)
    page.shows("停用应用 shop", "dialog")
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.until(lambda: not page.all("dialog"), "the end of the dialog")
    assert page.driver.switch_to.active_element == button, "the focus is where it was"
    assert gateway.admin_call("GET", f"/v1/apps/{app}")["state"] == "enabled"
    button.send_keys(Keys.ENTER)
    page.find("dialog")
    page.driver.switch_to.active_element.send_keys(Keys.TAB)
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    page.shows("停用", ".facts")


def test_what_waits_for_an_apps_server_is_shown(page, gateway, app):
    secret = gateway.admin_call("POST", "/v1/apps", {"appId": app, "upstream": {}, "events": {}})["appSecret"]
    phone = longwire_client.Device("127.0.0.1", gateway.device, app)
    phone.register(secret)
    for number in range(1, 4):
        phone.connection.send(pb.Upstream(request=number, payload=b"up"))
        assert phone.connection.receive(pb.UpstreamResult).code == 0
    page.sign_in(ADMIN_TOKEN)
    page.find(".tiles")
    page.go("#/apps")
    row = f"return [...document.querySelectorAll('tbody tr')].find(row => row.innerText.startsWith('{app}'))?.children[4].innerText"
    page.until(lambda: page.driver.execute_script(row) == "3", "three unread messages")
    page.go(f"#/apps/{app}")
    page.until(lambda: "upstream unread 3" in page.text(".legend"), "the plot's figure")
    page.find("svg polyline.line-0")
    page.until(lambda: re.search(r"oldest upstream [1-9][\d.]* s", page.text(".legend")), "how long the oldest one has waited")
    cursor = gateway.admin_call("GET", f"/v1/apps/{app}/upstream")["cursor"]
    gateway.admin_call("POST", f"/v1/apps/{app}/upstream/ack", {"cursor": cursor})
    page.until(lambda: "upstream unread 0" in page.text(".legend"), "the figure after the ack")
    page.until(lambda: "oldest upstream 0 " in page.text(".legend"), "that none waits")
    phone.close()
