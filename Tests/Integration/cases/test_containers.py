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
import shutil
import socket
import ssl
import subprocess
import time
import urllib.request
import uuid

import containers
import kustomize
import pytest
import yaml
from compose import ComposeProject
from containers import ContainerHost, Image, built_packages
from gateway import Refused, binary, eventually
from longwire_client import Closed, Device, pb
from pods import Kubernetes, make_secrets, prometheus_rules

ROOT = pathlib.Path(__file__).resolve().parents[3]
INSTALL = ROOT / "docs/use/Install.md"
DATA = "/var/lib/longwire"

pytestmark = pytest.mark.skipif(not containers.is_allowed(), reason="this machine makes no namespaces for containers, or not for this user")


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The image that the Dockerfile describes, with the programs that the other tests use."""
    folder = tmp_path_factory.mktemp("image")
    packages = built_packages(folder / "packages", os.path.dirname(binary("longwired")))
    yield Image.from_dockerfile(folder / "root", ROOT / "deploy/docker/Dockerfile", packages)
    # Hundreds of megabytes.
    shutil.rmtree(folder)


@pytest.fixture
def host(request):
    with ContainerHost() as host:
        yield host
        # pytest shows this beside a failure.
        for container in host.containers:
            print(f"--- {container.name}\n{container.log()[-4000:]}")


def block(page, name):
    """The commands of a code block of a page."""
    (text,) = re.findall(rf"^ *```sh {name}\n(.*?)^ *```$", page.read_text(), re.M | re.S)
    return [shlex.split(line) for line in text.splitlines() if line.strip()]


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


def is_valid(container, program, file):
    """Holds a configuration in its place to --check, which must not even warn."""
    done = container.execute(program, "--check", "--config", file)
    assert (done.stdout, done.stderr) == ("The configuration is valid.\n", ""), done


class API:
    """The HTTP API and the admin API of a demo app, as they are published."""

    def __init__(self, demo, token, api=("127.0.0.1", 7080), admin=("127.0.0.1", 7081), api_tls=None, admin_tls=None):
        self.demo, self.token, self.api, self.admin, self.api_tls, self.admin_tls = demo, token, api, admin, api_tls, admin_tls

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
        credentials = {"appkey": app["appKey"], "timestamp": stamp, "sign": sign}
        given = self.call(self.api, "POST", f"/v2/{app['appId']}/auth", credentials, tls=self.api_tls)
        body = {"request_id": uuid.uuid4().hex, "audience": {"cid": [cid]}, "settings": {}, "push_message": {"transmission": payload}}
        if alert:
            body["push_channel"] = {"ios": {"type": "notify", "aps": {"alert": {"title": alert, "body": "…"}}}}
        answer = self.call(self.api, "POST", f"/v2/{app['appId']}/push/single/cid", body, {"token": given["data"]["token"]}, self.api_tls)
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
    is_valid(container, "longwired", "/etc/longwire/gateway.json5")

    # A device from beyond the container registers over TLS and receives a push.
    device = register(("127.0.0.1", 7443), demo, tls)
    assert api.push(device.state.cid.hex(), "hello")["status"] == "successed_online"
    assert device.receive_and_ack(1)[0].payload == b"hello"
    device.close()

    # The plain listener sees the bridge's address, which is why the trial needs TLS.
    host.publish(container, ["7000:7000"])
    eventually(lambda: is_open("127.0.0.1", 7000), "the published port")
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
    assert is_open("192.168.1.20", 7443)
    assert not is_open("192.168.1.20", 7081) and not is_open("192.168.1.20", 7080)

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
    eventually(lambda: is_open("127.0.0.1", 7443), "the published port")
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
    assert "longwire" in container.execute("longwire-sender", "--version").stdout, "other commands run through the entrypoint, too"


# The compose file

COMPOSE = ROOT / "deploy/compose/compose.yaml"


@pytest.fixture(scope="module")
def foreign_images(tmp_path_factory):
    """Images of other projects, with this machine's programs and their own users, command lines and folders."""
    folder = tmp_path_factory.mktemp("foreign")
    return {
        "redis": Image.of_this_machine(folder / "redis", "999:999", [], workdir="/data", folders=["/data"]),
        # The command of prom/prometheus, v2.
        "prom/prometheus": Image.of_this_machine(
            folder / "prometheus", "65534:65534", ["prometheus"],
            ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"], "/prometheus", ["/prometheus"])}


def compose(host, image, foreign_images, profiles, **more):
    # Debian has no package of Grafana.
    project = ComposeProject(host, COMPOSE, {"longwire": image, **foreign_images}, profiles, missing={"grafana"}, **more).up()
    # A gateway that waits for the replica is healthy and not ready.
    eventually(lambda: project["gateway"].execute("longwire", "health", check=False).returncode == 0, "readiness of the gateway")
    return project


def compose_exec(project, words):
    assert words[:5] == ["docker", "compose", "-f", "deploy/compose/compose.yaml", "exec"], words
    return project[words[5]].execute(*words[6:]).stdout


def secret(project, name, path):
    return project[name].execute("cat", path).stdout.strip()


def phones(environment="sandbox"):
    return json.loads(urllib.request.urlopen("http://127.0.0.1:2199/phones", timeout=30).read())[environment]["phones"]


def targets():
    """The health of what Prometheus scrapes, by job."""
    with contextlib.suppress(OSError):
        found = json.loads(urllib.request.urlopen("http://127.0.0.1:9090/api/v1/targets", timeout=30).read())["data"]["activeTargets"]
        return {one["labels"]["job"]: (one["health"], one["lastError"]) for one in found}
    return {}


def test_compose_serves_both_channels_the_console_and_prometheus(host, image, foreign_images):
    project = compose(host, image, foreign_images, ["fake"], environment={"LONGWIRE_TLS_NAMES": "192.168.1.20"})
    certificate = secret(project, "gateway", "/etc/longwire/secrets/tls/certificate.pem")
    demo = json.loads(secret(project, "gateway", f"{DATA}/demo.json"))
    up, show_token, show_password = block(INSTALL, "compose")
    assert up == ["docker", "compose", "-f", "deploy/compose/compose.yaml", "--profile", "fake", "up", "--build", "-d"]
    token = compose_exec(project, show_token).strip()
    api = API(demo, token)
    is_valid(project["gateway"], "longwired", "/etc/longwire/gateway.json5")
    is_valid(project["sender"], "longwire-sender", "/etc/longwire/sender.json5")

    # The live channel, from the network of the host.
    device = register(("192.168.1.20", 7443), demo, trusting(certificate), tokens=[
        pb.VendorToken(token="ab" * 32, environment=pb.VendorToken.SANDBOX)])
    cid = device.state.cid.hex()
    assert api.push(cid, "hello")["status"] == "successed_online"
    assert device.receive_and_ack(1)[0].payload == b"hello"
    device.close()
    # The vendor channel as the page describes it: through the sender to the fake Apple's page.
    connect, push = block(INSTALL, "alert")
    (other,) = set(re.findall(r'"cid":"([0-9a-f]{32})"', compose_exec(project, connect)))
    assert "successed_offline" in compose_exec(project, [other if word == "CID" else word for word in push])
    eventually(lambda: [phone for phone in phones() if phone["token"] == connect[connect.index("--token") + 1]], "the alert at the fake Apple")
    message = eventually(lambda: _offline(api, cid))
    eventually(lambda: [phone for phone in phones() if phone["token"] == "ab" * 32], "the alert at the fake Apple")
    eventually(lambda: "vendorAccepted" in [step["event"] for step in api.trace(message)["steps"]], "the sender's result")

    assert "<html" in api.console()
    assert is_open("192.168.1.20", 7443)
    for port in (7080, 7081, 2199, 9090, 3000, 7444):
        assert not is_open("192.168.1.20", port), f"{port} is published beyond the host"
    eventually(lambda: {job: state for job, (state, _) in targets().items()} == {"longwire": "up", "longwire-sender": "up"},
               "Prometheus' targets", 30)
    rules = json.loads(urllib.request.urlopen("http://127.0.0.1:9090/api/v1/rules", timeout=30).read())["data"]["groups"]
    assert sum(len(group["rules"]) for group in rules) >= 20
    assert project.is_healthy("sender")

    # Only the service that needs a secret can read it, and Grafana's password is not the default.
    for name, path in (("sender", "/secrets/operator"), ("sender", "/secrets/tls/key.pem"), ("prometheus", "/secrets/operator"),
                       ("prometheus", "/secrets/fake-apple/AuthKey.p8"), ("gateway", "/etc/longwire/secrets/sender-token")):
        assert "Permission denied" in project[name].execute("cat", path, check=False).stderr, (name, path)
    password = (host.volume("secrets") / "grafana").stat()
    assert (password.st_uid, password.st_mode & 0o777, password.st_size) == (472, 0o600, 48)
    service = yaml.safe_load(COMPOSE.read_text())["services"]["grafana"]
    assert show_password[4:] == ["exec", "grafana", "cat", "/secrets/grafana"] and "secrets:/secrets:ro" in service["volumes"]
    assert service["environment"] == {"GF_SECURITY_ADMIN_PASSWORD__FILE": "/secrets/grafana"}
    assert " redisEvent " not in project["gateway"].log(), "the gateway finds nothing wrong with the settings of Redis"
    # The network of Redis is closed to the others.
    assert project["prometheus"].execute("redis-cli", "-h", project["redis"].host, "-t", "1", "ping", check=False).returncode != 0
    for name in ("sender", "gateway"):
        assert project[name].stop() == 0, project[name].log()


def _offline(api, cid):
    """The msgId of a push to a device that the gateway knows to be away."""
    answer = api.push(cid, "later", alert="Later")
    return answer["msgId"] if answer["status"] == "successed_offline" else None


def test_compose_without_the_fake_apple_keeps_alerts(host, image, foreign_images):
    project = compose(host, image, foreign_images, [])
    assert "fake-apple" not in project.containers
    demo = json.loads(secret(project, "gateway", f"{DATA}/demo.json"))
    api = API(demo, secret(project, "gateway", "/etc/longwire/secrets/operator"))
    tls = trusting(secret(project, "gateway", "/etc/longwire/secrets/tls/certificate.pem"))
    device = register(("127.0.0.1", 7443), demo, tls, tokens=[pb.VendorToken(token="cd" * 32)])
    device.close()
    message = eventually(lambda: _offline(api, device.state.cid.hex()))
    eventually(lambda: "connectionFailed" in project["sender"].log() or "fake-apple" in project["sender"].log(), "the sender's reason")
    assert api.trace(message)["state"] == "pending" and project.is_healthy("sender")


def test_the_secrets_of_compose_are_made_once(host, image, foreign_images):
    run = lambda name: host.run(  # noqa: E731
        name, image, ["sh", "/make-secrets.sh"], addresses={}, user="root", volumes={
            "/make-secrets.sh": (COMPOSE.parent / "make-secrets.sh", True), "/secrets": host.volume("secrets")}).wait()
    assert run("first") == 0
    files = {path: path.read_bytes() for path in host.volume("secrets").rglob("*") if path.is_file()}
    assert len(files) >= 11 and all(files.values())
    assert run("second") == 0
    assert {path: path.read_bytes() for path in host.volume("secrets").rglob("*") if path.is_file()} == files


# The Kubernetes manifests

KUBERNETES = ROOT / "deploy/kubernetes"
MONITORING = KUBERNETES / "monitoring"
APPLE = ("api.push.apple.com", "api.sandbox.push.apple.com")


@pytest.fixture
def cluster(host, image, foreign_images, tmp_path):
    """The manifests' objects on this machine, with Redis and an Apple where the configurations say."""
    make = host.run("certificates", image, [
        "sh", "-c", "longwire-make-certificate /made/device push.example.com && longwire-make-certificate /made/apple " + " ".join(APPLE)
        + " && openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out /made/apple/AuthKey.p8"],
        user="root", addresses={}, volumes={"/made": host.volume("made")})
    assert make.wait() == 0, make.log()
    made = host.volume("made")
    for name, source in (("chain.pem", "device/certificate.pem"), ("key.pem", "device/key.pem"), ("AuthKey.p8", "apple/AuthKey.p8")):
        (tmp_path / name).write_bytes((made / source).read_bytes())
    commands, = re.findall(r"^ *```sh secrets\n(.*?)^ *```$", (KUBERNETES / "README.md").read_text(), re.M | re.S)
    secrets = make_secrets(commands, tmp_path, {"REDIS_PASSWORD": "a-password-of-redis"})

    settings = {"/etc/redis/longwire.conf": (ROOT / "deploy/redis/redis.conf", True)}
    redis = [host.run("redis-0", foreign_images["redis"], [
        "redis-server", "/etc/redis/longwire.conf", "--cluster-enabled", "no", "--protected-mode", "no", "--maxmemory", "256mb",
        "--requirepass", "a-password-of-redis", "--masterauth", "a-password-of-redis"], volumes=settings)]
    redis += [host.run(f"redis-{number}", foreign_images["redis"], [*redis[0].words, "--replicaof", redis[0].host, "6379"], volumes=settings)
              for number in (1, 2)]
    # Key and team are those of sender.json5. Both environments are at port 443, so each has another fake.
    apples = [host.run(f"fake-{environment}", image, [
        "longwire-sender", "fake", "--folder", "/apple", "--any-address", f"--{environment}", "0.0.0.0:443", "--page", "0.0.0.0:2199",
        "--key-id", "ABC123DEFG", "--team-id", "DEF123GHIJ"],
        user="root", volumes={"/apple": made / "apple"}, publish=[f"127.0.0.1:{port}:2199"])
        for environment, port in (("production", 2199), ("sandbox", 2200))]
    names = {f"redis-{number}.redis": one.host for number, one in enumerate(redis)}
    return Kubernetes(host, image, kustomize.build(KUBERNETES), secrets, {**names, **dict(zip(APPLE, (one.host for one in apples)))})


def authorities(host, image):
    """The system's authorities in the image, and the Apple of the test."""
    file = host.folder / "ca-certificates.crt"
    file.write_text((image.folder / "etc/ssl/certs/ca-certificates.crt").read_text() + (host.volume("made") / "apple/certificate.pem").read_text())
    return {"/etc/ssl/certs/ca-certificates.crt": (file, True)}


def test_the_pods_of_kubernetes_serve_both_channels_and_prometheus(cluster, host, image, foreign_images, tmp_path):
    gateways = [cluster.start_pod("StatefulSet", "longwire", number) for number in (0, 1)]
    for pod in gateways:
        eventually(lambda: pod.probe("readinessProbe"), f"readiness of {pod.name}")
        assert pod.probe("livenessProbe")
    cluster.serve()
    senders = [cluster.start_pod("Deployment", "longwire-sender", number, authorities(host, image)) for number in (0, 1)]
    is_valid(gateways[0].container, "longwired", "/etc/longwire/gateway.json5")
    is_valid(senders[0].container, "longwire-sender", "/etc/longwire/configuration/sender.json5")
    shared = cluster.secrets["longwire"]
    demo = {"appId": "shop", "appKey": "shop-key", "appSecret": shared["shop-app"].decode(), "masterSecret": shared["shop-master"].decode()}
    # The address that a name of a Service stands for, and the port that it publishes.
    devices, http = (cluster.addresses[f"longwire-{name}"] for name in ("devices", "http"))
    # The console of a pod, as port-forward reaches it: on the pod's loopback.
    token = shared["operator"].decode()
    admin = trusting(cluster.secrets["longwire-admin-tls"]["tls.crt"].decode())
    admin.check_hostname = False
    api = API(demo, token, api=(http, 7080), admin=(cluster.addresses["longwire-admin"], 7444), admin_tls=admin)
    tls = trusting(cluster.secrets["longwire-tls"]["tls.crt"].decode())
    tls.check_hostname = False
    eventually(lambda: is_open(devices, 7443), "the Service of devices")
    eventually(lambda: is_open(http, 7080), "the Service of the push API")
    status = ["longwire", "cluster", "status", "--admin-token", token]
    eventually(lambda: all(f"{pod.address}:7100" in gateways[0].container.execute(*status).stdout for pod in gateways), "a cluster of two gateways")

    def accepted(message):
        return "vendorAccepted" in [step["event"] for step in api.trace(message)["steps"]]

    # Devices of both gateways, by the balancer's turns; then the vendor channel, from the partitions of both.
    for number in range(6):
        device = register((devices, 7443), demo, tls, tokens=[pb.VendorToken(token=f"a{number}" * 32)])
        assert eventually(lambda: api.push(device.state.cid.hex(), "hello")["status"] == "successed_online")
        assert device.receive_and_ack(1)[0].payload == b"hello"
        device.close()
        message = eventually(lambda: _offline(api, device.state.cid.hex()))
        eventually(lambda: accepted(message), lambda: f"the vendor's result of device {number}: {api.trace(message)['steps']}", 150)
        assert [phone for phone in phones("production") if phone["token"] == f"a{number}" * 32]
    for pod in senders:
        assert pod.probe("readinessProbe"), pod.container.log()
    for pod in gateways:
        assert _console(pod) == "HTTP/1.1 200 OK\n"
        # The plain admin listener is the pod's loopback's alone.
        assert not is_open(pod.address, 7081) and not is_open(pod.address, 7000)

    # Prometheus scrapes what the PodMonitors select, and has the rules.
    monitors, files = kustomize.build(MONITORING), host.volume("scrapes")
    files.chmod(0o755)
    (files / "prometheus.json").write_text(cluster.scrapes(monitors, files, "/scrapes"))
    (files / "rules.json").write_text(prometheus_rules(monitors))
    host.run("prometheus", foreign_images["prom/prometheus"], ["--config.file=/scrapes/prometheus.json", "--storage.tsdb.path=/prometheus"],
             volumes={"/scrapes": (files, True)}, publish=["127.0.0.1:9090:9090"])
    eventually(lambda: targets() == {"longwire": ("up", ""), "longwire-sender": ("up", "")}, f"Prometheus' targets: {targets()}", 30)

    # A configuration is read again at SIGHUP, by the command of the README; then the pods stop as the kubelet stops them.
    (reload,) = block(KUBERNETES / "README.md", "reload")
    assert reload[:6] == ["kubectl", "-n", "longwire", "exec", "longwire-0", "--"]
    gateways[0].container.execute(*reload[6:])
    eventually(lambda: '"event":"reloaded"' in gateways[0].container.log(), "the reload")
    for pod in (*senders, *gateways):
        assert pod.container.stop(85) == 0, pod.container.log()[-2000:]


def test_a_changed_configuration_is_another_name_and_rolls_the_pods(tmp_path):
    folder = tmp_path / "kubernetes"
    shutil.copytree(KUBERNETES, folder)

    def mounted():
        return {one["metadata"]["name"]: volume["configMap"]["name"] for one in kustomize.build(folder)
                for volume in kustomize.pod_of(one).get("volumes", []) if "configMap" in volume}

    before = mounted()
    assert set(before) == {"longwire", "longwire-sender"}
    (folder / "gateway.json5").write_text((folder / "gateway.json5").read_text().replace("drainSeconds: 15", "drainSeconds: 16"))
    after = mounted()
    assert after["longwire"] != before["longwire"] and after["longwire-sender"] == before["longwire-sender"]


@pytest.mark.parametrize("folder", [KUBERNETES, MONITORING])
def test_kubectl_reads_the_kustomizations_as_the_rig_does(folder):
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

    def ordered(documents):
        return sorted(documents, key=lambda one: (one["kind"], one["metadata"]["name"]))

    assert ordered(yaml.safe_load_all(done.stdout)) == ordered(kustomize.build(folder))


def _console(pod):
    script = "exec 3<>/dev/tcp/127.0.0.1/7081; printf 'GET /console HTTP/1.1\\r\\nHost: 127.0.0.1:7081\\r\\nConnection: close\\r\\n\\r\\n' >&3; head -1 <&3"
    return pod.container.execute("bash", "-c", script).stdout


def is_open(address, port):
    with contextlib.closing(socket.socket()) as one:
        one.settimeout(5)
        return one.connect_ex((address, port)) == 0
