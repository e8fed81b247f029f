#!/usr/bin/env node
// Measures the messages a second that a client in Node receives, stores and acks, against a sender in another process.
//
//     node benchmark.mjs [--seconds 5] [--runs 3] [--window 32] [--payload 100] [--state FOLDER] [--memory]
//
// The sender plays a gateway over TCP: it keeps at most `window` messages un-acked, 32 as a real gateway does. Each Ack
// is sent after the state is on disk (a new file, fsync, rename, fsync of the folder). --memory keeps the state in
// memory instead.

import {fork} from "node:child_process";
import {mkdtemp, rm} from "node:fs/promises";
import {createServer} from "node:net";
import {cpus, tmpdir} from "node:os";
import * as path from "node:path";
import {fileURLToPath} from "node:url";

import {FrameReader, MemoryStore, createClient, encode} from "./src/node.js";

const values = {seconds: 5, runs: 3, window: 32, payload: 100, state: tmpdir(), memory: false};
for (let index = 2; index < process.argv.length; index += 1) {
  const name = process.argv[index].replace(/^--/, "");
  if (!(name in values)) throw new Error(`there is no option --${name}`);
  if (name === "memory") values.memory = true;
  else values[name] = name === "state" ? process.argv[index += 1] : Number(process.argv[index += 1]);
}

function send() {
  const {window, payload} = values, text = new Uint8Array(payload).fill(120);
  // One frame is a template; the sequence has a fixed width in it.
  const frames = (first, count) => {
    const parts = [];
    for (let sequence = first; sequence < first + count; sequence += 1) {
      const msgId = sequence.toString(16).padStart(32, "0");
      parts.push(encode("deliver", {sequence, msgId, taskId: "ab".repeat(16), payload: text, acceptedAt: 1764000000000,
        attempt: 1}));
    }
    return Buffer.concat(parts);
  };
  const server = createServer(socket => {
    const reader = new FrameReader();
    let sent = 0, acked = 0;
    const fill = () => {
      const count = acked + window - sent;
      if (count <= 0) return;
      socket.write(frames(sent + 1, count));
      sent += count;
    };
    socket.setNoDelay(true);
    socket.on("error", () => {});
    socket.on("data", bytes => {
      for (const {name, values: frame} of reader.take(new Uint8Array(bytes))) {
        if (name === "hello") {
          socket.write(encode("welcome", {queueEpoch: "1", heartbeatSeconds: 300, window, cid: "01".repeat(16),
            deviceSecret: new Uint8Array(32)}));
          fill();
        }
        if (name === "ack") {
          acked = frame.positions[0].sequence;
          fill();
        }
      }
    });
  });
  server.listen(0, "127.0.0.1", () => process.send({port: server.address().port}));
  process.on("disconnect", () => process.exit(0));
}

async function measure(port, folder) {
  let count = 0, last = 0, acks = 0;
  const client = createClient({
    url: `tcp://127.0.0.1:${port}`, appId: "benchmark", appSecret: "none", state: path.join(folder, "state"),
    ...values.memory && {store: new MemoryStore()},
    onMessage({sequence}) {
      if (sequence !== last + 1) throw new Error(`${sequence} came after ${last}`);
      last = sequence;
      count += 1;
    },
    onEvent({type, error}) { if (type === "handlerFailed" || type === "stateNotStored") throw error; },
  });
  const {store} = client, save = store.save.bind(store);
  store.save = text => {
    acks += 1;
    return save(text);
  };
  await client.start();
  const pause = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));
  await pause(500);
  const before = {count, acks, cpu: process.cpuUsage(), at: performance.now()};
  await pause(values.seconds * 1000);
  const seconds = (performance.now() - before.at) / 1000, received = count - before.count;
  const {user, system} = process.cpuUsage(before.cpu), busy = (user + system) / 1e6 / seconds;
  await client.stop();
  await store.clear();
  console.log([
    `${Math.round(received / seconds)} messages/s`, `${Math.round((acks - before.acks) / seconds)} stored states/s`,
    `${Math.round(busy * 100)} % of a core`, `${Math.round((user + system) / received)} µs of processor time a message`,
  ].join(", "));
}

if (process.send) {
  send();
} else {
  const [{model}] = cpus(), shape = `Node ${process.version}, ${cpus().length} × ${model}`;
  console.log(`${shape}, window ${values.window}, payload ${values.payload} bytes`);
  const child = fork(fileURLToPath(import.meta.url), process.argv.slice(2));
  const folder = await mkdtemp(path.join(values.state, "longwire-benchmark-"));
  try {
    const {port} = await new Promise(resolve => child.once("message", resolve));
    for (let run = 0; run < values.runs; run += 1) await measure(port, folder);
  } finally {
    child.disconnect();
    await rm(folder, {recursive: true, force: true});
  }
}
