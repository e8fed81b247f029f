"""Finding the cause of a complaint through the admin API of a real gateway."""

import urllib.parse

import longwire_client
import pytest
from conftest import QUICK
from gateway import Gateway, Refused, eventually


def device(gateway, **fields):
    made = longwire_client.Device("127.0.0.1", gateway.device, gateway.app["appId"])
    made.register(gateway.app["appSecret"], **fields)
    return made, made.state.cid.hex()


def ask(gateway, path, status=200, method="GET"):
    try:
        answer = gateway.admin_call(method, f"/v1/{path.format(app='apps/' + gateway.app['appId'])}")
    except Refused as refused:
        assert refused.status == status, refused
        return refused.body
    assert status == 200, answer
    return answer


def publish(gateway, endpoint, audience, request_id, **settings):
    body = {"request_id": request_id, "audience": audience, "settings": settings}
    return gateway.api("POST", endpoint, {**body, "push_message": {"transmission": "hello"}})


def test_a_device_tells_its_recent_messages_before_and_after_a_restart():
    with Gateway(limits=QUICK) as gateway:
        phone, cid = device(gateway)
        sent = [gateway.push(cid, f"message {number}")["msgId"] for number in range(5)]
        phone.receive_and_ack(2)
        gateway.ends_as(sent[1], "delivered")
        for restarts in (False, True):
            if restarts:
                phone.close()
                gateway.kill()
                gateway.start()
            found = ask(gateway, f"{{app}}/devices/{cid}/messages?limit=4")
            assert [one["msgId"] for one in found["messages"]] == sent[:0:-1] and found["more"]
            states = {one["msgId"]: one["state"] for one in found["messages"]}
            assert states[sent[1]] in ("delivered", "deliveredOffline") and states[sent[4]] == "pending"
        ask(gateway, f"{{app}}/devices/{'0' * 32}/messages", 404)


def test_request_ids_tasks_and_aliases_lead_to_the_message(gateway):
    phone, cid = device(gateway)
    gateway.api("POST", "user/alias", {"data_list": [{"cid": cid, "alias": "finder"}]})
    assert ask(gateway, "{app}/aliases/finder")["devices"] == [cid]
    ask(gateway, "{app}/aliases/nobody", 404)

    single = publish(gateway, "push/single/cid", {"cid": [cid]}, "find-single-1")["data"]
    found = ask(gateway, "{app}/requests/find-single-1")
    message = found["messages"][0]
    assert message["cid"] == cid and message["taskId"] in single and not found["tasks"] and not found["refusals"]
    trace = ask(gateway, f"{{app}}/tasks/{message['taskId']}")
    assert trace == gateway.trace(message["msgId"]) and trace["cid"] == cid

    publish(gateway, "push/single/alias", {"alias": ["finder"]}, "find-alias-01")
    (task,) = ask(gateway, "{app}/requests/find-alias-01")["tasks"]
    assert task["call"] == "push/single/alias"
    assert ask(gateway, f"{{app}}/tasks/{task['taskId']}")["accepted"] == 1
    assert ask(gateway, f"{{app}}/tasks/{task['taskId']}/devices/{cid}")["cid"] == cid

    everyone = publish(gateway, "push/all", "all", "find-everyone")["data"]["taskid"]
    (task,) = ask(gateway, "{app}/requests/find-everyone")["tasks"]
    assert task["taskId"] == everyone
    assert ask(gateway, f"{{app}}/tasks/{everyone}")["broadcast"]
    phone.receive_and_ack(3)
    eventually(lambda: ask(gateway, f"{{app}}/tasks/{everyone}")["states"].get("delivered", 0) >= 1, "the broadcast's ack")
    ask(gateway, "{app}/requests/find-nothing1", 404)
    ask(gateway, "{app}/tasks/RASL_1121_6aad9b8ecc60ab4eb1b62f0e", 404)
    phone.close()


