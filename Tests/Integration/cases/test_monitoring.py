"""Prometheus' own tool and the files in deploy/ against the page of a real gateway."""

import json
import pathlib
import re
import subprocess

import pytest
from gateway import HANDOFF_TOKEN, eventually

ROOT = pathlib.Path(__file__).resolve().parents[3]
ALERTS, DASHBOARD = ROOT / "deploy/prometheus/longwire-alerts.yaml", ROOT / "deploy/grafana/longwire.json"
# Prometheus' own, and what only a gateway with a hook or a certificate has.
ELSEWHERE = {
    "up", "longwire_hook_healthy", "longwire_certificate_end_seconds",
    "longwire_apns_certificate_end_seconds", "longwire_apns_certificate_warning_seconds"}


def promtool(*words, text=None):
    done = subprocess.run(["promtool", *map(str, words)], input=text, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def page(gateway):
    """A page with every sample that there can be before a message."""
    eventually(lambda: value(gateway.metrics(), "process_threads") > 0, "the first look at the process")
    return gateway.metrics()


def value(page, name):
    return float(re.search(rf"^{re.escape(name)} (\S+)$", page, re.M)[1])


def names(page):
    return set(re.findall(r"^# TYPE (\S+)", page, re.M))


def metrics_of(expression):
    """The metrics that an expression names: its words that begin as ours do, less the endings of a histogram."""
    text = re.sub(r"\{[^}]*\}|by \([^)]*\)|on \([^)]*\)", "", expression)
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


def test_alerts_are_sound_and_name_metrics_that_there_are(page):
    status, said = promtool("check", "rules", ALERTS)
    assert status == 0, said
    expressions = re.findall(r"^\s+expr: (.*)$", ALERTS.read_text(), re.M)
    assert len(expressions) >= 10
    for expression in expressions:
        found = metrics_of(expression)
        assert found and found <= names(page) | ELSEWHERE, (expression, found - names(page))


@pytest.mark.parametrize("alert, end, warning", [
    ("LongwireCertificateEnds", 'longwire_certificate_end_seconds{job="a",instance="i",listener="device"}',
     'longwire_limit{job="a",instance="i",name="certificateWarningDays"} 30'),
    ("LongwireSenderCertificateEnds", 'longwire_apns_certificate_end_seconds{job="a",instance="i",certificate="admin"}',
     f'longwire_apns_certificate_warning_seconds{{job="a",instance="i"}} {30 * 86_400}')])
def test_the_alert_of_a_certificate_goes_by_the_setting(tmp_path, alert, end, warning):
    series, _, limit = warning.rpartition(" ")
    judge(tmp_path, [
        ({end: f"{days * 86_400}+0x5", series: f"{limit}+0x5"}, alert, "3m", fires) for days, fires in [(29, 1), (31, 0)]])


def judge(folder, cases):
    """Has promtool play series, a minute a step, and count the firing alerts of a name after a time."""
    rules = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [
        {"interval": "1m",
         "input_series": [{"series": name, "values": values} for name, values in series.items()],
         "promql_expr_test": [{
             "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)', "eval_time": time,
             "exp_samples": [{"labels": "{}", "value": fires}]}]}
        for series, alert, time, fires in cases]}
    path = folder / "rules.yaml"
    path.write_text(json.dumps(rules))
    status, said = promtool("test", "rules", path)
    assert status == 0, said


def test_a_feed_that_nobody_reads_is_alerted_before_its_items_go_unread(tmp_path):
    oldest = 'longwire_app_feed_oldest_seconds{instance="i",app="a",type="%s"}'
    missed = 'longwire_feed_items_missed_total{instance="i"}'
    judge(tmp_path, [
        ({oldest % "events": "3500+60x20", oldest % "upstream": "0+0x20"}, "LongwireFeedWaits", "12m", 1),
        ({oldest % "events": "3500+60x20", oldest % "upstream": "0+0x20"}, "LongwireFeedWaits", "5m", 0),
        ({oldest % "events": "300+0x20", oldest % "upstream": "3700 0+0x20"}, "LongwireFeedWaits", "12m", 0),
        ({missed: "7+0x20"}, "LongwireFeedItemsMissed", "12m", 0),
        ({missed: "7+0x5 9+0x10"}, "LongwireFeedItemsMissed", "12m", 1)])
    shown = [target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel["targets"]]
    assert any("longwire_app_feed_oldest_seconds" in expression for expression in shown)


def test_the_dashboard_names_metrics_that_there_are(page, tmp_path):
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += [one["expr"] for one in dashboard["annotations"]["list"]]
    assert len(expressions) >= 20
    for expression in expressions:
        assert metrics_of(expression) <= names(page), expression
    # Prometheus reads every expression, as rules.
    rules = [{"record": f"panel:number:{number}", "expr": expression.replace("$instance", ".*")}
             for number, expression in enumerate(expressions)]
    path = tmp_path / "rules.yaml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    status, said = promtool("check", "rules", path)
    assert status == 0, said
    panels = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(panels)) == len(panels)


def test_labels_of_the_files_are_on_the_page(page):
    """Each label that a selector or a sum names is one of the metric's, or Prometheus' own."""
    labels = {}
    for name, pairs in re.findall(r"^([a-z_]+)\{([^}]*)\}", page, re.M):
        labels.setdefault(re.sub(r"_(bucket|sum|count)$", "", name), set()).update(re.findall(r"(\w+)=", pairs))
    texts = re.findall(r"^\s+expr: (.*)$", ALERTS.read_text(), re.M)
    texts += [target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel["targets"]]
    for text in texts:
        for name, pairs in re.findall(r"((?:longwire|process)_[a-z0-9_]+)\{([^}]*)\}", text):
            wanted = set(re.findall(r"(\w+)=", pairs)) - {"instance", "job"}
            assert wanted <= labels.get(re.sub(r"_(bucket|sum|count)$", "", name), set()), (name, wanted)


def test_any_credential_may_scrape(gateway):
    headers = {"Authorization": f"Bearer {HANDOFF_TOKEN}"}
    assert "process_open_fds" in gateway.call("GET", "/metrics", port=gateway.admin, headers=headers)["text"]
