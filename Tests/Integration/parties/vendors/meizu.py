"""Meizu Push: varnished (notifications) and unvarnished (passthrough) pushByPushId.

Source for all of it: https://github.com/MEIZUPUSH/PushAPI (README). `value` has the refused pushIds by code:
{"110002": ["pushId", …]}; accepted ones are absent.
"""

import hashlib
import json
import re
import secrets
import typing
from collections.abc import Callable

from .credentials import AppSecret
from .server import Answer, Request
from .vendor import Refusal, Vendor, is_integer, need

PARTS = "noticeBarInfo noticeExpandInfo clickTypeInfo pushTimeInfo advanceInfo extra".split()


class FakeMeizu(Vendor):
    """`app` has id and secret; `rate` answers 110010. `allows_passthrough` False answers 110053."""

    pattern = r"[0-9A-Za-z]{40,64}"

    def __init__(self, allows_passthrough: bool = True, **options):
        super().__init__(**options)
        self.app = AppSecret()
        self.allows_passthrough = allows_passthrough

    def make_token(self) -> str:
        return f"RA5{secrets.token_hex(21)}"

    def routes(self) -> list[tuple[str, str, Callable[..., Answer]]]:
        return [("POST", "/garcia/api/server/push/(varnished|unvarnished)/pushByPushId", self._send)]

    def refuse(self, request: Request, refusal: Refusal) -> Answer:
        return Answer(body={"code": refusal.code, "message": refusal.reason, "value": "", "redirect": ""})

    def _send(self, request: Request, kind: str) -> Answer:
        form = request.form()
        need(form is not None, "1005", "参数错误")
        for name in ("appId", "pushIds", "messageJson", "sign"):
            need(form.get(name), "110004", f"参数不能为空: {name}")
        need(form["appId"] == self.app.id, "110000", "appId不合法")
        text = "".join(f"{name}={form[name]}" for name in sorted(form) if name != "sign") + self.app.secret
        need(form["sign"] == hashlib.md5(text.encode()).hexdigest(), "1006", "签名认证失败")
        need(not self.is_too_fast(), "110010", "应用请求频率超过限制")
        tokens = form["pushIds"].split(",")
        need(len(tokens) <= 1_000, "1005", "参数错误: pushIds")
        try:
            message = json.loads(form["messageJson"])
        except ValueError as error:
            raise Refusal("1005", "参数错误: messageJson") from error
        need(isinstance(message, dict), "1005", "参数错误: messageJson")
        if kind == "varnished":
            title, body, data = self._notification(message)
        else:
            need(self.allows_passthrough, "110053", "透传超过限制")
            title, body, data = self._passthrough(message)
        self._time(message.get("pushTimeInfo", {}))
        number, value = secrets.token_hex(16), {}
        for token in tokens:
            state = self.token_state(token)
            if state == "registered":
                self.accept(token, request, message, title, body, data, number)
            else:
                value.setdefault("110003" if state == "malformed" else "110002", []).append(token)
        for code in value:
            self.note(Refusal(code), request)
        return Answer(body={"code": "200", "message": "", "value": value, "redirect": "", "msgId": number})

    @staticmethod
    def _time(info: typing.Any) -> None:
        need(isinstance(info, dict) and info.get("offLine", 1) in (0, 1), "1005", "参数错误: offLine")
        need(info.get("offLine", 1) == 0 or is_integer(info.get("validTime", 24), 1, 72), "1005", "参数错误: validTime")

    @staticmethod
    def _passthrough(message: dict[str, typing.Any]) -> tuple[str | None, None, str]:
        content = message.get("content")
        need(isinstance(content, str) and 0 < len(content) <= 2_000, "1005", "参数错误: content")
        need(len(message.get("title", "")) <= 32, "1005", "参数错误: title")
        return message.get("title"), None, content

    @staticmethod
    def _notification(message: dict[str, typing.Any]) -> tuple[str, str, typing.Any]:
        unknown = sorted(set(message) - set(PARTS))
        need(not unknown, "1005", f"参数错误: {', '.join(unknown)}")
        for name in PARTS:
            need(isinstance(message.get(name, {}), dict), "1005", f"参数错误: {name}")
        bar, expand = message.get("noticeBarInfo", {}), message.get("noticeExpandInfo", {})
        click, advance, extra = (message.get(name, {}) for name in ("clickTypeInfo", "advanceInfo", "extra"))
        for name, bound in (("title", 32), ("content", 100)):
            need(isinstance(bar.get(name), str) and 0 < len(bar[name]) <= bound, "1005", f"参数错误: {name}")
        need(bar.get("noticeBarType", 0) in (0, 2), "1005", "参数错误: noticeBarType")
        need(expand.get("noticeExpandType", 0) in (0, 1), "1005", "参数错误: noticeExpandType")
        need(expand.get("noticeExpandType", 0) == 0 or expand.get("noticeExpandContent"), "1005",
             "参数错误: noticeExpandContent")
        kind = click.get("clickType", 0)
        need(kind in (0, 1, 2, 3), "1005", "参数错误: clickType")
        for number, name in ((1, "activity"), (2, "url"), (3, "customAttribute")):
            need(kind != number or click.get(name), "1005", f"参数错误: {name}")
        need(len(click.get("customAttribute", "").encode()) <= 1_000, "1005", "参数错误: customAttribute")
        need(isinstance(click.get("parameters", {}), dict), "1005", "参数错误: parameters")
        need(re.fullmatch(r"[0-9A-Za-z_-]{0,8}", advance.get("notifyKey", "")), "1005", "参数错误: notifyKey")
        need(len(extra.get("callback", "").encode()) <= 128, "1005", "参数错误: callback")
        need(len(extra.get("callback.param", "").encode()) <= 64, "1005", "参数错误: callback.param")
        return bar["title"], bar["content"], click.get("parameters")
