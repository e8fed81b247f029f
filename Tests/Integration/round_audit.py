"""Holds the books of all parties of the crash rounds against each other and against the gateway's traces."""

import collections
import json

FINAL = {
    "delivered", "deliveredOffline", "opened", "handedOff", "expired", "collapsed", "revoked", "overflowed", "failed"}
SHOWN_STATES = {"delivered", "deliveredOffline", "opened"}
SLACK_SECONDS = 0.5  # timers, and the scheduling of a busy machine
END_EVENTS = {"delivered": "acked", "deliveredOffline": "acked", "opened": "opened"}


class Message:
    """One accepted message: what its publisher wrote down, then its trace."""

    def __init__(self, tried, answer, round_number):
        self.tried, self.live, self.repeat, self.round = tried, answer["live"], answer["repeat"], round_number
        self.trace, self.state = None, "pending"
        self.accepted_at, self.ended_at = 0, None  # gateway time, milliseconds


class Audit:
    def __init__(self, folder, live_deadline):
        self.folder, self.offsets, self.live_deadline = folder, {}, live_deadline
        self.gateway_stops = []  # pairs (from, until)
        self.tried, self.refused, self.messages = {}, {}, {}
        self.shown = collections.defaultdict(list)  # cid → lines in the order of the app's screen
        self.shown_of, self.rejected, self.covered = {}, set(), 0
        self.leases, self.outcomes, self.closes = [], collections.defaultdict(set), collections.Counter()
        self.witnessed = {}  # msgId → (final state, when it was seen)
        self.kills = []  # when each SIGKILL had happened
        self.unanswered, self.verdicts = 0, collections.Counter()
        self.checked = collections.Counter()  # per cid, how many shown lines are judged
        self.checked_leases = 0
        self.counts = collections.Counter()
        self.problems = []

    def problem(self, kind, text):
        self.counts[kind] += 1
        if len(self.problems) < 200:
            self.problems.append(f"{kind}: {text}")

    # Books

    def read(self, round_number):
        for path in sorted(self.folder.glob("*.book")):
            with open(path, encoding="utf-8") as file:
                file.seek(self.offsets.get(path, 0))
                while (line := file.readline()).endswith("\n"):
                    self.take(json.loads(line), round_number)
                    self.offsets[path] = file.tell()

    def take(self, line, round_number):
        event = line["e"]
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
            self.shown[line["cid"]].append(line)
        elif event == "rejected":
            self.rejected.add(line["msg"])
        elif event == "covered":
            self.covered += 1
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

    def open_requests(self):
        answered = {message.tried["id"] for message in self.messages.values()}
        return [one for one in self.tried if one not in answered and one not in self.refused]

    def unfinished(self):
        return [name for name, message in self.messages.items() if message.state == "pending"]

    def may_wait(self, trace, had_hook):
        """A batch that a killed gateway had leased for its hook is nobody's until that lease lapses."""
        steps = [step for step in trace["steps"] if step["event"] in ("leased", "leaseLapsed", "vendorAccepted")]
        return had_hook and bool(steps) and steps[-1]["event"] == "leased"

    # Judgements

    def judge(self, had_hook):
        """Everything since the last call; the traces are in place."""
        for name in self.open_requests():
            self.problem("unanswered", f"{name} never got an answer")
        self.judge_screens()
        for name, message in self.messages.items():
            if message.trace is not None:
                self.judge_message(name, message, had_hook)
                message.trace = None
        for lease in self.leases[self.checked_leases :]:
            state, known_at = self.witnessed.get(lease["msg"], (None, None))
            if known_at is not None and lease.get("asked", 0) > known_at:
                self.problem("leasedAfterEnd", f"{lease['msg']} was known as {state} before the lease was asked for")
            if lease["msg"] not in self.messages:
                self.problem("inconsistent", f"a lease names {lease['msg']}, which nobody published")
        self.checked_leases = len(self.leases)

    def judge_screens(self):
        for cid, lines in self.shown.items():
            fresh = lines[self.checked[cid] :]
            highest = lines[self.checked[cid] - 1]["seq"] if self.checked[cid] else 0
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
            self.judge_publish_order(cid, lines)
            self.checked[cid] = len(lines)

    def judge_flag(self, cid, line, message):
        self.counts["shownOffline" if line["offline"] else "shownLive"] += 1
        if line["offline"]:
            return
        if message.repeat is False and not message.live:
            self.problem("badFlag", f"{cid} got {line['msg']} unflagged, which was answered as queued")
        # Over a sudden end, a kill included, a message stays fresh until its live attempt's deadline; a gateway that was
        # stopped has not seen the time go by.
        began, came = line["accepted"] / 1000, line["since"] / 1000
        frozen = sum(max(0.0, min(end, came) - max(start, began)) for start, end in self.gateway_stops)
        if came - began - frozen > self.live_deadline + SLACK_SECONDS:
            self.problem("badFlag", f"{cid} got {line['msg']} unflagged {came - began:.1f} s after it was accepted")

    def judge_publish_order(self, cid, lines):
        """What one publisher sent to one device, one after the other, is shown in that order."""
        last = {}
        for index, line in enumerate(lines):
            message = self.messages.get(line["msg"])
            if not message or message.tried["strategy"] not in (1, 3):
                continue  # strategy 4 gets its place in the stream when the vendor has failed
            before = last.get(line["publisher"], 0)
            if line["n"] <= before and index >= self.checked[cid]:
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
        if state == "expired" and ended is not None and ended < trace["expiresAt"]:
            self.problem("lost", f"{text} before its time")
        if state == "collapsed" and not tried["collapse"]:
            self.problem("lost", f"{text}, but has no collapse key")
        if state == "failed" and name not in self.rejected and not self.outcomes[name] - {"accepted"} \
                and trace.get("reason") not in ("noToken", "badToken", "exhausted"):
            self.problem("lost", f"{text} for {trace.get('reason')!r}, but nobody refused it")
        if state in ("revoked", "overflowed"):
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
