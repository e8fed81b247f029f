"""Expired, foreign and misused certificates; client certificates; the bound on handshakes."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request

import longwire_client
import pytest
from certificates import EXPIRED, FUTURE, authority
from conftest import QUICK
from gateway import ADMIN_TOKEN, HANDOFF_TOKEN, Gateway, binary, eventually, free_ports
from hostile import raw
from longwire_client import Sender
from test_operations import reload

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="the openssl command makes the certificates")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An authority with an intermediate, their certificates, and those of another authority."""

    class Made:
        folder = tmp_path_factory.mktemp("certificates")
        root = authority(folder, "root")
        middle = authority(folder, "middle", issuer=root)
        server = root.sign("server")
        expired = root.sign("expired", dates=EXPIRED)
        future = root.sign("future", dates=FUTURE)
        for_clients = root.sign("for-clients", purpose="clientAuth")
        below = middle.sign("below")
        client = root.sign("sender-1", purpose="clientAuth", names=None)
        other_client = root.sign("sender-2", purpose="clientAuth", names="DNS:known.example")
        expired_client = root.sign("sender-3", purpose="clientAuth", dates=EXPIRED, names=None)
        server_only = root.sign("sender-4", purpose="serverAuth", names=None)
        stranger = authority(folder, "stranger")
        foreign = stranger.sign("foreign", purpose="clientAuth", names=None)

    return Made


def trusting(made, client=None):
    context = ssl.create_default_context(cafile=str(made.root.file))
    if client:
        context.load_cert_chain(client.file, client.key)
    return context


