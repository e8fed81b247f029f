"""Tokens of the app's server: registration without the app secret, and the alias of a user."""

import pytest
from gateway import APP
from wire import SERVER_TOKEN_BYTES, pb, server_token

FIRST, SECOND = server_token(APP, "张三"), server_token(APP, "second")
INVALID, BUSY, BAD_PROOF = 5, 102, 401


def begin(bench):
    """Starts a client with a token. Returns its session, whose DeviceNames the test answers, and the first of these."""
    bench.needs("tokens")
    bench.start(token=FIRST)
    session = bench.gateway.welcome()
    session.answers_names = False
    names = session.expect(pb.DeviceNames)
    is_of(names, FIRST)
    return session, names


def is_of(names, token):
    assert names.operation == pb.DeviceNames.BIND_ALIAS
    assert (names.token, names.alias, names.alias_type, list(names.tags)) == (token, "", "", [])


def bind(bench, token):
    bench.driver.do("names", operation="bindAlias", token=token)


def code(event):
    return int(event["code"])


def next_session(bench, session):
    """Begins the next session, and waits until the client has sent what it has to send at once."""
    session.cut()
    session = bench.gateway.welcome(answers=False)
    session.answers_pings = True
    session.round_trip()
    return session


@pytest.mark.each_transport
@pytest.mark.broken_by("token-not-sent", "token-in-each-hello", "wrong-proof", "registration-not-stored")
def test_token_registers(bench):
    """A client with a token registers by it: the Hello carries the token, which is the key of its proof, and no later one
    does."""
    bench.needs("tokens")
    driver = bench.start(token=FIRST)
    session = bench.gateway.welcome()
    assert session.hello.registration and session.hello.registration_token == FIRST
    cid = driver.expect("registered")["cid"]
    session.cut()
    assert not bench.gateway.welcome().hello.registration
    bench.restart(token=FIRST)
    hello = bench.gateway.welcome().hello
    assert not hello.registration and hello.cid.hex() == cid
    assert bench.driver.expect("welcomed")["cid"] == cid


@pytest.mark.broken_by("ignores-tokens-alias", "binds-tokens-alias-again")
def test_tokens_alias_is_bound(bench):
    """The alias of the token is bound before the app's requests, again in each session until there is a final result."""
    session, first = begin(bench)
    bench.driver.do("names", operation="setTags", tags=["after it"])
    session.cut()
    session = bench.gateway.welcome(answers=False)
    again = session.expect(pb.DeviceNames)
    assert again == first
    session.names_result(again.request, **session.device.change_names(again))
    assert session.device.aliases == {"": "张三"}
    assert code(bench.driver.expect("names")) == 0
    following = session.expect(pb.DeviceNames)
    assert list(following.tags) == ["after it"]
    session.names_result(following.request)
    assert code(bench.driver.expect("names")) == 0
    assert not next_session(bench, session).frames(pb.DeviceNames)


@pytest.mark.broken_by("hides-names-codes")
def test_refusal_of_tokens_alias(bench):
    """A refusal of the token's alias reaches the app with its code, and is final below 100."""
    session, names = begin(bench)
    session.names_result(names.request, code=INVALID, reason="the token has expired")
    assert code(bench.driver.expect("names")) == INVALID
    assert not next_session(bench, session).frames(pb.DeviceNames)


@pytest.mark.broken_by("names-without-token", "keeps-tokens-alias")
def test_alias_of_another_user(bench):
    """A registered device binds the alias of another user's token, and never returns to the first one."""
    session, names = begin(bench)
    bind(bench, SECOND)
    session.names_result(names.request, code=BUSY)
    assert code(bench.driver.expect("names")) == BUSY
    names = session.expect(pb.DeviceNames)
    is_of(names, SECOND)
    session.names_result(names.request, **session.device.change_names(names))
    assert session.device.aliases == {"": "second"}
    assert code(bench.driver.expect("names")) == 0
    assert not next_session(bench, session).frames(pb.DeviceNames)


@pytest.mark.broken_by("hides-close-reason", "never-stops")
def test_refused_token(bench):
    """A refusal of the token stops the client with the gateway's reason, and another token then registers."""
    bench.needs("tokens")
    driver = bench.start(token=FIRST)
    bench.gateway.hello().close(BAD_PROOF, reason="the token has expired")
    assert "the token has expired" in driver.expect("stopped")["reason"]
    bench.gateway.stays_alone(0.3)
    bench.restart(token=SECOND)
    session = bench.gateway.welcome()
    assert session.hello.registration_token == SECOND
    is_of(session.expect(pb.DeviceNames), SECOND)


@pytest.mark.broken_by("keeps-lost-registration", "owes-alias-once")
def test_token_after_a_lost_registration(bench):
    """After Close 301 the token registers a new device, which gets the alias as well."""
    session, names = begin(bench)
    session.names_result(names.request)
    bench.driver.expect("names")
    session.cut()
    bench.gateway.hello().close(301)
    session = bench.gateway.welcome()
    assert session.hello.registration and session.hello.registration_token == FIRST
    is_of(session.expect(pb.DeviceNames), FIRST)


@pytest.mark.broken_by("any-names-size")
def test_size_of_a_token(bench):
    """A token above 2,048 bytes is refused by the client and never sent."""
    session, names = begin(bench)
    session.names_result(names.request)
    bench.driver.expect("names")
    longest = server_token(APP, "second", SERVER_TOKEN_BYTES)
    bind(bench, longest + "A")
    bind(bench, longest)
    is_of(session.expect(pb.DeviceNames), longest)
    session.names_result(session.names_in_flight)
    bench.driver.expect("names", where=lambda event: event["code"] is not None and code(event) == 0)
    session.round_trip()
    assert len(session.frames(pb.DeviceNames)) == 2
