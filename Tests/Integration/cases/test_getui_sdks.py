"""The requests of Getui's server SDKs, reproduced: headers, charsets, verbs, tokens, bodies, connections.

The PHP client is a real one (php-curl), skipped where PHP is not installed. Java's, .NET's and curl's requests are sent byte by
byte over sockets.
"""

import contextlib
import hashlib
import json
import pathlib
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import uuid

import pytest
from gateway import TIMEOUT, eventually

HERE = pathlib.Path(__file__).resolve().parent


class Wire:
    """One keep-alive connection; a request is sent as bytes, its answer read completely."""

    def __init__(self, gateway):
        self.socket = socket.create_connection(("127.0.0.1", gateway.http), timeout=TIMEOUT)
        self.stream = self.socket.makefile("rb")
        self.answers = 0

    def send(self, *parts):
        for part in parts:
            self.socket.sendall(part.encode() if isinstance(part, str) else part)

    def answer(self, has_body=True):
        """Returns status, headers (names in lower case) and body."""
        status = self.stream.readline().decode("latin-1")
        headers = {}
        while (line := self.stream.readline().rstrip(b"\r\n")):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        code = int(status.split()[1])
        body = b""
        if has_body and code != 100:
            body = self.stream.read(int(headers["content-length"]))
            self.answers += 1
        return code, headers, body

    def close(self):
        self.stream.close()
        self.socket.close()


class Java:
    """Apache's HttpClient as the Java SDK configures it: keep-alive connections, numbers as numbers, one renewal of the token."""

    def __init__(self, gateway, base="/v2/"):
        self.gateway, self.base = gateway, base
        self.wire, self.token, self.authentications = Wire(gateway), None, 0

    def once(self, method, path, body=None, query=""):
        text = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        lines = [f"{method} {self.base}{self.gateway.app['appId']}{path}{query} HTTP/1.1"]
        if self.token:
            lines.append(f"token: {self.token}")
        lines.append("sdkVersion: 1.0.11.0")
        lines.append("openStableDomain: true")
        if text is not None:
            lines += [f"Content-Length: {len(text)}", "Content-Type: application/json; charset=UTF-8"]
        elif method in ("POST", "DELETE", "PUT"):
            lines.append("Content-Length: 0")
        lines += [
            f"Host: 127.0.0.1:{self.gateway.http}", "Connection: Keep-Alive",
            "User-Agent: Apache-HttpClient/4.5.13 (Java/17.0.15)", "Accept-Encoding: gzip,deflate",
        ]
        # A path parameter is sent unchanged, whatever it contains.
        self.wire.send("\r\n".join(lines) + "\r\n\r\n", text or b"")
        status, headers, answer = self.wire.answer()
        assert status in (200, 400, 401, 403), (status, answer)
        assert headers["content-type"].replace(" ", "").lower() == "application/json;charset=utf-8"
        assert "content-encoding" not in headers and headers.get("connection") != "close"
        return json.loads(answer)

    def authenticate(self):
        app, now = self.gateway.app, int(time.time() * 1000)
        sign = hashlib.sha256(f"{app['appKey']}{now}{app['masterSecret']}".encode()).hexdigest()
        self.authentications += 1
        answer = self.once("POST", "/auth", {"sign": sign, "timestamp": now, "appkey": app["appKey"]})
        assert answer["code"] == 0
        assert int(answer["data"]["expire_time"]) - now > 3_600_000, "it would be renewed all the time"
        self.token = answer["data"]["token"]

    def call(self, method, path, body=None, query=""):
        if not self.token:
            self.authenticate()
        answer = self.once(method, path, body, query)
        if answer["code"] == 10001:
            self.authenticate()
            answer = self.once(method, path, body, query)
        return answer


def push(cid, **fields):
    return {
        "request_id": uuid.uuid4().hex, "audience": {"cid": [cid]},
        "settings": {"ttl": 3_600_000, "strategy": {"default": 1}},
        "push_message": {"transmission": "hello"}, **fields,
    }


