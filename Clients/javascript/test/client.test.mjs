// The client against a gateway in memory: the order of storing and acking, verdicts, stores that fail, and the app's
// calls.

import assert from "node:assert/strict";
import {randomBytes} from "node:crypto";
import {test} from "node:test";

import {LongwireClient, LongwireError, MemoryStore, parseURL} from "../src/index.js";
import {ClientState} from "../src/state.js";
import {FakeGateway, id, party, until} from "./support.mjs";

const limit = {timeout: 20000};
const kept = store => ClientState.parse(store.text);

/** Starts a party and registers it. */
async function ready(options, welcome) {
  const one = party(options);
  await one.client.start();
  one.session = await one.gateway.next();
  one.hello = await one.session.welcome(welcome);
  await one.event("welcomed");
  return one;
}

test("a registration is stored before its event", limit, async () => {
  const store = new MemoryStore(), order = [],
    {gateway, client} = party({store, onEvent: event => order.push(event.type)});
  const save = store.save.bind(store);
  store.save = text => {
    order.push(ClientState.parse(text).isRegistered ? "stored" : "greeting stored");
    save(text);
  };
  await client.start();
  const hello = await (await gateway.next()).welcome();
  await until(() => order.includes("welcomed"));
  assert.equal(hello.registration, true);
  assert.equal(hello.nonce.length, 16);
  assert.deepEqual(order.slice(0, 4), ["connecting", "greeting stored", "stored", "registered"]);
  await client.stop();
  assert.equal(order[order.length - 1], "stopped");
  const again = party({store, appSecret: ""});
  await again.client.start();
  const second = await (await again.gateway.next()).expect("hello");
  assert.deepEqual([second.cid, second.registration, second.queueEpoch], [id(1), false, "5"]);
  assert.ok(second.timestamp > hello.timestamp);
  await again.client.stop();
});

test("a message is handled, then stored, then acked, once", limit, async () => {
  const store = new MemoryStore(), order = [],
    one = await ready({store, onMessage: ({sequence}) => { order.push(`handled ${sequence}`); }});
  const save = store.save.bind(store);
  store.save = text => {
    order.push(`stored ${ClientState.parse(text).processed(0).sequence}`);
    save(text);
  };
  const connection = one.client.connection, send = connection.send;
  connection.send = bytes => {
    if (bytes[0] === 7) order.push("acked");
    send(bytes);
  };
  one.session.deliver(1);
  const ack = await one.session.expect("ack");
  assert.deepEqual(ack.positions, [{stream: 0, sequence: 1, ranges: []}]);
  assert.deepEqual(order, ["handled 1", "stored 1", "acked"]);
  one.session.deliver(1);
  await one.session.expect("ack");
  assert.deepEqual((await one.event("suppressed")).msgId, id(1));
  assert.deepEqual(order, ["handled 1", "stored 1", "acked", "acked"]);
  await one.client.stop();
});

test("an asynchronous handler gets one message at a time, and a store that takes time delays the ack", limit,
  async () => {
  let saved = null, active = 0, most = 0;
  const store = {
    load: () => saved,
    save: text => new Promise(resolve => setTimeout(() => {
      saved = text;
      resolve();
    }, 2)),
  };
  const seen = [], one = await ready({
    store, async onMessage({sequence}) {
      active += 1;
      most = Math.max(most, active);
      await new Promise(resolve => setTimeout(resolve, 1));
      seen.push(sequence);
      active -= 1;
    },
  });
  for (let sequence = 1; sequence <= 20; sequence += 1) one.session.deliver(sequence);
  await until(() => one.session.frames.some(({name, values}) => {
    if (name !== "ack") return false;
    assert.ok(ClientState.parse(saved).processed(0).sequence >= values.positions[0].sequence, "stored before the ack");
    return values.positions[0].sequence === 20;
  }));
  assert.deepEqual(seen, Array.from({length: 20}, (_, index) => index + 1));
  assert.equal(most, 1);
  await one.client.stop();
});

test("messages that finish out of order are acked with ranges", limit, async () => {
  const held = new Map(), one = await ready({parallel: 8, onMessage(message) {
    held.set(message.sequence, message);
    return "later";
  }});
  for (const sequence of [1, 2, 4, 5]) one.session.deliver(sequence);
  await until(() => held.size === 4);
  assert.equal(one.client.finish(held.get(4)), true);
  assert.deepEqual((await one.session.expect("ack")).positions,
    [{stream: 0, sequence: 0, ranges: [{first: 3, last: 4}]}]);
  assert.equal(one.client.finish(held.get(4)), false);
  one.client.finish(held.get(1));
  assert.deepEqual((await one.session.expect("ack")).positions,
    [{stream: 0, sequence: 1, ranges: [{first: 3, last: 4}]}]);
  one.client.finish(held.get(2));
  assert.deepEqual((await one.session.expect("ack")).positions, [{stream: 0, sequence: 4, ranges: []}]);
  await one.client.stop();
});

