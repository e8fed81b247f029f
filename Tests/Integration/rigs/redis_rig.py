"""Real redis-servers on loopback for fault tests: a Redis Cluster, or one primary with its replicas.

    with RedisRig() as rig:                       three primaries in cluster mode with a replica each
    with RedisRig(is_cluster=False) as rig:       one primary with one replica, not in cluster mode
    python redis_rig.py [--plain] [--gates]       runs a rig, prints its nodes as one line of JSON, reads orders as lines

Each server has its own folder in one temporary folder, and free ports. With `gates=True` a cutting proxy is before each server:
clients use it, and the servers connect to each other directly. The end of the block kills every server by its process id and
removes the folder.
"""

import argparse
import contextlib
import itertools
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "parties"))
from gateway import eventually, free_ports  # noqa: E402

SLOT_COUNT = 16_384
# A gate has its server's port on this address, so that the servers' own traffic, which uses 127.0.0.1, bypasses it.
GATE_HOST = "127.0.0.2"
TIMEOUT = 60.0  # the bound of every wait


class ReplyError(Exception):
    """An error reply of a server, such as MOVED or READONLY."""


class Connection:
    """One connection to a server, with the parts of its protocol that tests need."""

    def __init__(self, port, host="127.0.0.1", timeout=5.0, password=None, tls=None):
        self.socket = socket.create_connection((host, port), timeout)
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls:
                self.socket = tls.wrap_socket(self.socket)
            self.file = self.socket.makefile("rb")
            if password:
                self.call("AUTH", password)
        except BaseException:
            self.socket.close()
            raise

    def call(self, *words):
        """Returns the reply: bytes, int, list or None; raises ReplyError for an error."""
        self.send(*words)
        return self.read()

    def send(self, *words):
        parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        head = f"*{len(parts)}\r\n".encode()
        self.socket.sendall(head + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))

    def read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b"-":
            raise ReplyError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            count = int(rest)
            if count < 0:
                return None
            body = self.file.read(count + 2)
            if len(body) != count + 2:
                raise ConnectionError("the server closed the connection")
            return body[:-2]
        if kind == b"*":
            # Nested errors are values, which the caller checks.
            return None if int(rest) < 0 else [self._item() for _ in range(int(rest))]
        raise ConnectionError(f"a reply begins with {kind!r}")

    def _item(self):
        try:
            return self.read()
        except ReplyError as error:
            return error

    def close(self):
        self.file.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def slot_of(key):
    """Returns the slot of a key: CRC16 (XMODEM) of the key, or of the part between its first braces."""
    key = key if isinstance(key, bytes) else key.encode()
    begin = key.find(b"{")
    end = key.find(b"}", begin + 1)
    if begin >= 0 and end > begin + 1:
        key = key[begin + 1 : end]
    crc = 0
    for byte in key:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc % SLOT_COUNT


class Server:
    """One redis-server process with its own folder."""

    def __init__(self, rig, number, port, bus_port, place=None):
        self.rig, self.number, self.port, self.bus_port, self.place = rig, number, port, bus_port, place
        self.host = place.host if place else "127.0.0.1"
        self.folder = rig.folder / f"server-{number}"
        self.folder.mkdir()
        self.process, self.is_stopped, self.identity = None, False, None

    def __repr__(self):
        return f"server {self.number} at {self.port}"

    @property
    def is_running(self):
        return self.process is not None and self.process.poll() is None

    @property
    def client_host(self):
        return GATE_HOST if self.rig.gates else self.host

    @property
    def address(self):
        return f"{self.client_host}:{self.port}"

    def start(self):
        self.launch()
        eventually(self._answers, f"an answer of {self}", TIMEOUT)
        if self.rig.is_cluster:
            self.identity = self.call("CLUSTER", "MYID").decode()

    def launch(self, extra=None):
        """Starts the process with further settings, without waiting for its data to load."""
        words = ["redis-server"]
        for name, value in {**self.rig.settings(self), "dir": str(self.folder), **(extra or {})}.items():
            values = [value] if isinstance(value, str) else value
            words += [f"--{name}", *values]
        if self.place:
            words = self.place.words(words)
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        self.is_stopped = False

    def _answers(self):
        if not self.is_running:
            raise AssertionError(f"{self} ended with {self.process.returncode}:\n{self.log()[-2000:]}")
        try:
            self.call("PING")
            return True
        except ReplyError as error:
            return not str(error).startswith("LOADING")
        except OSError:
            return False

    def log(self):
        return (self.folder / "log").read_text(errors="replace")

    def connect(self, timeout=5.0):
        return Connection(self.port, self.host, timeout, self.rig.password, self.rig.tls_context())

    def call(self, *words, timeout=5.0):
        """Runs one command over a new connection."""
        with self.connect(timeout) as connection:
            return connection.call(*words)

    def info(self, section):
        lines = self.call("INFO", section).decode().split("\r\n")
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def kill(self):
        """Sends SIGKILL: unsynced data stays in the kernel's cache, connections break."""
        if self.process:
            self.process.kill()
            self.process.wait()
            self.is_stopped = False

    def stop(self):
        """Sends SIGSTOP: connections stay open without answers."""
        self.process.send_signal(signal.SIGSTOP)
        self.is_stopped = True

    def resume(self):
        self.process.send_signal(signal.SIGCONT)
        self.is_stopped = False


