"""Crash rounds of a cluster: three gateways behind a balancer on six Redis servers, under load, with faults everywhere.

    python cluster_rounds.py --rounds 5 --seed 1 --seconds-per-round 6 --json FILE
    python cluster_rounds.py --faults stopGateway,failover …

The parties and the audit are those of rounds.py; the parties connect through a TCP balancer. The faults depend on the seed:
gateways and servers are killed, paused and cut off from each other, primaries change, slots move, gateways are upgraded one after
another. If the machine allows it each process has its own network namespace; otherwise proxies cut connections.
"""

import argparse
import collections
import json
import pathlib
import random
import re
import signal
import shutil
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / folder) for folder in ("parties", "rigs")]

import network  # noqa: E402
from balancer import Balancer  # noqa: E402
from cluster import Cluster  # noqa: E402
from gateway import APP, Gateway, Refused, eventually  # noqa: E402
from party import UNANSWERED  # noqa: E402
from redis_rig import GATE_HOST, RedisRig, ReplyError, slot_of  # noqa: E402
from rounds import HOOK_SECRET, LIMITS, PUSH, Rounds, run  # noqa: E402

COUNT, PARTS = 3, 8
GATEWAY_FAULTS = (
    "killGateway", "stopGateway", "cutFromRedis", "cutFromGateways", "isolateGateway", "upgrade", "drain", "killTwo",
    "movePart")
SERVER_FAULTS = (
    "failover", "killPrimary", "moveSlot", "stopPrimary", "killReplica", "stopReplica", "cutPrimary", "cutReplica",
    "moveGroup", "splitCluster")
# These need a way to cut servers off from each other.
SERVER_CUTS = {"cutPrimary", "cutReplica", "splitCluster"}
SETTLED_SECONDS = 120.0
# The longest wait of a gateway's caller is a list's eight seconds.
ANSWER_SECONDS = 20.0


class Front(Gateway):
    """The cluster as a single gateway whose ports are the balancer's, for the parties."""

    def __init__(self, balancer):
        self.host, self.app, self.process, self._token = "127.0.0.1", {**APP}, None, None
        for name, port in balancer.ports.items():
            setattr(self, name, port)


