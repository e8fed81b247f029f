"""The Getui pusher of OpenIM's server (internal/push/offlinepush/getui), whose requests are built anew here: fields, nulls, codes.

docs/use/OpenIM.md names the settings and the versions.
"""

import hashlib
import json
import time
import uuid

import pytest
from gateway import HANDOFF_TOKEN, Refused, eventually
from longwire_client import pb

ANDROID = {
    "ups": {
        "notification": {
            "title": "Anna", "body": "You have a new message", "channelID": "", "ChannelName": "", "click_type": "startapp",
            "badge_add_num": "", "category": "",
        },
        "options": {
            "HW": {
                "/message/android/notification/default_sound": False, "/message/android/notification/channel_id": "RingRing4",
                "/message/android/notification/sound": "/raw/ring001", "/message/android/notification/importance": "NORMAL",
            },
            "XM": {"/extra.channel_id": "high_system"},
            "VV": {"/classification": 1},
        },
    },
}
STRATEGIES = dict.fromkeys(("default", "ios", "st", "hw", "ho", "xm", "xmg", "vv", "op", "opg", "mz", "hoshw", "wx"), 1)


class OpenIM:
    """The pusher: its calls have every field, and null for those that are not set."""

    def __init__(self, gateway):
        self.gateway = gateway
        app, now = gateway.app, str(int(time.time() * 1000))
        sign = hashlib.sha256(f"{app['appKey']}{now}{app['masterSecret']}".encode()).hexdigest()
        answer = self.post("/auth", {"sign": sign, "timestamp": now, "appkey": app["appKey"]}, token="")
        assert int(answer["data"]["expire_time"]) / 1000 - time.time() > 23 * 3600, "it keeps a token for 23 hours"
        self.token = answer["data"]["token"]

    def post(self, path, body, token=None):
        headers = {"token": self.token if token is None else token, "Content-Type": "application/json"}
        return self.gateway.call("POST", f"/v2/{self.gateway.app['appId']}{path}", body, headers=headers)

    @staticmethod
    def body(**fields):
        notification = {
            "title": "Anna", "body": "You have a new message", "channelID": "", "ChannelName": "", "click_type": "startapp",
            "badge_add_num": "1", "category": "CATEGORY_MESSAGE",
        }
        ios = {
            "type": "notify", "auto_badge": "+1",
            "aps": {"sound": "default", "alert": {"title": "Anna", "body": "You have a new message"}},
        }
        return {
            "request_id": None, "settings": None, "audience": None, "push_message": {"notification": notification},
            "push_channel": {"ios": ios, "android": ANDROID}, "is_async": None, "taskid": None, **fields,
        }

    def push(self, *users, operation="1736574044941"):
        """One message of a chat, for those of its users who are not connected to OpenIM."""
        if len(users) == 1:
            return self.post("/push/single/alias", self.body(request_id=operation, audience={"alias": [users[0]]}))
        task = self.post("/push/list/message", self.body(settings={"ttl": 300_000, "strategy": STRATEGIES}))["data"]
        # Go reads `taskid` into its field `taskID`: the case of names is ignored there.
        rest = self.body(push_message=None, push_channel=None, audience={"alias": list(users)}, is_async=True, taskid=task["taskid"])
        return self.post("/push/list/alias", rest)


def users(gateway, devices):
    names = [str(6_535_831_653 + number) + uuid.uuid4().hex[:8] for number in range(len(devices))]
    bound = [{"cid": device.cid, "alias": name} for device, name in zip(devices, names, strict=True)]
    assert gateway.api("POST", "user/alias", {"data_list": bound})["code"] == 0
    return names


def away(gateway, device):
    device.close()
    eventually(lambda: not gateway.view(device.cid)["connected"])
    return device


@pytest.mark.parametrize("count", [1, 2])
def test_users_who_are_away_get_an_alert_through_apns(own_gateway, new_device, count):
    gateway = own_gateway()
    devices = [away(gateway, new_device(gateway, token=f"{number:02x}" * 32)) for number in range(1, count + 1)]
    OpenIM(gateway).push(*users(gateway, devices))
    jobs = eventually(lambda: gateway.lease())
    assert sorted(job["cid"] for job in jobs) == sorted(device.cid for device in devices)
    for job in jobs:
        aps = json.loads(job["body"])["aps"] if isinstance(job["body"], str) else job["body"]["aps"]
        assert aps["alert"] == {"title": "Anna", "body": "You have a new message"}
        assert aps["sound"] == "default" and aps["badge"] == 1
        assert gateway.settle(job, "accepted") == "recorded"


def test_an_android_user_gets_the_notification_of_the_phones_maker(own_gateway, new_device):
    gateway = own_gateway()
    device = new_device(gateway)
    device.close()
    device.connect(tokens=[pb.VendorToken(channel=pb.VendorToken.HMS, token="token-of-huawei")])
    OpenIM(gateway).push(*users(gateway, [away(gateway, device)]))
    lease = {"channel": "hms", "max": 1, "waitSeconds": 5}
    job, = gateway.admin_call("POST", "/v1/handoff/lease", lease, token=HANDOFF_TOKEN)["jobs"]
    shown = {"title": "Anna", "body": "You have a new message", "click_type": "startapp"}
    assert job["body"] == {"notification": shown, "options": ANDROID["ups"]["options"]}, "empty fields are left out"


def test_a_connected_app_gets_the_notification_as_its_payload(own_gateway, new_device):
    gateway = own_gateway()
    device = new_device(gateway, token="ab" * 32)
    openim = OpenIM(gateway)
    answer = openim.push(*users(gateway, [device]))
    assert json.loads(device.receive_and_ack(1)[0].payload)["title"] == "Anna"
    assert "ignored" not in answer["longwire"]


def test_a_user_without_a_device_and_a_stale_token(own_gateway, new_device):
    gateway = own_gateway()
    device = away(gateway, new_device(gateway, token="ab" * 32))
    (known,) = users(gateway, [device])
    openim = OpenIM(gateway)
    with pytest.raises(Refused) as refused:
        openim.push("4711")
    assert refused.value.body["code"] == 20001 and refused.value.body["msg"] == "target user is invalid"
    openim.push(known, "4711")
    assert [job["cid"] for job in eventually(lambda: gateway.lease())] == [device.cid], "the others of a group are reached"
    openim.token = "a" * 64
    with pytest.raises(Refused) as refused:
        openim.push(known)
    assert refused.value.body["code"] == 10001, "this code alone makes OpenIM authenticate again"
