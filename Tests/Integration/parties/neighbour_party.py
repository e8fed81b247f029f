"""Two apps on one gateway: one floods, in its own process; the other publishes at a fixed rate and has deadlines.

    python neighbour_party.py '{"senders": PORT, "device": PORT, "http": PORT, "app": {…}, …}'

is the flooder. It ends when its standard input closes, and prints `ready` once its devices are connected.
"""

import copy
import hashlib
import http.client
import json
import os
import pathlib
import select
import socket
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / folder) for folder in ("parties", "rigs")]

import longwire_client  # noqa: E402
from gateway import APP, Gateway  # noqa: E402
from longwire_client import pb  # noqa: E402

NEIGHBOUR = {
    "appId": "quiet", "appKey": "quietKey", "appSecret": "quiet-app-secret", "masterSecret": "quiet-master-secret"}
NEIGHBOUR_TOKEN = "integration-handoff-token-2"


def two_apps(**options):
    """Returns an unstarted gateway with both apps; its calls are the flooder's app's."""
    topic = {"apns": {"topic": "com.example.demo"}}
    gateway = Gateway(**options)
    gateway._secret("quiet", NEIGHBOUR_TOKEN)
    gateway.sections["apps"] = [{**APP, **topic}, {**NEIGHBOUR, **topic}]
    gateway.sections["credentials"].append(
        {"name": "quiet", "tokenFile": str(gateway.folder / "quiet"), "may": ["handoff"], "apps": ["quiet"]})
    return gateway


def neighbour_of(gateway):
    """Returns the same gateway with the other app's calls."""
    view = copy.copy(gateway)
    view.app, view._token = NEIGHBOUR, None
    return view


def lease(gateway, maximum=100, wait=0):
    """Leases as the other app's own sender service."""
    body = {"channel": "apns", "max": maximum, "leaseSeconds": 30, "waitSeconds": wait}
    return gateway.admin_call("POST", "/v1/handoff/lease", body, token=NEIGHBOUR_TOKEN)["jobs"]


def settle(gateway, job, outcome, **fields):
    result = {"jobId": job["jobId"], "leaseId": job["leaseId"], "outcome": outcome, **fields}
    answer = gateway.admin_call("POST", "/v1/handoff/results", [result], token=NEIGHBOUR_TOKEN)
    return answer["results"][0]["verdict"]


def token_of(port, app):
    stamp = str(int(time.time() * 1000))
    sign = hashlib.sha256((app["appKey"] + stamp + app["masterSecret"]).encode()).hexdigest()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = json.dumps({"appkey": app["appKey"], "timestamp": stamp, "sign": sign})
    connection.request("POST", f"/v2/{app['appId']}/auth", body, {"Content-Type": "application/json"})
    token = json.loads(connection.getresponse().read())["data"]["token"]
    connection.close()
    return token


def request_of(method, path, body, token):
    """Returns the bytes of a request that is the only one of its connection."""
    data = json.dumps(body).encode()
    head = (f"{method} {path} HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\nContent-Type: application/json\r\n"
            f"token: {token}\r\nContent-Length: {len(data)}\r\n\r\n")
    return head.encode() + data


class Flood:
    """The flooder as a process with the lowest priority; `with Flood(gateway): …`."""

    def __init__(self, gateway, absent=200, slow=50, silenced=50, connections=4, short=0):
        plan = {
            "senders": gateway.senders, "device": gateway.device, "http": gateway.http, "app": gateway.app,
            "absent": absent, "slow": slow, "silenced": silenced, "connections": connections, "short": short,
        }
        self.words = [sys.executable, str(HERE / "neighbour_party.py"), json.dumps(plan)]

    def __enter__(self):
        self.process = subprocess.Popen(
            self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=lambda: os.nice(19))
        assert self.process.stdout.readline() == b"ready\n"
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.numbers = json.loads(self.process.stdout.readline() or b"{}")
        self.process.stdout.close()
        self.process.wait(60)


