// The mini program's client with a faked `wx`, without the globals that a mini program lacks.

import assert from "node:assert/strict";
import {mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync} from "node:fs";
import {tmpdir} from "node:os";
import * as path from "node:path";
import {test} from "node:test";
import {fileURLToPath, pathToFileURL} from "node:url";

const MISSING = ["crypto", "WebSocket", "localStorage", "indexedDB", "TextEncoder", "TextDecoder", "BigInt", "URL",
  "performance", "fetch", "navigator",
  "AbortController", "structuredClone", "queueMicrotask", "Buffer", "process"];
const saved = new Map(MISSING.map(name => [name, Object.getOwnPropertyDescriptor(globalThis, name)]));
/** Runs work without these globals; the test runner has them otherwise. */
async function without(work) {
  for (const name of MISSING) delete globalThis[name];
  try {
    return await work();
  } finally {
    for (const [name, descriptor] of saved) if (descriptor) Object.defineProperty(globalThis, name, descriptor);
  }
}

const {WeChatTransport, createClient, hmacSHA256, hex} = await without(() => import("../src/wechat.js"));
const {FrameReader, encode} = await import("../src/frames.js");
const {ClientState} = await import("../src/state.js");
const {SECRET, id, until} = await import("./support.mjs");

const codes = bytes => Array.from(bytes);

class FakeWX {
  constructor() {
    Object.assign(this, {items: new Map(), sockets: [], handlers: {}, isFull: false, randomCalls: 0});
    for (const name of ["AppShow", "AppHide", "NetworkStatusChange"]) {
      this[`on${name}`] = handler => { this.handlers[name] = handler; };
      this[`off${name}`] = handler => { if (this.handlers[name] === handler) delete this.handlers[name]; };
    }
  }

  getStorageSync(key) { return this.items.has(key) ? this.items.get(key) : ""; }
  getStorageInfoSync() { return {keys: Array.from(this.items.keys())}; }
  removeStorageSync(key) { this.items.delete(key); }
  setStorageSync(key, value) {
    if (value.length > 1048576) throw {errMsg: "setStorageSync:fail entry size limit reached"};
    if (this.isFull) throw {errMsg: "setStorageSync:fail exceed storage max size 10Mb"};
    this.items.set(key, value);
  }

  getRandomValues({length, success}) {
    this.randomCalls += 1;
    setTimeout(() => success({randomValues: new Uint8Array(length).fill(this.randomCalls).buffer}));
  }

  connectSocket(options) {
    const reader = new FrameReader(), handlers = {}, socket = {options, handlers, frames: [], closed: null};
    const task = {
      send({data, complete}) {
        assert.ok(data instanceof ArrayBuffer);
        if (this.keepsBytes) return;
        socket.frames.push(...reader.take(new Uint8Array(data)));
        complete({});
      },
      close(close) { socket.closed = close; },
    };
    for (const name of ["Open", "Message", "Error", "Close"]) task[`on${name}`] = handler => {
        handlers[name] = handler; };
    this.sockets.push(Object.assign(socket, {task}));
    setTimeout(() => handlers.Open({}));
    return task;
  }
}

async function expect(socket, name) {
  await until(() => socket.frames.some(frame => frame.name === name));
  return socket.frames.splice(socket.frames.findIndex(frame => frame.name === name), 1)[0].values;
}

const send = (socket, name, values) => socket.handlers.Message({data: encode(name, values).slice().buffer});

async function welcome(wx, index) {
  await until(() => wx.sockets.length > index);
  const socket = wx.sockets[index], hello = await expect(socket, "hello");
  send(socket, "welcome", {queueEpoch: "2", heartbeatSeconds: 300, window: 32, ...hello.registration
    ? {cid: id(1), deviceSecret: SECRET} : {}});
  return {socket, hello};
}

const make = (wx, options = {}) => createClient({
  url: "wss://push.example.com", appId: "demo", appSecret: "s", wx, backoff: {first: 1, most: 2}, ...options,
});
const limit = {timeout: 20000};

