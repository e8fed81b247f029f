"""JSON Web Tokens as the vendors check them (RFC 7515, RFC 7518), over the `cryptography` package."""

import base64
import json
import re
import typing

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils


class BadToken(ValueError):
    """A token that is malformed or whose signature does not fit."""


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """Decodes base64url without padding and refuses every other alphabet."""
    if not re.fullmatch(r"[A-Za-z0-9_-]*", text) or len(text) % 4 == 1:
        raise BadToken("no base64url without padding")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def pss(salt: int = 32) -> padding.PSS:
    return padding.PSS(padding.MGF1(hashes.SHA256()), salt)


def parse(token: str) -> tuple[dict[str, typing.Any], dict[str, typing.Any], bytes, bytes]:
    """Returns header, claims, the signed bytes and the signature."""
    parts = token.split(".")
    if len(parts) != 3:
        raise BadToken("not three parts")
    try:
        header, claims = json.loads(decode(parts[0])), json.loads(decode(parts[1]))
    except ValueError as error:
        raise BadToken(f"no JSON: {error}") from error
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise BadToken("no JSON objects")
    return header, claims, f"{parts[0]}.{parts[1]}".encode(), decode(parts[2])


def verified(token: str, algorithm: str, key: typing.Any) -> tuple[dict[str, typing.Any], dict[str, typing.Any]]:
    """Returns header and claims of a token that has this algorithm and this public key's signature."""
    header, claims, signed, signature = parse(token)
    if header.get("alg") != algorithm:
        raise BadToken(f"alg is {header.get('alg')}, not {algorithm}")
    try:
        if algorithm == "RS256":
            key.verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
        elif algorithm == "PS256":
            key.verify(signature, signed, pss(), hashes.SHA256())
        elif algorithm == "ES256":
            if len(signature) != 64:
                raise BadToken(f"an ES256 signature has 64 bytes, this one {len(signature)}")
            pair = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
            key.verify(utils.encode_dss_signature(*pair), signed, ec.ECDSA(hashes.SHA256()))
        else:
            raise BadToken(f"no algorithm {algorithm}")
    except InvalidSignature as error:
        raise BadToken("the signature does not fit") from error
    return header, claims


def signed(header: dict, claims: dict, key: typing.Any, salt: int = 32) -> str:
    """Signs by the header's `alg`; a test of a party needs it."""
    text = ".".join(encode(json.dumps(part).encode()) for part in (header, claims))
    if header["alg"] == "RS256":
        signature = key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
    elif header["alg"] == "PS256":
        signature = key.sign(text.encode(), pss(salt), hashes.SHA256())
    else:
        pair = utils.decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        signature = b"".join(number.to_bytes(32, "big") for number in pair)
    return f"{text}.{encode(signature)}"


def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65_537, 2_048)


def pem(key: typing.Any) -> str:
    """Returns a private key as PKCS#8."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
