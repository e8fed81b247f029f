"""Power failures: only synced data is left, and every answered message must still be there.

    python power.py --cuts 500 --seed 1 --json FILE         500 cuts, and a fifth as many with durability "os"
    python power.py --replay FOLDER --cut 'POSITION RULES MODE SEED TIMES'

A gateway under load runs with `shim/power.c`, which logs every change of its folder; parties record the log's position after each
answer. Afterwards the power fails at the given number of random instants of the log. `power_disk.py` creates the folder that the
disk may have had. A gateway starts on it, and the audit checks everything that had been answered until then. Some of those starts
are recorded, too, and the power fails again during them.

LONGWIRE_BIN names the folder of the built programs. Exits with 1 if a start failed or a message was missing, duplicated or out of
order. It then prints the seed and the replay arguments, and keeps the folder with log and records.
"""

import argparse
import bisect
import collections
import contextlib
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
import threading
import time
import uuid
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / folder) for folder in ("parties", "rigs")]

from gateway import HANDOFF_TOKEN, TIMEOUT, Gateway, Refused  # noqa: E402
from longwire_client import Closed, Device, DeviceState, Sender, pb  # noqa: E402
from party import API, UNANSWERED  # noqa: E402
from power_disk import MODES, PAGE, RULES, Disk, Log, compile_shim  # noqa: E402

HOUR = 3_600_000
LIMITS = {
    "liveDeadlineMilliseconds": 60_000, "backgroundLiveDeadlineMilliseconds": 60_000,
    "unannouncedCloseDelayMilliseconds": 300, "vendorFirstPatienceMilliseconds": 60_000, "spillAfterSeconds": 1,
    "journalBytes": 16 << 20,
}
READERS, AWAY = 7, 4
CUTS_A_LOAD, LEASE_SECONDS = 125, 300
# Enough segments for moved tables to be merged. RocksDB starts with sixteen of a family.
GENERATIONS = 26
SYNC_MICROSECONDS = 1_500
# The weight of each mode: a complete loss reveals a missing sync, a partial one a wrong recovery.
WEIGHTS = dict(zip(MODES, (25, 5, 30, 25, 15)))
# `times`: 2 for a power failure during the start that follows the first.
Cut = collections.namedtuple("Cut", "position rules mode seed times", defaults=(1,))


class PoweredGateway(Gateway):
    """A gateway whose data folder is on a separate disk; with a log, all its changes are recorded."""

    def __init__(self, library=None, durability="fsync"):
        super().__init__(limits=LIMITS)
        self.library, self.log_of_disk = library, None
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        self.sections["store"] = {"path": str(self.disk / "data"), "durability": durability}

    def spawn(self, *arguments, **options):
        names = {}
        if self.log_of_disk:
            names = self.log_of_disk.environment(self.library, self.disk, SYNC_MICROSECONDS)
        with mock.patch.dict(os.environ, names):
            return super().spawn(*arguments, **options)


class Book:
    """The facts known to the parties, each with the log's position at which it was known."""

    FACTS = ("tried", "answered", "refused", "registered", "epoch", "shown", "acked", "leased", "settling", "settled",
             "binding", "bound", "asked", "task", "started", "ready", "killed")

    def __init__(self, log=None):
        self.log, self.facts = log, {name: [] for name in self.FACTS}

    def note(self, fact, *values):
        # Appending is atomic under the interpreter's lock. Positions of one list increase, except for a race.
        self.facts[fact].append((self.log.position, *values))

    def until(self, position):
        """Returns the facts known at `position`."""
        known = Book()
        for name, facts in self.facts.items():
            known.facts[name] = [fact for fact in facts if fact[0] <= position]
        return known

    def __getattr__(self, name):
        try:
            return self.__dict__["facts"][name]
        except KeyError:
            raise AttributeError(name) from None

    def save(self, path):
        pathlib.Path(path).write_text(json.dumps(self.facts))

    @classmethod
    def load(cls, path):
        book = cls()
        facts = json.loads(pathlib.Path(path).read_text())
        book.facts.update({name: [tuple(fact) for fact in one] for name, one in facts.items()})
        return book


# Parties

