"""Loops with separate descriptor tables: one process holds more connections than its limit of open files."""

import resource

import pytest

from conftest import QUICK
from gateway import eventually
from hook_receiver import Receiver

CALM = {**QUICK, "liveDeadlineMilliseconds": 600_000, "suspectSilenceMilliseconds": 600_000}
LIMIT = 200
LOOPS = 6
# More than one table holds, and as many as six hold with a margin for random spreading.
DEVICES = 420
SECRET = "whsec_bG9uZ3dpcmUtdGVzdC1ob29rLXNlY3JldA=="


@pytest.fixture
def gateway(own_gateway):
    receiver = Receiver(SECRET, lambda jobs: (200, b""))
    hook = {"url": receiver.url, "secret": SECRET}
    yield own_gateway(loops=LOOPS, loopTables="own", limits=CALM, hook=hook)
    receiver.shutdown()
    receiver.server_close()


def test_more_connections_than_one_table_holds(gateway, new_device):
    resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    devices = [new_device(gateway) for _ in range(DEVICES)]
    messages = [gateway.push(device.cid, str(number)) for number, device in enumerate(devices)]
    for number, device in enumerate(devices):
        assert device.receive_and_ack(1)[0].payload == str(number).encode()
    for message in messages[:: DEVICES // 20]:
        gateway.ends_as(message["msgId"], "delivered")
    assert devices[0].ping().nonce == 1


def test_a_hook_is_woken_from_a_loop_with_its_own_table(gateway, new_device):
    device = new_device(gateway, token="aa" * 32)
    device.close()
    eventually(lambda: not gateway.view(device.cid)["connected"], "the end of the session")
    message = gateway.push(device.cid, "p", alert="hello")
    eventually(lambda: "vendorAccepted" in gateway.steps(message["msgId"]), "the hook's answer")


def test_a_kill_and_a_clean_stop_free_the_ports(gateway, new_device):
    device = new_device(gateway)
    gateway.push(device.cid, "before")
    gateway.kill()
    gateway.start()
    device.connect()
    assert device.receive_and_ack(1)[0].payload == b"before"
    assert gateway.stop() == 0
    gateway.start()
    device.connect()
    assert device.ping().nonce == 1
