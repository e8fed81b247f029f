#!/usr/bin/env python3
"""Prints the table of rules and clients as Markdown.

    table.py [--client NAME]... [--kills N] [pytest arguments]   runs the suite, then prints the table
    table.py --from FILE [FILE]...                               prints the table of files written by `--results`

A cell is `kept`, `broken` (one case is enough), `not offered` (the client lacks the command or the transport), or
`not run` (its driver is missing). The exit code is 1 if a rule is broken.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
GROUPS = {
    "registration": "Registration and Hello", "messages": "Messages and positions", "kills": "Kills",
    "reconnect": "Reconnecting", "alternates": "Alternates", "clock": "Clock", "heartbeat": "Heartbeat",
    "bytes": "Bytes", "state": "State", "device": "The app's calls", "names": "The device's names",
    "tokens": "Tokens of the app's server", "transport": "TLS and WebSocket"}
# The worst outcome of a rule's cases counts; a case that was not offered does not lower the others.
ORDER = ["broken", "kept", "not offered", "not run"]


def outcomes(records):
    """Returns the outcome by group, rule's text and client."""
    table = collections.defaultdict(lambda: collections.defaultdict(dict))
    for one in records:
        row = table[one["group"]][one["text"]]
        known = row.get(one["client"])
        if known is None or ORDER.index(one["outcome"]) < ORDER.index(known):
            row[one["client"]] = one["outcome"]
    return table


def cells(*texts):
    return "| " + " | ".join(texts) + " |"


def markdown(records):
    table, lines, counts = outcomes(records), [], collections.Counter()
    clients = list(dict.fromkeys(one["client"] for one in records))
    for group in sorted(table, key=lambda name: list(GROUPS).index(name) if name in GROUPS else len(GROUPS)):
        lines += [f"### {GROUPS.get(group, group)}", "", cells("rule", *clients), "|---" * (len(clients) + 1) + "|"]
        for text, row in table[group].items():
            lines.append(cells(text.replace("|", "/"), *(row.get(client, "not run") for client in clients)))
            counts.update((client, row.get(client, "not run")) for client in clients)
        lines.append("")
    lines += ["### Totals", "", cells("client", *ORDER), "|---" * (len(ORDER) + 1) + "|"]
    lines += [cells(client, *(str(counts[client, one]) for one in ORDER)) for client in clients]
    return "\n".join(lines) + "\n"


def run(arguments):
    """Runs the suite; returns its records. The outcome of pytest itself goes to the standard error."""
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(folder) / "results.json"
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--tb=line", str(HERE), "--results", str(results), *arguments],
            stdout=sys.stderr, check=False)
        return json.loads(results.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="files", nargs="+", help="files written by --results")
    options, rest = parser.parse_known_args()
    if options.files:
        records = [one for file in options.files for one in json.loads(pathlib.Path(file).read_text())]
    else:
        records = run(rest)
    print(markdown(records), end="")
    return 1 if any(one["outcome"] == "broken" for one in records) else 0


if __name__ == "__main__":
    sys.exit(main())
