#!/usr/bin/env python3
"""Writes the results of the last proving runs into the documents, or checks that these match the code.

    table.py [--results FOLDER]   puts the figures of FOLDER (default .build/proof) between the two marks of each page: all of
                                  them into docs/results/Measurements.md, a row for each proof into docs/Testing.md; proofs whose file
                                  is missing stay unchanged
    table.py --check              fails when a planted fault or a fuzz target of the code is missing in docs/results/Measurements.md, or
                                  a proof in docs/Testing.md

The results are the JSON files of `make soak`, `make fuzz` and `make sanitize`; `make proof` runs them all.
"""

import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
DETAILS, SUMMARY = ROOT / "docs/results/Measurements.md", ROOT / "docs/Testing.md"
BEGIN, END = "<!-- proof: begin -->", "<!-- proof: end -->"
# The start of each part's heading and of its row in the summary.
HEADS = {
    "soak": "Simulation", "planted": "Planted faults", "rounds": "Crash rounds", "cluster": "Cluster rounds", "power": "Power failures", "fuzz": "Fuzzing",
    "roam": "Random requests", "sanitize": "Sanitizers",
}
FILES = ("soak", "planted", "rounds", "cluster", "power", "fuzz", "roam", "sanitize")


def grouped(value):
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if isinstance(value, float) else str(value)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(grouped(cell) for cell in row) + " |" for row in rows])


def soak(result):
    rows = [
        ("seeds", result["seeds"]),
        ("simulated events", result["events"]),
        ("events a second, one core", result["eventsPerSecond"]),
        ("distinct states visited", result["distinctStates"]),
        ("seeds that failed", len(result["failures"])),
    ]
    faults = sorted(result["faults"].items())
    return "\n\n".join(
        [
            "### Simulation (`make soak`)",
            table(("what", "figure"), rows),
            table(("fault injected", "times"), faults),
        ]
    )


def planted(result):
    rows = [(f"`{one['fault']}`", one["seed"], one["violation"].replace("|", "/")) for one in result]
    return "### Planted faults (`make test`)\n\n" + table(("fault", "caught by seed", "as"), rows)


def rounds(result):
    return "### Crash rounds with real processes (`make rounds`)\n\n" + table(
        ("what", "figure"), [(words(name), value) for name, value in result.items() if not isinstance(value, (list, dict))]
    )


def cluster(result):
    """Formats several runs side by side: one gateway on Redis, three gateways."""
    names = list(dict.fromkeys(name for one in result.values() for name, value in one.items() if isinstance(value, int)))
    rows = [(words(name), *(one.get(name, "") for one in result.values())) for name in names]
    faults = sorted({fault for one in result.values() for fault in one["serverFaults"]})
    times = [(words(fault), *(one["serverFaults"].get(fault, "") for one in result.values())) for fault in faults]
    return "\n\n".join([
        "### Cluster rounds with real processes (`make cluster-rounds`)",
        table(("what", *result), rows), table(("fault", *result), times)])


def power(result):
    kinds = list(dict.fromkeys(name for one in result.values() for name, value in one.items() if isinstance(value, int)))
    rows = [(words(name), *(one.get(name, 0) for one in result.values())) for name in kinds]
    return "### Power failures (`make power`)\n\n" + table(("what", *(f"`{name}`" for name in result)), rows)


def words(name):
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name).lower()


def fuzz(result):
    rows = [
        (f"`{one['name']}`", one["executions"], one.get("requests", ""), one["seconds"], one["coverage"], one["crashes"])
        for one in result["targets"]
    ]
    return "### Fuzzing (`make fuzz`)\n\n" + table(
        ("target", "executions", "requests", "seconds", "edges covered", "crashes"), rows
    )


def roam(result):
    rows = [(words(name).replace("http", "HTTP"), value) for name, value in result.items()]
    return "### Random requests through a whole gateway (`make roam`)\n\n" + table(("what", "count"), rows)


def sanitize(result):
    rows = [
        (name, one["tests"], ", ".join(f"{key} {value}" for key, value in one.items() if key != "tests"))
        for name, one in result.items()
    ]
    return "### Sanitizers (`make sanitize`)\n\n" + table(("sanitizer", "tests", "found"), rows)


def count(number, noun, ending="s"):
    return f"{grouped(number)} {noun}" + ("" if number == 1 else ending)


