#!/usr/bin/env python3
"""Writes what the last proving runs found into docs/Testing.md, or checks that the page still fits the code.

    table.py [--results FOLDER]   puts the figures of FOLDER (default .build/proof) between the page's two marks; parts whose
                                  file is not there stay as they are
    table.py --check              fails when a planted fault or a fuzz target of the code is missing in the page

The results are the JSON files that `make soak`, `make fuzz` and `make sanitize` leave; `make proof` runs them all.
"""

import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/Testing.md"
BEGIN, END = "<!-- proof: begin -->", "<!-- proof: end -->"
# What the head of a part says, for parts whose figures are not there.
HEADS = {
    "soak": "Simulation", "planted": "Planted faults", "rounds": "Crash rounds", "power": "Power failures", "fuzz": "Fuzzing",
    "roam": "Random requests", "sanitize": "Sanitizers",
}
FILES = ("soak", "planted", "rounds", "power", "fuzz", "roam", "sanitize")


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


def power(result):
    kinds = list(dict.fromkeys(name for one in result.values() for name, value in one.items() if isinstance(value, int)))
    rows = [(words(name), *(one.get(name, 0) for one in result.values())) for name in kinds]
    return "### Power failures (`make power`)\n\n" + table(("what", *(f"`{name}`" for name in result)), rows)


def words(name):
    """camelCase as words."""
    return re.sub(r"(?<=[a-zA-Z])(?=[A-Z])", " ", name).lower()


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


def write(folder):
    """Writes each part whose figures are there; the others stay as they stand in the page."""
    page = PAGE.read_text()
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        sys.exit(f"{PAGE} must hold '{BEGIN}' and '{END}', once each")
    before, rest = page.split(BEGIN)
    known, after = rest.split(END)
    old = {part.split("\n", 1)[0]: part.strip() for part in re.split(r"^(?=### )", known, flags=re.MULTILINE) if part.strip()}
    parts, stale = [], []
    for name in FILES:
        path = folder / f"{name}.json"
        if path.exists():
            parts.append(globals()[name](json.loads(path.read_text())))
            continue
        head = next((head for head in old if head.startswith(f"### {HEADS[name]}")), None)
        if head is None:
            sys.exit(f"{path} is missing: run `make proof`, or the part of it that writes this file")
        parts.append(old[head])
        stale.append(name)
    PAGE.write_text(f"{before}{BEGIN}\n\n" + "\n\n".join(parts) + f"\n\n{END}{after}")
    print(f"wrote the figures of {folder} into {PAGE}" + (f"; as they were: {', '.join(stale)}" if stale else ""))


def check():
    page = PAGE.read_text()
    source = (ROOT / "Sources/Delivery/PlantedFault.swift").read_text()
    faults = re.findall(r"^    case (\w+)$", source, re.MULTILINE)
    targets = [path.stem for path in (ROOT / "Tests/Fuzz/corpora").glob("*.hex")]
    if len(faults) < 15 or not targets:
        sys.exit("the planted faults or the fuzz corpora were not found where they used to be")
    missing = [name for name in faults + targets if f"`{name}`" not in page]
    if missing:
        sys.exit(f"docs/Testing.md says nothing of {', '.join(missing)}: run `make proof`")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / ".build/proof")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    check() if options.check else write(options.results)
