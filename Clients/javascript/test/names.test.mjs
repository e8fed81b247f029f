// The device's own names: order of the requests, repeats after a reconnect, limits, and errors of the calls.

import assert from "node:assert/strict";
import {test} from "node:test";

import {encode} from "../src/frames.js";
import {LongwireError, MemoryStore} from "../src/index.js";
import {party, until} from "./support.mjs";

const limit = {timeout: 20000};

async function ready(options) {
  const one = party(options);
  await one.client.start();
  one.session = await one.gateway.next();
  await one.session.welcome();
  await one.event("welcomed");
  return one;
}

/** Waits until all frames that the client has sent were read: its Pong is the last one. */
async function settle(session) {
  session.send("ping", {nonce: "7"});
  await session.expect("pong");
}

const refusal = (code, resultCode, words = /./) => error => error instanceof LongwireError && error.code === code
  && error.resultCode === resultCode && words.test(error.message);

test("requests are made one after the other, in the order of the calls", limit, async () => {
  const one = await ready(), {client, session} = one, tags = ["a", "b"];
  const calls = [client.bindAlias("alice", "user"), client.setTags(tags), client.addTags(["c"]),
    client.removeTags(["a"]), client.unbindAlias("bob"), client.ownNames("user")];
  tags.push("changed after the call");
  const seen = [];
  for (let index = 0; index < calls.length; index += 1) {
    const {request, ...rest} = await session.expect("deviceNames");
    seen.push(rest);
    await settle(session);
    assert.ok(!session.has("deviceNames"), "one request is in flight");
    const names = rest.operation === 0 ? {alias: "alice", tags: ["b", "c"]} : {};
    session.send("deviceNamesResult", {request, ...names});
    assert.deepEqual(await calls[index], rest.operation === 0 ? names : undefined);
  }
  const empty = {alias: "", aliasType: "", tags: [], token: ""};
  assert.deepEqual(seen, [
    {...empty, operation: 1, alias: "alice", aliasType: "user"}, {...empty, operation: 3, tags: ["a", "b"]},
    {...empty, operation: 4, tags: ["c"]}, {...empty, operation: 5, tags: ["a"]},
    {...empty, operation: 2, alias: "bob"}, {...empty, operation: 0, aliasType: "user"},
  ]);
  assert.deepEqual(await one.event("names", 6),
    {type: "names", request: 6, code: 0, reason: "", alias: "alice", tags: ["b", "c"]});
  await client.stop();
});

test("a device without an alias gets null", limit, async () => {
  const {client, session} = await ready(), names = client.ownNames();
  session.send("deviceNamesResult", {request: (await session.expect("deviceNames")).request});
  assert.deepEqual(await names, {alias: null, tags: []});
  await client.stop();
});

test("a request without a result is sent again after a reconnect, and then the ones behind it", limit, async () => {
  const {client, session, gateway} = await ready();
  const calls = [client.setTags(["a"]), client.setTags(["b"])];
  const first = await session.expect("deviceNames");
  session.cut();
  const next = await gateway.next();
  calls.push(client.setTags(["without a session"]));
  await next.welcome();
  assert.deepEqual(await next.expect("deviceNames"), first);
  for (const [index, tags] of [["a"], ["b"], ["without a session"]].entries()) {
    const {request, tags: sent} = index === 0 ? first : await next.expect("deviceNames");
    assert.deepEqual(sent, tags);
    next.send("deviceNamesResult", {request});
    await calls[index];
  }
  await settle(next);
  assert.ok(!next.has("deviceNames"));
  await client.stop();
});

test("the result of another request changes nothing", limit, async () => {
  const {client, session, events} = await ready();
  session.send("deviceNamesResult", {request: 1});
  const call = client.setTags(["a"]), {request} = await session.expect("deviceNames");
  for (const other of [0, request + 1, 4294967295]) session.send("deviceNamesResult", {request: other, code: 2});
  await settle(session);
  assert.ok(!events.some(({type}) => type === "names"));
  session.send("deviceNamesResult", {request});
  await call;
  session.send("deviceNamesResult", {request, code: 2});
  await settle(session);
  assert.equal(events.filter(({type}) => type === "names").length, 1);
  await client.stop();
});

