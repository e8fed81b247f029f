"""Every way to publish checks the app's quotas: while its queues are full, each is refused with the reason."""

import contextlib
import pathlib
import re
import uuid

import pytest
from conftest import QUICK
from gateway import Refused, eventually
from longwire_client import Device, Sender
from neighbour_party import two_apps

API = pathlib.Path(__file__).resolve().parents[3] / "docs/use/openapi.yaml"

# Creates no message: a stored message is sent to the devices of later calls.
MAKES_NONE = {"/v2/{appId}/push/list/message"}


def publishing_calls():
    """Returns each documented POST of a publishing path."""
    paths = re.findall(r"^  (/\S+):\n((?:    .*\n|\n)+)", API.read_text(), re.MULTILINE)
    return {
        path for path, operations in paths
        if "/push" in path and "/report/" not in path and re.search(r"^    post:", operations, re.MULTILINE)}


def message(audience, **fields):
    return {"request_id": uuid.uuid4().hex, "audience": audience, "push_message": {"transmission": "x"}, **fields}


def calls(cid, task, scheduled):
    """Yields one or more calls of each path."""
    condition = {"key": "custom_tag", "values": ["red"], "opt_type": "and"}
    tagged = {"cid_by_tag": [{"cid": cid, "tag": ["red"], "op_type": 0}]}
    yield "/v2/{appId}/push/single/cid", message({"cid": [cid]})
    yield "/v2/{appId}/push/single/alias", message({"alias": ["anna"]})
    yield "/v2/{appId}/push/single/batch/cid", {"is_async": False, "msg_list": [message({"cid": [cid]})]}
    yield "/v2/{appId}/push/single/batch/cid", {"is_async": True, "msg_list": [message({"cid": [cid]})]}
    yield "/v2/{appId}/push/single/batch/alias", {"is_async": False, "msg_list": [message({"alias": ["anna"]})]}
    for name in (task, scheduled):
        yield "/v2/{appId}/push/list/cid", {"taskid": name, "audience": {"cid": [cid]}, "is_async": False}
        yield "/v2/{appId}/push/list/alias", {"taskid": name, "audience": {"alias": ["anna"]}, "is_async": False}
    yield "/v2/{appId}/push/single/cid_by_tag", message(tagged)
    yield "/v2/{appId}/push/list/cid_by_tag", {"taskid": task, "audience": tagged}
    yield "/v2/{appId}/push/all", message("all")
    yield "/v2/{appId}/push/tag", message({"tag": [condition]})
    yield "/v2/{appId}/push/fast_custom_tag", message({"fast_custom_tag": "red"})
    yield "/v1/apps/{appId}/push", message({"cid": [cid]})


def stored(gateway, **settings):
    body = {"push_message": {"transmission": "x"}, "settings": settings}
    return gateway.api("POST", "push/list/message", body)["data"]["taskid"]


def test_no_front_publishes_past_a_full_queue():
    gateway = two_apps(limits=QUICK)
    gateway.sections["apps"][0]["quotas"] = {"queuedMessages": 3}
    with gateway:
        app = gateway.app
        device = Device("127.0.0.1", gateway.device, app["appId"])
        device.register(app["appSecret"])
        cid = device.state.cid.hex()
        gateway.api("POST", "user/alias", {"data_list": [{"cid": cid, "alias": "anna"}]})
        gateway.api("POST", f"user/custom_tag/cid/{cid}", {"custom_tag": ["red"]})
        due = str(int(gateway.view(cid)["registeredAt"]) + 7_200_000)
        task, scheduled = stored(gateway), stored(gateway, schedule_time=due)
        device.close()
        eventually(lambda: not gateway.view(cid)["connected"], "the device's end")

        def refusal(path, body):
            path = path.replace("{appId}", app["appId"])
            try:
                if path.startswith("/v1/"):
                    gateway.admin_call("POST", path, body)
                else:
                    gateway.api("POST", path.removeprefix(f"/v2/{app['appId']}/"), body)
            except Refused as refused:
                return refused.status, refused.body
            return None

        with contextlib.closing(Sender("127.0.0.1", gateway.senders, app["appId"], app["masterSecret"])) as sender:
            # Each call is accepted, so later refusals are due to the quota.
            asked = list(calls(cid, task, scheduled))
            assert {path for path, _ in asked} | MAKES_NONE == publishing_calls()
            gateway.push(cid, "x", ttl=600_000)
            gateway.push(cid, "x", ttl=600_000)
            gateway.push(cid, "x", ttl=600_000)
            full = ("/v2/{appId}/push/single/cid", message({"cid": [cid]}))
            eventually(lambda: refusal(*full), "the full queue")
            before = gateway.view(cid)["queue"]["messages"]
            for path, body in asked:
                status, told = refusal(path, body) or pytest.fail(f"{path} was taken: {body}")
                assert status == 403 and told["code"] == 30906, (path, status, told)
                assert "quota queuedMessages" in told["msg"], (path, told)
            (result,) = sender.publish([{"cid": device.state.cid, "payload": b"x"}])
            assert result.code == 6 and "quota queuedMessages" in result.reason, result
            assert gateway.view(cid)["queue"]["messages"] == before
            # Calls that create no message are still accepted.
            assert stored(gateway)
            device.connect()
            device.receive_and_ack(before)

            def used():
                return gateway.admin_call("GET", f"/v1/apps/{app['appId']}")["quotas"]["queuedMessages"]["used"]

            def is_empty():
                with contextlib.suppress(TimeoutError):
                    while True:
                        device.receive_and_ack(1, timeout=0.15)
                return used() == 0

            # The quota alone was the reason for each refusal.
            for path, body in calls(cid, task, scheduled):
                eventually(is_empty, "room")
                told = refusal(path, body)
                assert told is None, (path, told)
        device.close()
