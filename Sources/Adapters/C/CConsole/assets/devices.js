// A device: its state, and whether it can receive a message now.

import {call, path} from "./api.js";
import {search} from "./choice.js";
import {badge, card, code, facts, fill, h, problem, table} from "./dom.js";
import {explain} from "./faults.js";
import {messageBadge} from "./messages.js";
import {refusals} from "./tasks.js";
import {bytes, duration, number, t, tWord, time} from "./texts.js";

export const show = (body, [app, cid]) => search(body, {
  page: "devices", asked: [app, cid], label: t("cid"), hint: t("cidHint"), properties: {pattern: "[0-9a-fA-F]{32}"}, tidy: text => text.toLowerCase(),
  look: async (found, isOver) => {
    const [view, recent] = await Promise.all([
      call(path("v1", "apps", app, "devices", cid)), call(`${path("v1", "apps", app, "devices", cid, "messages")}?limit=20`)]);
    if (!isOver()) fill(found, device(view), messages(recent));
  },
  failed: error => error.status === 404 ? problem(t("deviceUnknown")) : explain(error),
});

function device(found) {
  const session = !found.connected ? badge("", t("disconnected"))
    : found.suspect ? badge("warn", t("suspect")) : found.reachable ? badge("good", t("connected")) : badge("warn", t("notReachable"));
  const failure = found.vendorFailure;
  return [
    card(code(found.cid), facts([
      [t("session"), session],
      found.connected && [t("appState"), t(found.state)],
      [t("lastSeen"), time(found.lastSeenAt)],
      [t("registered"), time(found.registeredAt)],
      [t("heartbeat"), t("seconds", found.heartbeatSeconds)],
      [t("queue"), t("queueText", number(found.queue.messages), bytes(found.queue.bytes), number(found.queue.inFlight))],
      found.queue.messageLimit && [t("queueLimit"), t("queueLimitText", number(found.queue.messageLimit), bytes(found.queue.byteLimit))],
      found.aliases?.length > 0 && [t("aliases"), found.aliases.join(", ")],
      found.tags?.length > 0 && [t("tags"), found.tags.map(tag => badge("", tag))],
      found.blacklisted && [t("blacklist"), badge("bad", t("yesWord"))],
      found.appDisabled && [t("app"), badge("bad", t("disabledApp"))],
      found.refusedHello && [t("refusedHello"), `${time(found.refusedHello.time)}: ${found.refusedHello.code} ${found.refusedHello.reason}`],
      found.inactive && [t("inactiveDevice"), badge("warn", t("yesWord"))],
      [t("fallback"), found.fallback === "available" ? badge("good", t("fallbackAvailable"))
        : badge("warn", t("fallbackNone", tWord("why", found.fallbackReason ?? "")))],
      [t("badgeNumber"), number(found.badge)],
      found.pushModeOff && [t("pushModeOff"), badge("warn", t("yesWord"))],
      [t("bucket"), String(found.bucket)],
    ]), h("p", {}, h("a", {href: `#/send/${encodeURIComponent(found.appId)}/${found.cid}`}, t("sendTo")))),
    card(t("tokens"), table(t("tokens"), [t("tokenWord"), t("channel"), t("kind"), t("environment"), t("topic"), t("state")],
      found.tokens.map(token => [code(token.token), token.channel, token.kind, token.environment, token.topic || "–",
        token.quarantined ? badge("bad", t("quarantined")) : badge("good", t("usable"))]), t("tokensEmpty"))),
    failure && card(t("vendorFailure"), facts([
      [t("msgId"), h("a", {href: `#/messages/${failure.msgId}`}, code(failure.msgId))],
      [t("when"), time(failure.time)], [t("outcome"), failure.outcome], [t("reason"), failure.reason ?? "–"], [t("attempts"), number(failure.attempts)],
    ])),
  ];
}

function messages(recent) {
  return [
    card(t("recentMessages"), table(t("recentMessages"), [t("msgId"), t("acceptedAt"), t("state")],
      recent.messages.map(trace => [h("a", {href: `#/messages/${trace.msgId}`}, code(trace.msgId)), time(trace.acceptedAt),
        [messageBadge(trace), trace.reason ? ` ${trace.reason}` : ""]]), t("recentEmpty"))),
    refusals(recent.refusals),
  ];
}
