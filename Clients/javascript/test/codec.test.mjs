// The codec against the frames of docs/use/Protocol.md, and against bytes that are no frames.

import assert from "node:assert/strict";
import {readFileSync} from "node:fs";
import {test} from "node:test";

import {plainTextOfUTF8, textOfUTF8} from "../src/bytes.js";
import {BadFrame, FIELDS, FrameReader, NAMES, decimal, decode, encode, encodeHello, halves} from "../src/frames.js";
import {bytesOfHex, hex, hmacSHA256, utf8} from "../src/index.js";
import {random} from "./support.mjs";

const page = readFileSync(new URL("../../../docs/use/Protocol.md", import.meta.url), "utf8");

/** Returns the bytes of a fence such as ```hex Hello; remarks follow two blanks. */
function fence(name) {
  const found = new RegExp(`\`\`\`hex ${name}\n([^]*?)\n\`\`\``).exec(page);
  assert.ok(found, `Protocol.md has a frame ${name}`);
  return bytesOfHex(found[1].split("\n").map(line => line.replace(/ {2,}.*$/, "").replace(/ /g, "")).join(""));
}

const CID = "00112233445566778899aabbccddeeff";

test("a Hello has the bytes of the page, with its proof", () => {
  const secret = Uint8Array.from({length: 32}, (_, index) => index);
  const token = {kind: 0, environment: 1, topic: "com.example.app", token: "a1b2c3d4", channel: 0, activity: ""};
  const frame = encodeHello({
    appId: "demo", cid: CID, timestamp: 1764000000000, queueEpoch: "1", applicationState: 0, badge: 0,
      heartbeatSeconds: 300,
    positions: [{stream: 0, sequence: 41, ranges: [{first: 43, last: 43}]}], tokens: [token], client: "example/1.0",
  }, secret, hmacSHA256);
  assert.equal(hex(frame), hex(fence("Hello")));
});

test("a Deliver of the page is read", () => {
  const reader = new FrameReader(), frames = reader.take(fence("Deliver"));
  assert.equal(frames.length, 1);
  const {name, values} = frames[0];
  assert.equal(name, "deliver");
  assert.deepEqual({...values, payload: textOfUTF8(values.payload)}, {
    stream: 0, sequence: 42, msgId: "0abc019ab697c0f07f3e2d1c0b5a4968", taskId: "010b1800d2c3b4a5968778695a4b3c2d",
    payload: '{"order":7}', offline: true, acceptedAt: 1763999990000, alertedAt: 1763999991500, attempt: 1,
      collapseKey: "",
    alert: {title: "您好", body: ""}, carriedByVendor: false,
  });
});

test("an Ack has the bytes of the page", () => {
  assert.equal(hex(encode("ack", {positions: [{stream: 0, sequence: 43, ranges: []}]})), hex(fence("Ack")));
});

test("the frames of the page are read from every split", () => {
  const stream = ["Hello", "Deliver", "Ack"].map(fence).map(hex).join("");
  const whole = new FrameReader().take(bytesOfHex(stream));
  assert.deepEqual(whole.map(({name}) => name), ["hello", "deliver", "ack"]);
  for (let cut = 0; cut <= stream.length; cut += 2) {
    const reader = new FrameReader();
    const frames = reader.take(bytesOfHex(stream.slice(0, cut))).concat(reader.take(bytesOfHex(stream.slice(cut))));
    assert.deepEqual(frames, whole, `cut at ${cut / 2}`);
  }
  const reader = new FrameReader();
  const single = Array.from(bytesOfHex(stream), byte => reader.take(Uint8Array.of(byte))).flat();
  assert.deepEqual(single, whole);
});

test("numbers of 64 bits keep every bit as decimal text", () => {
  for (const [text, high, low] of [
    ["0", 0, 0], ["127", 0, 127], ["4294967295", 0, 4294967295], ["4294967296", 1, 0], ["9007199254740991", 0x1fffff,
      4294967295],
    ["9007199254740993", 0x200000, 1], ["18446744073709551615", 4294967295, 4294967295],
  ]) {
    assert.equal(decimal(high, low), text);
    const parts = halves(text);
    assert.equal((BigInt(parts[0]) << 32n | BigInt(parts[1])).toString(), text);
    const frame = encode("ping", {nonce: text});
    assert.equal(decode("ping", frame.subarray(4)).nonce, text);
  }
  for (const text of ["", "-1", "1.5", "18446744073709551616", "99999999999999999999",
      "123456789012345678901"]) assert.equal(halves(text), null);
});

test("every frame type keeps its values through both directions", () => {
  const draw = random(7);
  const value = (kind, depth) => {
    if (typeof kind === "object") return values(kind, depth + 1);
    switch (kind.replace("?", "")) {
      case "u32": return Math.floor(draw() * 4294967296);
      case "number": return Math.floor(draw() * Number.MAX_SAFE_INTEGER);
      case "long": return decimal(Math.floor(draw() * 4294967296), Math.floor(draw() * 4294967296));
      case "sint": return Math.floor(draw() * 4294967296) - 2147483648;
      case "flag": return true;
      case "text": return ["a", "日志", "🎉 x"][Math.floor(draw() * 3)];
      case "bytes": return Uint8Array.from({length: 1 + Math.floor(draw() * 40)}, () => Math.floor(draw() * 256));
      default: return hex(Uint8Array.from({length: 16}, () => Math.floor(draw() * 256)));
    }
  };
  const values = (fields, depth = 0) => Object.fromEntries(Object.values(fields)
    .map(({name, kind, isList}) => [name, isList ? [value(kind, depth), value(kind, depth)] : value(kind, depth)]));
  for (let round = 0; round < 50; round += 1) {
    for (const name of Object.keys(FIELDS)) {
      const one = values(FIELDS[name]);
      assert.deepEqual(decode(name, encode(name, one).subarray(4)), one, name);
    }
  }
});

