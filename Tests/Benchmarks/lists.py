#!/usr/bin/env python3
"""Messages a second through push/list/cid and push/single/batch/cid, over keep-alive HTTP, each answered when durable.

    LONGWIRE_BIN=.build/release .build/python/bin/python Tests/Benchmarks/lists.py [--devices 1000] [--calls 150]

The devices are registered and disconnected, so that only the gateway's part is measured. The calls' bodies are created
beforehand.
"""

import argparse
import http.client
import json
import pathlib
import sys
import threading
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parents[1] / "Integration"
sys.path.insert(0, str(HERE / "parties"))

import longwire_client  # noqa: E402
from gateway import Gateway  # noqa: E402


def drive(gateway, token, path, bodies, connections):
    """Sends all bodies over the given number of connections; returns the seconds."""
    waiting = list(bodies)
    lock, failures = threading.Lock(), []

    def work():
        connection = http.client.HTTPConnection("127.0.0.1", gateway.http, timeout=60)
        while True:
            with lock:
                if not waiting:
                    break
                body = waiting.pop()
            connection.request(
                "POST", f"/v2/{gateway.app['appId']}/{path}", body,
                {"Content-Type": "application/json", "token": token},
            )
            answer = connection.getresponse().read()
            if not answer.startswith(b'{"code":0'):
                failures.append(answer[:200])
        connection.close()

    workers = [threading.Thread(target=work) for _ in range(connections)]
    start = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures[0]
    return time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=150)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--bytes", type=int, default=200)
    chosen = parser.parse_args()
    with Gateway(app={"queue": {"messages": 1_000_000, "bytes": 1 << 30}}) as gateway:
        cids = []
        for _ in range(chosen.devices):
            device = longwire_client.Device("127.0.0.1", gateway.device, gateway.app["appId"])
            device.register(gateway.app["appSecret"])
            cids.append(device.state.cid.hex())
            device.close()
        token, payload = gateway.authenticate(), "x" * chosen.bytes
        for audience in (1, chosen.devices):
            bodies = []
            for _ in range(chosen.calls):
                made = gateway.api("POST", "push/list/message", {"push_message": {"transmission": payload}})
                call = {"taskid": made["data"]["taskid"], "audience": {"cid": cids[:audience]}}
                bodies.append(json.dumps(call).encode())
            seconds = drive(gateway, token, "push/list/cid", bodies, chosen.connections)
            count = chosen.calls * audience
            print(f"push/list/cid, {audience} devices a call: {count / seconds:,.0f} messages/s")
        again = drive(gateway, token, "push/list/cid", bodies, chosen.connections)
        print(f"the same calls again, all of them known: {count / again:,.0f} messages/s")
        batches = []
        for number in range(chosen.calls):
            items = [
                gateway.push_body(cids[(number * 200 + place) % len(cids)], payload, request_id=uuid.uuid4().hex)
                for place in range(200)
            ]
            batches.append(json.dumps({"msg_list": items}).encode())
        seconds = drive(gateway, token, "push/single/batch/cid", batches, chosen.connections)
        print(f"push/single/batch/cid, 200 items a call: {chosen.calls * 200 / seconds:,.0f} messages/s")


if __name__ == "__main__":
    main()
