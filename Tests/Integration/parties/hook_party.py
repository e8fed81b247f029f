"""The hook's receiver of a crash round: accepts batches, refuses them, hangs, sends garbage or half an answer.

On "drain" it behaves correctly, and settles every received job through the API, as an answer 202 allows.
"""

import json
import random
import socketserver
import sys
import threading
import time

from hook_receiver import is_genuine
from party import API, Book, Orders, setup
from sender_party import result, settle

WAYS = ("empty", "later", "error", "hang", "rubbish", "half", "drop", "named")


class Receiver(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        self.rfile.readline()
        headers = {}
        while (line := self.rfile.readline().decode().strip()):
            name, value = line.split(":", 1)
            headers[name.lower()] = value.strip()
        body = self.rfile.read(int(headers.get("content-length", 0)))
        party = self.server.party
        if not is_genuine(party.plan["secret"], headers, body):
            party.book.write("forged")
            return
        jobs = json.loads(body)["jobs"]
        self.answer(party.take(headers["webhook-id"], jobs), jobs)

    def answer(self, way, jobs):
        if way == "hang":
            time.sleep(2.5)  # beyond the hook's timeout, so the answer is lost
        elif way == "drop":
            return
        status, text = 200, b""
        if way == "later":
            status = 202
        elif way == "error":
            status = 500
        elif way == "rubbish":
            text = b"\x00<html>{"
        elif way == "named":
            text = json.dumps({"results": [{"jobId": jobs[0]["jobId"], "outcome": "retry"}]}).encode()
        length = 1_000 if way == "half" else len(text)
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        try:
            self.wfile.write(head.encode() + text)
        except OSError:
            pass


class Party:
    def __init__(self, plan, orders):
        self.plan, self.orders, self.book = plan, orders, Book(plan["book"])
        self.chance, self.lock = random.Random(f"{plan['seed']} hook"), threading.Lock()
        self.held = {}

    def take(self, name, jobs):
        way = "empty" if self.orders.mode == "drain" else self.chance.choice(WAYS)
        with self.lock:
            for job in jobs:
                self.book.write("leased", msg=job["msgId"], lease=job["leaseId"], attempt=job["attempt"], hook=name)
                # Only now does this receiver send the job to the vendor.
                self.book.write("outcome", msg=job["msgId"], lease=job["leaseId"], outcome="accepted")
                self.held[job["jobId"], job["leaseId"]] = job
        return way

    def settle_all(self):
        """Settles through the API all received jobs that may still be leased."""
        with self.lock:
            jobs = list(self.held.values())
        api = API(self.plan["admin"], {"Authorization": f"Bearer {self.plan['token']}"})
        for start in range(0, len(jobs), 500):
            part = jobs[start : start + 500]
            if settle(api, [result(job, "accepted") for job in part]) is not None:
                with self.lock:
                    for job in part:
                        self.held.pop((job["jobId"], job["leaseId"]), None)
        api.close()


def main():
    plan, orders = setup(), Orders()
    party = Party(plan, orders)
    server = Receiver((plan["host"], plan["port"]), Handler)
    server.handle_error = lambda *_: sys.stderr.write("a request to the hook ended early\n")
    server.party = party
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    orders.say(ready=True)
    while orders.mode != "quit":
        if orders.mode == "drain":
            party.settle_all()
        time.sleep(0.1)


if __name__ == "__main__":
    main()
