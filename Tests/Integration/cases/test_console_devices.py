"""The console's search box, its list of devices, and the actions on a device."""

import copy

import longwire_client
import pytest
from browser import Page
from gateway import ADMIN_TOKEN, HANDOFF_TOKEN, eventually
from longwire_client import Closed, pb
from selenium.webdriver.common.keys import Keys

MANY = 53
PAGE = 50
SUPPORT_TOKEN = "integration-support-token-1"


@pytest.fixture
def reader(page):
    page.sign_in(ADMIN_TOKEN)
    page.find(".tiles")
    return page


def place(page):
    return page.driver.execute_script("return decodeURIComponent(location.hash)")


def rows(page):
    """The cells of each shown row."""
    return page.driver.execute_script(
        "return [...document.querySelectorAll('main tbody tr')].map(row => [...row.children].map(cell => cell.innerText))")


# The search box.

def test_each_kind_of_name_leads_to_its_page(reader, gateway, new_device):
    app = gateway.app["appId"]
    one, two = new_device(gateway), new_device(gateway)
    gateway.api("POST", "user/alias", {"data_list": [{"cid": one.cid, "alias": "find_both"}, {"cid": two.cid, "alias": "find_both"}]})
    message = gateway.push(one.cid, "one")
    trace = gateway.admin_call("GET", f"/v1/messages/{message['msgId']}")
    task = gateway.api("POST", "push/list/message", {
        "request_id": "find-list-1", "settings": {"ttl": 600_000}, "push_message": {"transmission": "x"}})["data"]["taskid"]
    gateway.api("POST", "push/list/cid", {"audience": {"cid": [one.cid]}, "taskid": task, "is_async": False})
    for name, to in (
        (one.cid, f"#/devices/{app}/{one.cid}"), (one.cid.upper(), f"#/devices/{app}/{one.cid}"), (f"  {two.cid} ", f"#/devices/{app}/{two.cid}"),
        (message["msgId"], f"#/messages/{message['msgId']}"), (trace["taskId"], f"#/messages/{message['msgId']}"),
        (task, f"#/tasks/{app}/{task}"), ("find-list-1", f"#/tasks/{app}/find-list-1"),
    ):
        reader.search(name)
        reader.until(lambda: place(reader) == to, lambda: f"{to} for {name}, not {place(reader)}: {reader.text()}")  # noqa: B023
        reader.find("main .card")
    holders = gateway.admin_call("GET", f"/v1/apps/{app}/aliases/find_both")["devices"]
    assert set(holders) == {one.cid, two.cid}
    reader.search("find_both")
    reader.until(lambda: place(reader) == f"#/tasks/{app}/find_both", "the alias of two devices")
    reader.until(lambda: {row[0] for row in rows(reader)} == {one.cid, two.cid}, "both devices with their state")
    # The test acks nothing, so a device is soon suspect, and after some silence not reachable.
    assert {row[1] for row in rows(reader)} <= {"connected", "suspect: an ack is overdue", "connected, not reachable"}
    # The browser's Back leads over the search to the page before.
    reader.driver.back()
    reader.until(lambda: place(reader) == f"#/tasks/{app}/find-list-1", "the page before the search")


def test_a_device_page_shows_what_the_app_reports(reader, gateway, new_device):
    known = pb.DeviceAttributes
    device = new_device(gateway, attributes=known(
        platform=known.ANDROID, brand="HUAWEI", model="Mate 60", app_version="2.7.0", locale="zh-CN", time_zone="Asia/Shanghai",
        notification_permission=known.DENIED))
    reader.go(f"#/devices/{gateway.app['appId']}/{device.cid}")
    for text in ("android HUAWEI Mate 60", "2.7.0", "zh-CN, Asia/Shanghai", "denied by the user"):
        reader.shows(text, ".facts")


