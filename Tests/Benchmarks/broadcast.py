#!/usr/bin/env python3
"""How soon push/all is answered, and how many deliveries a second reach those that are connected.

    LONGWIRE_BIN=.build/release .build/python/bin/python Tests/Benchmarks/broadcast.py [--devices 20000] [--online 5000]

So many devices are registered; so many of them are connected, by workers of their own that count the frames they read
and ack each. The figure of deliveries is from the call's first byte to the last frame read, so it holds the workers' part, too.
"""

import argparse
import json
import multiprocessing
import pathlib
import resource
import selectors
import socket
import struct
import sys
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parents[1] / "Integration"
sys.path[:0] = [str(HERE), str(HERE / "python")]

import longwire_client  # noqa: E402
from gateway import Gateway  # noqa: E402

DELIVER = longwire_client.pb.DELIVER


def register(port, app, count, stay):
    """Registers devices one after the other; those that stay keep their sockets."""
    kept = []
    for number in range(count):
        device = longwire_client.Device("127.0.0.1", port, app["appId"])
        device.register(app["appSecret"])
        if number < stay:
            kept.append(device.connection.socket)
        else:
            device.close()
    return kept


def work(pipe, port, app, count, stay):
    """One worker: registers, then counts Deliver frames in rounds."""
    sockets = register(port, app, count, stay)
    chosen = selectors.DefaultSelector()
    for one in sockets:
        one.setblocking(False)
        chosen.register(one, selectors.EVENT_READ, bytearray())
    pipe.send("ready")
    while pipe.recv() == "round":
        seen = 0
        while seen < len(sockets):
            for key, _ in chosen.select():
                buffer = key.data
                buffer += key.fileobj.recv(65536)
                while len(buffer) >= 4 and len(buffer) >= 4 + int.from_bytes(buffer[1:4], "big"):
                    length = int.from_bytes(buffer[1:4], "big")
                    frame, kind = bytes(buffer[4 : 4 + length]), buffer[0]
                    del buffer[: 4 + length]
                    if kind == DELIVER:
                        seen += 1
                        message = longwire_client.pb.Deliver.FromString(frame)
                        ack = longwire_client.pb.Ack()
                        ack.positions.add(stream=message.stream, sequence=message.sequence)
                        key.fileobj.send(longwire_client.encode(ack))
        pipe.send(time.monotonic())
    for one in sockets:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--devices", type=int, default=20_000)
    parser.add_argument("--online", type=int, default=5_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bytes", type=int, default=200)
    chosen = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rates = {"push": {"broadcastsPerMinute": 0, "broadcastsPerDay": 0}}
    with Gateway(app=rates, limits={"connections": 200_000}) as gateway:
        workers, pipes = [], []
        for _ in range(chosen.workers):
            ours, theirs = multiprocessing.Pipe()
            share = (chosen.devices // chosen.workers, chosen.online // chosen.workers)
            worker = multiprocessing.Process(target=work, args=(theirs, gateway.device, gateway.app, *share))
            worker.start()
            workers.append(worker)
            pipes.append(ours)
        start = time.monotonic()
        for pipe in pipes:
            pipe.recv()
        online = chosen.online // chosen.workers * chosen.workers
        print(f"{chosen.devices} devices registered in {time.monotonic() - start:.0f} s, {online} connected")
        gateway.authenticate()
        for number in range(chosen.rounds):
            body = {
                "request_id": uuid.uuid4().hex, "audience": "all",
                "push_message": {"transmission": f"{number}" + "x" * (chosen.bytes - 1)},
            }
            for pipe in pipes:
                pipe.send("round")
            begin = time.monotonic()
            task = gateway.api("POST", "push/all", body)["data"]["taskid"]
            answered = time.monotonic()
            ends = [pipe.recv() for pipe in pipes]
            seconds = max(ends) - begin
            print(
                f"round {number + 1}: answered in {(answered - begin) * 1000:.1f} ms, {online} deliveries in"
                f" {seconds * 1000:.0f} ms: {online / seconds:,.0f} a second"
            )
            time.sleep(0.5)
        report = gateway.api("GET", f"report/push/task/{task}")["longwire"]["tasks"][task]
        print("the last one:", json.dumps({name: count for name, count in report.items() if count}))
        for pipe in pipes:
            pipe.send("end")
        for worker in workers:
            worker.join()


if __name__ == "__main__":
    main()
