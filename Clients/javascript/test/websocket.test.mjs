// The WebSocket of Node against bytes that a server may send, in every split.

import assert from "node:assert/strict";
import {createHash, randomBytes} from "node:crypto";
import {createServer} from "node:net";
import {test} from "node:test";

import {FrameReader, encode} from "../src/frames.js";
import {NodeTransport} from "../src/node.js";
import {WebSocketStream} from "../src/websocket.js";
import {random} from "./support.mjs";

const answerTo = key => Buffer.from(["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade",
  `Sec-WebSocket-Accept: ${createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64")}`,
    "", ""].join("\r\n"));

function open(url = "ws://h:1/v1/device") {
  const one = {written: [], received: [], failures: [], opened: 0, isFull: false};
  one.stream = new WebSocketStream(url, {
    write: bytes => one.written.push(Buffer.from(bytes)), opened: () => { one.opened += 1; },
    received: bytes => one.received.push(...bytes), failed: reason => one.failures.push(reason),
    isFull: () => one.isFull, random: randomBytes,
  });
  one.request = one.written.shift().toString();
  one.key = /Sec-WebSocket-Key: (.*)\r/.exec(one.request)[1];
  return one;
}

const frame = (first, payload) => Buffer.concat([Buffer.from([first, payload.length]), Buffer.from(payload)]);
const unmasked = bytes => Array.from(bytes.subarray(6), (byte, index) => byte ^ bytes[2 + index % 4]);

test("fragments, pings and long frames form one stream, in every split", () => {
  const long = new Uint8Array(70000).map((_, index) => index), head = Buffer.alloc(10);
  head.set([0x82, 127]);
  head.writeBigUInt64BE(70000n, 2);
  const middle = Buffer.concat([Buffer.from([0x82, 126, 0, 200]), Buffer.alloc(200, 5)]);
  const stream = [frame(2, [1, 2]), frame(0x89, [7]), frame(0x80, [3]), frame(0x8a, []), frame(0x82, []), middle];
  const expected = [1, 2, 3, ...new Array(200).fill(5)];
  const bytes = key => Buffer.concat([answerTo(key), ...stream]);
  const count = bytes(open().key).length;
  for (let cut = 0; cut <= count; cut += 1) {
    const one = open(), all = bytes(one.key);
    one.stream.take(new Uint8Array(all.subarray(0, cut)));
    one.stream.take(new Uint8Array(all.subarray(cut)));
    assert.deepEqual([one.received, one.opened, one.failures], [expected, 1, []], `cut at ${cut}`);
    assert.deepEqual([one.written[0][0], unmasked(one.written[0])], [0x8a, [7]], "a ping is answered with its payload");
  }
  const one = open();
  one.stream.take(new Uint8Array(Buffer.concat([answerTo(one.key), head, long])));
  assert.deepEqual(one.received, Array.from(long));
});

test("pings are not answered while too many bytes wait", () => {
  const one = open();
  one.stream.take(new Uint8Array(answerTo(one.key)));
  one.isFull = true;
  one.stream.take(new Uint8Array(Buffer.concat([frame(0x89, [1]), frame(0x89, [2])])));
  assert.deepEqual(one.written, []);
  assert.equal(one.failures.length, 1);
  assert.match(one.failures[0], /the gateway does not read: more than 1048576 bytes wait/);
});

test("a server that sends pings and reads nothing is left, over WebSocket and TCP", {timeout: 40000}, async () => {
  const ping = encode("ping", {nonce: "1"});
  const webSocketPing = frame(0x89, new Uint8Array(125)), most = 67108864;
  const flood = bytes => Buffer.concat(new Array(Math.ceil(65536 / bytes.length)).fill(bytes));
  for (const [scheme, chunk] of [["ws", flood(webSocketPing)], ["tcp", flood(ping)]]) {
    let written = 0, peer = null, giveUp = null;
    const server = createServer(socket => {
      peer = socket;
      const write = () => {
        for (let isFree = true; isFree && written < most; written += chunk.length) isFree = socket.write(chunk);
        if (written >= most) giveUp("the client kept all answers");
      };
      socket.on("error", () => {});
      socket.on("drain", write);
      if (scheme === "tcp") return write();
      socket.once("data", head => {
        socket.pause();
        socket.write(answerTo(/Sec-WebSocket-Key: (.*)\r/.exec(head.toString())[1]));
        write();
      });
      return undefined;
    });
    await new Promise(resolve => server.listen(0, "127.0.0.1", resolve));
    const {port} = server.address(), reader = new FrameReader();
    const reason = await new Promise(resolve => {
      giveUp = resolve;
      const connection = new NodeTransport().connect(
        {scheme, host: "127.0.0.1", port, url: `ws://127.0.0.1:${port}/v1/device`}, {
          opened() {}, ended: resolve,
          received(bytes) {
            try {
              for (const {values} of reader.take(bytes)) connection.send(encode("pong", values));
            } catch (error) {
              connection.close();
              resolve(error.message);
            }
          },
        });
    });
    peer.destroy();
    await new Promise(resolve => server.close(resolve));
    assert.match(reason, /the gateway does not read/, scheme);
  }
});

