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

export class History {
  constructor(capacity) {
    this.capacity = capacity;
    this.pages = [];
  }

  read(page, time) { this.push(parse(page), time); }

  push(metrics, time) {
    // The counters of a restarted gateway begin at zero, so older pages cannot be compared.
    const uptime = sum(metrics, "longwire_uptime_seconds");
    const last = this.pages.at(-1);
    if (last && uptime !== null && uptime < sum(last.metrics, "longwire_uptime_seconds")) this.pages = [];
    this.pages.push({metrics, time});
    if (this.pages.length > this.capacity) this.pages.shift();
  }

  get last() { return this.pages.at(-1)?.metrics; }
  get before() { return this.pages.at(-2)?.metrics; }

  gauge(name, labels) {
    return this.pages.map(({metrics, time}) => [time, sum(metrics, name, labels)]).filter(([, value]) => value !== null);
  }

  rate(name, labels) {
    const points = [];
    for (let index = 1; index < this.pages.length; index++) {
      const [one, other] = [this.pages[index - 1], this.pages[index]];
      const [from, to] = [sum(one.metrics, name, labels), sum(other.metrics, name, labels)];
      const seconds = (other.time - one.time) / 1000;
      if (to !== null && seconds > 0) points.push([other.time, Math.max(0, (to - (from ?? 0)) / seconds)]);
    }
    return points;
  }

  quantile(name, share) {
    const points = [];
    for (let index = 1; index < this.pages.length; index++) {
      const value = quantile(this.pages[index].metrics, this.pages[index - 1].metrics, name, share);
      if (value !== null) points.push([this.pages[index].time, value]);
    }
    return points;
  }
}

/** The time range of the plots and the interval between pages, in milliseconds. */
export const SPAN = 300_000, PAUSE = 2_000;
/** One history per tab, so that the plots survive a change of pages. */
export const history = new History(SPAN / PAUSE + 1);
