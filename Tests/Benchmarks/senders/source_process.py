"""`handoff_source.py` as a process."""

import http.client
import json
import subprocess
import sys

import handoff_source
from gateway import eventually, free_ports


class Source:
    """`with Source() as source:` runs the handoff API with jobs from memory; `jobs` is its first backlog.

    `words` precede its command line. Without `jobs` the backlog is endless. `push_service` begins the endpoints of Web Push.
    """

    def __init__(self, jobs=None, body=256, words=(), push_service=""):
        self.admin, = free_ports(1)
        self.words = [*words, sys.executable, handoff_source.__file__, "--port", str(self.admin), "--body", str(body)]
        if push_service:
            self.words += ["--push-service", push_service]
        if jobs is not None:
            self.words += ["--jobs", str(jobs)]

    def __enter__(self):
        self.process = subprocess.Popen(self.words)
        eventually(self.figures, "an answer of the source")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait()

    def call(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=30)
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def figures(self):
        try:
            return self.call("/figures")
        except OSError:
            return None
