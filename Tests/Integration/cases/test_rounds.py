"""Crash rounds with a fixed seed, and proof that the audit detects violations."""

import json

import pytest
import rounds
from round_audit import Audit
from task_publishers import taken_of

pytestmark = pytest.mark.alone

CID, MESSAGES = "c" * 32, [f"{number:032x}" for number in (1, 2)]
KINDS = ("list", "alias", "broadcast", "scheduled", "stopped", "firstAck")
# A broadcast to two devices.
TASK, PLACES = "RASA_1122_1", {CID: f"{3:032x}", "d" * 32: f"{4:032x}"}
REPORT = {TASK: {"accepted": 2, "delivered": 2, "pending": 0}}


def test_three_rounds_lose_repeat_and_reorder_nothing():
    report = rounds.play(3, seed=1, seconds=3)
    print(json.dumps(report))
    assert report["accepted"] >= 1_000 and report["kills"] >= 5 and report["leases"] >= 100
    assert set(report["killsAt"]) == {"load", "boot", "return"} and all(report["tasks"].get(kind) for kind in KINDS)
    assert len(report["stops"]) == 3 and report["shownLive"] and report["shownOffline"] and report["witnessed"]
    assert report["sumOfStates"] == report["accepted"]
    assert set(report["states"]) >= {"delivered", "deliveredOffline", "handedOff", "expired", "collapsed", "failed"}


def test_rounds_over_redis_lose_repeat_and_reorder_nothing():
    report = rounds.play(1, seed=1, seconds=2.5, store="redis")
    print(json.dumps(report))
    assert report["accepted"] >= 100 and report["kills"] >= 2 and sum(report["serverFaults"].values()) == 1
    assert report["sumOfStates"] == report["accepted"] and report["shownLive"] and report["shownOffline"]


def books():
    """Returns records of two messages to one device, correctly published, shown and acked."""
    lines, traces = [], {}
    for number, message in enumerate(MESSAGES, 1):
        identity = {"id": f"request-{number}", "cid": CID, "publisher": 0, "n": number}
        lines += [
            {"e": "try", "strategy": 1, "ttl": 9_000, "collapse": "", **identity},
            {"e": "accepted", "id": f"request-{number}", "msg": message, "live": True, "repeat": False},
            {"e": "shown", "cid": CID, "stream": 0, "seq": number, "msg": message, "publisher": 0, "n": number,
             "offline": False, "accepted": 10_000, "since": 9_000, "hello": 9_000, "visit": 9_000}]
        steps = [{"event": event, "time": 10_000} for event in ("accepted", "sent", "acked")]
        traces[message] = {
            "state": "delivered", "cid": CID, "strategy": 1, "acceptedAt": 10_000, "expiresAt": 19_000, "steps": steps}
    lines += [
        {"e": "task", "id": "task-1", "kind": "broadcast", "publisher": 1, "n": 1, "strategy": 1, "ttl": 9_000, "collapse": ""},
        {"e": "targets", "id": "task-1", "cids": list(PLACES)},
        {"e": "made", "id": "task-1", "task": TASK},
        {"e": "reached", "id": "task-1", "cids": list(PLACES), "isFirst": False, "live": []}]
    for cid, message in PLACES.items():
        lines.append(
            {"e": "shown", "cid": cid, "stream": 1, "seq": 1, "msg": message, "publisher": 1, "n": 1, "offline": False,
             "accepted": 10_000, "since": 9_000, "hello": 9_000, "visit": 9_000})
        traces[message] = {**traces[MESSAGES[0]], "cid": cid, "taskId": TASK, "steps": list(traces[MESSAGES[0]]["steps"])}
    return lines, traces


def drop_shown(lines, traces):
    del lines[5]


def show_twice(lines, traces):
    lines.append({**lines[5], "seq": 3})


def swap_sequences(lines, traces):
    lines[2]["seq"], lines[5]["seq"] = 2, 1


def swap_publishes(lines, traces):
    lines[2], lines[5] = {**lines[5], "seq": 1}, {**lines[2], "seq": 2}


def answer_queued(lines, traces):
    lines[1]["live"] = False


def flag_delivered(lines, traces):
    lines[2]["offline"] = True


def come_much_later(lines, traces):
    lines[2]["since"] = 15_000


def come_again_in_time(lines, traces):
    lines[-1]["since"] = 12_200


def come_again_later(lines, traces):
    lines[-1]["since"] = 12_400


def wait_for_a_paced_one(lines, traces, hello=10_800):
    next(line for line in lines if line["e"] == "task")["speed"] = 100
    lines[-1].update(since=15_000, hello=hello)


def come_after_a_paced_one(lines, traces):
    wait_for_a_paced_one(lines, traces, hello=14_000)


def stay_pending(lines, traces):
    traces[MESSAGES[0]]["state"] = "pending"


def hand_off_unasked(lines, traces):
    traces[MESSAGES[0]]["state"] = "handedOff"
    traces[MESSAGES[0]]["steps"].append({"event": "ended", "time": 11_000})


