"""A restored store: state that devices, consumers and senders remember settles nothing that is accepted afterwards."""

import contextlib
import subprocess
import time

import pytest
from cluster import Cluster
from conftest import QUICK
from gateway import Gateway, Refused, eventually
from redis_rig import RedisRig
from test_archive import backup, move, store
from test_cluster import come_back
from test_feeds import SECRET, UPSTREAM, Server, ack, read, send, webhook


def receive_all(device, gateway, count):
    """Returns the payloads of the next `count` messages once their acks are durable and the queue is empty."""
    got = device.receive_and_ack(count)
    for one in got:
        eventually(lambda id=one.msg_id.hex(): gateway.trace(id)["state"].startswith("delivered"), "the end of each")
    assert gateway.view(device.cid)["queue"]["messages"] == 0
    return [one.payload.decode() for one in got]


def connect(device, gateway):
    device.address = ("127.0.0.1", gateway.device)
    return device.connect()


def broadcast(gateway, text):
    body = {"request_id": f"cast-{text}-{time.time_ns()}"[:32], "audience": "all", "push_message": {"transmission": text}}
    return gateway.api("POST", "push/all", body)["data"]["taskid"]


def restore(gateway, source, target, word="restore"):
    """Replaces the gateway's store with a backup's content."""
    gateway.kill()
    code, text = store(word, source, target)
    assert code == 0, text
    move(gateway, target)


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_accepted_after_a_restore_is_delivered_whatever_the_devices_remember(own_gateway, new_device, tmp_path, restarts):
    gateway = own_gateway()
    device = new_device(gateway)
    for number in range(5):
        gateway.push(device.cid, f"before {number}")
    broadcast(gateway, "cast before")
    assert len(receive_all(device, gateway, 6)) == 6
    assert backup(gateway, "one")[0] == 0
    first = device.state.epoch
    if restarts:
        # Each start begins the next block of numbers, as after the restore.
        assert gateway.stop() == 0
        gateway.start()
        assert connect(device, gateway).queue_epoch == first, "an ordinary restart keeps the epoch"
    for number in range(3):
        gateway.push(device.cid, f"between {number}")
    for text in ("cast between 1", "cast between 2"):
        broadcast(gateway, text)
    assert len(receive_all(device, gateway, 5)) == 5
    position = dict(device.state.positions)
    device.close()
    restore(gateway, gateway.folder / "data/backups/one", tmp_path / "restored")

    pushed = [gateway.push(device.cid, f"after {number}") for number in range(5)]
    casts = [broadcast(gateway, f"cast after {number}") for number in range(3)]
    assert device.state.positions == position
    welcome = connect(device, gateway)
    assert welcome.queue_epoch not in (0, first)
    want = [f"after {number}" for number in range(5)] + [f"cast after {number}" for number in range(3)]
    assert sorted(receive_all(device, gateway, len(want))) == sorted(want)
    for one in pushed:
        assert gateway.ends_as(one["msgId"], "deliveredOffline")
        assert "sent" in gateway.steps(one["msgId"])
    assert len(set(casts)) == 3
    # From here on positions count as usual.
    second = device.state.epoch
    gateway.push(device.cid, "later")
    message = device.receive()
    device.state.positions[0] = message.sequence  # processed; its ack is lost
    gateway.kill()
    gateway.start()
    assert connect(device, gateway).queue_epoch == second and device.welcome.backlog == 0


