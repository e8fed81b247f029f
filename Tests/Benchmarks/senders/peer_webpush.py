#!/usr/bin/env python3
"""pywebpush with nginx as the push service; prints one JSON line with the figures.

    peer_webpush.py --key FILE --push-service URL --certificate FILE [--seconds 10] [--in-flight 8]

The messages are those of `handoff_source.py`. The first second opens connections and is not measured. pywebpush has a thread for
each message in flight, with one session of `requests` for all; each call encrypts the content and signs a VAPID token, as its
documentation shows.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import handoff_source  # noqa: E402
from peer_fcm import Count, fields  # noqa: E402


def main(options):
    import pywebpush
    import requests
    from py_vapid import Vapid

    vapid = Vapid.from_file(options.key)
    session = requests.Session()
    session.mount("https://", requests.adapters.HTTPAdapter(pool_connections=1, pool_maxsize=options.in_flight))
    jobs = handoff_source.Jobs(None, 10_000, 0, options.push_service)
    count, lock, number = Count(options.seconds), threading.Lock(), iter(range(1 << 40))

    def worker():
        while count.end is None:
            with lock:
                one = next(number)
            endpoint, _, keys = jobs.token("webPush", one % jobs.tokens).partition("#")
            point, secret = keys.split(".")
            content = {**fields(one)[1], "notification": handoff_source.NOTICE}
            answer = pywebpush.webpush(
                {"endpoint": endpoint, "keys": {"p256dh": point, "auth": secret}}, json.dumps(content), vapid_private_key=vapid,
                vapid_claims={"sub": "mailto:bench@example.com"}, ttl=7_200, headers={"Urgency": "high"}, timeout=30,
                requests_session=session)
            with lock:
                count.note(answer.status_code == 201)

    with concurrent.futures.ThreadPoolExecutor(options.in_flight) as pool:
        for one in [pool.submit(worker) for _ in range(options.in_flight)]:
            one.result()
    return count.figures("pywebpush")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--key", required=True)
    parser.add_argument("--push-service", required=True)
    parser.add_argument("--certificate", required=True)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--in-flight", type=int, default=8)
    options = parser.parse_args()
    os.environ["REQUESTS_CA_BUNDLE"] = options.certificate
    print(json.dumps(main(options)))
