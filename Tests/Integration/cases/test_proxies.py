"""The files of deploy/proxies, run by nginx and HAProxy on the addresses that they name.

A namespace has the proxy at 10.0.0.5 and a gateway at 10.0.0.11. The second gateway of the files, 10.0.0.12, is down, so each
test also shows that a dead gateway costs no connection.
"""

import contextlib
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import time

import containers
import pytest
from containers import ContainerHost, Image, ip
from gateway import ADMIN_TOKEN, APP, Refused, binary, eventually
from longwire_client import Closed, Device
from test_containers import API, is_open
from websocket import PING, PONG, Wire
from websocket import Refused as UpgradeRefused

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROXIES = ROOT / "deploy/proxies"
PROXY, GATEWAY = "10.0.0.5", "10.0.0.11"
# Two clients' addresses beside the host's own, 10.0.0.1.
CLIENT, NEIGHBOUR = "10.0.0.3", "10.0.0.4"

pytestmark = pytest.mark.skipif(not containers.is_allowed(), reason="this machine makes no namespaces for containers, or not for this user")


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """This machine's programs for the proxy and the gateway; a configuration is read as root."""
    programs = pathlib.Path(binary("longwired")).parent
    image = Image.of_this_machine(tmp_path_factory.mktemp("machine") / "root", "0:0", [], folders=["/srv/bin", "/srv/data", "/etc/nginx"])
    image.binds = ["/usr", *(path for path in ("/opt",) if pathlib.Path(path).is_dir())]
    for path in image.binds:
        (image.folder / path.lstrip("/")).mkdir(exist_ok=True)
    for path in ("/var/log/nginx", "/var/lib/nginx", "/etc/ssl"):
        (image.folder / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    image.programs = programs
    return image


@pytest.fixture
def host():
    with ContainerHost() as host:
        host.network("lan", "10.0.0")
        for address in (CLIENT, NEIGHBOUR):
            ip("addr", "add", f"{address}/32", "dev", "br2")
        yield host
        for container in host.containers:
            print(f"--- {container.name}\n{container.log()[-4000:]}")


@pytest.fixture
def files(tmp_path):
    """A certificate of push.example.com, for the gateway and for the proxy, with its key."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=push.example.com",
         "-addext", "subjectAltName=DNS:push.example.com,IP:10.0.0.5", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "chain.pem"],
        check=True, capture_output=True)
    (tmp_path / "gateways.pem").write_bytes((tmp_path / "chain.pem").read_bytes())
    (tmp_path / "both.pem").write_bytes((tmp_path / "chain.pem").read_bytes() + (tmp_path / "key.pem").read_bytes())
    return tmp_path


def start_gateway(host, machine, files, text):
    """A gateway at 10.0.0.11 with the members that the comments of a proxy's file name."""
    folder = files / "gateway"
    folder.mkdir()
    configuration = f"""{{
      store: {{path: "/srv/data"}}, loops: 2, demo: false,
      apps: [{{appId: "{APP['appId']}", appKey: "{APP['appKey']}", appSecret: "{APP['appSecret']}", masterSecret: "{APP['masterSecret']}"}}],
      admin: {{listen: "0.0.0.0:7081"}},
      credentials: [{{name: "admin", token: "{ADMIN_TOKEN}", may: ["admin"]}}],
      device: {{listen: "off", tls: {{listen: "0.0.0.0:7443", certificate: "chain.pem", key: "key.pem"}}{members(text, "device")}}},
      http: {{listen: "0.0.0.0:7080"{members(text, "http")}}},
      limits: {{drainSeconds: 0, connectionsPerAddress: 2{members(text, "limits")}}},
    }}"""
    (folder / "gateway.json5").write_text(configuration)
    for name in ("chain.pem", "key.pem"):
        shutil.copy(files / name, folder)
    (folder / "gateway.json5").chmod(0o600)
    gateway = host.run("gateway", machine, ["/srv/bin/longwired", "--config", "/etc/longwire/gateway.json5"], addresses={"lan": GATEWAY},
                       volumes={"/srv/bin": (machine.programs, True), "/etc/longwire": (folder, True)})
    eventually(lambda: is_open(GATEWAY, 7080) or gateway.process.poll() is not None, "the gateway")
    return gateway


def members(text, section):
    """What the comments of a proxy's file put into a section of the gateway's configuration."""
    found = re.search(rf"^#   {section}: {{(.*)}}$", text, re.M)
    return ", " + found[1].removesuffix(", …") if found else ""


def start_proxy(host, machine, words, volumes):
    proxy = host.run("proxy", machine, words, addresses={"lan": PROXY}, volumes=volumes)
    eventually(lambda: proxy.process.poll() is not None or is_open(PROXY, 7443) or is_open(PROXY, 443), "the proxy")
    assert proxy.process.poll() is None, proxy.log()
    return proxy


def nginx(host, machine, files, name):
    """nginx on Debian's own configuration, with the file added as its first lines say."""
    text, folder = (PROXIES / name).read_text(), files / "nginx"
    shutil.copytree("/etc/nginx", folder, symlinks=True)
    shutil.rmtree(folder / "sites-enabled")
    (folder / "sites-enabled").mkdir()
    (folder / "tls").mkdir()
    for one in ("chain.pem", "key.pem", "gateways.pem"):
        shutil.copy(files / one, folder / "tls")
    commands = re.findall(r"^#   (cp|echo) (.*)$", text, re.M)
    for command, words in commands:
        if command == "cp":
            source, target = words.split()
            assert source == name
            shutil.copy(PROXIES / name, folder / target.removeprefix("/etc/nginx/"))
        else:
            line, target = re.fullmatch(r"'(.*)' >> /etc/nginx/(.*)", words).groups()
            with open(folder / target, "a") as file:
                file.write(line + "\n")
    return start_proxy(host, machine, ["nginx", "-g", "daemon off;"], {"/etc/nginx": (folder, True)})


def trusting(files):
    return ssl.create_default_context(cafile=files / "chain.pem")


def device_at(port, files, source=CLIENT):
    """A device of an address of the host's; it is not connected yet."""
    return Device(PROXY, port, APP["appId"], tls=trusting(files),
                  wire=lambda address, timeout: socket.create_connection(address, timeout, source_address=(source, 0)))


def web_device_at(port, files):
    return Device(PROXY, port, APP["appId"], wire=lambda address, timeout: Wire.to(address, timeout, tls=trusting(files)))


def registers(device):
    with contextlib.suppress(Closed, OSError, UpgradeRefused):
        device.register(APP["appSecret"])
        return True
    return False


def check_that_the_gateway_knows_its_clients(files):
    """The third connection of an address is refused (connectionsPerAddress is 2), while a neighbour's is taken."""
    devices = [device_at(7443, files) for _ in range(3)]
    assert [registers(device) for device in devices] == [True, True, False]
    neighbour = device_at(7443, files, NEIGHBOUR)
    assert registers(neighbour)
    for device in (*devices[1:], neighbour):
        device.close()
    return devices[0]


def receives(device, api, text):
    """Whether a push arrives over the device's connection."""
    return api.push(device.state.cid.hex(), text)["status"] == "successed_online" and device.receive_and_ack(1)[0].payload == text.encode()


def test_nginx_passes_devices_on_with_their_addresses(host, machine, files):
    start_gateway(host, machine, files, (PROXIES / "nginx-stream.conf").read_text())
    nginx(host, machine, files, "nginx-stream.conf")
    device = check_that_the_gateway_knows_its_clients(files)
    assert receives(device, API(APP, ADMIN_TOKEN, (GATEWAY, 7080)), "hello")
    device.close()
    web = web_device_at(7443, files)
    assert registers(web), "a WebSocket takes the same port"
    web.close()


def test_nginx_passes_the_push_api_and_websockets_on(host, machine, files):
    text = (PROXIES / "nginx-http.conf").read_text()
    start_gateway(host, machine, files, text)
    proxy = nginx(host, machine, files, "nginx-http.conf")
    # Half of the file's timeout, so that the test takes half of the time. The gateway's pings after 25 s must keep this one, too.
    silence = 30
    assert "proxy_read_timeout 60s;" in text
    target = files / "nginx/conf.d/longwire.conf"
    target.write_text(target.read_text().replace("proxy_read_timeout 60s;", f"proxy_read_timeout {silence}s;"))
    proxy.execute("nginx", "-s", "reload")
    eventually(lambda: len(workers(proxy)) == os.cpu_count(), "the new workers alone")

    web, api = web_device_at(443, files), API(APP, ADMIN_TOKEN, (PROXY, 443), api_tls=trusting(files))
    web.register(APP["appSecret"])
    assert receives(web, api, "hello") and receives(web, api, "again")
    # More connections than an address may have: the proxy's is exempt.
    others = [web_device_at(443, files) for _ in range(3)]
    assert all(registers(other) for other in others)
    for other in others:
        other.close()
    assert PING in frames_within(web.connection.socket.websocket, silence + 5)
    assert receives(web, api, "still there")
    web.close()
    # The proxy passes no other path on.
    for path in ("/console", "/metrics", "/v1/handoff/lease", "/v1/device/more"):
        with pytest.raises(Refused) as refused:
            API.call((PROXY, 443), "GET", path, tls=trusting(files))
        assert refused.value.status == 404, path


def frames_within(websocket, seconds):
    """The opcodes that arrive in this time; pings are answered."""
    found, end = [], time.monotonic() + seconds
    with contextlib.suppress(TimeoutError):
        while True:
            opcode, payload = websocket.receive(max(0.001, end - time.monotonic()))
            found.append(opcode)
            if opcode == PING:
                websocket.send(PONG, payload)
    return found


def workers(proxy):
    """nginx's workers; those of the former configuration are shutting down."""
    script = "for one in /proc/[0-9]*; do tr '\\0' ' ' <$one/cmdline 2>&1; echo; done"
    return [line for line in proxy.execute("sh", "-c", script).stdout.splitlines() if line.startswith("nginx: worker process ")]


def test_haproxy_passes_devices_and_the_push_api_on_with_their_addresses(host, machine, files):
    gateway = start_gateway(host, machine, files, (PROXIES / "haproxy.cfg").read_text())
    volumes = {"/etc/haproxy/haproxy.cfg": (PROXIES / "haproxy.cfg", True), "/etc/haproxy/push.example.com.pem": (files / "both.pem", True)}
    proxy = start_proxy(host, machine, ["haproxy", "-db", "-f", "/etc/haproxy/haproxy.cfg"], volumes)
    eventually(lambda: "devices/gateway2 is DOWN" in proxy.log() and "push_api/gateway2 is DOWN" in proxy.log(), "HAProxy's health checks")
    device = check_that_the_gateway_knows_its_clients(files)
    assert receives(device, API(APP, ADMIN_TOKEN, (PROXY, 443), api_tls=trusting(files)), "hello")
    device.close()
    web = web_device_at(7443, files)
    # Connections that HAProxy keeps for the address of the API's caller count with it, until they have been idle for some seconds.
    eventually(lambda: registers(web), "a WebSocket at the devices' port")
    web.close()
    assert "proxyHeaderRefused" not in gateway.log() and "gateway1 is DOWN" not in proxy.log()
