// The settings of an app as a form, with the JSON as the expert view. The form keeps settings that it has no field for.

import {field, fill, h} from "./dom.js";
import {t, tWord} from "./texts.js";

const number = (path, initial) => ({path, kind: "number", initial});
const text = (path, initial = "") => ({path, kind: "text", initial});
/** A list of words, written with commas. */
const list = path => ({path, kind: "list", initial: ""});
const flag = path => ({path, kind: "flag"});
const choice = (path, ...options) => ({path, kind: "choice", options});
const feed = (name, ...more) => [
  {path: name, kind: "object"}, number(`${name}.maxItems`, 100_000), number(`${name}.maxBytes`, 67_108_864), number(`${name}.maxAgeSeconds`, 604_800), ...more,
  text(`${name}.webhook.url`), text(`${name}.webhook.secret`), number(`${name}.webhook.batchItems`, 100), number(`${name}.webhook.timeoutSeconds`, 10),
];

/** The fields by section. The first value of a choice, and `initial` of the others, is the gateway's default. */
const SECTIONS = {
  apns: [
    text("apns.topic"), choice("apns.template.transmission", "payload", "members", "none"), flag("apns.template.mutableContent"),
    flag("apns.template.notifications"), flag("apns.template.wake"), text("apns.template.sound", "default"), text("apns.template.badge"),
    text("apns.template.category"), text("apns.template.threadId"),
    choice("apns.template.interruptionLevel", "", "passive", "active", "time-sensitive", "critical"), number("maxAttempts", 5), list("vendors"),
  ],
  devices: [list("deviceMay")],
  queue: [number("queue.messages", 1_000), number("queue.bytes", 4_194_304), choice("queue.overflow", "reject", "dropOldest")],
  quotas: ["devices", "publishesPerSecond", "requestBytesPerSecond", "queuedMessages", "queuedBytes", "storedBytes"].map(name => number(`quotas.${name}`, 0)),
  push: Object.entries({
    defaultTtlMilliseconds: 7_200_000, longestTtlMilliseconds: 259_200_000, transmissionCharacters: 3_072, batchItems: 200, listTargets: 1_000,
    reportedTasks: 200, scheduleDays: 7, timestampToleranceSeconds: 600, authenticationsPerMinute: 60_000, callsPerMinute: 0,
    receiptsPerMinute: 600_000, receiptsPerMinuteOfNetwork: 60_000, listsPerMinute: 0, listsPerDay: 2_000_000, broadcastsPerMinute: 5,
    broadcastsPerDay: 100, fastTagBroadcastsPerMinute: 5, fastTagBroadcastsPerDay: 100,
  }).map(([name, initial]) => number(`push.${name}`, initial)),
  upstream: feed("upstream", number("upstream.maxItemsPerDevice", 128), number("upstream.maxBytesPerDevice", 262_144)),
  events: feed("events", text("getuiReceipts.url"), number("getuiReceipts.batchItems", 100), number("getuiReceipts.timeoutSeconds", 10)),
};

const isObject = value => value !== null && typeof value === "object" && !Array.isArray(value);
const at = (value, path) => path.split(".").reduce((part, key) => isObject(part) ? part[key] : undefined, value);

/** Sets or removes a value. Objects that only a removal would make are not made. */
function assign(target, path, value) {
  const names = path.split("."), last = names.pop();
  for (const name of names) {
    if (!isObject(target[name])) {
      if (value === undefined) return;
      target[name] = {};
    }
    target = target[name];
  }
  if (value === undefined) delete target[last]; else target[last] = value;
}

/** Removes the objects that a removed field left empty. An empty `upstream` or `events` enables the feed. */
function prune(target, path) {
  const names = path.split(".").slice(0, -1);
  for (; names.length > 0; names.pop()) {
    const object = at(target, names.join("."));
    if (!isObject(object) || Object.keys(object).length > 0 || ["upstream", "events"].includes(names.join("."))) return;
    assign(target, names.join("."), undefined);
  }
}

