"""A hook's receiver in forty lines: verifies the Standard Webhooks signature, takes the jobs, answers."""

import base64
import hashlib
import hmac
import http.server
import json
import threading
import time


def is_genuine(secret, headers, body):
    """Whether the call is signed with our secret, within five minutes."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    code = hmac.new(base64.b64decode(secret.removeprefix("whsec_")), signed, hashlib.sha256).digest()
    expected = "v1," + base64.b64encode(code).decode()
    is_fresh = abs(time.time() - int(headers["webhook-timestamp"])) < 300
    return is_fresh and any(hmac.compare_digest(expected, one) for one in headers["webhook-signature"].split())


class Receiver(http.server.ThreadingHTTPServer):
    """Runs at `url` until `server_close`; `answer(jobs)` returns status and body; `batches` has (webhook-id, jobs)."""

    def __init__(self, secret, answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.secret, self.answer, self.batches = secret, answer, []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/hook"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        genuine, jobs = is_genuine(self.server.secret, self.headers, body), json.loads(body)["jobs"]
        self.server.batches.append((self.headers["webhook-id"] if genuine else None, jobs))
        status, text = self.server.answer(jobs) if genuine else (401, b"")
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
