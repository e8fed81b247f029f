"""Plays README's tour: its commands in its order at terminals, then its steps in the console.

    python tour.py [--chinese] [--pictures FOLDER] [--readme FOLDER]

LONGWIRE_BIN names the folder of the built programs. The gateway runs on its default ports, in a separate network namespace. On a
machine that allows none, the ports must be free. --pictures saves a picture of each stop in the browser, --readme the pictures
that README shows.
"""

import argparse
import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import subprocess
import sys
import tempfile
import termios
import threading
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE.parent / folder) for folder in ("parties", "rigs")]

import network  # noqa: E402
from browser import Page, browser  # noqa: E402
from gateway import binary, eventually  # noqa: E402

# The page of each language, its section with the ways to start a gateway, and its tour.
PAGES = {
    False: ("README.md", "## Try it", "## A tour"),
    True: ("README.zh-CN.md", "## 试用", "## 上手体验"),
}
README_WIDTH = 1000  # pixels; about what a page of a repository leaves for a picture
CTRL_C = b"\x03"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def blocks(page, heading):
    """Returns the commands of a section, one text per block."""
    section = (ROOT / page).read_text().split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0]
    return section, re.findall(r"```sh\n(.*?)```", section, re.S)


class Terminal:
    """A command as a user starts it: on a terminal, in the folder of the checkout."""

    def __init__(self, folder, command):
        self.control, inner = pty.openpty()
        self.process = subprocess.Popen(
            ["bash", "-c", command], cwd=folder, stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))  # so that Ctrl-C reaches it
        os.close(inner)
        self.shown, self.is_closed = b"", False
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        with contextlib.suppress(OSError):  # the terminal's end, once no process writes to it
            while not self.is_closed:
                if select.select([self.control], [], [], 0.05)[0]:
                    self.shown += os.read(self.control, 65_536)

    @property
    def text(self):
        return ESCAPES.sub("", self.shown.decode(errors="replace")).replace("\r", "")

    def event(self, name):
        """Returns the JSON line with this event once it exists."""
        def look():
            lines = [json.loads(line) for line in self.text.splitlines() if line.startswith("{") and line.endswith("}")]
            return next((line for line in lines if line.get("event") == name), None)
        return eventually(look, f"the event {name}; shown: {self.text}")

    def end(self):
        """Ends it with Ctrl-C, as the page says."""
        os.write(self.control, CTRL_C)
        return self.wait()

    def wait(self):
        code = self.process.wait(30)
        self.reader.join(10)
        self.close()
        return code

    def close(self):
        """Closes it like a terminal window; the kernel signals the command only once no process reads any more."""
        if not self.is_closed:
            self.is_closed = True
            self.reader.join()
            os.close(self.control)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None and not self.is_closed:
            with contextlib.suppress(OSError):
                self.end()


def said(folder, command, codes=(0,)):
    """Runs a command that must end with one of these codes; returns its output."""
    with Terminal(folder, command) as terminal:
        code = terminal.wait()
        assert code in codes, f"{command} ended with {code}: {terminal.text}"
        return terminal.text


