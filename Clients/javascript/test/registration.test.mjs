// Tokens of the app's server: registration without the appSecret, and the alias of a user.

import assert from "node:assert/strict";
import {test} from "node:test";

import {encodeHello} from "../src/frames.js";
import {LongwireError, MemoryStore, hmacSHA256, utf8} from "../src/index.js";
import {id, party, until} from "./support.mjs";

const limit = {timeout: 20000}, TOKEN = "header.claims.signature";

const tokenParty = (options = {}) => party({appSecret: "", registrationToken: TOKEN, ...options});

test("a token registers the device, proves its Hello, and is in no later one", limit, async () => {
  const store = new MemoryStore(), one = tokenParty({store});
  await one.client.start();
  const session = await one.gateway.next(), hello = await session.welcome();
  assert.deepEqual([hello.registration, hello.registrationToken, hello.cid], [true, TOKEN, ""]);
  const {proof, ...values} = hello;
  assert.deepEqual(encodeHello(values, utf8(TOKEN), hmacSHA256).slice(-32), proof);
  const {request, ...rest} = await session.expect("deviceNames");
  assert.deepEqual(rest, {operation: 1, alias: "", aliasType: "", tags: [], token: TOKEN});
  session.send("deviceNamesResult", {request});
  assert.deepEqual(await one.event("names"),
    {type: "names", request: 0, code: 0, reason: "", alias: null, tags: []});
  session.cut();
  const next = await one.gateway.next(), again = await next.welcome();
  assert.deepEqual([again.registration, again.registrationToken, again.cid], [false, "", id(1)]);
  next.send("ping", {nonce: "7"});
  await next.expect("pong");
  assert.ok(!next.has("deviceNames"), "the alias is bound");
  await one.client.stop();
  assert.ok(!store.text.includes(TOKEN));
});

test("an expired token stops the client with the gateway's reason, and another one registers", limit, async () => {
  const one = tokenParty({appSecret: "a secret that is not used"});
  await one.client.start();
  const session = await one.gateway.next();
  await session.expect("hello");
  session.send("close", {code: 401, reason: "the token has expired"});
  const {error} = await one.event("stopped");
  assert.deepEqual([error.code, error.closeCode], ["refused", 401]);
  assert.match(error.message, /the token has expired/);
  assert.equal(one.client.setRegistrationToken("another.user's.token"), false);
  await one.client.start();
  const next = await one.gateway.next(), hello = await next.welcome();
  assert.equal(hello.registrationToken, "another.user's.token");
  assert.equal((await next.expect("deviceNames")).token, "another.user's.token");
  await one.client.stop();
});

test("a token that is replaced before the registration is not sent", limit, async () => {
  const one = tokenParty();
  await one.client.start();
  const session = await one.gateway.next();
  await session.expect("hello");
  assert.equal(one.client.setRegistrationToken("d.e.f"), true);
  session.cut();
  const next = await one.gateway.next();
  assert.equal((await next.welcome()).registrationToken, "d.e.f");
  assert.equal((await next.expect("deviceNames")).token, "d.e.f");
  await one.client.stop();
});

test("a registered device binds the alias of another user's token", limit, async () => {
  const one = party();
  await one.client.start();
  const session = await one.gateway.next();
  await session.welcome();
  const call = one.client.bindAliasWithToken("d.e.f"), {request, ...rest} = await session.expect("deviceNames");
  assert.deepEqual(rest, {operation: 1, alias: "", aliasType: "", tags: [], token: "d.e.f"});
  session.send("deviceNamesResult", {request});
  assert.equal(await call, undefined);
  const expired = one.client.bindAliasWithToken("d.e.f");
  session.send("deviceNamesResult", {request: (await session.expect("deviceNames")).request, code: 5,
    reason: "the token has expired"});
  await assert.rejects(expired, error => error instanceof LongwireError && error.code === "namesRefused"
    && error.resultCode === 5 && error.message === "the token has expired");
  await one.client.stop();
});

test("a token of another size or type is not sent", limit, async () => {
  const one = party();
  await one.client.start();
  const session = await one.gateway.next();
  await session.welcome();
  await assert.rejects(one.client.bindAliasWithToken("é".repeat(1024) + "x"),
    error => error.code === "namesRefused" && error.resultCode === null && /2048 bytes/.test(error.message));
  for (const token of [undefined, null, 7, ""]) {
    await assert.rejects(one.client.bindAliasWithToken(token), error => error.code === "badConfiguration");
  }
  for (const token of ["x".repeat(2049), null]) {
    assert.throws(() => one.client.setRegistrationToken(token), error => error.code === "badConfiguration");
  }
  const call = one.client.bindAliasWithToken("é".repeat(1024));
  const {request, token} = await session.expect("deviceNames");
  assert.equal(utf8(token).length, 2048);
  session.send("deviceNamesResult", {request});
  await call;
  await one.client.stop();
});

test("without the forgotten token a lost registration stops the client, and its alias is bound all the same", limit,
  async () => {
    const one = tokenParty();
    const onEvent = one.client.options.onEvent;
    one.client.options.onEvent = event => {
      if (event.type === "registered") one.client.forgetSecret();
      onEvent(event);
    };
    await one.client.start();
    const session = await one.gateway.next();
    await session.welcome();
    assert.equal((await session.expect("deviceNames")).token, TOKEN);
    session.send("close", {code: 301});
    await until(() => one.client.status === "stopped");
    assert.equal((await one.event("stopped")).error.closeCode, 301);
  });
