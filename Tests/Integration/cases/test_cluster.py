"""Three gateways as one: each accepts any call and any device, and others take over the partitions of a dead one."""

import contextlib
import json
import re
import ssl
import socket
import subprocess
import threading
import time
import uuid

import longwire_client
import network
import pytest
import websocket as ws
from apple import FakeApple, Sender, settled
from certificates import authority
from cluster import Cluster, retried
from cluster_rounds import WalledRig
from conftest import QUICK
from gateway import ADMIN_TOKEN, APP, Refused, binary, eventually
from hostile import Watch, close_code, said_hello
from longwire_client import Closed, pb, prove
from painter import PAINT
from redis_rig import Gate, RedisRig


@pytest.fixture(scope="module")
def rig():
    with RedisRig() as rig:
        yield rig


@pytest.fixture(scope="module")
def shared(rig):
    with Cluster(rig, limits=QUICK) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared):
    """The cluster of most tests, after all partition moves of the previous test have ended."""
    eventually(shared.is_even, "an even share for each", 60.0)
    shared.wait_until_served()
    return shared


def come_back(device, gateway, timeout=30.0, **fields):
    """Connects through a gateway, and retries while the device's partition changes its owner."""
    device.address = ("127.0.0.1", gateway.device)
    end = time.monotonic() + timeout
    while True:
        try:
            return device.connect(**fields)
        except (Closed, OSError) as failure:
            if isinstance(failure, Closed) and failure.code and failure.code >= 300 and failure.code < 500:
                raise
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def devices(cluster, new_device, count=12, **fields):
    """Registers devices through each gateway in turn, each with its own `token`; their partitions are arbitrary."""
    token = fields.pop("token", None)

    def register(number):
        end = time.monotonic() + 30
        if token:
            fields["token"] = f"{number:04x}{token[4:]}"
        while True:
            try:
                return new_device(cluster[number % len(cluster.gateways)], **fields)
            except Closed as closed:
                # The device's partition may just be moving to another gateway.
                if closed.code != 202 or time.monotonic() > end:
                    raise
                time.sleep(0.1)

    return [register(number) for number in range(count)]


def test_parts_are_spread_evenly(cluster):
    eventually(cluster.is_even, "an even share for each")
    assert len(set(cluster.owners())) == 3


def test_a_gateway_that_says_ready_accepts_devices_of_each_of_its_parts(rig, new_device):
    """Readiness waits for the partitions' last step, in which they learn the broadcasts of the others."""
    for _ in range(3):
        cluster = Cluster(rig, count=1, parts=32, limits=QUICK)
        try:
            gateway = cluster[0].start()
            # Registrations choose partitions at random: 64 of them leave few of the 32 unused. One refusal fails the test.
            for _ in range(64):
                new_device(gateway).close()
        finally:
            cluster.__exit__()


def test_a_captured_registration_is_taken_once_by_all_gateways(cluster):
    for number in range(6):
        app = cluster[0].app
        hello = pb.Hello(
            app_id=app["appId"], registration=True, timestamp=int(time.time() * 1000), nonce=bytes([number]) * 8)
        captured = prove(hello, app["appSecret"].encode())
        first = said_hello(cluster[number % 3], captured)
        first.receive(pb.Welcome)
        for gateway in cluster.gateways:
            assert close_code(said_hello(gateway, captured)) == 300
        first.close()


def test_a_captured_registration_is_not_taken_by_the_next_owner_of_its_part(cluster):
    app = cluster[0].app
    hello = pb.Hello(app_id=app["appId"], registration=True, timestamp=int(time.time() * 1000), nonce=b"moved-on")
    captured = prove(hello, app["appSecret"].encode())
    first = said_hello(cluster[0], captured)
    first.receive(pb.Welcome)
    first.close()
    # The gateways assign registrations to partitions by their proofs.
    owners = cluster.owners()
    part = int.from_bytes(pb.Hello.FromString(captured[4:]).proof[:4], "big") % len(owners)
    heir = next(node for node in sorted(set(owners)) if node != owners[part])
    cluster[0].admin_call("POST", "/v1/cluster/move", {"part": part, "to": heir})
    eventually(lambda: cluster.owners()[part] == heir, "the part at its heir")
    for gateway in cluster.gateways:
        # "moved" as long as a gateway still hands the partition over.
        assert eventually(lambda: {202: None}.get(code := close_code(said_hello(gateway, captured)), code)) == 300


def test_any_gateway_takes_any_push_for_any_device(cluster, new_device):
    for number, device in enumerate(devices(cluster, new_device)):
        publisher = cluster[(number + 1) % 3]
        message = publisher.push(device.cid, f"to {number}")
        assert message["status"] == "successed_online"
        (got,) = device.receive_and_ack(1)
        assert got.payload == f"to {number}".encode()
        # The query goes to the third gateway.
        cluster[(number + 2) % 3].ends_as(message["msgId"], "delivered")


def register(device, timeout=30.0):
    """Registers, and retries while the device's partition changes its owner."""
    end = time.monotonic() + timeout
    while True:
        try:
            return device.register(APP["appSecret"])
        except Closed as closed:
            if closed.code != 202 or time.monotonic() > end:
                raise
            time.sleep(0.1)