def test_a_feeds_cursors_and_webhook_ids_are_never_reused(new_device, tmp_path):
    server = Server(lambda page, server: 200)
    gateway = Gateway(limits=QUICK)
    gateway._secret("feed", SECRET)
    gateway.sections["apps"][0]["upstream"] = webhook({}, server, str(gateway.folder / "feed"))
    gateway.sections["apps"][0]["events"] = {}
    with gateway:
        device = new_device(gateway)

        def up(number, text):
            assert send(device, number, text.encode()) == 0
            eventually(lambda: any(item.get("payload") == text for item in server.items()), text)

        up(1, "before 1")
        up(2, "before 2")
        assert backup(gateway, "one")[0] == 0
        up(3, "between 3")
        up(4, "between 4")
        events = "/v1/apps/demo/events"

        def deliver():
            gateway.push(device.cid, "told")
            device.receive_and_ack(1)
            eventually(lambda: read(gateway, events)["items"], "an event")

        deliver()
        eventually(lambda: read(gateway)["acked"] == "4", "the webhook's ack")
        kept, acked = read(gateway, events)["cursor"], read(gateway)["cursor"]
        assert int(kept) > 0 and acked == "4"
        device.close()
        restore(gateway, gateway.folder / "data/backups/one", tmp_path / "restored")
        connect(device, gateway)
        up(5, "after 5")
        up(6, "after 6")
        up(7, "after 7")
        ids = [id for id, page in zip(server.ids, server.pages, strict=True)]
        assert len(set(ids)) == len(ids) == 7, "no id stands for two contents"
        for path, cursor in ((UPSTREAM, acked), (UPSTREAM, "1"), (events, kept)):
            for call in (lambda: ack(gateway, cursor, path), lambda: read(gateway, path, after=cursor)):
                with pytest.raises(Refused) as refused:
                    call()
                assert refused.value.status == 409
                error = refused.value.body["error"]
                assert error["code"] == "conflict" and "another history" in error["message"], error
                assert "without a cursor" in error["message"], error
        deliver()
        page = read(gateway, events)
        assert int(page["cursor"]) > int(kept) and page["items"]
        assert ack(gateway, page["cursor"], events)["acked"] == page["cursor"]
        assert read(gateway, events, after=page["cursor"])["items"] == []
    server.shutdown()


@pytest.mark.parametrize("word", ["restore", "import"])
def test_tokens_and_leases_of_after_the_backup_count_no_more(own_gateway, new_device, tmp_path, word):
    gateway = own_gateway(limits=QUICK)
    device = new_device(gateway, token="ab" * 32)
    device.close()
    eventually(lambda: not gateway.view(device.cid)["connected"], "an absent device")
    for text in ("one", "two"):
        gateway.push(device.cid, text, alert="A")
    (before,) = gateway.lease(maximum=1)
    assert backup(gateway, "one")[0] == 0
    source = gateway.folder / "data/backups/one"
    if word == "import":
        for words in (["restore", source, tmp_path / "whole"], ["export", tmp_path / "whole", tmp_path / "file"]):
            code, text = store(*words)
            assert code == 0, text
        source = tmp_path / "file"
    (after,) = gateway.lease(maximum=1)
    token, revoked = gateway.authenticate(), gateway.authenticate()
    gateway.call("DELETE", f"/v2/demo/auth/{revoked}")
    restore(gateway, source, tmp_path / "restored", word)
    for old in (token, revoked):
        with pytest.raises(Refused) as refused:
            gateway.call("GET", f"/v2/demo/user/status/{device.cid}", headers={"token": old})
        assert refused.value.body["code"] == 10001
    assert gateway.settle(after, "accepted", vendorId="1") in ("stale", "unknownJob")
    assert gateway.settle(before, "accepted", vendorId="1") == "recorded"
    (again,) = gateway.lease(maximum=5, wait=20)
    assert again["jobId"] == after["jobId"] and again["leaseId"] != after["leaseId"]
    # With a lease of the new history in force, the old one still settles and extends nothing.
    assert gateway.settle(after, "badToken") in ("stale", "unknownJob")
    assert gateway.extend(after) in ("stale", "unknownJob")
    assert gateway.settle(again, "accepted", vendorId="2") == "recorded"