class Party(threading.Thread):
    """Runs its `turn` until the load ends; errors after the gateway's end are ignored."""

    def __init__(self, load):
        super().__init__(daemon=True)
        self.load, self.gateway, self.book = load, load.gateway, load.book
        self.chance = random.Random(f"{load.seed} {type(self).__name__} {load.life}")

    def run(self):
        try:
            while not self.load.is_over.is_set():
                self.turn()
        except (*UNANSWERED, Closed, Refused) as error:
            if not self.load.is_ending:
                self.load.failures.append(f"{type(self).__name__}: {error!r}")

    def rest(self, seconds):
        self.load.is_over.wait(seconds)


def frame(message):
    """Returns a Publish's fields for a recorded message."""
    name, cid, strategy, size, has_alert = message
    fields = {
        "cid": bytes.fromhex(cid), "payload": payload(name, size), "ttl_ms": HOUR, "strategy": strategy,
        "request_id": name}
    return {**fields, "alert": pb.Alert(title="t", body="b")} if has_alert else fields


def payload(name, size):
    return name.encode() + b" " + random.Random(name).randbytes(size // 2).hex().encode()


class NativePublisher(Party):
    """Sends batches of frames; two publishers divide the devices between them, so that each device's order is known."""

    def __init__(self, load, number):
        super().__init__(load)
        self.number, self.count = number, 0
        self.chance = random.Random(f"{load.seed} publisher {number} {load.life}")
        self.cids = [cid for index, cid in enumerate(load.cids) if index % 2 == number]
        self.sender = None

    def turn(self):
        if not self.sender:
            app = self.gateway.app
            self.sender = Sender("127.0.0.1", self.gateway.senders, app["appId"], app["masterSecret"], timeout=TIMEOUT)
        # Few messages for offline devices, so that a start's audit need not read thousands.
        weights = [1 if cid in self.load.away else 12 for cid in self.cids]
        batch = []
        for _ in range(self.chance.choice((1, 8, 24))):
            self.count += 1
            cid = self.chance.choices(self.cids, weights)[0]
            strategy = self.chance.choices((1, 2, 3), (80, 5, 15))[0]
            size = self.chance.choices((40, 700, 6_000, 15_000), (30, 40, 20, 10))[0]
            if strategy == 2:
                size = min(size, 700)  # the whole payload fits APNs' body
            has_alert = strategy == 2 or strategy == 1 and self.chance.random() < 0.5
            batch.append((f"frame-{self.load.life}-{self.number}-{self.count:06}", cid, strategy, size, has_alert))
        for message in batch:
            self.book.note("tried", *message)
        for message, result in zip(batch, self.sender.publish([frame(message) for message in batch])):
            if result.code == 0:
                self.book.note("answered", message[0], result.msg_id.hex())
            else:
                self.book.note("refused", message[0], result.code)
        self.rest(self.chance.random() * 0.02)


class Caller(Party):
    """Makes HTTP calls: singles, lists, broadcasts, aliases."""

    def turn(self):
        name = f"{self.load.life}-http-{self.chance.randrange(2**40):010x}"
        kind = self.chance.choices((self.single, self.list, self.all, self.alias), (50, 15, 3, 32))[0]
        try:
            kind(name)
        except Refused as refused:
            self.book.note("refused", name, refused.body.get("code"))
        self.rest(self.chance.random() * 0.03)

    def single(self, name):
        message = (name, self.chance.choice(self.load.cids), 1, 60, True)
        self.book.note("tried", *message)
        answer = self.gateway.api("POST", "push/single/cid", single(message))
        self.book.note("answered", name, answer["longwire"]["messages"][0]["msgId"])

    def list(self, name):
        self.book.note("asked", "push/list/message", name)
        answer = self.gateway.api("POST", "push/list/message", create_list(name))
        self.book.note("task", "push/list/message", name, answer["data"]["taskid"])

    def all(self, name):
        self.book.note("asked", "push/all", name)
        answer = self.gateway.api("POST", "push/all", to_all(name))
        self.book.note("task", "push/all", name, answer["data"]["taskid"])

    def alias(self, name):
        cid, alias = self.chance.choice(self.load.cids), name.replace("-", "_")
        self.book.note("binding", cid, alias)
        self.gateway.api("POST", "user/alias", {"data_list": [{"cid": cid, "alias": alias}]})
        self.book.note("bound", cid, alias)


def single(message):
    """Returns the body of a message published over HTTP, whose payloads are text."""
    name, cid, _, _, _ = message
    body = Gateway.push_body(cid, f"{name} over HTTP", alert="t", request_id=name)
    body["settings"]["ttl"] = HOUR
    return body


def to_all(name):
    return {"request_id": name, "audience": "all", "push_message": {"transmission": f"{name} to all"}}


def create_list(name):
    return {"request_id": name, "push_message": {"transmission": f"{name} to a list"}}


class Reader(Party):
    """One device: shows, stores, acks, and sometimes reconnects."""

    def __init__(self, load, device):
        super().__init__(load)
        self.device, self.cid = device, device.state.cid.hex()
        self.chance = random.Random(f"{load.seed} {self.cid} {load.life}")

    def turn(self):
        if not self.device.connection or self.chance.random() < 0.002:
            connect(self.device, self.book)
        try:
            message = self.device.receive(timeout=0.3)
        except TimeoutError:
            return
        self.book.note(
            "shown", self.cid, message.stream, message.sequence, message.msg_id.hex(), name_of(message))
        if self.chance.random() < 0.7:
            # The device stores the position. The ack follows.
            self.book.note("acked", self.cid, message.stream, message.sequence)
            self.device.ack(message.sequence, message.stream)


def connect(device, book):
    before = device.state.epoch
    device.connect()
    if before != device.state.epoch:
        book.note("epoch", device.state.cid.hex(), device.state.epoch)


def name_of(message):
    return message.payload.split(b" ")[0].decode()


class Service(Party):
    """A sender service that leases, settles half of the jobs and drops the others."""

    def turn(self):
        wanted = {"channel": "apns", "max": 20, "leaseSeconds": LEASE_SECONDS, "waitSeconds": 0}
        status, answer = self.load.handoff.call("POST", "/v1/handoff/lease", wanted)
        if status != 200:
            raise Refused(status, answer)
        jobs = answer["jobs"]
        for job in jobs:
            self.book.note("leased", job["msgId"], job["jobId"], job["leaseId"], time.time() + LEASE_SECONDS)
        done = [job for job in jobs if self.chance.random() < 0.5]
        if done:
            for job in done:
                self.book.note("settling", job["msgId"])
            results = [{"jobId": job["jobId"], "leaseId": job["leaseId"], "outcome": "accepted"} for job in done]
            status, answer = self.load.handoff.call("POST", "/v1/handoff/results", results)
            if status != 200:
                raise Refused(status, answer)
            for job, result in zip(done, answer["results"]):
                if result["verdict"] == "recorded":
                    self.book.note("settled", job["msgId"])
        self.rest(0.1)


class Load:
    """Several runs of one gateway under load, with its log and records."""

    def __init__(self, folder, seed, seconds, lives=2, durability="fsync"):
        self.folder, self.seed, self.seconds, self.lives = pathlib.Path(folder), seed, seconds, lives
        self.log = Log(self.folder / "disk.log")
        self.book = Book(self.log)
        self.library = compile_shim(self.folder)
        self.gateway = PoweredGateway(self.library, durability)
        self.gateway.log_of_disk = self.log
        self.root, self.failures, self.life = self.gateway.disk, [], 0
        self.cids, self.away, self.handoff = [], set(), None

    def run(self):
        """Runs the load; afterwards the gateway has ended, and its folder must match the log."""
        devices = []
        try:
            for self.life in range(self.lives):
                self.is_over, self.is_ending = threading.Event(), False
                self.book.note("started")
                self.gateway.start()
                self.book.note("ready")
                if not devices:
                    devices = [self.register(number) for number in range(READERS + AWAY)]
                self.handoff = API(self.gateway.admin, {"Authorization": f"Bearer {HANDOFF_TOKEN}"}, timeout=TIMEOUT)
                parties = [NativePublisher(self, 0), NativePublisher(self, 1), Caller(self), Service(self)]
                parties += [Reader(self, device) for device in devices[:READERS]]
                for party in parties:
                    party.start()
                self.is_over.wait(self.seconds / self.lives)
                end = time.monotonic() + 3 * self.seconds
                while self.life == self.lives - 1 and self.generation() < GENERATIONS and time.monotonic() < end:
                    self.is_over.wait(0.1)
                self.is_ending = True
                self.log.kill(self.gateway.process, in_sync=True)
                self.is_over.set()
                self.book.note("killed")
                for party in parties:
                    party.join(TIMEOUT)
                for device in devices:
                    device.close()
            assert not self.failures, self.failures
            self.counts = self.check()
        finally:
            self.gateway.__exit__()
        self.book.save(self.folder / "book.json")
        (self.folder / "load.json").write_text(json.dumps({
            "seed": self.seed, "root": str(self.root), "durability": self.gateway.sections["store"]["durability"]}))
        return self

    def register(self, number):
        device = Device("127.0.0.1", self.gateway.device, self.gateway.app["appId"], timeout=TIMEOUT)
        device.register(self.gateway.app["appSecret"], tokens=[pb.VendorToken(token=f"{number:02x}" * 32)])
        state = device.state
        self.book.note("registered", state.cid.hex(), state.secret.hex())
        self.book.note("epoch", state.cid.hex(), state.epoch)
        self.cids.append(state.cid.hex())
        if number >= READERS:
            self.away.add(state.cid.hex())
            device.close()
        return device

    def generation(self):
        """Returns the number of times that a segment was activated."""
        names = (self.root / "data/journal").glob("segment-*")
        return max((int(path.name.split("-")[1], 16) for path in names), default=0)

    def check(self):
        """Checks that the complete log reproduces the process's folder, so that no change bypassed the shim."""
        disk, counts = Disk(self.root), collections.Counter()
        for record in self.log.records():
            disk.feed(record)
            counts[kind_of(record, disk)] += 1
        differences = disk.whole().differences(self.root)
        assert not differences, f"the log is not what happened: {differences[:10]}"
        return counts


PARTS = {
    "segment-": "segment", "free-": "spare", "new-": "draft of a segment", "MANIFEST-": "manifest",
    "CURRENT": "current", "OPTIONS-": "options", ".dbtmp": "draft", ".sst": "table"}


def kind_of(record, disk):
    """Returns a record's meaning for the store, to choose instants and to count a load's work."""
    paths = record.names or (getattr(disk.inodes.get(record.inode), "name", ""),)
    return " ".join([record.kind, *map(part_of, paths)])


def part_of(path):
    name = path.rsplit("/", 1)[-1]
    if name == "LOG" or name.startswith("LOG.old"):
        return "diary"  # RocksDB's own; nothing depends on it
    otherwise = "other" if any(map(str.isdigit, name)) else name
    kind = next((kind for part, kind in PARTS.items() if part in name), otherwise)
    return "spilled table" if kind == "table" and "/spill/" in f"/{path}" else kind


def instants(log, book, root, count, seed, rules=RULES, again=0.2):
    """Returns cuts ordered by position: during the starts and between them, mostly at critical instants."""
    chance = random.Random(f"{seed} instants")
    disk = Disk(root)
    kinds, records = collections.defaultdict(list), []
    for record in log.records():
        disk.feed(record)
        kind = kind_of(record, disk)
        if "diary" in kind:
            continue
        records.append(record)
        kinds[kind].append(record)
    starts = [(fact[0], ready[0]) for fact, ready in zip(book.started, book.ready)]
    in_starts = [record for record in records if any(start <= record.position < end for start, end in starts)]
    names = sorted(kinds)
    cuts = []
    for number in range(count):
        draw = chance.random()
        if draw < 0.3:
            record = chance.choice(in_starts)
        elif draw < 0.65:
            record = chance.choice(kinds[chance.choice(names)])
        else:
            record = chance.choice(records)
        position = chance.choice((record.position, record.end))
        mode = chance.choices(MODES, [WEIGHTS[mode] for mode in MODES])[0]
        times = 1 + (chance.random() < again)
        cuts.append(Cut(position, rules[number % len(rules)], mode, f"{seed}/{number}", times))
    return sorted(cuts)


def states(log, root, cuts, lies=None):
    """Yields each cut with its resulting folder, in one pass through the log."""
    disk, records = Disk(root, lies), log.records()
    record = next(records, None)
    for cut in cuts:
        while record is not None and record.end <= cut.position:
            disk.feed(record)
            record = next(records, None)
        yield cut, disk.cut(cut.rules, cut.mode, random.Random(cut.seed))


# After the failure

def lay_out(state, folder):
    """Creates the folder of a state.

    It stands for the disk itself: its file `history` is not a copy that a start would detect, and the boot in which it was
    written has ended.
    """
    state.write(folder)
    history = pathlib.Path(folder) / "data/history"
    if history.exists() and len(words := history.read_text().split()) == 5:
        if words[4] != "-":
            words[4] = "0" * 32
        history.write_text(" ".join([*words[:3], "0", words[4]]) + "\n")


class Audit:
    """One start on the remaining disk content, compared with the parties' facts at that instant."""

    def __init__(self, gateway, book, durability="fsync"):
        self.gateway, self.book, self.problems = gateway, book, []
        self.is_durable = durability == "fsync"
        self.tried = {name: message for _, *message in book.tried for name in (message[0],)}
        self.answered = {name: msg for _, name, msg in book.answered}
        self.refused = {name for _, name, _ in book.refused}
        self.epochs = {cid: epoch for _, cid, epoch in book.epoch}
        self.positions = collections.defaultdict(dict)
        for _, cid, stream, sequence in book.acked:
            known = self.positions[cid]
            known[stream] = max(sequence, known.get(stream, 0))
        self.shown = {(cid, stream, sequence): name for _, cid, stream, sequence, _, name in book.shown}
        # The messages that a device has shown and stored.
        self.done = collections.defaultdict(set)
        for (cid, stream, sequence), name in self.shown.items():
            if sequence <= self.positions[cid].get(stream, 0):
                self.done[cid].add(name)
        self.counts, self.leased_now = collections.Counter(), set()

    def problem(self, text):
        self.problems.append(text)

    def run(self):
        if not self.start():
            return self.problems
        checks = [self.check_tasks, self.check_leases, self.check_aliases, self.check_settled, self.publish_again]
        for check in [*(checks if self.is_durable else ()), self.check_devices]:
            try:
                check()
            except (Refused, Closed, *UNANSWERED) as error:
                self.problem(f"refused: {check.__name__}: {error!r}")
        code = self.gateway.process.poll()
        if code is not None:
            self.problem(f"the gateway ended with {code} during the audit:\n{self.gateway.log()[-2000:]}")
        return self.problems

    def start(self):
        try:
            self.gateway.start()
            return True
        except AssertionError as error:
            self.problem(f"no normal start: {str(error)[-1500:]}")
            return False

    def sender(self):
        app = self.gateway.app
        return Sender("127.0.0.1", self.gateway.senders, app["appId"], app["masterSecret"], timeout=TIMEOUT)

    def check_tasks(self):
        for _, path, name, task in self.book.task[-6:]:
            body = to_all(name) if path == "push/all" else create_list(name)
            found = self.gateway.api("POST", path, body)["data"]["taskid"]
            self.counts["tasks"] += 1
            if found != task:
                self.problem(f"lost: {path} {name} was answered with task {task}, and again with {found}")

    def check_leases(self):
        over = {msg for _, msg in self.book.settling} | {msg for _, _, _, _, msg, _ in self.book.shown}
        open_leases = [
            (msg, job, lease) for _, msg, job, lease, end in self.book.leased
            if msg not in over and end > time.time() + TIMEOUT]
        for msg, job, lease in open_leases[-6:]:
            verdict = self.gateway.settle({"jobId": job, "leaseId": lease}, "retry", retryAfterSeconds=60)
            self.counts["leases"] += 1
            if verdict != "recorded":
                self.problem(f"lost: lease {lease} of {msg} was given, and its result is {verdict}")

    def check_aliases(self):
        asked, bound = collections.defaultdict(list), {}
        for _, cid, alias in self.book.binding:
            asked[cid].append(alias)
        for _, cid, alias in self.book.bound:
            bound[cid] = alias
        for cid, alias in bound.items():
            found = self.gateway.api("GET", f"user/alias/cid/{cid}")["data"]["alias"]
            self.counts["aliases"] += 1
            if found not in asked[cid][asked[cid].index(alias):]:
                self.problem(f"lost: {cid} was bound to alias {alias}, and has {found!r}")

    def check_settled(self):
        """Checks that a message accepted by the vendor is recorded, and that neither it nor a leased one is leased again."""
        settled = [msg for _, msg in self.book.settled]
        for msg in settled[-6:]:
            trace = self.gateway.trace(msg)
            events = [step["event"] for step in trace["steps"]]
            self.counts["settled"] += 1
            if trace["state"] == "pending" and "vendorAccepted" not in events:
                self.problem(f"lost: the vendor had taken {msg}, and it is {trace['state']}: {events}")
        held = {msg for _, msg, _, _, end in self.book.leased if end > time.time() + TIMEOUT}
        for job in self.gateway.lease(maximum=100, lease=60):
            self.leased_now.add(job["msgId"])
            if job["msgId"] in held or job["msgId"] in settled:
                self.problem(f"doubled: {job['msgId']} is leased again")

    def publish_again(self):
        """Repeats request ids: answered ones get the same answer, unanswered ones are accepted once."""
        sender = self.sender()
        native = [name for name in self.tried if "http" not in name and name not in self.refused]
        unanswered = [name for name in native if name not in self.answered]
        again = [name for name in native if name in self.answered][-12:] + unanswered[-24:]
        results = sender.publish([frame(self.tried[name]) for name in again]) if again else []
        for name, result in zip(again, results):
            self.counts["retried"] += 1
            if result.code != 0:
                self.problem(f"refused: {name} again, {result.code} {result.reason}")
            elif name in self.answered and result.msg_id.hex() != self.answered[name]:
                self.problem(f"lost: {name} was {self.answered[name]}, and again {result.msg_id.hex()}")
            else:
                self.answered[name] = result.msg_id.hex()
        sender.close()

    def check_devices(self):
        """Reconnects every device, which reads its missing messages; a new message must follow."""
        secrets = {cid: secret for _, cid, secret in self.book.registered}
        sender = self.sender()
        for cid, secret in secrets.items():
            device = Device("127.0.0.1", self.gateway.device, self.gateway.app["appId"], timeout=TIMEOUT)
            state = device.state = DeviceState()
            state.cid, state.secret, state.epoch = bytes.fromhex(cid), bytes.fromhex(secret), self.epochs.get(cid, 0)
            state.positions = dict(self.positions[cid])
            try:
                device.connect()
            except Closed as closed:
                if self.is_durable:
                    self.problem(f"lost: device {cid} was registered and is refused: {closed}")
                continue
            is_reset = cid in self.epochs and state.epoch != self.epochs[cid]
            if self.is_durable and is_reset:
                self.problem(f"{cid} has another queue epoch")
            (result,) = sender.publish([
                {"cid": state.cid, "payload": b"last for " + cid.encode(), "ttl_ms": HOUR, "strategy": 3}])
            if result.code != 0:
                self.problem(f"refused: the last message for {cid}: {result.code} {result.reason}")
                continue
            self.read(device, cid, is_reset)
            device.close()
        sender.close()

    def read(self, device, cid, is_reset):
        expected = {
            name for name, msg in self.answered.items() if self.tried[name][1] == cid and name not in self.done[cid]}
        broadcasts = self.expected_broadcasts(cid)
        received, has_last = [], False
        try:
            while not has_last or broadcasts - set(received):
                message = device.receive(timeout=20)
                name, place = name_of(message), (cid, message.stream, message.sequence)
                self.counts["received"] += 1
                if message.stream == 0 and name == "last":
                    has_last = True
                elif name in received:
                    self.problem(f"doubled: {cid} got {name} twice")
                elif name in self.done[cid] and not is_reset:
                    # After a reset the gateway cannot know which messages a lost ack covered.
                    self.problem(f"doubled: {cid} had acked {name} and gets it again as {place[1:]}")
                elif name in self.refused:
                    self.problem(f"{cid} got {name}, which was refused")
                if self.is_durable:
                    if message.sequence <= self.positions[cid].get(message.stream, 0):
                        self.problem(f"doubled: {cid} got {place[1:]}, {name}, below its position")
                    if self.shown.get(place, name) != name:
                        self.problem(f"reused: {cid} got {place[1:]} as {name}, it was {self.shown[place]}")
                received.append(name)
                device.ack(message.sequence, message.stream)
        except (TimeoutError, Closed, OSError) as error:
            self.problem(f"{cid} waits for its last message or {sorted(broadcasts - set(received))}: {error!r}")
            return
        missing = [name for name in expected if name not in received and not self.is_elsewhere(name)]
        self.counts["expected"] += len(expected)
        if self.is_durable:
            for name in missing:
                self.problem(f"lost: {name}, {self.answered[name]}, strategy {self.tried[name][2]}, for {cid}")
            self.check_order(cid, received)
        else:
            self.check_tail(cid, missing, received)

    def expected_broadcasts(self, cid):
        if not self.is_durable:
            return set()
        registered = next(at for at, one, _ in self.book.registered if one == cid)
        asked = {name: at for at, path, name in self.book.asked if path == "push/all"}
        tasks = {name for _, path, name, _ in self.book.task if path == "push/all" and asked[name] > registered}
        return tasks - self.done[cid]

    def is_elsewhere(self, name):
        """Returns whether it ended by the vendor, waits for it, or is leased."""
        if not self.is_durable:
            return False
        try:
            trace = self.gateway.trace(self.answered[name])
        except Refused:
            return False
        msg = self.answered[name]
        if trace["state"] == "handedOff":
            return any(known == msg for _, known in self.book.settling)
        leased = {known for _, known, *_ in self.book.leased} | self.leased_now
        return trace["state"] == "pending" and (self.tried[name][2] == 2 or msg in leased)

    def check_order(self, cid, received):
        """Checks that one publisher's messages to a device arrive in sending order."""
        last = collections.defaultdict(int)
        for name in received:
            message = self.tried.get(name)
            if not message or message[2] == 2 or "http" in name:
                continue
            life, publisher, number = map(int, name.split("-")[1:])
            if number < last[life, publisher]:
                self.problem(f"order: {cid} got {name} behind number {last[life, publisher]}")
            last[life, publisher] = max(number, last[life, publisher])

    def check_tail(self, cid, missing, received):
        """Checks for `os` that only the last accepted messages are lost."""
        order = {name: number for number, name in enumerate(self.tried)}
        mine = [name for name in missing if "http" not in name and self.tried[name][2] == 3]
        if not mine:
            return
        first = min(mine, key=order.get)
        behind = [
            name for name in received
            if name in order and "http" not in name and self.tried[name][2] == 3 and order[name] > order[first]]
        if behind:
            self.problem(f"a hole: {cid} lost {first} but has {behind[:3]} behind it")
        self.check_order(cid, received)


class Rig:
    """Loads, cuts, starts, audits."""

    def __init__(self, seed, durability="fsync"):
        self.seed, self.durability = seed, durability
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="longwire-power-"))
        self.counts, self.modes, self.failed, self.load = collections.Counter(), collections.Counter(), [], None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if not self.failed and not kind:
            shutil.rmtree(self.folder, ignore_errors=True)

    def record(self, seconds, lives=2):
        self.load = Load(self.folder, self.seed, seconds, lives, self.durability).run()
        return self.load

    def cut(self, count, rules=RULES, say=lambda text: None):
        """Runs `count` failures; some of them twice, the second one during the start after the first."""
        load = self.load
        cuts = instants(load.log, load.book, load.root, count, self.seed, rules)
        for number, (cut, state) in enumerate(states(load.log, load.root, cuts)):
            known = load.book.until(cut.position)
            self.counts.update(["cuts", cut.rules, cut.mode])
            self.counts["duringAStart"] += len(known.started) > len(known.ready)
            self.counts["duringTheStartAfterAFailure"] += cut.times - 1
            problems = self.problems_of(cut, state)
            if problems:
                self.failed.append((cut, problems))
            say(f"{number + 1}: {text_of(cut)}: {len(problems)} problems")
        return self.failed

    def problems_of(self, cut, state):
        """Returns the errors after a start on the folder that this failure left."""
        problems, found = survive(self.folder, self.load.library, self.durability, cut, state, self.load.book)
        self.counts.update(found)
        return problems


