#!/usr/bin/env python3
"""Starts a gateway on free loopback ports, fills it, and runs schemathesis and broken.py against it.

    Tests/Checks/API/run.py [--examples 40] [--seed 1]

LONGWIRE_BIN names the folder of longwired (default: .build/debug), LONGWIRE_SCHEMATHESIS the virtual environment with
schemathesis (default: .build/schemathesis). Exits with 0 if no answer was a 5xx or outside docs/use/openapi.yaml.
"""

import argparse
import collections
import datetime
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "Tests/Integration/parties"))

import longwire_client  # noqa: E402
from gateway import ADMIN_TOKEN, Gateway  # noqa: E402

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,unsupported_method,allow_header_conformance,missing_required_header,ignored_auth,"
    "envelope"
)
# Two checks are omitted, because the contract is Getui's. `negative_data_rejection`: the errors of Getui's SDKs are accepted, and
# a body that is no JSON is answered 200 with code 1. `positive_data_acceptance`: a device may not exist.
NO_RATES = {
    "tagQueriesPerMinute": 0, "tagQueriesPerDay": 0, "tagChangesPerMinute": 0, "tagChangesPerDay": 0,
    "tagReplacementsPerDay": 0,
}


def read(device, stop):
    """Acks all messages, so that the gateway's live channel is as busy as its vendor queue."""
    while not stop.is_set():
        try:
            device.receive_and_ack(1, timeout=0.5)
        except (OSError, longwire_client.Closed):
            if device.connection is None:
                return
        except Exception:
            return


def fill(gateway):
    """Creates devices, connected and not, an alias, a tag, tasks and messages, whose names requests can use."""
    devices = []
    for number in range(8):
        device = longwire_client.Device("127.0.0.1", gateway.device, gateway.app["appId"])
        fields = {"tokens": [longwire_client.pb.VendorToken(token=f"token-{number}")]} if number % 2 else {}
        device.register(gateway.app["appSecret"], **fields)
        devices.append(device)
    for number in range(1, 9):
        devices[0].connection.send(longwire_client.pb.Upstream(request=number, payload=b"hello"))
        devices[0].receive(longwire_client.pb.UpstreamResult)
    for device in devices[3:]:
        device.close()
    cids = [device.state.cid.hex() for device in devices]
    gateway.api("POST", "user/alias", {"data_list": [{"cid": cid, "alias": "alice"} for cid in cids[:3]]})
    gateway.api("PUT", "user/custom_tag/batch/vip", {"cid": cids[:4]})

    gateway.api("POST", "user/test/cid/add", {"cid_list": [{"cid": cid, "remark": "mine"} for cid in cids[:6]]})

    def store(number, **settings):
        body = {"push_message": {"transmission": "hello"}, "group_name": "news-am", "settings": settings}
        return gateway.api("POST", "push/list/message", {**body, "request_id": f"fill-{number:06d}"})["data"]["taskid"]

    tomorrow = int(time.time() * 1000) + 86_400_000
    lists, timed = [store(number) for number in range(4)], [store(9, schedule_time=tomorrow)]
    timed.append(store(10, schedule_time=tomorrow))
    gateway.api("POST", "push/list/cid", {"taskid": lists[0], "audience": {"cid": cids}})
    singles = [gateway.push(cids[number % 6], "hello", alert="Hello", badge="+1") for number in range(9)]
    # Apps created through the admin API, which does not change those of the file. A deletion needs a disabled app.
    spare, disabled = [f"spare-{number}" for number in range(4)], [f"going-{number}" for number in range(20)]
    for name in spare + disabled:
        gateway.admin_call("POST", "/v1/apps", {"appId": name})
    for name in disabled:
        gateway.admin_call("POST", f"/v1/apps/{name}/disable")
    now = datetime.datetime.now(datetime.timezone.utc)
    world = {
        "appId": gateway.app["appId"], "appKey": gateway.app["appKey"], "masterSecret": gateway.app["masterSecret"],
        "cids": cids[:6], "spareCids": cids[6:], "aliases": ["alice"], "listTasks": lists[:3],
        "tasks": lists[:3] + [message["taskId"] for message in singles[:6]], "timedTasks": timed,
        "tasksOfAll": lists[:1],
        "spareTasks": [lists[3]] + [message["taskId"] for message in singles[6:]],
        "messages": [message["msgId"] for message in singles[:6]],
        "requests": ["fill-000000", "fill-000001"],
        "dates": [(now - datetime.timedelta(days=1)).strftime("%Y-%m-%d")],
        "secrets": {device.state.cid.hex(): device.state.secret.hex() for device in devices},
        "spareApps": spare, "disabledApps": disabled,
        "spareTokens": [gateway.authenticate() for _ in range(3)],
    }
    return world, devices[:3]