/** Returns an editor of an app's settings: its `element`, and `read()`, which returns the settings or `null` after reporting an error. */
export function editor(settings, label = t("appSettings")) {
  let value = structuredClone(settings), view = "form";
  let inputs = [];
  const place = h("div");
  const area = h("textarea", {spellcheck: "false", class: "code", rows: "12", oninput: () => area.setCustomValidity("")});
  const expert = field(label, area, t("appSettingsHint"));

  const readForm = () => {
    const changed = structuredClone(value);
    for (const {setting, input, before} of inputs) {
      const now = setting.kind === "flag" || setting.kind === "object" ? input.checked : input.value;
      if (now === before) continue;
      if (!input.reportValidity()) return null;
      const isRemoved = now === "" || now === false;
      assign(changed, setting.path, isRemoved ? undefined : setting.kind === "number" ? Number(now) : setting.kind === "list" ? now.split(/[\s,，]+/).filter(Boolean) : setting.kind === "object" ? at(changed, setting.path) ?? {} : now);
      if (isRemoved) prune(changed, setting.path);
    }
    // A feed that is switched off has no settings, and a setting of a feed switches it on.
    for (const {setting, input, before} of inputs) if (setting.kind === "object" && before && !input.checked) delete changed[setting.path];
    return changed;
  };
  const readText = () => {
    let read;
    try { read = JSON.parse(area.value); } catch (error) { read = error; }
    area.setCustomValidity(isObject(read) && !(read instanceof Error) ? "" : t("notJSON", read instanceof Error ? read.message : ""));
    return area.reportValidity() ? read : null;
  };
  const read = () => view === "form" ? readForm() : readText();

  const show = () => {
    if (view === "json") {
      area.value = JSON.stringify(value, null, 2);
      return fill(place, expert);
    }
    inputs = [];
    fill(place, Object.entries(SECTIONS).map(([name, fields], index) =>
      h("details", {open: index === 0 || fields.some(({path}) => at(value, path) !== undefined)}, h("summary", {}, tWord("section", name)),
        h("div", {class: "fields"}, fields.map(setting => control(setting, value, inputs))))));
  };
  const group = `settings-view-${++count}`;
  const views = h("fieldset", {class: "choice"}, h("legend", {}, t("settingsView")), ["form", "json"].map(name =>
    h("label", {}, h("input", {type: "radio", name: group, value: name, checked: name === view, onchange: () => {
      const now = read();
      if (!now) return void (views.querySelector(`[value=${view}]`).checked = true);
      [value, view] = [now, name];
      show();
    }}), " ", t(name === "form" ? "settingsForm" : "settingsJSON"))));
  show();
  return {element: h("div", {class: "settings"}, views, place), read};
}
let count = 0;

function control(setting, value, inputs) {
  const {path, kind} = setting;
  const held = at(value, path);
  const before = kind === "flag" ? held === true : kind === "object" ? held !== undefined : held === undefined || held === null ? "" : Array.isArray(held) ? held.join(", ") : String(held);
  const name = settingName(path);
  if (kind === "flag" || kind === "object") {
    const input = h("input", {type: "checkbox", checked: before, "data-path": path});
    inputs.push({setting, input, before});
    return h("label", {class: "check"}, input, " ", name, " ", h("code", {}, path));
  }
  let input;
  if (kind === "choice") {
    const [first, ...others] = setting.options;
    const known = new Set(["", ...others]);
    input = h("select", {"data-path": path}, h("option", {value: "", selected: before === "" || before === first}, first ? t("defaultValue", first) : t("none")),
      others.map(option => h("option", {value: option, selected: option === before}, option)),
      !known.has(before) && before !== first && h("option", {value: before, selected: true}, before));
    inputs.push({setting, input, before: before === first ? "" : before});
  } else {
    // A closed section would hide the browser's message.
    input = h("input", {oninvalid: () => { input.closest("details").open = true; }, value: before, spellcheck: "false", autocomplete: "off", "data-path": path,
      placeholder: setting.initial === "" ? null : String(setting.initial), ...(kind === "number" && {type: "number", min: 0, step: 1})});
    inputs.push({setting, input, before});
  }
  return field(name, input, h("code", {}, path));
}

/** Returns the label of a setting. Both feeds share the labels of their settings. */
function settingName(path) {
  const key = path.replace(/^(upstream|events)\./, "feed.").replace(/^apns\.template\./, "apns.");
  const name = `setting${key.split(".").map(part => part.charAt(0).toUpperCase() + part.slice(1)).join("")}`;
  return t(name);
}
