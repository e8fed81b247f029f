"""Huawei Push Kit, HMS: the OAuth 2 token endpoint and v1 messages:send.

Sources: https://developer.huawei.com/consumer/cn/doc/HMSCore-References/https-send-api-0000001050986197 (fields; its wording as
copied in https://github.com/modood/pushapi/blob/master/huaweipush/message.go), https://segmentfault.com/a/1190000042188975/en
(codes 80200001, 80200003, 80300007, 80300010), https://developer.huawei.com/consumer/cn/doc/harmonyos-references/
push-scenariozed-api-response (HTTP statuses).
Unconfirmed: the HTTP status of v1's refusals, 200 or 400 and 401 (see `http_errors`), and the OAuth error codes.
"""

import json
import re
import secrets
import typing
from collections.abc import Callable

from .credentials import AppSecret
from .server import Answer, Request
from .vendor import CATEGORIES, AccessTokens, Refusal, Vendor, is_integer, need, only

STATUSES = {"801": 400, "802": 401, "803": 400, "806": 500, "810": 500}  # HTTP status by the code's first digits
MESSAGE = "data notification android apns webpush token topic condition".split()
ANDROID = ("collapse_key urgency category ttl bi_tag receipt_id fast_app_target data notification target_user_type "
           "extra_config").split()
NOTIFICATION = (
    "title body icon color sound default_sound tag click_action body_loc_key body_loc_args title_loc_key title_loc_args "
    "multi_lang_key channel_id notify_summary image style big_title big_body auto_clear notify_id group badge ticker "
    "auto_cancel when local_only importance use_default_vibrate use_default_light vibrate_config visibility light_settings "
    "foreground_show inbox_content buttons profile_id").split()


def body_size(message: dict[str, typing.Any]) -> int:
    """Returns the size that Huawei limits: the message without its tokens."""
    return len(json.dumps({**message, "token": []}, ensure_ascii=False, separators=(",", ":")).encode())


class HuaweiVendor(Vendor):
    """The parts that v1 and v3 of Push Kit share."""

    pattern = r"[A-Za-z0-9_-]{100,180}"

    def __init__(self, http_errors: bool, **options):
        super().__init__(**options)
        self.http_errors = http_errors

    def make_token(self) -> str:
        return f"IQAAAA{secrets.token_urlsafe(96)[:124]}"

    def refuse(self, request: Request, refusal: Refusal) -> Answer:
        if refusal.code == 503:
            return Answer(503, {"Content-Type": "text/html"}, "<html><body>503 Service Temporarily Unavailable</body></html>")
        status = STATUSES.get(str(refusal.code)[:3], 400) if self.http_errors else 200
        return Answer(status, body={
            "code": refusal.code, "msg": refusal.reason, "requestId": f"{int(self.now() * 1e6)}{secrets.randbelow(10**6):06d}"})

    def success(self, code: str = "80000000", text: str = "Success", request_id: str = "") -> Answer:
        return Answer(body={"code": code, "msg": text, "requestId": request_id})

    def sort(self, tokens: typing.Any) -> tuple[list[str], dict[str, list[str]]]:
        """Returns the good tokens, and the others by the reason that v3 names."""
        need(isinstance(tokens, list) and 1 <= len(tokens) <= 1_000, "80300010", "Illegal token count, range is 1~1000")
        need(all(isinstance(one, str) for one in tokens), "80100003", "Illegal payload, token is not a text")
        good: list[str] = []
        bad: dict[str, list[str]] = {}
        for token in tokens:
            state = self.token_state(token)
            if state == "registered":
                good.append(token)
            else:
                bad.setdefault("tokenFormatError" if state == "malformed" else "noRight", []).append(token)
        return good, bad

    def spread(self) -> None:
        need(not self.is_too_fast(), 503, "flow control")