def play(folder, is_chinese, pictures, readme):
    page, ways, heading = PAGES[is_chinese]
    assert "make run\n" in blocks(page, ways)[1]
    section, (connect, push, later, settle, back) = blocks(page, heading)
    assert "`longwire-sender`" in section, "the tour names the program that sends to Apple"
    start = last_step("run")
    with contextlib.ExitStack() as open_terminals:
        gateway = open_terminals.enter_context(Terminal(folder, start))
        eventually(lambda: gateway.process.poll() is not None or ready(), "a ready gateway")
        assert gateway.process.poll() is None, f"{start} ended: {gateway.text}"
        assert "WARN" not in gateway.text and "ERROR" not in gateway.text, gateway.text

        device = open_terminals.enter_context(Terminal(folder, connect))
        cid = device.event("registered")["cid"]
        assert "CID=…" in push
        given, push = push.replace("CID=…", f"CID={cid}").split("\n", 1)
        assert said(folder, f"{given}\n{push}")
        message = device.event("message")
        assert message["payload"] == "hello, live" and not message["offline"]
        device.end()

        said(folder, f"{given}\n{later}")
        lease, settle = settle.splitlines()
        job = json.loads(said(folder, lease))["jobs"][0]
        said(folder, settle.replace("JOBID", job["jobId"]).replace("LEASEID", job["leaseId"]))

        connect, trace = back.splitlines()
        device = open_terminals.enter_context(Terminal(folder, connect))
        message = device.event("message")
        assert message["payload"] == "hello, later" and message["offline"] and message["alertedAt"] > 0
        assert '"offline":true' in device.text
        def story():
            text = said(folder, trace.replace("MSGID", message["msgId"]))
            return text if "deliveredOffline" in text or "acked" in text else None
        assert eventually(story, "the message's story")

        secrets = json.loads((folder / "longwire-data/demo.json").read_text())
        address = re.search(r"http://[^`\s]*/console", section).group()
        language = "zh" if is_chinese else "en"
        with browser("zh-CN" if is_chinese else "en-US", height=1180) as driver:
            def picture(name):
                if pictures:
                    driver.save_screenshot(str(pictures / f"tour-{language}-{name}.png"))
                if readme and name == "4-message":
                    illustrate(driver, readme, language)
            visit(driver, address, secrets, cid, message["msgId"], section, picture, lambda own: said(folder, f"CID={own}\n{push}"))
        assert gateway.end() in (0, 130), gateway.text


def last_step(target):
    """Runs the last command of a make target, after all its builds. A make that runs these tests marks its children, which would
    then print more."""
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()[-1]


def ready():
    with contextlib.suppress(OSError):
        return urllib.request.urlopen("http://127.0.0.1:7080/readyz", timeout=2).status == 200


def illustrate(driver, folder, language):
    """Saves the open page as README shows it, by day and by night."""
    page = Page(driver, None)
    times = [step.get_attribute("datetime") for step in page.all(".steps time")]
    assert times == sorted(times), f"README shows the steps in their order: {times}"
    for dark, name in ((True, "dark"), (False, "light")):
        path = folder / f"message-{language}-{name}.png"
        page.prefer(dark)
        page.picture(path, README_WIDTH)
        # A palette of 256 colours is enough for text and takes two fifths of the bytes.
        subprocess.run(["pngquant", "--force", "--strip", "--output", path, "256", path], check=True)


def visit(driver, address, secrets, cid, message, section, picture, push):
    """Runs the console's part: the gateway, the device, the message step by step, and the device page."""
    assert "`adminToken`" in section and "`appSecret`" in section
    page = Page(driver, None)
    driver.get(address)
    page.find(".sign-in")
    picture("1-sign-in")
    page.sign_in(secrets["adminToken"])
    page.find("polyline")
    picture("2-overview")
    app = secrets["appId"]
    page.go(f"#/devices/{app}/{cid}")
    page.find(f"#content table a[href='#/messages/{message}']")
    picture("3-device")
    page.click(f"#content table a[href='#/messages/{message}']")
    page.find(".steps li.good")
    picture("4-message")
    page.click("nav a[href='#/device']")
    title = page.text("h1")
    assert title in section, f"the page's own title, {title}, is the one that README names"
    page.type("main input[type=password]", secrets["appSecret"])
    page.click("main form button.main")
    own = page.find(".facts code").text
    page.find(".facts .badge.good")
    push(own)
    page.shows("hello, live")
    picture("5-a-push-arrives")
    complaints = page.complaints()
    assert complaints == [], complaints


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--chinese", action="store_true")
    parser.add_argument("--pictures", type=pathlib.Path)
    parser.add_argument("--readme", type=pathlib.Path)
    options = parser.parse_args()
    network.inside()
    if os.environ.get(network.INSIDE):
        network.ip("link", "set", "lo", "up")
    for made in filter(None, (options.pictures, options.readme)):
        made.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="longwire-tour-") as name:
        folder = pathlib.Path(name)
        (folder / ".build").mkdir()
        (folder / ".build/release").symlink_to(pathlib.Path(binary("longwired")).resolve().parent)
        play(folder, options.chinese, options.pictures, options.readme)


if __name__ == "__main__":
    main()
