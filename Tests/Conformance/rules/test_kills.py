"""Kills at random times, while numbered messages arrive."""

import random
import time

import pytest
from gateway import Broken
from wire import covers, pb


class Judge:
    """Checks the promise of Proto/README.md, "What a client persists, and when".

    A client that is killed between its handler and the write of its position receives the message again. There is no
    other source of repeats. A Hello shows the stored position to the gateway. A message may therefore be shown a second
    time if no Hello and no Ack covered it in between. With a window of one, this is the last message of a killed run.
    """

    def __init__(self, window):
        self.window, self.faults, self.repeats = window, [], 0
        self.run_of, self.last_of, self.covered = {}, {}, set()
        self.highest = 0

    def hello(self, hello):
        position = hello.positions[0] if hello.positions else None
        self.covered |= {sequence for sequence in self.run_of if covers(position, sequence)}
        lost = [one for one in range(1, self.highest + 1) if covers(position, one) and one not in self.run_of]
        if lost:
            self.faults.append(f"the stored position covers {lost}, which were never shown")

    def run(self, number, sequences, acked):
        if sequences != sorted(set(sequences)):
            self.faults.append(f"run {number} showed {sequences}: not in order, or a message twice")
        for sequence in sequences:
            if sequence in self.run_of:
                self.repeats += 1
                earlier = self.run_of[sequence]
                if sequence in self.covered:
                    self.faults.append(f"{sequence} was shown again in run {number} after its position was stored")
                if self.window == 1 and self.last_of[earlier] != sequence:
                    self.faults.append(
                        f"{sequence} was shown again in run {number}, though it was not the last one of run {earlier}")
            elif sequence < self.highest:
                self.faults.append(f"run {number} showed {sequence} for the first time, after {self.highest}")
            self.run_of[sequence] = number
            self.highest = max(self.highest, sequence)
        if sequences:
            self.last_of[number] = sequences[-1]
        self.covered |= acked
        lost = sorted(acked - set(self.run_of))
        if lost:
            self.faults.append(f"acked and never shown: {lost}")


@pytest.mark.timeout(3_000)
@pytest.mark.broken_by("stores-before-show", "stores-late", "loses-messages", "writes-in-place", "acks-before-finish")
@pytest.mark.parametrize("window", [1, 16])
def test_kills(bench, request, window):
    """A client that is killed at random times shows each message once and in order, as its promise says."""
    kills, chance = request.config.getoption("kills"), random.Random(request.config.getoption("seed") * 1_000 + window)
    if bench.fault:
        kills = 40
    bench.may_repeat = True
    judge, settled, top = Judge(window), set(), 0
    bench.start(window=window)
    session = bench.gateway.welcome()
    bench.driver.expect("registered")
    for number in range(kills + 1):
        is_last = number == kills
        if number:
            bench.start(window=window)
            session = bench.gateway.hello()
            judge.hello(session.hello)
            settled |= {one for one in range(1, top + 1) if covers((session.hello.positions or [None])[0], one)}
            session.welcome()
        # A kill after some messages were shown, at the arrival of an Ack, or at any time.
        kind = chance.choice(["shown", "acked", "time"])
        wanted, limit = chance.randint(1, 12), time.monotonic() + chance.random() * 0.05
        pending = [one for one in range(1, top + 1) if one not in settled]
        end, deadline = top + 30, time.monotonic() + bench.patience
        while True:
            settled |= session.device.acked_in(0)
            sent = {sequence for _, sequence in session.sent}
            if is_last and all(one in settled for one in range(1, end + 1) if one in sent) and len(sent) and top >= end:
                break
            if not is_last and (
                    kind == "shown" and len(bench.driver.all("message")) >= wanted
                    or kind == "acked" and len(session.frames(pb.Ack)) >= wanted
                    or kind == "time" and time.monotonic() > limit or session.is_over):
                break
            room = window - len([one for one in sent if one not in settled])
            while room > 0 and (pending or top < end):
                sequence = pending.pop(0) if pending else top + 1
                top = max(top, sequence)
                session.deliver(sequence)
                room -= 1
            if time.monotonic() > deadline:
                raise Broken(f"run {number} made no progress: {sorted(sent - settled)} were not acked")
            if room < 1 or top >= end and not pending:
                time.sleep(0.0005)
            if not is_last and top >= end and not pending and sent <= settled:
                break
        if is_last:
            bench.driver.expect("message", where=lambda event: int(event["sequence"]) == top)
        bench.driver.kill()
        session.until_over()
        judge.run(
            number, [int(event["sequence"]) for event in bench.driver.all("message")],
            session.device.acked_in(0))
    never = [one for one in range(1, top + 1) if one not in judge.run_of]
    if never:
        judge.faults.append(f"never shown: {never}")
    print(f"\n{kills} kills, {top} messages, {judge.repeats} permitted or reported repeats")
    if judge.faults:
        raise Broken("\n".join(judge.faults[:20]))


@pytest.mark.timeout(3_000)
@pytest.mark.broken_by("registers-before-store", "writes-in-place")
def test_kills_during_registration(bench, request):
    """A client that is killed while it registers keeps each registration that it reported."""
    kills, chance = request.config.getoption("kills"), random.Random(request.config.getoption("seed"))
    reported = 0
    for number in range(kills):
        bench.state = bench.folder / f"state{number}"
        bench.state.mkdir()
        driver = bench.start()
        session = bench.gateway.hello()
        session.welcome()
        # A third of the kills follow the report at once, the others come before or after it.
        if number % 3 == 0:
            driver.expect("registered")
        else:
            time.sleep(chance.random() * 0.02)
        driver.kill()
        cids = [event["cid"] for event in driver.all("registered")]
        driver = bench.start()
        hello = bench.gateway.welcome().hello
        if cids and hello.cid.hex() != cids[0]:
            raise Broken(f"the registration {cids[0]} was reported and is lost: {hello.cid.hex() or 'registers anew'}")
        reported += len(cids)
        driver.expect("welcomed")
        driver.kill()
    print(f"\n{kills} kills, {reported} of them after the report")
