"""Self-tests of the fake vendors with Python's HTTP client: happy path, refused field, expired access token, bad token."""

import contextlib
import hashlib
import http.client
import json
import socket
import ssl
import threading
import time
import urllib.parse

import h2.config
import h2.connection
import h2.events
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from vendors import (
    Answer, FakeFCM, FakeHarmony, FakeHonor, FakeHuawei, FakeMeizu, FakeOPPO, FakePushService, FakeVivo, FakeXiaomi,
    closing, dropped, find_ids, html, lost, receipts, slow,
)
from vendors import jose, webpush
from vendors.credentials import HUAWEI_AUDIENCE, GoogleAccount, VapidKeys
from vendors.fcm import GRANT, SCOPE
from vendors.server import Request, VendorServer

IDS = "RASS_0101_abc:" + "5f" * 16
# printf 1700000000000nu | openssl dgst -sha256 -hmac k -binary | base64
SIGNATURE = "8D4a3QnuHjfaXmuOmfyQ0GRDnsWo/RM9Ll2qDhARvlQ="


@pytest.fixture(autouse=True)
def no_leftovers():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


class Client:
    """One kept connection to a fake."""

    def __init__(self, vendor):
        context = ssl.create_default_context(cafile=vendor.certificate)
        self.connection = http.client.HTTPSConnection("localhost", vendor.port, timeout=10, context=context)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def call(self, path, body=b"", headers=None, method="POST"):
        """Returns status and body, as JSON if it is JSON; a dict is sent as JSON."""
        headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body, headers = json.dumps(body), {"Content-Type": "application/json", **headers}
        self.connection.request(method, path, body, headers)
        answer = self.connection.getresponse()
        text = answer.read()
        self.headers = answer.headers
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text

    def form(self, path, fields, headers=None):
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.call(path, urllib.parse.urlencode(fields), {**kind, **(headers or {})})


@contextlib.contextmanager
def running(make, **options):
    with make(**options) as vendor, Client(vendor) as client:
        yield vendor, client


def changed(value, path, new):
    """Returns a deep copy with another value at a path of names; with None it has none."""
    copy = json.loads(json.dumps(value))
    place = copy
    for name in path[:-1]:
        place = place.setdefault(name, {})
    if new is None:
        place.pop(path[-1], None)
    else:
        place[path[-1]] = new
    return copy


# The server

def test_scripts_damage_answers_and_the_vendor_processes_or_not():
    class Echo(VendorServer):
        handled = 0

        def handle(self, request):
            self.handled += 1
            return Answer(body={"path": request.path, "query": request.query})

    with running(Echo) as (server, client):
        assert client.call("/a?x=1&y=") == (200, {"path": "/a", "query": {"x": "1", "y": ""}})
        server.script((503, {"Retry-After": "2"}, ""), html(502), slow(0.2), path="/a")
        assert client.call("/b")[0] == 200
        assert client.call("/a") == (503, b"") and client.headers["Retry-After"] == "2"
        assert client.call("/a")[0] == 502 and client.headers["Content-Type"].startswith("text/html")
        start = time.monotonic()
        assert client.call("/a")[0] == 200 and time.monotonic() - start >= 0.2
        assert {one.connection for one in server.requests} == {1}  # keep-alive
        for fault, is_handled in ((lost(), True), (lost(5), True), (dropped(), False)):
            server.script(fault)
            before = server.handled
            with pytest.raises((http.client.HTTPException, OSError)):
                client.call("/a")
            client.connection.close()
            assert server.handled == before + is_handled and server.requests[-1].status is None
        server.script(closing())
        assert client.call("/a")[0] == 200 and client.headers["Connection"] == "close"
        assert server.scripted == 0 and server.counts["connections"] == 4 and server.counts["status 200"] == 4
        # A chunked body, as clients send it that do not know the length.
        client.connection.request("POST", "/a", iter([b"ab", b"cde"]), encode_chunked=True)
        assert client.connection.getresponse().read() and server.requests[-1].body == b"abcde"
        port = server.port
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_stopping_ends_waiting_answers_handshakes_and_connections():
    with VendorServer() as server:
        silent = socket.create_connection(("127.0.0.1", server.port))
        server.script(slow(60))
        client = Client(server)
        client.connection.request("POST", "/", b"")
        while not server.requests:
            time.sleep(0.01)
    silent.close()
    client.connection.close()