def survive(folder, library, durability, cut, state, book, keep=None):
    """Starts and audits; returns errors and counts. `keep` is the destination of the folder and the log."""
    gateway = PoweredGateway(library, durability)
    try:
        lay_out(state, gateway.disk)
        problems = fail_again(gateway, cut, folder) if cut.times > 1 else []
        if keep:
            shutil.rmtree(keep, ignore_errors=True)
            shutil.copytree(gateway.disk, keep / "disk")
        audit = Audit(gateway, book.until(cut.position), durability)
        problems = problems or audit.run()
        if keep:
            shutil.copy(gateway.folder / "log", keep)
        return problems, audit.counts
    finally:
        gateway.__exit__()


def fail_again(gateway, cut, folder):
    """Records a start, and replaces the folder by the result of a failure during it."""
    chance = random.Random(f"{cut.seed} again")
    log = gateway.log_of_disk = Log(folder / f"again-{uuid.uuid4().hex}.log", 1 << 30)
    disk = Disk(gateway.disk)
    disk.load()
    try:
        gateway.start()
    except AssertionError as error:
        return [f"no normal start: {str(error)[-1500:]}"]
    finally:
        log.kill(gateway.process)
        gateway.log_of_disk = None
        log.path.unlink()
    records = list(log.records())
    position = chance.choice(records).position
    for record in records:
        if record.end <= position:
            disk.feed(record)
    state = disk.cut(cut.rules, chance.choices(MODES, [WEIGHTS[mode] for mode in MODES])[0], chance)
    shutil.rmtree(gateway.disk)
    lay_out(state, gateway.disk)
    return []


