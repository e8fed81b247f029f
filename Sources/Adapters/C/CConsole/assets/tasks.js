// The result of a publish: a task with its report, or another object with the given name.

import {eachOf, find, isKnownRequest, isTaskId, linkTo, path} from "./api.js";
import {deviceTable} from "./devices.js";
import {badge, card, code, facts, fill, h, patch, problem, table} from "./dom.js";
import {explain} from "./faults.js";
import {ask} from "./find.js";
import {messageBadge} from "./messages.js";
import {number, t, tWord, time} from "./texts.js";

const ROUND = 3_000;
const FINAL = new Set(["stopped", "cancelled", "ended"]);

export const title = ([, name]) => !name ? t("tasks") : isTaskId(name) ? t("task") : t("findResult");

export function show(body, [app, name]) {
  if (!name) return ask(body);
  let isOver = false;
  const said = h("div", {"aria-live": "polite"}), content = h("div");
  fill(body, said, content);
  // An unfinished task is refreshed while the page is visible.
  async function round() {
    if (isOver) return;
    let goesOn = true;
    if (!document.hidden) {
      try {
        const view = await look(app, name);
        if (isOver) return;
        goesOn = view.goesOn;
        fill(said);
        patch(content, view.element);
      } catch (error) {
        if (isOver) return;
        fill(said, explain(error));
        goesOn = error.status === 0 || error.status === 503;
      }
    }
    if (goesOn) setTimeout(round, ROUND);
  }
  round();
  return () => { isOver = true; };
}

/** Returns the object of the app, or null if it does not exist. */
const findIn = (...segments) => find(path("v1", "apps", ...segments));

/** Tries the kinds of objects that the name may have, as `longwire trace` does. */
async function look(app, name) {
  if (isTaskId(name)) {
    const task = await findIn(app, "tasks", name);
    if (task) return task.msgId ? {element: toMessage(task)} : {element: taskView(task), goesOn: !FINAL.has(task.task)};
  } else {
    const request = await findIn(app, "requests", name);
    if (request && isKnownRequest(request)) return {element: requestView(app, request)};
    const alias = await findIn(app, "aliases", name);
    if (alias && alias.devices.length > 0) return {element: await aliasView(app, alias)};
  }
  return {element: problem(t("taskUnknown"))};
}

const messageLink = message => h("a", {href: linkTo("messages", message)}, code(message));
const taskLink = (app, task) => h("a", {href: linkTo("tasks", app, task)}, code(task));
const deviceLink = (app, cid) => h("a", {href: linkTo("devices", app, cid)}, code(cid));

function toMessage(trace) {
  return card(t("singlePush"), facts([
    [t("msgId"), messageLink(trace.msgId)], [t("cid"), deviceLink(trace.appId, trace.cid)], [t("state"), messageBadge(trace)],
  ]));
}

function taskView(task) {
  const rows = Object.entries(task.states).map(([state, count]) => [tWord("state", state), number(count), share(count, task.accepted)]);
  if (task.pending > 0) rows.push([t("pendingState"), number(task.pending), share(task.pending, task.accepted)]);
  return [
    card(code(task.taskId), facts([
      [t("app"), task.appId],
      [t("kindOfTask"), task.broadcast ? t("broadcastTask") : task.task ? t("listTask") : t("aliasTask")],
      task.task && [t("state"), badge(task.task === "ended" ? "good" : "", tWord("task", task.task))],
      task.group && [t("taskGroup"), task.group],
      task.createdAt && [t("acceptedAt"), time(task.createdAt)],
      task.scheduledAt && [t("scheduledAt"), time(task.scheduledAt)],
      [t("messages"), number(task.accepted)],
    ])),
    card(t("report"), table(t("report"), [t("state"), t("messages"), t("shareWord")], rows, t("reportEmpty"))),
    Object.keys(task.failures).length > 0 && card(t("failures"), table(t("failures"), [t("reason"), t("messages")],
      Object.entries(task.failures).map(([reason, count]) => [reason, number(count)]), "")),
  ];
}

const share = (count, all) => (all > 0 ? `${number(100 * count / all)} %` : "–");

function requestView(app, request) {
  return [
    request.messages.length > 0 && card(t("messages"), table(t("messages"), [t("msgId"), t("cid"), t("task")],
      request.messages.map(({msgId, cid, taskId}) => [messageLink(msgId), deviceLink(app, cid), taskLink(app, taskId)]), "")),
    request.tasks.length > 0 && card(t("tasks"), table(t("tasks"), [t("task"), t("callWord")],
      request.tasks.map(({taskId, call: name}) => [taskLink(app, taskId), name]), "")),
    refusals(request.refusals),
  ];
}

async function aliasView(app, {alias, devices}) {
  const views = await eachOf(devices, cid => findIn(app, "devices", cid));
  return card(t("aliasDevices", alias), deviceTable(views.filter(view => view), t("aliasDevices", alias)));
}

export function refusals(list) {
  return list.length > 0 && card(t("refusedPublishes"), table(t("refusedPublishes"), [t("when"), t("reason"), t("cid")],
    list.map(refusal => [time(refusal.time), tWord("refused", refusal.reason), code(refusal.cid)]), ""));
}
