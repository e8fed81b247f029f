"""Tokens of the app's server: registration without the appSecret, and the alias of a user."""

import base64
import hashlib
import hmac
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import QUICK
from gateway import TIMEOUT, Gateway, Refused, eventually
from longwire_client import Closed, Device, pb
from test_device_names import BAD_NAME, DONE, NOT_ALLOWED, Names, ask, name
from test_users import cids, push_alias

SECRET = "a-master-secret-of-32-characters"
BAD_PROOF, BAD_TOKEN = 401, 5
ROOT = pathlib.Path(__file__).resolve().parents[3]
# The programs of the conformance suite, one for each client; its README has their commands and events.
DRIVERS = json.loads((ROOT / "Tests/Conformance/drivers.json").read_text())


def part(value):
    return base64.urlsafe_b64encode(value).rstrip(b"=")


def token(app="demo", alias=None, expires=600, secret=SECRET, algorithm="HS256", sign=None, **claims):
    claims = {"aud": app, "exp": int(time.time()) + expires, **({"sub": alias} if alias else {}), **claims}
    message = part(json.dumps({"alg": algorithm, "typ": "JWT"}).encode()) + b"." + part(json.dumps(claims).encode())
    code = sign(message) if sign else hmac.new(secret.encode(), message, hashlib.sha256).digest()
    return (message + b"." + part(code)).decode()


class Keys:
    """An RSA key pair, made with the command openssl."""

    def __init__(self, folder):
        self.file = folder / "key.pem"
        subprocess.run(["openssl", "genrsa", "-out", self.file, "2048"], check=True, capture_output=True)
        self.public = subprocess.run(
            ["openssl", "rsa", "-in", self.file, "-pubout"], check=True, capture_output=True, text=True).stdout

    def sign(self, message):
        command = ["openssl", "dgst", "-sha256", "-sign", self.file]
        return subprocess.run(command, input=message, check=True, capture_output=True).stdout


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    if not shutil.which("openssl"):
        pytest.skip("the openssl command makes the keys")
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def gateway(keys):
    app = {"masterSecret": SECRET, "registration": {"appSecret": False, "publicKeys": [keys.public]}}
    with Gateway(limits=QUICK, loops=3, app=app) as one:
        yield one


@pytest.fixture
def register():
    devices = []

    def make(gateway, text, **fields):
        device = Device("127.0.0.1", gateway.device, gateway.app["appId"])
        devices.append(device)
        device.register(text, registration_token=text, **fields)
        device.cid = device.state.cid.hex()
        return device

    yield make
    for device in devices:
        device.close()


def test_a_token_registers_and_binds_the_alias_of_its_user(gateway, keys, register):
    for made in (token(alias=name()), token(alias=name(), algorithm="RS256", sign=keys.sign)):
        device = register(gateway, made)
        alias = json.loads(base64.urlsafe_b64decode(made.split(".")[1] + "=="))["sub"]
        assert cids(gateway, alias) == []
        assert ask(device, Names.BIND_ALIAS, token=made).code == DONE
        assert cids(gateway, alias) == [device.cid]
        push_alias(gateway, alias, "for the user")
        assert device.receive().payload == b"for the user"


def test_a_registered_device_takes_the_alias_of_another_user(gateway, register):
    first, second = name(), name()
    device = register(gateway, token(alias=first))
    for alias in (first, second):
        assert ask(device, Names.BIND_ALIAS, token=token(alias=alias)).code == DONE
    assert cids(gateway, first) == [] and cids(gateway, second) == [device.cid]
    typed = name()
    assert ask(device, Names.BIND_ALIAS, token=token(alias=typed, alias_type="phone")).code == DONE
    assert cids(gateway, typed + "?alias_type=phone") == [device.cid] and cids(gateway, second) == [device.cid]


def test_the_app_secret_registers_only_where_it_may(gateway, new_device):
    with pytest.raises(Closed) as closed:
        new_device(gateway)
    assert closed.value.code == BAD_PROOF and "token" in closed.value.close.reason


@pytest.mark.parametrize("bad, word", [
    (lambda keys: token(expires=-61), "expired"), (lambda keys: token(app="other"), "aud"),
    (lambda keys: token(secret="another-secret-of-32-characters-"), "masterSecret"),
    (lambda keys: token(algorithm="none", sign=lambda _: b""), "alg"),
    (lambda keys: token(secret=keys.public), "masterSecret"),
    (lambda keys: token(algorithm="RS256", secret=keys.public), "publicKeys"),
    (lambda keys: "no.token", "three parts"),
])
def test_a_bad_token_registers_nothing_and_binds_nothing(gateway, keys, register, bad, word):
    with pytest.raises(Closed) as closed:
        register(gateway, bad(keys))
    assert closed.value.code == BAD_PROOF and word in closed.value.close.reason
    device = register(gateway, token())
    result = ask(device, Names.BIND_ALIAS, token=bad(keys))
    assert result.code == BAD_TOKEN and word in result.reason