def test_a_server_speaks_http_2_with_many_streams():
    with FakeFCM(streams=7) as fcm:
        context = ssl.create_default_context(cafile=fcm.certificate)
        context.set_alpn_protocols(["h2"])
        fcm.script(slow(0.3), lambda request, own: Answer(429, body={"long": "x" * 100_000}), path="/v1")
        with socket.create_connection(("127.0.0.1", fcm.port)) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as stream:
                assert stream.selected_alpn_protocol() == "h2"
                connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
                connection.initiate_connection()
                for number in (1, 3, 5):
                    connection.send_headers(number, [
                        (":method", "POST"), (":scheme", "https"), (":authority", fcm.host),
                        (":path", "/v1/projects/longwire-test/messages:send"), ("authorization", "Bearer x")])
                    connection.send_data(number, b"{}", end_stream=True)
                ended, statuses, sizes = [], {}, {}
                while len(ended) < 3:
                    stream.sendall(connection.data_to_send())
                    for event in connection.receive_data(stream.recv(65_536)):
                        if isinstance(event, h2.events.ResponseReceived):
                            statuses[event.stream_id] = dict(event.headers)[":status"]
                        elif isinstance(event, h2.events.DataReceived):
                            sizes[event.stream_id] = sizes.get(event.stream_id, 0) + len(event.data)
                            connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                        elif isinstance(event, h2.events.StreamEnded):
                            ended.append(event.stream_id)
                assert connection.remote_settings.max_concurrent_streams == 7
        assert statuses == {1: "401", 3: "429", 5: "401"} and ended[-1] == 1 and sizes[3] > 100_000
        assert {one.protocol for one in fcm.requests} == {"HTTP/2"} and fcm.requests[0].headers["host"] == fcm.host


def test_ids_are_found_wherever_a_vendor_has_them():
    assert find_ids({"a": [{"_gmid_": IDS}]}) == [IDS]
    assert find_ids({"data": json.dumps({"_gmid_": IDS})}) == [IDS]
    assert find_ids({"payload": urllib.parse.quote(json.dumps({"_gmid_": IDS}))}) == [IDS]
    assert find_ids(f"intent:#Intent;S._gmid_={urllib.parse.quote(IDS)};end") == [IDS]
    assert find_ids({"url": f"https://a.example/?b=1&_gmid_={IDS}&c=2", "x": {"_gmid_": "other"}}) == [IDS, "other"]


# FCM

def google_token(client, account, **changes):
    now = int(time.time())
    claims = {"iss": account.email, "scope": SCOPE, "aud": account.token_uri, "iat": now, "exp": now + 3_600, **changes}
    assertion = jose.signed({"alg": "RS256", "typ": "JWT", "kid": account.key_id}, claims, account.key)
    return client.form("/token", {"grant_type": GRANT, "assertion": assertion})


