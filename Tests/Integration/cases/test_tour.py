"""The tours of README.md and docs/use/Cluster.md, in both languages, as a newcomer plays them."""

import os
import signal
import socket
import subprocess
import sys

import cluster_tour
import network
import pytest
from conftest import HERE
from gateway import eventually
from tour import Terminal

PORTS = (7000, 7001, 7080, 7081, *range(7110, 7140))


def are_free():
    for port in PORTS:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return False
    return True


@pytest.mark.parametrize("language", [[], ["--chinese"]], ids=["english", "chinese"])
@pytest.mark.parametrize("tour", ["tour.py", "cluster_tour.py"], ids=["one gateway", "three gateways"])
def test_the_tour_goes_as_its_page_says(tour, language):
    if not network.is_allowed() and not are_free():
        pytest.skip("this machine makes no network namespaces, and the ports that the pages name are taken")
    tour = subprocess.Popen(
        [sys.executable, str(HERE / "rigs" / tour), *language], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True)
    try:
        shown, _ = tour.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(tour.pid, signal.SIGKILL)
        raise
    assert tour.returncode == 0, shown


WHILE_IT_STARTS, WHILE_IT_SERVES = "Starting", cluster_tour.READY


# The tour itself ends by Ctrl-C while it serves.
@pytest.mark.parametrize("end, shown", [
    ("ctrl-c", WHILE_IT_STARTS), ("closed terminal", WHILE_IT_STARTS), ("closed terminal", WHILE_IT_SERVES),
    ("kill", WHILE_IT_STARTS), ("kill", WHILE_IT_SERVES)])
def test_nothing_of_make_cluster_outlives_its_terminal(tmp_path, end, shown):
    with Terminal(tmp_path, cluster_tour.start(tmp_path)) as gateways:
        eventually(lambda: shown in gateways.text and cluster_tour.servers(tmp_path) >= 2, "its servers", 30)
        if end == "ctrl-c":
            assert gateways.end() == 0, gateways.text
        elif end == "closed terminal":
            gateways.close()
            gateways.process.wait(30)
        else:
            # SIGKILL leaves no time to remove its folders.
            gateways.process.kill()
            gateways.wait()
    # The kernel signals the parent's end to its children a moment later.
    eventually(lambda: cluster_tour.processes(tmp_path) == [], "the end of all processes", 10)
    assert cluster_tour.remains(tmp_path) == [] or end == "kill"