test("codes below 100 are permanent, and the next request follows any code", limit, async () => {
  const {client, session} = await ready();
  for (const [code, kind, reason] of [[1, "namesRefused", "not allowed"], [99, "namesRefused", ""],
    [100, "tryLater", "30 a minute"], [102, "tryLater", ""]]) {
    const call = client.bindAlias("alice"), {request} = await session.expect("deviceNames");
    session.send("deviceNamesResult", {request, code, reason});
    await assert.rejects(call, refusal(kind, code, new RegExp(reason || `code ${code}`)));
  }
  await client.stop();
});

test("at most 32 calls wait; the next ones are answered at once", limit, async () => {
  const {client, session, event} = await ready(), calls = [];
  for (let count = 0; count < 32; count += 1) calls.push(client.addTags([`${count}`]));
  await assert.rejects(client.addTags(["too many"]), refusal("tryLater", 102, /32/));
  assert.equal((await event("names")).code, 102);
  for (const [index, call] of calls.entries()) {
    const {request, tags} = await session.expect("deviceNames");
    assert.deepEqual(tags, [`${index}`]);
    session.send("deviceNamesResult", {request});
    await call;
  }
  await settle(session);
  assert.ok(!session.has("deviceNames"));
  await client.stop();
});

test("names that no gateway accepts are not sent", limit, async () => {
  const {client, session} = await ready(), many = Array.from({length: 200}, (_, index) => `${index}`);
  for (const call of [client.setTags(many.concat("x")), client.addTags(["é".repeat(129)]),
    client.setTags(many.map(tag => tag.padStart(161))),
    client.bindAlias("x".repeat(257)), client.ownNames("x".repeat(257))]) {
    await assert.rejects(call, refusal("namesRefused", null, /256 bytes/));
  }
  for (const call of [client.setTags("vip"), client.addTags([1]), client.bindAlias(undefined), client.ownNames(null)]) {
    await assert.rejects(call, refusal("badConfiguration", null, /texts/));
  }
  const call = client.setTags(many.slice(1).concat("é".repeat(128)));
  const {request, tags} = await session.expect("deviceNames");
  assert.equal(tags.length, 200);
  session.send("deviceNamesResult", {request});
  await call;
  await client.stop();
});

test("calls fail when the client does not run or stops, and their requests end with it", limit, async () => {
  const one = party(), failed = refusal("wrongState", null, /start it/);
  await assert.rejects(one.client.setTags([]), failed);
  await one.client.start();
  const early = one.client.setTags(["early"]), session = await one.gateway.next();
  await session.welcome();
  const {request} = await session.expect("deviceNames");
  const waiting = one.client.ownNames(), stopped = one.client.stop(), late = one.client.ownNames();
  for (const call of [early, waiting, late]) await assert.rejects(call, failed);
  await stopped;
  await one.client.start();
  const next = await one.gateway.next();
  await next.welcome();
  await settle(next);
  assert.ok(!next.has("deviceNames"));
  const call = one.client.ownNames(), query = await next.expect("deviceNames");
  assert.ok(query.request > request);
  next.send("deviceNamesResult", {request: query.request, tags: ["a"]});
  assert.deepEqual(await call, {alias: null, tags: ["a"]});
  await one.client.stop();
});

test("a refusal by the gateway that stops the client fails the calls", limit, async () => {
  const {client, session} = await ready(), call = client.ownNames();
  await session.expect("deviceNames");
  session.send("close", {code: 401});
  await assert.rejects(call, refusal("wrongState", null));
  await until(() => client.status === "stopped");
});

test("a result that arrives while the state cannot be stored reaches its caller", limit, async () => {
  const store = new MemoryStore(), {client, session, event, gateway} = await ready({store});
  const call = client.setTags(["a"]), {request} = await session.expect("deviceNames");
  client.send("for the server");
  const upstream = await session.expect("upstream"), save = store.save.bind(store);
  store.save = () => { throw new Error("the disk is full"); };
  // Both results arrive in one read, and the first changes the state.
  const taken = encode("upstreamResult", {request: upstream.request}), named = encode("deviceNamesResult", {request});
  session.sendBytes(Uint8Array.from([...taken, ...named]));
  await event("stateNotStored");
  store.save = save;
  await call;
  const next = await gateway.next();
  await next.welcome();
  await settle(next);
  assert.ok(!next.has("deviceNames"));
  await client.stop();
});
