"""Broadcasts to all and to tags, over real sockets: online, offline, enumerator jobs, a kill, a stop."""

import contextlib
import time
import uuid

import pytest
from conftest import QUICK
from gateway import Refused, eventually, wait_out_midnight
from longwire_client import Closed, pb
from test_vendors import UPS, lease, tokens

ALERT = {"ios": {"type": "notify", "aps": {"alert": {"title": "News", "body": "…"}}}}


def body(payload="news", audience="all", request_id=None, **fields):
    return {
        "request_id": request_id or uuid.uuid4().hex,
        "audience": audience,
        "push_message": {"transmission": payload},
        **fields,
    }


def broadcast(gateway, payload="news", path="push/all", **fields):
    """Sends one broadcast; returns its task id."""
    return gateway.api("POST", path, body(payload, **fields))["data"]["taskid"]


def report(gateway, task):
    answer = gateway.api("GET", f"report/push/task/{task}")
    return answer["data"][task], answer["longwire"]["tasks"][task]


def states(gateway, task):
    return report(gateway, task)[1]


def set_tags(gateway, device, *tags):
    gateway.api("POST", f"user/custom_tag/cid/{device.cid}", {"custom_tag": list(tags)})


def silent(device):
    with pytest.raises(TimeoutError):
        device.receive(timeout=0.2)


def refusal(call):
    with pytest.raises(Refused) as refused:
        call()
    return refused.value.status, refused.value.body["code"], refused.value.body["msg"]


def drain(gateway, count, timeout=30):
    """Leases and accepts `count` jobs; returns their cids."""
    found = []

    def look():
        for job in gateway.lease():
            found.append(job["cid"])
            assert gateway.settle(job, "accepted") == "recorded"
        return len(found) >= count

    eventually(look, f"{count} jobs", timeout)
    return found


FREE = {"broadcastsPerMinute": 0, "broadcastsPerDay": 0, "fastTagBroadcastsPerMinute": 0, "fastTagBroadcastsPerDay": 0}


@pytest.fixture
def house(own_gateway):
    """Runs a gateway of two loops with a short live deadline and high quotas."""
    return own_gateway(limits={**QUICK, "liveDeadlineMilliseconds": 1_500}, app={"push": FREE})


def test_a_broadcast_reaches_everybody_once_here_at_once_and_there_at_the_next_visit(house, new_device):
    here = [new_device(house) for _ in range(6)]
    gone = [new_device(house) for _ in range(3)]
    for device in gone:
        device.close()
        eventually(lambda: not house.view(device.cid)["connected"])
    answer = house.api("POST", "push/all", body("hello"))
    task = answer["data"]["taskid"]
    assert task.startswith("RASA_") and answer["longwire"]["durability"] == "fsync"
    identifiers = set()
    for device in here:
        message = device.receive_and_ack(1)[0]
        assert (message.stream, message.payload, message.offline) == (1, b"hello", False)
        identifiers.add(message.msg_id)
    assert len(identifiers) == 6
    late = new_device(house)
    silent(late)
    for device in gone:
        device.connect()
        message = device.receive_and_ack(1)[0]
        assert (message.stream, message.payload) == (1, b"hello")
    eventually(lambda: states(house, task).get("delivered", 0) + states(house, task).get("deliveredOffline", 0) == 9)
    numbers, ends = report(house, task)
    assert ends["accepted"] == 9 and ends["pending"] == 0
    assert numbers["total"]["msg_num"] == 9 and numbers["total"]["receive_num"] == 9
    for device in here + gone:
        device.connect()
        silent(device)
    detail = house.api("GET", f"task/detail/{here[0].cid}/{task}")["data"]
    assert any("deliver" in step["event"] or "ack" in step["event"] for step in detail["detail"]), detail


def test_whoever_is_behind_at_the_deadline_is_alerted_and_still_gets_the_message(house, new_device):
    here = new_device(house, tokens=[pb.VendorToken(token="aa" * 32)])
    gone = [new_device(house, tokens=[pb.VendorToken(token=f"{number:02x}" * 32)]) for number in range(1, 5)]
    without = new_device(house)
    for device in gone + [without]:
        device.close()
        eventually(lambda: not house.view(device.cid)["connected"])
    task = broadcast(house, push_channel=ALERT)
    here.receive_and_ack(1)
    assert sorted(drain(house, 4)) == sorted(device.cid for device in gone)
    assert house.lease() == []
    for device in gone:
        device.connect()
        message = device.receive_and_ack(1)[0]
        assert message.offline and message.alerted_at > 0
    eventually(lambda: states(house, task).get("deliveredOffline") == 4)
    numbers, ends = report(house, task)
    assert ends["delivered"] == 1 and numbers["ios"]["target_num"] == 4


