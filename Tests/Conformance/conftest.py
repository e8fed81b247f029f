"""Fixtures and options of the conformance suite; README.md has the rules and the contract of the drivers."""

import json
import os
import pathlib
import ssl
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]
sys.dont_write_bytecode = True

from drivers import Bench, NotOffered, clients  # noqa: E402
from gateway import Gateway  # noqa: E402


def pytest_addoption(parser):
    group = parser.getgroup("conformance")
    group.addoption("--client", action="append", help="a client of drivers.json; may be repeated; all by default")
    group.addoption("--kills", type=int, default=20, help="the number of kills in each test of kills")
    group.addoption("--seed", type=int, default=1, help="the seed of random times and bytes")
    group.addoption("--patience", type=float, default=30.0, help="seconds until a test gives up waiting for a client")
    group.addoption("--results", help="a JSON file for the outcome of each rule")
    group.addoption("--planted", action="store_true", help="runs each rule on planted faults, and expects its failure")


def pytest_configure(config):
    config.addinivalue_line("markers", "broken_by(*faults): the faults of python_driver.py that this rule must find")
    config.addinivalue_line("markers", "transports(*names): the rule needs one of these transports")
    config.addinivalue_line("markers", "each_transport: the rule runs on each transport of a client")
    config.addinivalue_line("markers", "slow: the rule takes more than half a minute")


def pytest_generate_tests(metafunc):
    if "case" not in metafunc.fixturenames:
        return
    marks = {mark.name: mark for mark in metafunc.definition.iter_markers()}
    known, cases = clients(), []
    planted = metafunc.config.getoption("planted")
    for name in ["python"] if planted else metafunc.config.getoption("client") or known:
        if name not in known:
            raise pytest.UsageError(f"drivers.json has no client {name}; it has {', '.join(known)}")
        client = known[name]
        wanted = marks["transports"].args if "transports" in marks else client.transports
        usable = [one for one in client.transports if one in wanted]
        skip = client.missing()
        if skip and os.environ.get("LONGWIRE_CI"):
            raise pytest.UsageError(f"the client {name} cannot run: {skip}; LONGWIRE_CI requires every client")
        if skip:
            skip = pytest.mark.skip(reason=f"not run: {skip}")
        elif not usable:
            skip = pytest.mark.skip(reason=f"not offered: the client has no {' or '.join(wanted)}")
        every = "each_transport" in marks or "transports" in marks
        for transport in (usable if every and not planted else usable[:1]) or client.transports[:1]:
            for fault in marks["broken_by"].args if planted and "broken_by" in marks else [None]:
                identity = f"{name}-{transport}" + (f"-{fault}" if fault else "")
                cases.append(pytest.param((client, transport, fault), id=identity, marks=[skip] if skip else []))
    metafunc.parametrize("case", cases)


def pytest_collection_modifyitems(config, items):
    if config.getoption("planted"):
        unproven = sorted({item.originalname for item in items if not item.get_closest_marker("broken_by")})
        if unproven:
            raise pytest.UsageError(f"these rules name no fault that breaks them: {', '.join(unproven)}")
        config.stash[LAST] = {pair(item): item for item in items}


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """An authority, and contexts of servers with a good and several bad certificates."""
    from certificates import EXPIRED, authority

    folder = tmp_path_factory.mktemp("certificates")
    root, other = authority(folder), authority(folder, "other")
    made = {
        "good": root.sign("good"), "stranger": other.sign("stranger"),
        "name": root.sign("name", names="DNS:gateway.example"), "expired": root.sign("expired", dates=EXPIRED)}
    contexts = {}
    for name, certificate in made.items():
        contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        contexts[name].load_cert_chain(certificate.file, certificate.key)
    return root.file, contexts


@pytest.fixture
def bench(case, request, tmp_path):
    client, transport, fault = case
    patience = min(5.0, request.config.getoption("patience")) if fault else request.config.getoption("patience")
    security = root = None
    if transport in ("tls", "wss"):
        root, contexts = request.getfixturevalue("certificates")
        security = contexts["good"]
    gateway = Gateway(transport, security, patience)
    bench = Bench(client, gateway, tmp_path, patience, fault, root)
    yield bench
    for one in bench.runs:
        one.kill()
    for one in (gateway, *bench.others):
        one.close()
    log = tmp_path / "stderr"
    if log.exists() and (text := log.read_text(errors="replace").strip()):
        print(f"\nstderr of the driver:\n{text[-4_000:]}")
        assert client.name != "python" or "Traceback" not in text, "the driver of the suite has a defect"


LAST, FOUND, RESULTS = pytest.StashKey(), pytest.StashKey(), pytest.StashKey()


def pair(item):
    """A rule and the fault that this case plants."""
    return item.fspath, item.originalname, item.callspec.params["case"][2]


def judge_planted(item, call, report):
    """Turns a broken rule into a pass; the last case of a rule fails if no case has found the fault."""
    found = item.config.stash.setdefault(FOUND, set())
    if call.excinfo and call.excinfo.errisinstance(AssertionError):
        found.add(pair(item))
        report.outcome, report.longrepr = "passed", None
    if report.outcome != "failed" and item.config.stash[LAST][pair(item)] is item and pair(item) not in found:
        report.outcome = "failed"
        report.longrepr = f"the planted fault {pair(item)[2]} breaks no case of {item.originalname}"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Runs the test, then the checks that every test has; a missing command makes the rule "not offered"."""
    bench = pyfuncitem.funcargs.get("bench")
    if bench is None:
        return None
    if bench.fault and pair(pyfuncitem) in pyfuncitem.config.stash.get(FOUND, ()):
        pytest.skip("another case has found the fault")
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    try:
        pyfuncitem.obj(**arguments)
    except NotOffered as reason:
        pytest.skip(f"not offered: {reason}")
    bench.end()
    return True


OUTCOMES = {"passed": "kept", "failed": "broken"}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if "case" not in getattr(item, "fixturenames", ()):
        return
    if item.config.getoption("planted"):
        if report.when == "call":
            judge_planted(item, call, report)
        return
    outcome = OUTCOMES.get(report.outcome)
    detail = ""
    if report.outcome == "skipped":
        detail = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        outcome = "not offered" if "not offered" in detail else "not run"
    elif report.outcome == "failed":
        detail = call.excinfo.exconly() if call.excinfo else ""
    elif report.when != "call":
        return
    client, transport, _ = item.callspec.params["case"]
    item.config.stash.setdefault(RESULTS, []).append({
        "group": pathlib.Path(item.fspath).stem.removeprefix("test_"), "rule": item.originalname,
        "text": " ".join((item.obj.__doc__ or item.originalname).split()), "client": client.name,
        "transport": transport, "outcome": outcome, "detail": detail[:400]})


def pytest_sessionfinish(session):
    path = session.config.getoption("results")
    if path:
        pathlib.Path(path).write_text(json.dumps(session.config.stash.get(RESULTS, []), indent=1) + "\n")