class Flooder:
    def __init__(self, plan):
        self.plan, self.app = plan, plan["app"]
        self.isOver = threading.Event()
        self.answers, self.bytes, self.queries, self.lost, self.pushes = 0, 0, 0, 0, 0
        self.held, self.open = [], []

    def device(self, **fields):
        one = longwire_client.Device("127.0.0.1", self.plan["device"], self.app["appId"])
        one.register(self.app["appSecret"], tokens=[pb.VendorToken(token=os.urandom(32).hex())], **fields)
        return one

    def gather(self):
        cids = []
        for _ in range(self.plan["absent"]):
            one = self.device()
            cids.append(one.state.cid)
            one.close()
        for _ in range(self.plan["silenced"]):
            one = self.device()
            one.connection.send(pb.DeviceUpdate(push_mode_off=True))
            one.connection.receive(pb.UpdateResult)
            cids.append(one.state.cid)
            one.close()
        for _ in range(self.plan["slow"]):
            one = self.device()
            # It reads nothing from here on.
            one.connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            cids.append(one.state.cid)
            self.held.append(one)
        return cids

    def send(self, cids, index):
        frames = []
        for number in range(2_000):
            cid = cids[(index * 31 + number) % len(cids)]
            frames.append(longwire_client.encode(pb.Publish(
                request=number + 1, cid=cid, payload=b"x" * 200, alert=pb.Alert(title="News", body="there is some"))))
        block = b"".join(frames)
        while not self.isOver.is_set():
            try:
                sender = longwire_client.Sender(
                    "127.0.0.1", self.plan["senders"], self.app["appId"], self.app["masterSecret"], timeout=30)
            except (OSError, longwire_client.Closed):
                self.lost += 1
                self.isOver.wait(0.2)
                continue
            connection = sender.connection.socket
            self.open.append(connection)
            # A separate timeout: a write may wait as long as the gateway blocks it.
            reader = threading.Thread(target=self.drain, args=(connection.dup(),))
            reader.start()
            try:
                while not self.isOver.is_set():
                    connection.sendall(block)
            except OSError:
                self.lost += 1
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            reader.join()
            self.open.remove(connection)
            sender.close()

    def drain(self, connection):
        """Counts answers by their bytes, because parsing would cost this process more than the requests."""
        connection.settimeout(1)
        with connection:
            while not self.isOver.is_set():
                try:
                    data = connection.recv(1 << 20)
                except TimeoutError:
                    continue
                except OSError:
                    return
                if not data:
                    return
                self.bytes += len(data)

    def ask(self):
        """Makes the widest tag queries: without a tag that narrows them down."""
        headers = {"Content-Type": "application/json"}
        app, token = self.app, None
        while not self.isOver.is_set():
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.plan["http"], timeout=30)
                token = token or token_of(self.plan["http"], app)
                tags = [{"key": "custom_tag", "values": [f"tag{n}"], "opt_type": "not"} for n in range(20)]
                connection.request(
                    "POST", f"/v2/{app['appId']}/user/count/", json.dumps({"tag": tags}), {**headers, "token": token})
                connection.getresponse().read()
                connection.close()
                self.queries += 1
            except (OSError, http.client.HTTPException, KeyError):
                self.isOver.wait(0.1)

    def push(self, cid):
        """Pushes over `short` concurrent connections, each opened for one request."""
        message = {"audience": {"cid": [cid.hex()]}, "settings": {"collapse_key": "one"},
                   "push_message": {"transmission": "x" * 200}}
        path, token = f"/v2/{self.app['appId']}/push/single/cid", token_of(self.plan["http"], self.app)
        poll, calls = select.epoll(), {}

        def begin():
            one = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            one.connect_ex(("127.0.0.1", self.plan["http"]))
            poll.register(one, select.EPOLLOUT)
            calls[one.fileno()] = one

        for _ in range(self.plan["short"]):
            begin()
        while not self.isOver.is_set():
            for number, event in poll.poll(0.2):
                one = calls[number]
                try:
                    if event & select.EPOLLOUT:
                        one.send(request_of("POST", path, {"request_id": os.urandom(8).hex(), **message}, token))
                        poll.modify(one, select.EPOLLIN)
                        continue
                    if b" 200 " in one.recv(4_096)[:16]:
                        self.pushes += 1
                    else:
                        self.lost += 1
                except OSError:
                    self.lost += 1
                poll.unregister(one)
                calls.pop(number).close()
                begin()

    def run(self):
        cids = self.gather()
        if self.plan["short"]:
            threads = [threading.Thread(target=self.push, args=(cids[0],))]
        else:
            threads = [threading.Thread(target=self.send, args=(cids, n)) for n in range(self.plan["connections"])]
            threads += [threading.Thread(target=self.ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        print("ready", flush=True)
        sys.stdin.read()
        self.isOver.set()
        for connection in list(self.open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in threads:
            thread.join()
        for one in self.held:
            one.close()
        numbers = {"answerBytes": self.bytes, "queries": self.queries, "pushes": self.pushes, "lost": self.lost}
        print(json.dumps(numbers), flush=True)


class Neighbour:
    """The other app: live devices that ack, publishes at a fixed rate, and a deadline of each kind."""

    def __init__(self, gateway, devices=10):
        self.gateway = neighbour_of(gateway)
        self.devices = [self.device() for _ in range(devices)]
        self.sender = longwire_client.Sender(
            "127.0.0.1", gateway.senders, NEIGHBOUR["appId"], NEIGHBOUR["masterSecret"], timeout=60)
        self.seen, self.accepted, self.refusals, self.lateness = {}, [], [], {}

    def device(self, token=None):
        one = longwire_client.Device("127.0.0.1", self.gateway.device, NEIGHBOUR["appId"], timeout=60)
        fields = {"tokens": [pb.VendorToken(token=token)]} if token else {}
        one.register(NEIGHBOUR["appSecret"], **fields)
        return one

    def publish(self, rate, seconds):
        """Publishes at a fixed rate; returns each delivery's time from its message's due time. Fills `refusals`."""
        count = int(rate * seconds)
        share = {one: count // len(self.devices) for one in self.devices}
        threads = [threading.Thread(target=self.receive, args=(one, share[one])) for one in self.devices]
        for thread in threads:
            thread.start()
        connection = self.sender.connection
        results = threading.Thread(target=self.answers, args=(connection, sum(share.values())))
        results.start()
        start, self.due = time.monotonic() + 0.05, {}
        for number in range(sum(share.values())):
            due = start + number / rate
            time.sleep(max(0.0, due - time.monotonic()))
            key = b"%08d" % number
            self.due[key] = due
            one = self.devices[number % len(self.devices)]
            connection.send(pb.Publish(request=number + 1, cid=one.state.cid, payload=key))
        results.join()
        for thread in threads:
            thread.join(30 if not self.refusals else 1)
        return [self.seen[key] - due for key, due in self.due.items() if key in self.seen]

    def push(self, rate, seconds):
        """Pushes at a maximum rate, each over its own connection; returns each time from connect to answer."""
        port, app = self.gateway.http, NEIGHBOUR
        path, token = f"/v2/{app['appId']}/push/single/cid", token_of(port, app)
        message = {"settings": {"collapse_key": "one"}, "push_message": {"transmission": "x" * 200}}
        start, times = time.monotonic() + 0.05, []
        for number in range(int(rate * seconds)):
            time.sleep(max(0.0, start + number / rate - time.monotonic()))
            began = time.monotonic()
            audience = {"cid": [self.devices[number % len(self.devices)].state.cid.hex()]}
            with socket.create_connection(("127.0.0.1", port), 60) as one:
                body = {"request_id": os.urandom(8).hex(), "audience": audience, **message}
                one.sendall(request_of("POST", path, body, token))
                answer = one.recv(4_096)
            times.append(time.monotonic() - began)
            if b" 200 " not in answer[:16]:
                self.refusals.append(answer)
        return times

    def receive(self, one, count):
        got = 0
        while got < count:
            try:
                frame = one.connection.receive(pb.Deliver, 20)
            except (TimeoutError, longwire_client.Closed, OSError):
                return
            now = time.monotonic()
            one.ack(frame.sequence, frame.stream)
            if frame.stream == 0:
                self.seen[frame.payload] = now
                got += 1
            else:
                self.seen["broadcast"] = now

    def answers(self, connection, count):
        for _ in range(count):
            result = connection.receive(pb.PublishResult, 60)
            if result.code:
                self.refusals.append((result.code, result.reason))
            else:
                self.accepted.append(result.msg_id)

    # Deadlines: each returns by how many seconds it was late.

    def deadlines(self):
        """Runs all of them concurrently; returns the lateness by name."""
        parts = [self.expiry, self.retry, self.fallback, self.schedule]
        threads = [threading.Thread(target=self.measure, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.lateness

    def measure(self, part):
        # A separate view: the calls of each share nothing but the token.
        self.lateness[part.__name__] = part(neighbour_of(self.gateway))

    @staticmethod
    def wait(look, timeout=60):
        end = time.monotonic() + timeout
        while not look():
            assert time.monotonic() < end, "a deadline that was never met"
            time.sleep(0.02)
        return time.time()

    def expiry(self, gateway):
        one = self.device()
        one.close()
        self.wait(lambda: not gateway.view(one.state.cid.hex())["connected"])
        message = gateway.push(one.state.cid.hex(), "short", ttl=3_000)
        gone = time.time() + 3
        return self.wait(lambda: gateway.trace(message["msgId"])["state"] == "expired") - gone

    def retry(self, gateway):
        one = self.device("ab" * 32)
        one.close()
        self.wait(lambda: not gateway.view(one.state.cid.hex())["connected"])
        message = gateway.push(one.state.cid.hex(), "again", alert="A")
        job = self.lease(gateway, message["msgId"])
        assert settle(gateway, job, "retry", retryAfterSeconds=2) == "recorded"
        due = time.time() + 2
        again = self.lease(gateway, message["msgId"])
        now = time.time()
        assert again["attempt"] == 2 and settle(gateway, again, "accepted") == "recorded"
        return now - due

    def fallback(self, gateway):
        """Checks a device that is connected and never acks: the vendor gets the message at the live deadline."""
        one = self.device("cd" * 32)
        message = gateway.push(one.state.cid.hex(), "live", alert="A")
        due = time.time() + self.gateway.sections["limits"].get("liveDeadlineMilliseconds", 10_000) / 1000
        job = self.lease(gateway, message["msgId"])
        now = time.time()
        settle(gateway, job, "accepted")
        one.close()
        return now - due

    def lease(self, gateway, message):
        """Waits for one message's job, as a sender service shared with others."""
        found = {}

        def look():
            with self.leases:
                for job in lease(gateway, wait=0):
                    self.jobs[job["msgId"]] = job
                found.update({"job": self.jobs.pop(message, None)})
            return found["job"]

        self.wait(look)
        return found["job"]

    leases, jobs = threading.Lock(), {}

    def schedule(self, gateway):
        due = int(time.time() * 1000) + 4_000
        gateway.api("POST", "push/all", {
            "request_id": os.urandom(16).hex(), "audience": "all", "push_message": {"transmission": "to all"},
            "settings": {"schedule_time": due},
        })
        self.wait(lambda: "broadcast" in self.seen)
        return self.seen["broadcast"] + time.time() - time.monotonic() - due / 1000

    def close(self):
        for one in self.devices:
            one.close()
        self.sender.close()


if __name__ == "__main__":
    Flooder(json.loads(sys.argv[1])).run()
