"""longwire bench through TLS against a real gateway: counts that agree, and failed handshakes counted by reason."""

import contextlib
import itertools
import json
import shutil
import socket
import threading

import pytest
from certificates import authority
from conftest import QUICK
from gateway import Gateway, free_ports
from test_bench import QUICKLY, agree, bench, report

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="the openssl command makes the certificates")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    class Made:
        folder = tmp_path_factory.mktemp("bench-certificates")
        root = authority(folder, "root")
        server = root.sign("server", names="IP:127.0.0.1")
        client = root.sign("bench", purpose="clientAuth", names=None)
        stranger = authority(folder, "stranger")
        foreign = stranger.sign("foreign", purpose="clientAuth", names=None)

    return Made


def secure(made, **more):
    """Runs a gateway with TLS beside each plain listener."""
    gateway = Gateway(limits=QUICK)
    gateway.tls = dict(zip(("device", "http", "senders", "admin"), free_ports(4)))
    for name, port in gateway.tls.items():
        gateway.sections[name]["tls"] = {"listen": f"127.0.0.1:{port}", **made.server.files(), **more}
    return gateway


@pytest.fixture(scope="module")
def loaded(made):
    with secure(made) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def strict(made):
    """Runs a gateway whose TLS listeners require client certificates."""
    with secure(made, clientAuthorities=str(made.root.file)) as gateway:
        yield gateway


def everywhere(gateway):
    return {
        "--device-address": f"127.0.0.1:{gateway.tls['device']}", "--senders-address": f"tls://127.0.0.1:{gateway.tls['senders']}",
        "--http-address": f"https://127.0.0.1:{gateway.tls['http']}", "--admin-address": f"https://127.0.0.1:{gateway.tls['admin']}",
    }


def test_devices_and_senders_through_tls(loaded, made):
    words = ["--tls", "--ca", str(made.root.file)]
    found = report(loaded, "idle", "--connections", "60", "--hold", "0.3", *words, addresses=everywhere(loaded))
    assert found["metrics"]["connections"] == found["metrics"]["handshakes"] == 60 and found["metrics"]["failedHandshakes"] == 0
    assert found["run"]["tls"] == ["devices", "senders", "push API", "admin listener"], found["run"]
    assert found["run"]["gatewayVersion"], "asked over https"
    found = report(loaded, "live", "--devices", "60", "--in-flight", "200", "--payload", "9000", *QUICKLY, *words,
                   addresses=everywhere(loaded))
    agree(found, None)
    assert found["metrics"]["handshakes"] == 62
    # Frames through a WebSocket within TLS, and two threads that share the work.
    agree(report(loaded, "live", "--devices", "40", "--in-flight", "50", "--websocket", "--threads", "2", *QUICKLY, *words,
                 addresses=everywhere(loaded)), None)
    table = bench(loaded, "live", "--devices", "20", "--rate", "200", *QUICKLY, *words, addresses=everywhere(loaded)).stdout
    assert "\n  TLS: devices, senders, push API, admin listener\n" in table and "TLS handshakes that failed" in table


def test_a_storm_and_a_return_through_tls(loaded, made):
    words = ["--tls", "--ca", str(made.root.file), "--devices", "60", "--messages", "3"]
    # Senders may use their plain listener, as in a trusted network.
    addresses = {"--device-address": f"127.0.0.1:{loaded.tls['device']}"}
    for mode in ("storm", "offline"):
        found = report(loaded, mode, *words, addresses=addresses)
        agree(found, 180)
        assert found["run"]["tls"] == ["devices"] and found["metrics"]["handshakes"] == 60, found


def test_http_and_handoff_through_tls(loaded, made):
    words = ["--tls", "--ca", str(made.root.file), "--devices", "30"]
    found = report(loaded, "http", "--connections", "6", "--connected", "--pipeline", "4", "--batch", "20", *QUICKLY, *words,
                   addresses=everywhere(loaded))
    agree(found, None)
    assert found["metrics"]["failed"] == 0 and found["metrics"]["handshakes"] == 36
    found = report(loaded, "handoff", "--messages", "10", "--connections", "2", *words, addresses=everywhere(loaded))
    assert found["metrics"]["jobs"] == found["metrics"]["settled"] == 300 and found["failures"] == {}, found


