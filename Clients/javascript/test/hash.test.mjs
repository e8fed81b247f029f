// SHA-256 and HMAC-SHA-256 against published vectors and Node's own library.

import assert from "node:assert/strict";
import {createHash, createHmac} from "node:crypto";
import {test} from "node:test";

import {hex, hmacSHA256, sha256, utf8} from "../src/index.js";
import {nodeHMAC} from "../src/node.js";
import {Random} from "../src/random.js";
import {random} from "./support.mjs";

test("SHA-256 has the digests of FIPS 180-4's examples", () => {
  for (const [text, digest] of [
    ["", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"],
    ["abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"],
    ["abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"],
  ]) assert.equal(hex(sha256(utf8(text))), digest);
  assert.equal(hex(sha256(new Uint8Array(1000000).fill(97))),
    "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
});

test("HMAC-SHA-256 has the codes of RFC 4231", () => {
  const repeated = (byte, count) => new Uint8Array(count).fill(byte);
  for (const [key, data, code] of [
    [repeated(0x0b, 20), utf8("Hi There"), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"],
    [utf8("Jefe"), utf8("what do ya want for nothing?"),
      "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"],
    [repeated(0xaa, 20), repeated(0xdd, 50), "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"],
    [repeated(0xaa, 131), utf8("Test Using Larger Than Block-Size Key - Hash Key First"),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"],
  ]) {
    assert.equal(hex(hmacSHA256(key, data)), code);
    assert.equal(hex(nodeHMAC(key, data)), code);
  }
});

test("every length around a block agrees with Node's library", () => {
  const draw = random(1);
  for (let length = 0; length < 200; length += 1) {
    const bytes = Uint8Array.from({length}, () => Math.floor(draw() * 256));
    assert.equal(hex(sha256(bytes)), createHash("sha256").update(bytes).digest("hex"));
    assert.equal(hex(hmacSHA256(bytes, bytes)), createHmac("sha256", bytes).update(bytes).digest("hex"));
  }
});

test("nonces differ, and jitter covers its range", () => {
  const one = new Random(new Uint8Array(32), hmacSHA256), other = new Random(new Uint8Array(32).fill(1), hmacSHA256);
  const nonces = new Set(Array.from({length: 100}, () => [hex(one.nonce()), hex(other.nonce())]).flat());
  assert.equal(nonces.size, 200);
  const counts = new Array(10).fill(0);
  for (let round = 0; round < 10000; round += 1) counts[one.within(0, 9)] += 1;
  assert.ok(counts.every(count => count > 700 && count < 1300), String(counts));
});
