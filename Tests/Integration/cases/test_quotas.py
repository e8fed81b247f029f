"""Quotas of an app: each applies over all loops, is named by its refusal, and can change without a restart."""

import contextlib
import json
import signal
import subprocess
import threading
import time

import pytest
from conftest import QUICK
from gateway import ADMIN_TOKEN, Refused, binary, eventually
from hostile import Watch
from longwire_client import Closed, Device, Sender
from neighbour_party import NEIGHBOUR, neighbour_of, two_apps


@contextlib.contextmanager
def held(**quotas):
    """Two apps, of which the first has quotas."""
    gateway = two_apps(limits=QUICK)
    gateway.sections["apps"][0]["quotas"] = quotas
    with gateway:
        yield gateway


def device_of(gateway, app, made):
    device = Device("127.0.0.1", gateway.device, app["appId"])
    made.append(device)
    device.register(app["appSecret"])
    device.cid = device.state.cid.hex()
    return device


@pytest.fixture
def devices():
    made = []
    yield lambda gateway, app=None: device_of(gateway, app or gateway.app, made)
    for device in made:
        device.close()


def refused(call):
    """Returns the refusal's body, or None if the call was accepted."""
    try:
        call()
    except Refused as refusal:
        assert refusal.status == 403, refusal
        return refusal.body
    return None


def all_at_once(gateway, threads):
    """Runs the threads so that all their input has arrived before the gateway reads the first of it."""
    gateway.process.send_signal(signal.SIGSTOP)
    try:
        for thread in threads:
            thread.start()
        time.sleep(0.3)
    finally:
        gateway.process.send_signal(signal.SIGCONT)
    for thread in threads:
        thread.join(timeout=15)


def reload(gateway, **quotas):
    count = gateway.log().count("reloaded")
    gateway.sections["apps"][0]["quotas"] = quotas
    gateway.config.write_text(json.dumps(gateway.sections))
    gateway.process.send_signal(signal.SIGHUP)
    eventually(lambda: gateway.log().count("reloaded") > count, "the reload")


def shown(gateway):
    return gateway.admin_call("GET", f"/v1/apps/{gateway.app['appId']}").get("quotas", {})


def test_devices_are_held_over_both_loops_and_a_connected_one_may_come_again(devices):
    with held(devices=6) as gateway:
        watch = Watch(gateway)
        made = [devices(gateway) for _ in range(6)]
        # The other loop's counts are at most 50 ms old.
        time.sleep(0.1)
        with pytest.raises(Closed) as closed:
            devices(gateway)
        assert closed.value.code == 201 and "quota devices" in closed.value.close.reason, closed.value
        assert closed.value.close.retry_after_min_ms == 30_000
        assert watch.grown("longwire_quota_refusals_total", kind="devices") == 1
        assert shown(gateway)["devices"] == {"limit": 6, "used": 6, "refused": 1}
        # A new connection of a connected device, another app's devices, and a device in a freed place.
        made[0].connect()
        assert made[0].ping().nonce == 1
        for _ in range(8):
            devices(gateway, NEIGHBOUR)

        def is_welcome():
            try:
                return devices(gateway).ping().nonce == 1
            except Closed:
                return False
        made[1].close()
        eventually(is_welcome, "the free place", 10)
        reload(gateway, devices=8)
        # Each loop applies the reload separately.
        eventually(is_welcome, "the higher quota", 10)
        words = [binary("longwire"), "app", "show", gateway.app["appId"], "--admin", f"127.0.0.1:{gateway.admin}",
                 "--admin-token", ADMIN_TOKEN, "--json"]
        page = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout)
        assert page["app"]["quotas"]["devices"]["limit"] == 8, page


