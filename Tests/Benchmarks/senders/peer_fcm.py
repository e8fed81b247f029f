#!/usr/bin/env python3
"""A benchmark of PyPI's FCM clients against nginx in place of FCM. It prints one JSON line with the figures.

    peer_fcm.py --client async-firebase|firebase-admin --account FILE --url URL --certificate FILE [--seconds 10] [--in-flight 100]

The messages are those of `handoff_source.py`. The first second opens connections and is not measured. Both clients run
on uvloop. async-firebase uses HTTP/2 with `--in-flight` requests in flight. firebase-admin sends lists of `--in-flight`
messages with `send_each_async`, because the older `send_each` needs one thread per message.
"""

import argparse
import asyncio
import itertools
import json
import os
import pathlib
import resource
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import handoff_source  # noqa: E402

JOBS = handoff_source.Jobs(None, 10_000, 0)
NOTICE = handoff_source.NOTICE


def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Count:
    """Counts after the first second, until `seconds` later."""

    def __init__(self, seconds):
        self.taken = self.refused = self.measured = 0
        self.began = time.monotonic()
        self.length, self.start, self.end = seconds, None, None

    def note(self, is_taken):
        self.taken, self.refused = self.taken + is_taken, self.refused + (not is_taken)
        now = time.monotonic()
        if self.start is None and now >= self.began + 1:
            self.start = (now, used())
        elif self.start is not None:
            self.measured += is_taken
            if self.end is None and now >= self.start[0] + self.length:
                self.end = (now, used(), self.measured)

    def figures(self, name):
        return {"name": name, "taken": self.taken, "refused": self.refused, "measured": self.end[2],
                "seconds": self.end[0] - self.start[0], "cpuSeconds": self.end[1] - self.start[1]}


def fields(number):
    """Returns token and data of a message."""
    text = handoff_source.identifier(number)[0]
    return JOBS.token("fcm", number % JOBS.tokens), {"_gmid_": f"RASL_1123_0a1b2c3d4e5f60718293a4b5c6d7e8f9:{text}"}


async def async_firebase(options, count):
    import async_firebase
    import async_firebase._credentials
    from async_firebase.base import RequestLimits, RequestTimeout
    from async_firebase.messages import AndroidConfig, Message, Notification

    async_firebase._credentials.TOKEN_URL = options.url + "/token"
    client = async_firebase.AsyncFirebaseClient(
        use_http2=True, request_timeout=RequestTimeout(timeout=30), request_limits=RequestLimits(max_connections=8))
    client.BASE_URL = options.url
    client.creds_from_service_account_file(options.account)
    numbers = itertools.count()

    async def worker():
        while count.end is None:
            token, data = fields(next(numbers))
            message = Message(
                token=token, data=data, notification=Notification(**NOTICE),
                android=AndroidConfig(priority="high", ttl=7_200, restricted_package_name="com.example.app"))
            count.note((await client.send(message)).success)

    await asyncio.gather(*(worker() for _ in range(options.in_flight)))


async def firebase_admin(options, count):
    import firebase_admin
    from firebase_admin import credentials, messaging

    numbers = itertools.count()
    firebase_admin.initialize_app(credentials.Certificate(options.account), {"httpTimeout": 30})
    messaging._MessagingService.FCM_URL = options.url + "/v1/projects/{0}/messages:send"
    while count.end is None:
        messages = []
        for _ in range(options.in_flight):
            token, data = fields(next(numbers))
            messages.append(messaging.Message(
                token=token, data=data, notification=messaging.Notification(**NOTICE),
                android=messaging.AndroidConfig(priority="high", ttl=7_200, restricted_package_name="com.example.app")))
        for answer in (await messaging.send_each_async(messages)).responses:
            count.note(answer.success)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", choices=["async-firebase", "firebase-admin"], required=True)
    parser.add_argument("--account", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--certificate", required=True)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--in-flight", type=int, default=100)
    options = parser.parse_args()
    # Where both HTTP clients look for trusted certificates.
    os.environ.update(SSL_CERT_FILE=options.certificate, REQUESTS_CA_BUNDLE=options.certificate)
    counted = Count(options.seconds)
    import uvloop

    uvloop.run({"async-firebase": async_firebase, "firebase-admin": firebase_admin}[options.client](options, counted))
    print(json.dumps(counted.figures(options.client)))