def text_of(cut):
    return " ".join(map(str, cut))


def play(cuts, seed, seconds, durability="fsync", rules=RULES, say=lambda text: None):
    """Returns the report of several loads and their failures; raises AssertionError with the replay arguments."""
    report, changes = collections.Counter(), collections.Counter()
    for number, start in enumerate(range(0, cuts, CUTS_A_LOAD)):
        part = min(CUTS_A_LOAD, cuts - start)
        with Rig(seed + number, durability) as rig:
            began = time.monotonic()
            load = rig.record(seconds)
            say(f"seed {rig.seed}, {durability}: recorded {sum(load.counts.values())} changes, "
                f"{len(load.book.answered)} answers in {time.monotonic() - began:.1f} s")
            began = time.monotonic()
            rig.cut(part, rules, say=say)
            say(f"{part} failures in {time.monotonic() - began:.1f} s")
            if rig.failed:
                raise AssertionError(described(rig))
            report.update(loads=1, answers=len(load.book.answered), **rig.counts)
            changes.update(load.counts)
    done = {
        "tablesIngested": changes["link spilled table table"], "tablesCompacted": changes["create table"],
        "segmentsRecycled": changes["rename segment spare"], "commits": changes["syncEnds segment"]}
    return {"seed": seed, **report, **done, "violations": 0}


