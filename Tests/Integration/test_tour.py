"""README's five minutes, in both languages, as a newcomer plays them."""

import os
import signal
import socket
import subprocess
import sys

import network
import pytest
from conftest import HERE

PORTS = (7000, 7001, 7080, 7081)


def are_free():
    for port in PORTS:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return False
    return True


@pytest.mark.parametrize("language", [[], ["--chinese"]], ids=["english", "chinese"])
def test_the_tour_goes_as_readme_says(language):
    if not network.is_allowed() and not are_free():
        pytest.skip("this machine makes no network namespaces, and the gateway's default ports are taken")
    tour = subprocess.Popen(
        [sys.executable, str(HERE / "tour.py"), *language], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True)
    try:
        shown, _ = tour.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(tour.pid, signal.SIGKILL)
        raise
    assert tour.returncode == 0, shown
