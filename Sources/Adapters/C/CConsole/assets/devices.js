// The devices of an app as a list with filters; a device: its state, actions, and whether it can receive a message now.

import {call, eachOf, find, linkTo, path} from "./api.js";
import {appChoice} from "./choice.js";
import {badge, card, code, facts, field, fill, h, patch, problem, table} from "./dom.js";
import {confirm, explain} from "./faults.js";
import {messageBadge} from "./messages.js";
import {refusals} from "./tasks.js";
import {bytes, clock, number, t, tWord, time} from "./texts.js";

const ROUND = 3_000, PAGE = 50, LARGE_PAGE = 500;

export const title = ([, cid]) => cid ? t("deviceOne") : t("devices");

export const show = (body, [app, cid]) => cid ? one(body, app, cid.toLowerCase()) : all(body, app);

// MARK: The list

/** The devices that were read of each app, so that the way back from a device leads to the same list. */
const lists = new Map();
const NO_FILTERS = {session: "", mark: "", tag: "", token: "", depth: "", alias: ""};
let filters = {...NO_FILTERS};
/** Rises at each sign-out, so that a read for an earlier credential is dropped. */
let generation = 0;

/** Forgets what one credential could read. */
export function leave() {
  lists.clear();
  generation += 1;
  filters = {...NO_FILTERS};
}

const FILTERS = {
  session: ({connected}, wanted) => connected === (wanted === "connected"),
  mark: (view, wanted) => ({
    blacklisted: view.blacklisted, inactive: view.inactive, alertable: view.fallback === "available", notAlertable: view.fallback !== "available",
  })[wanted],
  tag: ({tags}, wanted) => tags.includes(wanted),
  token: ({tokens}, wanted) => ({
    usable: tokens.some(({quarantined}) => !quarantined), none: tokens.length === 0, quarantined: tokens.some(({quarantined}) => quarantined),
    production: tokens.some(({environment}) => environment === "production"), sandbox: tokens.some(({environment}) => environment === "sandbox"),
  })[wanted],
  depth: ({queue}, wanted) => queue.messages >= Number(wanted),
};

const fits = view => Object.entries(FILTERS).every(([name, fit]) => filters[name] === "" || fit(view, filters[name]));

function all(body, wanted) {
  let isOver = false, isBusy = false;
  const said = h("div", {"aria-live": "polite"}), content = h("div");
  (async () => {
    let apps;
    try { apps = await appChoice(wanted); } catch (error) { return isOver || fill(body, explain(error)); }
    if (isOver) return;
    const app = apps.value;
    if (!app) return fill(body, card(null, h("p", {class: "quiet"}, t("appsEmpty"))));
    apps.addEventListener("change", () => { location.hash = linkTo("devices", apps.value); });
    const render = () => { if (!isOver) patch(content, list(app, {read, again, isBusy})); };

    /** Runs one series of calls at a time. */
    const busily = async work => {
      if (isBusy) return;
      isBusy = true;
      render();
      try {
        await work();
        if (!isOver) fill(said);
      } catch (error) { if (!isOver) fill(said, explain(error)); }
      isBusy = false;
      render();
    };
    const read = limit => busily(() => readPage(app, limit));
    const again = () => busily(async () => {
      const held = lists.get(app);
      if (held?.alias) return readAlias(app, held.alias.name);
      lists.delete(app);
      try {
        // As many devices as before, from the beginning of the gateway's order.
        do await readPage(app, held?.devices.length > PAGE ? LARGE_PAGE : PAGE);
        while (lists.get(app).next && lists.get(app).devices.length < held?.devices.length);
      } catch (error) {
        if (held) lists.set(app, held);
        throw error;
      }
    });
    const byAlias = name => busily(async () => {
      if (name) return readAlias(app, name);
      if (lists.has(app)) lists.get(app).alias = null;
      if (!lists.get(app)?.devices.length) await readPage(app, PAGE);
    });

    fill(body, card(null, choices(apps, {render, byAlias})), said, content);
    if (filters.alias) byAlias(filters.alias); else if (lists.has(app)) render(); else read(PAGE);
  })();
  return () => { isOver = true; };
}

/** Reads the next page of an app's devices, and each device of it. */
async function readPage(app, limit) {
  const began = generation;
  const held = lists.get(app) ?? {devices: [], next: undefined, isWhole: false, alias: null};
  const query = new URLSearchParams({limit, ...(held.next && {after: held.next})});
  const page = await call(`${path("v1", "apps", app, "devices")}?${query}`);
  const views = await readViews(app, page.devices);
  if (began !== generation) return;
  lists.set(app, {...held, devices: [...held.devices, ...views], next: page.next, isWhole: !page.next, alias: null, at: Date.now()});
}

async function readAlias(app, name) {
  const found = await find(path("v1", "apps", app, "aliases", name));
  const views = await readViews(app, found?.devices ?? []);
  lists.set(app, {devices: [], next: undefined, isWhole: false, ...lists.get(app), alias: {name, devices: views, at: Date.now()}});
}