class ClusterRounds(Rounds):
    def __init__(self, seed, seconds, pace=150, faults=()):
        self.net = network.network()
        self.faults, self.cluster, self.balancer, self.ended = faults, None, None, set()
        super().__init__(seed, seconds, pace)
        self.net_faults = self.net.cuts_servers
        self.lanes = [random.Random(f"{seed} gateways"), random.Random(f"{seed} servers")]
        self.failures, self.lost_lives, self.refused_starts, self.hook_host = [], 0, 0, self.net.host
        self.slowest = 0.0

    # Set-up

    def make_gateway(self):
        return None

    def start_gateways(self):
        self.net.__enter__()
        servers = [self.net.place(f"server-{number}") for number in range(6)]
        gateways = [self.net.place(f"gateway-{number}", [self.hook_port]) for number in range(COUNT)]
        if self.net.cuts_servers:
            self.rig = RedisRig(node_timeout=1_000, places=servers)
        else:
            self.rig = WalledRig(self.net, servers)
        self.rig.__enter__()
        options = {"app": {"maxAttempts": 20, "push": PUSH}, "places": gateways}
        self.cluster = Cluster(self.rig, COUNT, PARTS, limits=LIMITS, **options)
        for gateway in self.cluster:
            gateway.sections["device"]["allowPlaintextRegistration"] = True
            gateway.sections["store"]["redis"]["nodes"] = self.rig.nodes
            gateway._secret("hook", HOOK_SECRET)
            if not self.net.cuts_servers:
                gate = self.net.gate(gateway.place, gateway.cluster_port)
                gateway.sections["cluster"]["advertise"] = gate.address
                gateway.place.is_of = lambda inode, gateway=gateway: gateway.process and network.has_socket(
                    gateway.process.pid, inode)
        self.cluster.__enter__()
        self.balancer = Balancer(self.cluster.gateways, ("device", "senders", "http", "admin"))
        self.balancer.__enter__()
        self.gateway = Front(self.balancer)
        eventually(lambda: self.balancer.states == [True] * COUNT, "the balancer's view")

    def use_hook(self, is_used):
        for gateway in self.cluster:
            gateway.sections.pop("hook", None)
            if is_used:
                self.had_hook = True
                gateway.sections["hook"] = {
                    "url": f"http://127.0.0.1:{self.hook_port}/hook", "timeoutSeconds": 1, "batchJobs": 20,
                    "secretFile": str(gateway.folder / "hook")}

    def keep_gateways(self):
        for number, gateway in enumerate(self.cluster or []):
            if gateway.process:
                gateway.kill()
            shutil.copytree(gateway.folder, self.folder / f"gateway-{number}", dirs_exist_ok=True)

    def end_gateways(self):
        if self.balancer:
            self.balancer.__exit__()
        if self.cluster:
            self.cluster.__exit__()

    def __exit__(self, kind, *rest):
        super().__exit__(kind, *rest)
        self.net.__exit__()

    # Gateways

    def kill_gateway(self, gateway, where="load"):
        gateway.kill()
        self.audit.kills.append(time.time())
        self.kills_at[where] += 1
        self.lost_lives += 1

    def start_gateway(self, gateway):
        """Starts a gateway as a service manager does: again, if it ended because of failing servers."""
        began = time.monotonic()
        while True:
            try:
                gateway.start()
                break
            except AssertionError as failure:
                if gateway.process.poll() is None or time.monotonic() - began > SETTLED_SECONDS:
                    raise AssertionError(f"a gateway does not start: {failure}") from failure
                self.refused_starts += 1
                time.sleep(0.3)
        self.restarts.append(time.monotonic() - began)

    def restart_all(self):
        """Restarts all at once, as after a power failure; the processes count from zero again."""
        for gateway in self.cluster:
            self.kill_gateway(gateway, "all")
        self.life_began, self.lost_lives = time.time(), 0
        starts = [threading.Thread(target=self.guarded, args=(self.start_gateway, one)) for one in self.cluster]
        for start in starts:
            start.start()
        for start in starts:
            start.join()
        self.raise_failures()
        self.served()

    def served(self):
        began = time.monotonic()
        self.cluster.wait_until_served(SETTLED_SECONDS)
        eventually(lambda: self.balancer.states == [True] * COUNT, "that the balancer finds all gateways", SETTLED_SECONDS)
        self.slowest = max(self.slowest, time.monotonic() - began)

    def guarded(self, action, *values):
        """Runs on a thread; the driver raises its errors."""
        try:
            action(*values)
        except BaseException as failure:  # noqa: BLE001
            self.failures.append(failure)

    def raise_failures(self):
        if self.failures:
            raise self.failures[0]

    # Faults

    def break_things(self):
        """Runs the gateways' faults and the servers' faults concurrently, each kind one after another."""
        self.lost_lives = 0
        names = (GATEWAY_FAULTS, SERVER_FAULTS)
        lanes = self.chance.choice(((0,), (1,), (0, 1), (0, 1))) if not self.faults else (0, 1)
        threads = []
        for lane in lanes:
            chance = self.lanes[lane]
            known = [one for one in names[lane] if not self.faults or one in self.faults]
            known = [one for one in known if self.net.cuts_servers or one not in SERVER_CUTS]
            if not known:
                continue
            plan = [chance.choice(known) for _ in range(chance.choice((1, 2)))]
            threads.append(threading.Thread(target=self.guarded, args=(self.play_lane, chance, plan)))
        for thread in threads:
            thread.start()
        self.act([
            (self.chance.uniform(0.1, 0.7) * self.seconds, self.stop_somebody),
            (self.chance.uniform(0.2, 0.6) * self.seconds, self.kill_sender)])
        for thread in threads:
            thread.join()
        self.raise_failures()
        # All cut and killed processes run again.
        self.rig.wait_until_ok()
        self.served()
        self.judge_answers()

    def judge_answers(self):
        """Checks that each gateway answers a call for every device, at least as busy, so that an endless wait is detected."""
        for number, gateway in enumerate(self.cluster):
            for start in range(0, len(self.cids), 10):
                try:
                    gateway.api("GET", "user/status/" + ",".join(self.cids[start : start + 10]), timeout=ANSWER_SECONDS)
                except Refused:
                    pass
                except UNANSWERED as failure:
                    self.audit.problem("unanswered", f"gateway {number} is whole and gives no answer: {failure}")

    def play_lane(self, chance, plan):
        for fault in plan:
            time.sleep(chance.random() * self.seconds / 2)
            began = time.time()
            print(f"  {time.strftime('%H:%M:%S')} {fault}", flush=True)
            try:
                getattr(self, f"do_{fault}")(chance)
            finally:
                # For a device a partition that moves or cannot commit looks like a paused gateway.
                self.audit.gateway_stops.append((began, time.time() + 4.0))
            self.server_faults[fault] += 1

    def stop_somebody(self):
        names = [name for name in self.parties if name != "gateway"]
        name = names[self.stop_turn % len(names)]
        self.stop_turn += 1
        process = self.parties[name].process
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.5 + self.chance.random())
        process.send_signal(signal.SIGCONT)
        self.stops[name] = self.stops.get(name, 0) + 1

    @staticmethod
    def a_while(chance):
        """Returns a time shorter or longer than a lease."""
        return chance.uniform(0.3, 1.5) if chance.random() < 0.3 else chance.uniform(2.5, 6.0)

    def do_killGateway(self, chance):
        gateway = chance.choice(self.cluster.gateways)
        self.kill_gateway(gateway)
        time.sleep(chance.random() ** 2 * 4)
        self.start_gateway(gateway)

    def do_killTwo(self, chance):
        """Kills two gateways: the third takes all partitions over, and may get the others back during that."""
        two = chance.sample(self.cluster.gateways, 2)
        for gateway in two:
            self.kill_gateway(gateway)
            time.sleep(chance.random() * 1.5)
        for gateway in two:
            self.start_gateway(gateway)

    def do_stopGateway(self, chance):
        gateway = chance.choice(self.cluster.gateways)
        self.lost_lives += 1
        gateway.process.send_signal(signal.SIGSTOP)
        time.sleep(self.a_while(chance))
        gateway.process.send_signal(signal.SIGCONT)

    def do_upgrade(self, chance):
        for gateway in self.cluster:
            self.lost_lives += 1
            code = gateway.stop()
            if code != 0:
                self.audit.problem("inconsistent", f"a gateway that was asked to stop ended with {code}")
            self.audit.kills.append(time.time())
            time.sleep(chance.random())
            self.start_gateway(gateway)

    def do_drain(self, chance):
        gateway = chance.choice(self.cluster.gateways)
        self.wish(gateway, "drain", {})
        time.sleep(self.a_while(chance))
        self.wish(gateway, "drain", {"undo": True})

    def do_movePart(self, chance):
        gateway = chance.choice(self.cluster.gateways)
        for _ in range(3):
            nodes = [node["node"] for node in self.cluster.map_of(gateway).get("nodes", [])]
            if nodes:
                self.wish(gateway, "move", {"part": chance.randrange(PARTS), "to": chance.choice(nodes)})
            time.sleep(chance.random())

    def wish(self, gateway, name, body):
        """Sends an operator's request; Redis may be failing at that time."""
        end = time.monotonic() + SETTLED_SECONDS
        while True:
            try:
                return gateway.admin_call("POST", f"/v1/cluster/{name}", body, timeout=5)
            except (Refused, *UNANSWERED) as failure:
                if isinstance(failure, Refused) and failure.status != 503 or time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def sever(self, pairs, seconds):
        self.lost_lives += 1
        try:
            for one, other in pairs:
                self.net.sever(one, other)
            time.sleep(seconds)
        finally:
            for one, other in pairs:
                self.net.join(one, other)

    def servers(self):
        return [server.place for server in self.rig.servers]

    def others(self, gateway):
        return [one.place for one in self.cluster if one is not gateway]

    def do_cutFromRedis(self, chance):
        gateway = chance.choice(self.cluster.gateways)
        self.sever([(gateway.place, server) for server in self.servers()], self.a_while(chance))

    def do_cutFromGateways(self, chance):
        gateway = chance.choice(self.cluster.gateways)
        others = self.others(gateway)
        self.sever([(gateway.place, one) for one in others[: chance.choice((1, 2))]], self.a_while(chance))

    def do_isolateGateway(self, chance):
        gateway = chance.choice(self.cluster.gateways)
        everybody = self.servers() + self.others(gateway)
        self.sever([(gateway.place, one) for one in everybody], self.a_while(chance))

    # Servers

    def a_primary(self, chance):
        while True:
            try:
                primary = chance.choice(eventually(self.rig.primaries))
                replicas = self.rig.replicas_of(primary)
                if replicas:
                    return primary, replicas[0]
            except (OSError, ReplyError):
                pass
            time.sleep(0.1)

    def do_failover(self, chance):
        _, replica = self.a_primary(chance)
        self.rig.failover(replica)
        self.rig.wait_until_ok()

    def kill_server(self, server, chance):
        server.kill()
        # Longer than an election takes, or shorter.
        time.sleep(0.2 + 3 * chance.random())
        self.rig.restart(server)
        self.rig.wait_until_ok()

    def do_killPrimary(self, chance):
        self.kill_server(self.a_primary(chance)[0], chance)

    def do_killReplica(self, chance):
        self.kill_server(self.a_primary(chance)[1], chance)

    def stop_server(self, server, chance):
        server.stop()
        time.sleep(0.5 + 3 * chance.random())
        server.resume()
        self.rig.wait_until_ok()

    def do_stopPrimary(self, chance):
        self.stop_server(self.a_primary(chance)[0], chance)

    def do_stopReplica(self, chance):
        self.stop_server(self.a_primary(chance)[1], chance)

    def do_moveSlot(self, chance):
        """Moves the slot of a partition's log, or of the register."""
        part = chance.randrange(PARTS + 1)
        tag = f"lw:{self.cluster.name}:p{part}" if part < PARTS else f"lw:{self.cluster.name}"
        self.rig.move_slot(slot_of(f"{{{tag}}}"), keys_per_step=1)
        self.rig.wait_until_ok()

    def do_moveGroup(self, chance):
        for _ in range(3):
            self.rig.move_slot(slot_of(f"{{lw:{self.cluster.name}:g{chance.randrange(256)}}}"), keys_per_step=1)
        self.rig.wait_until_ok()

    def do_cutReplica(self, chance):
        primary, replica = self.a_primary(chance)
        self.sever([(primary.place, replica.place)], self.a_while(chance))
        self.rig.wait_until_ok()

    def do_cutPrimary(self, chance):
        """Isolates a primary from its servers; the gateways cannot reach it either, or all of them still do."""
        primary, _ = self.a_primary(chance)
        cut = [one for one in self.servers() if one is not primary.place]
        if chance.random() < 0.5:
            cut += [one.place for one in self.cluster]
        self.sever([(primary.place, one) for one in cut], self.a_while(chance))
        self.rig.wait_until_ok()

    def do_splitCluster(self, chance):
        """Separates a gateway and a primary from all others."""
        primary, _ = self.a_primary(chance)
        gateway = chance.choice(self.cluster.gateways)
        near = [primary.place, gateway.place]
        far = [one for one in self.servers() + [one.place for one in self.cluster] if one not in near]
        self.sever([(one, other) for one in near for other in far], self.a_while(chance))
        self.rig.wait_until_ok()

    # Counts

    def ask(self, api, path):
        """Queries a path, and retries while a partition moves."""
        end = time.monotonic() + 30
        while True:
            status, answer = super().ask(api, path)
            if status or time.monotonic() > end:
                return status, answer

    def counters(self):
        found = collections.Counter()
        for gateway in self.cluster:
            front, self.gateway = self.gateway, gateway
            try:
                found.update(super().counters())
            finally:
                self.gateway = front
        return dict(found)

    def reconcile_life(self, number):
        """Compares counters as with one gateway, if no gateway ended and none may have lost a partition.

        Otherwise counts were lost with a gateway or include uncommitted messages; `judge_pending` checks the durable state.
        """
        if not self.lost_lives:
            super().reconcile_life(number)

    def play(self, number):
        super().play(number)
        self.judge_pending()

    def judge_pending(self):
        """Compares pending counts after all gateways have restarted: they must match the replayed rows."""

        def pending():
            return sum(int(float(re.search(r"^longwire_messages_pending (\S+)$", gateway.metrics(), re.M)[1]))
                       for gateway in self.cluster)

        # An expired lease, or a broadcast that reaches a device, may change it during the comparison.
        expected, end, found = self.audit.states()["pending"], time.monotonic() + 5, pending()
        while found != expected and time.monotonic() < end:
            time.sleep(0.1)
            found = pending()
        if found != expected:
            self.audit.problem("inconsistent", f"the gateways count {found} pending messages, the books {expected}")

    def report(self, rounds):
        return {
            **super().report(rounds), "gateways": COUNT, "parts": PARTS,
            "network": "namespaces" if self.net.cuts_servers else "proxies", "refusedStarts": self.refused_starts,
            "connections": self.balancer.served if self.balancer else [], "slowestReturn": round(self.slowest, 1)}


