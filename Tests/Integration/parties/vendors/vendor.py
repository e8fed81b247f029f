"""The parts that all fake vendors share: devices, sent messages, access tokens, rules, limits and the vendor's clock."""

import datetime
import json
import re
import secrets
import time
import typing
import urllib.parse
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .server import Answer, Request, VendorServer

BEIJING = datetime.timezone(datetime.timedelta(hours=8))
CATEGORIES = frozenset(
    "IM VOIP MISS_CALL SUBSCRIPTION TRAVEL HEALTH WORK ACCOUNT EXPRESS FINANCE DEVICE_REMINDER MAIL PLAY_VOICE MARKETING"
    .split())


class Refusal(Exception):
    """A violated rule: the vendor's code and its explanation."""

    def __init__(self, code: typing.Any, reason: str = "", **more):
        super().__init__(code, reason)
        self.code, self.reason, self.more = code, reason, more


@dataclass
class Sent:
    """A message that the vendor accepted for one device."""

    token: str
    title: str | None
    body: str | None
    data: typing.Any  # the transmission, or the data beside a notification
    message: typing.Any  # the parsed request
    request: Request
    id: str = ""  # the vendor's id in its answer
    ids: list[str] = field(default_factory=list)  # each `_gmid_` found, "TASKID:MSGID"
    at: float = 0.0  # of the vendor's clock, Unix seconds


def find_ids(value: typing.Any) -> list[str]:
    """Returns the distinct values of `_gmid_` in a message: in objects, in JSON within texts, in intents and in URLs."""
    found: dict[str, None] = {}

    def look(one: typing.Any) -> None:
        if isinstance(one, dict):
            for name, inner in one.items():
                if name == "_gmid_" and isinstance(inner, str):
                    found[inner] = None
                else:
                    look(inner)
        elif isinstance(one, list):
            for inner in one:
                look(inner)
        elif isinstance(one, str) and "_gmid_" in one:
            for text in (one, urllib.parse.unquote_plus(one)):
                try:
                    inner = json.loads(text)
                except ValueError:
                    continue
                if isinstance(inner, (dict, list)):
                    look(inner)
                    return
            found.update((urllib.parse.unquote(id), None) for id in re.findall(r"_gmid_=([^;&#\s]+)", one))

    look(value)
    return list(found)


# Rules of fields

def need(condition: typing.Any, code: typing.Any, reason: str, **more) -> None:
    if not condition:
        raise Refusal(code, reason, **more)


def is_integer(value: typing.Any, lowest: int | None = None, highest: int | None = None) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)
            and (lowest is None or value >= lowest) and (highest is None or value <= highest))


def only(value: typing.Any, names: Iterable[str], code: typing.Any, where: str) -> dict[str, typing.Any]:
    """Returns an object after a check that it has no other fields."""
    need(isinstance(value, dict), code, f"{where} is no object")
    unknown = set(value) - set(names)
    need(not unknown, code, f"{where} has unknown fields: {', '.join(sorted(unknown))}", unknown=sorted(unknown))
    return value


class AccessTokens:
    """Access tokens with a lifetime on the vendor's clock."""

    def __init__(self, now: Callable[[], float], lifetime: float, make: Callable[[], str] = lambda: secrets.token_hex(24)):
        self.now, self.lifetime, self.make = now, lifetime, make
        self.issued: dict[str, float] = {}  # token → end
        self.revoked: set[str] = set()

    def issue(self) -> str:
        token = self.make()
        self.issued[token] = self.now() + self.lifetime
        return token

    def state(self, token: str | None) -> str:
        """Returns valid, expired, or unknown; a revoked token is unknown."""
        if token not in self.issued or token in self.revoked:
            return "unknown"
        return "valid" if self.now() < self.issued[token] else "expired"

    def revoke(self) -> None:
        """Makes every token so far invalid, as a changed secret does."""
        self.revoked.update(self.issued)


