"""The longwire command against a real gateway."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading

import pytest
from gateway import ADMIN_TOKEN, TIMEOUT, binary, eventually
from longwire_client import encode, pb
from painter import PAINT, answering


class Command:
    """A running `longwire connect` that collects its JSON lines."""

    def __init__(self, gateway, state, *arguments):
        port = gateway.device_tls if "--tls" in arguments else gateway.device
        words = [binary("longwire"), "connect", "--host", "127.0.0.1", "--port", str(port)]
        words += ["--app", gateway.app["appId"], "--app-secret", gateway.app["appSecret"], "--state-file", str(state)]
        self.process = subprocess.Popen([*words, *arguments], stdout=subprocess.PIPE, text=True)
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def all(self, event):
        return [line for line in list(self.lines) if line["event"] == event]

    def first(self, event):
        return eventually(lambda: self.all(event), f"the event {event}")[0]

    def wait(self):
        code = self.process.wait(TIMEOUT)
        self.reader.join(TIMEOUT)
        return code

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        self.process.stdout.close()


@pytest.fixture
def connect(tmp_path):
    made = []

    def make(gateway, *arguments, state=None):
        command = Command(gateway, state or tmp_path / "device.state", *arguments)
        made.append(command)
        return command

    yield make
    for command in made:
        command.end()


def longwire(gateway, *words, code=0, **options):
    environment = {
        "LONGWIRE_APP_ID": gateway.app["appId"],
        "LONGWIRE_APP_KEY": gateway.app["appKey"],
        "LONGWIRE_MASTER_SECRET": gateway.app["masterSecret"],
        "LONGWIRE_ADMIN_TOKEN": ADMIN_TOKEN,
        "LONGWIRE_HTTP": f"127.0.0.1:{gateway.http}",
        "LONGWIRE_ADMIN": f"127.0.0.1:{gateway.admin}",
    }
    # The command gets no other variables, but a sanitized build needs its options.
    environment |= {name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS")}
    done = subprocess.run(
        [binary("longwire"), *words], env=environment, capture_output=True, text=True, timeout=60, **options)
    assert done.returncode == code, done.stderr + done.stdout
    return done.stdout


def push(gateway, *words, **options):
    answer = json.loads(longwire(gateway, "push", "--json", *words, **options))
    return answer["longwire"]["messages"][0]


def test_connect_push_trace_and_device(gateway, connect):
    device = connect(gateway, "--exit-after", "2")
    cid = device.first("registered")["cid"]
    device.first("welcome")
    first = push(gateway, "--cid", cid, "--payload", "one")
    second = push(gateway, "--cid", cid, input="two 漢字")
    assert device.wait() == 0
    assert [line["payload"] for line in device.all("message")] == ["one", "two 漢字"]
    assert device.all("message")[0]["offline"] is False
    for message in (first, second):
        gateway.ends_as(message["msgId"], "delivered")
    assert json.loads(longwire(gateway, "trace", first["msgId"]))["state"] == "delivered"
    assert json.loads(longwire(gateway, "device", cid))["queue"]["messages"] == 0
    assert device.all("stopped") == [{"event": "stopped", "error": None}]


def test_state_file_makes_it_the_same_device_and_no_ack_leaves_messages(gateway, connect):
    device = connect(gateway, "--exit-after", "1", "--no-ack")
    cid = device.first("registered")["cid"]
    push(gateway, "--cid", cid, "--payload", "kept")
    assert device.wait() == 0
    again = connect(gateway, "--exit-after", "1")
    assert again.wait() == 0
    assert again.all("registered") == [] and again.first("welcome")["cid"] == cid
    assert again.all("message")[0]["payload"] == "kept"


def test_connect_sets_the_alias_and_tags_that_the_app_allows(own_gateway, connect, tmp_path):
    for allowed in ("alias", "tags"):
        gateway = own_gateway(app={"deviceMay": [allowed]})
        device = connect(gateway, "--alias", "alice", "--tag", "vip", "--tag", "beta", state=tmp_path / allowed)
        cid = device.first("registered")["cid"]
        eventually(lambda: len(device.all("names")) == 2, "both answers")
        answers = dict(zip(("alias", "tags"), device.all("names")))
        (refused,) = (answers[name] for name in answers if name != allowed)
        assert answers[allowed]["code"] == 0 and refused["code"] != 0 and "deviceMay" in refused["reason"]
        names = gateway.view(cid)
        assert (names["aliases"], sorted(names["tags"])) == ((["alice"], []) if allowed == "alias" else ([], ["beta", "vip"]))


def test_handoff_by_hand(gateway, connect):
    device = connect(gateway, "--token", "ab" * 32, "--environment", "sandbox")
    cid = device.first("registered")["cid"]
    device.first("welcome")
    device.process.send_signal(signal.SIGTERM)
    assert device.wait() == 0
    eventually(lambda: not gateway.view(cid)["connected"])
    message = push(gateway, "--cid", cid, "--payload", "x", "--alert-title", "Hi", "--badge", "+1")
    job = json.loads(longwire(gateway, "handoff", "lease", "--wait-seconds", "5"))["jobs"][0]
    assert (job["msgId"], job["environment"], job["body"]["aps"]["badge"]) == (message["msgId"], "sandbox", 1)
    words = ["--job", job["jobId"], "--lease", job["leaseId"], "--outcome", "accepted"]
    assert "recorded" in longwire(gateway, "handoff", "settle", *words)
    back = connect(gateway, "--opened", message["msgId"])
    back.first("welcome")
    gateway.ends_as(message["msgId"], "opened")
    assert back.all("message") == []


def test_background_device_gets_nothing_until_it_is_in_front(gateway, connect):
    device = connect(gateway, "--state", "background")
    cid = device.first("registered")["cid"]
    device.first("welcome")
    assert push(gateway, "--cid", cid, "--payload", "x")["channel"] == "queued"
    device.end()
    front = connect(gateway, "--exit-after", "1")
    assert front.wait() == 0
    assert front.all("message")[0]["offline"] is True


def test_reconnects_after_a_kill(own_gateway, connect):
    gateway = own_gateway()
    device = connect(gateway, "--exit-after", "1", "--timeout", "60")
    cid = device.first("registered")["cid"]
    device.first("welcome")
    gateway.kill()
    device.first("retry")
    gateway.start()
    eventually(lambda: len(device.all("welcome")) == 2, "a second welcome")
    push(gateway, "--cid", cid, "--payload", "after")
    assert device.wait() == 0
    assert device.all("message")[0]["payload"] == "after"


def test_refusals(gateway, connect, tmp_path):
    device = connect(gateway, "--app-secret", "wrong")
    assert device.wait() == 1
    assert device.first("closed")["name"] == "badProof"
    longwire(gateway, "push", "--cid", "0" * 32, "--payload", "x", code=1)
    longwire(gateway, "push", "--cid", "0" * 32, "--payload", "x", "--master-secret", "wrong", code=1)
    longwire(gateway, "trace", "0" * 32, code=1)
    longwire(gateway, "trace", "0" * 32, "--admin-token", "wrong-token-wrong", code=1)
    longwire(gateway, "push", "--cid", "c", "--payload", "x", "--http", "127.0.0.1:1", code=69)
    broken = tmp_path / "broken.state"
    broken.write_text("rubbish")
    assert connect(gateway, state=broken).wait() == 64
    assert broken.read_text() == "rubbish", "what cannot be read is not overwritten"


def self_signed(folder):
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=longwire test", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*words, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key


@pytest.mark.skipif(not shutil.which("openssl"), reason="the openssl command makes the certificate")
def test_tls_with_a_certificate_that_is_trusted_and_one_that_is_not(own_gateway, connect, tmp_path):
    certificate, key = self_signed(tmp_path)
    gateway = own_gateway(certificate=(certificate, key))
    device = connect(gateway, "--tls", "--ca", str(certificate), "--exit-after", "1")
    cid = device.first("registered")["cid"]
    device.first("welcome")
    push(gateway, "--cid", cid, "--payload", "x" * 3_000)
    assert device.wait() == 0
    assert device.all("message")[0]["payload"] == "x" * 3_000
    stranger = connect(gateway, "--tls", "--no-reconnect", state=tmp_path / "other.state")
    assert stranger.wait() == 69
    assert "certificate" in stranger.first("disconnected")["reason"]


@pytest.mark.skipif(not shutil.which("openssl"), reason="the openssl command makes the certificate")
def test_a_usual_mistake_is_told_what_to_try(own_gateway, tmp_path):
    certificate, key = self_signed(tmp_path)
    gateway = own_gateway(certificate=(certificate, key))
    for port, options, hint in (
            (gateway.device_tls, [], "may want TLS: add --tls"), (gateway.device_tls, ["--tls"], "with --ca FILE"),
            (gateway.device, ["--tls"], "Leave --tls out"), (1, [], "nothing listens there"),
            (gateway.http, ["--timeout", "1"], "Is this the port of devices?")):
        done = subprocess.run(
            [binary("longwire"), "connect", "--host", "127.0.0.1", "--port", str(port), "--app", "demo", "--app-secret", "x" * 8,
             "--state-file", "none", *(options if "--timeout" in options else [*options, "--no-reconnect"])],
            capture_output=True, text=True, timeout=30)
        assert done.returncode == 69 and done.stderr.count(hint) == 1, (port, options, done)
    for words, code, hint in (
            (["device", "list", "--admin", f"127.0.0.1:{gateway.device}", "--app", "demo"], 1, "looks like the devices' listener"),
            (["push", "--http", f"127.0.0.1:{gateway.device}", "--cid", "0" * 32, "--payload", "x"], 69, "a listener of devices")):
        done = subprocess.run([binary("longwire"), *words], capture_output=True, text=True, timeout=30, env={
            **os.environ, "LONGWIRE_ADMIN_TOKEN": ADMIN_TOKEN, "LONGWIRE_APP_ID": "demo", "LONGWIRE_APP_KEY": "k" * 8,
            "LONGWIRE_MASTER_SECRET": "m" * 8})
        assert done.returncode == code and hint in done.stderr, done


COMMANDS = {
    "version": ["version"], "help": ["--help"], "help of one": ["help", "push"], "bench": ["bench", "--help"],
    "push": ["push", "--json", "--payload", "x"], "trace": ["trace"], "device": ["device"],
    "lease": ["handoff", "lease"], "connect": ["connect", "--exit-after", "1"],
}


@pytest.mark.parametrize("output", [">/dev/full", ">&-", "| true"])
@pytest.mark.parametrize("name", COMMANDS)
def test_an_output_that_cannot_be_written_is_one_line_and_an_exit_code(gateway, connect, tmp_path, name, output):
    words = list(COMMANDS[name])
    if name in ("push", "trace", "device"):
        device = connect(gateway)
        cid = device.first("registered")["cid"]
        device.first("welcome")
    if name == "push":
        words += ["--cid", cid]
    if name == "trace":
        words.append(push(gateway, "--cid", cid, "--payload", "x")["msgId"])
    if name == "device":
        words.append(cid)
    if name == "connect":
        words += ["--host", "127.0.0.1", "--port", str(gateway.device), "--app", gateway.app["appId"]]
        words += ["--app-secret", gateway.app["appSecret"], "--state-file", str(tmp_path / "state")]
    environment = {
        **os.environ, "LONGWIRE_APP_ID": gateway.app["appId"], "LONGWIRE_APP_KEY": gateway.app["appKey"],
        "LONGWIRE_MASTER_SECRET": gateway.app["masterSecret"], "LONGWIRE_ADMIN_TOKEN": ADMIN_TOKEN,
        "LONGWIRE_HTTP": f"127.0.0.1:{gateway.http}", "LONGWIRE_ADMIN": f"127.0.0.1:{gateway.admin}",
        "SWIFT_BACKTRACE": "enable=no"}
    command = " ".join([binary("longwire"), *words])
    if output == "| true":
        # The reader closes its end before the first line.
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run(["sh", "-c", f"exec {command}"], env=environment, stdout=writing, stderr=subprocess.PIPE,
                              text=True, timeout=60)
        os.close(writing)
    else:
        done = subprocess.run(["sh", "-c", f"exec {command} {output}"], env=environment, stderr=subprocess.PIPE,
                              text=True, timeout=60)
    if output == "| true":
        # The command ends as if `head` had closed the pipe, without an error message.
        assert (done.returncode, done.stderr) == (141, "")
        return
    assert done.returncode == 74, done.stderr
    assert "standard output cannot be written" in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_ipv6_host_is_taken_with_and_without_brackets(own_gateway, tmp_path, host):
    gateway = own_gateway()
    gateway.stop()
    gateway.sections["device"]["listen"] = f"[::1]:{gateway.device}"
    gateway.start()
    words = [binary("longwire"), "connect", "--host", host, "--state-file", str(tmp_path / "state")]
    words += ["--app", gateway.app["appId"], "--app-secret", gateway.app["appSecret"]]
    process = subprocess.Popen([*words, "--port", str(gateway.device)], stdout=subprocess.PIPE, text=True)
    try:
        assert any(json.loads(line)["event"] == "welcome" for line in process.stdout)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    gateway.stop()
    refused = subprocess.run([*words, "--port", str(gateway.device), "--no-reconnect"], capture_output=True, text=True,
                             timeout=TIMEOUT)
    assert f"[::1]:{gateway.device}" in refused.stdout + refused.stderr


def test_a_follower_whose_reader_has_enough_ends_quietly(own_gateway, new_device):
    gateway = own_gateway(app={"events": {}})
    environment = {**os.environ, "LONGWIRE_APP_ID": gateway.app["appId"], "LONGWIRE_ADMIN_TOKEN": ADMIN_TOKEN,
                   "LONGWIRE_ADMIN": f"127.0.0.1:{gateway.admin}"}
    follower = subprocess.Popen([binary("longwire"), "events", "follow"], env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
    new_device(gateway).close()
    assert json.loads(follower.stdout.readline())
    follower.stdout.close()
    while follower.poll() is None:
        new_device(gateway).close()
    assert (follower.returncode, follower.stderr.read()) == (141, "")
    follower.stderr.close()


EVIL = "\x1b]0;owned\x07\x1b[2Jfine\nDelivered \x9b31m\x7f\u202e"


@pytest.mark.parametrize("form", ["--text", "--json"])
def test_a_devices_reason_drives_no_terminal(gateway, new_device, form):
    device = new_device(gateway)
    message = gateway.push(device.cid, "x")
    device.reject(device.receive().sequence, EVIL)
    gateway.ends_as(message["msgId"], "failed")
    environment = {**os.environ, "LONGWIRE_ADMIN_TOKEN": ADMIN_TOKEN, "LONGWIRE_ADMIN": f"127.0.0.1:{gateway.admin}",
                   "LONGWIRE_APP_ID": gateway.app["appId"]}
    shown = subprocess.run([binary("longwire"), "trace", message["msgId"], form], env=environment, capture_output=True,
                           text=True, timeout=TIMEOUT).stdout
    assert "owned" in shown and not any(character in shown for character in "\x1b\x07\x7f\x9b\u202e")
    assert not any(line.startswith("Delivered") for line in shown.splitlines())


def test_what_an_http_server_answers_drives_no_terminal():
    # JSON allows these characters unescaped in strings, and newlines between its tokens.
    body = '{"code": 0, "\x9b31m\u202e":\n"fine"\n}'.encode()
    with answering(200, body) as address:
        words = ["push", "--all", "--payload", "x", "--http", address, "--app", "a", "--app-key", "k", "--master-secret", "s"]
        done = subprocess.run([binary("longwire"), *words], capture_output=True, text=True, timeout=TIMEOUT)
    text = done.stdout + done.stderr
    assert done.returncode == 1 and "has no token" in text and "\\u009b" in text, text
    assert not any(character in text for character in "\x9b\u202e") and '\n"fine' not in text, text


def test_what_a_gateway_says_in_its_close_drives_no_terminal():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def answer():
            for _ in range(2):
                with contextlib.suppress(OSError):
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(65_536)
                        connection.sendall(encode(pb.Close(code=401, reason=f"{PAINT}\nok fine")))
                        connection.shutdown(socket.SHUT_WR)
                        connection.recv(65_536)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        words = ["connect", "--host", "127.0.0.1", "--port", str(listener.getsockname()[1]), "--app", "a", "--app-secret", "s",
                 "--state-file", "none", "--no-reconnect", "--timeout", "20"]
        done = subprocess.run([binary("longwire"), *words], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode != 0 and "ok fine" in done.stderr and "\\u000a" in done.stderr, done.stderr
    assert "\x1b" not in done.stdout + done.stderr and not any(
        line.startswith("ok fine") for line in done.stderr.splitlines()), done.stderr


def test_a_message_of_a_device_drives_no_terminal_either(own_gateway, new_device):
    gateway = own_gateway(app={"upstream": {}})
    device = new_device(gateway)
    device.connection.send(pb.Upstream(request=1, payload=EVIL.encode()))
    environment = {**os.environ, "LONGWIRE_APP_ID": gateway.app["appId"], "LONGWIRE_ADMIN_TOKEN": ADMIN_TOKEN,
                   "LONGWIRE_ADMIN": f"127.0.0.1:{gateway.admin}"}
    done = subprocess.run([binary("longwire"), "upstream", "follow", "--exit-after", "1"], env=environment,
                          capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 1
    assert json.loads(done.stdout) and not any(character in done.stdout for character in "\x1b\x07\x7f\x9b\u202e")
