"""The device's own alias and tags: the order of the requests, repeats, results, bounds and the wait for a result."""

import pytest
from wire import pb


NAMES = 32  # requests that wait, with the one in flight
BUSY = 102


def begin(bench, **options):
    """Starts a session whose DeviceNames the test answers; a driver without the command ends the test."""
    bench.start(**options)
    session = bench.gateway.welcome()
    ask(bench, "query")
    bench.driver.expect("names")
    session.expect(pb.DeviceNames)
    session.answers_names = False
    return session


def ask(bench, operation, **fields):
    bench.driver.do("names", operation=operation, **fields)


def code(event):
    return None if event["code"] is None else int(event["code"])


@pytest.mark.each_transport
@pytest.mark.broken_by("names-without-type")
def test_own_names(bench):
    """The calls change the device's alias of a type and its tags, and a query returns them."""
    session = begin(bench)
    session.answers_names = True
    for operation, fields in [
            ("bindAlias", {"alias": "张三", "aliasType": "user"}), ("bindAlias", {"alias": "phone"}),
            ("setTags", {"tags": ["a", "b"]}), ("addTags", {"tags": ["c"]}), ("removeTags", {"tags": ["a"]}),
            ("unbindAlias", {"alias": "phone"})]:
        ask(bench, operation, **fields)
        assert code(bench.driver.expect("names")) == 0
    assert (session.device.aliases, session.device.tags) == ({"user": "张三"}, ["b", "c"])
    for alias_type, alias in (("user", "张三"), ("", None)):
        ask(bench, "query", aliasType=alias_type)
        names = bench.driver.expect("names")
        assert (code(names), names["alias"] or None, sorted(names["tags"])) == (0, alias, ["b", "c"])


@pytest.mark.broken_by("names-in-parallel", "newest-names-first")
def test_names_in_order(bench):
    """The client sends DeviceNames in the order of the calls, each after the result of the one before."""
    session = begin(bench)
    calls = [["first"], ["second"], [], ["fourth"]]
    for tags in calls:
        ask(bench, "setTags", tags=tags)
    for tags in calls:
        names = session.expect(pb.DeviceNames)
        assert (names.operation, list(names.tags)) == (pb.DeviceNames.SET_TAGS, tags)
        session.round_trip()
        session.names_result(names.request)
        assert code(bench.driver.expect("names")) == 0
    session.round_trip()
    assert len(session.frames(pb.DeviceNames)) == 1 + len(calls)


@pytest.mark.broken_by("forgets-names")
def test_names_are_repeated(bench):
    """In the next session only the DeviceNames without a result is sent again, before the later ones."""
    session = begin(bench)
    ask(bench, "bindAlias", alias="done")
    session.names_result(session.expect(pb.DeviceNames).request)
    bench.driver.expect("names")
    ask(bench, "setTags", tags=["once"])
    ask(bench, "addTags", tags=["next"])
    first = session.expect(pb.DeviceNames)
    for _ in range(2):
        session.cut()
        session = bench.gateway.welcome(answers=False)
        again = session.expect(pb.DeviceNames)
        assert (again.operation, again.tags) == (first.operation, first.tags)
    session.names_result(again.request)
    bench.driver.expect("names")
    following = session.expect(pb.DeviceNames)
    assert list(following.tags) == ["next"]
    session.names_result(following.request)
    bench.driver.expect("names")
    session.answers_pings = True
    session.round_trip()
    assert len(session.frames(pb.DeviceNames)) == 2


@pytest.mark.broken_by("hides-names-codes", "repeats-refused-names")
@pytest.mark.parametrize("refusal", [1, 99, 100, 102])
def test_refused_names(bench, refusal):
    """A refusal with its code reaches the app and ends the request. The client then sends the next one."""
    session = begin(bench)
    ask(bench, "bindAlias", alias="refused")
    ask(bench, "bindAlias", alias="taken")
    session.names_result(session.expect(pb.DeviceNames).request, code=refusal, reason="scripted")
    assert code(bench.driver.expect("names")) == refusal
    second = session.expect(pb.DeviceNames)
    assert second.alias == "taken"
    session.names_result(second.request)
    assert code(bench.driver.expect("names")) == 0


@pytest.mark.broken_by("takes-any-names-result")
def test_names_result_of_another_number(bench):
    """A DeviceNamesResult for a number that is not in flight changes nothing."""
    session = begin(bench)
    session.send(pb.DeviceNamesResult(request=1))
    ask(bench, "setTags", tags=["one"])
    names = session.expect(pb.DeviceNames)
    for number in (0, names.request + 1, 2**32 - 1):
        session.send(pb.DeviceNamesResult(request=number, code=7))
    session.round_trip()
    session.names_result(names.request, code=3)
    assert code(bench.driver.expect("names")) == 3


@pytest.mark.broken_by("any-names-size")
def test_sizes_of_names(bench):
    """The client itself refuses a list of more than 200 tags and a name of more than 256 bytes."""
    session = begin(bench)
    longest = [f"{number:0256}" for number in range(100)] + [f"{number}" for number in range(100)]
    ask(bench, "setTags", tags=[*longest, "x"])
    ask(bench, "addTags", tags=["é" * 129])
    ask(bench, "bindAlias", alias="x" * 257)
    ask(bench, "bindAlias", alias="x", aliasType="x" * 257)
    ask(bench, "setTags", tags=longest)
    names = session.expect(pb.DeviceNames)
    assert list(names.tags) == longest
    session.names_result(names.request)
    bench.driver.expect("names", where=lambda event: code(event) == 0)
    session.round_trip()
    assert len(session.frames(pb.DeviceNames)) == 2


@pytest.mark.broken_by("no-names-bound")
def test_bound_of_names(bench):
    """At most 32 requests wait for the gateway; the client answers the next one with code 102 at once."""
    bench.needs("parallelNames")
    session = begin(bench)
    for number in range(NAMES + 1):
        ask(bench, "addTags", tags=[f"{number}"])
    assert code(bench.driver.expect("names")) == BUSY
    for number in range(NAMES):
        names = session.expect(pb.DeviceNames)
        assert list(names.tags) == [f"{number}"]
        session.names_result(names.request)
        assert code(bench.driver.expect("names")) == 0
    ask(bench, "addTags", tags=["there is room again"])
    session.names_result(session.expect(pb.DeviceNames).request)
    assert code(bench.driver.expect("names")) == 0
    session.round_trip()
    assert len(session.frames(pb.DeviceNames)) == 2 + NAMES


@pytest.mark.broken_by("waits-for-names")
def test_names_without_a_result(bench):
    """A session that brings no DeviceNamesResult in time ends, and the next one gets the request."""
    bench.needs("namesWait")
    session = begin(bench, names_ms=500)
    ask(bench, "setTags", tags=["a"])
    session.expect(pb.DeviceNames)
    session.until_over()
    again = bench.gateway.welcome(answers=False)
    names = again.expect(pb.DeviceNames)
    assert list(names.tags) == ["a"]
    again.names_result(names.request)
    assert code(bench.driver.expect("names")) == 0


@pytest.mark.broken_by("keeps-names")
def test_names_end_with_the_client(bench):
    """A call without a result fails when the client stops."""
    session = begin(bench)
    ask(bench, "setTags", tags=["a"])
    ask(bench, "query")
    session.expect(pb.DeviceNames)
    bench.driver.do("stop")
    for _ in range(2):
        assert code(bench.driver.expect("names")) is None
    bench.driver.expect("stopped")
