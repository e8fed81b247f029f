#!/usr/bin/env python3
"""Tests the alert rules of deploy/prometheus with promtool, and holds tests, dashboard and docs to the rules.

    Tests/Checks/check-alerts.py               runs the tests of Tests/Checks/Alerts and compares the files
    Tests/Checks/check-alerts.py --self-test   shows that it would notice a breach

Each group of rules has a file of tests. There each alert fires in a scenario and is silent just before. healthy.yaml has data for
every rule, and no alert fires. docs/use/Operations.md and its translation have a row for each alert, with its metrics and its delay.

The self-test changes every rule: it removes the rule's delay, or halves or doubles a threshold or the delay. A test must fail each
time. Other breaches are planted in copies of the files.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

HERE = pathlib.Path(__file__).resolve().parents[2]
RULES, DASHBOARD, TESTS = "deploy/prometheus/longwire-alerts.yaml", "deploy/grafana/longwire.json", "Tests/Checks/Alerts"
# Each page with the words for a delay in its table of alerts.
PAGES = {"docs/use/Operations.md": r"for (\d+) min", "docs/use/Operations.zh-CN.md": r"持续 (\d+) 分钟"}
SEVERITIES = {"page", "ticket"}
SELECTOR = re.compile(r"\b((?:longwire|process)_\w+|up)\b(\{[^}]*\})?")
# A row of the table of alerts: its alert, and the cell with its condition.
ROW = re.compile(r"^\| `(Longwire\w+)` \| ((?:\\.|[^|\\])*) \|", re.M)
# A number that a rule compares with: no part of a name, a range, a selector or a string.
NUMBER = re.compile(r"(?<![\w.{\[(\"])\d+(?:\.\d+)?(?![\w.\]\"])")


def groups(root):
    return yaml.safe_load((root / RULES).read_text())["groups"]


def alerts(group):
    return [rule for rule in group["rules"] if "alert" in rule]


def selectors(expression):
    """The metrics that an expression reads, each with its matchers."""
    bare = re.sub(r"\b(by|without|on|ignoring|group_left) \([^)]*\)", "", expression)
    return {(name, tuple(re.findall(r'(\w+)="([^"]*)"', matchers))) for name, matchers in SELECTOR.findall(bare)}


def metrics(text):
    """The metrics that a text names, less the endings of histograms."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name, _ in SELECTOR.findall(text)}


def labels(text):
    return dict(re.findall(r'(\w+)="([^"]*)"', text))


def asked(test):
    """What a test asks of single alerts: name, and the labels of each alert that must fire."""
    for one in test["promql_expr_test"]:
        if found := re.fullmatch(r'ALERTS\{alertname="(\w+)", alertstate="firing"\}', one["expr"]):
            yield found[1], [labels(sample["labels"]) for sample in one["exp_samples"]]


def promtool(test):
    done = subprocess.run(["promtool", "test", "rules", str(test)], capture_output=True, text=True, timeout=120)
    return [] if done.returncode == 0 else [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]


def test_file(root, group):
    return root / TESTS / (group["name"].removeprefix("longwire-") + ".yaml")


def form(root):
    """Severity, texts and labels of each rule."""
    faults, seen = [], {}
    for group in groups(root):
        for rule in group["rules"]:
            name, expression = rule.get("alert", rule.get("record")), rule["expr"]
            if re.search(r"\bjob\s*[!=]", expression):
                faults.append(f"{name} depends on the name of a scrape job")
            if "alert" not in rule:
                continue
            texts = rule.get("annotations", {})
            if rule.get("labels", {}).get("severity") not in SEVERITIES:
                faults.append(f"{name} has no severity of {sorted(SEVERITIES)}")
            if set(texts) != {"summary", "description"}:
                faults.append(f"{name} has the annotations {sorted(texts)}")
                continue
            if len(re.findall(r"[.](?:\s|$)", texts["description"])) < 2:
                faults.append(f"the description of {name} must explain its threshold and say what to do")
            if seen.setdefault(texts["description"], name) != name:
                faults.append(f"{name} has the description of {seen[texts['description']]}")
    return faults


