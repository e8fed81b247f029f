// The delivery of messages to the app's handler in order, and of its verdicts to the core.

import {textOfUTF8} from "./bytes.js";
import {LIMITS} from "./limits.js";

const PROCESSED = {kind: "processed"}, DEFERRED = {kind: "deferred"};

export const isThenable = value => value !== null && typeof value === "object" && typeof value.then === "function";

/** Converts the handler's result to a verdict. */
export function verdictOf(result) {
  if (result === "deferred") return DEFERRED;
  if (result && typeof result === "object" && typeof result.rejected === "string") {
    // The reason is cut by code points, because a UTF-16 code unit may be half a character.
    return {kind: "rejected", reason: Array.from(result.rejected).slice(0, LIMITS.reasonCharacters).join("")};
  }
  return PROCESSED;
}

/** A message for the app. Its `origin` and `key` are for the core only. */
class Message {
  constructor(values) { Object.assign(this, values); }

  /** Returns the payload as text, or null if it is not UTF-8. */
  get text() { return textOfUTF8(this.payload); }

  /** Returns `alerted` if a vendor accepted an alert, `queued` if the message is flagged offline, otherwise `live`. */
  get provenance() { return this.alertedAt !== 0 ? "alerted" : this.offline ? "queued" : "live"; }
}

/** The messages of one client that wait for the app's handler or for its verdict. */
export class Handover {
  constructor(client, parallel) {
    Object.assign(this, {client, parallel});
    /** The messages that wait for the handler, and by key those that wait for a verdict. */
    this.waiting = [];
    this.active = new Map();
    /** The active messages whose handler has not returned yet. */
    this.running = new Set();
    /** The revokes that wait for handlers, in order. */
    this.revokes = [];
  }

  /** Begins a run; returns the vendors' messages that waited at the end of the last one. */
  begin() {
    this.revokes = [];
    return this.waiting.splice(0).filter(({channel}) => channel === "vendor");
  }

  /** Removes the waiting messages for which `isTaken` holds, and gives them this verdict. */
  settle(verdict, isTaken) {
    const taken = this.waiting.filter(isTaken), {core} = this.client;
    if (taken.length > 0) this.waiting = this.waiting.filter(message => !isTaken(message));
    for (const message of taken) core.deliveries.finish(message, verdict, this.client.now());
  }

  /** Drops the waiting messages and revokes of the connection; the gateway delivers them again. */
  withdraw() {
    const {core} = this.client;
    this.settle(DEFERRED, ({channel}) => channel === "connection");
    for (const {key} of this.revokes.splice(0)) core.deliveries.removeHandling(key);
  }

  /**
   * Ends the waiting messages of a revoked task, so that the app does not receive them after the revoke. The event
   * follows once the handlers that run now have returned.
   */
  revoke({taskId, sequence, key}) {
    this.settle(PROCESSED, message => taskId !== "" && message.taskId === taskId);
    this.revokes.push({taskId, sequence, key, before: Array.from(this.running)});
    this.passRevokes();
  }

  passRevokes() {
    while (this.revokes.length > 0 && !this.revokes[0].before.some(message => this.running.has(message))) {
      const {taskId, sequence, key} = this.revokes.shift();
      this.client.emit({type: "revoked", taskId});
      this.client.core.deliveries.finishRevoke(sequence, key);
    }
  }

  /** Passes due revokes, and calls the handler for waiting messages, up to `parallel` at a time. */
  handOver() {
    this.passRevokes();
    while (this.waiting.length > 0 && this.active.size < this.parallel) {
      const message = new Message(this.waiting.shift());
      // The app may still have a copy from before a stop. The verdict on it applies to both copies.
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
        this.running.add(message);
        result.then(verdict => this.returned(message, verdict), error => this.handlerFailed(message, error));
      } else if (result !== "later") {
        this.active.delete(message.key);
        // Only the pump calls this method, so a direct call of the core is safe.
        this.client.core.deliveries.finish(message, verdictOf(result), this.client.now());
      }
    }
  }

  returned(message, verdict) {
    this.running.delete(message);
    if (verdict !== "later") this.decide(message, verdictOf(verdict));
    else this.goOn();
  }

  /** Reports a failed handler, and defers its message; the gateway delivers it again in the next session. */
  handlerFailed(message, error) {
    this.running.delete(message);
    this.client.emit({type: "handlerFailed", message, error});
    this.decide(message, DEFERRED);
  }

  decide(message, verdict) {
    if (this.active.get(message.key) !== message) return;
    this.active.delete(message.key);
    this.client.postOrKeep({do: "finish", message, verdict});
    this.goOn();
  }

  goOn() {
    if (this.waiting.length > 0 || this.revokes.length > 0) this.client.post({handOver: true});
  }
}
