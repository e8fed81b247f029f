"""longwire bench against a real gateway: short runs whose counts must agree, whatever their figures."""

import contextlib
import json
import os
import pty
import resource
import subprocess

import pytest
from gateway import ADMIN_TOKEN, Gateway, binary

QUICKLY = ["--duration", "0.5", "--warmup", "0.2"]


@pytest.fixture(scope="module")
def loaded():
    """Runs one gateway with its default deadlines, and a devices file that the runs share."""
    with Gateway() as gateway:
        yield gateway


def command_line(gateway, *words, addresses=None):
    """Returns a command line; `addresses` replace those of the plain listeners, by option."""
    app = gateway.app
    command = [binary("longwire"), "bench", *words, "--app-id", app["appId"], "--app-key", app["appKey"]]
    command += ["--app-secret", app["appSecret"], "--master-secret", app["masterSecret"]]
    command += ["--data", str(gateway.folder), "--devices-file", str(gateway.folder / "bench-devices")]
    found = {
        "--device-address": f"127.0.0.1:{gateway.device}", "--senders-address": f"127.0.0.1:{gateway.senders}",
        "--http-address": f"127.0.0.1:{gateway.http}", "--admin-address": f"127.0.0.1:{gateway.admin}",
    }
    for name, address in {**found, **(addresses or {})}.items():
        command += [name, address]
    return command


def bench(gateway, *words, code=0, capture=None, files=None, addresses=None, variables=None):
    """Runs the generator; `files` is its hard limit of open files."""
    command = command_line(gateway, *words, addresses=addresses)
    environment = {**(variables or {}), "LONGWIRE_ADMIN_TOKEN": ADMIN_TOKEN, "SWIFT_BACKTRACE": "enable=no"}
    limit = files and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, preexec_fn=limit)
    assert done.returncode == code, done.stderr + done.stdout
    if capture is not None:
        capture.append(done)
    return done


def report(gateway, *words, **options):
    """Returns the JSON report of a successful run."""
    return json.loads(bench(gateway, *words, "--json", "-", **options).stdout)


def agree(found, accepted, delivered="delivered"):
    """Checks that no message is lost, repeated or pending, and that the counts match the known ones."""
    metrics = found["metrics"]
    assert metrics["loss"] == metrics["repeats"] == metrics["refused"] == metrics["unanswered"] == 0, found
    assert metrics["accepted"] == metrics[delivered] > 0, found
    assert metrics.get("disordered", 0) == 0
    if accepted is not None:
        assert metrics["accepted"] == accepted, found
    assert found["failures"] == {}, found


def test_idle_holds_its_connections_and_finds_the_gateways_process(loaded):
    found = report(loaded, "idle", "--connections", "150", "--hold", "0.3")
    metrics = found["metrics"]
    assert metrics["connections"] == 150 and metrics["failed"] == metrics["lost"] == 0
    assert found["serverPID"] == loaded.process.pid, "found by its port, though nobody named it"
    assert "rssPerConnection" in metrics and "serverCPUCores" in metrics and metrics["connect.p99"] > 0


def test_live_at_the_maximum_and_at_a_rate(loaded):
    agree(report(loaded, "live", "--devices", "60", "--in-flight", "50", *QUICKLY), None)
    paced = report(loaded, "live", "--devices", "60", "--rate", "500", "--senders", "1", *QUICKLY)
    agree(paced, None)
    # 0.7 s in total. A busy machine may lag, but never lead.
    assert 1 <= paced["metrics"]["accepted"] <= 350
    assert paced["metrics"]["deliver.p50"] > 0 and paced["metrics"]["sendLag.p50"] >= 0


def test_several_threads_find_what_one_finds(loaded):
    found = report(loaded, "offline", "--devices", "40", "--messages", "5", "--threads", "3")
    agree(found, 200)
    agree(report(loaded, "live", "--devices", "40", "--threads", "4", *QUICKLY), None)


def test_connections_beyond_one_threads_files_are_shared_out(loaded):
    metrics = report(loaded, "idle", "--connections", "150", "--hold", "0.2", files=128)["metrics"]
    assert metrics["connections"] == 150 and metrics["failed"] == 0
    done = bench(loaded, "idle", "--connections", "150", "--threads", "1", files=128, code=64)
    assert "--threads 3" in done.stderr
    agree(report(loaded, "live", "--devices", "100", "--threads", "2", *QUICKLY, files=128), None)


def test_offline_and_storm_drain_everything_once(loaded):
    agree(report(loaded, "offline", "--devices", "50", "--messages", "6"), 300)
    found = report(loaded, "storm", "--devices", "120", "--messages", "3", "--handshakes", "20")
    agree(found, 360)
    metrics = found["metrics"]
    assert metrics["connections"] == 120 and metrics["failed"] == 0
    assert metrics["drainedSeconds"] >= metrics["authenticatedSeconds"] * 0.1 > 0