def test_an_alias_of_one_device_leads_to_the_device_and_an_unknown_name_says_so(reader, gateway, new_device):
    app, device = gateway.app["appId"], new_device(gateway)
    gateway.api("POST", "user/alias", {"data_list": [{"cid": device.cid, "alias": "电话_1"}]})
    reader.search("电话_1")
    reader.until(lambda: place(reader) == f"#/devices/{app}/{device.cid}", "the device of the alias")
    for name in ("nothing-known", "0" * 32, "f" * 32, "RASS_1129_" + "0" * 24, "%", "a/b", "<b>"):
        reader.search(name)
        reader.shows(f"Nothing found for “{name}”")
    # The same name again is looked up again.
    gateway.api("POST", "user/alias", {"data_list": [{"cid": device.cid, "alias": "later_named"}]})
    gateway.api("DELETE", "user/alias/later_named", {})
    reader.search("later_named")
    reader.shows("Nothing found")
    gateway.api("POST", "user/alias", {"data_list": [{"cid": device.cid, "alias": "later_named"}]})
    reader.search("later_named")
    reader.until(lambda: place(reader) == f"#/devices/{app}/{device.cid}", "the device after the second search")


def test_a_name_of_two_apps_is_listed_with_both(reader, gateway, new_device):
    shop = gateway.admin_call("POST", "/v1/apps", {"appId": "find-shop"})
    other = longwire_client.Device("127.0.0.1", gateway.device, "find-shop")
    try:
        other.register(shop["appSecret"])
        device = new_device(gateway)
        gateway.api("POST", "user/alias", {"data_list": [{"cid": device.cid, "alias": "same_name"}]})
        as_shop = copy.copy(gateway)
        as_shop.app, as_shop._token = shop, None
        as_shop.api("POST", "user/alias", {"data_list": [{"cid": other.state.cid.hex(), "alias": "same_name"}]})
        reader.search("same_name")
        reader.until(lambda: {tuple(row[1:]) for row in rows(reader)} == {
            (gateway.app["appId"], device.cid), ("find-shop", other.state.cid.hex())}, lambda: f"both apps: {rows(reader)}")
        reader.click(f"main a[href='#/devices/find-shop/{other.state.cid.hex()}']")
        reader.shows("connected", ".facts")
    finally:
        other.close()
        gateway.admin_call("POST", "/v1/apps/find-shop/disable")
        gateway.admin_call("DELETE", "/v1/apps/find-shop")


def test_the_key_leads_to_the_box_from_everywhere_but_a_field_and_a_question(reader, gateway, new_device):
    device = new_device(gateway)
    reader.go(f"#/send/{gateway.app['appId']}/{device.cid}")
    area = reader.find("textarea")
    area.clear()
    area.send_keys("a/b")
    assert area.get_attribute("value") == "a/b"
    reader.click("main form button.main")
    reader.find("dialog")
    reader.driver.switch_to.active_element.send_keys("/")
    assert reader.driver.switch_to.active_element.get_attribute("id") != "find"
    reader.click("dialog button")
    # The pages of a message and of a task have no list: they lead to the box.
    for page in ("messages", "tasks", "find"):
        reader.go(f"#/{page}")
        reader.shows("in the search box at the top")
        assert reader.driver.switch_to.active_element.get_attribute("id") == "find"


def test_a_credential_without_the_right_sees_why(page, gateway, new_device):
    device = new_device(gateway)
    page.sign_in(HANDOFF_TOKEN)
    page.find(".tiles")
    page.search(device.cid)
    page.shows("credential sender lacks the permission trace")
    page.go("#/devices")
    page.shows("credential sender lacks the permission trace")


# The list.

def choose(page, label, option):
    page.driver.execute_script("""
        const [label, option] = arguments;
        const name = [...document.querySelectorAll('.filters label')].find(one => one.innerText === label);
        const select = document.getElementById(name.htmlFor);
        select.value = [...select.options].find(one => one.text === option).value;
        select.dispatchEvent(new Event('change', {bubbles: true}));""", label, option)