def shake(port, context):
    """Performs a handshake and reads a byte, because with TLS 1.3 a refusal follows the client's last message."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
            secure.sendall(b"GET /healthz HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
            return secure.recv(100)


def counted(gateway, result):
    return int(re.search(rf'longwire_tls_handshakes_total{{result="{result}"}} (\d+)', gateway.metrics())[1])


# Certificates of listeners


def test_check_tells_what_clients_would_refuse_and_what_is_unwise(own_gateway, made):
    gateway = own_gateway()

    def check(files, **limits):
        tls = {"listen": "127.0.0.1:0", **files}
        sections = {**gateway.sections, "http": {**gateway.sections["http"], "tls": tls}}
        sections["limits"] = {**gateway.sections["limits"], **limits}
        gateway.config.write_text(json.dumps(sections))
        done = gateway.spawn("--check", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.communicate(timeout=30)[0], done.returncode

    for one, words in ((made.expired, "has expired"), (made.future, "is not valid yet"), (made.for_clients, "is not for servers")):
        text, code = check(one.files())
        assert code == 65 and f"http.tls, {one.file}: the certificate {words}" in text, text
    # Every client refuses a chain with an expired intermediate.
    old = authority(made.folder, "old-middle", issuer=made.root, dates=EXPIRED)
    leaf = old.sign("under-old")
    text, code = check({**leaf.files(), "certificate": str(leaf.chain(old))})
    assert code == 65 and "the chain's certificate /CN=old-middle has expired" in text, text
    # An expired cross-signature of a trusted root does no harm beside a valid intermediate.
    cross = authority(made.folder, "cross", issuer=made.stranger, dates=EXPIRED, of=made.root)
    text, code = check({**made.below.files(), "certificate": str(made.below.chain(made.middle, cross))})
    assert code == 0 and "warning: http.tls" in text and "the chain's certificate /CN=root has expired; no client" in text, text
    text, code = check({**made.below.files(), "certificate": str(made.below.chain(made.middle))})
    assert code == 0 and "if /CN=root is the root that clients have, ignore this" in text, text
    # An expired authority admits none of its clients.
    gone = authority(made.folder, "gone", dates=EXPIRED)
    text, code = check({**made.server.files(), "certificate": str(made.server.chain(made.root)), "clientAuthorities": str(gone.file)})
    assert code == 65 and "clientAuthorities' /CN=gone has expired" in text, text
    text, code = check({**made.server.files(), "certificate": str(made.server.chain(made.root)),
                        "clientAuthorities": str(gone.chain(made.root))})
    assert code == 0 and "clientAuthorities' /CN=gone has expired" in text, text
    # Without its intermediate or private root a certificate is only useful for clients that already have these.
    text, code = check(made.below.files())
    assert code == 0 and "does not have the certificate of the issuer, /CN=middle" in text, text
    text, code = check({**made.below.files(), "certificate": str(made.below.chain(made.middle, made.root))})
    assert code == 0 and "warning" not in text, text
    end = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + 4.5 * 86_400))
    short = made.root.sign("short", dates=("20200101000000Z", end))
    files = {**short.files(), "certificate": str(short.chain(made.root))}
    text, code = check(files)
    assert code == 0 and "warning: http.tls" in text and "the certificate ends in 4 days" in text, text
    text, code = check(files, certificateWarningDays=3)
    assert code == 0 and "warning" not in text, text
    for name in (".example", "", "n" * 254):
        text, code = check({**made.server.files(), "clientAuthorities": str(made.root.file), "clientNames": [name]})
        assert code == 78 and "clientNames: a name has 1 to 253 bytes, and no dot before it" in text, text


def test_a_worse_certificate_is_refused_at_a_reload_and_a_start_goes_on_with_it(own_gateway, made, tmp_path):
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"

    def put(one):
        shutil.copy(one.file, certificate)
        shutil.copy(one.key, key)

    put(made.server)
    gateway = own_gateway(certificate=(certificate, key))
    in_force = ssl.get_server_certificate(("127.0.0.1", gateway.device_tls), timeout=10)
    for one, words in ((made.expired, "has expired"), (made.future, "is not valid yet")):
        put(one)
        gateway.process.send_signal(signal.SIGHUP)
        eventually(lambda words=words: f"{words}; the certificate in force stays" in gateway.log(), words)
        assert ssl.get_server_certificate(("127.0.0.1", gateway.device_tls), timeout=10) == in_force
    # A start after the expiry must keep everything that still works: plain listeners, and clients that do not verify.
    gateway.stop()
    put(made.expired)
    gateway.start()
    assert f"device.tls, {certificate}: the certificate has expired" in gateway.log()
    eventually(lambda: "certificateEnds listener=device" in gateway.log(), "the daily warning")
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake(gateway.device_tls, trusting(made))
    words = [binary("longwire"), "doctor", "--admin", f"127.0.0.1:{gateway.admin}", "--admin-token", ADMIN_TOKEN]
    bearer = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    found = eventually(lambda: gateway.call("GET", "/v1/health", port=gateway.admin, headers=bearer)["findings"], "the finding")
    assert (found[0]["name"], found[0]["severity"], found[0]["subject"]) == ("certificateExpired", "problem", "device"), found
    assert "certificateExpired" in gateway.call("GET", "/readyz", port=gateway.admin)["findings"]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=60).stdout
    assert "certificateExpired device" in shown and "has expired" in shown, shown
    # In place of one that has ended any is taken, the good one first of all.
    put(made.server)
    reload(gateway)
    eventually(lambda: ssl.get_server_certificate(("127.0.0.1", gateway.device_tls), timeout=10) == in_force, "the good one")


# Client certificates


def test_the_end_of_the_last_client_authority_is_reported_as_the_listeners_end_of_service(made, tmp_path):
    """Each finding, metric and log line must name the authorities: the server's own certificate is still valid."""
    end = time.time() + 15
    soon = authority(tmp_path, "soon", dates=("20200101000000Z", time.strftime("%Y%m%d%H%M%SZ", time.gmtime(end))))
    client = soon.sign("client")
    gateway = Gateway(limits={**QUICK, "certificateWarningDays": 1})
    (port,) = free_ports(1)
    gateway.sections["http"]["tls"] = {
        "listen": f"127.0.0.1:{port}", **made.server.files(), "clientAuthorities": str(soon.file)}
    bearer = {"Authorization": f"Bearer {ADMIN_TOKEN}"}

    def finding(name):
        found = gateway.call("GET", "/v1/health", port=gateway.admin, headers=bearer)["findings"]
        return [one for one in found if (one["name"], one["subject"]) == (name, "http.clientAuthorities")]

    with gateway:
        assert b"200" in shake(port, trusting(made, client))
        eventually(lambda: finding("certificateEnds"), "the warning")
        eventually(lambda: "certificateEnds listener=http.clientAuthorities" in gateway.log(), "the warning in the log")
        shown = re.search(r'longwire_certificate_end_seconds\{listener="http.clientAuthorities"\} (\d+)', gateway.metrics())
        assert shown and abs(int(shown.group(1)) - end) < 2, gateway.metrics()
        (over,) = eventually(lambda: finding("certificateExpired"), "the finding", 40)
        assert over["severity"] == "problem" and "every client is refused" in over["text"], over
        with pytest.raises((ssl.SSLError, ConnectionError)):
            assert shake(port, trusting(made, client))


