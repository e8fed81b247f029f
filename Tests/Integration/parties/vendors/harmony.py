"""Huawei Push Kit v3, HarmonyOS 5: a service account's JWT as bearer, and v3 messages:send.

Sources: https://developer.huawei.com/consumer/cn/doc/harmonyos-references/push-scenariozed-api-request-param-V13 (fields),
https://developer.huawei.com/consumer/cn/doc/harmonyos-references/push-scenariozed-api-response (codes and HTTP statuses),
https://developer.huawei.com/consumer/cn/doc/harmonyOS-faqs/push-kit-faq-0001 (the form of illegalTokens).
Unconfirmed: code 80200005 for an expired JWT (a third party's design note), fields of the push-types other than 0.
"""

import json
import re
import secrets
import typing
from collections.abc import Callable

from . import jose
from .credentials import HUAWEI_AUDIENCE, HuaweiAccount
from .huawei import HuaweiVendor, body_size
from .server import Answer, Request
from .vendor import CATEGORIES, Refusal, is_integer, need, only

OPTIONS = "testMessage ttl biTag receiptId collapseKey backgroundMode".split()
NOTIFICATION = (
    "category title body image style notifyId appMessageId profileId inboxContent clickAction badge sound soundDuration "
    "foregroundShow notifySlotType slotType multiLangKey titleLocKey titleLocArgs bodyLocKey bodyLocArgs").split()
CLICK = "actionType action uri data".split()
PAYLOADS = {  # the required fields of a payload by push-type
    "0": ("notification",), "1": ("formData",), "2": ("notification", "extraData"), "6": ("extraData",), "7": ("activityId",),
    "10": ("extraData",),
}


