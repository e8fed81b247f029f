"""The programs under a service manager and on a terminal: readiness, watchdog, reload, stop, and a closed terminal."""

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import time

import pytest
from conftest import QUICK
from gateway import Gateway, binary, eventually, free_ports
from service_manager import ServiceManager, standing_still, threads


def is_open(port):
    with contextlib.closing(socket.socket()) as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def sender_files(folder, gateway_port):
    """Writes a configuration of longwire-sender with its own key; returns the file and the admin port."""
    key, token, (port,) = folder / "key.p8", folder / "token", free_ports(1)
    subprocess.run(
        ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(key)],
        check=True, capture_output=True)  # fmt: skip
    token.write_text("a-token-of-the-tests\n")
    key.chmod(0o600)
    token.chmod(0o600)
    configuration = {
        "gateway": {"url": f"http://127.0.0.1:{gateway_port}", "tokenFile": str(token)},
        "credentials": [{"name": "main", "key": {"file": str(key), "keyId": "ABC123DEFG", "teamId": "DEF123GHIJ"}}],
        "admin": {"listen": f"127.0.0.1:{port}"},
        "stopSeconds": 0,
    }
    file = folder / "sender.json5"
    file.write_text(json.dumps(configuration))
    return file, port


def configured_gateway():
    """A configured gateway that is not started; its journal is small, because it starts often here."""
    gateway = Gateway(limits=QUICK | {"drainSeconds": 0, "journalBytes": 16_777_216})
    gateway.config.write_text(json.dumps(gateway.sections))
    gateway.config.chmod(0o600)
    return gateway


@contextlib.contextmanager
def running(program, arguments, environment, folder):
    with open(folder / "output", "ab") as output:
        process = subprocess.Popen(
            [binary(program), *arguments], env={**os.environ, "SWIFT_BACKTRACE": "enable=no", **environment},
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder)  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture(params=["longwired", "longwire-sender"])
def service(request, tmp_path):
    """Returns the program, its arguments, a port that it listens on, and the thread that its watchdog monitors."""
    if request.param == "longwired":
        gateway = configured_gateway()
        yield "longwired", ["--config", str(gateway.config)], gateway.admin, "loop-1"
        gateway.__exit__()
    else:
        file, port = sender_files(tmp_path, free_ports(1)[0])
        yield "longwire-sender", ["--config", str(file)], port, "sender"


def test_a_service_tells_when_it_is_ready_alive_reloading_and_stopping(service, tmp_path):
    program, arguments, port, loop = service
    with ServiceManager(tmp_path / "notify") as manager:
        with running(program, arguments, manager.environment(2_000_000), tmp_path) as process:
            manager.expects("READY=1")
            assert is_open(port), "ready means that it listens"
            manager.expects("STATUS=Se")
            manager.expects("WATCHDOG=1")
            process.send_signal(signal.SIGHUP)
            manager.expects("RELOADING=1")
            assert int(manager.expects("MONOTONIC_USEC=").split("=")[1]) > 0
            manager.expects("READY=1")
            process.send_signal(signal.SIGTERM)
            manager.expects("STOPPING=1")
            assert int(manager.expects("EXTEND_TIMEOUT_USEC=").split("=")[1]) > 5_000_000
            assert process.wait(60) == 0


def test_the_watchdog_is_about_the_event_loop_and_not_about_a_timer(service, tmp_path):
    program, arguments, port, loop = service
    with ServiceManager(tmp_path / "notify") as manager:
        with running(program, arguments, manager.environment(2_000_000), tmp_path) as process:
            manager.expects("READY=1")
            manager.expects("WATCHDOG=1")
            with standing_still(threads(process.pid)[loop]):
                # One request may have been answered before the loop stopped.
                manager.hears_within("WATCHDOG=1", 1.2)
                assert not manager.hears_within("WATCHDOG=1", 2.2)
            manager.expects("WATCHDOG=1")


def test_a_process_whose_watchdog_is_anothers_tells_it_nothing(service, tmp_path):
    program, arguments, port, loop = service
    with ServiceManager(tmp_path / "notify") as manager:
        with running(program, arguments, manager.environment(2_000_000) | {"WATCHDOG_PID": "1"}, tmp_path):
            manager.expects("READY=1")
            assert not manager.hears_within("WATCHDOG=1", 1.5)


def test_without_a_service_manager_nothing_is_told_and_a_wrong_socket_harms_nothing(service, tmp_path):
    program, arguments, port, loop = service
    for path in ("relative", "/" + "x" * 200, "@longwire-tests-nobody"):
        with running(program, arguments, {"NOTIFY_SOCKET": path}, tmp_path) as process:
            eventually(lambda: is_open(port), "its listener")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0


# Terminals