@pytest.mark.parametrize("channel", ["apns", "fcm"])
@pytest.mark.parametrize("message, carrier", [({"transmission": "ORDER-7"}, "apns"), ({"notification": UPS["notification"]}, "fcm")])
def test_the_alert_of_the_devices_own_vendor_decides_what_a_tap_leaves(house, new_device, channel, message, carrier):
    device = new_device(house)
    device.close()
    device.connect(tokens=[pb.VendorToken(token="ab" * 32)] if channel == "apns" else tokens(channel))
    is_carried = channel == carrier
    for path, audience in (("single/cid", {"cid": [device.cid]}), ("all", "all")):
        device.close()
        eventually(lambda: not house.view(device.cid)["connected"])
        content = {"push_message": message, "push_channel": {**ALERT, "android": {"ups": UPS}}}
        house.api("POST", f"push/{path}", body(audience=audience, **content))
        job, = eventually(lambda: lease(house, channel))
        assert ("ORDER-7" in str(job["body"]) or job["body"] == UPS and carrier == "fcm") == is_carried
        assert house.settle(job, "accepted") == "recorded"
        device.connect()
        assert device.receive().carried_by_vendor == is_carried
        device.close()
        eventually(lambda: not house.view(device.cid)["connected"])
        device.connect(opened=[bytes.fromhex(job["msgId"])])
        if is_carried:
            silent(device)
        else:
            assert len(device.receive_and_ack(1)) == 1
        house.ends_as(job["msgId"], "opened" if is_carried else "deliveredOffline")


def test_tags_decide_who_gets_it(house, new_device):
    red, blue, both, none = (new_device(house) for _ in range(4))
    set_tags(house, red, "red")
    set_tags(house, blue, "blue")
    set_tags(house, both, "red", "blue")
    condition = {"key": "custom_tag", "values": ["red", "blue"], "opt_type": "and"}
    broadcast(house, "both", path="push/tag", audience={"tag": [condition]})
    broadcast(house, "red", path="push/fast_custom_tag", audience={"fast_custom_tag": "red"})
    broadcast(house, "not", path="push/tag", audience={"tag": [{**condition, "opt_type": "not"}]})
    broadcast(house, "all")
    wanted = {red: [b"red", b"all"], blue: [b"all"], both: [b"both", b"red", b"all"], none: [b"not", b"all"]}
    for device, payloads in wanted.items():
        assert [message.payload for message in device.receive_and_ack(len(payloads))] == payloads
        silent(device)


def test_named_devices_get_it_under_a_condition_on_their_tags(house, new_device):
    red, blue = new_device(house), new_device(house)
    set_tags(house, red, "red")
    set_tags(house, blue, "blue")
    audience = {"cid_by_tag": [{"cid": device.cid, "tag": ["red", "green"], "op_type": 0} for device in (red, blue)]}
    request = uuid.uuid4().hex
    answer = house.api("POST", "push/single/cid_by_tag", body("some", audience, request))
    assert list(answer["data"].values()) == [{red.cid: "successed_online"}]
    assert house.api("POST", "push/single/cid_by_tag", body("some", audience, request))["data"] == answer["data"]
    assert red.receive_and_ack(1)[0].payload == b"some"
    task = house.api("POST", "push/list/message", {"push_message": {"transmission": "list"}})["data"]["taskid"]
    not_red = {"cid_by_tag": [{"cid": device.cid, "tag": ["red"], "op_type": 2} for device in (red, blue)]}
    house.api("POST", "push/list/cid_by_tag", {"taskid": task, "audience": not_red})
    assert blue.receive_and_ack(1)[0].payload == b"list"
    silent(red)