def test_devices_over_a_websocket_and_tls_are_relayed_to_their_owners(rig, tmp_path):
    root = authority(tmp_path)
    server = root.sign("server")
    trusting = ssl.create_default_context(cafile=str(root.file))
    wire = lambda address, timeout: ws.Wire.to(address, timeout, tls=trusting)  # noqa: E731
    with Cluster(rig, count=2, limits=QUICK, certificate=(server.file, server.key)) as cluster, contextlib.ExitStack() as stack:
        made = []
        # Partitions are arbitrary: of a dozen devices some belong to the other gateway.
        for _ in range(12):
            device = longwire_client.Device("127.0.0.1", cluster[0].device_tls, APP["appId"], wire=wire)
            stack.callback(device.close)
            register(device)
            device.cid = device.state.cid.hex()
            made.append(device)
        for number, device in enumerate(made):
            for one in range(3):
                message = cluster[number % 2].push(device.cid, f"{one} to {number}" + "x" * 2_000)
                assert message["status"] == "successed_online"
            got = [message.payload for message in device.receive_and_ack(3)]
            assert got == [f"{one} to {number}".encode() + b"x" * 2_000 for one in range(3)]
            assert device.ping(7).nonce == 7
        relayed = re.search(r"longwire_devices_relayed_total (\d+)", cluster[0].metrics())
        assert int(relayed[1]) > 0


def test_offline_messages_wait_and_come_in_order_through_another_gateway(cluster, new_device):
    for number, device in enumerate(devices(cluster, new_device, 6, token="cd" * 32)):
        device.close()
        eventually(lambda: not cluster[0].view(device.cid)["connected"], "the device as absent")
        sent = [cluster[(number + step) % 3].push(device.cid, str(step), alert="A") for step in range(3)]
        assert {one["status"] for one in sent} == {"successed_offline"}
        come_back(device, cluster[(number + 1) % 3])
        assert [one.payload for one in device.receive_and_ack(3)] == [b"0", b"1", b"2"]
        for one in sent:
            cluster[number % 3].ends_as(one["msgId"], "deliveredOffline")


def test_handoff_jobs_of_all_parts_are_leased_and_settled_through_one_gateway(cluster, new_device):
    targets = devices(cluster, new_device, 9, token="ef" * 32)
    for device in targets:
        device.close()
    for device in targets:
        eventually(lambda: not cluster[0].view(device.cid)["connected"], "the device as absent")
    sent = {cluster[number % 3].push(one.cid, "x", alert="A")["msgId"] for number, one in enumerate(targets)}
    found = {}

    def look():
        for job in cluster[1].lease(wait=1):
            found[job["msgId"]] = job
        return sent <= set(found)

    eventually(look, "jobs of all parts")
    for name in sent:
        assert cluster[2].settle(found[name], "accepted") == "recorded"
        assert "vendorAccepted" in cluster[0].steps(name)


class Mute(Gate):
    """A proxy that, once muted, drops the answers of the connections that are open then."""

    def __init__(self, *arguments):
        self.muted = set()
        super().__init__(*arguments)

    def mute(self):
        with self._lock:
            self.muted |= self._pairs

    def _pump(self, source, sink, pair):
        super()._pump(source, Answers(sink, pair, self.muted) if source is pair.far else sink, pair)


class Answers:
    def __init__(self, sink, pair, muted):
        self.sink, self.pair, self.muted = sink, pair, muted

    def sendall(self, piece):
        if self.pair not in self.muted:
            self.sink.sendall(piece)

    def shutdown(self, how):
        self.sink.shutdown(how)


def test_jobs_of_a_lease_whose_answer_was_lost_with_the_link_are_leased_again_at_once(rig, new_device):
    # With one partition each, the first question over the link is for half of the jobs.
    cluster = Cluster(rig, 2, parts=2, limits=QUICK)
    with Mute(cluster[1].cluster_port) as link:
        cluster[1].sections["cluster"]["advertise"] = link.address
        with cluster:
            targets = devices(cluster, new_device, 12, token="ef" * 32)
            for device in targets:
                device.close()
            for device in targets:
                eventually(lambda: not cluster[0].view(device.cid)["connected"], "the device as absent")
            sent = {retried(lambda: cluster[0].push(device.cid, "x", alert="A"))["msgId"] for device in targets}
            link.mute()
            found = []

            def look():
                # Every lease is longer than the test waits.
                found.extend(job["msgId"] for job in cluster[0].lease(lease=300, wait=1))
                return sent <= set(found)

            eventually(look, lambda: f"{len(found)} of the jobs of {len(sent)} messages")
            assert len(found) == len(sent)
            unsent = re.search(r'longwire_handoff_results_total{channel="apns",outcome="unsent"} (\d+)', cluster[1].metrics())
            assert int(unsent[1]) > 0, "the link broke without a lost lease"


