"""The processes measured by `peers.py`: Longwire, its peers, and the bare programs that show the machine's limits.

Each has its own ports and folder, and is stopped by its process id.
"""

import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import contract

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "Integration/parties"))

from ports import free_ports  # noqa: E402

ROOT = HERE.parents[2]
APP = {"appId": "peers", "appKey": "peersKey", "appSecret": "peers-app-secret", "masterSecret": "peers-master-secret"}
ADMIN_TOKEN = "peers-admin-token-0123456789"
# The build arguments of each C program of this folder, besides the common flags.
PROGRAMS = {
    "mqtt_load": ["mqtt_load.c", "net.c"], "redis_load": ["redis_load.c", "net.c"], "bare_router": ["bare_router.c"],
    "bare_fanout": ["bare_fanout.c", "-pthread"],
}


class Missing(Exception):
    """A peer is not installed here; the text has advice."""


class Failed(Exception):
    """A server or a load failed; the text has the reason."""


def need(program):
    if not shutil.which(program) and not shutil.which(program, path="/usr/sbin:/usr/local/sbin"):
        raise Missing(f"there is no {program}; run deploy/install-dependencies.sh bench")
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")


def compile_programs(folder):
    need("cc")
    for name, words in PROGRAMS.items():
        sources = [str(HERE / word) if word.endswith(".c") else word for word in words]
        subprocess.run(["cc", "-std=gnu17", "-O2", "-Wall", "-Wextra", "-o", str(folder / name), *sources], check=True)


def most_connections():
    """Returns the number of devices that one process can hold besides its own descriptors, after raising its limit of open files.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return 1_000_000 if hard == resource.RLIM_INFINITY else hard - 1_500


def cpu_of(process):
    """Returns the CPU nanoseconds of all threads of a process, by its own clock."""
    return time.clock_gettime_ns((~process << 3) | 2)


class Server:
    """`with Server(…)`: a process that listens, with a temporary folder."""

    def __init__(self, parent, name):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}.", dir=parent))
        self.process, self.port = None, None

    def __enter__(self):
        try:
            self.start()
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            children = self.children()
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                for child in children:
                    try:
                        os.kill(child, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
        shutil.rmtree(self.folder, ignore_errors=True)

    def spawn(self, *words):
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        end = time.monotonic() + 30
        while True:
            if self.process.poll() is not None or time.monotonic() > end:
                text = (self.folder / "log").read_text(errors="replace")[-2000:]
                raise Failed(f"{words[0]} did not start:\n{text}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)

    def children(self):
        try:
            text = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        except OSError:
            return []
        return [int(word) for word in text.split()]

    def cpu(self):
        """Returns the CPU nanoseconds of the server, including its child processes."""
        return sum(cpu_of(process) for process in [self.process.pid, *self.children()])


class Mosquitto(Server):
    """QoS 1 and persistent sessions; nothing is written to disk, and no queue or window is smaller than Longwire's."""

    def start(self):
        program = need("mosquitto")
        self.port, = free_ports(1)
        (self.folder / "mosquitto.conf").write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence false\nset_tcp_nodelay true\n"
            "max_inflight_messages 32\nmax_queued_messages 100000\nlog_type error\nmax_connections -1\n")
        if os.geteuid() == 0:
            # As root it would change to a user that cannot read a private folder.
            with open(self.folder / "mosquitto.conf", "a") as file:
                file.write("user root\n")
        self.spawn(program, "-c", str(self.folder / "mosquitto.conf"))


class Redis(Server):
    """Every answer waits for its fsync; no snapshots and no rewriting of the log during a run."""

    def start(self):
        program = need("redis-server")
        self.port, = free_ports(1)
        self.spawn(
            program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--appendonly",
            "yes", "--appendfsync", "always", "--save", "", "--auto-aof-rewrite-percentage", "0", "--daemonize", "no",
            # The server listens on loopback only. Its protected mode would refuse connections from other loopback addresses.
            "--protected-mode", "no")