test("a handler that throws leaves its message un-acked, and the next session delivers it again", limit, async () => {
  let isBroken = true;
  const seen = [], one = await ready({onMessage({sequence}) {
    if (isBroken) throw new Error("the database is away");
    seen.push(sequence);
  }});
  one.session.deliver(1);
  const {error, message} = await one.event("handlerFailed");
  assert.equal(error.message, "the database is away");
  assert.equal(message.sequence, 1);
  isBroken = false;
  one.session.deliver(2);
  assert.deepEqual((await one.session.expect("ack")).positions,
    [{stream: 0, sequence: 0, ranges: [{first: 2, last: 2}]}]);
  one.session.cut();
  const next = await one.gateway.next();
  const hello = await next.welcome();
  assert.deepEqual(hello.positions, [{stream: 0, sequence: 0, ranges: [{first: 2, last: 2}]}]);
  next.deliver(1);
  assert.deepEqual((await next.expect("ack")).positions, [{stream: 0, sequence: 2, ranges: []}]);
  assert.deepEqual(seen, [2, 1]);
  await one.client.stop();
});

test("a rejected message is not acked by a position before the Pong", limit, async () => {
  const one = await ready({onMessage: ({sequence}) => sequence === 1 ? {rejected: "x".repeat(200)} : undefined});
  one.session.deliver(1);
  const {rejected, positions} = await one.session.expect("ack");
  assert.deepEqual(positions, []);
  assert.deepEqual(rejected, [{stream: 0, sequence: 1, reason: "x".repeat(128)}]);
  const {nonce} = await one.session.expect("ping");
  one.session.deliver(2);
  assert.deepEqual((await one.session.expect("ack")).positions,
    [{stream: 0, sequence: 0, ranges: [{first: 2, last: 2}]}]);
  one.session.send("pong", {nonce});
  assert.deepEqual((await one.session.expect("ack")).positions, [{stream: 0, sequence: 2, ranges: []}]);
  assert.deepEqual(kept(one.store).rejections, []);
  await one.client.stop();
});

for (const kind of ["at once", "later"]) {
  test(`a store that fails ${kind} means no ack, a report, and a new session`, limit, async () => {
    const store = new MemoryStore(), one = await ready({store});
    const save = store.save.bind(store);
    let failures = 0;
    store.save = text => {
      if (failures >= 2) return save(text);
      failures += 1;
      const error = new Error("the disk is full");
      if (kind === "at once") throw error;
      return Promise.reject(error);
    };
    one.session.deliver(1);
    const event = await one.event("stateNotStored");
    assert.equal(event.reason, "the disk is full");
    assert.equal(event.error.code, "stateUnwritable");
    assert.ok(!one.session.has("ack"));
    await until(() => one.session.isClosed);
    // The next Hello cannot be stored either, so it is not sent.
    const second = await one.gateway.next();
    await one.event("stateNotStored", 2);
    assert.ok(!second.has("hello"));
    const third = await one.gateway.next(), hello = await third.welcome();
    assert.deepEqual(hello.positions, [{stream: 0, sequence: 1, ranges: []}]);
    third.deliver(1);
    await third.expect("ack");
    assert.equal(one.messages.length, 1);
    await one.client.stop();
  });
}

/** A store whose next writes fail. */
class FaultyStore extends MemoryStore {
  failures = 0;

  save(text) {
    this.failures -= 1;
    if (this.failures >= 0) throw new Error("the disk is full");
    this.failures = 0;
    super.save(text);
  }
}

const rarely = {first: 3600000, most: 3600000};

test("a flush after a failed write repeats the write, and succeeds only with it", limit, async () => {
  const store = new FaultyStore(), one = await ready({store, backoff: rarely});
  await one.client.flush();
  store.failures = Infinity;
  one.client.markOpened(id(3));
  for (let count = 0; count < 2; count += 1) {
    await assert.rejects(one.client.flush(), ({code}) => code === "stateUnwritable");
    // The second report changes nothing.
    one.client.report({kind: "shown", msgId: id(4)});
  }
  store.failures = 0;
  await one.client.flush();
  assert.deepEqual([kept(store).opened, kept(store).unreported.length], [[id(3)], 1]);
  await one.client.stop();
});

for (const reconnects of [true, false]) {
  test(`a client that ${reconnects ? "is stopped" : "stops by itself"} repeats a failed write`, limit, async () => {
    const one = await ready({store: new FaultyStore(), backoff: rarely, reconnects});
    await one.client.flush();
    one.store.failures = 1;
    one.session.deliver(1);
    await one.event("stateNotStored");
    if (reconnects) await one.client.stop();
    else await one.event("stopped");
    await one.client.start();
    const session = await one.gateway.next();
    await session.welcome();
    session.deliver(1);
    await session.expect("ack");
    assert.equal(one.messages.length, 1);
    await one.client.stop();
  });
}

