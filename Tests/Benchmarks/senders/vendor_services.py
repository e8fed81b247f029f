"""nginx in place of the vendors' services: it answers every request with success, and checks nothing.

nginx uses far less CPU per request than the sender, so nginx is not the bottleneck. It serves HTTP/2 and HTTP/1.1 with
TLS 1.3 or 1.2. `mirror` makes nginx read each body before it answers. Without `mirror`, nginx would reset the HTTP/2
stream after an early answer; the vendors do not. `longwire-sender fake` and the tests' parties check requests and are
slower.
"""

import http.client
import json
import pathlib
import subprocess
import tempfile

from certificates import authority, openssl
from gateway import eventually, free_ports

APP, PROJECT = "100001", "bench"
EXCHANGED = {"access_token": "bench-access-token-" + "x" * 120, "expires_in": 3_600, "token_type": "Bearer"}

# Path → answer.
ANSWERS = {
    "/token": EXCHANGED,
    f"/v1/projects/{PROJECT}/messages:send": {"name": f"projects/{PROJECT}/messages/0:1500415314455276%31bd1c9631bd1c96"},
    "/oauth2/v3/token": EXCHANGED,
    f"/v1/{APP}/messages:send": {"code": "80000000", "msg": "Success", "requestId": "157440955549500001002006"},
    f"/v3/{PROJECT}/messages:send": {"code": "80000000", "msg": "Success", "requestId": "157440955549500001002006"},
    "/auth/token": EXCHANGED,
    f"/api/v1/{APP}/sendMessage": {"code": 200, "message": "success", "data": {"sendResult": True, "requestId": "1574409555"}},
    "/v3/message/regid": {
        "result": "ok", "code": 0, "data": {"id": "sdm53b10467189503150Um"}, "trace_id": "Xdm53b10467", "description": "ok"},
    "/server/v1/auth": {"code": 0, "message": "Success", "data": {"auth_token": "bench", "create_time": 4_102_444_800_000}},
    "/server/v1/message/notification/unicast": {"code": 0, "message": "Success", "data": {"messageId": "5d2f1f7a8f2b4a0001a3c1de"}},
    "/message/auth": {"result": 0, "desc": "ok", "authToken": "bench-token"},
    "/message/send": {"result": 0, "desc": "ok", "taskId": "342982232646565888"},
    "/garcia/api/server/push/varnished/pushByPushId": {"code": "200", "message": "", "value": {}, "redirect": ""},
}


class VendorServices:
    """`with VendorServices() as services:` serves all vendors on `port`; `words` precede the command line."""

    def __init__(self, words=()):
        self._folder = tempfile.TemporaryDirectory(prefix="longwire-vendors-")
        self.folder = pathlib.Path(self._folder.name)
        self.port, self.status = free_ports(2)
        self.words = list(words)
        self.url, self.push_service = f"https://localhost:{self.port}", f"https://push.localhost:{self.port}/push/"

    def __enter__(self):
        root = authority(self.folder, "root")
        own = root.sign("service", names="DNS:localhost,DNS:push.localhost,IP:127.0.0.1")
        self.certificate = root.file
        keys = (("service", "RSA", "rsa_keygen_bits:2048"), ("vapid", "EC", "ec_paramgen_curve:P-256"))
        for name, kind, choice in keys:
            openssl("genpkey", "-algorithm", kind, "-pkeyopt", choice, "-out", self.folder / f"{name}-key.pem")
        # `return` precedes `mirror`, but the error page of a missing file follows it.
        places = "".join(
            f"location = {path} {{ mirror /none; error_page 404 =200 @{number}; }}\n"
            f"location @{number} {{ default_type application/json; return 200 '{json.dumps(answer)}'; }}\n"
            for number, (path, answer) in enumerate(ANSWERS.items()))
        (self.folder / "nginx.conf").write_text(f"""
            daemon off; worker_processes 1; pid {self.folder}/pid; error_log {self.folder}/error.log;
            events {{ worker_connections 4096; }}
            http {{
                access_log off; root /nonexistent; log_not_found off;
                keepalive_requests 1000000000; keepalive_timeout 600s; http2_max_concurrent_streams 128;
                client_body_temp_path {self.folder}/a; proxy_temp_path {self.folder}/b; fastcgi_temp_path {self.folder}/c;
                uwsgi_temp_path {self.folder}/d; scgi_temp_path {self.folder}/e;
                server {{
                    listen 127.0.0.1:{self.port} ssl http2; ssl_certificate {own.file}; ssl_certificate_key {own.key};
                    {places}
                    location /push/ {{ mirror /none; error_page 404 =201 @push; }}
                    location @push {{ return 201; }}
                    location = /none {{ internal; return 204; }}
                }}
                server {{ listen 127.0.0.1:{self.status}; location / {{ stub_status; }} }}
            }}""")
        self.process = subprocess.Popen([*self.words, "nginx", "-c", self.folder / "nginx.conf", "-p", self.folder])
        eventually(self.requests, "an answer of nginx")
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        self.worker, = map(int, pathlib.Path(children).read_text().split())
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait()
            self._folder.cleanup()

    def requests(self):
        """Returns the number of requests so far, with those of this function; 0 if nginx does not answer yet."""
        connection = http.client.HTTPConnection("127.0.0.1", self.status, timeout=30)
        try:
            connection.request("GET", "/")
            return int(connection.getresponse().read().splitlines()[2].split()[2])
        except OSError:
            return 0
        finally:
            connection.close()

    def service_account(self, vendor):
        """Returns the path of a service account's JSON in the form of `fcm` or `harmony`."""
        key = (self.folder / "service-key.pem").read_text()
        fields = {"type": "service_account", "project_id": PROJECT, "private_key": key}
        if vendor == "fcm":
            fields |= {
                "client_email": "bench@bench.iam.gserviceaccount.com", "private_key_id": "bench-key", "token_uri": f"{self.url}/token"}
        else:
            fields |= {"sub_account": "200001", "key_id": "bench-key"}
        path = self.folder / f"{vendor}.json"
        path.write_text(json.dumps(fields))
        path.chmod(0o600)
        return str(path)

    def credential(self, vendor):
        """Returns the entry of a sender's `credentials`."""
        match vendor:
            case "fcm" | "harmony":
                own = {"serviceAccountFile": self.service_account(vendor)}
            case "hms":
                own = {"appId": APP, "appSecret": "secret", "tokenURL": f"{self.url}/oauth2/v3/token"}
            case "honor":
                own = {"appId": APP, "clientId": "200001", "clientSecret": "secret", "tokenURL": f"{self.url}/auth/token"}
            case "xiaomi":
                own = {"appSecret": "secret", "packageName": "com.example.app", "channelId": "130"}
            case "oppo":
                own = {"appKey": "200001", "masterSecret": "secret"}
            case "vivo":
                own = {"appId": APP, "appKey": "200001", "appSecret": "secret"}
            case "meizu":
                own = {"appId": APP, "appSecret": "secret"}
            case "webPush":
                return {"vendor": vendor, "name": "bench", "privateKeyFile": str(self.folder / "vapid-key.pem"),
                        "subject": "mailto:bench@example.com", "allowedHosts": f"push.localhost:{self.port}"}
            case _:
                raise ValueError(vendor)
        return {"vendor": vendor, "name": "bench", "baseURL": self.url, **own}
