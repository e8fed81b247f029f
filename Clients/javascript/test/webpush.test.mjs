// Vendor tokens, Web Push subscriptions, and the service worker with a faked browser.

import assert from "node:assert/strict";
import {readFileSync} from "node:fs";
import {test} from "node:test";
import * as vm from "node:vm";

import {LocalStorageStore} from "../src/browser.js";
import {cleanToken, withToken} from "../src/tokens.js";
import {taskIdOfText, tokenOfSubscription} from "../src/webpush.js";
import {FakeDatabases, id, until} from "./support.mjs";

const limit = {timeout: 20000};
const TASK = "RASS_1129_3d309ebcb6dce799a54d6c68";

test("a subscription becomes the gateway's form of a token", () => {
  const keys = {p256dh: new Uint8Array(65).fill(255), auth: new Uint8Array(16).fill(251)};
  const subscription = {endpoint: "https://push.example.com/send/abc", getKey: name => keys[name].buffer};
  const token = tokenOfSubscription(subscription);
  assert.equal(token, `https://push.example.com/send/abc#${"_".repeat(86)}8.${"-_v7".repeat(5)}-w`);
  assert.equal(cleanToken({vendor: "webPush", token}).channel, 9);
});

test("a task's text becomes its id on the wire", () => {
  assert.equal(taskIdOfText(TASK), "010b1d003d309ebcb6dce799a54d6c68");
  assert.equal(taskIdOfText("RASL_0102_000000000000000000000000"), `02010200${"0".repeat(24)}`);
  assert.equal(taskIdOfText("RASA_1231_ffffffffffffffffffffffff"), `030c1f00${"f".repeat(24)}`);
  for (const text of ["", "RASX_1129_3d309ebcb6dce799a54d6c68", `${TASK}0`, TASK.toUpperCase()]) {
    assert.equal(taskIdOfText(text), null);
  }
});

test("tokens are cleaned or refused with a reason", () => {
  assert.equal(cleanToken({vendor: "apns", token: "<00 11\n22>"}).token, "001122");
  assert.equal(cleanToken({vendor: "fcm", token: ""}).token, "");
  for (const [token, words] of [
    [{vendor: "nokia", token: "x"}, "no vendor"], [{vendor: "toString", token: "x"}, "no vendor"],
    [{vendor: "fcm", token: "x", kind: "voip"}, "only tokens of apns"], [{vendor: "fcm", token: "  "}, "blanks"],
    [{vendor: "fcm", token: "é"}, "ASCII"], [{vendor: "fcm", token: "x".repeat(1025)}, "1024"],
    [{vendor: "apns", token: "x", topic: "y".repeat(256)}, "255"], [{vendor: "fcm"}, "must be a text"],
    [{vendor: "apns", token: "x", activity: "活".repeat(22)}, "64"], [{vendor: "webPush", token: "https://h#a.b"},
      "webPush"],
    [{vendor: "webPush", token: `http://h#${"a".repeat(87)}.${"b".repeat(22)}`}, "https"],
  ]) {
    assert.throws(() => cleanToken(token), error => error.code === "badConfiguration" && error.message.includes(words));
  }
});

test("a device keeps one token for each use, sixteen in all, and eight of activities", () => {
  let tokens = [];
  const add = (changes, token = "t") => { tokens = withToken(tokens, cleanToken({vendor: "apns", token, ...changes}));
    };
  add({});
  add({}, "u");
  assert.deepEqual(tokens.map(({token}) => token), ["u"]);
  for (let index = 0; index < 12; index += 1) add({kind: "liveActivity", activity: `a${index}`});
  assert.deepEqual(tokens.map(({activity}) => activity), ["", ...[4, 5, 6, 7, 8, 9, 10, 11].map(index => `a${index}`)]);
  add({kind: "liveActivity", activity: "a7"}, "");
  assert.equal(tokens.length, 8);
  add({kind: "liveActivity"}, "");
  assert.deepEqual(tokens.map(({token}) => token), ["u"]);
  for (let index = 0; index < 20; index += 1) add({topic: `t${index}`});
  assert.equal(tokens.length, 16);
});

test("a full localStorage and another tab are errors of the store", async () => {
  const items = new Map(), storage = {
    getItem: key => items.has(key) ? items.get(key) : null, removeItem: key => items.delete(key),
    setItem(key, value) {
      if (value.length > 100) throw Object.assign(new Error("exceeded"), {name: "QuotaExceededError"});
      items.set(key, value);
    },
  };
  const store = new LocalStorageStore("state", {storage});
  store.save("one");
  assert.throws(() => store.save("x".repeat(101)), error => error.code === "stateUnwritable"
    && /is full/.test(error.message));
  assert.equal(store.load(), "one");
  store.setAside();
  assert.deepEqual([store.load(), items.get("state.damaged")], [null, "one"]);
});

