"""Honor Push: the token endpoint and sendMessage.

Sources: https://my.oschina.net/u/5873522/blog/10140231 (Honor's own account: addresses, headers, bodies),
https://github.com/cossim/hipush (the form of the answer), https://help.aliyun.com/document_detail/2853108.html.
Unconfirmed: the business codes 80… are Huawei's; the HTTP status of a refused access token and limits of fields are guesses.
The answer for a request without a good token is a code or lists (see `bad_tokens`).
"""

import json
import secrets
import typing
from collections.abc import Callable

from .credentials import AppSecret
from .server import Answer, Request
from .vendor import AccessTokens, Refusal, Vendor, is_integer, need, only

ANDROID = "ttl biTag targetUserType data notification".split()
NOTIFICATION = (
    "title body clickAction importance style bigTitle bigBody image badge notifyId tag group when buttons color icon "
    "channelId").split()


class FakeHonor(Vendor):
    """`bad_tokens` is the answer if all tokens are bad: "lists" (code 200 with expireTokens, failTokens) or "code" (80300007).

    An unregistered token is in expireTokens, a malformed or unknown one in failTokens. With `http_errors` a refused access
    token gets HTTP 401 instead of 200.
    """

    pattern = r"[A-Za-z0-9_-]{60,180}"

    def __init__(self, bad_tokens: str = "lists", http_errors: bool = False, lifetime: int = 3_600, **options):
        super().__init__(**options)
        self.bad_tokens, self.http_errors = bad_tokens, http_errors
        self.app = AppSecret()
        self.client_id = secrets.token_hex(16)  # differs from the app's id
        self.access = AccessTokens(self.now, lifetime, lambda: f"{secrets.token_urlsafe(120)}==")

    def make_token(self) -> str:
        return f"BAEAAAAA{secrets.token_urlsafe(90)[:110]}"

    def routes(self) -> list[tuple[str, str, Callable[..., Answer]]]:
        return [
            ("POST", r"/auth/realms/developer/protocol/openid-connect/token|/auth/token", self._token),
            ("POST", r"/api/v1/([^/]+)/sendMessage", self._send),
        ]

    def refuse(self, request: Request, refusal: Refusal) -> Answer:
        if request.path.endswith("/token"):
            return Answer(refusal.more.get("http", 400), body={"error": refusal.code, "error_description": refusal.reason})
        status = 401 if self.http_errors and str(refusal.code).startswith("802") else 200
        body = {"code": refusal.code, "message": refusal.reason}
        if data := refusal.more.get("data"):
            body["data"] = data
        return Answer(status, body=body)

    def _token(self, request: Request) -> Answer:
        form = request.form() or {}
        need(form.get("grant_type") == "client_credentials", "unsupported_grant_type", "Unsupported grant_type")
        need(form.get("client_id") == self.client_id, "invalid_client", "Invalid client credentials", http=401)
        need(form.get("client_secret") == self.app.secret, "unauthorized_client", "Invalid client secret", http=401)
        return Answer(body={
            "access_token": self.access.issue(), "expires_in": int(self.access.lifetime), "token_type": "Bearer"})

    def _send(self, request: Request, app: str) -> Answer:
        state = self.access.state(request.bearer())
        need(state != "expired", 80_200_003, "token expired")
        need(state == "valid", 80_200_001, "authentication error")
        need(app == self.app.id, 80_300_002, "the app has no permission")
        time = request.headers.get("timestamp", "")
        need(time.isdigit() and len(time) == 13, 80_100_003, "the header timestamp has no milliseconds")
        need(not self.is_too_fast(), 80_300_005, "flow control")
        body = only(request.json(), ("token", "data", "notification", "android"), 80_100_003, "the body")
        tokens = body.get("token")
        need(isinstance(tokens, list) and 1 <= len(tokens) <= 1_000 and all(isinstance(one, str) for one in tokens),
             80_300_010, "1 to 1000 tokens")
        size = len(json.dumps({**body, "token": []}, ensure_ascii=False, separators=(",", ":")).encode())
        need(size <= 4_096, 80_300_008, "the message is larger than 4096 bytes")
        shown, data = self._check(body)
        states = {token: self.token_state(token) for token in tokens}
        good = [token for token in tokens if states[token] == "registered"]
        number = secrets.token_hex(16)
        result = {
            "sendResult": bool(good), "requestId": number,
            "failTokens": [token for token in tokens if states[token] in ("malformed", "unknown")],
            "expireTokens": [token for token in tokens if states[token] == "unregistered"],
        }
        need(good or self.bad_tokens == "lists", 80_300_007, "all the tokens are invalid", data=result)
        for token in good:
            self.accept(token, request, body, shown.get("title"), shown.get("body"), data, number)
        if not good:
            self.note(Refusal("tokens", "no valid token"), request)
        return Answer(body={"code": 200, "message": "success", "data": result})

    @staticmethod
    def _check(body: dict[str, typing.Any]) -> tuple[dict[str, typing.Any], str | None]:
        common = only(body.get("notification", {}), ("title", "body", "image"), 80_100_003, "notification")
        android = only(body.get("android", {}), ANDROID, 80_100_003, "android")
        data = android.get("data", body.get("data"))
        need(data is None or isinstance(data, str), 80_100_003, "data is not a text")
        ttl = android.get("ttl", "86400s")
        need(isinstance(ttl, str) and ttl.endswith("s") and ttl[:-1].isdigit() and 0 < int(ttl[:-1]) <= 1_296_000,
             80_100_004, f"ttl {ttl}")
        need(android.get("targetUserType", 0) in (0, 1), 80_100_003, "targetUserType")
        if "notification" not in android:
            need(not common, 80_100_003, "a notification needs android.notification")
            need(data, 80_100_003, "neither data nor notification")
            return {}, data
        shown = only(android["notification"], NOTIFICATION, 80_100_003, "android.notification")
        merged = {**common, **shown}
        for name in ("title", "body"):
            need(isinstance(merged.get(name), str) and merged[name], 80_100_003, f"{name} is required")
        action = only(shown.get("clickAction"), ("type", "intent", "url", "action"), 80_100_003, "clickAction")
        need(is_integer(action.get("type"), 1, 3), 80_100_003, "clickAction.type")
        need(action["type"] != 1 or action.get("intent") or action.get("action"), 80_100_003, "clickAction needs an intent")
        need(action["type"] != 2 or str(action.get("url", "")).startswith("https://"), 80_100_003, "clickAction needs a url")
        need(shown.get("importance", "NORMAL") in ("LOW", "NORMAL"), 80_100_003, "importance")
        need(shown.get("style", 0) in (0, 1), 80_100_003, "style")
        need(shown.get("style", 0) == 0 or shown.get("bigTitle") and shown.get("bigBody"), 80_100_003, "bigTitle and bigBody")
        badge = only(shown.get("badge", {}), ("addNum", "setNum", "badgeClass"), 80_100_003, "badge")
        need("addNum" not in badge or is_integer(badge["addNum"], 1, 99), 80_100_003, "badge.addNum")
        need("setNum" not in badge or is_integer(badge["setNum"], 0, 99), 80_100_003, "badge.setNum")
        need("notifyId" not in shown or is_integer(shown["notifyId"]), 80_100_003, "notifyId")
        return merged, data
