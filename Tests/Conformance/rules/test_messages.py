"""Deliveries, acks, positions and the processed set."""

import base64

import pytest
from gateway import Broken
from wire import covers, pb


@pytest.mark.broken_by("cuts-payload", "never-acks")
@pytest.mark.each_transport
def test_message_arrives_unchanged(bench):
    """A message is shown once with its ids, its bytes, its flag and its alert, and then acked."""
    driver = bench.start()
    session = bench.gateway.welcome()
    payloads = [bytes(range(256)), b"\x00" * 16_384, "{\"text\":\"您好\"}".encode()]
    for number, payload in enumerate(payloads, 1):
        alert = pb.Alert(title="您好", body="body") if number == 3 else None
        sent = session.mark(0, number, payload=payload, offline=number == 2, alert=alert)
        session.device.messages[0, number].payload = sent.payload = payload
        session.send(sent)
        event = driver.expect("message")
        assert (event["msgId"], event["taskId"]) == (sent.msg_id.hex(), sent.task_id.hex())
        assert base64.b64decode(event["payload"]) == payload
        assert (int(event["sequence"]), event["offline"]) == (number, number == 2)
        if alert:
            assert (event.get("title"), event.get("body")) == ("您好", "body")
    session.until_acked(1, 2, 3)


@pytest.mark.broken_by("shows-repeats", "repeats-not-acked")
def test_lost_acks(bench):
    """After a lost Ack the gateway repeats the messages: they are suppressed and acked again, and not shown."""
    bench.start()
    first = bench.gateway.welcome()
    first.deliver(1, 2, 3)
    first.until_acked(1, 2, 3)
    first.cut()
    second = bench.gateway.welcome()
    second.deliver(1, 2, 3, 4)
    second.until_acked(1, 2, 3, 4)
    for _ in range(3):
        bench.driver.expect("suppressed")
    assert [int(event["sequence"]) for event in bench.shown()] == [1, 2, 3, 4]
    # A message may also be repeated within one session; the repeat alone is enough for an Ack.
    count = len(second.frames(pb.Ack))
    second.deliver(2)
    second.expect(pb.Ack, lambda ack: len(second.frames(pb.Ack)) > count)


@pytest.mark.broken_by("stores-late", "no-positions")
def test_positions_survive_kills(bench):
    """After each SIGKILL the next Hello covers all that was acked, and the repeated messages are not shown."""
    bench.start()
    for one in range(4):
        session = bench.gateway.welcome()
        session.deliver(*range(1, 3 * one + 4))
        session.until_acked(*range(1, 3 * one + 4))
        bench.restart()
    assert [int(event["sequence"]) for event in bench.shown()] == list(range(1, 13))


@pytest.mark.broken_by("acks-before-finish", "acks-highest")
def test_out_of_order_finish_makes_ranges(bench):
    """Messages that the app finishes out of order are acked by ranges, and never below an unfinished one."""
    bench.needs("parallel")
    driver = bench.start(manual=True)
    session = bench.gateway.welcome()
    session.deliver(2, 3, 5, 8, 9)
    shown = {int(event["sequence"]): event for event in (driver.expect("message") for _ in range(5))}
    for sequence in (5, 9, 3):
        driver.finish(shown[sequence])
        session.until_acked(sequence)
    bench.may_repeat = True
    ack = session.frames(pb.Ack)[-1]
    assert not covers(ack.positions[0], 2) and not covers(ack.positions[0], 8)
    # 4 was never sent in this session, which is in order: it does not exist, or is settled.
    assert [(one.first, one.last) for one in ack.positions[0].ranges] in [[(3, last), (9, 9)] for last in (5, 6, 7)]
    bench.restart(manual=True)
    session = bench.gateway.welcome()
    session.deliver(2, 8)
    for event in [bench.driver.expect("message") for _ in range(2)]:
        bench.driver.finish(event)
    ack = session.until_acked(2, 8)
    assert ack.positions[0].sequence == 9 and not ack.positions[0].ranges
    assert [int(event["sequence"]) for event in bench.shown()] == [2, 3, 5, 8, 9, 2, 8]