def test_publishes_a_second_by_http_and_by_frames_name_the_quota(devices):
    with held(publishesPerSecond=20) as gateway:
        watch = Watch(gateway)
        device, neighbour = devices(gateway), devices(gateway, NEIGHBOUR)
        gateway.authenticate()
        bodies = [refused(lambda: gateway.push(device.cid, "x", ttl=0)) for _ in range(60)]
        names = [body for body in bodies if body]
        assert names and all(body["code"] == 30906 and "quota publishesPerSecond" in body["msg"] for body in names), names
        assert len(names) >= 5 and bodies.count(None) >= 20, len(names)
        # A second's worth is available again.
        time.sleep(1.1)
        with contextlib.closing(Sender("127.0.0.1", gateway.senders, gateway.app["appId"], gateway.app["masterSecret"])) as sender:
            results = sender.publish([{"cid": device.state.cid, "payload": b"x"} for _ in range(100)])
        codes = [result.code for result in results]
        assert set(codes) == {0, 6} and codes.count(6) >= 50, codes
        assert all("quota publishesPerSecond" in result.reason for result in results if result.code == 6)
        other = neighbour_of(gateway)
        assert [refused(lambda: other.push(neighbour.cid, "x", ttl=0)) for _ in range(60)] == [None] * 60
        assert watch.grown("longwire_quota_refusals_total", kind="publishesPerSecond") >= 55
        eventually(lambda: "quotaUsedUp" in gateway.log(), "the log line", 10)
        # Each device of a list counts.
        reload(gateway, publishesPerSecond=1)
        time.sleep(1.1)
        task = gateway.api("POST", "push/list/message", {"push_message": {"transmission": "x"}})["data"]["taskid"]
        cids = [devices(gateway).cid for _ in range(5)]
        list_call = {"audience": {"cid": cids}, "taskid": task, "is_async": False}
        assert refused(lambda: gateway.api("POST", "push/list/cid", list_call)) is None
        body = refused(lambda: gateway.api("POST", "push/list/cid", list_call))
        assert body and body["code"] == 30906, body
        reload(gateway)
        assert refused(lambda: gateway.api("POST", "push/list/cid", list_call)) is None


def test_bytes_of_requests_are_held(devices):
    with held(requestBytesPerSecond=4_000) as gateway:
        device = devices(gateway)
        bodies = [refused(lambda: gateway.push(device.cid, "x" * 1_500, ttl=0)) for _ in range(10)]
        assert bodies[0] is None and any(body and "quota requestBytesPerSecond" in body["msg"] for body in bodies), bodies
        eventually(lambda: refused(lambda: gateway.push(device.cid, "x", ttl=0)) is None, "the next second")


def test_queued_messages_are_held_over_both_loops_and_a_restart_until_they_end(devices):
    with held(queuedMessages=10) as gateway:
        made = [devices(gateway) for _ in range(6)]
        for device in made:
            device.close()
        eventually(lambda: all(not gateway.view(device.cid)["connected"] for device in made), "the devices' ends")
        count = 0
        while count < 40 and not (body := refused(lambda: gateway.push(made[count % 6].cid, "x", ttl=600_000))):
            count += 1
            time.sleep(0.03)
        # Each partition reports its counts every 50 ms.
        assert 10 <= count <= 14 and body["code"] == 30906 and "quota queuedMessages" in body["msg"], (count, body)
        gateway.stop()
        gateway.start()
        eventually(lambda: shown(gateway)["queuedMessages"]["used"] == count, "the queue as it was")
        assert refused(lambda: gateway.push(made[0].cid, "x", ttl=600_000))["code"] == 30906
        everybody = {"request_id": "f" * 20, "audience": "all", "push_message": {"transmission": "y"}}
        assert refused(lambda: gateway.api("POST", "push/all", everybody))["code"] == 30906
        # Acks empty the queues, which frees the quota.
        for device in made:
            device.connect()
            waiting = gateway.view(device.cid)["queue"]["messages"]
            device.receive_and_ack(waiting)
        eventually(lambda: refused(lambda: gateway.push(made[0].cid, "x", ttl=600_000)) is None, "room")