test("a message to the server whose write fails is taken out and refused", limit, async () => {
  const store = new MemoryStore(), save = store.save.bind(store);
  let most = Infinity;
  store.save = text => {
    if (text.length > most) throw new Error("no room");
    save(text);
  };
  const one = await ready({store});
  await one.client.flush();
  most = store.text.length + 100;
  one.client.send("x".repeat(1000));
  const {request, code, reason} = await one.event("refused");
  assert.deepEqual([request, code, reason], [0, 0, "the message could not be stored: no room"]);
  // The client connects again, and a smaller message is taken.
  const session = await one.gateway.next();
  await session.welcome();
  one.client.send("y");
  assert.equal(Buffer.from((await session.expect("upstream")).payload).toString(), "y");
  session.send("upstreamResult", {request: 2, code: 0});
  await one.event("taken");
  await one.client.stop();
  // Without a running client the same applies.
  one.client.send("x".repeat(1000));
  one.client.markOpened(id(3));
  await assert.rejects(one.client.flush(), ({code}) => code === "stateUnwritable");
  assert.equal((await one.event("refused", 2)).reason, "the message could not be stored: no room");
  await one.client.flush();
  assert.deepEqual(kept(store).opened, [id(3)]);
  most = Infinity;
  for (let count = 0; count < 130; count += 1) one.client.send("z");
  await one.client.flush();
  assert.equal((await one.event("refused", 4)).reason, "too many messages wait for the gateway already");
  assert.equal(kept(store).outgoing.length, 128);
});

test("a handler of the event stopped may start the client again; a later forget removes the state", limit, async () => {
  const store = new MemoryStore(), save = store.save.bind(store);
  store.save = async text => {
    await new Promise(resolve => setTimeout(resolve, 5));
    save(text);
  };
  let restarts = 0;
  const one = party({store, onEvent(event) {
    one.events.push(event);
    if (event.type === "stopped" && restarts < 2) {
      restarts += 1;
      one.client.start();
    }
  }});
  await one.client.start();
  const session = await one.gateway.next();
  await session.welcome();
  await one.event("welcomed");
  session.send("close", {code: 499});
  await (await one.gateway.next()).welcome();
  await one.event("welcomed", 2);
  await one.client.flush();
  one.client.markOpened(id(5));
  const forgotten = one.client.forget();
  await forgotten;
  // The event of this stop has started the client once more, as another device.
  assert.equal(store.text, null);
  const hello = await (await one.gateway.next()).welcome({cid: id(2)});
  assert.deepEqual([hello.registration, restarts], [true, 2]);
  await one.event("welcomed", 3);
  assert.equal(kept(store).cid, id(2));
  assert.deepEqual(kept(store).opened, []);
  await one.client.stop();
});

test("another epoch discards the positions", limit, async () => {
  const one = await ready({vendorDuplicates: true});
  one.session.deliver(1);
  await one.session.expect("ack");
  one.session.cut();
  const next = await one.gateway.next();
  await next.welcome({queueEpoch: "18446744073709551615"});
  assert.deepEqual(await one.event("queueReset"), {type: "queueReset", from: "5", to: "18446744073709551615"});
  next.deliver(1);
  await next.expect("ack");
  assert.equal(one.messages.length, 2);
  assert.equal(kept(one.store).epoch, "18446744073709551615");
  await one.client.stop();
});

test("hostile frames end the session with a code, and the client returns", limit, async () => {
  const one = await ready({backoff: {first: 1, most: 1}}), {session} = one;
  const cases = [
    [412, Uint8Array.of(6, 0, 0, 1, 255)], [411, Uint8Array.of(6, 255, 255, 255)], [410, Uint8Array.of(77, 0, 0, 0)],
    [410, Uint8Array.of(7, 0, 0, 0)], [410, Uint8Array.of(2, 0, 0, 0)], [412, Uint8Array.of(6, 0, 0, 2, 16, 0)],
  ];
  let current = session;
  for (const [code, bytes] of cases) {
    current.sendBytes(bytes);
    assert.equal((await current.expect("close")).code, code);
    assert.ok(current.isClosed);
    current = await one.gateway.next();
    await current.welcome();
  }
  for (let sequence = 1; sequence <= 1025; sequence += 1) current.deliver(sequence, {stream: 0});
  await until(() => one.messages.length >= 1);
  await one.client.stop();
});