def described(rig):
    """Returns the errors and the replay command."""
    lines = [f"seed {rig.seed}: {len(rig.failed)} of {rig.counts['cuts']} failures were not survived"]
    for cut, problems in rig.failed:
        lines += [f"power.py --replay {rig.folder} --cut '{text_of(cut)}'", *(f"    {one}" for one in problems[:10])]
    return "\n".join(lines)


def replay(folder, text):
    """Replays one failure of a kept folder; keeps the disk content and the log of its start."""
    folder, (position, rules, mode, seed, times) = pathlib.Path(folder), text.split()
    cut, setup = Cut(int(position), rules, mode, seed, int(times)), json.loads((folder / "load.json").read_text())
    ((_, state),) = states(Log(folder / "disk.log"), setup["root"], [cut])
    book = Book.load(folder / "book.json")
    return survive(folder, folder / "power.so", setup["durability"], cut, state, book, keep=folder / "replayed")[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time; it is printed")
    parser.add_argument("--seconds", type=float, default=10.0, help="of load")
    parser.add_argument("--durability", choices=("fsync", "os", "both"), default="both")
    parser.add_argument("--json", help="where the figures go; without it they are printed only")
    parser.add_argument("--replay", metavar="FOLDER", help="a folder that was kept")
    parser.add_argument("--cut", help="which of its failures")
    options = parser.parse_args()
    if options.replay:
        problems = replay(options.replay, options.cut)
        print("\n".join(problems) or "survived")
        return 1 if problems else 0
    seed = random.randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    parts = {"fsync": options.cuts, "os": -(-options.cuts // 5)}
    report = {}
    try:
        for durability, cuts in parts.items():
            if options.durability in (durability, "both"):
                report[durability] = play(
                    cuts, seed, options.seconds, durability, say=lambda text: print(text, flush=True))
    except (AssertionError, Refused) as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    text = json.dumps(report, indent=2)
    print(text)
    if options.json:
        pathlib.Path(options.json).write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
