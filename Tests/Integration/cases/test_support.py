"""Eleven causes of "it did not arrive": each is found from the user's alias, with the command and in the console."""

import copy
import shutil

import longwire_client
import pytest
from browser import Page, browser
from certificates import EXPIRED, authority
from conftest import QUICK
from gateway import ADMIN_TOKEN, Gateway, Refused, eventually
from longwire_client import Closed, pb
from test_commands import longwire

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="the openssl command makes the certificate")

HOUR = 3_600_000


class House:
    """A gateway with an expired certificate, and one device for each cause, under an alias that does not name the cause."""

    def __init__(self, folder):
        expired = authority(folder, "root").sign("expired", dates=EXPIRED)
        self.gateway = Gateway(
            limits={**QUICK, "helloTimeoutMilliseconds": 10_000}, app={"queue": {"messages": 3}}, certificate=(expired.file, expired.key))
        self.devices, self.cids, self.aliases = [], {}, {}

    def device(self, cause, gateway=None, token=None, stays=False):
        """Registers the device of a cause; it disconnects, unless it stays."""
        alias = self.aliases.setdefault(cause, f"1380000{len(self.aliases):04}")
        gateway = gateway or self.gateway
        device = longwire_client.Device("127.0.0.1", gateway.device, gateway.app["appId"])
        device.register(gateway.app["appSecret"], tokens=[pb.VendorToken(token=token * 32)] if token else [])
        self.devices.append(device)
        cid = self.cids[cause] = device.state.cid.hex()
        gateway.api("POST", "user/alias", {"data_list": [{"cid": cid, "alias": alias}]})
        if not stays:
            device.close()
            eventually(lambda: not gateway.view(cid)["connected"], "the end of the session")
        return device, cid

    def job(self, cid, **options):
        (job,) = [job for job in self.gateway.lease(wait=5, **options) if job["cid"] == cid]
        return job

    def arrange(self):
        gateway = self.gateway
        _, cid = self.device("queue_full")
        for number in range(3):
            gateway.push(cid, f"message {number}")
        with pytest.raises(Refused):
            gateway.push(cid, "one too many")

        _, cid = self.device("blacklisted", stays=True)
        gateway.api("POST", f"user/black/cid/{cid}")
        gateway.api("POST", "push/single/cid", gateway.push_body(cid, "ignored"))

        _, cid = self.device("no_token")
        gateway.push(cid, "hello", alert="Hello")

        _, cid = self.device("old_token", token="ab")
        gateway.push(cid, "hello", alert="Hello")
        assert gateway.settle(self.job(cid), "badToken", reason="Unregistered") == "recorded"

        _, cid = self.device("too_late")
        gateway.ends_as(gateway.push(cid, "hello", ttl=1_000)["msgId"], "expired")

        device, cid = self.device("background", token="cd", stays=True)
        device.update(application_state=pb.BACKGROUND)
        gateway.push(cid, "hello", alert="Hello")
        assert gateway.settle(self.job(cid), "rejected", reason="TopicDisallowed") == "recorded"

        self.device("twice")
        self.device("twice", stays=True)

        device, cid = self.device("wrong_clock")
        (device.state.offset, device.state.timestamp) = (-HOUR, 0)
        with pytest.raises(Closed):
            device._hello(device.state.secret, cid=device.state.cid)

        _, cid = self.device("lost_sender", token="ef")
        message = gateway.push(cid, "hello", alert="Hello")["msgId"]
        self.job(cid, lease=5)
        eventually(lambda: "leaseLapsed" in gateway.steps(message), "the end of the lease")

        self.shop = copy.copy(gateway)
        self.shop.app, self.shop._token = gateway.admin_call("POST", "/v1/apps", {"appId": "shop"}), None
        self.device("app_disabled", self.shop)
        gateway.admin_call("POST", "/v1/apps/shop/disable")

    def end(self):
        for device in self.devices:
            device.close()


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    house = House(tmp_path_factory.mktemp("support"))
    with house.gateway:
        try:
            house.arrange()
            yield house
        finally:
            house.end()


@pytest.fixture(scope="module")
def console(house):
    with browser() as driver:
        page = Page(driver, house.gateway)
        page.open()
        page.sign_in(ADMIN_TOKEN)
        page.find(".tiles")
        yield page


# The words of the command, of the console's page that the alias leads to, and of the page of the device's newest message.
CAUSES = {
    "queue_full": (["3 of 3 messages", "the device's queue is full"], ["3 messages", "the device's queue is full"], []),
    "blacklisted": (["blacklisted: nothing is sent to it", "longwire device unblacklist"], ["Blacklisted", "Remove from blacklist"], []),
    "no_token": (["the device has no usable token"], ["not possible: the device has no token"], ["not possible: the device has no token"]),
    "old_token": (["quarantined", "badToken Unregistered"], ["quarantined", "Unregistered"], ["rejected the device token as unknown"]),
    "too_late": (["expired", "Its time to live passed first"], ["expired before delivery"], ["expired before delivery"]),
    "background": (
        ["connected, background", "TopicDisallowed"], ["background", "TopicDisallowed"],
        ["refused by the vendor", "TopicDisallowed"]),
    "wrong_clock": (["last refused Hello", "the device's clock is wrong"], ["Last refused Hello", "the device's clock is wrong"], []),
    "lost_sender": (
        ["gave no result, and no other has leased it: is one running?"], ["usable"],
        ["The lease expired without a result"]),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_the_alias_leads_to_the_cause(house, console, cause):
    told, shown, of_message = CAUSES[cause]
    alias = house.aliases[cause]
    text = longwire(house.gateway, "trace", "--text", alias)
    for words in [house.cids[cause], *told]:
        assert words in text, text
    console.search(alias)
    for words in [house.cids[cause], *shown]:
        console.shows(words)
    if of_message:
        console.click("main a[href^='#/messages/']")
        for words in of_message:
            console.shows(words)
    assert console.complaints() == []


def test_an_alias_of_two_devices_names_both_with_their_registration(house, console):
    alias = house.aliases["twice"]
    text = longwire(house.gateway, "trace", "--text", alias)
    assert text.count(f"alias     {alias}") == 2 and text.count("registered ") == 2, text
    assert "not connected" in text and "connected, foreground" in text, text
    console.search(alias)
    console.shows(f"Devices of the alias {alias}")
    console.shows("not connected", "main tbody")


def test_a_disabled_app_is_named(house, console):
    assert "its app is disabled" in longwire(house.shop, "trace", "--text", house.aliases["app_disabled"])
    console.search(house.aliases["app_disabled"])
    console.shows("disabled", ".facts")


def test_an_expired_certificate_is_named(house, console):
    text = longwire(house.gateway, "doctor", "--text", code=None)
    assert "certificateExpired device" in text and "has expired" in text, text
    console.go("#/")
    console.shows("The certificate of device.tls has expired")