test("more streams, un-acked messages and bytes than a gateway sends are refused", limit, async () => {
  const one = await ready({parallel: 1024, onMessage: () => "later"});
  for (let stream = 0; stream < 9; stream += 1) one.session.deliver(1, {stream, msgId: id(stream + 1)});
  assert.equal((await one.session.expect("close")).code, 414);
  const second = await one.gateway.next();
  await second.welcome();
  for (let sequence = 1; sequence <= 1026; sequence += 1) second.deliver(sequence + 10);
  assert.equal((await second.expect("close")).code, 414);
  const third = await one.gateway.next();
  await third.welcome();
  for (let sequence = 1; sequence <= 300; sequence += 1) {
    third.deliver(sequence + 5000, {payload: new Uint8Array(16384)});
  }
  assert.equal((await third.expect("close")).code, 414);
  await one.client.stop();
});

test("bytes that wait for a slow store are bounded", limit, async () => {
  let release = null;
  const store = {load: () => null, save: () => release ? undefined : new Promise(resolve => { release = resolve; })};
  const one = party({store});
  await one.client.start();
  const session = await one.gateway.next();
  await until(() => release);
  for (let count = 0; count < 200; count += 1) session.sendBytes(new Uint8Array(65536));
  assert.ok(session.isClosed);
  const held = one.client.inputs.reduce((sum, {bytes}) => sum + (bytes ? bytes.length : 0), 0);
  assert.ok(held > 0 && held <= 4194304, String(held));
  release();
  await one.event("disconnected");
  await one.client.stop();
});

test("calls without a running client go into the store", limit, async () => {
  const one = party();
  one.client.markOpened(id(3));
  one.client.report({kind: "shown", msgId: id(4)});
  one.client.send("for the server", {taskId: id(6)});
  await one.client.flush();
  assert.deepEqual(kept(one.store).opened, [id(3)]);
  assert.equal(kept(one.store).outgoing.length, 1);
  await one.client.start({opened: [id(5)]});
  const session = await one.gateway.next();
  await session.welcome();
  const feedback = [await session.expect("feedback"), await session.expect("feedback"),
    await session.expect("feedback")];
  assert.deepEqual(feedback.map(({kind, msgId}) => [kind, msgId]), [[0, id(3)], [0, id(5)], [1, id(4)]]);
  const upstream = await session.expect("upstream");
  assert.deepEqual([upstream.request, Buffer.from(upstream.payload).toString(), upstream.taskId],
    [1, "for the server", id(6)]);
  const {nonce} = await session.expect("ping");
  session.send("pong", {nonce});
  session.send("upstreamResult", {request: 1, code: 0});
  await one.event("taken");
  await one.client.flush();
  assert.deepEqual(kept(one.store).unreportedOpened, []);
  assert.deepEqual(kept(one.store).unreported, []);
  assert.deepEqual(kept(one.store).outgoing, []);
  await one.client.stop();
});

test("calls during a start are neither lost nor repeated, whatever the start waits for", limit, async () => {
  const gates = [], wait = () => new Promise(resolve => gates.push(resolve));
  const store = new MemoryStore(), save = store.save.bind(store), saves = [];
  store.save = async text => {
    saves.push(text);
    if (saves.length <= 2) await wait();
    save(text);
  };
  const random = async count => {
    await wait();
    return new Uint8Array(randomBytes(count));
  };
  const one = party({store, random}), started = one.client.start({opened: [id(1)]});
  const passGate = async call => {
    await until(() => gates.length > 0);
    assert.equal(call(), true);
    gates.shift()();
  };
  await passGate(() => one.client.send("during the random bytes"));
  await passGate(() => one.client.send("during the first save"));
  await passGate(() => one.client.markOpened(id(2)));
  await started;
  assert.deepEqual(one.client.kept, []);
  assert.deepEqual(kept(store).outgoing.map(({number}) => number), [1, 2]);
  assert.deepEqual(kept(store).opened, [id(1), id(2)]);
  const session = await one.gateway.next();
  await session.welcome();
  for (const [request, text] of [[1, "during the random bytes"], [2, "during the first save"]]) {
    const upstream = await session.expect("upstream");
    assert.deepEqual([upstream.request, Buffer.from(upstream.payload).toString()], [request, text]);
    session.send("upstreamResult", {request, code: 0});
  }
  await one.client.stop();
});

test("a verdict during a start counts: the message is not shown again", limit, async () => {
  let finish = null, gate = null, isHeld = false;
  const random = async count => {
    if (isHeld) await new Promise(resolve => { gate = resolve; });
    return new Uint8Array(randomBytes(count));
  };
  const seen = [], one = await ready({random, onMessage({sequence}) {
    seen.push(sequence);
    return sequence === 1 ? new Promise(resolve => { finish = resolve; }) : undefined;
  }});
  one.session.deliver(1);
  await until(() => finish);
  await one.client.stop();
  isHeld = true;
  const started = one.client.start();
  await until(() => gate);
  finish();
  await until(() => one.client.handover.active.size === 0);
  gate();
  await started;
  const session = await one.gateway.next();
  await session.welcome();
  session.deliver(1);
  session.deliver(2);
  await until(() => session.frames.some(({name, values}) => name === "ack" && values.positions[0].sequence === 2));
  assert.deepEqual(seen, [1, 2]);
  await one.client.stop();
});

