"""The last release, this one, and the last one again on the same data: no accepted message is lost by upgrade or downgrade.

LONGWIRE_PREVIOUS_BIN names the folder of the last release's programs (`make upgrade` builds them from a git ref). Without it this
release stands in for both, which tests only the rig and the restarts. The stored fixtures (ReleasedFormatTests) test that each
released format can be read.
"""

import hashlib
import os
import subprocess
import time

import pytest
from conftest import QUICK
from gateway import Gateway, Refused, binary, eventually, wait_out_midnight

DATA_ERROR = 74


@pytest.fixture
def use(monkeypatch):
    """Selects the programs: "old" or "new"."""
    folders = {"new": os.path.dirname(binary("longwired"))}
    folders["old"] = os.environ.get("LONGWIRE_PREVIOUS_BIN") or folders["new"]

    def choose(which):
        monkeypatch.setenv("LONGWIRE_BIN_DIR", folders[which])

    return choose


def request_id(name):
    return hashlib.sha256(name.encode()).hexdigest()[:24]


def end(gateway, how):
    if how == "stop":
        assert gateway.stop() == 0
    else:
        gateway.kill()


def form(gateway):
    return (gateway.folder / "data/format").read_text()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_old_new_and_old_again_on_one_folder(use, new_device, how):
    wait_out_midnight()
    use("old")
    with Gateway(limits=QUICK) as gateway:
        devices = [new_device(gateway, token=f"{number:02x}" * 32) for number in range(12)]
        cids = [device.cid for device in devices]
        sent = {cid: [] for cid in cids}

        def publish(name, some=devices):
            for number, device in enumerate(some):
                answer = gateway.push(device.cid, name, alert="A" if number % 2 else None)
                sent[device.cid].append((answer["msgId"], name.encode()))

        def drain(some):
            """Checks that each device gets its pending messages in order and once."""
            for device in some:
                device.connect()
                waiting = sent[device.cid]
                assert [one.payload for one in device.receive_and_ack(len(waiting))] == [text for _, text in waiting]
                for message, _ in waiting:
                    gateway.ends_as(message, "deliveredOffline")
                sent[device.cid] = []
                device.close()
            eventually(lambda: not any(gateway.view(device.cid)["connected"] for device in some), "absent devices")

        for device in devices:
            device.close()
        eventually(lambda: not any(gateway.view(cid)["connected"] for cid in cids), "absent devices")
        gateway.api("POST", "user/alias", {"data_list": [{"cid": cids[0], "alias": "chief"}]})
        gateway.api("PUT", "user/custom_tag/batch/red", {"cid": cids[:5]})
        publish("from old")
        later = int(time.time() * 1000) + 3_600_000
        planned = gateway.api("POST", "push/list/message", {
            "request_id": request_id("planned"), "settings": {"schedule_time": later},
            "push_message": {"transmission": "later"}})["data"]["taskid"]
        gateway.api("POST", "push/list/cid", {"audience": {"cid": cids[:3]}, "taskid": planned, "is_async": False})
        once = {"request_id": request_id("once"), "audience": {"cid": [cids[11]]}, "settings": {"ttl": 3_600_000},
                "push_message": {"transmission": "once"}}
        first = gateway.api("POST", "push/single/cid", once)["data"]
        sent[cids[11]].append((gateway.api("POST", "push/single/cid", once)["longwire"]["messages"][0]["msgId"], b"once"))
        due = {job["jobId"] for job in gateway.lease(lease=5)}
        assert due, "alerts of absent devices are due"
        before = form(gateway)

        def is_whole():
            assert gateway.api("GET", "user/cid/alias/chief")["data"]["cid"] == [cids[0]]
            assert sorted(gateway.api("GET", f"user/custom_tag/cid/{cids[1]}")["data"][cids[1]]) == ["red"]
            assert gateway.api("POST", "push/single/cid", once)["data"] == first, "a request id that the first one knew"
            assert gateway.admin_call("GET", f"/v1/apps/demo/tasks/{planned}")["task"] == "scheduled"

        end(gateway, how)
        use("new")
        gateway.start()
        is_whole()
        drain(devices[:4])
        publish("from new", devices[4:])
        # Jobs that the old release leased are leased again with the same ids.
        again = set()

        def leased_again():
            again.update(job["jobId"] for job in gateway.lease(lease=5))
            return again & due

        eventually(leased_again, "a job that the old one had leased")
        gateway.admin_call("POST", "/v1/apps", {
            "appId": "later", "appSecret": "later-app-secret", "masterSecret": "later-master-secret"})
        end(gateway, how)

        use("old")
        if form(gateway) != before:
            # The old release reports the newer format and changes nothing. A backup is the way back.
            done = gateway.spawn(stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            text = done.communicate(timeout=60)[0].decode()
            assert done.returncode == DATA_ERROR and "has format" in text, text
        else:
            gateway.start()
            is_whole()
            drain(devices[4:8])
            publish("from old again", devices[8:])
            end(gateway, how)
        use("new")
        gateway.start()
        is_whole()
        drain(devices[8:])
        assert [one["appId"] for one in gateway.admin_call("GET", "/v1/apps")["apps"]] == ["demo", "later"]
        end(gateway, "stop")
        checked = subprocess.run(
            [binary("longwire"), "store", "check", str(gateway.folder / "data"), "--text"], capture_output=True, text=True,
            timeout=120)
        assert checked.returncode == 0 and "nothing is damaged" in checked.stdout, checked.stdout


def test_a_later_format_is_refused_with_what_to_do_and_nothing_is_touched():
    with Gateway(limits=QUICK) as gateway:
        gateway.stop()
        path = gateway.folder / "data/format"
        now = int(path.read_text().split()[-1])
        path.write_text(f"longwire store {now + 1}\n")

        def contents():
            return {str(one): one.read_bytes() for one in (gateway.folder / "data").rglob("*")
                    if one.is_file() and one.name not in ("lock", "LOCK")}

        before = contents()
        refused = gateway.spawn(stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = refused.communicate(timeout=60)[0].decode()
        assert refused.returncode == DATA_ERROR, text
        assert f"has format {now + 1}" in text and f"reads up to {now}" in text and "restore" in text, text
        assert contents() == before
        path.write_text(f"longwire store {now}\n")
        gateway.start()
        try:
            gateway.admin_call("GET", "/v1/apps/nobody")
            raise AssertionError("an app that nobody made")
        except Refused as refusal:
            assert refusal.status == 404
