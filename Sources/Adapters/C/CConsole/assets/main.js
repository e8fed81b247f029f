// The frame of the console: sign-in, pages, language and colors.

import {look, signIn, signOut, token} from "./api.js";
import {field, fill, h, problem} from "./dom.js";
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

// Without inherited members, because an address may contain any name.
const PAGES = {__proto__: null, overview, apps, devices, messages, tasks, handoff, cluster, send, device};
const THEME = "longwire.theme";
let stop = () => {};

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
  h("button", {class: "small", onclick: () => { setLanguage(!isChinese()); show(); }, lang: isChinese() ? "en" : "zh-CN"}, t("language")),
  h("button", {class: "small", onclick: switchTheme, title: t("theme"), "aria-label": t("theme")}, "◐"),
];

const brand = () => h("div", {class: "brand"}, h("img", {src: "/console/icon.svg", alt: ""}), "Longwire");

export function leave(reason) {
  device.leave();
  signOut();
  show(reason);
}

function showSignIn(reason) {
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
  fill(document.body, h("main", {class: "sign-in"}, brand(), said, form, h("p", {class: "foot"}, controls())));
  input.focus();
}

function show(reason) {
  stop();
  stop = () => {};
  document.documentElement.lang = isChinese() ? "zh-CN" : "en";
  if (!token()) return showSignIn(reason);
  const {name, rest} = place();
  document.title = `${t(name)} – Longwire`;
  const content = h("main", {id: "content", tabindex: "-1"}, h("h1", {}, t(name)));
  fill(document.body,
    h("a", {class: "skip", href: "#content", onclick: event => { event.preventDefault(); content.focus(); }}, t("skip")),
    h("div", {class: "frame"},
      h("header", {class: "side"}, brand(),
        h("nav", {"aria-label": t("console")}, Object.keys(PAGES).map(page =>
          h("a", {href: `#/${page}`, "aria-current": page === name ? "page" : null}, t(page)))),
        h("div", {class: "foot"}, controls(), h("button", {class: "small", onclick: () => leave()}, t("signOut")))),
      content));
  const body = h("div");
  content.append(body);
  stop = PAGES[name].show(body, rest) ?? (() => {});
}

addEventListener("hashchange", () => show());
addEventListener("longwire-signed-out", () => leave(t("signedOut")));
applyTheme();
show();
