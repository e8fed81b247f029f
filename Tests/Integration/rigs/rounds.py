"""Crash rounds: a gateway under load is killed and restarted on the same data, and every party keeps its own records.

    python rounds.py --rounds 5 --seed 1 --seconds-per-round 5 --json FILE
    python rounds.py --rounds 5 --found
    python rounds.py --rounds 5 --store redis

With `--store redis` the gateway keeps its data in a Redis Cluster of three primaries with a replica each. In each round one of
its servers is killed, paused or fails over by command, or a slot of the gateway's data moves.

LONGWIRE_BIN names the folder of the built programs. Prints one line per round. Exits with 1 if a message was lost, repeated or
out of order, or counts do not add up. It then prints the seed, and the folder with records, log and data.
"""

import argparse
import collections
import json
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / folder) for folder in ("parties", "rigs")]

from cluster import retried  # noqa: E402
from gateway import ADMIN_TOKEN, APP, HANDOFF_TOKEN, Gateway, Refused, free_ports  # noqa: E402
from party import API, UNANSWERED  # noqa: E402
from publishing import RETRIED_CODES  # noqa: E402
from redis_rig import RedisRig, slot_of  # noqa: E402
from round_audit import Audit  # noqa: E402

HOOK_SECRET = "whsec_" + "bG9uZ3dpcmUgaW50ZWdyYXRpb24gaG9vayBzZWNyZXQ="
LIMITS = {
    "liveDeadlineMilliseconds": 900, "backgroundLiveDeadlineMilliseconds": 600,
    "unannouncedCloseDelayMilliseconds": 300, "suspectSilenceMilliseconds": 2_000,
    "vendorFirstPatienceMilliseconds": 1_000, "noStorageLeasableMilliseconds": 2_000,
    # Some of the kills find messages in every stage of the move to the ordered store.
    "spillAfterSeconds": 2,
    "taskPatienceMilliseconds": 1_000, "tagChangesPerMinute": 0, "tagChangesPerDay": 0,
}
PUSH = {
    "broadcastsPerMinute": 0, "broadcastsPerDay": 0, "fastTagBroadcastsPerMinute": 0, "fastTagBroadcastsPerDay": 0}
TIMEOUT = 40.0
REPORTS_PER_ROUND = 15
DEVICE_GROUPS, DEVICES_PER_GROUP = 2, 18
# Seeds that have detected a fault, in the gateway or in the audit. The same seed does not reproduce the same instants.
FOUND = (1, 3, 7, 9, 11, 21, 22)
# The faults of the servers of a Redis Cluster, one after another.
SERVER_FAULTS = ("stopReplica", "failover", "killPrimary", "moveSlot", "stopPrimary", "killReplica")
PARTIES_TO_STOP = ("gateway", "devices0", "sender", "hook", "devices1", "publishers")