test("bytes that are no frames are refused with the protocol's code", () => {
  for (const [bytes, code, words] of [
    ["06000001ff", 412, "cut off"], ["060000021080", 412, "cut off"], ["060000032a0561", 412, "cut off"],
      ["0200000107", 412, "number"],
    ["030000041202c328", 412, "UTF-8"], ["0600000c10ffffffffffffffffff7f00", 412, "64 bits"], ["060000031a0107", 412,
      "16"],
    ["060000020b0c", 412, "wire type"], ["06000002" + "1500", 412, "wire type"], ["0600000100", 412, "number"],
      ["06010001", 411, "limit"], ["12000000", 410, "unknown"],
    ["00000000", 410, "unknown"], ["ff000000", 410, "unknown"],
  ]) {
    assert.throws(() => new FrameReader().take(bytesOfHex(bytes)), error => {
      assert.ok(error instanceof BadFrame, `${bytes}: ${error}`);
      assert.equal(error.closeCode, code, bytes);
      assert.ok(error.message.includes(words), `${bytes}: ${error.message}`);
      return true;
    });
  }
});

test("lists and texts of a peer are bounded", () => {
  const repeated = (tag, body, count) => hex(Uint8Array.from([tag, body.length, ...body])).repeat(count);
  const frame = (type, body) => bytesOfHex(type + (body.length / 2).toString(16).padStart(6, "0") + body);
  assert.equal(new FrameReader().take(frame("02", repeated(0x3a, [], 16)))[0].values.dropped.length, 16);
  assert.throws(() => new FrameReader().take(frame("02", repeated(0x3a, [], 17))), /more than 16/);
  assert.throws(() => encode("close", {reason: "x".repeat(513)})
    && decode("close", encode("close", {reason: "x".repeat(513)}).subarray(4)), /512/);
  assert.throws(() => decode("close", encode("close", {alternate: "x".repeat(265)}).subarray(4)), /264/);
  assert.throws(() => decode("welcome", encode("welcome", {deviceSecret: new Uint8Array(65)}).subarray(4)), /64/);
});

test("random bytes are read or refused, never anything else, and the reader stays bounded", () => {
  const draw = random(11), types = Object.keys(NAMES).map(Number);
  for (let round = 0; round < 20000; round += 1) {
    const body = Uint8Array.from({length: Math.floor(draw() * 40)}, () => draw() < 0.5 ? Math.floor(draw() * 32)
      : Math.floor(draw() * 256));
    const frame = Uint8Array.from([types[round % types.length], 0, 0, body.length, ...body]);
    try {
      new FrameReader().take(frame);
    } catch (error) {
      assert.ok(error instanceof BadFrame, `${hex(frame)}: ${error.stack}`);
    }
  }
  const reader = new FrameReader();
  for (let count = 0; count < 3; count += 1) reader.take(new Uint8Array([6, 1, 0, 0]).subarray(count, count + 1));
  assert.ok(reader.bytes.length - reader.offset < 4);
});

test("a number above 53 bits becomes Infinity instead of another number", () => {
  const body = bytesOfHex("10" + "ffffffffffffffffff01");
  assert.equal(decode("deliver", body).sequence, Infinity);
  assert.equal(decode("deliver", bytesOfHex("10" + "ffffffffffffff0f")).sequence, Number.MAX_SAFE_INTEGER);
});

test("the plain UTF-8 agrees with the platform's", () => {
  const strict = new TextDecoder("utf-8", {fatal: true, ignoreBOM: true}), draw = random(3);
  const samples = ["", "a", "é", "您好 🎉", "\ufeffa", "\u0000", "𐍈", "x".repeat(10000) + "语"];
  for (const text of samples) {
    assert.deepEqual(Array.from(utf8(text)), Array.from(new TextEncoder().encode(text)));
    assert.equal(plainTextOfUTF8(new TextEncoder().encode(text)), text);
  }
  assert.deepEqual(Array.from(utf8("a\ud800b")), Array.from(new TextEncoder().encode("a\ud800b")));
  const leads = [0x00, 0x7f, 0x80, 0xbf, 0xc0, 0xc2, 0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf4, 0xf5, 0xa0, 0x9f, 0x90,
    0x8f];
  for (let round = 0; round < 20000; round += 1) {
    const bytes = Uint8Array.from({length: Math.floor(draw() * 6)}, () => leads[Math.floor(draw() * leads.length)]);
    let expected = null;
    try { expected = strict.decode(bytes); } catch { expected = null; }
    assert.equal(plainTextOfUTF8(bytes), expected, hex(bytes));
  }
});
