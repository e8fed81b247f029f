"""`longwire-sender fake` with all vendors, and a sender with the configuration that the fake writes."""

import http.client
import json
import pathlib
import re
import signal
import subprocess
import tempfile

import handoff_stub
from gateway import binary, free_ports

PORTS = ("production", "sandbox", "production-channels", "sandbox-channels", "vendors", "page")


class FakeVendors:
    """`with FakeVendors(stub) as fakes:` runs the fakes and a sender until the end of the block; `output` has the fakes' first lines."""

    def __init__(self, stub: handoff_stub.HandoffStub, script=None):
        self._folder = tempfile.TemporaryDirectory(prefix="longwire-fakes-")
        self.folder = pathlib.Path(self._folder.name)
        self.ports = dict(zip(PORTS, free_ports(len(PORTS))))
        self.record = self.folder / "record.jsonl"
        self.stub, self.script = stub, script
        self.output: list[str] = []

    def __enter__(self):
        (self.folder / "sender-token").write_text(handoff_stub.TOKEN)
        (self.folder / "sender-token").chmod(0o600)
        words = [binary("longwire-sender"), "fake", "--folder", str(self.folder), "--record", str(self.record),
                 "--gateway", self.stub.url]
        for name, port in self.ports.items():
            words += [f"--{name}", f"127.0.0.1:{port}"]
        if self.script is not None:
            (self.folder / "script.json5").write_text(json.dumps(self.script))
            words += ["--script", str(self.folder / "script.json5")]
        self._words = words
        self._start("/push/")
        self.sender = subprocess.Popen(
            [binary("longwire-sender"), "--config", str(self.folder / "sender.json5")], stdout=subprocess.DEVNULL)
        return self

    def _start(self, until):
        """Starts the fakes; with credentials the last line has the device token of Web Push."""
        self.output = []
        self.fake = subprocess.Popen(self._words, stdout=subprocess.PIPE, text=True)
        while not self.output or until not in self.output[-1]:
            line = self.fake.stdout.readline()
            assert line, self.output
            self.output.append(line.rstrip("\n"))

    def restart(self, until="/push/"):
        self.fake.send_signal(signal.SIGTERM)
        assert self.fake.wait(60) == 0
        self.fake.stdout.close()
        self._start(until)

    def __exit__(self, *_):
        try:
            for process in (self.sender, self.fake):
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
        finally:
            for process in (self.sender, self.fake):
                process.kill()
                process.wait()
            self.fake.stdout.close()
            self._folder.cleanup()

    def token(self, channel: str, name: str) -> str:
        """Returns a device token with this name."""
        if channel != "webPush":
            return name
        return re.sub(r"/push/[^#]+", f"/push/{name}", self.output[-1].strip())

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["page"], timeout=30)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def shown(self):
        """Returns the messages on all phones, except Apple's, by vendor."""
        found: dict[str, list] = {}
        for phone in json.loads(self.call("GET", "/phones")[1])["vendors"]["phones"]:
            found.setdefault(phone["vendor"], []).extend(phone["shown"])
        return found

    def records(self):
        return [json.loads(line) for line in self.record.read_text().splitlines()]