def test_javas_calls_succeed_over_one_connection(gateway, new_device):
    device = new_device(gateway, token="a1b2")
    cid, java = device.cid, Java(gateway)
    single = java.call("POST", "/push/single/cid", push(cid, group_name="java", task_name="t"))
    ((task, statuses),) = single["data"].items()
    assert statuses == {cid: "successed_online"} and task.startswith("RASS_")
    assert device.receive_and_ack(1)[0].payload == b"hello"
    stored = java.call("POST", "/push/list/message", push(cid, settings={"schedule_time": 0, "speed": 0}))
    listed = stored["data"]["taskid"]
    body = {"taskid": listed, "audience": {"cid": [cid, cid]}, "is_async": False, "need_alias_detail": False}
    assert java.call("POST", "/push/list/cid", body)["data"] == {listed: {cid: "successed_online"}}
    assert java.call("POST", "/user/alias", {"data_list": [{"cid": cid, "alias": "张三"}]})["code"] == 0
    assert java.call("GET", "/user/cid/alias/张三", query="?alias_type=")["data"] == {"cid": [cid]}
    assert java.call("POST", "/user/count/", {"tag": [{"key": "phone_type", "values": ["ios"], "opt_type": "and"}]})["code"] == 0
    assert java.call("POST", f"/user/black/cid/{cid}")["code"] == 0
    assert java.call("DELETE", f"/user/black/cid/{cid}")["code"] == 0
    assert java.call("PUT", "/user/custom_tag/batch/标签", {"cid": [cid]})["data"] == {cid: "true"}
    assert java.call("DELETE", "/user/custom_tag/batch/标签", {"cid": [cid]})["data"] == {cid: "true"}
    assert java.call("DELETE", "/user/alias", {"data_list": [{"cid": cid, "alias": "张三"}]})["code"] == 0
    report = java.call("GET", f"/report/push/task/{listed}", query="?actionIdList=90001,90002")
    assert all(isinstance(number, int) for number in report["data"][listed]["total"].values())
    assert java.call("GET", "/report/push/count")["data"]["gt"]["list"]["limit"] is True
    assert java.call("DELETE", f"/task/{listed}")["code"] == 0
    assert java.call("POST", "/log/upload", {"time": 1, "pushData": {}, "switchIncr": 0})["code"] == 0
    assert java.authentications == 1 and java.wire.answers == 16


# The fields besides the message in the data classes of Java's version 1.0.11, with their types and spellings.
JAVAS_SETTINGS = {
    "ttl": 3600000, "speed": 0, "custom_callback": "回执", "filter_notify_off": False, "active_days": 3, "need_backup": True,
    "lst": 60000, "active_push": True,
    "strategy": dict.fromkeys(("default", "ios", "hw", "xm", "mz", "op", "vv", "st", "hx", "hwq", "ho", "hoshw"), 1),
}
JAVAS_CHANNELS = {
    "ios": {
        "type": "notify", "auto_badge": "+1", "payload": '{"k":"值"}', "apns-collapse-id": "c-1",
        "multimedia": [{"url": f"https://example.com/{kind}", "type": kind, "only_wifi": kind == 1} for kind in (1, 2, 3)],
        "aps": {
            "alert": {
                "title": "标题", "body": "正文 😀", "subtitle": "s", "action-loc-key": "PLAY", "loc-key": "L", "loc-args": ["a"],
                "launch-image": "l.png", "title-loc-key": "T", "title-loc-args": ["t"], "subtitle-loc-key": "S",
                "subtitle-loc-args": ["s"],
            },
            "content-available": 0, "sound": "default", "category": "A", "thread-id": "t", "relevance-score": 0.5,
            "interruption-level": "time-sensitive", "mutable-content": 1,
        },
    },
    "android": {"ups": {
        "notification": {"title": "t", "body": "b", "click_type": "intent", "intent": "i", "notify_id": "7"},
        "options": {"HW": {"/message/android/notification/badge": {"add_num": 1}}, "ALL": {"channel": "default"}},
    }},
    "harmony": {"notification": {"title": "t", "body": "b", "click_type": "want", "want": "{}", "notify_id": "8"}},
    "mp": {"wx": {"template_id": "T", "lang": "zh_CN", "data": {"thing1": {"value": "v"}}}},
}
JAVAS_NOTIFICATION = {
    "title": "标题", "body": "内容", "logo": "push.png", "logo_url": "https://example.com/l.png", "channel_id": "Default",
    "channel_name": "Default", "channel_level": "3", "slot_type": "SERVICE_INFORMATION", "intent": "i", "want": "{}",
    "url": "https://example.com", "payload": "p", "notify_id": "12", "ring_name": "ring", "badge_add_num": "1",
    "thread_id": "t", "redisplay_freq": 2, "redisplay_duration": 3, "category": "CATEGORY_MESSAGE",
}