def test_lists_tags_aliases_and_broadcasts_reach_devices_of_every_gateway(cluster, new_device):
    targets = devices(cluster, new_device, 9)
    cids = [one.cid for one in targets]
    task = cluster[0].api("POST", "push/list/message", {"push_message": {"transmission": "list"}})["data"]["taskid"]
    cluster[1].api("POST", "push/list/cid", {"audience": {"cid": cids}, "taskid": task, "is_async": False})
    for device in targets:
        assert device.receive_and_ack(1)[0].payload == b"list"
    report = {}

    def counted():
        report.update(cluster[2].api("GET", f"report/push/task/{task}")["longwire"]["tasks"][task])
        return (report["accepted"], report["pending"]) == (9, 0)

    eventually(counted, "the report of the list")
    # A single push, too, whichever gateway owns it.
    single = cluster[0].push(cids[0], "single")["taskId"]
    targets[0].receive_and_ack(1)
    for gateway in cluster.gateways:
        assert retried(lambda: gateway.api("GET", f"report/push/task/{single}"), 10)["code"] == 0
    cluster[0].api("PUT", "user/custom_tag/batch/odd", {"cid": cids[1::2]})
    body = {"request_id": "broadcast-" + task[-12:], "audience": "all", "push_message": {"transmission": "all"}}
    cluster[2].api("POST", "push/all", body)
    for device in targets:
        assert device.receive_and_ack(1)[0].payload == b"all"
    # A device's partition and its alias's partition may be local or remote, so each combination occurs.
    for number, cid in enumerate(cids):
        cluster[number // 3].api("POST", "user/alias", {"data_list": [{"cid": cid, "alias": f"boss{number}"}]})
        for gateway in cluster.gateways:
            assert gateway.api("GET", f"user/cid/alias/boss{number}")["data"]["cid"] == [cid]


def test_a_killed_gateways_parts_are_served_by_the_others_and_nothing_is_lost(rig, new_device):
    with Cluster(rig, limits=QUICK) as cluster:
        targets = devices(cluster, new_device, 12)
        waiting = {}
        for device in targets:
            device.close()
        for number, device in enumerate(targets):
            eventually(lambda: not cluster[0].view(device.cid)["connected"], "the device as absent")
            waiting[device.cid] = [cluster[number % 3].push(device.cid, f"{number}.{step}")["msgId"] for step in range(3)]
        cluster[1].kill()
        survivors = [cluster[0], cluster[2]]
        cluster.wait_until_served()
        for number, device in enumerate(targets):
            come_back(device, survivors[number % 2])
            got = device.receive_and_ack(3)
            assert [one.payload for one in got] == [f"{number}.{step}".encode() for step in range(3)]
            for name in waiting[device.cid]:
                survivors[(number + 1) % 2].ends_as(name, "deliveredOffline")
        # The killed gateway restarts and gets its share.
        cluster[1].start()
        eventually(lambda: len(set(cluster.owners())) == 3, "parts at the gateway that is back")
        cluster.wait_until_served()
        for number, device in enumerate(targets):
            message = retried(lambda: cluster[1].push(device.cid, "again"))
            come_back(device, cluster[number % 3])
            assert [one.payload for one in device.receive_and_ack(1)] == [b"again"]
            # Flagged as offline, unless the device was still connected.
            eventually(
                lambda: cluster[0].trace(message["msgId"])["state"] in ("delivered", "deliveredOffline"), "the end")


def test_a_takeover_with_alerts_on_their_way_shows_each_once(rig, new_device):
    count = 24
    with Cluster(rig, limits=QUICK) as cluster, FakeApple() as apple:
        targets = devices(cluster, new_device, count, token=64 * "a")
        for device in targets:
            device.close()
        for device in targets:
            eventually(lambda: not cluster[0].view(device.cid)["connected"], "the device as absent")
        # Apple answers when the dead gateway's partitions have no owner yet.
        apple.play({"rules": [{"delayMilliseconds": 1_000}]})
        with Sender(cluster[0], apple, None, {"requestMilliseconds": 8_000}, leaseSeconds=60, waitSeconds=1) as sender:
            messages = [
                retried(lambda: cluster[number % 3].push(device.cid, "x", strategy=2, alert="A"))["msgId"]
                for number, device in enumerate(targets)
            ]
            eventually(lambda: len(apple.requests()) == count, "all alerts at Apple")
            cluster[1].kill()
            cluster.wait_until_served()
            for message in messages:
                retried(lambda: cluster[2].ends_as(message, "handedOff"))
            settled(sender, count)
            assert len(apple.requests()) == count and sender.metric("outcomes_dropped_total") == 0


def test_other_parts_are_opened_and_gateways_start_while_part_0_cannot_be_opened(rig, new_device):
    with Cluster(rig, limits=QUICK) as cluster:
        targets = devices(cluster, new_device, 12)
        for device in targets:
            device.close()
        by_node = {
            node["node"]: gateway for node in cluster.map_of(cluster[0])["nodes"] for gateway in cluster
            if node["address"].endswith(f":{gateway.cluster_port}")}
        owners = cluster.owners()
        dead = by_node[owners[0]]
        others = [one for one in cluster if one is not dead]
        token = others[0].authenticate()
        # A damaged entry at the end of the log of part 0, whose owner is killed.
        log = f"{{lw:{cluster.name}:p0}}:log"
        epoch = rig.call("XREVRANGE", log, "+", "-", "COUNT", 1, key=log)[0][0].decode().split("-")[0]
        entry = f"{epoch}-{1 << 40}"
        rig.call("XADD", log, entry, "q", "damage", key=log)
        dead.kill()
        orphans = [part for part, node in enumerate(owners) if node == owners[0] and part != 0]
        assert orphans, "the owner of part 0 has others"

        def are_open():
            found = cluster.owners(others[0])
            return found[0] is None and all(found[part] not in (None, owners[0]) for part in orphans)

        eventually(are_open, "owners of the other parts", 30.0)

        def reach(gateway, device, text):
            """Pushes through a gateway for a few seconds; returns False if the device's partition has no owner."""
            try:
                retried(lambda: gateway.push(device.cid, text), 5.0)
            except Refused:
                return False
            come_back(device, others[0])
            assert device.receive_and_ack(1)[0].payload == text.encode()
            device.close()
            return True

        served = [device for device in targets if reach(others[1], device, "first")]
        assert len(served) >= 6, f"{len(served)} of 12 devices are served; an eighth of all should not be"
        # A newly started gateway serves, too. It does not know which earlier tokens are void, so it refuses them.
        dead.start()
        eventually(lambda: len(set(cluster.owners(dead)) - {None}) == 3, "parts at the gateway that is back", 60.0)
        dead._token = None
        assert reach(dead, served[0], "second")
        with pytest.raises(Refused) as refused:
            dead.call("GET", f"/v2/{dead.app['appId']}/user/status/{served[0].cid}", headers={"token": token})
        assert refused.value.body["code"] == 10001, refused.value
        others[0].call("GET", f"/v2/{dead.app['appId']}/user/status/{served[0].cid}", headers={"token": token})
        assert cluster.owners()[0] is None
        # After the repair the next attempt opens part 0, which has this information.
        rig.call("XDEL", log, entry, key=log)
        cluster.wait_until_served(120.0)

        def is_good():
            try:
                return dead.call(
                    "GET", f"/v2/{dead.app['appId']}/user/status/{served[0].cid}", headers={"token": token})
            except Refused as refused:
                assert refused.status == 401, refused
                return None

        eventually(is_good, "the earlier token as good")
        # A daily report needs the counts of every partition.
        day = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 86_400))
        report = retried(lambda: dead.api("GET", f"report/push/date/{day}"))
        assert report["code"] == 0, report
        for device in targets:
            retried(lambda: cluster[0].push(device.cid, "last"))