def test_a_token_proves_only_the_alias_that_it_names(gateway, register):
    alias, device = name(), register(gateway, token())
    assert ask(device, Names.BIND_ALIAS, alias=alias, token=token(alias=alias)).code == DONE
    assert ask(device, Names.BIND_ALIAS, alias=name(), token=token(alias=alias)).code == BAD_TOKEN
    assert ask(device, Names.SET_TAGS, tags=["x"], token=token(alias=alias)).code == BAD_TOKEN
    assert ask(device, Names.BIND_ALIAS, alias=name()).code == NOT_ALLOWED
    assert ask(device, Names.BIND_ALIAS, token=token(alias="no alias")).code == BAD_NAME
    assert ask(device, Names.BIND_ALIAS, token=token()).code == BAD_TOKEN
    assert ask(device, Names.BIND_ALIAS, alias_type="phone", token=token(alias=alias)).code == BAD_TOKEN
    assert cids(gateway, alias) == [device.cid]


def test_a_proof_under_another_key_than_the_token_is_refused(gateway):
    device = Device("127.0.0.1", gateway.device, gateway.app["appId"])
    with pytest.raises(Closed) as closed:
        device.register("another key", registration_token=token())
    assert closed.value.code == BAD_PROOF
    device.close()


def test_a_token_beside_the_app_secret_and_a_reload_that_ends_the_secret(new_device, register):
    with Gateway(limits=QUICK, app={"masterSecret": SECRET}) as gateway:
        new_device(gateway)
        register(gateway, token())
        gateway.app["registration"] = {"appSecret": False}
        gateway.config.write_text(json.dumps(gateway.sections))
        gateway.process.send_signal(signal.SIGHUP)

        def is_refused():
            try:
                new_device(gateway)
            except Closed as closed:
                return closed.code == BAD_PROOF
            return False

        eventually(is_refused, "the end of the appSecret")
        register(gateway, token())


def test_a_rotation_that_would_end_all_registrations_later_is_refused():
    with Gateway(limits=QUICK) as gateway:
        gateway.admin_call("POST", "/v1/apps", {"appId": "made", "registration": {"appSecret": False}})
        with pytest.raises(Refused) as refused:
            gateway.admin_call("POST", "/v1/apps/made/rotate", {"secret": "masterSecret", "value": "too-short"})
        assert "registration" in str(refused.value)


def test_a_configuration_without_any_way_to_register_is_refused():
    app = {"masterSecret": "too-short", "registration": {"appSecret": False}}
    gateway = Gateway(limits=QUICK, app=app)
    try:
        with pytest.raises(Exception):
            gateway.start()
        assert "registration.appSecret" in gateway.log()
    finally:
        gateway.__exit__()


class Client:
    """A client of ours in its driver program."""

    def __init__(self, name, gateway, folder, token):
        words = [word.replace("{python}", sys.executable) for word in DRIVERS[name]["command"]]
        self.process = subprocess.Popen(
            [*words, "--address", f"127.0.0.1:{gateway.device}", "--transport", "tcp", "--app", gateway.app["appId"],
             "--token", token, "--state", folder],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        # The end of the process ends each wait for an event.
        self.timer = threading.Timer(TIMEOUT, self.process.kill)
        self.timer.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.timer.cancel()
        self.process.kill()
        self.process.communicate()

    def expect(self, name):
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == name:
                return event
        raise AssertionError(f"no event {name} came")

    def bind(self, token):
        command = {"do": "names", "operation": "bindAlias", "token": token}
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return self.expect("names")["code"]


@pytest.mark.parametrize("client", DRIVERS)
def test_each_client_registers_by_a_token_and_binds_its_alias(client, gateway, tmp_path):
    for path, remedy in DRIVERS[client].get("needs", {}).items():
        if not (ROOT / path).exists():
            pytest.skip(f"{path} is missing; run {remedy}")
    if client == "javascript" and not shutil.which("node"):
        pytest.skip("no Node")
    first, second = name(), name()
    with Client(client, gateway, tmp_path, token(alias=first, expires=-61)) as device:
        assert "expired" in device.expect("stopped")["reason"]
    with Client(client, gateway, tmp_path, token(alias=first)) as device:
        cid = device.expect("registered")["cid"]
        assert device.expect("names")["code"] == DONE
        assert cids(gateway, first) == [cid]
        push_alias(gateway, first, "for the user")
        assert base64.b64decode(device.expect("message")["payload"]) == b"for the user"
        assert device.bind(token(alias=second, expires=-61)) == BAD_TOKEN
        assert device.bind(token(alias=second)) == DONE
        assert cids(gateway, first) == [] and cids(gateway, second) == [cid]
