"""Messages to the server, tokens, badge, push mode, background, taps, reports, copies from the vendor's channel."""

import base64
import os

import pytest
from gateway import Broken
from wire import pb


def begin(bench, **options):
    answers = options.pop("answers", True)
    bench.start(**options)
    session = bench.gateway.welcome(answers=answers)
    bench.driver.expect("welcomed")
    return session


def send(bench, payload, **fields):
    bench.driver.do("send", payload=base64.b64encode(payload).decode(), **fields)


# Messages to the app's server


@pytest.mark.each_transport
@pytest.mark.broken_by("upstream-in-parallel")
def test_upstream(bench):
    """Messages to the server are sent unchanged and one at a time, in order, and each is reported as taken."""
    session = begin(bench, answers=False)
    task = os.urandom(16)
    payloads = [b"first", bytes(range(256)) * 64, b"third"]
    for payload in payloads:
        send(bench, payload, task=task.hex())
    numbers = []
    for payload in payloads:
        upstream = session.expect(pb.Upstream)
        assert (upstream.payload, upstream.task_id) == (payload, task)
        session.round_trip()
        numbers.append(upstream.request)
        session.upstream_result(upstream.request)
        assert int(bench.driver.expect("taken")["request"]) == upstream.request
    assert len(set(numbers)) == 3
    session.round_trip()
    assert len(session.frames(pb.Upstream)) == 3


@pytest.mark.broken_by("renumbers-upstream", "forgets-upstream")
def test_upstream_is_repeated_under_its_number(bench):
    """A message without a result is sent again under its number, after a reconnect and after a kill."""
    session = begin(bench, answers=False)
    send(bench, b"once")
    first = session.expect(pb.Upstream)
    session.cut()
    session = bench.gateway.welcome(answers=False)
    second = session.expect(pb.Upstream)
    bench.restart()
    session = bench.gateway.welcome(answers=False)
    third = session.expect(pb.Upstream)
    assert first == second == third
    session.upstream_result(third.request)
    assert int(bench.driver.expect("taken")["request"]) == third.request
    bench.restart()
    session = bench.gateway.welcome()
    session.round_trip()
    assert not session.frames(pb.Upstream)


@pytest.mark.broken_by("reuses-upstream-numbers")
def test_upstream_numbers_are_not_reused(bench):
    """Each message has a number that no earlier one had, across kills."""
    numbers = []
    begin(bench)
    for number in range(4):
        send(bench, f"message {number}".encode())
        numbers.append(int(bench.driver.expect("taken")["request"]))
        bench.restart()
        bench.gateway.welcome()
        bench.driver.expect("welcomed")
    assert len(set(numbers)) == 4, numbers


@pytest.mark.broken_by("repeats-refused-upstream")
def test_upstream_refused(bench):
    """A result below 100 ends a message for ever: it is reported as refused, and the next one follows."""
    session = begin(bench, answers=False)
    send(bench, b"refused")
    send(bench, b"taken")
    first = session.expect(pb.Upstream)
    session.upstream_result(first.request, 50, "no such task")
    refused = bench.driver.expect("refused")
    assert (int(refused["request"]), int(refused["code"])) == (first.request, 50)
    second = session.expect(pb.Upstream)
    assert second.payload == b"taken" and second.request != first.request
    session.upstream_result(second.request)
    bench.driver.expect("taken")


@pytest.mark.broken_by("drops-delayed-upstream")
def test_upstream_delayed(bench):
    """After a result of 100 or above the same message is sent again later, before any other."""
    session = begin(bench, answers=False)
    send(bench, b"busy")
    send(bench, b"next")
    first = session.expect(pb.Upstream)
    session.upstream_result(first.request, 102, "busy")
    again = session.expect(pb.Upstream)
    assert again == first
    assert not bench.driver.has("taken", "refused")
    session.upstream_result(again.request)
    assert session.expect(pb.Upstream).payload == b"next"


@pytest.mark.broken_by("any-upstream-size")
def test_upstream_sizes(bench):
    """An empty message and one above 16,384 bytes are refused by the client and never sent."""
    session = begin(bench)
    for payload in (b"", b"x" * 16_385):
        send(bench, payload)
        bench.driver.expect("refused")
    send(bench, b"x" * 16_384)
    bench.driver.expect("taken")
    assert len(session.frames(pb.Upstream)) == 1