def test_every_field_of_javas_data_classes_is_taken(gateway, new_device):
    device, java = new_device(gateway, token="a1b2"), Java(gateway)
    fields = {"task_name": "任务", "group_name": "java", "settings": JAVAS_SETTINGS, "push_channel": JAVAS_CHANNELS}
    window = {"network_type": 0, "duration": "1590547347000-1590633747000"}

    def says(**message):
        answer = java.call("POST", "/push/single/cid", push(device.cid, **fields, push_message={**window, **message}))
        assert answer["code"] == 0, answer
        ((_, statuses),) = answer["data"].items()
        assert statuses == {device.cid: "successed_online"}
        return device.receive_and_ack(1)[0].payload

    assert says(transmission="hello") == b"hello"
    for number, click in enumerate(("intent", "url", "payload", "payload_custom", "startapp", "none")):
        more = {"big_image": "https://example.com/i.png"} if number % 2 else {"big_text": "text"}
        payload = json.loads(says(notification={**JAVAS_NOTIFICATION, **more, "click_type": click}))
        assert payload["click_type"] == click and payload["slot_type"] == "SERVICE_INFORMATION"
    fields["push_channel"] = {"ios": {"type": "liveactivity", "laId": "la-1", "aps": {
        "timestamp": 1795335255, "event": "end", "dismissal-date": 1795335355, "content-state": {"progress": 0.5}}}}
    assert says(transmission="activity") == b"activity"
    fields["push_channel"] = {"ios": {"type": "voip", "payload": "{}", "aps": {}}, "harmony": {"custom": {"HW": {
        "type": "voip_call", "payload": "{}"}}}, "android": {"ups": {"revoke": {"old_task_id": "RASL_1"}}}}
    assert says(transmission="call") == b"call"
    # The SDK omits null values: a batch has no `is_async`, a stored message no audience.
    batch = java.call("POST", "/push/single/batch/cid", {"msg_list": [push(device.cid, **fields)]})
    assert len(batch["data"]) == 1 and device.receive_and_ack(1)[0].payload == b"hello"
    body = {"request_id": uuid.uuid4().hex, **fields, "push_message": {"transmission": "stored"}}
    assert java.call("POST", "/push/list/message", body)["data"]["taskid"].startswith("RASL_")


def test_javas_paths_are_percent_encoded_on_the_wire(gateway, new_device):
    # The SDK does not encode its path parameters. The HTTP client does, in UTF-8, with commas unchanged.
    device, java = new_device(gateway), Java(gateway)
    alias, tag = urllib.parse.quote("张三"), urllib.parse.quote("标签")
    assert java.call("POST", "/user/alias", {"data_list": [{"cid": device.cid, "alias": "张三", "alias_type": "类"}]})["code"] == 0
    assert java.call("GET", f"/user/cid/alias/{alias}", query="?alias_type=%E7%B1%BB")["data"] == {"cid": [device.cid]}
    assert java.call("PUT", f"/user/custom_tag/batch/{tag}", {"cid": [device.cid]})["data"] == {device.cid: "true"}
    assert java.call("GET", f"/user/custom_tag/cid/{device.cid}")["data"] == {device.cid: ["标签"]}
    assert java.call("DELETE", f"/user/alias/{alias}", query="?alias_type=%E7%B1%BB")["code"] == 0


