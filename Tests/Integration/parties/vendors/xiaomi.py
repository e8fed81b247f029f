"""Xiaomi MiPush: /message/regid (v2, v3, v4), a form with `Authorization: key=SECRET`.

Sources: https://dev.mi.com/xiaomihyperos/documentation/detail?pId=1559 (fields), ?pId=1560 (codes),
https://github.com/modood/pushapi/blob/master/xiaomipush/message.go.
Unconfirmed: the code of each violated field (10016 missing, 10017 bad value, 65009 too long) and `jobkey`'s length (12 or 20).
The answer for a request without a good regid is 20301, "No valid targets!"; `bad_regid_code` sets another code.
"""

import re
import secrets
import urllib.parse
from collections.abc import Callable

from .credentials import AppSecret
from .server import Answer, Request
from .vendor import Refusal, Vendor, need

FIELDS = (
    "payload restricted_package_name pass_through title description notify_type time_to_live time_to_send notify_id "
    "registration_id").split()
# Extras with a meaning for Xiaomi; the limit of ten holds for the app's own ones.
KNOWN_EXTRAS = (
    "sound_uri ticker notify_foreground notify_effect intent_uri web_uri flow_control jobkey callback callback.param "
    "callback.type locale locale_not_in model model_not_in app_version app_version_not_in connpt only_send_once channel_id "
    "channel_name channel_description layout_name layout_value notification_style_type notification_large_icon_uri "
    "notification_bigPic_uri mi_template_id mi_template_param").split()


class FakeXiaomi(Vendor):
    """`app` has the secret and the package; `channels` limits the known channel ids, unless it is None.

    A day over its quota answers 10034 until 00:00 in Beijing; `rate` answers 10027. `is_disabled` answers 10031.
    """

    pattern = r"[A-Za-z0-9+/=]{40,100}"

    def __init__(self, channels: set[str] | None = None, bad_regid_code: int = 20_301, **options):
        super().__init__(**options)
        self.channels, self.bad_regid_code = channels, bad_regid_code
        self.app = AppSecret()
        self.is_disabled = False

    def make_token(self) -> str:
        return secrets.token_urlsafe(48).replace("-", "+").replace("_", "/")

    def routes(self) -> list[tuple[str, str, Callable[..., Answer]]]:
        return [("POST", r"/v[234]/message/regid", self._send)]

    def refuse(self, request: Request, refusal: Refusal) -> Answer:
        return Answer(body={
            "result": "error", "reason": refusal.reason, "trace_id": f"Xcm{secrets.token_hex(10)}", "code": refusal.code,
            "description": refusal.more.get("description", refusal.reason)})

    def _send(self, request: Request) -> Answer:
        need(request.headers.get("authorization") == f"key={self.app.secret}", 21_301, "auth failed",
             description="认证失败")
        need(not self.is_disabled, 10_031, "app is disabled")
        form = request.form()
        need(form is not None, 10_012, "no form")
        extras = {name.removeprefix("extra."): value for name, value in form.items() if name.startswith("extra.")}
        unknown = [name for name in form if name not in FIELDS and not name.startswith("extra.")]
        need(not unknown, 10_017, f"unknown parameters: {', '.join(unknown)}")
        self._check(form, extras)
        need(form.get("restricted_package_name", self.app.package) == self.app.package, 22_022, "package does not fit")
        tokens = form["registration_id"].split(",")
        need(len(tokens) <= 1_000, 10_017, "more than 1000 registration ids")
        good = [token for token in tokens if self.token_state(token) == "registered"]
        bad = [token for token in tokens if token not in good]
        need(good, self.bad_regid_code, "No valid targets!", description="发送消息失败")
        need(not self.is_too_fast(), 10_027, "too many requests", description="调用过于频繁")
        need(not self.is_over_quota(len(good)), 10_034, "day quota exceeded", description="超过当天配额")
        number = f"scm{secrets.token_hex(12)}"
        data = urllib.parse.unquote_plus(form["payload"]) if "payload" in form else None
        for token in good:
            self.accept(token, request, form, form.get("title"), form.get("description"), data, number)
        answer = {"id": number, "day_acked": str(self.days[self.today()]), "day_quota": str(self.day_quota or 100_000)}
        if bad:
            answer["bad_regids"] = ",".join(bad)
        return Answer(body={
            "result": "ok", "trace_id": f"Xcm{secrets.token_hex(10)}", "code": 0, "data": answer, "description": "成功",
            "info": f"Received push messages for {len(good)} regid"})

    def _check(self, form: dict[str, str], extras: dict[str, str]) -> None:
        need(form.get("registration_id"), 10_016, "Miss required parameter: registration_id")
        passes = form.get("pass_through", "0")
        need(passes in ("0", "1"), 10_017, "Parameter value invalid: pass_through")
        if "payload" in form:
            need(re.fullmatch(r"(?:[A-Za-z0-9\-_.~+*!'()]|%[0-9A-Fa-f]{2})*", form["payload"]), 10_017,
                 "Parameter value invalid: payload is not URL-encoded")
        need(passes == "0" or form.get("payload"), 10_016, "Miss required parameter: payload")
        if passes == "0":
            for name, bound in (("title", 50), ("description", 128)):
                text = form.get(name, "")
                need(text.strip(), 10_016, f"Miss required parameter: {name}")
                need(len(text) < bound, 65_009, f"{name} is too long")
            need(extras.get("channel_id"), 10_016, "Miss required parameter: extra.channel_id")
            need(self.channels is None or extras["channel_id"] in self.channels, 27_001, "channel does not fit")
        need(form.get("notify_type", "-1") in ("-1", "1", "2", "3", "4", "5", "6", "7"), 10_017,
             "Parameter value invalid: notify_type")
        for name in ("time_to_live", "time_to_send"):
            need(re.fullmatch(r"\d+", form.get(name, "0")), 10_017, f"Parameter value invalid: {name}")
        need(re.fullmatch(r"-?\d{1,10}", form.get("notify_id", "0")) and -2**31 <= int(form.get("notify_id", "0")) < 2**31,
             10_017, "Parameter value invalid: notify_id")
        need(extras.get("notify_effect", "1") in ("1", "2", "3"), 10_017, "Parameter value invalid: notify_effect")
        need(extras.get("notify_effect") != "2" or extras.get("intent_uri"), 10_016, "Miss required parameter: intent_uri")
        need(extras.get("notify_effect") != "3" or extras.get("web_uri"), 10_016, "Miss required parameter: web_uri")
        need(extras.get("notify_foreground", "1") in ("0", "1"), 10_017, "Parameter value invalid: notify_foreground")
        need(re.fullmatch(r"(?!_)[A-Za-z0-9_-]{1,20}", extras.get("jobkey", "x")), 10_017, "Parameter value invalid: jobkey")
        need(len(extras.get("callback.param", "").encode()) <= 64, 10_017, "Parameter value invalid: callback.param")
        need(extras.get("callback.type", "3").isdigit(), 10_017, "Parameter value invalid: callback.type")
        own = {name: value for name, value in extras.items() if name not in KNOWN_EXTRAS}
        need(len(own) <= 10, 10_017, "more than 10 extras")
        need(sum(len(name) + len(value) for name, value in own.items()) <= 1_024, 65_009, "extras are too long")
