"""Takes pictures of every page of the console, in English by day and in Chinese by night, on a screen and on a phone.

    python screenshots.py FOLDER

LONGWIRE_BIN names the folder of the built programs.
"""

import pathlib
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "python")]

import longwire_client  # noqa: E402
from browser import Page, browser  # noqa: E402
from gateway import ADMIN_TOKEN, Gateway  # noqa: E402

SECONDS_OF_LOAD = 24


def device(gateway, token):
    one = longwire_client.Device("127.0.0.1", gateway.device, gateway.app["appId"])
    one.register(gateway.app["appSecret"], tokens=[longwire_client.pb.VendorToken(token=token)])
    one.cid = one.state.cid.hex()
    return one


def load(gateway, live, away, stop):
    """A little traffic, so that the plots have something to show."""
    number = 0
    while not stop.wait(0.03):
        number += 1
        gateway.push(live.cid, f"live {number}")
        live.receive_and_ack(1)
        if number % 20 == 0:
            gateway.push(away.cid, f"later {number}", alert="Your order")
            for job in gateway.lease(maximum=1):
                gateway.settle(job, "accepted" if number % 40 else "retry", retryAfterSeconds=30)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    with Gateway() as gateway:
        live, away, lost = (device(gateway, byte * 32) for byte in ("ab", "cd", "ef"))
        away.close()
        lost.close()
        message = gateway.push(lost.cid, "an order", alert="Your order is on its way")
        for job in gateway.lease(wait=5):
            gateway.settle(job, "badToken", reason="Unregistered")
        gateway.api("POST", "user/alias", {"data_list": [{"cid": lost.cid, "alias": "lost_phone"}]})
        gateway.api("POST", f"user/custom_tag/cid/{lost.cid}", {"custom_tag": ["beta", "\u5317\u4eac"]})
        news = gateway.api("POST", "push/all", {
            "request_id": "news-of-the-day", "audience": "all", "settings": {"ttl": 3_600_000}, "push_message": {"transmission": "news"}})
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
                    places = {
                        "device": f"devices/{gateway.app['appId']}/{lost.cid}", "message": f"messages/{message['msgId']}",
                        "task": f"tasks/{gateway.app['appId']}/{news['data']['taskid']}",
                        "handoff": "handoff", "cluster": "cluster", "send": f"send/{gateway.app['appId']}/{live.cid}"}
                    waits = {"device": ".facts", "message": ".steps", "task": "tbody", "handoff": ".tiles", "cluster": ".card", "send": "textarea"}
                    for what, place in places.items():
                        page.go("#/" + place)
                        page.find(waits[what])
                        page.screenshot(folder / f"{name}-{what}.png")
        finally:
            stop.set()
            traffic.join()
            live.close()
    print(f"{len(list(folder.glob('*.png')))} pictures are in {folder}")


main(pathlib.Path(sys.argv[1]))
