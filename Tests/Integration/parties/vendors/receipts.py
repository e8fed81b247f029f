"""Receipts of the vendors: the HTTP calls by which they report deliveries, genuine and forged.

    call = huawei(user="u", key="k", statuses=[huawei_status(token, request_id=sent.id)])
    status, body = call.post("http://127.0.0.1:8000/receipts/hms")
    huawei(..., forged=True).post(...)   # a wrong signature; also `at` (stale) and the same `nonce` twice (replayed)

Sources:
- Huawei V1: https://developer.huawei.com/consumer/cn/doc/HMS-References/push-receiptapi
- Huawei V2 (HarmonyOS): https://developer.huawei.com/consumer/cn/doc/harmonyos-references-v5/push-api-msg-receipt-V5/
- Huawei's keys (new ones are base64): https://developer.huawei.com/consumer/cn/doc/harmonyos-guides/push-msg-receipt
- OPPO: https://www.yimenapp.com/kb-yimen/11083
- Xiaomi (a form with `data`; `callback.type` is a bit mask): https://blog.csdn.net/zhou_Tian/article/details/108751167
- Meizu: https://github.com/MEIZUPUSH/PushAPI

Unconfirmed: all of Honor's, vivo's body, and the fields within Xiaomi's `data`.
OPPO, Xiaomi, vivo and Meizu do not sign. Only the callback's address and its parameter prove the origin, and `forged` changes
the parameter.
"""

import base64
import hashlib
import hmac
import http.client
import json
import ssl
import time
import typing
import urllib.parse
import uuid
from dataclasses import dataclass

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass
class Call:
    """One HTTP call; headers and body may be changed before it is sent."""

    headers: dict[str, str]
    body: bytes
    method: str = "POST"

    def post(self, url: str, context: ssl.SSLContext | None = None, timeout: float = 30.0) -> tuple[int, bytes]:
        """Sends the call; returns the answer's status and body."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(parts.netloc, timeout=timeout, context=context)
        else:
            connection = http.client.HTTPConnection(parts.netloc, timeout=timeout)
        try:
            target = parts.path + (f"?{parts.query}" if parts.query else "")
            connection.request(self.method, target or "/", self.body, self.headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def _milliseconds(at: float | None = None) -> int:
    return int((time.time() if at is None else at) * 1_000)


def _json(value: typing.Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _other(text: str) -> str:
    """Returns another text of the same length."""
    return ("b" if text[:1] == "a" else "a") + text[1:]


# Huawei, HarmonyOS, Honor

def signature(user: str, key: str, forged: bool = False, at: float | None = None, nonce: str | None = None,
              key_is_base64: bool = False) -> str:
    """Returns the value of X-HUAWEI-CALLBACK-ID: HMAC-SHA256 over timestamp, nonce and user name."""
    stamp, nonce = _milliseconds(at), nonce or str(uuid.uuid4())
    raw = base64.b64decode(key) if key_is_base64 else key.encode()
    code = hmac.new(_other(key).encode() if forged else raw, f"{stamp}{nonce}{user}".encode(), hashlib.sha256)
    return f"timestamp={stamp}; nonce={nonce}; value={base64.b64encode(code.digest()).decode()}"


def huawei_status(token: str, request_id: str, status: int = 0, tag: str = "", app: str = "") -> dict[str, typing.Any]:
    """One V1 status: 0 delivered, 2 not installed, 5 other user, 6 switched off, 10 inactive, 15 replaced, 102 too frequent."""
    return {"biTag": tag, "appid": app, "token": token, "status": status, "timestamp": _milliseconds(), "requestId": request_id}


def harmony_status(token: str, request_id: str, result: int = 0, tag: str = "", package: str = "com.example.app",
                   push_type: int = 0) -> dict[str, typing.Any]:
    """One V2 status."""
    return {"biTag": tag, "pushType": push_type, "appPackageName": package, "token": token, "requestId": request_id,
            "deliveryStatus": {"result": result, "timestamp": _milliseconds()}}


def huawei(statuses: list[dict[str, typing.Any]], user: str | None = None, key: str | None = None, **signing) -> Call:
    """A receipt of HMS or HarmonyOS with up to 100 statuses; without user and key it is unsigned."""
    headers = dict(JSON)
    if user is not None and key is not None:
        headers["X-HUAWEI-CALLBACK-ID"] = signature(user, key, **signing)
    return Call(headers, _json({"statuses": statuses}))


def honor_status(token: str, request_id: str, status: int = 0, tag: str = "", app: str = "") -> dict[str, typing.Any]:
    return {"biTag": tag, "appId": app, "token": token, "status": status, "timestamp": _milliseconds(), "requestId": request_id}


def honor(statuses: list[dict[str, typing.Any]], user: str | None = None, key: str | None = None, **signing) -> Call:
    """A receipt of Honor, after Huawei's form; the header's name is a guess."""
    headers = dict(JSON)
    if user is not None and key is not None:
        headers["X-HONOR-CALLBACK-ID"] = signature(user, key, **signing)
    return Call(headers, _json({"statuses": statuses}))


# Xiaomi, OPPO, vivo, Meizu

def xiaomi(message: str, targets: list[str], kind: int = 1, param: str = "", forged: bool = False, **more) -> Call:
    """kind: 1 delivered, 2 clicked, 16 invalid target, 32 switched off, 64 filtered or over quota, 128 day limit."""
    entry = {"param": _other(param) if forged else param, "type": kind, "targets": ",".join(targets),
             "timestamp": str(_milliseconds()), "barStatus": "Enable", **more}
    return Call(dict(FORM), urllib.parse.urlencode({"data": json.dumps({message: entry})}).encode())


def oppo(messages: list[tuple[str, list[str]]], kind: str = "push_arrive", param: str = "", app: str = "",
         forged: bool = False) -> Call:
    """kind: push_arrive, regid_invalid, user_daily_limit. One call has a list of (message id, registration ids)."""
    return Call(dict(JSON), _json([
        {"messageId": message, "appId": app, "taskId": message, "registrationIds": ",".join(tokens),
         "eventTime": str(_milliseconds()), "param": _other(param) if forged else param, "eventType": kind}
        for message, tokens in messages]))


def vivo(messages: list[tuple[str, list[str]]], param: str = "", kind: int | None = None, forged: bool = False) -> Call:
    """One call has a list of (task id, regIds). `kind` adds ackType: 0 delivered, 1 clicked."""
    entries = {}
    for task, tokens in messages:
        entries[task] = {"param": _other(param) if forged else param, "targets": ",".join(tokens)}
        if kind is not None:
            entries[task]["ackType"] = str(kind)
    return Call(dict(JSON), _json(entries))


def meizu(messages: list[tuple[str, list[str]]], kind: int = 1, param: str = "", access_token: str = "",
          forged: bool = False) -> Call:
    """Returns a receipt of Meizu for a list of (message id, pushIds). The kind is 1 for delivered, 2 for clicked."""
    entries = {f"{message}-{kind}": {"param": _other(param) if forged else param, "type": kind, "targets": tokens}
               for message, tokens in messages}
    return Call(dict(FORM), urllib.parse.urlencode({"cb": json.dumps(entries), "access_token": access_token}).encode())
