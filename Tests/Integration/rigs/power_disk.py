"""A disk after a power failure: the possible contents of a folder, from the log that `shim/power.c` wrote.

`Log` is the shim's log. `Disk` reads it up to an instant and tracks for each file and folder which changes were synced and which
were only written. `Disk.cut` chooses at random which of the unsynced changes are on the disk, and `State.write` creates a folder
from that. The choice is one that the rules allow:

- data of a file since its last sync: each page or sector as at any moment since that sync; or none of it; or all of it;
  or the writes up to some moment; the same for its length;
- names, by `ext4`: one journal has all of them, so the changes up to some moment are there. The sync of a file or folder
  includes everything up to its own last change, and its creation or new name;
- names, by `posix`: only a sync of its folder makes a name certain. Other names may be there, in any order. The changes
  of one file, or under one name, keep their order.
"""

import bisect
import collections
import mmap
import os
import pathlib
import shutil
import struct
import subprocess
import time

PAGE, SECTOR = 4096, 512
RULES = ("ext4", "posix")
MODES = ("nothing", "everything", "pages", "sectors", "prefix")
KINDS = (
    "none", "start", "create", "write", "truncate", "allocate", "rename", "link", "unlink", "makeFolder",
    "removeFolder", "syncBegins", "syncEnds")
IS_ZERO, IS_DATA_ONLY = 1, 2
HEAD = struct.Struct("<IBBHQQQ")
Record = collections.namedtuple("Record", "position end kind flags inode offset length names data")


