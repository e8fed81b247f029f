import {h, s} from "./dom.js";
import {t} from "./texts.js";

const WIDTH = 520, HEIGHT = 150, LEFT = 46, BOTTOM = 18, TOP = 8, RIGHT = 8;

/** Returns a plot with its title and latest values. `lines`: [{name, points: [[milliseconds, value]]}]. */
export function plot(title, lines, {format, span, now}) {
  const values = lines.flatMap(line => line.points.map(([, value]) => value));
  const top = ceiling(Math.max(0, ...values));
  const x = time => LEFT + (WIDTH - LEFT - RIGHT) * (1 - (now - time) / span);
  const y = value => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
  const svg = s("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": summary(title, lines, format)});
  for (const part of [0, 0.5, 1]) {
    svg.append(s("line", {class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(top * part), y2: y(top * part)}));
    svg.append(s("text", {class: "scale", x: LEFT - 6, y: y(top * part) + 3.5, "text-anchor": "end"}, format(top * part)));
  }
  for (const minutes of [0, 1, 2, 3, 4, 5].filter(minutes => minutes * 60_000 <= span)) {
    const place = x(now - minutes * 60_000);
    svg.append(s("text", {class: "scale", x: place, y: HEIGHT - 4, "text-anchor": minutes === 0 ? "end" : "middle"},
      minutes === 0 ? "0" : `−${minutes} ${t("minuteWord")}`));
  }
  lines.forEach((line, index) => {
    const points = line.points.filter(([time]) => now - time <= span);
    if (points.length === 1) svg.append(s("circle", {class: `dot line-${index}`, cx: x(points[0][0]), cy: y(points[0][1]), r: 2.5}));
    if (points.length < 2) return;
    svg.append(s("polyline", {class: `line line-${index}`,
      points: points.map(([time, value]) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`).join(" ")}));
  });
  return h("figure", {class: "plot"},
    h("figcaption", {}, h("strong", {}, title),
      h("span", {class: "legend"}, lines.map((line, index) =>
        h("span", {}, h("i", {class: `key key-${index}`, "aria-hidden": "true"}), line.name, " ",
          h("b", {}, line.points.length ? format(line.points.at(-1)[1]) : "–"))))),
    svg);
}

const summary = (title, lines, format) => `${title}: ` + lines.map(line =>
  `${line.name} ${line.points.length ? format(line.points.at(-1)[1]) : "–"}`).join(", ");

/** Returns the next round number: 1, 2 or 5 times a power of ten. */
function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const factor of [1, 2, 5, 10]) if (value <= factor * power) return factor * power;
  return 10 * power;
}
