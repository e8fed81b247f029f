"""The tests' ports: no other process takes one between its choice and its use."""

import contextlib
import socket
import subprocess
import sys

import ports
import pytest
from conftest import HERE
from gateway import free_ports

SCRIPT = "import sys, ports; print(*ports.free_ports(int(sys.argv[1])), flush=True); sys.stdin.read()"


def test_no_port_is_given_twice_and_none_is_of_the_kernels_own_range():
    first, last = ports.ephemeral_range()
    taken = free_ports(200) + free_ports(40)
    assert len(set(taken)) == len(taken)
    assert not [port for port in taken if first <= port <= last], "an outgoing connection may take such a port"


def test_processes_side_by_side_have_different_ports():
    words = [sys.executable, "-c", SCRIPT, "60"]
    running = [
        subprocess.Popen(words, cwd=HERE / "parties", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        lists = [[int(word) for word in one.stdout.readline().split()] for one in running]
        # The other processes hold their blocks at this time. A block is free again after its process has ended.
        own = free_ports(10)
    finally:
        for one in running:
            one.communicate(timeout=30)
    every = [port for some in lists for port in some] + own
    assert len(every) == 190 and len(set(every)) == 190
    assert [one.returncode for one in running] == [0, 0, 0]


def test_a_port_that_somebody_has_is_left_out():
    own = ports.FreePorts()
    last = own.take()
    with socket.socket() as other:
        with contextlib.suppress(OSError):
            other.bind(("127.0.0.1", last + 1))
            other.listen()
        assert own.take() > last + 1


@pytest.mark.parametrize(
    "first, last, is_outside", [(32_768, 60_999, True), (20_000, 65_535, True), (1_024, 65_535, False), (10_001, 65_500, False)])
def test_blocks_lie_outside_of_any_range_that_leaves_room(first, last, is_outside):
    starts = ports.blocks(first, last)
    assert len(starts) >= 40 and starts[-1] + ports.BLOCK - 1 <= ports.HIGHEST
    met = [start for start in starts if start <= last and start + ports.BLOCK > first]
    assert (met == []) == is_outside
