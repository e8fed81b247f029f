// The frame of the console: sign-in, pages, language and colors.

import {enter, linkTo, look, signIn, signOut, token} from "./api.js";
import {field, fill, h, problem} from "./dom.js";
import {history} from "./metrics.js";
import {isChinese, setLanguage, t} from "./texts.js";
import * as overview from "./overview.js";
import * as apps from "./apps.js";
import * as devices from "./devices.js";
import * as messages from "./messages.js";
import * as tasks from "./tasks.js";
import * as handoff from "./handoff.js";
import * as cluster from "./cluster.js";
import * as send from "./send.js";
import * as device from "./device.js";
import * as find from "./find.js";

// Without inherited members, because an address may contain any name.
const PAGES = {__proto__: null, overview, apps, devices, handoff, cluster, send, device, messages, tasks, find};
// The search box leads to the other pages.
const MENU = ["overview", "apps", "devices", "handoff", "cluster", "send", "device"];
const THEME = "longwire.theme";
let stop = () => {};
// The page's content and the entries of the menu, while a reader is signed in.
let content = null, entries = [];

/** Returns a decoded part of an address, or the part itself if its percent encoding is invalid. */
const decoded = text => {
  try { return decodeURIComponent(text); } catch { return text; }
};

const place = () => {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  return {name: PAGES[name] ? name : "overview", rest: rest.filter(text => text !== "")};
};

function applyTheme() {
  const theme = localStorage.getItem(THEME);
  if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
}

function switchTheme() {
  const isDark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  localStorage.setItem(THEME, isDark ? "light" : "dark");
  applyTheme();
}

const controls = () => [
  h("button", {class: "small", onclick: switchLanguage, lang: isChinese() ? "en" : "zh-CN"}, t("language")),
  h("button", {class: "small", onclick: switchTheme, title: t("theme"), "aria-label": t("theme")}, "◐"),
];

function switchLanguage() {
  setLanguage(!isChinese());
  show();
  document.querySelector("button[lang]").focus();
}

const brand = () => h("div", {class: "brand"}, h("img", {src: "/console/icon.svg", alt: ""}), "Longwire");

export function leave(reason) {
  device.leave();
  devices.leave();
  history.clear();
  signOut();
  show(reason);
}

function showSignIn(reason) {
  content = null;
  const input = h("input", {type: "password", autocomplete: "off", spellcheck: "false", required: true});
  const said = h("div", {}, reason && problem(reason));
  const form = h("form", {onsubmit: async event => {
    event.preventDefault();
    signIn(input.value.trim());
    const {status} = await look("/metrics").catch(() => ({status: 0}));
    if (status === 200) return show();
    signOut();
    fill(said, problem(status === 0 ? t("noAnswer") : t("signedOut")));
    input.focus();
  }}, field(t("tokenLabel"), input, t("tokenHint")), h("button", {class: "main"}, t("signIn")));
  document.title = `${t("signIn")} – Longwire`;
  fill(document.body, h("main", {class: "sign-in"}, brand(), h("h1", {}, t("signInTitle")), said, form, h("p", {class: "foot"}, controls())));
  input.focus();
}

/** Shows the whole window: the sign-in, or the frame with the page of the address. */
function show(reason) {
  stop();
  stop = () => {};
  document.documentElement.lang = isChinese() ? "zh-CN" : "en";
  if (!token()) return showSignIn(reason);
  const {name, rest} = place();
  const skipped = content = h("main", {id: "content", tabindex: "-1"});
  entries = MENU.map(page => h("a", {href: linkTo(page)}, t(page)));
  fill(document.body,
    h("a", {class: "skip", href: "#content", onclick: event => { event.preventDefault(); skipped.focus(); }}, t("skip")),
    h("div", {class: "frame"},
      h("header", {class: "side"}, brand(),
        h("nav", {"aria-label": t("console")}, entries),
        h("div", {class: "foot"}, controls(), h("button", {class: "small", onclick: () => leave()}, t("signOut")))),
      find.box(name === "find" ? rest[0] : ""),
      content));
  turn();
  // The next page replaces it.
  if (reason) content.prepend(problem(reason));
}

/** Shows the page of the address within the frame. */
function turn() {
  stop();
  stop = () => {};
  const {name, rest} = place();
  const title = PAGES[name].title?.(rest) ?? t(name);
  document.title = `${title} – Longwire`;
  MENU.forEach((page, index) => {
    if (page === name) entries[index].setAttribute("aria-current", "page"); else entries[index].removeAttribute("aria-current");
  });
  const body = h("div");
  fill(content, h("h1", {tabindex: "-1"}, title), body);
  stop = PAGES[name].show(body, rest) ?? (() => {});
}

/** Signs in with the one-time link in the address, if there is one; returns whether there was. */
function enterByLink() {
  const link = /^#\/enter\/([0-9a-f]+)$/.exec(location.hash);
  if (!link) return false;
  // The code must not stay in the tab's history.
  window.history.replaceState(null, "", `${location.pathname}#/`);
  if (!token()) {
    document.documentElement.lang = isChinese() ? "zh-CN" : "en";
    fill(document.body, h("main", {class: "sign-in"}, brand(), h("h1", {}, t("signInTitle")), h("p", {role: "status"}, t("signingIn"))));
  }
  enter(link[1]).then(isValid => {
    if (!isValid) return show(t(token() ? "linkIgnored" : "linkUsed"));
    // Pages of an earlier credential go.
    device.leave();
    devices.leave();
    history.clear();
    return show();
  }, error => show(error.message || t("noAnswer")));
  return true;
}

addEventListener("hashchange", () => {
  if (enterByLink()) return;
  if (!token() || !content) return show();
  turn();
  scrollTo(0, 0);
  // The link that was followed may have gone with its page. The keyboard then continues at the new one.
  if (document.activeElement === document.body) content.querySelector("h1").focus();
});
addEventListener("longwire-signed-out", () => leave(t("signedOut")));
applyTheme();
if (!enterByLink()) show();
