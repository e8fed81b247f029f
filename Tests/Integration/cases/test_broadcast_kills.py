"""Broadcasts across SIGKILLs.

A device that reconnects receives all its pending messages in order, and no message ends `delivered` that its device was never
sent.
"""

import concurrent.futures
import time

from gateway import eventually
from longwire_client import Closed, pb
from test_broadcast import ALERT, FREE, broadcast, states

DEVICES, BROADCASTS, REPETITIONS = 150, 6, 4
# The deadlines of the sent messages pass while the devices reconnect, when their rows are read.
LIMITS = {
    "liveDeadlineMilliseconds": 2_500, "suspectSilenceMilliseconds": 60_000, "unannouncedCloseDelayMilliseconds": 600,
    "spillAfterSeconds": 1,
}


def read(device, count):
    """Returns the received sequences until the position lacks `count` of them; none is acked."""
    found = []
    while len(set(found)) < count:
        message = device.receive(timeout=10)
        if message.sequence > device.state.positions.get(1, 0):
            found.append(message.sequence)
    return found


def come_back(device, delay, count):
    time.sleep(delay)  # the reconnects are spread over a second, which is the tested case
    end = time.monotonic() + 30
    while True:
        try:
            device.connect(application_state=pb.FOREGROUND)
            return read(device, count)
        except (Closed, ConnectionError):
            # Refused while the gateway starts.
            assert time.monotonic() < end
        except TimeoutError:
            return None


def test_un_acked_broadcasts_come_again_after_a_kill_while_their_deadlines_pass(own_gateway, new_device):
    gateway = own_gateway(limits=LIMITS, app={"push": FREE})
    devices = [new_device(gateway, token=f"{number:04x}" * 16) for number in range(DEVICES)]
    with concurrent.futures.ThreadPoolExecutor(DEVICES) as pool:
        for repetition in range(REPETITIONS):
            began = time.monotonic()
            tasks = []
            for number in range(BROADCASTS):
                tasks.append(broadcast(gateway, f"{repetition} {number}", push_channel=ALERT))
                time.sleep(0.1)  # their deadlines pass one after another
            first = repetition * BROADCASTS + 1
            expected = list(range(first, first + BROADCASTS))
            for found in pool.map(lambda device: read(device, BROADCASTS), devices):
                assert found == expected
            gateway.kill()
            # The gateway is up again when the first deadlines are about to pass or have just passed.
            down = began + 1.6 + 0.4 * repetition - time.monotonic()
            time.sleep(max(0.0, down))
            gateway.start()
            returns = [pool.submit(come_back, device, number / DEVICES, BROADCASTS) for number, device in enumerate(devices)]
            missing = [number for number, found in enumerate(returns) if found.result() is None or sorted(set(found.result())) != expected]
            assert not missing, f"repetition {repetition}: {len(missing)} devices were not sent everything: {missing[:9]}"
            for device in devices:
                device.ack(expected[-1], stream=1)
            for task in tasks:
                eventually(lambda: states(gateway, task)["pending"] == 0, f"the end of {task}", 20)
                ends = states(gateway, task)
                assert ends["accepted"] == DEVICES and ends["delivered"] + ends["deliveredOffline"] == DEVICES, ends
