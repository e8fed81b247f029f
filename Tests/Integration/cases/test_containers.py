"""The image, the compose file and the Kubernetes manifests, run from their own files in namespaces (rigs/containers.py).

The commands come from docs/use/Install.md, the services from compose.yaml and the pods from the manifests, so neither can drift from
what is tested here. Docker and Kubernetes themselves are not run.
"""

import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import re
import shlex
import socket
import ssl
import time
import uuid

import pytest
from containers import ContainerHost, Image, built_packages
from gateway import Refused, binary, eventually
from longwire_client import Closed, Device

ROOT = pathlib.Path(__file__).resolve().parents[3]
INSTALL = ROOT / "docs/use/Install.md"
DATA = "/var/lib/longwire"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and root folders of containers need root")


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The image that the Dockerfile describes, with the programs that the other tests use."""
    folder = tmp_path_factory.mktemp("image")
    packages = built_packages(folder / "packages", os.path.dirname(binary("longwired")))
    return Image.from_dockerfile(folder / "root", ROOT / "deploy/docker/Dockerfile", packages)


@pytest.fixture
def host():
    with ContainerHost() as host:
        yield host


def block(page, name):
    """The commands of a code block of a page."""
    (text,) = re.findall(rf"^```sh {name}\n(.*?)^```$", page.read_text(), re.M | re.S)
    return [shlex.split(line) for line in text.splitlines() if line]


def docker_run(host, image, words, **more):
    """Starts what a `docker run` line says; an option that the rig does not know fails the test."""
    assert words[:2] == ["docker", "run"] and words[-1] == "longwire", words
    options = {"publish": [], "environment": {}, "volumes": {}}
    rest = words[2:-1]
    while rest:
        option = rest.pop(0)
        if option == "-d":
            continue
        value = rest.pop(0)
        if option == "--name":
            name = value
        elif option == "-p":
            options["publish"].append(value)
        elif option == "-e":
            options["environment"] |= dict([value.split("=", 1)])
        elif option == "-v":
            volume, target = value.split(":")
            options["volumes"][target] = host.volume(volume)
        else:
            raise AssertionError(f"docker run {option}")
    options["volumes"] |= more.pop("volumes", {})
    return host.run(name, image, **options, **more)


def docker_exec(container, words, **options):
    assert words[:3] == ["docker", "exec", container.name], words
    return container.execute(*words[3:], **options).stdout


class API:
    """The HTTP API and the admin API of a demo app, as they are published."""

    def __init__(self, demo, token, api=("127.0.0.1", 7080), admin=("127.0.0.1", 7081), admin_tls=None):
        self.demo, self.token, self.api, self.admin, self.admin_tls = demo, token, api, admin, admin_tls

    @staticmethod
    def call(address, method, path, body=None, headers=None, tls=None):
        make = http.client.HTTPSConnection if tls else http.client.HTTPConnection
        connection = make(*address, timeout=30, **({"context": tls} if tls else {}))
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        answer = json.loads(text) if text.startswith("{") else {"text": text}
        if response.status // 100 != 2:
            raise Refused(response.status, answer)
        return answer

    def push(self, cid, payload, alert=None):
        """Publishes one message and returns its answer."""
        app = self.demo
        stamp = str(int(time.time() * 1000))
        sign = hashlib.sha256((app["appKey"] + stamp + app["masterSecret"]).encode()).hexdigest()
        given = self.call(self.api, "POST", f"/v2/{app['appId']}/auth", {"appkey": app["appKey"], "timestamp": stamp, "sign": sign})
        body = {"request_id": uuid.uuid4().hex, "audience": {"cid": [cid]}, "settings": {}, "push_message": {"transmission": payload}}
        if alert:
            body["push_channel"] = {"ios": {"type": "notify", "aps": {"alert": {"title": alert, "body": "…"}}}}
        answer = self.call(self.api, "POST", f"/v2/{app['appId']}/push/single/cid", body, {"token": given["data"]["token"]})
        message = answer["longwire"]["messages"][0]
        return {**message, "status": answer["data"][message["taskId"]][cid]}

    def trace(self, message):
        return self.call(self.admin, "GET", f"/v1/messages/{message}", headers={"Authorization": f"Bearer {self.token}"}, tls=self.admin_tls)

    def console(self):
        return self.call(self.admin, "GET", "/console", tls=self.admin_tls)["text"]


def trusting(pem):
    return ssl.create_default_context(cadata=pem)


def register(address, demo, tls, **fields):
    device = Device(*address, demo["appId"], tls=tls)
    device.register(demo["appSecret"], **fields)
    return device


def refused_registration(address, demo):
    with pytest.raises(Closed) as closed:
        register(address, demo, None)
    return closed.value.code


# The image


def test_the_documented_trial_serves_devices_pushes_and_the_console(host, image):
    build, run, token_line = block(INSTALL, "docker")
    assert build[:2] == ["docker", "build"] and (ROOT / build[3]).samefile(ROOT / "deploy/docker/Dockerfile")
    container = docker_run(host, image, run)
    eventually(container.is_healthy, "the image's health check")
    token = docker_exec(container, token_line).strip()
    assert token not in container.log(), "the log has no secret"
    demo = json.loads(container.execute("cat", f"{DATA}/demo.json").stdout)
    tls = trusting(container.execute("cat", f"{DATA}/tls/certificate.pem").stdout)
    api = API(demo, token)

    # A device from beyond the container registers over TLS and receives a push.
    device = register(("127.0.0.1", 7443), demo, tls)
    assert api.push(device.state.cid.hex(), "hello")["status"] == "successed_online"
    assert device.receive_and_ack(1)[0].payload == b"hello"
    device.close()

    # The plain listener sees the bridge's address, which is why the trial needs TLS.
    host.publish(container, ["7000:7000"])
    eventually(lambda: _is_open("127.0.0.1", 7000), "the published port")
    assert refused_registration(("127.0.0.1", 7000), demo) == 403

    # The console and its API, with the token and not without.
    assert "<html" in api.console()
    authorized = {"Authorization": f"Bearer {token}"}
    assert "longwire_connections" in api.call(api.admin, "GET", "/metrics", headers=authorized)["text"]
    for wrong in ({}, {"Authorization": "Bearer " + "0" * 48}):
        with pytest.raises(Refused) as refused:
            api.call(api.admin, "GET", "/metrics", headers=wrong)
        assert refused.value.status == 401
    # Neither is published to the network, and the devices' listener is.
    assert _is_open("192.168.1.20", 7443)
    assert not _is_open("192.168.1.20", 7081) and not _is_open("192.168.1.20", 7080)

    assert container.stop() == 0


def test_the_documented_commands_inside_the_container_are_a_device_and_a_publisher(host, image):
    container = docker_run(host, image, block(INSTALL, "docker")[1])
    eventually(container.is_healthy, "the image's health check")
    connect, push = block(INSTALL, "device")
    assert connect[:3] == push[:3] == ["docker", "exec", "longwire"]
    device = host.start(container.execution(*connect[3:]))
    log = next(host.folder.glob("nsenter-*.log"))
    (cid,) = eventually(lambda: re.findall(r'"cid":"([0-9a-f]{32})"', "".join(
        line for line in log.read_text().splitlines() if '"registered"' in line)), "the device's registration")
    said = docker_exec(container, [cid if word == "CID" else word for word in push])
    assert "successed_online" in said
    eventually(lambda: '"payload":"hello"' in log.read_text(), "the message")
    device.terminate()
    message = re.search(r'"msgId":"([0-9a-f]+)"', log.read_text())[1]
    assert "Delivered" in container.execute("longwire", "trace", message, "--text").stdout, "the CLI finds the operator's token"


def test_a_second_start_keeps_certificate_token_and_devices(host, image):
    run = block(INSTALL, "docker")[1]
    container = docker_run(host, image, run)
    eventually(container.is_healthy, "the image's health check")
    demo = json.loads(container.execute("cat", f"{DATA}/demo.json").stdout)
    before = container.execute("sh", "-c", f"cat {DATA}/tls/* {DATA}/operator-token").stdout
    tls = trusting(container.execute("cat", f"{DATA}/tls/certificate.pem").stdout)
    device = register(("127.0.0.1", 7443), demo, tls)
    device.close()
    container.remove()
    again = docker_run(host, image, run)
    eventually(again.is_healthy, "the image's health check")
    assert again.execute("sh", "-c", f"cat {DATA}/tls/* {DATA}/operator-token").stdout == before
    assert again.log().count("made a self-signed certificate") == again.log().count("made the console's token") == 1, "of both starts"
    eventually(lambda: _is_open("127.0.0.1", 7443), "the published port")
    device.connect()
    device.close()


def test_a_phone_reaches_the_names_that_the_command_gives(host, image):
    run, copy = block(INSTALL, "phone")
    container = docker_run(host, image, run)
    eventually(container.is_healthy, "the image's health check")
    source = copy[2].removeprefix("longwire:")
    assert copy[:2] == ["docker", "cp"] and container.execute("test", "-s", source)
    tls = trusting(container.execute("cat", source).stdout)
    tls.verify_flags |= ssl.VERIFY_X509_STRICT
    demo = json.loads(container.execute("cat", f"{DATA}/demo.json").stdout)
    register(("192.168.1.20", 7443), demo, tls).close()
    shown = container.execute("openssl", "x509", "-in", source, "-noout", "-ext", "subjectAltName").stdout
    assert "DNS:push.example.com" in shown and "IP Address:192.168.1.20" in shown


def test_a_name_that_makes_no_certificate_ends_the_start_with_its_reason(host, image):
    container = docker_run(host, image, [word.replace("192.168.1.20", "1.2.3") for word in block(INSTALL, "phone")[0]])
    assert container.wait() != 0
    assert "IP:1.2.3" in container.log() and "storeOpened" not in container.log()
    assert not list((host.folder / "volumes/longwire").glob("tls")), "the next start tries again"


def test_the_entrypoint_makes_nothing_for_a_configuration_of_its_own(host, image, tmp_path):
    own = tmp_path / "gateway.json5"
    # The trial's names stand in a comment here.
    own.write_text(f'// "{DATA}/tls/" and "{DATA}/operator-token"\n'
                   f'{{http: {{listen: "0.0.0.0:7080"}}, store: {{path: "{DATA}"}}, demo: true}}')
    container = docker_run(host, image, block(INSTALL, "docker")[1], volumes={"/etc/longwire/gateway.json5": (own, True)})
    eventually(container.is_healthy, "the image's health check")
    made = container.execute("ls", "-A", DATA).stdout.split()
    assert "demo.json" in made and not {"tls", "operator-token", ".config"} & set(made)
    assert "longwire" in container.execute("longwire-apns", "--version").stdout, "other commands run through the entrypoint, too"


def _is_open(address, port):
    with contextlib.closing(socket.socket()) as one:
        one.settimeout(5)
        return one.connect_ex((address, port)) == 0