def test_queued_bytes_are_held_with_few_messages_over_a_kill_until_the_device_acks(devices):
    with held(queuedBytes=12_000) as gateway:
        device = devices(gateway)
        device.close()
        eventually(lambda: not gateway.view(device.cid)["connected"], "the device's end")
        large = "x" * 3_000
        count = 0
        while count < 20 and not (body := refused(lambda: gateway.push(device.cid, large, ttl=600_000))):
            count += 1
            time.sleep(0.08)
        # Four of 3,000 bytes with their overhead. Each partition reports its counts every 50 ms.
        assert 4 <= count <= 6 and body["code"] == 30906 and "quota queuedBytes" in body["msg"], (count, body)
        used = shown(gateway)["queuedBytes"]["used"]
        assert 12_000 <= used == sum_of_queue(gateway) <= count * 3_200, used
        everybody = {"request_id": "f" * 20, "audience": "all", "push_message": {"transmission": "y"}}
        assert refused(lambda: gateway.api("POST", "push/all", everybody))["code"] == 30906
        gateway.process.kill()
        gateway.process.wait()
        gateway.start()
        eventually(lambda: shown(gateway)["queuedBytes"]["used"] == used, "the queue as it was")
        assert "quota queuedBytes" in refused(lambda: gateway.push(device.cid, "x", ttl=600_000))["msg"]
        # Another quota applies at once.
        reload(gateway, queuedBytes=used + 4_000)
        eventually(lambda: refused(lambda: gateway.push(device.cid, large, ttl=600_000)) is None, "the higher quota")
        reload(gateway, queuedBytes=used)
        eventually(lambda: refused(lambda: gateway.push(device.cid, "x", ttl=600_000)), "the lower quota")
        device.connect()
        device.receive_and_ack(gateway.view(device.cid)["queue"]["messages"])
        eventually(lambda: shown(gateway)["queuedBytes"]["used"] == sum_of_queue(gateway) == 0, "an empty queue")
        assert refused(lambda: gateway.push(device.cid, "x", ttl=600_000)) is None


def test_what_an_app_has_on_disk_is_held_for_publishes_and_new_devices(devices):
    with held(storedBytes=1 << 30) as gateway:
        watch = Watch(gateway)
        known = devices(gateway)
        # Forty messages were delivered. Their request ids and traces stay.
        for number in range(40):
            gateway.push(known.cid, str(number), ttl=600_000)
        known.receive_and_ack(40)

        def used():
            return shown(gateway)["storedBytes"]["used"]
        eventually(lambda: used() == 512 + 40 * 256 == sum_of_app(gateway, "stored_bytes"), f"a device and its messages, not {used()}")
        before = used()
        reload(gateway, storedBytes=before + 4_000)
        count = 0
        while count < 20 and not (body := refused(lambda: gateway.push(known.cid, "x" * 1_000, ttl=600_000))):
            count += 1
            time.sleep(0.08)
        # Each counts its queue's bytes and its remains. Each partition reports its counts every 50 ms.
        assert 3 <= count <= 5 and body["code"] == 30906 and "quota storedBytes" in body["msg"], (count, body)
        with pytest.raises(Closed) as closed:
            devices(gateway)
        assert closed.value.code == 201 and "quota storedBytes" in closed.value.close.reason, closed.value
        # A registered device may connect, also after a kill, and another app's devices may register.
        devices(gateway, NEIGHBOUR)
        full = used()
        gateway.process.kill()
        gateway.process.wait()
        gateway.start()
        eventually(lambda: used() == full, "the same after a kill")
        known.connect()
        assert "quota storedBytes" in refused(lambda: gateway.push(known.cid, "x", ttl=600_000))["msg"]
        with pytest.raises(Closed):
            devices(gateway)
        # The queue's bytes are free again, and the others are not.
        known.receive_and_ack(count)
        eventually(lambda: used() == 512 + (40 + count) * 256, "an empty queue")
        reload(gateway, storedBytes=1 << 30)
        eventually(lambda: refused(lambda: gateway.push(known.cid, "x", ttl=600_000)) is None, "the higher quota")
        devices(gateway)
        assert watch.grown("longwire_quota_refusals_total", kind="storedBytes") >= 2


def sum_of_queue(gateway):
    """Returns the app's queued bytes in the metrics, summed over both loops."""
    return sum_of_app(gateway, "queued_bytes")


