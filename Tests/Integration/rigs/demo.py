"""The whole story of Longwire in under a minute: a real gateway in a temporary folder, real devices, real crashes.

    make demo        or        python Tests/Integration/rigs/demo.py

Each step describes its event and checks it. The first deviation ends the demo with exit code 1.
"""

import json
import os
import pathlib
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / folder) for folder in ("parties", "rigs")]

from apple import FakeApple, Sender  # noqa: E402
from gateway import HANDOFF_TOKEN, Gateway, binary, eventually  # noqa: E402

TOKEN = "c0ffee" * 10 + "beef"
ANDROID_TOKEN = "xiaomi-registration-id"
DEAD_TOKEN = "dead" * 16  # the fake Apple reports it as unregistered


def say(text):
    print(text, flush=True)


def check(condition, text, seen=""):
    """Prints the expectation, and ends the demo if it does not hold."""
    if not condition:
        raise AssertionError(f"{text}; instead: {seen}")
    say(f"    ✓ {text}")


class Phone:
    """One run of `longwire connect` as a device."""

    def __init__(self, gateway, *arguments, token=TOKEN):
        state = gateway.folder / f"{token[:4]}.state"
        words = [binary("longwire"), "connect", "--host", "127.0.0.1", "--port", str(gateway.device), "--token", token]
        words += ["--app", gateway.app["appId"], "--app-secret", gateway.app["appSecret"], "--state-file", str(state)]
        self.process = subprocess.Popen([*words, *arguments], stdout=subprocess.PIPE, text=True)
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def all(self, event):
        return [line for line in list(self.lines) if line["event"] == event]

    def wait_for(self, event, count=1):
        return eventually(lambda: self.all(event)[:count] if len(self.all(event)) >= count else None, event)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.reader.join(5)
        self.process.stdout.close()


