"""Devices of a crash round: they connect, read, ack late or partially, enter the background, vanish and reconnect.

The state on a device's disk (its position and the messages shown by its app) survives every connection. The order is a real
client's: shown, stored, then acked.
"""

import random
import socket
import struct
import threading
import time

from party import Book, Orders, setup
from longwire_client import Closed, Device, pb

MOVED = 202  # Close: another gateway takes the device over
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close that sends a reset


class Phone(threading.Thread):
    def __init__(self, number, plan, orders, book):
        super().__init__(daemon=True)
        self.chance = random.Random(f"{plan['seed']} device {number}")
        self.plan, self.orders, self.book, self.number = plan, orders, book, number
        self.device = Device("127.0.0.1", plan["device"], plan["app"]["appId"], timeout=5.0)
        self.token = f"{number:04x}" * 16
        self.unacked = {0: 0, 1: 0}  # by stream
        self.visited = 0  # gateway time of the connection's Welcome
        self.since, self.left = 0, None  # start of the unbroken presence, ms; type and time of the last visit's end
        self.greeted = 0  # ms, at most the last Hello's timestamp

    def register(self):
        while True:
            try:
                self.device.register(self.plan["app"]["appSecret"], tokens=[pb.VendorToken(token=self.token)])
                break
            except Closed as closed:
                # A gateway is just taking over the device's partition.
                if closed.code != MOVED:
                    raise
                time.sleep(0.05)
        self.cid = self.device.state.cid.hex()
        self.book.write("registered", cid=self.cid, token=self.token)
        self.device.close()

    # One visit after another

    def run(self):
        while self.orders.wait_while("wait") != "quit":
            try:
                self.visit()
            except (Closed, OSError) as error:
                code = error.code if isinstance(error, Closed) else None
                if code is not None:
                    self.book.write("closed", cid=self.cid, code=code)
                self.device.close()
                self.left = "gone", time.monotonic()
                time.sleep(0.05)
            if self.orders.mode == "go":
                time.sleep(self.chance.random() * 0.5)

    def visit(self):
        draining = self.orders.mode == "drain"
        state = pb.FOREGROUND if draining else self.chance.choices((pb.FOREGROUND, pb.BACKGROUND), (85, 15))[0]
        self.greeted = int(time.time() * 1000)
        welcome = self.device.connect(
            application_state=state, keeps_running=state == pb.BACKGROUND and self.chance.random() < 0.5,
            tokens=[pb.VendorToken(token=self.token)])
        self.unacked, self.visited = {0: 0, 1: 0}, welcome.server_time
        # A visit on top of the last one, or soon after its sudden end, continues it for the offline flag.
        if not self.left or self.left[0] not in ("silent", "end", "reset") or time.monotonic() - self.left[1] > 0.5:
            self.since = welcome.server_time
        habit = "each" if draining else self.chance.choice(("each", "late", "part", "never", "each"))
        end = time.monotonic() + (3600 if draining else 0.2 + self.chance.random() * 1.5)
        while time.monotonic() < end and self.orders.mode in ("go", "drain"):
            if (self.orders.mode == "drain") != draining:
                break  # reconnect with another behavior
            self.read(habit)
            if not draining and self.chance.random() < 0.02:
                self.sleep_and_wake()
        self.leave(draining)

    def leave(self, draining):
        way = "goodbye" if draining else self.chance.choice(("goodbye", "end", "reset", "terminated", "silent"))
        connection = self.device.connection
        if not connection:
            return
        self.left = way, time.monotonic()
        if way == "goodbye":
            connection.send(pb.Close(code=100))
        elif way == "terminated":
            connection.send(pb.DeviceUpdate(request=0, application_state=pb.TERMINATED))
        elif way == "reset":
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        elif way == "silent":
            time.sleep(0.3)  # neither reads nor answers; the next visit starts on top of this session
            self.left = way, time.monotonic()
            return
        self.device.close()

    def sleep_and_wake(self):
        """Enters the background with an open socket and returns; `update` drops deliveries up to the result."""
        self.device.update(application_state=pb.BACKGROUND)
        time.sleep(self.chance.random() * 0.6)
        # With the token, which ends a quarantine. Otherwise a long run would end without a vendor channel.
        self.device.update(application_state=pb.FOREGROUND, tokens=[pb.VendorToken(token=self.token)])
        self.unacked = {0: 0, 1: 0}
        self.since = int(time.time() * 1000) - 1_000  # the two clocks are on the same machine, within this tolerance

    # Messages

    def read(self, habit):
        try:
            message = self.device.receive(timeout=0.1)
        except TimeoutError:
            if habit in ("late", "each") and any(self.unacked.values()):
                self.ack()
            return
        stream, positions = message.stream, self.device.state.positions
        line = {"cid": self.cid, "stream": stream, "seq": message.sequence, "msg": message.msg_id.hex(),
                "visit": self.visited}
        if message.sequence <= positions.get(stream, 0):
            # Covered by the position: acked again and not shown, as a client must do for exactly-once display.
            self.book.write("covered", **line)
            self.unacked[stream] += 1
        elif message.sequence % 211 == 0:
            self.book.write("rejected", **line)
            positions[stream] = message.sequence
            self.device.reject(message.sequence, "poison", stream)
            return
        else:
            publisher, number, _ = message.payload.decode().split(" ", 2)
            self.book.write(
                "shown", **line, publisher=int(publisher), n=int(number), offline=message.offline,
                accepted=message.accepted_at, since=self.since,
                hello=self.greeted)
            positions[stream] = message.sequence
            self.unacked[stream] += 1
            if self.chance.random() < 0.01:
                self.device.feedback(message.msg_id)
        unacked = sum(self.unacked.values())
        if habit == "each" or habit == "late" and unacked >= 8:
            self.ack()
        elif habit == "part" and unacked >= 3:
            self.ack(behind=1)

    def ack(self, behind=0):
        """Acks everything up to the positions; with `behind` all but the last few sequences of each."""
        ack = pb.Ack()
        for stream, position in self.device.state.positions.items():
            ack.positions.add(stream=stream, sequence=max(0, position - behind))
            self.book.write("acked", cid=self.cid, stream=stream, seq=position - behind)
            self.unacked[stream] = behind
        self.device.connection.send(ack)


def main():
    plan, orders = setup(), Orders()
    book = Book(plan["book"])
    phones = [Phone(plan["first"] + index, plan, orders, book) for index in range(plan["count"])]
    for phone in phones:
        phone.register()
    orders.say(cids=[phone.cid for phone in phones])
    for phone in phones:
        phone.start()
    orders.wait_while("wait", "go", "drain")


if __name__ == "__main__":
    main()