/** The worker in a separate context, with pages and notifications in lists. */
function worker({pages = []} = {}) {
  const one = {handlers: {}, shown: [], opened: [], databases: new FakeDatabases(), pages};
  const self = {
    addEventListener: (name, handler) => { one.handlers[name] = handler; }, skipWaiting() {},
    registration: {
      scope: "https://app.example.com/",
      showNotification: async (title, options) => { one.shown.push({title, ...options}); },
    },
    clients: {claim() {}, matchAll: async () => pages, openWindow: async url => { one.opened.push(url); }},
  };
  const code = readFileSync(new URL("../service-worker.js", import.meta.url), "utf8");
  vm.runInNewContext(code, {self, indexedDB: one.databases, URL, console, setTimeout});
  one.send = async (name, event) => {
    let work = null;
    one.handlers[name]({waitUntil: promise => { work = promise; }, ...event});
    await work;
  };
  one.push = content => one.send("push", {data: {json: () => typeof content === "string" ? JSON.parse(content)
    : content}});
  one.inbox = () => Array.from(one.databases.stores.get("inbox").values(), ({kind, msgId}) => `${kind} ${msgId}`);
  return one;
}

function page(visibilityState, url = "https://app.example.com/") {
  const one = {visibilityState, url, messages: [], focused: 0, postMessage: message => one.messages.push(message)};
  one.focus = async () => { one.focused += 1; };
  return one;
}

const content = (msgId, notification = {title: "T", body: "B"}) => ({_gmid_: `${TASK}:${msgId}`, payload: "p",
  notification});

test("the worker shows a push, records it, and announces it", limit, async () => {
  const tab = page("hidden"), one = worker({pages: [tab]});
  await one.push(content(id(1), {title: "T", body: "B", image: "https://i.example/x.png", tag: "order", url: "/o/1"}));
  const [{title, body, image, tag, silent, data}] = one.shown;
  assert.deepEqual([title, body, image, tag, silent], ["T", "B", "https://i.example/x.png", "order", false]);
  assert.deepEqual({...data}, {taskId: TASK, msgId: id(1), payload: "p", url: "/o/1"});
  assert.deepEqual(one.inbox(), [`shown ${id(1)}`]);
  assert.equal(tab.messages[0].longwire, "shown");
});

test("a message that came over the connection is not shown again, or silently without a visible page", limit,
  async () => {
  for (const [visibility, count] of [["visible", 0], ["hidden", 1]]) {
    const one = worker({pages: [page(visibility)]});
    await one.push(content(id(9)));
    one.databases.stores.get("states").set("longwire.state.demo",
      `longwire state 1\nseen ${id(1)}\ncheck 0\nend\n`);
    one.shown = [];
    await one.push(content(id(1)));
    assert.deepEqual(one.shown.map(({silent, tag}) => [silent, tag]), count ? [[true, id(1)]] : []);
    await one.push(content(id(2)));
    assert.equal(one.shown.length, count + 1);
    assert.deepEqual(one.inbox(), [`shown ${id(9)}`, `shown ${id(2)}`]);
  }
});

test("pushes of other senders and data without a notification", limit, async () => {
  const tab = page("visible"), one = worker({pages: [tab]});
  for (const other of ["no JSON", "null", "[]", "{}", '{"_gmid_":5}', '{"_gmid_":"x:y"}',
      `{"_gmid_":"${id(1)}"}`]) await one.push(other);
  await one.send("push", {data: null});
  assert.deepEqual([one.shown, tab.messages], [[], []]);
  await one.push({_gmid_: `${TASK}:${id(3)}`, payload: "data"});
  assert.deepEqual([one.shown.length, tab.messages[0].longwire, tab.messages[0].message.payload], [0, "data", "data"]);
  await one.push(content(id(4), {title: {}, body: 7, tag: null}));
  assert.deepEqual([one.shown[0].title, one.shown[0].body, one.shown[0].tag], ["", "", id(4)]);
});

test("a tap is recorded, focuses a page or opens the push's address, and reaches the page", limit, async () => {
  const tap = async (url, pages) => {
    const one = worker({pages}), notification = {data: {taskId: TASK, msgId: id(1), payload: "p", url}, closed: 0};
    notification.close = () => { notification.closed += 1; };
    await one.send("notificationclick", {notification});
    assert.equal(notification.closed, 1);
    assert.deepEqual(one.inbox(), [`opened ${id(1)}`]);
    return one;
  };
  const tab = page("hidden");
  assert.deepEqual((await tap("", [tab])).opened, []);
  assert.deepEqual([tab.focused, tab.messages[0].longwire, tab.messages[0].message.msgId], [1, "opened", id(1)]);
  assert.deepEqual((await tap("", [])).opened, ["https://app.example.com/"]);
  assert.deepEqual((await tap("/orders/7", [page("hidden")])).opened, ["https://app.example.com/orders/7"]);
  assert.deepEqual((await tap("https://other.example/x", [])).opened, ["https://other.example/x"]);
  assert.deepEqual((await tap("javascript:alert(1)", [])).opened, ["https://app.example.com/"]);
  const shown = page("hidden", "https://app.example.com/orders/7");
  assert.deepEqual((await tap("/orders/7", [tab, shown])).opened, []);
  assert.equal(shown.focused, 1);
  const other = worker();
  await other.send("notificationclick",
    {notification: {data: null, close: () => assert.fail("another's notification")}});
  assert.equal(other.databases.stores, null);
});

test("the worker's records are bounded", limit, async () => {
  const one = worker();
  for (let index = 1; index <= 260; index += 1) await one.push(content(id(index)));
  await until(() => one.inbox().length <= 256);
  assert.equal(one.inbox().length, 256);
  assert.equal(one.inbox()[255], `shown ${id(260)}`);
});