/** Returns the devices that still exist. */
const readViews = async (app, cids) =>
  (await eachOf(cids, cid => find(path("v1", "apps", app, "devices", cid)))).filter(view => view);

function choices(apps, {render, byAlias}) {
  const choice = (name, label, words) => {
    const select = h("select", {onchange: () => { filters[name] = select.value; render(); }},
      [["", t("anyWord")], ...words].map(([value, text]) => h("option", {value, selected: filters[name] === value}, text)));
    return field(label, select);
  };
  const input = (name, label, hint, properties) => {
    const element = h("input", {value: filters[name], spellcheck: "false", autocomplete: "off", ...properties,
      oninput: () => { if (element.checkValidity()) { filters[name] = element.value.trim(); render(); } }});
    return field(label, element, hint);
  };
  const alias = h("input", {value: filters.alias, spellcheck: "false", autocomplete: "off", maxlength: 39, onchange: () => {
    filters.alias = alias.value.trim();
    byAlias(filters.alias);
  }});
  return h("form", {class: "filters", onsubmit: event => event.preventDefault()},
    field(t("app"), apps),
    choice("session", t("session"), [["connected", t("connected")], ["away", t("disconnected")]]),
    choice("mark", t("state"), ["blacklisted", "inactive", "alertable", "notAlertable"].map(word => [word, tWord("mark", word)])),
    choice("token", t("tokens"), ["usable", "none", "quarantined", "production", "sandbox"].map(word => [word, tWord("token", word)])),
    input("tag", t("tagWord"), null, {maxlength: 32}),
    input("depth", t("queueAtLeast"), null, {type: "number", min: 0}),
    field(t("aliasWord"), alias, t("aliasFilterHint")));
}

/** The rows that fit the filters, below a sentence that says which devices were read. */
function list(app, {read, again, isBusy}) {
  const held = lists.get(app);
  const button = (text, action) => h("button", {type: "button", disabled: isBusy, onclick: action}, text);
  if (!held) return isBusy ? h("p", {class: "quiet"}, t("asking")) : h("p", {class: "buttons"}, button(t("readAgain"), again));
  const {devices, at} = held.alias ?? held;
  const rows = devices.filter(fits);
  const counts = [number(devices.length), number(rows.length), clock(at, false)];
  return card(null,
    h("p", {class: "looked-at", role: "status"}, held.alias ? t("lookedAtAlias", held.alias.name, ...counts)
      : t(held.isWhole ? "lookedAtAll" : "lookedAtSome", ...counts)),
    deviceTable(rows, t("devices")),
    h("p", {class: "buttons"},
      !held.alias && !held.isWhole && [button(t("readNext", number(PAGE)), () => read(PAGE)), button(t("readNext", number(LARGE_PAGE)), () => read(LARGE_PAGE))],
      button(t("readAgain"), again), isBusy && h("span", {class: "quiet"}, t("asking"))));
}

const sessionBadge = view => !view.connected ? badge("", t("disconnected"))
  : view.suspect ? badge("warn", t("suspect")) : view.reachable ? badge("good", t("connected")) : badge("warn", t("notReachable"));

/** Returns a table of devices with their state. */
export const deviceTable = (views, caption) => table(caption,
  ["cid", "session", "state", "lastSeen", "queueLength", "aliases", "tags", "tokens"].map(name => t(name)),
  views.map(view => [
    h("a", {href: linkTo("devices", view.appId, view.cid)}, code(view.cid)),
    sessionBadge(view),
    [view.blacklisted && badge("bad", t("markBlacklisted")), view.inactive && badge("warn", t("markInactive")),
      view.appDisabled && badge("bad", t("markAppDisabled"))],
    time(view.lastSeenAt), number(view.queue.messages), view.aliases.join(", ") || "–", view.tags.join(", ") || "–",
    view.tokens.map(({channel, environment, quarantined}) => `${channel} ${environment}${quarantined ? ` (${t("quarantined")})` : ""}`).join(", ") || "–",
  ]), t("devicesEmpty"));

// MARK: A device

function one(body, app, cid) {
  let isOver = false;
  const address = path("v1", "apps", app, "devices", cid);
  const [said, trouble] = [h("div", {"aria-live": "polite"}), h("div", {"aria-live": "polite"})];
  const content = h("div");
  fill(body, h("p", {class: "buttons above"}, h("a", {href: linkTo("devices", app)}, t("devicesAll"))), said, trouble, content);

  /** Returns whether another look may succeed. */
  const look = async () => {
    try {
      const [view, recent] = await Promise.all([call(address), call(`${address}/messages?limit=20`)]);
      if (isOver) return false;
      fill(trouble);
      patch(content, device(view, act), messages(recent));
      return true;
    } catch (error) {
      if (isOver) return false;
      fill(trouble, error.status === 404 ? problem(t("deviceUnknown")) : explain(error));
      return error.status === 0 || error.status === 503;
    }
  };
  const round = async () => {
    if (isOver || (!document.hidden && !await look())) return;
    if (!isOver) setTimeout(round, ROUND);
  };
  const act = async (name, button) => {
    if (!await confirm(t(`${name}Sure`, cid))) return;
    button.disabled = true;
    try {
      const answer = await call(`${address}/${name}`, {method: "POST"});
      if (!isOver) fill(said, h("p", {class: "done", role: "status"}, outcome(name, answer)));
    } catch (error) { if (!isOver) fill(said, explain(error)); }
    button.disabled = false;
    if (!isOver) await look();
  };
  round();
  return () => { isOver = true; };
}