def test_fcm():
    with running(FakeFCM) as (fcm, client):
        status, answer = google_token(client, fcm.account)
        assert status == 200 and answer["token_type"] == "Bearer"
        auth = {"Authorization": f"Bearer {answer['access_token']}"}
        path = f"/v1/projects/{fcm.account.json()['project_id']}/messages:send"
        token = fcm.device()
        body = {"message": {
            "token": token, "notification": {"title": "T", "body": "B"}, "data": {"_gmid_": IDS},
            "android": {"priority": "HIGH", "ttl": "60s", "collapse_key": "c", "notification": {"channel_id": "x"}}}}
        status, answer = client.call(path, body, auth)
        assert status == 200 and answer["name"] == fcm.sent[0].id
        assert (fcm.sent[0].title, fcm.sent[0].body, fcm.sent[0].ids, fcm.sent[0].token) == ("T", "B", [IDS], token)
        for place, value, field in (
                (["data", "n"], 1, "message.data[1].value"), (["data", "google.x"], "1", "message.data"),
                (["android", "ttl"], "2419201s", "message.android.ttl"), (["android", "ttl"], 60, "message.android.ttl"),
                (["topic"], "news", "message"), (["notif"], {}, "message"), (["token"], None, "message")):
            status, answer = client.call(path, changed(body, ["message", *place], value), auth)
            details = {one["@type"].rsplit(".", 1)[1]: one for one in answer["error"]["details"]}
            assert (status, answer["error"]["status"]) == (400, "INVALID_ARGUMENT")
            assert details["BadRequest"]["fieldViolations"][0]["field"] == field
        status, answer = client.call(path, changed(body, ["message", "data", "n"], "x" * 4_096), auth)
        assert status == 400 and "too big" in answer["error"]["message"]

        def refusal(token):
            status, answer = client.call(path, changed(body, ["message", "token"], token), auth)
            assert [one["@type"].rsplit(".", 1)[1] for one in answer["error"]["details"]] == ["FcmError"]
            return status, answer["error"]["details"][0]["errorCode"]

        assert refusal("no token") == (400, "INVALID_ARGUMENT")
        assert refusal(fcm.make_token()) == (404, "UNREGISTERED")
        other = fcm.device()
        fcm.mismatched.add(other)
        assert refusal(other) == (403, "SENDER_ID_MISMATCH")
        fcm.rate, fcm.retry_after = (1, 60), 7
        assert client.call(path, body, auth)[0] == 200
        assert refusal(token) == (429, "QUOTA_EXCEEDED") and client.headers["Retry-After"] == "7"
        fcm.unregister(token)
        assert refusal(token) == (404, "UNREGISTERED")
        assert client.call(path.replace("longwire", "other"), body, auth)[0] == 403
        fcm.advance(3_601)
        assert client.call(path, body, auth)[1]["error"]["details"][0]["reason"] == "ACCESS_TOKEN_EXPIRED"
        assert len(fcm.sent) == 2


@pytest.mark.parametrize("changes, error", [
    ({"iss": "other@x.iam"}, "invalid_grant"), ({"scope": "https://www.googleapis.com/auth/drive"}, "invalid_scope"),
    ({"aud": "https://elsewhere/token"}, "invalid_grant"), ({"exp": int(time.time()) + 9_000}, "invalid_grant"),
    ({"iat": 1, "exp": 3_601}, "invalid_grant")])
def test_googles_token_endpoint_refuses_wrong_claims(changes, error):
    with running(FakeFCM) as (fcm, client):
        assert google_token(client, fcm.account, **changes) == (400, {
            "error": error, "error_description": fcm.refused[0][1]})
        stranger = GoogleAccount(fcm.account.token_uri, key_id=fcm.account.key_id)
        assert google_token(client, stranger)[1]["error_description"] == "Invalid JWT Signature."
        assert client.form("/token", {"grant_type": "password"})[1]["error"] == "unsupported_grant_type"


# Huawei, HarmonyOS, Honor