@pytest.fixture(scope="module")
def strict(made):
    """Runs a gateway whose listeners all require a client certificate; the admin listener also requires a name."""
    gateway = Gateway(limits=QUICK)
    gateway.tls = dict(zip(("device", "http", "senders", "admin"), free_ports(4)))
    for name, port in gateway.tls.items():
        tls = {"listen": f"127.0.0.1:{port}", **made.server.files(), "clientAuthorities": str(made.root.file)}
        if name == "admin":
            tls["clientNames"] = ["sender-1", "known.example"]
        gateway.sections[name]["tls"] = tls
    with gateway:
        yield gateway


def test_only_clients_with_a_good_certificate_get_in_and_need_their_credentials_as_before(strict, made):
    good = trusting(made, made.client)
    with contextlib.closing(
        longwire_client.Device("127.0.0.1", strict.tls["device"], strict.app["appId"], tls=good)) as device:
        device.register(strict.app["appSecret"])
        with contextlib.closing(Sender("127.0.0.1", strict.tls["senders"], strict.app["appId"], strict.app["masterSecret"],
                                       tls=good)) as sender:
            assert sender.publish([{"cid": device.state.cid, "payload": b"by certificate"}])[0].code == 0
        assert device.receive_and_ack(1)[0].payload == b"by certificate"
    assert b"200" in shake(strict.tls["http"], good)
    assert b"200" in shake(strict.tls["admin"], trusting(made, made.other_client)), "by its alternative name"
    # The certificate is required in addition to the token.
    request = urllib.request.Request(f"https://127.0.0.1:{strict.tls['admin']}/v1/apps")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request, timeout=10, context=good)


@pytest.mark.parametrize("name, why", [
    (None, "did not return a certificate"), ("expired_client", "certificate has expired"),
    ("foreign", "unable to get local issuer certificate"), ("server_only", "unsuitable certificate purpose")])
def test_other_clients_are_refused_and_the_log_says_who_and_why(strict, made, name, why):
    context = trusting(made, getattr(made, name) if name else None)
    for listener in ("device", "http", "senders", "admin"):
        before = counted(strict, "clientCertificate")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            assert shake(strict.tls[listener], context)
            raise ConnectionResetError  # an end without an alert
        eventually(lambda: counted(strict, "clientCertificate") == before + 1, "the count")
        told = re.compile(rf"clientCertificateRefused listener={listener} address=127\.0\.0\.1:\d+ reason=.*{why}")
        # The log's own thread writes the line, and at most 20 lines of a kind in ten seconds.
        eventually(
            lambda: told.search(strict.log()) or "repeatsLeftOut" in strict.log() or listener == "admin",  # noqa: B023
            f"the log's line of {listener}")
    assert strict.is_ready()


def test_a_name_that_is_not_listed_is_refused(strict, made):
    unknown = made.root.sign("sender-9", purpose="clientAuth", names="DNS:*.example,DNS:elsewhere")
    assert b"200" in shake(strict.tls["http"], trusting(made, unknown))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        assert shake(strict.tls["admin"], trusting(made, unknown))
        raise ConnectionResetError
    eventually(lambda: "it has none of the allowed names" in strict.log() or "repeatsLeftOut" in strict.log(), "the reason")


def test_the_command_line_tool_shows_a_certificate(strict, made):
    words = [binary("longwire"), "app", "list", "--admin", f"https://127.0.0.1:{strict.tls['admin']}", "--admin-token",
             ADMIN_TOKEN, "--ca", str(made.root.file)]
    run = lambda *more: subprocess.run([*words, *more], capture_output=True, text=True, timeout=30)  # noqa: E731
    done = run("--cert", str(made.client.file), "--key", str(made.client.key))
    assert done.returncode == 0 and strict.app["appId"] in done.stdout, done.stderr
    both = made.folder / "both.pem"
    both.write_text(made.client.file.read_text() + made.client.key.read_text())
    assert run("--cert", str(both)).returncode == 0
    without = run()
    assert without.returncode != 0 and "--cert FILE" in without.stderr, without.stderr
    gone = run("--cert", "/nonexistent.pem")
    assert gone.returncode == 64 and "--cert names /nonexistent.pem" in gone.stderr


