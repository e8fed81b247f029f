"""Shared parts of the publishers of a crash round: one request at a time, repeated until it is answered, and a record file."""

import hashlib
import random
import threading
import time

from party import API, UNANSWERED
from longwire_client import Closed

HOUR = 3_600_000
RETRIED_CODES = {2, 30019, 30901}  # starting or stopping, busy, queue full


class Publisher(threading.Thread):
    """One sequential stream of requests, so the numbers that it publishes per device increase in order."""

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
                # A fixed rate, so that a round's size does not depend on the machine.
                ahead = sent / self.plan["pace"] - (time.monotonic() - started)
                if ahead > 0:
                    time.sleep(min(ahead, 0.2))
            self.is_idle = True
            self.orders.wait_while("drain")

    def new_message(self, cid):
        """Returns a random message; its data for the audit is recorded before it is sent."""
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
        """Repeats `attempt` every few hundredths of a second until it returns a value."""
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

    def call(self, path, body, method="POST"):
        """Returns the answer of the push API, or None if the call must be repeated."""
        app = self.plan["app"]
        if "token" not in self.api.headers:
            stamp = str(int(time.time() * 1000))
            sign = hashlib.sha256((app["appKey"] + stamp + app["masterSecret"]).encode()).hexdigest()
            request = {"appkey": app["appKey"], "timestamp": stamp, "sign": sign}
            status, answer = self.api.call("POST", f"/v2/{app['appId']}/auth", request)
            if status != 200 or answer.get("code") != 0:
                return None
            self.api.headers["token"] = answer["data"]["token"]
        _, answer = self.api.call(method, f"/v2/{app['appId']}/{path}", body)
        if answer.get("code") == 10001:
            del self.api.headers["token"]
            return None
        return None if answer.get("code") in RETRIED_CODES else answer

    @staticmethod
    def content(message):
        """Returns the message content of a push's body."""
        settings = {"ttl": message["ttl"], "strategy": {"default": message["strategy"]}}
        if message["collapse"]:
            settings["collapse_key"] = message["collapse"]
        body = {"settings": settings, "push_message": {"transmission": message["payload"]}}
        if message["alert"]:
            alert = {"title": "t", "body": "b"}
            body["push_channel"] = {"ios": {"type": "notify", "auto_badge": "+1", "aps": {"alert": alert}}}
        return body

    @classmethod
    def body(cls, message):
        return {"request_id": message["id"], "audience": {"cid": [message["cid"]]}, **cls.content(message)}