class FakeHuawei(HuaweiVendor):
    """`app` has the id and the secret. `lacks` has the rights that the app has not: "push" (80300002), "high" (80300011)."""

    def __init__(self, http_errors: bool = False, lifetime: int = 3_600, **options):
        super().__init__(http_errors, **options)
        self.app = AppSecret()
        # Real tokens have slashes, which the answer escapes as "\/".
        self.access = AccessTokens(self.now, lifetime, lambda: f"CF/{secrets.token_urlsafe(60)}/{secrets.token_urlsafe(20)}==")
        self.lacks: set[str] = set()

    def routes(self) -> list[tuple[str, str, Callable[..., Answer]]]:
        return [("POST", r"/oauth2/v[23]/token", self._token), ("POST", r"/v1/([^/]+)/messages:send", self._send)]

    def refuse(self, request: Request, refusal: Refusal) -> Answer:
        if request.path.endswith("/token"):
            return Answer(400, body={"error": 1101, "sub_error": refusal.code, "error_description": refusal.reason})
        return super().refuse(request, refusal)

    def _token(self, request: Request) -> Answer:
        form = request.form() or {}
        need(form.get("grant_type") == "client_credentials", 20_181, "invalid grant_type")
        need(form.get("client_id") == self.app.id, 12_303, "app not found")
        need(form.get("client_secret") == self.app.secret, 20_001, "invalid client_secret")
        text = json.dumps({
            "access_token": self.access.issue(), "expires_in": int(self.access.lifetime), "token_type": "Bearer"})
        return Answer(headers={"Content-Type": "application/json;charset=UTF-8"}, body=text.replace("/", "\\/"))

    def _send(self, request: Request, app: str) -> Answer:
        state = self.access.state(request.bearer())
        need(state != "expired", "80200003", "OAuth token expired")
        need(state == "valid" and app == self.app.id, "80200001", "OAuth authentication error")
        need("push" not in self.lacks, "80300002", "No permission to send message to these tmIDs")
        self.spread()
        body = only(request.json(), ("validate_only", "message", "review"), "80100003", "the body")
        message = body.get("message")
        need(message is not None, "80300010", "Illegal token count")
        only(message, MESSAGE, "80100003", "message")
        targets = [name for name in ("token", "topic", "condition") if name in message]
        need(len(targets) < 2, "80100003", "token, topic and condition exclude each other")
        need(targets == ["token"], "80300010", "Illegal token count")
        good, bad = self.sort(message["token"])
        need(body_size(message) <= 4_096, "80300008", "Message body size is over limit")
        shown, data = self._check(message)
        illegal = [one for some in bad.values() for one in some]
        need(good, "80300007", "all tokens are invalid", illegal=illegal)
        number = f"{int(self.now() * 1e6)}{secrets.randbelow(10**6):06d}"
        if not body.get("validate_only"):
            for token in good:
                self.accept(token, request, message, shown.get("title"), shown.get("body"), data, number)
        if not illegal:
            return self.success(request_id=number)
        text = json.dumps({"success": len(good), "failure": len(illegal), "illegal_tokens": illegal})
        return self.success("80100000", text, number)

    def _check(self, message: dict[str, typing.Any]) -> tuple[dict[str, typing.Any], str | None]:
        """Checks the fields; returns the notification that the device shows and the data."""
        common = only(message.get("notification", {}), ("title", "body", "image"), "80100003", "message.notification")
        android = only(message.get("android", {}), ANDROID, "80100003", "message.android")
        data = android.get("data", message.get("data"))
        need(data is None or isinstance(data, str), "80100003", "data is not a text")
        key = android.get("collapse_key", -1)
        need(is_integer(key, -1, 100), "80100013", f"Illegal collapse_key {key}")
        ttl = android.get("ttl", "86400s")
        need(isinstance(ttl, str) and re.fullmatch(r"\d+s?", ttl) and 0 < int(ttl.rstrip("s")) <= 1_296_000,
             "80100004", f"Illegal ttl {ttl}")
        need(android.get("urgency", "NORMAL") in ("HIGH", "NORMAL"), "80100003", "Illegal urgency")
        need(android.get("urgency") != "HIGH" or "high" not in self.lacks, "80300011", "no right for high priority")
        need(android.get("category", "IM") in CATEGORIES, "80100003", "Illegal category")
        need(android.get("target_user_type", 0) in (0, 1), "80100003", "Illegal target_user_type")
        need(isinstance(android.get("bi_tag", ""), str), "80100003", "Illegal bi_tag")
        if "notification" not in android:
            need(not common, "80100003", "a notification for Android needs android.notification")
            need(data, "80100003", "neither data nor notification")
            return {}, data
        shown = only(android["notification"], NOTIFICATION, "80100003", "message.android.notification")
        merged = {**common, **shown}
        for name in ("title", "body"):
            need(isinstance(merged.get(name), str) and merged[name], "80100003", f"Illegal payload, {name} is required")
        self._click(shown.get("click_action"))
        need(shown.get("importance", "NORMAL") in ("LOW", "NORMAL", "HIGH"), "80100003", "Illegal importance")
        need(shown.get("importance") != "HIGH" or "high" not in self.lacks, "80300011", "no right for high priority")
        need(shown.get("style", 0) in (0, 1, 3), "80100003", "Illegal style")
        if shown.get("style") == 1:
            need(shown.get("big_title") and shown.get("big_body"), "80100003", "style 1 needs big_title and big_body")
        if shown.get("style") == 3:
            lines = shown.get("inbox_content")
            need(isinstance(lines, list) and 1 <= len(lines) <= 5, "80100003", "style 3 needs inbox_content")
        badge = only(shown.get("badge", {}), ("add_num", "set_num", "class"), "80100003", "badge")
        need("add_num" not in badge or is_integer(badge["add_num"], 1, 99), "80100003", "Illegal badge add_num")
        need("set_num" not in badge or is_integer(badge["set_num"], 0, 99), "80100003", "Illegal badge set_num")
        need("notify_id" not in shown or is_integer(shown["notify_id"]), "80100003", "Illegal notify_id")
        for name in ("foreground_show", "auto_cancel", "default_sound"):
            need(isinstance(shown.get(name, True), bool), "80100003", f"Illegal {name}")
        for name in ("channel_id", "tag", "group", "big_title", "big_body"):
            need(isinstance(shown.get(name, ""), str), "80100003", f"Illegal {name}")
        image = merged.get("image", "https:")
        need(isinstance(image, str) and image.startswith("https:"), "80100003", "Illegal image, the protocol must be HTTPS")
        need(isinstance(shown.get("buttons", []), list) and len(shown.get("buttons", [])) <= 3, "80100003", "Illegal buttons")
        return merged, data

    @staticmethod
    def _click(action: typing.Any) -> None:
        only(action, ("type", "intent", "url", "action"), "80100003", "click_action")
        need(is_integer(action.get("type"), 1, 3), "80100003", "Illegal click_action type")
        if action["type"] == 1:
            need(action.get("intent") or action.get("action"), "80100003", "click_action type 1 needs intent or action")
        if action["type"] == 2:
            need(str(action.get("url", "")).startswith("https://"), "80100003", "click_action type 2 needs an HTTPS url")
