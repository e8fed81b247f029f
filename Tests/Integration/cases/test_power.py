"""Power failures under load, and proof that the rig detects a missing sync. `make power` runs more."""

import json
import random

import power
import pytest
from power_disk import Disk, Log, compile_shim

SEED = 1


@pytest.fixture(scope="module")
def recorded():
    """Records one load for all tests of this file."""
    with power.Rig(SEED) as rig:
        rig.record(seconds=8)
        yield rig


def test_the_load_does_everything_that_a_failure_may_interrupt(recorded):
    counts = recorded.load.counts
    print(json.dumps(counts, sort_keys=True))
    done = {
        "commits": "syncEnds segment", "recycled segments": "rename segment spare",
        "segments taken again": "rename spare segment", "ingestions": "link spilled table table",
        "changes of the list of tables": "syncEnds manifest",
    }
    for what, kind in done.items():
        assert counts[kind] >= 4, f"{what}: {counts[kind]}"
    assert counts["create table"] >= 1, "a compaction"
    book = recorded.load.book
    assert len(book.answered) >= 500 and len(book.leased) >= 10 and len(book.bound) >= 5 and len(book.task) >= 5
    assert len(book.ready) == 2


def test_twenty_failures_lose_nothing_that_was_answered(recorded):
    failed = recorded.cut(20)
    assert not failed, power.described(recorded)
    print(json.dumps(recorded.counts, sort_keys=True))
    assert recorded.counts["duringAStart"] >= 3 and recorded.counts["duringTheStartAfterAFailure"] >= 2
    counts = recorded.counts
    assert counts["expected"] >= 200 and counts["retried"] >= 50 and counts["leases"] >= 20 and counts["settled"] >= 20


def test_without_syncs_a_failure_loses_only_what_was_young():
    """With durability `os` a start continues with a complete state of a recent moment, and reports that."""
    with power.Rig(SEED, "os") as rig:
        rig.record(seconds=4)
        assert not rig.cut(6), power.described(rig)
        print(json.dumps(rig.counts, sort_keys=True))


def test_a_failure_during_the_start_after_a_kill_parts_no_batch(recorded):
    """The kernel's cache had records that the killed process had not synced; a start syncs them before it moves them."""
    load, chance = recorded.load, random.Random(f"{SEED} start")
    disk, moved = Disk(load.root), []
    for record in load.log.records():
        if disk.position <= load.book.killed[0][0] < record.end:
            unsynced = [node for node in disk.inodes.values() if not node.is_folder and node.pending]
            assert any("/segment-" in node.name for node in unsynced), "the kill came in the middle of a commit"
        disk.feed(record)
        if load.book.started[1][0] < record.end < load.book.ready[1][0]:
            if power.kind_of(record, disk) == "syncEnds manifest":
                moved.append(record.end)
    cuts = sorted(power.Cut(at, "ext4", "nothing", "start") for at in chance.sample(moved, 4))
    for cut, state in power.states(load.log, load.root, cuts):
        assert recorded.problems_of(cut, state) == [], power.text_of(cut)


def test_the_secrets_that_a_first_start_has_told_outlast_a_failure(tmp_path):
    library, log = compile_shim(tmp_path), Log(tmp_path / "disk.log", 1 << 30)
    gateway = power.PoweredGateway(library)
    try:
        del gateway.sections["apps"], gateway.sections["credentials"]
        gateway.sections["demo"] = True
        gateway.log_of_disk = log
        gateway.start()
        told = (gateway.disk / "data/demo.json").read_bytes()
        log.kill(gateway.process)
        disk = Disk(gateway.disk)
        for record in log.records():
            disk.feed(record)
        disk.cut("posix", "nothing", random.Random(SEED)).write(tmp_path / "after")
    finally:
        gateway.__exit__()
    assert (tmp_path / "after/data/demo.json").read_bytes() == told


PLANTED = {
    # name: (the files whose syncs are lost, rules that reveal it)
    "a segment": (lambda node: "/segment-" in node.name, "ext4"),
    "a spilled table": (lambda node: node.name.endswith(".sst"), "ext4"),
    "the tables' list": (lambda node: "MANIFEST-" in node.name, "ext4"),
    "the journal's folder": (lambda node: node.name == "data/journal", "posix"),
    "the tables' folder": (lambda node: node.name == "data/rows", "posix"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_sync_that_is_never_made_is_noticed(recorded, name):
    is_lost, rules = PLANTED[name]
    load, chance = recorded.load, random.Random(f"{SEED} {name}")
    last = load.log.position
    positions = sorted(chance.randint(last // 2, last) for _ in range(6))
    cuts = [power.Cut(at, rules, "nothing", f"planted {at}") for at in positions]
    for cut, state in power.states(load.log, load.root, cuts, lambda node, record: is_lost(node)):
        if recorded.problems_of(cut, state):
            return
    pytest.fail("no failure was noticed")


def test_one_commit_that_is_not_synced_is_noticed(recorded):
    """Loses the last commit before an answer, so that the answer is lost."""
    load, chance = recorded.load, random.Random(f"{SEED} one")
    disk, syncs = Disk(load.root), []
    for record in load.log.records():
        disk.feed(record)
        if power.kind_of(record, disk) == "syncEnds segment":
            syncs.append(record.end)
    answers = {at for at, *_ in load.book.answered} & set(syncs)
    assert len(answers) >= 10, "answers that came while nothing else was written"
    for at in chance.sample(sorted(answers), 6):
        cut = power.Cut(at, "ext4", "nothing", "planted")
        ((_, state),) = power.states(load.log, load.root, [cut], lambda node, record, at=at: record.end == at)
        if recorded.problems_of(cut, state):
            return
    pytest.fail("no failure was noticed")