def test_the_calls_of_javas_newer_versions_succeed_and_test_devices_are_kept(own_gateway, new_device):
    gateway = own_gateway()
    first, second, java = new_device(gateway, token="a1b2"), new_device(gateway), Java(gateway)
    for kind in ("base", "advanced"):
        info = java.call("GET", f"/user/info/{kind}/{first.cid},nobody")["data"]
        user = info["validCids"][first.cid]
        assert info["invalidCids"] == ["nobody"] and user["device_token"] == "a1b2" and user["phone_type"] == 2
        assert user["notification_switch"] is True and len(user["create_time"]) == 19 and user["login_freq"] == 1
    bound = java.call("POST", "/user/bind_dt/wx", {"dt_list": [{"cid": first.cid, "device_token": "openid"}]})
    assert bound["data"]["errorList"] == [{"cid": first.cid, "device_token": "openid", "error_code": 20001}]
    assert "data" not in java.call("POST", "/user/bind_dt/wx", {"dt_list": [{"cid": first.cid, "device_token": ""}]})
    items = [{"cid": first.cid, "remark": "我的手机"}, {"cid": second.cid, "remark": "b"}, {"cid": "nobody", "remark": "c"}]
    added = java.call("POST", "/user/test/cid/add", {"cid_list": items})["data"]
    assert added == {"success": [first.cid, second.cid], "failed": ["nobody"]}
    assert java.call("POST", "/user/test/cid/update", {"cid": second.cid, "remark": "zweites"})["code"] == 0
    assert java.call("POST", "/user/test/cid/delete", {"cid_list": [first.cid]})["code"] == 0
    assert java.call("POST", "/user/test/cid/add", {"cid_list": items[:1]})["data"]["success"] == [first.cid]
    # Answered calls are on disk.
    gateway.kill()
    gateway.start()
    java = Java(gateway)
    page = java.call("GET", "/user/test/cid/list", query="?pageNum=1&pageSize=5")["data"]
    assert {device["cid"]: device["remark"] for device in page["list"]} == {first.cid: "我的手机", second.cid: "zweites"}
    assert {device["phone_type"] for device in page["list"]} == {"2"}
    assert page["pagination"] == {"total_page": 1, "page_size": 5, "total": 2, "current_page": 1}
    query = f"?cid={first.cid}&remark={urllib.parse.quote('手机')}"
    assert [device["cid"] for device in java.call("GET", "/user/test/cid/list", query=query)["data"]["list"]] == [first.cid]


def test_java_renews_a_revoked_token_by_itself(gateway, new_device):
    device, java = new_device(gateway), Java(gateway)
    java.authenticate()
    assert java.once("DELETE", f"/auth/{java.token}")["code"] == 0
    assert java.call("POST", "/push/single/cid", push(device.cid))["code"] == 0
    assert java.authentications == 2


@pytest.mark.parametrize("base", ["/v2/", "//v2/", "/v2//"])
def test_slashes_of_a_configured_base_url_do_not_matter(gateway, base):
    java = Java(gateway, base)
    assert java.call("GET", "/report/online_user")["code"] == 0
    assert java.call("GET", "//report/online_user/")["code"] == 0


def test_hosts_are_probed_with_head(gateway):
    wire = Wire(gateway)
    for _ in range(3):
        wire.send("HEAD /v2/check HTTP/1.1\r\nHost: x\r\nConnection: Keep-Alive\r\n\r\n")
        assert wire.answer(has_body=False)[0] == 200
    wire.close()


def test_dotnets_bodies_carry_nulls_and_come_in_chunks(gateway, new_device):
    device = new_device(gateway)
    body = push(device.cid, appkey=None, sign=None, timestamp=0, token=None)
    body["push_message"] |= {"network_type": 0, "duration": None, "notification": None, "revoke": None}
    body["push_channel"] = {"ios": None, "android": {
        "ups": {"notification": {"title": "t", "body": "b", "click_type": "none"}, "transmission": None}}}
    text = json.dumps(body).encode()
    wire = Wire(gateway)
    wire.send(
        f"POST /v2/{gateway.app['appId']}/push/single/cid HTTP/1.1\r\nHost: x\r\ntoken: {gateway.authenticate()}\r\n"
        "Transfer-Encoding: chunked\r\nContent-Type: application/json; charset=utf-8\r\n\r\n")
    for start in range(0, len(text), 100):
        part = text[start:start + 100]
        wire.send(f"{len(part):x}\r\n", part, "\r\n")
    wire.send("0\r\n\r\n")
    status, _, answer = wire.answer()
    # The status must be one of Getui's three words, because others make this SDK throw.
    ((_, statuses),) = json.loads(answer)["data"].items()
    assert status == 200 and statuses == {device.cid: "successed_online"}
    wire.close()


