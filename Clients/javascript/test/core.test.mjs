// The core with an explicit clock: heartbeats, half-open connections, delays and Close codes.

import assert from "node:assert/strict";
import {test} from "node:test";

import {ClientCore} from "../src/core.js";
import {endpointOf} from "../src/endpoints.js";
import {FrameReader, encode} from "../src/frames.js";
import {hmacSHA256} from "../src/index.js";
import {Random} from "../src/random.js";
import {SECRET, id} from "./support.mjs";

/** A core at a time in milliseconds, whose actions go into lists. */
class Bench {
  constructor(changes = {}) {
    const configuration = {
      host: "home", port: 1, appId: "demo", appSecret: "s", registrationToken: "", clientName: "t",
      heartbeatSeconds: 0, window: 0, badge: null, applicationState: 0, namesResult: 30000,
      keepsRunning: false, tokens: [], replaysOpened: false, reconnects: true, usesAlternates: true,
        vendorDuplicates: false, pushModeOff: null,
      backoff: {first: 1000, most: 120000}, ...changes,
    };
    this.time = 0;
    this.wall = 1764000000000;
    this.core = new ClientCore({configuration, state: null, random: new Random(new Uint8Array(32).fill(changes.seed
      || 1), hmacSHA256), hmac: hmacSHA256});
    this.events = [];
    this.frames = [];
    this.connects = [];
    this.core.start(this.now);
    this.turn();
  }

  get now() { return {monotonic: this.time, wall: this.wall + this.time}; }

  turn() {
    do {
      const {actions} = this.core;
      this.core.actions = [];
      for (const action of actions) {
        if (action.type === "report") this.events.push(action.event);
        if (action.type === "send") this.frames.push(...new FrameReader().take(action.bytes));
        if (action.type === "connect") this.connects.push(action.endpoint.host);
        if (action.type === "handle") this.core.deliveries.finish(action.message, {kind: "processed"}, this.now);
      }
      this.core.endTurn(this.now);
    } while (this.core.actions.length > 0);
  }

  receive(name, values) {
    this.core.receive(encode(name, values), this.now);
    this.turn();
  }

  connect() {
    this.core.connected(this.now);
    this.turn();
    return this.frames.splice(0).find(({name}) => name === "hello").values;
  }

  welcome(values = {}) {
    const hello = this.connect(), credentials = hello.registration ? {cid: id(1), deviceSecret: SECRET} : {};
    this.receive("welcome", {queueEpoch: "1", heartbeatSeconds: 300, window: 32, ...credentials, ...values});
    return hello;
  }

  /** Moves the clock to the core's next deadline. */
  pass() {
    this.time = this.core.deadline;
    this.core.wake(this.now);
    this.turn();
  }

  last(type) { return this.events.filter(event => event.type === type).pop(); }
  get delay() { return this.last("retrying").milliseconds; }
}

test("a Ping follows a heartbeat without output, and 10 s without an answer end the connection", () => {
  const bench = new Bench();
  bench.welcome();
  bench.pass();
  assert.equal(bench.time, 300000);
  assert.deepEqual(bench.frames.splice(0).map(({name}) => name), ["ping"]);
  bench.receive("pong", {nonce: "1"});
  bench.time += 100000;
  bench.receive("ping", {nonce: "18446744073709551615"});
  assert.deepEqual(bench.frames.splice(0), [{name: "pong", values: {nonce: "18446744073709551615"}}]);
  bench.pass();
  assert.equal(bench.time, 700000);
  bench.pass();
  assert.equal(bench.time, 710000);
  assert.match(bench.last("disconnected").reason, /not answered/);
  assert.equal(bench.core.phase, "waiting");
});