def test_a_foreign_fence_of_a_later_epoch_is_named_and_the_part_goes_on(rig, cluster, new_device):
    (device,) = devices(cluster, new_device, 1)
    device.close()
    eventually(lambda: not cluster[0].view(device.cid)["connected"], "the device as absent")
    logs = [f"{{lw:{cluster.name}:p{part}}}:log" for part in range(cluster.parts)]

    def last(log):
        facts = rig.call("XINFO", "STREAM", log, key=log)
        return facts[facts.index(b"last-generated-id") + 1].decode()

    # The log that has this device's messages grows with each.
    grown, sent = set(logs), []
    for number in range(3):
        before = [last(log) for log in logs]
        sent.append(retried(lambda number=number: cluster[number].push(device.cid, f"before {number}"))["msgId"])
        grown &= {log for log, id in zip(logs, before) if last(log) != id}
    log = min(grown)
    epoch = int(last(log).split("-")[0])
    entry = f"{epoch + 1_000}-0"
    rig.call("XADD", log, entry, "f", "123456", key=log)
    # The owner finds the entry with its next group, and the partition is opened again under a still later epoch.
    retried(lambda: cluster[2].push(device.cid, "after"))
    eventually(lambda: any(f"XDEL {log} {entry}" in one.log() for one in cluster), "the advice in the owner's log", 30)
    cluster.wait_until_served()
    assert int(last(log).split("-")[0]) > epoch + 1_000
    come_back(device, cluster[1])
    got = device.receive_and_ack(4)
    assert [one.payload for one in got] == [b"before 0", b"before 1", b"before 2", b"after"]
    for message in sent:
        cluster[2].ends_as(message, "deliveredOffline")


def sent_through(device, cluster, number, payload):
    """Sends an upstream message under the same number through any serving gateway until it is accepted."""

    def look():
        try:
            if device.connection is None:
                come_back(device, cluster.running[number % len(cluster.running)])
            device.connection.send(pb.Upstream(request=number, payload=payload))
            return device.receive(pb.UpstreamResult).code == 0
        except (Closed, OSError):
            device.close()
            return False

    eventually(look, f"message {number} as taken")


def test_feeds_hold_through_any_gateway_and_over_a_takeover(rig, new_device):
    """Messages and events of all partitions are read and acked through any gateway, and a kill loses none."""
    with Cluster(rig, limits=QUICK, app={"upstream": {}, "events": {}}) as cluster:
        targets = devices(cluster, new_device, 6)
        items, events = [], []

        def follow(gateway):
            for path, list in (("upstream", items), ("events", events)):
                page = retried(lambda: gateway.admin_call("GET", f"/v1/apps/demo/{path}?max=500"))
                list += page["items"]
                retried(lambda: gateway.admin_call("POST", f"/v1/apps/demo/{path}/ack", {"cursor": page["cursor"]}))

        messages = []
        for step in range(1, 4):
            for number, device in enumerate(targets):
                sent_through(device, cluster, step, f"{number}.{step}".encode())
                messages.append(retried(lambda: cluster[0].push(device.cid, "x"))["msgId"])
                device.receive_and_ack(1)
        follow(cluster[2])
        for message in messages:
            retried(lambda: cluster[0].ends_as(message, "delivered"))
        # The gateway that serves the app's home, whichever it is.
        for victim in (0, 1):
            cluster[victim].kill()
            cluster.wait_until_served()
            step = 4 + victim
            for number, device in enumerate(targets):
                device.close()
                sent_through(device, cluster, step, f"{number}.{step}".encode())
            follow(cluster[2])
            cluster[victim].start()
            cluster.wait_until_served()
        follow(cluster[1])
        for number, device in enumerate(targets):
            got = [item["payload"] for item in items if item["cid"] == device.cid]
            assert got == [f"{number}.{step}" for step in range(1, 6)]
        eventually(
            lambda: follow(cluster[2]) or set(messages) <= {item.get("msgId") for item in events}, "every end as an event")
        assert len({item["cursor"] for item in items}) == len(items)


