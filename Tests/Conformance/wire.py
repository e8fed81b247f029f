"""Frames, the proof of a Hello, positions, and tokens, on the message classes that protobuf makes from `Proto/`."""

import base64
import hashlib
import hmac
import json
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(TESTS / "Integration" / "parties"))

from longwire_client import MESSAGES, TYPES, pb  # noqa: E402, F401

BODY_LIMIT = 65_536  # of a gateway's frame
DEVICE_BODY_LIMIT = 32_904  # bytes in the body of a frame from a device
RANGES, POSITIONS, OPENED, TOKENS, REJECTIONS = 32, 8, 32, 16, 32
TAGS, NAME_BYTES, SERVER_TOKEN_BYTES = 200, 256, 2_048
DEVICE_FRAMES = {
    pb.HELLO, pb.CLOSE, pb.PING, pb.PONG, pb.ACK, pb.DEVICE_UPDATE, pb.FEEDBACK, pb.UPSTREAM,
    pb.DEVICE_NAMES}


class Malformed(Exception):
    """The bytes are no valid frame or message."""


def frame(kind, body, length=None):
    """Returns one frame; `length` writes another length into the header."""
    return bytes([kind]) + (len(body) if length is None else length).to_bytes(3, "big") + body


def encode(message):
    return frame(TYPES[type(message)], message.SerializeToString())


def _varint(data, at):
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise Malformed("a varint that does not end")
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def fields(body):
    """Yields (number, start, end) of each field at the top level."""
    at = 0
    while at < len(body):
        start = at
        tag, at = _varint(body, at)
        kind = tag & 7
        if kind == 0:
            _, at = _varint(body, at)
        elif kind == 2:
            size, at = _varint(body, at)
            at += size
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise Malformed(f"wire type {kind}")
        if at > len(body):
            raise Malformed("a field longer than the body")
        yield tag >> 3, start, at


def has_proof(body, key):
    """Whether the body has exactly one proof field, 32 bytes long, and it proves the other bytes with this key."""
    proofs = [(start, end) for number, start, end in fields(body) if number == 6]
    if len(proofs) != 1:
        return False
    start, end = proofs[0]
    expected = hmac.new(key, b"longwire hello 1" + body[:start] + body[end:], hashlib.sha256).digest()
    return end - start == 34 and hmac.compare_digest(body[start + 2 : end], expected)


def prove(hello, key):
    """Returns the body of a Hello with its proof appended."""
    hello.ClearField("proof")
    body = hello.SerializeToString()
    return body + b"\x32\x20" + hmac.new(key, b"longwire hello 1" + body, hashlib.sha256).digest()


def server_token(app, alias, size=0):
    """Returns a token of the app's server for the alias, of `size` bytes if that is given; a device checks no part."""
    def part(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    claims = json.dumps({"aud": app, "sub": alias, "exp": 4_102_444_800}, ensure_ascii=False)
    token = f'{part(b"{}")}.{part(claims.encode())}.{part(hashlib.sha256(claims.encode()).digest())}'
    return token + "A" * (size - len(token))


def alias_of(token):
    claims = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"]


def covers(position, sequence):
    """Whether a StreamPosition, or None, includes the sequence."""
    if position is None:
        return False
    return sequence <= position.sequence or any(one.first <= sequence <= one.last for one in position.ranges)


def position_faults(positions):
    """Returns the ways in which the positions of a Hello or an Ack break the rules of the protocol."""
    faults = []
    if len(positions) > POSITIONS:
        faults.append(f"{len(positions)} positions, at most {POSITIONS} are allowed")
    if len({one.stream for one in positions}) != len(positions):
        faults.append("one stream has two positions")
    for one in positions:
        if len(one.ranges) > RANGES:
            faults.append(f"{len(one.ranges)} ranges of stream {one.stream}, at most {RANGES} are allowed")
        end = one.sequence
        for each in one.ranges:
            # A range that touches its neighbour would be part of it.
            if each.first <= end + 1 or each.last < each.first:
                faults.append(f"ranges that are empty, out of order, adjacent or not beyond the position: {one}")
            end = max(end, each.last)
    return faults