def test_huawei():
    with running(FakeHuawei) as (huawei, client):
        fields = {"grant_type": "client_credentials", "client_id": huawei.app.id, "client_secret": huawei.app.secret}
        assert client.form("/oauth2/v3/token", {**fields, "client_secret": "x"})[0] == 400
        status, answer = client.form("/oauth2/v3/token", fields)
        assert status == 200 and answer["expires_in"] == 3_600 and "/" in answer["access_token"]
        auth, path = {"Authorization": f"Bearer {answer['access_token']}"}, f"/v1/{huawei.app.id}/messages:send"
        token = huawei.device()
        intent = f"intent:#Intent;S._gmid_={urllib.parse.quote(IDS)};end"
        body = {"validate_only": False, "message": {
            "token": [token], "android": {"ttl": "60s", "collapse_key": -1, "category": "IM", "notification": {
                "title": "T", "body": "B", "click_action": {"type": 1, "intent": intent}, "badge": {"add_num": 1}}}}}

        def code(body, **more):
            status, answer = client.call(path, body, {**auth, **more})
            assert status == 200 and set(answer) == {"code", "msg", "requestId"}
            return answer["code"]

        assert code(body) == "80000000"
        assert (huawei.sent[0].title, huawei.sent[0].body, huawei.sent[0].ids) == ("T", "B", [IDS])
        data = {"message": {"token": [token], "data": json.dumps({"_gmid_": IDS})}}
        assert code(data) == "80000000" and huawei.sent[1].ids == [IDS] and huawei.sent[1].title is None
        shown = ["message", "android", "notification"]
        for place, value, expected in (
                (shown + ["click_action"], None, "80100003"), (shown + ["badge", "add_num"], 100, "80100003"),
                (shown + ["title"], None, "80100003"), (shown + ["notifyId"], 1, "80100003"),
                (shown + ["click_action", "intent"], None, "80100003"), (shown + ["big_body"], "x" * 4_096, "80300008"),
                (["message", "android", "ttl"], "1296001s", "80100004"), (["message", "android", "ttl"], 60, "80100004"),
                (["message", "android", "collapse_key"], 101, "80100013"),
                (["message", "android", "urgency"], "high", "80100003"),
                (["message", "token"], [], "80300010"), (["message", "token"], ["bad"], "80300007")):
            assert code(changed(body, place, value)) == expected, place
        assert code({"message": {"token": [token], "data": {"a": "b"}}}) == "80100003"
        unknown = huawei.make_token()
        status, answer = client.call(path, changed(body, ["message", "token"], [token, unknown]), auth)
        assert answer["code"] == "80100000" and json.loads(answer["msg"])["illegal_tokens"] == [unknown]
        assert code(body, Authorization="Bearer no") == "80200001"
        huawei.advance(3_601)
        assert code(body) == "80200003"
        huawei.http_errors = True
        assert client.call(path, body, auth)[0] == 401


def test_harmony():
    with running(FakeHarmony) as (harmony, client):
        account, now = harmony.account, int(time.time())

        def auth(salt=32, key=account.key, **changes):
            claims = {"aud": HUAWEI_AUDIENCE, "iss": account.sub_account, "iat": now, "exp": now + 3_600, **changes}
            token = jose.signed({"alg": "PS256", "typ": "JWT", "kid": account.key_id}, claims, key, salt)
            return {"Authorization": f"Bearer {token}", "push-type": "0"}

        path, token = f"/v3/{account.json()['project_id']}/messages:send", harmony.device()
        body = {
            "payload": {"notification": {
                "category": "IM", "title": "T", "body": "B", "clickAction": {"actionType": 0, "data": {"_gmid_": IDS}}}},
            "target": {"token": [token]}, "pushOptions": {"ttl": 60}}
        status, answer = client.call(path, body, auth())
        assert (status, answer["code"]) == (200, "80000000")
        assert (harmony.sent[0].title, harmony.sent[0].data, harmony.sent[0].ids) == ("T", {"_gmid_": IDS}, [IDS])
        shown = ["payload", "notification"]
        for place, value, expected in (
                (shown + ["category"], "GOSSIP", "80100003"), (shown + ["clickAction"], None, "80100003"),
                (shown + ["clickAction", "actionType"], 1, "80100003"), (shown + ["badge"], {"addNum": 0}, "80100003"),
                (["pushOptions", "ttl"], 1_296_001, "80100004"), (["target", "token"], ["bad"], "80300007"),
                (["message"], {}, "80100003")):
            status, answer = client.call(path, changed(body, place, value), auth())
            assert (status, answer["code"]) == (400, expected), place
        status, answer = client.call(path, changed(body, ["target", "token"], [harmony.make_token(), "bad"]), auth())
        assert set(json.loads(answer["msg"])["illegalTokens"]) == {"noRight", "tokenFormatError"}
        for headers, expected in (
                (auth(salt=20), "80200001"), (auth(key=jose.rsa_key()), "80200001"), (auth(aud="x"), "80200001"),
                (auth(exp=now + 9_000), "80200001"), (auth(iat=now - 3_700, exp=now - 100), "80200005"),
                ({"push-type": "0"}, "80200001")):
            status, answer = client.call(path, body, headers)
            assert (status, answer["code"]) == (401, expected)
        assert client.call(path, body, {**auth(), "push-type": "3"})[1]["code"] == "80100003"
        assert len(harmony.sent) == 1


