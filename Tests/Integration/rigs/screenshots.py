"""Takes pictures of every console page: in English and light, in Chinese and dark, on a desktop screen and on a phone.

    python screenshots.py FOLDER

LONGWIRE_BIN names the folder of the built programs.
"""

import pathlib
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / folder) for folder in ("parties", "rigs")]

import longwire_client  # noqa: E402
from browser import Page, browser  # noqa: E402
from gateway import ADMIN_TOKEN, HANDOFF_TOKEN, Gateway  # noqa: E402

SECONDS_OF_LOAD = 24


def device(gateway, app, token=""):
    one = longwire_client.Device("127.0.0.1", gateway.device, app["appId"])
    one.register(app["appSecret"], tokens=[longwire_client.pb.VendorToken(token=token)] if token else [])
    one.cid = one.state.cid.hex()
    return one


def load(gateway, live, away, stop):
    """Makes a little traffic for the plots."""
    number = 0
    while not stop.wait(0.03):
        number += 1
        gateway.push(live.cid, f"live {number}")
        live.receive_and_ack(1)
        if number % 20 == 0:
            gateway.push(away.cid, f"later {number}", alert="Your order")
            for job in gateway.lease(maximum=1):
                gateway.settle(job, "accepted" if number % 40 else "retry", retryAfterSeconds=30)


def made_app(page, picture, app):
    """Shows a new app with its secrets, which are displayed once; their gateway ends with the script."""
    page.go("#/apps")
    page.click("p.buttons button.main")
    page.type("main form input", app)
    page.screenshot(picture.with_name(picture.name.replace("made", "form")))
    page.click("main form button.main")
    page.find("[role=status] .advice")
    page.screenshot(picture)


def question(page, picture, app):
    page.go(f"#/apps/{app}")
    page.click("p.buttons button.danger")
    page.find("dialog")
    page.screenshot(picture)
    page.click("dialog button")


def own_device(page, gateway, folder, name):
    """Shows the device page before its registration, and with messages of each kind."""
    page.go("#/device/demo")
    page.find("main input[type=password]")
    page.screenshot(folder / f"{name}-own-device-form.png")
    page.type("main input[type=password]", gateway.app["appSecret"])
    page.click("main form button.main")
    cid = page.find(".facts code").text
    page.until(lambda: gateway.view(cid)["connected"], "the device")
    gateway.push(cid, '{"hello":"world"}')
    page.find("tbody tr")
    page.click("p.buttons button:nth-of-type(1)")
    page.until(lambda: not gateway.view(cid)["connected"], "the device as absent")
    gateway.push(cid, '{"while":"it was away"}')
    page.click("p.buttons button:nth-of-type(1)")
    page.until(lambda: len(page.all("tbody tr")) == 2, "both messages")
    page.screenshot(folder / f"{name}-own-device.png")


def few_rights(page, picture):
    """Shows the pages of a credential without the permission."""
    page.click(".foot button:last-child")
    page.sign_in(HANDOFF_TOKEN)
    page.find("nav")
    page.go("#/cluster")
    page.find(".problem")
    page.screenshot(picture)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    with Gateway() as gateway:
        live, away, lost = (device(gateway, gateway.app, byte * 32) for byte in ("ab", "cd", "ef"))
        away.close()
        lost.close()
        message = gateway.push(lost.cid, "an order", alert="Your order is on its way")
        for job in gateway.lease(wait=5):
            gateway.settle(job, "badToken", reason="Unregistered")
        gateway.api("POST", "user/alias", {"data_list": [{"cid": lost.cid, "alias": "lost_phone"}]})
        gateway.api("POST", f"user/custom_tag/cid/{lost.cid}", {"custom_tag": ["beta", "\u5317\u4eac"]})
        news = gateway.api("POST", "push/all", {
            "request_id": "news-of-the-day", "audience": "all", "settings": {"ttl": 3_600_000}, "push_message": {"transmission": "news"}})
        shop = gateway.admin_call("POST", "/v1/apps", {"appId": "shop", "apns": {"topic": "com.example.shop"}, "upstream": {}, "events": {}})
        buyer = device(gateway, shop)
        for number in range(1, 6):
            buyer.connection.send(longwire_client.pb.Upstream(request=number, payload=b"a question"))
            buyer.connection.receive(longwire_client.pb.UpstreamResult)
        gateway.admin_call("POST", "/v1/apps", {"appId": "closed-shop"})
        gateway.admin_call("POST", "/v1/apps/closed-shop/disable")
        stop = threading.Event()
        traffic = threading.Thread(target=load, args=(gateway, live, away, stop))
        traffic.start()
        try:
            for name, language, dark, width, height in (
                ("day", "en-US", False, 1280, 1180), ("night", "zh-CN", True, 1280, 1180), ("phone", "zh-CN", False, 430, 1400),
            ):
                with browser(language, dark, width, height) as driver:
                    page = Page(driver, gateway)
                    page.open()
                    page.find(".sign-in")
                    page.screenshot(folder / f"{name}-sign-in.png")
                    page.sign_in(ADMIN_TOKEN)
                    page.find("polyline")
                    threading.Event().wait(SECONDS_OF_LOAD)
                    page.screenshot(folder / f"{name}-overview.png")
                    app = gateway.app["appId"]
                    for what, place, wait in (
                        ("apps", "apps", "tbody"), ("app", "apps/shop", "polyline"), ("app-of-the-file", f"apps/{app}", ".below"),
                        ("device", f"devices/{app}/{lost.cid}", ".facts"), ("devices", f"devices/{app}", "tbody"),
                        ("device-unknown", f"devices/{app}/{'0' * 32}", ".problem"),
                        ("message", f"messages/{message['msgId']}", ".steps"), ("task", f"tasks/{app}/{news['data']['taskid']}", "tbody"),
                        ("request", f"tasks/{app}/news-of-the-day", "tbody"), ("alias", f"tasks/{app}/lost_phone", "tbody"),
                        ("handoff", "handoff", ".tiles"), ("cluster", "cluster", ".card"), ("send", f"send/{app}/{live.cid}", "textarea"),
                    ):
                        page.go("#/" + place)
                        page.find(wait)
                        page.screenshot(folder / f"{name}-{what}.png")
                    made_app(page, folder / f"{name}-app-made.png", f"{name}-shop")
                    question(page, folder / f"{name}-question.png", f"{name}-shop")
                    own_device(page, gateway, folder, name)
                    few_rights(page, folder / f"{name}-few-rights.png")
        finally:
            stop.set()
            traffic.join()
            live.close()
            buyer.close()
    print(f"{len(list(folder.glob('*.png')))} pictures are in {folder}")


main(pathlib.Path(sys.argv[1]))
