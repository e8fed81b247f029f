"""systemd's side of its notification protocol: a socket to which a started process reports."""

import contextlib
import ctypes
import os
import pathlib
import select
import socket
import time

TIMEOUT = 60.0


class ServiceManager:
    """`with ServiceManager(path) as manager:` listens; `manager.environment(…)` is the environment for the process."""

    def __init__(self, path, inside=None):
        self.path, self.inside = pathlib.Path(path), str(inside or path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.path))
        self.path.chmod(0o777)
        self._waiting = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()
        self.path.unlink(missing_ok=True)

    def environment(self, watchdog_microseconds=None):
        words = {"NOTIFY_SOCKET": self.inside}
        if watchdog_microseconds:
            words["WATCHDOG_USEC"] = str(watchdog_microseconds)
        return words

    def _receive(self, seconds):
        if not select.select([self._socket], [], [], max(0, seconds))[0]:
            return False
        self._waiting += self._socket.recv(65_536).decode().split("\n")
        return True

    def expects(self, line, timeout=TIMEOUT):
        """Waits for a line with this prefix, and consumes all lines up to it."""
        end = time.monotonic() + timeout
        while True:
            for index, one in enumerate(self._waiting):
                if one.startswith(line):
                    del self._waiting[: index + 1]
                    return one
            if not self._receive(end - time.monotonic()) and time.monotonic() > end:
                raise AssertionError(f"the process never told {line}; it told {self._waiting}")

    def hears_within(self, line, seconds):
        """Returns whether such a line arrives within the time; earlier lines are dropped."""
        while self._receive(0):
            pass
        self._waiting.clear()
        with contextlib.suppress(AssertionError):
            return bool(self.expects(line, seconds))
        return False


def threads(process_id):
    folder = pathlib.Path(f"/proc/{process_id}/task")
    return {(task / "comm").read_text().strip(): int(task.name) for task in folder.iterdir()}


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_WALL = 0x40000000


def _ptrace(request, thread):
    if _libc.ptrace(request, thread, None, None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextlib.contextmanager
def standing_still(thread):
    """Pauses one thread of a process until the end of the block."""
    _ptrace(_SEIZE, thread)
    try:
        _ptrace(_INTERRUPT, thread)
        os.waitpid(thread, _WALL)
        yield
    finally:
        _ptrace(_DETACH, thread)