def test_an_import_and_a_copy_begin_histories_of_their_own(own_gateway, new_device, tmp_path):
    gateway = own_gateway()
    device = new_device(gateway)
    gateway.push(device.cid, "before")
    assert receive_all(device, gateway, 1) == ["before"]
    first = device.state.epoch
    assert gateway.stop() == 0
    data, file = gateway.folder / "data", tmp_path / "file"
    assert store("export", data, file)[0] == 0
    # The store is used further. Then the export replaces it, twice, and a copy of the folder replaces that.
    gateway.start()
    connect(device, gateway)
    for number in range(3):
        gateway.push(device.cid, f"between {number}")
    assert len(receive_all(device, gateway, 3)) == 3
    gateway.stop()
    assert gateway.start() and connect(device, gateway).queue_epoch == first
    gateway.stop()
    epochs = {first}
    one, two = tmp_path / "one", tmp_path / "two"
    for words in (["import", file, one], ["import", file, one, "--replace"], ["copy", one, two], ["copy", two, one, "--replace"]):
        code, text = store(*words)
        assert code == 0, text
        kept = (dict(device.state.positions), device.state.epoch)
        move(gateway, words[2])
        for number in range(5):
            gateway.push(device.cid, f"{number}")
        (device.state.positions, device.state.epoch) = kept
        epochs.add(connect(device, gateway).queue_epoch)
        assert receive_all(device, gateway, 5) == [f"{number}" for number in range(5)]
        assert gateway.stop() == 0
    assert len(epochs) == 5


def test_a_folder_that_was_copied_by_hand_is_noticed(own_gateway, new_device, tmp_path):
    gateway = own_gateway()
    device = new_device(gateway)
    gateway.push(device.cid, "before")
    assert receive_all(device, gateway, 1) == ["before"]
    first = device.state.epoch
    gateway.stop()
    data, copy = gateway.folder / "data", tmp_path / "copy"
    born = (data / "history").read_text().split()[3] != "0"
    subprocess.run(["cp", "-a", data, copy], check=True)
    gateway.start()
    assert connect(device, gateway).queue_epoch == first and "historyChanged" not in gateway.log()
    for number in range(3):
        gateway.push(device.cid, f"between {number}")
    assert len(receive_all(device, gateway, 3)) == 3
    gateway.stop()
    if not born:  # a file system without birth times, where an operator has to start another history
        (copy / "history").write_text("")
    move(gateway, copy)
    for number in range(6):
        gateway.push(device.cid, f"{number}")
    assert connect(device, gateway).queue_epoch != first
    assert receive_all(device, gateway, 6) == [f"{number}" for number in range(6)]
    line = next(line for line in gateway.log().splitlines() if "historyChanged" in line)
    assert ("copied" if born else "asked") in line
    assert gateway.stop() == 0
    gateway.start()
    assert gateway.log().count("historyChanged") == 1, "once for the copy"


def test_a_loss_in_redis_begins_a_history_at_every_gateway_and_a_move_does_not(new_device):
    with RedisRig(primaries=1, replicas=1, is_cluster=False) as rig:
        server, cluster = rig.servers[0], Cluster(rig, count=2, parts=4, limits=QUICK)
        for one in cluster:
            one.sections["store"]["redis"]["nodes"] = [server.address]
        with cluster:
            device = new_device(cluster[0])
            first = device.state.epoch
            for part in range(4):
                for one in cluster:
                    one.admin_call("POST", "/v1/cluster/move", {"part": part})
                    cluster.wait_until_served()
            for one in cluster:
                assert come_back(device, one).queue_epoch == first
            assert not any("historyChanged" in one.log() for one in cluster)
            # As after a failover to a replica that had none of it.
            for part in range(4):
                server.call("DEL", f"{{lw:{cluster.name}:p{part}}}:log")

            def both_know():
                with contextlib.suppress(Refused, OSError):
                    cluster[0].push(device.cid, "lost or not")
                return all("historyChanged" in one.log() for one in cluster)

            eventually(both_know, "another history at both gateways", 60.0)
            assert "reason=redis" in cluster[1].log()
            text = server.call("HGET", f"{{lw:{cluster.name}}}:c", "history").decode()
            assert int(text.split(":")[1]) > 0
