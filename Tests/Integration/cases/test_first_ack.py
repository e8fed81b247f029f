"""`first_ack_wins`: the first of a user's devices that acks ends the message for the others."""

import time
import uuid

from conftest import QUICK
from gateway import Gateway, Refused, eventually
import pytest


@pytest.fixture(scope="module")
def gateway():
    with Gateway(limits=QUICK, loops=3) as one:
        yield one


def person(gateway, new_device, count, **fields):
    """Returns devices of one alias on different loops; `away` devices are disconnected."""
    alias = "p" + uuid.uuid4().hex[:12]
    token = fields.pop("token", None)
    own = [{**fields, "token": f"{number:02x}{token}"} if token else fields for number in range(count)]
    devices = [new_device(gateway, **one) for one in own]
    items = [{"cid": device.cid, "alias": alias} for device in devices]
    gateway.api("POST", "user/alias", {"data_list": items})
    return alias, devices


def push(gateway, alias, **settings):
    body = {
        "request_id": uuid.uuid4().hex,
        "audience": {"alias": [alias]},
        "settings": {"first_ack_wins": True, **settings},
        "push_message": {"transmission": "ring"},
        "push_channel": {"ios": {"aps": {"alert": {"title": "A call"}}}},
    }
    answer = gateway.api("POST", "push/single/alias", body)
    return body, {message["cid"]: message["msgId"] for message in answer["longwire"]["messages"]}, answer


def test_the_first_ack_ends_the_message_for_the_persons_other_devices(gateway, new_device):
    alias, devices = person(gateway, new_device, 5, token="a1b2")
    for device in devices[3:]:
        device.close()
    eventually(lambda: not any(gateway.view(device.cid)["connected"] for device in devices[3:]), "two devices away")
    _, messages, _ = push(gateway, alias)
    assert len(messages) == 5
    assert devices[0].receive_and_ack(1)[0].payload == b"ring"
    gateway.ends_as(messages[devices[0].cid], "delivered")
    for device in devices[1:]:
        assert gateway.ends_as(messages[device.cid], "revoked")["reason"] == "firstAckWins"
    # No alert is sent any more, and no message waits for devices that reconnect.
    assert not [job for job in gateway.lease() if job["msgId"] in messages.values()]
    devices[3].connect()
    assert devices[3].welcome.backlog == 0
    task = gateway.trace(messages[devices[0].cid])["taskId"]
    report = gateway.api("GET", f"report/push/task/{task}")["longwire"]["tasks"][task]
    assert (report["accepted"], report["delivered"], report["revoked"], report["pending"]) == (5, 1, 4, 0)


def test_without_the_setting_every_device_gets_its_own(gateway, new_device):
    alias, devices = person(gateway, new_device, 3)
    _, messages, _ = push(gateway, alias, first_ack_wins=False)
    for device in devices:
        assert device.receive_and_ack(1)[0].payload == b"ring"
    for message in messages.values():
        gateway.ends_as(message, "delivered")


def test_it_is_refused_where_it_means_nothing(gateway, new_device):
    device = new_device(gateway)
    body = gateway.push_body(device.cid, "x")
    body["settings"] = {"first_ack_wins": True}
    with pytest.raises(Refused) as refused:
        gateway.api("POST", "push/single/cid", body)
    assert refused.value.body["code"] == 20001 and "first_ack_wins" in refused.value.body["msg"]


# The delay after the ack: usually before it is on disk, just after that, and after everything has completed.
@pytest.mark.parametrize("seconds", [0, 0.005, 0.02])
def test_a_kill_between_the_ack_and_the_end_of_the_others_loses_nothing(own_gateway, new_device, seconds):
    # One message is delivered and the others end after the device has reconnected, whatever is on disk at the kill. The alarm of
    # the row that the ack wrote ends them.
    gateway = own_gateway(loops=3, limits={**QUICK, "taskPatienceMilliseconds": 500})
    alias, devices = person(gateway, new_device, 4)
    body, messages, first = push(gateway, alias)
    devices[0].receive_and_ack(1)
    time.sleep(seconds)
    gateway.kill()
    gateway.start()
    again = gateway.api("POST", "push/single/alias", body)
    assert again["data"] == first["data"]
    devices[0].connect()
    task = again["longwire"]["messages"][0]["taskId"]
    assert list(again["data"]) == [task]

    def states():
        return gateway.api("GET", f"report/push/task/{task}")["longwire"]["tasks"][task]

    eventually(lambda: states()["pending"] == 0, "the end of all four")
    # An ack that was not yet on disk is lost with the process. The message is then delivered again as a queued one.
    ended = states()
    assert (ended["accepted"], ended["delivered"] + ended["deliveredOffline"], ended["revoked"]) == (4, 1, 3)
    gateway.ends_as(messages[devices[0].cid], "delivered" if ended["delivered"] else "deliveredOffline")


def test_a_push_to_an_alias_can_be_stopped(gateway, new_device):
    alias, devices = person(gateway, new_device, 3)
    for device in devices[1:]:
        device.close()
    eventually(lambda: not any(gateway.view(device.cid)["connected"] for device in devices[1:]), "two devices away")
    _, messages, answer = push(gateway, alias, first_ack_wins=False)
    devices[0].receive_and_ack(1)
    gateway.ends_as(messages[devices[0].cid], "delivered")
    (task,) = answer["data"]
    assert gateway.api("DELETE", f"task/{task}")["longwire"]["revoked"] == 2
    assert gateway.api("DELETE", f"task/{task}")["longwire"]["revoked"] == 0
    with pytest.raises(Refused) as refused:
        gateway.api("DELETE", "task/RASL_1121_000000000000000000000000")
    assert refused.value.body["msg"].startswith("taskid is invalid")