class FakeHarmony(HuaweiVendor):
    """`account` is the service account that the fake knows; `claims` has the claims of each accepted JWT."""

    def __init__(self, http_errors: bool = True, **options):
        super().__init__(http_errors, **options)
        self.account = HuaweiAccount()
        self.is_revoked = False  # whether the account's key was deleted
        self.claims: list[dict[str, typing.Any]] = []
        self.tests_today = 0

    def routes(self) -> list[tuple[str, str, Callable[..., Answer]]]:
        return [("POST", r"/v3/([^/]+)/messages:send", self._send)]

    def _authorize(self, request: Request) -> None:
        token = request.bearer()
        need(token, "80200001", "Authentication failed: no Authorization")
        try:
            header, claims = jose.verified(token, "PS256", self.account.key.public_key())
        except jose.BadToken as error:
            raise Refusal("80200001", f"Authentication failed: {error}") from error
        need(header.get("kid") == self.account.key_id and not self.is_revoked, "80200001", "Authentication failed: kid")
        need(header.get("typ", "JWT") == "JWT", "80200001", "Authentication failed: typ")
        need(claims.get("iss") == self.account.sub_account, "80200001", "Authentication failed: iss")
        need(claims.get("aud") == HUAWEI_AUDIENCE, "80200001", "Authentication failed: aud")
        issued, end = claims.get("iat"), claims.get("exp")
        need(is_integer(issued) and is_integer(end) and 0 < end - issued <= 3_600 and issued <= self.now() + 300,
             "80200001", "Authentication failed: iat and exp")
        need(end > self.now(), "80200005", "JWT expired")
        self.claims.append(claims)

    def _send(self, request: Request, project: str) -> Answer:
        self._authorize(request)
        need(project == self.account.project, "80200001", "Authentication failed: project")
        self.spread()
        kind = request.headers.get("push-type", "")
        need(kind in PAYLOADS, "80100003", "Illegal header, push-type")
        body = only(request.json(), ("payload", "target", "pushOptions"), "80100003", "the body")
        target = only(body.get("target"), ("token",), "80100003", "target")
        good, bad = self.sort(target.get("token"))
        size = body_size({**body, "target": {}})
        need(size <= 4_096, "80300008", "Message body size is over limit")
        self._options(body.get("pushOptions", {}), len(target["token"]), kind)
        payload = body.get("payload")
        need(isinstance(payload, dict), "80100003", "Illegal payload")
        for name in PAYLOADS[kind]:
            need(name in payload, "80100003", f"Illegal payload, {name} is required")
        notification = payload.get("notification", {})
        if kind in ("0", "2"):
            self._notification(notification, kind)
        count = sum(len(some) for some in bad.values())
        need(good, "80300007", json.dumps({"failure": count, "illegalTokens": bad}))
        number = f"{int(self.now() * 1e6)}{secrets.randbelow(10**6):06d}"
        for token in good:
            data = payload.get("extraData", notification.get("clickAction", {}).get("data"))
            self.accept(token, request, body, notification.get("title"), notification.get("body"), data, number)
        if not count:
            return self.success(request_id=number)
        text = json.dumps({"success": len(good), "failure": count, "illegalTokens": bad})
        return self.success("80100000", text, number)

    def _options(self, options: typing.Any, tokens: int, kind: str) -> None:
        only(options, OPTIONS, "80100003", "pushOptions")
        need(isinstance(options.get("testMessage", False), bool), "80100003", "Illegal testMessage")
        if options.get("testMessage"):
            need(tokens <= 10, "80300010", "Illegal token count, a test message has at most 10")
            self.tests_today += 1
            need(self.tests_today <= 1_000, "80100003", "more than 1000 test messages")
        need(is_integer(options.get("ttl", 86_400), 1, 1_296_000), "80100004", f"Illegal ttl {options.get('ttl')}")
        tag = options.get("biTag", "")
        need(isinstance(tag, str) and len(tag.encode()) <= 64, "80100003", "Illegal biTag")
        need(is_integer(options.get("collapseKey", -1), -1, 100), "80100013", "Illegal collapseKey")
        need(kind != "1" or tokens == 1, "80100002", "a form update has one token")

    @staticmethod
    def _notification(shown: typing.Any, kind: str) -> None:
        only(shown, NOTIFICATION, "80100003", "notification")
        need(shown.get("category") in CATEGORIES, "80100003", "Illegal payload, category")
        need((shown["category"] == "PLAY_VOICE") == (kind == "2"), "80100003", "PLAY_VOICE belongs to push-type 2")
        for name in ("title", "body"):
            need(isinstance(shown.get(name), str) and shown[name], "80100003", f"Illegal payload, {name} is required")
        action = only(shown.get("clickAction"), CLICK, "80100003", "clickAction")
        need(action.get("actionType") in (0, 1), "80100003", "Illegal payload, actionType")
        need(action["actionType"] == 0 or action.get("action") or action.get("uri"), "80100003",
             "Illegal payload, actionType 1 needs action or uri")
        need(isinstance(action.get("data", {}), dict), "80100003", "Illegal payload, data is no object")
        badge = only(shown.get("badge", {}), ("addNum", "setNum"), "80100003", "badge")
        need("addNum" not in badge or is_integer(badge["addNum"], 1, 99), "80100003",
             "Illegal payload, badge addNum value ranges from 1 to 99")
        need("setNum" not in badge or is_integer(badge["setNum"], 0, 99), "80100003",
             "Illegal payload, badge setNum value ranges from 0 to 99")
        need("notifyId" not in shown or is_integer(shown["notifyId"], -1, 2**31 - 1), "80100003", "Illegal payload, notifyId")
        need(isinstance(shown.get("foregroundShow", True), bool), "80100003", "Illegal payload, foregroundShow")
        need(shown.get("style", 0) in (0, 3), "80100003", "Illegal payload, style")
        need(shown.get("style", 0) != 3 or isinstance(shown.get("inboxContent"), list), "80100003",
             "Illegal payload, style 3 needs inboxContent")
        need(str(shown.get("image", "https:")).startswith("https:"), "80100003", "Illegal payload, image must be HTTPS")
        need("appMessageId" not in shown or re.fullmatch(r"[A-Za-z0-9+/=\-_\s]{1,64}", str(shown["appMessageId"])), "80100003",
             "Illegal payload, appMessageId")
        need(len(str(shown.get("profileId", ""))) <= 64, "80100003", "Illegal payload, profileId")
