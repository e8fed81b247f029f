// The result of a publish: a task with its report, or another object with the given name.

import {call, path} from "./api.js";
import {search} from "./choice.js";
import {badge, card, code, facts, fill, h, problem, table} from "./dom.js";
import {explain} from "./faults.js";
import {messageBadge} from "./messages.js";
import {number, t, tWord, time} from "./texts.js";

const ROUND = 3_000;
const FINAL = new Set(["stopped", "cancelled", "ended"]);

export const show = (body, [app, name]) => search(body, {
  page: "tasks", asked: [app, name], label: t("taskName"), hint: t("taskNameHint"), properties: {maxlength: 128},
  // An unfinished task is refreshed while the page is visible.
  look: async function round(found, isOver) {
    const view = await look(app, name);
    if (isOver()) return;
    fill(found, view.element);
    const again = async () => {
      if (isOver()) return;
      if (document.hidden) return setTimeout(again, ROUND);
      try {
        await round(found, isOver);
      } catch (error) {
        if (!isOver()) fill(found, explain(error));
      }
    };
    if (view.goesOn) setTimeout(again, ROUND);
  },
});

/** Returns the answer to a call, or null if the object does not exist. */
async function find(...segments) {
  try {
    return await call(path("v1", "apps", ...segments));
  } catch (error) {
    if (error.status === 404 || error.status === 400) return null;
    throw error;
  }
}

/** Tries the kinds of objects that the name may have, as `longwire trace` does. */
async function look(app, name) {
  if (/^RAS[SLA]_/.test(name)) {
    const task = await find(app, "tasks", name);
    if (task) return task.msgId ? {element: toMessage(task)} : {element: taskView(task), goesOn: !FINAL.has(task.task)};
  } else {
    const request = await find(app, "requests", name);
    if (request && request.messages.length + request.tasks.length + request.refusals.length > 0) return {element: requestView(app, request)};
    const alias = await find(app, "aliases", name);
    if (alias && alias.devices.length > 0) return {element: aliasView(app, alias)};
  }
  return {element: problem(t("taskUnknown"))};
}

const messageLink = message => h("a", {href: `#/messages/${message}`}, code(message));
const taskLink = (app, task) => h("a", {href: `#/tasks/${encodeURIComponent(app)}/${task}`}, code(task));
const deviceLink = (app, cid) => h("a", {href: `#/devices/${encodeURIComponent(app)}/${cid}`}, code(cid));

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

function aliasView(app, alias) {
  return card(t("aliasDevices", alias.alias), h("ul", {}, alias.devices.map(cid => h("li", {}, deviceLink(app, cid)))));
}

export function refusals(list) {
  return list.length > 0 && card(t("refusedPublishes"), table(t("refusedPublishes"), [t("when"), t("reason"), t("cid")],
    list.map(refusal => [time(refusal.time), tWord("refused", refusal.reason), code(refusal.cid)]), ""));
}
