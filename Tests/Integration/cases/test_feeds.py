"""Upstream messages and events from the view of a business server: in order, once, across kills, within bounds."""

import contextlib
import http.client
import http.server
import json
import select
import signal
import socket
import subprocess
import threading
import time

import pytest
from conftest import QUICK
from gateway import ADMIN_TOKEN, Gateway, Refused, binary, eventually
from hook_receiver import is_genuine
from longwire_client import Closed, pb

SECRET = "whsec_" + "bG9uZ3dpcmUgaW50ZWdyYXRpb24gaG9vayBzZWNyZXQ="
UPSTREAM = "/v1/apps/demo/upstream"
EVENTS = "/v1/apps/demo/events"


def send(device, request, payload, **fields):
    """Sends one message; returns its result code."""
    device.connection.send(pb.Upstream(request=request, payload=payload, **fields))
    result = device.receive(pb.UpstreamResult)
    assert result.request == request
    return result.code


def read(gateway, path=UPSTREAM, token=ADMIN_TOKEN, **query):
    text = "&".join(f"{key}={value}" for key, value in query.items())
    return gateway.admin_call("GET", f"{path}?{text}", token=token)


def ack(gateway, cursor, path=UPSTREAM, token=ADMIN_TOKEN):
    return gateway.admin_call("POST", path + "/ack", {"cursor": cursor}, token=token)


def drain(gateway, path=UPSTREAM, pages=1_000):
    """Reads and acks all pages; `pages` bounds them while senders are active and the end may never come."""
    items = []
    for _ in range(pages):
        page = read(gateway, path, max=50)
        if not page["items"]:
            break
        items += page["items"]
        ack(gateway, page["cursor"], path)
    return items


def metric(gateway, name):
    return next(float(line.rsplit(" ", 1)[1]) for line in gateway.metrics().splitlines() if line.startswith(name + " "))


def test_messages_are_read_in_order_and_acked_durably(own_gateway, new_device):
    gateway = own_gateway(app={"upstream": {}})
    device = new_device(gateway)
    task = bytes(range(16))
    assert send(device, 1, b"hello", task_id=task) == 0
    assert send(device, 2, b"\xff\x00") == 0
    assert send(device, 1, b"hello", task_id=task) == 0, "the same again is no second message"
    assert send(device, 1, b"other") == 3, "the number is taken"
    assert send(device, 3, b"") == 2 and send(device, 4, b"x" * 16_385) == 2
    page = read(gateway)
    first, second = page["items"]
    assert (first["type"], first["payload"], first["cid"]) == ("upstream", "hello", device.cid)
    assert first["request"] == 1 and "taskId" in first and second["payloadBase64"] == "/wA="
    assert (page["cursor"], page["acked"], page["more"]) == ("2", "0", False)
    assert read(gateway, after=1)["items"] == [second] and read(gateway, max=1)["more"] is True
    assert ack(gateway, "1") == {"acked": "1", "last": "2"}
    gateway.kill()
    gateway.start()
    assert [item["cursor"] for item in read(gateway)["items"]] == ["2"]
    device.connect()
    assert send(device, 2, b"\xff\x00") == 0, "remembered across the kill"
    assert send(device, 5, b"new") == 0
    assert [item["request"] for item in drain(gateway)] == [2, 5]
    for cursor in ("9", "x", "-1"):
        with pytest.raises(Refused) as refused:
            ack(gateway, cursor)
        assert refused.value.status == (409 if cursor == "9" else 400)


def test_what_waits_is_counted_after_a_restart_though_nobody_asks(own_gateway, new_device):
    gateway = own_gateway(app={"upstream": {}, "events": {}})
    device = new_device(gateway)
    for number in (1, 2, 3):
        assert send(device, number, b"waits") == 0
    counted = 'longwire_app_feed_items{app="demo",type="upstream"}'
    assert metric(gateway, counted) == 3
    gateway.kill()
    gateway.start()
    eventually(lambda: metric(gateway, counted) == 3, "the count of a feed that nobody has asked for")
    assert metric(gateway, "longwire_feed_items") >= 3
    eventually(lambda: metric(gateway, "longwire_feed_oldest_seconds") >= 1, "its age")
    eventually(lambda: metric(gateway, 'longwire_app_feed_oldest_seconds{app="demo",type="upstream"}') >= 1, "its age in its app")
    drain(gateway)
    eventually(lambda: metric(gateway, counted) == 0 and metric(gateway, 'longwire_app_feed_oldest_seconds{app="demo",type="upstream"}') == 0,
               "nothing waits")


