"""One app floods; the other's publishes are not refused, its deadlines are met, and the books agree."""

import neighbour_party
from conftest import QUICK
from gateway import eventually


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
