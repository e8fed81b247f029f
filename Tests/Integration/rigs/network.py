"""The places of a rig's processes, and cuts in their network: namespaces on one bridge, or loopback.

    with network() as net:
        place = net.place("gateway-1")
        subprocess.Popen(place.words(["redis-server", …]))   # listens on place.host
        net.sever(place, other)                              # drops all packets between the two, without a reset
        net.join(place, other)

Namespaces need `inside()`: the program restarts itself in a separate network namespace, so that the rig is invisible from
outside. If the machine forbids that, all places are on loopback and `Loopback` cuts connections at its gates.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

from redis_rig import Gate

INSIDE = "LONGWIRE_RIG_NAMESPACE"
SUBNET = "10.77.0"
NOBODY = "02:00:00:00:de:ad"  # no interface has this address, so the bridge delivers such a frame to none


def ip(*words, inside=None):
    prefix = ["nsenter", "-t", str(inside), "-n"] if inside else []
    subprocess.run([*prefix, "ip", *words], check=True, capture_output=True, text=True)


def _unshare():
    return ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]


def is_allowed():
    """Returns whether this machine allows namespaces and a bridge between two of them."""
    if not all(shutil.which(tool) for tool in ("unshare", "nsenter", "ip")):
        return False
    script = "ip link add rig type bridge && ip link add one type veth peer name two && unshare --net true"
    done = subprocess.run([*_unshare(), "sh", "-c", script], capture_output=True, check=False)
    return done.returncode == 0


def inside():
    """Restarts this program in a new namespace if that is allowed and has not happened."""
    if INSIDE not in os.environ and is_allowed():
        sys.stdout.flush()
        os.execvpe("unshare", [*_unshare(), sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})


def network():
    return Namespaces() if os.environ.get(INSIDE) else Loopback()


class Place:
    """The address on which a process listens, and the command that starts it there."""

    def __init__(self, name, host, holder=None):
        self.name, self.host, self.holder = name, host, holder
        self.is_of = lambda pid: False  # on loopback: whether a process belongs to this place

    def __repr__(self):
        return self.name

    def words(self, words):
        return ["nsenter", "-t", str(self.holder.pid), "-n", *words] if self.holder else list(words)


class Namespaces:
    """Each place has a namespace, an address and a link to a common bridge."""

    cuts_servers = True  # traffic between servers can be cut, too

    def __init__(self):
        self.places, self.host = [], f"{SUBNET}.1"

    def __enter__(self):
        ip("link", "set", "lo", "up")
        ip("link", "add", "rig", "type", "bridge")
        ip("addr", "add", f"{self.host}/24", "dev", "rig")
        ip("link", "set", "rig", "up")
        return self

    def __exit__(self, *_):
        # A namespace ends with its last process.
        for place in self.places:
            place.holder.kill()
            place.holder.wait()
            place.holder.stdin.close()

    def place(self, name, forwarded=()):
        """Creates a place; `forwarded` are ports of this program's side that the place also finds on its own loopback."""
        number = len(self.places) + 2
        words = [sys.executable, str(pathlib.Path(__file__).resolve()), self.host, *map(str, forwarded)]
        # The holder keeps the namespace open, and ends with this program.
        holder = subprocess.Popen(["unshare", "--net", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        place = Place(name, f"{SUBNET}.{number}", holder)
        self.places.append(place)
        if holder.stdout.readline() != "held\n":
            raise AssertionError(f"no namespace for {name}")
        holder.stdout.close()
        near = f"rig{number}"
        ip("link", "add", near, "type", "veth", "peer", "name", "cable", "netns", str(holder.pid))
        ip("link", "set", near, "master", "rig", "up")
        ip("link", "set", "lo", "up", inside=holder.pid)
        ip("addr", "add", f"{place.host}/24", "dev", "cable", inside=holder.pid)
        ip("link", "set", "cable", "up", inside=holder.pid)
        return place

    def sever(self, one, other):
        for near, far in ((one, other), (other, one)):
            ip("neigh", "replace", far.host, "lladdr", NOBODY, "nud", "permanent", "dev", "cable", inside=near.holder.pid)

    def join(self, one, other):
        for near, far in ((one, other), (other, one)):
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("neigh", "del", far.host, "dev", "cable", inside=near.holder.pid)


class Loopback:
    """All places share this machine's loopback; a gate can block connections by their source place."""

    cuts_servers = False

    def __init__(self):
        self.host, self.gates, self.severed, self.places = "127.0.0.1", {}, set(), []
        self.moved = threading.Condition()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for gate in self.gates.values():
            gate.close()

    def place(self, name, forwarded=()):
        place = Place(name, "127.0.0.1")
        self.places.append(place)
        return place

    def gate(self, place, target_port, port=0, host="127.0.0.1"):
        """Creates a proxy before a port of the place that blocks all traffic with severed places."""
        gate = self.gates[place.name] = _Wall(self, place, target_port, port, host)
        return gate

    def sever(self, one, other):
        with self.moved:
            self.severed |= {(one.name, other.name), (other.name, one.name)}

    def join(self, one, other):
        with self.moved:
            self.severed -= {(one.name, other.name), (other.name, one.name)}
            self.moved.notify_all()

    def wait(self, one, other):
        with self.moved:
            self.moved.wait_for(lambda: (one, other) not in self.severed)

    def place_of(self, peer):
        """Returns the name of the place whose process has the socket with this address."""
        port = f":{peer[1]:04X}"
        for line in pathlib.Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(port) and fields[9] != "0":
                return next((one.name for one in self.places if one.is_of(int(fields[9]))), "")
        return ""


def has_socket(pid, inode):
    folder = pathlib.Path(f"/proc/{pid}/fd")
    with contextlib.suppress(OSError):
        for link in folder.iterdir():
            with contextlib.suppress(OSError):
                if re.fullmatch(rf"socket:\[{inode}\]", os.readlink(link)):
                    return True
    return False


class _Wall(Gate):
    def __init__(self, net, place, target_port, port, host):
        self.net, self.place, self.sources = net, place, {}
        super().__init__(target_port, port, host)

    def await_passage(self, near):
        super().await_passage(near)
        if near not in self.sources:
            with contextlib.suppress(OSError):
                self.sources[near] = self.source(near.getpeername())
        self.net.wait(self.sources.get(near, ""), self.place.name)

    def source(self, peer):
        """Returns the place that has connected. The kernel's table may omit a socket while others change."""
        for _ in range(4):
            name = self.net.place_of(peer)
            if name:
                break
            time.sleep(0.01)
        return name


def hold():
    """Runs in a place's namespace: holds it open, and forwards connections to these ports of its loopback."""
    host, *ports = sys.argv[1:]
    print("held", flush=True)
    # The loopback interface is up later, but its address can already be bound.
    gates = [Gate(int(port), int(port), target_host=host) for port in ports]
    sys.stdin.read()
    for gate in gates:
        gate.close()


if __name__ == "__main__":
    hold()
