import {text} from "./api.js";
import {badge, card, facts, fill, h, patch, table} from "./dom.js";
import {explain} from "./faults.js";
import {byLabel, parse, sum} from "./metrics.js";
import {compact, number, t} from "./texts.js";

export function show(body) {
  let isOver = false;
  const said = h("div", {"aria-live": "polite"}), content = h("div");
  fill(body, said, content);
  async function round() {
    if (isOver) return;
    if (!document.hidden) {
      try {
        const metrics = parse(await text("/metrics"));
        if (isOver) return;
        fill(said);
        patch(content, view(metrics));
      } catch (error) {
        if (!isOver) fill(said, explain(error));
      }
    }
    if (!isOver) setTimeout(round, 3_000);
  }
  round();
  return () => { isOver = true; };
}

function view(metrics) {
  const tile = (name, metric) => h("div", {class: "tile"}, h("span", {}, name), h("b", {}, compact(sum(metrics, metric))));
  const healthy = sum(metrics, "longwire_hook_healthy");
  return [
    h("div", {class: "tiles"},
      tile(t("due"), "longwire_handoff_jobs_due"),
      tile(t("held"), "longwire_handoff_jobs_held"),
      tile(t("leased"), "longwire_handoff_jobs_under_lease"),
      tile(t("longPolls"), "longwire_handoff_long_polls"),
      tile(t("created"), "longwire_handoff_jobs_created_total"),
      tile(t("lapsed"), "longwire_handoff_leases_lapsed_total"),
      tile(t("exhausted"), "longwire_handoff_jobs_exhausted_total")),
    card(t("results"), table(t("results"), [t("outcome"), t("count")],
      byLabel(metrics, "longwire_handoff_results_total", "outcome").map(([outcome, count]) => [outcome, number(count)]), t("refusalsEmpty"))),
    card(t("byApp"), table(t("byApp"), [t("app"), t("count")],
      byLabel(metrics, "longwire_app_handoff_jobs_due", "app").map(([app, count]) => [app, number(count)]), t("refusalsEmpty"))),
    card(t("hook"), healthy === null ? h("p", {class: "quiet"}, t("hookNone")) : facts([
      [t("state"), healthy === 1 ? badge("good", t("hookHealthy")) : badge("bad", t("hookFailing"))],
      [t("lastStatus"), String(sum(metrics, "longwire_hook_last_status") ?? "–")],
      [t("hookHeld"), number(sum(metrics, "longwire_hook_deliveries_held"))],
    ])),
  ];
}