test("a connection that died in silence halves the next heartbeat, and answers raise it again", () => {
  const bench = new Bench();
  bench.welcome();
  bench.pass();
  bench.pass();
  bench.pass();
  assert.equal(bench.welcome({heartbeatSeconds: 150}).heartbeatSeconds, 150);
  for (let answer = 1; answer <= 31; answer += 1) {
    bench.pass();
    bench.receive("pong", {nonce: "1"});
    assert.equal(bench.frames.some(({name}) => name === "deviceUpdate"), answer > 3, `answer ${answer}`);
    if (answer === 4) {
      assert.equal(bench.frames.find(({name}) => name === "deviceUpdate").values.heartbeatSeconds, 225);
      bench.receive("updateResult", {request: 1, code: 0, heartbeatSeconds: 225});
    }
  }
  bench.core.perform({do: "network", name: "cafe"}, bench.now);
  assert.equal(bench.core.heartbeat.learnt, null);
  bench.core.perform({do: "network", name: ""}, bench.now);
  assert.equal(bench.core.heartbeat.learnt, 225);
});

test("a connection that died in a sleep of the machine teaches nothing about the network", () => {
  for (const sleep of ["before the Ping", "after the Ping"]) {
    const bench = new Bench();
    bench.welcome();
    if (sleep === "after the Ping") bench.pass();
    bench.time += 3600000;
    bench.core.wake(bench.now);
    bench.turn();
    bench.time += 50;
    bench.core.disconnected("the gateway ended the session long ago", bench.now);
    bench.turn();
    assert.equal(bench.core.heartbeat.learnt, null, sleep);
  }
});

test("a connection and a Welcome have 10 s each", () => {
  const bench = new Bench();
  bench.pass();
  assert.equal(bench.time, 10000);
  assert.match(bench.last("disconnected").reason, /no connection within 10 s/);
  bench.pass();
  const at = bench.time;
  bench.connect();
  bench.pass();
  assert.equal(bench.time, at + 10000);
  assert.match(bench.last("disconnected").reason, /no Welcome/);
});

test("delays are random below a ceiling that doubles to 120 s, and a session of a minute resets it", () => {
  const seen = Array.from({length: 12}, () => []);
  for (let seed = 1; seed <= 60; seed += 1) {
    const bench = new Bench({seed});
    for (let attempt = 0; attempt < 12; attempt += 1) {
      bench.core.disconnected("refused", bench.now);
      bench.turn();
      seen[attempt].push(bench.delay);
      bench.pass();
    }
  }
  seen.forEach((delays, attempt) => {
    const ceiling = Math.min(1000 * 2 ** attempt, 120000);
    assert.ok(Math.max(...delays) <= ceiling && Math.max(...delays) > ceiling * 0.8,
      `attempt ${attempt}: ${Math.max(...delays)}`);
    assert.ok(Math.min(...delays) < ceiling * 0.2, `attempt ${attempt}: ${Math.min(...delays)}`);
  });
  const bench = new Bench();
  for (let attempt = 0; attempt < 10; attempt += 1) {
    bench.core.disconnected("refused", bench.now);
    bench.pass();
  }
  bench.welcome();
  bench.time += 60000;
  bench.core.disconnected("cut", bench.now);
  bench.turn();
  assert.ok(bench.delay <= 1000);
});

test("each class of Close codes has its rule, also for unknown codes", () => {
  const close = (code, values = {}, isWelcomed = true) => {
    const bench = new Bench();
    if (isWelcomed) bench.welcome();
    else bench.connect();
    bench.events = [];
    bench.receive("close", {code, ...values});
    return bench;
  };
  for (const code of [0, 100, 104, 199, 200, 203, 299, 500, 599, 600, 4294967295]) {
    for (const isWelcomed of [true, false]) assert.ok(close(code, {}, isWelcomed).delay <= 1000, `${code}`);
  }
  for (const code of [401, 402, 403, 404, 410, 414, 499]) {
    assert.equal(close(code).last("stopped").error.closeCode, code);
    assert.equal(close(code).core.phase, "stopped");
  }
  const replaced = close(400);
  assert.ok(replaced.delay >= 30000 && replaced.delay <= 31000);
  replaced.core.perform({do: "network", name: null}, replaced.now);
  assert.equal(replaced.core.deadline, replaced.time + replaced.delay, "a delay that the gateway requested is kept");
  const windowed = close(200, {retryAfterMinimum: 5000, retryAfterMaximum: 6000});
  assert.ok(windowed.delay >= 5000 && windowed.delay <= 6000);
  assert.ok(close(200, {retryAfterMinimum: 4294967295, retryAfterMaximum: 1}).delay <= 3600000);
  const other = close(350);
  other.pass();
  other.connect();
  other.receive("close", {code: 350});
  assert.equal(other.core.phase, "stopped");
});

