"""Aliases and tags that devices set for themselves: permissions, results, limits, restarts and clusters."""

import json
import signal
import socket
import uuid

import pytest
from cluster import Cluster
from conftest import QUICK
from gateway import Gateway, eventually
from longwire_client import Device, pb
from redis_rig import RedisRig
from test_cluster import come_back
from test_users import alias_of, bind, cids, count, push_alias, tags_of

DONE, NOT_ALLOWED, BAD_NAME, ALIAS_FULL, TOO_MANY, TOO_OFTEN, BUSY = 0, 1, 2, 3, 4, 100, 102
Names = pb.DeviceNames


@pytest.fixture(scope="module")
def gateway():
    with Gateway(limits=QUICK, loops=3, app={"deviceMay": ["alias", "tags"]}) as one:
        yield one


def ask(device, operation=Names.QUERY, request=7, **fields):
    device.connection.send(Names(request=request, operation=operation, **fields))
    result = device.connection.receive(pb.DeviceNamesResult)
    assert result.request == request
    return result


def name():
    return "n" + uuid.uuid4().hex[:16]


def test_a_device_binds_moves_asks_for_and_unbinds_its_alias(gateway, new_device):
    device, first, second = new_device(gateway), name(), name()
    assert ask(device, Names.BIND_ALIAS, alias=first).code == DONE
    assert cids(gateway, first) == [device.cid] and ask(device).alias == first
    push = push_alias(gateway, first, "for the alias")
    assert push["code"] == 0 and device.receive().payload == b"for the alias"
    assert ask(device, Names.BIND_ALIAS, alias=second).code == DONE
    assert cids(gateway, first) == [] and alias_of(gateway, device.cid) == second
    assert ask(device, Names.UNBIND_ALIAS, alias=first).code == DONE and alias_of(gateway, device.cid) == second
    assert ask(device, Names.UNBIND_ALIAS, alias=second).code == DONE
    assert ask(device).alias == "" and cids(gateway, second) == []


def test_an_alias_of_a_type_is_another_alias(gateway, new_device):
    device, plain, typed = new_device(gateway), name(), name()
    assert ask(device, Names.BIND_ALIAS, alias=plain).code == DONE
    assert ask(device, Names.BIND_ALIAS, alias=typed, alias_type="phone").code == DONE
    assert (ask(device).alias, ask(device, alias_type="phone").alias) == (plain, typed)
    assert ask(device, alias_type="other").alias == ""


def test_unbinding_leaves_the_other_devices_of_the_alias(gateway, new_device):
    one, two, alias = new_device(gateway), new_device(gateway), name()
    for device in (one, two):
        assert ask(device, Names.BIND_ALIAS, alias=alias).code == DONE
    assert ask(one, Names.UNBIND_ALIAS, alias=alias).code == DONE
    assert cids(gateway, alias) == [two.cid]


def test_an_alias_with_as_many_devices_as_it_may_have_takes_no_more(gateway, new_device):
    alias, devices = name(), [new_device(gateway) for _ in range(11)]
    results = [ask(device, Names.BIND_ALIAS, alias=alias) for device in devices]
    assert [result.code for result in results] == [DONE] * 10 + [ALIAS_FULL] and results[-1].reason
    # A device that already has the alias may bind it again.
    assert ask(devices[0], Names.BIND_ALIAS, alias=alias).code == DONE


def test_tags_are_set_added_and_removed(gateway, new_device):
    device, tags = new_device(gateway), sorted(name() for _ in range(4))
    assert ask(device, Names.SET_TAGS, tags=tags[:2]).code == DONE
    assert ask(device, Names.ADD_TAGS, tags=tags[1:]).code == DONE
    assert sorted(ask(device).tags) == tags == sorted(tags_of(gateway, device.cid)[0].split())
    assert count(gateway, ("custom_tag", "and", [tags[3]])) == 1
    assert ask(device, Names.REMOVE_TAGS, tags=[tags[0], tags[3], "never"]).code == DONE
    assert sorted(ask(device).tags) == tags[1:3]
    assert count(gateway, ("custom_tag", "and", [tags[3]])) == 0
    assert ask(device, Names.SET_TAGS).code == DONE and list(ask(device).tags) == []


@pytest.mark.parametrize("fields", [
    {"operation": Names.BIND_ALIAS}, {"operation": Names.BIND_ALIAS, "alias": "a b"},
    {"operation": Names.BIND_ALIAS, "alias": "x" * 40}, {"operation": Names.BIND_ALIAS, "alias": "x", "alias_type": "a b"},
    {"operation": Names.SET_TAGS, "tags": ["a b"]}, {"operation": Names.ADD_TAGS, "tags": ["x" * 33]},
    {"operation": Names.ADD_TAGS, "tags": [""]}, {"operation": Names.SET_TAGS, "tags": ["x%031d" % n for n in range(17)]},
])
def test_a_bad_name_is_refused_with_a_reason_and_changes_nothing(gateway, new_device, fields):
    device = new_device(gateway)
    result = ask(device, **fields)
    assert result.code == BAD_NAME and result.reason
    after = ask(device)
    assert after.alias == "" and list(after.tags) == []


def test_tags_that_a_device_has_count_with_the_added_ones(gateway, new_device):
    device = new_device(gateway)
    assert ask(device, Names.SET_TAGS, tags=["t%d" % n for n in range(99)]).code == DONE
    # The gateway adds either all tags or none.
    assert ask(device, Names.ADD_TAGS, tags=["one", "two"]).code == TOO_MANY
    assert len(ask(device).tags) == 99
    assert ask(device, Names.ADD_TAGS, tags=["one"]).code == DONE
    assert ask(device, Names.ADD_TAGS, tags=["two"]).code == TOO_MANY