class Party:
    """A child process with a record file; `tell` sends orders, `hear` waits for an answer."""

    def __init__(self, name, program, plan, log):
        words = [sys.executable, str(HERE.parent / f"parties/{program}_party.py"), json.dumps(plan)]
        self.name = name
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1)

    def tell(self, order):
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"{self.name} ended by itself")
        return json.loads(line)

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Rounds:
    def __init__(self, seed, seconds, pace=450, store="embedded"):
        self.rig = RedisRig(node_timeout=1_000) if store == "redis" else None
        self.server_faults, self.server_turn = collections.Counter(), seed
        self.seed, self.seconds, self.pace = seed, seconds, pace
        self.chance = random.Random(seed)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="longwire-rounds-"))
        self.audit = Audit(self.folder, LIMITS["liveDeadlineMilliseconds"] / 1000)
        self.log = open(self.folder / "parties.log", "ab")
        (hook_port,) = free_ports(1)
        self.hook_host, self.hook_port = "127.0.0.1", hook_port
        self.gateway = self.make_gateway()
        self.parties, self.restarts, self.stops, self.sender_lives = {}, [], {}, 0
        self.life_began, self.had_hook, self.killed_senders = time.time(), False, 0
        self.stop_turn, self.counted, self.kills_at = 0, {}, collections.Counter()
        self.kinds_of_kill = collections.deque(("load", "boot", "return"))
        self.kinds_of_kill.rotate(seed % 3)

    # Set-up

    def make_gateway(self):
        sections = {"store": {"redis": {"nodes": self.rig.nodes}}} if self.rig else {}
        gateway = Gateway(limits=LIMITS, app={"maxAttempts": 20, "push": PUSH}, **sections)
        gateway._secret("hook", HOOK_SECRET)
        return gateway

    def __enter__(self):
        try:
            return self._set_up()
        except BaseException:
            self.__exit__(RuntimeError)
            raise

    def _set_up(self):
        self.start_gateways()
        common = {"seed": self.seed, "app": APP}
        cids = []
        for group in range(DEVICE_GROUPS):
            plan = {
                **common, "device": self.gateway.device, "first": 1 + group * DEVICES_PER_GROUP,
                "count": DEVICES_PER_GROUP, "book": str(self.folder / f"devices{group}.book")}
            self.start(f"devices{group}", "device", plan)
        for group in range(DEVICE_GROUPS):
            cids += self.parties[f"devices{group}"].hear()["cids"]
        self.cids = cids
        tags = {f"tag-{number}": cids[number::3] + cids[::5] for number in range(3)}
        for tag, tagged in tags.items():
            body = {"cid": sorted(set(tagged))}
            retried(lambda tag=tag, body=body: self.gateway.api("PUT", f"user/custom_tag/batch/{tag}", body))
        self.start("publishers", "publisher", {
            **common, "http": self.gateway.http, "senders": self.gateway.senders, "cids": cids, "tags": tags, "first": 0,
            "pace": self.pace / 7, "book": str(self.folder / "publishers.book")})
        self.start("hook", "hook", {
            **common, "host": self.hook_host, "port": self.hook_port, "admin": self.gateway.admin, "token": HANDOFF_TOKEN,
            "secret": HOOK_SECRET, "book": str(self.folder / "hook.book")})
        self.parties["publishers"].hear()
        self.parties["hook"].hear()
        self.start_sender()
        return self

    def __exit__(self, kind, *_):
        for party in self.parties.values():
            party.end()
        self.log.close()
        if self.audit.problems or kind:
            self.keep_gateways()
            if self.rig:
                for server in self.rig.servers:
                    server.kill()
                shutil.copytree(self.rig.folder, self.folder / "redis", dirs_exist_ok=True)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.end_gateways()
        if self.rig:
            self.rig.__exit__()

    def keep_gateways(self):
        if self.gateway.process:
            self.gateway.kill()
        shutil.copytree(self.gateway.folder, self.folder / "gateway", dirs_exist_ok=True)

    def end_gateways(self):
        self.gateway.__exit__()

    def start_gateways(self):
        if self.rig:
            self.rig.__enter__()
            self.gateway.sections["store"]["redis"]["nodes"] = self.rig.nodes
            self.gateway.sections["store"]["path"] = str(self.gateway.folder / "data")
        self.gateway.__enter__()

    def start(self, name, program, plan):
        self.parties[name] = Party(name, program, plan, self.log)

    def start_sender(self):
        self.sender_lives += 1
        plan = {
            "seed": self.seed, "life": self.sender_lives, "admin": self.gateway.admin, "token": HANDOFF_TOKEN,
            "book": str(self.folder / f"sender{self.sender_lives}.book")}
        self.start("sender", "sender", plan)
        self.parties["sender"].hear()

    # Faults

    def kill(self):
        """Kills the gateway and restarts it on the same data; the new process may be killed, too: while it boots, or during
        reconnects."""
        self.end_life()
        where = self.kinds_of_kill[0]
        self.kinds_of_kill.rotate(-1)
        if where == "boot":
            for _ in range(self.chance.randrange(1, 3)):
                # Some kills find it already ready.
                usual = statistics.median(self.restarts) if self.restarts else 0.3
                self.gateway.process = self.gateway.spawn()
                time.sleep(usual * 1.3 * self.chance.random())
                self.end_life(where)
        self.restart()
        if where == "return":
            # Unacked messages are being looked up and sent again, and some deadlines pass during that.
            time.sleep(0.7 * self.chance.random() ** 2)
            self.end_life(where)
            self.restart()

    def restart_all(self):
        self.kill()

    def end_life(self, where="load"):
        self.gateway.kill()
        self.audit.kills.append(time.time())
        self.kills_at[where] += 1

    def restart(self):
        self.life_began = time.time()
        began = time.monotonic()
        self.gateway.start()
        self.restarts.append(time.monotonic() - began)

    def kill_sender(self):
        self.parties["sender"].end()
        self.killed_senders += 1
        self.start_sender()
        self.parties["sender"].tell("go")

    def stop_somebody(self):
        name = PARTIES_TO_STOP[self.stop_turn % len(PARTIES_TO_STOP)]
        self.stop_turn += 1
        process = self.gateway.process if name == "gateway" else self.parties[name].process
        began = time.time()
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.5 + self.chance.random())
        process.send_signal(signal.SIGCONT)
        if name == "gateway":
            self.audit.gateway_stops.append((began, time.time()))
        self.stops[name] = self.stops.get(name, 0) + 1

    def break_server(self):
        """Kills, pauses or replaces one of the Redis servers; it has recovered when this returns, or soon after."""
        fault = SERVER_FAULTS[self.server_turn % len(SERVER_FAULTS)]
        self.server_turn += 1
        began = time.time()
        primaries = self.rig.primaries()
        primary = self.chance.choice(primaries)
        replica = next(iter(self.rig.replicas_of(primary)), None)
        if fault == "failover" and replica:
            self.rig.failover(replica)
        elif fault == "moveSlot":
            # The slot of a partition's log, which always has load.
            self.rig.move_slot(slot_of(f"{{lw:longwire:p{self.chance.randrange(16)}}}"))
        elif fault.startswith("kill"):
            victim = replica if fault == "killReplica" and replica else primary
            victim.kill()
            # Longer than an election takes, or shorter.
            time.sleep(0.2 + 3 * self.chance.random())
            self.rig.restart(victim)
        else:
            victim = replica if fault == "stopReplica" and replica else primary
            victim.stop()
            time.sleep(0.5 + 2 * self.chance.random())
            victim.resume()
        self.rig.wait_until_ok()
        # Nothing commits while no replica is available. For a device this looks like a paused gateway.
        self.audit.gateway_stops.append((began, time.time() + 0.5))
        self.server_faults[fault] += 1

    def use_hook(self, is_used):
        """Sets the hook; applies from the next start."""
        self.gateway.sections.pop("hook", None)
        if is_used:
            self.had_hook = True
            self.gateway.sections["hook"] = {
                "url": f"http://127.0.0.1:{self.hook_port}/hook", "timeoutSeconds": 1, "batchJobs": 20,
                "secretFile": str(self.gateway.folder / "hook")}

    def break_things(self):
        """Runs the faults of one round, one after another, under load."""
        kills = sorted(self.chance.uniform(0.15, 0.85) * self.seconds for _ in range(self.chance.choice((1, 2, 2))))
        moments = [(at, self.kill) for at in kills]
        moments.append((self.chance.uniform(0.1, 0.7) * self.seconds, self.stop_somebody))
        moments.append((self.chance.uniform(0.2, 0.6) * self.seconds, self.kill_sender))
        if self.rig:
            moments.append((self.chance.uniform(0.1, 0.6) * self.seconds, self.break_server))
        self.act(moments)

    def act(self, moments):
        """Runs each action at its time; returns when the round's time is over and all actions are complete."""
        start = time.monotonic()
        for at, action in sorted(moments, key=lambda one: one[0]):
            time.sleep(max(0.0, start + at - time.monotonic()))
            action()
        time.sleep(max(0.0, start + self.seconds - time.monotonic()))

    # One round

    def play(self, number):
        began, kills_before = time.monotonic(), len(self.audit.kills)
        self.use_hook(number % 2 == 1)
        witness = Witness(self.gateway.admin, self.folder / "publishers.book", self.chance.random())
        for party in self.parties.values():
            party.tell("go")
        self.break_things()

        # All faults end, all parties behave correctly, and no message may stay undecided.
        for party in self.parties.values():
            party.tell("drain")
        self.parties["publishers"].hear()
        self.audit.witnessed.update(witness.finish())
        self.settle_down(number)
        self.reconcile_life(number)

        # Final states must not change.
        finals = {name: message.state for name, message in self.audit.messages.items() if message.round == number}
        self.restart_all()
        again = self.traces(self.chance.sample(sorted(finals), min(200, len(finals))))
        for name, trace in again.items():
            if finals[name] != "pending" and trace["state"] != finals[name]:
                self.audit.problem("changed", f"{name} is {trace['state']} after a restart, but was {finals[name]}")
        accepted = sum(message.round == number for message in self.audit.messages.values())
        if not accepted:
            self.audit.problem("inconsistent", f"nothing was accepted in round {number}")
        print(
            f"round {number}: {accepted} accepted, {len(self.audit.kills) - kills_before} kills, "
            f"{len(self.audit.problems)} problems so far, {time.monotonic() - began:.1f} s", flush=True)

    def ask(self, api, path):
        """Returns status and answer; the status is 0 without an answer."""
        for _ in range(5):
            try:
                status, answer = api.call("GET", path)
            except UNANSWERED:
                continue
            if status == 503 or answer.get("code") in RETRIED_CODES:
                time.sleep(0.1)
                continue
            return status, answer
        return 0, {}

    def traces(self, names):
        admin = API(self.gateway.admin, {"Authorization": f"Bearer {ADMIN_TOKEN}"})
        push = self.push_api()
        found = {}
        for name in names:
            status, answer = self.ask(admin, f"/v1/messages/{name}")
            found[name] = answer if status == 200 else {"state": f"HTTP {status}", "steps": []}
            message = self.audit.messages[name]
            if status == 404 and message.task:
                # A pending message of a broadcast may be a row that only its device and its task lead to.
                detail = self.detail(push, message.task, message.tried["cid"])
                if detail and detail["longwire"]["state"] == "pending":
                    steps = [{"event": step["event"].split(":")[0], "time": 0} for step in detail["data"]["detail"]]
                    found[name] = {"state": "pending", "steps": steps}
        admin.close()
        push.close()
        return found

    def push_api(self):
        return API(self.gateway.http, {"token": self.gateway.authenticate()}, timeout=20.0)

    def detail(self, api, task, cid):
        """Returns a task's message for one device, or None."""
        status, answer = self.ask(api, f"/v2/{APP['appId']}/task/detail/{cid}/{task.name}")
        return answer if status == 200 else None

    def discover(self, pairs):
        """Looks up the messages of tasks for these devices."""
        api = self.push_api()
        for task, cid in pairs:
            detail = self.detail(api, task, cid)
            if detail:
                self.audit.discovered(task, cid, detail["longwire"]["msgId"])
        api.close()

    def reports(self, names):
        """Returns the gateway's reports of these tasks by name; each scans the whole app."""
        api, found = self.push_api(), {}
        for start in range(0, len(names), 5):
            path = f"/v2/{APP['appId']}/report/push/task/{','.join(names[start : start + 5])}"
            found.update(self.ask(api, path)[1].get("longwire", {}).get("tasks", {}))
        api.close()
        return found

    def settle_down(self, number):
        """Waits until every recorded message has ended or has a known reason to wait, then checks them."""
        end = time.monotonic() + TIMEOUT
        self.audit.read(number)
        tasks = self.audit.tasks
        while pairs := tasks.undiscovered():
            self.discover(pairs)
            if len(tasks.undiscovered()) < len(pairs):
                # A paced broadcast passes 4,096 buckets one by one, which takes a minute in a loaded cluster.
                end = time.monotonic() + TIMEOUT
            elif time.monotonic() > end:
                break
            else:
                time.sleep(0.1)
        while uncertain := tasks.uncertain():
            self.discover([(task, cid) for task, cids in uncertain.items() for cid in cids])
            reports = self.reports([task.name for task in uncertain])
            if all(reports.get(task.name, {}).get("accepted", 0) == len(task.messages) for task in uncertain):
                break
            if time.monotonic() > end:
                break
            time.sleep(0.1)
        waiting = self.audit.unfinished()
        while True:
            for name, trace in self.traces(waiting).items():
                self.audit.messages[name].trace = trace
            waiting = [
                name for name in waiting
                if self.audit.messages[name].trace["state"] == "pending"
                and not self.audit.may_wait(self.audit.messages[name].trace, self.had_hook)]
            if not waiting or time.monotonic() > end:
                break
            time.sleep(0.1)
        # Messages that wait for a lease of a killed hook or sender may still change. The traces must match the counters' moment,
        # and messages of expired leases must end.
        while time.monotonic() < end + TIMEOUT:
            before = self.counters()
            moving = 0
            for name, message in self.audit.messages.items():
                if message.trace and message.trace["state"] == "pending":
                    message.trace = self.traces([name])[name]
                    moving += message.trace["state"] == "pending" and not self.audit.may_wait(
                        message.trace, self.had_hook)
            self.counted = self.counters()
            if self.counted == before and not moving:
                break
            time.sleep(0.05)
        # The devices record before they ack, so their records are complete now.
        self.audit.read(number)
        self.audit.judge(self.had_hook)
        names = [task.name for task in tasks.unreported if task.name]
        names = self.chance.sample(names, min(len(names), REPORTS_PER_ROUND))
        breaks = self.audit.kills + [when for stop in self.audit.gateway_stops for when in stop]
        tasks.judge(names, self.reports(names), self.audit.messages, breaks)

    def reconcile_life(self, number):
        """Compares this process's counters with the records: the messages accepted and ended since it started.

        The counters start with the process; the traces identify the messages.
        """
        began = self.life_began * 1000
        counted, books = dict(self.counted), {"accepted": 0}
        met_later = 0
        for message in self.audit.messages.values():
            books["accepted"] += message.accepted_at >= began
            # A broadcast may reach a device in a later run than the one that started it. That run then accepts for it.
            if message.task and message.task.tried["kind"] == "broadcast" and message.accepted_at < began:
                met_later += message.ended_at is None or message.ended_at >= began
            if message.state != "pending" and message.ended_at is not None and message.ended_at >= began:
                books[message.state] = books.get(message.state, 0) + 1
        if books["accepted"] <= counted["accepted"] <= books["accepted"] + met_later:
            counted["accepted"] = books["accepted"]
        differences = {
            name: (count, books.get(name, 0)) for name, count in counted.items() if count != books.get(name, 0)}
        if differences:
            self.audit.problem(
                "inconsistent", f"round {number}: counted by this run of the gateway and by the books: {differences}")

    def counters(self):
        page = self.gateway.metrics()
        found = {"accepted": int(float(re.search(r"^longwire_messages_accepted_total (\S+)$", page, re.M)[1]))}
        for state, count in re.findall(r'^longwire_messages_ended_total\{state="(\w+)"\} (\S+)$', page, re.M):
            found[state] = int(float(count))
        return found

    # The result

    def report(self, rounds):
        audit, restarts = self.audit, sorted(self.restarts)
        states = audit.states()
        kinds = (
            "lost", "repeated", "outOfOrder", "badFlag", "leasedAfterEnd", "sentAfterEnd", "changed", "inconsistent",
            "unanswered")
        return {
            "seed": self.seed, "rounds": rounds, "kills": len(audit.kills), "killsAt": dict(self.kills_at),
            "senderKills": self.killed_senders,
            "stops": self.stops, "serverFaults": dict(self.server_faults), "devices": DEVICE_GROUPS * DEVICES_PER_GROUP,
            "requests": len(audit.tried), "accepted": len(audit.messages),
            "refused": len(audit.refused), "tasks": audit.tasks.counts(), "retriedUnanswered": audit.unanswered,
            "shownLive": audit.counts["shownLive"], "shownOffline": audit.counts["shownOffline"],
            "coveredByPosition": len(audit.covered), "leases": len(audit.leases), "verdicts": dict(audit.verdicts),
            "closeCodes": dict(audit.closes), "states": dict(states), "pending": states["pending"],
            "sumOfStates": sum(states.values()), "witnessed": len(audit.witnessed), **{kind: audit.counts[kind] for kind in kinds},
            "restartSeconds": {
                "min": round(restarts[0], 3), "median": round(statistics.median(restarts), 3),
                "max": round(restarts[-1], 3)} if restarts else {},
        }