def test_a_reader_waits_for_the_first_message(own_gateway, new_device):
    gateway = own_gateway(app={"upstream": {}})
    device = new_device(gateway)
    pages = []
    waiter = threading.Thread(target=lambda: pages.append(read(gateway, waitSeconds=30)))
    waiter.start()
    time.sleep(0.3)
    assert send(device, 1, b"now") == 0
    waiter.join(10)
    assert pages[0]["items"][0]["payload"] == "now"
    started = time.monotonic()
    assert read(gateway, after=1, waitSeconds=1)["items"] == [] and 0.5 < time.monotonic() - started < 10


def test_a_reader_that_has_left_keeps_no_place(own_gateway):
    gateway = own_gateway(app={"upstream": {}}, limits={**QUICK, "longPolls": 1})

    def waits(seconds):
        try:
            return read(gateway, waitSeconds=seconds)
        except Refused as refused:
            assert refused.status == 503, refused
            return None
    with contextlib.ExitStack() as stack:
        readers = []

        def stands():
            # The state query may hold the only place when the reader arrives. The reader is then refused and retries.
            if not readers or select.select([readers[-1]], [], [], 0)[0]:
                readers.append(stack.enter_context(socket.create_connection(("127.0.0.1", gateway.admin), timeout=10)))
                readers[-1].sendall(
                    f"GET {UPSTREAM}?waitSeconds=30 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n\r\n".encode())
            return waits(0) is None and not select.select([readers[-1]], [], [], 0)[0]
        eventually(stands, "the waiting reader", 20)
    started = time.monotonic()
    eventually(lambda: waits(0), "its place", 20)
    assert time.monotonic() - started < 10
    started = time.monotonic()
    assert read(gateway, waitSeconds=3)["items"] == [] and time.monotonic() - started > 2


def test_rights_and_apps_are_kept_apart(own_gateway, new_device):
    other = {"appId": "other", "appKey": "otherKey", "appSecret": "other-secret-1", "masterSecret": "other-master-1"}
    gateway = Gateway(limits=QUICK, app={"upstream": {}})
    tokens = {}
    for name, may, apps in (
        ("up", "upstream", None), ("trace", "trace", None), ("elsewhere", "upstream", ["other"]),
        ("watcher", "events", None),
    ):
        tokens[name] = f"token-of-{name}-0123456789"
        gateway._secret(name, tokens[name])
        one = {"name": name, "tokenFile": str(gateway.folder / name), "may": [may]}
        gateway.sections["credentials"].append({**one, "apps": apps} if apps else one)
    gateway.sections["apps"].append(other)
    with gateway:
        device = new_device(gateway)
        assert send(device, 1, b"x") == 0
        assert len(read(gateway, token=tokens["up"])["items"]) == 1
        assert ack(gateway, "1", token=tokens["up"])["acked"] == "1"
        for name, path, status in (
            ("trace", UPSTREAM, 403), ("elsewhere", UPSTREAM, 404), ("watcher", UPSTREAM, 403),
            ("up", EVENTS, 403), ("up", "/v1/apps/other/upstream", 409), ("up", "/v1/apps/none/upstream", 404),
            ("watcher", EVENTS, 409),
        ):
            with pytest.raises(Refused) as refused:
                read(gateway, path, token=tokens[name])
            assert refused.value.status == status, (name, path)
            with pytest.raises(Refused) as refused:
                ack(gateway, "1", path, token=tokens[name])
            assert refused.value.status == status, (name, path)
        with pytest.raises(Refused) as refused:
            gateway.call("GET", UPSTREAM, port=gateway.admin)
        assert refused.value.status == 401


def test_bounds_refuse_and_an_ack_makes_room(own_gateway, new_device):
    gateway = own_gateway(app={"upstream": {"maxItems": 3, "maxItemsPerDevice": 2}})
    first, second = new_device(gateway), new_device(gateway)
    assert [send(first, number, b"x") for number in (1, 2, 3)] == [0, 0, 100]
    assert [send(second, number, b"x") for number in (1, 2)] == [0, 101]
    ack(gateway, "2")
    eventually(lambda: send(second, 2, b"x") == 0)
    assert send(first, 3, b"x") == 0 and send(first, 4, b"x") == 101
    ack(gateway, "5")
    eventually(lambda: send(first, 4, b"x") == 0)
    assert [item["request"] for item in read(gateway)["items"]] == [4]


