"""Bytes that a gateway should not send, and all ways to cut those that it should."""

import random

import pytest
from gateway import BODY_LIMIT
from wire import MESSAGES, encode, frame, pb

# A field of a later version: number 1,000, a varint; and number 1,001, bytes.
LATER = b"\xc0\x3e\x2a" + b"\xca\x3e\x03abc"


def ends_and_continues(bench, session):
    """The client ends this session without a crash or a stop, and the next one works."""
    session.until_over()
    again = bench.gateway.welcome()
    again.deliver(1_000)
    again.until_acked(1_000)
    assert not bench.driver.has("stopped")


@pytest.fixture
def session(bench):
    bench.start()
    session = bench.gateway.welcome()
    bench.driver.expect("welcomed")
    return session


@pytest.mark.each_transport
@pytest.mark.broken_by("half-frame-crashes")
def test_frames_in_pieces(bench):
    """Frames arrive in single bytes, in halves and many at once; the client reads the same messages."""
    bench.start()
    session = bench.gateway.hello()
    session.split = 1
    session.welcome()
    session.deliver(1, 2)
    session.until_acked(1, 2)
    session.split = 3
    session.deliver(3, 4, 5, payload=b"x" * 500)
    session.until_acked(3, 4, 5)
    session.split = None
    session.deliver(*range(6, 38))
    session.until_acked(*range(6, 38))
    assert [int(event["sequence"]) for event in bench.shown()] == list(range(1, 38))


@pytest.mark.broken_by("unknown-fields-refused")
def test_unknown_fields_are_skipped(bench):
    """Unknown fields in any frame of a gateway are skipped."""
    driver = bench.start()
    session = bench.gateway.hello()

    def later(message):
        session.raw(frame(pb.FrameType.Value(name_of(message)), message.SerializeToString() + LATER))

    send, session.send = session.send, lambda *messages: [later(one) for one in messages]
    session.welcome()
    driver.expect("welcomed")
    task = session.deliver(1)[0].task_id
    session.until_acked(1)
    session.revoke(2, task)
    driver.expect("revoked")
    session.until_acked(2)
    session.round_trip()
    driver.do("badge", value=3)
    driver.expect("updated")
    session.send(pb.Close(code=100, reason="later"))
    driver.expect("closed", where=lambda event: event["reason"] == "later")
    session.send = send
    bench.gateway.welcome()


def name_of(message):
    for number, kind in MESSAGES.items():
        if kind is type(message):
            return pb.FrameType.Name(number)
    raise AssertionError(message)


@pytest.mark.broken_by("unknown-frames-skipped", "unknown-frames-stop")
@pytest.mark.parametrize("kind", [0, 18, 100, 255])
def test_unknown_frame_type_ends_the_session(bench, session, kind):
    """A frame of an unknown type ends the session; the client reconnects with backoff."""
    session.raw(frame(kind, b"\x08\x01"))
    ends_and_continues(bench, session)


@pytest.mark.broken_by("unknown-frames-skipped")
@pytest.mark.parametrize("kind", [
    "HELLO", "ACK", "DEVICE_UPDATE", "FEEDBACK", "UPSTREAM", "PUBLISH", "PUBLISH_RESULT", "DEVICE_NAMES"])
def test_misplaced_frame_ends_the_session(bench, session, kind):
    """A frame that only a client sends ends the session."""
    session.raw(frame(pb.FrameType.Value(kind), b""))
    ends_and_continues(bench, session)


@pytest.mark.broken_by("takes-second-welcome")
def test_second_welcome_ends_the_session(bench, session):
    """A second Welcome ends the session."""
    session.send(pb.Welcome(generation=9, queue_epoch=session.device.epoch, heartbeat_seconds=300, window=32))
    ends_and_continues(bench, session)


@pytest.mark.broken_by("takes-frames-before-welcome")
@pytest.mark.parametrize("kind", [pb.Deliver, pb.Pong, pb.UpdateResult, pb.Ping])
def test_frame_before_the_welcome(bench, kind):
    """A frame before the Welcome, other than a Close, ends the connection, and nothing of it is shown."""
    bench.start()
    bench.gateway.welcome()
    bench.driver.expect("welcomed")
    bench.restart()
    session = bench.gateway.hello()
    if kind is pb.Deliver:
        session.deliver(1)
    else:
        session.send(kind())
    session.until_over()
    assert not bench.shown()
    ends_and_continues(bench, session)


@pytest.mark.broken_by("malformed-crashes", "malformed-skipped")
@pytest.mark.parametrize("body", [
    b"\x0a", b"\x0a\xff\xff\xff\xff\x0f", b"\x08" + b"\xff" * 11, b"\xff\xff", b"\x07", b"\x1a\x7fabc"])
