"""The durable state: damaged, truncated, on a full disk, or not writable."""

import ctypes
import os
import random
import subprocess
import time

import pytest
from gateway import Broken
from wire import covers, pb


CLONE_NEWNS = 0x20000  # of sched.h


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


DAMAGES = {
    "empty": lambda data: b"",
    "first byte": lambda data: data[:1],
    "half": lambda data: data[: len(data) // 2],
    "without its last bytes": lambda data: data[:-3],
    "zeros": lambda data: b"\x00" * len(data),
    "garbage": lambda data: random.Random(5).randbytes(len(data)),
    "other text": lambda data: b"{}\n",
    **{f"a bit at {part}/9": lambda data, part=part: flipped(data, len(data) * part // 9) for part in range(1, 9)},
}


@pytest.mark.broken_by("damaged-is-new", "no-check-sum")
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_state(bench, damage):
    """A damaged or truncated state is detected: the client stops with a reason, or sets it aside and registers anew."""
    bench.start()
    session = bench.gateway.welcome()
    session.deliver(1, 2, 3)
    session.until_acked(1, 2, 3)
    bench.driver.kill()
    assert files(bench.state), "the client stored nothing"
    damaged = {path: DAMAGES[damage](path.read_bytes()) for path in files(bench.state)}
    for path, data in damaged.items():
        path.write_bytes(data)
    driver = bench.start()
    deadline = time.monotonic() + bench.patience
    while not driver.has("stopped") and bench.gateway.greetings.empty():
        if driver.is_at_end or time.monotonic() > deadline:
            raise Broken("the client neither stopped nor connected")
        time.sleep(0.01)
    kept = {path.read_bytes() for path in files(bench.state)}
    if driver.has("stopped"):
        assert driver.expect("stopped")["reason"]
        assert bench.gateway.greetings.empty(), "a Hello from a damaged state"
        assert all(data in kept for data in damaged.values()), "the damaged state was not kept"
        return
    # A Hello with a cid has gone through the checks of proof and positions: the state was sound, or had a second copy.
    session = bench.gateway.welcome()
    if session.hello.registration:
        assert all(data in kept for data in damaged.values() if data), "the damaged state was not kept"
    session.deliver(4)
    session.until_acked(4)


def stores_fail(bench, begin, end):
    """While the state cannot be stored nothing new is acked; afterwards the client works and has lost nothing."""
    driver = bench.start()
    session = bench.gateway.welcome()
    session.deliver(1)
    session.until_acked(1)
    begin()
    session.deliver(2)
    driver.expect("message", where=lambda event: int(event["sequence"]) == 2)
    deadline = time.monotonic() + bench.patience
    # A client with an open file may still write; then it acks, and the general rules check that nothing is forgotten.
    while not driver.has("stateNotStored") and (0, 2) not in session.device.acked:
        if time.monotonic() > deadline:
            raise Broken("the client reported no failure of its store, and sent no Ack")
        time.sleep(0.01)
    if driver.has("stateNotStored"):
        if not session.is_over:
            try:
                session.round_trip()
            except Broken:
                session.until_over()
        acks = [position for ack in session.frames(pb.Ack) for position in ack.positions]
        assert not any(covers(position, 2) for position in acks), "an Ack, though its position was not stored"
        assert (0, 2) not in session.device.acked
    else:
        # The next Hello must cover the acked message.
        driver.kill()
    end()
    if driver.was_killed:
        bench.start()
        session = bench.gateway.welcome()
    elif session.is_over:
        session = bench.gateway.working()
        position = next((one for one in session.hello.positions if one.stream == 0), None)
        if not covers(position, 2):
            session.deliver(2)
            session.until_acked(2)
    session.deliver(3)
    session.until_acked(3)
    bench.restart()
    hello = bench.gateway.welcome().hello
    assert covers(hello.positions[0], 3) and not hello.registration


@pytest.mark.broken_by("acks-without-store")
def test_state_that_cannot_be_written(bench):
    """While the state's folder is unusable nothing new is acked; afterwards the client continues without a repeat."""
    away = bench.state.with_name("away")

    def begin():
        bench.state.rename(away)
        bench.state.write_text("a file in the place of the folder")

    def end():
        bench.state.unlink()
        away.rename(bench.state)

    stores_fail(bench, begin, end)


@pytest.fixture
def small_disk(bench):
    """A disk of 256 KiB at the state's folder, in a mount namespace that ends with this process."""
    if os.geteuid() != 0 or ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        pytest.skip("not run: a small disk needs the right to mount one")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", bench.state], check=True)
    yield bench.state
    for one in bench.runs:
        one.kill()
    subprocess.run(["umount", "-l", bench.state], check=True)


@pytest.mark.broken_by("acks-without-store")
def test_full_disk(bench, small_disk):
    """On a full disk nothing new is acked and the old state stays; with space again the client continues."""
    filler = small_disk / "filler"

    def begin():
        with open(filler, "wb", buffering=0) as file:
            try:
                while file.write(b"\x00" * 4_096):
                    pass
            except OSError:
                pass

    stores_fail(bench, begin, filler.unlink)


@pytest.mark.broken_by("acks-without-store")
def test_registration_on_a_full_disk(bench, small_disk):
    """A registration that cannot be stored is not reported as one; with space again the device registers."""
    filler = small_disk / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while file.write(b"\x00" * 4_096):
                pass
        except OSError:
            pass
    driver = bench.start()
    driver.expect("stateNotStored", "stopped")
    try:
        # A client may send its Hello, but must store the credentials before it reports them.
        session = bench.gateway.welcome(patience=2)
        session.round_trip()
    except Broken:
        pass
    assert not driver.has("registered"), "registered, though nothing was stored"
    filler.unlink()
    if driver.has("stopped"):
        driver = bench.restart()
    session = bench.gateway.working()
    cid = driver.expect("registered")["cid"]
    session.deliver(1)
    session.until_acked(1)
    bench.restart()
    assert bench.gateway.welcome().hello.cid.hex() == cid
