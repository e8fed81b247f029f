"""Ports that stay free until a test's server listens there.

The kernel assigns ports of its ephemeral range to every outgoing connection, and to every listener that asks for port 0. A port
of that range that was free a moment ago may therefore be taken when the server starts. These ports are outside that range. A
process reserves whole blocks of them and never returns a port twice. It holds a block by a socket with the block's name. Such
names belong to the network namespace like the ports, and end with the process. `FreePorts` of the Swift tests holds the same
blocks by the same names.
"""

import errno
import os
import pathlib
import socket

LOWEST, HIGHEST, BLOCK = 10_000, 65_535, 50
RANGE_FILE = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")


def ephemeral_range():
    """Returns the first and the last port of the kernel's ephemeral range."""
    try:
        first, last = RANGE_FILE.read_text().split()
    except OSError:
        return 32_768, 60_999
    return int(first), int(last)


def blocks(first, last):
    """Returns the first port of each block outside the range, or of all blocks if too few remain."""
    every = range(LOWEST, HIGHEST + 2 - BLOCK, BLOCK)
    outside = [start for start in every if start + BLOCK <= first or start > last]
    return outside if len(outside) >= 40 else list(every)


class FreePorts:
    def __init__(self, names="longwire-test-ports"):
        self._names = names
        self._forget()
        os.register_at_fork(after_in_child=self._forget)  # a forked child reserves its own blocks

    def _forget(self):
        self._held, self._ports = {}, iter(())

    def _next_block(self):
        for start in blocks(*ephemeral_range()):
            if start in self._held:
                continue
            holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                holder.bind(f"\0{self._names}-{start}")
            except OSError as error:
                holder.close()
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            self._held[start] = holder
            return iter(range(start, start + BLOCK))
        raise RuntimeError("every block of ports for tests is taken: end the test runs that are under way, or ask for fewer ports")

    def take(self):
        """Returns a free port that this process has not returned before."""
        while True:
            for port in self._ports:
                with socket.socket() as one:
                    try:
                        one.bind(("", port))
                        return port
                    except OSError as error:
                        if error.errno != errno.EADDRINUSE:
                            raise
            self._ports = self._next_block()


_ours = FreePorts()


def free_ports(count):
    """Returns `count` different ports to listen on."""
    return [_ours.take() for _ in range(count)]
