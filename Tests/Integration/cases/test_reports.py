"""A Pong confirms that the reports before its Ping are recorded: in a burst, and across a kill right after it."""

import pytest
from conftest import QUICK
from gateway import Gateway
from longwire_client import encode, pb


def burst(device, messages, nonce):
    """Reports all messages as shown, followed by a Ping, in one write; returns when the Pong has arrived."""
    reports = [pb.Feedback(kind=pb.Feedback.SHOWN, msg_id=message.msg_id) for message in messages]
    device.connection.socket.sendall(b"".join(map(encode, [*reports, pb.Ping(nonce=nonce)])))
    assert device.receive(pb.Pong).nonce == nonce


def is_shown(gateway, message):
    return "shown" in gateway.steps(message.msg_id.hex())


def test_a_burst_of_reports_of_messages_on_disk_is_recorded_whole(own_gateway, new_device):
    gateway = own_gateway(limits={**QUICK, "spillAfterSeconds": 1})
    device = new_device(gateway)
    for number in range(200):
        gateway.push(device.cid, f"message {number}")
    messages = device.receive_and_ack(200)
    # A restart moves the journal to the database, so each report reads its message's trace from there.
    gateway.stop()
    gateway.start()
    device.connect()
    burst(device, messages, 7)
    assert sum(is_shown(gateway, message) for message in messages) == 200


def test_what_a_pong_has_settled_is_there_after_a_kill_right_behind_it(own_gateway, new_device):
    gateway = own_gateway()
    device = new_device(gateway)
    for number in range(20):
        gateway.push(device.cid, f"message {number}")
    messages = device.receive_and_ack(20)
    burst(device, messages, 8)
    gateway.kill()
    gateway.start()
    assert sum(is_shown(gateway, message) for message in messages) == 20
