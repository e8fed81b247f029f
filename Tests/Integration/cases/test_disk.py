"""A failing disk under a real gateway: the effects for publishers, devices and operators, and no answered message is lost.

The library of `shim/faults.c` is preloaded before the C library; a control file selects the calls that fail. Senders and devices
keep records: after a restart on a healthy disk each device has every answered message once, in order.
"""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import subprocess
import threading
from unittest import mock

import pytest
from conftest import QUICK
from gateway import Gateway, Refused, eventually, full_pipe
from longwire_client import Closed, Device, Sender, pb

CALM = {**QUICK, "liveDeadlineMilliseconds": 600_000, "unannouncedCloseDelayMilliseconds": 300}
SEGMENT_HEADER = 64
RECORD_HEADER = 32
# Variations that the Swift tests also cover, or that are nearly the same as others: not in every run.
THOROUGH = pytest.mark.skipif(os.environ.get("LONGWIRE_FAULTS") != "all", reason="only with LONGWIRE_FAULTS=all")


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    """Compiles the library with the compiler that the build needs anyway."""
    library = tmp_path_factory.mktemp("shim") / "faults.so"
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))))
    source = pathlib.Path(__file__).parents[1] / "rigs/shim/faults.c"
    subprocess.run([compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


class FaultyGateway(Gateway):
    """A gateway whose disk follows `fault`."""

    def __init__(self, library, **options):
        super().__init__(**options)
        self.library, self.control, self.data = library, self.folder / "fault", self.folder / "data"

    def spawn(self, *arguments, **options):
        names = {"LD_PRELOAD": self.library, "LONGWIRE_FAULT_FOLDER": self.data, "LONGWIRE_FAULT_CONTROL": self.control}
        with mock.patch.dict(os.environ, {name: str(value) for name, value in names.items()}):
            return super().spawn(*arguments, **options)

    def fault(self, line=""):
        """Sets the fault from the next call on; an empty line ends all faults."""
        draft = self.folder / "fault.new"
        draft.write_text(line)
        draft.rename(self.control)

    def refused_start(self):
        """Starts a gateway that must refuse to start; returns its output."""
        self.config.write_text(json.dumps(self.sections))
        process = self.spawn(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        output = process.communicate(timeout=30)[0]
        assert process.returncode == 74, output
        return output

    def segments(self):
        return sorted((self.data / "journal").glob("segment-*"))


@pytest.fixture
def disk(shim):
    """Creates gateways on disks with injectable faults."""
    with contextlib.ExitStack() as stack:
        yield lambda limits=None, **options: stack.enter_context(
            FaultyGateway(shim, limits={**CALM, **(limits or {})}, **options))


class Books:
    """One device with its app's memory, and the messages promised to its sender."""

    def __init__(self, gateway):
        self.device = Device("127.0.0.1", gateway.device, gateway.app["appId"])
        self.device.register(gateway.app["appSecret"])
        self.cid = self.device.state.cid.hex()
        self.shown, self.answered, self.attempted = [], [], []
        self.end = None

    def publish_large(self, gateway, count):
        """Publishes messages that each fill more than a block of a table."""
        sender = Sender("127.0.0.1", gateway.senders, gateway.app["appId"], gateway.app["masterSecret"])
        for number in range(count):
            payload = str(number).ljust(12).encode() + b"x" * 15_000
            (result,) = sender.publish([{"cid": self.device.state.cid, "payload": payload, "ttl_ms": 3_600_000}])
            assert result.code == 0
            self.attempted.append(str(number))
            self.answered.append(str(number))
        sender.close()

    def read(self):
        """Displays and acks until the connection ends."""
        try:
            while True:
                self.take(timeout=60)
        except (Closed, OSError) as end:
            self.end = end

    def take(self, timeout):
        message = self.device.receive(timeout=timeout)
        if message.sequence > self.device.state.positions.get(0, 0):
            self.shown.append(message.payload.decode()[:12].strip())
        self.device.ack(message.sequence)

    def collect(self, gateway):
        """Reconnects and reads until the queue is empty."""
        self.device.close()
        self.device.connect()

        def is_empty():
            with contextlib.suppress(TimeoutError):
                self.take(timeout=0.2)
            return gateway.view(self.cid)["queue"]["messages"] == 0

        eventually(is_empty, "an empty queue")
        self.device.close()

    def check(self):
        assert len(self.shown) == len(set(self.shown)), "once"
        assert self.shown == sorted(self.shown, key=int), "in order"
        assert set(self.answered) <= set(self.shown), f"lost: {set(self.answered) - set(self.shown)}"
        assert set(self.shown) <= set(self.attempted)


class Publisher(threading.Thread):
    """Publishes to all devices in rounds, one message each, until the gateway is gone."""

    def __init__(self, gateway, books, size=12):
        super().__init__(daemon=True)
        self.books, self.size, self.rounds, self.refusals, self.end = books, size, 0, [], None
        self.sender = Sender("127.0.0.1", gateway.senders, gateway.app["appId"], gateway.app["masterSecret"], timeout=60)
        self.ending = threading.Event()

    def run(self):
        try:
            while not self.ending.is_set():
                text = str(len(self.books[0].attempted))
                for one in self.books:
                    one.attempted.append(text)
                payload = text.ljust(self.size).encode()
                results = self.sender.publish(
                    [{"cid": one.device.state.cid, "payload": payload, "ttl_ms": 3_600_000} for one in self.books])
                for one, result in zip(self.books, results):
                    if result.code == 0:
                        one.answered.append(text)
                    else:
                        self.refusals.append(result.code)
                self.rounds += 1
                self.ending.wait(0.05)  # a load that can be read back quickly
        except (Closed, OSError) as end:
            self.end = end
        finally:
            self.sender.close()

    def stop(self):
        self.ending.set()
        self.join(60)
        assert not self.is_alive()


@contextlib.contextmanager
def traffic(gateway, size=12):
    """Two devices that read, two that are offline, and an active publisher."""
    books = [Books(gateway) for _ in range(4)]
    readers = [threading.Thread(target=one.read, daemon=True) for one in books[:2]]
    for one in books[2:]:
        one.device.close()
    publisher = Publisher(gateway, books, size)
    for thread in [*readers, publisher]:
        thread.start()
    eventually(lambda: publisher.rounds >= 5, "some traffic")
    yield books, publisher
    publisher.stop()
    for thread in readers:
        thread.join(60)
        assert not thread.is_alive()


def settle(gateway, books):
    """Checks that every answered message arrives once and in order."""
    for one in books:
        one.collect(gateway)
        one.check()
    assert any(one.answered for one in books)


@pytest.mark.parametrize(
    "fault, words",
    [
        ("sync-fails", "fdatasync"),
        pytest.param("write-fails /journal/", "write", marks=THOROUGH),
        ("full 700 /journal/", "No space left"),
    ],
)
def test_a_journal_that_cannot_be_written_ends_the_process_and_answers_nothing(disk, fault, words):
    gateway = disk()
    with traffic(gateway) as (books, publisher):
        gateway.fault(fault)
        assert gateway.process.wait(20) == 74
        # The publisher may pause between two rounds, because an ack's batch may be the one that fails.
        eventually(lambda: publisher.end is not None, "the end of the publisher's connection")
    assert words in gateway.log() and str(gateway.data) in gateway.log()
    # The publisher's last round was never answered. Its connection ended without a frame, and so did the devices'.
    # A full disk has no room for the next file either, so publishes may be refused as busy (6) before the end.
    assert publisher.end is not None and set(publisher.refusals) <= ({6} if fault.startswith("full") else set())
    unanswered = sum(len(one.attempted) - len(one.answered) for one in books)
    assert unanswered == len(books) + len(publisher.refusals)
    assert all(isinstance(one.end, (Closed, OSError)) and getattr(one.end, "code", None) is None for one in books[:2])
    gateway.fault()
    gateway.start()
    settle(gateway, books)


def test_a_failed_journal_ends_the_process_though_nobody_reads_its_log(disk):
    gateway = disk()
    assert gateway.stop() == 0
    reading, writing = full_pipe()
    try:
        gateway.process = gateway.spawn(stdout=writing, stderr=writing)
        eventually(gateway.is_ready, "readiness")
        books = Books(gateway)
        gateway.fault("sync-fails")
        with contextlib.suppress(OSError, Refused, http.client.HTTPException):
            gateway.push(books.cid, "0")
        assert gateway.process.wait(20) == 74
    finally:
        os.close(reading)
        os.close(writing)


def test_a_hanging_sync_delays_answers_and_nothing_else(disk):
    gateway = disk()
    books = Books(gateway)
    gateway.push(books.cid, "0")
    books.answered += ["0"]
    books.attempted += ["0", "1"]
    books.take(timeout=10)
    gateway.fault("sync-hangs /journal/")
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(gateway.push(books.cid, "1")))
    waiting.start()
    for nonce in range(2, 12):
        assert books.device.ping(nonce).nonce == nonce, "the loop goes on, and nothing is delivered before it is synced"
    assert answers == [] and waiting.is_alive()
    gateway.fault()
    waiting.join(20)
    assert answers[0]["status"] == "successed_online"
    books.answered.append("1")
    books.take(timeout=10)
    books.check()
    books.device.close()
    assert gateway.stop() == 0


def test_a_full_disk_under_the_ordered_store_is_reported_and_waited_for(disk):
    gateway = disk(limits={"spillAfterSeconds": 1})
    with traffic(gateway) as (books, publisher):
        gateway.fault("full 0 /spill/")
        eventually(lambda: "spillFailed" in gateway.log(), "a line in the log")
        assert "No space left" in gateway.log()
        rounds = publisher.rounds
        eventually(lambda: publisher.rounds >= rounds + 5, "publishes are answered meanwhile")
        gateway.fault()
        eventually(
            lambda: "longwire_store_spilled_rows_total 0\n" not in gateway.metrics(), "the spill once there is room")
        publisher.stop()
        assert gateway.process.poll() is None and publisher.refusals == []
        gateway.kill()
    gateway.start()
    settle(gateway, books)


def test_a_disk_without_room_for_the_next_journal_file_refuses_publishes(disk):
    gateway = disk(limits={"journalBytes": 16 << 20}, app={"queue": {"messages": 100_000, "bytes": 1 << 30}})
    books = Books(gateway)
    books.device.close()
    gateway.fault("full 0 /journal/new-")
    sender = Sender("127.0.0.1", gateway.senders, gateway.app["appId"], gateway.app["masterSecret"])

    def publish():
        text = str(len(books.attempted))
        books.attempted.append(text)
        payload = text.ljust(12).encode() + b"x" * 15_000
        (result,) = sender.publish([{"cid": books.device.state.cid, "payload": payload, "ttl_ms": 3_600_000}])
        if result.code == 0:
            books.answered.append(text)
        return result.code

    assert any(publish() for _ in range(900)), "a refusal before the current file is full"
    eventually(lambda: "spillFailed" in gateway.log(), "a line in the log")
    assert gateway.process.poll() is None
    with pytest.raises(Refused) as refused:
        gateway.call("GET", "/readyz", port=gateway.admin)
    assert refused.value.status == 503 and refused.value.body["status"] == "storeBusy"
    gateway.fault()
    eventually(gateway.is_ready, "readiness once there is room")
    assert publish() == 0
    sender.close()
    settle(gateway, [books])


@pytest.mark.parametrize("fault", ["write-fails /spill/", pytest.param("sync-fails /rows/", marks=THOROUGH)])
def test_an_ordered_store_that_cannot_be_written_ends_the_process(disk, fault):
    gateway = disk(limits={"spillAfterSeconds": 1})
    with traffic(gateway) as (books, publisher):
        gateway.fault(fault)
        assert gateway.process.wait(20) == 74
    assert "database failed" in gateway.log()
    gateway.fault()
    gateway.start()
    settle(gateway, books)


def test_rows_that_cannot_be_read_are_refused_for_a_while_and_not_forgotten(disk):
    gateway = disk()
    books = Books(gateway)
    books.device.close()
    books.publish_large(gateway, 20)
    gateway.kill()
    gateway.start()  # every row is in the ordered store now
    gateway.fault("read-fails .sst")
    with pytest.raises((Closed, OSError)):
        books.device.connect()
        for _ in range(20):
            books.take(timeout=10)
    eventually(lambda: "storeReadFailed" in gateway.log(), "a line in the log")
    assert gateway.process.poll() is None
    gateway.fault()
    settle(gateway, [books])


@pytest.mark.parametrize(
    "fault, words",
    [
        ("read-only", "may not be written"),
        ("full 0", "no room on the disk"),
        ("read-fails /journal/", "read"),
    ],
)
def test_a_start_that_fails_says_what_and_where_and_the_next_one_succeeds(disk, fault, words):
    gateway = disk()
    with traffic(gateway) as (books, _):
        gateway.kill()
    gateway.fault(fault)
    output = gateway.refused_start()
    assert words in output and str(gateway.data) in output, output
    gateway.fault()
    gateway.start()
    settle(gateway, books)


def test_a_first_start_on_a_full_disk_is_refused(disk, shim):
    with FaultyGateway(shim) as gateway:
        assert gateway.stop() == 0
        shutil.rmtree(gateway.data)
        gateway.fault("full 300")
        output = gateway.refused_start()
        assert "no room on the disk" in output and str(gateway.data) in output
        gateway.fault()
        gateway.start()


def test_a_data_folder_removed_under_a_gateway_ends_it(disk):
    gateway = disk(limits={"spillAfterSeconds": 1})
    with traffic(gateway):
        # In one step, because the gateway renames files in it concurrently.
        gone = gateway.data.rename(gateway.folder / "gone")
        shutil.rmtree(gone, ignore_errors=True)
        assert gateway.process.wait(60) == 74
    assert "No such file" in gateway.log()


def last_record(image):
    """Returns the offsets of the first record and of the end of the last one, from their lengths."""
    offset, last = SEGMENT_HEADER, SEGMENT_HEADER
    while (length := int.from_bytes(image[offset : offset + 4], "little")) > 0:
        last = offset
        offset += (RECORD_HEADER + length + 7) & ~7
    return last, offset


def damage(gateway, what):
    """Changes the only active segment and returns it."""
    (path,) = gateway.segments()
    with open(path, "r+b") as file:
        last, end = last_record(file.read(8 << 20))
        if what == "truncated":
            file.truncate(end - 1)
        elif what == "flipped":
            file.seek(SEGMENT_HEADER + 45)
            byte = file.read(1)[0]
            file.seek(SEGMENT_HEADER + 45)
            file.write(bytes([byte ^ 1]))
        elif what == "torn":
            # An interrupted write: bytes after the last record.
            file.seek(end)
            file.write(os.urandom(500))
        elif what == "shifted":
            # Old records from the file's previous use: a copy of the current ones with another generation.
            file.seek(SEGMENT_HEADER)
            record = bytearray(file.read(last - SEGMENT_HEADER))
            generation = int.from_bytes(record[12:16], "little")
            record[12:16] = (generation - 1 if generation > 1 else 7).to_bytes(4, "little")
            file.seek(end)
            file.write(record)
    return path


@pytest.mark.parametrize("what", ["truncated", "flipped"])
def test_damage_to_what_was_promised_refuses_the_start(disk, what):
    gateway = disk()
    with traffic(gateway):
        gateway.kill()
    path = damage(gateway, what)
    before = path.read_bytes()
    for _ in range(2):
        output = gateway.refused_start()
        assert str(path) in output and "damaged at byte" in output and "backup" in output, output
    assert path.read_bytes() == before, "nothing was changed"


@pytest.mark.parametrize("what", ["torn", "shifted"])
def test_leftovers_behind_the_last_record_are_nothing(disk, what):
    gateway = disk()
    with traffic(gateway) as (books, _):
        gateway.kill()
    damage(gateway, what)
    gateway.start()
    settle(gateway, books)


def test_segments_that_were_used_again_bring_nothing_back(disk):
    gateway = disk(limits={"spillAfterSeconds": 1})
    with traffic(gateway, size=2000) as (books, publisher):
        seen = set()

        def is_reused():
            seen.update(path.name for path in gateway.segments())
            return len(seen) >= 3

        eventually(is_reused, "segments that have been used before")
        gateway.kill()
    gateway.start()
    settle(gateway, books)


@pytest.mark.parametrize("what", ["CURRENT", *(pytest.param(one, marks=THOROUGH) for one in ("MANIFEST", "rows", "sst"))])
def test_a_damaged_database_refuses_the_start(disk, what):
    gateway = disk()
    with traffic(gateway):
        gateway.kill()
    gateway.start()  # moves the journal into the database
    gateway.kill()
    rows = gateway.data / "rows"
    if what == "rows":
        shutil.rmtree(rows)
    elif what == "sst":
        next(rows.glob("*.sst")).unlink()
    else:
        next(rows.glob(what + "*")).unlink()
    output = gateway.refused_start()
    assert "is damaged" in output and str(rows) in output, output
    if what != "rows":
        assert len(list(rows.glob("*.sst"))) > 0, "the other files are left alone"


def test_a_byte_flipped_in_a_table_is_noticed_where_it_is_read(disk):
    gateway = disk()
    books = Books(gateway)
    books.device.close()
    books.publish_large(gateway, 20)
    gateway.kill()
    gateway.start()
    gateway.kill()
    for path in (gateway.data / "rows").glob("*.sst"):
        image = bytearray(path.read_bytes())
        place = image.find(b"10".ljust(12) + b"x" * 9000)  # in the middle of the queue, which a start does not read
        if place >= 0:
            image[place + 8000] ^= 4
            path.write_bytes(image)
    gateway.start()
    with pytest.raises((Closed, OSError, Refused)):
        books.device.connect()
        for _ in range(20):
            books.take(timeout=10)
    eventually(lambda: "storeReadFailed" in gateway.log() and "Corruption" in gateway.log(), "a line in the log")
    assert gateway.process.poll() is None, "the others are served"
    assert Books(gateway).device.ping().nonce == 1
