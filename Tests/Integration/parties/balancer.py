"""A plain TCP balancer before several gateways: each connection goes to the next one that is ready.

    with Balancer(gateways, ("device", "http")) as balancer:
        balancer.ports["device"]

It polls each gateway's /readyz, as docs/use/Cluster.md advises operators. Without a ready gateway it uses those that answer at
all. A connection stays with its gateway until one of them ends it.
"""

import contextlib
import http.client
import itertools
import socket
import threading
import time

from redis_rig import reset

LOOK_SECONDS, ANSWER_SECONDS, CONNECT_SECONDS = 0.2, 0.6, 0.5


class Balancer:
    def __init__(self, gateways, names):
        self.gateways, self.names = gateways, names
        self.states, self.turn, self.is_ended = [False] * len(gateways), itertools.count(), False
        self.ports, self.listeners, self.sockets, self.lock = {}, [], set(), threading.Lock()
        self.served = [0] * len(gateways)
        for name in names:
            listener = socket.create_server(("127.0.0.1", 0), backlog=256)
            self.listeners.append(listener)
            self.ports[name] = listener.getsockname()[1]

    def __enter__(self):
        for number in range(len(self.gateways)):
            threading.Thread(target=self._watch, args=(number,), daemon=True).start()
        for name, listener in zip(self.names, self.listeners):
            threading.Thread(target=self._accept, args=(name, listener), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.is_ended = True
        for listener in self.listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self.lock:
            sockets, self.sockets = self.sockets, set()
        for one in sockets:
            reset(one)

    def _watch(self, number):
        while not self.is_ended:
            self.states[number] = self._look(self.gateways[number])
            time.sleep(LOOK_SECONDS)

    @staticmethod
    def _look(gateway):
        """Returns True if ready, False if it answers but is not ready, None without an answer."""
        connection = http.client.HTTPConnection(gateway.host, gateway.http, timeout=ANSWER_SECONDS)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def _accept(self, name, listener):
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near, name), daemon=True).start()

    def _connect(self, name):
        """Connects to the next gateway that accepts, ready ones first."""
        first = next(self.turn)
        order = [(first + step) % len(self.gateways) for step in range(len(self.gateways))]
        for wanted in (True, False, None):
            for number in order:
                if self.states[number] is wanted:
                    gateway = self.gateways[number]
                    with contextlib.suppress(OSError):
                        far = socket.create_connection((gateway.host, getattr(gateway, name)), CONNECT_SECONDS)
                        self.served[number] += 1
                        return far
        return None

    def _serve(self, near, name):
        far = self._connect(name)
        if not far:
            reset(near)
            return
        far.settimeout(None)
        for one in (near, far):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self.lock:
            self.sockets |= {near, far}
        back = threading.Thread(target=self._pump, args=(far, near), daemon=True)
        back.start()
        self._pump(near, far)
        back.join()
        with self.lock:
            self.sockets -= {near, far}
        near.close()
        far.close()

    @staticmethod
    def _pump(source, sink):
        try:
            while piece := source.recv(65_536):
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            # A reset is forwarded as a reset, and wakes the other direction.
            for one in (source, sink):
                with contextlib.suppress(OSError):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    one.shutdown(socket.SHUT_RDWR)
