"""vivo Push: /message/auth and /message/send, both JSON.

Sources: https://dev.vivo.com.cn/documentCenter/doc/362 as copied in
https://github.com/modood/pushapi/blob/master/vivopush/message.go, https://www.yimenapp.com/kb-yimen/12123/ (v2.9.2),
http://www.qro.cn/post/302611.html (lengths: a Chinese character counts as two, an emoji as one).
Unconfirmed: the codes of single fields other than 10050 and 10054 … 10056, and those of the auth fields (10200 … 10207).
The result beside `invalidUser` is 0 or a code (see `invalid_user_result`).
"""

import hashlib
import secrets
import typing
from collections.abc import Callable

from .credentials import AppSecret
from .server import Answer, Request
from .vendor import AccessTokens, Refusal, Vendor, is_integer, need

OPERATION = frozenset("NEWS CONTENT MARKETING SOCIAL".split())
SYSTEM = frozenset("IM ACCOUNT TODO DEVICE_REMINDER ORDER SUBSCRIPTION".split())
FIELDS = (
    "appId regId alias notifyType title content timeToLive skipType skipContent networkType classification category "
    "clientCustomMap extra requestId pushMode auditReview notifyId sendOnline foregroundShow profileId").split()


def width(text: str) -> int:
    """Returns vivo's length of a text: Chinese characters count as two, ASCII and emoji as one."""
    return sum(2 if 0x7F < ord(one) < 0x10000 else 1 for one in text)


