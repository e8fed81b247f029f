// The apps: their state, and actions on apps created through the admin API.

import {call, linkTo, path, text} from "./api.js";
import {badge, card, code, facts, field, fill, h, patch, table} from "./dom.js";
import {confirm, explain} from "./faults.js";
import {PAUSE, SPAN, history, sum} from "./metrics.js";
import {plot} from "./plot.js";
import {editor} from "./settings.js";
import {bytes, compact, duration, number, t, tWord, time} from "./texts.js";

const DAY = 86_400;
const SECRETS = ["appSecret", "masterSecret"];

export const title = ([app]) => app ? t("appTitle", app) : t("apps");

export function show(body, [app]) {
  // Three separate areas, so that messages do not replace each other: new secrets, results of actions, and refresh errors.
  const [kept, said, trouble] = ["kept", "said", "trouble"].map(name => h("div", {class: name, "aria-live": "polite"}));
  const content = h("div"), figures = h("div");
  fill(body, kept, said, trouble, content, figures);
  let isOver = false;
  const stopped = () => isOver;
  if (app) one(app, {kept, said, trouble, content, figures, stopped}); else all({kept, said, trouble, content, stopped});
  return () => { isOver = true; };
}

/** Runs `round` and shows its error in `trouble` until a later round succeeds. */
async function attempt(round, {trouble, stopped}) {
  try {
    await round();
    if (!stopped()) fill(trouble);
  } catch (error) { if (!stopped()) fill(trouble, explain(error)); }
}

/** Runs `round` periodically while the page is visible. */
async function follow(round, tools) {
  while (!tools.stopped()) {
    if (!document.hidden) await attempt(round, tools);
    await new Promise(done => setTimeout(done, PAUSE));
  }
}

export const stateBadge = ({state}) => badge(state === "enabled" ? "good" : "bad", t(`${state}App`));
export const appLink = appId => h("a", {href: linkTo("apps", appId)}, appId);

function all({kept, said, trouble, content, stopped}) {
  const list = h("div"), form = h("div");
  const look = async () => {
    const [{apps}] = await Promise.all([call("/v1/apps"), readMetrics()]);
    if (!stopped()) patch(list, card(null, table(t("apps"), [t("app"), t("state"), t("appSource"), t("appConnected"), t("feedUpstream"), t("feedEvents")],
      apps.map(app => [appLink(app.appId), stateBadge(app), t(`${app.source}App`), ...["connected_devices", "upstream", "events"].map((what, index) =>
        compact(sum(history.last, index ? "longwire_app_feed_items" : "longwire_app_connected_devices", {app: app.appId, ...(index && {type: what})})))]),
      t("appsEmpty"))));
  };
  const opener = h("button", {class: "main", "aria-expanded": "false", onclick: () => {
    opener.hidden = true;
    fill(form, creation({kept, said, look: () => attempt(look, {trouble, stopped}), close: () => { fill(form); opener.hidden = false; opener.focus(); }}));
    form.querySelector("input").focus();
  }}, t("appNew"));
  fill(content, h("p", {class: "buttons above"}, opener), form, list);
  follow(look, {trouble, stopped});
}

function creation({kept, said, look, close}) {
  const id = h("input", {required: true, pattern: "[A-Za-z0-9_.\\-]{1,64}", maxlength: 64, spellcheck: "false", autocomplete: "off"});
  const settings = editor({});
  return card(t("appNew"), h("form", {onsubmit: async event => {
    event.preventDefault();
    const wanted = settings.read();
    if (!wanted) return;
    const body = {...wanted, appId: id.value.trim()};
    await act(said, {to: "/v1/apps", body, button: event.submitter, done: answer => {
      close();
      if (answer.created) { fill(said); keep(kept, answer, t("appCreated", answer.appId)); }
      else fill(said, h("p", {class: "done", role: "status"}, t("appWasThere", answer.appId)));
      look();
    }});
  }}, field(t("appId"), id, t("appIdHint")), settings.element,
  h("p", {class: "buttons"}, h("button", {class: "main"}, t("appMake")), h("button", {type: "button", onclick: close}, t("cancel")))));
}