def expire_early(lines, traces):
    traces[MESSAGES[0]]["state"] = "expired"
    traces[MESSAGES[0]]["steps"].append({"event": "ended", "time": 18_999})


def lease_after_ack(lines, traces):
    traces[MESSAGES[0]]["steps"].append({"event": "leased", "time": 11_000})


def lease_when_known(lines, traces):
    lines.append({"e": "leased", "msg": MESSAGES[0], "lease": "1", "attempt": 1, "asked": 21.0})


def forget_answer(lines, traces):
    del lines[1]


def leave_one_out(lines, traces):
    del lines[-1]


def reach_twice(lines, traces):
    lines.append({**lines[-1], "seq": 2, "msg": "5" * 32})
    traces["5" * 32] = traces[lines[-2]["msg"]]


def reach_a_stranger(lines, traces):
    lines[-5]["cids"] = lines[-3]["cids"] = [CID]


def forget_task(lines, traces):
    lines[-4]["e"] = "nothing"


def come_after_its_end(lines, traces):
    lines[-1]["visit"] = lines[-1]["since"] = 10_001


def come_after_its_ack(lines, traces):
    lines.append({"e": "covered", "cid": CID, "stream": 0, "seq": 1, "msg": MESSAGES[0], "visit": 10_001})


def revoke_unasked(lines, traces):
    traces[MESSAGES[0]]["state"] = "revoked"
    traces[MESSAGES[0]]["steps"].append({"event": "ended", "time": 11_000})


def report_otherwise(lines, traces):
    lines[-1]["e"] = "rejected"
    traces[PLACES["d" * 32]]["state"] = "failed"
    traces[PLACES["d" * 32]]["steps"].append({"event": "ended", "time": 11_000})


def deliver_after_a_stop(lines, traces):
    lines += [{"e": event, "id": "task-1", "t": 9.5} for event in ("stopping", "stopped")]


def send_what_was_taken_back(lines, traces):
    lines += [{"e": event, "id": "task-1", "t": 9.5} for event in ("cancelling", "cancelled")]


def go_out_early(lines, traces):
    lines[-6]["scheduled"] = 10_500


def ack_again(lines, traces):
    lines[-6]["firstAck"] = True
    traces[PLACES[CID]]["steps"][-1] = {"event": "acked", "time": 13_000}


def revoke_for_nobody(lines, traces):
    lines[-6]["firstAck"] = True
    for message in PLACES.values():
        traces[message]["state"] = "revoked"
        traces[message]["steps"][-1] = {"event": "ended", "time": 11_000}


PLANTED = [
    (drop_shown, "lost"), (stay_pending, "lost"), (hand_off_unasked, "lost"), (expire_early, "lost"),
    (show_twice, "repeated"), (swap_sequences, "outOfOrder"), (swap_publishes, "outOfOrder"),
    (answer_queued, "badFlag"), (flag_delivered, "badFlag"), (come_much_later, "badFlag"),
    (come_again_later, "badFlag"), (come_after_a_paced_one, "badFlag"),
    (lease_after_ack, "leasedAfterEnd"), (lease_when_known, "leasedAfterEnd"), (forget_answer, "unanswered"),
    (leave_one_out, "lost"), (reach_twice, "repeated"), (reach_a_stranger, "inconsistent"), (forget_task, "unanswered"),
    (come_after_its_end, "sentAfterEnd"), (come_after_its_ack, "sentAfterEnd"), (revoke_unasked, "lost"),
    (report_otherwise, "inconsistent"), (deliver_after_a_stop, "changed"), (send_what_was_taken_back, "inconsistent"),
    (go_out_early, "inconsistent"), (ack_again, "changed"), (revoke_for_nobody, "lost"),
]


@pytest.mark.parametrize(
    ("damage", "kind"), [(None, None), (come_again_in_time, None), (wait_for_a_paced_one, None), *PLANTED],
    ids=lambda one: getattr(one, "__name__", None))
def test_the_audit_notices(tmp_path, damage, kind):
    lines, traces = books()
    if damage:
        damage(lines, traces)
    (tmp_path / "one.book").write_text("".join(json.dumps(line) + "\n" for line in lines))
    audit = Audit(tmp_path, live_deadline=0.9)
    audit.witnessed[MESSAGES[0]] = (traces[MESSAGES[0]]["state"], 20.0)
    audit.read(0)
    for name, message in audit.messages.items():
        message.trace = traces[name]
    audit.judge(had_hook=False)
    audit.tasks.judge([TASK], REPORT, audit.messages, breaks=[])
    if kind:
        assert audit.counts[kind] >= 1, audit.problems
    else:
        assert audit.problems == []


def test_a_list_without_data_takes_on_what_it_does_not_name_as_refused():
    beside = {"refused": [{"cid": "b", "code": 30019}], "unknown": ["c"], "queued": 1}
    assert taken_of(["a", "b", "c"], beside) == ["a"]
    assert taken_of(["a", "b"], {"queued": 2}) == ["a", "b"]
