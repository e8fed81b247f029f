#!/usr/bin/env python3
"""The cost of a flooding app for another app: its latencies without and with the flood, in one run, and its deadlines.

    LONGWIRE_BIN=.build/release .build/python/bin/python Tests/Benchmarks/neighbours.py [--seconds 20] [--rate 200] [--short 256] [--apart]

App A floods native publishes to disconnected devices, slow readers and devices with push mode off. It has no sender service and
makes the widest tag queries. App B sends at a fixed rate to live devices and has a retry, an expiry, a fallback and a scheduled
broadcast. The flooder runs at the lowest priority, because it shares the machine with the gateway. With `--apart` it floods
another gateway on the same machine, which shows the latencies that the machine itself causes.

With `--short` both apps push over HTTP instead, and each push has its own connection; the flooder has that many at once.
"""

import argparse
import contextlib
import json
import pathlib
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parents[1] / "Integration"
sys.path.insert(0, str(HERE / "parties"))

import neighbour_party  # noqa: E402


def quantile(times, share):
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000


def measure(gateway, rate, seconds, short):
    neighbour = neighbour_party.Neighbour(gateway)
    if short:
        times = neighbour.push(rate, seconds)
        neighbour.close()
        return {
            "sent": len(times), "refused": len(neighbour.refusals), "p50": round(quantile(times, 0.5), 1),
            "p99": round(quantile(times, 0.99), 1), "longest": round(max(times) * 1000, 1),
        }
    deadlines = threading.Thread(target=neighbour.deadlines)
    deadlines.start()
    times = neighbour.publish(rate, seconds)
    deadlines.join()
    neighbour.close()
    return {
        "sent": len(neighbour.due), "refused": len(neighbour.refusals), "delivered": len(times),
        "p50": round(quantile(times, 0.5), 1), "p99": round(quantile(times, 0.99), 1),
        "late": {name: round(value, 2) for name, value in sorted(neighbour.lateness.items())},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument(
        "--short", type=int, default=0, metavar="N", help="push over HTTP, in N connections at once, each for one request")
    parser.add_argument("--apart", action="store_true", help="the flood goes to another gateway")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(neighbour_party.two_apps())
        flooded_one = stack.enter_context(neighbour_party.two_apps()) if options.apart else gateway
        calm = measure(gateway, options.rate, options.seconds, options.short)
        before = flooded_one.metrics()
        with neighbour_party.Flood(flooded_one, connections=options.connections, short=options.short) as flood:
            flooded = measure(gateway, options.rate, options.seconds, options.short)
            after = flooded_one.metrics()
        taken = accepted(after) - accepted(before)
        ratio = {name: round(flooded[name] / calm[name], 1) for name in ("p50", "p99")}
        report = {"calm": calm, "flooded": flooded, "ratio": ratio, "flood": {"accepted": taken, **flood.numbers}}
        print(json.dumps(report, indent=2))


def accepted(page):
    return sum(
        int(float(line.rsplit(" ", 1)[1])) for line in page.splitlines()
        if line.startswith("longwire_messages_accepted_total"))


if __name__ == "__main__":
    main()
