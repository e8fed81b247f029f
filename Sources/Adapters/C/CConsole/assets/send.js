import {call, linkTo, path} from "./api.js";
import {appChoice} from "./choice.js";
import {badge, card, code, facts, field, fill, h, problem} from "./dom.js";
import {confirm, explain} from "./faults.js";
import {ownDevice} from "./device.js";
import {t, tWord} from "./texts.js";

export function show(body, [app, cid]) {
  let isOver = false;
  const said = h("div", {"aria-live": "polite"});
  (async () => {
    let apps;
    try { apps = await appChoice(app); } catch (error) { return isOver || fill(body, explain(error)); }
    if (isOver) return;
    const device = h("input", {value: cid ?? "", required: true, pattern: "[0-9a-fA-F]{32}", spellcheck: "false", autocomplete: "off"});
    const transmission = h("textarea", {required: true, spellcheck: "false"}, '{"hello":"world"}');
    const title = h("input", {}), text = h("input", {}), ttl = h("input", {type: "number", min: "0", max: "259200", value: "3600", required: true});
    const button = h("button", {class: "main"}, t("sendNow"));
    fill(body, card(t("sendTitle"), h("form", {onsubmit: async event => {
      event.preventDefault();
      if (!await confirm(t("sendSure", apps.value))) return;
      button.disabled = true;
      try {
        fill(said, answer(await call(path("v1", "apps", apps.value, "push"), {method: "POST", body: push(device, transmission, title, text, ttl)})));
      } catch (error) { fill(said, explain(error)); } finally { button.disabled = false; }
    }}, field(t("app"), apps), field(t("cid"), device, t("cidHint")), own(apps, device), field(t("transmission"), transmission),
    field(t("alertTitle"), title), field(t("alertBody"), text), field(t("ttl"), ttl), button)), said);
    (cid ? transmission : device).focus();
  })();
  return () => { isOver = true; };
}

/** Links to the page that acts as a device, for a test without a phone. */
function own(apps, device) {
  const place = h("p");
  const look = () => {
    const cid = ownDevice(apps.value);
    fill(place, cid && h("button", {type: "button", class: "small", onclick: () => { device.value = cid; }}, t("sendToOwn")), " ",
      h("a", {href: linkTo("device", apps.value)}, t(cid ? "deviceSee" : "deviceNone")));
  };
  apps.addEventListener("change", look);
  look();
  return place;
}

/** Returns the body of Getui's push/single/cid. */
function push(device, transmission, title, text, ttl) {
  const request = {
    request_id: Array.from(crypto.getRandomValues(new Uint8Array(12)), byte => byte.toString(16).padStart(2, "0")).join(""),
    settings: {ttl: Number(ttl.value) * 1000}, audience: {cid: [device.value.trim().toLowerCase()]},
    push_message: {transmission: transmission.value},
  };
  if (title.value || text.value) {
    request.push_channel = {ios: {type: "notify", aps: {alert: {title: title.value, body: text.value}, sound: "default"}}};
  }
  return request;
}

function answer(said) {
  const message = said.longwire?.messages?.[0];
  if (!message) return problem(t("refused", said.msg));
  const kind = message.channel === "live" ? "good" : "warn";
  return card(t("sent"), facts([
    [t("state"), badge(kind, tWord("sent", message.channel))],
    message.msgId && [t("msgId"), h("a", {href: linkTo("messages", message.msgId)}, code(message.msgId))],
    message.fallback && [t("fallback"), message.fallback === "none" ? t("fallbackNone", tWord("why", message.fallbackReason ?? "")) : tWord("fallback", message.fallback)],
  ]), message.msgId && h("p", {}, h("a", {href: linkTo("messages", message.msgId)}, t("showTrace"))));
}
