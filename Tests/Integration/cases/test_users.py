"""Aliases, tags, blacklist, badge and user queries, over real sockets and several loops."""

import contextlib
import http.client
import socket
import threading
import uuid

import pytest
from conftest import QUICK
from gateway import Refused, eventually

UNKNOWN = "00000000000000000000000000000000"


@pytest.fixture(scope="module")
def gateway():
    from gateway import Gateway

    with Gateway(limits=QUICK, loops=3) as one:
        yield one


def bind(gateway, *pairs):
    return gateway.api("POST", "user/alias", {"data_list": [{"cid": cid, "alias": alias} for cid, alias in pairs]})


def cids(gateway, alias):
    return sorted(gateway.api("GET", f"user/cid/alias/{alias}")["data"]["cid"])


def alias_of(gateway, cid):
    return gateway.api("GET", f"user/alias/cid/{cid}")["data"]["alias"]


def tags_of(gateway, cid):
    return gateway.api("GET", f"user/custom_tag/cid/{cid}")["data"][cid]


def count(gateway, *conditions):
    tag = [{"key": key, "values": values, "opt_type": kind} for key, kind, values in conditions]
    return gateway.api("POST", "user/count/", {"tag": tag})["data"]["user_count"]


def push_alias(gateway, alias, payload, request_id=None, **fields):
    body = gateway.push_body("", payload, request_id=request_id, **fields)
    body["audience"] = {"alias": [alias]}
    return gateway.api("POST", "push/single/alias", body)


def name():
    return "n" + uuid.uuid4().hex[:16]


@contextlib.contextmanager
def refused(status, code, text=""):
    with pytest.raises(Refused) as caught:
        yield
    assert caught.value.status == status, caught.value
    assert caught.value.body["code"] == code and text in caught.value.body["msg"], caught.value


def test_aliases_are_bound_moved_asked_for_and_unbound(gateway, new_device):
    one, two = new_device(gateway), new_device(gateway)
    first, second = name(), "王_" + name()[:8]
    quoted = "".join(f"%{byte:02X}" for byte in second.encode())
    assert bind(gateway, (one.cid, first), (two.cid, first)) == {"code": 0, "msg": "success"}
    assert cids(gateway, first) == sorted([one.cid, two.cid])
    bind(gateway, (one.cid, second))
    assert cids(gateway, first) == [two.cid] and cids(gateway, quoted) == [one.cid]
    assert alias_of(gateway, one.cid) == second
    answer = gateway.api("DELETE", "user/alias", {"data_list": [{"cid": one.cid, "alias": first}]})
    assert answer["longwire"]["notBound"] == [one.cid] and alias_of(gateway, one.cid) == second
    assert gateway.api("DELETE", "user/alias", {"data_list": [{"cid": two.cid, "alias": first}]})["code"] == 0
    assert cids(gateway, first) == [] and alias_of(gateway, two.cid) == ""
    assert gateway.api("DELETE", f"user/alias/{quoted}") == {"code": 0, "msg": "success"}
    assert cids(gateway, quoted) == [] and alias_of(gateway, one.cid) == ""


def test_each_type_of_alias_is_a_namespace_of_its_own(gateway, new_device):
    one, two = new_device(gateway), new_device(gateway)
    alias = name()
    items = [(one, None), (one, "user"), (two, "phone"), (one, "phone")]
    for device, kind in items:
        item = {"cid": device.cid, "alias": alias, **({"alias_type": kind} if kind else {})}
        gateway.api("POST", "user/alias", {"data_list": [item]})
    of = lambda query: sorted(gateway.api("GET", f"user/cid/alias/{alias}{query}")["data"]["cid"])  # noqa: E731
    assert of("") == [one.cid] and of("?alias_type=user") == [one.cid]
    assert of("?alias_type=phone") == sorted([one.cid, two.cid]) and of("?alias_type=other") == []
    assert alias_of(gateway, one.cid) == alias and alias_of(gateway, two.cid) == ""
    assert gateway.api("GET", f"user/alias/cid/{two.cid}?alias_type=phone")["data"]["alias"] == alias
    body = {"request_id": uuid.uuid4().hex, "audience": {"alias": [alias], "alias_type": "phone"},
            "push_message": {"transmission": "to both"}}
    answer = gateway.api("POST", "push/single/alias", body)
    assert sorted(cid for found in answer["data"].values() for cid in found) == sorted([one.cid, two.cid])
    gateway.api("DELETE", f"user/alias/{alias}?alias_type=phone")
    assert of("?alias_type=phone") == [] and of("") == [one.cid] and of("?alias_type=user") == [one.cid]