def test_a_client_certificate_is_shown_on_each_listener(strict, made):
    words = ["--tls", "--ca", str(made.root.file), "--cert", str(made.client.file), "--key", str(made.client.key)]
    agree(report(strict, "live", "--devices", "20", "--in-flight", "20", *QUICKLY, *words, addresses=everywhere(strict)), None)
    variables = {"LONGWIRE_CA": str(made.root.file), "LONGWIRE_CERT": str(made.client.file), "LONGWIRE_KEY": str(made.client.key)}
    agree(report(strict, "http", "--devices", "20", "--tls", "--connections", "2", "--connected", *QUICKLY,
                 addresses=everywhere(strict), variables=variables), None)


def test_handshakes_that_fail_are_told_by_their_reason(loaded, strict, made):
    trusting = ["--ca", str(made.root.file)]

    def refused(gateway, *words, code=69, addresses=None):
        return bench(gateway, "idle", "--connections", "5", "--hold", "0.1", *words, code=code,
                     addresses=addresses or everywhere(gateway)).stderr

    # The devices are already registered, so only their connections are tested.
    report(loaded, "idle", "--connections", "5", "--hold", "0.1")
    report(strict, "idle", "--connections", "5", "--hold", "0.1")
    told = refused(loaded, "--tls", "--ca", str(made.stranger.file))
    assert "TLS handshake of a device: certificate verify failed" in told and "--ca FILE" in told, told
    told = refused(loaded, "--tls")
    assert "certificate verify failed" in told and "--ca FILE" in told, told
    named = {**everywhere(loaded), "--device-address": f"localhost:{loaded.tls['device']}"}
    told = refused(loaded, "--tls", *trusting, addresses=named)
    assert "mismatch" in told and "is not for localhost" in told, told
    told = refused(strict, "--tls", *trusting)
    assert "certificate required" in told and "--cert FILE" in told, told
    told = refused(strict, "--tls", *trusting, "--cert", str(made.foreign.file), "--key", str(made.foreign.key))
    assert "TLS handshake of a device: " in told and "unknown ca" in told and "--cert FILE" in told, told
    plain = {**everywhere(loaded), "--device-address": f"127.0.0.1:{loaded.device}"}
    told = refused(loaded, "--tls", *trusting, addresses=plain)
    assert "TLS handshake of a device: " in told and "may not speak TLS" in told, told
    told = refused(loaded, addresses={"--device-address": f"127.0.0.1:{loaded.tls['device']}"})
    assert "add --tls" in told, told
    assert loaded.is_ready() and strict.is_ready()


@contextlib.contextmanager
def garbling(port):
    """Runs a port that forwards every second connection to `port`, and answers the others with bytes that are not TLS."""
    listener = socket.create_server(("127.0.0.1", 0))
    opened = []

    def pump(source, sink):
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                sink.sendall(piece)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def serve():
        with contextlib.suppress(OSError):
            for turn in itertools.count():
                client, _ = listener.accept()
                opened.append(client)
                if turn % 2:
                    # A client that has already reset the connection must not end this thread: later connections would hang.
                    with contextlib.suppress(OSError):
                        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                        client.shutdown(socket.SHUT_WR)
                    continue
                server = socket.create_connection(("127.0.0.1", port), timeout=30)
                opened.append(server)
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        for one in [listener, *opened]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        thread.join(10)


def test_some_handshakes_fail_and_the_run_goes_on(loaded, made):
    report(loaded, "idle", "--connections", "12", "--hold", "0.1")
    with garbling(loaded.tls["device"]) as port:
        addresses = {**everywhere(loaded), "--device-address": f"127.0.0.1:{port}"}
        words = ["--tls", "--ca", str(made.root.file), "--connections", "12", "--hold", "0.3"]
        done = bench(loaded, "idle", *words, "--json", "-", addresses=addresses)
    found = json.loads(done.stdout)
    metrics = found["metrics"]
    assert metrics["connections"] == metrics["failed"] == metrics["failedHandshakes"] == metrics["handshakes"] == 6, found
    assert list(found["failures"].values()) == [6], found
    assert next(iter(found["failures"])).startswith("TLS handshake of a device: "), found
    assert any("may not speak TLS" in note for note in found["notes"]), found
