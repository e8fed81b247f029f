// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104) in plain JavaScript, for pages without `crypto.subtle` and for mini
// programs. A client computes one HMAC of a few hundred bytes a connection.

import {concat} from "./bytes.js";

const BLOCK = 64;

/** Returns the first 32 bits of the fractional part of a number's root. */
function fraction(number, exponent) {
  const root = Math.pow(number, exponent);
  return (root - Math.floor(root)) * 4294967296 >>> 0;
}

const ROUND = [], START = [];
for (let candidate = 2; ROUND.length < 64; candidate += 1) {
  let isPrime = true;
  for (let divisor = 2; divisor * divisor <= candidate; divisor += 1) isPrime = isPrime && candidate % divisor !== 0;
  if (!isPrime) continue;
  if (START.length < 8) START.push(fraction(candidate, 1 / 2));
  ROUND.push(fraction(candidate, 1 / 3));
}

const turn = (word, count) => word >>> count | word << 32 - count;

/** Returns the SHA-256 digest of bytes. */
export function sha256(bytes) {
  const padded = new Uint8Array(Math.ceil((bytes.length + 9) / BLOCK) * BLOCK);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(bytes.length / 0x20000000));
  view.setUint32(padded.length - 4, bytes.length << 3 >>> 0);
  const sums = START.slice(), words = new Array(64);
  for (let offset = 0; offset < padded.length; offset += BLOCK) {
    for (let index = 0; index < 16; index += 1) words[index] = view.getUint32(offset + index * 4);
    for (let index = 16; index < 64; index += 1) {
      const early = words[index - 15], late = words[index - 2];
      const first = turn(early, 7) ^ turn(early, 18) ^ early >>> 3;
      const second = turn(late, 17) ^ turn(late, 19) ^ late >>> 10;
      words[index] = words[index - 16] + first + words[index - 7] + second >>> 0;
    }
    let [a, b, c, d, e, f, g, h] = sums;
    for (let index = 0; index < 64; index += 1) {
      const choice = e & f ^ ~e & g, majority = a & b ^ a & c ^ b & c;
      const one = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + choice + ROUND[index] + words[index] >>> 0;
      const two = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + majority >>> 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, d + one >>> 0, c, b, a, one + two >>> 0];
    }
    [a, b, c, d, e, f, g, h].forEach((word, index) => { sums[index] = sums[index] + word >>> 0; });
  }
  const digest = new DataView(new ArrayBuffer(32));
  sums.forEach((word, index) => digest.setUint32(index * 4, word));
  return new Uint8Array(digest.buffer);
}

/** Returns the HMAC-SHA-256 of `bytes` under `key`. */
export function hmacSHA256(key, bytes) {
  const block = new Uint8Array(BLOCK);
  block.set(key.length > BLOCK ? sha256(key) : key);
  const inner = sha256(concat(block.map(byte => byte ^ 0x36), bytes));
  return sha256(concat(block.map(byte => byte ^ 0x5c), inner));
}
