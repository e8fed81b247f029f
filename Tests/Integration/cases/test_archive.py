"""`longwire store check`, `stats`, `backup` and `restore` with a real gateway."""

import json
import shutil
import signal
import subprocess
import threading
import time

import pytest
from conftest import QUICK
from gateway import ADMIN_TOKEN, Refused, binary, eventually
from test_cluster import come_back
from test_disk import FaultyGateway, shim  # noqa: F401 (a fixture)


def store(*words, **options):
    """Runs one `longwire store` command; returns its exit code and output."""
    words = [binary("longwire"), "store", *map(str, words)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, **options)
    return done.returncode, done.stdout + done.stderr


def check(folder):
    """Returns the JSON of `store check` for a folder."""
    code, text = store("check", folder, "--json")
    found = json.loads(text)
    assert (code == 0) == found["isWhole"], text
    return found


def absent(gateway, new_device, count=3):
    devices = [new_device(gateway, token="ab" * 32) for _ in range(count)]
    for device in devices:
        device.close()
    eventually(lambda: not any(gateway.view(one.cid)["connected"] for one in devices), "absent devices")
    return devices


def fill(gateway, devices, count=6):
    """Publishes to disconnected devices, some messages with jobs, tasks, names and request ids."""
    for step in range(count):
        for number, device in enumerate(devices):
            gateway.push(device.cid, f"{step}", alert="A" if number % 2 else None)
    gateway.api("POST", "user/alias", {"data_list": [{"cid": devices[0].cid, "alias": "chief"}]})
    gateway.api("PUT", "user/custom_tag/batch/red", {"cid": [devices[0].cid]})
    for job in gateway.lease(maximum=2):
        gateway.settle(job, "accepted", vendorId="1", timestamp=1)
    gateway.lease(maximum=1)
    task = gateway.api("POST", "push/list/message", {"push_message": {"transmission": "list"}})["data"]["taskid"]
    body = {"audience": {"cid": [one.cid for one in devices]}, "taskid": task, "is_async": False}
    gateway.api("POST", "push/list/cid", body)
    return count + 1


@pytest.mark.parametrize("way", ["killed", "stopped", "spilled"])
def test_a_store_that_a_gateway_left_is_whole_and_counted(own_gateway, new_device, way):
    gateway = own_gateway(limits={**QUICK, "spillAfterSeconds": 5})
    devices = absent(gateway, new_device)
    count = fill(gateway, devices)
    running = store("check", gateway.folder / "data")
    assert running[0] == 1 and "in use by process" in running[1] and "check a backup" in running[1], running
    code, text = store("stats", gateway.folder / "data", "--json")
    assert code == 0 and json.loads(text)["isRunning"] and json.loads(text)["disk"]["databaseBytes"] > 0, text
    getattr(gateway, "stop" if way == "stopped" else "kill")()
    if way == "spilled":  # a start moves the whole log into the database
        gateway.start()
        gateway.stop()
    folder = gateway.folder / "data"
    found = check(folder)
    assert found["isWhole"], found["damages"]
    assert found["tables"]["device"]["rows"] == 3
    queued = found["tables"]["message"]["rows"] + found["tables"]["vendorMessage"]["rows"]
    code, text = store("stats", folder, "--json")
    stats = json.loads(text)
    assert code == 0 and sum(queue["messages"] for queue in stats["queues"]) == queued, text
    assert 3 * count - 2 <= queued <= 3 * count and stats["queues"][0]["oldestAcceptedAt"] > 0
    assert 0 < stats["disk"]["preallocatedBytes"] < stats["disk"]["bytes"] and stats["tables"] == found["tables"]
    code, text = store("stats", folder, "--text")
    assert code == 0 and "queued messages" in text and "preallocated zeros" in text, text
    # Nothing changed, so the gateway continues.
    gateway.start()
    assert gateway.api("GET", "user/cid/alias/chief")["data"]["cid"] == [devices[0].cid]


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def test_what_is_damaged_is_named(own_gateway, new_device):
    gateway = own_gateway()
    fill(gateway, absent(gateway, new_device))
    gateway.kill()
    folder = gateway.folder / "data"
    segment = sorted((folder / "journal").glob("segment-*"))[0]
    flip(segment, 200)
    found = check(folder)
    journal = [one for one in found["damages"] if one["kind"] == "journal"]
    assert journal and segment.name in journal[0]["place"] and "may be lost" in journal[0]["means"], found
    code, text = store("check", folder, "--text")
    assert code == 1 and "means: " in text and "do: " in text and "damaged" in text, text
    code, text = store("stats", folder, "--text")
    assert code == 0 and "store check" in text, text
    flip(segment, 200)
    assert check(folder)["isWhole"]
    gateway.start()
    gateway.stop()
    table = max((folder / "rows").glob("*.sst"), key=lambda path: path.stat().st_size)
    # Rows are at the start of the file and the footer at the end. RocksDB ignores an unreadable filter.
    for offset in (10, 100, table.stat().st_size - 1):
        flip(table, offset)
        found = check(folder)
        assert [one for one in found["damages"] if one["kind"] == "database"], (offset, found)
        flip(table, offset)
    assert check(folder)["isWhole"]
    table.rename(folder / "away")
    found = check(folder)
    assert [one for one in found["damages"] if one["kind"] == "database"], found
    (folder / "away").rename(table)
    text = (folder / "format").read_text()
    for wrong, words in (("nonsense\n", "does not name a store format"), ("longwire store 999\n", "has format 999")):
        (folder / "format").write_text(wrong)
        code, said = store("check", folder)
        assert code == 1 and words in said, said
    (folder / "format").write_text(text)
    code, text = store("check", folder / "none")
    assert code == 1 and "there is no store in" in text and not (folder / "none").exists(), text