def test_a_stop_ends_it_for_all_that_have_not_got_it(house, new_device):
    here = new_device(house)
    gone = new_device(house, tokens=[pb.VendorToken(token="bb" * 32)])
    never = new_device(house)
    for device in (gone, never):
        device.close()
        eventually(lambda: not house.view(device.cid)["connected"])
    task = broadcast(house, push_channel=ALERT)
    here.receive_and_ack(1)
    eventually(lambda: states(house, task)["accepted"] == 2, "the enumerator's job")
    assert house.api("DELETE", f"task/{task}")["longwire"]["revoked"] == 1
    assert house.lease() == []
    for device in (gone, never):
        device.connect()
        silent(device)
    eventually(lambda: states(house, task).get("revoked") == 2, "the end for devices that never had it")
    assert states(house, task)["delivered"] == 1 and states(house, task)["pending"] == 0


def test_a_kill_in_the_midst_of_the_enumeration_loses_nobody_and_alerts_nobody_twice(house, new_device):
    devices = [new_device(house, tokens=[pb.VendorToken(token=f"{number:04x}" * 16)]) for number in range(24)]
    for device in devices:
        device.close()
    eventually(lambda: not any(house.view(device.cid)["connected"] for device in devices))
    task = broadcast(house, push_channel=ALERT, settings={"speed": 8})
    found = drain(house, 6)
    assert len(found) < 24, "at eight a second it has not come to the end"
    house.kill()
    house.start()
    found += drain(house, 24 - len(found), timeout=60)
    assert sorted(found) == sorted(device.cid for device in devices), "each once"
    for device in devices:
        device.connect()
        assert device.receive_and_ack(1)[0].alerted_at > 0
    eventually(lambda: states(house, task).get("deliveredOffline") == 24)
    assert states(house, task)["accepted"] == 24 and states(house, task)["pending"] == 0


def test_a_kill_before_the_acks_brings_it_again_and_settles_it_once(house, new_device):
    acked, unacked = new_device(house), new_device(house)
    task = broadcast(house, "one")
    acked.receive_and_ack(1)
    unacked.receive()
    eventually(lambda: states(house, task).get("delivered") == 1)
    house.kill()
    house.start()
    acked.connect()
    silent(acked)
    unacked.connect()
    assert unacked.receive_and_ack(1)[0].payload == b"one"
    eventually(lambda: states(house, task)["pending"] == 0)
    assert states(house, task)["accepted"] == 2
    second = broadcast(house, "two")
    for device in (acked, unacked):
        message = device.receive_and_ack(1)[0]
        assert (message.sequence, message.payload) == (2, b"two")
    eventually(lambda: states(house, second).get("delivered") == 2)


def test_a_timed_broadcast_goes_out_at_its_time_across_a_kill_and_can_be_deleted(house, new_device):
    device = new_device(house)
    soon = int(time.time() * 1000) + 3_000
    task = broadcast(house, "timed", settings={"schedule_time": soon})
    later = broadcast(house, "never", settings={"schedule_time": soon + 600_000})
    assert house.api("GET", f"task/schedule/{task}")["data"][task]["send_result"] == "do_not_send"
    assert house.api("DELETE", f"task/schedule/{later}")["code"] == 0
    house.kill()
    house.start()
    device.connect()
    assert device.receive_and_ack(1)[0].payload == b"timed"
    assert house.api("GET", f"task/schedule/{task}")["data"][task]["send_result"] == "send_success"
    assert house.api("GET", f"task/schedule/{later}")["data"][later]["send_result"] == "has_delete"


def test_strategy_2_is_dealt_out_to_the_vendor_only(house, new_device):
    device = new_device(house, tokens=[pb.VendorToken(token="cc" * 32)])
    new_device(house)  # has no token
    task = broadcast(house, push_channel=ALERT, settings={"strategy": {"default": 2}})
    assert drain(house, 1) == [device.cid]
    silent(device)
    eventually(lambda: states(house, task)["accepted"] == 2)
    assert states(house, task)["handedOff"] == 1 and states(house, task)["failed"] == 1


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_stopped_broadcast_brings_nothing_back_that_it_replaced(house, new_device, is_stopped):
    device = new_device(house)
    device.close()
    eventually(lambda: not house.view(device.cid)["connected"])
    old = broadcast(house, "old", settings={"collapse_key": "k"})
    new = broadcast(house, "new", settings={"collapse_key": "k", "ttl": 3_600_000 if is_stopped else 1_000})
    if is_stopped:
        house.api("DELETE", f"task/{new}")
    eventually(lambda: states(house, new)["revoked" if is_stopped else "expired"] == 1)
    device.connect()
    silent(device)
    assert states(house, old)["collapsed"] == 1


