"""Lists, their retries, schedules, stops, revokes and reports, over real sockets and across kills."""

import datetime
import threading
import time
import uuid

import pytest
from conftest import QUICK
from gateway import Refused, eventually, wait_out_midnight
from longwire_client import Closed, pb

ALERT = {"ios": {"type": "notify", "aps": {"alert": {"title": "News", "body": "…"}}}}


def create(gateway, payload="news", **fields):
    """Stores a list message; returns its task id."""
    body = {"push_message": {"transmission": payload}, **fields}
    return gateway.api("POST", "push/list/message", body)["data"]["taskid"]


def send(gateway, task, cids, **fields):
    return gateway.api("POST", "push/list/cid", {"taskid": task, "audience": {"cid": cids}, **fields})


def report(gateway, task):
    """Returns the numbers of one task: Getui's, and every state by name."""
    answer = gateway.api("GET", f"report/push/task/{task}")
    return answer["data"][task], answer["longwire"]["tasks"][task]


def refusal(call):
    with pytest.raises(Refused) as refused:
        call()
    return refused.value.status, refused.value.body["code"], refused.value.body["msg"]


@pytest.fixture
def away(new_device):
    def make(gateway, **fields):
        device = new_device(gateway, **fields)
        device.close()
        eventually(lambda: not gateway.view(device.cid)["connected"])
        return device

    return make


def test_a_list_reaches_devices_of_every_loop_once_and_says_what_each_got(gateway, new_device, away):
    here, gone = [new_device(gateway) for _ in range(6)], [away(gateway) for _ in range(2)]
    task = create(gateway, push_channel=ALERT)
    assert task.startswith("RASL_")
    cids = [device.cid for device in here + gone]
    answer = send(gateway, task, cids + [cids[0], "f" * 32, "no cid"])
    assert answer["data"] == {
        task: {
            **{device.cid: "successed_online" for device in here},
            **{device.cid: "successed_offline" for device in gone},
        }
    }, "unknown ones are absent, a doubled one counts once"
    beside = answer["longwire"]
    assert (beside["durability"], beside["live"], beside["queued"]) == ("fsync", 6, 2)
    assert sorted(beside["unknown"]) == sorted(["f" * 32, "no cid"])
    assert set(beside["noFallback"]["noToken"]) == set(cids), "a fallback that cannot be built is said at once"
    for device in here:
        assert device.receive_and_ack(1)[0].payload == b"news"
    again = send(gateway, task, cids)
    assert again["data"] == answer["data"] and again["longwire"]["repeated"] == 8
    for device in gone:
        device.connect()
        message = device.receive_and_ack(1)[0]
        assert message.offline and message.payload == b"news"
    for device in here + gone:
        with pytest.raises(TimeoutError):
            device.receive(timeout=0.1)
    eventually(lambda: report(gateway, task)[1]["pending"] == 0)
    numbers, states = report(gateway, task)
    assert states["accepted"] == 8 and states["delivered"] == 6 and states["deliveredOffline"] == 2
    assert numbers["total"] == {
        "msg_num": 8, "target_num": 8, "receive_num": 8, "display_num": 0, "click_num": 0
    }
    assert numbers["gt"]["receive_num"] == 8 and numbers["ios"]["target_num"] == 0


def test_an_asynchronous_list_answers_without_data_and_is_durable_all_the_same(gateway, new_device):
    device = new_device(gateway)
    task = create(gateway)
    answer = send(gateway, task, [device.cid], is_async=True)
    assert answer["code"] == 0 and "data" not in answer and answer["longwire"]["durability"] == "fsync"
    assert device.receive_and_ack(1)[0].payload == b"news"