def test_curl_waits_for_leave_to_send_a_large_body(gateway, new_device):
    device, token = new_device(gateway), gateway.authenticate()
    text = json.dumps(push(device.cid, task_name="x" * 1_500_000)).encode()
    wire = Wire(gateway)
    for _ in range(2):
        wire.send(
            f"POST /v2/{gateway.app['appId']}/push/single/cid HTTP/1.1\r\nHost: x\r\ntoken:{token}\r\n"
            f"Content-Type:application/json;charset=UTF-8\r\nContent-Length: {len(text)}\r\nExpect: 100-continue\r\n\r\n")
        assert wire.answer()[0] == 100
        wire.send(text)
        status, _, answer = wire.answer()
        assert status == 200 and json.loads(answer)["code"] == 0
    wire.close()


def read(device, payloads):
    """Acks messages until the connection ends."""
    with contextlib.suppress(Exception):
        while True:
            payloads += [message.payload for message in device.receive_and_ack(1, timeout=60)]


@pytest.mark.skipif(not shutil.which("php"), reason="PHP is not installed (php-cli, php-curl)")
@pytest.mark.parametrize("slash", ["", "/"])
def test_phps_calls_succeed(gateway, new_device, slash):
    if subprocess.run(["php", "-r", "exit(extension_loaded('curl') ? 0 : 1);"]).returncode:
        pytest.skip("PHP has no curl (php-curl)")
    device = new_device(gateway, token="c3d4")
    cid, app = device.cid, gateway.app
    words = [f"http://127.0.0.1:{gateway.http}{slash}", app["appId"], app["appKey"], app["masterSecret"], cid]
    # The device acks continuously, as a real one does, because an unacked message would make it suspect.
    payloads = []
    reader = threading.Thread(target=read, args=(device, payloads), daemon=True)
    reader.start()
    run = subprocess.run(
        ["php", str(HERE.parent / "parties/php/client.php"), *words], capture_output=True, text=True, timeout=120, check=True)
    assert run.stderr == ""
    out = json.loads(run.stdout)
    codes = {name: answer["code"] for name, answer in out.items() if isinstance(answer, dict)}
    assert codes.pop("refused") == 10001
    # With 10001 the SDK would authenticate again endlessly.
    assert codes.pop("wrongSecret") == 20001
    assert set(codes.values()) == {0}, codes
    ((_, statuses),) = out["single"]["data"].items()
    assert statuses == {cid: "successed_online"}
    assert out["again"]["data"] == out["single"]["data"] and out["again"]["longwire"]["messages"][0]["repeat"]
    assert eventually(lambda: payloads, "a message")[0] == "推送😀/".encode()
    assert out["bytes"] > 1 << 20 and out["batch"] == 190
    ((_, statuses),) = out["odd"]["data"].items()
    assert statuses == {cid: "successed_online"}
    assert out["odd"]["longwire"]["messages"][0]["fallbackReason"] == "noContent"
    assert out["nulls"]["longwire"]["messages"][0]["fallback"] == "armed"
    assert list(out["toAliasNumber"]["data"].values()) == [{cid: "successed_online"}]
    assert list(out["whole"]["data"].values()) == [{cid: "successed_online"}] and "data" not in out["wholeAlias"]
    assert [list(out[name]["data"].values())[0]["send_result"] for name in ("schedule", "unscheduled")] == ["do_not_send", "has_delete"]
    assert eventually(lambda: {b"2026", b"nulls", b"y"} <= set(payloads), "what came in odd bodies")
    for name in ("longAgo", "usersLongAgo"):
        # PHP's empty map.
        assert out[name]["data"] == [] and out[name]["longwire"] == {"unknown": ["2020-11-30"]}
    assert out["ofAlias"]["data"] == {"cid": [cid]}
    assert out["tagsOf"]["data"] == {cid: ["标签 b"]}
    assert out["tag"]["data"] == out["untag"]["data"] == {cid: "true"}
    # The handle had POSTed to this URL before, and curl keeps the last verb.
    assert out["unblack"]["code"] == 0 and out["status"]["data"][cid]["status"] == "online"
    assert list(out["list"]["data"].values()) == [{cid: "successed_online"}]
