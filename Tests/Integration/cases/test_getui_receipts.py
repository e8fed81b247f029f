"""Receipts in Getui's format, as a server's handler for them gets them: lines, signatures, repeats; and custom callbacks."""

import hashlib
import http.server
import json
import signal
import threading
import uuid

import pytest
from conftest import QUICK
from gateway import HANDOFF_TOKEN, Gateway, Refused, eventually
from longwire_client import pb
from ports import free_ports

TOKEN = "ab" * 32
OTHER = {"appId": "other", "appKey": "otherKey", "appSecret": "other-secret-1", "masterSecret": "other-master-1"}


def sign(line, master_secret):
    text = line["appid"] + line["cid"] + line["taskid"] + line["msgid"] + master_secret
    return hashlib.md5(text.encode()).hexdigest()


class Receiver(http.server.ThreadingHTTPServer):
    """A handler of Getui's receipts: checks each line's signature; `answer(lines)` returns a status."""

    def __init__(self, master_secret, answer=lambda lines: 200, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.master_secret, self.answer, self.posts, self.forged = master_secret, answer, [], []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/receipt"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def accepted(self, message=None):
        lines = [line for _, lines, status in self.posts if status == 200 for line in lines]
        return [line for line in lines if message in (None, line["msgid"])]

    def stop(self):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        assert self.headers["Content-Type"].startswith("text/plain") and not body.endswith("\n")
        lines = [json.loads(line) for line in body.split("\n")]
        self.server.forged += [line for line in lines if line["sign"] != sign(line, self.server.master_secret)]
        status = self.server.answer(lines)
        self.server.posts.append((self.headers["webhook-id"], lines, status))
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def receiver():
    """Creates receivers; stops them at the end."""
    made = []

    def make(*arguments, **options):
        made.append(Receiver(*arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def with_receipts(server, app=None):
    gateway = Gateway(limits=QUICK, app=app)
    gateway.sections["apps"][0]["getuiReceipts"] = {"url": server.url, "timeoutSeconds": 2}
    return gateway


def reload(gateway):
    gateway.config.write_text(json.dumps(gateway.sections))
    gateway.process.send_signal(signal.SIGHUP)


def leave(gateway, device):
    device.close()
    eventually(lambda: not gateway.view(device.cid)["connected"])


def report(gateway, message, kind):
    body = [{"msgId": message["msgId"], "kind": kind}]
    assert gateway.admin_call("POST", "/v1/handoff/receipts", body, token=HANDOFF_TOKEN)


def summary(lines):
    return [(line["code"], line["desc"], line.get("actionId")) for line in lines]


def test_what_happens_to_a_message_is_a_line_of_its_own(receiver, new_device):
    server = receiver("demo-master-secret")
    with with_receipts(server) as gateway:
        device = new_device(gateway, token=TOKEN)
        live = gateway.push(device.cid, "1", custom_callback="订单\n7")
        frame, = device.receive_and_ack(1)
        eventually(lambda: server.accepted(live["msgId"]))
        device.feedback(frame.msg_id)
        device.feedback(frame.msg_id, pb.Feedback.ACTION, 90_001)
        lines = eventually(lambda: len(found := server.accepted(live["msgId"])) >= 3 and found)
        assert summary(lines) == [("200", "ok", "0"), ("200", "ok", "10010"), ("200", "ok", "90001")]
        assert {(line["appid"], line["cid"], line["taskid"]) for line in lines} == {("demo", device.cid, live["taskId"])}
        assert {line["custom_callback"] for line in lines} == {"订单\n7"}
        assert all(abs(line["recvtime"] - gateway.trace(live["msgId"])["acceptedAt"]) < 60_000 for line in lines)

        leave(gateway, device)
        handed = gateway.push(device.cid, "2", alert="T", strategy=2)
        job, = eventually(gateway.lease)
        assert gateway.settle(job, "accepted", vendorId="a-1") == "recorded"
        eventually(lambda: server.accepted(handed["msgId"]))
        report(gateway, handed, "clicked")
        lines = eventually(lambda: len(found := server.accepted(handed["msgId"])) >= 2 and found)
        assert summary(lines) == [("200", "ok", None), ("200", "ok", "10019")], "accepted by Apple, and opened"
        assert all("custom_callback" not in line for line in lines)

        refused = gateway.push(device.cid, "3", alert="T", strategy=2, custom_callback="c")
        job, = eventually(gateway.lease)
        gateway.settle(job, "badToken", reason="Unregistered")
        lines = eventually(lambda: len(found := server.accepted(refused["msgId"])) >= 2 and found)
        assert summary(lines) == [("400", "Unregistered", None), ("400", "badToken", None)]
        assert {line["custom_callback"] for line in lines} == {"c"}
        # Events without a receipt are passed over and hold nothing up.
        expired = gateway.push(device.cid, "4", ttl=1_000, strategy=3)
        assert gateway.ends_as(expired["msgId"], "expired")
        device.connect()
        last = gateway.push(device.cid, "5")
        device.receive_and_ack(1)
        eventually(lambda: server.accepted(last["msgId"]))
        assert not server.accepted(expired["msgId"]) and not server.forged
        assert not [line for line in server.accepted() if "msgid" not in line]


def test_a_receiver_that_is_down_gets_every_line_when_it_comes_back(receiver, new_device):
    port, = free_ports(1)
    gateway = Gateway(limits=QUICK)
    gateway.sections["apps"][0]["getuiReceipts"] = {"url": f"http://127.0.0.1:{port}/receipt"}
    with gateway:
        device = new_device(gateway)
        messages = []
        for number in range(5):
            messages.append(gateway.push(device.cid, str(number), custom_callback=f"c-{number}")["msgId"])
            device.receive_and_ack(1)
        eventually(lambda: "longwire_webhooks_failing 1" in gateway.metrics())
        gateway.kill()
        device.close()
        gateway.start()
        faults = iter([500, 500])
        server = receiver("demo-master-secret", lambda lines: next(faults, 200), port=port)
        eventually(lambda: {line["msgid"] for line in server.accepted()} >= set(messages))
        lines = [line for line in server.accepted() if line["msgid"] in messages]
        # A request whose answer is late on a busy machine is repeated, so only the first line of each message counts.
        callbacks = {}
        for line in lines:
            callbacks.setdefault(line["msgid"], line["custom_callback"])
        assert list(callbacks) == messages, "in order"
        assert list(callbacks.values()) == [f"c-{number}" for number in range(5)]
        first, second, third = server.posts[:3]
        assert first[:2] == second[:2] == third[:2], "a repeat has the same lines, under the same id"
        assert not server.forged


def test_the_address_and_the_secret_are_changed_by_a_reload(receiver, new_device):
    old = receiver("demo-master-secret", lambda lines: 503)
    new = receiver("demo-master-secret-2")
    with with_receipts(old) as gateway:
        device = new_device(gateway)
        message = gateway.push(device.cid, "1")
        device.receive_and_ack(1)
        eventually(lambda: old.posts)
        gateway.sections["apps"][0]["getuiReceipts"]["url"] = new.url
        gateway.sections["apps"][0]["masterSecret"] = ["demo-master-secret-2", "demo-master-secret"]
        reload(gateway)
        eventually(lambda: new.accepted(message["msgId"]))
        assert not new.forged and not old.forged, "signed with the newest secret"
        # Without the setting the feed is gone, and nothing is posted.
        del gateway.sections["apps"][0]["getuiReceipts"]
        reload(gateway)
        version = eventually(lambda: refused_feed(gateway))
        assert version == 409
        count = len(new.posts)
        gateway.push(device.cid, "2")
        device.receive_and_ack(1)
        # And with it again, the next one is.
        gateway.sections["apps"][0]["getuiReceipts"] = {"url": new.url}
        reload(gateway)
        eventually(lambda: gateway.admin_call("GET", "/v1/apps/demo/events") if refused_feed(gateway) is None else None)
        later = gateway.push(device.cid, "3")
        device.receive_and_ack(1)
        eventually(lambda: new.accepted(later["msgId"]))
        assert len(new.posts) > count


def refused_feed(gateway):
    """Returns the status that refuses a read of the events; None if they are read."""
    try:
        gateway.admin_call("GET", "/v1/apps/demo/events")
    except Refused as refused:
        return refused.status
    return None


def test_two_apps_have_receivers_and_secrets_of_their_own(receiver, new_device):
    stuck = receiver("demo-master-secret", lambda lines: 500)
    well = receiver("other-master-1")
    gateway = with_receipts(stuck)
    gateway.sections["apps"].append({**OTHER, "getuiReceipts": {"url": well.url}})
    with gateway:
        first = new_device(gateway)
        gateway.push(first.cid, "1", custom_callback="of demo")
        first.receive_and_ack(1)
        gateway.app, gateway._token = OTHER, None
        second = new_device(gateway)
        message = gateway.push(second.cid, "2", custom_callback="of other")
        second.receive_and_ack(1)
        line, = eventually(lambda: well.accepted(message["msgId"]))
        assert (line["appid"], line["cid"], line["custom_callback"]) == ("other", second.cid, "of other")
        eventually(lambda: stuck.posts)
        assert {line["appid"] for _, lines, _ in stuck.posts for line in lines} == {"demo"}
        assert {line["appid"] for _, lines, _ in well.posts for line in lines} == {"other"}
        assert not stuck.forged and not well.forged


def events(gateway, message):
    page = gateway.admin_call("GET", "/v1/apps/demo/events?max=1000")
    return [item for item in page["items"] if item.get("msgId") == message]


def test_each_event_and_the_trace_have_the_custom_callback_of_their_push(own_gateway, new_device):
    gateway = own_gateway(app={"events": {}})
    device = new_device(gateway)
    single = gateway.push(device.cid, "1", custom_callback="single")["msgId"]
    device.receive_and_ack(1)
    body = {"push_message": {"transmission": "2"}, "settings": {"custom_callback": "list"}}
    listed = gateway.api("POST", "push/list/message", {"request_id": uuid.uuid4().hex, **body})
    assert "ignored" not in listed.get("longwire", {})
    gateway.api("POST", "push/list/cid", {"taskid": listed["data"]["taskid"], "audience": {"cid": [device.cid]}})
    of_list = device.receive_and_ack(1)[0].msg_id.hex()
    body = {"push_message": {"transmission": "3"}, "settings": {"custom_callback": "all"}}
    gateway.api("POST", "push/all", {"request_id": uuid.uuid4().hex, "audience": "all", **body})
    of_all = device.receive_and_ack(1)[0].msg_id.hex()
    plain = gateway.push(device.cid, "4")["msgId"]
    device.receive_and_ack(1)
    expected = {single: "single", of_list: "list", of_all: "all", plain: None}
    for message, text in expected.items():
        found = eventually(lambda: events(gateway, message))
        assert [(item["type"], item.get("customCallback")) for item in found] == [("delivered", text)]
        assert gateway.trace(message).get("customCallback") == text
    # After a kill the texts come from disk, for messages that ended long ago.
    gateway.kill()
    device.close()
    gateway.start()
    device.connect()
    for message in expected:
        device.feedback(bytes.fromhex(message))
    device.ping()
    for message, text in expected.items():
        found = eventually(lambda: [item for item in events(gateway, message) if item["type"] == "clicked"])
        assert [item.get("customCallback") for item in found] == [text]
        assert gateway.trace(message).get("customCallback") == text
    with pytest.raises(Refused) as refused:
        gateway.push(device.cid, "5", custom_callback="x" * 1_025)
    assert (refused.value.status, refused.value.body["code"]) == (400, 20001)
