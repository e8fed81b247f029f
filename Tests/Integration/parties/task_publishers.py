"""Publishers of a crash round that create tasks: lists, pushes to aliases, broadcasts; some are scheduled, some are stopped.

For each task the records have the devices that it may reach, before the call, and the devices that it must reach, after the
answer.
"""

import hashlib
import time

from publishing import HTTPPublisher

MINUTE = 60_000
BUSY = 30019
# Longer than a round with all its timeouts. Not an hour, because an app has room for 512 live broadcasts.
LONG = 3 * MINUTE
# An alias has room for ten. The remains of a binding that a kill interrupted count for half a minute.
ALIASES, MEMBERS = 8, 5


def taken_of(cids, beside):
    """Returns the devices accepted by an answer without `data`: all except those that it names."""
    missing = {one["cid"] for one in beside.get("refused", [])} | set(beside.get("unknown", []))
    return [cid for cid in cids if cid not in missing]


class TaskPublisher(HTTPPublisher):
    """Creates one task at a time, and follows it until the gateway's acceptance is known."""

    def new_task(self, kind, strategies=(60, 10, 20, 10), ttls=(84, 8, 4, 4), **fields):
        self.count += 1
        chance = self.chance
        strategy = chance.choices((1, 2, 3, 4), strategies)[0]
        ttl = chance.choices((LONG, 2_000, 0, -1), ttls)[0]
        if strategy != 1 and ttl <= 0:
            ttl = LONG
        size = chance.choices((0, 300, 2_500), (70, 20, 10))[0]
        task = {
            "id": f"task-{self.number}-{self.count}", "kind": kind, "publisher": self.number, "n": self.count,
            "strategy": strategy, "ttl": ttl, "alert": strategy in (2, 4) or chance.random() < 0.6,
            "collapse": f"key-{chance.randrange(2)}" if chance.random() < 0.06 else "",
            "payload": f"{self.number} {self.count} " + "x" * chance.randrange(size + 1), **fields,
        }
        self.book.write("task", **{**task, "payload": hashlib.sha256(task["payload"].encode()).hexdigest()})
        return task

    def a_time(self):
        """Returns the time of a task: mostly at once (0), else soon, or late enough to be withdrawn."""
        soon, late = self.chance.randrange(800, 2_500), 75_000
        ahead = self.chance.choices((0, soon, late), (80, 14, 6))[0]
        return int(time.time() * 1000) + ahead if ahead else 0

    @classmethod
    def content(cls, task):
        body = super().content(task)
        if task.get("scheduled"):
            body["settings"]["schedule_time"] = task["scheduled"]
        if task.get("firstAck"):
            body["settings"]["first_ack_wins"] = True
        if task.get("speed"):
            body["settings"]["speed"] = task["speed"]
        return body

    def end_early(self, task, odds):
        """Deletes tasks scheduled much later, and stops some of the others."""
        if task.get("scheduled", 0) > time.time() * 1000 + 30_000:
            path, before, after = f"task/schedule/{task['name']}", "cancelling", "cancelled"
        elif self.chance.random() < odds:
            path, before, after = f"task/{task['name']}", "stopping", "stopped"
            time.sleep(self.chance.choice((0, 0.05, 0.4)) * self.chance.random())
        else:
            return
        self.note(before, task)
        answer = self.ask(path, None, "DELETE")
        if answer is not None and answer["code"] == 0:
            self.note(after, task)
        elif answer is not None:
            self.book.write("odd", what=f"{before} {task['id']} {task['name']}", answer=answer)

    def ask(self, path, body, method="POST"):
        return self.until_answered(lambda: self.call(path, body, method))

    def note(self, event, of, **fields):
        self.book.write(event, id=of["id"], **fields)

    def taken(self, task, answer):
        """Returns False and records it if the call was refused permanently (or the party ends)."""
        if answer is not None and answer["code"] != 0:
            self.note("refused", task, code=answer["code"], reason=answer["msg"])
        return answer is not None and answer["code"] == 0


