// The state: its stored form, damage, the processed set against a model, and the stores of Node.

import assert from "node:assert/strict";
import {mkdtemp, readFile, readdir, rm, writeFile} from "node:fs/promises";
import {tmpdir} from "node:os";
import * as path from "node:path";
import {test} from "node:test";

import {HeartbeatPlan} from "../src/heartbeat.js";
import {FileStore, LongwireError, createClient, utf8} from "../src/node.js";
import {ProcessedSet} from "../src/processed.js";
import {ClientState, checkSum} from "../src/state.js";
import {cleanToken} from "../src/tokens.js";
import {SECRET, id, party, random} from "./support.mjs";

async function inFolder(work) {
  const folder = await mkdtemp(path.join(tmpdir(), "longwire-js-"));
  try {
    await work(folder);
  } finally {
    await rm(folder, {recursive: true, force: true});
  }
}

function full() {
  const state = new ClientState("演示");
  Object.assign(state, {cid: id(1), secret: SECRET, lastTimestamp: 1764000000001, acceptedTimestamp: 1764000000000,
    offset: -86400000});
  state.epoch = "14720107717333583193";
  state.processed(0).insert(41, []);
  state.processed(0).insertAlone(43);
  state.processed(1).insert(7, []);
  for (let index = 0; index < 300; index += 1) state.noteOpened(id(index));
  state.noteReport({kind: "shown", msgId: id(5), action: 0});
  state.noteReport({kind: "action", msgId: id(5), action: 90001});
  state.noteRejection({stream: 0, sequence: 42, reason: "no such room 🎉"});
  state.keepOutgoing(utf8("up"), "");
  state.keepOutgoing(utf8("answer"), id(3));
  const plan = new HeartbeatPlan();
  plan.agreed(300);
  plan.lost(300);
  state.keepHeartbeat(plan, "wifi");
  state.noteSeen(id(77));
  state.noteToken(cleanToken({vendor: "fcm", token: ""}));
  state.noteToken(cleanToken({vendor: "apns", token: "", kind: "liveActivity", activity: "跑步"}));
  return state;
}

test("the stored form keeps everything", () => {
  const state = full(), again = ClientState.parse(state.serialized());
  assert.deepEqual({...again}, {...state});
  assert.equal(again.opened.length, 256);
  // The service worker and the Java client read this line.
  assert.match(state.serialized(), new RegExp(`\nseen ${id(77)}\n`));
});

test("the check sum is FNV-1a in 64 bits", () => {
  const reference = text => {
    let sum = 0xcbf29ce484222325n;
    for (const byte of Buffer.from(text, "latin1")) sum = (sum ^ BigInt(byte)) * 0x100000001b3n & 0xffffffffffffffffn;
    return sum.toString(16).padStart(16, "0");
  };
  for (const text of ["", "a", "foobar", full().serialized(), "z".repeat(5000)]) {
    assert.equal(checkSum(text), reference(text));
  }
});

test("every cut and every changed byte of a state is damage", () => {
  const text = new ClientState("demo").serialized();
  const isDamage = changed => assert.throws(() => ClientState.parse(changed), error => error.code === "stateDamaged",
    JSON.stringify(changed));
  for (let cut = 0; cut < text.length; cut += 1) isDamage(text.slice(0, cut));
  for (let index = 0; index < text.length; index += 1) {
    isDamage(text.slice(0, index) + String.fromCharCode(text.charCodeAt(index) ^ 1) + text.slice(index + 1));
  }
});

test("lines that no client writes are refused even with a right check sum", () => {
  const withLine = line => {
    const body = `longwire state 1\napp 64\n${line}\n`;
    return `${body}check ${checkSum(body)}\nend\n`;
  };
  for (const line of ["", "future 1", "app", "app 6", "app c3", "cid 12", "secret ", "secret 0", "timestamp 1",
      "timestamp 1 -1", "timestamp 1 99999999999999999",
    "offset x", "epoch -1", "epoch 18446744073709551616", "stream 0", "stream 0 1 5", "stream 0 1 5-x",
      "stream 0 9007199254740993", "opened 1",
    "shown 1", "action 1", `action x ${id(1)}`, "rejected 0 1", "rejected 0 x 00", "send 1", `send 1 ${id(0)} 0`,
      "sent 4294967296",
    "heartbeat 00 1 1 1", "heartbeat -00 1 1", "received xyz", "__proto__ 1", "constructor 1"]) {
    assert.throws(() => ClientState.parse(withLine(line)), error => error.code === "stateDamaged", line);
  }
  assert.equal(ClientState.parse(withLine("epoch 7")).epoch, "7");
});

