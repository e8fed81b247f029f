"""SIGKILL at any instant: accepted messages reach the app exactly once, in order, with the right flag."""

import random
import threading

import pytest
from conftest import QUICK
from gateway import Refused, eventually
from longwire_client import Closed, Sender, pb

# Live attempts must not time out here, because the flag would then be right for another reason.
CALM = {**QUICK, "liveDeadlineMilliseconds": 600_000, "unannouncedCloseDelayMilliseconds": 300}


class App:
    """The messages that one device's app has seen: a client with memory, whose acks may be lost with the connection."""

    def __init__(self, device):
        self.device, self.shown = device, []

    def take(self, limit=None, timeout=2):
        """Reads up to `limit` messages, or until the gateway is gone or silent."""
        taken = 0
        try:
            while limit is None or taken < limit:
                message = self.device.receive(timeout=timeout)
                position = self.device.state.positions.get(0, 0)
                if message.sequence > position:
                    self.shown.append((message.payload.decode(), message.offline))
                    self.device.state.positions[0] = message.sequence
                self.device.ack(message.sequence)
                taken += 1
        except (Closed, OSError, TimeoutError):
            pass

    def come_back(self):
        self.device.close()
        eventually(self._connect, "the return of a device")

    def _connect(self):
        try:
            return self.device.connect()
        except (Closed, OSError):
            return None

    def drain(self, gateway):
        def is_empty():
            self.take(1, timeout=0.3)
            return gateway.view(self.device.cid)["queue"]["messages"] == 0

        eventually(is_empty, "an empty queue")


def sent_to(devices, gateway, until):
    """Publishes to all devices in rounds until `until` is set; returns the answered and the attempted messages per device."""
    accepted = {device.cid: [] for device in devices}
    attempted = {device.cid: [] for device in devices}
    sender = Sender("127.0.0.1", gateway.senders, gateway.app["appId"], gateway.app["masterSecret"])
    number = 0
    try:
        while not until.is_set():
            frames = []
            for device in devices:
                text = f"{number}"
                attempted[device.cid].append(text)
                frames.append({"cid": device.state.cid, "payload": text.encode(), "ttl_ms": 3_600_000})
            # Publishes are sequential per device and parallel over devices. A missing result is no promise.
            first = sender.request + 1
            sender.request += len(frames)
            sender.connection.send(
                *(pb.Publish(request=first + index, **fields) for index, fields in enumerate(frames)))
            for _ in frames:
                result = sender.connection.receive(pb.PublishResult)
                assert result.code == 0, result
                device = devices[result.request - first]
                accepted[device.cid].append((str(number), result.live))
            number += 1
    except (Closed, OSError):
        pass
    finally:
        sender.close()
    return accepted, attempted


@pytest.mark.parametrize("seed", range(3))
def test_kill_between_answers_and_deliveries(own_gateway, new_device, seed):
    chance = random.Random(seed)
    gateway = own_gateway(limits=CALM)
    here = [App(new_device(gateway)) for _ in range(20)]
    gone = [App(new_device(gateway)) for _ in range(20)]
    for app in gone:
        app.device.close()
    eventually(lambda: not any(gateway.view(app.device.cid)["connected"] for app in gone))
    apps = here + gone
    devices = [app.device for app in apps]

    # Half of the connected devices read and ack during the publishes. The others let messages accumulate in their sockets.
    stop = threading.Event()

    def read_on(app):
        while not stop.is_set():  # a gateway that is silent for a while may only be busy
            app.take()

    readers = [threading.Thread(target=read_on, args=(app,)) for app in here[:10]]
    result = {}
    writer = threading.Thread(target=lambda: result.update(zip(("accepted", "attempted"), sent_to(devices, gateway, stop))))
    for thread in [*readers, writer]:
        thread.start()
    rounds = chance.randrange(3, 15)
    eventually(lambda: len(here[0].shown) >= rounds)
    gateway.kill()
    stop.set()
    for thread in [*readers, writer]:
        thread.join(30)
        assert not thread.is_alive()

    gateway.start()
    for app in apps:
        app.come_back()
        app.drain(gateway)

    for app in apps:
        cid = app.device.cid
        texts = [text for text, _ in app.shown]
        accepted = [text for text, _ in result["accepted"][cid]]
        attempted = result["attempted"][cid]
        assert texts == sorted(texts, key=int), "in order"
        assert len(texts) == len(set(texts)), "once"
        assert set(accepted) <= set(texts), f"lost: {set(accepted) - set(texts)}"
        # Unanswered messages may have been stored; nothing else may appear.
        assert set(texts) <= set(attempted)
        assert len(set(texts) - set(accepted)) <= 1
    flags = {app.device.cid: dict(app.shown) for app in apps}
    for app in gone:
        assert all(flags[app.device.cid].values()), "the device was away: flagged"
    for app in here:
        assert all(live for _, live in result["accepted"][app.device.cid][:30]), "within the window: sent at once"
        fresh = [offline for _, offline in app.shown]
        # Messages sent in the session before the kill have no flag. For those sent after the restart the live attempt's session
        # had ended.
        assert fresh == sorted(fresh), "first the fresh ones, then the flagged ones"
    assert all(gateway.view(app.device.cid)["queue"]["messages"] == 0 for app in apps)


def test_what_was_sent_before_a_kill_is_known_while_its_device_is_away(own_gateway, new_device):
    gateway = own_gateway(limits=CALM)
    device = new_device(gateway)
    messages = [gateway.push(device.cid, "x", strategy=strategy)["msgId"] for strategy in (1, 3)]
    for _ in messages:
        device.receive()
    gateway.kill()
    gateway.start()
    for message in messages:
        trace = gateway.trace(message)
        assert trace["state"] == "pending" and trace["cid"] == device.cid
    with pytest.raises(Refused):
        gateway.trace(messages[0][:16] + "0" * 16)


def test_nothing_answered_is_lost_over_many_kills(own_gateway, new_device):
    gateway = own_gateway(limits=CALM)
    app = App(new_device(gateway))
    accepted = []
    chance = random.Random(7)
    for cycle in range(5):
        for number in range(chance.randrange(1, 20)):
            text = f"{cycle * 100 + number}"
            gateway.push(app.device.cid, text, ttl=3_600_000)
            accepted.append(text)
            if chance.random() < 0.5:
                app.take(1)
        gateway.kill()
        gateway.start()
        app.come_back()
    app.drain(gateway)
    assert [text for text, _ in app.shown] == accepted


def test_acked_never_comes_back_after_a_kill(own_gateway, new_device):
    gateway = own_gateway(limits=CALM)
    device = new_device(gateway)
    messages = [gateway.push(device.cid, str(number)) for number in range(10)]
    device.receive_and_ack(10)
    for message in messages:
        gateway.ends_as(message["msgId"], "delivered")
    gateway.kill()
    gateway.start()
    device.state.positions.clear()  # a client without its positions must not receive them again
    assert device.connect().backlog == 0
    for message in messages:
        assert gateway.trace(message["msgId"])["state"] == "delivered"


def test_final_states_and_sequences_survive_kills(own_gateway, new_device):
    gateway = own_gateway(limits=CALM)
    device = new_device(gateway)
    last = 0
    for cycle in range(4):
        gateway.push(device.cid, str(cycle))
        message = device.receive()
        assert message.sequence > last, "a sequence is never given twice"
        last = message.sequence
        device.ack(last)
        eventually(lambda: gateway.view(device.cid)["queue"]["messages"] == 0)
        device.close()
        gateway.kill()
        gateway.start()
        device.connect()
    with pytest.raises(Refused):
        gateway.trace("0" * 32)
