"""The steps of docs/use/Cluster.md, "Three machines, step by step", run block by block in the page's order, on three loopback
addresses.

Each block's text is the page's own except for addresses, ports and folders: machine 10.0.0.N is 127.0.0.N, and every port is a
free one.
"""

import contextlib
import pathlib
import re
import shutil
import socket
import subprocess

import longwire_client
import pytest
from gateway import Gateway, Refused, binary, eventually
from ports import free_ports

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGES = ["Cluster.md", "Cluster.zh-CN.md"]
BLOCK = re.compile(r"^   ```(\w+) (\w+)\n(.*?)^   ```$", re.M | re.S)


def blocks(page):
    """Returns the page's named blocks without their indentation."""
    text = (ROOT / "docs" / "use" / page).read_text()
    return {name: re.sub(r"^   ", "", body, flags=re.M) for _, name, body in BLOCK.findall(text)}


class Site:
    """Three machines set up as on the page: folders, servers and gateways."""

    def __init__(self, page, folder):
        self.blocks, self.folder, self.processes = blocks(page), folder, []
        self.ports, self.gateways = {}, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        for gateway in self.gateways:
            gateway.__exit__()

    def localize(self, text, machine=1):
        """Returns the block with this machine's own addresses, free ports and folders in place of the page's."""
        def address(match):
            host, port = match.group(1), int(match.group(2))
            return f"127.0.0.{host}:{self.port(host, port)}"

        text = re.sub(r"10\.0\.0\.(\d):(\d+)", address, text).replace("10.0.0.1", f"127.0.0.{machine}")
        return text.replace("/etc/redis/", f"{self.folder}/").replace("/var/lib/", f"{self.folder}/{machine}/")

    def port(self, host, port):
        key = (str(host), port)
        while key not in self.ports:
            (real,) = free_ports(1)
            # redis-cli expects a server's bus 10,000 above its port.
            with contextlib.suppress(OSError), socket.socket() as bus:
                bus.bind(("", real + 10_000))
                self.ports[key] = real
        return self.ports[key]

    def configure_servers(self):
        shutil.copy(ROOT / "deploy/redis/redis.conf", self.folder / "longwire.conf")
        for machine in (1, 2, 3):
            for port in (6379, 6380, 6381):
                text = self.localize(self.blocks["redis"], machine).replace("redis/6379", f"redis/{port}")
                # On one host the kernel would choose the source address of a connection.
                own = f"port {self.port(machine, port)}\nbind-source-addr 127.0.0.{machine}"
                text = re.sub(r"^port .*$", own, text, flags=re.M)
                folder = self.folder / str(machine) / "redis" / str(port)
                folder.mkdir(parents=True)
                (folder / "redis.conf").write_text(text)

    def start_servers(self):
        (self.folder / "longwire.acl").write_text(self.blocks["acl"])
        for path in sorted(self.folder.glob("*/redis/*/redis.conf")):
            with open(path.parent / "log", "ab") as log:
                self.processes.append(
                    subprocess.Popen(["redis-server", str(path)], stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        password = ["--user", "admin", "-a", "ADMIN-PASSWORD", "--no-auth-warning"]
        for (host, port), real in list(self.ports.items()):
            if port in (6379, 6380, 6381):
                words = ["redis-cli", "-h", f"127.0.0.{host}", "-p", str(real), *password, "ping"]
                eventually(lambda words=words: subprocess.run(words, capture_output=True, check=False).stdout == b"PONG\n", "a server")

    def run(self, name, answer=None):
        """Runs a block of shell commands in the first machine's folder."""
        text = self.localize(self.blocks[name]).replace("longwire redis", f"{binary('longwire')} redis")
        done = subprocess.run(
            ["bash", "-euc", text], cwd=self.folder, input=answer, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout + done.stderr

    def write_secrets(self):
        code, text = self.run("secrets")
        assert code == 0, text

    def create_cluster(self):
        create, check = self.blocks["create"].split("longwire redis check")
        self.blocks |= {"make": create, "check": "longwire redis check" + check}
        code, text = self.run("make", answer="yes\n")
        assert code == 0, text
        eventually(lambda: self.run("check")[0] == 0, "a check without a problem")

    def start_gateways(self):
        for machine in (1, 2, 3):
            gateway = Gateway()
            text = self.blocks["gateway"]
            # The list of Redis nodes has all machines' addresses, everything else has the machine's own.
            own = re.sub(r'listen: "10\.0\.0\.1:', f'listen: "10.0.0.{machine}:', text)
            gateway.config.write_text(self.localize(own, machine))
            gateway.config.chmod(0o600)
            # "All three files" are the files that the page has created so far.
            (gateway.folder / "secrets").mkdir(exist_ok=True)
            files = re.findall(r"> (secrets/\w+)$", self.blocks["secrets"], re.M)
            assert len(files) == 3, files
            for file in files:
                shutil.copy(self.folder / file, gateway.folder / file)
            gateway.host = f"127.0.0.{machine}"
            gateway.device, gateway.http = self.port(machine, 7000), self.port(machine, 7080)
            gateway.admin = self.port(machine, 7081)
            gateway._log = open(gateway.folder / "log", "ab")
            self.gateways.append(gateway)
            gateway.process = gateway.spawn()
        for gateway in self.gateways:
            eventually(gateway.is_ready, "readiness of the gateway")


@pytest.mark.parametrize("page", PAGES)
def test_the_three_machines_of_the_page_work_as_written(page, tmp_path):
    with Site(page, tmp_path) as site:
        steps = {
            "redis": site.configure_servers, "acl": site.start_servers, "secrets": site.write_secrets,
            "create": site.create_cluster, "gateway": site.start_gateways}
        for name in blocks(page):
            # The blocks are the same in both languages, so the gateways start once.
            if name != "gateway" or page == PAGES[0]:
                steps[name]()
        if page != PAGES[0]:
            return
        app = {"appId": "shop", "appSecret": "REPLACE-app-secret"}
        device = longwire_client.Device("127.0.0.2", site.gateways[1].device, app["appId"])
        try:
            device.register(app["appSecret"])
            nodes = site.gateways[2].call(
                "GET", "/v1/cluster", port=site.gateways[2].admin,
                headers={"Authorization": "Bearer " + (tmp_path / "secrets/admin").read_text().strip()})
            assert len(nodes["nodes"]) == 3, nodes
        finally:
            device.close()
        with pytest.raises(Refused):
            site.gateways[0].call("GET", "/v1/cluster", port=site.gateways[0].admin)


def test_the_pages_blocks_are_the_same_in_both_languages():
    english, chinese = (blocks(page) for page in PAGES)
    assert set(english) == {"redis", "acl", "create", "secrets", "gateway"}
    assert english == chinese