def test_the_list_says_which_devices_were_read_and_filters_those(driver, own_gateway):
    gateway = own_gateway()
    app, devices = gateway.app["appId"], []
    for index in range(MANY):
        device = longwire_client.Device("127.0.0.1", gateway.device, app)
        token = [longwire_client.pb.VendorToken(token=f"{index:02x}" * 32, environment=index % 2)] if index < 10 else []
        device.register(gateway.app["appSecret"], tokens=token)
        device.cid = device.state.cid.hex()
        devices.append(device)
    live, listed, tagged, full = devices[:4]
    for device in devices[1:]:
        device.close()
    for device in devices[1:]:
        eventually(lambda: not gateway.view(device.cid)["connected"], "the device as absent")  # noqa: B023
    gateway.api("POST", f"user/black/cid/{listed.cid}", {})
    gateway.api("POST", f"user/custom_tag/cid/{tagged.cid}", {"custom_tag": ["beta"]})
    gateway.api("POST", "user/alias", {"data_list": [{"cid": tagged.cid, "alias": "the_tagged"}]})
    for number in range(3):
        gateway.push(full.cid, f"{number}")
    page = Page(driver, gateway)
    page.open()
    driver.execute_script("sessionStorage.clear(); localStorage.clear()")
    driver.get_log("browser")
    page.open()
    page.sign_in(ADMIN_TOKEN)
    page.find(".tiles")
    page.click("nav a[href='#/devices']")
    page.shows(f"the first {PAGE}, in the gateway's order", ".looked-at")
    page.shows("The app may have more devices, which were not read.", ".looked-at")
    assert len(rows(page)) == PAGE
    page.click(".card p.buttons button:nth-of-type(1)")
    page.shows(f": {MANY}, all of the app. Matching: {MANY}.", ".looked-at")
    assert {row[0] for row in rows(page)} == {device.cid for device in devices}
    assert not page.all(".card p.buttons button:nth-of-type(2)"), "nothing more to read"

    def shown():
        return {row[0] for row in rows(page)}
    choose(page, "Session", "connected")
    page.until(lambda: shown() == {live.cid}, "the connected device")
    page.shows(f": {MANY}, all of the app. Matching: 1.", ".looked-at")
    choose(page, "Session", "not connected")
    page.until(lambda: live.cid not in shown() and len(shown()) == MANY - 1, "the others")
    choose(page, "State", "blacklisted")
    page.until(lambda: [row[0] for row in rows(page) if "blacklisted" in row[2]] == [listed.cid] and len(rows(page)) == 1, "the blacklisted one")
    choose(page, "State", "any")
    choose(page, "Session", "any")
    choose(page, "Vendor tokens", "a usable token")
    page.until(lambda: shown() == {device.cid for device in devices[:10]}, "the devices with tokens")
    sandbox = {device.cid for device in devices[:10] if gateway.view(device.cid)["tokens"][0]["environment"] == "sandbox"}
    choose(page, "Vendor tokens", "a token for the sandbox")
    page.until(lambda: shown() == sandbox and len(sandbox) == 5, "the sandbox")
    choose(page, "Vendor tokens", "any")
    page.type(".filters input[type=number]", "3")
    page.until(lambda: shown() == {full.cid} and rows(page)[0][4] == "3", "the longest queue")
    page.type(".filters input[type=number]", "4")
    page.shows("No device that was read matches the filters.")
    page.find(".filters input[type=number]").send_keys(Keys.BACKSPACE)
    tag, alias = page.all(".filters input")[0], page.all(".filters input")[2]
    tag.send_keys("beta")
    page.until(lambda: shown() == {tagged.cid}, "the tag")
    tag.send_keys(Keys.BACKSPACE * 4)
    # The alias is looked up by the gateway, over all devices.
    alias.send_keys("the_tagged" + Keys.TAB)
    page.shows("Devices with the alias “the_tagged”, looked up among all devices of the app", ".looked-at")
    assert shown() == {tagged.cid}
    # The way back from a device leads to the same rows.
    page.click(f"main a[href='#/devices/{app}/{tagged.cid}']")
    page.shows("the_tagged", ".facts")
    driver.back()
    page.shows("Devices with the alias “the_tagged”", ".looked-at")
    alias = page.all(".filters input")[2]
    alias.send_keys(Keys.BACKSPACE * 10 + Keys.TAB)
    page.shows(f": {MANY}, all of the app. Matching: {MANY}.", ".looked-at")
    # A list is of its time until it is read again.
    live.close()
    eventually(lambda: not gateway.view(live.cid)["connected"], "the device as absent")
    choose(page, "Session", "connected")
    assert shown() == {live.cid}
    page.click(".card p.buttons button:last-of-type")
    page.until(lambda: shown() == set(), "the list that was read again")
    # A list that cannot be read again stays as it was, with its time.
    choose(page, "Session", "any")
    before = page.text(".looked-at")
    gateway.kill()
    page.click(".card p.buttons button:last-of-type")
    page.shows("The gateway does not respond")
    assert page.text(".looked-at") == before and len(rows(page)) == MANY
    gateway.start()
    page.click(".card p.buttons button:last-of-type")
    page.until(lambda: "does not respond" not in page.text(), "the gateway again")
    assert len(rows(page)) == MANY
    driver.get_log("browser")
    # The next credential of the tab starts with an empty list.
    page.click(".foot button:last-child")
    page.sign_in(HANDOFF_TOKEN)
    page.shows("lacks the permission trace")
    assert rows(page) == [] and page.complaints() == []
    driver.get("about:blank")


