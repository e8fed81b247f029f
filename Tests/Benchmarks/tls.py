#!/usr/bin/env python3
"""The cost of TLS: full handshakes a second of one core compared with OpenSSL's server, and memory of idle connections.

    LONGWIRE_BIN=.build/release .build/python/bin/python Tests/Benchmarks/tls.py [handshakes|memory] [--runs 3]

`handshakes`: the gateway (one loop) or `openssl s_server` is pinned to one core, `openssl s_time -new` to the other, with a P-256
certificate and TLS 1.3. The client costs more than the server, so the wall-clock rate would be the client's. The figure is
therefore the server's processor time per handshake, from /proc/PID/stat. The two alternate, so that the machine's good and bad
seconds affect both. `memory`: resident memory of the gateway for each of many idle connections, from /proc/PID/status.
"""

import argparse
import contextlib
import os
import pathlib
import re
import resource
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parents[1] / "Integration"
sys.path.insert(0, str(HERE / "parties"))

import longwire_client  # noqa: E402
import websocket as ws  # noqa: E402
from certificates import authority  # noqa: E402
from gateway import Gateway, free_ports  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident(pid):
    return int(re.search(r"VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) * 1024


def secure(certificate, gateway):
    """Adds a TLS listener of the push API, before the start."""
    (gateway.https,) = free_ports(1)
    gateway.sections["http"]["tls"] = {"listen": f"127.0.0.1:{gateway.https}", **certificate.files()}
    return gateway


def shake(port, pid, seconds):
    """Returns the number of handshakes with a server, and its handshakes in a second of a core."""
    began = processor_seconds(pid)
    words = ["taskset", "-c", "1", "openssl", "s_time", "-connect", f"127.0.0.1:{port}", "-new", "-tls1_3", "-time", str(seconds)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds + 60)
    count = int(re.search(r"(\d+) connections in \d+ real seconds", done.stdout)[1])
    return count, count / (processor_seconds(pid) - began)


def handshakes(certificate, runs, seconds):
    limits = {"tlsHandshakesPerSecond": 100_000}
    with secure(certificate, Gateway(limits=limits, loops=1)) as gateway:
        for task in os.listdir(f"/proc/{gateway.process.pid}/task"):
            subprocess.run(["taskset", "-cp", "0", task], capture_output=True)
        (port,) = free_ports(1)
        words = ["taskset", "-c", "0", "openssl", "s_server", "-accept", str(port), "-cert", str(certificate.file), "-key",
                 str(certificate.key), "-quiet", "-num_tickets", "1", "-no_cache"]
        alone = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            ratios = []
            for run in range(runs):
                (_, theirs), (count, ours) = shake(port, alone.pid, seconds), shake(gateway.https, gateway.process.pid, seconds)
                ratios.append(ours / theirs)
                print(f"run {run + 1}: gateway {ours:,.0f} a second of a core ({count} handshakes), "
                      f"openssl s_server {theirs:,.0f}, ratio {ours / theirs:.2f}", flush=True)
            print(f"ratio: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")
        finally:
            alone.send_signal(signal.SIGKILL)
            alone.wait()


def idle(gateway, count, make):
    """Returns the gateway's bytes for each connection that `make` creates, after a first hundred for shared memory."""
    kept = [make() for _ in range(100)]
    time.sleep(1)
    before = resident(gateway.process.pid)
    kept += [make() for _ in range(count)]
    time.sleep(2)
    grown = resident(gateway.process.pid) - before
    for one in kept:
        with contextlib.suppress(OSError):
            one.close()
    return grown / count


def memory(certificate, authority_file, runs, count):
    resource.setrlimit(resource.RLIMIT_NOFILE, (20_000, 20_000))
    trusting = ssl.create_default_context(cafile=str(authority_file))
    limits = {"httpIdleTimeoutSeconds": 600, "tlsHandshakesPerSecond": 100_000, "helloTimeoutMilliseconds": 60_000}

    def http(secured):
        def make(gateway):
            port = gateway.https if secured else gateway.http
            plain = socket.create_connection(("127.0.0.1", port), timeout=10)
            one = trusting.wrap_socket(plain, server_hostname="localhost") if secured else plain
            # One call, so that the handshake is complete.
            one.sendall(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n")
            assert b"200" in one.recv(4_096)
            return one

        return make

    def device(secured, is_web):
        def make(gateway):
            tls = trusting if secured else None
            port = gateway.device_tls if secured else gateway.device
            wire = (lambda address, timeout: ws.Wire.to(address, timeout, tls=tls)) if is_web else None
            fields = {"wire": wire} if is_web else {"tls": tls}
            one = longwire_client.Device("127.0.0.1", port, gateway.app["appId"], **fields)
            one.register(gateway.app["appSecret"])
            return one

        return make

    kinds = [
        ("HTTP, plain", http(False)), ("HTTP, TLS", http(True)), ("device, plain", device(False, False)),
        ("device, TLS", device(True, False)), ("device, WebSocket", device(False, True)),
        ("device, WebSocket, TLS", device(True, True)),
    ]
    for name, make in kinds:
        found = []
        for _ in range(runs):
            files = (certificate.file, certificate.key)
            with secure(certificate, Gateway(limits=limits, loops=1, certificate=files, files=20_000)) as gateway:
                found.append(idle(gateway, count, lambda gateway=gateway, make=make: make(gateway)))
        text = ", ".join(f"{one / 1024:.1f}" for one in found)
        print(f"{name}: {statistics.median(found) / 1024:.1f} KiB of {count} idle connections ({text})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="?", choices=["handshakes", "memory", "all"], default="all")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--connections", type=int, default=3_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="longwire-tls-") as folder:
        root = authority(pathlib.Path(folder))
        certificate = root.sign("server")
        if options.what != "memory":
            handshakes(certificate, options.runs, options.seconds)
        if options.what != "handshakes":
            memory(certificate, root.file, options.runs, options.connections)


main()
