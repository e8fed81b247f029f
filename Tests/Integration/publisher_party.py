"""Publishers of a crash round: singles and batches over HTTP, and native frames, all with request ids.

Whatever was not answered is said again with the same request id until it is. So after a drain the book knows of every
message whether it was accepted, and under which msgId.
"""

import hashlib
import random
import threading
import time

from party import API, UNANSWERED, Book, Orders, setup
from longwire_client import Closed, Sender, pb

HOUR = 3_600_000
RETRIED_CODES = {2, 30019, 30901}  # starting or stopping, queue full, store behind
RETRIED_RESULTS = {2, 5, 6, 7}


class Publisher(threading.Thread):
    """One stream of requests, one request at a time; so per device the numbers it publishes rise in order."""

    def __init__(self, number, plan, orders, book):
        super().__init__(daemon=True)
        self.number, self.plan, self.orders, self.book = number, plan, orders, book
        self.chance = random.Random(f"{plan['seed']} publisher {number}")
        self.count = plan["first"]
        self.is_idle = True

    def run(self):
        while self.orders.wait_while("wait") != "quit":
            self.is_idle = False
            started, sent = time.monotonic(), 0
            while self.orders.mode == "go":
                sent += self.publish()
                # An even pace, so that a round's size does not depend on the machine.
                ahead = sent / self.plan["pace"] - (time.monotonic() - started)
                if ahead > 0:
                    time.sleep(min(ahead, 0.2))
            self.is_idle = True
            self.orders.wait_while("drain")

    def new_message(self, cid):
        """One message of the mixture; what the audit must know of it goes into the book before it is sent."""
        self.count += 1
        chance = self.chance
        strategy = chance.choices((1, 2, 3, 4), (60, 10, 20, 10))[0]
        ttl = chance.choices((HOUR, 2_000, 0, -1), (84, 8, 4, 4))[0]
        if strategy != 1 and ttl <= 0:
            ttl = HOUR
        size = chance.choices((0, 300, 2_500), (70, 20, 10))[0]
        message = {
            "id": f"request-{self.number}-{self.count}", "cid": cid, "publisher": self.number, "n": self.count,
            "strategy": strategy, "ttl": ttl, "alert": strategy in (2, 4) or chance.random() < 0.6,
            "collapse": f"key-{chance.randrange(2)}" if chance.random() < 0.06 else "",
            "payload": f"{self.number} {self.count} " + "x" * chance.randrange(size + 1),
        }
        self.book.write("try", **{**message, "payload": hashlib.sha256(message["payload"].encode()).hexdigest()})
        return message

    def accepted(self, message, msg_id, live, repeat):
        self.book.write("accepted", id=message["id"], msg=msg_id, live=live, repeat=repeat)

    def refused(self, message, code, reason):
        self.book.write("refused", id=message["id"], code=code, reason=reason)

    def until_answered(self, attempt):
        """Repeats `attempt` until it returns something; a few hundredths of a second apart."""
        while self.orders.mode != "quit":
            try:
                answer = attempt()
                if answer is not None:
                    return answer
            except UNANSWERED:
                self.book.write("unanswered", publisher=self.number)
            except Closed:
                self.book.write("unanswered", publisher=self.number)
            time.sleep(0.05)
        return None


class HTTPPublisher(Publisher):
    def __init__(self, number, plan, orders, book):
        super().__init__(number, plan, orders, book)
        self.api = API(plan["http"])

    def call(self, path, body):
        app = self.plan["app"]
        if "token" not in self.api.headers:
            stamp = str(int(time.time() * 1000))
            sign = hashlib.sha256((app["appKey"] + stamp + app["masterSecret"]).encode()).hexdigest()
            request = {"appkey": app["appKey"], "timestamp": stamp, "sign": sign}
            status, answer = self.api.call("POST", f"/v2/{app['appId']}/auth", request)
            if status != 200 or answer.get("code") != 0:
                return None
            self.api.headers["token"] = answer["data"]["token"]
        _, answer = self.api.call("POST", f"/v2/{app['appId']}/{path}", body)
        if answer.get("code") == 10001:
            del self.api.headers["token"]
            return None
        return None if answer.get("code") in RETRIED_CODES else answer

    @staticmethod
    def body(message):
        settings = {"ttl": message["ttl"], "strategy": {"default": message["strategy"]}}
        if message["collapse"]:
            settings["collapse_key"] = message["collapse"]
        body = {
            "request_id": message["id"], "audience": {"cid": [message["cid"]]}, "settings": settings,
            "push_message": {"transmission": message["payload"]},
        }
        if message["alert"]:
            alert = {"title": "t", "body": "b"}
            body["push_channel"] = {"ios": {"type": "notify", "auto_badge": "+1", "aps": {"alert": alert}}}
        return body