def test_honor():
    with running(FakeHonor) as (honor, client):
        fields = {"grant_type": "client_credentials", "client_id": honor.client_id, "client_secret": honor.app.secret}
        place = "/auth/realms/developer/protocol/openid-connect/token"
        assert client.form(place, {**fields, "client_secret": "x"}) == (401, {
            "error": "unauthorized_client", "error_description": "Invalid client secret"})
        access = client.form(place, fields)[1]["access_token"]
        headers = {"Authorization": f"Bearer {access}", "timestamp": str(int(time.time() * 1_000))}
        path, token = f"/api/v1/{honor.app.id}/sendMessage", honor.device()
        body = {"token": [token], "android": {"ttl": "60s", "notification": {
            "title": "T", "body": "B", "clickAction": {"type": 1, "intent": f"intent:#Intent;S._gmid_={IDS};end"}}}}
        answer = client.call(path, body, headers)[1]
        assert answer["code"] == 200 and answer["data"]["sendResult"] and honor.sent[0].ids == [IDS]
        assert client.call(path, {"token": [token], "data": "text"}, headers)[1]["code"] == 200 and honor.sent[1].data == "text"
        for field, value, code in ((["android", "ttl"], "60", 80_100_004), (["message"], {}, 80_100_003),
                                   (["android", "notification", "clickAction"], None, 80_100_003), (["token"], [], 80_300_010)):
            assert client.call(path, changed(body, field, value), headers)[1]["code"] == code
        gone = honor.device()
        honor.unregister(gone)
        answer = client.call(path, changed(body, ["token"], [gone, "bad"]), headers)[1]
        assert answer["data"]["expireTokens"] == [gone] and answer["data"]["failTokens"] == ["bad"]
        assert not answer["data"]["sendResult"]
        assert client.call(path, body, {"Authorization": headers["Authorization"]})[1]["code"] == 80_100_003
        honor.access.revoke()
        assert client.call(path, body, headers)[1]["code"] == 80_200_001


# Xiaomi, OPPO, vivo, Meizu

def test_xiaomi():
    with running(FakeXiaomi, day_quota=3) as (xiaomi, client):
        token, auth = xiaomi.device(), {"Authorization": f"key={xiaomi.app.secret}"}
        form = {"registration_id": token, "restricted_package_name": xiaomi.app.package, "pass_through": "0", "title": "标题",
                "description": "B", "notify_type": "-1", "extra.channel_id": "c", "extra.notify_effect": "1",
                "payload": urllib.parse.quote(json.dumps({"_gmid_": IDS})), "time_to_live": "60000"}

        def code(*changes, headers=auth):
            fields = {**form, **dict(changes)}
            fields = {name: one for name, one in fields.items() if one is not None}
            status, answer = client.form("/v3/message/regid", fields, headers)
            assert status == 200
            return answer["code"]

        assert code() == 0
        assert (xiaomi.sent[0].title, xiaomi.sent[0].ids) == ("标题", [IDS]) and json.loads(xiaomi.sent[0].data)
        assert code(("pass_through", "1"), ("title", None), ("description", None), ("extra.channel_id", None)) == 0
        for expected, *changes in (
                (65_009, ("title", "x" * 50)), (65_009, ("description", "x" * 128)), (10_016, ("extra.channel_id", None)),
                (10_017, ("payload", '{"a":"b c"}')), (10_017, *((f"extra.k{n}", "v") for n in range(11))),
                (65_009, ("extra.k", "x" * 1_024)), (10_016, ("title", "  ")), (10_016, ("extra.notify_effect", "3")),
                (10_017, ("unknown", "1")), (22_022, ("restricted_package_name", "com.other")),
                (20_301, ("registration_id", "bad")), (20_301, ("registration_id", xiaomi.make_token()))):
            assert code(*changes) == expected, changes
        answer = client.form("/v3/message/regid", {**form, "registration_id": f"{token},bad"}, auth)[1]
        assert answer["data"]["bad_regids"] == "bad"
        assert code() == 10_034
        xiaomi.advance(86_400)
        assert code() == 0
        assert code(headers={"Authorization": "key=x"}) == 21_301
        xiaomi.rate = (0, 1.0)
        assert code() == 10_027


