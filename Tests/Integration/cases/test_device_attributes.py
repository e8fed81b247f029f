"""The attributes that devices report: detail, conditions, changes, restarts, removal, hostile values and clusters."""

import pytest
from cluster import Cluster
from conftest import QUICK
from gateway import Gateway, eventually
from longwire_client import Device, pb
from redis_rig import RedisRig
from test_broadcast import broadcast, silent
from test_users import count

Attributes = pb.DeviceAttributes

PHONE = {
    "platform": Attributes.ANDROID, "brand": "HUAWEI", "model": "华为 Mate 60", "system_version": "14", "app_version": "2.7.0 (31)",
    "locale": "zh-Hans-CN", "time_zone": "Asia/Shanghai", "notification_permission": Attributes.ALLOWED,
}
SHOWN = {
    "platform": "android", "brand": "HUAWEI", "model": "华为 Mate 60", "systemVersion": "14", "appVersion": "2.7.0 (31)",
    "locale": "zh-Hans-CN", "timeZone": "Asia/Shanghai", "notificationPermission": "allowed",
}


@pytest.fixture(scope="module")
def gateway():
    with Gateway(limits=QUICK, loops=3) as one:
        yield one


@pytest.fixture
def house():
    """A gateway whose devices no other test counts."""
    with Gateway(limits=QUICK, loops=2) as one:
        yield one


def phone(**changes):
    return Attributes(**{**PHONE, **changes})


def detail(gateway, device):
    """Returns what `user/detail` says of the device, and its attributes."""
    answer = gateway.api("GET", f"user/detail/{device.cid}")
    attributes = answer.get("longwire", {}).get("attributes", {}).get(device.cid)
    return answer["data"]["validCids"][device.cid], attributes


def platform(gateway, *names, kind="or"):
    return count(gateway, ("phone_type", kind, list(names)))


def restart(gateway, *devices):
    gateway.kill()
    gateway.start()
    eventually(gateway.is_ready, "readiness")
    for device in devices:
        device.address = ("127.0.0.1", gateway.device)


def test_attributes_of_a_registration_are_shown_and_absent_ones_change_nothing(gateway, new_device):
    device = new_device(gateway, attributes=phone())
    shown, attributes = detail(gateway, device)
    assert (shown["phone_type"], shown["phoneModel"], shown["notificationSwitch"]) == (1, "华为 Mate 60", True)
    assert attributes == SHOWN and gateway.view(device.cid)["attributes"] == SHOWN
    info = gateway.api("GET", f"user/info/base/{device.cid}")["data"]["validCids"][device.cid]
    assert (info["phone_type"], info["phone_model"], info["brand"]) == (1, "华为 Mate 60", "HUAWEI")
    device.connect()
    assert detail(gateway, device)[1] == SHOWN
    device.connect(attributes=Attributes(platform=Attributes.IOS, notification_permission=Attributes.DENIED))
    shown, attributes = detail(gateway, device)
    assert attributes == {"platform": "ios", "notificationPermission": "denied"}
    assert (shown["phone_type"], shown["phoneModel"], shown["notificationSwitch"]) == (2, "", False)
    device.connect(attributes=Attributes())
    assert detail(gateway, device)[1] is None and "attributes" not in gateway.view(device.cid)


def test_a_device_without_attributes_is_described_as_before(gateway, new_device):
    device = new_device(gateway, token="aa11bb22")
    shown, attributes = detail(gateway, device)
    assert (shown["phone_type"], shown["phoneModel"], shown["notificationSwitch"]) == (2, "", True) and attributes is None


@pytest.mark.parametrize("name, value", [
    ("brand", "x" * 65), ("model", "a\nb"), ("system_version", "\x00"), ("app_version", "\u202e"), ("locale", "zh CN"),
    ("locale", "x" * 36), ("time_zone", "<b>"), ("model", "界" * 4_000),
])
def test_a_bad_attribute_is_dropped_alone_and_logged(gateway, new_device, name, value):
    device = new_device(gateway, attributes=phone(**{name: value}))
    member = {"system_version": "systemVersion", "app_version": "appVersion", "time_zone": "timeZone"}.get(name, name)
    assert detail(gateway, device)[1] == {key: text for key, text in SHOWN.items() if key != member}
    eventually(lambda: f"device {device.cid}: too long or malformed: {name}" in gateway.log(), "the log line")
    gateway.push(device.cid, "still connected")
    assert device.receive().payload == b"still connected"


