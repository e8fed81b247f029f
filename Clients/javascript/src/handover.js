// Messages to the app: the handler is called in order, and its verdicts go back to the core.

import {textOfUTF8} from "./bytes.js";
import {LIMITS} from "./limits.js";

const PROCESSED = {kind: "processed"}, DEFERRED = {kind: "deferred"};

export const isThenable = value => value !== null && typeof value === "object" && typeof value.then === "function";

/** Returns the verdict that a handler's result stands for. */
export function verdictOf(result) {
  if (result === "deferred") return DEFERRED;
  if (result && typeof result === "object" && typeof result.rejected === "string") {
    // By code points, because a character may have two units.
    return {kind: "rejected", reason: Array.from(result.rejected).slice(0, LIMITS.reasonCharacters).join("")};
  }
  return PROCESSED;
}

/** A message for the app. The core adds `origin` and `key`, which the app ignores. */
class Message {
  constructor(values) { Object.assign(this, values); }

  /** Returns the payload as text, or null if it is not UTF-8. */
  get text() { return textOfUTF8(this.payload); }

  /** `live`, `queued` (the device was away) or `alerted` (a vendor accepted a notification of it). */
  get provenance() { return this.alertedAt !== 0 ? "alerted" : this.offline ? "queued" : "live"; }
}

/** The messages of one client that wait for the app's handler, or that it has. */
export class Handover {
  constructor(client, parallel) {
    Object.assign(this, {client, parallel});
    /** Messages that wait for the handler, and those that the app has, by key. */
    this.waiting = [];
    this.active = new Map();
  }

  /** Takes back the messages that wait; the gateway delivers them again. */
  withdraw() {
    const {core} = this.client;
    for (const message of this.waiting.splice(0)) core.deliveries.finish(message, DEFERRED, this.client.now());
  }

  /** Calls the handler for waiting messages, up to `parallel` at a time. */
  handOver() {
    while (this.waiting.length > 0 && this.active.size < this.parallel) {
      const message = new Message(this.waiting.shift());
      // The app may still have a copy from before a stop. Its verdict applies to both copies.
      if (this.active.has(message.key)) continue;
      this.active.set(message.key, message);
      let result;
      try {
        result = this.client.options.onMessage(message);
      } catch (error) {
        this.handlerFailed(message, error);
        continue;
      }
      if (isThenable(result)) {
        result.then(verdict => { if (verdict !== "later") this.decide(message, verdictOf(verdict)); },
          error => this.handlerFailed(message, error));
      } else if (result !== "later") {
        this.active.delete(message.key);
        // Called by the pump only, so the core may be entered.
        this.client.core.deliveries.finish(message, verdictOf(result), this.client.now());
      }
    }
  }

  /** A message whose handler failed stays un-acked; the gateway delivers it again in the next session. */
  handlerFailed(message, error) {
    this.client.emit({type: "handlerFailed", message, error});
    this.decide(message, DEFERRED);
  }

  decide(message, verdict) {
    if (this.active.get(message.key) !== message) return;
    this.active.delete(message.key);
    this.client.postOrKeep({do: "finish", message, verdict});
    if (this.waiting.length > 0) this.client.post({handOver: true});
  }
}
