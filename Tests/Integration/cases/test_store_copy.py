"""`longwire store copy` between the embedded engine and real Redis servers, with the data of a used gateway."""

import hashlib
import subprocess
import time

import pytest
from cluster import Cluster
from conftest import QUICK
from gateway import ADMIN_TOKEN, binary, eventually
from redis_rig import RedisRig
from test_cluster import come_back


@pytest.fixture(scope="module")
def rig():
    with RedisRig() as rig:
        yield rig


def copy(source, target, *words):
    done = subprocess.run(
        [binary("longwire"), "store", "copy", str(source), str(target), *words], capture_output=True, text=True,
        timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def tables(text):
    """Returns the line of each table: rows, bytes and digest."""
    return {line.split(":")[0]: line for line in text.splitlines() if ", digest " in line}


def url(rig, name):
    return "redis://" + ",".join(server.address for server in rig.servers[:2]) + "/" + name


def request_id(name, number):
    return hashlib.sha256(f"{name}{number}".encode()).hexdigest()[:24]


def test_everything_of_a_gateway_goes_to_redis_and_comes_back(rig, new_device, own_gateway, tmp_path):
    gateway = own_gateway(limits=QUICK)
    targets = [new_device(gateway, token="ab" * 32) for _ in range(12)]
    cids = [device.cid for device in targets]
    for device in targets:
        device.close()
    eventually(lambda: not any(gateway.view(cid)["connected"] for cid in cids), "absent devices")
    gateway.api("POST", "user/alias", {"data_list": [{"cid": cids[0], "alias": "chief"}]})
    gateway.api("PUT", "user/custom_tag/batch/red", {"cid": cids[:5]})
    sent = {cid: [] for cid in cids}
    for step in range(5):
        for number, cid in enumerate(cids):
            answer = gateway.push(cid, f"{step}", alert="A" if number % 2 else None)
            sent[cid].append(answer["msgId"])
    task = gateway.api("POST", "push/list/message", {"push_message": {"transmission": "list"}})["data"]["taskid"]
    gateway.api("POST", "push/list/cid", {"audience": {"cid": cids}, "taskid": task, "is_async": False})
    later = int(time.time() * 1000) + 3_600_000
    body = {"request_id": request_id("schedule", 1), "settings": {"schedule_time": later},
            "push_message": {"transmission": "later"}}
    planned = gateway.api("POST", "push/list/message", body)["data"]["taskid"]
    gateway.api("POST", "push/list/cid", {"audience": {"cid": cids[:3]}, "taskid": planned, "is_async": False})
    again = {"request_id": request_id("push", 1), "audience": {"cid": [cids[0]]}, "settings": {"ttl": 3_600_000},
             "push_message": {"transmission": "once"}}
    first = gateway.api("POST", "push/single/cid", again)["data"]
    running = copy(gateway.folder / "data", url(rig, "copy"))
    assert running[0] == 1 and "in use by process" in running[1], running
    assert gateway.stop() == 0

    code, text = copy(gateway.folder / "data", url(rig, "copy"), "--parts", "8")
    assert code == 0 and "the stores are the same" in text, text
    there = tables(text)
    kinds = ("device", "message", "request", "alias", "tag", "task", "taskMessage", "taskTargets", "counters", "meta")
    assert all(there[name].split()[1] != "0" for name in kinds), text
    refused = copy(gateway.folder / "data", url(rig, "copy"))
    assert refused[0] == 1 and "is not empty" in refused[1], refused
    # Copied back without a gateway in between: the same rows, in other partitions.
    code, text = copy(url(rig, "copy"), tmp_path / "back")
    assert code == 0 and tables(text) == there, text

    def checks(gateways, some):
        """Every gateway knows the names and the request id; some devices get their pending messages in order and once."""
        for gateway in gateways:
            assert gateway.api("GET", "user/cid/alias/chief")["data"]["cid"] == [cids[0]]
            assert gateway.api("POST", "push/single/cid", again)["data"] == first, "a request id that the first one knew"
        for number in some:
            gateway, device = gateways[number % len(gateways)], targets[number]
            come_back(device, gateway)
            want = [f"{step}".encode() for step in range(5)] + [b"list"] + ([b"once"] if number == 0 else [])
            assert [one.payload for one in device.receive_and_ack(len(want))] == want
            for message in sent[device.cid]:
                gateway.ends_as(message, "deliveredOffline")
            device.close()

    cluster = Cluster(rig, count=2, parts=8, limits=QUICK)
    cluster.name = "copy"
    for one in cluster:
        one.sections["cluster"]["name"] = "copy"
        one.sections["demo"] = False
        one.app = gateway.app
    with cluster:
        busy = copy(url(rig, "copy"), tmp_path / "busy")
        assert busy[0] == 1 and "a gateway at 127.0.0.1" in busy[1] and "stop all its gateways" in busy[1], busy
        cluster.wait_until_served()
        checks(cluster.gateways, range(0, 12, 2))
        assert [one.stop() for one in cluster] == [0, 0]
    # An embedded gateway continues with the cluster's data.
    code, text = copy(url(rig, "copy"), tmp_path / "after")
    assert code == 0 and "the stores are the same" in text, text
    home = own_gateway(limits=QUICK)
    home.stop()
    home.sections["store"]["path"] = str(tmp_path / "after")
    home.sections["demo"] = False
    home.start()
    checks([home], range(1, 12, 2))


def filled(own_gateway, new_device, count=3):
    gateway = own_gateway(limits=QUICK)
    devices = [new_device(gateway) for _ in range(count)]
    for device in devices:
        device.close()
        gateway.push(device.cid, "waits")
    assert gateway.stop() == 0
    return gateway.folder / "data"


def test_half_a_copy_is_known_and_refused_until_it_is_made_anew(own_gateway, new_device, tmp_path):
    source = filled(own_gateway, new_device)
    with RedisRig(primaries=1, replicas=1, is_cluster=False) as rig:
        assert copy(source, url(rig, "half"))[0] == 0
        for server in rig.servers:
            server.call("CONFIG", "SET", "maxmemory", "1")
        code, text = copy(source, url(rig, "half"), "--replace")
        assert code == 1 and "OOM" in text, text
        for server in rig.servers:
            server.call("CONFIG", "SET", "maxmemory", "0")
        # A process that was interrupted leaves this mark.
        rig.servers[0].call("HSET", "{lw:half}:c", "copy", "to", "copyNonce", "1", "copyUntil", "1", "copyOther", "x")
        cluster = Cluster(rig, count=1, limits=QUICK)
        gateway = cluster[0]
        gateway.sections["store"]["redis"]["nodes"] = [rig.servers[0].address]
        gateway.sections["cluster"].update(name="half", parts=16)
        try:
            with pytest.raises(AssertionError) as failure:
                gateway.__enter__()
            assert "copy of x that has not ended" in str(failure.value) and "--replace" in str(failure.value)
        finally:
            cluster.__exit__()
        out = copy(url(rig, "half"), tmp_path / "out")
        assert out[0] == 1 and "is not whole" in out[1], out
        again = copy(source, url(rig, "half"))
        assert again[0] == 1 and "run it again with --replace" in again[1], again
        code, text = copy(source, url(rig, "half"), "--replace", "--parts", "4")
        assert code == 0 and "the stores are the same" in text, text
        code, back = copy(url(rig, "half"), tmp_path / "back")
        assert code == 0 and tables(back) == tables(text)


def test_a_damaged_row_or_log_stops_an_export_and_wrong_settings_an_import(own_gateway, new_device, tmp_path):
    source = filled(own_gateway, new_device)
    with RedisRig(primaries=1, replicas=1, is_cluster=False) as rig:
        server = rig.servers[0]
        assert copy(source, url(rig, "good"), "--parts", "1")[0] == 0
        name = next(key for key in server.call("KEYS", "{lw:good:g*}:r"))
        server.call("HSET", name, b"no key", b"12345678")
        code, text = copy(url(rig, "good"), tmp_path / "a")
        assert code == 1 and "is damaged" in text and name.decode() in text, text
        server.call("HDEL", name, b"no key")
        field = server.call("HKEYS", name)[0]
        value = server.call("HGET", name, field)
        server.call("HSET", name, field, b"123")
        code, text = copy(url(rig, "good"), tmp_path / "b")
        assert code == 1 and "shorter than any row" in text, text
        server.call("HSET", name, field, value)
        assert copy(url(rig, "good"), tmp_path / "c")[0] == 0
        server.call("XADD", "{lw:good:p0}:log", "900000-1", "b", b"not a group of records")
        code, text = copy(url(rig, "good"), tmp_path / "d")
        assert code == 1 and "900000-1" in text and "is damaged" in text, text
        # The source is readable again once it is repaired, because the failed copy has removed its mark.
        server.call("XDEL", "{lw:good:p0}:log", "900000-1")
        assert copy(url(rig, "good"), tmp_path / "e")[0] == 0
        server.call("CONFIG", "SET", "appendfsync", "everysec")
        code, text = copy(source, url(rig, "other"))
        assert code == 1 and "appendfsync always" in text, text
    code, text = copy(source, "redis://127.0.0.1:1/none")
    assert code == 1 and "cannot be reached" in text, text
    assert copy("redis://127.0.0.1:1/none", tmp_path / "f")[0] == 1


def test_an_export_goes_through_a_pipe_to_redis_and_back_into_a_folder_that_a_gateway_serves(
        rig, own_gateway, new_device, tmp_path):
    gateway = own_gateway(limits=QUICK)
    devices = [new_device(gateway) for _ in range(4)]
    sent = {}
    for device in devices:
        device.close()
        sent[device.cid] = gateway.push(device.cid, "waits")["msgId"]
    gateway.admin_call("POST", "/v1/apps", {"appId": "shop", "maxAttempts": 3})
    tool = [binary("longwire"), "store"]
    running = subprocess.run([*tool, "export", gateway.folder / "data", tmp_path / "no"], capture_output=True, text=True)
    assert running.returncode == 1 and "in use by process" in running.stderr and not (tmp_path / "no").exists()
    assert gateway.stop() == 0

    ends = subprocess.Popen([*tool, "export", gateway.folder / "data", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    given = subprocess.run(
        [*tool, "import", "-", url(rig, "pipe"), "--parts", "4"], stdin=ends.stdout, capture_output=True, text=True,
        timeout=120)
    ends.stdout.close()
    told = ends.stderr.read().decode()
    assert ends.wait(60) == 0 and given.returncode == 0, told + given.stdout + given.stderr
    assert tables(told) == tables(given.stdout) and tables(told)["meta"].split()[1] != "0", told
    # From Redis to a file, and into a folder.
    back = subprocess.run([*tool, "export", url(rig, "pipe"), tmp_path / "file"], capture_output=True, text=True, timeout=120)
    assert back.returncode == 0 and tables(back.stderr) == tables(told), back.stderr
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    into = subprocess.run([*tool, "import", tmp_path / "file", tmp_path / "back"], capture_output=True, text=True, timeout=120)
    assert into.returncode == 0 and tables(into.stdout) == tables(told), into.stdout + into.stderr
    checked = subprocess.run([*tool, "check", tmp_path / "back", "--text"], capture_output=True, text=True, timeout=120)
    assert checked.returncode == 0 and "nothing is damaged" in checked.stdout, checked.stdout

    # A broken pipe: no gateway starts on the result, and an import with --replace repairs it.
    cut = subprocess.run(
        [*tool, "import", "-", tmp_path / "cut"], input=(tmp_path / "file").read_bytes()[:-20], capture_output=True,
        timeout=120)
    assert cut.returncode == 1 and b"at byte " in cut.stderr, cut.stderr
    gateway.sections["store"]["path"] = str(tmp_path / "cut")
    with pytest.raises(AssertionError, match="that did not end"):
        gateway.start()
    done = subprocess.run([*tool, "import", tmp_path / "file", tmp_path / "cut", "--replace"], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    gateway.start()
    assert gateway.admin_call("GET", "/v1/apps/shop")["settings"] == {"maxAttempts": 3}
    for device in devices:
        come_back(device, gateway)
        assert device.receive_and_ack(1)[0].payload == b"waits"
        gateway.ends_as(sent[device.cid], "deliveredOffline")
        device.close()


def test_of_a_running_gateway_a_backup_is_restored_and_exported(own_gateway, new_device, tmp_path):
    """Follows docs/use/Operations.md under "Export and import"; an export does not read the backup directly."""
    gateway = own_gateway(limits=QUICK)
    device = new_device(gateway)
    device.close()
    gateway.push(device.cid, "waits")
    tool = [binary("longwire"), "store"]
    made = subprocess.run(
        [*tool, "backup", "now", "--admin", f"127.0.0.1:{gateway.admin}", "--admin-token", ADMIN_TOKEN], capture_output=True, text=True,
        timeout=120)
    assert made.returncode == 0, made
    gateway.push(device.cid, "after the backup")
    backup = gateway.folder / "data/backups/now"
    refused = subprocess.run([*tool, "export", backup, tmp_path / "no"], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1 and "restore" in refused.stderr and not (tmp_path / "no").exists(), refused
    for words in (["restore", backup, tmp_path / "whole"], ["export", tmp_path / "whole", tmp_path / "file"],
                  ["import", tmp_path / "file", tmp_path / "elsewhere"]):
        done = subprocess.run([*tool, *words], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
    assert gateway.stop() == 0
    gateway.sections["store"]["path"] = str(tmp_path / "elsewhere")
    gateway.start()
    come_back(device, gateway)
    assert [one.payload for one in device.receive_and_ack(1)] == [b"waits"]
