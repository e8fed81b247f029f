"""Driver programs of clients: their start, commands and events (Tests/Conformance/README.md, "The driver")."""

import collections
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

from gateway import APP, SECRET, Broken, Gateway

ROOT = pathlib.Path(__file__).resolve().parents[2]
EVENT_LINE_LIMIT = 1 << 20


class NotOffered(Exception):
    """The client has no such command; the rule does not apply to it."""


class Client:
    """An entry of drivers.json; the variable LONGWIRE_DRIVER_NAME replaces its command."""

    def __init__(self, name, entry):
        self.name, self.transports, self.lacks = name, entry["transports"], entry["lacks"]
        replaced = os.environ.get(f"LONGWIRE_DRIVER_{name.upper()}")
        words = shlex.split(replaced) if replaced else entry["command"]
        self.needs = {} if replaced else entry.get("needs", {})
        self.command = [word.replace("{python}", sys.executable) for word in words]

    def missing(self):
        """Returns why the driver cannot be started, or None."""
        for path, remedy in self.needs.items():
            if not (ROOT / path).exists():
                return f"{path} is missing; run {remedy}"
        for word in self.command:
            if "/" in word and not word.startswith("-") and not (ROOT / word).exists():
                return f"{word} is missing"
        if "/" not in self.command[0] and not shutil.which(self.command[0]):
            return f"{self.command[0]} is not installed"
        return None


def clients():
    entries = json.loads((pathlib.Path(__file__).parent / "drivers.json").read_text())
    return {name: Client(name, entry) for name, entry in entries.items()}