def reset(one):
    """Ends a socket so that the other side gets RST, and a thread that waits on it wakes up."""
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    with contextlib.suppress(OSError):
        # close() alone wakes no thread.
        one.shutdown(socket.SHUT_RDWR)
    one.close()


class _Pair:
    """A connection through a gate: the client's socket and the server's."""

    def __init__(self, near, far):
        self.near, self.far, self.open_ways = near, far, 2

    def reset(self):
        reset(self.near)
        reset(self.far)


class Gate:
    """A TCP proxy that can cut, hold and delay traffic; one thread per direction of a connection.

    - `cut()`: open connections end with RST, new ones are refused.
    - `hold()`: nothing passes and new connections wait, as when a network drops packets; `heal()` releases all of it.
    - `delay`: seconds that each piece waits, one way.
    """

    def __init__(self, target_port, port=0, host="127.0.0.1", target_host="127.0.0.1"):
        self.target, self.host, self.delay = (target_host, target_port), host, 0.0
        self._open, self._lock, self._pairs = threading.Event(), threading.Lock(), set()
        self._open.set()
        self._listener = None
        self.port = port
        self.is_ended = False
        self._listen()

    @property
    def address(self):
        return f"{self.host}:{self.port}"

    def _listen(self):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((self.host, self.port))
        listener.listen(128)
        self.port, self._listener = listener.getsockname()[1], listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener):
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near, listener), daemon=True).start()

    def await_passage(self, near):
        """Waits until traffic may pass on the connection of this client."""
        self._open.wait()

    def _serve(self, near, listener):
        self.await_passage(near)
        try:
            far = socket.create_connection(self.target, 5)
        except OSError:
            reset(near)
            return
        far.settimeout(None)
        for one in (near, far):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pair = _Pair(near, far)
        with self._lock:
            is_late = self._listener is not listener
            if not is_late:
                self._pairs.add(pair)
        if is_late:
            pair.reset()
            return
        back = threading.Thread(target=self._pump, args=(far, near, pair), daemon=True)
        back.start()
        self._pump(near, far, pair)

    def _pump(self, source, sink, pair):
        try:
            while True:
                piece = source.recv(65_536)
                if self.delay:
                    time.sleep(self.delay)
                self.await_passage(pair.near)
                if not piece:
                    sink.shutdown(socket.SHUT_WR)
                    break
                sink.sendall(piece)
        except OSError:
            pair.open_ways = 0
        with self._lock:
            # The first direction that ends normally leaves the other one open.
            pair.open_ways -= 1
            if pair.open_ways > 0:
                return
            self._pairs.discard(pair)
        pair.reset()

    def reset(self):
        """Resets the open connections; new ones are served."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            pair.reset()

    def cut(self):
        with self._lock:
            listener, self._listener = self._listener, None
        if listener:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.reset()
        self._open.set()

    def hold(self):
        self._open.clear()

    def heal(self):
        self.delay = 0.0
        self._open.set()
        if not self._listener and not self.is_ended:
            self._listen()

    def close(self):
        self.is_ended = True
        self.cut()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def shipped_settings():
    """Returns the lines of deploy/redis/redis.conf, which operators use."""
    page = pathlib.Path(__file__).resolve().parents[3] / "deploy" / "redis" / "redis.conf"
    lines = [line.split(None, 1) for line in page.read_text().splitlines() if line and not line.startswith("#")]
    return {name: value.strip('"') for name, value in lines}


class RedisRig:
    """Servers connected as a cluster, or as one primary with replicas; see the module docstring."""

    def __init__(
        self, primaries=3, replicas=1, is_cluster=True, gates=False, node_timeout=2_000, password=None, tls=None,
        extra=None, places=None,
    ):
        """Configures the rig.

        `extra` are further settings of each server; `tls` is (certificate, key, context of clients); `places` are the servers'
        places (network.py).
        """
        primaries = primaries if is_cluster else 1
        self.primary_count, self.replica_count, self.is_cluster = primaries, replicas, is_cluster
        self.node_timeout, self.password, self.tls = node_timeout, password, tls
        self.extra, self.gates, self.servers, self.places = extra or {}, {}, [], places
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="longwire-redis-"))
        if gates:
            self.gates = dict.fromkeys(range(primaries * (1 + replicas)))

    def tls_context(self):
        return self.tls[2] if self.tls else None

    def settings(self, server):
        """Returns the server's settings, by the names of redis.conf."""
        port = "tls-port" if self.tls else "port"
        settings = {
            **shipped_settings(), "bind": server.host, "protected-mode": "no", "port": "0", port: str(server.port),
            "daemonize": "no", "maxmemory": "1gb", "loglevel": "notice", "shutdown-timeout": "0", "databases": "1",
        }
        if not self.is_cluster:
            settings = {name: value for name, value in settings.items() if not name.startswith("cluster-")}
        if self.tls:
            settings |= {
                "tls-cert-file": str(self.tls[0]), "tls-key-file": str(self.tls[1]), "tls-ca-cert-file": str(self.tls[0]),
                "tls-auth-clients": "no", "tls-replication": "yes", "tls-cluster": "yes"}
        if self.password:
            settings |= {"requirepass": self.password, "masterauth": self.password}
        if self.is_cluster:
            settings |= {
                "cluster-config-file": "nodes.conf", "cluster-port": str(server.bus_port),
                "cluster-node-timeout": str(self.node_timeout)}
            if self.gates:
                settings |= {
                    "cluster-announce-hostname": GATE_HOST, "cluster-preferred-endpoint-type": "hostname"}
        return {**settings, **self.extra}

    # Set-up

    def make_gate(self, server):
        return Gate(server.port, server.port, GATE_HOST)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        for gate in self.gates.values():
            if gate:
                gate.close()
        for server in self.servers:
            server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self):
        count = self.primary_count * (1 + self.replica_count)
        ports = free_ports(2 * count)
        for number in range(count):
            place = self.places[number] if self.places else None
            server = Server(self, number, ports[number], ports[count + number], place)
            self.servers.append(server)
            server.start()
            if number in self.gates:
                self.gates[number] = self.make_gate(server)
        if self.is_cluster:
            self._form_cluster()
        else:
            for server in self.servers[1:]:
                server.call("REPLICAOF", self.servers[0].host, self.servers[0].port)
        self.wait_until_ok()
        return self

    def _form_cluster(self):
        first = self.servers[: self.primary_count]
        for number, server in enumerate(first):
            begin = SLOT_COUNT * number // len(first)
            server.call("CLUSTER", "ADDSLOTSRANGE", begin, SLOT_COUNT * (number + 1) // len(first) - 1)
            server.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        # CLUSTER MEET for each pair of servers, because gossip takes longer.
        for one, other in itertools.combinations(self.servers, 2):
            one.call("CLUSTER", "MEET", other.host, other.port, other.bus_port)
        for number, server in enumerate(self.servers[self.primary_count :]):
            primary = first[number % len(first)]

            def join(server=server, primary=primary):
                try:
                    return server.call("CLUSTER", "REPLICATE", primary.identity)
                except ReplyError:
                    return None

            eventually(join, f"that {server} knows {primary}", TIMEOUT)

    def wait_until_ok(self, timeout=TIMEOUT):
        """Waits until all running servers agree on the map, and every replica follows its primary."""
        eventually(self.is_ok, f"agreement of the rig's servers ({self.folder})", timeout)

    def is_ok(self):
        running = [server for server in self.servers if server.is_running and not server.is_stopped]
        try:
            if not all(self._follows(server) for server in running):
                return False
            return not self.is_cluster or len({self._view(server) for server in running}) == 1
        except (OSError, ReplyError, KeyError):
            return False

    @staticmethod
    def _follows(server):
        """Returns whether a primary's replicas are all online, or a replica's link is up."""
        info = server.info("replication")
        if info["role"] == "slave":
            return info["master_link_status"] == "up" and info["master_sync_in_progress"] == "0"
        replicas = [value for name, value in info.items() if name.startswith("slave") and name[5:].isdigit()]
        return all("state=online" in replica for replica in replicas)

    def _view(self, server):
        """Returns the slots of each node from the server's view; raises KeyError if it sees no complete cluster."""
        state = dict(line.split(":", 1) for line in server.call("CLUSTER", "INFO").decode().split("\r\n") if ":" in line)
        if state["cluster_state"] != "ok" or state["cluster_slots_ok"] != str(SLOT_COUNT):
            raise KeyError("slots")
        owners = []
        for fields in self._nodes(server):
            flags = fields[2].split(",")
            name = next((one for one in self.servers if one.identity == fields[0]), None)
            is_up = name is not None and name.is_running and not name.is_stopped
            if is_up and ("fail" in flags or "fail?" in flags or "handshake" in flags):
                raise KeyError(fields[0])
            if is_up or "master" in flags and len(fields) > 8:
                owners.append((fields[0], "master" in flags, fields[3], *[one for one in fields[8:] if one[0] != "["]))
        if len({owner[0] for owner in owners}) < len([one for one in self.servers if one.is_running and not one.is_stopped]):
            raise KeyError("members")
        return tuple(sorted(owners))

    @staticmethod
    def _nodes(server):
        return [line.split(" ") for line in server.call("CLUSTER", "NODES").decode().splitlines()]

    # Roles

    @property
    def nodes(self):
        """Returns addresses for a gateway's configuration."""
        return [server.address for server in self.servers]

    def primaries(self):
        """Returns running servers that report the primary role (with slots, in a cluster), ordered by number."""
        found = []
        for server in self.servers:
            if not server.is_running or server.is_stopped:
                continue
            with contextlib.suppress(OSError, ReplyError):
                if server.info("replication")["role"] != "master":
                    continue
                if self.is_cluster and not any(
                    "myself" in fields[2] and len(fields) > 8 for fields in self._nodes(server)
                ):
                    continue
                found.append(server)
        return found

    def replicas_of(self, primary):
        """Returns running servers that follow this one."""
        found = []
        for server in self.servers:
            if server.is_running and not server.is_stopped and server is not primary:
                info = server.info("replication")
                if info["role"] == "slave" and int(info["master_port"]) == primary.port:
                    found.append(server)
        return found

    def primary_of(self, key):
        """Returns the server that has this key's slot according to most running servers."""
        if not self.is_cluster:
            return self.primaries()[0]
        slot = slot_of(key)
        for server in self.primaries():
            fields = next(fields for fields in self._nodes(server) if "myself" in fields[2])
            for span in fields[8:]:
                if span[0] != "[":
                    begin, _, end = span.partition("-")
                    if int(begin) <= slot <= int(end or begin):
                        return server
        raise AssertionError(f"nobody has slot {slot}")

    def call(self, *words, key):
        return self.primary_of(key).call(*words)

    def keys(self):
        return [key for server in self.primaries() for key in server.call("KEYS", "*", timeout=TIMEOUT)]

    # Faults

    def kill(self, server):
        server.kill()

    def restart(self, server):
        """Starts a killed server on its folder again; the others determine its role."""
        if server.is_running:
            server.kill()
        server.start()
        if not self.is_cluster:
            # No server demotes it automatically, and it must not stay a second primary.
            others = [one for one in self.primaries() if one is not server]
            if others:
                server.call("REPLICAOF", others[0].host, others[0].port)

    def failover(self, replica=None, option=None):
        """Runs CLUSTER FAILOVER on a replica (any by default) until it is the primary; returns it."""
        replica = replica or next(one for primary in self.primaries() for one in self.replicas_of(primary))
        if not self.is_cluster:
            return self.promote(replica)

        def is_primary():
            if replica in self.primaries():
                return True
            with contextlib.suppress(ReplyError, OSError):
                # An attempt ends automatically if the others do not vote in time.
                replica.call("CLUSTER", "FAILOVER", *([option] if option else []))
            time.sleep(0.1)
            return False

        eventually(is_primary, f"that {replica} takes over", TIMEOUT)
        return replica

    def promote(self, replica):
        """Without cluster mode: makes a replica the primary, and the current primary its replica if it runs."""
        others = [server for server in self.servers if server is not replica and server.is_running and not server.is_stopped]
        if others and self.primaries():
            # Writes are paused from here on, so that both have the same data when they exchange their roles.
            primary = self.primaries()[0]
            primary.call("CLIENT", "PAUSE", 10_000, "WRITE")
            offset = int(primary.info("replication")["master_repl_offset"])
            eventually(
                lambda: int(replica.info("replication")["slave_repl_offset"]) >= offset, f"that {replica} has all", TIMEOUT)
        replica.call("REPLICAOF", "NO", "ONE")
        for server in others:
            server.call("REPLICAOF", replica.host, replica.port)
            server.call("CLIENT", "UNPAUSE")
        return replica

    def move_slot(self, slot, target=None, keys_per_step=10):
        """Moves a slot with its keys while clients use it, as redis-cli's reshard does; returns its new server.

        A client gets MOVED, ASK and TRYAGAIN during the move.
        """
        primaries = self.primaries()
        source = next(
            server for server in primaries
            for fields in self._nodes(server) if "myself" in fields[2]
            for span in fields[8:] if span[0] != "["
            and int(span.partition("-")[0]) <= slot <= int(span.partition("-")[2] or span.partition("-")[0]))
        target = target or next(server for server in primaries if server is not source)
        target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.identity)
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.identity)
        secret = ["AUTH", self.password] if self.password else []
        while keys := source.call("CLUSTER", "GETKEYSINSLOT", slot, keys_per_step):
            source.call("MIGRATE", target.host, target.port, "", 0, 10_000, *secret, "KEYS", *keys, timeout=30.0)
        # MIGRATE does not wait for replicas, so a primary that died now would lose the moved keys.
        self.wait_for_copies(target)
        self.wait_for_copies(source)
        for server in [target, source, *[one for one in primaries if one not in (target, source)]]:
            server.call("CLUSTER", "SETSLOT", slot, "NODE", target.identity)
        return target

    def wait_for_copies(self, primary):
        """Waits until the primary's replicas have all its current data."""
        offset = int(primary.info("replication")["master_repl_offset"])
        eventually(
            lambda: all(int(one.info("replication")["slave_repl_offset"]) >= offset for one in self.replicas_of(primary)),
            f"copies of {primary}", TIMEOUT)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plain", action="store_true", help="one primary with replicas, not in cluster mode")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--gates", action="store_true", help="a cutting proxy before each server")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with RedisRig(is_cluster=not options.plain, replicas=options.replicas, gates=options.gates) as rig:
        print(json.dumps({"nodes": rig.nodes, "folder": str(rig.folder)}), flush=True)
        for line in sys.stdin:
            order, *numbers = line.split()
            server = rig.servers[int(numbers[-1])] if numbers else None
            if order == "kill":
                rig.kill(server)
            elif order == "stop":
                server.stop()
            elif order == "resume":
                server.resume()
            elif order == "restart":
                rig.restart(server)
            elif order == "failover":
                rig.failover(server)
            elif order == "move":
                rig.move_slot(int(numbers[0]), server)
            elif order in ("cut", "hold", "heal"):
                getattr(rig.gates[server.number], order)()
            elif order == "wait":
                rig.wait_until_ok()
            elif order == "primaries":
                print(json.dumps([one.number for one in rig.primaries()]), flush=True)
                continue
            else:
                print(json.dumps({"unknown": order}), flush=True)
                continue
            print(json.dumps({"done": order}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