def in_a_terminal(words, folder):
    """Starts a command in the foreground of a new terminal; returns the process and the terminal's other end."""
    child, terminal = pty.fork()
    if child == 0:
        try:
            os.chdir(folder)
            os.environ["SWIFT_BACKTRACE"] = "enable=no"
            os.execvp(words[0], words)
        finally:
            os._exit(127)
    os.set_blocking(terminal, False)
    return child, terminal


def drain(terminal):
    with contextlib.suppress(OSError):
        while os.read(terminal, 65_536):
            pass


def ended(child):
    """Returns the exit code of a child, or None while it runs."""
    pid, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if pid else None


@contextlib.contextmanager
def reaped(child):
    """Ensures that no process of the test stays."""
    box = {}

    def look():
        if "code" not in box:
            code = ended(child)
            if code is not None:
                box["code"] = code
        return "code" in box

    try:
        yield look, box
    finally:
        if not look():
            os.kill(child, signal.SIGKILL)
            eventually(look, "the end")


def test_a_terminal_that_closes_leaves_nothing_on_the_ports(service, tmp_path):
    program, arguments, port, _ = service
    child, terminal = in_a_terminal([binary(program), *arguments], tmp_path)
    with reaped(child) as (has_ended, box):
        eventually(lambda: drain(terminal) or is_open(port), "its listener")
        # A reload from another source does not concern the terminal.
        os.kill(child, signal.SIGHUP)
        assert not has_ended() and is_open(port)
        os.close(terminal)
        eventually(has_ended, "a stop behind its terminal")
        assert box["code"] == 0 and not is_open(port)


def test_a_shell_that_ends_with_its_terminal_takes_its_background_job_along(service, tmp_path):
    program, arguments, port, _ = service
    line = " ".join([binary(program), *arguments]) + " & echo $! > pid; wait"
    child, terminal = in_a_terminal(["bash", "-i", "-c", line], tmp_path)
    with reaped(child) as (has_ended, _):
        eventually(lambda: drain(terminal) or is_open(port), "its listener")
        job = int((tmp_path / "pid").read_text())
        try:
            os.close(terminal)
            eventually(lambda: not is_open(port), "the end of the background job")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(job, signal.SIGKILL)
        eventually(has_ended, "the shell's end")


def test_nohup_outlives_its_terminal(service, tmp_path):
    program, arguments, port, _ = service
    child, terminal = in_a_terminal(["nohup", binary(program), *arguments], tmp_path)
    with reaped(child) as (has_ended, _):
        eventually(lambda: drain(terminal) or is_open(port), "its listener")
        os.close(terminal)
        os.kill(child, signal.SIGHUP)
        time.sleep(1.5)
        assert not has_ended() and is_open(port)


def test_a_fake_apple_ends_with_its_terminal(tmp_path):
    ports = free_ports(5)
    names = ["--production", "--sandbox", "--production-channels", "--sandbox-channels", "--page"]
    words = [word for name, port in zip(names, ports) for word in (name, f"127.0.0.1:{port}")]
    child, terminal = in_a_terminal([binary("longwire-sender"), "fake", *words, "--folder", str(tmp_path)], tmp_path)
    with reaped(child) as (has_ended, box):
        eventually(lambda: drain(terminal) or all(map(is_open, ports)), "its listeners")
        os.close(terminal)
        eventually(has_ended, "a stop behind its terminal")
        assert box["code"] == 0


def trial(folder, **options):
    """Runs a gateway without a configuration, on the default ports."""
    return subprocess.Popen([binary("longwired")], cwd=folder, stdin=subprocess.DEVNULL, **options)


@pytest.mark.skipif(any(is_open(port) for port in (7000, 7001, 7080, 7081)), reason="the default ports are in use here")
def test_a_trial_whose_readers_left_stops_and_a_first_start_warns_of_nothing(tmp_path):
    reading, writing = os.pipe()
    process = trial(tmp_path, stdout=writing, stderr=writing)
    os.close(writing)
    try:
        text = b""
        while b"started version=" not in text or b"appKey" not in text:
            piece = os.read(reading, 65_536)
            assert piece, text
            text += piece
        lines = text.decode().splitlines()
        assert not [line for line in lines if "WARNING" in line or "ERROR" in line], lines
        # As at the end of an SSH session that started it without a terminal.
        os.close(reading)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_health_tells_ready_not_ready_and_nobody(own_gateway, tmp_path):
    gateway = own_gateway(limits=QUICK | {"drainSeconds": 600})

    def health(*words):
        command = [binary("longwire"), "health", "--http", f"127.0.0.1:{gateway.http}", *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)

    assert health().returncode == 0
    gateway.process.send_signal(signal.SIGTERM)
    answer = eventually(lambda: (one := health()).returncode == 1 and one, "a drain")
    assert answer.stdout.strip()
    assert health("--live").returncode == 0, "a drain is no reason to kill it"
    gateway.process.send_signal(signal.SIGTERM)
    assert gateway.process.wait(60) == 0
    nobody = health()
    assert nobody.returncode == 69 and "no answer from" in nobody.stderr
