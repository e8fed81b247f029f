"""nginx with HTTP/2 before a fake vendor, which speaks HTTP/1.1 only."""

import pathlib
import signal
import socket
import subprocess

from certificates import authority
from gateway import eventually, free_ports


class Front:
    """`with Front(fake, folder) as front:` serves at `url` until the end of the block; `certificate` has both authorities."""

    def __init__(self, fake, folder: pathlib.Path, streams=128):
        self.folder = folder / "front"
        self.folder.mkdir()
        self.port, = free_ports(1)
        self.url = f"https://localhost:{self.port}"
        root = authority(self.folder, "front-root")
        own = root.sign("front")
        self.certificate = self.folder / "authorities.pem"
        self.certificate.write_text(root.file.read_text() + pathlib.Path(fake.certificate).read_text())
        folders = "".join(f"{name}_temp_path {self.folder}/{name}; " for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (self.folder / "nginx.conf").write_text(f"""
            daemon off; worker_processes 1; pid {self.folder}/pid; error_log {self.folder}/error.log;
            events {{ worker_connections 1024; }}
            http {{
                {folders} http2_max_concurrent_streams {streams};
                log_format lines '$server_protocol $connection $status'; access_log {self.folder}/access.log lines;
                server {{
                    listen 127.0.0.1:{self.port} ssl http2; ssl_certificate {own.file}; ssl_certificate_key {own.key};
                    location / {{ proxy_pass {fake.url}; proxy_ssl_verify off; }}
                }}
            }}""")

    def __enter__(self):
        self.process = subprocess.Popen(["nginx", "-c", self.folder / "nginx.conf", "-p", self.folder])
        eventually(self._is_open, "nginx")
        return self

    def _is_open(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def reload(self):
        """Starts a new worker; the old one sends GOAWAY and ends after its requests."""
        self.process.send_signal(signal.SIGHUP)

    def requests(self):
        """Returns protocol, connection and status of each finished request."""
        path = self.folder / "access.log"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait()