def test_an_alias_names_ten_devices(gateway, new_device):
    devices = [new_device(gateway) for _ in range(11)]
    alias = name()
    bind(gateway, *((device.cid, alias) for device in devices[:10]))
    with refused(400, 20001, "alias size over limit"):
        bind(gateway, (devices[10].cid, alias))
    assert alias_of(gateway, devices[10].cid) == ""
    gateway.api("DELETE", "user/alias", {"data_list": [{"cid": devices[4].cid, "alias": alias}]})
    bind(gateway, (devices[10].cid, alias))
    assert cids(gateway, alias) == sorted(device.cid for device in devices if device is not devices[4])


def test_a_list_binds_a_thousand_and_names_who_is_not_there(gateway, new_device):
    device = new_device(gateway)
    alias = name()
    pairs = [(f"{index:032x}", f"{alias}_{index % 100}") for index in range(1, 1000)] + [(device.cid, alias)]
    answer = bind(gateway, *pairs)
    assert answer["code"] == 0 and len(answer["longwire"]["unknown"]) == 999
    assert cids(gateway, alias) == [device.cid] and cids(gateway, f"{alias}_7") == []
    with refused(400, 20001, "data_list size over limit"):
        bind(gateway, *pairs, (device.cid, alias))
    with refused(400, 20001, "target user is invalid"):
        bind(gateway, (UNKNOWN, alias))


def test_a_push_to_an_alias_reaches_each_device_once(gateway, new_device):
    live, away, black = new_device(gateway), new_device(gateway, token="aabbccdd"), new_device(gateway)
    away.update(application_state=2)
    alias = name()
    bind(gateway, *((device.cid, alias) for device in (live, away, black)))
    gateway.api("POST", f"user/black/cid/{black.cid}")
    request = uuid.uuid4().hex
    answer = push_alias(gateway, alias, "hello", request_id=request, alert="t")
    ((task, statuses),) = answer["data"].items()
    assert statuses == {live.cid: "successed_online", away.cid: "successed_offline", black.cid: "successed_ignore"}
    assert live.receive().payload == b"hello"
    assert {message["taskId"] for message in answer["longwire"]["messages"]} == {task}
    again = push_alias(gateway, alias, "hello", request_id=request, alert="t")
    assert again["data"] == answer["data"]
    assert gateway.view(away.cid)["queue"]["messages"] == 1
    with refused(400, 20001, "request_id"):
        push_alias(gateway, alias, "another", request_id=request)
    with refused(400, 20001, "target user is invalid"):
        push_alias(gateway, name(), "nobody")


def test_what_was_bound_survives_a_kill(own_gateway, new_device):
    gateway = own_gateway(loops=3)
    devices = [new_device(gateway, token=f"aabb{index}") for index in range(4)]
    alias, other = name(), name()
    bind(gateway, *((device.cid, alias) for device in devices))
    bind(gateway, (devices[3].cid, other))
    gateway.api("POST", f"user/custom_tag/cid/{devices[0].cid}", {"custom_tag": ["vip", "广州"]})
    gateway.api("PUT", "user/custom_tag/batch/vip", {"cid": [devices[1].cid]})
    gateway.api("POST", f"user/black/cid/{devices[2].cid}")
    gateway.api("POST", f"user/badge/cid/{devices[0].cid}", {"badge": 7})
    for _ in range(2):
        gateway.kill()
        gateway.start()
        eventually(gateway.is_ready, "readiness")
        assert cids(gateway, alias) == sorted(device.cid for device in devices[:3])
        assert cids(gateway, other) == [devices[3].cid]
        assert tags_of(gateway, devices[0].cid) == ["vip 广州"]
        assert count(gateway, ("custom_tag", "or", ["vip"])) == 2
        assert count(gateway, ("phone_type", "or", ["ios"])) == 4
        assert gateway.view(devices[0].cid)["badge"] == 7
        statuses = list(push_alias(gateway, alias, "after the kill")["data"].values())[0]
        assert statuses[devices[2].cid] == "successed_ignore"
        assert statuses[devices[0].cid] == statuses[devices[1].cid] == "successed_offline"