def test_what_is_sent_at_once_is_taken_in_order_and_refused_in_order(own_gateway, new_device):
    """After a message refused as retryable no later one is accepted."""
    gateway = own_gateway(app={"upstream": {"maxItemsPerDevice": 40}})
    device = new_device(gateway)
    device.connection.send(*(pb.Upstream(request=number, payload=b"x") for number in range(1, 51)))
    results = [device.receive(pb.UpstreamResult) for _ in range(50)]
    assert [(one.request, one.code) for one in results] == [(number, 0 if number <= 40 else 100) for number in range(1, 51)]
    assert [item["request"] for item in read(gateway, max=1000)["items"]] == list(range(1, 41))
    ack(gateway, "40")
    for number in range(41, 51):
        eventually(lambda: send(device, number, b"x") == 0)
    assert [item["request"] for item in drain(gateway)] == list(range(41, 51))


def test_none_overtakes_a_message_that_is_to_come_again(own_gateway, new_device):
    gateway = own_gateway(app={"upstream": {"maxItemsPerDevice": 2}})
    device = new_device(gateway)
    assert [send(device, number, b"x") for number in (1, 2, 3)] == [0, 0, 100]
    ack(gateway, "2")
    assert send(device, 4, b"x") == 100, "there is room, and another message before it"
    eventually(lambda: send(device, 3, b"x") == 0)
    assert send(device, 4, b"x") == 0
    assert [item["request"] for item in drain(gateway)] == [3, 4]
    assert [send(device, number, b"x") for number in (5, 6, 7)] == [0, 0, 100]
    ack(gateway, "6")
    # A session starts with any first message.
    device.close()
    device.connect()
    eventually(lambda: send(device, 8, b"x") == 0)


def test_a_webhook_can_be_changed_by_a_reload(new_device):
    """Items in flight to the old address are sent to the new one."""
    old, new = Server(lambda page, server: 500), Server(lambda page, server: 200)
    gateway = Gateway(limits=QUICK)
    gateway._secret("feed", SECRET)
    gateway.sections["apps"][0]["upstream"] = webhook({}, old, str(gateway.folder / "feed"))
    with gateway:
        device = new_device(gateway)
        assert send(device, 1, b"x") == 0
        eventually(lambda: len(old.ids) > 0)
        gateway.sections["apps"][0]["upstream"]["webhook"]["url"] = new.url
        gateway.config.write_text(json.dumps(gateway.sections))
        gateway.process.send_signal(signal.SIGHUP)
        eventually(lambda: [item["payload"] for item in new.items()] == ["x"], timeout=20)
        count = len(old.ids)
        assert send(device, 2, b"y") == 0
        eventually(lambda: len(new.items()) == 2)
        assert len(old.ids) == count and len(new.ids) == 2
    for server in (old, new):
        server.shutdown()


def test_an_app_without_the_feed_says_so(gateway, new_device):
    device = new_device(gateway)
    assert send(device, 1, b"x") == 1
    with pytest.raises(Refused) as refused:
        read(gateway)
    assert refused.value.status == 409


class Sender(threading.Thread):
    """A device that sends numbered messages across kills, each until its result is an acceptance."""

    def __init__(self, device, stop):
        super().__init__(daemon=True)
        self.device, self.stop, self.accepted, self.number = device, stop, [], 1
        self.start()

    def run(self):
        while not self.stop.is_set():
            try:
                if self.device.connection is None:
                    self.device.connect()
                code = send(self.device, self.number, b"%d" % self.number)
            except (OSError, Closed):
                self.device.close()
                time.sleep(0.05)
                continue
            if code == 0:
                self.accepted.append(self.number)
                self.number += 1
            else:
                assert code >= 100, code
                time.sleep(0.05)


def test_no_accepted_message_is_lost_doubled_or_out_of_order_across_kills(own_gateway, new_device):
    gateway = own_gateway(app={"upstream": {}})
    devices = [new_device(gateway) for _ in range(6)]
    stop = threading.Event()
    senders = [Sender(device, stop) for device in devices]
    items = []
    for _ in range(4):
        time.sleep(0.8)
        items += drain(gateway, pages=10)
        gateway.kill()
        gateway.start()
    time.sleep(0.5)
    stop.set()
    for sender in senders:
        sender.join(30)
        assert not sender.is_alive()
    items += drain(gateway)
    assert read(gateway)["items"] == []
    assert len({item["cursor"] for item in items}) == len(items), "an acked item comes no second time"
    for sender in senders:
        got = [item["request"] for item in items if item["cid"] == sender.device.cid]
        assert got == sorted(set(got)), "in order, and none twice"
        assert set(sender.accepted) <= set(got) and len(sender.accepted) > 5
        # At most the one whose result was lost in the last kill.
        assert set(got) - set(sender.accepted) <= {sender.number}


