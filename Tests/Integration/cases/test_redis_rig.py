"""The rig of real redis-servers: it forms the configured topology, injects faults, and leaves nothing behind."""

import pathlib
import socket
import threading

import pytest
from gateway import eventually
from redis_rig import Connection, Gate, RedisRig, ReplyError, slot_of


@pytest.fixture(scope="module")
def cluster():
    with RedisRig(gates=True, node_timeout=1_000) as rig:
        yield rig


def test_slots_are_those_of_the_specification():
    assert slot_of("123456789") == 0x31C3 and slot_of("{user}1") == slot_of("user")
    assert slot_of("a{}b") != slot_of("") and slot_of("{lw:x:p3}:log") == slot_of(b"lw:x:p3")


def test_a_cluster_forms_and_says_where_its_slots_are(cluster):
    assert len(cluster.primaries()) == 3 and all(len(cluster.replicas_of(one)) == 1 for one in cluster.primaries())
    cluster.call("SET", "key", "value", key="key")
    other = next(one for one in cluster.primaries() if one is not cluster.primary_of("key"))
    with pytest.raises(ReplyError, match=rf"^MOVED {slot_of('key')} 127.0.0.2:{cluster.primary_of('key').port}$"):
        other.call("GET", "key")
    for name, value in {"appendonly": b"yes", "appendfsync": b"always", "maxmemory-policy": b"noeviction"}.items():
        assert other.call("CONFIG", "GET", name)[1] == value


def test_a_slot_moves_with_its_keys(cluster):
    slot = slot_of("{moved}")
    for number in range(25):
        cluster.call("SET", f"{{moved}}{number}", number, key="{moved}")
    cluster.call("XADD", "{moved}log", "3-1", "b", "bytes", key="{moved}")
    before = cluster.primary_of("{moved}")
    after = cluster.move_slot(slot)
    assert after is not before and cluster.primary_of("{moved}") is after
    assert after.call("GET", "{moved}24") == b"24" and after.call("XRANGE", "{moved}log", "-", "+")[0][0] == b"3-1"
    with pytest.raises(ReplyError, match="MOVED"):
        before.call("GET", "{moved}24")
    cluster.wait_until_ok()


def test_a_replica_takes_over_by_command(cluster):
    primary = cluster.primary_of("key")
    (replica,) = cluster.replicas_of(primary)
    cluster.call("SET", "key", "kept", key="key")
    primary.call("WAIT", 1, 5_000)
    assert cluster.failover(replica) is replica
    cluster.wait_until_ok()
    assert cluster.primary_of("key") is replica and replica.call("GET", "key") == b"kept"
    assert cluster.replicas_of(replica) == [primary]


def test_a_killed_primary_is_replaced_and_comes_back_as_a_replica(cluster):
    primary = cluster.primary_of("key")
    (replica,) = cluster.replicas_of(primary)
    cluster.call("SET", "key", "safe", key="key")
    cluster.kill(primary)
    assert not primary.is_running
    eventually(lambda: replica in cluster.primaries(), "an election")
    assert replica.call("GET", "key") == b"safe"
    cluster.restart(primary)
    eventually(lambda: cluster.replicas_of(replica) == [primary], "the return of the killed one")
    cluster.wait_until_ok()


def test_a_stopped_replica_acknowledges_nothing(cluster):
    primary = cluster.primary_of("key")
    (replica,) = cluster.replicas_of(primary)
    replica.stop()
    try:
        with primary.connect() as connection:
            connection.call("SET", "key", "unseen")
            assert connection.call("WAIT", 1, 200) == 0
    finally:
        replica.resume()
    eventually(lambda: primary.call("WAIT", 1, 1_000) == 1, "the replica's acknowledgement")
    cluster.wait_until_ok()


def test_a_gate_cuts_clients_off_and_leaves_replication_alone(cluster):
    primary = cluster.primary_of("key")
    gate = cluster.gates[primary.number]
    through = Connection(gate.port, gate.host)
    assert through.call("PING") == b"PONG"
    gate.cut()
    with pytest.raises(OSError):
        through.call("PING")
    through.close()
    with pytest.raises(OSError):
        Connection(gate.port, gate.host)
    with primary.connect() as connection:
        connection.call("SET", "key", "beside")
        assert connection.call("WAIT", 1, 5_000) == 1
    gate.heal()
    with Connection(gate.port, gate.host) as connection:
        assert connection.call("GET", "key") == b"beside"


def test_what_a_gate_holds_arrives_when_it_heals(cluster):
    primary = cluster.primary_of("key")
    gate = cluster.gates[primary.number]
    with Connection(gate.port, gate.host, timeout=0.3) as connection:
        connection.call("SET", "key", "before")
        gate.hold()
        connection.send("SET", "key", "late")
        with pytest.raises(TimeoutError):
            connection.read()
        assert primary.call("GET", "key") == b"before"
        gate.heal()
        eventually(lambda: primary.call("GET", "key") == b"late", "the late command")


def test_a_gate_forwards_many_pieces_in_order_with_a_delay():
    listener = socket.create_server(("127.0.0.1", 0))
    received = []

    def serve():
        peer, _ = listener.accept()
        with peer:
            while piece := peer.recv(4_096):
                received.append(piece)
            peer.sendall(b"end")

    thread = threading.Thread(target=serve)
    thread.start()
    with Gate(listener.getsockname()[1]) as gate, socket.create_connection((gate.host, gate.port)) as near:
        gate.delay = 0.01
        for number in range(20):
            near.sendall(bytes([number]) * 100)
        near.shutdown(socket.SHUT_WR)
        near.settimeout(10)
        assert near.recv(10) == b"end"
    thread.join()
    listener.close()
    assert b"".join(received) == b"".join(bytes([number]) * 100 for number in range(20))


def test_one_primary_with_its_replica_without_a_cluster():
    with RedisRig(is_cluster=False, password="rig-password") as rig:
        (primary,) = rig.primaries()
        (replica,) = rig.replicas_of(primary)
        with pytest.raises(ReplyError, match="NOAUTH"), Connection(primary.port) as stranger:
            stranger.call("PING")
        primary.call("SET", "key", "value")
        with pytest.raises(ReplyError, match="READONLY"):
            replica.call("SET", "key", "other")
        assert rig.failover(replica) is replica
        rig.wait_until_ok()
        assert rig.primaries() == [replica] and replica.call("GET", "key") == b"value"
        rig.kill(replica)
        rig.promote(primary)
        rig.restart(replica)
        rig.wait_until_ok()
        assert rig.primaries() == [primary] and rig.replicas_of(primary) == [replica]
        # An acknowledged write is in the file of a killed server.
        primary.call("SET", "key", "synced")
        rig.kill(primary)
        rig.kill(replica)
        rig.restart(primary)
        assert primary.call("GET", "key") == b"synced"
        identities, folder = [server.process.pid for server in rig.servers], rig.folder
    assert not folder.exists()
    assert not any(pathlib.Path(f"/proc/{identity}").exists() for identity in identities)
