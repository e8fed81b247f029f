#!/usr/bin/env bash
# The first figures of docs/Performance.md: starts release gateways in a folder of its own, loads them with
# `longwire bench` (idle, live, http; three runs each, a fresh process for every run) and prints a Markdown table.
#
#   Tests/Benchmarks/first-figures.sh [--duration SECONDS] [--runs N] [--folder DIR]
#
# DIR is where the gateway's data goes; it must be on the disk that is to be measured, not in memory (default: a new
# folder under .build). Takes about four minutes besides the build, is bounded, and removes what it made.
set -euo pipefail

duration=10
runs=3
parent=""
while [ $# -gt 0 ]; do
    case "$1" in
        --duration) duration="$2"; shift 2 ;;
        --runs) runs="$2"; shift 2 ;;
        --folder) parent="$2"; shift 2 ;;
        -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) echo "unknown argument: $1 (see --help)" >&2; exit 64 ;;
    esac
done

cd "$(dirname "$0")/../.."
swift build -c release --product longwired >&2
swift build -c release --product longwire >&2
binaries="$(swift build -c release --show-bin-path)"

# Both processes need a descriptor a connection; the gateway also has its files and listeners.
ulimit -n "$(ulimit -Hn)"
limit="$(ulimit -n)"
[ "$limit" = unlimited ] && limit=1000000
connections=15000
if [ "$connections" -gt $((limit - 1000)) ]; then connections=$((limit - 1000)); fi
devices=10000
if [ "$devices" -gt "$connections" ]; then devices="$connections"; fi

mkdir -p "${parent:-.build}"
folder="$(mktemp -d "${parent:-.build}/first-figures.XXXXXX")"
folder="$(cd "$folder" && pwd)"
gateway=""

stop_gateway() {
    [ -n "$gateway" ] || return 0
    kill -TERM "$gateway" 2>/dev/null || true
    for _ in $(seq 1 100); do
        kill -0 "$gateway" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$gateway" 2>/dev/null || true
    wait "$gateway" 2>/dev/null || true
    gateway=""
}

trap 'stop_gateway; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

# The embedded defaults: data in ./longwire-data, a demo app in its demo.json, the default ports, fsync.
start_gateway() {
    (cd "$folder" && exec "$binaries/longwired" >gateway.log 2>&1) &
    gateway=$!
    for _ in $(seq 1 200); do
        if ! kill -0 "$gateway" 2>/dev/null; then
            echo "the gateway did not start:" >&2
            tail -n 20 "$folder/gateway.log" >&2
            gateway=""
            exit 1
        fi
        if [ -s "$folder/longwire-data/demo.json" ] && is_ready; then return 0; fi
        sleep 0.1
    done
    echo "the gateway was not ready within 20 s" >&2
    exit 1
}

is_ready() {
    python3 - "$folder/longwire-data/demo.json" <<'PYTHON' 2>/dev/null
import json, sys, urllib.request
address = json.load(open(sys.argv[1])).get("httpAddress", "127.0.0.1:7080")
urllib.request.urlopen(f"http://{address}/readyz", timeout=1).read()
PYTHON
}

bench() { # NAME ARGUMENTS…: one run against a fresh gateway, its JSON into a file of that name
    local name="$1"
    shift
    start_gateway
    echo "  longwire bench $*" >&2
    timeout 300 "$binaries/longwire" bench "$@" --data "$folder/longwire-data" --server-pid "$gateway" --json - \
        >"$folder/$name.json"
    stop_gateway
}

# Registering is a durable write of its own; it is done once, outside every measurement.
bench prepare idle --connections "$connections" --hold 0

for run in $(seq 1 "$runs"); do
    bench "idle.$run" idle --connections "$connections" --hold "$duration"
    bench "live.$run" live --devices "$devices" --in-flight 2000 --duration "$duration"
    bench "paced.$run" live --devices "$devices" --rate 20000 --duration "$duration"
    bench "http.$run" http --connections 32 --devices 1000 --connected --duration "$duration"
done

python3 - "$folder" "$runs" "$connections" "$devices" <<'PYTHON'
import json, statistics, sys

folder, runs, connections, devices = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]

def values(name, metric):
    found = []
    for run in range(1, runs + 1):
        metrics = json.load(open(f"{folder}/{name}.{run}.json"))["metrics"]
        if metric in metrics:
            found.append(metrics[metric])
    return found

rows = [
    (f"idle, {connections} connections: gateway's memory each", "idle", "rssPerConnection", "≤ 1,024 B", 1, " B", 0),
    (f"idle, {connections} connections: connects", "idle", "connectRate", "", 1, "/s", 0),
    ("idle: kernel slab each, both ends", "idle", "kernelPerConnection", "", 1, " B", 0),
    (f"live, {devices} devices, 2,000 in flight: delivered", "live", "rate", "≥ 50,000/s", 1, "/s", 0),
    ("live: gateway's CPU a message", "live", "serverCPU", "", 1e3, " µs", 1),
    ("live: lost", "live", "loss", "0", 1, "", 0),
    ("live: repeated", "live", "repeats", "0", 1, "", 0),
    ("live: busiest generator thread", "live", "generatorBusy", "", 1, " % of a core", 0),
    (f"live, {devices} devices at 20,000/s: deliver p50", "paced", "deliver.p50", "", 1e6, " ms", 2),
    ("live at 20,000/s: deliver p99", "paced", "deliver.p99", "", 1e6, " ms", 2),
    ("live at 20,000/s: deliver p99.9", "paced", "deliver.p99.9", "", 1e6, " ms", 2),
    ("http, 32 connections: accepted", "http", "rate", "≥ 15,000/s", 1, "/s", 0),
    ("http: answer p99", "http", "answer.p99", "", 1e6, " ms", 2),
    ("http: gateway's CPU a request", "http", "serverCPU", "", 1e3, " µs", 1),
]
print(f"| what | goal | median of {runs} | range |")
print("|---|---|---|---|")
for title, name, metric, goal, scale, unit, digits in rows:
    found = [value / scale for value in values(name, metric)]
    if not found:
        print(f"| {title} | {goal} | not measured | |")
        continue
    text = lambda value: f"{value:,.{digits}f}"
    median = text(statistics.median(found)) + unit
    print(f"| {title} | {goal} | {median} | {text(min(found))} – {text(max(found))} |")
notes = {note for run in range(1, runs + 1) for name in ("live", "http")
         for note in json.load(open(f"{folder}/{name}.{run}.json"))["notes"]}
for note in sorted(notes):
    print(f"\n{note}")
PYTHON