def test_a_session_has_thirty_requests_in_a_minute(gateway, new_device):
    device, alias = new_device(gateway), name()
    codes = [ask(device, Names.BIND_ALIAS, alias=alias).code for _ in range(62)]
    # The counter is reset at most once, because at most one minute ends during the calls.
    assert codes[:30] == [DONE] * 30 and TOO_OFTEN in codes and set(codes) == {DONE, TOO_OFTEN}


def test_a_second_request_before_the_result_of_the_first_is_refused(gateway, new_device):
    device, alias = new_device(gateway), name()
    frames = [Names(request=number, operation=Names.BIND_ALIAS, alias=alias) for number in (1, 2)]
    device.connection.send(*frames)
    results = {(result.request, result.code) for result in (device.connection.receive(pb.DeviceNamesResult) for _ in "12")}
    assert results == {(1, DONE), (2, BUSY)}


def test_a_device_that_closes_its_sending_half_still_gets_the_result(gateway, new_device):
    device, alias = new_device(gateway), name()
    device.connection.send(Names(request=1, operation=Names.BIND_ALIAS, alias=alias))
    device.connection.socket.shutdown(socket.SHUT_WR)
    assert device.connection.receive(pb.DeviceNamesResult).code == DONE
    assert cids(gateway, alias) == [device.cid]


def test_a_session_that_is_replaced_before_its_result_leaves_no_trace(gateway, new_device):
    device, alias = new_device(gateway), name()
    old = device.connection
    for _ in range(20):
        device.connection.send(Names(request=1, operation=Names.BIND_ALIAS, alias=alias))
        old, device.connection = device.connection, None
        device.connect()
        old.close()
    assert ask(device, Names.BIND_ALIAS, alias=alias).code == DONE and cids(gateway, alias) == [device.cid]


def test_a_query_answers_with_as_many_tags_as_a_device_can_have(new_device):
    limits = {**QUICK, "tagsPerDevice": 200, "tagTotalCharacters": 2_000}
    with Gateway(limits=limits, app={"deviceMay": ["tags"]}) as gateway:
        device, tags = new_device(gateway), ["t%d" % number for number in range(200)]
        assert ask(device, Names.SET_TAGS, tags=tags).code == DONE
        assert sorted(ask(device).tags) == sorted(tags)


def test_an_app_created_by_the_admin_api_has_the_rights_of_its_settings(new_device):
    with Gateway(limits=QUICK) as gateway:
        made = gateway.admin_call("POST", "/v1/apps", {"appId": "made", "deviceMay": ["alias"]})
        device = Device("127.0.0.1", gateway.device, "made")
        device.register(made["appSecret"])
        assert ask(device, Names.BIND_ALIAS, alias="x").code == DONE
        gateway.admin_call("PATCH", "/v1/apps/made", {"deviceMay": []})
        eventually(lambda: ask(device).code == NOT_ALLOWED, "the end of the right")
        device.close()


def test_an_app_that_allows_nothing_refuses_everything_and_a_reload_allows_tags(new_device):
    with Gateway(limits=QUICK) as gateway:
        device = new_device(gateway)
        for fields in ({}, {"operation": Names.BIND_ALIAS, "alias": "x"}, {"operation": Names.SET_TAGS, "tags": ["x"]}):
            result = ask(device, **fields)
            assert result.code == NOT_ALLOWED and "deviceMay" in result.reason
        assert alias_of(gateway, device.cid) == ""
        gateway.app["deviceMay"] = ["tags"]
        gateway.config.write_text(json.dumps(gateway.sections))
        gateway.process.send_signal(signal.SIGHUP)
        eventually(lambda: ask(device).code == DONE, "the right to ask")
        assert ask(device, Names.BIND_ALIAS, alias="x").code == NOT_ALLOWED
        assert ask(device, Names.SET_TAGS, tags=["x"]).code == DONE


def test_names_survive_a_kill(new_device):
    with Gateway(limits=QUICK, app={"deviceMay": ["alias", "tags"]}) as gateway:
        device, alias = new_device(gateway), name()
        assert ask(device, Names.BIND_ALIAS, alias=alias).code == DONE
        assert ask(device, Names.SET_TAGS, tags=["kept"]).code == DONE
        gateway.kill()
        gateway.start()
        device.address = ("127.0.0.1", gateway.device)
        device.connect()
        result = ask(device)
        assert (result.alias, list(result.tags)) == (alias, ["kept"]) and cids(gateway, alias) == [device.cid]


def test_names_cross_the_gateways_of_a_cluster():
    with RedisRig() as rig, Cluster(rig, limits=QUICK, app={"deviceMay": ["alias", "tags"]}) as cluster:
        eventually(cluster.is_even, "an even share for each", 60.0)
        cluster.wait_until_served()
        alias, devices = name(), []
        for gateway in cluster:
            device = Device("127.0.0.1", gateway.device, gateway.app["appId"])
            device.register(gateway.app["appSecret"])
            device.cid = device.state.cid.hex()
            devices.append(device)
        for device in devices:
            assert ask(device, Names.BIND_ALIAS, alias=alias).code == DONE
            assert ask(device, Names.SET_TAGS, tags=[alias]).code == DONE
        for gateway in cluster:
            assert cids(gateway, alias) == sorted(device.cid for device in devices)
            assert count(gateway, ("custom_tag", "and", [alias])) == len(devices)
        for device in devices:
            device.close()