test("the processed set agrees with a model of losses, gaps and restarts", () => {
  for (let seed = 1; seed <= 200; seed += 1) {
    const draw = random(seed), done = new Set();
    let set = new ProcessedSet(), next = 1;
    for (let session = 0; session < 4; session += 1) {
      // A session begins with the oldest un-acked message, in ascending order.
      const exists = [];
      for (let sequence = 1; sequence < next + 20; sequence += 1) {
        if ((sequence * 7 + seed) % 5 !== 0) exists.push(sequence);
      }
      next += 10;
      const holes = [];
      for (const sequence of exists.filter(one => !set.contains(one))) {
        assert.ok(!done.has(sequence), `seed ${seed}: ${sequence} would be shown twice`);
        holes.push(sequence);
        while (holes.length > 0 && draw() < 0.5) {
          const [processed] = holes.splice(Math.floor(draw() * holes.length), 1);
          set.insert(processed, holes);
          done.add(processed);
        }
        for (const hole of holes) assert.ok(!set.contains(hole), `seed ${seed}: ${hole} would be lost`);
        for (const one of done) assert.ok(set.contains(one), `seed ${seed}: ${one} would be repeated`);
      }
      const ranges = set.ranges.map(range => range.slice());
      assert.ok(ranges.every(([first, last], index) => first <= last && first > (index ? ranges[index - 1][1] + 1
        : set.sequence + 1)));
      set = new ProcessedSet(set.sequence, ranges);
    }
  }
});

test("a learnt heartbeat falls by half, rises in steps, and retries a failed length late", () => {
  const plan = new HeartbeatPlan();
  plan.agreed(300);
  assert.equal(plan.answered(), null);
  plan.lost(300);
  assert.equal(plan.learnt, 150);
  plan.lost(150);
  plan.lost(75);
  plan.lost(37);
  assert.equal(plan.learnt, 30);
  const rises = [];
  for (let answer = 1; answer <= 200 && plan.learnt !== null; answer += 1) {
    const seconds = plan.answered();
    if (seconds !== null) rises.push([answer, seconds]);
  }
  assert.deepEqual(rises[0], [32, 45]);
  assert.equal(rises[rises.length - 1][1], 300);
});

test("a file is replaced as a whole, and drafts of killed clients are removed", () => inFolder(async folder => {
  const name = path.join(folder, "state"), store = new FileStore(name), text = full().serialized();
  assert.equal(await store.load(), null);
  await store.save(text);
  assert.equal(await readFile(name, "latin1"), text);
  await writeFile(`${name}.new0123456789ab`, "half");
  await writeFile(`${name}.newer`, "another file");
  assert.equal(await new FileStore(name).load(), text);
  assert.deepEqual((await readdir(folder)).sort(), ["state", "state.newer"]);
}));

test("a file that another client wrote is not overwritten", () => inFolder(async folder => {
  const name = path.join(folder, "state"), [one, other] = [new FileStore(name), new FileStore(name)];
  await one.load();
  await one.save(new ClientState("one").serialized());
  await other.load();
  await other.save(new ClientState("other").serialized());
  await assert.rejects(one.save(new ClientState("one").serialized()), error => error.code === "stateUnwritable"
    && /another client/.test(error.message));
  await rm(name);
  await one.save(new ClientState("one").serialized());
}));

test("a damaged file stops the start, keeps the file, and can be set aside", () => inFolder(async folder => {
  const state = path.join(folder, "state");
  const client = createClient({url: "tcp://127.0.0.1:9", appId: "demo", appSecret: "s", state, onMessage() {}});
  for (const content of ["", "longwire state 1\n", "x".repeat(100)]) {
    await writeFile(state, content);
    await assert.rejects(client.start(), error => error instanceof LongwireError && error.code === "stateDamaged");
    assert.equal(await readFile(state, "latin1"), content);
    assert.equal(client.status, "stopped");
  }
  await client.store.setAside();
  assert.deepEqual(await readdir(folder), ["state.damaged"]);
  assert.equal(await client.store.load(), null);
}));

test("a folder that cannot be written is reported as such", () => inFolder(async folder => {
  const store = new FileStore(path.join(folder, "missing", "state"));
  assert.equal(await store.load(), null);
  await assert.rejects(store.save("x"), error => error.code === "stateUnwritable" && error.message.includes("missing"));
}));

test("a state of another app is refused", async () => {
  const {client, store} = party();
  const other = full();
  store.text = other.serialized();
  await assert.rejects(client.start(), error => error.code === "stateUnreadable" && error.message.includes("演示"));
});