test("sent frames are masked and have the shortest length", () => {
  const one = open();
  one.stream.take(new Uint8Array(answerTo(one.key)));
  for (const [length, start] of [[5, 6], [125, 6], [126, 8], [65535, 8], [65536, 14]]) {
    one.stream.send(new Uint8Array(length).fill(9));
    const [sent] = one.written.splice(0);
    assert.equal(sent.length, start + length);
    assert.equal(sent[1] & 128, 128);
    const mask = sent.subarray(start - 4, start);
    assert.ok(sent.subarray(start).every((byte, index) => (byte ^ mask[index % 4]) === 9));
  }
});

test("a server that breaks the protocol ends the stream with a reason", () => {
  for (const [bytes, words] of [
    [frame(0xc2, [1]), "reserved"], [Buffer.from([0x82, 0x81, 0, 0, 0, 0, 1]), "mask"],
      [frame(0x81, [65]), "not binary"], [frame(0x80, [1]), "mixed"],
    [Buffer.concat([frame(2, [1]), frame(2, [1])]), "mixed"], [frame(0x09, []), "fragmented"],
      [Buffer.from([0x89, 126, 0, 200]), "too long"],
    [frame(0x8b, []), "does not exist"], [Buffer.from([0x82, 127, 255, 255, 255, 255, 255, 255, 255, 255]), "longer"],
      [frame(0x88, [3, 232]), "1000"],
    [frame(0x88, []), "1005"],
  ]) {
    const one = open();
    one.stream.take(new Uint8Array(Buffer.concat([answerTo(one.key), bytes])));
    one.stream.take(new Uint8Array([0x82, 1, 1]));
    assert.equal(one.failures.length, 1, words);
    assert.ok(one.failures[0].includes(words), `${words}: ${one.failures[0]}`);
  }
});

test("an answer that refuses, or is not to this request, is reported with its text", () => {
  for (const [answer, words] of [
    ["HTTP/1.1 403 Forbidden\r\nContent-Length: 5\r\n\r\nthis origin is not listed\n", "403 Forbidden: this origin"],
      ["HTTP/1.1 200 OK\r\n\r\n", "200 OK"],
    ["HTTP/1.1 101 x\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: AAAA\r\n\r\n", "does not belong"],
      ["\0".repeat(20000), "no end"], ["garbage\r\n\r\n", "refused"],
  ]) {
    const one = open();
    one.stream.take(new Uint8Array(Buffer.from(answer)));
    const other = open();
    for (const byte of Buffer.from(answer)) other.stream.take(Uint8Array.of(byte));
    assert.deepEqual([other.failures.length, other.opened], [1, 0]);
    assert.equal(one.failures.length, 1, words);
    assert.ok(one.failures[0].includes(words), `${words}: ${one.failures[0]}`);
    assert.equal(one.opened, 0);
  }
});

test("random bytes after the answer never throw, and hold no more than a header and a control frame", () => {
  const draw = random(5);
  for (let round = 0; round < 2000; round += 1) {
    const one = open();
    one.stream.take(new Uint8Array(answerTo(one.key)));
    for (let part = 0; part < 5; part += 1) {
      one.stream.take(Uint8Array.from({length: 50}, () => draw() < 0.5 ? [0x82, 0x02, 0x80, 0x89, 0x00,
        0x7e][Math.floor(draw() * 6)] : Math.floor(draw() * 256)));
    }
    assert.ok(one.stream.kept.length <= 135);
  }
});

test("a port without a listener, and a server that is none, are reasons of an end", {timeout: 20000}, async () => {
  const server = createServer(socket => socket.on("error", () => {}).resume().end("HTTP/1.0 400 Bad Request\r\n\r\n"));
  await new Promise(resolve => server.listen(0, "127.0.0.1", resolve));
  const {port} = server.address(), connect = scheme => new Promise(resolve => {
    new NodeTransport().connect({scheme, host: "127.0.0.1", port, url: `${scheme}://127.0.0.1:${port}/v1/device`},
      {opened() {}, received() {}, ended: resolve});
  });
  assert.match(await connect("ws"), /refused the WebSocket/);
  assert.match(await connect("tls"), /.+/);
  await new Promise(resolve => server.close(resolve));
  assert.match(await connect("tcp"), /ECONNREFUSED/);
});