def test_a_kill_in_the_midst_of_binds_loses_no_bound_alias(own_gateway, new_device):
    gateway = own_gateway(loops=3)
    devices = [new_device(gateway) for _ in range(12)]
    aliases = [name() for _ in range(3)]
    answered = {}

    def bind_all(mine, start):
        for round_number in range(10_000):
            for index, device in enumerate(mine):
                alias = aliases[(start + round_number + index) % 3]
                try:
                    bind(gateway, (device.cid, alias))
                except (OSError, http.client.HTTPException, Refused):
                    answered[device.cid] = (answered.get(device.cid, (None,))[0], alias)
                    return
                answered[device.cid] = (alias, alias)

    gateway.authenticate()
    threads = [threading.Thread(target=bind_all, args=(devices[start::3], start)) for start in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(answered) == len(devices), "binds of all devices")
    gateway.kill()
    for thread in threads:
        thread.join()
    gateway.start()
    eventually(gateway.is_ready, "readiness")
    members = {alias: cids(gateway, alias) for alias in aliases}
    for cid, possible in answered.items():
        holds = alias_of(gateway, cid)
        # The last answered bind, or the one in flight.
        assert holds in possible
        assert [alias for alias in aliases if cid in members[alias]] == [holds]


def test_tags_are_replaced_added_removed_and_counted(gateway, new_device):
    one, two, three = (new_device(gateway) for _ in range(3))
    a, b = name(), name()
    set_tags = f"user/custom_tag/cid/{one.cid}"
    assert gateway.api("POST", set_tags, {"custom_tag": [a, "x-1", "广州"]}) == {"code": 0, "msg": "success"}
    assert tags_of(gateway, one.cid) == [f"{a} x-1 广州"]
    gateway.api("POST", set_tags, {"custom_tag": [a]})
    assert tags_of(gateway, one.cid) == [a] and tags_of(gateway, two.cid) == []
    everyone = [one.cid, two.cid, three.cid, UNKNOWN]
    answer = gateway.api("PUT", f"user/custom_tag/batch/{b}", {"cid": everyone + [one.cid]})
    assert answer["data"] == {one.cid: "true", two.cid: "true", three.cid: "true", UNKNOWN: "false"}
    answer = gateway.api("DELETE", f"user/custom_tag/batch/{b}", {"cid": [three.cid]})
    assert answer["data"] == {three.cid: "true"}
    assert count(gateway, ("custom_tag", "or", [a, b])) == 2
    assert count(gateway, ("custom_tag", "and", [a, b])) == 1
    assert count(gateway, ("custom_tag", "or", [b]), ("custom_tag", "not", [a])) == 1
    assert count(gateway, ("custom_tag", "or", [b]), ("phone_type", "or", ["android"])) == 0
    everybody = count(gateway, ("phone_type", "or", ["IOS", "ANDROID"]))
    assert everybody >= 3 and count(gateway, ("custom_tag", "not", [a, b])) == everybody - 2
    with refused(400, 23001):
        gateway.api("PUT", f"user/custom_tag/batch/{b}", {"cid": [UNKNOWN]})
    with refused(403, 30005):
        gateway.api("PUT", f"user/custom_tag/batch/{'t' * 33}", {"cid": [one.cid]})


def test_calls_are_counted_over_all_loops(own_gateway, new_device):
    limits = {**QUICK, "tagChangesPerMinute": 5, "tagQueriesPerMinute": 4, "tagReplacementsPerDay": 1}
    gateway = own_gateway(loops=3, limits=limits)
    device = new_device(gateway)
    refusals = set()

    def until_refused(method, path, body, limit):
        # A new connection each time, so that the kernel spreads them over the loops. A minute may end in between.
        for number in range(2 * limit + 2):
            try:
                gateway.api(method, path, body)
            except Refused as refusal:
                refusals.add((refusal.status, refusal.body["code"]))
                return number
        raise AssertionError("never refused")

    assert until_refused("PUT", "user/custom_tag/batch/t", {"cid": [device.cid]}, 5) >= 5
    assert until_refused("GET", f"user/custom_tag/cid/{device.cid}", None, 4) >= 4
    gateway.api("POST", f"user/custom_tag/cid/{device.cid}", {"custom_tag": ["a"]})
    with refused(403, 30011):
        gateway.api("POST", f"user/custom_tag/cid/{device.cid}", {"custom_tag": ["b"]})
    assert refusals == {(403, 30012), (401, 10005)}


def test_the_blacklist_holds_messages_back_and_lets_them_go(gateway, new_device):
    device = new_device(gateway, token="ccdd")
    device.update(application_state=1)
    gateway.push(device.cid, "before", ttl=600_000)
    assert gateway.api("POST", f"user/black/cid/{device.cid},{UNKNOWN}")["longwire"] == {"unknown": [UNKNOWN]}
    assert gateway.api("POST", "push/single/cid", gateway.push_body(device.cid, "never"))["data"].popitem()[1] == {
        device.cid: "successed_ignore"
    }
    device.update(application_state=0)
    assert gateway.api("GET", f"user/status/{device.cid}")["data"][device.cid]["status"] == "offline"
    # As Getui's PHP SDK sends it: a body of four bytes.
    answer = gateway.call(
        "DELETE", f"//v2/{gateway.app['appId']}//user/black/cid/{device.cid}", raw=b"null",
        headers={"token": gateway._token},
    )
    assert answer == {"code": 0, "msg": "success"}
    assert device.receive().payload == b"before"