def test_an_alias_that_is_none_or_nobodys_is_named_and_the_others_are_reached(gateway, new_device):
    device, task = new_device(gateway), create(gateway)
    gateway.api("POST", "user/alias", {"data_list": [{"cid": device.cid, "alias": "member_1", "alias_type": "t-1"}]})
    audience = {"alias": ["member_1", "550e8400-e29b", "member_2"], "alias_type": "t-1"}
    beside = gateway.api("POST", "push/list/alias", {"taskid": task, "audience": audience})["longwire"]
    assert device.receive_and_ack(1)[0].payload == b"news"
    assert beside["live"] == 1 and beside["unknown"] == ["member_2"]
    assert [(item["index"], item["alias"]) for item in beside["refused"]] == [(1, "550e8400-e29b")]
    pairs = [{"cid": device.cid, "alias": "a b"}, {"cid": device.cid, "alias": "member_3"}]
    status, code, text = refusal(lambda: gateway.api("POST", "user/alias", {"data_list": pairs}))
    assert (status, code) == (400, 20001) and "data_list[0] a b" in text
    assert gateway.api("GET", "user/cid/alias/member_3")["data"] == {"cid": [device.cid]}


def test_one_request_id_for_several_aliases_is_several_requests(gateway, new_device):
    users = {name: new_device(gateway) for name in ("user_1", "user_2")}
    pairs = [{"cid": device.cid, "alias": name} for name, device in users.items()]
    gateway.api("POST", "user/alias", {"data_list": pairs})
    request = uuid.uuid4().hex

    def push(name, payload="hello"):
        body = {"request_id": request, "audience": {"alias": [name]}, "push_message": {"transmission": payload}}
        return gateway.api("POST", "push/single/alias", body)["data"]

    first = {name: push(name) for name in users}
    assert {name: push(name) for name in users} == first, "a repetition gets the first answer"
    for device in users.values():
        assert device.receive_and_ack(1)[0].payload == b"hello"
        with pytest.raises(TimeoutError):
            device.receive(timeout=0.1)
    for name in users:
        assert "cannot be repeat" in refusal(lambda: push(name, "another body"))[2]


def same_again(gateway, path, body, change):
    """A repeat after `change` gets the first answer's data, and another body under its id is refused."""
    first = gateway.api("POST", path, body)["data"]
    change()
    assert gateway.api("POST", path, body)["data"] == first, path
    status, code, text = refusal(lambda: gateway.api("POST", path, {**body, "other": 1}))
    assert (status, code) == (400, 20001) and "cannot be repeat" in text, path
    return first


def test_a_repeat_keeps_its_first_answer_when_aliases_and_tags_have_changed(gateway, new_device, away):
    one, gone, later = new_device(gateway), away(gateway), new_device(gateway)

    def bind(*devices):
        pairs = [{"cid": device.cid, "alias": "again"} for device in devices]
        gateway.api("POST", "user/alias", {"data_list": pairs})

    def rebind():
        gateway.api("DELETE", "user/alias/again")

    def rebind_to_another():
        rebind()
        bind(later)

    def untag():
        gateway.api("DELETE", "user/custom_tag/batch/again", {"cid": [one.cid]})

    def item(payload="once"):
        return {
            "request_id": uuid.uuid4().hex,
            "audience": {"alias": ["again"]},
            "push_message": {"transmission": payload},
        }

    for change in (rebind, rebind_to_another):
        bind(one, gone)
        first = same_again(gateway, "push/single/alias", item(), change)
        assert set(next(iter(first.values()))) == {one.cid, gone.cid}
    bind(one, gone)
    batch = {"msg_list": [item(), item()]}
    first = gateway.api("POST", "push/single/batch/alias", batch)["data"]
    rebind_to_another()
    assert gateway.api("POST", "push/single/batch/alias", batch)["data"] == first
    bind(one, gone)
    call = {"taskid": create(gateway), "audience": {"alias": ["again"]}, "request_id": uuid.uuid4().hex}
    same_again(gateway, "push/list/alias", call, rebind_to_another)

    condition = {"cid_by_tag": [{"cid": one.cid, "tag": ["again"], "op_type": 1}]}
    body = {"request_id": uuid.uuid4().hex, "audience": condition, "push_message": {"transmission": "tagged"}}
    assert not any(same_again(gateway, "push/single/cid_by_tag", body, lambda: None).values()), "no tag, no device"
    for path in ("push/single/cid_by_tag", "push/list/cid_by_tag"):
        gateway.api("PUT", "user/custom_tag/batch/again", {"cid": [one.cid]})
        body["request_id"] = uuid.uuid4().hex
        if path.startswith("push/list"):
            body = {"request_id": uuid.uuid4().hex, "audience": condition, "taskid": create(gateway)}
        assert all(same_again(gateway, path, body, untag).values())