class Server(http.server.ThreadingHTTPServer):
    """A business server's webhook; `answer(page)` returns a status, or None to hang."""

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.pages, self.ids, self.forged = answer, [], [], 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}/feed"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def items(self):
        return [item for page in self.pages for item in page["items"]]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not is_genuine(SECRET, self.headers, body):
            self.server.forged += 1
        page = json.loads(body)
        self.server.ids.append(self.headers["webhook-id"])
        status = self.server.answer(page, self.server)
        if status is None:
            time.sleep(3)
            return
        if status == "flood":
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"x" * 65_536)
            except OSError:
                return
        if status == 302:
            self.send_response(302)
            self.send_header("Location", self.server.url + "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if status == 200:
            self.server.pages.append(page)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


def webhook(gateway_options, server, secret_file, **feed):
    return {"webhook": {"url": server.url, "secretFile": secret_file, "timeoutSeconds": 1, **gateway_options}, **feed}


def test_a_webhook_gets_every_message_in_order_however_it_behaves(new_device):
    """A webhook that hangs, fails, redirects and floods first; none of these counts as an answer."""
    faults = iter([None, 500, 302, "flood"])
    server = Server(lambda page, server: next(faults, 200))
    gateway = Gateway(limits=QUICK)
    gateway._secret("feed", SECRET)
    gateway.sections["apps"][0]["upstream"] = webhook({}, server, str(gateway.folder / "feed"))
    with gateway:
        device = new_device(gateway)
        for number in range(1, 6):
            assert send(device, number, b"%d" % number) == 0
        eventually(lambda: len(server.items()) >= 5, timeout=60)
        assert [item["payload"] for item in server.items()] == ["1", "2", "3", "4", "5"]
        assert server.pages[0]["type"] == "longwire.upstream" and server.pages[0]["appId"] == "demo"
        assert server.forged == 0 and len(set(server.ids[:5])) == 1, "a repeat has the same id"
        eventually(lambda: read(gateway)["acked"] == "5")
        gateway.kill()
        gateway.start()
        device.connect()
        assert send(device, 6, b"6") == 0
        eventually(lambda: len(server.items()) >= 6)
        assert server.items()[-1]["payload"] == "6" and len(server.items()) == 6
    server.shutdown()


def test_a_webhook_that_hangs_delays_no_other_app_and_no_device(new_device):
    stuck, well = Server(lambda page, server: None), Server(lambda page, server: 200)
    gateway = Gateway(limits=QUICK)
    gateway._secret("feed", SECRET)
    secret = str(gateway.folder / "feed")
    other = {"appId": "other", "appKey": "otherKey", "appSecret": "other-secret-1", "masterSecret": "other-master-1"}
    gateway.sections["apps"][0]["upstream"] = webhook({}, stuck, secret)
    gateway.sections["apps"].append({**other, "upstream": webhook({}, well, secret)})
    with gateway:
        device = new_device(gateway)
        gateway.app = other
        second = new_device(gateway)
        started = time.monotonic()
        for number in range(1, 21):
            assert send(device, number, b"x") == 0 and send(second, number, b"x") == 0
        eventually(lambda: len(well.items()) == 20, timeout=15)
        assert time.monotonic() - started < 15 and not stuck.pages
    for server in (stuck, well):
        server.shutdown()


def test_events_tell_what_became_of_messages_and_devices(own_gateway, new_device):
    gateway = own_gateway(app={"events": {}})
    device = new_device(gateway)
    acked = gateway.push(device.cid, "1")
    device.receive_and_ack(1)
    device.close()
    expired = gateway.push(device.cid, "2", ttl=1_000, strategy=3)
    kinds = ["online", "delivered", "offline", "expired"]
    items = eventually(lambda: (found := read(gateway, EVENTS)["items"]) and len(found) >= 4 and found)
    assert [item["type"] for item in items] == kinds
    assert [item.get("msgId") for item in items] == [None, acked["msgId"], None, expired["msgId"]]
    assert all(item["cid"] == device.cid for item in items)
    assert [item["cursor"] for item in items] == ["1", "2", "3", "4"]
    ack(gateway, "2", EVENTS)
    gateway.kill()
    gateway.start()
    assert [item["type"] for item in read(gateway, EVENTS)["items"]] == kinds[2:]


def test_no_end_goes_untold_across_kills(own_gateway, new_device):
    """Every final state in a trace has its event after any kill, and each device's events keep their order."""
    gateway = own_gateway(app={"events": {}})
    devices = [new_device(gateway) for _ in range(4)]
    ended, items = [], []
    for _ in range(3):
        for device in devices:
            if device.connection is None:
                device.connect()
        for number in range(30):
            device = devices[number % len(devices)]
            ended.append((device.cid, gateway.push(device.cid, "x")["msgId"]))
            device.receive_and_ack(1)
        for _, message in ended[-30:]:
            gateway.ends_as(message, "delivered")
        gateway.kill()
        for device in devices:
            device.close()
        gateway.start()
        items += drain(gateway, EVENTS)
    eventually(lambda: items.extend(drain(gateway, EVENTS)) or {m for _, m in ended} <= {i.get("msgId") for i in items})
    for device in devices:
        told = []
        for item in items:
            if item["cid"] == device.cid and item["type"] == "delivered" and item["msgId"] not in told:
                told.append(item["msgId"])
        assert told == [message for cid, message in ended if cid == device.cid]


def test_a_consumer_that_is_away_too_long_is_told_of_the_gap(own_gateway, new_device):
    gateway = own_gateway(app={"events": {"maxItems": 10}})
    device = new_device(gateway)
    for number in range(40):
        gateway.push(device.cid, str(number))
        device.receive_and_ack(1)
    page = eventually(lambda: (found := read(gateway, EVENTS)) and found["cursor"] == "41" and found)
    gap, items = page["items"][0], page["items"][1:]
    assert gap["type"] == "gap" and gap["count"] + len(items) == 41 and len(items) <= 32
    assert gap["cursor"] == str(gap["count"]) and items[-1]["type"] == "delivered"
    ack(gateway, page["cursor"], EVENTS)
    assert read(gateway, EVENTS)["items"] == []


def test_events_are_posted_to_a_webhook(new_device):
    server = Server(lambda page, server: 200)
    gateway = Gateway(limits=QUICK)
    gateway._secret("feed", SECRET)
    gateway.sections["apps"][0]["events"] = webhook({}, server, str(gateway.folder / "feed"))
    with gateway:
        device = new_device(gateway)
        gateway.push(device.cid, "1")
        device.receive_and_ack(1)
        eventually(lambda: [item["type"] for item in server.items()] == ["online", "delivered"])
        assert server.pages[0]["type"] == "longwire.events" and server.forged == 0
        # A stop does not wait for a consumer's long poll.
        waiter = threading.Thread(target=lambda: wait_for_events(gateway))
        waiter.start()
        time.sleep(0.3)
        started = time.monotonic()
        assert gateway.stop() == 0 and time.monotonic() - started < 15
        waiter.join(10)
    server.shutdown()


def wait_for_events(gateway):
    """Starts a long poll that the end of the gateway may interrupt."""
    with contextlib.suppress(OSError, Refused, http.client.HTTPException):
        read(gateway, EVENTS, waitSeconds=30)


def test_the_command_line_sends_and_follows(own_gateway, tmp_path):
    gateway = own_gateway(app={"upstream": {}})
    lines = "".join(f"line {number}\n" for number in range(5))
    words = [
        binary("longwire"), "connect", "--host", "127.0.0.1", "--port", str(gateway.device), "--app", "demo",
        "--app-secret", gateway.app["appSecret"], "--state-file", str(tmp_path / "state"), "--send-lines", "--timeout", "30",
    ]
    sent = subprocess.run(words, input=lines, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert sent.returncode == 0, sent.stderr
    assert [json.loads(line)["request"] for line in sent.stdout.splitlines() if '"sent"' in line] == [1, 2, 3, 4, 5]
    follow = [
        binary("longwire"), "upstream", "follow", "--app", "demo", "--admin", f"127.0.0.1:{gateway.admin}",
        "--admin-token", ADMIN_TOKEN, "--once", "--max", "2",
    ]
    got = subprocess.run(follow, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert got.returncode == 0, got.stderr
    assert [json.loads(line)["payload"] for line in got.stdout.splitlines()] == lines.split("\n")[:-1]
    assert subprocess.run(follow, capture_output=True, text=True, timeout=60, cwd=tmp_path).stdout == ""
