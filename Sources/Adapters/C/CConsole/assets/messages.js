import {call, linkTo, path} from "./api.js";
import {badge, card, code, facts, fill, h, patch, problem} from "./dom.js";
import {explain} from "./faults.js";
import {ask} from "./find.js";
import {clock, number, t, tWord, time} from "./texts.js";

const GOOD = new Set(["acked", "vendorAccepted", "opened", "shown"]);
const BAD = new Set(["timedOut", "leaseLapsed", "vendorRejected", "badToken", "exhausted", "vendorRetry", "unsent"]);
const REACHED = new Set(["delivered", "deliveredOffline", "opened", "handedOff"]);

export const title = ([message]) => message ? t("messageOne") : t("messages");

export function show(body, [message]) {
  if (!message) return ask(body);
  let isOver = false;
  const said = h("div", {"aria-live": "polite"}), content = h("div");
  fill(body, said, content);
  // The page is refreshed until the message reaches its final state.
  async function round() {
    let isEnded = true;
    try {
      const trace = await call(path("v1", "messages", message));
      if (isOver) return;
      fill(said);
      patch(content, view(trace));
      isEnded = trace.state !== "pending";
    } catch (error) {
      if (isOver) return;
      fill(said, error.status === 404 ? problem(t("messageUnknown")) : explain(error));
      isEnded = error.status !== 0 && error.status !== 503;
    }
    if (!isEnded && !isOver) setTimeout(round, 2_000);
  }
  round();
  return () => { isOver = true; };
}

export const messageBadge = trace => trace.state === "pending" ? badge("warn", t("pendingState"))
  : badge(REACHED.has(trace.state) ? "good" : "bad", tWord("state", trace.state));

function view(trace) {
  return [
    card(code(trace.msgId), facts([
      [t("state"), [messageBadge(trace), trace.reason ? ` ${trace.reason}` : ""]],
      [t("app"), trace.appId],
      [t("cid"), h("a", {href: linkTo("devices", trace.appId, trace.cid)}, code(trace.cid))],
      [t("task"), h("a", {href: linkTo("tasks", trace.appId, trace.taskId)}, code(trace.taskId))],
      [t("acceptedAt"), time(trace.acceptedAt)],
      [t("expiresAt"), time(trace.expiresAt)],
      [t("strategy"), String(trace.strategy)],
      [t("fallback"), trace.alert === "none" ? t("fallbackNone", tWord("why", trace.fallbackReason ?? "")) : tWord("alert", trace.alert)],
      trace.attempts && [t("attempts"), number(trace.attempts)],
      trace.vendorReason && [t("vendorSaid"), trace.vendorReason],
    ])),
    card(t("timeline"), h("ol", {class: "steps"}, trace.steps.map(step =>
      h("li", {class: GOOD.has(step.event) ? "good" : BAD.has(step.event) ? "bad" : null},
        h("time", {datetime: new Date(step.time).toISOString(), title: time(step.time)}, clock(step.time)),
        tWord("step", step.event), step.channel ? ` (${step.channel})` : "",
        step.detail ? h("div", {class: "quiet"}, step.event === "ended" ? tWord("state", step.detail) : step.detail) : null)))),
  ];
}
