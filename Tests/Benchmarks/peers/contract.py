"""The contract of `peers.py`: each figure, its computation from measured values, its goal, and the table.

This module starts no process and reads no clock.
"""

import dataclasses
import math
import statistics


@dataclasses.dataclass(frozen=True)
class Row:
    """One figure. With `peer` it is `ours` ÷ `theirs`, both of one run; without, it is `ours` itself."""

    what: str
    group: str  # the load that measures it
    ours: str  # the metric of Longwire
    unit: str  # of the metrics: µs, ms, /s or B
    goal: str = ""  # `≤ 1.5` or `≥ 130,000`, in the figure's own unit
    peer: str = ""  # another side of the load
    theirs: str = ""  # its metric; as ours without


# Rates and latencies are void while other processes use more of the machine than this. CPU a message and bytes are not.
QUIET_CORES = 0.25

ROWS = (
    Row("live, {devices} devices: CPU a message", "live", "serverCPU", "µs", "≤ 1.5", "bare router"),
    Row("live, {devices} devices: rate", "live", "rate", "/s", "≥ 2.2", "mosquitto"),
    Row("live, {devices} devices: rate", "live", "rate", "/s", "", "bare router"),
    Row("live, {devices} devices: CPU a message", "live", "serverCPU", "µs", "", "mosquitto"),
    Row("live, {few} devices: CPU a message", "few", "serverCPU", "µs", "≤ 2.3", "bare router"),
    Row("live, {few} devices: rate", "few", "rate", "/s", "", "bare router"),
    Row("durable enqueue", "enqueue", "enqueueRate", "/s", "≥ 1.3", "redis-server"),
    Row("durable enqueue: CPU a message", "enqueue", "enqueueServerCPU", "µs", "", "redis-server"),
    Row("lease and settle", "handoff", "rate", "/s", "≥ 1.2", "redis-server"),
    Row("lease and settle: CPU a job", "handoff", "serverCPU", "µs", "", "redis-server"),
    Row("enqueue with a job each, {window}", "steady", "rate", "/s", "≥ 130,000"),
    Row("enqueue with a job each, {window}: CPU a message", "steady", "serverCPU", "µs"),
    Row("push/single/cid with delivery and ack: CPU a request", "http", "serverCPU", "µs", "≤ 3", "nginx"),
    Row("push/single/cid: rate", "http", "rate", "/s", "", "nginx"),
    Row("cold drain, 10,000 × 100", "drain", "drainRate", "/s", "≥ 150,000"),
    Row("cold drain, 10,000 × 100: CPU a message", "drain", "drainServerCPU", "µs"),
    Row("push/all to {reached}: deliveries", "broadcast", "rate", "/s", "≥ 0.8", "bare fan-out"),
    Row("push/all: CPU a delivery with its ack", "broadcast", "serverCPU", "µs", "", "bare fan-out"),
    Row("storm of {devices}", "storm", "helloRate", "/s", "≥ 1.0", "mosquitto"),
    Row("storm of {devices}: CPU a Hello", "hello", "helloServerCPU", "µs", "≤ 1.25", "bare router"),
    Row("storm of {devices}, without messages", "hello", "helloRate", "/s", "", "bare router"),
    Row("{rate}/s, {devices} devices: p99", "paced", "deliver.p99", "ms", "≤ 1.5", "mosquitto"),
    Row("{rate}/s, {devices} devices: p50", "paced", "deliver.p50", "ms", "", "mosquitto"),
    Row("journal, accept and ack of a live message, payload aside", "live", "journalBytes", "B", "≤ 200"),
    Row("disk, a queued message with a job, payload aside", "disk", "queuedBytes", "B", "≤ 300"),
    Row("disk, an ended message", "disk", "endedBytes", "B", "≤ 150"),
    Row("drain of {queued} from the ordered store, a job each", "disk", "drainRate", "/s"),
    # Measured only on request.
    Row("absent: enqueued", "absent", "enqueueRate", "/s", "", "mosquitto"),
    Row("absent: drained", "absent", "drainRate", "/s", "", "mosquitto"),
    Row("durable enqueue, one stream for all", "stream", "enqueueRate", "/s", "", "redis-server"),
    Row("{rate}/s, {devices} devices: p99", "bare-paced", "deliver.p99", "ms", "", "bare router"),
    Row("{rate}/s, {devices} devices: p50", "bare-paced", "deliver.p50", "ms", "", "bare router"),
)


