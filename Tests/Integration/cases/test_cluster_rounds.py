"""Crash rounds of three gateways with fixed seeds; `make cluster-rounds` runs more, with every fault."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

import network
import pytest

pytestmark = pytest.mark.alone

HERE = pathlib.Path(__file__).resolve().parent


def play(tmp_path, *words):
    """Runs the rounds as a separate program, because it needs its own network namespace; returns the report."""
    report = tmp_path / "report.json"
    command = [sys.executable, str(HERE.parent / "rigs/cluster_rounds.py"), "--json", str(report), *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            output, errors = process.communicate(timeout=280)  # less than pytest's timeout
        finally:
            # A rig that is ended by the timeout leaves its gateways and servers running.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, output[-2000:] + errors[-4000:]
    return json.loads(report.read_text())


def check(report, faults):
    print(json.dumps(report))
    assert report["accepted"] >= 40 and report["sumOfStates"] == report["accepted"]
    assert sum(report["serverFaults"].values()) >= faults
    assert report["shownLive"] and report["shownOffline"] and report["leases"] and all(report["connections"])


def test_gateways_and_servers_break_under_load_and_nothing_is_lost_or_repeated(tmp_path):
    check(play(tmp_path, "--rounds", "1", "--seed", "1", "--seconds-per-round", "4", "--faults", "killGateway,killPrimary"), 2)


@pytest.mark.skipif(not network.is_allowed(), reason="this machine makes no network namespaces")
def test_a_partition_under_load_loses_and_repeats_nothing(tmp_path):
    report = play(tmp_path, "--rounds", "1", "--seed", "2", "--seconds-per-round", "4", "--faults", "isolateGateway,cutReplica")
    assert report["network"] == "namespaces"
    check(report, 2)


def test_proxies_cut_where_there_are_no_namespaces(tmp_path):
    words = ("--rounds", "1", "--seed", "3", "--seconds-per-round", "4", "--faults", "cutFromRedis,moveSlot", "--proxies")
    report = play(tmp_path, *words)
    assert report["network"] == "proxies"
    check(report, 2)