class Story:
    def __init__(self, gateway):
        self.gateway, self.phones = gateway, []
        self.environment = {
            **os.environ,
            "LONGWIRE_APP_ID": gateway.app["appId"],
            "LONGWIRE_APP_KEY": gateway.app["appKey"],
            "LONGWIRE_MASTER_SECRET": gateway.app["masterSecret"],
            "LONGWIRE_HTTP": f"127.0.0.1:{gateway.http}",
            "LONGWIRE_ADMIN": f"127.0.0.1:{gateway.admin}",
            "LONGWIRE_ADMIN_TOKEN": HANDOFF_TOKEN,
        }

    def phone(self, *arguments, **options):
        self.phones.append(Phone(self.gateway, *arguments, **options))
        return self.phones[-1]

    def longwire(self, *words):
        done = subprocess.run(
            [binary("longwire"), *words], env=self.environment, capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise AssertionError(f"longwire {words[0]} ended with {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def push(self, text, cid=None):
        words = ["push", "--json", "--cid", cid or self.cid, "--payload", text, "--alert-title", text, "--badge", "+1"]
        return self.longwire(*words)["longwire"]["messages"][0]

    def is_away(self):
        return not self.gateway.view(self.cid)["connected"]

    def tell(self):
        gateway = self.gateway

        say("\n1. A phone registers and stays connected.")
        phone = self.phone()
        self.cid = phone.wait_for("registered")[0]["cid"]
        welcome = phone.wait_for("welcome")[0]
        check(len(self.cid) == 32, f"it is device {self.cid}, heartbeat {welcome['heartbeatSeconds']} s")

        say("\n2. The business server publishes while the phone is online.")
        live = self.push("Your parcel is on its way")
        check(live["channel"] == "live", "the message is on disk and sent over the long connection at once", live)
        message = phone.wait_for("message")[0]
        check(message["msgId"] == live["msgId"], f"the phone has it: “{message['payload']}”", message)
        check(message["offline"] is False, "it is not flagged offline", message)
        trace = gateway.ends_as(live["msgId"], "delivered")
        check(True, "it was acked: " + " → ".join(step["event"] for step in trace["steps"]))

        say("\n3. The phone dies (SIGKILL: no goodbye). The server publishes three more.")
        phone.kill()
        eventually(self.is_away)
        away = [self.push(text) for text in ("At the depot", "In the van", "At your door")]
        check({one["channel"] for one in away} == {"queued"}, "all three are queued on disk", away)
        check({one["fallback"] for one in away} == {"due"}, "and are due for APNs at once", away)

        say("\n4. A sender service leases the handoff jobs and tells the phone through APNs.")
        jobs = self.longwire("handoff", "lease", "--max", "10", "--wait-seconds", "10")["jobs"]
        check([job["msgId"] for job in jobs] == [one["msgId"] for one in away], "it gets the three jobs, in order", jobs)
        badges = [job["body"]["aps"]["badge"] for job in jobs]
        check(badges == [2, 3, 4] or badges == [1, 2, 3], f"each with its complete APNs body; badges {badges}", jobs)
        check(all(job["deviceToken"] == TOKEN for job in jobs), "and with the phone's current token", jobs)
        for job in jobs:
            words = ["--job", job["jobId"], "--lease", job["leaseId"], "--outcome", "accepted"]
            verdict = self.longwire("handoff", "settle", *words)["results"][0]["verdict"]
            check(verdict == "recorded", f"“{job['body']['aps']['alert']['title']}”: accepted by the vendor", verdict)

        say("\n5. The user taps the second notification; the app starts from it and connects.")
        phone = self.phone("--opened", away[1]["msgId"])
        back = phone.wait_for("message", 2)
        check([one["payload"] for one in back] == ["At the depot", "At your door"], "the other two arrive, in order", back)
        check(all(one["offline"] and one["alertedAt"] > 0 for one in back), "flagged: the user was alerted already", back)
        gateway.ends_as(away[1]["msgId"], "opened")
        check(True, "the tapped one ended as opened and is not delivered again")
        for one in (away[0], away[2]):
            gateway.ends_as(one["msgId"], "deliveredOffline")
        check(True, "the others ended as deliveredOffline")
        phone.kill()
        eventually(self.is_away)

        say("\n6. Ten messages are accepted for the absent phone; then the gateway itself dies (kill -9).")
        texts = [f"Message {number}" for number in range(1, 11)]
        kept = [gateway.push(self.cid, text) for text in texts]
        gateway.kill()
        say("    · the gateway is dead; a new one starts on the same folder")
        begin = time.monotonic()
        gateway.start()
        say(f"    · ready after {time.monotonic() - begin:.2f} s")
        check(gateway.view(self.cid)["queue"]["messages"] == 10, "all ten are still queued", gateway.view(self.cid))

        say("\n7. The phone returns.")
        phone = self.phone()
        got = phone.wait_for("message", 10)
        check([one["payload"] for one in got] == texts, "it gets all ten, in order, each once", got)
        check(all(one["offline"] for one in got), "each flagged offline", got)
        for one in kept:
            gateway.ends_as(one["msgId"], "deliveredOffline")
        check(True, "all ten ended as deliveredOffline")

        say("\n8. kill -9 again, with the phone connected; it reconnects by itself.")
        gateway.kill()
        gateway.start()
        phone.wait_for("welcome", 2)
        after = self.push("Still here")
        last = eventually(lambda: phone.all("message")[10:], "the message after the crash")
        check([one["payload"] for one in last] == ["Still here"], "a new message arrives; nothing old comes again", last)
        check(last[0]["sequence"] > got[-1]["sequence"], "and no sequence number was used twice", last)
        gateway.ends_as(after["msgId"], "delivered")

        say("\n9. longwire-sender takes over the handoff, towards a fake Apple. The phone is away again.")
        phone.kill()
        eventually(self.is_away)
        with FakeApple() as apple, Sender(gateway, apple):
            self.apple(apple)

        say("\n10. The same person has an Android phone. One call reaches both; the first phone that shows it ends it.")
        self.both_phones()

        say("\n11. The gateway is asked to stop (SIGTERM).")
        phone = self.phone()
        phone.wait_for("welcome")
        code = gateway.stop()
        closed = phone.wait_for("closed")[0]
        check(closed["code"] == 200, "it told the phone to come back later", closed)
        check(code == 0, "and ended cleanly", code)

    def both_phones(self):
        """Sends one message to an iPhone and an Android phone of one alias, with `first_ack_wins`."""
        gateway = self.gateway
        android = self.phone("--channel", "xiaomi", token=ANDROID_TOKEN)
        cid = android.wait_for("registered")[0]["cid"]
        android.wait_for("welcome")
        android.kill()
        eventually(lambda: not gateway.view(cid)["connected"])
        pairs = [{"cid": one, "alias": "lin"} for one in (self.cid, cid)]
        gateway.api("POST", "user/alias", {"data_list": pairs})
        notification = {"title": "Dinner?", "body": "At eight", "click_type": "startapp"}
        answer = gateway.api("POST", "push/single/alias", {
            "request_id": "demo-both-phones", "audience": {"alias": ["lin"]}, "settings": {"first_ack_wins": True},
            "push_message": {"transmission": "Dinner?"},
            "push_channel": {
                "ios": {"aps": {"alert": {"title": "Dinner?", "body": "At eight"}}},
                "android": {"ups": {"notification": notification}}},
        })["longwire"]["messages"]
        vendors = {one["cid"]: one["vendor"] for one in answer}
        check(vendors == {self.cid: "apns", cid: "xiaomi"}, "the iPhone is due at APNs, the other one at Xiaomi", answer)
        lease = {"channel": "xiaomi", "max": 1, "waitSeconds": 5}
        job, = gateway.admin_call("POST", "/v1/handoff/lease", lease, token=HANDOFF_TOKEN)["jobs"]
        check(job["body"]["notification"] == notification, "Xiaomi's job has the Android notification", job)
        check(job["deviceToken"] == ANDROID_TOKEN, "and the Android phone's token", job)
        phone = self.phone()
        phone.wait_for("message")
        ids = {one["cid"]: one["msgId"] for one in answer}
        gateway.ends_as(ids[self.cid], "deliveredOffline")
        gateway.ends_as(ids[cid], "revoked")
        check(True, "the iPhone came first: the Android phone's message ended as revoked")
        phone.kill()
        eventually(self.is_away)

    def apple(self, apple):
        """Runs the second channel end to end."""
        gateway = self.gateway
        begin = time.monotonic()
        away = self.push("Your taxi is here")
        shown = eventually(lambda: apple.phones().get(TOKEN))["shown"][0]
        took = time.monotonic() - begin
        check(shown["title"] == "Your taxi is here", f"its lock screen shows it after {took:.2f} s", shown)
        tap = apple.tap(TOKEN, shown["id"])
        check(away["msgId"] in tap["userInfo"]["_gmid_"], "the user taps it, and the app gets the msgId", tap)
        phone = self.phone("--opened", away["msgId"])
        gateway.ends_as(away["msgId"], "opened")
        check(gateway.view(self.cid)["queue"]["messages"] == 0, "the tap removed it from the queue", gateway.view(self.cid))
        phone.kill()
        second = self.phone(token=DEAD_TOKEN)
        cid = second.wait_for("registered")[0]["cid"]
        second.kill()
        eventually(lambda: not gateway.view(cid)["connected"])
        lost = self.push("Nobody reads this", cid)

        def refusal():
            steps = gateway.trace(lost["msgId"])["steps"]
            return next((step for step in steps if "Unregistered" in str(step)), None)

        step = eventually(refusal)
        check(True, f"a second device's token is gone: its trace says {step['event']}, {step['detail']}")
        token = gateway.view(cid)["tokens"][0]
        check("quarantin" in str(token), "and the token is in quarantine", token)


def main():
    begin = time.monotonic()
    say("Longwire, the whole story. A gateway starts in a temporary folder.")
    story = None
    try:
        with Gateway() as gateway:
            story = Story(gateway)
            try:
                story.tell()
            finally:
                for phone in story.phones:
                    if phone.process.poll() is None:
                        phone.kill()
    except (Exception, KeyboardInterrupt) as error:  # any error is a deviation
        say(f"    ✗ {type(error).__name__}: {error}")
        return 1
    say(f"\nAll of it as promised, in {time.monotonic() - begin:.1f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