@pytest.mark.broken_by("raises-position-to-ranges")
def test_ranges_of_an_earlier_session_hold(bench):
    """Ranges of an earlier session raise no position: the numbers between them may still be delivered."""
    bench.needs("parallel")
    driver = bench.start(manual=True)
    session = bench.gateway.welcome()
    session.deliver(1, 2, 3, 4)
    shown = {int(event["sequence"]): event for event in (driver.expect("message") for _ in range(4))}
    driver.finish(shown[3])
    session.until_acked(3)
    session.cut()
    bench.gateway.welcome().cut()
    bench.may_repeat = True
    bench.restart()
    session = bench.gateway.welcome()
    session.deliver(1, 2, 4, 5)
    session.until_acked(1, 2, 4, 5)


@pytest.mark.broken_by("many-ranges")
def test_at_most_32_ranges(bench):
    """A position has at most 32 ranges, the lowest ones, however many holes there are."""
    bench.needs("parallel")
    driver = bench.start(manual=True)
    session = bench.gateway.welcome(window=100)
    session.deliver(*range(1, 91))
    shown = {int(event["sequence"]): event for event in (driver.expect("message") for _ in range(90))}
    for sequence in range(2, 91, 2):
        driver.finish(shown[sequence])
    session.expect(pb.Ack, lambda ack: len(ack.positions[0].ranges) >= 32)
    session.round_trip()
    for sequence in range(1, 90, 2):
        driver.finish(shown[sequence])
    ack = session.until_acked(*range(1, 91))
    assert ack.positions[0].sequence == 90


@pytest.mark.broken_by("acks-before-finish", "stores-before-show")
def test_unfinished_message_is_not_acked(bench):
    """A message that the app has not finished is neither acked nor covered, and comes again after a kill."""
    driver = bench.start(manual=True)
    session = bench.gateway.welcome()
    session.deliver(1)
    event = driver.expect("message")
    session.round_trip()
    assert not session.frames(pb.Ack)
    bench.may_repeat = True
    bench.restart(manual=True)
    session = bench.gateway.welcome()
    session.deliver(1)
    again = bench.driver.expect("message")
    assert again["msgId"] == event["msgId"]
    bench.driver.finish(again)
    session.until_acked(1)


@pytest.mark.broken_by("ignores-epoch", "forgets-epoch")
def test_queue_epoch_change(bench):
    """A Welcome with another epoch discards all positions: sequence 1 is shown again, and the new epoch is stored."""
    driver = bench.start()
    session = bench.gateway.welcome(queue_epoch=7)
    session.deliver(1, 2, 3)
    session.deliver(1, stream=1)
    session.until_acked(1, 2, 3)
    session.until_acked(1, stream=1)
    session.cut()
    session = bench.gateway.welcome(queue_epoch=8)
    reset = driver.expect("queueReset")
    assert (int(reset["from"]), int(reset["to"])) == (7, 8)
    session.deliver(1)
    session.until_acked(1)
    bench.restart()
    hello = bench.gateway.welcome().hello
    assert hello.queue_epoch == 8
    assert [(one.stream, one.sequence) for one in hello.positions if one.sequence] == [(0, 1)]
    assert len(bench.shown()) == 5


@pytest.mark.broken_by("never-acks")
def test_window(bench):
    """With a window of 4 the client acks each four messages, so that forty arrive in order."""
    bench.start(window=4)
    session = bench.gateway.welcome()
    assert session.hello.window == 4
    for first in range(1, 41, 4):
        session.deliver(*range(first, first + 4))
        session.until_acked(*range(first, first + 4))
    assert [int(event["sequence"]) for event in bench.shown()] == list(range(1, 41))


@pytest.mark.broken_by("no-window-limit")
def test_more_than_any_window_ends_the_session(bench):
    """A gateway that sends thousands of messages beyond its window is disconnected, and the client continues."""
    bench.start(manual=True)
    session = bench.gateway.welcome()
    bench.may_repeat = True
    try:
        for first in range(1, 20_000, 500):
            session.deliver(*range(first, first + 500))
            if session.is_over:
                break
    except OSError:
        pass
    session.until_over()
    bench.gateway.welcome()