def test_oppo():
    with running(FakeOPPO) as (oppo, client):
        def sign(at=None, secret=oppo.app.secret):
            stamp = str(int((at or time.time()) * 1_000))
            return {"app_key": oppo.app.key, "timestamp": stamp,
                    "sign": hashlib.sha256(f"{oppo.app.key}{stamp}{secret}".encode()).hexdigest()}

        assert client.form("/server/v1/auth", sign(secret="x"))[1]["code"] == 16
        assert client.form("/server/v1/auth", sign(at=time.time() - 700))[1]["code"] == 19
        access = client.form("/server/v1/auth", sign())[1]["data"]["auth_token"]
        token = oppo.device()
        message = {"target_type": 2, "target_value": token, "notification": {
            "app_message_id": "m", "title": "T", "content": "B", "action_parameters": json.dumps({"_gmid_": IDS}),
            "click_action_type": 0, "off_line": True, "off_line_ttl": 60, "channel_id": "c"}}

        def code(message, access=access):
            form = {"auth_token": access, "message": json.dumps(message)}
            return client.form("/server/v1/message/notification/unicast", form)[1]["code"]

        assert code(message) == 0 and oppo.sent[0].ids == [IDS] and oppo.sent[0].body == "B"
        assert code(message) == 0 and len(oppo.sent) == 1 and oppo.duplicates == 1
        for place, value, expected in (
                (["notification", "title"], "x" * 51, 41), (["notification", "content"], "x" * 51, 41),
                (["notification", "content"], "", 40), (["notification", "notify_level"], 2, 40),
                (["notification", "click_action_type"], 2, 40), (["notification", "action_parameters"], "text", 41),
                (["notification", "payload"], "x", 41), (["target_type"], 3, 41), (["target_value"], "bad", 10_000),
                (["target_value"], oppo.make_token(), 10_000)):
            assert code(changed(message, place, value)) == expected, place
        assert code(message, access="x") == 11
        oppo.day_quota = oppo.days[oppo.today()]
        assert code(changed(message, ["notification", "app_message_id"], "n")) == 33
        oppo.advance(86_401)
        assert code(message) == 11


def test_vivo():
    with running(FakeVivo) as (vivo, client):
        app = vivo.app

        def sign(at=None, secret=app.secret):
            stamp = int((at or time.time()) * 1_000)
            text = f"{app.id}{app.key}{stamp}{secret}"
            return {"appId": int(app.id), "appKey": app.key, "timestamp": stamp, "sign": hashlib.md5(text.encode()).hexdigest()}

        assert client.call("/message/auth", sign(secret="x"))[1]["result"] == 10_206
        assert client.call("/message/auth", sign(at=time.time() + 700))[1]["result"] == 10_207
        headers = {"authToken": client.call("/message/auth", sign())[1]["authToken"]}
        token = vivo.device()
        body = {"appId": int(app.id), "regId": token, "notifyType": 4, "title": "标题", "content": "B", "skipType": 1,
                "timeToLive": 86_400, "requestId": "r", "classification": 1, "category": "IM",
                "clientCustomMap": {"_gmid_": IDS}}

        def result(*change, headers=headers):
            status, answer = client.call("/message/send", changed(body, [change[0]], change[1]) if change else body, headers)
            assert status == 200
            return answer["result"]

        assert result() == 0 and vivo.sent[0].ids == [IDS] and vivo.sent[0].title == "标题"
        for name, value, expected in (
                ("title", "题" * 21, 10_056), ("title", "", 10_055), ("content", "x" * 101, 10_058), ("notifyType", 5, 10_054),
                ("timeToLive", 59, 10_059), ("skipType", 2, 10_061), ("requestId", "x" * 65, 10_064),
                ("category", "im", 10_096),
                ("classification", 0, 10_097), ("clientCustomMap", {"n": 1}, 10_066), ("regId", "bad", 10_302),
                ("appId", 7, 10_094), ("extra", {"callback.param": "x" * 65}, 10_067)):
            assert result(name, value) == expected, name
        answer = client.call("/message/send", changed(body, ["regId"], vivo.make_token()), headers)[1]
        assert answer["result"] == 0 and answer["invalidUser"]["status"] == 1
        vivo.unregister(token)
        assert client.call("/message/send", body, headers)[1]["invalidUser"] == {"status": 2, "userid": token}
        vivo.devices[token], vivo.day_quota = True, 1
        assert result() == 10_070 and result() == 10_070 and vivo.after_quota == 1
        assert result(headers={"authToken": "x"}) == 10_000
        vivo.advance(86_401)
        assert result() == 10_000