class Witness(threading.Thread):
    """Reads traces during the load, and records which messages had ended, and when."""

    def __init__(self, port, book, seed):
        super().__init__(daemon=True)
        self.api = API(port, {"Authorization": f"Bearer {ADMIN_TOKEN}"}, timeout=3.0)
        self.book, self.chance, self.seen, self.is_over = book, random.Random(seed), {}, False
        self.start()

    def run(self):
        names = []
        with open(self.book, encoding="utf-8") as file:
            file.seek(0, 2)
            while not self.is_over:
                while (line := file.readline()):
                    found = re.search(r'"e": "accepted".*"msg": "(\w{32})"', line)
                    if found:
                        names.append(found[1])
                if not names:
                    time.sleep(0.05)
                    continue
                # Mostly recent ones, because they end during the reads.
                name = names[-1 - int(len(names) * self.chance.random() ** 3)]
                try:
                    status, answer = self.api.call("GET", f"/v1/messages/{name}")
                    if status == 200 and answer["state"] != "pending" and name not in self.seen:
                        self.seen[name] = (answer["state"], time.time())
                except UNANSWERED:
                    time.sleep(0.05)
                time.sleep(0.01)

    def finish(self):
        self.is_over = True
        self.join(10)
        self.api.close()
        return self.seen


