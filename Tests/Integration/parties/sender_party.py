"""The sender service of a crash round: leases, settles, lets leases expire, sends false results, and is sometimes killed.

It records each lease before it uses it, and each outcome before it reports it to the gateway.
"""

import random
import time

from party import API, UNANSWERED, Book, Orders, setup

OUTCOMES = ("accepted", "retry", "rejected", "badToken", "lapse", "lie")


def settle(api, results):
    """Returns the verdicts, or None without an answer."""
    try:
        status, answer = api.call("POST", "/v1/handoff/results", results)
    except UNANSWERED:
        return None
    return answer["results"] if status == 200 else None


def result(job, outcome, **fields):
    if outcome == "retry":
        fields["retryAfterSeconds"] = 1
    if outcome == "badToken":
        fields["timestamp"] = int(time.time() * 1000)
    return {"jobId": job["jobId"], "leaseId": job["leaseId"], "outcome": outcome, **fields}


class Service:
    def __init__(self, plan, orders):
        self.plan, self.orders, self.book = plan, orders, Book(plan["book"])
        self.chance = random.Random(f"{plan['seed']} sender {plan['life']}")
        self.api = API(plan["admin"], {"Authorization": f"Bearer {plan['token']}"}, timeout=8.0)

    def run(self):
        while self.orders.wait_while("wait") != "quit":
            asked = time.time()
            honest = self.orders.mode == "drain"
            wanted = {
                "channel": "apns", "max": 500 if honest else self.chance.choice((5, 50, 200)), "leaseSeconds": 5,
                "waitSeconds": 0 if honest else 1}
            try:
                status, answer = self.api.call("POST", "/v1/handoff/lease", wanted)
            except UNANSWERED:
                time.sleep(0.05)
                continue
            jobs = answer["jobs"] if status == 200 else []
            for job in jobs:
                self.book.write(
                    "leased", msg=job["msgId"], lease=job["leaseId"], attempt=job["attempt"], asked=asked,
                    expiration=job["expiration"], genuine=job["jobId"] == job["msgId"])
            if jobs:
                self.deal_with(jobs, honest)
            else:
                time.sleep(0.05)

    def deal_with(self, jobs, honest):
        results, lies = [], []
        for job in jobs:
            outcome = "accepted" if honest else self.chance.choices(OUTCOMES, (70, 8, 4, 2, 6, 10))[0]
            if outcome == "lapse":
                continue
            if outcome == "lie":
                # The same job twice with opposite outcomes, under a nonexistent lease, and a nonexistent job.
                lies.append((job["jobId"], [
                    result(job, "rejected"), result({**job, "leaseId": "f" * 32}, "accepted"),
                    result({**job, "jobId": "0" * 32}, "accepted")]))
                outcome = "accepted"
            self.book.write("outcome", msg=job["msgId"], lease=job["leaseId"], outcome=outcome)
            results.append(result(job, outcome, reason="said the vendor"))
        if not honest:
            time.sleep(self.chance.random() * 0.1)
        told = self.settle_all(results)
        # A false result about a job whose true result did not arrive would be its first result, and count.
        self.settle_all([one for job, three in lies if told.get(job, "storeFailed") != "storeFailed" for one in three])

    def settle_all(self, results):
        told = {}
        for start in range(0, len(results), 500):
            for one in settle(self.api, results[start : start + 500]) or []:
                self.book.write("verdict", msg=one["jobId"], verdict=one["verdict"])
                told[one["jobId"]] = one["verdict"]
        return told


def main():
    plan, orders = setup(), Orders()
    orders.say(ready=True)
    Service(plan, orders).run()


if __name__ == "__main__":
    main()