def test_meizu():
    with running(FakeMeizu) as (meizu, client):
        token = meizu.device()

        def send(message, kind="varnished", tokens=token, secret=meizu.app.secret):
            form = {"appId": meizu.app.id, "pushIds": tokens, "messageJson": json.dumps(message)}
            text = "".join(f"{name}={form[name]}" for name in sorted(form)) + secret
            form["sign"] = hashlib.md5(text.encode()).hexdigest()
            return client.form(f"/garcia/api/server/push/{kind}/pushByPushId", form)[1]

        message = {"noticeBarInfo": {"title": "T", "content": "B"}, "pushTimeInfo": {"offLine": 1, "validTime": 24},
                   "clickTypeInfo": {"clickType": 0, "parameters": {"_gmid_": IDS}}}
        assert send(message)["code"] == "200" and meizu.sent[0].ids == [IDS] and meizu.sent[0].title == "T"
        assert send({"content": "text"}, kind="unvarnished")["value"] == {} and meizu.sent[1].data == "text"
        for place, value in ((["noticeBarInfo", "title"], "x" * 33), (["noticeBarInfo", "content"], "x" * 101),
                             (["pushTimeInfo", "validTime"], 73), (["clickTypeInfo", "clickType"], 2), (["payload"], {})):
            assert send(changed(message, place, value))["code"] == "1005", place
        unknown = meizu.make_token()
        assert send(message, tokens=f"{unknown},bad")["value"] == {"110002": [unknown], "110003": ["bad"]}
        assert send(message, secret="x")["code"] == "1006"
        meizu.rate = (0, 1.0)
        assert send(message)["code"] == "110010"


# Web Push

def test_the_vector_of_rfc_8291_decrypts():
    body = jose.decode(
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_y"
        "l95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN")
    auth, private = jose.decode("BTBZMqHH6r4Tts7J_aSIgg"), jose.decode("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94")
    key = ec.derive_private_key(int.from_bytes(private, "big"), ec.SECP256R1())
    assert webpush.decrypt(body, key, auth) == b"When I grow up, I want to be a watermelon"
    sender = ec.derive_private_key(
        int.from_bytes(jose.decode("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"), "big"), ec.SECP256R1())
    again = webpush.encrypt(
        b"When I grow up, I want to be a watermelon", webpush.point(key.public_key()), auth, sender, body[:16])
    assert again == body
    for damaged in (body[:-1], body[:20] + b"\x40" + body[21:], body[:90] + bytes([body[90] ^ 1]) + body[91:]):
        with pytest.raises(webpush.Undecryptable):
            webpush.decrypt(damaged, key, auth)