# This gateway is in no cluster, so these calls answer 404. Tests/Integration/cases/test_cluster.py tests their success.
IN_A_CLUSTER = {"GET /v1/cluster", "POST /v1/cluster/drain", "POST /v1/cluster/move"}


# This gateway has credentials, so it prints no link. Tests/Integration/cases/test_console.py tests the success.
OF_A_TRIAL = {"POST /v1/sign-in"}
NOT_HERE = IN_A_CLUSTER | OF_A_TRIAL


def judge(answers):
    """Prints the number of answers by code; returns false if a documented call never succeeded, because it was then hardly
    tested."""
    codes, succeeded, seen = collections.Counter(), set(), set()
    for line in answers.read_text(encoding="utf-8").splitlines():
        label, method, status, code = line.split("\t")
        if not label.startswith(method.upper() + " "):
            continue  # a method that the path does not have
        codes[f"{status}/{code}" if code else status] += 1
        seen.add(label)
        if status in ("200", "201") and code in ("", "0"):
            succeeded.add(label)
    print("answers: " + ", ".join(f"{number} × {name}" for name, number in sorted(codes.items())))
    for label in sorted(seen - succeeded - NOT_HERE):
        print(f"never succeeded: {label}")
    return seen and not seen - succeeded - NOT_HERE


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=40, help="requests a call, of each kind")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    environment = pathlib.Path(os.environ.get("LONGWIRE_SCHEMATHESIS") or ROOT / ".build/schemathesis")
    started = time.monotonic()
    with Gateway(limits=NO_RATES, app={"upstream": {}, "events": {}}) as gateway:
        world, connected = fill(gateway)
        stop = threading.Event()
        readers = [threading.Thread(target=read, args=(device, stop), daemon=True) for device in connected]
        for reader in readers:
            reader.start()
        variables = {
            **os.environ, "LONGWIRE_WORLD": json.dumps(world), "LONGWIRE_TOKEN": gateway.authenticate(),
            "LONGWIRE_ADMIN_TOKEN": ADMIN_TOKEN, "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1",
            "SCHEMATHESIS_HOOKS": "hooks", "LONGWIRE_ANSWERS": str(gateway.folder / "answers"),
        }
        public, admin = f"http://127.0.0.1:{gateway.http}", f"http://127.0.0.1:{gateway.admin}"
        codes = []
        words = [
            environment / "bin/st", "--config-file", HERE / "schemathesis.toml", "run", ROOT / "docs/use/openapi.yaml",
            "--checks", CHECKS, "--phases", "examples,coverage,fuzzing", "--seed", str(options.seed),
            "--generation-database", "none", "-n", str(options.examples),
            "--request-timeout", "20", "--continue-on-failure", "--max-failures", "20", "--warnings", "off", "--no-color",
            "--suppress-health-check", "all",
        ]
        def ask(url, paths):
            command = [*map(str, words), "--url", url, "--include-path-regex", paths]
            codes.append(subprocess.run(command, env=variables, cwd=ROOT, stdin=subprocess.DEVNULL).returncode)

        ask(public, "^/(v2/|healthz|readyz)")
        ask(admin, "^/(v1/(?!drain)|metrics|healthz|readyz)")
        command = [str(environment / "bin/python"), str(HERE / "broken.py"), public, admin]
        codes.append(subprocess.run(command, env=variables, cwd=ROOT, stdin=subprocess.DEVNULL).returncode)
        # Last, because a draining gateway is not ready.
        ask(admin, "^/v1/drain")
        codes.append(0 if judge(gateway.folder / "answers") else 1)
        stop.set()
        for reader in readers:
            reader.join()
        code = gateway.stop()
        codes.append(code)
        if code != 0 or "Fatal error" in gateway.log():
            print(f"longwired ended with {code}:\n{gateway.log()[-4000:]}")
    print(f"seed {options.seed}, {time.monotonic() - started:.0f} s: " + ("clean" if not any(codes) else f"failed: {codes}"))
    sys.exit(1 if any(codes) else 0)


main()
