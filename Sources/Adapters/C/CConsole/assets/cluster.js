// The gateways of a cluster, their partitions, and an operator's actions to drain a gateway or undo that.

import {call} from "./api.js";
import {badge, card, code, facts, fill, h, patch, table} from "./dom.js";
import {confirm, explain} from "./faults.js";
import {duration, number, t} from "./texts.js";

export function show(body) {
  let isOver = false, isTroubled = false;
  const said = h("div", {"aria-live": "polite"}), content = h("div");
  fill(body, said, content);
  const wish = async (node, undo) => {
    if (!await confirm(t(undo ? "undrainSure" : "drainSure", node))) return;
    try {
      await call("/v1/cluster/drain", {method: "POST", body: {node, undo}});
      fill(said);
      look();
    } catch (error) { fill(said, explain(error)); }
  };
  async function look() {
    try {
      const cluster = await call("/v1/cluster");
      if (isOver) return false;
      patch(content, view(cluster, wish));
      if (isTroubled) fill(said);
      isTroubled = false;
      return true;
    } catch (error) {
      if (isOver) return false;
      if (error.status === 404) fill(content, card(null, h("p", {class: "quiet"}, t("clusterNone"))));
      else {
        fill(said, explain(error));
        isTroubled = true;
      }
      return error.status === 0 || error.status === 503;
    }
  }
  async function round() {
    if (isOver || (!document.hidden && !await look())) return;
    if (!isOver) setTimeout(round, 3_000);
  }
  round();
  return () => { isOver = true; };
}

function view(cluster, wish) {
  return [
    card(cluster.name, facts([
      [t("gateway"), `${cluster.node} (${t("thisOne")})`],
      [t("register"), cluster.registerError ? badge("bad", t("registerAway", cluster.registerError))
        : badge("good", t("registerOk", duration(cluster.registerAgeMilliseconds / 1000)))],
    ])),
    card(null, table(t("gateway"), [t("gateway"), t("address"), t("release"), t("lease"), t("parts"), t("state"), t("actions")],
      cluster.nodes.map(node => [
        node.node === cluster.node ? `${node.node} (${t("thisOne")})` : String(node.node), code(node.address), node.release,
        duration(node.leaseMilliseconds / 1000), number(node.parts),
        node.leaving ? badge("warn", t("leaving")) : node.drained ? badge("warn", t("drained")) : badge("good", t("serving")),
        h("button", {class: "small", onclick: () => wish(node.node, node.drained)}, t(node.drained ? "undrain" : "drain")),
      ]), t("none"))),
    card(t("partsTitle"), h("ul", {class: "parts"}, cluster.parts.map(part =>
      h("li", {class: part.state === "failed" ? "failed" : part.state === "open" ? null : "moving", title: part.state},
        h("b", {}, part.part), part.node === null ? t("partNone") : `→ ${part.node}`)))),
  ];
}