test("a verdict without a running client also suppresses the vendor's copy", limit, async () => {
  for (const vendorDuplicates of [true, false]) {
    const held = [], one = await ready({vendorDuplicates, onMessage(message) {
      held.push(message);
      return "later";
    }});
    one.session.deliver(1);
    await until(() => held.length === 1);
    await one.client.stop();
    one.client.finish(held[0]);
    await one.client.flush();
    assert.equal(kept(one.store).processed(0).sequence, 1);
    assert.deepEqual(kept(one.store).seen, vendorDuplicates ? [id(1)] : []);
    if (!vendorDuplicates) continue;
    await one.client.start();
    await (await one.gateway.next()).welcome();
    one.client.receiveVendorMessage({msgId: id(1), payload: "again"});
    assert.equal((await one.event("suppressed")).msgId, id(1));
    assert.equal(held.length, 1);
    await one.client.stop();
  }
});

test("upstream messages are sent one at a time, and again under their number", limit, async () => {
  const one = await ready();
  for (const text of ["one", "two", "three"]) one.client.send(text);
  assert.equal((await one.session.expect("upstream")).request, 1);
  one.session.send("upstreamResult", {request: 1, code: 2, reason: "no"});
  assert.deepEqual([(await one.event("refused")).request, (await one.event("refused")).code], [1, 2]);
  assert.equal((await one.session.expect("upstream")).request, 2);
  assert.ok(!one.session.has("upstream"));
  one.session.cut();
  const next = await one.gateway.next();
  await next.welcome();
  assert.equal((await next.expect("upstream")).request, 2);
  next.send("upstreamResult", {request: 2, code: 0});
  assert.equal((await next.expect("upstream")).request, 3);
  for (let count = 0; count < 200; count += 1) one.client.send(new Uint8Array(16384));
  assert.equal((await one.event("refused", 2)).request, 0);
  await one.client.stop();
});

test("both copies of a message that comes through two channels are shown once", limit, async () => {
  const one = await ready({vendorDuplicates: true});
  assert.equal(one.client.receiveVendorMessage({msgId: id(1), taskId: id(9), payload: "from the vendor"}), true);
  await until(() => one.messages.length === 1);
  assert.deepEqual([one.messages[0].channel, one.messages[0].text], ["vendor", "from the vendor"]);
  one.session.deliver(1);
  assert.equal((await one.session.expect("ack")).positions[0].sequence, 1);
  one.session.deliver(2);
  await one.session.expect("ack");
  one.client.receiveVendorMessage({msgId: id(2), payload: "again"});
  await one.event("suppressed", 2);
  assert.deepEqual(one.messages.map(({msgId}) => msgId), [id(1), id(2)]);
  await one.client.stop();
  assert.deepEqual(kept(one.store).seen, [id(1), id(2)]);
  // The filter survives a restart.
  const again = party({store: one.store, vendorDuplicates: true});
  await again.client.start();
  await (await again.gateway.next()).welcome();
  again.client.receiveVendorMessage({msgId: id(2), payload: "and again"});
  await again.event("suppressed");
  assert.equal(again.messages.length, 0);
  await again.client.stop();
});

test("a copy on the connection waits for the verdict on the vendor's copy", limit, async () => {
  const held = [], one = await ready({vendorDuplicates: true, parallel: 4, onMessage(message) {
    held.push(message);
    return "later";
  }});
  one.client.receiveVendorMessage({msgId: id(1), payload: "v"});
  await until(() => held.length === 1);
  one.session.deliver(1);
  one.session.send("ping", {nonce: "9"});
  await one.session.expect("pong");
  assert.equal(held.length, 1);
  one.client.finish(held[0], "deferred");
  await until(() => held.length === 2);
  assert.equal(held[1].channel, "connection");
  one.client.finish(held[1]);
  assert.equal((await one.session.expect("ack")).positions[0].sequence, 1);
  await one.client.stop();
});

test("an opened message is acked and not shown if its notification carried all of it", limit, async () => {
  const one = await ready();
  one.client.markOpened(id(1));
  one.client.markOpened(id(2));
  one.session.deliver(1, {carriedByVendor: true});
  one.session.deliver(2);
  await until(() => one.messages.length === 1);
  assert.deepEqual([one.messages[0].msgId, one.messages[0].wasOpened], [id(2), true]);
  assert.equal((await one.event("suppressed")).wasOpened, true);
  await one.client.stop();
});

test("a revoke is an event, and is acked like a message", limit, async () => {
  const one = await ready();
  one.session.send("revoke", {sequence: 1, msgId: id(1), taskId: id(8), revokedTaskId: id(9)});
  assert.deepEqual(await one.event("revoked"), {type: "revoked", taskId: id(9)});
  assert.equal((await one.session.expect("ack")).positions[0].sequence, 1);
  await one.client.stop();
});