def test_the_tool_is_a_device_with_a_certificate(strict, made, tmp_path):
    words = [binary("longwire"), "connect", "--host", "127.0.0.1", "--port", str(strict.tls["device"]), "--tls", "--ca",
             str(made.root.file), "--app", strict.app["appId"], "--app-secret", strict.app["appSecret"], "--state-file", "none",
             "--no-reconnect"]
    run = lambda *more: subprocess.run([*words, *more], capture_output=True, text=True, timeout=30)  # noqa: E731
    done = run("--cert", str(made.client.file), "--key", str(made.client.key), "--timeout", "2")
    assert '"registered"' in done.stdout, (done.stdout, done.stderr)
    without = run("--timeout", "5")
    assert '"registered"' not in without.stdout and "certificate required" in without.stdout, (without.stdout, without.stderr)
    assert "--cert FILE" in without.stderr and "--ca FILE" not in without.stderr and "--tls out" not in without.stderr, without.stderr
    # By environment variables, as for all commands.
    words = [word for word in words if word not in ("--ca", str(made.root.file))]
    environment = {**os.environ, "LONGWIRE_CA": str(made.root.file), "LONGWIRE_CERT": str(made.client.file),
                   "LONGWIRE_KEY": str(made.client.key)}
    done = subprocess.run([*words, "--timeout", "2"], capture_output=True, text=True, timeout=30, env=environment)
    assert '"registered"' in done.stdout, (done.stdout, done.stderr)
    plain = subprocess.run([word for word in words if word != "--tls"] + ["--cert", str(made.client.file)], capture_output=True,
                           text=True, timeout=30)
    assert plain.returncode == 64 and "--cert is for TLS; give --tls, too" in plain.stderr, plain


def test_a_certificate_out_of_its_time_or_of_another_name_has_a_hint_of_its_own(narrow, made):
    elsewhere = made.root.sign("elsewhere", names="DNS:elsewhere.example")
    for one, words in ((made.expired, "is out of its time"), (elsewhere, "is not for 127.0.0.1")):
        (port, device) = free_ports(2)
        gateway = narrow()
        gateway.stop()
        gateway.sections["http"]["tls"] = {"listen": f"127.0.0.1:{port}", **one.files()}
        gateway.sections["device"]["tls"] = {"listen": f"127.0.0.1:{device}", **one.files()}
        gateway.start()
        for command in (["push", "--all", "--payload", "x", "--http", f"https://127.0.0.1:{port}", "--app-key", "k" * 8,
                         "--master-secret", "m" * 8],
                        ["connect", "--port", str(device), "--tls", "--app-secret", "x" * 8, "--state-file", "none", "--no-reconnect"]):
            done = subprocess.run([binary("longwire"), *command, "--app", "demo", "--ca", str(made.root.file)], capture_output=True,
                                  text=True, timeout=30)
            assert done.returncode == 69 and words in done.stderr, done
            assert "--ca FILE" not in done.stderr
        gateway.stop()


def test_an_intermediate_alone_vouches_for_clients(narrow, made):
    client = made.middle.sign("below-the-middle", purpose="clientAuth", names=None)
    gateway = narrow()
    gateway.sections["http"]["tls"]["clientAuthorities"] = str(made.middle.file)
    reload(gateway)
    eventually(lambda: shake(gateway.https, trusting(made, client)).startswith(b"HTTP/1.1 200"), "its client")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        assert shake(gateway.https, trusting(made, made.client))
        raise ConnectionResetError