@pytest.mark.broken_by("takes-any-result")
def test_upstream_result_of_another_number(bench):
    """A result for a number that is not in flight changes nothing."""
    session = begin(bench, answers=False)
    send(bench, b"one")
    upstream = session.expect(pb.Upstream)
    for number in (0, upstream.request + 1, 2**32 - 1):
        session.send(pb.UpstreamResult(request=number))
    session.round_trip()
    assert not bench.driver.has("taken")
    session.upstream_result(upstream.request)
    bench.driver.expect("taken")


# Tokens and settings


@pytest.mark.broken_by("tokens-not-in-hello")
def test_token_in_a_session(bench):
    """A token of a session is sent in a DeviceUpdate, and is in the next Hello; an empty one removes it."""
    session = begin(bench)
    bench.driver.do("token", vendor="fcm", token="abc:def-123")
    (token,) = session.expect(pb.DeviceUpdate, lambda update: update.tokens).tokens
    assert (token.channel, token.token, token.kind) == (pb.VendorToken.FCM, "abc:def-123", pb.VendorToken.ALERT)
    bench.driver.expect("updated")
    bench.driver.do("token", vendor="fcm", token="new-456")
    (token,) = session.expect(pb.DeviceUpdate, lambda update: update.tokens).tokens
    assert token.token == "new-456"
    session.cut()
    session = bench.gateway.welcome()
    assert [one.token for one in session.hello.tokens] == ["new-456"]
    bench.driver.do("token", vendor="fcm", token="")
    (token,) = session.expect(pb.DeviceUpdate, lambda update: any(not one.token for one in update.tokens)).tokens
    assert token.channel == pb.VendorToken.FCM
    session.cut()
    assert not bench.gateway.welcome().hello.tokens


@pytest.mark.broken_by("tokens-only-in-hello")
def test_token_without_a_session(bench):
    """A token that was issued without a session is in the Hello, and in a DeviceUpdate after the Welcome."""
    session = begin(bench)
    session.cut()
    again = bench.gateway.hello()
    bench.driver.do("token", vendor="fcm", token="issued-offline")
    # The answer to this Hello is a Close, so that the next one has the token for certain.
    bench.driver.do("badge", value=5)
    again.close(100)
    session = bench.gateway.hello()
    if not session.hello.tokens:
        session.close(100)
        session = bench.gateway.hello()
    assert [one.token for one in session.hello.tokens] == ["issued-offline"]
    session.welcome()
    update = session.expect(pb.DeviceUpdate, lambda update: update.tokens)
    assert [one.token for one in update.tokens] == ["issued-offline"]


@pytest.mark.broken_by("removes-only-in-a-session", "forgets-removed-tokens", "removes-again")
def test_token_removed_without_a_session(bench):
    """A token removed without a session is removed in the next one, until a result confirms it, also after a kill."""

    def is_removal(update):
        return any(one.channel == pb.VendorToken.FCM and not one.token for one in update.tokens)

    session = begin(bench)
    bench.driver.do("token", vendor="fcm", token="issued")
    session.expect(pb.DeviceUpdate, lambda update: update.tokens)
    bench.driver.expect("updated")
    session.cut()
    waiting = bench.gateway.hello()
    bench.driver.do("token", vendor="fcm", token="")
    # No session begins until a Hello shows that the client has processed the removal.
    while waiting.hello.tokens:
        waiting.close(100)
        waiting = bench.gateway.hello()
    waiting.welcome(answers=False)
    waiting.expect(pb.DeviceUpdate, is_removal)
    bench.restart()
    session = bench.gateway.welcome()
    assert not session.hello.tokens
    session.expect(pb.DeviceUpdate, is_removal)
    bench.driver.expect("updated")
    session.cut()
    session = bench.gateway.welcome()
    bench.driver.expect("welcomed")
    session.round_trip()
    assert not session.frames(pb.DeviceUpdate), "the gateway has confirmed the removal"


@pytest.mark.broken_by("stops-at-refused-token")
def test_refused_token(bench):
    """An UpdateResult that names a refused token is reported, and the session continues."""
    session = begin(bench, answers=False)
    bench.driver.do("token", vendor="fcm", token="refused")
    update = session.expect(pb.DeviceUpdate)
    session.send(pb.UpdateResult(request=update.request, reason="token 1: not valid for fcm"))
    assert int(bench.driver.expect("updated")["request"]) == update.request
    session.deliver(1)
    session.until_acked(1)
    # Results that were never asked for.
    for number in (0, update.request, update.request + 7, 2**32 - 1):
        session.send(pb.UpdateResult(request=number, code=3, reason="?"))
    session.deliver(2)
    session.until_acked(2)


