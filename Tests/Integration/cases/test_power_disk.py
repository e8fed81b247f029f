"""The rules by which `power_disk.py` loses unsynced data, on folders that a small process creates."""

import os
import pathlib
import random
import subprocess
import sys

import pytest
from power_disk import MODES, PAGE, RULES, SECTOR, Disk, Log, compile_shim

BEGIN = """
import os, random, sys
root = sys.argv[1]
def sync(name):
    file = os.open(f"{root}/{name}", os.O_RDONLY); os.fsync(file); os.close(file)
def make(name, text=b""):
    file = os.open(f"{root}/{name}", os.O_RDWR | os.O_CREAT, 0o600); os.write(file, text); return file
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compile_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def recorded(tmp_path, library):
    """Runs a process with the shim; returns its folder and its log."""

    def run(code):
        root, log = tmp_path / "disk", Log(tmp_path / "log", 1 << 28)
        root.mkdir()
        subprocess.run(
            [sys.executable, "-c", BEGIN + code, str(root)], env={**os.environ, **log.environment(library, root, 0)},
            check=True)
        return root, log

    return run


def fed(root, log, until=None):
    disk = Disk(root)
    for record in log.records():
        if until is None or record.end <= until:
            disk.feed(record)
    return disk


def outcomes(root, log, rules, modes=MODES, tries=400):
    """Returns the sets of names with contents that a failure at the end may leave, as far as `tries` attempts find them."""
    disk, found = fed(root, log), set()
    for seed in range(tries):
        chance = random.Random(seed)
        state = disk.cut(rules, chance.choice(modes), chance)
        found.add(tuple((path, None if content is None else content[1]) for path, _, content in state.tree))
    return found


def content(disk, name, rules, mode, seed):
    (found,) = [content for path, _, content in disk.cut(rules, mode, random.Random(seed)).tree if path == name]
    pages, size = found
    return b"".join(pages.get(number, bytes(PAGE)) for number in range(-(-size // PAGE)))[:size]


def test_the_log_carried_out_whole_is_the_folder(recorded):
    root, log = recorded("""
chance = random.Random(1)
names = ["a", "b", "d/c", "d/e"]
os.mkdir(root + "/d")
for step in range(600):
    one, two = (f"{root}/{name}" for name in chance.sample(names, 2))
    kind = chance.randrange(9)
    try:
        if kind == 0: os.rename(one, two)
        elif kind == 1: os.link(one, two)
        elif kind == 2: os.unlink(one)
        elif kind == 3: os.truncate(one, chance.randrange(20000))
        else:
            flags = chance.choice((0, os.O_CREAT, os.O_CREAT | os.O_APPEND, os.O_TRUNC))
            file = os.open(one, os.O_RDWR | flags, 0o600)
            for _ in range(3):
                data = chance.choice((bytes, chance.randbytes))(chance.randrange(12000))
                how = chance.randrange(5)
                if how == 0: os.write(file, data)
                elif how == 1: os.pwrite(file, data, chance.randrange(30000))
                elif how == 2: os.pwritev(file, [data[:5], data[5:]], chance.randrange(30000))
                elif how == 3: os.ftruncate(file, chance.randrange(30000))
                else: os.posix_fallocate(file, chance.randrange(9000), 1 + chance.randrange(9000))
                if chance.random() < 0.3: os.fdatasync(file)
            os.close(file)
    except OSError: pass
""")
    disk = fed(root, log)
    assert disk.whole().differences(root) == []
    kinds = ("rename", "link", "unlink", "truncate", "allocate", "write", "syncEnds")
    assert min(disk.counts[kind] for kind in kinds) > 5
    # The states of the intermediate instants can be created and have the intended content.
    records = list(log.records())
    for seed in range(60):
        chance = random.Random(seed)
        state = fed(root, log, chance.choice(records).end).cut(chance.choice(RULES), chance.choice(MODES), chance)
        out = pathlib.Path(root).parent / f"out{seed}"
        state.write(out)
        assert state.differences(out) == []


def test_a_synced_file_keeps_its_name_by_ext4_and_needs_its_folder_by_posix(recorded):
    root, log = recorded('os.fsync(make("a", b"x" * 100)); make("b")')
    assert outcomes(root, log, "ext4") == {(("a", 100),), (("a", 100), ("b", 0))}
    assert {names for names in outcomes(root, log, "posix")} == {
        (), (("a", 100),), (("b", 0),), (("a", 100), ("b", 0))}


def test_the_sync_of_a_folder_brings_its_names_and_not_its_own(recorded):
    root, log = recorded('os.mkdir(root + "/d"); make("d/a"); make("d/b"); os.unlink(root + "/d/b"); sync("d")')
    assert outcomes(root, log, "ext4") == {(("d", None), ("d/a", 0))}
    assert outcomes(root, log, "posix") == {(), (("d", None), ("d/a", 0))}


def test_a_rename_happens_whole_and_in_its_turn(recorded):
    root, log = recorded('make("old"); sync(""); os.rename(root + "/old", root + "/new"); make("later")')
    old, new, later = ("old", 0), ("new", 0), ("later", 0)
    assert outcomes(root, log, "ext4") == {(old,), (new,), (later, new)}
    assert outcomes(root, log, "posix") == {(old,), (new,), (later, new), (later, old)}


def test_what_was_written_after_a_sync_began_is_not_in_it(recorded):
    root, log = recorded('file = make("a", b"1" * 10); os.fsync(file); os.write(file, b"2" * 10); sync("")')
    disk = fed(root, log)
    found = {content(disk, "a", "posix", mode, seed) for mode in MODES for seed in range(40)}
    assert found == {b"1" * 10, b"1" * 10 + b"2" * 10, b"1" * 10 + bytes(10)}


def test_pages_and_sectors_are_lost_one_by_one(recorded):
    root, log = recorded('file = make("a", b"1" * 16384); os.fsync(file); os.pwrite(file, b"2" * 16384, 0)')
    disk = fed(root, log)
    for mode, unit in (("pages", PAGE), ("sectors", SECTOR)):
        found = {content(disk, "a", "ext4", mode, seed) for seed in range(60)}
        assert all(len(set(one[at : at + unit])) == 1 for one in found for at in range(0, 16384, unit))
        assert any(len(set(one)) == 2 for one in found), "some are there and some are not"
    assert {content(disk, "a", "ext4", "nothing", seed) for seed in range(5)} == {b"1" * 16384}
    assert {content(disk, "a", "ext4", "everything", seed) for seed in range(5)} == {b"2" * 16384}


def test_a_sync_that_is_lost_promises_nothing(recorded):
    root, log = recorded('file = make("a", b"1"); os.fsync(file); sync("")')
    disk = Disk(root, lies=lambda node, record: not node.is_folder)
    for record in log.records():
        disk.feed(record)
    assert content(disk, "a", "posix", "nothing", 1) == b""