const outcome = (name, {purged, left, due, disconnected, removed}) => ({
  disconnect: () => t(disconnected ? "disconnectDone" : "disconnectNone"),
  purge: () => t("purgeDone", number(purged), number(left)),
  replay: () => t("replayDone", number(due)),
  unblacklist: () => t(removed ? "unblacklistDone" : "unblacklistNone"),
})[name]();

const actions = (act, names) => card(t("actions"), h("p", {class: "buttons"}, names.map(name =>
  h("button", {key: name, class: name === "purge" ? "danger" : null, onclick: event => act(name, event.currentTarget)}, t(name)))));

/** Returns the lines about what the device's app has reported. */
function attributes(known) {
  const model = [known.platform, known.brand, known.model].filter(Boolean).join(" ");
  const version = [known.systemVersion, known.locale, known.timeZone].filter(Boolean).join(", ");
  return [
    model && [t("deviceModel"), model],
    known.appVersion && [t("appVersion"), known.appVersion],
    version && [t("systemVersion"), version],
    known.notificationPermission && [t("permission"), known.notificationPermission === "allowed"
      ? badge("good", t("permissionAllowed")) : badge("warn", t("permissionDenied"))],
  ];
}

function device(found, act) {
  const failure = found.vendorFailure;
  return [
    card(code(found.cid), facts([
      [t("session"), sessionBadge(found)],
      found.connected && [t("appState"), t(found.state)],
      [t("lastSeen"), time(found.lastSeenAt)],
      [t("registered"), time(found.registeredAt)],
      found.heartbeatSeconds > 0 && [t("heartbeat"), t("seconds", found.heartbeatSeconds)],
      [t("queue"), t("queueText", number(found.queue.messages), bytes(found.queue.bytes), number(found.queue.inFlight))],
      found.queue.messageLimit && [t("queueLimit"), t("queueLimitText", number(found.queue.messageLimit), bytes(found.queue.byteLimit))],
      found.aliases?.length > 0 && [t("aliases"), found.aliases.join(", ")],
      found.tags?.length > 0 && [t("tags"), found.tags.map(tag => badge("", tag))],
      ...attributes(found.attributes ?? {}),
      found.blacklisted && [t("blacklist"), badge("bad", t("yesWord"))],
      found.appDisabled && [t("app"), badge("bad", t("disabledApp"))],
      found.refusedHello && [t("refusedHello"), `${time(found.refusedHello.time)}: ${found.refusedHello.code} ${found.refusedHello.reason}`],
      found.inactive && [t("inactiveDevice"), badge("warn", t("yesWord"))],
      [t("fallback"), found.fallback === "available" ? badge("good", t("fallbackAvailable"))
        : badge("warn", t("fallbackNone", tWord("why", found.fallbackReason ?? "")))],
      [t("badgeNumber"), number(found.badge)],
      found.pushModeOff && [t("pushModeOff"), badge("warn", t("yesWord"))],
    ]), h("p", {}, h("a", {href: linkTo("send", found.appId, found.cid)}, t("sendTo")))),
    actions(act, [found.blacklisted && "unblacklist", "disconnect", "replay", "purge"].filter(Boolean)),
    card(t("tokens"), table(t("tokens"), [t("tokenWord"), t("channel"), t("kind"), t("environment"), t("topic"), t("state")],
      found.tokens.map(token => [code(token.token), token.channel, token.kind, token.environment, token.topic || "–",
        token.quarantined ? badge("bad", t("quarantined")) : badge("good", t("usable"))]), t("tokensEmpty"))),
    failure && card(t("vendorFailure"), facts([
      [t("msgId"), h("a", {href: linkTo("messages", failure.msgId)}, code(failure.msgId))],
      [t("when"), time(failure.time)], [t("outcome"), failure.outcome], [t("reason"), failure.reason ?? "–"], [t("attempts"), number(failure.attempts)],
    ])),
  ];
}

function messages(recent) {
  return [
    card(t("recentMessages"), table(t("recentMessages"), [t("msgId"), t("acceptedAt"), t("state")],
      recent.messages.map(trace => [h("a", {href: linkTo("messages", trace.msgId)}, code(trace.msgId)), time(trace.acceptedAt),
        [messageBadge(trace), trace.reason ? ` ${trace.reason}` : ""]]), t("recentEmpty"))),
    refusals(recent.refusals),
  ];
}
