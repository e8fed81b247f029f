"""A gateway's handoff API without a gateway: leases by channel, results, extensions. It records every result.

    with HandoffStub() as stub:
        job = stub.add("fcm", deviceToken=token, body={"notification": {...}})
        assert stub.result(job)["outcome"] == "accepted"
"""

import http.server
import itertools
import json
import secrets
import socketserver
import threading
import time
import typing
from collections import defaultdict

TOKEN = "handoff-stub-token"
NOTE = {"notification": {"title": "Hello", "body": "World"}}


class HandoffStub:
    """`with HandoffStub() as stub:` listens on 127.0.0.1 until the end of the block.

    A job is queued, leased, or settled by a final result. With `is_eager` a job with the result `retry` or `unsent` is queued
    again at once, up to `attempts` counted leases; otherwise `requeue` does it. Leases do not expire: `expire` ends them.
    """

    def __init__(self, is_eager: bool = False, attempts: int = 5):
        self.is_eager, self.attempts = is_eager, attempts
        self.jobs: dict[str, dict[str, typing.Any]] = {}
        self.results: dict[str, list[dict[str, typing.Any]]] = defaultdict(list)  # by job, oldest first
        self.leases: dict[str, int] = defaultdict(int)  # lease calls by channel
        self.receipts: list[dict[str, typing.Any]] = []
        self.receipt_calls: list[list[str]] = []  # the msgIds of each call with receipts
        self.unstored: dict[str, int] = {}  # msgId → the number of calls in which its receipt is not stored
        self.malformed_receipts: set[str] = set()  # msgIds for which a whole call gets 400
        self.refusals = 0  # the number of calls of results that get 503
        self._queues: dict[str, list[str]] = defaultdict(list)
        self._leased: dict[str, str] = {}  # job → lease
        self._counted: dict[str, int] = defaultdict(int)
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._is_over = False

    def __enter__(self) -> typing.Self:
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = stub._answer(self.path, self.headers.get("Authorization"), body)
                data = json.dumps(answer).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    self.close_connection = True

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True
            block_on_close = False

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    # Jobs

    def add(self, channel: str, **fields) -> str:
        """Queues a job and returns its id."""
        number, job = next(self._numbers), secrets.token_hex(16)
        now = int(time.time() * 1_000)
        full = {
            "channel": channel, "jobId": job, "msgId": secrets.token_hex(16), "taskId": f"RASS_1129_{number:08x}",
            "appId": "app", "cid": secrets.token_hex(16), "deviceToken": "", "topic": "", "body": NOTE,
            "expiration": now // 1_000 + 3_600, "attempt": 1, "acceptedAt": now, "dueAt": now, **fields,
        }
        full.setdefault("collapseId", full["msgId"])
        with self._changed:
            self.jobs[job] = full
            self._queues[channel].append(job)
            self._changed.notify_all()
        return job

    def requeue(self, *jobs: str) -> None:
        """Makes jobs due that were given back."""
        with self._changed:
            for job in jobs:
                assert job not in self._leased
                self._queue(job)
            self._changed.notify_all()

    def expire(self) -> list[str]:
        """Ends all leases, as after a sender's death; returns their jobs, which are due again."""
        with self._changed:
            jobs = list(self._leased)
            for job in jobs:
                del self._leased[job]
                self._counted[job] += 1
                self._queue(job)
            self._changed.notify_all()
        return jobs

    def gmid(self, job: str) -> str:
        return f"{self.jobs[job]['taskId']}:{self.jobs[job]['msgId']}"

    def batch(self, *jobs: str, seconds: int = 60) -> bytes:
        """Leases queued jobs for a call of the sender's hook, and returns its body."""
        with self._changed:
            until = int(time.time() * 1_000) + seconds * 1_000
            for job in jobs:
                self._queues[self.jobs[job]["channel"]].remove(job)
                self._leased[job] = secrets.token_hex(16)
            return json.dumps({"jobs": [
                {**self.jobs[job], "leaseId": self._leased[job], "leasedUntil": until} for job in jobs]}).encode()

    def _queue(self, job: str) -> None:
        self.jobs[job]["attempt"] = self._counted[job] + 1
        self._queues[self.jobs[job]["channel"]].append(job)

    # Waiting

    def wait(self, condition: typing.Callable[[], typing.Any], seconds: float = 60) -> typing.Any:
        """Waits until `condition` returns something true, and returns that."""
        end = time.monotonic() + seconds
        with self._changed:
            while not (found := condition()):
                assert time.monotonic() < end, f"timed out; the last results: {list(self.results.values())[-3:]}"
                # Other parties change without a signal here.
                self._changed.wait(0.02)
            return found

    def result(self, job: str, count: int = 1) -> dict[str, typing.Any]:
        """Waits for a job's result number `count`, and returns it."""
        return self.wait(lambda: len(self.results[job]) >= count and self.results[job][count - 1])

    def final(self, job: str) -> dict[str, typing.Any]:
        """Waits for a job's final result."""
        return self.wait(lambda: next((one for one in self.results[job] if one["outcome"] not in ("retry", "unsent")), None))

    def settled(self, *jobs: str) -> list[dict[str, typing.Any]]:
        return [self.final(job) for job in jobs]

    @property
    def leased(self) -> set[str]:
        with self._changed:
            return set(self._leased)

    # Calls

    def _answer(self, path: str, authorization: str | None, body: typing.Any) -> tuple[int, typing.Any]:
        if authorization != f"Bearer {TOKEN}":
            return 401, {"message": "unknown token"}
        match path:
            case "/v1/handoff/lease":
                return 200, {"jobs": self._lease(body)}
            case "/v1/handoff/results":
                return self._settle(body["results"])
            case "/v1/handoff/extend":
                return 200, {"jobs": []}
            case "/v1/handoff/receipts":
                with self._changed:
                    if self.refusals > 0:
                        self.refusals -= 1
                        return 503, {"message": "later"}
                    return self._take_receipts(body)
        return 404, {}

    def _take_receipts(self, receipts: list[dict[str, typing.Any]]) -> tuple[int, typing.Any]:
        self.receipt_calls.append([one["msgId"] for one in receipts])
        if self.malformed_receipts & {one["msgId"] for one in receipts}:
            return 400, {"message": "malformed"}
        verdicts = []
        for one in receipts:
            left = self.unstored.get(one["msgId"], 0)
            self.unstored[one["msgId"]] = max(0, left - 1)
            if not left:
                self.receipts.append(one)
            verdicts.append({"jobId": one["msgId"], "verdict": "storeFailed" if left else "recorded"})
        self._changed.notify_all()
        return 200, {"results": verdicts}

    def _lease(self, body: dict[str, typing.Any]) -> list[dict[str, typing.Any]]:
        assert set(body) == {"channel", "max", "leaseSeconds", "waitSeconds"}, body
        channel, until = body["channel"], time.monotonic() + body["waitSeconds"]
        with self._changed:
            self.leases[channel] += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._queues[channel] or self._is_over, max(0, until - time.monotonic()))
            taken, self._queues[channel] = self._queues[channel][:body["max"]], self._queues[channel][body["max"]:]
            now = int(time.time() * 1_000)
            jobs = []
            for job in taken:
                self._leased[job] = secrets.token_hex(16)
                jobs.append({
                    **self.jobs[job], "leaseId": self._leased[job], "leasedUntil": now + body["leaseSeconds"] * 1_000})
            self._changed.notify_all()
            return jobs

    def _settle(self, results: list[dict[str, typing.Any]]) -> tuple[int, typing.Any]:
        verdicts = []
        with self._changed:
            if self.refusals > 0:
                self.refusals -= 1
                return 503, {"message": "later"}
            for one in results:
                job = one["jobId"]
                if self._leased.get(job) != one["leaseId"]:
                    verdicts.append({"jobId": job, "verdict": "late"})
                    continue
                del self._leased[job]
                self.results[job].append({**one, "at": time.monotonic()})
                verdicts.append({"jobId": job, "verdict": "recorded"})
                if one["outcome"] == "retry":
                    self._counted[job] += 1
                if self.is_eager and one["outcome"] in ("retry", "unsent") and self._counted[job] < self.attempts:
                    self._queue(job)
            self._changed.notify_all()
        return 200, {"results": verdicts}