def test_the_authorities_change_at_a_reload(own_gateway, made):
    gateway = own_gateway()
    gateway.stop()
    (port,) = free_ports(1)
    gateway.sections["http"]["tls"] = {"listen": f"127.0.0.1:{port}", **made.server.files()}
    gateway.start()
    assert b"200" in shake(port, trusting(made)), "nobody asks"
    gateway.sections["http"]["tls"]["clientAuthorities"] = str(made.stranger.file)
    reload(gateway)

    def is_refused(client):
        try:
            return not shake(port, trusting(made, client))
        except (ssl.SSLError, ConnectionError):
            return True

    eventually(lambda: is_refused(made.client), "the other authority alone")
    assert not is_refused(made.foreign)
    gateway.sections["http"]["tls"]["clientNames"] = ["nobody"]
    reload(gateway)
    eventually(lambda: is_refused(made.foreign), "the names")
    del gateway.sections["http"]["tls"]["clientAuthorities"]
    gateway.config.write_text(json.dumps(gateway.sections))
    gateway.process.send_signal(signal.SIGHUP)
    eventually(lambda: "clientNames: not allowed without clientAuthorities" in gateway.log(), "names without a voucher")
    assert is_refused(made.foreign)


def test_longwire_sender_shows_a_certificate_and_asks_for_one(strict, made, tmp_path):
    (port,) = free_ports(1)
    subprocess.run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out",
                    str(tmp_path / "key.p8")], check=True, capture_output=True)
    (tmp_path / "token").write_text(HANDOFF_TOKEN)
    (tmp_path / "token").chmod(0o600)
    (tmp_path / "key.p8").chmod(0o600)
    sections = {
        "gateway": {"url": f"https://127.0.0.1:{strict.tls['admin']}", "tokenFile": "token", "waitSeconds": 1,
                    "authoritiesFile": str(made.root.file), **made.client.files()},
        "apple": {"production": "127.0.0.1:9", "sandbox": "127.0.0.1:9"},
        "credentials": [{"name": "one", "key": {"file": "key.p8", "keyId": "ABCDEFGHIJ", "teamId": "ABCDEFGHIJ"}}],
        "admin": {"tls": {"listen": f"127.0.0.1:{port}", **made.server.files(), "clientAuthorities": str(made.root.file)}},
    }
    (tmp_path / "sender.json5").write_text(json.dumps(sections))
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(
            [binary("longwire-sender"), "--config", str(tmp_path / "sender.json5")], stdout=log, stderr=log, cwd=tmp_path)
    try:
        def is_ready():
            with contextlib.suppress(OSError):
                return b"200" in shake(port, trusting(made, made.client))

        eventually(is_ready, "the sender")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            assert shake(port, trusting(made, made.foreign))
            raise ConnectionResetError
        eventually(lambda: "clientCertificateRefused" in (tmp_path / "log").read_text(), "the sender's line")

        def leases():
            request = urllib.request.Request(f"https://127.0.0.1:{port}/metrics")
            with urllib.request.urlopen(request, timeout=10, context=trusting(made, made.client)) as answer:
                text = answer.read().decode()
            return re.search(r"longwire_sender_\w*lease\w*(?:\{[^}]*\})? [1-9]", text)

        eventually(leases, "a lease through the gateway's listener")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    # Its listener's certificate is checked like the gateway's.
    good = sections["admin"]["tls"]["certificate"]
    for one, code in ((made.server, 0), (made.expired, 65)):
        sections["admin"]["tls"].update(one.files())
        (tmp_path / "sender.json5").write_text(json.dumps(sections))
        check = subprocess.run([binary("longwire-sender"), "--check", "--config", str(tmp_path / "sender.json5")],
                               capture_output=True, text=True, timeout=30)
        assert check.returncode == code, check
    assert "admin: the certificate has expired" in check.stderr, check
    sections["admin"]["tls"].update(made.server.files())
    assert good == sections["admin"]["tls"]["certificate"]
    # A file of authorities without a certificate is refused wherever it is named.
    for change in ({"gateway": {**sections["gateway"], "authoritiesFile": str(made.server.key)}},
                   {"apple": {**sections["apple"], "authoritiesFile": str(made.server.key)}},
                   {"vendors": {"fcm": {"authoritiesFile": str(made.server.key)}}}):
        (tmp_path / "junk.json5").write_text(json.dumps({**sections, **change}))
        check = subprocess.run([binary("longwire-sender"), "--check", "--config", str(tmp_path / "junk.json5")],
                               capture_output=True, text=True, timeout=30)
        assert check.returncode == 78 and "holds no usable PEM certificates" in check.stdout + check.stderr, check
    # Without the certificate no lease is granted.
    del sections["gateway"]["certificate"], sections["gateway"]["key"]
    (tmp_path / "sender.json5").write_text(json.dumps(sections))
    done = subprocess.run([binary("longwire-sender"), "doctor", "--config", str(tmp_path / "sender.json5"),
                           "--topic", "com.example.one"], capture_output=True,
                          text=True, timeout=60, cwd=tmp_path)
    assert "PROBLEM  gateway" in done.stdout + done.stderr, done.stdout + done.stderr


