// The search box of the header, and the page of its results: a name of any kind leads to the page of the object.

import {call, eachOf, find, isKnownRequest, isTaskId, linkTo, path} from "./api.js";
import {card, code, fill, h, problem, table} from "./dom.js";
import {explain} from "./faults.js";
import {t, tWord} from "./texts.js";

/** Returns the search box. The key "/" leads to it from everywhere but a field. */
export function box(name = "") {
  const input = h("input", {
    id: "find", type: "search", value: name, placeholder: t("findHint"), autocomplete: "off", autocapitalize: "off", spellcheck: "false",
    required: true, maxlength: 128, enterkeyhint: "search", "aria-keyshortcuts": "/",
  });
  return h("form", {class: "find", role: "search", onsubmit: event => {
    event.preventDefault();
    const wanted = input.value.trim();
    if (!wanted) return;
    const to = linkTo("find", wanted);
    // The same name again is looked up again.
    if (location.hash === to) dispatchEvent(new HashChangeEvent("hashchange")); else location.hash = to;
  }}, h("label", {for: "find", class: "unseen"}, t("findLabel")), h("span", {}, input, h("kbd", {"aria-hidden": "true"}, "/")),
  h("button", {}, t("ask")));
}

const isField = element => element?.closest?.("input, textarea, select, [contenteditable]");

addEventListener("keydown", event => {
  const input = document.getElementById("find");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || !input) return;
  if (isField(event.target) || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  input.focus();
  input.select();
});

/** Leads to the page of the only object with the name, or lists the objects. */
export function show(body, [name]) {
  let isOver = false;
  if (!name) return ask(body);
  const said = h("div", {"aria-live": "polite"});
  fill(body, said);
  fill(said, h("p", {class: "quiet"}, t("asking")));
  (async () => {
    try {
      const {apps} = await call("/v1/apps");
      const found = await guess(name, apps.map(({appId}) => appId));
      if (isOver) return;
      // Replaces the address, so that the browser's Back leads to the page before the search.
      if (found.length === 1) return location.replace(found[0].to);
      fill(said, found.length > 0 ? card(t("findSeveral", name), results(found)) : problem(t("findNone", name, apps.length)));
    } catch (error) {
      if (!isOver) fill(said, explain(error));
    }
  })();
  return () => { isOver = true; };
}

/** Leads the reader of a page without an object to the search box. */
export function ask(body) {
  fill(body, card(null, h("p", {class: "quiet"}, t("findFirst"))));
  document.getElementById("find")?.focus();
}

const results = found => table(t("findSeveral", ""), [t("kind"), t("app"), t("findName")], found.map(({kind, app, to, name}) =>
  [h("a", {href: to}, tWord("found", kind)), app, code(name)]), "");

/** Returns the objects with the name. Tries the kinds in the order of `longwire trace`, each in all apps. */
async function guess(name, apps) {
  const inApps = async (...segments) => {
    const answers = await eachOf(apps, async app => ({app, answer: await find(path("v1", "apps", app, ...segments))}));
    return answers.filter(({answer}) => answer);
  };
  const digits = name.toLowerCase();
  if (/^[0-9a-f]{32}$/.test(digits)) {
    // A msgId begins with its bucket, which has 12 bits.
    const message = digits.startsWith("0") ? await find(path("v1", "messages", digits)) : null;
    if (message) return [{kind: "message", app: message.appId, name: digits, to: linkTo("messages", digits)}];
    return (await inApps("devices", digits)).map(({app}) => ({kind: "device", app, name: digits, to: linkTo("devices", app, digits)}));
  }
  if (isTaskId(name)) {
    return (await inApps("tasks", name)).map(({app, answer}) => answer.msgId
      ? {kind: "message", app, name: answer.msgId, to: linkTo("messages", answer.msgId)}
      : {kind: "task", app, name, to: linkTo("tasks", app, name)});
  }
  const requests = (await inApps("requests", name)).filter(({answer}) => isKnownRequest(answer));
  if (requests.length > 0) return requests.map(({app}) => ({kind: "request", app, name, to: linkTo("tasks", app, name)}));
  // Some request ids do not have the form of an alias.
  if (!/^[\p{Alphabetic}\p{N}_]+$/u.test(name)) return [];
  return (await inApps("aliases", name)).filter(({answer}) => answer.devices.length > 0).map(({app, answer: {devices}}) => devices.length === 1
    ? {kind: "device", app, name: devices[0], to: linkTo("devices", app, devices[0])}
    : {kind: "alias", app, name, to: linkTo("tasks", app, name)});
}