def text(value, unit):
    """Returns a figure in a readable form; times are in nanoseconds."""
    if unit == "/s":
        return f"{value:,.0f}/s"
    if unit == "B":
        return f"{value:,.0f} B"
    if unit == "×":
        return f"{value:.2f} ×"
    scale = {"µs": 1e3, "ms": 1e6}[unit]
    return f"{value / scale:,.{1 if unit == 'µs' else 2}f} {unit}"


def reaches(value, goal):
    """Returns whether a figure keeps a goal; `None` without one."""
    if not goal:
        return None
    comparison, bound = goal.split()
    bound = float(bound.replace(",", ""))
    return value <= bound if comparison == "≤" else value >= bound


def ratios(row, runs):
    """Returns the row's figure of each run that has both sides: (figure, ours, theirs); `theirs` is `None` without a peer.

    `runs` are dictionaries: side → metrics, from one run of the row's group.
    """
    found = []
    for sides in runs:
        ours = sides.get("longwire", {}).get(row.ours)
        if not row.peer:
            theirs, value = None, ours
        else:
            theirs = sides.get(row.peer, {}).get(row.theirs or row.ours)
            value = ours / theirs if ours is not None and theirs else None
        if value is not None and math.isfinite(value):
            found.append((value, ours, theirs))
    return found


def summarise(row, runs, absent, sizes, busy=0.0):
    """Returns a row with its results, ready for JSON.

    `absent` is the reason why a side, or the whole group, was not measured; `busy` is the number of cores that others used before
    its loads.
    """
    found = ratios(row, runs)
    values = [value for value, _, _ in found]
    result = {
        "what": row.what.format(**sizes), "group": row.group, "peer": row.peer or None, "unit": "×" if row.peer else row.unit,
        "sideUnit": row.unit, "goal": row.goal or None, "values": values,
        "longwire": [ours for _, ours, _ in found], "beside": [theirs for _, _, theirs in found] if row.peer else None,
        "median": None, "reached": None, "skipped": None, "busyCores": busy,
        "isDisturbed": row.unit in ("/s", "ms") and busy > QUIET_CORES,
    }
    if values:
        result["median"] = statistics.median(values)
        result["lowest"], result["highest"] = min(values), max(values)
        result["reached"] = None if result["isDisturbed"] else reaches(result["median"], row.goal)
    else:
        result["skipped"] = absent.get((row.group, row.peer)) or absent.get((row.group, "longwire")) \
            or absent.get((row.group, "")) or "not measured"
    return result


def markdown(rows):
    """Returns the table; a row without a figure has the reason."""
    lines = ["| figure | Longwire | beside | found | range | goal | reached |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        goal = row["goal"] or ""
        if goal and row["unit"] != "×":
            goal += f" {row['unit']}" if row["unit"] == "B" else row["unit"]
        if row["median"] is None:
            lines.append(f"| {row['what']} | | {row['peer'] or ''} | skipped: {row['skipped']} | | {goal} | – |")
            continue
        unit = row["unit"]
        ours = text(statistics.median(row["longwire"]), row["sideUnit"]) if row["peer"] else ""
        beside = f"{row['peer']} {text(statistics.median(row['beside']), row['sideUnit'])}" if row["peer"] else ""
        spread = f"{text(row['lowest'], unit)} – {text(row['highest'], unit)}" if len(row["values"]) > 1 else ""
        reached = {True: "yes", False: "**no**", None: "busy machine" if goal else ""}[row["reached"]]
        lines.append(
            f"| {row['what']} | {ours} | {beside} | **{text(row['median'], unit)}** | {spread} | {goal} | {reached} |")
    return "\n".join(lines)


def exposition(lines):
    """Parses a page in the text format of metrics: name with its labels → value."""
    pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def rate_between(samples, start, end):
    """Returns counts a second between the samples nearest to two moments; the samples are (seconds, count), in order."""
    first = min(samples, key=lambda sample: abs(sample[0] - start))
    last = min(samples, key=lambda sample: abs(sample[0] - end))
    if last[0] <= first[0]:
        raise ValueError("there are no two samples to take a rate of")
    return (last[1] - first[1]) / (last[0] - first[0])
