"""Runs the client's algorithm from docs/use/Protocol.md against a gateway that loses acks and connections.

The page's block `python stream` is executed unchanged. The gateway here follows the rules of Proto/README.md. A session starts
with the oldest unacked message and continues in ascending order within a window. An Ack settles messages of this session; a
Hello's positions settle the covered ones.
"""

import pathlib
import random
import re

import pytest

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs/use/Protocol.md"
WINDOW = 32
RANGES = 32


def page_stream():
    block = re.search(r"^```python stream\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert block, "docs/use/Protocol.md has no block `python stream`"
    names = {}
    exec(compile(block.group(1), str(PAGE), "exec"), names)
    return names["Stream"]


class Lost(Exception):
    """A message was settled that no handler ever saw."""


class Play:
    """One device and its queue; every choice depends on the seed."""

    def __init__(self, stream_type, seed, message_count=600):
        self.stream_type, self.random = stream_type, random.Random(seed)
        # Numbers with gaps: the missing ones expired or were collapsed.
        sequences, number = [], 0
        for _ in range(message_count):
            number += 1 if self.random.random() < 0.7 else self.random.randint(2, 5)
            sequences.append(number)
        self.coming = sequences
        self.queue = []
        self.shown = []
        self.stored = (0, [])

    def settle(self, position, ranges, sent=None):
        def names(sequence):
            return sequence <= position or any(first <= sequence <= last for first, last in ranges)

        for sequence in [each for each in self.queue if names(each) and (sent is None or each in sent)]:
            if sequence not in self.shown:
                raise Lost(sequence)
            self.queue.remove(sequence)

    def session(self, is_calm):
        stream = self.stream_type(*self.stored)
        self.settle(stream.position, stream.ranges[:RANGES])
        sent, in_work = [], []
        for _ in range(10_000 if is_calm else self.random.randint(1, 60)):
            if is_calm and not self.queue and not self.coming:
                return
            for _ in range(self.random.randint(0, 8)):
                if self.coming:
                    self.queue.append(self.coming.pop(0))
            suspended = not is_calm and self.random.random() < 0.05
            for sequence in self.queue:
                if sum(each in sent for each in self.queue) >= WINDOW or self.random.random() < 0.2:
                    break
                if sequence in sent:
                    continue
                sent.append(sequence)
                if stream.covers(sequence):
                    continue
                stream.received(sequence)
                if suspended:
                    continue
                in_work.append(sequence)
            for sequence in self.random.sample(in_work, len(in_work) if is_calm else self.random.randint(0, len(in_work))):
                in_work.remove(sequence)
                self.shown.append(sequence)
                stream.processed(sequence)
            if is_calm or self.random.random() < 0.5:
                self.stored = (stream.position, list(stream.ranges))
                if is_calm or self.random.random() < 0.7:
                    self.settle(stream.position, stream.ranges[:RANGES], sent)
        # The connection breaks. Shown messages are stored; the one in progress is dropped and sent again.
        self.stored = (stream.position, list(stream.ranges))

    def run(self):
        total = len(self.coming)
        for _ in range(40):
            self.session(is_calm=False)
        self.session(is_calm=True)
        assert not self.queue and not self.coming
        assert len(self.shown) == total, "a message was never shown"
        assert len(set(self.shown)) == total, "a message was shown twice"


@pytest.mark.parametrize("seed", range(40))
def test_the_algorithm_on_the_page_loses_and_repeats_nothing(seed):
    Play(page_stream(), seed).run()


def test_a_rule_that_raises_the_position_to_the_highest_range_is_found():
    """The test can fail: this rule covered messages between the ranges of an earlier session."""

    class Faulty(page_stream()):
        def processed(self, sequence):
            super().processed(sequence)
            if not self.unfinished and self.ranges:
                self.position, self.ranges = self.ranges[-1][1], []

    with pytest.raises(Lost):
        for seed in range(40):
            Play(Faulty, seed).run()
