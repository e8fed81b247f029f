import {concat, utf8} from "./bytes.js";

/** Random numbers from a seed that the random adapter has filled: jitter, and nonces that cannot be foreseen. */
export class Random {
  /** `seed` has 32 bytes; `hmac(key, bytes)` computes HMAC-SHA-256. */
  constructor(seed, hmac) {
    this.seed = seed;
    this.hmac = hmac;
    this.counter = 0;
    this.words = seed.reduce((words, byte, index) => {
      words[index >> 3 & 3] = (words[index >> 3 & 3] << 8 | byte) >>> 0;
      return words;
    }, [0, 0, 0, 0]);
    if (this.words.every(word => word === 0)) this.words[0] = 1;
  }

  /** Returns 16 bytes. */
  nonce() {
    this.counter += 1;
    return this.hmac(this.seed, concat(utf8("nonce"), utf8(String(this.counter)))).slice(0, 16);
  }

  /** Returns a whole number between both bounds, included (xoshiro128**). */
  within(least, most) {
    const words = this.words;
    const product = Math.imul(words[1], 5), result = Math.imul(product << 7 | product >>> 25, 9) >>> 0;
    const shifted = words[1] << 9;
    words[2] ^= words[0];
    words[3] ^= words[1];
    words[1] ^= words[2];
    words[0] ^= words[3];
    words[2] ^= shifted;
    words[3] = words[3] << 11 | words[3] >>> 21;
    return least + Math.floor(result / 4294967296 * (most - least + 1));
  }
}

/** Exponential backoff with full jitter, so that a fleet that lost its gateway does not reconnect in waves. */
export class Backoff {
  constructor(random, first, most) {
    Object.assign(this, {random, first, most, failures: 0});
  }

  reset() { this.failures = 0; }

  /** Returns the delay before the next attempt, in milliseconds. */
  next() {
    const ceiling = Math.min(this.most, this.first * Math.pow(2, Math.min(this.failures, 16)));
    this.failures += 1;
    return this.random.within(0, ceiling);
  }

  /** Returns a random time within a window, in milliseconds. */
  within(least, most) { return this.random.within(least, most); }
}