# A device.

def act(page, name):
    page.driver.execute_script(
        "[...document.querySelectorAll('main .buttons button')].find(one => one.innerText === arguments[0]).click()", name)


def test_a_device_is_disconnected_purged_and_its_jobs_retried_after_a_question(reader, gateway, new_device):
    app, device = gateway.app["appId"], new_device(gateway, token="cd" * 32)
    reader.go(f"#/devices/{app}/{device.cid}")
    reader.shows("connected", ".facts")
    act(reader, "Disconnect")
    reader.shows("Disconnect device " + device.cid, "dialog")
    reader.click("dialog button")
    reader.until(lambda: not reader.all("dialog"), "the end of the question")
    device.ping()
    act(reader, "Disconnect")
    reader.click("dialog button.danger")
    reader.shows("The session was ended.")
    with pytest.raises(Closed):
        device.receive()
    reader.until(lambda: "not connected" in reader.text(".facts"), "the page follows")
    act(reader, "Disconnect")
    reader.click("dialog button.danger")
    reader.shows("The device had no session.")

    message = gateway.push(device.cid, "one", alert="Hello")
    (job,) = [job for job in gateway.lease(wait=5) if job["msgId"] == message["msgId"]]
    gateway.settle(job, "retry", retryAfterSeconds=3600)
    assert not [job for job in gateway.lease() if job["msgId"] == message["msgId"]]
    act(reader, "Retry vendor jobs now")
    reader.click("dialog button.danger")
    reader.shows("Jobs made due: 1.")
    (job,) = [job for job in gateway.lease(wait=5) if job["msgId"] == message["msgId"]]
    gateway.settle(job, "retry", retryAfterSeconds=3600)

    gateway.push(device.cid, "two")
    reader.until(lambda: "2 queued" in reader.text(".facts"), "the page follows the queue")
    act(reader, "Purge queue")
    reader.shows("are not delivered", "dialog")
    reader.click("dialog button.danger")
    reader.shows("Messages ended: 2.")
    assert gateway.view(device.cid)["queue"]["messages"] == 0
    reader.until(lambda: "0 queued" in reader.text(".facts"), "the empty queue")

    assert "Remove from blacklist" not in reader.text("main")
    gateway.api("POST", f"user/black/cid/{device.cid}")
    reader.shows("Remove from blacklist")
    act(reader, "Remove from blacklist")
    reader.click("dialog button.danger")
    reader.shows("The device was removed from the blacklist.")
    assert not gateway.view(device.cid)["blacklisted"]
    reader.until(lambda: "Remove from blacklist" not in reader.text("main"), "the button goes")


def test_an_action_without_the_right_says_why(driver, own_gateway, new_device):
    gateway = own_gateway()
    gateway._secret("support", SUPPORT_TOKEN)
    gateway.sections["credentials"].append({"name": "support", "tokenFile": str(gateway.folder / "support"), "may": ["trace"]})
    gateway.kill()
    gateway.start()
    device = new_device(gateway)
    page = Page(driver, gateway)
    page.open()
    driver.execute_script("sessionStorage.clear(); localStorage.clear()")
    page.open()
    page.sign_in(SUPPORT_TOKEN)
    page.find(".tiles")
    page.search(device.cid)
    page.shows("connected", ".facts")
    act(page, "Disconnect")
    page.click("dialog button.danger")
    page.shows("credential support lacks the permission admin")
    assert gateway.view(device.cid)["connected"]
    driver.get("about:blank")
    driver.get_log("browser")
