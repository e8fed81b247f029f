"""Compares the records of all parties of the crash rounds with each other and with the gateway's traces."""

import collections
import json

from task_audit import Tasks

FINAL = {
    "delivered", "deliveredOffline", "opened", "handedOff", "expired", "collapsed", "revoked", "overflowed", "failed"}
SHOWN_STATES = {"delivered", "deliveredOffline", "opened"}
SLACK_SECONDS = 0.5  # timers, and the scheduling of a busy machine
END_EVENTS = {"delivered": "acked", "deliveredOffline": "acked", "opened": "opened"}


class Message:
    """One accepted message: its publisher's record, then its trace."""

    def __init__(self, tried, answer, round_number):
        self.tried, self.live, self.repeat, self.round = tried, answer["live"], answer["repeat"], round_number
        self.task = None
        self.trace, self.state = None, "pending"
        self.accepted_at, self.ended_at = 0, None  # gateway time, milliseconds


class Audit:
    def __init__(self, folder, live_deadline):
        self.folder, self.offsets, self.live_deadline = folder, {}, live_deadline
        self.gateway_stops = []  # pairs (from, until)
        self.tried, self.refused, self.messages = {}, {}, {}
        self.tasks = Tasks(self.problem)
        self.shown = collections.defaultdict(list)  # cid and stream → lines in the app's display order
        self.shown_of, self.rejected, self.covered = {}, set(), []
        self.leases, self.outcomes, self.closes = [], collections.defaultdict(set), collections.Counter()
        self.witnessed = {}  # msgId → (final state, time of observation)
        self.kills = []  # the time of each SIGKILL
        self.unanswered, self.verdicts = 0, collections.Counter()
        self.returned = collections.Counter()  # per cid and stream: the number of shown lines compared with final states
        self.checked = collections.Counter()  # per cid and stream: the number of checked shown lines
        self.checked_leases = self.checked_covered = 0
        self.counts = collections.Counter()
        self.problems = []

    def problem(self, kind, text):
        self.counts[kind] += 1
        if len(self.problems) < 200:
            self.problems.append(f"{kind}: {text}")

    # Records

    def read(self, round_number):
        # The publishers' first, because they know each task before a device does.
        for path in sorted(self.folder.glob("*.book"), key=lambda path: (path.stem != "publishers", path.name)):
            with open(path, encoding="utf-8") as file:
                file.seek(self.offsets.get(path, 0))
                while (line := file.readline()).endswith("\n"):
                    self.take(json.loads(line), round_number)
                    self.offsets[path] = file.tell()

    def take(self, line, round_number):
        event = line["e"]
        if self.tasks.take(line, round_number):
            return
        if event == "try":
            self.tried[line["id"]] = line
        elif event == "accepted":
            message = self.messages.setdefault(line["msg"], Message(self.tried[line["id"]], line, round_number))
            if message.tried["id"] != line["id"]:
                self.problem("inconsistent", f"{line['msg']} was given to two requests")
        elif event == "refused":
            self.refused[line["id"]] = line
        elif event == "unanswered":
            self.unanswered += 1
        elif event == "shown":
            self.shown[line["cid"], line["stream"]].append(line)
            task = self.tasks.numbered.get((line["publisher"], line["n"]))
            if task:
                self.discovered(task, line["cid"], line["msg"])
        elif event == "rejected":
            self.rejected.add(line["msg"])
        elif event == "covered":
            self.covered.append(line)
        elif event == "leased":
            self.leases.append(line)
        elif event == "outcome":
            self.outcomes[line["msg"]].add(line["outcome"])
        elif event == "verdict":
            self.verdicts[line["verdict"]] += 1
        elif event == "closed":
            self.closes[line["code"]] += 1
        elif event == "forged":
            self.problem("inconsistent", "the hook's receiver got a delivery with a wrong signature")
        elif event == "odd":
            self.problem("inconsistent", f"{line['what']} was answered {line['answer']}")

    def discovered(self, task, cid, name):
        """Records the result of a task for this device; the message's trace must match."""
        if task.messages.setdefault(cid, name) != name:
            self.problem("repeated", f"{task} reached {cid} twice, as {task.messages[cid]} and as {name}")
        tried = {**task.tried, "cid": cid}
        live = task.live.get(cid)
        message = self.messages.get(name)
        if not message:
            message = self.messages[name] = Message(tried, {"live": live, "repeat": live is None}, task.round)
            message.task = task
        elif message.task is not task:
            self.problem("inconsistent", f"{name} belongs to {task} and to {message.tried['id']}")

    def open_requests(self):
        answered = {message.tried["id"] for message in self.messages.values()}
        return [one for one in self.tried if one not in answered and one not in self.refused]

    def unfinished(self):
        return [name for name, message in self.messages.items() if message.state == "pending"]

    def may_wait(self, trace, had_hook):
        """Returns whether a job may wait for the lease of a killed gateway's hook batch to expire."""
        steps = [step for step in trace["steps"] if step["event"] in ("leased", "leaseLapsed", "vendorAccepted")]
        return had_hook and bool(steps) and steps[-1]["event"] == "leased"

    # Checks

    def judge(self, had_hook):
        """Checks everything since the last call; requires the traces."""
        for name in self.open_requests():
            self.problem("unanswered", f"{name} never got an answer")
        self.judge_screens()
        for name, message in self.messages.items():
            if message.trace is not None:
                self.judge_message(name, message, had_hook)
                message.trace = None
        self.judge_returns()
        for lease in self.leases[self.checked_leases :]:
            state, known_at = self.witnessed.get(lease["msg"], (None, None))
            if known_at is not None and lease.get("asked", 0) > known_at:
                self.problem("leasedAfterEnd", f"{lease['msg']} was known as {state} before the lease was asked for")
            if lease["msg"] not in self.messages:
                self.problem("inconsistent", f"a lease names {lease['msg']}, which nobody published")
        self.checked_leases = len(self.leases)

    def judge_returns(self):
        """Checks that a visit gets no message that ended before it, including acked ones."""
        lines = [line for place, all_lines in self.shown.items() for line in all_lines[self.returned[place] :]]
        self.returned.update({place: len(all_lines) - self.returned[place] for place, all_lines in self.shown.items()})
        for line in lines + self.covered[self.checked_covered :]:
            message = self.messages.get(line["msg"])
            if message and message.ended_at is not None and line["visit"] > message.ended_at:
                self.problem(
                    "sentAfterEnd", f"{line['cid']} was sent {line['msg']} ({message.tried['id']}) in a visit that began "
                    f"{line['visit'] - message.ended_at} ms after its end as {message.state}")
        self.checked_covered = len(self.covered)

    def judge_screens(self):
        for place, lines in self.shown.items():
            cid, judged = place[0], self.checked[place]
            fresh = lines[judged:]
            highest = lines[judged - 1]["seq"] if judged else 0
            for line in fresh:
                message = self.messages.get(line["msg"])
                if line["msg"] in self.shown_of:
                    self.problem("repeated", f"{cid} was shown {line['msg']} twice")
                self.shown_of[line["msg"]] = line
                if line["seq"] <= highest:
                    self.problem("outOfOrder", f"{cid} was shown {line['seq']} after {highest}")
                highest = max(highest, line["seq"])
                if not message:
                    self.problem("inconsistent", f"{cid} was shown {line['msg']}, which nobody published")
                    continue
                if message.tried["cid"] != cid or message.tried["n"] != line["n"]:
                    self.problem("inconsistent", f"{cid} was shown {line['msg']}, whose content is another's")
                self.judge_flag(cid, line, message)
            self.judge_publish_order(cid, lines, judged)
            self.checked[place] = len(lines)

    def judge_flag(self, cid, line, message):
        self.counts["shownOffline" if line["offline"] else "shownLive"] += 1
        if line["offline"]:
            return
        if message.repeat is False and not message.live:
            self.problem("badFlag", f"{cid} got {line['msg']} unflagged, which was answered as queued")
        # After a sudden disconnect, including a kill, a message stays fresh until its live attempt's deadline. A paused gateway
        # does not notice the elapsed time.
        began, came = line["accepted"] / 1000, line["since"] / 1000
        limit = self.live_deadline + SLACK_SECONDS
        if message.task and message.task.tried["kind"] == "broadcast":
            limit += self.live_deadline  # it may be evaluated this late, and the device's deadline starts then
            if message.task.tried.get("speed"):
                came = min(came, line["hello"] / 1000)  # the Hello counts, because a storm may delay its Welcome
        frozen = sum(max(0.0, min(end, came) - max(start, began)) for start, end in self.gateway_stops)
        if came - began - frozen > limit:
            self.problem("badFlag", f"{cid} got {line['msg']} unflagged {came - began:.1f} s after it was accepted")

    def judge_publish_order(self, cid, lines, judged):
        """Checks that sequential messages of one publisher to one device are shown in order, in each stream."""
        last = {}
        for index, line in enumerate(lines):
            message = self.messages.get(line["msg"])
            if not message or message.tried["strategy"] not in (1, 3) or message.tried.get("scheduled"):
                continue  # strategy 4 gets its place in the stream when the vendor has failed
            before = last.get(line["publisher"], 0)
            if line["n"] <= before and index >= judged:
                self.problem("outOfOrder", f"{cid}: publisher {line['publisher']}'s {line['n']} after {before}")
            last[line["publisher"]] = max(before, line["n"])

    def judge_message(self, name, message, had_hook):
        trace, tried = message.trace, message.tried
        state, steps = trace["state"], trace["steps"]
        message.state, message.accepted_at = state, trace.get("acceptedAt", 0)
        text = f"{name} ({tried['id']}, strategy {tried['strategy']}, ttl {tried['ttl']}) is {state}"
        if state not in FINAL:
            if not self.may_wait(trace, had_hook):
                self.problem("lost", f"{text}, and nothing will end it: {[step['event'] for step in steps]}")
            return
        if trace["cid"] != tried["cid"] or trace["strategy"] != tried["strategy"]:
            self.problem("inconsistent", f"{text}: its trace is another's")
        if message.task and (trace["taskId"] != message.task.name or tried["cid"] not in message.task.may):
            self.problem("inconsistent", f"{text}: it belongs to {trace['taskId']}, or is not for its device")
        if trace["acceptedAt"] < tried.get("scheduled", 0):
            self.problem("inconsistent", f"{text}: it went out before its time")
        if sum(step["event"] == "ended" for step in steps) > 1:
            self.problem("inconsistent", f"{text}: it ended twice")
        last = END_EVENTS.get(state, "ended")
        times = [step["time"] for step in steps if step["event"] == last] or [
            step["time"] for step in steps if step["event"] in ("vendorAccepted", "vendorRejected", "exhausted", "badToken")]
        ended = times[-1] if times else None
        if ended is None:
            self.problem("inconsistent", f"{text}, but no step says when: {[step['event'] for step in steps]}")
        message.ended_at = ended
        seen = self.witnessed.get(name)
        if seen and seen[0] != state:
            self.problem("changed", f"{text}, but was {seen[0]} before")
        line = self.shown_of.get(name)
        if state in SHOWN_STATES and not line and name not in self.rejected:
            self.problem("lost", f"{text}, but no app was shown it: {[step['event'] for step in steps]}")
        if state == "delivered" and line and line["offline"]:
            self.problem("badFlag", f"{text}, but was flagged offline")
        if state == "handedOff" and "accepted" not in self.outcomes[name]:
            self.problem("lost", f"{text}, but no sender service ever accepted it")
        # A broadcast without storage ends at once for a device that neither channel reaches.
        is_at_once = message.task and message.task.tried["kind"] == "broadcast" and tried["ttl"] <= 0
        if state == "expired" and ended is not None and ended < trace["expiresAt"] and not is_at_once:
            self.problem("lost", f"{text} before its time")
        if state == "collapsed" and not tried["collapse"]:
            self.problem("lost", f"{text}, but has no collapse key")
        if state == "failed" and name not in self.rejected and not self.outcomes[name] - {"accepted"} \
                and trace.get("reason") not in ("noToken", "badToken", "exhausted"):
            self.problem("lost", f"{text} for {trace.get('reason')!r}, but nobody refused it")
        if state == "overflowed" or state == "revoked" and not (message.task and message.task.may_revoke()):
            self.problem("lost", f"{text}, which nothing here asks for")
        self.judge_leases(text, trace, tried)

    def judge_leases(self, text, trace, tried):
        is_over = False
        for step in trace["steps"]:
            is_over = is_over or step["event"] in ("acked", "ended")
            if step["event"] != "leased":
                continue
            if is_over:
                self.problem("leasedAfterEnd", f"{text}: {[one['event'] for one in trace['steps']]}")
            if tried["strategy"] == 3:
                self.problem("inconsistent", f"{text}: leased, though it is for the live channel only")
            if tried["ttl"] > 0 and step["time"] > trace["expiresAt"]:
                self.problem("leasedAfterEnd", f"{text}: leased after it had expired")

    def states(self):
        return collections.Counter(message.state for message in self.messages.values())
