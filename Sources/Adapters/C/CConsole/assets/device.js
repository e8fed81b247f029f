// A page that acts as a device, to receive a push without a phone.

import {call, linkTo, path} from "./api.js";
import {appChoice} from "./choice.js";
import {DeviceClient, keptCid} from "./deviceclient.js";
import {badge, card, code, facts, field, fill, h, patch, problem, table} from "./dom.js";
import {confirm, explain} from "./faults.js";
import {clock, number, t, time} from "./texts.js";

// The client stays connected while other pages of the console are shown.
let client = null;
let shown = () => {};

const url = () => `${location.protocol === "https:" ? "wss:" : "ws:"}//${location.host}/console/device`;

export const ownDevice = app => keptCid(app);

/** Disconnects at the sign-out. */
export function leave() {
  client?.disconnect();
  client = null;
}
addEventListener("pagehide", () => client?.disconnect());

function choose(app) {
  if (client?.app === app) return client;
  client?.disconnect();
  client = new DeviceClient(app, url(), () => shown());
  if (client.isRegistered) client.connect();
  return client;
}

export function show(body, [app]) {
  let isOver = false;
  (async () => {
    let apps;
    try { apps = await appChoice(app ?? client?.app); } catch (error) { return isOver || fill(body, explain(error)); }
    if (isOver) return;
    if (!apps.value) return fill(body, card(null, h("p", {class: "quiet"}, t("appsEmpty"))));
    const place = h("div"), list = h("div", {"aria-live": "polite"});
    apps.addEventListener("change", () => { location.hash = linkTo("device", apps.value); });
    fill(body, card(t("deviceTitle"), h("p", {class: "quiet"}, t("deviceHint")), field(t("app"), apps), place), list);
    choose(apps.value);
    let before = "";
    shown = () => {
      // The form is not rebuilt while nothing changed, so that its field keeps the focus.
      const now = `${client.isRegistered} ${client.state} ${client.reason} ${client.applicationState}`;
      if (now !== before) fill(place, client.isRegistered ? device(client) : registration(client));
      else if (client.isRegistered) fill(place.querySelector(".position"), number(client.position));
      before = now;
      patch(list, client.isRegistered && messages(client));
    };
    shown();
  })();
  return () => {
    isOver = true;
    shown = () => {};
  };
}

function registration(client) {
  const secret = h("input", {type: "password", autocomplete: "off", spellcheck: "false", required: true});
  return [
    client.reason && problem(t("deviceStopped", client.reason)),
    h("form", {onsubmit: event => {
      event.preventDefault();
      client.register(secret.value.trim());
    }}, field(t("appSecret"), secret, t("appSecretHint")), h("button", {class: "main", disabled: client.state === "connecting"}, t("deviceRegister"))),
  ];
}

function device(client) {
  const states = {open: ["good", "connected"], connecting: ["warn", "deviceConnecting"], waiting: ["warn", "deviceWaiting"], stopped: ["bad", "deviceEnded"], away: ["", "disconnected"]};
  const [kind, word] = states[client.state];
  const {cid} = client;
  const isIn = client.state === "open" || client.state === "connecting" || client.state === "waiting";
  return [
    client.reason && problem(t("deviceStopped", client.reason)),
    facts([
      [t("session"), badge(kind, t(word))],
      [t("cid"), h("a", {href: linkTo("devices", client.app, cid)}, code(cid))],
      [t("devicePosition"), h("span", {class: "position"}, number(client.position))],
    ]),
    h("fieldset", {class: "choice"}, h("legend", {}, t("appState")), ["foreground", "background"].map(state =>
      h("label", {}, h("input", {type: "radio", name: "application-state", value: state, checked: client.applicationState === state,
        onchange: () => client.setApplicationState(state)}), " ", t(state)))),
    h("p", {class: "buttons"},
      isIn ? h("button", {onclick: () => client.disconnect()}, t("deviceLeave")) : h("button", {class: "main", onclick: () => client.connect()}, t("deviceConnect")),
      h("button", {onclick: event => tryPush(client, event.target)}, t("devicePush")),
      h("a", {href: linkTo("send", client.app, cid)}, t("sendTo")),
      h("button", {class: "danger", onclick: async () => { if (await confirm(t("deviceForgetSure"))) client.forget(); }}, t("deviceForget"))),
  ];
}

async function tryPush(client, button) {
  button.disabled = true;
  try {
    const bytes = crypto.getRandomValues(new Uint8Array(12));
    await call(path("v1", "apps", client.app, "push"), {method: "POST", body: {
      request_id: Array.from(bytes, byte => byte.toString(16).padStart(2, "0")).join(""),
      audience: {cid: [client.cid]}, push_message: {transmission: `{"hello":"${new Date().toISOString()}"}`},
    }});
  } catch (error) {
    button.closest(".card").append(explain(error));
  } finally { button.disabled = false; }
}

const messages = client => card(t("deviceMessages"), table(t("deviceMessages"),
  [t("deviceArrived"), t("deviceSequence"), t("transmission"), t("deviceFlags"), t("msgId")],
  client.messages.map(message => [
    clock(message.at), `${message.stream === 0 ? "" : `${t("deviceBroadcast")} `}${message.sequence}`,
    message.isRevoked ? h("s", {}, message.payload) : h("span", {class: "payload"}, message.payload),
    flags(message), h("a", {href: linkTo("messages", message.msgId)}, code(message.msgId)),
  ]), t("deviceNoMessages")));

function flags(message) {
  const found = [
    message.offline && badge("warn", t("deviceOffline")), message.alertedAt > 0 && badge("warn", t("deviceAlerted", time(message.alertedAt))),
    message.attempt > 1 && badge("", t("deviceAttempt", message.attempt)), message.isRevoked && badge("bad", t("deviceRevoked")),
  ].filter(flag => flag);
  return found.length > 0 ? found : badge("good", t("deviceFresh"));
}