def test_a_broadcast_for_other_devices_replaces_nothing(house, new_device):
    device = new_device(house)
    old = broadcast(house, "old", settings={"collapse_key": "k"})
    assert device.receive().payload == b"old"
    audience = {"fast_custom_tag": "vip"}
    broadcast(house, "new", path="push/fast_custom_tag", audience=audience, settings={"collapse_key": "k"})
    broadcast(house, "other")
    assert device.receive().payload == b"other"
    device.close()
    eventually(lambda: not house.view(device.cid)["connected"])
    set_tags(house, device, "vip")
    house.kill()
    house.start()
    device.connect()
    assert [message.payload for message in device.receive_and_ack(2)] == [b"old", b"other"]
    silent(device)
    assert states(house, old).get("collapsed", 0) == 0


def test_a_lease_leaves_a_replaced_broadcast_to_its_ack(house, new_device):
    device = new_device(house, tokens=[pb.VendorToken(token="aa" * 32)])
    old = broadcast(house, "old", settings={"collapse_key": "k"}, push_channel=ALERT)
    message = device.receive()
    time.sleep(2.2)  # The ack is overdue and the job is due.
    broadcast(house, "new", settings={"collapse_key": "k"}, push_channel=ALERT)
    time.sleep(0.5)  # The device's loop knows the newer broadcast, and the enumerator has not begun.
    assert house.lease() == []
    device.ack(message.sequence, stream=1)
    eventually(lambda: states(house, old).get("deliveredOffline") == 1)
    assert report(house, old)[0]["total"]["receive_num"] == 1


def test_a_broadcast_is_made_once_for_a_request_id(house, new_device):
    device = new_device(house)
    request = uuid.uuid4().hex
    task = broadcast(house, request_id=request)
    assert broadcast(house, request_id=request) == task
    assert refusal(lambda: broadcast(house, "other", request_id=request))[:2] == (400, 20001)
    device.receive_and_ack(1)
    silent(device)


@pytest.mark.parametrize("returns", [False, True])
def test_a_broadcast_to_a_blacklisted_device_never_arrives(house, new_device, returns):
    device = new_device(house)
    device.update(application_state=pb.BACKGROUND)
    broadcast(house, "before")
    house.api("POST", f"user/black/cid/{device.cid}")
    task = broadcast(house, "during")
    if returns:
        device.connect()
    else:
        device.update(application_state=pb.FOREGROUND)
    house.api("DELETE", f"user/black/cid/{device.cid}")
    broadcast(house, "after")
    assert [device.receive().payload for _ in range(2)] == [b"before", b"after"]
    assert states(house, task)["accepted"] == 0


def test_an_ack_above_the_log_closes_the_session(house, new_device):
    device = new_device(house)
    broadcast(house)
    device.receive()
    device.connection.send(pb.Ack(positions=[pb.StreamPosition(stream=1, sequence=99)]))
    with pytest.raises(Closed) as closed:
        device.receive()
    assert closed.value.code is not None


def test_broadcast_quotas_have_their_own_codes(own_gateway):
    def soon_refused(call):
        """Repeats a call that must be refused, because the minute may end between two calls."""
        with contextlib.suppress(Refused):
            call()
        return refusal(call)

    wait_out_midnight()
    minute = own_gateway(app={"push": {"broadcastsPerMinute": 1, "fastTagBroadcastsPerMinute": 1}})
    broadcast(minute)
    assert soon_refused(lambda: broadcast(minute))[:2] == (403, 30014)
    one = {"audience": {"fast_custom_tag": "t"}, "path": "push/fast_custom_tag"}
    broadcast(minute, **one)
    assert soon_refused(lambda: broadcast(minute, **one))[:2] == (403, 30013)
    day = own_gateway(app={"push": {"broadcastsPerDay": 1, "fastTagBroadcastsPerDay": 1}})
    request = uuid.uuid4().hex
    task = broadcast(day, request_id=request)
    assert refusal(lambda: broadcast(day))[:2] == (403, 30007)
    assert broadcast(day, request_id=request) == task, "a repeat uses nothing up and is not refused"
    tag = {"audience": {"tag": [{"key": "custom_tag", "values": ["t"], "opt_type": "or"}]}, "path": "push/tag"}
    assert refusal(lambda: broadcast(day, **tag))[:2] == (403, 30010)
    broadcast(day, **one)
    assert refusal(lambda: broadcast(day, **one))[:2] == (403, 30006)