def backup(gateway, name):
    """Runs `store backup` of a running gateway; returns its exit code and output."""
    return store("backup", name, "--admin", f"127.0.0.1:{gateway.admin}", "--admin-token", ADMIN_TOKEN)


def move(gateway, folder):
    """Makes the gateway use another folder, with the same apps."""
    gateway.sections["store"]["path"] = str(folder)
    return gateway.start()


class Publishers:
    """Threads that push to disconnected devices and record the time of each answer."""

    def __init__(self, gateway, devices, count=3):
        self.gateway, self.devices, self.stop = gateway, devices, threading.Event()
        self.sent = {device.cid: [] for device in devices}
        self.worst = 0.0
        self.threads = [threading.Thread(target=self._run, args=(devices[number::count],)) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def _run(self, devices):
        number = 0
        while not self.stop.is_set():
            for device in devices:
                began = time.monotonic()
                self.gateway.push(device.cid, f"{number}", ttl=3_600_000)
                self.sent[device.cid].append((f"{number}".encode(), time.monotonic()))
                self.worst = max(self.worst, time.monotonic() - began)
            number += 1

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()


def test_a_backup_under_load_has_all_that_was_accepted_before_it(own_gateway, new_device, tmp_path):
    gateway = own_gateway(limits={**QUICK, "spillAfterSeconds": 1, "journalBytes": 16 << 20})
    devices = absent(gateway, new_device, 9)
    publishers = Publishers(gateway, devices)
    began = []
    try:
        eventually(lambda: all(len(sent) > 30 for sent in publishers.sent.values()), "some messages")
        for number in range(4):  # each time with other segments and database files
            time.sleep(0.5)
            began.append(time.monotonic())
            code, text = backup(gateway, f"b{number}")
            assert code == 0 and f"backups/b{number}" in text, text
    finally:
        publishers.end()
    again = backup(gateway, "b0")
    assert again[0] == 1 and "is there already" in again[1], again
    assert gateway.log().count("backupMade") == 4 and "name=admin" in gateway.log()
    assert gateway.admin_call("GET", "/v1/backup")["state"] == "done"
    spill = gateway.folder / "data/spill"
    assert not (spill / "backup").exists()
    made = [gateway.folder / f"data/backups/b{number}" for number in range(4)]
    # The backup excludes zeros and leftovers after the records.
    assert sum(path.stat().st_size for path in made[3].rglob("*")) < sum(
        path.stat().st_size for path in (gateway.folder / "data").rglob("*") if "backups" not in path.parts)
    assert check(made[0])["isWhole"]
    started = subprocess.run(
        [binary("longwired"), "--config", str(gateway.config)], capture_output=True, text=True, timeout=60, check=False)
    assert started.returncode != 0
    gateway.kill()
    assert check(gateway.folder / "data")["isWhole"]
    for number in (0, 3):
        folder = tmp_path / f"restored-{number}"
        code, text = store("restore", made[number], folder)
        assert code == 0 and "nothing is damaged" in text, text
        if number == 0:
            continue
        move(gateway, folder)
        for device in devices:
            sent = publishers.sent[device.cid]
            before = [payload for payload, time in sent if time < began[number]]
            device.state.positions.clear()
            backlog = come_back(device, gateway).backlog
            got = [one.payload for one in device.receive_and_ack(len(before))]
            assert got == before, "every message accepted before the backup began, once and in order"
            # Only the first few of the concurrent messages, and nothing else.
            late = [payload for payload, _ in sent[len(before):]]
            more = backlog - len(before)
            assert [one.payload for one in device.receive_and_ack(more)] == late[:more]
            device.close()
        gateway.push(devices[0].cid, "after")
        come_back(devices[0], gateway)
        assert devices[0].receive_and_ack(1)[0].payload == b"after"
        assert gateway.stop() == 0
        assert check(folder)["isWhole"]


def test_a_damaged_backup_is_refused_and_nothing_is_written(own_gateway, new_device, tmp_path):
    gateway = own_gateway(limits={**QUICK, "spillAfterSeconds": 1})
    fill(gateway, absent(gateway, new_device))
    gateway.kill()
    data, good = gateway.folder / "data", tmp_path / "good"
    code, text = store("backup", good, "--from", data)
    assert code == 0 and "made" in text, text
    assert check(good)["isWhole"]
    again = store("backup", good, "--from", data)
    assert again[0] == 1 and "is there already" in again[1], again
    missing = store("backup", tmp_path / "no/folder", "--from", data)
    assert missing[0] == 1 and "is not there: make it first" in missing[1], missing
    files = [path for path in good.rglob("*") if path.is_file()]
    assert {"manifest", "format", "epoch", "CURRENT"} <= {path.name for path in files}
    assert any(path.parent.name == "journal" for path in files)
    for number, file in enumerate(files):
        size = file.stat().st_size
        if size == 0:
            continue
        for way in ("first", "middle", "last", "cut", "gone"):
            bad = tmp_path / f"bad-{number}-{way}"
            shutil.copytree(good, bad)
            path = bad / file.relative_to(good)
            if way == "cut":
                path.write_bytes(file.read_bytes()[:-1])
            elif way == "gone":
                path.unlink()
            else:
                flip(path, {"first": 0, "middle": size // 2, "last": size - 1}[way])
            code, text = store("restore", bad, tmp_path / "out")
            assert code == 1 and not (tmp_path / "out").exists(), (file, way, text)
            assert "damaged" in text or "no backup" in text, text
            if number == 0:
                assert not check(bad)["isWhole"]
            shutil.rmtree(bad)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("here")
    code, text = store("restore", good, tmp_path / "full")
    assert code == 1 and "is not empty" in text and [path.name for path in (tmp_path / "full").iterdir()] == ["file"]
    gateway.start()
    code, text = store("restore", good, data)
    assert code == 1 and "in use by process" in text, text
    gateway.stop()
    gateway.sections["store"]["path"] = str(good)
    with pytest.raises(AssertionError, match="is a backup"):
        gateway.start()
    code, text = store("restore", good, tmp_path / "out")
    assert code == 0, text
    move(gateway, tmp_path / "out")


@pytest.mark.parametrize("victim", ["backup", "restore"])
def test_what_was_cut_off_is_refused(own_gateway, new_device, tmp_path, victim):
    gateway = own_gateway()
    fill(gateway, absent(gateway, new_device))
    gateway.kill()
    data, good, half = gateway.folder / "data", tmp_path / "good", tmp_path / "half"
    assert store("backup", good, "--from", data)[0] == 0
    words = ["backup", half, "--from", data] if victim == "backup" else ["restore", good, half]
    mark = half / ("unfinished" if victim == "backup" else "copying")
    command = [binary("longwire"), "store", *map(str, words)]
    for _ in range(50):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not mark.exists():
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        if mark.exists():
            break
        shutil.rmtree(half)
    assert mark.exists(), "a process that was killed in the middle"
    if victim == "backup":
        code, text = store("restore", half, tmp_path / "out")
        assert code == 1 and "is not whole" in text and not (tmp_path / "out").exists(), text
    else:
        code, text = store("restore", good, half)
        assert code == 1 and "is not empty" in text, text
    gateway.sections["store"]["path"] = str(half)
    with pytest.raises(AssertionError, match="is a backup|did not end"):
        gateway.start()


def test_names_rights_and_a_full_disk(shim, new_device):
    with FaultyGateway(shim, limits=QUICK) as gateway:
        absent(gateway, new_device)
        refuse_and_fill(gateway)


def refuse_and_fill(gateway):
    for name in ("", "..", "a/b", "-x", "x" * 65, "ü"):
        with pytest.raises(Refused) as refused:
            gateway.admin_call("POST", "/v1/backup", {"name": name})
        assert refused.value.status == 400
    with pytest.raises(Refused) as refused:
        gateway.admin_call("POST", "/v1/backup", {"name": "x"}, token="integration-handoff-token-1")
    assert refused.value.status == 403
    backups = gateway.folder / "data/backups"
    gateway.fault("full 2000 /backups/")
    code, text = backup(gateway, "full")
    assert code == 1 and "no room on the disk" in text, text
    assert not (backups / "full").exists(), "half a backup takes no room"
    assert "backupFailed" in gateway.log()
    gateway.fault()
    code, text = backup(gateway, "full")
    assert code == 0 and check(backups / "full")["isWhole"], text