@pytest.mark.parametrize("request_id", ["find-refused1", "find äöü 你好 1"])
def test_a_refused_push_is_found_by_its_request_id_and_its_device(gateway, request_id):
    phone, cid = device(gateway)
    phone.close()
    with pytest.raises(Refused):
        gateway.push(cid, "hello", request_id=request_id, strategy=2)
    found = ask(gateway, "{app}/requests/" + urllib.parse.quote(request_id))
    assert [one["reason"] for one in found["refusals"]] == ["noContent"] and not found["messages"]
    gateway.api("POST", f"user/black/cid/{cid}")
    publish(gateway, "push/single/cid", {"cid": [cid]}, "ignored-" + str(len(request_id)))
    refusals = ask(gateway, f"{{app}}/devices/{cid}/messages")["refusals"]
    assert [one["reason"] for one in refusals] == ["blacklisted", "noContent"]


def test_a_purge_spares_a_message_whose_ack_is_in_transit(gateway):
    phone, cid = device(gateway)
    message = gateway.push(cid, "one")["msgId"]
    received = phone.receive()
    phone.update(application_state=longwire_client.pb.BACKGROUND)
    assert ask(gateway, f"{{app}}/devices/{cid}/purge", method="POST") == {"purged": 0, "left": 1}
    phone.ack(received.sequence)
    assert gateway.ends_as(message, "deliveredOffline")["state"]


def test_purge_replay_disconnect_and_unblacklist(gateway):
    phone, cid = device(gateway)
    sent = [gateway.push(cid, f"message {number}")["msgId"] for number in range(100)]
    # 32 messages are in flight. They stay, and acked ones are not among the purged.
    result = ask(gateway, f"{{app}}/devices/{cid}/purge", method="POST")
    assert result == {"purged": 68, "left": 32}
    phone.receive_and_ack(32)
    for number, message in enumerate(sent):
        assert gateway.ends_as(message, "delivered" if number < 32 else "revoked")["state"]
    assert gateway.trace(sent[99])["reason"] == "purged"
    assert ask(gateway, f"{{app}}/devices/{cid}/purge", method="POST") == {"purged": 0, "left": 0}

    assert ask(gateway, f"{{app}}/devices/{cid}/disconnect", method="POST") == {"disconnected": True}
    eventually(lambda: not gateway.view(cid)["connected"], "the end of the session")
    assert ask(gateway, f"{{app}}/devices/{cid}/disconnect", method="POST") == {"disconnected": False}
    phone.close()

    gateway.api("POST", f"user/black/cid/{cid}")
    assert gateway.view(cid)["blacklisted"]
    assert ask(gateway, f"{{app}}/devices/{cid}/unblacklist", method="POST") == {"removed": True}
    assert not gateway.view(cid)["blacklisted"]
    assert ask(gateway, f"{{app}}/devices/{cid}/unblacklist", method="POST") == {"removed": False}

    other, name = device(gateway, tokens=[longwire_client.pb.VendorToken(token="ab" * 32)])
    other.close()
    eventually(lambda: not gateway.view(name)["connected"], "the end of the session")
    gateway.push(name, "hello", alert="Hello")
    (job,) = [one for one in gateway.lease() if one["cid"] == name]
    gateway.settle(job, "retry", retryAfterSeconds=3_600)
    assert ask(gateway, f"{{app}}/devices/{name}/replay", method="POST") == {"due": 1}
    overview = ask(gateway, "handoff/jobs")
    (seen,) = [one for one in overview["jobs"] if one["cid"] == name]
    assert seen["jobId"] == job["jobId"] and seen["attempts"] == 1
    assert sum(queue["due"] for queue in overview["queues"]) >= 1
    assert [one["jobId"] for one in gateway.lease() if one["cid"] == name] == [job["jobId"]]


def test_an_apps_devices_come_in_pages(gateway):
    made = [device(gateway) for _ in range(12)]
    (found, after) = ([], "")
    while True:
        page = ask(gateway, f"{{app}}/devices?limit=5{after}")
        found += page["devices"]
        if "next" not in page:
            break
        after = f"&after={page['next']}"
    assert len(found) == len(set(found)) and {cid for _, cid in made} <= set(found)
    for phone, _ in made:
        phone.close()