def tested(root):
    """Each alert fires and is silent in its group's tests, and healthy.yaml has data for it."""
    faults = []
    wanted = {test_file(root, group).name for group in groups(root)} | {"healthy.yaml"}
    there = {path.name for path in (root / TESTS).glob("*.yaml")}
    if wanted != there:
        return [f"{TESTS} has {sorted(there - wanted)} without a group, and lacks {sorted(wanted - there)}"]
    healthy = yaml.safe_load((root / TESTS / "healthy.yaml").read_text())["tests"]
    for test in healthy:
        if [(one["expr"], one["eval_time"], one["exp_samples"]) for one in test["promql_expr_test"]] != [
                ('count_over_time(ALERTS{alertstate="firing"}[3h])', "3h", [])]:
            faults.append(f"healthy.yaml must ask for all alerts of three hours: {test['name']}")
    played = [(series["series"].split("{")[0], labels(series["series"])) for series in healthy[0]["input_series"]]
    for group in groups(root):
        tests = yaml.safe_load(test_file(root, group).read_text())["tests"]
        for rule in alerts(group):
            name = rule["alert"]
            answers = [(fires, test) for test in tests for alert, fires in asked(test) if alert == name]
            firing = [one for fires, _ in answers for one in fires]
            if not firing:
                faults.append(f"{name} has no test in which it fires")
            if not any(not fires and any(more for more, other in answers if other is test) for fires, test in answers):
                faults.append(f"{name} has no test in which it is silent before it fires")
            for found in re.findall(r"\$labels\.(\w+)", "".join(rule["annotations"].values())):
                if any(found not in one for one in firing):
                    faults.append(f"{name} names the label {found}, which it lacks in a test")
            for metric, matchers in selectors(rule["expr"]):
                if not any(metric == other and dict(matchers).items() <= has.items() for other, has in played):
                    faults.append(f"healthy.yaml has no series of {metric} {dict(matchers)} for {name}")
    return faults


def documented(root):
    """The pages' tables: a row for each alert, with metrics and a delay that are the rule's."""
    faults, rules = [], {rule["alert"]: rule for group in groups(root) for rule in alerts(group)}
    for page, delay in PAGES.items():
        rows = ROW.findall((root / page).read_text(encoding="utf-8"))
        names = [name for name, _ in rows]
        for name in sorted(set(rules) ^ set(names)):
            faults.append(f"{page}: {'lacks a row for' if name in rules else 'has a row for the unknown'} {name}")
        faults += [f"{page}: has several rows for {name}" for name in sorted(set(names)) if names.count(name) > 1]
        for name, cell in rows:
            if name not in rules:
                continue
            reads, says = metrics(rules[name]["expr"]), metrics(cell)
            if "longwire:" not in rules[name]["expr"] and not says:
                faults.append(f"{page}: the row of {name} names no metric")
            if says - reads:
                faults.append(f"{page}: the row of {name} names {sorted(says - reads)}, which the rule does not read")
            lasts = re.search(delay, cell)
            if (lasts and f"{lasts[1]}m") != rules[name].get("for"):
                faults.append(f"{page}: the row of {name} has not the rule's delay, {rules[name].get('for', 'none')}")
    return faults


def dashboard(root):
    """Panels read each metric at any scrape interval and under any name of the scrape job."""
    text = (root / DASHBOARD).read_text()
    faults = [f"{DASHBOARD}: a range of {found}; use $__rate_interval" for found in re.findall(r"\[\d+[smhd]\]", text)]
    return faults + [f"{DASHBOARD}: depends on the scrape job {found}" for found in re.findall(r'job=[~\\"]*[^,}]*', text)]


def check(root):
    if faults := form(root) + tested(root) + documented(root) + dashboard(root):
        return faults
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return [fault for faults in pool.map(promtool, sorted((root / TESTS).glob("*.yaml"))) for fault in faults]


# The self-test: mutants of rules, and breaches of everything else.

def mutants(rule):
    """What may go wrong in a rule, and the rule with it."""
    for number in NUMBER.finditer(rule["expr"]):
        if value := float(number[0]):
            for factor in (0.5, 2):
                changed = rule["expr"][:number.start()] + f"{value * factor:g}" + rule["expr"][number.end():]
                yield f"{number[0]} x {factor}: {changed}", {**rule, "expr": changed}
    yield "never fires", {**rule, "expr": f"({rule['expr']}) and on () (vector(1) > 1)"}
    yield "always fires", {**rule, "expr": "up or vector(1)"}
    if minutes := int(rule.get("for", "0m").rstrip("m")):
        yield "no delay", {key: value for key, value in rule.items() if key != "for"}
        if minutes > 1:  # the tests evaluate once a minute
            yield "half the delay", {**rule, "for": f"{minutes * 30}s"}
        yield "twice the delay", {**rule, "for": f"{minutes * 2}m"}


def survivors(root):
    """The mutants that no test notices."""
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:

        def survives(number, group, index, rule):
            path = pathlib.Path(folder) / f"rules-{number}.json"
            path.write_text(json.dumps({"groups": [{**group, "rules": group["rules"][:index] + [rule] + group["rules"][index + 1:]}]}))
            tests = yaml.safe_load(test_file(root, group).read_text())
            tests["rule_files"] = [str(path)]
            # Only tests that ask for the rule: the others are of other rules.
            tests["tests"] = [test for test in tests["tests"] if any(name == rule["alert"] for name, _ in asked(test))]
            copy = pathlib.Path(folder) / f"tests-{number}.json"
            copy.write_text(json.dumps(tests))
            return not promtool(copy)

        jobs = []
        for group in groups(root):
            for index, rule in enumerate(group["rules"]):
                for what, mutant in mutants(rule) if "alert" in rule else ():
                    jobs.append((f"{rule['alert']}: {what}", pool.submit(survives, len(jobs), group, index, mutant)))
        return [f"no test notices {what}" for what, job in jobs if job.result()], len(jobs)