@pytest.mark.broken_by("forgets-badge")
def test_badge_is_repeated(bench):
    """A badge number without a result is sent again: in the next Hello, or in an update after its Welcome."""
    session = begin(bench, answers=False)
    bench.driver.do("badge", value=12)
    assert session.expect(pb.DeviceUpdate, lambda update: update.HasField("badge")).badge == 12
    session.cut()
    session = bench.gateway.welcome()
    if not session.hello.HasField("badge"):
        session.expect(pb.DeviceUpdate, lambda update: update.HasField("badge") and update.badge == 12)
    else:
        assert session.hello.badge == 12
    bench.driver.do("badge", value=0)
    assert session.expect(pb.DeviceUpdate, lambda update: update.HasField("badge") and update.badge == 0) is not None


@pytest.mark.broken_by("forgets-attributes")
def test_attributes_are_in_the_next_hello(bench):
    """Attributes that the app sets during a session are in the next Hello, as one complete message."""
    session = begin(bench)
    bench.driver.do("attributes", model="Box 2 界", locale="zh-Hans-CN", allowed=False)
    bench.driver.do("attributes", model="Box 3 界", locale="de", allowed=True)
    # The update shows that the client has processed the commands before it.
    bench.driver.do("badge", value=1)
    session.expect(pb.DeviceUpdate, lambda update: update.HasField("badge"))
    session.cut()
    known = bench.gateway.welcome().hello.attributes
    assert (known.model, known.locale) == ("Box 3 界", "de")
    assert known.notification_permission == pb.DeviceAttributes.ALLOWED


@pytest.mark.broken_by("forgets-push-mode")
def test_push_mode_is_repeated(bench):
    """A change of the push mode without a result is sent again in the next session, until a result confirms it."""
    session = begin(bench, answers=False)
    bench.driver.do("push-mode", off=True)
    assert session.expect(pb.DeviceUpdate, lambda update: update.HasField("push_mode_off")).push_mode_off
    session.cut()
    session = bench.gateway.welcome()
    assert session.expect(pb.DeviceUpdate, lambda update: update.HasField("push_mode_off")).push_mode_off
    bench.driver.expect("updated")
    bench.driver.do("push-mode", off=False)
    session.expect(pb.DeviceUpdate, lambda update: update.HasField("push_mode_off") and not update.push_mode_off)


# Background and return


@pytest.mark.broken_by("shows-stale", "no-background-update")
def test_background_and_return(bench):
    """A Deliver between the return and its UpdateResult is neither shown nor acked, and is shown when sent again."""
    session = begin(bench, answers=False)
    bench.driver.do("background")
    update = session.expect(pb.DeviceUpdate, lambda one: one.HasField("application_state"))
    assert update.application_state == pb.BACKGROUND and not update.keeps_running
    session.send(pb.UpdateResult(request=update.request))
    bench.driver.expect("updated")
    bench.driver.do("foreground")
    update = session.expect(
        pb.DeviceUpdate, lambda one: one.HasField("application_state") and one.application_state == pb.FOREGROUND)
    session.deliver(1)
    session.round_trip()
    assert not bench.driver.has("message") and not session.device.acked
    session.send(pb.UpdateResult(request=update.request))
    session.deliver(1, offline=True)
    event = bench.driver.expect("message")
    assert event["offline"] is True
    session.until_acked(1)


@pytest.mark.broken_by("no-background-update")
def test_background_with_a_running_app(bench):
    """An app that keeps running in the background says so, and receives as before; the next Hello repeats it."""
    session = begin(bench)
    bench.driver.do("background", keepsRunning=True)
    update = session.expect(pb.DeviceUpdate, lambda one: one.HasField("application_state"))
    assert update.application_state == pb.BACKGROUND and update.keeps_running
    bench.driver.expect("updated")
    session.deliver(1)
    session.until_acked(1)
    session.cut()
    hello = bench.gateway.welcome().hello
    assert hello.application_state == pb.BACKGROUND and hello.keeps_running


# Taps, reports and the other channel


@pytest.mark.broken_by("shows-opened", "opened-always-suppressed")
def test_opened_message_is_not_shown(bench):
    """A message that was opened from its notification is acked and not shown, if its notification carried all of it."""
    session = begin(bench)
    carried, partial = session.mark(0, 1, carried_by_vendor=True), session.mark(0, 2)
    for message in (carried, partial):
        bench.driver.do("opened", msgId=message.msg_id.hex())
        feedback = session.expect(pb.Feedback)
        assert (feedback.kind, feedback.msg_id) == (pb.Feedback.OPENED, message.msg_id)
    session.send(carried, partial)
    suppressed = bench.driver.expect("suppressed")
    assert suppressed["msgId"] == carried.msg_id.hex() and suppressed["wasOpened"]
    session.until_acked(1, 2)
    assert [event["msgId"] for event in bench.shown()] == [partial.msg_id.hex()]


