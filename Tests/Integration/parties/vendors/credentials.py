"""Makers of credentials in the vendors' own forms; files are written with mode 0600."""

import json
import pathlib
import secrets
import typing
import uuid
from dataclasses import dataclass, field

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from . import jose

HUAWEI_AUDIENCE = "https://oauth-login.cloud.huawei.com/oauth2/v3/token"


class _File:
    def json(self) -> dict[str, typing.Any]:
        raise NotImplementedError

    def write(self, folder: pathlib.Path, name: str) -> pathlib.Path:
        path = folder / name
        path.touch(0o600)
        path.write_text(json.dumps(self.json(), indent=2))
        return path


@dataclass
class GoogleAccount(_File):
    """A service account of a Firebase project, as the console's download has it."""

    token_uri: str = "https://oauth2.googleapis.com/token"
    project: str = "longwire-test"
    key: typing.Any = field(default_factory=jose.rsa_key)
    key_id: str = field(default_factory=lambda: secrets.token_hex(20))

    @property
    def email(self) -> str:
        return f"firebase-adminsdk-test@{self.project}.iam.gserviceaccount.com"

    def json(self) -> dict[str, typing.Any]:
        return {
            "type": "service_account", "project_id": self.project, "private_key_id": self.key_id,
            "private_key": jose.pem(self.key), "client_email": self.email, "client_id": "100000000000000000001",
            "auth_uri": "https://accounts.google.com/o/oauth2/auth", "token_uri": self.token_uri,
            "auth_provider_x509_cert_url": "https://www.googleapis.com/oauth2/v1/certs",
            "client_x509_cert_url": f"https://www.googleapis.com/robot/v1/metadata/x509/{self.email}",
            "universe_domain": "googleapis.com",
        }


@dataclass
class HuaweiAccount(_File):
    """A service account of an AppGallery Connect project, for Push Kit v3."""

    project: str = "101653523863440882"
    sub_account: str = "100000000000001"
    key: typing.Any = field(default_factory=jose.rsa_key)
    key_id: str = field(default_factory=lambda: secrets.token_hex(16))

    def json(self) -> dict[str, typing.Any]:
        return {
            "project_id": self.project, "key_id": self.key_id, "private_key": jose.pem(self.key),
            "sub_account": self.sub_account, "auth_uri": "https://oauth-login.cloud.huawei.com/oauth2/v3/authorize",
            "token_uri": HUAWEI_AUDIENCE,
            "auth_provider_cert_uri": "https://oauth-login.cloud.huawei.com/oauth2/v3/certs",
            "client_cert_uri": "https://oauth-login.cloud.huawei.com/oauth2/v3/x509?client_id=",
        }


@dataclass
class AppSecret:
    """An app's id, key and secret; each vendor uses two or three of them."""

    id: str = field(default_factory=lambda: str(100_000_000 + secrets.randbelow(900_000_000)))
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    secret: str = field(default_factory=lambda: secrets.token_hex(32))
    package: str = "com.example.app"


class VapidKeys:
    """A key pair of RFC 8292; `public` and `private` are base64url of the point and of the number."""

    def __init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.public = jose.encode(self.key.public_key().public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint))
        self.private = jose.encode(self.key.private_numbers().private_value.to_bytes(32, "big"))

    def pem(self) -> str:
        return jose.pem(self.key)