test("clockSkew teaches the offset once at once, then with backoff", () => {
  const bench = new Bench();
  bench.core.state.lastTimestamp = bench.wall + 999999999;
  bench.connect();
  bench.receive("close", {code: 300, serverTime: bench.wall + 86400000});
  assert.equal(bench.delay, 0);
  bench.pass();
  const hello = bench.connect();
  assert.ok(Math.abs(hello.timestamp - (bench.wall + bench.time + 86400000)) <= 1);
  for (const serverTime of [Number.MAX_SAFE_INTEGER, 8640000000000000, 1, 8640000000000000]) {
    bench.receive("close", {code: 300, serverTime});
    assert.equal(bench.core.phase, "waiting");
    bench.pass();
    assert.ok(Number.isSafeInteger(bench.connect().timestamp), String(serverTime));
  }
});

test("an unknown device registers anew once, and keeps its messages to the server", () => {
  const bench = new Bench();
  bench.welcome();
  bench.core.perform({do: "send", payload: Uint8Array.of(1), taskId: ""}, bench.now);
  bench.receive("close", {code: 301});
  assert.deepEqual([bench.last("registrationLost").cid, bench.delay], [id(1), 0]);
  bench.pass();
  assert.equal(bench.welcome().registration, true);
  assert.equal(bench.frames.some(({name}) => name === "upstream"), true);
  bench.receive("close", {code: 301});
  bench.pass();
  bench.connect();
  bench.receive("close", {code: 301});
  assert.equal(bench.core.phase, "stopped");
});

test("a request about names without a result for 30 s ends the session, and the next one repeats it", () => {
  const bench = new Bench();
  const names = {request: 1, operation: 3, alias: "", aliasType: "", tags: ["a"], token: ""};
  bench.welcome();
  bench.core.perform({do: "names", names}, bench.now);
  bench.turn();
  assert.deepEqual(bench.frames.splice(0), [{name: "deviceNames", values: names}]);
  const sentAt = bench.time;
  bench.pass();
  assert.equal(bench.time, sentAt + 30000);
  assert.match(bench.last("disconnected").reason, /no DeviceNamesResult within 30 s/);
  bench.pass();
  bench.welcome();
  assert.deepEqual(bench.frames.splice(0), [{name: "deviceNames", values: names}]);
  bench.receive("deviceNamesResult", {request: 1});
  assert.equal(bench.last("names").code, 0);
  bench.pass();
  assert.deepEqual(bench.frames.map(({name}) => name), ["ping"]);
});

/** Returns the requests about names that were sent since the last call, as number and token or tags. */
const asked = bench => bench.frames.splice(0).filter(({name}) => name === "deviceNames")
  .map(({values}) => `${values.request} ${values.token || values.tags}`);

function ask(bench, request, values) {
  bench.core.perform({do: "names", names: {request, alias: "", aliasType: "", tags: [], token: "", ...values}},
    bench.now);
  bench.turn();
}

test("the alias of a token is requested again a minute after a refusal that is not final", () => {
  const bench = new Bench({appSecret: "", registrationToken: "a.b.c"});
  bench.welcome();
  assert.deepEqual(asked(bench), ["0 a.b.c"]);
  bench.receive("deviceNamesResult", {request: 0, code: 102});
  const refusedAt = bench.time;
  assert.equal(bench.core.deadline, refusedAt + 60000);
  // A request in flight moves the deadline; otherwise the client would wake without a pause.
  bench.time += 45000;
  ask(bench, 1, {operation: 3, tags: ["x"]});
  assert.deepEqual(asked(bench), ["1 x"]);
  bench.time += 20000;
  bench.core.wake(bench.now);
  bench.turn();
  assert.equal(bench.core.deadline, refusedAt + 75000);
  bench.receive("deviceNamesResult", {request: 1});
  assert.deepEqual(asked(bench), ["0 a.b.c"]);
  bench.receive("deviceNamesResult", {request: 0, code: 102});
  bench.pass();
  assert.deepEqual(asked(bench), ["0 a.b.c"]);
  bench.receive("deviceNamesResult", {request: 0, code: 5, reason: "it has expired"});
  assert.deepEqual([bench.last("names").code, bench.last("names").reason], [5, "it has expired"]);
  bench.core.disconnected("cut", bench.now);
  bench.pass();
  bench.welcome();
  assert.deepEqual(asked(bench), []);
});

