"""Firebase Cloud Messaging, HTTP v1, with Google's OAuth token endpoint.

Sources: https://firebase.google.com/docs/reference/fcm/rest/v1/ErrorCode,
https://firebase.google.com/docs/cloud-messaging/error-codes (forms of errors),
https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages (fields),
https://bloomberg.github.io/pushiko/fcm_responses (answers as observed).
Unconfirmed: texts of the token endpoint's errors, and the answer for a project that the account may not use.
"""

import json
import re
import secrets
import typing
from collections.abc import Callable

from . import jose
from .credentials import GoogleAccount
from .server import Answer, Request
from .vendor import AccessTokens, Refusal, Vendor, is_integer, need

SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
FCM_ERROR = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
LONGEST_TTL = 2_419_200
MESSAGE = "name data notification android webpush apns fcm_options token topic condition".split()
ANDROID = ("collapse_key priority ttl restricted_package_name data notification fcm_options direct_boot_ok "
           "bandwidth_constrained_ok restricted_satellite_ok").split()
NOTIFICATION = "title body image".split()
ANDROID_NOTIFICATION = (
    "title body icon color sound tag click_action body_loc_key body_loc_args title_loc_key title_loc_args channel_id ticker "
    "sticky event_time local_only notification_priority default_sound default_vibrate_timings default_light_settings "
    "vibrate_timings visibility notification_count light_settings image bypass_proxy_notification proxy").split()


