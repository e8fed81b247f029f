"""Content that Apple refuses is refused at the call; proxies, repeated hook calls, old certificates, and access to the fake."""

import base64
import http.client
import json
import os
import socket
import subprocess
import threading

import pytest
from apple import Sender
from gateway import Refused, binary, eventually, free_ports
from longwire_client import Sender as NativeSender
from test_apns import HOOK_SECRET, apple, away  # noqa: F401


def push(gateway, cid, ios):
    body = gateway.push_body(cid, "x", strategy=2)
    body["push_channel"] = {"ios": ios}
    return gateway.api("POST", "push/single/cid", body)


class ConnectProxy:
    """A proxy for CONNECT, with credentials if `user` is given; `asked` has each target and its answer."""

    def __init__(self, user=None):
        self.proof = user and "Basic " + base64.b64encode(user.encode()).decode()
        self.asked, self._open = [], []

    def __enter__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._open:
            one.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        try:
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(4_096)
            lines = head.decode().split("\r\n")
            target = lines[0].split(" ")[1]
            fields = dict(line.split(": ", 1) for line in lines[1:] if line)
            if self.proof and fields.get("Proxy-Authorization") != self.proof:
                self.asked.append((target, 407))
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                client.close()
                return
            host, port = target.rsplit(":", 1)
            server = socket.create_connection((host, int(port)))
            self._open.append(server)
            self.asked.append((target, 200))
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            threading.Thread(target=self._pass_on, args=(server, client), daemon=True).start()
            self._pass_on(client, server)
        except OSError:
            client.close()

    @staticmethod
    def _pass_on(one, other):
        try:
            while data := one.recv(65_536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def test_what_the_call_accepts_reaches_the_phone_and_the_rest_is_refused_with_its_reason(own_gateway, away, apple):
    gateway = own_gateway()
    device = away(gateway)[0]
    activity = {"type": "liveactivity", "laId": "ride"}
    silent = {"content-available": "1", "sound": "com.gexin.ios.silence", "alert": {"title": "", "body": ""}}
    with Sender(gateway, apple):
        accepted = push(gateway, device.cid, {"aps": silent})["longwire"]["messages"][0]["msgId"]
        gateway.ends_as(accepted, "handedOff")
        request = apple.requests()[0]
        assert (request["pushType"], request["body"]["aps"]) == ("background", {"content-available": 1})
        for ios, reason in (
            ({"aps": {"alert": "a"}, "apns-collapse-id": "订单7"}, "apns-collapse-id is invalid"),
            ({"aps": {"alert": "a"}, "apns-collapse-id": "a\r\nb"}, "apns-collapse-id is invalid"),
            ({"aps": {"alert": "a", "badge": "+1"}}, "aps.badge is invalid"),
            ({**activity, "aps": {"event": "update", "timestamp": 1}}, "carry aps.content-state"),
            ({**activity, "aps": {"event": "update", "content-state": {}}}, "aps.timestamp"),
        ):
            with pytest.raises(Refused) as refusal:
                push(gateway, device.cid, ios)
            assert refusal.value.body["code"] == 20001 and reason in refusal.value.body["msg"]
        native = NativeSender("127.0.0.1", gateway.senders, gateway.app["appId"], gateway.app["masterSecret"])
        try:
            fields = {"cid": device.state.cid, "payload": b"x"}
            refused, taken = native.publish([
                {**fields, "apns": json.dumps({"aps": {"alert": "a"}, "apns-collapse-id": "é"}).encode()},
                {**fields, "strategy": 2, "apns": json.dumps({"aps": {"content-available": True, "sound": ""}}).encode()},
            ])
            assert refused.code == 64 and "apns-collapse-id is invalid" in refused.reason
            assert taken.code == 0
        finally:
            native.close()
        eventually(lambda: len(apple.requests()) == 2)
        assert apple.requests()[1]["body"]["aps"] == {"content-available": 1}


def test_a_call_of_the_hook_whose_answer_was_lost_is_not_sent_again(own_gateway, away, apple):
    port = free_ports(1)[0]
    gateway = own_gateway(hook={"url": f"http://127.0.0.1:{port}/", "secret": HOOK_SECRET})
    device = away(gateway)[0]
    calls = []

    def serve(listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client, socket.create_connection(("127.0.0.1", sender.hook)) as server:
                data = b""
                while b"\r\n\r\n" not in data:
                    data += client.recv(65_536)
                head, body = data.split(b"\r\n\r\n", 1)
                fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
                while len(body) < int(fields[b"content-length"]):
                    body += client.recv(65_536)
                server.sendall(head + b"\r\n\r\n" + body)
                answer = server.recv(65_536)
                calls.append((fields[b"webhook-id"], answer.split(b" ")[1]))
                # The first answer never arrives.
                if len(calls) > 1:
                    client.sendall(answer)

    sender = Sender(gateway, apple, hook=HOOK_SECRET)
    with socket.create_server(("127.0.0.1", port)) as listener, sender:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        message = gateway.push(device.cid, "x", strategy=2, alert="A")["msgId"]
        gateway.ends_as(message, "handedOff")
        eventually(lambda: len(calls) == 2, timeout=30)
        assert calls[0] == calls[1] and calls[0][1] == b"202"
        eventually(lambda: sender.metric("hook_calls_repeated_total") == 1)
        assert len(apple.requests()) == 1 and sender.metric("jobs_taken_total") == 1
        listener.shutdown(socket.SHUT_RDWR)


def test_a_proxy_leads_to_apple_and_its_refusal_is_named(own_gateway, away, apple):
    gateway = own_gateway()
    device = away(gateway)[0]
    with ConnectProxy(user="longwire:pass word") as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        sender = Sender(gateway, apple, apple_section={"proxy": {"url": url, "user": "longwire", "password": "wrong"}})
        with sender:
            message = gateway.push(device.cid, "x", strategy=2, alert="A")["msgId"]
            eventually(lambda: "asks for credentials, or for other ones (407)" in sender.log())
            assert f"through the proxy 127.0.0.1:{proxy.port}" in sender.log() and "wrong" not in sender.log()
            assert gateway.trace(message)["state"] == "pending"
            words = [binary("longwire-sender"), "doctor", "--config", str(sender.config), "--topic", "com.example.demo"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 1 and "(407)" in done.stdout
            sender.stop()
        assert not apple.requests()
    with ConnectProxy(user="longwire:secret") as proxy:
        (apple.folder / "proxy-password").write_text("secret\n")
        (apple.folder / "proxy-password").chmod(0o600)
        section = {
            "url": f"http://127.0.0.1:{proxy.port}", "user": "longwire",
            "passwordFile": str(apple.folder / "proxy-password"),
        }
        with Sender(gateway, apple, apple_section={"proxy": section}):
            gateway.ends_as(message, "handedOff")
        assert (f"localhost:{apple.production}", 200) in proxy.asked


@pytest.mark.parametrize("exception, is_asked", [("", True), ("localhost", False), ("example.com,*", False)])
def test_the_environments_proxy_counts_unless_the_configuration_says_none(own_gateway, away, apple, exception, is_asked):
    gateway = own_gateway()
    device = away(gateway)[0]
    with ConnectProxy() as proxy:
        sender = Sender(gateway, apple)
        sender.words = ["env", f"HTTPS_PROXY=http://127.0.0.1:{proxy.port}", f"NO_PROXY={exception}"]
        with sender:
            message = gateway.push(device.cid, "x", strategy=2, alert="A")["msgId"]
            gateway.ends_as(message, "handedOff")
        assert bool(proxy.asked) == is_asked
        if is_asked:
            sender = Sender(gateway, apple, apple_section={"proxy": {"url": "none"}})
            sender.words = ["env", "HTTPS_PROXY=socks5://127.0.0.1:1"]
            with sender:
                message = gateway.push(device.cid, "y", strategy=2, alert="A")["msgId"]
                gateway.ends_as(message, "handedOff")
            assert len(proxy.asked) == 1


def test_a_proxy_that_cannot_be_used_ends_the_start(own_gateway, apple):
    with Sender(own_gateway(), apple) as sender:
        def check(variable="", **proxy):
            sender.sections["apple"].pop("proxy", None)
            if proxy:
                sender.sections["apple"]["proxy"] = proxy
            sender.config.write_text(json.dumps(sender.sections))
            done = subprocess.run(
                [binary("longwire-sender"), "--config", str(sender.config), "--check"], capture_output=True, text=True,
                timeout=60, check=False, env={**os.environ, "HTTPS_PROXY": variable})
            assert done.returncode == 78, done.stdout
            return done.stderr

        for url in ("https://proxy:1", "socks5://proxy:1", "http://a:b@proxy:1", "http://proxy:0", "http://proxy/x"):
            assert "apple.proxy.url" in check(url=url)
        assert "apple.proxy.user" in check(url="http://proxy:3128", password="alone")
        assert "HTTPS_PROXY is not http://HOST:PORT" in check("https://user:hidden@proxy")
        assert "hidden" not in check("https://user:hidden@proxy")


def test_the_fake_is_reached_by_other_machines_only_if_its_user_says_so(tmp_path):
    words = [binary("longwire-sender"), "fake", "--folder", str(tmp_path)]
    for name in ("production", "sandbox", "page", "production-channels", "sandbox-channels"):
        for address in ("0.0.0.0:0", "[::]:0", "192.0.2.1:0"):
            done = subprocess.run([*words, f"--{name}", address], capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 64 and "--any-address" in done.stderr, done.stderr


def test_the_fakes_page_takes_nothing_from_another_site(apple):
    def ask(method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", apple.page, timeout=30)
        try:
            connection.request(method, path, body, {name.capitalize(): value for name, value in headers.items()})
            return connection.getresponse().status
        finally:
            connection.close()

    own = f"http://127.0.0.1:{apple.page}"
    assert ask("POST", "/script", "{}") == ask("POST", "/script", "{}", origin=own) == 204
    assert ask("GET", "/phones", host=f"localhost:{apple.page}") == 200
    for origin in ("https://example.com", "null", f"http://localhost:{apple.page}", f"https://127.0.0.1:{apple.page}"):
        assert ask("POST", "/script", "{}", origin=origin) == 403
        assert ask("POST", "/tap?token=ab&id=x", origin=origin) == 403
    for host in ("example.com", "127.0.0.1.example.com", f"rebound.test:{apple.page}", "10.0.0.1"):
        assert ask("POST", "/script", "{}", host=host) == ask("GET", "/phones", host=host) == 403