def test_a_repeat_keeps_its_first_answer_after_a_stop_a_schedule_or_a_blacklisting(gateway, away):
    device, other = away(gateway), away(gateway)
    task = create(gateway)
    call = {"taskid": task, "audience": {"cid": [device.cid, "0" * 31 + "1"]}, "request_id": uuid.uuid4().hex}
    same_again(gateway, "push/list/cid", call, lambda: gateway.api("DELETE", f"task/{task}"))
    timed = create(gateway, settings={"schedule_time": int(time.time() * 1000) + 3_600_000})
    call = {**call, "taskid": timed, "request_id": uuid.uuid4().hex}
    first = same_again(gateway, "push/list/cid", call, lambda: gateway.api("DELETE", f"task/schedule/{timed}"))
    assert first == {timed: {device.cid: "successed_offline"}}
    beside = gateway.api("POST", "push/list/cid", call)["longwire"]
    assert beside["targets"] == 1 and "scheduledFor" in beside and beside["unknown"] == ["0" * 31 + "1"]
    body = gateway.push_body(other.cid, "kept")
    same_again(gateway, "push/single/cid", body, lambda: gateway.api("POST", f"user/black/cid/{other.cid}", {}))


def test_a_stored_message_is_made_once_for_a_request_id(gateway):
    request = uuid.uuid4().hex
    body = {"request_id": request, "push_message": {"transmission": "news"}}
    first = gateway.api("POST", "push/list/message", body)
    task = first["data"]["taskid"]
    time.sleep(0.05)
    again = gateway.api("POST", "push/list/message", body)
    assert again["data"] == first["data"] and again["longwire"] == {**first["longwire"], "repeat": True}
    status, code, text = refusal(lambda: create(gateway, "other news", request_id=request))
    assert (status, code) == (400, 20001) and "cannot be repeat" in text


def test_a_repeat_in_time_is_answered_though_its_schedule_time_is_too_old_by_now(gateway):
    fields = {"request_id": uuid.uuid4().hex, "settings": {"schedule_time": int(time.time() * 1000) - 3_597_000}}
    task = create(gateway, **fields)
    time.sleep(3.5)
    assert create(gateway, **fields) == task
    assert refusal(lambda: create(gateway, settings=fields["settings"]))[:2] == (400, 22002)


def test_bad_list_calls_name_what_is_wrong(gateway, new_device):
    device = new_device(gateway)
    task = create(gateway)
    unknown = task[:-1] + ("0" if task[-1] != "0" else "1")
    assert refusal(lambda: send(gateway, unknown, [device.cid]))[:2] == (400, 20001)
    assert refusal(lambda: send(gateway, "RASL_x", [device.cid]))[2].startswith("taskid is invalid")
    assert refusal(lambda: send(gateway, task, []))[2] == "cid can not be empty"
    assert "size over limit" in refusal(lambda: send(gateway, task, ["0" * 32] * 1001))[2]
    assert refusal(lambda: send(gateway, task, ["zz"]))[2] == "target user is invalid"
    alias = {"taskid": task, "audience": {"alias": ["nobody"]}}
    assert refusal(lambda: gateway.api("POST", "push/list/alias", alias))[2] == "target user is invalid"


