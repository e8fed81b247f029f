"""A machine whose clock was wrong at the gateway's start, and is corrected."""

import glob
import json
import os
import re
import subprocess

import pytest
from gateway import ADMIN_TOKEN, Gateway, binary, eventually

LIBRARY = next(iter(glob.glob("/usr/lib/*/faketime/libfaketime.so.1")), None)
STEP = 1_800


class Shifted(Gateway):
    """A gateway whose wall clock follows the file `clock`; its monotonic clocks are correct."""

    def set_clock(self, seconds):
        (self.folder / "clock").write_text(f"{seconds:+d}\n")

    def spawn(self, *arguments, **options):
        environment = {
            **os.environ, "SWIFT_BACKTRACE": "enable=no", "LD_PRELOAD": LIBRARY, "FAKETIME_NO_CACHE": "1",
            "FAKETIME_TIMESTAMP_FILE": str(self.folder / "clock"), "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1"}
        # libfaketime changes the environment of the first program that loads it, after which Swift loses its arguments.
        words = ["sh", "-c", 'exec "$0" "$@"', binary("longwired"), "--config", str(self.config), *arguments]
        options = {"stdout": self._log, "stderr": subprocess.STDOUT, **options}
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, env=environment, cwd=self.folder, **options)


@pytest.mark.skipif(not LIBRARY, reason="needs Debian's faketime")
def test_a_step_of_the_clock_blocks_no_authentication_and_is_told():
    gateway = Shifted()
    gateway.set_clock(-STEP)
    with gateway:
        def readiness():
            return gateway.call("GET", "/readyz", port=gateway.admin)

        assert "reason" not in readiness()
        gateway.set_clock(0)
        told = eventually(lambda: readiness() if "reason" in readiness() else None, "the step in /readyz")
        assert told["status"] == "ready" and "s behind the machine's clock" in told["reason"]
        assert (STEP - 60) * 1_000 < told["clockOffsetMilliseconds"] <= STEP * 1_000 + 100
        gateway.authenticate()
        words = [binary("longwire"), "doctor", "--json", "--admin", f"127.0.0.1:{gateway.admin}", "--admin-token", ADMIN_TOKEN]

        def doctor():
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
            return {one["what"]: one for one in json.loads(done.stdout)["findings"]}

        found = eventually(lambda: doctor() if "clockDiffers" in doctor() else None, "the finding", 30)
        assert re.search(r" 1[78]\d\d\.\d+ s off", found["clock"]["found"]), found
        # The gateway follows by itself, so it is advice; only a step that it refuses is a problem.
        assert found["clockDiffers"]["verdict"] == "advice" and "restart" in found["clockDiffers"]["advice"], found
        assert re.search(r"^longwire_clock_offset_seconds 1[78]\d\d", gateway.metrics(), re.MULTILINE)
        # The remedy in its log.
        gateway.stop()
        gateway.start()
        assert "reason" not in readiness()
        gateway.authenticate()
