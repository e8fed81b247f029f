"""The audit of tasks in the crash rounds: the devices that each may and must reach, and its expected report."""

import collections

ACKED = {"delivered", "deliveredOffline", "opened"}
CLOCKS = 100  # milliseconds between a party's clock and gateway time, or between two loops' clock updates
PROMPT = 2_000  # the time within which the siblings of an acked message end, in milliseconds
REPORTED = (
    "delivered", "deliveredOffline", "opened", "handedOff", "expired", "collapsed", "revoked", "overflowed", "failed", "pending")


class Task:
    """One task from its publisher's records; `messages` are its messages by cid, from the gateway."""

    def __init__(self, tried, round_number):
        self.tried, self.round, self.name = tried, round_number, None
        self.may, self.must, self.live, self.said = set(), set(), {}, {}
        self.refused, self.stopping, self.stopped, self.cancelling, self.cancelled = None, None, None, None, None
        self.messages = {}

    def may_revoke(self):
        return bool(self.stopping or self.tried.get("firstAck"))

    def is_open(self):
        """Returns whether devices that it must reach still lack a message.

        A task that was stopped, deleted or expired before all its messages were created is not open.
        """
        is_dealt = self.tried["kind"] == "broadcast" and self.tried["strategy"] in (2, 4)
        is_short = is_dealt and self.tried["ttl"] < 10_000
        is_cut = self.stopping and (self.tried.get("scheduled") or is_dealt)
        return bool(self.name) and not (self.cancelling or is_cut or is_short)

    def __str__(self):
        told = self.tried
        return f"{told['kind']} {told['id']} ({self.name}, strategy {told['strategy']}, ttl {told['ttl']})"


class Tasks:
    """All recorded tasks. `problem` takes a kind and a text."""

    def __init__(self, problem):
        self.all, self.named, self.numbered, self.problem = {}, {}, {}, problem
        self.unreported = []  # the tasks whose reports are not checked yet

    def take(self, line, round_number):
        event = line["e"]
        if event == "task":
            task = self.all[line["id"]] = self.numbered[line["publisher"], line["n"]] = Task(line, round_number)
            self.unreported.append(task)
            return True
        task = self.all.get(line.get("id"))
        if not task:
            return False
        if event == "made":
            if task.name not in (None, line["task"]) or line["task"] in self.named and self.named[line["task"]] is not task:
                self.problem("inconsistent", f"{task} became {line['task']}, too")
            task.name = line["task"]
            self.named[task.name] = task
        elif event == "targets":
            task.may.update(line["cids"])
        elif event == "reached":
            if set(line["cids"]) - task.may:
                self.problem("inconsistent", f"{task} reached {sorted(set(line['cids']) - task.may)}, which it is not for")
            task.must.update(line["cids"])
            task.said.update(line.get("messages", {}))
            if line["isFirst"]:
                task.live.update({cid: cid in line["live"] for cid in line["cids"]})
            missing = sorted(task.may - set(line["cids"]) - set(line.get("without", [])))
            if missing and task.tried["kind"] == "alias":
                self.problem("lost", f"{task} left out {missing}, who have the alias")
        elif event == "refused":
            task.refused = line
        elif event in ("stopping", "stopped", "cancelling", "cancelled"):
            setattr(task, event, line["t"])
        else:
            return False
        return True

    def counts(self):
        """Returns the number of tasks of each kind, and of each event."""
        tasks = [task for task in self.all.values() if task.name]
        found = collections.Counter(task.tried["kind"] for task in tasks)
        found["scheduled"] = sum(bool(task.tried.get("scheduled")) for task in tasks)
        found["paced"] = sum(bool(task.tried.get("speed")) for task in tasks)
        found["firstAck"] = sum(bool(task.tried.get("firstAck")) for task in tasks)
        for event in ("stopped", "cancelled"):
            found[event] = sum(getattr(task, event) is not None for task in tasks)
        return dict(found)

    # Queries

    def undiscovered(self):
        """Returns pairs of a task and a cid that must have a message that is not known yet."""
        return [
            (task, cid) for task in self.unreported if task.is_open() for cid in sorted(task.must - set(task.messages))]

    def uncertain(self):
        """Returns tasks that may have more messages, with the devices in question."""
        found = {}
        for task in self.unreported:
            cids = task.may - set(task.messages)
            if task.name and cids and (cids - task.must or not task.is_open()):
                found[task] = sorted(cids)
        return found

    # Checks

    def judge(self, asked, reports, messages, breaks):
        """Checks the tasks.

        `asked`: the tasks with requested reports; `reports` by a task's name; `messages` by theirs; `breaks`: the times at which
        the gateway was killed or paused.
        """
        for task in self.unreported:
            if not task.name:
                if not task.refused:
                    self.problem("unanswered", f"{task} never got an answer")
                continue
            for cid in sorted(task.must - set(task.messages)) if task.is_open() else []:
                self.problem("lost", f"{task} was taken on, but has no message for {cid}")
            if task.cancelled and task.messages:
                self.problem("inconsistent", f"{task} was taken back, but has messages for {sorted(task.messages)}")
            for cid, name in task.said.items():
                if task.messages.get(cid, name) != name:
                    self.problem("inconsistent", f"{task} is {task.messages[cid]} for {cid}, but was answered as {name}")
            self.judge_ends(task, messages, breaks)
            if task.name in asked:
                self.judge_report(task, reports.get(task.name), messages)
        self.unreported = []

    def judge_ends(self, task, messages, breaks):
        """Checks final states requested by a caller or a device: by a stop, or by another device's ack."""
        own = [messages[name] for name in task.messages.values()]
        revoked = [message for message in own if message.state == "revoked"]
        acked = sorted(message.ended_at for message in own if message.state in ACKED and message.ended_at is not None)
        if task.stopped:
            for message in own:
                late = (message.ended_at or 0) - task.stopped * 1000
                if message.state in ACKED | {"handedOff"} and message.ended_at is not None and late > CLOCKS:
                    self.problem("changed", f"{task} was {message.state} {late:.0f} ms after its stop was answered")
        if not task.tried.get("firstAck") or task.stopping:
            return
        if revoked and not acked:
            self.problem("lost", f"{task}: {len(revoked)} ended for another's ack, but nobody acked")
        for message in revoked:
            if acked and message.ended_at is not None and message.ended_at < acked[0] - CLOCKS:
                self.problem("lost", f"{task} ended as revoked {acked[0] - message.ended_at} ms before the first ack")
        for ended in acked[1:]:
            if ended > acked[0] + PROMPT and not any(acked[0] - PROMPT < when * 1000 < ended for when in breaks):
                self.problem("changed", f"{task} was acked again {ended - acked[0]} ms after the first ack")

    def judge_report(self, task, report, messages):
        if report is None:
            if task.messages:
                self.problem("inconsistent", f"{task} has no report")
            return
        total = sum(report.get(state, 0) for state in REPORTED)
        if report["accepted"] != total:
            self.problem("inconsistent", f"{task}: accepted is not the sum of its states: {report}")
        found = {}
        for name in task.messages.values():
            found[messages[name].state] = found.get(messages[name].state, 0) + 1
        said = {state: report[state] for state in REPORTED if report.get(state)}
        # A message that waited for the lease of a killed hook may have ended since it was read.
        ended = {state: count for state, count in found.items() if state != "pending"}
        is_short = any(said.get(state, 0) < count for state, count in ended.items())
        if report["accepted"] != len(task.messages) or is_short or "pending" not in found and found != said:
            self.problem("inconsistent", f"{task}: its report says {said}, its messages say {found}")