class FakeVivo(Vendor):
    """`app` has id, key and secret. `unsubscribed` has regIds that switched notifications off (status 2).

    `day_quota` answers 10070, `device_quota` (operation messages a device and day) 10073, `rate` 10071. vivo lowers the quota
    of an app that calls after the first 10070; `after_quota` counts these calls. `is_under_review` allows only pushMode 1.
    """

    pattern = r"[0-9a-zA-Z]{23}"

    def __init__(self, device_quota: int | None = None, invalid_user_result: int = 0, lifetime: int = 86_400, **options):
        super().__init__(**options)
        self.device_quota, self.invalid_user_result = device_quota, invalid_user_result
        self.app = AppSecret()
        self.access = AccessTokens(self.now, lifetime, lambda: secrets.token_hex(16))
        self.unsubscribed: set[str] = set()
        self.testers: set[str] = set()
        self.is_under_review = False
        self.after_quota = 0
        self._auths: list[float] = []

    def make_token(self) -> str:
        return f"{secrets.randbelow(10**23):023d}"

    def routes(self) -> list[tuple[str, str, Callable[..., Answer]]]:
        return [("POST", "/message/auth", self._auth), ("POST", "/message/send", self._send)]

    def refuse(self, request: Request, refusal: Refusal) -> Answer:
        return Answer(body={"result": refusal.code, "desc": refusal.reason, **refusal.more})

    def _auth(self, request: Request) -> Answer:
        body = request.json()
        need(isinstance(body, dict), 10_200, "appId不能为空")
        now = self.now()
        self._auths = [one for one in self._auths if one > now - 1] + [now]
        need(len(self._auths) <= 10, 10_072, "超过频率限制")
        need(body.get("appId"), 10_200, "appId不能为空")
        need(str(body["appId"]) == self.app.id, 10_205, "appId不存在")
        need(body.get("appKey"), 10_201, "appKey不能为空")
        need(body["appKey"] == self.app.key, 10_202, "appKey不合法")
        time = body.get("timestamp")
        need(time, 10_203, "timestamp不能为空")
        need(str(time).isdigit() and abs(int(time) / 1_000 - now) <= 600, 10_207, "timestamp不合法")
        need(body.get("sign"), 10_204, "sign不能为空")
        expected = hashlib.md5(f"{self.app.id}{self.app.key}{time}{self.app.secret}".encode()).hexdigest()
        need(body["sign"] == expected, 10_206, "sign不正确")
        return Answer(body={"result": 0, "desc": "请求成功", "authToken": self.access.issue()})

    def _send(self, request: Request) -> Answer:
        need(self.access.state(request.headers.get("authtoken")) == "valid", 10_000, "权限认证失败")
        need(request.headers.get("content-type", "").startswith("application/json"), 10_040, "Content-Type")
        body = request.json()
        need(isinstance(body, dict), 10_040, "no JSON object")
        need(str(body.get("appId", self.app.id)) == self.app.id, 10_094, "appId不一致")
        self._check(body)
        token = body["regId"]
        state = self.token_state(token)
        need(state != "malformed", 10_302, "regId不合法")
        is_test = body.get("pushMode", 0) == 1
        need(is_test or not self.is_under_review, 10_103, "应用未审核通过，只能测试推送")
        number = str(secrets.randbelow(10**18))
        status = 1 if state == "unknown" else 2 if state == "unregistered" or token in self.unsubscribed else 0
        if is_test and not status and token not in self.testers:
            status = 4
        if status:
            self.note(Refusal(f"invalidUser {status}"), request)
            return Answer(body={
                "result": self.invalid_user_result, "desc": "请求成功" if not self.invalid_user_result else "regId不合法",
                "taskId": number, "invalidUser": {"status": status, "userid": token}})
        if not is_test:
            self._limits(token, body.get("classification", 0))
        self.accept(token, request, body, body["title"], body["content"], body.get("clientCustomMap"), number)
        return Answer(body={"result": 0, "desc": "请求成功", "taskId": number})

    def _limits(self, token: str, classification: int) -> None:
        need(not self.is_too_fast(), 10_071, "单推速度过快")
        if self.device_quota is not None and classification == 0:
            same = [one for one in self.sent_to(token)
                    if one.message.get("classification", 0) == 0 and one.at > self.now() - 86_400]
            need(len(same) < self.device_quota, 10_073, "用户接收条数超过限制")
        if self.is_over_quota():
            self.after_quota += any(code == 10_070 for code, _, _ in self.refused)
            raise Refusal(10_070, "发送总量超出限制")

    @staticmethod
    def _check(body: dict[str, typing.Any]) -> None:
        unknown = sorted(set(body) - set(FIELDS))
        need(not unknown, 10_040, f"unknown fields: {', '.join(unknown)}")
        need(isinstance(body.get("regId"), str) and body["regId"], 10_050, "alias和regId不能都为空")
        need(is_integer(body.get("notifyType"), 1, 4), 10_054, "notifyType不合法")
        for name, empty, long, bound in (("title", 10_055, 10_056, 40), ("content", 10_057, 10_058, 100)):
            need(isinstance(body.get(name), str) and body[name].strip(), empty, f"{name}不能为空")
            need(width(body[name]) <= bound, long, f"{name}不能超过{bound}个字符")
        # One day in older texts, seven days in doc 362.
        need(is_integer(body.get("timeToLive", 86_400), 60, 604_800), 10_059, "timeToLive不合法")
        need(is_integer(body.get("skipType"), 1, 4), 10_060, "skipType不合法")
        content = body.get("skipContent", "")
        most = 1_000 if body["skipType"] == 2 else 1_024
        need(isinstance(content, str) and len(content) <= most, 10_062, "skipContent不合法")
        need(body["skipType"] == 1 or content, 10_061, "skipContent不能为空")
        need(body.get("networkType", -1) in (-1, 1), 10_063, "networkType不合法")
        need(isinstance(body.get("requestId"), str) and 0 < len(body["requestId"]) <= 64, 10_064, "requestId不合法")
        classification = body.get("classification", 0)
        need(classification in (0, 1), 10_065, "classification不合法")
        if "category" in body:
            need(body["category"] in OPERATION | SYSTEM, 10_096, "category不合法")
            need(body["category"] in (SYSTEM if classification else OPERATION), 10_097, "category与classification不匹配")
        custom = body.get("clientCustomMap", {})
        need(isinstance(custom, dict) and all(isinstance(one, str) for one in custom.values()), 10_066,
             "clientCustomMap不合法")
        need(len(custom) <= 10 and sum(len(name) + len(value) for name, value in custom.items()) <= 1_024, 10_066,
             "clientCustomMap不合法")
        extra = body.get("extra", {})
        need(isinstance(extra, dict) and len(extra.get("callback", "")) <= 128 and len(extra.get("callback.param", "")) <= 64,
             10_067, "extra不合法")
        need(body.get("pushMode", 0) in (0, 1), 10_068, "pushMode不合法")
        need("notifyId" not in body or is_integer(body["notifyId"], 0, 2**31 - 1), 10_069, "notifyId不合法")
