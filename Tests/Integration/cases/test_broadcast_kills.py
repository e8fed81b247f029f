"""Broadcasts across SIGKILLs: a device that comes back is sent everything that was pending for it, in order, and nothing ends
`delivered` that its device was never sent."""

import concurrent.futures
import time

from gateway import eventually
from longwire_client import Closed, pb
from test_broadcast import ALERT, FREE, broadcast, states

DEVICES, BROADCASTS, REPETITIONS = 150, 6, 4
# The deadlines of what was sent pass while the devices come back: the rows that tell of it are read then.
LIMITS = {
    "liveDeadlineMilliseconds": 2_500, "suspectSilenceMilliseconds": 60_000, "unannouncedCloseDelayMilliseconds": 600,
    "spillAfterSeconds": 1,
}


def read(device, count):
    """The sequences of what it is sent, until its position does not cover `count` of them; none is acked."""
    found = []
    while len(set(found)) < count:
        message = device.receive(timeout=10)
        if message.sequence > device.state.positions.get(1, 0):
            found.append(message.sequence)
    return found


def come_back(device, delay, count):
    time.sleep(delay)  # the fleet's return is spread over a second: that is the case under test
    end = time.monotonic() + 30
    while True:
        try:
            device.connect(application_state=pb.FOREGROUND)
            return read(device, count)
        except (Closed, ConnectionError):
            # Turned away while the gateway comes up.
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
                time.sleep(0.1)  # their deadlines pass one after the other
            first = repetition * BROADCASTS + 1
            expected = list(range(first, first + BROADCASTS))
            for found in pool.map(lambda device: read(device, BROADCASTS), devices):
                assert found == expected
            gateway.kill()
            # It is up again when the first deadlines are about to pass, or have just passed.
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