def test_a_planned_stop_hands_all_parts_over(rig, new_device):
    with Cluster(rig, limits=QUICK, count=2) as cluster:
        targets = devices(cluster, new_device, 8)
        sent = [cluster[number % 2].push(one.cid, "before") for number, one in enumerate(targets)]
        assert cluster[0].stop() == 0
        cluster.wait_until_served()
        assert len(set(cluster.owners())) == 1
        for device, message in zip(targets, sent):
            come_back(device, cluster[1])
            assert device.receive_and_ack(1)[0].payload == b"before"
            trace = cluster[1].trace(message["msgId"])
            assert trace["state"] in ("delivered", "deliveredOffline", "pending"), trace


def test_a_drained_gateways_devices_come_back_through_the_others_and_nothing_is_lost(cluster, new_device):
    gateway, others = cluster[0], [cluster[1], cluster[2]]
    # All devices connect through the drained gateway. Most of their partitions are elsewhere.
    targets = [retried(lambda: new_device(gateway)) for _ in range(15)]
    # Sent and not acked when their session ends.
    before = [retried(lambda: others[0].push(one.cid, "before")) for one in targets]
    began = time.monotonic()
    drain = subprocess.Popen(
        [binary("longwire"), "drain", "--pace", "10/s", "--alternate", f"127.0.0.1:{others[0].device}",
         "--admin", f"127.0.0.1:{gateway.admin}"],
        env={"LONGWIRE_ADMIN_TOKEN": ADMIN_TOKEN, "PATH": "/usr/bin:/bin"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True)
    try:
        ends, during, codes = [], [], []
        for number, device in enumerate(targets):
            with pytest.raises(Closed) as closed:
                while True:
                    device.receive(timeout=30)
            # A device whose partition is elsewhere was relayed: its connection ends without an alternate.
            codes.append(closed.value.code)
            if closed.value.code is not None:
                assert closed.value.close.alternate == f"127.0.0.1:{others[0].device}"
            ends.append(time.monotonic() - began)
            # A disconnected device gets a message during the drain, and reconnects through another gateway.
            during.append(retried(lambda: others[1].push(device.cid, "during")))
            come_back(device, others[number % 2])
        # Fifteen at ten a second. Sequential reads take no longer than the drain.
        assert 0.8 < ends[-1] < 10, ends
        assert set(codes) <= {200, None}, codes
        output, _ = drain.communicate(timeout=30)
        assert drain.returncode == 0 and output.splitlines()[-1].startswith("no device is connected"), output
        assert gateway.admin_call("GET", "/v1/drain")["state"] == "drained"
        # Its partitions stay: it has no devices and is still a member.
        assert cluster.is_even()
        for number, (device, first, second) in enumerate(zip(targets, before, during)):
            assert [one.payload for one in device.receive_and_ack(2)] == [b"before", b"during"]
            for message in (first, second):
                eventually(
                    lambda: others[number % 2].trace(message["msgId"])["state"] in ("delivered", "deliveredOffline"),
                    "the end of a message")
    finally:
        drain.kill()
        drain.communicate()
        gateway.admin_call("POST", "/v1/drain", {"undo": True})
    come_back(targets[0], gateway)


def test_a_gateway_that_alone_loses_redis_sends_its_devices_to_the_others_and_takes_them_back(new_device):
    """The other gateways hold their leases and own its partitions, so it must not keep its devices."""
    with network.Loopback() as net:
        servers = [net.place(f"server-{number}") for number in range(6)]
        with WalledRig(net, servers) as own:
            places = [net.place(f"gateway-{number}") for number in range(2)]
            cluster = Cluster(own, count=2, limits=QUICK, places=places)
            for one in cluster:
                one.sections["store"]["redis"]["nodes"] = own.nodes
                one.place.is_of = lambda inode, one=one: one.process and network.has_socket(one.process.pid, inode)
            with cluster:
                cut, other = cluster
                targets = [retried(lambda: new_device(cut)) for _ in range(6)]
                for server in servers:
                    net.sever(cut.place, server)
                ends = set()
                for device in targets:
                    with pytest.raises(Closed) as closed:
                        while True:
                            device.receive(timeout=40)
                    ends.add(closed.value.code)
                # A partition may have moved to the other gateway before.
                assert ends <= {200, 202, None}, ends
                with pytest.raises(Refused) as page:
                    cut.call("GET", "/readyz", port=cut.admin)
                assert page.value.body["status"] == "redisAway"
                assert "are disconnected and go to them" in page.value.body["reason"]
                # The other gateway accepts and delivers their messages during the cut.
                for device in targets:
                    come_back(device, other)
                    retried(lambda: other.push(device.cid, "meanwhile"))
                    assert [one.payload for one in device.receive_and_ack(1)] == [b"meanwhile"]
                for server in servers:
                    net.join(cut.place, server)
                eventually(lambda: "cutOffDrainEnded" in cut.log(), "the end of the cut")
                come_back(targets[0], cut)


def test_a_stranger_and_a_wrong_secret_get_no_link(rig):
    with Cluster(rig, limits=QUICK, count=2) as cluster:
        for rubbish in (b"GET / HTTP/1.0\r\n\r\n", bytes(range(256)) * 64, b""):
            with socket.create_connection(("127.0.0.1", cluster[0].cluster_port), timeout=5) as stranger:
                stranger.sendall(rubbish)
        wrong = cluster.make(2)
        wrong._secret("cluster", "another-secret-that-is-long-enough-0123456789")
        cluster.gateways.append(wrong)
        with pytest.raises(AssertionError) as failure:
            wrong.start()
        assert "cluster.secretFile" in str(failure.value)
        cluster.wait_until_served()
        assert len(set(cluster.owners())) == 2


def longwire(cluster, *words):
    """Runs the command against the first gateway; returns exit code and output."""
    admin = ["--admin", f"127.0.0.1:{cluster[0].admin}", "--admin-token", ADMIN_TOKEN]
    done = subprocess.run(
        [binary("longwire"), *words, *(admin if words[0] == "cluster" else [])], capture_output=True, text=True, timeout=60,
        check=False)
    return done.returncode, done.stdout + done.stderr


def test_parts_are_shown_moved_and_given_away_by_command(rig):
    with Cluster(rig, limits=QUICK) as cluster:
        code, text = longwire(cluster, "cluster", "status", "--table")
        assert code == 0 and "parts without owner: none" in text and len(text.splitlines()) == 6, text
        assert all(f"127.0.0.1:{one.cluster_port}" in text for one in cluster)
        code, text = longwire(cluster, "cluster", "status")
        assert code == 0 and len(json.loads(text)["nodes"]) == 3, "a pipe gets JSON"
        target = next(node for node in cluster.owners() if node != cluster.owners()[5])
        address = next(one["address"] for one in cluster.map_of(cluster[0])["nodes"] if one["node"] == target)
        code, text = longwire(cluster, "cluster", "move", "--part", "5", "--to", address)
        assert code == 0 and f"part 5 is served by gateway {target}" in text
        assert cluster.owners()[5] == target
        code, text = longwire(cluster, "cluster", "drain", "--node", address)
        assert code == 0 and "left" in text and "has given all its parts away" in text, text
        assert target not in cluster.owners() and None not in cluster.owners()
        drained = next(one for one in cluster if cluster.map_of(one)["node"] == target)
        assert readiness(drained) == (503, "draining", "this gateway gives its parts to the others")
        assert longwire(cluster, "cluster", "drain", "--node", str(target), "--undo")[0] == 0
        eventually(lambda: target in cluster.owners(), "parts at the gateway again")
        eventually(lambda: readiness(drained)[0] == 200, "a gateway that is ready again")
        code, text = longwire(cluster, "cluster", "move", "--part", "200")
        assert code == 1 and "no such part" in text
        code, text = longwire(cluster, "cluster", "drain", "--node", "999")
        assert code == 1 and "has the address or number 999" in text


def readiness(gateway):
    """Returns status, state and reason of /readyz."""
    try:
        status, body = 200, gateway.call("GET", "/readyz", port=gateway.admin)
    except Refused as refused:
        status, body = refused.status, refused.body
    return status, body["status"], body.get("reason")


def figures(gateway):
    """Returns the samples of /metrics."""
    lines = [line for line in gateway.metrics().splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_commands_for_a_cluster_say_clearly_when_there_is_none(gateway):
    for words in (["status"], ["drain"], ["move", "--part", "1", "--to", "1"]):
        code, text = longwire([gateway], "cluster", *words)
        assert code == 1 and "is no member of a cluster" in text, text


def test_servers_are_checked_by_command(rig, cluster):
    good = ",".join(server.address for server in rig.servers[:2])
    assert longwire(cluster, "redis", "check", good)[0] == 0
    with RedisRig(primaries=1, replicas=0, is_cluster=False, extra={"appendfsync": "no"}) as wrong:
        code, text = longwire(cluster, "redis", "check", wrong.servers[0].address)
        assert code == 1 and "appendfsync" in text and "replica" in text


def test_wrong_settings_of_the_servers_are_refused_with_the_line_to_change(rig):
    with RedisRig(primaries=1, replicas=1, is_cluster=False, extra={"appendfsync": "everysec"}) as wrong:
        cluster = Cluster(wrong, count=1)
        try:
            with pytest.raises(AssertionError) as failure:
                cluster[0].__enter__()
            assert "appendfsync" in str(failure.value) and "always" in str(failure.value)
        finally:
            cluster.__exit__()


def test_what_a_redis_server_says_drives_no_terminal(rig):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def answer():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(65_536)
                        connection.sendall(f"-WRONGPASS {PAINT}fine\r\n".encode())

        threading.Thread(target=answer, daemon=True).start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        cluster = Cluster(rig, count=1)
        cluster[0]._secret("redis", "password")
        cluster[0].sections["store"]["redis"].update(nodes=[address], passwordFile=str(cluster[0].folder / "redis"))
        try:
            cluster[0].launch()
            assert cluster[0].process.wait(30) == 78
            # The error is plain text and not a log line.
            log = cluster[0].log()
            assert "\\u001b[H\\u001b[Jfine" in log and "\x1b" not in log, log
        finally:
            cluster.__exit__()
            listener.shutdown(socket.SHUT_RDWR)


def test_a_server_that_hides_its_settings_is_vouched_for_by_the_operator():
    with RedisRig(primaries=1, replicas=1, is_cluster=False, extra={"rename-command": ["CONFIG", ""]}) as hidden:
        refused = Cluster(hidden, count=1, limits=QUICK)
        try:
            with pytest.raises(AssertionError) as failure:
                refused[0].__enter__()
            text = str(failure.value)
            assert "appendfsync is unknown" in text and "store.redis.assumesFsync" in text, text
            assert refused[0].process.wait(30) == 78
        finally:
            refused.__exit__()
        done = subprocess.run([binary("longwire"), "redis", "check", hidden.servers[0].address], capture_output=True, text=True,
                              timeout=60, check=False)
        unread = [line for line in done.stdout.splitlines() if line.startswith("not checked: ")]
        # One line for each server. The other two required settings are read from INFO.
        assert done.returncode == 0 and len(unread) == 2, done.stdout + done.stderr
        assert all("appendfsync is unknown" in line for line in unread), unread
        vouching = Cluster(hidden, count=1, limits=QUICK)
        vouching[0].sections["store"]["redis"]["assumesFsync"] = True
        with vouching:
            assert "appendfsync is unknown" in vouching[0].log()


def test_a_start_waits_while_redis_is_in_passing_trouble(tmp_path):
    """A missing server, a loading one and a missing replica: not ready with the reason, no exit, and recovery."""
    with RedisRig(primaries=1, replicas=1, is_cluster=False) as small:
        for server in small.servers:
            server.kill()
        cluster = Cluster(small, count=1)
        gateway = cluster[0]
        # The reason is that of the last server that was asked.
        gateway.sections["store"]["redis"]["nodes"] = [small.servers[0].address]
        try:
            gateway.launch()

            def waits_for(word):
                with contextlib.suppress(OSError):
                    status, said, reason = readiness(gateway)
                    return status == 503 and said == "starting" and word in (reason or "")
                return False

            eventually(lambda: waits_for("no server of"), "a start that waits for a server")
            assert gateway.call("GET", "/healthz", port=gateway.admin) == {"status": "ok"}
            with pytest.raises(Refused) as refused:
                gateway.call("GET", "/readyz")
            assert refused.value.status == 503, "the push API's listener answers health checks, too"
            small.servers[0].start()
            eventually(lambda: waits_for("connected replicas"), "a start that waits for a replica")
            assert gateway.process.poll() is None and "startWaits" in gateway.log()
            # Each key delays the load. After every 1,024th key the server replies that it is loading.
            with small.servers[0].connect() as connection:
                for begin in range(0, 30_000, 1_000):
                    for number in range(begin, begin + 1_000):
                        connection.send("SET", f"load:{number}", "x")
                    for _ in range(1_000):
                        connection.read()
            small.servers[0].kill()
            small.servers[0].launch({"key-load-delay": "200"})
            eventually(lambda: waits_for("LOADING"), "a start that waits for a server that loads")
            eventually(lambda: waits_for("connected replicas"), "a start that waits for a replica again")
            # A signal ends the wait cleanly.
            assert gateway.stop() == 0
            gateway.process = gateway.spawn()
            eventually(lambda: waits_for("connected replicas"), "a start that waits again")
            small.servers[1].start()
            small.servers[1].call("REPLICAOF", small.servers[0].host, small.servers[0].port)
            eventually(gateway.is_ready, "readiness of the gateway")
        finally:
            cluster.__exit__()


def test_a_second_gateway_with_the_same_address_does_not_start(rig):
    with Cluster(rig, count=1, limits=QUICK) as cluster:
        twin = cluster.make(1)
        twin.sections["cluster"]["advertise"] = f"127.0.0.1:{cluster[0].cluster_port}"
        try:
            with pytest.raises(AssertionError) as failure:
                twin.start()
            assert "cluster.advertise" in str(failure.value) and f"{cluster[0].cluster_port}" in str(failure.value)
            assert twin.process.wait(30) == 78
        finally:
            twin.__exit__()
        assert len(cluster.map_of(cluster[0])["nodes"]) == 1


def test_a_refused_call_says_that_it_may_be_repeated(rig, new_device):
    """Publishes are refused and sessions stay while Redis is unavailable; everything recovers automatically."""
    with RedisRig(primaries=1, replicas=1, is_cluster=False) as own, Cluster(own, limits=QUICK, count=1) as cluster:
        (gateway,) = cluster.gateways
        device = new_device(gateway)
        for server in own.servers:
            server.stop()

        def refused():
            try:
                gateway.call("GET", "/readyz", port=gateway.admin)
                return False
            except Refused as answer:
                return answer.status == 503

        eventually(refused, "a gateway that says that it is not ready")
        for server in own.servers:
            server.resume()
        message = retried(lambda: gateway.push(device.cid, "back"))
        assert device.receive_and_ack(1)[0].payload == b"back"
        gateway.ends_as(message["msgId"], "delivered")


def registration(app, part, parts):
    """Returns a registration for a device of this partition; gateways assign registrations by their proofs."""
    while True:
        hello = pb.Hello(
            app_id=app["appId"], registration=True, timestamp=int(time.time() * 1000), nonce=uuid.uuid4().bytes)
        proved = prove(hello, app["appSecret"].encode())
        if int.from_bytes(pb.Hello.FromString(proved[4:]).proof[:4], "big") % parts == part:
            return proved


def comes_in(gateway, hello, stack, tries=10):
    """Connects until a Welcome, and follows the retry time of each refusal; returns the Welcome."""
    for _ in range(tries):
        one = stack.enter_context(contextlib.closing(said_hello(gateway, hello())))
        try:
            return one.receive(pb.Welcome)
        except Closed as closed:
            assert closed.code == 201, closed
            time.sleep(closed.close.retry_after_min_ms / 1_000)
    return None


def test_devices_of_other_parts_are_welcomed_while_a_primary_stands_still():
    """More of its own devices arrive than may wait; those above the bound get a retry time."""
    limits = {**QUICK, "welcomeSliceMicroseconds": 100, "welcomeWaitMilliseconds": 8_000}
    # No replica takes over within the test.
    with RedisRig(node_timeout=120_000) as rig, Cluster(rig, limits=limits, count=1) as cluster, contextlib.ExitStack() as stack:
        (gateway,) = cluster.gateways
        app, parts = gateway.app, cluster.parts
        homes = [rig.primary_of(f"{{lw:{cluster.name}:p{part}}}:log") for part in range(parts)]
        register = rig.primary_of(f"{{lw:{cluster.name}}}")
        silent = next(home for home in homes if home is not register)
        standing = [part for part in range(parts) if homes[part] is silent]
        others = [part for part in range(parts) if homes[part] is not silent]
        known = []
        for number in range(150):
            one = said_hello(gateway, registration(app, standing[number % len(standing)], parts))
            known.append(one.receive(pb.Welcome))
            one.close()
        watch = Watch(gateway)
        silent.stop()
        waiting = []
        try:
            for number, welcome in enumerate(known):
                hello = pb.Hello(app_id=app["appId"], cid=welcome.cid, timestamp=int(time.time() * 1000) + number + 1)
                waiting.append(stack.enter_context(contextlib.closing(said_hello(gateway, prove(hello, welcome.device_secret)))))
            # Devices of other partitions are queued after all of them.
            for number in range(30):
                # A busy machine may refuse some with Close 201 and a retry time, because their expected wait exceeds the limit.
                assert comes_in(gateway, lambda number=number: registration(app, others[number % len(others)], parts), stack)
            eventually(lambda: watch.closed("overloaded") > 0, "devices that are told to come back")
        finally:
            silent.resume()
        # Each of them either got a retry time or is welcomed now.
        ends = [one.frame(timeout=20) for one in waiting]
        assert {type(end) for end in ends} == {pb.Close, pb.Welcome}
        closes = [end for end in ends if isinstance(end, pb.Close)]
        assert all((end.code, end.retry_after_min_ms, end.retry_after_max_ms) == (201, 1_000, 15_000) for end in closes)
        assert sum(isinstance(end, pb.Welcome) for end in ends) >= 16


class ShiftedClock(Gate):
    """A proxy before a server whose clock appears `shift` seconds off: timestamps in replies are changed."""

    shift = 0

    def _pump(self, source, sink, pair):
        if source is pair.far:
            source = ShiftedReplies(source, self)
        super()._pump(source, sink, pair)


class ShiftedReplies:
    """The server's side of a connection; the number of bytes does not change."""

    def __init__(self, source, clock):
        self.source, self.clock = source, clock

    def __getattr__(self, name):
        return getattr(self.source, name)

    def recv(self, count):
        seconds = self.clock.shift

        def moved(match):
            factor = 1 if match[1] == b"$10" else 1000
            return b"%s\r\n%d\r\n" % (match[1], int(match[2]) + seconds * factor)

        piece = self.source.recv(count)
        return re.sub(rb"(\$10|\$13)\r\n(1\d{9}|1\d{12})\r\n", moved, piece) if seconds else piece


def test_a_gateway_with_a_wrong_clock_waits_at_its_start_and_a_running_one_warns():
    with RedisRig(primaries=1, replicas=1, is_cluster=False) as rig:
        clock = ShiftedClock(rig.servers[0].port)

        def make():
            cluster = Cluster(rig, count=1, limits=QUICK)
            cluster[0].sections["store"]["redis"]["nodes"] = [clock.address]
            return cluster

        for shift, side in ((30, "behind"), (-30, "ahead of")):
            clock.shift = shift
            cluster = make()
            gateway = cluster[0]
            try:
                gateway.launch()
                eventually(lambda: "startWaits" in gateway.log(), "a start that waits for the clock")
                text = gateway.log()
                assert "the clock of this machine is" in text and side in text and "chronyc" in text, text
                clock.shift = 0
                eventually(gateway.is_ready, "readiness of the gateway")
            finally:
                cluster.__exit__()
        clock.shift = 0
        with make() as cluster:
            clock.shift = 5
            eventually(lambda: "clusterClockOff" in cluster[0].log(), "a warning of the clock")
            offset = figures(cluster[0])["longwire_cluster_clock_offset_seconds"]
            assert -5.5 < offset < -4.5
            clock.shift = 0
            eventually(lambda: "clusterClockAgrees" in cluster[0].log(), "the end of the warning")
        clock.close()


def test_a_cluster_shows_its_figures_and_what_is_missing(rig, new_device):
    with Cluster(rig, limits=QUICK) as cluster:
        for number, device in enumerate(devices(cluster, new_device, 6)):
            cluster[number % 3].push(device.cid, "x")
        pages = [figures(one) for one in cluster]
        for page in pages:
            assert page["longwire_cluster_members"] == 3
            assert page['longwire_cluster_parts{state="unowned"}'] == 0
            assert page["longwire_cluster_lease_age_seconds"] < 2
            assert page["longwire_cluster_register_seconds_count"] > 0
            links = [name for name in page if name.startswith("longwire_cluster_link_up{")]
            assert len(links) == 2 and all(page[name] == 1 for name in links)
            assert sum(page[name] for name in page if name.startswith("longwire_cluster_link_sent_bytes_total")) > 0
        assert sum(page['longwire_cluster_parts{state="owned"}'] for page in pages) == 8
        cluster[2].kill()
        cluster.wait_until_served()
        pages = [figures(one) for one in cluster.running]
        taken = sum(page['longwire_cluster_parts_taken_total{reason="takeover"}'] for page in pages)
        assert taken > 0
        eventually(lambda: all(figures(one)["longwire_cluster_members"] == 2 for one in cluster.running), "two members")