class Vendor(VendorServer):
    """A fake vendor. Subclasses set `pattern`, the form of a device's token, and answer in `handle`.

    `device()` makes a device and returns its token; `unregister(token)` removes the app from it. Other tokens of the same form
    are unknown, or registered with `accepts_any_token`. `sent` has each accepted message. `refused` has each refusal: code,
    reason, request. `day_quota` is the number of messages a day (Beijing time), `rate` a number of messages and the seconds of
    its window.
    """

    pattern = r"\S{8,512}"

    def __init__(self, accepts_any_token: bool = False, day_quota: int | None = None, rate: tuple[int, float] | None = None,
                 **options):
        super().__init__(**options)
        self.accepts_any_token, self.day_quota, self.rate = accepts_any_token, day_quota, rate
        self.devices: dict[str, bool] = {}  # token → whether it is registered
        self.sent: list[Sent] = []
        self.refused: list[tuple[typing.Any, str, Request]] = []
        self.skew = 0.0  # seconds by which the vendor's clock is ahead of the machine's
        self.days: Counter[str] = Counter()  # messages a day
        self._recent: deque[float] = deque()

    def now(self) -> float:
        return time.time() + self.skew

    def advance(self, seconds: float) -> None:
        """Moves the vendor's clock: access tokens expire, days end."""
        self.skew += seconds

    def today(self) -> str:
        return datetime.datetime.fromtimestamp(self.now(), BEIJING).date().isoformat()

    # Devices

    def make_token(self) -> str:
        return secrets.token_hex(20)

    def device(self) -> str:
        token = self.make_token()
        with self._lock:
            self.devices[token] = True
        return token

    def unregister(self, token: str) -> None:
        with self._lock:
            self.devices[token] = False

    def token_state(self, token: typing.Any) -> str:
        """Returns registered, unregistered, unknown or malformed."""
        if not isinstance(token, str) or not re.fullmatch(self.pattern, token):
            return "malformed"
        if token in self.devices:
            return "registered" if self.devices[token] else "unregistered"
        return "registered" if self.accepts_any_token else "unknown"

    # Messages

    def accept(self, token: str, request: Request, message: typing.Any, title: str | None = None, body: str | None = None,
               data: typing.Any = None, id: str = "") -> Sent:
        sent = Sent(token, title, body, data, message, request, id, find_ids(message), self.now())
        self.sent.append(sent)
        return sent

    def sent_to(self, token: str) -> list[Sent]:
        with self._lock:
            return [one for one in self.sent if one.token == token]

    def note(self, refusal: Refusal, request: Request) -> None:
        self.refused.append((refusal.code, refusal.reason, request))
        self.counts[f"code {refusal.code}"] += 1

    def is_too_fast(self) -> bool:
        """Whether this message exceeds the rate; counts it otherwise."""
        if not self.rate:
            return False
        most, window = self.rate
        while self._recent and self._recent[0] <= self.now() - window:
            self._recent.popleft()
        if len(self._recent) >= most:
            return True
        self._recent.append(self.now())
        return False

    def is_over_quota(self, count: int = 1) -> bool:
        """Whether this message exceeds the day's quota; counts it otherwise."""
        if self.day_quota is not None and self.days[self.today()] + count > self.day_quota:
            return True
        self.days[self.today()] += count
        return False

    def handle(self, request: Request) -> Answer:
        for method, path, work in self.routes():
            found = re.fullmatch(path, request.path)
            if found and method == request.method:
                try:
                    return work(request, *found.groups())
                except Refusal as refusal:
                    self.note(refusal, request)
                    return self.refuse(request, refusal)
        return Answer(404, {"Content-Type": "text/html"}, "<html><body>404</body></html>")

    def routes(self) -> list[tuple[str, str, Callable[..., Answer]]]:
        """Returns method, pattern of the path and handler; the handler gets the request and the pattern's groups."""
        raise NotImplementedError

    def refuse(self, request: Request, refusal: Refusal) -> Answer:
        """Returns the vendor's answer for a violated rule."""
        raise NotImplementedError
