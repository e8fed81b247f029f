// Plots of the last minutes or of an hour. The pointer or the arrow keys choose a time, and the legend then has the values of that time.

import {h, patch, s} from "./dom.js";
import {GAP} from "./metrics.js";
import {bytes, clock, compact, duration, number, t} from "./texts.js";

const WIDTH = 520, HEIGHT = 150, LEFT = 58, BOTTOM = 18, TOP = 8, RIGHT = 8;
const STEPS = 3;
const MINUTE = 60, HOUR = 3_600, DAY = 86_400;

/** Returns 1, 2 or 5 times a power of ten that is at least `value`. */
function decimal(value) {
  const power = 10 ** Math.floor(Math.log10(value) + 1e-9);
  return [1, 2, 5, 10].map(factor => factor * power).find(step => step >= value * (1 - 1e-9));
}

const TIMES = [1, 2, 5, 10, 15, 30, ...[1, 2, 5, 10, 15, 30].map(count => count * MINUTE), ...[1, 2, 3, 6, 12].map(count => count * HOUR)];

/** The units of axes: the format of a value, the end of an axis without values, and the step and the label of the other axes. */
export const UNITS = {
  count: {format: compact, least: 1, step: value => Math.max(1, decimal(value)), label: compact},
  rate: {format: compact, least: 1, step: value => Math.max(0.1, decimal(value)), label: compact},
  duration: {
    format: duration, least: 1,
    step: value => value < 1 ? Math.max(1e-6, decimal(value)) : TIMES.find(step => step >= value) ?? DAY * decimal(value / DAY),
    label: (value, step) => {
      if (value === 0) return "0";
      if (step < 1) return duration(value);
      const [unit, seconds] = [["dayWord", DAY], ["hourWord", HOUR], ["minuteWord", MINUTE], ["secondWord", 1]].find(([, size]) => step >= size);
      return `${number(value / seconds)} ${t(unit)}`;
    },
  },
  bytes: {
    format: bytes, least: 1024,
    step: value => 2 ** Math.max(0, Math.ceil(Math.log2(value))),
    label: bytes,
  },
};

/** Returns the values on an axis from 0 on, such that the last is at least `top`. */
export function axis(unit, top) {
  const step = top > 0 ? UNITS[unit].step(top / STEPS) : UNITS[unit].least;
  const count = Math.max(1, Math.ceil(top / step - 1e-9));
  return Array.from({length: count + 1}, (_, index) => [index * step, UNITS[unit].label(index * step, step)]);
}

/** The plot under the pointer or with the keyboard's cursor: its title, and the chosen time or its distance from the newest one. */
let chosen = null;