class WalledRig(RedisRig):
    """Servers on loopback, with gates that identify the connecting gateway."""

    def __init__(self, net, places):
        super().__init__(node_timeout=1_000, gates=True)
        self.net, self.walls = net, places

    def make_gate(self, server):
        server.place = self.walls[server.number]
        return self.net.gate(server.place, server.port, server.port, GATE_HOST)


def play(rounds, seed, seconds, pace=150, faults=()):
    return run(ClusterRounds(seed, seconds, pace, faults), rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time; it is printed")
    parser.add_argument("--seconds-per-round", type=float, default=6.0)
    parser.add_argument("--pace", type=float, default=150, help="messages a second")
    parser.add_argument("--faults", default="", help="only these, separated by commas")
    parser.add_argument("--proxies", action="store_true", help="cut by proxies, even where namespaces are allowed")
    parser.add_argument("--json", help="where the figures go; without it they are printed only")
    parser.add_argument("--beside", help="figures of rounds.py that go into the same file")
    options = parser.parse_args()
    if not options.proxies:
        network.inside()
    seed = random.randrange(2**32) if options.seed is None else options.seed
    faults = tuple(one for one in options.faults.split(",") if one)
    if unknown := set(faults) - set(GATEWAY_FAULTS + SERVER_FAULTS):
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    began = time.monotonic()
    print(f"seed {seed}", flush=True)
    try:
        report = play(options.rounds, seed, options.seconds_per_round, options.pace, faults)
    except (AssertionError, Refused) as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    report["seconds"] = round(time.monotonic() - began, 1)
    text = json.dumps(report, indent=2)
    print(text)
    if options.json:
        runs = {"one gateway": json.loads(pathlib.Path(options.beside).read_text())} if options.beside else {}
        whole = {**runs, "three gateways": report} if runs else report
        pathlib.Path(options.json).write_text(json.dumps(whole, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