test("a message that waits for its handler is not handed over after its revoke", limit, async () => {
  const order = [], one = await ready({
    onMessage({sequence, text}) {
      order.push(sequence || text);
      return sequence === 1 ? new Promise(resolve => { one.go = resolve; }) : undefined;
    },
    vendorDuplicates: true,
  });
  one.client.options.onEvent = event => { if (event.type === "revoked") order.push(event.taskId); };
  one.session.deliver(1, {taskId: id(8)});
  await until(() => one.go);
  one.session.deliver(2, {taskId: id(9)});
  one.session.deliver(3, {taskId: id(7)});
  one.client.receiveVendorMessage({msgId: id(50), taskId: id(9), payload: "vendor"});
  one.session.send("revoke", {sequence: 4, msgId: id(4), taskId: id(6), revokedTaskId: id(9)});
  one.session.send("ping", {nonce: "1"});
  await one.session.expect("pong");
  // The event follows the handler that already runs.
  assert.deepEqual(order, [1]);
  one.go();
  await until(() => one.session.frames.some(({name, values}) => name === "ack" && values.positions[0].sequence === 4));
  assert.deepEqual(order, [1, id(9), 3]);
  assert.equal(one.client.vendorPlace(id(50)), "processed");
  await one.client.stop();
});

test("a revoke does not wait for a verdict, and comes once in the session after a cut", limit, async () => {
  const held = [], one = await ready({onMessage(message) {
    held.push(message);
    return message.sequence === 1 ? "later" : new Promise(resolve => { one.go = resolve; });
  }});
  const revoke = (session, sequence, task) =>
    session.send("revoke", {sequence, msgId: id(sequence), taskId: id(6), revokedTaskId: id(task)});
  one.session.deliver(1);
  await until(() => held.length === 1);
  revoke(one.session, 2, 9);
  await one.event("revoked");
  one.client.finish(held[0]);
  one.session.deliver(3);
  await until(() => one.go);
  revoke(one.session, 4, 8);
  one.session.cut();
  const session = await one.gateway.next();
  await session.welcome();
  await one.event("welcomed", 2);
  one.go();
  revoke(session, 4, 8);
  await until(() => session.frames.some(({name, values}) => name === "ack" && values.positions[0].sequence === 4));
  assert.deepEqual(one.events.filter(({type}) => type === "revoked").map(({taskId}) => taskId), [id(9), id(8)]);
  await one.client.stop();
});

test("a vendor's message waits for its handler across sessions, failed writes and a stop", limit, async () => {
  const seen = [], store = new FaultyStore();
  let go = null;
  const one = await ready({store, vendorDuplicates: true, onMessage(message) {
    seen.push(message.text);
    return message.sequence === 1 ? new Promise(resolve => { go = resolve; }) : undefined;
  }});
  const receive = msgId => one.client.receiveVendorMessage({msgId, payload: msgId});
  one.session.deliver(1, {payload: Buffer.from("one")});
  await until(() => go);
  receive(id(50));
  one.session.cut();
  await (await one.gateway.next()).welcome();
  await one.event("welcomed", 2);
  store.failures = 1;
  one.client.markOpened(id(3));
  receive(id(51));
  await one.event("stateNotStored");
  await (await one.gateway.next()).welcome();
  await one.event("welcomed", 3);
  const stopped = one.client.stop();
  await stopped;
  assert.deepEqual(seen, ["one"]);
  await one.client.start();
  go();
  await until(() => seen.length === 3);
  assert.deepEqual(seen, ["one", id(50), id(51)]);
  await one.client.flush();
  assert.deepEqual(kept(store).seen, [id(50), id(51)]);
  await one.client.stop();
});

test("deliveries between suspension and the UpdateResult of the return are dropped", limit, async () => {
  const one = await ready();
  one.client.setApplicationState("background");
  const first = await one.session.expect("deviceUpdate");
  assert.deepEqual([first.applicationState, first.keepsRunning], [1, false]);
  one.session.deliver(1);
  await one.event("droppedWhileSuspended");
  one.client.setApplicationState("foreground");
  const {request, applicationState} = await one.session.expect("deviceUpdate");
  assert.equal(applicationState, 0);
  one.session.deliver(1);
  await one.event("droppedWhileSuspended", 2);
  one.session.send("updateResult", {request, code: 0});
  one.session.deliver(1, {attempt: 2, alertedAt: 5});
  await one.session.expect("ack");
  assert.deepEqual(one.messages.map(({sequence, provenance}) => [sequence, provenance]), [[1, "alerted"]]);
  await one.client.stop();
});

