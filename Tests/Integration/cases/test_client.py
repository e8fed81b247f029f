"""The client SDK against a real gateway, as an app uses it: silent pushes, taps before the start, receipts."""

import queue
import subprocess
import threading

import pytest
from gateway import APP, TIMEOUT, eventually
from test_client_package import consumer  # noqa: F401


class Driver:
    """One run of Tests/Integration/parties/client, an app in a process."""

    def __init__(self, program, gateway, state):
        arguments = ["127.0.0.1", str(gateway.device), APP["appId"], APP["appSecret"], str(state)]
        self.process = subprocess.Popen(
            ["stdbuf", "-oL", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.split())

    def say(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")

    def expect(self, word):
        """Returns the rest of the next line, which must begin with this word."""
        line = self.lines.get(timeout=TIMEOUT)
        assert line[0] == word, line
        return line[1:]

    def end(self, *, kill=False):
        """Ends the process; returns the unread output."""
        if kill:
            self.process.kill()
        else:
            self.say("stop")
            self.process.stdin.close()
        self.process.wait(TIMEOUT)
        self.reader.join(TIMEOUT)
        return list(self.lines.queue)


@pytest.fixture
def phone(consumer, gateway, tmp_path):  # noqa: F811
    """Starts the app on one phone; another `launch` starts the next process with the same state."""
    running = []

    def launch():
        running.append(Driver(consumer / "driver", gateway, tmp_path / "state"))
        return running[-1]

    yield launch
    for driver in running:
        if driver.process.poll() is None:
            driver.end(kill=True)


def registered(phone, gateway):
    """Registers a phone and ends its app; returns its cid."""
    app = phone()
    app.say("start")
    cid = app.expect("welcomed")[0]
    assert app.end() == [["stopped"]]
    eventually(lambda: not gateway.view(cid)["connected"])
    return cid


def silent(gateway, cid, payload):
    """Publishes a message whose notification only wakes the app, and acts as the APNs sender."""
    body = gateway.push_body(cid, payload)
    body["push_channel"] = {"ios": {"type": "notify", "aps": {"content-available": 1}}}
    message = gateway.api("POST", "push/single/cid", body)["longwire"]["messages"][0]
    job = eventually(lambda: [job for job in gateway.lease() if job["msgId"] == message["msgId"]])[0]
    assert job["pushType"] == "background" and job["priority"] == 5
    ids = job["body"]["_gmid_"] if isinstance(job.get("body"), dict) else None
    assert gateway.settle(job, "accepted") == "recorded"
    return message, ids or f"{message['taskId']}:{message['msgId']}"


def numbers(gateway, message):
    return gateway.api("GET", f"report/push/task/{message['taskId']}")["data"][message["taskId"]]


@pytest.mark.parametrize("is_dead", [True, False])
def test_a_silent_push_wakes_the_app_and_what_it_fetches_counts_as_received(phone, gateway, is_dead):
    cid = registered(phone, gateway)
    app = None
    if not is_dead:
        app = phone()
        app.say("start")
        app.expect("welcomed")
    message, ids = silent(gateway, cid, "news")
    assert numbers(gateway, message)["total"]["receive_num"] == 0
    if is_dead:
        app = phone()
        app.say("start")
        app.expect("welcomed")
    # In the background no message is delivered before the app fetches.
    app.say("fetch", ids)
    assert app.expect("message") == [message["msgId"], "news"]
    assert app.expect("fetched") == ["1", "complete"]
    gateway.ends_as(message["msgId"], "deliveredOffline")
    assert app.end() == [["stopped"]]
    counts = numbers(gateway, message)
    assert (counts["gt"]["receive_num"], counts["total"]["receive_num"]) == (1, 1)
    assert counts["ios"]["target_num"] == 1, "Apple took the push that woke the app"


def test_a_fetch_brings_what_waits_and_says_when_there_is_nothing(phone, gateway):
    cid = registered(phone, gateway)
    first, ids = silent(gateway, cid, "one")
    second = gateway.push(cid, "two")
    app = phone()
    app.say("start")
    app.expect("welcomed")
    app.say("fetch", ids)
    assert [app.expect("message")[0] for _ in range(2)] == [first["msgId"], second["msgId"]]
    assert app.expect("fetched") == ["2", "complete"]
    app.say("fetch", ids)
    assert app.expect("fetched") == ["0", "complete"]


def test_a_tap_before_the_start_opens_the_message_once(phone, gateway):
    cid = registered(phone, gateway)
    message = gateway.push(cid, "page", alert="A")
    job = eventually(lambda: [job for job in gateway.lease() if job["msgId"] == message["msgId"]])[0]
    assert gateway.settle(job, "accepted") == "recorded"
    later = gateway.push(cid, "later")
    app = phone()
    app.say("tap", f"{message['taskId']}:{message['msgId']}")
    assert app.expect("tapped") == [message["msgId"]]
    app.say("start")
    app.expect("welcomed")
    gateway.ends_as(message["msgId"], "opened")
    app.say("state", "foreground")
    # The first delivered message is the next one: the tapped one is not delivered again.
    assert app.expect("message") == [later["msgId"], "later"]
    assert app.end() == [["stopped"]]
    counts = numbers(gateway, message)
    assert (counts["ios"]["click_num"], counts["ios"]["display_num"], counts["total"]["receive_num"]) == (1, 1, 1)


def test_a_tap_before_the_start_is_kept_when_the_app_dies_before_its_session(phone, gateway):
    cid = registered(phone, gateway)
    message = gateway.push(cid, "page", alert="A")
    app = phone()
    app.say("tap", f"{message['taskId']}:{message['msgId']}")
    app.expect("tapped")
    app.say("start")
    app.expect("welcomed")
    app.end(kill=True)
    again = phone()
    again.say("start")
    again.expect("welcomed")
    gateway.ends_as(message["msgId"], "opened")
    again.say("state", "foreground")
    probe = gateway.push(cid, "probe")
    assert again.expect("message") == [probe["msgId"], "probe"]


def test_an_extension_reports_with_the_apps_state_while_the_app_is_dead(phone, gateway):
    cid = registered(phone, gateway)
    message = gateway.push(cid, "x", alert="A")
    job = eventually(lambda: [job for job in gateway.lease() if job["msgId"] == message["msgId"]])[0]
    assert gateway.settle(job, "accepted") == "recorded"
    extension = phone()
    for result in ("recorded", "repeated"):
        extension.say("receipt", f"http://127.0.0.1:{gateway.http}", message["msgId"])
        assert extension.expect("receipt") == [result]
    assert gateway.view(cid)["connected"] is False
    assert numbers(gateway, message)["ios"]["display_num"] == 1
    assert "shown" in gateway.steps(message["msgId"])