test("the app's own alias replaces the request for the token's, also while that is in flight", () => {
  const bench = new Bench({registrationToken: "a.b.c"});
  ask(bench, 1, {operation: 1, alias: "alice"});
  bench.welcome();
  assert.deepEqual(asked(bench), ["1 "]);
  const other = new Bench({registrationToken: "a.b.c"});
  other.welcome();
  ask(other, 1, {operation: 1, token: "d.e.f"});
  other.receive("deviceNamesResult", {request: 0, code: 102});
  other.receive("deviceNamesResult", {request: 1});
  assert.deepEqual(asked(other), ["0 a.b.c", "1 d.e.f"]);
  // A lost registration must not bring the first user back.
  other.receive("close", {code: 301});
  other.pass();
  assert.equal(other.welcome().registrationToken, "a.b.c");
  assert.deepEqual(asked(other), []);
});

test("a new device after a lost registration gets the alias of the token again", () => {
  const bench = new Bench({appSecret: "", registrationToken: "a.b.c"});
  bench.welcome();
  bench.receive("deviceNamesResult", {request: 0});
  asked(bench);
  bench.core.perform({do: "registrationToken", token: "d.e.f"}, bench.now);
  bench.turn();
  assert.deepEqual(asked(bench), []);
  bench.receive("close", {code: 301});
  bench.pass();
  assert.equal(bench.welcome().registrationToken, "d.e.f");
  assert.deepEqual(asked(bench), ["0 d.e.f"]);
  // A token that replaces the one in flight is requested after it, whatever the result.
  bench.core.perform({do: "registrationToken", token: "g.h.i"}, bench.now);
  bench.receive("deviceNamesResult", {request: 0, code: 5});
  assert.deepEqual(asked(bench), ["0 g.h.i"]);
  bench.core.disconnected("cut", bench.now);
  bench.core.perform({do: "registrationToken", token: "j.k.l"}, bench.now);
  bench.pass();
  bench.welcome();
  assert.deepEqual(asked(bench), ["0 j.k.l"]);
});

test("alternates that redirect in a circle are followed with backoff", () => {
  const bench = new Bench();
  bench.connect();
  bench.receive("close", {code: 202, alternate: "b:2"});
  assert.equal(bench.delay, 0);
  const delays = [];
  for (const [host, next] of [["b", "c:3"], ["c", "b:2"], ["b", "home:1"]]) {
    bench.pass();
    assert.equal(bench.connects[bench.connects.length - 1], host);
    bench.connect();
    bench.receive("close", {code: 202, alternate: next});
    delays.push(bench.delay);
  }
  assert.ok(delays.every(delay => delay > 0), String(delays));
  bench.pass();
  bench.core.disconnected("refused", bench.now);
  bench.pass();
  assert.equal(bench.connects[bench.connects.length - 1], "home");
  // A refusal of an alternate does not stop the client.
  bench.connect();
  bench.receive("close", {code: 202, alternate: "b:2"});
  bench.pass();
  bench.connect();
  bench.receive("close", {code: 401});
  assert.equal(bench.core.phase, "waiting");
  assert.equal(bench.core.endpoint.host, "home");
});

test("only an address of host and port is an alternate", () => {
  assert.deepEqual(endpointOf("[2001:db8::1]:7000"), {host: "2001:db8::1", port: 7000});
  assert.deepEqual(endpointOf("a_b-c.example:65535"), {host: "a_b-c.example", port: 65535});
  for (const text of ["", "h", "h:", "h:0", "h:65536", ":1", "a:b:1", "h/p:1", "u@h:1", "h:1 ", "h:+1", "h?x:1",
      "[]:1", "\u0661:1", "h:\u0661"]) assert.equal(endpointOf(text), null, text);
});