def test_web_push():
    with running(FakePushService) as (service, client):
        keys, now = VapidKeys(), int(time.time())
        one = service.subscribe(keys.public)
        endpoint, _, rest = one.device_token.partition("#")
        assert endpoint == one.json()["endpoint"] and rest == f"{one.p256dh}.{one.json()['keys']['auth']}"
        path = urllib.parse.urlsplit(one.endpoint).path

        def vapid(keys=keys, **changes):
            claims = {"aud": service.url, "exp": now + 43_200, "sub": "mailto:a@example.com", **changes}
            return f"vapid t={jose.signed({'alg': 'ES256', 'typ': 'JWT'}, claims, keys.key)}, k={keys.public}"

        def send(text=b'{"notification":{"title":"T","body":"B"},"_gmid_":"%s"}' % IDS.encode(), **changes):
            headers = {"TTL": "60", "Urgency": "high", "Topic": "abc", "Content-Encoding": "aes128gcm",
                       "Content-Type": "application/octet-stream", "Authorization": vapid(), **changes}
            headers = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
            body = webpush.encrypt(text, jose.decode(one.p256dh), one.auth)
            return client.call(path, body, headers)[0]

        assert send() == 201 and client.headers["Location"]
        assert (service.sent[0].title, service.sent[0].body, service.sent[0].ids) == ("T", "B", [IDS])
        assert (service.deliveries[0].ttl, service.deliveries[0].urgency, service.deliveries[0].topic) == (60, "high", "abc")
        assert send(TTL=None) == 400 and send(Urgency="urgent") == 400 and send(Topic="x" * 33) == 400
        assert send(Content_Encoding="aesgcm") == 400 and send(text=b"x" * 4_000) == 413 and send(text=b"x" * 3_993) == 201
        for headers, expected in ((vapid(aud="https://other"), 401), (vapid(exp=now + 90_000), 401), (vapid(sub=""), 401),
                                  (vapid(exp=now - 1), 401), (None, 401), (vapid(VapidKeys()), 403),
                                  (vapid().replace("t=e", "t=f"), 401)):
            assert send(Authorization=headers) == expected
        one.auth = bytes(16)
        assert client.call(path, webpush.encrypt(b"x", jose.decode(one.p256dh), b"1" * 16), {
            "TTL": "0", "Content-Encoding": "aes128gcm", "Authorization": vapid()})[0] == 201
        assert service.undecryptable and len(service.sent) == 2
        service.advance(50_000)
        assert send() == 401
        service.unsubscribe(one)
        assert send() == 410
        service.forget(one)
        assert send() == 404


# Receipts

def test_receipts_have_the_vendors_forms():
    caught = []

    class Sink(VendorServer):
        def handle(self, request: Request) -> Answer:
            caught.append(request)
            return Answer(body={"code": "0", "message": "success"})

    with Sink(tls=False) as sink:
        signing = {"user": "u", "key": "k", "at": 1_700_000_000.0, "nonce": "n"}
        status = receipts.huawei_status("tok", "req", 2)
        assert receipts.huawei([status], **signing).post(sink.url + "/r?a=b")[0] == 200
        assert caught[0].headers["x-huawei-callback-id"] == f"timestamp=1700000000000; nonce=n; value={SIGNATURE}"
        assert caught[0].json()["statuses"][0]["status"] == 2 and caught[0].query == {"a": "b"}
        receipts.huawei([status], **signing, forged=True).post(sink.url)
        assert SIGNATURE not in caught[1].headers["x-huawei-callback-id"]
        receipts.huawei([receipts.harmony_status("tok", "req", 5)]).post(sink.url)
        assert caught[2].json()["statuses"][0]["deliveryStatus"]["result"] == 5
        receipts.honor([receipts.honor_status("tok", "req")]).post(sink.url)
        receipts.xiaomi("m1", ["a", "b"], 16, param="p").post(sink.url)
        assert json.loads(caught[4].form()["data"])["m1"]["targets"] == "a,b"
        receipts.oppo([("m1", ["a"]), ("m2", ["b"])], "regid_invalid", param="p", forged=True).post(sink.url)
        assert [one["messageId"] for one in caught[5].json()] == ["m1", "m2"] and caught[5].json()[0]["param"] != "p"
        receipts.vivo([("t1", ["a"])], param="p").post(sink.url)
        assert caught[6].json() == {"t1": {"param": "p", "targets": "a"}}
        receipts.meizu([("m1", ["a"])], param="p", access_token="s").post(sink.url)
        assert json.loads(caught[7].form()["cb"])["m1-1"]["targets"] == ["a"]