function one(app, {kept, said, trouble, content, figures, stopped}) {
  const address = path("v1", "apps", app);
  const render = page => { if (!stopped()) fill(content, view(page, {kept, said, address, render})); };
  (async () => {
    try { render(await call(address)); } catch (error) {
      return stopped() || fill(said, explain(error));
    }
    await follow(async () => {
      const [page] = await Promise.all([call(address), readMetrics()]);
      if (!stopped()) patch(figures, quotas(page), plots(app));
    }, {trouble, stopped});
  })();
}

function view(page, tools) {
  const isManaged = page.source === "api";
  return [
    h("p", {class: "buttons above"}, h("a", {href: "#/apps"}, t("appsAll"))),
    card(code(page.appId), facts([
      [t("state"), stateBadge(page)], [t("appSource"), t(`${page.source}App`)], ["appKey", code(page.appKey)],
      page.createdAt && [t("appCreatedAt"), time(page.createdAt)], page.changedAt && [t("appChangedAt"), time(page.changedAt)],
      ...SECRETS.map(name => [name, secretsText(page[`${name}s`])]),
    ]), isManaged ? states(page, tools) : h("p", {class: "quiet below"}, t("appOfFile"))),
    isManaged && change(page, tools),
    isManaged && rotation(page, tools),
  ];
}

/** Returns the number of active values of a secret and the expiry of older ones. */
const secretsText = secrets => secrets.map(({validUntil}) => validUntil ? t("secretUntil", time(validUntil)) : t("secretHolds")).join("; ") || t("none");

function states(page, tools) {
  const isEnabled = page.state === "enabled";
  const button = (kind, name, sure, request, done) => h("button", {class: kind, onclick: async event => {
    if (await confirm(t(sure, page.appId))) await act(tools.said, {...request, button: event.target, done});
  }}, t(name));
  const again = answer => { fill(tools.said); tools.render(answer); };
  return h("p", {class: "buttons"}, isEnabled
    ? button("danger", "appDisable", "appDisableSure", {to: `${tools.address}/disable`}, again)
    : [button("main", "appEnable", "appEnableSure", {to: `${tools.address}/enable`}, again),
      button("danger", "appDelete", "appDeleteSure", {to: tools.address, method: "DELETE"}, () => { location.hash = "#/apps"; })]);
}

function change(page, tools) {
  const settings = editor(page.settings, t("appSettingsOf", page.appId));
  return card(t("appSettings"), h("form", {onsubmit: async event => {
    event.preventDefault();
    const wanted = settings.read();
    if (!wanted) return;
    const body = mergePatch(page.settings, wanted);
    if (Object.keys(body).length === 0) return fill(tools.said, h("p", {class: "quiet", role: "status"}, t("appUnchanged")));
    if (!await confirm(t("appChangeSure", page.appId, JSON.stringify(body)))) return;
    await act(tools.said, {to: tools.address, method: "PATCH", body, button: event.submitter, done: answer => {
      tools.render(answer);
      fill(tools.said, h("p", {class: "done", role: "status"}, t("appChanged")));
    }});
  }}, settings.element, h("button", {class: "main"}, t("appChange"))));
}

function rotation(page, tools) {
  const secret = h("select", {}, SECRETS.map(name => h("option", {value: name}, name)));
  const overlap = h("select", {}, [["", t("overlapDefault")], [0, t("overlapNone")], ...[3_600, DAY, 7 * DAY, 90 * DAY].map(seconds => [seconds, duration(seconds)])]
    .map(([value, name]) => h("option", {value}, name)));
  return card(t("secretRotate"), h("form", {class: "row", onsubmit: async event => {
    event.preventDefault();
    const isHard = overlap.value === "0";
    if (!await confirm(t(isHard ? "rotateHardSure" : "rotateSure", secret.value, page.appId))) return;
    const body = {secret: secret.value, ...(overlap.value !== "" && {overlapSeconds: Number(overlap.value)})};
    await act(tools.said, {to: `${tools.address}/rotate`, body, button: event.submitter, done: answer => {
      fill(tools.said);
      keep(tools.kept, answer, t("secretRotated", secret.value));
      tools.render(answer);
    }});
  }}, field(t("secretWhich"), secret), field(t("overlap"), overlap, t("overlapHint")), h("button", {class: "main"}, t("secretRotate"))));
}

