"""Publishers of a crash round: singles and batches over HTTP, native frames, and tasks, all with request ids.

An unanswered request is repeated with the same request id until it is answered. After a drain the records therefore have for
every message whether it was accepted, and its msgId; and for every task whether it was created, and the devices that it must
reach.
"""

import time

from party import Book, Orders, setup
from publishing import RETRIED_CODES, HTTPPublisher, Publisher
from task_publishers import AliasPublisher, BroadcastPublisher, ListPublisher
from longwire_client import Closed, Sender, pb

RETRIED_RESULTS = {2, 5, 6, 7}


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
                    # Frames do not distinguish a repeated answer from a first one.
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
    kinds += [ListPublisher, AliasPublisher] + [BroadcastPublisher] * 2
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
