"""What the parties of a crash round share: each is a process with orders on standard input and a book on disk.

    python NAME_party.py SETUP_JSON

Orders are lines ("go", "drain", "quit"); answers are JSON lines. A book is written and flushed line by line before the
party goes on, so that it survives whatever happens to the party and owes nothing to the gateway.
"""

import http.client
import json
import os
import pathlib
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / folder) for folder in ("parties", "rigs")]

# A call that has no answer: the gateway is dead, or stopped, or was killed in the middle of it.
UNANSWERED = (OSError, http.client.HTTPException, ValueError)


class Book:
    """Lines of JSON in a file that only grows."""

    def __init__(self, path):
        self.file, self.lock = open(path, "a", encoding="utf-8"), threading.Lock()

    def write(self, event, **fields):
        line = json.dumps({"e": event, "t": time.time(), **fields})
        with self.lock:
            self.file.write(line + "\n")
            self.file.flush()


class API:
    """One keep-alive connection to an HTTP listener; whatever goes unanswered is raised as one of UNANSWERED."""

    def __init__(self, port, headers=None, timeout=5.0):
        self.port, self.headers, self.timeout, self.connection = port, headers or {}, timeout, None

    def call(self, method, path, body=None):
        """Status and JSON, whatever the status."""
        if not self.connection:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        try:
            data = None if body is None else json.dumps(body).encode()
            headers = {"Content-Type": "application/json;charset=utf-8", **self.headers}
            self.connection.request(method, path, data, headers)
            response = self.connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text else {}
        except UNANSWERED:
            self.close()
            raise

    def close(self):
        if self.connection:
            self.connection.close()
            self.connection = None


class Orders:
    """What the party was told last; `say` answers."""

    def __init__(self):
        self.mode, self.changed = "wait", threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in sys.stdin:
            self._set(line.strip())
        self._set("quit")

    def _set(self, mode):
        with self.changed:
            self.mode = mode
            self.changed.notify_all()

    def wait_while(self, *modes):
        with self.changed:
            self.changed.wait_for(lambda: self.mode not in modes)
            return self.mode

    @staticmethod
    def say(**fields):
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()


def _end_party(failure):
    """A thread that fails ends its party, so that the process that waits for its answer notices."""
    threading.__excepthook__(failure)
    os._exit(1)


def setup():
    threading.excepthook = _end_party
    return json.loads(sys.argv[1])
