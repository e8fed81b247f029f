"""Live messages through a WebSocket compared with plain frames: alternating runs against one gateway.

    python websocket.py [--runs 3] [--seconds 5]

LONGWIRE_BIN names the folder of the built programs. Prints each pair and its ratio; exits with 1 if a ratio is below 0.8.
"""

import argparse
import json
import pathlib
import subprocess
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "Integration/parties")]

from gateway import ADMIN_TOKEN, APP, Gateway, binary  # noqa: E402

LEAST = 0.8


def rate(gateway, seconds, *options):
    words = [binary("longwire"), "bench", "live", "--device-address", f"127.0.0.1:{gateway.device}",
             "--senders-address", f"127.0.0.1:{gateway.senders}", "--admin-address", f"127.0.0.1:{gateway.admin}",
             "--app-id", APP["appId"], "--app-secret", APP["appSecret"], "--master-secret", APP["masterSecret"],
             "--admin-token", ADMIN_TOKEN, "--devices-file", str(gateway.folder / "devices"), "--devices", "1000",
             "--duration", str(seconds), "--warmup", "1", "--quiet", "--json", "-", *options]
    report = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, timeout=seconds + 120).stdout)
    values = {one["name"]: one["value"] for one in report["metrics"]} if isinstance(report.get("metrics"), list) else report.get("metrics", report)
    assert values["loss"] == 0 and values["repeats"] == 0, values
    return values["rate"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5)
    options = parser.parse_args()
    worst = 1e9
    with Gateway(limits={"drainSeconds": 0}) as gateway:
        for run in range(options.runs):
            plain, web = rate(gateway, options.seconds), rate(gateway, options.seconds, "--websocket")
            worst = min(worst, web / plain)
            print(f"run {run + 1}: plain {plain:,.0f}/s, WebSocket {web:,.0f}/s, ratio {web / plain:.2f}", flush=True)
    sys.exit(worst < LEAST)


if __name__ == "__main__":
    main()
