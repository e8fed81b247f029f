"""Shared parts of the parties of a crash round: each is a process with orders on standard input and a record file on disk.

    python NAME_party.py SETUP_JSON

Orders are lines ("go", "drain", "quit"); answers are JSON lines. A record is written and flushed line by line before the party
continues. It therefore survives every failure of the party and does not depend on the gateway.
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

# A call without an answer: the gateway is dead, paused, or was killed during the call.
UNANSWERED = (OSError, http.client.HTTPException, ValueError)


class Book:
    """Lines of JSON in an append-only file."""

    def __init__(self, path):
        self.file, self.lock = open(path, "a", encoding="utf-8"), threading.Lock()

    def write(self, event, **fields):
        line = json.dumps({"e": event, "t": time.time(), **fields})
        with self.lock:
            self.file.write(line + "\n")
            self.file.flush()


class API:
    """One keep-alive connection to an HTTP listener; a missing answer is raised as one of UNANSWERED."""

    def __init__(self, port, headers=None, timeout=5.0):
        self.port, self.headers, self.timeout, self.connection = port, headers or {}, timeout, None

    def call(self, method, path, body=None):
        """Returns status and JSON, whatever the status."""
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
    """The party's last order; `say` answers."""

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
    """Ends the party when a thread fails, so that the process that waits for its answer notices."""
    threading.__excepthook__(failure)
    os._exit(1)


def setup():
    threading.excepthook = _end_party
    return json.loads(sys.argv[1])
