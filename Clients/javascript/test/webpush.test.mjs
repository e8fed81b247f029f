// Vendor tokens, Web Push subscriptions, and the service worker with a faked browser.

import assert from "node:assert/strict";
import {readFileSync} from "node:fs";
import {test} from "node:test";
import * as vm from "node:vm";

import {LocalStorageStore, MemoryStore} from "../src/browser.js";
import {cleanToken, withToken} from "../src/tokens.js";
import {followNotifications, takeReports, taskIdOfText, tokenOfSubscription} from "../src/webpush.js";
import {FakeDatabases, having, id, party, until} from "./support.mjs";

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

/** Runs the service worker in a separate context, with fake pages and notifications. */
function worker({pages = []} = {}) {
  const one = {handlers: {}, shown: [], opened: [], databases: new FakeDatabases(), pages};
  const self = {
    addEventListener: (name, handler) => { one.handlers[name] = handler; }, skipWaiting() {},
    registration: {
      scope: "https://app.example.com/",
      showNotification: async (title, options) => { one.shown.push({title, ...options}); },
    },
    clients: {claim() {}, matchAll: async () => pages, openWindow: async url => {
      one.opened.push(url);
      return one.newPage || null;
    }},
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
  one.inbox = () => Array.from(one.databases.stores.get("inbox").values(),
    ({kind, msgId, message}) => `${kind} ${msgId || message.msgId}`);
  return one;
}

function page(visibilityState, url = "https://app.example.com/") {
  const one = {id: {}, visibilityState, url, focused: false, messages: [], focuses: 0,
    postMessage: message => one.messages.push(message)};
  one.focus = async () => { one.focuses += 1; };
  return one;
}

/** Copies an object of the worker's context, whose prototypes differ from those of this context. */
const plain = value => JSON.parse(JSON.stringify(value));

const content = (msgId, notification = {title: "T", body: "B"}) => ({_gmid_: `${TASK}:${msgId}`, payload: "p",
  notification});

test("the worker shows a push, records it, and announces it", limit, async () => {
  const tab = page("hidden"), one = worker({pages: [tab]});
  await one.push(content(id(1), {title: "T", body: "B", image: "https://i.example/x.png", tag: "order", url: "/o/1"}));
  const [{title, body, image, tag, silent, data}] = one.shown;
  assert.deepEqual([title, body, image, tag, silent], ["T", "B", "https://i.example/x.png", "order", false]);
  assert.deepEqual({...data}, {taskId: TASK, msgId: id(1), payload: "p", url: "/o/1"});
  assert.deepEqual(one.inbox(), [`shown ${id(1)}`]);
  assert.deepEqual(plain(tab.messages), [{longwire: "recorded"}]);
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
  // The message waits in the inbox for the page whose client runs.
  assert.deepEqual([one.shown.length, plain(tab.messages)], [0, [{longwire: "recorded"}]]);
  const [kept] = one.databases.stores.get("inbox").values();
  assert.deepEqual([kept.kind, kept.message.msgId, kept.message.payload], ["data", id(3), "data"]);
  await one.push(content(id(4), {title: {}, body: 7, tag: null}));
  assert.deepEqual([one.shown[0].title, one.shown[0].body, one.shown[0].tag], ["", "", id(4)]);
});

test("a tap is recorded, focuses a page or opens the push's address, and reaches the page", limit, async () => {
  const tap = async (url, pages) => {
    const one = worker({pages}), notification = {data: {taskId: TASK, msgId: id(1), payload: "p", url}, closed: 0};
    notification.close = () => { notification.closed += 1; };
    await one.send("notificationclick", {notification});
    assert.equal(notification.closed, 1);
    const isOfSite = !url.startsWith("https:");
    assert.deepEqual(one.inbox(), [`opened ${id(1)}`, ...isOfSite ? [`tap ${id(1)}`] : []]);
    return one;
  };
  const tab = page("hidden");
  assert.deepEqual((await tap("", [tab])).opened, []);
  assert.deepEqual([tab.focuses, tab.messages[0].longwire, tab.messages[0].message.msgId], [1, "opened", id(1)]);
  assert.equal(tab.messages[0].key, 2);
  assert.deepEqual((await tap("", [])).opened, ["https://app.example.com/"]);
  assert.deepEqual((await tap("/orders/7", [page("hidden")])).opened, ["https://app.example.com/orders/7"]);
  assert.deepEqual((await tap("https://other.example/x", [])).opened, ["https://other.example/x"]);
  assert.deepEqual((await tap("javascript:alert(1)", [])).opened, ["https://app.example.com/"]);
  const shown = page("hidden", "https://app.example.com/orders/7");
  assert.deepEqual((await tap("/orders/7", [tab, shown])).opened, []);
  assert.equal(shown.focuses, 1);
  const other = worker();
  await other.send("notificationclick",
    {notification: {data: null, close: () => assert.fail("another's notification")}});
  assert.equal(other.databases.stores, null);
});

test("a tap goes to one page only: the focused one, or the one that it opens", limit, async () => {
  const focused = Object.assign(page("visible"), {focused: true});
  const pages = [page("visible"), page("hidden"), focused], one = worker({pages});
  const tap = (worker, url = "") => worker.send("notificationclick",
    {notification: {data: {taskId: TASK, msgId: id(1), payload: "p", url}, close() {}}});
  await tap(one);
  assert.deepEqual(pages.map(({messages}) => messages.map(({longwire}) => longwire)), [["recorded"], ["recorded"],
    ["opened"]]);
  assert.deepEqual(pages.map(({focuses}) => focuses), [0, 0, 1]);
  const others = [page("hidden"), page("hidden")], other = worker({pages: others});
  other.newPage = page("visible", "https://app.example.com/orders/7");
  await tap(other, "/orders/7");
  assert.deepEqual(plain(other.newPage.messages).map(({longwire, key}) => [longwire, key]), [["opened", 2]]);
  assert.deepEqual(others.map(({messages}) => plain(messages)), [[{longwire: "recorded"}], [{longwire: "recorded"}]]);
  // A tap that opens another site is passed to no page of this site.
  const last = page("visible"), away = worker({pages: [last]});
  await tap(away, "https://other.example/x");
  assert.deepEqual(plain(last.messages), [{longwire: "recorded"}]);
});

/** Creates a site: its pages share the database of a service worker. */
function site() {
  const databases = new FakeDatabases(), listeners = new Set();
  const one = {databases, taps: [], serviceWorker: {
    addEventListener: (_, listener) => listeners.add(listener), startMessages() {},
    removeEventListener: (_, listener) => listeners.delete(listener),
  }};
  const globals = {indexedDB: databases, document: {visibilityState: "visible"},
    navigator: {serviceWorker: one.serviceWorker}};
  one.run = work => having(globals, work);
  one.records = () => Array.from(databases.stores ? databases.stores.get("inbox").values() : [],
    ({kind, msgId, message}) => `${kind} ${msgId || message.msgId}`);
  one.add = (...records) => {
    if (!databases.stores) databases.stores = new Map([["states", new Map()], ["inbox", new Map()]]);
    return records.map(record => {
      databases.last = (databases.last || 0) + 1;
      databases.stores.get("inbox").set(databases.last, record);
      return databases.last;
    });
  };
  /** Calls followNotifications for a new page; returns its taps, and functions to end it and to post to it. */
  one.follow = client => {
    const before = new Set(listeners), taps = [], end = followNotifications(client, ({msgId}) => taps.push(msgId));
    const [listener] = Array.from(listeners).filter(one => !before.has(one));
    return {taps, end, post: data => listener({data})};
  };
  return one;
}

const message = number => ({taskId: TASK, msgId: id(number), payload: "data", url: ""});

test("a client that does not run takes nothing, and takes all once it runs", limit, async () => {
  const one = site();
  await one.run(async () => {
    let free = null;
    const store = new MemoryStore();
    store.lock = ({waits}) => new Promise(resolve => {
      waits();
      free = () => resolve(() => {});
    });
    const tab = party({store, vendorDuplicates: true});
    await tab.client.start();
    assert.equal(tab.client.status, "standby");
    one.add({kind: "shown", msgId: id(1)}, {kind: "opened", msgId: id(1)}, {kind: "data", message: message(2)});
    const page = one.follow(tab.client);
    page.post({longwire: "recorded"});
    assert.equal(await takeReports(tab.client), 0);
    assert.equal(one.records().length, 3);
    assert.deepEqual(tab.client.kept, []);
    free();
    await until(() => one.records().length === 0);
    assert.deepEqual(tab.messages.map(({channel, msgId, text}) => [channel, msgId, text]), [["vendor", id(2), "data"]]);
    const hello = await (await tab.gateway.next()).welcome();
    assert.ok(hello.registration);
    page.end();
    await tab.client.stop();
  });
});

test("a message without a notification stays in the inbox until it is processed", limit, async () => {
  const one = site();
  await one.run(async () => {
    const verdicts = [], tab = party({vendorDuplicates: true, onMessage: () => new Promise(resolve => {
      verdicts.push(resolve);
    })});
    await tab.client.start();
    const page = one.follow(tab.client);
    await (await tab.gateway.next()).welcome();
    one.add({kind: "data", message: message(3)});
    page.post({longwire: "recorded"});
    await until(() => verdicts.length === 1);
    page.post({longwire: "recorded"});
    await takeReports(tab.client);
    assert.deepEqual(one.records(), [`data ${id(3)}`]);
    // A deferred message is delivered again in the next session, not earlier.
    verdicts[0]("deferred");
    page.post({longwire: "recorded"});
    await takeReports(tab.client);
    assert.deepEqual([verdicts.length, one.records().length], [1, 1]);
    await tab.client.stop();
    await tab.client.start();
    await until(() => verdicts.length === 2);
    verdicts[1]();
    await until(() => one.records().length === 0);
    assert.equal(verdicts.length, 2);
    await tab.client.stop();
    page.end();
  });
});

test("a tap is taken once: by the page that is told, or by a page that it has opened", limit, async () => {
  const one = site();
  await one.run(async () => {
    const tab = party({});
    // A page that a tap has opened reads the tap at its start. The worker's later message has no effect.
    const [key] = one.add({kind: "tap", message: message(4)});
    const page = one.follow(tab.client);
    await until(() => page.taps.length === 1);
    page.post({longwire: "opened", message: message(4), key});
    // This tap has no record, because the database was full.
    page.post({longwire: "opened", message: message(5), key: null});
    await until(() => page.taps.length === 2);
    assert.deepEqual(page.taps, [id(4), id(5)]);
    // A page in the background takes a tap only if the worker passes it to the page.
    document.visibilityState = "hidden";
    const [later] = one.add({kind: "tap", message: message(6)}), hidden = one.follow(tab.client);
    hidden.post({longwire: "recorded"});
    await new Promise(resolve => setTimeout(resolve, 20));
    assert.deepEqual([hidden.taps, one.records()], [[], [`tap ${id(6)}`]]);
    page.post({longwire: "opened", message: message(6), key: later});
    await until(() => page.taps.length === 3);
    assert.deepEqual([page.taps[2], one.records()], [id(6), []]);
    page.end();
    hidden.end();
  });
});

test("the worker's records are bounded", limit, async () => {
  const one = worker();
  for (let index = 1; index <= 260; index += 1) await one.push(content(id(index)));
  await until(() => one.inbox().length <= 256);
  assert.equal(one.inbox().length, 256);
  assert.equal(one.inbox()[255], `shown ${id(260)}`);
});