class SinglePublisher(HTTPPublisher):
    def publish(self):
        message = self.new_message(self.chance.choice(self.plan["cids"]))
        answer = self.until_answered(lambda: self.call("push/single/cid", self.body(message)))
        if answer is None:
            return 1
        if answer["code"] == 0:
            said = answer["longwire"]["messages"][0]
            self.accepted(message, said["msgId"], said["channel"] == "live", bool(said.get("repeat")))
        else:
            self.refused(message, answer["code"], answer["msg"])
        return 1


class BatchPublisher(HTTPPublisher):
    def publish(self):
        cids = self.chance.sample(self.plan["cids"], min(len(self.plan["cids"]), self.chance.randrange(2, 9)))
        waiting = [self.new_message(cid) for cid in cids]
        count = len(waiting)
        while waiting and self.orders.mode != "quit":
            bodies = [self.body(message) for message in waiting]
            answer = self.until_answered(lambda: self.call("push/single/batch/cid", {"msg_list": bodies}))
            if answer is None:
                break
            said = {one["cid"]: one for one in answer.get("longwire", {}).get("messages", [])}
            refused = {one["index"]: one for one in answer.get("longwire", {}).get("refused", [])}
            again = []
            for index, message in enumerate(waiting):
                if message["cid"] in said:
                    one = said[message["cid"]]
                    self.accepted(message, one["msgId"], one["channel"] == "live", bool(one.get("repeat")))
                elif index in refused and refused[index]["code"] not in RETRIED_CODES:
                    self.refused(message, refused[index]["code"], refused[index]["msg"])
                elif index not in refused and answer["code"] != 0:
                    self.refused(message, answer["code"], answer["msg"])
                else:
                    again.append(message)
            waiting = again
            if waiting:
                time.sleep(0.05)
        return count


class NativePublisher(Publisher):
    def __init__(self, number, plan, orders, book):
        super().__init__(number, plan, orders, book)
        self.sender = None

    @staticmethod
    def frame(message):
        fields = {
            "cid": bytes.fromhex(message["cid"]), "payload": message["payload"].encode(), "ttl_ms": message["ttl"],
            "strategy": message["strategy"], "collapse_key": message["collapse"], "request_id": message["id"],
        }
        if message["alert"]:
            fields["alert"] = pb.Alert(title="t", body="b")
        return fields

    def publish(self):
        cids = self.chance.sample(self.plan["cids"], min(len(self.plan["cids"]), 8))
        waiting = [self.new_message(cid) for cid in cids]
        count = len(waiting)
        while waiting and self.orders.mode != "quit":
            results = self.until_answered(lambda: self.exchange(waiting))
            if results is None:
                break
            again = []
            for message, result in zip(waiting, results):
                if result.code == 0:
                    # Frames do not tell a repeated answer from a first one.
                    self.accepted(message, result.msg_id.hex(), result.live, None)
                elif result.code in RETRIED_RESULTS:
                    again.append(message)
                else:
                    self.refused(message, result.code, result.reason)
            waiting = again
            if waiting:
                time.sleep(0.05)
        return count

    def exchange(self, messages):
        app = self.plan["app"]
        try:
            if not self.sender:
                self.sender = Sender("127.0.0.1", self.plan["senders"], app["appId"], app["masterSecret"], timeout=5.0)
            return self.sender.publish([self.frame(message) for message in messages])
        except (OSError, Closed):
            if self.sender:
                self.sender.close()
            self.sender = None
            raise


def main():
    plan, orders = setup(), Orders()
    book = Book(plan["book"])
    kinds = [SinglePublisher] * 4 + [BatchPublisher] * 2 + [NativePublisher]
    publishers = [kind(number, plan, orders, book) for number, kind in enumerate(kinds)]
    for publisher in publishers:
        publisher.start()
    orders.say(ready=True)
    while (mode := orders.wait_while("wait", "go")) != "quit":
        while not all(publisher.is_idle for publisher in publishers) and orders.mode == "drain":
            time.sleep(0.02)
        if orders.mode == "drain":
            orders.say(idle=True)
        orders.wait_while(mode)


if __name__ == "__main__":
    main()