@pytest.mark.broken_by("forgets-opened", "feedback-without-ping", "no-feedback")
def test_opened_is_reported_until_confirmed(bench):
    """A tap is reported by Feedback and a Ping; without the Pong the next Hello names it, also after a kill."""
    session = begin(bench, answers=False)
    name = os.urandom(16)
    bench.driver.do("opened", msgId=name.hex())
    session.expect(pb.Feedback, lambda one: one.msg_id == name)
    session.expect(pb.Ping)
    bench.restart()
    session = bench.gateway.welcome()
    assert list(session.hello.opened) == [name]
    # The Welcome confirms it; the filter for duplicates stays.
    bench.driver.expect("welcomed")
    session.round_trip()
    session.deliver(1)
    session.until_acked(1)
    bench.restart()
    session = bench.gateway.welcome()
    assert not session.hello.opened
    message = session.mark(0, 2, carried_by_vendor=True)
    message.msg_id = session.device.messages[0, 2].msg_id = name
    session.send(message)
    assert bench.driver.expect("suppressed", where=lambda event: event["msgId"] == name.hex())
    session.until_acked(2)


@pytest.mark.broken_by("many-opened", "keeps-opened")
def test_many_taps(bench):
    """Of forty taps without a session, a Hello names at most 32, and Feedback the others, until confirmed."""
    session = begin(bench)
    session.cut()
    waiting = bench.gateway.hello()
    names = [os.urandom(16) for _ in range(40)]
    for name in names:
        bench.driver.do("opened", msgId=name.hex())
    waiting.cut()
    found, session = set(), None
    while found != set(names):
        session = bench.gateway.welcome()
        found |= set(session.hello.opened)
        while found != set(names) and not session.is_over:
            found.add(session.expect(pb.Feedback, lambda one: one.kind == pb.Feedback.OPENED).msg_id)
    session.round_trip()
    session.cut()
    session = bench.gateway.welcome()
    session.round_trip()
    assert not session.hello.opened, "taps that a Welcome or a Pong had confirmed are reported again"


@pytest.mark.broken_by("feedback-without-ping", "no-feedback")
def test_reports_are_kept_until_confirmed(bench):
    """Reports of shown messages and actions are sent again until the Pong to the Ping behind them."""
    session = begin(bench, answers=False)
    name = os.urandom(16)
    wanted = {(pb.Feedback.SHOWN, 0), (pb.Feedback.ACTION, 90_001)}
    bench.driver.do("report", msgId=name.hex(), kind="shown")
    bench.driver.do("report", msgId=name.hex(), kind="custom", action=90_001)
    assert session.expect(pb.Feedback).msg_id == name
    session.expect(pb.Ping)
    session.cut()
    for is_last in (False, True):
        session = bench.gateway.welcome(answers=False)
        found = set()
        while found != wanted:
            feedback = session.expect(pb.Feedback)
            assert feedback.msg_id == name
            found.add((feedback.kind, feedback.action))
        ping = session.expect(pb.Ping)
        if not is_last:
            bench.restart()
    session.pong(ping.nonce)
    session.deliver(1)
    session.until_acked(1)
    session.cut()
    session = bench.gateway.welcome()
    session.round_trip()
    if session.frames(pb.Feedback):
        raise Broken("reports that a Pong had confirmed are sent again")


@pytest.mark.broken_by("shows-vendor-copies")
def test_copy_from_the_vendor(bench):
    """A message that arrived through the vendor's channel is acked and not shown a second time over the connection."""
    session = begin(bench)
    message = session.mark(0, 1, carried_by_vendor=True)
    payload = base64.b64encode(message.payload).decode()
    bench.driver.do("vendor-message", msgId=message.msg_id.hex(), taskId=message.task_id.hex(), payload=payload)
    bench.driver.do("badge", value=1)
    bench.driver.expect("updated")
    session.send(message)
    session.until_acked(1)
    session.deliver(2)
    session.until_acked(2)
    copies = [event for event in bench.shown() if event["msgId"] == message.msg_id.hex()]
    assert len(copies) <= 1
