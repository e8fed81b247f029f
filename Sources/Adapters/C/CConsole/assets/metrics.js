// A parser of Prometheus' text format, and the history for the plots.

const LINE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"/g;

/** Returns all metrics of a page by name, each a list of {labels, value}. */
export function parse(page) {
  const metrics = new Map();
  for (const line of page.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const match = LINE.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(LABEL)) {
      labels[name] = value.replace(/\\(.)/g, (_, letter) => (letter === "n" ? "\n" : letter));
    }
    if (!metrics.has(match[1])) metrics.set(match[1], []);
    metrics.get(match[1]).push({labels, value: match[3] === "+Inf" ? Infinity : Number(match[3])});
  }
  return metrics;
}

const fits = (labels, wanted) => Object.entries(wanted).every(([name, value]) => labels[name] === value);

/** Returns the sum of a metric's samples with these labels, or `null` if the page has none. */
export function sum(metrics, name, wanted = {}) {
  const samples = (metrics.get(name) ?? []).filter(sample => fits(sample.labels, wanted));
  return samples.length === 0 ? null : samples.reduce((total, sample) => total + sample.value, 0);
}

/** Returns the nonzero sums by the values of a label, largest first. */
export function byLabel(metrics, name, label) {
  const sums = new Map();
  for (const {labels, value} of metrics.get(name) ?? []) {
    if (labels[label] !== undefined) sums.set(labels[label], (sums.get(labels[label]) ?? 0) + value);
  }
  return [...sums].filter(([, value]) => value !== 0).sort((one, other) => other[1] - one[1]);
}

/** Returns a quantile of a histogram's counts between two pages, or `null` without counts. */
export function quantile(metrics, before, name, share) {
  const older = new Map((before?.get(`${name}_bucket`) ?? []).map(sample => [JSON.stringify(sample.labels), sample.value]));
  const counts = new Map();
  for (const {labels, value} of metrics.get(`${name}_bucket`) ?? []) {
    const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
    counts.set(bound, (counts.get(bound) ?? 0) + Math.max(0, value - (older.get(JSON.stringify(labels)) ?? 0)));
  }
  const bounds = [...counts.keys()].sort((one, other) => one - other);
  const total = counts.get(Infinity) ?? 0;
  if (total === 0) return null;
  const wanted = share * total;
  let [low, below] = [0, 0];
  for (const bound of bounds) {
    const count = counts.get(bound);
    if (count >= wanted) {
      if (bound === Infinity) return low;
      return low + (bound - low) * (count === below ? 1 : (wanted - below) / (count - below));
    }
    [low, below] = [bound, count];
  }
  return low;
}

const seriesKey = (kind, name, labels = {}) => JSON.stringify([kind, name, Object.entries(labels).sort()]);

/** The pages of the last minutes, and the gateway's own points from before the first of them. */
export class History {
  constructor(span) {
    this.span = span;
    this.clear();
  }

  clear() {
    this.pages = [];
    this.older = new Map();
    this.offset = null;
    this.olderAt = -Infinity;
  }

  /** Whether the gateway's points are to be read again; `noteOlder` notes an attempt. */
  get isOlderDue() { return performance.now() >= this.olderAt + OLDER_PAUSE; }
  noteOlder() { this.olderAt = performance.now(); }

  /** Takes an answer of `/v1/metrics/history`; `now` is the browser's time in milliseconds. */
  takeOlder({time, times, series}, now) {
    // The browser's clock may differ from the gateway's. A new offset for each answer would move points by its transfer time.
    if (this.offset === null || Math.abs(now - time - this.offset) > 2_000) this.offset = now - time;
    this.older = new Map(series.map(({kind, metric, labels, values}) => [
      seriesKey(kind, metric, labels), values.map((value, index) => [times[index] + this.offset, value]).filter(([, value]) => value !== null)]));
  }

  /** Returns the gateway's points that are older than this tab's pages, then `own`. */
  withOlder(kind, name, labels, own) {
    const first = this.pages[0]?.time ?? Infinity;
    return [...(this.older.get(seriesKey(kind, name, labels)) ?? []).filter(([time]) => time < first), ...own];
  }

  read(page, time) { this.push(parse(page), time); }

  push(metrics, time) {
    // The counters of a restarted gateway begin at zero, so older pages cannot be compared.
    const uptime = sum(metrics, "longwire_uptime_seconds");
    const last = this.pages.at(-1);
    if (last && (time < last.time || uptime !== null && uptime < sum(last.metrics, "longwire_uptime_seconds"))) this.clear();
    // While the tab was hidden it read nothing. The gateway's points fill the gap.
    else if (last && time - last.time > GAP) [this.pages, this.olderAt] = [[], -Infinity];
    this.pages.push({metrics, time});
    while (time - this.pages[0].time > this.span) this.pages.shift();
  }

  /** The time range of plots that show every point: 5, 15, 30 or 60 minutes, in milliseconds. */
  get range() {
    const oldest = Math.min(this.pages[0].time, ...[...this.older.values()].map(points => points[0]?.[0] ?? Infinity));
    return [5, 15, 30].map(minutes => minutes * 60_000).find(range => this.pages.at(-1).time - oldest <= range) ?? 3_600_000;
  }

  get last() { return this.pages.at(-1)?.metrics; }
  get before() { return this.pages.at(-2)?.metrics; }

  gauge(name, labels) {
    return this.withOlder("gauge", name, labels,
      this.pages.map(({metrics, time}) => [time, sum(metrics, name, labels)]).filter(([, value]) => value !== null));
  }

  rate(name, labels) {
    const points = [];
    for (let index = 1; index < this.pages.length; index++) {
      const [one, other] = [this.pages[index - 1], this.pages[index]];
      const [from, to] = [sum(one.metrics, name, labels), sum(other.metrics, name, labels)];
      const seconds = (other.time - one.time) / 1000;
      if (to !== null && seconds > 0) points.push([other.time, Math.max(0, (to - (from ?? 0)) / seconds)]);
    }
    return this.withOlder("rate", name, labels, points);
  }

  p99(name) {
    const points = [];
    for (let index = 1; index < this.pages.length; index++) {
      const value = quantile(this.pages[index].metrics, this.pages[index - 1].metrics, name, 0.99);
      if (value !== null) points.push([this.pages[index].time, value]);
    }
    return this.withOlder("p99", name, {}, points);
  }
}

/** Points that are further apart are not connected, in milliseconds. */
export const GAP = 30_000;
/** The time range of this tab's pages, and the intervals between pages and between the gateway's older points, in milliseconds. */
export const SPAN = 300_000, PAUSE = 2_000, OLDER_PAUSE = 60_000;
/** One history per tab, so that the plots survive a change of pages. */
export const history = new History(SPAN);