def sum_of_app(gateway, figure):
    name = f'longwire_app_{figure}{{app="{gateway.app["appId"]}"'
    return sum(float(line.rsplit(" ", 1)[1]) for line in gateway.metrics().splitlines() if line.startswith(name))


def test_an_app_of_the_admin_api_gets_its_quotas_by_a_call():
    with held() as gateway:
        app = gateway.admin_call("POST", "/v1/apps", {"appId": "made", "quotas": {"devices": 1}})
        first = Device("127.0.0.1", gateway.device, "made")
        first.register(app["appSecret"])
        second = Device("127.0.0.1", gateway.device, "made")
        time.sleep(0.1)
        with pytest.raises(Closed):
            second.register(app["appSecret"])
        gateway.admin_call("PATCH", "/v1/apps/made", {"quotas": {"devices": 2}})
        second.register(app["appSecret"])
        with pytest.raises(Refused) as refusal:
            gateway.admin_call("PATCH", "/v1/apps/made", {"quotas": {"devices": -1}})
        assert refusal.value.status == 400 and "quotas.devices" in str(refusal.value.body)
        first.close()
        second.close()


def test_devices_that_wait_for_the_disk_together_pass_the_quota_by_none(devices):
    gateway = two_apps(limits=QUICK)
    gateway.sections["loops"] = 1
    with gateway:
        made = [devices(gateway) for _ in range(12)]
        for device in made:
            device.close()
        gateway.stop()
        gateway.sections["apps"][0]["quotas"] = {"devices": 4}
        gateway.config.write_text(json.dumps(gateway.sections))
        gateway.start()
        watch = Watch(gateway)
        answers = []

        def come(device):
            try:
                answers.append(device.connect())
            except Closed as closed:
                answers.append(closed)
        # No record is in memory, and all Hellos have arrived before the first is read.
        threads = [threading.Thread(target=come, args=(device,)) for device in made]
        all_at_once(gateway, threads)
        refusals = [answer for answer in answers if isinstance(answer, Closed)]
        assert len(answers) == 12 and len(refusals) == 8, answers
        assert all(one.code == 201 and "quota devices" in one.close.reason for one in refusals), refusals
        assert all(one.close.retry_after_min_ms == 30_000 for one in refusals)
        eventually(lambda: shown(gateway)["devices"] == {"limit": 4, "used": 4, "refused": 8}, "the count")
        assert watch.grown("longwire_quota_refusals_total", kind="devices") == 8
        # Refused devices left nothing that counts.
        for device in made:
            device.close()
        eventually(lambda: shown(gateway)["devices"]["used"] == 0, "the devices' ends")
        assert made[11].connect()


def test_a_registration_that_is_refused_after_all_leaves_no_device():
    """New devices race for the last place at two loops: each admits one before it knows the other's count."""
    with held(devices=1) as gateway:
        watch = Watch(gateway)
        answers, made = [], []

        def come():
            device = Device("127.0.0.1", gateway.device, gateway.app["appId"], timeout=15)
            made.append(device)
            try:
                answers.append(device.register(gateway.app["appSecret"]))
            except Closed as closed:
                answers.append(closed)

        surplus, rounds = 0, 0
        # The kernel decides in which rounds such a race occurs.
        while surplus < 2 and rounds < 25:
            rounds += 1
            threads = [threading.Thread(target=come) for _ in range(12)]
            all_at_once(gateway, threads)
            refusals = [answer for answer in answers if isinstance(answer, Closed)]
            assert all(one.code == 201 and "quota devices" in one.close.reason for one in refusals), refusals
            for device in made:
                device.close()
            eventually(lambda: shown(gateway)["devices"]["used"] == 0, "the devices' ends")
            welcomed = len(answers) - len(refusals)
            assert len(answers) == 12 * rounds and welcomed >= rounds
            surplus = watch.grown("longwire_devices_registered_total") - welcomed
        gateway.stop()
        words = [binary("longwire"), "store", "check", str(gateway.folder / "data"), "--json"]
        found = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stdout)
        assert found["isWhole"] and found["tables"]["device"]["rows"] == welcomed, found
        print(f"{welcomed} welcomed, {surplus:.0f} refused after their registration")