class BenchTarget(Server):
    """A server that `longwire bench` loads: it finds the addresses and the app in the data folder's `demo.json`."""

    def __init__(self, parent, binaries, name):
        super().__init__(parent, name)
        self.binaries = binaries

    def introduce(self):
        """Chooses free ports for the four listeners, and writes them to the data folder."""
        self.port, senders, http, admin = free_ports(4)
        self.addresses = {"device": self.port, "senders": senders, "http": http, "admin": admin}
        self.data = self.folder / "data"
        self.data.mkdir(mode=0o700)
        demo = {**APP, "adminToken": ADMIN_TOKEN}
        demo |= {f"{name}Address": f"127.0.0.1:{port}" for name, port in self.addresses.items()}
        (self.data / "demo.json").write_text(json.dumps(demo))

    def without_connections(self):
        """Does nothing, because a bare program has only the system's limit."""

    def bench_words(self, *words):
        return [str(self.binaries / "longwire"), "bench", *words, "--data", str(self.data), "--quiet",
                "--server-pid", str(self.process.pid)]

    def bench(self, *words):
        """Runs `longwire bench` once; returns its metrics and its bottleneck."""
        report = self.folder / "report.json"
        done = subprocess.run(
            [*self.bench_words(*words), "--json", str(report)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=1_800)
        if done.returncode != 0:
            raise Failed(f"longwire bench {' '.join(words)}: {done.stderr}")
        found = json.loads(report.read_text())
        short = [note for note in found["notes"] if "could not connect" in note or "ended during the run" in note]
        if found["metrics"].get("failed") or found["metrics"].get("lost") or short:
            raise Failed(f"longwire bench {' '.join(words)}: not all devices were connected: {short} {found['failures']}")
        if found["metrics"].get("loss") or found["metrics"].get("repeats"):
            books = {name: found["metrics"].get(name) for name in ("accepted", "delivered", "loss", "repeats", "disordered")}
            raise Failed(f"longwire bench {' '.join(words)}: the books do not agree: {books}; {found['failures']}; {found['notes']}")
        return {**found["metrics"], "bottleneck": found["bottleneck"]}


class Longwire(BenchTarget):
    """A release build with its defaults: fsync, a loop per core; but nearly all descriptors are for devices.

    With a low limit of open files, the defaults leave a quarter of it to HTTP.
    """

    limits = {"senderConnections": 64, "httpConnections": 128, "adminConnections": 32}

    def __init__(self, parent, binaries, **sections):
        super().__init__(parent, binaries, "longwire")
        self.sections = sections

    def start(self):
        self.introduce()
        token = self.folder / "token"
        token.write_text(ADMIN_TOKEN)
        token.chmod(0o600)
        configuration = {name: {"listen": f"127.0.0.1:{port}"} for name, port in self.addresses.items()}
        configuration["store"] = {"path": str(self.data)}
        configuration["apps"] = [{**APP, "apns": {"topic": "com.example.peers"}}]
        configuration["credentials"] = [{"name": "peers", "tokenFile": str(token), "may": ["admin"]}]
        configuration["limits"] = self.limits
        configuration |= self.sections
        path = self.folder / "longwired.json5"
        path.write_text(json.dumps(configuration))
        path.chmod(0o600)
        self.restart()

    def restart(self):
        """Starts the process on its existing folder; the previous one has ended."""
        self.spawn(str(self.binaries / "longwired"), "--config", str(self.folder / "longwired.json5"))

    def without_connections(self):
        """Waits until it has noticed the last device's disconnect, because the next one may need its descriptor."""
        end = time.monotonic() + 60
        while self.metrics().get('longwire_connections{listener="device"}', 0) > 0:
            if time.monotonic() > end:
                raise Failed("the devices of the last run are still connected")
            time.sleep(0.05)

    def metrics(self):
        """Returns the current values of `/metrics`: name with labels → value."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.addresses['admin']}/metrics", headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return contract.exposition(answer.read().decode().splitlines())


class Bare(BenchTarget):
    """The router of bare_router.c on Longwire's ports, which `longwire bench` finds in the same way."""

    def __init__(self, parent, binaries):
        super().__init__(parent, binaries, "bare")

    def start(self):
        self.introduce()
        program = self.folder.parent / "bare_router"
        self.spawn(str(program), str(self.port), str(self.addresses["senders"]))


class Fanout(BenchTarget):
    """The two threads of bare_fanout.c."""

    def __init__(self, parent, binaries):
        super().__init__(parent, binaries, "fanout")

    def start(self):
        self.introduce()
        self.spawn(str(self.folder.parent / "bare_fanout"), str(self.port), str(self.addresses["http"]))


class Nginx(BenchTarget):
    """Debian's nginx: two workers, no log, and an answer of Longwire's size to each push, on keep-alive connections."""

    devices = 1_000
    conf = """
daemon off;
worker_processes 2;
pid {folder}/pid;
error_log {folder}/errors warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    server_tokens off;
    tcp_nodelay on;
    keepalive_requests 1000000000;
    client_header_buffer_size 4k;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    default_type application/json;
    server {{
        listen 127.0.0.1:{port} backlog=4096 reuseport;
        location / {{ return 200 '{push}'; }}
        location ~ /auth$ {{ return 200 '{auth}'; }}
    }}
}}
"""

    def __init__(self, parent, binaries):
        super().__init__(parent, binaries, "nginx")

    def start(self):
        program = need("nginx")
        self.introduce()
        self.port = self.addresses["http"]
        # The bytes of Longwire's own answer and of its token, so that both write as much.
        cid, task = "0" * 32, "RASS_0101_" + "0" * 24
        message = {"cid": cid, "taskId": task, "msgId": cid, "ttl": 7_200_000, "channel": "live", "fallback": "none",
                   "fallbackReason": "noToken"}
        push = {"code": 0, "msg": "success", "data": {task: {cid: "successed_online"}},
                "longwire": {"durability": "fsync", "messages": [message]}}
        auth = {"code": 0, "msg": "success", "data": {"expire_time": "1800000000000", "token": "0" * 64}}
        (self.folder / "nginx.conf").write_text(self.conf.format(
            folder=self.folder, port=self.port, push=json.dumps(push, separators=(",", ":")),
            auth=json.dumps(auth, separators=(",", ":"))))
        lines = [f"longwire-bench-devices 1 {APP['appId']}"]
        lines += [f"{number:032x} {number:064x}" for number in range(1, self.devices + 1)]
        (self.data / "bench-devices").write_text("\n".join(lines) + "\n")
        self.spawn(program, "-p", str(self.folder), "-c", str(self.folder / "nginx.conf"))