function quotas({quotas: uses}) {
  if (!uses) return null;
  return card(null, table(t("quotas"), ["quota", "quotaUsed", "quotaLimit", "quotaShare", "quotaRefused"].map(name => t(name)),
    Object.entries(uses).map(([name, {used, limit, share, refused}]) => {
      const amount = name.includes("Bytes") ? bytes : number;
      const kind = used >= (share ?? limit) ? "bad" : used >= 0.8 * (share ?? limit) ? "warn" : "good";
      return [[tWord("quota", name), " ", code(name)], badge(kind, amount(used)), amount(limit), share === undefined ? "–" : amount(share), number(refused)];
    })));
}

function plots(app) {
  const options = {unit: "count", span: SPAN, now: history.pages.at(-1).time};
  const lines = (metric, ...names) => names.map(([name, type]) => ({name: t(name), points: history.gauge(metric, {app, ...(type && {type})})}));
  return h("div", {class: "plots"},
    plot(t("plotFeeds"), lines("longwire_app_feed_items", ["feedUpstream", "upstream"], ["feedEvents", "events"]), options),
    plot(t("plotFeedWait"), lines("longwire_app_feed_oldest_seconds", ["feedUpstreamWait", "upstream"], ["feedEventsWait", "events"]), {...options, unit: "duration"}),
    plot(t("plotSessions"), lines("longwire_app_connected_devices", ["deviceSessions"]), options),
    plot(t("plotStored"), ["queued", "stored"].map(what => ({
      name: t(`${what}Bytes`), points: history.gauge(`longwire_app_${what}_bytes`, {app}),
    })), {...options, unit: "bytes"}));
}

const readMetrics = async () => history.read(await text("/metrics"), Date.now());

async function act(said, {to, method = "POST", body, button, done}) {
  button.disabled = true;
  let answer;
  try { answer = await call(to, {method, body}); } catch (error) { return fill(said, explain(error)); } finally { button.disabled = false; }
  // Outside the try block: an error after the call is not an error of the call.
  done(answer);
}

/** Shows new secrets, which the gateway returns only once, until the user closes them. */
function keep(kept, answer, sentence) {
  const secrets = ["appKey", ...SECRETS].filter(name => answer[name] !== undefined);
  const made = SECRETS.some(name => answer[name] !== undefined);
  const note = h("section", {class: "card", role: "status"}, h("h2", {}, sentence), made && [
    h("p", {class: "advice"}, t("secretsOnce")),
    facts(secrets.map(name => [name, [code(answer[name]), " ", copier(answer[name])]])),
  ], h("p", {class: "below"}, h("button", {type: "button", class: "small close", onclick: () => note.remove()}, t(made ? "secretsKept" : "close"))));
  kept.prepend(note);
}

function copier(secret) {
  // The clipboard is available only on a page that the browser trusts. Elsewhere the user selects the text.
  if (!navigator.clipboard) return null;
  const button = h("button", {type: "button", class: "small", onclick: async () => {
    try { await navigator.clipboard.writeText(secret); fill(button, t("copied")); } catch { button.remove(); }
  }}, t("copy"));
  return button;
}

/** Returns the JSON merge patch (RFC 7396) from `before` to `after`: a missing key becomes null. */
export function mergePatch(before, after) {
  const isObject = value => value !== null && typeof value === "object" && !Array.isArray(value);
  const changes = {};
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    if (!(key in after)) changes[key] = null;
    else if (isObject(before[key]) && isObject(after[key])) {
      const inner = mergePatch(before[key], after[key]);
      if (Object.keys(inner).length > 0) changes[key] = inner;
    } else if (JSON.stringify(before[key]) !== JSON.stringify(after[key])) changes[key] = after[key];
  }
  return changes;
}
