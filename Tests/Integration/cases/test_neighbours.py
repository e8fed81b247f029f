"""One app floods; another app's publishes are not refused, its deadlines are met, and the counts agree."""

import neighbour_party
import pytest
from conftest import QUICK
from gateway import Refused, eventually

pytestmark = pytest.mark.alone


def test_a_flooding_app_costs_its_neighbour_no_publish_and_no_deadline():
    limits = {**QUICK, "dueJobReadAhead": 1_024}
    with neighbour_party.two_apps(limits=limits) as gateway:
        neighbour = neighbour_party.Neighbour(gateway, devices=4)
        with neighbour_party.Flood(gateway, absent=40, slow=10, silenced=10, connections=2) as flood:
            deadlines = neighbour_party.threading.Thread(target=neighbour.deadlines)
            deadlines.start()
            times = neighbour.publish(rate=40, seconds=10)
            deadlines.join()
        assert flood.numbers["answerBytes"] > 100_000, "the flood was none"
        assert flood.numbers["queries"] > 0
        assert neighbour.refusals == []
        assert len(times) == 400, "each of its messages is delivered"
        assert sorted(neighbour.lateness) == ["expiry", "fallback", "retry", "schedule"]
        assert min(neighbour.lateness.values()) > -0.5, "nothing comes before its time"
        for message in neighbour.accepted:
            eventually(lambda: gateway.trace(message.hex())["state"] == "delivered")
        neighbour.close()
        assert gateway.stop() == 0


def test_an_app_that_floods_over_http_is_slowed_down_and_answered():
    """Sends consecutive batches: each request is answered, and the other app has its slice of each turn."""
    with neighbour_party.two_apps(limits={**QUICK}) as gateway:
        neighbour = neighbour_party.Neighbour(gateway, devices=4)
        absent = []
        for _ in range(20):
            one = neighbour_party.longwire_client.Device("127.0.0.1", gateway.device, gateway.app["appId"])
            one.register(gateway.app["appSecret"])
            absent.append(one.state.cid)
            one.close()
        is_over, codes = neighbour_party.threading.Event(), []

        def flood(number):
            count = 0
            while not is_over.is_set():
                count += 1
                items = [{
                    "request_id": f"flood-{number}-{count}-{item}", "audience": {"cid": [absent[item % 20].hex()]},
                    "push_message": {"transmission": "x" * 100}} for item in range(100)]
                try:
                    answer = gateway.api("POST", "push/single/batch/cid", {"is_async": True, "msg_list": items})
                    codes.append(answer["code"])
                except Refused as refusal:
                    codes.append(refusal.status)

        threads = [neighbour_party.threading.Thread(target=flood, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        times = neighbour.publish(rate=40, seconds=6)
        is_over.set()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads), "a request was never answered"
        assert len(codes) > 20 and set(codes) <= {0, 403, 503}, sorted(set(codes))
        assert neighbour.refusals == [] and len(times) == 240
        neighbour.close()
        assert gateway.stop() == 0