def play(rounds, seed, seconds, store="embedded"):
    return run(Rounds(seed, seconds, store=store), rounds)


def run(play, rounds):
    """Returns the report of `rounds` rounds; raises AssertionError with the data for an analysis."""
    seed = play.seed
    done = 0
    try:
        with play:
            for number in range(rounds):
                play.play(number)
                done += 1
                if play.audit.problems:
                    break
    except BaseException:
        print(f"seed {seed}, round {done}: books, log and data are kept in {play.folder}", flush=True)
        raise
    if play.audit.problems:
        (play.folder / "problems").write_text("\n".join(play.audit.problems) + "\n")
        text = "\n".join(play.audit.problems[:20])
        raise AssertionError(f"seed {seed}, round {done}: kept in {play.folder}\n{text}\n{play.report(done)}")
    return play.report(done)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time; it is printed")
    parser.add_argument("--found", action="store_true", help="play the seeds that have found something, one after the other")
    parser.add_argument("--seconds-per-round", type=float, default=5.0)
    parser.add_argument("--store", choices=("embedded", "redis"), default="embedded")
    parser.add_argument("--json", help="where the figures go; without it they are printed only")
    options = parser.parse_args()
    seed = random.randrange(2**32) if options.seed is None else options.seed
    reports = []
    for seed in FOUND if options.found else (seed,):
        print(f"seed {seed}", flush=True)
        began = time.monotonic()
        try:
            reports.append(play(options.rounds, seed, options.seconds_per_round, options.store))
        except (AssertionError, Refused) as error:
            print(f"FAILED: {error}", file=sys.stderr)
            return 1
        reports[-1]["seconds"] = round(time.monotonic() - began, 1)
    text = json.dumps(reports if options.found else reports[0], indent=2)
    print(text)
    if options.json:
        pathlib.Path(options.json).write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