def compile_shim(folder):
    library = pathlib.Path(folder) / "power.so"
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))))
    source = pathlib.Path(__file__).parent / "shim/power.c"
    subprocess.run([compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


class Log:
    """The shim's log; the processes that write it are started with `environment`."""

    def __init__(self, path, byte_count=8 << 30):
        self.path = pathlib.Path(path)
        is_new = not self.path.exists()
        self.file = open(self.path, "a+b")
        if is_new:
            self.file.truncate(byte_count)
        self.memory = mmap.mmap(self.file.fileno(), 0)
        if is_new:
            self.memory[:32] = b"LWPOWER1" + struct.pack("<QQQ", PAGE, 0, 0)

    def environment(self, library, folder, sync_microseconds):
        return {
            "LD_PRELOAD": str(library), "LONGWIRE_POWER_FOLDER": str(folder), "LONGWIRE_POWER_LOG": str(self.path),
            "LONGWIRE_POWER_SYNC_MICROSECONDS": str(sync_microseconds)}

    @property
    def position(self):
        """Returns the log's position: a party that reads it after an answer knows that the answer came no later."""
        return struct.unpack_from("<Q", self.memory, 8)[0]

    def kill(self, process, in_sync=False):
        """Sends SIGKILL between two changes, so that the folder matches the log; `in_sync`: during a commit."""
        end = time.monotonic() + 5
        struct.pack_into("<Q", self.memory, 16, 2 if in_sync else 1)
        while struct.unpack_from("<Q", self.memory, 16)[0] == 2 and time.monotonic() < end:
            time.sleep(0.001)
        struct.pack_into("<Q", self.memory, 16, 1)
        while struct.unpack_from("<Q", self.memory, 24)[0] and process.poll() is None:
            time.sleep(0.001)
        process.kill()
        process.wait()
        struct.pack_into("<QQ", self.memory, 16, 0, 0)

    def records(self, position=PAGE):
        end = self.position
        view = memoryview(self.memory)
        while position < end:
            count, kind, flags, names, inode, offset, length = HEAD.unpack_from(self.memory, position)
            start = position + HEAD.size
            texts = tuple(self.memory[start : start + names].split(b"\0")[:-1]) if names else ()
            is_data = KINDS[kind] == "write" and not flags & IS_ZERO
            data = view[start + names : start + names + length] if is_data else None
            yield Record(
                position, position + count, KINDS[kind], flags, inode, offset, length,
                tuple(text.decode() for text in texts), data)
            position += count

    def close(self):
        self.file.close()


class File:
    """The synced content, and the later changes in order."""

    is_folder = False

    def __init__(self, name):
        self.name, self.pages, self.size = name, {}, 0
        self.pending, self.pending_size = [], 0
        self.changes = []  # (position, whether fdatasync includes it) of its changes in the file system's journal

    def change(self, record):
        if record.kind == "write":
            new_size = max(self.pending_size, record.offset + record.length)
        elif record.kind == "allocate":
            new_size = max(self.pending_size, record.offset + record.length)
        else:
            new_size = record.length
        self.changes.append((record.position, new_size != self.pending_size))
        self.pending_size = new_size
        self.pending.append(record)

    def synced(self, began):
        count = bisect.bisect_left(self.pending, began, key=lambda record: record.position)
        for record in self.pending[:count]:
            self.size = apply(record, self.pages, self.size)
        del self.pending[:count]

    def content(self, mode, chance, until):
        """Returns possible pages and length."""
        if not self.pending or mode == "nothing":
            return self.pages, self.size
        pages, size = dict(self.pages), self.size
        if mode in ("everything", "prefix"):
            for record in self.pending:
                if mode == "everything" or record.position < until:
                    size = apply(record, pages, size)
            return pages, size
        unit = PAGE if mode == "pages" else SECTOR
        # A write after a truncation can be there only if the truncation is.
        epochs = [[]]
        for record in self.pending:
            if record.kind == "truncate" and record.length < size:
                epochs.append([])
            epochs[-1].append(record)
        for epoch in epochs[: chance.randrange(len(epochs)) + 1]:
            size = self.some(epoch, pages, size, unit, chance)
        return pages, size

    @staticmethod
    def some(records, pages, size, unit, chance):
        """Applies any of these changes to each page or sector, and to the length."""
        sizes, inclination, stops = [size], chance.choice((0.1, 0.5, 0.9)), {}
        for index, record in enumerate(records):
            if record.kind == "truncate" and record.length < size:
                size = apply(record, pages, size)
                sizes = [size]
                continue
            sizes.append(max(sizes[-1], record.offset + record.length) if record.kind != "truncate" else record.length)
            if record.kind != "write":
                continue
            position, end = record.offset, record.offset + record.length
            while position < end:
                number = position // unit
                stop = min(end, (number + 1) * unit)
                if record.data is None and position // PAGE not in pages:
                    position = stop
                    continue
                if number not in stops:
                    stops[number] = (
                        len(records) if chance.random() < inclination else chance.randrange(len(records) + 1))
                if index < stops[number]:
                    data = record.data
                    part = None if data is None else data[position - record.offset : stop - record.offset]
                    patch(pages, position, stop - position, part)
                position = stop
        return chance.choice((sizes[-1], sizes[-1], chance.choice(sizes)))


class Folder:
    is_folder = True

    def __init__(self, name):
        self.name = name
        self.names = {}  # as the process sees them
        self.synced_names = {rules: {} for rules in RULES}
        self.changes = []


# A change of names: `effects` are (folder, name, file or None).
Change = collections.namedtuple("Change", "position effects node")


def patch(pages, position, count, data):
    """Writes bytes, or zeros for None, within one page."""
    number, start = divmod(position, PAGE)
    page = pages.get(number)
    if count == PAGE:
        if data is None:
            pages.pop(number, None)
        else:
            pages[number] = bytes(data)
        return
    if page is None:
        if data is None:
            return
        page = bytes(PAGE)
    pages[number] = page[:start] + (bytes(data) if data is not None else bytes(count)) + page[start + count :]


def apply(record, pages, size):
    """Applies a change; returns the new length."""
    if record.kind == "allocate":
        return max(size, record.offset + record.length)
    if record.kind == "truncate":
        if record.length < size:
            cut(pages, record.length)
        return record.length
    position, end = record.offset, record.offset + record.length
    while position < end:
        stop = min(end, (position // PAGE + 1) * PAGE)
        if record.data is not None:
            patch(pages, position, stop - position, record.data[position - record.offset : stop - record.offset])
        elif position // PAGE in pages:
            patch(pages, position, stop - position, None)
        position = stop
    return max(size, end)


def cut(pages, size):
    for number in [number for number in pages if number * PAGE >= size]:
        del pages[number]
    if size % PAGE and size // PAGE in pages:
        patch(pages, size, PAGE - size % PAGE, None)


class Disk:
    """The disk's state; `feed` it records in order. `lies` is called for each completed sync and returns true to lose it."""

    def __init__(self, root, lies=None):
        self.root, self.lies = str(root).rstrip("/"), lies
        self.top = Folder("")
        self.inodes = {}
        self.pending = {rules: [] for rules in RULES}
        self.counts = collections.Counter()
        self.position = PAGE

    def load(self):
        """Treats the root folder's current content as synced."""
        self.adopt(self.top, self.root)

    def adopt(self, folder, path):
        self.inodes[os.stat(path).st_ino] = folder
        for entry in os.scandir(path):
            inode = entry.stat(follow_symlinks=False).st_ino
            name = f"{folder.name}/{entry.name}".lstrip("/")
            node = self.inodes.get(inode)
            if node is None:
                node = Folder(name) if entry.is_dir() else File(name)
                self.inodes[inode] = node
                if entry.is_dir():
                    self.adopt(node, entry.path)
                else:
                    content = pathlib.Path(entry.path).read_bytes()
                    for start in range(0, len(content), PAGE):
                        page = content[start : start + PAGE]
                        if page.strip(b"\0"):
                            node.pages[start // PAGE] = page.ljust(PAGE, b"\0")
                    node.size = node.pending_size = len(content)
            folder.names[entry.name] = node
            for rules in RULES:
                folder.synced_names[rules][entry.name] = node

    # The log

    def place(self, path):
        """Returns the folder and the name of a path, as the process sees it."""
        assert path.startswith(self.root + "/"), path
        *folders, name = [part for part in path[len(self.root) :].split("/") if part]
        folder = self.top
        for part in folders:
            folder = folder.names[part]
        return folder, name

    def feed(self, record):
        self.position = record.end
        kind = record.kind
        self.counts[kind] += 1
        if kind == "start":
            self.inodes[record.inode] = self.top
        elif kind in ("write", "truncate", "allocate"):
            self.inodes[record.inode].change(record)
        elif kind in ("create", "makeFolder"):
            folder, name = self.place(record.names[0])
            path = f"{folder.name}/{name}".lstrip("/")
            node = self.inodes[record.inode] = Folder(path) if kind == "makeFolder" else File(path)
            self.rename(record, node, (folder, name, node))
        elif kind == "rename":
            (source, old), (target, new) = map(self.place, record.names)
            node = source.names[old]
            if target.names.get(new) is node:
                return  # two names of one file: nothing happens
            node.name = f"{target.name}/{new}".lstrip("/")
            self.rename(record, node, (source, old, None), (target, new, node))
        elif kind == "link":
            source, old = self.place(record.names[0])
            folder, name = self.place(record.names[1])
            node = source.names[old]
            node.name = f"{folder.name}/{name}".lstrip("/")
            self.rename(record, node, (folder, name, node))
        elif kind in ("unlink", "removeFolder"):
            folder, name = self.place(record.names[0])
            self.rename(record, folder.names[name], (folder, name, None))
        elif kind == "syncEnds":
            node = self.inodes[record.inode]
            if not (self.lies and self.lies(node, record)):
                self.synced(node, record)

    def rename(self, record, node, *effects):
        change = Change(record.position, effects, node)
        for folder, name, held in effects:
            if held is None:
                del folder.names[name]
            else:
                folder.names[name] = held
        for one in {id(one): one for one in (node, *(effect[0] for effect in effects))}.values():
            # A new name changes a file's inode, its creation its data as well.
            one.changes.append((record.position, one.is_folder or record.kind == "create"))
        for rules in RULES:
            self.pending[rules].append(change)

    def synced(self, node, record):
        began, is_data_only = record.offset, bool(record.flags & IS_DATA_ONLY)
        if not node.is_folder:
            node.synced(began)
        # ext4: the journal up to the last change of this file or folder in it.
        last = max((at for at, is_data in node.changes if at < began and (is_data or not is_data_only)), default=-1)
        rest = [change for change in node.changes if change[0] >= began]
        if is_data_only:
            # Only fsync would have included these changes, so the last one of them is enough.
            rest = [change for change in node.changes if last < change[0] < began][-1:] + rest
        node.changes = rest
        pending = self.pending["ext4"]
        count = bisect.bisect_right(pending, last, key=lambda change: change.position)
        self.settle("ext4", pending[:count])
        del pending[:count]
        # POSIX: the names of a folder that was itself synced.
        if node.is_folder:
            mine, others = [], []
            for change in self.pending["posix"]:
                is_mine = change.position < began and any(effect[0] is node for effect in change.effects)
                (mine if is_mine else others).append(change)
            self.settle("posix", mine)
            self.pending["posix"] = others

    def settle(self, rules, changes):
        for change in changes:
            for folder, name, node in change.effects:
                if node is None:
                    folder.synced_names[rules].pop(name, None)
                else:
                    folder.synced_names[rules][name] = node

    # The instant

    def cut(self, rules, mode, chance):
        """Returns possible disk content if the power fails now."""
        changes = self.chosen(rules, mode, chance)
        names = {}
        for change in changes:
            for folder, name, node in change.effects:
                entries = names.setdefault(id(folder), dict(folder.synced_names[rules]))
                if node is None:
                    entries.pop(name, None)
                else:
                    entries[name] = node
        # For `prefix`: writes up to one moment, for all files the same.
        started = [node.pending[0].position for node in self.inodes.values() if not node.is_folder and node.pending]
        until = chance.randint(min(started), self.position) if started else self.position
        return self.state(
            lambda folder: names.get(id(folder), folder.synced_names[rules]),
            lambda file: file.content(mode, chance, until))

    def chosen(self, rules, mode, chance):
        """Returns unsynced changes of names that are on the disk anyway."""
        pending = self.pending[rules]
        if mode == "nothing":
            return []
        if mode == "everything":
            return pending
        if rules == "ext4":
            return pending[: chance.randint(0, len(pending))]
        kept, lost, inclination = [], set(), chance.choice((0.2, 0.5, 0.8))
        for change in pending:
            marks = {id(change.node)} | {(id(folder), name) for folder, name, _ in change.effects}
            if marks & lost or chance.random() > inclination:
                lost |= marks
            else:
                kept.append(change)
        return kept

    def whole(self):
        """Returns the state as the process saw it last, without any loss."""
        return self.state(lambda folder: folder.names, lambda file: file.content("everything", None, None))

    def state(self, names_of, content_of):
        tree, contents = [], {}

        def list_names(folder, path):
            for name, node in sorted(names_of(folder).items()):
                if node.is_folder:
                    tree.append((f"{path}{name}", node, None))
                    list_names(node, f"{path}{name}/")
                    continue
                # A file under two names has one content.
                if id(node) not in contents:
                    contents[id(node)] = content_of(node)
                tree.append((f"{path}{name}", node, contents[id(node)]))

        list_names(self.top, "")
        return State(tree)


class State:
    """A folder's content: (path, file, (pages, length)) each; folders have None and precede their content."""

    def __init__(self, tree):
        self.tree = tree

    def write(self, root):
        """Creates the folder; a file under two names is one file."""
        root, made = pathlib.Path(root), {}
        root.mkdir(parents=True, exist_ok=True)
        for path, node, content in self.tree:
            if content is None:
                (root / path).mkdir(mode=0o700)
            elif id(node) in made:
                os.link(made[id(node)], root / path)
            else:
                pages, size = content
                with open(root / path, "wb") as file:
                    for number in sorted(pages):
                        if number * PAGE >= size:
                            break
                        file.seek(number * PAGE)
                        file.write(pages[number][: size - number * PAGE])
                    file.truncate(size)
                (root / path).chmod(0o600)
                made[id(node)] = root / path

    def differences(self, root):
        root, found = pathlib.Path(root), []
        there = {str(path.relative_to(root)) for path in root.rglob("*")}
        mine = {path for path, _, _ in self.tree}
        found += [f"{path}: only in the folder" for path in sorted(there - mine)]
        found += [f"{path}: only in the log" for path in sorted(mine - there)]
        for path, _, content in self.tree:
            if content is None or path not in there:
                continue
            pages, size = content
            with open(root / path, "rb") as file:
                length = os.fstat(file.fileno()).st_size
                if length != size:
                    found.append(f"{path}: {length} bytes, {size} in the log")
                    continue
                for number in range((size + PAGE - 1) // PAGE):
                    page = pages.get(number, bytes(PAGE))[: min(PAGE, size - number * PAGE)]
                    if file.read(PAGE) != page:
                        found.append(f"{path}: page {number} differs")
                        break
        return found