# Handshakes


def hello_of_a_client():
    """Returns a ClientHello as Python's OpenSSL writes it."""
    out = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


@pytest.fixture
def narrow(own_gateway, made):
    def make(**limits):
        gateway = own_gateway(limits={**QUICK, **limits}, loops=1)
        gateway.stop()
        (gateway.https,) = free_ports(1)
        gateway.sections["http"]["tls"] = {"listen": f"127.0.0.1:{gateway.https}", **made.server.files()}
        return gateway.start()

    return make


def test_a_crowd_waits_for_its_handshakes_and_sessions_go_on(narrow, new_device, made):
    gateway = narrow(tlsHandshakesPerSecond=50, tlsHandshakeWaitMilliseconds=8_000)
    device = new_device(gateway)
    crowd = [raw(gateway.https, hello_of_a_client()) for _ in range(60)]
    began = time.monotonic()
    worst = 0.0
    while counted(gateway, "done") + counted(gateway, "left") < 60 and time.monotonic() - began < 10:
        sent = time.monotonic()
        gateway.push(device.cid, "x")
        device.receive_and_ack(1)
        worst = max(worst, time.monotonic() - sent)
        for one in crowd:
            one.settimeout(0)
            with contextlib.suppress(OSError):
                if one.recv(10_000):
                    one.close()  # the server has answered, so its turn has come
        crowd = [one for one in crowd if one.fileno() >= 0]
    took = time.monotonic() - began
    assert not crowd and took > 0.5, (len(crowd), took)
    assert worst < 1.0
    waited = int(re.search(r"longwire_tls_handshakes_waited_total (\d+)", gateway.metrics())[1])
    assert waited >= 40, waited
    assert counted(gateway, "refused") == 0
    assert b"200" in shake(gateway.https, trusting(made))


def test_who_would_wait_too_long_is_refused_at_once(narrow, made):
    gateway = narrow(tlsHandshakesPerSecond=10, tlsHandshakeWaitMilliseconds=500)
    crowd = [raw(gateway.https, hello_of_a_client()) for _ in range(40)]
    eventually(lambda: counted(gateway, "refused") >= 25, "the refusals")
    ended = 0
    for one in crowd:
        one.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            try:
                ended += not one.recv(10_000)
            except ConnectionError:
                ended += 1
        one.close()
    assert ended >= 25, ended
    eventually(lambda: "200" in str(shake(gateway.https, trusting(made))), "room again")


def test_handshakes_that_stand_still_make_room_and_end(narrow, made):
    gateway = narrow(tlsHandshakesAtOnce=4)
    still = [raw(gateway.https) for _ in range(4)]
    eventually(lambda: "longwire_tls_handshakes_under_way 4" in gateway.metrics(), "the four")
    # The next handshakes wait until the oldest has been stalled for a second.
    began = time.monotonic()
    assert b"200" in shake(gateway.https, trusting(made))
    assert 0.5 < time.monotonic() - began < 4
    assert counted(gateway, "displaced") >= 1
    still[0].settimeout(5)
    with contextlib.suppress(ConnectionError):
        assert still[0].recv(10) == b""
    for one in still:
        one.close()
    eventually(lambda: "longwire_tls_handshakes_under_way 0" in gateway.metrics(), "none under way")


def test_failures_are_counted_by_reason(narrow, made):
    gateway = narrow()
    with raw(gateway.https, b"GET / HTTP/1.1\r\n\r\n") as plain:
        plain.settimeout(5)
        with contextlib.suppress(OSError):
            plain.recv(100)
    raw(gateway.https, hello_of_a_client()[:20]).close()
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(gateway.https, ssl.create_default_context())
    eventually(lambda: counted(gateway, "form") >= 1, "what is no TLS")
    eventually(lambda: counted(gateway, "left") >= 1, "one that left")
    eventually(lambda: counted(gateway, "refusedByClient") >= 1, "a client that does not trust us")