def test_handoff_settles_every_job_once(loaded):
    found = report(loaded, "handoff", "--devices", "30", "--messages", "10", "--connections", "3", "--lease", "50")
    metrics = found["metrics"]
    assert metrics["jobs"] == metrics["leased"] == metrics["settled"] == 300, found
    assert metrics["loss"] == metrics["repeats"] == metrics["stale"] == metrics["refused"] == 0
    assert loaded.lease() == [], "nothing is left for anybody else"


@pytest.mark.parametrize("batch", [1, 10])
def test_http_pushes_arrive_once(loaded, batch):
    words = ["--connections", "3", "--devices", "20", "--connected", "--batch", str(batch)]
    found = report(loaded, "http", *words, *QUICKLY)
    agree(found, None)
    assert found["metrics"]["failed"] == 0 and found["metrics"]["answer.p99"] > 0


def test_conditions_decide_the_exit_code_and_each_that_fails_has_a_line(loaded):
    words = ["live", "--devices", "20", "--rate", "200", *QUICKLY, "--require", "loss=0"]
    bench(loaded, *words, "--require", "p99<60s", "--require", "rate>1/s")
    done = bench(loaded, *words, "--require", "p99<1ns", "--require", "rate>=1G", code=64)
    assert "units" in done.stderr
    done = bench(loaded, *words, "--require", "p99<1ns", "--require", "rate>=900M/s", code=1)
    assert done.stderr.count("FAILED") == 2 and "p99<1ns" in done.stderr and "holds   loss=0" in done.stdout
    bench(loaded, "live", "--require", "speed>1", code=64)
    bench(loaded, "gallop", code=64)
    nobody = {**vars(loaded), "device": 1, "senders": 1}
    bench(type("Nobody", (), nobody), "live", "--devices", "20", *QUICKLY, code=69)


def test_a_report_goes_to_a_file_and_nothing_is_drawn_where_no_terminal_is(loaded, tmp_path):
    capture = []
    files = ["--json", str(tmp_path / "r.json")]
    bench(loaded, "live", "--devices", "20", "--rate", "300", *QUICKLY, *files, "--require", "loss=0", capture=capture)
    assert capture[0].stderr == "" and "publish to deliver, p99" in capture[0].stdout
    found = json.loads((tmp_path / "r.json").read_text())
    run = found["run"]
    assert run["version"] == run["gatewayVersion"] == "0.1.0" and run["host"]["cores"] == os.cpu_count()
    assert run["host"]["kernel"].startswith("Linux ") and run["host"]["memoryBytes"] > 1 << 28
    assert "bench live" in run["command"] and "--rate 300" in run["command"]
    assert ADMIN_TOKEN not in json.dumps(run) and loaded.app["masterSecret"] not in json.dumps(run)
    assert found["headline"] == ["rate", "deliver.p50", "deliver.p99", "loss"]
    head = capture[0].stdout.split("\n\n")[0]
    assert "  date: 20" in head and "gateway 0.1.0" in head and "  command: longwire bench live" in head
    assert {"format", "run", "headline", "mode", "title", "metrics", "failures", "bottleneck", "serverPID", "cores", "notes", "requirements"} \
        == set(found)
    assert found["requirements"] == [{"condition": "loss=0", "holds": True}]
    assert oct(os.stat(tmp_path / "r.json").st_mode & 0o777) == "0o600"


def test_a_terminal_sees_a_progress_bar_and_the_table_stays_clean(loaded):
    ours, theirs = pty.openpty()
    try:
        words = command_line(loaded, "live", "--devices", "20", "--rate", "300", *QUICKLY)
        running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=theirs, text=True)
        os.close(theirs)
        drawn = ""
        with contextlib.suppress(OSError):  # a terminal's error once its last writer has closed it
            while piece := os.read(ours, 1 << 16):
                drawn += piece.decode()
        table, _ = running.communicate(timeout=60)
    finally:
        os.close(ours)
    assert running.returncode == 0 and "\r" not in table
    assert "[#" in drawn and "publishing" in drawn


def test_help_names_every_mode():
    text = subprocess.run([binary("longwire"), "bench", "--help"], capture_output=True, text=True, check=True).stdout
    for mode in ("idle", "live", "offline", "storm", "handoff", "http"):
        assert f"\n  {mode}" in text


def test_a_pipe_sees_how_far_a_run_is_and_what_is_left(loaded):
    words = ["--devices", "20", "--rate", "200", "--duration", "12", "--warmup", "1"]
    capture = []
    bench(loaded, "live", *words, capture=capture)
    lines = capture[0].stderr.splitlines()
    assert 1 <= len(lines) <= 6 and all(line.startswith("longwire bench: ") for line in lines), lines
    assert any(" % " in line.replace("%,", "% ,") and line.endswith(" s left") for line in lines), lines
    capture = []
    bench(loaded, "live", *words, "--quiet", capture=capture)
    assert capture[0].stderr == ""
