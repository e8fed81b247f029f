import {call, look, text} from "./api.js";
import {appLink, stateBadge} from "./apps.js";
import {badge, card, fill, h, patch, table} from "./dom.js";
import {PAUSE, byLabel, history, quantile, sum} from "./metrics.js";
import {plot} from "./plot.js";
import {compact, duration, number, t, tWord} from "./texts.js";
import {explain} from "./faults.js";

export function show(body) {
  const said = h("div", {"aria-live": "polite"}), content = h("div");
  fill(body, said, content);
  let isOver = false;
  async function round() {
    if (isOver) return;
    if (!document.hidden) {
      try {
        // Without the gateway's points the plots have only this tab's.
        const readOlder = () => { history.noteOlder(); return call("/v1/metrics/history").catch(() => null); };
        const [page, readiness, list, health, older] = await Promise.all(
          [text("/metrics"), look("/readyz"), call("/v1/apps"), call("/v1/health"), history.isOlderDue && readOlder()]);
        if (isOver) return;
        history.read(page, Date.now());
        if (older) history.takeOlder(older, Date.now());
        fill(said);
        render(content, readiness, list.apps, health.findings);
      } catch (error) {
        if (!isOver) fill(said, explain(error));
      }
    }
    if (!isOver) setTimeout(round, PAUSE);
  }
  round();
  return () => { isOver = true; };
}

const tile = (name, value, more) => h("div", {class: "tile"}, h("span", {}, name), value instanceof Node ? value : h("b", {}, value), more && h("small", {}, more));

function render(content, readiness, list, findings) {
  const [now, before] = [history.last, history.before];
  const last = points => (points.length ? points.at(-1)[1] : null);
  const word = readiness.answer?.status ?? "–";
  const options = {unit: "count", span: history.range, now: history.pages.at(-1).time};
  const [times, rates] = [{...options, unit: "duration"}, {...options, unit: "rate"}];
  const p99 = quantile(now, before, "longwire_http_request_seconds", 0.99);
  const accepted = history.rate("longwire_messages_accepted_total");
  patch(content,
    h("div", {class: "tiles"},
      tile(t("state"), badge(readiness.status === 200 ? "good" : "bad", t(word)), t("uptime", duration(sum(now, "longwire_uptime_seconds")))),
      tile(t("sessions"), compact(sum(now, "longwire_sessions", {role: "device"})), t("reachable", compact(sum(now, "longwire_devices_reachable")))),
      tile(t("acceptedRate"), compact(last(accepted)), t("acceptedTotal", compact(sum(now, "longwire_messages_accepted_total")))),
      tile(t("pending"), compact(sum(now, "longwire_messages_pending"))),
      tile(t("due"), compact(sum(now, "longwire_handoff_jobs_due")), t("underLease", compact(sum(now, "longwire_handoff_jobs_under_lease")))),
      tile(t("answerTime"), p99 === null ? "–" : duration(p99),
        p99 === null ? t("idle") : t("median", duration(quantile(now, before, "longwire_http_request_seconds", 0.5))))),
    attention(readiness, findings),
    h("div", {class: "plots"},
      plot(t("plotMessages"), [
        {name: t("accepted"), points: accepted},
        {name: t("live"), points: history.rate("longwire_messages_ended_total", {state: "delivered"})},
        {name: t("offline"), points: history.rate("longwire_messages_ended_total", {state: "deliveredOffline"})},
        {name: t("vendor"), points: history.rate("longwire_handoff_results_total", {outcome: "accepted"})},
      ], rates),
      plot(t("plotTimes"), [
        {name: t("httpTime"), points: history.p99("longwire_http_request_seconds")},
        {name: t("commitTime"), points: history.p99("longwire_store_group_commit_seconds")},
      ], times),
      plot(t("plotQueues"), [
        {name: t("pendingMessages"), points: history.gauge("longwire_messages_pending")},
        {name: t("dueJobs"), points: history.gauge("longwire_handoff_jobs_due")},
      ], options),
      plot(t("plotSessions"), [
        {name: t("deviceSessions"), points: history.gauge("longwire_sessions", {role: "device"})},
        {name: t("httpConnections"), points: history.gauge("longwire_http_connections", {listener: "http"})},
      ], options)),
    card(t("apps"), apps(now, list)),
    card(t("refusals"), table(t("refusals"), [t("reason"), t("count")],
      byLabel(now, "longwire_publishes_refused_total", "reason").map(([reason, count]) => [reason, number(count)]), t("refusalsEmpty"))));
}

function apps(now, list) {
  const counted = new Map(byApp(now, "longwire_app_messages_accepted_total"));
  const rows = list.map(one => {
    const {appId: app, source} = one;
    const accepted = counted.get(app) ?? null;
    const rate = history.rate("longwire_app_messages_accepted_total", {app});
    return [appLink(app), stateBadge(one), t(`${source}App`), compact(sum(now, "longwire_app_connected_devices", {app})), compact(rate.length ? rate.at(-1)[1] : null), compact(accepted),
      compact(sum(now, "longwire_app_messages_undelivered_total", {app})), compact(sum(now, "longwire_app_handoff_jobs_due", {app}))];
  });
  return table(t("apps"), [t("app"), t("state"), t("appSource"), t("appConnected"), t("appAcceptedRate"), t("appAccepted"), t("appUndelivered"), t("appDue")], rows, t("appsEmpty"));
}

export function byApp(metrics, name) {
  return (metrics.get(name) ?? []).map(({labels, value}) => [labels.app, value]);
}

/** Shows the gateway's findings, and advice from the changes since the page was opened. */
function attention(readiness, findings) {
  const now = history.last;
  const grown = (name, labels) => {
    const first = sum(history.pages[0].metrics, name, labels), latest = sum(now, name, labels);
    return latest === null ? 0 : latest - (first ?? latest);
  };
  const rate = (name, labels) => { const points = history.rate(name, labels); return points.length ? points.at(-1)[1] : 0; };
  const advice = [];
  const say = (kind, sentence) => advice.push(h("p", {key: sentence, class: `advice ${kind}`}, sentence));
  for (const {name, severity, subject, text, advice} of findings) {
    say(severity === "problem" ? "bad" : "", t("finding", tWord("finding", name), subject ?? "", text[0].toUpperCase() + text.slice(1), advice));
  }
  if (readiness.status !== 200) say("bad", t("adviceReadiness", readiness.answer?.reason ?? readiness.answer?.status ?? readiness.status));
  const refusing = rate("longwire_publishes_refused_total");
  if (refusing > 0) {
    const reasons = byLabel(now, "longwire_publishes_refused_total", "reason")
      .filter(([reason]) => rate("longwire_publishes_refused_total", {reason}) > 0).map(([reason]) => reason);
    say("", t("adviceRefused", compact(refusing), reasons.join(", ")));
  }
  if (grown("longwire_handoff_jobs_exhausted_total") > 0) say("", t("adviceExhausted", compact(grown("longwire_handoff_jobs_exhausted_total"))));
  const bad = grown("longwire_handoff_results_total", {outcome: "badToken"});
  if (bad > 0) say("", t("adviceBadToken", compact(bad)));
  if (grown("longwire_connections_turned_away_total") > 0) say("bad", t("adviceTurnedAway"));
  return card(t("attention"), advice.length ? advice : h("p", {class: "quiet"}, t("allWell")));
}