def row(name, result):
    """Returns a proof's row of the summary: its work and its findings."""
    if name == "soak":
        return count(result["seeds"], "seed") + ", " + count(result["events"], "event"), count(
            len(result["failures"]), "seed") + " failed"
    if name == "planted":
        return count(len(result), "deliberate bug"), "each was caught"
    if name == "rounds":
        done = (count(result["rounds"], "round"), count(result["kills"], "kill"), count(result["accepted"], "message"))
        return ", ".join(done), f"{result['lost']} lost, {result['repeated']} repeated, {result['outOfOrder']} out of order"
    if name == "cluster":
        runs = result.values()
        done = [count(sum(one["rounds"] for one in runs), "round")]
        done.append(count(sum(sum(one["serverFaults"].values()) for one in runs), "fault"))
        done.append(count(sum(one["accepted"] for one in runs), "message"))
        found = [(sum(one[kind] for one in runs), text) for kind, text in (
            ("lost", "lost"), ("repeated", "repeated"), ("outOfOrder", "out of order"))]
        return ", ".join(done), ", ".join(f"{number} {text}" for number, text in found)
    if name == "power":
        return ", ".join(f"{count(one['cuts'], 'failure')} with `{durability}`" for durability, one in result.items()), count(
            sum(one["violations"] for one in result.values()), "violation")
    if name == "fuzz":
        targets = result["targets"]
        return count(len(targets), "target") + ", " + count(sum(one["executions"] for one in targets), "execution"), count(
            sum(one["crashes"] for one in targets), "crash", "es")
    if name == "roam":
        return count(result["requests"], "request"), count(result["failures"], "failure")
    found = ("; ".join(f"{one}: " + ", ".join(f"{key} {value}" for key, value in figures.items() if key != "tests")
                       for one, figures in result.items()))
    return ", ".join(f"{count(figures['tests'], 'test')} ({one})" for one, figures in result.items()), found


def split(page):
    """Returns the text before, between and after the marks of a page."""
    text = page.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"{page} must hold '{BEGIN}' and '{END}', once each")
    before, rest = text.split(BEGIN)
    return before, *rest.split(END)


def write(folder):
    """Writes each proof with figures; the others stay unchanged in the pages."""
    before, known, after = split(DETAILS)
    above, summary, below = split(SUMMARY)
    old = {part.split("\n", 1)[0]: part.strip() for part in re.split(r"^(?=### )", known, flags=re.MULTILINE) if part.strip()}
    lines = summary.strip().split("\n")
    parts, rows, stale = [], [], []
    for name in FILES:
        path = folder / f"{name}.json"
        if path.exists():
            result = json.loads(path.read_text())
            parts.append(globals()[name](result))
            rows.append("| " + " | ".join((HEADS[name], *row(name, result))) + " |")
            continue
        head = next((head for head in old if head.startswith(f"### {HEADS[name]}")), None)
        line = next((line for line in lines if line.startswith(f"| {HEADS[name]} |")), None)
        if head is None or line is None:
            sys.exit(f"{path} is missing: run `make proof`, or the part of it that writes this file")
        parts.append(old[head])
        rows.append(line)
        stale.append(name)
    DETAILS.write_text(f"{before}{BEGIN}\n\n" + "\n\n".join(parts) + f"\n\n{END}{after}")
    SUMMARY.write_text(f"{above}{BEGIN}\n\n" + "\n".join([*lines[:2], *rows]) + f"\n\n{END}{below}")
    print(f"wrote the figures of {folder} into {DETAILS} and {SUMMARY}"
          + (f"; as they were: {', '.join(stale)}" if stale else ""))


def check():
    details, summary = split(DETAILS)[1], split(SUMMARY)[1]
    source = (ROOT / "Sources/Core/Delivery/PlantedFault.swift").read_text()
    faults = re.findall(r"^    case (\w+)$", source, re.MULTILINE)
    targets = [path.stem for path in (ROOT / "Tests/Fuzz/corpora").glob("*.hex")]
    if len(faults) < 15 or not targets:
        sys.exit("the planted faults or the fuzz corpora were not found where they used to be")
    missing = [name for name in faults + targets if f"`{name}`" not in details]
    if missing:
        sys.exit(f"docs/results/Measurements.md says nothing of {', '.join(missing)}: run `make proof`")
    missing = [head for head in HEADS.values() if f"| {head} |" not in summary]
    if missing:
        sys.exit(f"docs/Testing.md says nothing of {', '.join(missing)}: run `make proof`")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / ".build/proof")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    check() if options.check else write(options.results)