test("settings without a session are in the next Hello, and tokens are renewed after the Welcome", limit, async () => {
  const one = party();
  one.client.setToken({vendor: "fcm", token: "one token"});
  one.client.setBadge(-3);
  one.client.setHeartbeat(60);
  one.client.setPushModeOff(true);
  await one.client.start();
  const session = await one.gateway.next();
  one.client.setToken({vendor: "hms", token: "two"});
  const hello = await session.welcome();
  assert.deepEqual(hello.tokens.map(({channel, token}) => [channel, token]), [[1, "onetoken"]]);
  assert.deepEqual([hello.badge, hello.heartbeatSeconds], [-3, 60]);
  const update = await session.expect("deviceUpdate");
  assert.deepEqual(update.tokens.map(({channel, token}) => [channel, token]), [[2, "two"]]);
  assert.equal((await session.expect("deviceUpdate")).pushModeOff, true);
  one.client.setToken({vendor: "fcm", token: ""});
  assert.deepEqual((await session.expect("deviceUpdate")).tokens.map(({channel, token}) => [channel, token]),
    [[1, ""]]);
  await one.client.stop();
});

test("a token that is removed without a session is removed in the next one, also by another process", limit,
  async () => {
  const one = await ready({tokens: [{vendor: "fcm", token: "alice"}, {vendor: "hms", token: "alice"}]});
  assert.equal(one.hello.tokens.length, 2);
  await one.client.stop();
  assert.equal(one.client.setToken({vendor: "fcm", token: ""}), false);
  await one.client.flush();
  const again = party({store: one.store, tokens: [{vendor: "hms", token: "alice"}]});
  await again.client.start();
  const removal = async () => {
    const session = await again.gateway.next(), {tokens} = await session.welcome();
    assert.deepEqual(tokens.map(({channel}) => channel), [2]);
    const update = await session.expect("deviceUpdate");
    assert.deepEqual(update.tokens.map(({channel, token}) => [channel, token]), [[1, ""]]);
    return {session, request: update.request};
  };
  (await removal()).session.cut();
  const {session, request} = await removal();
  session.send("updateResult", {request, code: 0});
  await again.event("updated");
  await again.client.flush();
  assert.deepEqual(kept(one.store).removedTokens, []);
  session.cut();
  const last = await again.gateway.next();
  await last.welcome();
  last.send("ping", {nonce: "1"});
  await last.expect("pong");
  assert.ok(!last.has("deviceUpdate"));
  await again.client.stop();
});

test("a removal is stored before it is sent, and counts until the token is set again", limit, async () => {
  const one = await ready();
  one.client.setToken({vendor: "fcm", token: "", topic: "t"});
  const {request} = await one.session.expect("deviceUpdate");
  assert.equal(kept(one.store).removedTokens.length, 1);
  one.client.setToken({vendor: "fcm", token: "", topic: "t"});
  const second = await one.session.expect("deviceUpdate");
  one.session.send("updateResult", {request, code: 0});
  await one.event("updated");
  await one.client.flush();
  assert.equal(kept(one.store).removedTokens.length, 1, "the second removal is not confirmed");
  one.session.send("updateResult", {request: second.request, code: 0});
  await one.event("updated", 2);
  await one.client.flush();
  assert.deepEqual(kept(one.store).removedTokens, []);
  one.client.setToken({vendor: "fcm", token: ""});
  one.client.setToken({vendor: "fcm", token: "bob"});
  await one.client.flush();
  assert.deepEqual(kept(one.store).removedTokens, []);
  await one.client.stop();
});

test("a setting that is made while the client stops counts for the next start", limit, async () => {
  let release = null, isSlow = false;
  const store = new MemoryStore(), save = store.save.bind(store);
  store.save = async text => {
    if (isSlow) await new Promise(resolve => { release = resolve; });
    save(text);
  };
  const one = await ready({store, tokens: [{vendor: "fcm", token: "alice"}]});
  isSlow = true;
  one.client.markOpened(id(3));
  const stopped = one.client.stop();
  await until(() => release);
  one.client.setToken({vendor: "fcm", token: ""});
  one.client.setToken({vendor: "hms", token: "bob"});
  isSlow = false;
  release();
  await stopped;
  await one.client.start();
  const session = await one.gateway.next(), {tokens} = await session.welcome();
  assert.deepEqual(tokens.map(({channel}) => channel), [2]);
  assert.deepEqual((await session.expect("deviceUpdate")).tokens.map(({channel, token}) => [channel, token]),
    [[1, ""]]);
  await one.client.stop();
});

test("a badge without a result is in the Hello after a stop, and a confirmed one is not sent again", limit, async () => {
  const one = await ready({badge: 5});
  assert.equal(one.hello.badge, 5);
  one.client.setBadge(2);
  await one.session.expect("deviceUpdate");
  for (const badge of [2, undefined]) {
    await one.client.stop();
    await one.client.start();
    const session = await one.gateway.next();
    assert.equal((await session.welcome()).badge || undefined, badge);
    await one.event("welcomed", badge === 2 ? 2 : 3);
  }
  await one.client.stop();
});

