#!/usr/bin/env node
// A device for the conformance suite (Tests/Conformance): reads commands as lines of JSON, prints events as lines of
// JSON.

import {readFileSync} from "node:fs";
import * as path from "node:path";
import * as readline from "node:readline";

import {createClient} from "../src/node.js";

const USAGE = "usage: driver.mjs --address HOST:PORT --transport tcp|tls|ws|wss [--ca FILE] --app ID "
  + "--secret SECRET|--token TOKEN --state FOLDER [--window N] [--heartbeat SECONDS] [--manual] [--serial] "
  + "[--alternates-from-close] [--backoff-ms FIRST:MAX] [--names-ms TIME]";
const FLAGS = ["manual", "serial", "alternates-from-close"];

function parse(words) {
  const values = {};
  for (let index = 0; index < words.length; index += 1) {
    const name = words[index].replace(/^--/, "");
    if (FLAGS.includes(name)) values[name] = true;
    else values[name] = words[index += 1];
  }
  for (const name of ["address", "transport", "app", "secret", "state"]) {
    const isGiven = values[name] !== undefined || name === "secret" && values.token !== undefined;
    if (!isGiven) {
      console.error(`--${name} is missing\n${USAGE}`);
      process.exit(2);
    }
  }
  return values;
}

const values = parse(process.argv.slice(2));
const print = (event, details) => process.stdout.write(`${JSON.stringify({event, ...details})}\n`);
const base64 = bytes => Buffer.from(bytes).toString("base64");
const held = new Map();

function onMessage(message) {
  const {alert} = message;
  print("message", {
    msgId: message.msgId, taskId: message.taskId, sequence: message.sequence, payload: base64(message.payload),
    offline: message.offline, kind: message.stream === 1 ? "broadcast" : "message", channel: message.channel,
    ...alert && {title: alert.title, body: alert.body},
  });
  if (!values.manual) return undefined;
  held.set(message.msgId, message);
  return "later";
}

function onEvent(event) {
  switch (event.type) {
    case "retrying": print("retrying", {ms: event.milliseconds}); break;
    case "stopped": print("stopped", {reason: event.error && event.error.message}); break;
    case "stateNotStored": print("stateNotStored", {reason: event.reason}); break;
    case "taken": case "refused": print(event.type, {request: event.request, code: event.code || 0}); break;
    case "handlerFailed": console.error(event.error); break;
    default: {
      const {type, ...details} = event;
      print(type, details);
    }
  }
}

const [first, most] = (values["backoff-ms"] || "").split(":").map(Number);
const client = createClient({
  url: `${values.transport}://${values.address}`, appId: values.app, appSecret: values.secret || "",
  registrationToken: values.token || "",
  state: path.join(values.state, "state"), tls: values.ca ? {ca: readFileSync(values.ca)} : {},
  window: Number(values.window || 0), heartbeatSeconds: Number(values.heartbeat || 0), parallel: values.manual && !values.serial ? 1024
    : 1,
  vendorDuplicates: true, backoff: first ? {first, most} : {}, onMessage, onEvent,
});
// No option of the client: an app has no reason to change this time.
if (values["names-ms"]) client.configuration.namesResult = Number(values["names-ms"]);

function finish({msgId, verdict, reason = ""}) {
  const message = held.get(msgId);
  if (!message) throw new Error(`no message ${msgId} waits for a verdict`);
  held.delete(msgId);
  client.finish(message, verdict === "rejected" ? {rejected: reason} : "processed");
}

/** A message that the client does not accept has no number. */
function send({payload, task = ""}) {
  try {
    client.send(new Uint8Array(Buffer.from(payload, "base64")), {taskId: task});
  } catch (error) {
    print("refused", {request: 0, code: 0, reason: error.message});
  }
}

/** The client's calls by their operation. The event `names` prints the gateway's results. */
const NAMES = {
  query: ({aliasType}) => client.ownNames(aliasType),
  bindAlias: ({alias, aliasType, token}) => token === undefined ? client.bindAlias(alias, aliasType)
    : client.bindAliasWithToken(token),
  unbindAlias: ({alias, aliasType}) => client.unbindAlias(alias, aliasType),
  setTags: ({tags}) => client.setTags(tags),
  addTags: ({tags}) => client.addTags(tags),
  removeTags: ({tags}) => client.removeTags(tags),
};

function names(command) {
  NAMES[command.operation](command).catch(error => {
    if (error.resultCode === null) print("names", {code: null, reason: error.message});
  });
}

const COMMANDS = {
  finish,
  send,
  names,
  opened: ({msgId}) => client.markOpened(msgId),
  report: ({msgId, kind, action}) => kind === "clicked" ? client.markOpened(msgId)
    : client.report({kind: kind === "custom" ? "action" : kind, msgId, action}),
  foreground: () => client.setApplicationState("foreground"),
  background: ({keepsRunning}) => client.setApplicationState("background", {keepsRunning}),
  network: ({name}) => client.networkChanged(name === undefined ? null : name),
  token: ({vendor, token}) => client.setToken({vendor, token}),
  badge: ({value}) => client.setBadge(value),
  attributes: ({model, locale, allowed}) => client.setAttributes({
    model, locale, notificationPermission: allowed ? "allowed" : "denied",
  }),
  "push-mode": ({off}) => client.setPushModeOff(off),
  heartbeat: ({seconds}) => client.setHeartbeat(seconds),
  "vendor-message": ({msgId, taskId, payload}) => client.receiveVendorMessage({
    msgId, taskId, payload: payload === undefined ? undefined : new Uint8Array(Buffer.from(payload, "base64")),
  }),
  fetch: ({ms}) => client.fetch(ms),
  stop: () => client.stop(),
};

const lines = readline.createInterface({input: process.stdin});
lines.on("line", line => {
  if (line.trim() === "") return;
  const command = JSON.parse(line), run = COMMANDS[command.do];
  if (!run) {
    print("unsupported", {do: command.do});
    return;
  }
  try {
    run(command);
  } catch (error) {
    console.error(`${command.do}: ${error.message}`);
  }
});
lines.on("close", () => client.stop());
client.start().catch(error => print("stopped", {reason: error.message}));