# A file, what to replace in it, and with what.
BREACHES = [
    (RULES, "or longwire:gateway_known) and", ") and"),
    (RULES, "or longwire:sender_known) and", ") and"),
    (RULES, "expr: up == 0 and on (job, instance) longwire:gateway_known", 'expr: up{job="longwire"} == 0'),
    (RULES, "expr: up == 0 and on (job, instance) longwire:gateway_known", "expr: up == 0"),
    (RULES, "process_max_fds > 0.9 and on (job, instance) longwire:gateway_known", "process_max_fds > 0.9"),
    (RULES, "and on (job, instance) longwire_uptime_seconds > 300", ""),
    (RULES, "_redis_bytes / (longwire_store_redis_limit_bytes > 0)", "_redis_bytes / longwire_store_redis_limit_bytes"),
    (RULES, "abs(longwire_clock_offset_seconds)", "longwire_clock_offset_seconds"),
    (RULES, " or increase(longwire_store_damaged_rows_total[10m]) > 0", ""),
    (RULES, "of {{ $labels.listener }} on", "of {{ $labels.port }} on"),
    (RULES, "{ severity: page }", "{ severity: urgent }"),
    (RULES, "          summary: ", "          title: "),
    (RULES, "      - alert: LongwireWebhooksFail", "      - alert: LongwireWebhookFails"),
    (RULES, "longwire_webhooks_failing", "longwire_webhook_failing"),
    (f"{TESTS}/feeds.yaml", '{alertname="LongwireWebhooksFail", alertstate="firing"}', '{alertname="LongwireHookFails", alertstate="firing"}'),
    (f"{TESTS}/feeds.yaml", "eval_time: 35m", "eval_time: 34m"),
    (f"{TESTS}/healthy.yaml", "longwire_disk_free_bytes", "longwire_disk_left_bytes"),
    (f"{TESTS}/healthy.yaml", "values: '0.01+0x180'", "values: '0.6+0x180'"),
    (f"{TESTS}/healthy.yaml", "[3h])', eval_time: 3h", "[3h])', eval_time: 1m"),
    ("docs/use/Operations.md", "| `LongwireLinkDown` |", "| `LongwireLinkGone` |"),
    ("docs/use/Operations.zh-CN.md", "| `LongwireLinkDown` |", "| `LongwireDown` |"),
    ("docs/use/Operations.md", "`longwire_cluster_link_up == 0` for 1 min", "`longwire_cluster_link_up == 0` for 2 min"),
    ("docs/use/Operations.zh-CN.md", "`longwire_cluster_link_up == 0` 持续 1 分钟", "`longwire_cluster_link_up == 0`"),
    ("docs/use/Operations.md", "`longwire_cluster_link_up == 0` for", "`longwire_cluster_members == 0` for"),
    (DASHBOARD, "[$__rate_interval]", "[1m]"),
    (DASHBOARD, 'instance=~\\"$instance\\"', 'job=\\"longwire\\"'),
]


@contextlib.contextmanager
def copied(root):
    with tempfile.TemporaryDirectory() as folder:
        for name in (RULES, DASHBOARD, TESTS, *PAGES):
            target = pathlib.Path(folder) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (root / name).is_dir() else shutil.copy)(root / name, target)
        yield pathlib.Path(folder)


def self_test():
    faults, count = survivors(HERE)
    if count < 200:
        faults.append(f"there were {count} changed rules only")
    with copied(HERE) as copy:
        for name, old, new in BREACHES:
            path = copy / name
            text = path.read_text(encoding="utf-8")
            if old not in text:
                faults.append(f"{name} has no {old!r}")
                continue
            path.write_text(text.replace(old, new, 1), encoding="utf-8")
            if not check(copy):
                faults.append(f"this went unnoticed: {name}: {old!r} -> {new!r}")
            path.write_text(text, encoding="utf-8")
    return faults, f"{count} changed rules and {len(BREACHES)} breaches were noticed"


def main(arguments):
    if arguments == ["--self-test"]:
        faults, done = self_test()
    elif not arguments:
        faults, done = check(HERE), f"{sum(len(alerts(group)) for group in groups(HERE))} alerts are tested and documented"
    else:
        print(f"check-alerts: unknown argument {arguments[0]}", file=sys.stderr)
        sys.exit(64)
    print("\n".join(f"check-alerts: {fault}" for fault in faults or [done]))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
