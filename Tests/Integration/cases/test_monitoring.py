"""Prometheus' own tool and the files in deploy/ against the metrics page of a real gateway."""

import json
import pathlib
import re
import subprocess
import sys

import longwire_client
import pytest
import yaml
from apple import FakeApple, Sender
from certificates import authority
from cluster import Cluster
from conftest import QUICK
from gateway import HANDOFF_TOKEN, Gateway, eventually
from redis_rig import RedisRig

ROOT = pathlib.Path(__file__).resolve().parents[3]
ALERTS, DASHBOARD = ROOT / "deploy/prometheus/longwire-alerts.yaml", ROOT / "deploy/grafana/longwire.json"
HOOK = {"url": "http://127.0.0.1:9/", "secret": "whsec_" + "bG9uZ3dpcmUgaW50ZWdyYXRpb24gaG9vayBzZWNyZXQ="}


def promtool(*words, text=None):
    done = subprocess.run(["promtool", *map(str, words)], input=text, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def page(gateway):
    """Returns a page with every sample that exists before the first message."""
    eventually(lambda: value(gateway.metrics(), "process_threads") > 0, "the first look at the process")
    return gateway.metrics()


@pytest.fixture(scope="module")
def pages(page, tmp_path_factory):
    """The text of pages that together have every metric: three gateways and a sender.

    One gateway is alone, one has a certificate and a hook, and one is in a cluster. The sender has a certificate and a listener for
    receipts, and has sent a message. It has credentials of Apple and of Meizu, whose credential costs no request.
    """
    own, made = authority(tmp_path_factory.mktemp("certificates")).sign("own"), [page]
    with Gateway(certificate=(own.file, own.key), hook=HOOK) as gateway:
        made.append(gateway.metrics())
    with RedisRig() as rig, Cluster(rig, count=2) as cluster:
        made.append(cluster[0].metrics())
    with Gateway(limits=QUICK) as gateway, FakeApple() as apple:
        sender = Sender(gateway, apple)
        sender.sections["admin"]["tls"] = {"listen": "127.0.0.1:0", **own.files()}
        sender.sections["receipts"] = {"listen": "127.0.0.1:0"}
        sender.sections["credentials"].append({"vendor": "meizu", "name": "meizu", "appId": "1", "appSecret": "secret"})
        device = longwire_client.Device("127.0.0.1", gateway.device, gateway.app["appId"])
        device.register(gateway.app["appSecret"], tokens=[longwire_client.pb.VendorToken(token="ab" * 32)])
        device.close()
        with sender:
            message = gateway.push(device.state.cid.hex(), "x", strategy=2, alert="A")["msgId"]
            gateway.ends_as(message, "handedOff")
            made.append(sender.get("/metrics")[1])
    return "".join(made)


def value(page, name):
    return float(re.search(rf"^{re.escape(name)} (\S+)$", page, re.M)[1])


def names(page):
    return set(re.findall(r"^# TYPE (\S+)", page, re.M))


def metrics_of(expression):
    """The metrics that an expression names: its words that begin as ours do, less the endings of a histogram."""
    text = re.sub(r"\{[^}]*\}|\b(by|without|on|ignoring|group_left) \([^)]*\)", "", expression)
    words = set(re.findall(r"\b(?:longwire|process)_[a-z0-9_]+\b|\bup\b", text))
    return {re.sub(r"_(bucket|sum|count)$", "", word) for word in words}


def test_the_page_follows_prometheus_rules(page):
    assert promtool("check", "metrics", text=page) == (0, "")


def test_the_tool_would_complain():
    status, said = promtool("check", "metrics", text="# TYPE longwire_x counter\nlongwire_x 1\n")
    assert status != 0 and "longwire_x" in said


def test_what_the_page_says_of_the_process_is_so(page, gateway):
    status = dict(
        line.split(":\t", 1) for line in pathlib.Path(f"/proc/{gateway.process.pid}/status").read_text().splitlines() if ":\t" in line)
    assert value(page, "process_threads") == int(status["Threads"])
    resident = int(status["VmRSS"].split()[0]) * 1024
    assert resident / 2 < value(page, "process_resident_memory_bytes") < resident * 2
    open_files = len(list(pathlib.Path(f"/proc/{gateway.process.pid}/fd").iterdir()))
    assert abs(value(page, "process_open_fds") - open_files) < 20
    assert value(page, "process_cpu_seconds_total") > 0
    free, size = value(page, "longwire_disk_free_bytes"), value(page, "longwire_disk_bytes")
    assert 0 < free < size
    assert value(page, 'longwire_limit{name="windowMessages"}') == 32


def alerts():
    """The expressions of all rules."""
    return [rule["expr"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def panels():
    """The expressions of all panels and annotations."""
    dashboard = json.loads(DASHBOARD.read_text())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    return shown + [one["expr"] for one in dashboard["annotations"]["list"]]


def test_alerts_name_metrics_that_there_are(pages):
    status, said = promtool("check", "rules", ALERTS)
    assert status == 0, said
    assert len(alerts()) > 40
    for expression in alerts():
        found = metrics_of(expression)
        assert found <= names(pages) | {"up"}, (expression, found - names(pages))
        assert found or "longwire:" in expression, expression


def test_alerts_fire_and_are_silent_as_their_tests_say():
    done = subprocess.run([sys.executable, ROOT / "Tests/Checks/check-alerts.py"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_names_metrics_that_there_are(pages, tmp_path):
    assert len(panels()) >= 60
    for expression in panels():
        assert metrics_of(expression) and metrics_of(expression) <= names(pages), expression
    # Prometheus parses every expression, as rules.
    rules = [{"record": f"panel:number:{number}", "expr": re.sub(r"\$(instance|sender)", ".*", expression).replace("$__rate_interval", "1m")}
             for number, expression in enumerate(panels())]
    path = tmp_path / "rules.yaml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    status, said = promtool("check", "rules", path)
    assert status == 0, said


def test_panels_have_ids_of_their_own_and_do_not_overlap():
    dashboard = json.loads(DASHBOARD.read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    taken = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells


def test_the_dashboard_shows_the_gateway_the_cluster_and_the_sender():
    shown = set().union(*map(metrics_of, panels()))
    assert {
        "longwire_messages_accepted_total", "longwire_handoff_jobs_due", "longwire_app_feed_oldest_seconds", "longwire_cluster_parts",
        "longwire_cluster_link_up", "longwire_cluster_relays_total", "longwire_cluster_parts_taken_total",
        "longwire_sender_failing", "longwire_sender_outcomes_total", "longwire_sender_request_delay_seconds",
        "longwire_sender_vendor_lane_state", "longwire_sender_token_failures_total", "longwire_sender_receipts_total"} <= shown


def test_labels_of_the_files_are_on_the_pages(pages):
    """Each label in a selector is one of its metric's, and each label of a grouping is one of a metric in its expression."""
    # These have samples only after a late result, a job of the vendor or a receipt.
    lane = {"channel", "credential", "service"}
    labels, ours = {
        "longwire_sender_verdicts_total": {"channel", "verdict"}, "longwire_sender_vendor_lane_state": {*lane, "state"},
        "longwire_sender_vendor_waiting": lane, "longwire_sender_vendor_requests": lane, "longwire_sender_vendor_rate": lane,
        "longwire_sender_vendor_accepted_age_seconds": lane, "longwire_sender_receipts_total": {"channel"},
        "longwire_sender_receipt_calls_refused_total": {"reason"}}, {"instance", "job", "le"}
    for name, pairs in re.findall(r"^([a-z_]+)\{([^}]*)\}", pages, re.M):
        labels.setdefault(re.sub(r"_(bucket|sum|count)$", "", name), set()).update(re.findall(r"(\w+)=", pairs))
    selectors = groupings = 0
    for text in alerts() + panels():
        for name, pairs in re.findall(r"((?:longwire|process)_[a-z0-9_]+)\{([^}]*)\}", text):
            wanted = set(re.findall(r"(\w+)=", pairs)) - ours
            assert wanted <= labels.get(re.sub(r"_(bucket|sum|count)$", "", name), set()), (name, wanted)
            selectors += bool(wanted)
        for pairs in re.findall(r"\b(?:by|without|on|ignoring) \(([^)]*)\)", text):
            wanted = set(re.findall(r"\w+", pairs)) - ours
            assert wanted <= set().union(*(labels.get(name, set()) for name in metrics_of(text))), (text, wanted)
            groupings += bool(wanted)
    assert selectors > 5 and groupings > 15


def test_any_credential_may_scrape(gateway):
    headers = {"Authorization": f"Bearer {HANDOFF_TOKEN}"}
    assert "process_open_fds" in gateway.call("GET", "/metrics", port=gateway.admin, headers=headers)["text"]
