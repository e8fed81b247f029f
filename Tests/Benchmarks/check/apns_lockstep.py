"""Jobs for `longwire-sender` in lockstep: a group becomes due at once, and the next when each job of this one has its result.

The sender runs under a tool; the job source and the fake Apple do not. A group is therefore one lease, its requests are sent in
one turn, and the sender's cost per notification can be counted.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "Tests" / folder) for folder in ("Benchmarks/senders", "Integration/parties", "Integration/rigs")]
import apple  # noqa: E402
import gateway as integration  # noqa: E402
from source_process import Source  # noqa: E402

TIMEOUT = 180.0  # the bound of every wait; an instrumented sender is fifty times slower


class Sender(apple.Sender):
    """A sender under a tool: `words` precede its command line, `environment` is added to its own."""

    def __init__(self, source, fake, words=(), environment=None):
        # No wait may end while a slow sender works.
        section = {"requestMilliseconds": 120_000}
        super().__init__(source, fake, apple_section=section, waitSeconds=30, leaseSeconds=300)
        self.words, self.environment = list(words), environment or {}

    def start(self):
        for name in self.environment:
            os.environ[name] = self.environment[name]
        try:
            super().start()
        finally:
            for name in self.environment:
                del os.environ[name]

    def end(self):
        """Sends SIGTERM to the sender itself, which is the tool's child or replaced the tool; its report is complete then."""
        process = self.process.pid
        children = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()
        os.kill(int(children[0]) if children else process, signal.SIGTERM)
        if self.process.wait(TIMEOUT) not in (0, -15):
            raise RuntimeError(f"the sender ended badly:\n{self.log()[-2000:]}")


class Party:
    """`with Party(words) as party:` is a sender with its source and an open connection to the fake."""

    def __init__(self, words=(), environment=None):
        self.words, self.environment = words, environment
        self.count = 0

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.source = stack.enter_context(Source(jobs=0))
            self.fake = stack.enter_context(apple.FakeApple(records=False))
            self.sender = stack.enter_context(Sender(self.source, self.fake, self.words, self.environment))
            self.rounds(1, 1)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *problem):
        self.stack.__exit__(*problem)

    def rounds(self, count, group):
        """Runs `count` groups of `group` jobs, each accepted by the fake and settled before the next."""
        for _ in range(count):
            self.count += group
            self.source.call(f"/add?{group}")
            end = time.monotonic() + TIMEOUT
            while (figures := self.source.figures())["accepted"] < self.count:
                if time.monotonic() > end or self.sender.process.poll() is not None:
                    raise RuntimeError(f"the sender did not settle its jobs: {figures}\n{self.sender.log()[-2000:]}")
                time.sleep(0.002)
            if figures["other"] or figures["strangers"]:
                raise RuntimeError(f"not every job was accepted once: {figures}")
