"""`longwire store check` and `stats` on what a real gateway leaves behind."""

import json
import subprocess

import pytest
from conftest import QUICK
from gateway import binary, eventually


def store(*words, **options):
    """One `longwire store` command: its exit code and what it printed."""
    words = [binary("longwire"), "store", *map(str, words)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, **options)
    return done.returncode, done.stdout + done.stderr


def check(folder):
    """What `store check` says of a folder, as JSON."""
    code, text = store("check", folder, "--json")
    found = json.loads(text)
    assert (code == 0) == found["isWhole"], text
    return found


def absent(gateway, new_device, count=3):
    """Devices of the gateway that are not connected."""
    devices = [new_device(gateway, token="ab" * 32) for _ in range(count)]
    for device in devices:
        device.close()
    eventually(lambda: not any(gateway.view(one.cid)["connected"] for one in devices), "absent devices")
    return devices


def fill(gateway, devices, count=6):
    """Messages for absent devices, some of them with jobs, tasks, names and request ids."""
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
    # Nothing changed: the gateway goes on from there.
    gateway.start()
    assert gateway.api("GET", "user/cid/alias/chief")["data"]["cid"] == [devices[0].cid]


def flip(path, offset):
    """Turns a bit of a file over."""
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
    # Rows stand in front and the footer at the end; RocksDB does without a filter that it cannot read.
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
