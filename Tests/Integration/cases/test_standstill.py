"""A paused gateway finds its deadlines expired: it reads pending input before it enforces them."""

import signal
import socket
import threading
import time

import pytest
from gateway import eventually
from longwire_client import pb

pytestmark = pytest.mark.alone

STOPPED = 6.0  # longer than the deadlines below, and than the loop's threshold for a stall


def stopped(gateway, during):
    """Pauses the gateway's process for a while, in which its peers continue."""
    gateway.process.send_signal(signal.SIGSTOP)
    try:
        during()
        time.sleep(STOPPED)
    finally:
        gateway.process.send_signal(signal.SIGCONT)


def test_what_came_while_the_gateway_stood_still_is_read_before_deadlines_are_judged(own_gateway, new_device):
    gateway = own_gateway(limits={"helloTimeoutMilliseconds": 2_000, "httpIdleTimeoutSeconds": 4})
    connections = [new_device(gateway) for _ in range(4)]
    for device in connections:
        device.close()
    # A connection without its Hello, and one for HTTP without a request.
    waiting = [socket.create_connection(("127.0.0.1", gateway.http), timeout=10) for _ in range(4)]
    for connection in waiting:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.recv(4_096).startswith(b"HTTP/1.1 200")

    def during():
        for connection in waiting:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")

    stopped(gateway, during)
    for connection in waiting:
        assert connection.recv(4_096).startswith(b"HTTP/1.1 200"), "the request came in time"
        connection.close()
    for device in connections:
        device.connect()


def test_an_ack_that_came_while_the_gateway_stood_still_spares_the_alert(own_gateway, new_device):
    gateway = own_gateway(limits={"backgroundLiveDeadlineMilliseconds": 3_000, "liveDeadlineMilliseconds": 3_000})
    device = new_device(gateway, token="ab" * 32)
    message = gateway.push(device.cid, "x", alert="A")
    deliver = device.receive(pb.Deliver)
    leased = []
    sender = threading.Thread(target=lambda: leased.extend(gateway.lease(wait=10)))
    sender.start()
    stopped(gateway, lambda: device.ack(deliver.sequence))
    eventually(lambda: "acked" in gateway.steps(message["msgId"]))
    sender.join()
    assert leased == [] and "leased" not in gateway.steps(message["msgId"])
    assert gateway.view(device.cid)["connected"]