/** Returns a plot with its title and values. `lines`: [{name, points: [[milliseconds, value]]}]; `unit` is a key of UNITS. */
export function plot(title, lines, options) {
  const {unit, span, now} = options;
  const {format} = UNITS[unit];
  const times = [...new Set(lines.flatMap(line => line.points.map(([time]) => time)))].filter(time => now - time <= span).sort((one, other) => one - other);
  const time = chosen?.title === title && times.length > 0 ? nearest(times, chosen.time ?? now - chosen.ago) : null;
  // An old last point is not the present value.
  const present = points => (now - (points.at(-1)?.[0] ?? -Infinity) <= GAP ? points.at(-1)[1] : undefined);
  const values = lines.map(({points}) => time === null ? present(points) : points.find(([at]) => at === time)?.[1]);
  const words = lines.map(({name}, index) => `${name} ${values[index] === undefined ? "–" : format(values[index])}`).join(", ");
  const again = element => patch(element.closest("figure"), [...plot(title, lines, options).childNodes]);
  const choose = (element, wanted) => { chosen = wanted && {title, ...wanted}; again(element); };
  const step = (element, by) => {
    const index = time === null ? times.length - 1 : times.indexOf(time) + by;
    choose(element, {time: times[Math.min(times.length - 1, Math.max(0, index))]});
  };
  const keys = {
    ArrowLeft: element => step(element, -1), ArrowRight: element => step(element, 1), ArrowDown: element => step(element, -1),
    ArrowUp: element => step(element, 1), PageDown: element => step(element, -10), PageUp: element => step(element, 10),
    Home: element => choose(element, {time: times[0]}), End: element => choose(element, {time: times.at(-1)}),
    Escape: element => choose(element, null),
  };
  return h("figure", {class: "plot", key: title},
    h("figcaption", {}, h("strong", {}, title),
      h("span", {class: "legend"}, time !== null && h("time", {key: "time"}, clock(time, false)), lines.map((line, index) =>
        h("span", {key: line.name}, h("i", {class: `key key-${index}`, "aria-hidden": "true"}), line.name, " ",
          h("b", {}, values[index] === undefined ? "–" : format(values[index])))))),
    h("div", {
      class: "reader", role: "slider", tabindex: 0, "aria-label": title, "aria-orientation": "horizontal",
      "aria-valuemin": -Math.round(span / 1000), "aria-valuemax": 0, "aria-valuenow": time === null ? 0 : Math.round((time - now) / 1000),
      "aria-valuetext": `${time === null ? "" : `${clock(time, false)}: `}${words}`,
      onpointermove: event => {
        const {left, width} = event.currentTarget.getBoundingClientRect();
        const share = ((event.clientX - left) / width * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT);
        choose(event.currentTarget, {ago: span * (1 - share)});
      },
      onpointerleave: event => { if (chosen?.title === title && chosen.ago !== undefined) choose(event.currentTarget, null); },
      onblur: event => { if (chosen?.title === title) choose(event.currentTarget, null); },
      onkeydown: event => {
        if (times.length === 0 || !keys[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
        event.preventDefault();
        keys[event.key](event.currentTarget);
      },
    }, drawing(lines, time, options)));
}

const nearest = (times, wanted) => times.reduce((best, time) => Math.abs(time - wanted) < Math.abs(best - wanted) ? time : best);

/** Returns the points in runs without a gap. */
function runs(points) {
  const found = [];
  points.forEach((point, index) => {
    if (index === 0 || point[0] - points[index - 1][0] > GAP) found.push([]);
    found.at(-1).push(point);
  });
  return found;
}

function drawing(lines, time, {unit, span, now}) {
  const shown = lines.map(({points}) => points.filter(([at]) => now - at <= span));
  const ticks = axis(unit, Math.max(0, ...shown.flat().map(([, value]) => value)));
  const top = ticks.at(-1)[0];
  const x = time => LEFT + (WIDTH - LEFT - RIGHT) * (1 - (now - time) / span);
  const y = value => TOP + (HEIGHT - TOP - BOTTOM) * (1 - Math.max(0, value) / top);
  const svg = s("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true"});
  for (const [value, label] of ticks) {
    svg.append(s("line", {class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value)}));
    svg.append(s("text", {class: "scale", x: LEFT - 6, y: y(value) + 3.5, "text-anchor": "end"}, label));
  }
  const spacing = span > 900_000 ? 10 : span > 300_000 ? 5 : 1;
  for (let minutes = 0; minutes * 60_000 <= span; minutes += spacing) {
    const place = x(now - minutes * 60_000);
    svg.append(s("text", {class: "scale", x: place, y: HEIGHT - 4, "text-anchor": minutes === 0 ? "end" : "middle"},
      minutes === 0 ? t("nowWord") : `−${minutes} ${t("minuteWord")}`));
  }
  shown.forEach((points, index) => {
    for (const run of runs(points)) {
      if (run.length === 1) svg.append(s("circle", {class: `dot line-${index}`, cx: x(run[0][0]), cy: y(run[0][1]), r: 2.5}));
      else svg.append(s("polyline", {class: `line line-${index}`,
        points: run.map(([time, value]) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`).join(" ")}));
    }
  });
  if (time !== null) {
    svg.append(s("line", {class: "cursor", x1: x(time), x2: x(time), y1: TOP, y2: HEIGHT - BOTTOM}));
    shown.forEach((points, index) => {
      const point = points.find(([at]) => at === time);
      if (point) svg.append(s("circle", {class: `dot line-${index}`, cx: x(time), cy: y(point[1]), r: 3.5}));
    });
  }
  return svg;
}