class Driver:
    """One process of a driver."""

    def __init__(self, bench, words, environment=None):
        self.bench, self.patience = bench, bench.patience
        self.log = open(bench.folder / "stderr", "ab")
        command = [
            str(ROOT / word) if "/" in word and (ROOT / word).exists() else word for word in bench.client.command]
        # A separate process group, so that a kill also ends a runtime that a script started.
        self.process = subprocess.Popen(
            [*command, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, start_new_session=True,
            env={**os.environ, **(environment or {})})
        self.events, self.changed, self.cursors = [], threading.Condition(), collections.Counter()
        self.is_at_end = self.was_killed = False
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        while line := self.process.stdout.readline(EVENT_LINE_LIMIT):
            # A killed process may leave half a line; what it says was not printed.
            if not line.endswith(b"\n"):
                break
            try:
                event = json.loads(line)
                event["event"]
            except (ValueError, TypeError, KeyError):
                self.bench.faults.append(f"a line that is no event: {line[:200]!r}")
                continue
            with self.changed:
                self.events.append((event, time.monotonic()))
                self.changed.notify_all()
        with self.changed:
            self.is_at_end = True
            self.changed.notify_all()

    def do(self, name, /, **fields):
        try:
            self.process.stdin.write(json.dumps({"do": name, **fields}).encode() + b"\n")
            self.process.stdin.flush()
        except (BrokenPipeError, OSError):
            raise Broken(f"the driver has ended before the command {name}") from None

    def finish(self, message, verdict="processed", **fields):
        """Finishes a message; from here on an Ack may cover it, unless it is rejected."""
        if verdict == "processed":
            for device in self.bench.gateway.devices.values():
                for place, one in device.messages.items():
                    if one.msg_id.hex() == message["msgId"]:
                        device.unfinished.discard(place)
        self.do("finish", msgId=message["msgId"], verdict=verdict, **fields)

    def expect(self, *names, where=lambda event: True, patience=None):
        """Returns the next event of one of these names for which `where` holds."""
        patience = patience or self.patience
        found = []

        def search():
            start = self.cursors[names]
            for index in range(start, len(self.events)):
                event = self.events[index][0]
                self.cursors[names] = index + 1
                if event["event"] == "unsupported" and "unsupported" not in names:
                    raise NotOffered(f"the client has no {event.get('do')}")
                if event["event"] in names and where(event):
                    found.append(event)
                    return True
            return self.is_at_end

        with self.changed:
            self.changed.wait_for(search, timeout=patience)
        if not found:
            end = "the driver ended" if self.is_at_end else f"none came within {patience} s"
            recent = " ".join(event["event"] for event, _ in self.events[-30:])
            raise Broken(f"expected the event {' or '.join(names)}: {end}; events: {recent}")
        return found[0]

    def all(self, *names):
        with self.changed:
            return [event for event, _ in self.events if event["event"] in names]

    def has(self, *names):
        return bool(self.all(*names))

    def kill(self):
        """Ends the process by SIGKILL and reads what it had printed."""
        if self.was_killed or self.log.closed:
            return
        self.was_killed = True
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._reap()

    def stop(self):
        """Ends the process by the end of its input; returns its exit code."""
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            code = self.process.wait(self.patience)
        except subprocess.TimeoutExpired:
            raise Broken(f"the driver did not end within {self.patience} s of the end of its input") from None
        self._reap()
        return code

    def _reap(self):
        self.process.wait(self.patience)
        self.reader.join(self.patience)
        try:
            self.process.stdin.close()
        except OSError:
            pass
        self.process.stdout.close()
        self.log.close()

    def crash(self):
        """Returns how the process ended by itself, or None."""
        code = self.process.poll()
        return None if self.was_killed or code in (None, 0) else f"the driver ended with {code}"


class Bench:
    """A gateway, a state folder and the runs of one driver."""

    def __init__(self, client, gateway, folder, patience, fault=None, authority=None):
        self.client, self.gateway, self.folder, self.patience = client, gateway, folder, patience
        self.fault, self.authority = fault, authority
        self.state = folder / "state"
        self.state.mkdir()
        self.faults, self.runs, self.others = [], [], []
        self.may_repeat = False  # whether a test judges repeats itself
        gateway.is_client_gone = lambda: bool(self.runs) and self.driver.is_at_end

    @property
    def driver(self):
        return self.runs[-1]

    def another(self):
        """Returns a second gateway, which knows the same devices and collects its faults in the same list."""
        other = Gateway(self.gateway.transport, self.gateway.security, self.patience)
        other.devices, other.nonces, other.faults = self.gateway.devices, self.gateway.nonces, self.gateway.faults
        self.others.append(other)
        return other

    def needs(self, what):
        """Ends the test as "not offered" if the client says in drivers.json that it lacks this."""
        if what in self.client.lacks:
            raise NotOffered(self.client.lacks[what])

    def start(self, window=None, heartbeat=None, manual=False, serial=False, alternates=False, backoff=(10, 160),
              address=None, token="", names_ms=None):
        self.gateway.is_manual, self.gateway.token = manual, token
        words = ["--address", address or self.gateway.address, "--transport", self.gateway.transport, "--app", APP,
                 "--state", str(self.state), *(["--token", token] if token else ["--secret", SECRET])]
        if self.gateway.transport in ("tls", "wss"):
            words += ["--ca", str(self.authority)]
        if window:
            words += ["--window", str(window)]
        if heartbeat:
            words += ["--heartbeat", str(heartbeat)]
        if manual:
            words += ["--manual"]
        if serial and "parallel" not in self.client.lacks:
            self.needs("serial")
            words += ["--serial"]
        if alternates:
            words += ["--alternates-from-close"]
        if backoff and "backoff" not in self.client.lacks:
            words += ["--backoff-ms", f"{backoff[0]}:{backoff[1]}"]
        if names_ms:
            words += ["--names-ms", str(names_ms)]
        if self.fault:
            words += ["--fault", self.fault]
        self.runs.append(Driver(self, words))
        return self.driver

    def restart(self, **options):
        """Kills the driver and starts the next one on the same state."""
        self.driver.kill()
        return self.start(**options)

    def backoff(self, attempt, backoff=(10, 160)):
        """Returns the longest delay before this attempt, in milliseconds, by what the driver was started with."""
        first, most = (1_000, 120_000) if "backoff" in self.client.lacks else backoff
        return min(first << min(attempt, 20), most)

    def shown(self):
        """Returns the message events of all runs, in order."""
        return [event for one in self.runs for event in one.all("message")]

    def end(self):
        """Ends what runs, and raises Broken for each general rule that was broken."""
        faults = []
        for one in self.runs:
            if crash := one.crash():
                faults.append(crash)
            if one.process.poll() is None or not one.was_killed:
                one.kill()
        faults += self.faults + self.gateway.faults
        shown = collections.Counter(event["msgId"] for event in self.shown())
        known = set(shown) | {event["msgId"] for one in self.runs for event in one.all("suppressed")}
        if not self.may_repeat:
            faults += [f"the message {name} was shown {count} times" for name, count in shown.items() if count > 1]
        for device in self.gateway.devices.values():
            for place in sorted(device.acked):
                message = device.messages[place]
                is_revoked = message.task_id in device.revoked
                if message.task_id and not is_revoked and message.msg_id.hex() not in known:
                    faults.append(f"an Ack covered {place[1]} of stream {place[0]}, and the app never had the message")
        if faults:
            raise Broken("\n".join(faults[:20]))