test("a mini program registers, receives, stores and acks without the globals of a browser", limit,
  () => without(async () => {
  const wx = new FakeWX(), seen = [], events = [];
  const client = make(wx, {onMessage: message => { seen.push(message.text); },
    onEvent: event => events.push(event.type)});
  await client.start();
  const {socket, hello} = await welcome(wx, 0);
  assert.equal(socket.options.url, "wss://push.example.com:443/v1/device");
  assert.deepEqual([hello.registration, hello.nonce.length, wx.randomCalls], [true, 16, 1]);
  send(socket, "deliver", {sequence: 1, msgId: id(1), payload: Uint8Array.from([0xe6, 0x82, 0xa8, 0xe5, 0xa5, 0xbd])});
  assert.equal((await expect(socket, "ack")).positions[0].sequence, 1);
  assert.deepEqual(seen, ["您好"]);
  assert.match(wx.items.get("longwire.state.demo"), /\nstream 0 1\n/);
  assert.equal(hex(hmacSHA256(new Uint8Array(0), new Uint8Array(0))),
    "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
  await client.stop();
  assert.equal(codes(events).pop(), "stopped");
}));

test("a mini program registers with a token of the app's server instead of a secret", limit, async () => {
  const wx = new FakeWX(), client = make(wx, {appSecret: "", registrationToken: "a.b.c", onMessage() {}});
  await client.start();
  const {socket, hello} = await welcome(wx, 0);
  assert.deepEqual([hello.registration, hello.registrationToken], [true, "a.b.c"]);
  assert.equal((await expect(socket, "deviceNames")).token, "a.b.c");
  await client.stop();
  assert.ok(!wx.items.get("longwire.state.demo").includes("a.b.c"), "the token is not stored");
});

test("the messages that wait for the gateway fit into an item of the storage", limit, async () => {
  const wx = new FakeWX(), events = [], body = new Uint8Array(16384).fill(65);
  const client = make(wx, {onMessage() {}, onEvent: event => events.push(event)});
  await client.start();
  const {socket} = await welcome(wx, 0);
  for (let count = 0; count < 32; count += 1) client.send(body);
  await client.flush();
  assert.equal(events.filter(({type}) => type === "refused").length, 8);
  assert.ok(!events.some(({type}) => type === "stateNotStored"));
  assert.equal((await expect(socket, "upstream")).request, 1);
  await client.stop();
  // A state whose lists are all full fits as well.
  const state = ClientState.parse(wx.items.get("longwire.state.demo"));
  for (let index = 0; index < 300; index += 1) {
    state.noteOpened(id(index));
    state.noteSeen(id(index));
    state.noteReport({kind: "action", msgId: id(index), action: 90001});
    state.noteRejection({stream: 0, sequence: 9007199254740000 + index, reason: "🎉".repeat(128)});
  }
  for (const stream of [0, 1]) {
    for (let index = 0; index < 1100; index += 1) state.processed(stream).insertAlone(9007199254700000 + 2 * index);
  }
  assert.ok(state.serialized().length < 1048576, String(state.serialized().length));
});

test("a connection whose bytes are not sent ends before they fill the memory", limit, async () => {
  const transport = new WeChatTransport(new FakeWX()), {wx} = transport, data = new Uint8Array(65536);
  const open = () => new Promise(resolve => {
    const connection = transport.connect({scheme: "wss", url: "wss://h"}, {opened: () => resolve(connection)});
  });
  // Frames that WeChat reports as sent do not count.
  const frame = encode("ping", {nonce: "1"}), other = await open();
  for (let index = 0; index < 1048576 / frame.length + 10; index += 1) other.send(frame);
  const one = await open();
  wx.sockets[1].task.keepsBytes = true;
  for (let index = 0; index < 17; index += 1) one.send(data);
  assert.throws(() => one.send(data), /the gateway does not read: more than 1048576 bytes wait/);
});

test("the state survives a restart, and hide and show are reported", limit, async () => {
  const wx = new FakeWX(), seen = [], options = {onMessage: message => { seen.push(message.sequence); }};
  const first = make(wx, options);
  await first.start();
  const one = await welcome(wx, 0);
  send(one.socket, "deliver", {sequence: 1, msgId: id(1), payload: Uint8Array.of(1)});
  await expect(one.socket, "ack");
  wx.handlers.AppHide();
  const update = await expect(one.socket, "deviceUpdate");
  assert.deepEqual([update.applicationState, update.keepsRunning], [1, false]);
  wx.handlers.AppShow();
  assert.equal((await expect(one.socket, "deviceUpdate")).applicationState, 0);
  wx.handlers.NetworkStatusChange({isConnected: true, networkType: "wifi"});
  await first.stop();
  first.unfollow();
  assert.deepEqual(wx.handlers, {});
  const second = make(wx, {...options, appSecret: ""});
  await second.start();
  const two = await welcome(wx, 1);
  assert.deepEqual([two.hello.cid, two.hello.positions[0].sequence], [id(1), 1]);
  send(two.socket, "deliver", {sequence: 1, msgId: id(1), payload: Uint8Array.of(1)});
  await expect(two.socket, "ack");
  assert.deepEqual(seen, [1]);
  await second.stop();
});

test("a full storage means no ack, and a damaged one stops the start", limit, async () => {
  const wx = new FakeWX(), events = [], client = make(wx, {onMessage() {}, onEvent: event => events.push(event)});
  await client.start();
  const {socket} = await welcome(wx, 0);
  wx.isFull = true;
  send(socket, "deliver", {sequence: 1, msgId: id(1), payload: Uint8Array.of(1)});
  await until(() => events.some(({type}) => type === "stateNotStored"));
  assert.match(events.find(({type}) => type === "stateNotStored").reason, /exceed storage/);
  assert.ok(!socket.frames.some(({name}) => name === "ack"));
  wx.isFull = false;
  await welcome(wx, wx.sockets.length - (wx.sockets[wx.sockets.length - 1] === socket ? 0 : 1));
  await client.stop();
  for (const damage of ["", "longwire state 1\n", {not: "a text"}]) {
    wx.items.set("longwire.state.demo", damage);
    await assert.rejects(client.start(), error => error.code === "stateDamaged");
  }
  wx.getStorageSync = () => { throw {errMsg: "getStorageSync:fail"}; };
  await assert.rejects(client.start(), error => error.code === "stateUnreadable"
    && /getStorageSync:fail/.test(error.message));
});

test("text on the socket, an error and a close end the session once", limit, async () => {
  const wx = new FakeWX(), events = [], client = make(wx, {onMessage() {}, onEvent: event => events.push(event)});
  await client.start();
  const {socket} = await welcome(wx, 0);
  socket.handlers.Message({data: "text"});
  assert.equal(socket.closed.code, 1003);
  socket.handlers.Error({errMsg: "broken pipe"});
  socket.handlers.Close({code: 1006});
  await until(() => events.some(({type}) => type === "retrying"));
  assert.deepEqual(events.filter(({type}) => type === "disconnected").map(({reason}) => reason), ["broken pipe"]);
  await client.stop();
});

test("the README's program for mini programs runs", limit, async () => {
  const [, text] = /```js wechat\n([^]*?)```/.exec(readFileSync(new URL("../README.md", import.meta.url), "utf8"));
  const folder = mkdtempSync(path.join(tmpdir(), "longwire-wechat-"));
  try {
    symlinkSync(fileURLToPath(new URL("../src", import.meta.url)), path.join(folder, "longwire"));
    writeFileSync(path.join(folder, "app.mjs"), text);
    globalThis.wx = new FakeWX();
    globalThis.App = app => { globalThis.app = app; };
    await import(pathToFileURL(path.join(folder, "app.mjs")));
    const {wx, app} = globalThis;
    app.onLaunch();
    const {socket} = await welcome(wx, 0);
    send(socket, "deliver", {sequence: 1, msgId: id(1), payload: Uint8Array.of(104, 105)});
    await expect(socket, "ack");
    assert.deepEqual(app.globalData.messages, ["hi"]);
    await app.client.stop();
  } finally {
    rmSync(folder, {recursive: true, force: true});
    for (const name of ["wx", "App", "app"]) delete globalThis[name];
  }
});

test("a base library without random values is named", limit, async () => {
  const wx = new FakeWX();
  wx.getRandomValues = undefined;
  await assert.rejects(make(wx, {onMessage() {}}).start(), error => error.code === "badConfiguration"
    && /2\.19\.0/.test(error.message));
});
