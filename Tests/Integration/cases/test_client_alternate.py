"""A Close with an alternate, as a cluster's gateways send it, to the client of `longwire connect`."""

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
import types

import pytest
from gateway import eventually, free_ports
from longwire_client import MESSAGES, encode, pb
from test_cli import Command

MOVED = 202


class Router:
    """A gateway without devices that reads each Hello and redirects the device to `alternate`."""

    def __init__(self, tls=None):
        self.alternate, self.hellos, self.tls = "", [], tls
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), connection:
                connection.settimeout(10)
                self._serve(self.tls.wrap_socket(connection, server_side=True) if self.tls else connection)

    def _serve(self, connection):
        with connection:
            stream = connection.makefile("rb")
            head = stream.read(4)
            self.hellos.append(MESSAGES[head[0]].FromString(stream.read(int.from_bytes(head[1:], "big"))))
            connection.sendall(encode(pb.Close(code=MOVED, reason="another node has it", alternate=self.alternate)))
            stream.read()

    def end(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(10)


@pytest.fixture
def certificate(tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("the openssl command makes the certificate")
    paths = tmp_path / "certificate.pem", tmp_path / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=longwire test", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*words, "-keyout", str(paths[1]), "-out", str(paths[0])], check=True, capture_output=True)
    return paths


@pytest.fixture
def router():
    made = []

    def make(tls=None):
        made.append(Router(tls))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture
def connect(tmp_path):
    made = []

    def start(gateway, port, *arguments):
        where = types.SimpleNamespace(device=port, device_tls=port, app=gateway.app)
        made.append(Command(where, tmp_path / "device.state", *arguments))
        return made[-1]

    yield start
    for one in made:
        one.end()


def ports(device):
    return [line["port"] for line in device.all("connecting")]


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "tls"])
def test_a_device_follows_to_its_owner_at_once_and_comes_back_when_the_owner_dies(
    own_gateway, router, connect, certificate, is_secure
):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    node = router(context if is_secure else None)
    gateway = own_gateway(certificate=certificate)
    owner = gateway.device_tls if is_secure else gateway.device
    node.alternate = f"127.0.0.1:{owner}"
    words = ["--tls", "--ca", str(certificate[0])] if is_secure else []
    device = connect(gateway, node.port, *words)
    cid = device.first("registered")["cid"]
    device.first("welcome")
    assert ports(device) == [node.port, owner]
    assert [line["afterMilliseconds"] for line in device.all("retry")] == [0]
    message = gateway.push(cid, "to the owner's device")
    assert device.first("message")["msgId"] == message["msgId"]
    gateway.kill()
    # The alternate is used for one session only.
    eventually(lambda: len(ports(device)) >= 3)
    assert ports(device)[2] == node.port
    gateway.start()
    eventually(lambda: len(device.all("welcome")) == 2)
    assert ports(device)[-2:] == [node.port, owner]
    assert node.hellos[-1].cid.hex() == cid


def test_an_owner_that_cannot_be_reached_sends_the_device_back_to_its_own_address(own_gateway, router, connect):
    node, gateway = router(), own_gateway()
    dead = free_ports(1)[0]
    node.alternate = f"127.0.0.1:{dead}"
    device = connect(gateway, node.port)
    eventually(lambda: len(ports(device)) >= 3)
    assert ports(device)[:3] == [node.port, dead, node.port]
    node.alternate = f"127.0.0.1:{gateway.device}"
    device.first("welcome")
    assert ports(device)[-2:] == [node.port, gateway.device]


def test_gateways_that_send_a_device_to_each_other_are_asked_in_backoff(own_gateway, router, connect):
    gateway, one, other = own_gateway(), router(), router()
    one.alternate, other.alternate = f"127.0.0.1:{other.port}", f"127.0.0.1:{one.port}"
    device = connect(gateway, one.port)
    eventually(lambda: len(device.all("retry")) >= 8)
    waits = [line["afterMilliseconds"] for line in device.all("retry")]
    assert ports(device)[:4] == [one.port, other.port, one.port, other.port]
    # The redirect is followed at once. Each return is a failure with backoff.
    assert waits[0:8:2] == [0, 0, 0, 0]
    assert sum(waits[1:8:2]) > 0
    one.alternate = f"127.0.0.1:{gateway.device}"
    device.first("welcome")
