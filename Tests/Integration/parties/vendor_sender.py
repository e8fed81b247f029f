"""`longwire-sender` as a process beside a stub of the gateway and fake vendors."""

import http.client
import json
import pathlib
import re
import secrets
import signal
import subprocess
import tempfile
import threading
import typing

import handoff_stub
from certificates import authority
from gateway import binary, free_ports
from vendors import (
    FakeFCM, FakeHarmony, FakeHonor, FakeHuawei, FakeMeizu, FakeOPPO, FakePushService, FakeVivo, FakeXiaomi, credentials)


class BrowserService(FakePushService):
    """A push service whose name has two labels, as the sender requires of endpoints."""

    def __init__(self, **options):
        super().__init__(**options)
        self._folder = tempfile.TemporaryDirectory(prefix="longwire-push-")
        root = authority(pathlib.Path(self._folder.name), "push")
        own = root.sign("service", names="DNS:push.localhost,DNS:*.push.localhost")
        self._context.load_cert_chain(own.file, own.key)
        self.certificate = root.file
        self.host = f"push.localhost:{self.port}"
        self.url = f"https://{self.host}"

    def device(self) -> str:
        return self.subscribe().device_token

    def stop(self):
        super().stop()
        self._folder.cleanup()


FAKES = {
    "fcm": FakeFCM, "hms": FakeHuawei, "harmony": FakeHarmony, "honor": FakeHonor, "xiaomi": FakeXiaomi, "oppo": FakeOPPO,
    "vivo": FakeVivo, "meizu": FakeMeizu, "webPush": BrowserService,
}


def credential(channel: str, fake: typing.Any, folder: pathlib.Path) -> dict[str, typing.Any]:
    """Returns the fields of a credential that the fake knows, with secrets in files of `folder`."""

    def secret(text: str) -> str:
        path = folder / secrets.token_hex(8)
        path.touch(0o600)
        path.write_text(text + "\n")
        return str(path)

    match channel:
        case "fcm":
            return {"serviceAccountFile": secret(json.dumps(fake.account.json())), "baseURL": fake.url}
        case "hms":
            return {"appId": fake.app.id, "appSecretFile": secret(fake.app.secret), "baseURL": fake.url,
                    "tokenURL": f"{fake.url}/oauth2/v3/token"}
        case "harmony":
            return {"serviceAccountFile": secret(json.dumps(fake.account.json())), "baseURL": fake.url}
        case "honor":
            return {"appId": fake.app.id, "clientId": fake.client_id, "clientSecretFile": secret(fake.app.secret),
                    "baseURL": fake.url, "tokenURL": f"{fake.url}/auth/token"}
        case "xiaomi":
            return {"appSecretFile": secret(fake.app.secret), "packageName": fake.app.package, "channelId": "130",
                    "baseURL": fake.url}
        case "oppo":
            return {"appKey": fake.app.key, "masterSecretFile": secret(fake.app.secret), "baseURL": fake.url}
        case "vivo":
            return {"appId": fake.app.id, "appKey": fake.app.key, "appSecretFile": secret(fake.app.secret), "baseURL": fake.url}
        case "meizu":
            return {"appId": fake.app.id, "appSecretFile": secret(fake.app.secret), "baseURL": fake.url}
        case "webPush":
            keys = credentials.VapidKeys()
            return {"privateKeyFile": secret(keys.pem()), "subject": "mailto:ops@example.com",
                    "allowedHosts": f"push.localhost:{fake.port}"}
    raise ValueError(channel)


class VendorSender:
    """`with VendorSender(stub, {"fcm": fake}) as sender:` runs the program until the end of the block.

    `vendors` has further settings by channel. `log` collects the log's lines.
    """

    def __init__(self, stub: handoff_stub.HandoffStub, fakes: dict[str, typing.Any], vendors=None, gateway=None, **sections):
        self._folder = tempfile.TemporaryDirectory(prefix="longwire-sender-")
        self.folder = pathlib.Path(self._folder.name)
        self.admin, = free_ports(1)
        self.stub, self.fakes = stub, fakes
        (self.folder / "token").touch(0o600)
        (self.folder / "token").write_text(handoff_stub.TOKEN)
        self.sections = {
            "gateway": {"url": stub.url, "tokenFile": "token", "waitSeconds": 2, **(gateway or {})},
            "credentials": [
                {"name": f"our {channel}", "vendor": channel, **credential(channel, fake, self.folder)}
                for channel, fake in fakes.items()
            ],
            "vendors": {
                channel: {"authoritiesFile": str(fake.certificate), **(vendors or {}).get(channel, {})}
                for channel, fake in fakes.items()
            },
            "admin": {"listen": f"127.0.0.1:{self.admin}"}, "stopSeconds": 5, **sections,
        }
        self.wrapper: list[str] = []  # the words before the program's name
        self.log: list[dict[str, typing.Any]] = []
        self.process: subprocess.Popen | None = None

    @property
    def file(self) -> pathlib.Path:
        path = self.folder / "sender.json5"
        path.write_text(json.dumps(self.sections))
        return path

    def __enter__(self) -> typing.Self:
        self.start()
        return self

    def __exit__(self, *_) -> None:
        if self.process.poll() is None:
            code = self.stop()
            assert code == 0, f"exit code {code}"
        self._folder.cleanup()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [*self.wrapper, binary("longwire-sender"), "--config", str(self.file)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        reader = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)
        reader.start()
        self._reader = reader

    def _read(self, pipe) -> None:
        with pipe:
            for line in pipe:
                try:
                    one = json.loads(line)
                except ValueError:
                    one = {"event": "text", "detail": line.decode(errors="replace")}
                with self.stub._changed:
                    self.log.append(one)
                    self.stub._changed.notify_all()

    def logged(self, event: str, text: str = "") -> dict[str, typing.Any]:
        """Waits for a line of the log."""
        return self.stub.wait(lambda: next(
            (one for one in self.log if one["event"] == event and text in one["detail"]), None))

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self._ended()

    def kill(self) -> None:
        self.process.kill()
        self._ended()

    def _ended(self) -> int:
        code = self.process.wait(60)
        self._reader.join(10)
        return code

    def run(self, *words: str) -> subprocess.CompletedProcess:
        """Runs another command of the program with this configuration."""
        return subprocess.run(
            [binary("longwire-sender"), *words, "--config", str(self.file)], capture_output=True, text=True, timeout=60)

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metric(self, name: str, **labels: str) -> float:
        """Returns the sum of a metric's samples with these labels."""
        total = 0.0
        for line in self.get("/metrics")[1].splitlines():
            found = re.fullmatch(rf"longwire_sender_{name}(?:\{{(.*)\}})? (\S+)", line)
            if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
                total += float(found[2])
        return total

    def lanes(self, channel: str) -> list[dict[str, typing.Any]]:
        return [one for one in json.loads(self.get("/status")[1])["lanes"] if one["channel"] == channel]
