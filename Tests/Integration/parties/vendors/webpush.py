"""A push service of RFC 8030 with VAPID (RFC 8292), and a browser that decrypts messages (RFC 8291, RFC 8188).

Unconfirmed: bodies of refusals (Mozilla's form is used); the RFCs fix only the statuses.
"""

import json
import re
import secrets
import struct
import typing
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from . import jose
from .server import Answer, Request
from .vendor import Refusal, Vendor, is_integer, need

URGENCIES = ("very-low", "low", "normal", "high")
LARGEST = 4_096  # bytes of the encrypted body that every push service takes (RFC 8030, section 7.2)


class Undecryptable(ValueError):
    """A body that a browser could not decrypt."""


def point(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def _hkdf(salt: bytes, secret: bytes, info: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, salt, info).derive(secret)


def decrypt(body: bytes, key: ec.EllipticCurvePrivateKey, auth: bytes) -> bytes:
    """Returns the text of an aes128gcm body, by the private key and the secret of the subscription."""
    if len(body) < 21:
        raise Undecryptable("the body is shorter than its header")
    salt, (size, length) = body[:16], struct.unpack(">IB", body[16:21])
    if length != 65:
        raise Undecryptable(f"keyid has {length} bytes, not the 65 of a point")
    sender, sealed = body[21:86], body[86:]
    if size < 18:
        raise Undecryptable(f"the record size is {size}")
    if not 17 <= len(sealed) <= size:
        raise Undecryptable(f"a push message is one record: {len(sealed)} bytes, record size {size}")
    try:
        other = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender)
    except ValueError as error:
        raise Undecryptable("keyid is no point on P-256") from error
    shared = key.exchange(ec.ECDH(), other)
    secret = _hkdf(auth, shared, b"WebPush: info\0" + point(key.public_key()) + sender, 32)
    content_key = _hkdf(salt, secret, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _hkdf(salt, secret, b"Content-Encoding: nonce\0", 12)
    try:
        padded = AESGCM(content_key).decrypt(nonce, sealed, None)
    except InvalidTag as error:
        raise Undecryptable("the authentication tag does not fit") from error
    text = padded.rstrip(b"\0")
    if not text.endswith(b"\2"):
        raise Undecryptable("the last record's delimiter is not 2")
    return text[:-1]


def encrypt(text: bytes, p256dh: bytes, auth: bytes, key: ec.EllipticCurvePrivateKey | None = None,
            salt: bytes | None = None) -> bytes:
    """Encrypts as a sender; a test of the party needs it."""
    key, salt = key or ec.generate_private_key(ec.SECP256R1()), salt or secrets.token_bytes(16)
    receiver, own = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), p256dh), point(key.public_key())
    secret = _hkdf(auth, key.exchange(ec.ECDH(), receiver), b"WebPush: info\0" + p256dh + own, 32)
    content_key = _hkdf(salt, secret, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _hkdf(salt, secret, b"Content-Encoding: nonce\0", 12)
    return salt + struct.pack(">IB", 4_096, 65) + own + AESGCM(content_key).encrypt(nonce, text + b"\2", None)


@dataclass
class Subscription:
    """A browser's subscription; `vapid` is the application server's key that it was made with, if any."""

    endpoint: str
    vapid: str | None = None
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    auth: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    @property
    def p256dh(self) -> str:
        return jose.encode(point(self.key.public_key()))

    def json(self) -> dict[str, typing.Any]:
        """Returns the form of `PushSubscription.toJSON()`."""
        return {"endpoint": self.endpoint, "expirationTime": None,
                "keys": {"p256dh": self.p256dh, "auth": jose.encode(self.auth)}}

    @property
    def device_token(self) -> str:
        """The form in which a Longwire device registers it: ENDPOINT#P256DH.AUTH."""
        return f"{self.endpoint}#{self.p256dh}.{jose.encode(self.auth)}"


@dataclass
class Delivery:
    """The headers of an accepted message, beside its `Sent` of the same index."""

    ttl: int
    urgency: str | None
    topic: str | None
    claims: dict[str, typing.Any] | None


class FakePushService(Vendor):
    """`subscribe()` makes a subscription, `unsubscribe` ends it: 410, or 404 after `forget`.

    `sent` has the decrypted messages, `deliveries` their headers. As a real service, the fake accepts a body that the browser
    cannot decrypt; `undecryptable` has these. `needs_vapid` refuses messages without VAPID.
    """

    def __init__(self, needs_vapid: bool = True, retry_after: int | None = 1, **options):
        super().__init__(**{"http2": True, **options})
        self.needs_vapid, self.retry_after = needs_vapid, retry_after
        self.subscriptions: dict[str, Subscription] = {}  # by path
        self.deliveries: list[Delivery] = []
        self.undecryptable: list[tuple[str, Request]] = []

    def subscribe(self, vapid: str | None = None) -> Subscription:
        path = f"/wpush/v2/{secrets.token_urlsafe(140)}"
        one = Subscription(self.url + path, vapid)
        with self._lock:
            self.subscriptions[path] = one
            self.devices[one.endpoint] = True
        return one

    def unsubscribe(self, one: Subscription) -> None:
        self.unregister(one.endpoint)

    def forget(self, one: Subscription) -> None:
        with self._lock:
            self.subscriptions.pop(urllib.parse.urlsplit(one.endpoint).path, None)

    def routes(self) -> list[tuple[str, str, Callable[..., Answer]]]:
        return [("POST", r"(/.*)", self._push)]

    def refuse(self, request: Request, refusal: Refusal) -> Answer:
        headers = {"Content-Type": "application/json"}
        if refusal.code in (429, 503) and self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        if refusal.code == 401:
            headers["WWW-Authenticate"] = "vapid"
        return Answer(refusal.code, headers, {
            "code": refusal.code, "errno": refusal.more.get("errno", 999), "error": "refused", "message": refusal.reason})

    def _push(self, request: Request, path: str) -> Answer:
        one = self.subscriptions.get(path)
        need(one, 404, "no such subscription", errno=102)
        need(self.devices[one.endpoint], 410, "the subscription has ended", errno=103)
        headers = request.headers
        need(re.fullmatch(r"\d{1,10}", headers.get("ttl", "")), 400, "TTL is missing or no number", errno=111)
        urgency, topic = headers.get("urgency"), headers.get("topic")
        need(urgency is None or urgency in URGENCIES, 400, "Urgency", errno=110)
        need(topic is None or re.fullmatch(r"[A-Za-z0-9_-]{1,32}", topic), 400, "Topic", errno=113)
        claims = self._vapid(headers.get("authorization"), one)
        need(len(request.body) <= LARGEST, 413, "the body is larger than 4096 bytes", errno=104)
        if request.body:
            need(headers.get("content-encoding") == "aes128gcm", 400, "Content-Encoding", errno=110)
        need(not self.is_too_fast(), 429, "too many messages")
        need(not self.is_over_quota(), 429, "too many messages")
        number = secrets.token_urlsafe(24)
        self._show(one, request, Delivery(int(headers["ttl"]), urgency, topic, claims), number)
        return Answer(201, {"Location": f"{self.url}/m/{number}", "TTL": headers["ttl"]}, "")

    def _show(self, one: Subscription, request: Request, delivery: Delivery, number: str) -> None:
        try:
            text = decrypt(request.body, one.key, one.auth) if request.body else b""
        except Undecryptable as error:
            self.undecryptable.append((str(error), request))
            return
        try:
            message = json.loads(text)
        except ValueError:
            message = text.decode(errors="replace")
        shown = message.get("notification", message) if isinstance(message, dict) else {}
        shown = shown if isinstance(shown, dict) else {}
        self.accept(one.endpoint, request, message, shown.get("title"), shown.get("body"), text, number)
        self.deliveries.append(delivery)

    def _vapid(self, value: str | None, one: Subscription) -> dict[str, typing.Any] | None:
        if value is None:
            need(not self.needs_vapid and not one.vapid, 401, "Authorization is missing", errno=109)
            return None
        fields = re.fullmatch(r"vapid (.+)", value, re.I)
        need(fields, 401, "Authorization is no vapid", errno=109)
        parts = dict(part.strip().partition("=")[::2] for part in fields[1].split(","))
        need(set(parts) >= {"t", "k"}, 401, "Authorization has no t or k", errno=109)
        try:
            raw = jose.decode(parts["k"])
            need(len(raw) == 65, 401, "k is no uncompressed point", errno=109)
            key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), raw)
            _, claims = jose.verified(parts["t"], "ES256", key)
        except ValueError as error:
            raise Refusal(401, f"VAPID: {error}", errno=109) from error
        need(claims.get("aud") == self.url, 401, f"VAPID: aud is {claims.get('aud')}, not {self.url}", errno=109)
        end = claims.get("exp")
        need(is_integer(end) and self.now() < end <= self.now() + 86_400, 401, "VAPID: exp", errno=109)
        need(re.match(r"mailto:\S+@\S+|https://\S+", str(claims.get("sub", ""))), 401, "VAPID: sub", errno=109)
        need(one.vapid in (None, parts["k"]), 403, "VAPID: another key than the subscription's", errno=109)
        return claims