@pytest.mark.broken_by("no-stream-limit")
def test_unknown_streams_are_bounded(bench):
    """At most eight streams fit into a Hello; a gateway with more is disconnected, or the others are not acked."""
    bench.start()
    session = bench.gateway.welcome()
    for stream in range(0, 40):
        session.deliver(1, stream=stream)
    try:
        session.round_trip()
        session.cut()
    except Broken:
        session.until_over()
    bench.gateway.welcome()


@pytest.mark.broken_by("acks-rejected", "no-ping-after-rejection", "long-reason")
def test_rejection_waits_for_its_pong(bench):
    """A rejected message is named by an Ack with a Ping behind it, and no position covers it before the Pong."""
    driver = bench.start(manual=True)
    session = bench.gateway.welcome(answers=False)
    session.deliver(1)
    driver.finish(driver.expect("message"), "rejected", reason="ü" * 200)
    ack = session.expect(pb.Ack, lambda ack: ack.rejected)
    assert [(one.stream, one.sequence) for one in ack.rejected] == [(0, 1)] and ack.rejected[0].reason.startswith("ü")
    ping = session.expect(pb.Ping)
    session.deliver(2)
    driver.finish(driver.expect("message"))
    session.expect(pb.Ack, lambda ack: any(covers(one, 2) for one in ack.positions))
    session.pong(ping.nonce)
    session.until_acked(1, 2)


@pytest.mark.broken_by("shows-rejected", "forgets-rejections")
def test_rejection_survives_a_kill(bench):
    """A rejection that no Pong has confirmed survives a kill: the message is rejected again and not shown."""
    driver = bench.start(manual=True)
    session = bench.gateway.welcome(answers=False)
    session.deliver(1)
    driver.finish(driver.expect("message"), "rejected", reason="no")
    session.expect(pb.Ack, lambda ack: ack.rejected)
    session.expect(pb.Ping)
    bench.restart(manual=True)
    session = bench.gateway.welcome()
    session.deliver(1)
    ack = session.expect(pb.Ack, lambda ack: ack.rejected)
    assert [(one.stream, one.sequence) for one in ack.rejected] == [(0, 1)]
    session.until_acked(1)
    assert len(bench.shown()) == 1


@pytest.mark.broken_by("repeats-revokes", "revokes-not-acked")
def test_revoke(bench):
    """A Revoke is reported once, acked like a message of stream 0, and not reported again after a lost Ack."""
    driver = bench.start()
    session = bench.gateway.welcome()
    task = session.deliver(1)[0].task_id
    session.until_acked(1)
    session.revoke(2, task)
    assert driver.expect("revoked")["taskId"] == task.hex()
    session.until_acked(2)
    session.cut()
    session = bench.gateway.welcome()
    session.revoke(2, task)
    session.deliver(3)
    session.until_acked(2, 3)
    driver.expect("message", where=lambda event: int(event["sequence"]) == 3)
    assert len(driver.all("revoked")) == 1


@pytest.mark.broken_by("shows-revoked")
def test_revoke_of_a_waiting_message(bench):
    """A message of a revoked task that waits for its handler is not handed over, and is acked."""
    driver = bench.start(manual=True, serial=True)
    session = bench.gateway.welcome()
    first = session.mark(0, 1)
    second, third = session.mark(0, 2), session.mark(0, 3)
    session.send(first, second, third)
    message = driver.expect("message")
    session.revoke(4, second.task_id)
    # The app is not to finish this message.
    session.device.unfinished.discard((0, 2))
    session.round_trip()
    driver.finish(message)
    assert driver.expect("revoked")["taskId"] == second.task_id.hex()
    driver.finish(driver.expect("message"))
    session.until_acked(1, 2, 3, 4)
    assert [int(event["sequence"]) for event in bench.shown()] == [1, 3]