def test_malformed_body_ends_the_session(bench, session, body):
    """A body that is no message (a field beyond its end, an endless varint, no wire type) ends the session."""
    session.raw(frame(pb.DELIVER, body))
    ends_and_continues(bench, session)


@pytest.mark.broken_by("zero-sequence")
@pytest.mark.parametrize("sequence", [0, 2**63 + 1, 2**64 - 1])
def test_senseless_sequence(bench, session, sequence):
    """A sequence of 0, or one that would overflow, ends the session or is never acked, and is not stored."""
    session.raw(encode(pb.Deliver(sequence=sequence, msg_id=b"\x01" * 16, task_id=b"\x02" * 16, payload=b"x")))
    session.send(pb.Ping(nonce=5))
    with session.changed:
        session.changed.wait_for(
            lambda: session.is_over or any(isinstance(one, pb.Pong) for one, _ in session.received), bench.patience)
    assert all(
        position.sequence < 2**62 and all(one.last < 2**62 for one in position.ranges)
        for ack in session.frames(pb.Ack) for position in ack.positions)
    session.cut()
    again = bench.gateway.welcome()
    again.deliver(1)
    again.until_acked(1)
    assert bench.driver.expect("message", where=lambda event: event["msgId"] != "01" * 16)


@pytest.mark.broken_by("narrow-numbers")
def test_sequences_above_2_to_53(bench, session):
    """Neighbouring sequences above 2⁵³ are distinguished, or the client refuses them without an Ack."""
    session.deliver(2**53 + 1)
    session.deliver(2**53 + 2)
    session.deliver(2**53 + 3)
    places = {(0, 2**53 + number) for number in (1, 2, 3)}
    with session.changed:
        session.changed.wait_for(lambda: session.is_over or session.device.acked >= places, bench.patience)
    if not session.is_over:
        assert len(bench.shown()) == 3
        assert session.device.acked >= places
        assert [int(event["sequence"]) for event in bench.shown()] == [2**53 + 1, 2**53 + 2, 2**53 + 3]


@pytest.mark.each_transport
@pytest.mark.broken_by("small-frames")
def test_largest_frame(bench):
    """A frame with a body of exactly 65,536 bytes is read."""
    bench.start()
    session = bench.gateway.welcome()
    message = session.mark(0, 1)
    session.device.messages[0, 1].payload = message.payload = b"p" * 16_384
    body = message.SerializeToString()
    # An unknown field with bytes fills the frame.
    rest = BODY_LIMIT - len(body) - 5
    size = bytes([rest & 127 | 128, rest >> 7 & 127 | 128, rest >> 14])
    session.raw(frame(pb.DELIVER, body + b"\xca\x3e" + size + b"z" * rest))
    session.until_acked(1)


@pytest.mark.broken_by("no-frame-limit")
@pytest.mark.parametrize("size", [BODY_LIMIT + 1, 1 << 20, (1 << 24) - 1])
def test_frame_above_the_limit(bench, session, size):
    """A header with a length above 65,536 ends the session at once; the client does not wait for the body."""
    session.raw(frame(pb.DELIVER, b"\x10\x01", length=size))
    ends_and_continues(bench, session)


@pytest.mark.broken_by("no-frame-limit")
def test_endless_frame(bench, session):
    """A frame that never ends is not collected: the session ends after few bytes of it."""
    session.raw(frame(pb.DELIVER, b"", length=(1 << 24) - 1))
    for _ in range(200):
        session.raw(b"\x00" * 65_536)
        if session.is_over:
            break
    ends_and_continues(bench, session)


@pytest.mark.broken_by("malformed-crashes")
@pytest.mark.parametrize("is_welcomed", [True, False])
def test_garbage(bench, request, is_welcomed):
    """Random bytes, before the Welcome and after it, end the session and neither crash nor stop the client."""
    chance = random.Random(request.config.getoption("seed"))
    bench.start()
    bench.gateway.welcome()
    bench.driver.expect("welcomed")
    bench.restart()
    for number in range(6):
        session = bench.gateway.hello(patience=bench.patience + 30)
        if is_welcomed:
            session.welcome()
        # A frame of a random type with a random body; a Close could rightly stop the client.
        kind = [pb.DELIVER, pb.WELCOME, pb.UPDATE_RESULT, 77, pb.REVOKE, pb.UPSTREAM_RESULT][number]
        session.raw(frame(kind, b"\xff" + chance.randbytes(300)) + bytes([200]) + chance.randbytes(3_000))
        session.until_over()
        if "backoff" in bench.client.lacks and number % 2:
            bench.restart()
    session = bench.gateway.welcome(patience=bench.patience + 30)
    session.deliver(1)
    session.until_acked(1)
    assert not bench.driver.has("stopped")
