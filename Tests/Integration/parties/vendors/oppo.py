"""OPPO Push: /server/v1/auth and /server/v1/message/notification/unicast, both forms.

Sources: https://open.oppomobile.com/new/developmentDoc/info?id=11236 and 11238, as copied in
https://github.com/modood/pushapi/blob/master/oppopush/message.go, https://www.yimenapp.com/kb-yimen/11093 (unicast) and
https://www.yimenapp.com/kb-yimen/11080 (fields).
The pages differ in the length of `content` for style 1: 50 (modood, July 2025) or 200 characters (yimenapp); `content_limit`
has the first. Unconfirmed: code 33 for the day's limit, and the answer for a second message with the same app_message_id.
"""

import hashlib
import json
import re
import secrets
import typing
from collections.abc import Callable

from .credentials import AppSecret
from .server import Answer, Request
from .vendor import AccessTokens, Refusal, Vendor, is_integer, need

FIELDS = (
    "app_message_id style big_picture_id small_picture_id title sub_title content click_action_type click_action_activity "
    "click_action_url action_parameters show_time_type show_start_time show_end_time off_line off_line_ttl push_time_type "
    "push_start_time time_zone fix_speed fix_speed_rate network_type call_back_url call_back_parameter channel_id show_ttl "
    "notify_id auditResponse category notify_level private_msg_template_id private_title_parameters "
    "private_content_parameters badge_operation_type badge_message_count").split()


class FakeOPPO(Vendor):
    """`app.key` is the app key, `app.secret` the master secret. `duplicates` counts messages that OPPO deduplicated.

    `needs_channel` refuses messages without channel_id, which Android 8 and later need.
    """

    pattern = r"(?:CN|OPPO_CN|[A-Z]{2,8}_CN)_[0-9a-f]{32}"

    def __init__(self, content_limit: int = 50, needs_channel: bool = False, lifetime: int = 86_400, **options):
        super().__init__(**options)
        self.content_limit, self.needs_channel = content_limit, needs_channel
        self.app = AppSecret()
        self.access = AccessTokens(self.now, lifetime, lambda: secrets.token_hex(18))
        self.duplicates = 0
        self._seen: set[tuple[str, str]] = set()

    def make_token(self) -> str:
        return f"CN_{secrets.token_hex(16)}"

    def routes(self) -> list[tuple[str, str, Callable[..., Answer]]]:
        return [
            ("POST", "/server/v1/auth", self._auth),
            ("POST", "/server/v1/message/notification/unicast", self._unicast),
        ]

    def refuse(self, request: Request, refusal: Refusal) -> Answer:
        return Answer(body={"code": refusal.code, "message": refusal.reason, "data": {}})

    def _auth(self, request: Request) -> Answer:
        form = request.form() or {}
        need(form.get("app_key"), 15, "Missing App Key")
        need(form["app_key"] == self.app.key, 14, "Invalid App Key")
        time = form.get("timestamp", "")
        need(time, 18, "Missing Timestamp")
        need(time.isdigit() and len(time) == 13 and abs(int(time) / 1_000 - self.now()) <= 600, 19, "Invalid Timestamp")
        need(form.get("sign"), 17, "Missing Signature")
        expected = hashlib.sha256(f"{self.app.key}{time}{self.app.secret}".encode()).hexdigest()
        need(form["sign"] == expected, 16, "Invalid Signature")
        return Answer(body={
            "code": 0, "message": "Success",
            "data": {"auth_token": self.access.issue(), "create_time": int(self.now() * 1_000)}})

    def _unicast(self, request: Request) -> Answer:
        form = request.form() or {}
        token = form.get("auth_token", request.headers.get("auth_token"))
        need(self.access.state(token) == "valid", 11, "Invalid Auth Token")
        need(not self.is_too_fast(), 13, "App Call Limited")
        need("message" in form, 40, "Missing Required Arguments: message")
        try:
            message = json.loads(form["message"])
        except ValueError as error:
            raise Refusal(41, "Invalid Arguments: message is no JSON") from error
        need(isinstance(message, dict) and set(message) <= {
            "target_type", "target_value", "notification", "verify_registration_id"}, 41, "Invalid Arguments: message")
        need(message.get("target_type") == 2, 41, "Invalid Arguments: target_type")
        target = message.get("target_value")
        need(isinstance(target, str) and target, 40, "Missing Required Arguments: target_value")
        notification = message.get("notification")
        self._check(notification)
        need(self.token_state(target) == "registered", 10_000, "Invalid RegistrationId")
        need(not self.is_over_quota(), 33, "The number of messages exceeds the daily limit")
        number = secrets.token_hex(12)
        own = notification.get("app_message_id")
        if own and (target, own) in self._seen:
            self.duplicates += 1
        else:
            self._seen.add((target, own or number))
            self.accept(target, request, message, notification["title"], notification["content"],
                        notification.get("action_parameters"), number)
        return Answer(body={"code": 0, "message": "Success", "data": {"messageId": number}})

    def _check(self, one: typing.Any) -> None:
        need(isinstance(one, dict), 40, "Missing Required Arguments: notification")
        unknown = sorted(set(one) - set(FIELDS))
        need(not unknown, 41, f"Invalid Arguments: {', '.join(unknown)}")
        style = one.get("style", 1)
        need(style in (1, 2), 41, "Invalid Arguments: style")  # style 3 is for broadcasts only
        most = 128 if style == 2 else self.content_limit
        for name, bound in (("title", 50), ("content", most)):
            need(isinstance(one.get(name), str) and one[name].strip(), 40, f"Missing Required Arguments: {name}")
            need(len(one[name]) <= bound, 41, f"Invalid Arguments: {name} is longer than {bound}")
        limits = {"sub_title": 10, "click_action_activity": 500, "click_action_url": 2_000, "action_parameters": 4_000,
                  "call_back_url": 200, "call_back_parameter": 100, "channel_id": 200, "app_message_id": 200}
        for name, bound in limits.items():
            need(isinstance(one.get(name, ""), str) and len(one.get(name, "")) <= bound, 41, f"Invalid Arguments: {name}")
        kind = one.get("click_action_type", 0)
        need(kind in (0, 1, 2, 4, 5), 41, "Invalid Arguments: click_action_type")
        need(kind not in (1, 4) or one.get("click_action_activity"), 40, "Missing Required Arguments: click_action_activity")
        need(kind not in (2, 5) or one.get("click_action_url"), 40, "Missing Required Arguments: click_action_url")
        if one.get("action_parameters"):
            try:
                is_object = isinstance(json.loads(one["action_parameters"]), dict)
            except ValueError:
                is_object = False
            need(is_object, 41, "Invalid Arguments: action_parameters is no JSON object")
        need(isinstance(one.get("off_line", True), bool), 41, "Invalid Arguments: off_line")
        need(is_integer(one.get("off_line_ttl", 0), 0), 41, "Invalid Arguments: off_line_ttl")  # above ten days it is lowered
        need("notify_id" not in one or is_integer(one["notify_id"], 0), 41, "Invalid Arguments: notify_id")
        need(one.get("notify_level", 1) in (1, 2, 16), 41, "Invalid Arguments: notify_level")
        need("notify_level" not in one or one.get("category"), 40, "Missing Required Arguments: category")
        need(is_integer(one.get("show_ttl", 0), 0, 86_400), 41, "Invalid Arguments: show_ttl")
        need(one.get("channel_id") or not self.needs_channel, 40, "Missing Required Arguments: channel_id")
        need(re.match(r"https?://", one.get("call_back_url", "http://")), 41, "Invalid Arguments: call_back_url")