def test_the_badge_is_the_servers_and_the_next_push_counts_on(gateway, new_device):
    device = new_device(gateway, token="eeff")
    for badge, expected in [("+3", 3), (-1, 2), ("5", 5), ("-9", 0), (7, 7)]:
        assert gateway.api("POST", f"user/badge/cid/{device.cid}", {"badge": badge}) == {"code": 0, "msg": "success"}
        assert gateway.view(device.cid)["badge"] == expected
    device.update(application_state=2)
    gateway.push(device.cid, "x", alert="t", badge="+1")
    (job,) = [job for job in gateway.lease() if job["cid"] == device.cid]
    assert job["body"]["aps"]["badge"] == 8
    with refused(400, 20001, "badge is invalid"):
        gateway.api("POST", f"user/badge/cid/{device.cid}", {"badge": "many"})


def test_detail_and_device_status_have_the_documented_shapes(gateway, new_device):
    device = new_device(gateway, token="aa11bb22")
    data = gateway.api("GET", f"user/detail/{device.cid},{UNKNOWN},zz")["data"]
    assert data["invalidCids"] == [UNKNOWN, "zz"]
    detail = data["validCids"][device.cid]
    assert detail["client_app_id"] == gateway.app["appId"] and detail["device_token"] == "aa11bb22"
    assert detail["phone_type"] == 2 and detail["loginFreq"] == 1 and detail["notificationSwitch"] is True
    assert len(detail["createTime"]) == 19 and isinstance(detail["phoneModel"], str)

    def status():
        return gateway.api("GET", f"user/deviceStatus/{device.cid},{UNKNOWN}")["data"]

    assert status() == {device.cid: {"cid_status": "online", "device_status": "online"}}
    device.update(application_state=1)
    assert status() == {device.cid: {"cid_status": "offline", "device_status": "online"}}
    device.close()
    eventually(lambda: status() == {device.cid: {"cid_status": "offline", "device_status": "offline"}})
    many = ",".join(f"{index:032x}" for index in range(1, 1001))
    assert len(gateway.api("GET", f"user/detail/{many}")["data"]["invalidCids"]) == 1000
    with refused(400, 20001, "cid size over limit"):
        gateway.api("GET", f"user/deviceStatus/{many}")


def test_check_and_log_upload_answer(gateway):
    with socket.create_connection(("127.0.0.1", gateway.http)) as connection:
        connection.sendall(b"HEAD /v2/check HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        head = b"".join(iter(lambda: connection.recv(4096), b""))
    assert head.startswith(b"HTTP/1.1 200") and head.endswith(b"\r\n\r\n")
    path = f"/v2/{gateway.app['appId']}/log/upload"
    assert gateway.call("POST", path, {"logs": [1]})["code"] == 0
    assert gateway.call("POST", path, raw=b"")["code"] == 0


def test_names_of_one_app_mean_nothing_to_another(own_gateway, new_device):
    gateway = own_gateway(loops=2)
    device = new_device(gateway)
    alias = name()
    bind(gateway, (device.cid, alias))
    gateway.api("POST", f"user/custom_tag/cid/{device.cid}", {"custom_tag": ["t"]})
    for path in ("user/alias/cid/", "user/custom_tag/cid/"):
        with refused(401, 10001):
            gateway.call("GET", f"/v2/other/{path}{device.cid}", headers={"token": gateway._token})


def test_an_alias_is_read_from_disk_when_it_has_left_memory(own_gateway, new_device):
    gateway = own_gateway(loops=2, limits={**QUICK, "spillAfterSeconds": 1})
    devices = [new_device(gateway) for _ in range(3)]
    alias = name()
    bind(gateway, *((device.cid, alias) for device in devices))
    gateway.api("PUT", "user/custom_tag/batch/cold", {"cid": [device.cid for device in devices]})
    for _ in range(3):
        # After the rows moved to disk a bind still finds the existing devices and adds a new one.
        gateway.stop()
        gateway.start()
        eventually(gateway.is_ready, "readiness")
        assert cids(gateway, alias) == sorted(device.cid for device in devices)
        assert count(gateway, ("custom_tag", "and", ["cold"])) == len(devices)
        devices.append(new_device(gateway))
        bind(gateway, (devices[-1].cid, alias))
        gateway.api("PUT", "user/custom_tag/batch/cold", {"cid": [devices[-1].cid]})
    gateway.api("DELETE", f"user/alias/{alias}")
    assert cids(gateway, alias) == []
