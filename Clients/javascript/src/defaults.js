// The defaults of the options: the clock, random bytes, and a state in memory.

import {bad} from "./options.js";

/** Creates a monotonic clock in ms: `performance.now()`, or wall time without its backward jumps. */
export function makeClock() {
  if (typeof performance === "object" && performance && typeof performance.now === "function") {
    return {monotonic: () => performance.now(), wall: () => Date.now()};
  }
  let last = Date.now(), passed = 0;
  const monotonic = () => {
    const now = Date.now();
    passed += Math.max(0, now - last);
    last = now;
    return passed;
  };
  return {monotonic, wall: () => Date.now()};
}

/** A store in memory, for tests and for devices that may register again at each start. */
export class MemoryStore {
  constructor(text = null) { this.text = text; }
  load() { return this.text; }
  save(text) { this.text = text; }
  clear() { this.text = null; }
}

/** Returns random bytes of the platform's generator. */
export function defaultRandom(count) {
  if (typeof crypto !== "object" || !crypto || !crypto.getRandomValues) {
    throw bad("this platform has no crypto.getRandomValues; give the option random");
  }
  return crypto.getRandomValues(new Uint8Array(count));
}
