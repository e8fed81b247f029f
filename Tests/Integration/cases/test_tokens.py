"""A device token identifies one app on one phone: it belongs to the device that registered it last."""

from gateway import eventually
from longwire_client import pb

TOKEN = "c0ffee" + "ab" * 29
FREE = {"broadcastsPerMinute": 0, "broadcastsPerDay": 0}


def test_a_phone_with_two_devices_gets_one_alert_of_a_broadcast_also_after_a_restart(own_gateway, new_device):
    gateway = own_gateway(app={"push": FREE})
    first = new_device(gateway, token=TOKEN)
    first.close()
    eventually(lambda: not gateway.view(first.cid)["connected"])
    gateway.kill()
    gateway.start()
    second = new_device(gateway, token=TOKEN)
    second.close()
    eventually(lambda: not gateway.view(first.cid)["tokens"], "the token's move")
    gateway.stop()
    gateway.start()
    gateway.api("POST", "push/all", {
        "request_id": "broadcast-of-one-phone", "audience": "all", "push_message": {"transmission": "x"},
        "push_channel": {"ios": {"aps": {"alert": "hello"}}}})
    jobs = eventually(lambda: gateway.lease(wait=5))
    assert [(job["deviceToken"], job["cid"]) for job in jobs + gateway.lease()] == [(TOKEN, second.cid)]


def test_a_kill_right_behind_the_welcome_does_not_leave_the_token_with_two_devices(own_gateway, new_device):
    gateway = own_gateway()
    first = new_device(gateway, token=TOKEN)
    first.close()
    eventually(lambda: not gateway.view(first.cid)["connected"])
    second = new_device(gateway, token=TOKEN)
    gateway.kill()
    second.close()
    gateway.start()
    eventually(lambda: not gateway.view(first.cid)["tokens"], "the token's move")
    assert len(gateway.view(second.cid)["tokens"]) == 1


def test_a_push_to_the_earlier_device_does_not_show_on_the_phone_and_says_why(own_gateway, new_device):
    gateway = own_gateway()
    first = new_device(gateway, token=TOKEN)
    first.close()
    eventually(lambda: not gateway.view(first.cid)["connected"])
    waiting = gateway.push(first.cid, "of another user", alert="A", strategy=2)
    second = new_device(gateway, token=TOKEN)
    second.close()
    eventually(lambda: not gateway.view(first.cid)["tokens"], "the token's move")
    assert gateway.lease() == []
    trace = gateway.ends_as(waiting["msgId"], "failed")
    assert trace["reason"] == "tokenMoved"
    view = gateway.view(first.cid)
    assert (view["fallback"], view["fallbackReason"]) == ("none", "tokenMoved")
    later = gateway.push(first.cid, "later", alert="B")
    assert (later["fallback"], later["fallbackReason"]) == ("none", "noToken")
    # The first device owns the token again, and the message then arrives over its connection.
    first.connect(tokens=[pb.VendorToken(token=TOKEN)])
    eventually(lambda: not gateway.view(second.cid)["tokens"], "the way back")
    assert gateway.view(first.cid)["fallback"] == "available"