class FakeFCM(Vendor):
    """`account` is the service account that the fake knows; its `token_uri` is this server.

    `malformed_form` is the answer for a malformed token: "docs" (FcmError alone) or "observed" (FcmError and BadRequest).
    `mismatched` has tokens of another sender, `bad_third_party` tokens whose APNs or Web Push credential is wrong.
    """

    pattern = r"[A-Za-z0-9_-]{22}:APA91b[A-Za-z0-9_-]{134}"

    def __init__(self, malformed_form: str = "docs", retry_after: int | None = None, lifetime: int = 3_600, **options):
        super().__init__(**{"http2": True, **options})
        self.malformed_form, self.retry_after = malformed_form, retry_after
        self.account = GoogleAccount(token_uri=f"{self.url}/token")
        self.access = AccessTokens(self.now, lifetime, lambda: f"ya29.{secrets.token_urlsafe(96)}")
        self.assertions: list[dict[str, typing.Any]] = []  # claims of accepted assertions
        self.mismatched: set[str] = set()
        self.bad_third_party: set[str] = set()
        self.can_send = True  # whether the account has the role for messages

    def make_token(self) -> str:
        return f"{secrets.token_urlsafe(17)[:22]}:APA91b{secrets.token_urlsafe(110)[:134]}"

    def routes(self) -> list[tuple[str, str, Callable[..., Answer]]]:
        return [("POST", "/token", self._token), ("POST", r"/v1/projects/([^/]+)/messages:send", self._send)]

    def refuse(self, request: Request, refusal: Refusal) -> Answer:
        if request.path == "/token":
            return Answer(400, body={"error": refusal.code, "error_description": refusal.reason})
        http, status = refusal.more["http"], refusal.more["status"]
        error: dict[str, typing.Any] = {"code": http, "message": refusal.reason, "status": status}
        if details := refusal.more.get("details"):
            error["details"] = details
        headers = {"Content-Type": "application/json; charset=UTF-8"}
        if http in (429, 503) and self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        return Answer(http, headers, {"error": error})

    # The token endpoint

    def _token(self, request: Request) -> Answer:
        form = request.form()
        need(form is not None, "invalid_request", "Required parameter is missing: grant_type")
        need(form.get("grant_type") == GRANT, "unsupported_grant_type", f"Invalid grant_type: {form.get('grant_type')}")
        assertion = form.get("assertion", "")
        try:
            header, claims, _, _ = jose.parse(assertion)
        except jose.BadToken as error:
            raise Refusal("invalid_grant", f"Invalid JWT: {error}") from error
        need(claims.get("iss") == self.account.email, "invalid_grant", "Invalid grant: account not found")
        need(header.get("kid") in (None, self.account.key_id), "invalid_grant", "Invalid JWT Signature.")
        try:
            jose.verified(assertion, "RS256", self.account.key.public_key())
        except jose.BadToken as error:
            raise Refusal("invalid_grant", "Invalid JWT Signature.") from error
        need(claims.get("aud") == self.account.token_uri, "invalid_grant", "Invalid JWT: Failed audience check.")
        issued, end, now = claims.get("iat"), claims.get("exp"), self.now()
        need(is_integer(issued) and is_integer(end) and 0 < end - issued <= 3_600 and end > now and issued <= now + 300,
             "invalid_grant", "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. "
             "Check your iat and exp values in the JWT claim.")
        need(isinstance(claims.get("scope"), str) and SCOPE in claims["scope"].split(), "invalid_scope",
             "Invalid OAuth scope or ID token audience provided.")
        self.assertions.append(claims)
        return Answer(body={
            "access_token": self.access.issue(), "expires_in": int(self.access.lifetime) - 1, "token_type": "Bearer"})

    # The send endpoint

    def _send(self, request: Request, project: str) -> Answer:
        state = self.access.state(request.bearer())
        if state != "valid":
            reason = "ACCESS_TOKEN_EXPIRED" if state == "expired" else "ACCESS_TOKEN_TYPE_UNSUPPORTED"
            raise _refusal(
                401, "UNAUTHENTICATED", "Request had invalid authentication credentials. Expected OAuth 2 access token, login "
                "cookie or other valid authentication credential.",
                {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"})
        if project != self.account.project or not self.can_send:
            raise _refusal(
                403, "PERMISSION_DENIED", "Permission 'cloudmessaging.messages.create' denied on resource "
                f"'//cloudresourcemanager.googleapis.com/projects/{project}' (or it may not exist).")
        if not request.headers.get("content-type", "").startswith("application/json"):
            raise _invalid("", "Invalid JSON payload received. Expected Content-Type application/json")
        body = request.json()
        if not isinstance(body, dict):
            raise _invalid("", "Invalid JSON payload received. Unexpected token.")
        _known(body, ["message", "validate_only"], "")
        message = body.get("message")
        self._check(message)
        target = self._target(message)
        if target == "token":
            self._check_token(message["token"])
        if self.is_too_fast() or self.is_over_quota():
            raise _refusal(429, "RESOURCE_EXHAUSTED", "Quota exceeded for quota metric", _fcm("QUOTA_EXCEEDED"))
        if body.get("validate_only"):
            return Answer(body={"name": f"projects/{project}/messages/fake_message_id"})
        name = f"projects/{project}/messages/0:{int(self.now() * 1e6)}%{secrets.token_hex(8)}"
        shown = {**message.get("notification", {}), **message.get("android", {}).get("notification", {})}
        data = {**message.get("data", {}), **message.get("android", {}).get("data", {})}
        self.accept(message[target], request, message, shown.get("title"), shown.get("body"), data or None, name)
        return Answer(body={"name": name})

    def _target(self, message: dict[str, typing.Any]) -> str:
        targets = [one for one in ("token", "topic", "condition") if message.get(one)]
        if not targets:
            raise _invalid("message", "Recipient of the message is not set.", _fcm("INVALID_ARGUMENT"))
        if len(targets) > 1:
            raise _invalid("message", f"Invalid value at 'message' (oneof), oneof field 'target' is already set. "
                           f"Cannot set '{targets[1]}'")
        return targets[0]

    def _check_token(self, token: str) -> None:
        state = self.token_state(token)
        if state == "malformed":
            details = [_fcm("INVALID_ARGUMENT")]
            if self.malformed_form == "observed":
                details.append(_violation("message.token", "Invalid registration token"))
            raise _refusal(
                400, "INVALID_ARGUMENT", "The registration token is not a valid FCM registration token", *details)
        if token in self.mismatched:
            raise _refusal(403, "PERMISSION_DENIED", "SenderId mismatch", _fcm("SENDER_ID_MISMATCH"))
        if token in self.bad_third_party:
            raise _refusal(401, "UNAUTHENTICATED", "Auth error from APNS or Web Push Service", _fcm("THIRD_PARTY_AUTH_ERROR"))
        if state != "registered":
            raise _refusal(404, "NOT_FOUND", "Requested entity was not found.", _fcm("UNREGISTERED"))

    def _check(self, message: typing.Any) -> None:
        if not isinstance(message, dict):
            raise _invalid("message", "Invalid value at 'message'")
        _known(message, MESSAGE, "message")
        for one in ("token", "topic", "condition"):
            if not isinstance(message.get(one, ""), str):
                raise _invalid(f"message.{one}", f"Invalid value at 'message.{one}' (TYPE_STRING)")
        _texts(message.get("notification", {}), NOTIFICATION, "message.notification")
        android = message.get("android", {})
        if not isinstance(android, dict):
            raise _invalid("message.android", "Invalid value at 'message.android'")
        _known(android, ANDROID, "message.android")
        for where, data in (("message.data", message.get("data", {})), ("message.android.data", android.get("data", {}))):
            _data(data, where)
        if android.get("priority", "HIGH") not in ("HIGH", "NORMAL", "high", "normal"):
            raise _invalid("message.android.priority", f"Invalid value at 'message.android.priority': {android['priority']!r}")
        ttl = android.get("ttl", "0s")
        if not isinstance(ttl, str) or not re.fullmatch(r"\d+(\.\d{1,9})?s", ttl) or float(ttl[:-1]) > LONGEST_TTL:
            raise _invalid("message.android.ttl", f"Invalid value at 'message.android.ttl' (Duration): {ttl!r}")
        for name in ("collapse_key", "restricted_package_name"):
            if not isinstance(android.get(name, ""), str):
                raise _invalid(f"message.android.{name}", f"Invalid value at 'message.android.{name}' (TYPE_STRING)")
        shown = android.get("notification", {})
        if not isinstance(shown, dict):
            raise _invalid("message.android.notification", "Invalid value at 'message.android.notification'")
        _known(shown, ANDROID_NOTIFICATION, "message.android.notification")
        _texts({name: shown[name] for name in shown if name in ("title", "body", "channel_id", "tag", "click_action", "image")},
               ANDROID_NOTIFICATION, "message.android.notification")
        if "notification_count" in shown and not is_integer(shown["notification_count"], 0):
            raise _invalid("message.android.notification.notification_count", "Invalid value (TYPE_INT32)")
        most = 2_048 if "topic" in message else 4_096
        size = sum(_size(one) for one in (
            message.get("data", {}), message.get("notification", {}), android.get("data", {}), shown))
        if size > most:
            # As observed: without details, unlike every other INVALID_ARGUMENT.
            raise _refusal(400, "INVALID_ARGUMENT", "Android message is too big")


def _size(fields: dict[str, typing.Any]) -> int:
    return sum(len(name.encode()) + len((value if isinstance(value, str) else json.dumps(value)).encode())
               for name, value in fields.items())


def _fcm(code: str) -> dict[str, typing.Any]:
    return {"@type": FCM_ERROR, "errorCode": code}


def _violation(place: str, reason: str) -> dict[str, typing.Any]:
    return {"@type": BAD_REQUEST, "fieldViolations": [{"field": place, "description": reason}]}


def _refusal(http: int, status: str, reason: str, *details: dict[str, typing.Any]) -> Refusal:
    code = next((one["errorCode"] for one in details if "errorCode" in one), status)
    return Refusal(code, reason, http=http, status=status, details=list(details))


def _invalid(place: str, reason: str, *more: dict[str, typing.Any]) -> Refusal:
    return _refusal(400, "INVALID_ARGUMENT", reason, _violation(place, reason), *more)


def _known(value: dict[str, typing.Any], names: list[str], where: str) -> None:
    for name in value:
        if name not in names:
            at = f" at '{where}'" if where else ""
            raise _invalid(where, f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.')


def _texts(value: typing.Any, names: list[str], where: str) -> None:
    if not isinstance(value, dict):
        raise _invalid(where, f"Invalid value at '{where}'")
    _known(value, names, where)
    for name, one in value.items():
        if not isinstance(one, str):
            raise _invalid(f"{where}.{name}", f"Invalid value at '{where}.{name}' (TYPE_STRING), {json.dumps(one)}")


def _data(data: typing.Any, where: str) -> None:
    if not isinstance(data, dict):
        raise _invalid(where, f"Invalid value at '{where}'")
    for index, (name, value) in enumerate(data.items()):
        if not isinstance(value, str):
            place = f"{where}[{index}].value"
            raise _invalid(place, f"Invalid value at '{place}' (TYPE_STRING), {json.dumps(value)}")
        if name in ("from", "gcm", "message_type") or name.startswith(("google", "gcm.")):
            raise _invalid(where, f"Invalid data payload key: {name}", _fcm("INVALID_ARGUMENT"))
