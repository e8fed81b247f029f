"""Several gateways of one cluster on a rig of Redis servers; as a program (`make cluster`) it runs three for interactive use.

    with RedisRig() as rig, Cluster(rig) as cluster:
        cluster[0].push(…)   # each is a Gateway of its own ports
"""

import contextlib
import pathlib
import signal
import socket
import sys
import time
import uuid

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "parties"))
from gateway import ADMIN_TOKEN, APP, Gateway, Refused, binary, eventually, free_ports  # noqa: E402
from network import Place  # noqa: E402

SECRET = "integration-cluster-secret-0123456789abcdef"


class Cluster:
    """`count` gateways of one cluster; it has few partitions, so that each gateway has some and a takeover moves several."""

    def __init__(self, rig, count=3, parts=8, limits=None, sections=None, places=None, **options):
        self.rig, self.parts, self.name = rig, parts, "t" + uuid.uuid4().hex[:12]
        self.options = {"limits": limits, "loops": 1, **options}
        self.extra, self.places = sections or {}, places
        self.gateways = [self.make(number) for number in range(count)]

    def make(self, number):
        gateway = Gateway(**self.options, place=self.places[number] if self.places else None)
        (gateway.cluster_port,) = free_ports(1)
        gateway._secret("cluster", SECRET)
        gateway.sections["store"] = {
            "path": str(gateway.folder / "data"),
            "redis": {"nodes": [server.address for server in self.rig.servers[:3]], "minReplicas": 1}}
        gateway.sections["cluster"] = {
            "name": self.name, "parts": self.parts, "listen": f"{gateway.host}:{gateway.cluster_port}",
            "secretFile": str(gateway.folder / "cluster"), **self.extra}
        return gateway

    def __enter__(self):
        try:
            for gateway in self.gateways:
                gateway.__enter__()
            self.wait_until_served()
            # A gateway that started later gets its share from the others. Calls for a moving partition are refused as retryable.
            eventually(self.is_even, f"an even share for each gateway of {self.name}", 60.0)
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        for gateway in self.gateways:
            gateway.__exit__()

    def __getitem__(self, number):
        return self.gateways[number]

    def __iter__(self):
        return iter(self.gateways)

    @property
    def running(self):
        return [one for one in self.gateways if one.process and one.process.poll() is None]

    def map_of(self, gateway):
        """Returns the gateway of each partition from this gateway's view."""
        return gateway.admin_call("GET", "/v1/cluster")

    def owners(self, gateway=None):
        """Returns the node of each open partition in order; None for a partition without an owner."""
        gateway = gateway or self.running[0]
        return [part.get("node") if part.get("state") == "open" else None for part in self.map_of(gateway)["parts"]]

    def is_even(self):
        """Returns whether the gateways' numbers of partitions differ by at most one."""
        owners = self.owners()
        counts = [owners.count(node) for node in set(owners)]
        return None not in owners and len(counts) == min(len(self.running), self.parts) and max(counts) - min(counts) <= 1

    def wait_until_served(self, timeout=60.0):
        """Waits until every partition is served, and every running gateway knows its owner."""

        def look():
            try:
                maps = [self.owners(one) for one in self.running]
            except (OSError, Refused):
                return False
            return all(None not in one for one in maps) and len({tuple(one) for one in maps}) == 1

        eventually(look, f"owners of all parts of {self.name}", timeout)


def retried(call, timeout=30.0):
    """Repeats a call while it is refused as retryable, because a partition may be changing its owner."""
    end = time.monotonic() + timeout
    while True:
        try:
            return call()
        except Refused as refused:
            if time.monotonic() > end or refused.status not in (429, 500, 503) and not is_busy(refused):
                raise
            time.sleep(0.05)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def is_busy(refused):
    return isinstance(refused.body, dict) and "retry" in str(refused.body.get("msg", "")).lower()


def documented_ports():
    """Stands in for `free_ports`: gateway N has 7100 + 10 N and the next five, unless another program has one of them."""
    base, others = [7110], free_ports

    def take(count):
        first = base[0] if count > 1 else base[0] + 5
        if count == 1:
            base[0] += 10
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    one = stack.enter_context(socket.socket())
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    one.bind(("127.0.0.1", port))
                return list(range(first, first + count))
            except OSError:
                return others(count)

    return take


class Bound(Place):
    """This machine's loopback; a process started there ends with this program, however it ends."""

    def words(self, words):
        return ["setpriv", "--pdeathsig", "KILL", *words]


def end_on_signals():
    """Ends the program through its blocks, once, on Ctrl-C, a closed terminal and SIGTERM; later signals are ignored."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def end(*_):
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        sys.exit(0)

    for number in numbers:
        signal.signal(number, end)


def main():
    """Runs three gateways over three primaries with a replica each, until the first signal."""
    import gateway as gateways
    from redis_rig import RedisRig

    end_on_signals()
    print("Starting six Redis servers and three gateways …", flush=True)
    here = Bound("here", "127.0.0.1")
    with RedisRig(places=[here] * 6) as rig:
        gateways.free_ports = globals()["free_ports"] = documented_ports()
        with Cluster(rig, parts=16, places=[here] * 3) as cluster:
            show(cluster)
            while True:
                signal.pause()


def show(cluster):
    tool = binary("longwire")
    for number, gateway in enumerate(cluster):
        print(
            f"gateway {number + 1}: pid {gateway.process.pid}, devices 127.0.0.1:{gateway.device}, "
            f"http 127.0.0.1:{gateway.http}, admin 127.0.0.1:{gateway.admin}, log {gateway.folder / 'log'}")
    first, second, third = cluster
    print(f"""
In a second terminal, be a device at the first gateway:
  export LONGWIRE_APP_ID={APP['appId']} LONGWIRE_APP_KEY={APP['appKey']} LONGWIRE_APP_SECRET={APP['appSecret']}
  export LONGWIRE_MASTER_SECRET={APP['masterSecret']} LONGWIRE_ADMIN_TOKEN={ADMIN_TOKEN}
  {tool} connect --host 127.0.0.1 --port {first.device}
In a third, with the same two lines of export, push to it through the second, with the cid that connect printed:
  {tool} push --http 127.0.0.1:{second.http} --cid CID --payload hello
See who serves what, through the third:
  {tool} cluster status --admin 127.0.0.1:{third.admin}
Then kill -9 {second.process.pid}, look again, and push through the third:
  {tool} push --http 127.0.0.1:{third.http} --cid CID --payload 'still here'
docs/use/Cluster.md continues from here. The console: http://127.0.0.1:{first.admin}/console
Ctrl-C ends all of it.""", flush=True)


if __name__ == "__main__":
    main()