def test_limits_of_an_app_are_enforced_with_their_codes_and_survive_a_restart(own_gateway, new_device):
    gateway = own_gateway(app={"push": {"listsPerDay": 2, "listTargets": 1, "batchItems": 1}})
    device = new_device(gateway)
    task = create(gateway)
    assert "size over limit" in refusal(lambda: send(gateway, task, [device.cid, "0" * 32]))[2]
    body = {"msg_list": [gateway.push_body(device.cid, "x"), gateway.push_body(device.cid, "y")]}
    assert refusal(lambda: gateway.api("POST", "push/single/batch/cid", body))[2].startswith("msg_list size over")
    request = uuid.uuid4().hex
    second = create(gateway, request_id=request)
    assert refusal(lambda: create(gateway))[:2] == (403, 30008)
    assert create(gateway, request_id=request) == second, "a repeat uses nothing up and is not refused"
    quota = {"total_num": 2, "remain_num": 0, "limit": True, "push_num": 2}
    assert gateway.api("GET", "report/push/count")["data"]["gt"]["list"] == quota
    assert gateway.stop() == 0
    gateway.start()
    assert refusal(lambda: create(gateway))[:2] == (403, 30008)


def test_a_killed_list_call_is_made_again_and_reaches_everyone_once(own_gateway, new_device):
    gateway = own_gateway(limits={**QUICK, "liveDeadlineMilliseconds": 600_000})
    devices = [new_device(gateway) for _ in range(40)]
    cids = [device.cid for device in devices]
    for number in range(4):
        task = create(gateway, f"round {number}")
        request = uuid.uuid4().hex
        answers = []

        def call(task=task, request=request, answers=answers):
            try:
                answers.append(send(gateway, task, cids, request_id=request))
            except (OSError, Refused):
                pass
            except Exception:  # a connection that ended within the answer
                pass

        caller = threading.Thread(target=call)
        caller.start()
        time.sleep(0.002 * number)
        gateway.kill()
        caller.join()
        gateway.start()
        again = send(gateway, task, cids, request_id=request)
        assert set(again["data"][task]) == set(cids)
        if answers:
            assert again["data"] == answers[0]["data"], "an answer that was given is given again"
        for device in devices:
            device.close()
            eventually(lambda: _connect(device), "the return of a device")
        for device in devices:
            fresh = []
            while not fresh:
                fresh = device.receive_and_ack(1)
            assert [one.payload for one in fresh] == [f"round {number}".encode()]
        eventually(lambda: report(gateway, task)[1]["pending"] == 0)
        assert report(gateway, task)[1]["accepted"] == len(devices)
    for device in devices:
        with pytest.raises(TimeoutError):
            device.receive(timeout=0.02)


def _connect(device):
    try:
        return device.connect()
    except (Closed, OSError):
        return None


