#!/usr/bin/env python3
"""aioapns with a fake Apple: `--count` notifications, `--in-flight` at a time; prints one JSON line with the figures.

    peer_aioapns.py --port PORT --certificate FILE --key FILE --count N [--in-flight 100] [--connections 8] [--loop uvloop]

The notifications are those of `handoff_source.py`: the same body, headers and tokens. They are created before the clock starts. A
warm-up of a tenth opens the connections. It runs in the environment of `deploy/install-dependencies.sh bench`.
"""

import argparse
import asyncio
import json
import logging
import pathlib
import resource
import ssl
import sys
import time

import aioapns
import aioapns.connection

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import handoff_source  # noqa: E402


def used():
    """Returns the CPU seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def send(client, requests, in_flight):
    """Sends every request once, `in_flight` at a time; returns how many Apple accepted."""
    waiting, taken = iter(requests), 0

    async def worker():
        nonlocal taken
        for request in waiting:
            result = await client.send_notification(request)
            taken += result.is_successful

    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return taken


async def main(options):
    logging.getLogger("aioapns").setLevel(logging.ERROR)
    protocol = aioapns.connection.APNsProductionClientProtocol
    protocol.APNS_SERVER, protocol.APNS_PORT = "localhost", options.port
    client = aioapns.APNs(
        key=pathlib.Path(options.key).read_text(), key_id="FAKEKEY001", team_id="FAKETEAM01", topic="com.example.bench",
        max_connections=options.connections, ssl_context=ssl.create_default_context(cafile=options.certificate))
    message = json.loads(handoff_source.body(options.body))
    requests = []
    for number in range(options.count + options.count // 10):
        text, uuid = handoff_source.identifier(number)
        requests.append(aioapns.NotificationRequest(
            device_token=f"ab{number % options.tokens:062x}", message=message, notification_id=uuid, time_to_live=7200,
            priority=10, collapse_key=text, push_type=aioapns.PushType.ALERT))
    warm = requests[options.count:]
    if await send(client, warm, options.in_flight) != len(warm):
        sys.exit("aioapns: not every notification of the warm-up was taken")
    cpu, began = used(), time.monotonic()
    taken = await send(client, requests[: options.count], options.in_flight)
    seconds, cpu = time.monotonic() - began, used() - cpu
    print(json.dumps({
        "taken": taken, "seconds": seconds, "cpuSeconds": cpu, "connections": len(client.pool.connections),
        "loop": type(asyncio.get_running_loop()).__module__,
    }))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--certificate", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--in-flight", type=int, default=100)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=10_000)
    parser.add_argument("--body", type=int, default=256)
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="uvloop")
    options = parser.parse_args()
    if options.loop == "uvloop":
        import uvloop

        uvloop.run(main(options))
    else:
        asyncio.run(main(options))
