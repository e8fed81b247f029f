"""Limits of an app in a cluster: rates and quotas apply to all gateways together, also when their counter moves."""

import subprocess
import threading
import time

import pytest
from cluster import Cluster, retried
from conftest import QUICK
from gateway import ADMIN_TOKEN, Refused, binary, eventually, wait_out_midnight
from redis_rig import RedisRig

PUSH = {"push_message": {"transmission": "x"}, "settings": {"ttl": 600_000}}
LEAST_SHARE = 4


@pytest.fixture(scope="module")
def rig():
    with RedisRig() as rig:
        yield rig


def most(bound, rest, gateways):
    """Returns the upper bound of grants: the bound plus the shares that other gateways held when it was reached."""
    return bound + (gateways - 1) * max(LEAST_SHARE, -(-rest // gateways))


def used(gateway):
    """Returns the day's lists that a gateway reports."""
    return gateway.api("GET", "report/push/count")["data"]["gt"]["list"]["push_num"]


def create(gateway):
    retried(lambda: gateway.api("POST", "push/list/message", PUSH))


def create_until_spent(gateway):
    """Creates lists until the day's quota is used up; retries temporary refusals."""
    count, end = 0, time.monotonic() + 60
    while time.monotonic() < end:
        try:
            create(gateway)
            count += 1
        except Refused as refused:
            if refused.body["code"] == 30008:
                return count
            assert refused.body["code"] == 30015, refused.body
            time.sleep(0.02)
    raise AssertionError("the quota was never used up")


def at_once(gateways, work):
    """Runs `work` for all gateways concurrently; returns the results."""
    answers = []
    threads = [threading.Thread(target=lambda one=one: answers.append(work(one))) for one in gateways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == len(gateways), "a caller failed"
    return answers


def owner(cluster):
    """Returns the gateway of part 0, which counts for all."""
    node = cluster.owners()[0]
    return next(one for one in cluster.running if cluster.map_of(one)["node"] == node)


def move_counter(cluster):
    """Moves part 0 to another gateway by command, and returns that gateway."""
    counter = owner(cluster)
    heir = next(one for one in cluster if one is not counter)
    done = subprocess.run(
        [binary("longwire"), "cluster", "move", "--part", "0", "--to", str(cluster.map_of(heir)["node"]),
         "--admin", f"127.0.0.1:{counter.admin}", "--admin-token", ADMIN_TOKEN],
        capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    cluster.wait_until_served()
    return heir


def test_a_daily_quota_holds_for_all_gateways_and_goes_on_when_its_counter_moves_or_dies(rig):
    wait_out_midnight()
    with Cluster(rig, limits=QUICK, app={"push": {"listsPerDay": 60}}) as cluster:

        def known(count):
            eventually(lambda: [used(one) for one in cluster.running] == [count] * len(cluster.running), f"{count} uses")

        at_once(cluster.gateways, lambda gateway: [create(gateway) for _ in range(8)])
        known(24)
        counter = owner(cluster)
        heir = move_counter(cluster)
        assert owner(cluster) is heir
        known(24)
        for _ in range(16):
            create(counter)
        known(40)
        heir.kill()
        cluster.wait_until_served()
        known(40)
        created = at_once(cluster.running, create_until_spent)
        total = 40 + sum(created)
        print(f"\n{total} of 60 lists of a day, {created} after the counter was killed")
        # A list that was answered as busy may count, too.
        assert total <= most(60, 20, 3)
        eventually(lambda: [used(one) for one in cluster.running] == [used(cluster.running[0])] * 2, "one number")
        assert 60 <= used(cluster.running[0]) <= most(60, 20, 3)


def test_a_rate_of_a_minute_holds_for_all_gateways_together(rig):
    bound = 60
    with Cluster(rig, limits=QUICK, app={"push": {"listsPerMinute": bound}}) as cluster:
        # All calls in one minute.
        while time.time() % 60 > 40:
            time.sleep(0.5)
        minute, granted, lock = int(time.time() / 60), [0], threading.Lock()

        def call(gateway):
            try:
                create(gateway)
            except Refused as refused:
                assert (refused.status, refused.body["code"]) == (403, 30015), refused.body
                return False
            with lock:
                granted[0] += 1
            return True

        def hammer(gateway):
            end = time.monotonic() + 15
            while granted[0] < bound and time.monotonic() < end:
                if not call(gateway):
                    time.sleep(0.01)
            # And more calls after the limit is reached.
            return [call(gateway) for _ in range(bound)]

        at_once(cluster.gateways, hammer)
        assert int(time.time() / 60) == minute, "the machine took twenty seconds for some hundred calls"
        print(f"\n{granted[0]} of {bound} lists of a minute at three gateways")
        assert bound <= granted[0] <= most(bound, bound, 3)


def test_a_gateway_with_all_parts_holds_no_more_records_than_its_loop_may(rig, new_device):
    bound = 100
    with Cluster(rig, count=1, limits={**QUICK, "cachedDevices": bound}) as cluster:

        def loaded():
            lines = cluster[0].metrics().splitlines()
            return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("longwire_devices_loaded"))

        for _ in range(2 * bound):
            retried(lambda: new_device(cluster[0])).close()
        eventually(lambda: loaded() <= bound, f"at most {bound} records in memory")


def test_a_queue_is_full_for_all_gateways_together_and_stays_so_when_its_counter_moves(rig, new_device):
    bound = 60
    with Cluster(rig, limits=QUICK, app={"quotas": {"queuedMessages": bound, "queuedBytes": 1 << 30, "storedBytes": 1 << 40}}) as cluster:
        devices = [retried(lambda: new_device(cluster[0])) for _ in range(6)]
        for device in devices:
            device.close()
        eventually(lambda: all(not cluster[0].view(one.cid)["connected"] for one in devices), "the devices' ends")

        def use(gateway, quota="queuedMessages"):
            return gateway.admin_call("GET", f"/v1/apps/{gateway.app['appId']}")["quotas"][quota]["used"]

        def push(gateway, number):
            body = gateway.push_body(devices[number % 6].cid, "x", ttl=600_000)

            def once():
                try:
                    gateway.api("POST", "push/single/cid", body)
                except Refused as refused:
                    if refused.status != 403 or refused.body["code"] != 30906:
                        raise
                    assert "quota queuedMessages" in refused.body["msg"], refused.body
                    return False
                return True
            return retried(once)

        # Each gateway has received the others' counts.
        eventually(lambda: push(cluster[0], 0), "a first message")
        eventually(lambda: [use(one) for one in cluster] == [1] * 3, "one number", 10)

        def hammer(gateway):
            count, refusals, end = 0, 0, time.monotonic() + 30
            while refusals < 6 and time.monotonic() < end:
                if push(gateway, count):
                    count, refusals = count + 1, 0
                else:
                    refusals += 1
                time.sleep(0.3)
            return count
        total = 1 + sum(at_once(cluster.gateways, hammer))
        print(f"\n{total} of {bound} queued messages at three gateways")
        # At most ten a second. A gateway's data is half a second old, on a busy machine six times that.
        assert bound <= total <= bound + 30, total

        # The same for bytes: a message of one character counts two or three blocks at every gateway.
        def byte_counts():
            return {use(one, "queuedBytes") for one in cluster}
        eventually(lambda: len(byte_counts()) == 1 and 128 * total <= min(byte_counts()) <= 192 * total, "one number of bytes")
        eventually(lambda: [use(one) for one in cluster] == [total] * 3, "one number", 10)
        move_counter(cluster)
        eventually(lambda: [use(one) for one in cluster] == [total] * 3, "one number at the heir", 15)
        eventually(lambda: len(byte_counts()) == 1 and 128 * total <= min(byte_counts()) <= 192 * total, "their bytes there", 15)
        # The app's other data: the devices, and the remains of the messages.
        stored = min(byte_counts()) + 6 * 512 + 256 * total
        eventually(lambda: {use(one, "storedBytes") for one in cluster} == {stored}, f"{stored} bytes stored", 15)
        assert not any(push(one, 0) for one in cluster)
        # Ended messages make room, wherever they were accepted.
        for device in devices:
            retried(device.connect)
            device.receive_and_ack(cluster[0].view(device.cid)["queue"]["messages"])
        eventually(lambda: all(push(one, 0) for one in cluster), "room", 10)