def test_concurrent_copies_of_one_list_call_wait_and_hear_the_same(gateway, new_device):
    devices = [new_device(gateway) for _ in range(20)]
    task, request = create(gateway), uuid.uuid4().hex
    answers = []
    cids = [device.cid for device in devices]
    callers = [
        threading.Thread(target=lambda: answers.append(send(gateway, task, cids, request_id=request)["data"]))
        for _ in range(6)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(answers) == 6 and all(answer == answers[0] for answer in answers)
    for device in devices:
        assert device.receive_and_ack(1)[0].payload == b"news"
        with pytest.raises(TimeoutError):
            device.receive(timeout=0.02)
    other = lambda: send(gateway, task, cids[:1], request_id=request)  # noqa: E731
    assert "cannot be repeat" in refusal(other)[2]


def test_a_schedule_survives_a_kill_and_goes_out_in_its_time(own_gateway, new_device):
    gateway = own_gateway()
    device, other = new_device(gateway), new_device(gateway)
    due = int(time.time() * 1000) + 4_000
    task = create(gateway, settings={"schedule_time": due})
    answer = send(gateway, task, [device.cid, "00" * 15 + "01"])
    assert answer["data"] == {task: {device.cid: "successed_offline"}}, "a device that exists is not told as rejected"
    assert answer["longwire"]["scheduledFor"] == due and answer["longwire"]["targets"] == 1
    assert answer["longwire"]["unknown"] == ["00" * 15 + "01"]
    state = gateway.api("GET", f"task/schedule/{task}")["data"][task]
    assert (state["push_time"], state["send_result"]) == (str(due), "do_not_send")
    assert state["transmission_content"] == "news" and "status" not in state
    gateway.kill()
    gateway.start()
    send(gateway, task, [other.cid])
    for one in (device, other):
        eventually(lambda: _connect(one))
    for one in (device, other):
        message = one.receive_and_ack(1)[0]
        assert message.payload == b"news" and message.accepted_at >= due
    eventually(lambda: gateway.api("GET", f"task/schedule/{task}")["data"][task]["send_result"] == "send_success")
    assert gateway.api("GET", f"task/schedule/{task}")["data"][task]["status"] == "success"
    assert refusal(lambda: gateway.api("DELETE", f"task/schedule/{task}"))[:2] == (400, 22001)


def test_a_schedule_can_be_deleted_until_its_last_minute(gateway, new_device):
    device = new_device(gateway)
    now = int(time.time() * 1000)
    task = create(gateway, settings={"schedule_time": now + 3_600_000})
    send(gateway, task, [device.cid])
    assert gateway.api("DELETE", f"task/schedule/{task}") == {"code": 0, "msg": "success"}
    assert gateway.api("GET", f"task/schedule/{task}")["data"][task]["send_result"] == "has_delete"
    assert refusal(lambda: send(gateway, task, [device.cid]))[2].startswith("taskid is invalid")
    soon = create(gateway, settings={"schedule_time": now + 30_000})
    assert refusal(lambda: gateway.api("DELETE", f"task/schedule/{soon}"))[:2] == (400, 22001)
    assert refusal(lambda: gateway.api("DELETE", "task/schedule/RASL_none"))[:2] == (400, 22002)
    assert refusal(lambda: gateway.api("GET", f"task/schedule/{create(gateway)}"))[:2] == (400, 22002)
    late = {"schedule_time": now + 8 * 86_400_000}
    assert refusal(lambda: create(gateway, settings=late))[:2] == (400, 22002)


def test_a_stop_ends_what_is_pending_and_lets_nothing_in_any_more(own_gateway, new_device, away):
    gateway = own_gateway()
    reached = new_device(gateway)
    waiting = [away(gateway, token=f"{number:064x}") for number in range(1, 6)]
    task = create(gateway, push_channel=ALERT)
    send(gateway, task, [reached.cid] + [device.cid for device in waiting])
    assert reached.receive_and_ack(1)
    eventually(lambda: report(gateway, task)[1]["delivered"] == 1)
    assert gateway.api("DELETE", f"task/{task}")["longwire"]["revoked"] == 5
    assert gateway.lease() == [], "their jobs are cancelled"
    assert report(gateway, task)[1]["revoked"] == 5
    assert refusal(lambda: send(gateway, task, [reached.cid]))[2].startswith("taskid is invalid")
    gateway.kill()
    gateway.start()
    assert refusal(lambda: send(gateway, task, [waiting[0].cid]))[2].startswith("taskid is invalid")
    assert gateway.api("DELETE", f"task/{task}")["longwire"]["revoked"] == 0
    states = report(gateway, task)[1]
    assert (states["delivered"], states["revoked"], states["pending"]) == (1, 5, 0)
    waiting[0].connect()
    assert waiting[0].welcome.backlog == 0


def test_a_single_push_can_be_stopped_and_reported_too(gateway, away):
    device = away(gateway)
    message = gateway.push(device.cid, "never mind")
    assert report(gateway, message["taskId"])[1]["pending"] == 1
    assert gateway.api("DELETE", f"task/{message['taskId']}")["longwire"]["revoked"] == 1
    assert gateway.ends_as(message["msgId"], "revoked")["reason"] == "stopped"
    assert report(gateway, message["taskId"])[1]["revoked"] == 1
    unknown = "RASS_1121_" + "0" * 24
    assert refusal(lambda: gateway.api("DELETE", f"task/{unknown}"))[:2] == (400, 20001)


@pytest.mark.parametrize("kind", ["single", "list"])
def test_a_revoke_ends_what_is_pending_and_withdraws_what_was_seen(own_gateway, new_device, away, kind):
    gateway = own_gateway()
    seen, unseen, stranger = new_device(gateway), away(gateway), new_device(gateway)
    if kind == "list":
        task = create(gateway, "oops")
        send(gateway, task, [seen.cid, unseen.cid])
        tasks = {seen.cid: task, unseen.cid: task, stranger.cid: task}
    else:
        tasks = {one.cid: gateway.push(one.cid, "oops")["taskId"] for one in (seen, unseen)}
        tasks[stranger.cid] = tasks[seen.cid]
    assert seen.receive_and_ack(1)[0].payload == b"oops"
    eventually(lambda: report(gateway, tasks[seen.cid])[1]["delivered"] == 1)

    def revoke(device):
        body = gateway.push_body(device.cid, "x")
        body["push_message"] = {"revoke": {"old_task_id": tasks[device.cid], "force": False}}
        answer = gateway.api("POST", "push/single/cid", body)
        return next(iter(answer["data"].values()))[device.cid]

    assert revoke(seen) == "successed_online"
    frame = seen.receive(pb.Revoke)
    assert frame.revoked_task_id.hex()[8:] == tasks[seen.cid].rsplit("_", 1)[1]
    seen.ack(frame.sequence)
    assert revoke(unseen) == "successed_ignore", "it was never sent, so there is nothing to withdraw"
    assert revoke(stranger) == "successed_ignore"
    assert report(gateway, tasks[unseen.cid])[1]["revoked"] == 1
    unseen.connect()
    assert unseen.welcome.backlog == 0
    assert next(one.count for one in unseen.welcome.dropped if one.reason == "revoked") == 1


def test_a_list_can_carry_a_revoke(gateway, new_device):
    devices = [new_device(gateway) for _ in range(3)]
    cids = [device.cid for device in devices]
    old = create(gateway, "oops")
    send(gateway, old, cids[:2])
    for device in devices[:2]:
        device.receive_and_ack(1)
    eventually(lambda: report(gateway, old)[1]["delivered"] == 2)
    task = gateway.api("POST", "push/list/message", {"push_message": {"revoke": {"old_task_id": old}}})
    answer = send(gateway, task["data"]["taskid"], cids)["data"]
    assert list(next(iter(answer.values())).values()) == ["successed_online"] * 2 + ["successed_ignore"]
    for device in devices[:2]:
        device.ack(device.receive(pb.Revoke).sequence)


def test_reports_add_up_over_both_channels(own_gateway, new_device, away):
    gateway = own_gateway()
    live = [new_device(gateway) for _ in range(3)]
    alerted = [away(gateway, token=f"{number:064x}") for number in range(1, 4)]
    group = "group-" + uuid.uuid4().hex[:8]
    task = create(gateway, group_name=group, push_channel=ALERT, settings={"strategy": {"ios": 1}})
    send(gateway, task, [device.cid for device in live + alerted])
    for device in live:
        message = device.receive_and_ack(1)[0]
    live[0].feedback(message.msg_id)  # another device's message, which does not count
    jobs = {job["cid"]: job for job in gateway.lease()}
    assert set(jobs) == {device.cid for device in alerted}
    for job in jobs.values():
        assert job["taskId"] == task
        assert gateway.settle(job, "accepted") == "recorded"
    opener = alerted[0]
    opener.connect(opened=[bytes.fromhex(jobs[opener.cid]["msgId"])])
    reader = alerted[1]
    reader.connect()
    shown = reader.receive_and_ack(1)[0]
    assert shown.alerted_at > 0
    for _ in range(2):
        reader.feedback(shown.msg_id, pb.Feedback.SHOWN)
        reader.feedback(shown.msg_id, pb.Feedback.ACTION, action=90001)

    def is_settled():
        numbers, states = report(gateway, task)
        return states["opened"] == 1 and numbers["actionCntMap"] == {"90001": 1}

    eventually(is_settled, "what the users did")
    numbers, states = report(gateway, task)
    named = ("delivered", "deliveredOffline", "opened", "handedOff", "expired", "collapsed", "revoked", "overflowed")
    assert states["accepted"] == 6 == sum(states[name] for name in named) + states["failed"] + states["pending"]
    assert (states["delivered"], states["deliveredOffline"], states["pending"]) == (3, 1, 1)
    assert numbers["gt"] == {"target_num": 4, "receive_num": 4, "display_num": 0, "click_num": 0}
    assert numbers["total"]["receive_num"] == 5 and numbers["total"]["msg_num"] == 6
    assert (numbers["ios"]["click_num"], numbers["ios"]["display_num"]) == (1, 2), "each event once"
    today, later = (datetime.datetime.now(datetime.timezone.utc).date() + datetime.timedelta(days) for days in (0, 1))
    for query in ("", f"?startDate={today}&endDate={today}", f"?endDate={later}&needGetuiByBrand=false"):
        grouped = gateway.api("GET", f"report/push/task_group/{group}{query}")
        assert grouped["data"][group]["total"] == numbers["total"] and grouped["longwire"]["tasks"] == 1
    for query in ("startDate=2020-01-01&endDate=2020-01-31", f"startDate={later}"):
        other = gateway.api("GET", f"report/push/task_group/{group}?{query}")
        assert other["data"][group]["total"]["msg_num"] == 0 and other["longwire"]["tasks"] == 0
    for query in ("startDate=bogus", "endDate=2026-02-30", f"startDate={later}&endDate={today}", "since=1"):
        assert refusal(lambda: gateway.api("GET", f"report/push/task_group/{group}?{query}"))[:2] == (400, 20001)
    detailed = gateway.api("GET", f"report/push/task/{task}/detail")["data"][task]
    assert set(detailed) == {"total", "gt", "apn", "failed_detail"}
    some = gateway.api("GET", f"report/push/task/{task}?actionIdList=90002")["data"][task]
    assert some["actionCntMap"] == {}


def test_a_task_that_reached_nobody_has_a_report_all_the_same(own_gateway, new_device):
    gateway = own_gateway()
    device = new_device(gateway, token="aa" * 32)

    def is_known(task):
        answer = gateway.api("GET", f"report/push/task/{task}")
        return task in answer["data"] and answer["longwire"]["tasks"][task]["accepted"] == 0

    later = {"schedule_time": int(time.time() * 1000) + 300_000}
    message = {"push_message": {"transmission": "x"}, "settings": later}
    tasks = [create(gateway), create(gateway, settings=later)]
    send(gateway, tasks[1], [device.cid])
    cast = {**message, "request_id": uuid.uuid4().hex, "audience": "all"}
    tasks.append(gateway.api("POST", "push/all", cast)["data"]["taskid"])
    assert all(map(is_known, tasks))
    for task in tasks[1:]:
        gateway.api("DELETE", f"task/{task}")
    assert all(map(is_known, tasks))
    # A broadcast that expires before the restarted gateway creates its messages.
    short = {**cast, "request_id": uuid.uuid4().hex, "push_channel": ALERT, "settings": {"strategy": {"ios": 2}, "ttl": 1}}
    dealt = gateway.api("POST", "push/all", short)["data"]["taskid"]
    gateway.kill()
    gateway.start()
    assert all(map(is_known, tasks))
    assert dealt in gateway.api("GET", f"report/push/task/{dealt}")["data"]
    unknown = tasks[0][:-4] + "0000"
    assert gateway.api("GET", f"report/push/task/{unknown}")["longwire"]["unknown"] == [unknown]


def test_a_report_survives_a_kill(own_gateway, new_device, away):
    gateway = own_gateway()
    device, gone = new_device(gateway), away(gateway)
    task = create(gateway, settings={"strategy": {"default": 2}}, push_channel=ALERT)
    send(gateway, task, [device.cid, gone.cid])
    before = report(gateway, task)
    assert before[1]["failed"] == 2 and before[1]["failures"] == {"noToken": 2}
    detailed = gateway.api("GET", f"report/push/task/{task}/detail")["data"][task]
    assert detailed["failed_detail"] == {"rs": {"apn": {"5": 2, "total": 2}}}
    gateway.kill()
    gateway.start()
    assert report(gateway, task) == before
    # The tick of the first second records the first point.
    online = eventually(lambda: gateway.api("GET", "report/online_user")["data"]["online_statics"])
    assert all(int(moment) % 600_000 == 0 for moment in online)


def test_days_that_are_over_are_reported_and_others_refused(own_gateway):
    wait_out_midnight()
    gateway = own_gateway()
    today = datetime.datetime.now(datetime.timezone.utc).date()
    for path in ("report/push/date", "report/user/date"):
        assert refusal(lambda: gateway.api("GET", f"{path}/{today}"))[:2] == (400, 20001)
        assert refusal(lambda: gateway.api("GET", f"{path}/2026-02-30"))[:2] == (400, 20001)
        old = today - datetime.timedelta(days=91)
        forgotten = gateway.api("GET", f"{path}/{old}")
        assert forgotten["data"] == {} and forgotten["longwire"] == {"unknown": [str(old)]}
    yesterday = str(today - datetime.timedelta(days=1))
    day = gateway.api("GET", f"report/push/date/{yesterday}")["data"][yesterday]
    assert day["total"]["msg_num"] == 0 and set(day) == {"total", "gt", "ios"}
    users = gateway.api("GET", f"report/user/date/{yesterday}")["data"][yesterday]
    assert users == {"accumulative_num": 0, "register_num": 0, "active_num": 0, "online_num": 0}


def test_the_life_of_one_message_is_told(gateway, new_device):
    device = new_device(gateway)
    task = create(gateway)
    send(gateway, task, [device.cid])
    device.receive_and_ack(1)
    single = gateway.push(device.cid, "x")
    device.receive_and_ack(1)
    for name in (task, single["taskId"]):
        answer = eventually(lambda: _ended(gateway, device.cid, name))
        assert [step["event"] for step in answer["data"]["deatil"]] == ["accepted", "sent", "acked"]
        assert answer["data"]["detail"] == answer["data"]["deatil"]
        datetime.datetime.strptime(answer["data"]["detail"][0]["time"], "%Y-%m-%d %H:%M:%S")
    other = new_device(gateway)
    assert refusal(lambda: gateway.api("GET", f"task/detail/{other.cid}/{task}"))[:2] == (401, 10004)


def _ended(gateway, cid, task):
    answer = gateway.api("GET", f"task/detail/{cid}/{task}")
    return answer if answer["longwire"]["state"] != "pending" else None


@pytest.mark.parametrize("body", [b"null", b"", b"[]"])
def test_a_call_without_parameters_may_have_any_empty_body(gateway, body):
    task = create(gateway)
    assert gateway.api("DELETE", f"task/{task}", raw=body)["code"] == 0


def test_lists_as_getuis_sdks_write_them(gateway, new_device):
    device = new_device(gateway)
    # PHP's body: an audience of "all", empty objects as arrays, everything escaped.
    body = (
        b'{"request_id":"","audience":"all","settings":[],"push_channel":[],"task_name":"x",'
        b'"push_message":{"duration":"1590547347000-1590633747000","transmission":"\\u4f60\\u597d \\/"}}'
    )
    task = gateway.api("POST", "push/list/message", raw=body)["data"]["taskid"]
    numbers = {"taskid": task, "audience": {"cid": [device.cid]}, "is_async": "false", "need_alias_detail": 0}
    assert gateway.api("POST", "push/list/cid/", numbers)["data"] == {task: {device.cid: "successed_online"}}
    assert device.receive_and_ack(1)[0].payload == "你好 /".encode()


def test_lists_wait_for_room_where_single_pushes_would_be_refused(own_gateway, away):
    """Twelve lists at once with twelve times the bytes that may be uncommitted: portions wait, and no call is refused."""
    gateway = own_gateway(limits={**QUICK, "uncommittedBytes": 1 << 20})
    cids = [away(gateway).cid for _ in range(24)]
    payload = "\U0001f4e6" * 3_000  # 12 KB
    tasks = [create(gateway, payload=f"{number}{payload}") for number in range(12)]
    answers = [None] * len(tasks)

    def call(number):
        answers[number] = send(gateway, tasks[number], cids)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(len(tasks))]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for task, answer in zip(tasks, answers):
        assert answer["data"][task] == {cid: "successed_offline" for cid in cids}