def test_conditions_count_by_platform_and_follow_changes(house, new_device):
    phones = [new_device(house, attributes=phone()) for _ in range(3)]
    web = new_device(house, attributes=phone(platform=Attributes.WEB))
    apple = new_device(house, attributes=phone(platform=Attributes.IOS))
    old = new_device(house)

    def counts():
        return [platform(house, name) for name in ("android", "ios", "harmony", "web", "miniprogram", "other")]

    assert counts() == [3, 2, 0, 1, 0, 0]
    assert platform(house, "ANDROID", "Web") == 4 and platform(house, "android", "web", kind="and") == 0
    assert platform(house, "android", kind="not") == 3 and platform(house, "ios", kind="not") == 4
    house.api("POST", f"user/custom_tag/cid/{phones[0].cid}", {"custom_tag": ["vip"]})
    assert count(house, ("custom_tag", "or", ["vip"]), ("phone_type", "or", ["android"])) == 1
    assert count(house, ("custom_tag", "not", ["vip"]), ("phone_type", "or", ["android"])) == 2
    assert count(house, ("custom_tag", "or", ["vip"]), ("phone_type", "or", ["ios"])) == 0
    phones[0].connect(attributes=phone(platform=Attributes.HARMONY))
    web.connect(attributes=Attributes())
    assert counts() == [2, 3, 1, 0, 0, 0]
    restart(house, *phones, web, apple, old)
    assert counts() == [2, 3, 1, 0, 0, 0] and detail(house, phones[1])[1] == SHOWN
    phones[1].connect(attributes=phone())
    assert counts() == [2, 3, 1, 0, 0, 0] and detail(house, phones[1])[1] == SHOWN


def test_a_broadcast_to_a_platform_reaches_its_devices_also_those_that_are_away(house, new_device):
    here, away = (new_device(house, attributes=phone()) for _ in range(2))
    apple, old = new_device(house, attributes=phone(platform=Attributes.IOS)), new_device(house)
    harmony = new_device(house, attributes=phone(platform=Attributes.HARMONY))
    away.close()
    eventually(lambda: not house.view(away.cid)["connected"], "the device as absent")

    def send(payload, *platforms):
        broadcast(house, payload, path="push/tag", audience={
            "tag": [{"key": "phone_type", "values": list(platforms), "opt_type": "or"}]})

    send("for android", "android")
    assert here.receive_and_ack(1)[0].payload == b"for android"
    send("for apple", "IOS")
    for device in (apple, old):
        assert device.receive_and_ack(1)[0].payload == b"for apple"
    for device in (here, harmony):
        silent(device)
    restart(house, here, away, apple, old, harmony)
    away.connect(attributes=phone())
    assert away.receive_and_ack(1)[0].payload == b"for android"
    silent(away)
    harmony.connect()
    silent(harmony)


def test_a_new_registration_has_its_own_attributes(house, new_device):
    first = new_device(house, attributes=phone())
    second = new_device(house, attributes=phone(platform=Attributes.HARMONY, model="other"))
    assert detail(house, first)[1] == SHOWN
    assert detail(house, second)[1] == {**SHOWN, "platform": "harmony", "model": "other"}
    assert (platform(house, "android"), platform(house, "harmony")) == (1, 1)


def test_attributes_cross_the_gateways_of_a_cluster():
    with RedisRig() as rig, Cluster(rig, limits=QUICK) as cluster:
        eventually(cluster.is_even, "an even share for each", 60.0)
        cluster.wait_until_served()
        devices = []
        for gateway in cluster:
            for _ in range(3):
                device = Device("127.0.0.1", gateway.device, gateway.app["appId"])
                device.register(gateway.app["appSecret"], attributes=phone(model="x" * 65))
                device.cid = device.state.cid.hex()
                devices.append(device)
        shown = {key: text for key, text in SHOWN.items() if key != "model"}
        for gateway in cluster:
            assert platform(gateway, "android") == len(devices) and platform(gateway, "ios") == 0
            for device in devices:
                assert detail(gateway, device)[1] == shown and gateway.view(device.cid)["attributes"] == shown
        for device in devices:
            device.close()
