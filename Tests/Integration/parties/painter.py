"""An HTTP server with the test's answers, such as bytes that would control a terminal."""

import contextlib
import http.server
import threading

# Moves to the first line of a terminal and clears it.
PAINT = "\x1b[H\x1b[J"


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, body = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def answering(status, body):
    """Yields the server's address, `host:port`."""
    server = http.server.HTTPServer(("127.0.0.1", 0), _Handler)
    server.answer = status, body
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