test("a fetch ends when the gateway is silent, and at a stop", limit, async () => {
  const one = await ready();
  const fetched = one.client.fetch(10000);
  one.session.deliver(1);
  assert.deepEqual(await fetched, {messages: 1, isComplete: true});
  const second = one.client.fetch(10000);
  await one.client.stop();
  assert.deepEqual(await second, {messages: 0, isComplete: false});
  assert.deepEqual(await one.client.fetch(), {messages: 0, isComplete: false});
});

test("a stop and a start keep the messages that the app has", limit, async () => {
  const held = [], one = await ready({parallel: 4, onMessage(message) {
    held.push(message);
    return "later";
  }});
  one.session.deliver(1);
  await until(() => held.length === 1);
  await one.client.stop();
  await one.client.start();
  const session = await one.gateway.next();
  await session.welcome();
  session.deliver(1);
  session.send("ping", {nonce: "1"});
  await session.expect("pong");
  assert.equal(held.length, 1, "the app has this message already");
  one.client.finish(held[0]);
  assert.equal((await session.expect("ack")).positions[0].sequence, 1);
  await one.client.stop();
});

test("the kept messages of another app are not sent to this one", limit, async () => {
  const other = party({appId: "other"});
  other.client.send("for the other app's server");
  await other.client.flush();
  const one = party({store: other.store});
  one.client.send("for this one");
  await one.client.flush();
  await one.client.start();
  const session = await one.gateway.next();
  assert.equal((await session.welcome()).appId, "demo");
  assert.equal(Buffer.from((await session.expect("upstream")).payload).toString(), "for this one");
  await one.client.stop();
  // A registered state of another app is refused.
  other.client.send("x");
  await assert.rejects(other.client.flush(), ({code}) => code === "stateUnwritable");
  await assert.rejects(other.client.start(), ({message}) => /belongs to the app demo/.test(message));
});

test("an alternate serves one session, and an app may switch alternates off", limit, async () => {
  for (const usesAlternates of [true, false]) {
    const one = await ready({usesAlternates});
    one.session.send("close", {code: 202, alternate: "other.example:7443"});
    const second = await one.gateway.next();
    assert.equal(second.endpoint.url, usesAlternates ? "ws://other.example:7443/v1/device"
      : "ws://gateway.example:80/v1/device");
    await second.welcome();
    second.cut();
    assert.equal((await one.gateway.next()).endpoint.host, "gateway.example");
    await one.client.stop();
  }
});

test("a start that cannot succeed says what to do", limit, async () => {
  const base = {url: "ws://h", appId: "demo", store: new MemoryStore(), transport: new FakeGateway(), onMessage() {}};
  const client = new LongwireClient(base);
  await assert.rejects(client.start(),
    error => error instanceof LongwireError && /give a registrationToken/.test(error.message));
  const running = party();
  await running.client.start();
  await assert.rejects(running.client.start(), error => error.code === "wrongState");
  await running.client.stop();
  for (const [change, words] of [
    [{url: "http://h"}, "no address"], [{url: "ws://h:0"}, "port"], [{url: "tcp://h/path"}, "path"],
      [{appId: ""}, "appId"], [{window: -1}, "window"],
    [{registrationToken: "x".repeat(2049)}, "registrationToken"], [{registrationToken: null}, "registrationToken"],
    [{heartbeatSeconds: 5}, "heartbeatSeconds"], [{parallel: 0}, "parallel"], [{onMessage: 1}, "onMessage"],
      [{clientName: "x".repeat(65)}, "clientName"],
    [{tokens: [{vendor: "nokia", token: "x"}]}, "nokia"], [{tokens: [{vendor: "webPush", token: "x"}]}, "webPush"],
      [{backoff: {first: 0}}, "backoff"],
  ]) {
    assert.throws(() => new LongwireClient({...base, ...change}), error => error.code === "badConfiguration"
      && error.message.includes(words), words);
  }
});

test("addresses of gateways", () => {
  for (const [url, host, port, path] of [
    ["tcp://127.0.0.1", "127.0.0.1", 7000, ""], ["tls://[::1]:7443", "::1", 7443, ""], ["wss://push.example.com",
      "push.example.com", 443, "/v1/device"],
    ["ws://h:7000/console/device?x=1", "h", 7000, "/console/device?x=1"],
  ]) {
    const found = parseURL(url);
    assert.deepEqual([found.host, found.port, found.path], [host, port, path]);
  }
  for (const url of ["", "wss://", "wss://a b", "wss://h:70000", "ftp://h", "wss://user@h", "wss://h#x",
      undefined]) assert.throws(() => parseURL(url), LongwireError);
});