class AliasUser(TaskPublisher):
    """Binds aliases of a type that no other party uses, so it knows their devices."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.type = f"type{self.number}"
        self.members = {f"name_{number}": set() for number in range(ALIASES)}

    def bind(self):
        """Binds one to four devices to another alias, which removes them from their previous one."""
        name = self.chance.choice(list(self.members))
        room = MEMBERS - len(self.members[name])
        cids = self.chance.sample(self.plan["cids"], self.chance.randrange(1, 5))[:max(0, room)]
        items = [{"cid": cid, "alias": name, "alias_type": self.type} for cid in cids]
        answer = self.ask("user/alias", {"data_list": items}) if cids else None
        if answer is None:
            return
        if answer["code"] != 0:
            self.book.write("odd", what="bind", answer=answer)
            return
        for one in self.members.values():
            one.difference_update(cids)
        self.members[name].update(cids)

    def named(self, most):
        """Returns some aliases that name a device, and all devices that they name."""
        if not any(self.members.values()):
            self.bind()
        used = [name for name, cids in self.members.items() if cids]
        names = self.chance.sample(used, min(len(used), self.chance.randrange(1, most + 1)))
        return names, sorted(set().union(*(self.members[name] for name in names)) if names else set())


class ListPublisher(AliasUser):
    def publish(self):
        if self.chance.random() < 0.2:
            self.bind()
        to_aliases = self.chance.random() < 0.3
        if to_aliases:
            names, cids = self.named(4)
            audience = {"alias": names, "alias_type": self.type}
        else:
            cids = self.chance.sample(self.plan["cids"], min(len(self.plan["cids"]), self.chance.randrange(2, 13)))
            audience = {"cid": cids}
        if not cids:
            return 1
        task = self.new_task("list", scheduled=self.a_time())
        made = self.ask("push/list/message", {"request_id": task["id"], **self.content(task)})
        if not self.taken(task, made):
            return 1
        task["name"] = made["data"]["taskid"]
        self.note("made", task, task=task["name"])
        self.send(task, "push/list/alias" if to_aliases else "push/list/cid", audience, cids)
        self.end_early(task, 0.12)
        return len(cids)

    def send(self, task, path, audience, cids):
        """Makes the call, and sometimes the same call again: a task reaches a device once."""
        self.note("targets", task, cids=cids)
        body = {"taskid": task["name"], "audience": audience}
        if self.chance.random() < 0.1:
            body["is_async"] = True
        for turn in range(20):
            # Another request id each turn, because a call refused for lack of room would get the same answer.
            if self.chance.random() < 0.5:
                body["request_id"] = f"{task['id']}-{turn}"
            answer = self.ask(path, body)
            if not self.taken(task, answer):
                return
            beside = answer["longwire"]
            reached = answer["data"].get(task["name"], {}) if "data" in answer else dict.fromkeys(taken_of(cids, beside), "")
            is_first = not turn and not task["scheduled"] and not beside.get("repeated") and "data" in answer
            self.note(
                "reached", task, cids=sorted(reached), isFirst=is_first,
                live=sorted(cid for cid, status in reached.items() if status == "successed_online"))
            if not set(cids) - set(reached) and self.chance.random() < 0.9:
                return
            body.pop("request_id", None)
            if beside.get("refused"):
                time.sleep(0.05)


class AliasPublisher(AliasUser):
    def publish(self):
        if self.chance.random() < 0.4:
            self.bind()
        names, cids = self.named(1)
        if not cids:
            return 1
        task = self.new_task("alias", firstAck=self.chance.random() < 0.4)
        self.note("targets", task, cids=cids)
        body = {
            "request_id": task["id"], "audience": {"alias": names, "alias_type": self.type}, **self.content(task)}
        for turn in range(20):
            answer = self.ask("push/single/alias", body)
            if not self.taken(task, answer):
                return 1
            (task["name"],) = answer["data"]
            said, refused = answer["longwire"]["messages"], answer["longwire"].get("refused", [])
            self.note("made", task, task=task["name"])
            self.note(
                "reached", task, cids=sorted(one["cid"] for one in said), without=sorted(one["cid"] for one in refused),
                isFirst=not turn and not any(one.get("repeat") for one in said),
                live=sorted(one["cid"] for one in said if one["channel"] == "live"),
                messages={one["cid"]: one["msgId"] for one in said})
            if not any(one["code"] == BUSY for one in refused):
                break
            time.sleep(0.05)
        self.end_early(task, 0.08)
        return len(cids)


class BroadcastPublisher(TaskPublisher):
    """Sends to all, to conditions on tags, to one tag; that tag constantly moves from device to device."""

    def audience(self):
        """Returns path, audience, and the devices in it, or None if they depend on the moment."""
        tags, everybody = self.plan["tags"], set(self.plan["cids"])
        kind = self.chance.choices(("all", "or", "and", "not", "fast", "moving"), (40, 15, 10, 10, 15, 10))[0]
        if kind == "all":
            return "push/all", "all", everybody
        if kind == "moving":
            self.move()
            return "push/fast_custom_tag", {"fast_custom_tag": "moving"}, None
        if kind == "fast":
            tag = self.chance.choice(sorted(tags))
            return "push/fast_custom_tag", {"fast_custom_tag": tag}, set(tags[tag])
        names = self.chance.sample(sorted(tags), 2)
        one, other = (set(tags[name]) for name in names)
        met = {"or": one | other, "and": one & other, "not": everybody - (one | other)}[kind]
        return "push/tag", {"tag": [{"key": "custom_tag", "values": names, "opt_type": kind}]}, met

    def move(self):
        cids = self.chance.sample(self.plan["cids"], self.chance.randrange(1, 6))
        answer = self.ask("user/custom_tag/batch/moving", {"cid": cids}, self.chance.choice(("PUT", "PUT", "DELETE")))
        if answer is not None and answer["code"] not in (0, 23001):
            self.book.write("odd", what="move", answer=answer)

    def publish(self):
        path, audience, met = self.audience()
        # A broadcast that ends early or starts later affects its whole audience, which must therefore be known for the check.
        ttls, odds = ((84, 8, 4, 4), 0.15) if met is not None else ((1, 0, 0, 0), 0)
        strategies = (75, 4, 17, 4) if met is not None else (8, 0, 2, 0)
        # At the lowest speed all devices of a round have theirs within a few seconds.
        speed = self.chance.choice((20, 100)) if self.chance.random() < 0.2 else 0
        task = self.new_task(
            "broadcast", strategies, ttls, scheduled=self.a_time() if met is not None else 0, speed=speed)
        self.note("targets", task, cids=self.plan["cids"] if met is None else sorted(met))
        answer = self.ask(path, {"request_id": task["id"], "audience": audience, **self.content(task)})
        if self.taken(task, answer):
            task["name"] = answer["data"]["taskid"]
            self.note("made", task, task=task["name"])
            if met is not None:
                self.note("reached", task, cids=sorted(met), isFirst=False, live=[])
            self.end_early(task, odds)
        return len(self.plan["cids"])
