"""TCP balancers before the gateway: PROXY headers of both versions, handwritten and from HAProxy."""

import contextlib
import socket
import ssl
import struct
import subprocess
import time

import pytest
from conftest import QUICK
from gateway import Gateway, eventually, free_ports
from hostile import close_code
from longwire_client import Connection, Device, pb, prove

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def header(client="203.0.113.9", port=4_000):
    """Returns a balancer's header of version 2 for a client."""
    addresses = socket.inet_aton(client) + socket.inet_aton("192.0.2.1") + struct.pack(">HH", port, 7_000)
    return SIGNATURE + struct.pack(">BBH", 0x21, 0x11, len(addresses)) + addresses


def line(client="203.0.113.9", port=4_000):
    """Returns the same as a line of version 1."""
    return f"PROXY TCP4 {client} 192.0.2.1 {port} 7000\r\n".encode()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("balancers")
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    subprocess.run([*words, "-keyout", folder / "key", "-out", folder / "cert"], check=True, capture_output=True)
    return folder / "cert", folder / "key"


@pytest.fixture(scope="module")
def gateway(certificate):
    gateway = Gateway(limits=QUICK, certificate=certificate)
    for name in ("device", "http", "senders"):
        gateway.sections[name]["balancers"] = ["127.0.0.0/8"]
    with gateway:
        yield gateway


def registration(gateway):
    app = gateway.app
    hello = pb.Hello(app_id=app["appId"], registration=True, timestamp=int(time.time() * 1000), nonce=b"0123456789abcdef")
    return prove(hello, app["appSecret"].encode())


def test_the_guard_on_plain_registration_sees_the_client_and_not_the_balancer(gateway):
    for client, code, write in (
        ("203.0.113.9", 403, header), ("127.0.0.9", None, header), ("203.0.113.9", 403, line), ("127.0.0.9", None, line)):
        connection = Connection("127.0.0.1", gateway.device)
        # The header in pieces, followed directly by the Hello.
        whole = write(client)
        connection.socket.sendall(whole[:7])
        time.sleep(0.05)
        connection.socket.sendall(whole[7:] + registration(gateway))
        if code:
            assert close_code(connection) == code
        else:
            assert connection.receive(pb.Welcome).cid
        connection.close()


def test_a_connection_without_a_header_ends_with_a_reason_in_the_log_and_a_count(gateway):
    unreadable = b"PROXY TCP4 203.0.113.9 192.0.2.1 4000\r\n"
    for start in (registration(gateway), unreadable, header()[:20], SIGNATURE + b"\x21\x11\xff\xff"):
        with socket.create_connection(("127.0.0.1", gateway.device), timeout=20) as one:
            with contextlib.suppress(OSError):
                one.sendall(start)
                one.shutdown(socket.SHUT_WR)
                assert one.recv(100) == b""
    eventually(lambda: "proxyHeaderRefused" in gateway.log() and "balancer 127.0.0.1" in gateway.log(), "the log line")
    eventually(lambda: "longwire_proxy_headers_refused_total 4" in gateway.metrics(), "the count")


def test_a_check_whether_somebody_listens_is_counted_apart_and_not_warned_of(own_gateway):
    gateway = own_gateway()
    gateway.stop()
    gateway.sections["device"]["balancers"] = ["127.0.0.0/8"]
    gateway.start()
    for is_reset in (False, True) * 3:
        one = socket.create_connection(("127.0.0.1", gateway.device), timeout=5)
        if is_reset:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
    eventually(lambda: "longwire_balancer_probes_total 6" in gateway.metrics(), "the count")
    assert "longwire_proxy_headers_refused_total 0" in gateway.metrics()
    assert "proxyHeaderRefused" not in gateway.log()


def is_open(port):
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return True


@pytest.mark.parametrize("version", ["send-proxy", "send-proxy-v2"])
def test_devices_with_and_without_tls_and_calls_come_through_haproxy(gateway, certificate, tmp_path, monkeypatch, version):
    ports = dict(zip(("device", "device_tls", "http"), free_ports(3)))
    text = "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n"
    for name, port in ports.items():
        text += f"listen {name}\n  bind 127.0.0.1:{port}\n"
        text += f"  server one 127.0.0.1:{getattr(gateway, name)} {version}\n"
    (tmp_path / "haproxy.cfg").write_text("global\n  maxconn 200\n" + text)
    process = subprocess.Popen(["/usr/sbin/haproxy", "-db", "-f", tmp_path / "haproxy.cfg"])
    try:
        for port in ports.values():
            eventually(lambda: is_open(port), "haproxy")
        monkeypatch.setattr(gateway, "http", ports["http"])
        tls = ssl.create_default_context(cafile=certificate[0])
        for name, context in (("device", None), ("device_tls", tls)):
            device = Device("127.0.0.1", ports[name], gateway.app["appId"], tls=context)
            device.register(gateway.app["appSecret"])
            assert gateway.push(device.state.cid.hex(), "hello")["status"] == "successed_online"
            assert device.receive_and_ack(1)[0].payload == b"hello"
            device.close()
    finally:
        process.terminate()
        process.wait()
