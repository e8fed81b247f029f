// The messages to the app's server, sent one at a time and kept until the gateway has answered.

import {LIMITS} from "./limits.js";

export const QUEUE_FULL = "too many messages wait for the gateway already";

export class Upstream {
  constructor(core) {
    this.core = core;
    this.isSent = false;
    /** The messages that no write of the state has included yet. */
    this.unstored = [];
    /** The time of the next attempt after a temporary refusal, in monotonic milliseconds, or null. */
    this.retryAt = null;
  }

  /** Marks the first message as not sent, so that the next session sends it again. */
  endSession() {
    this.isSent = false;
    this.retryAt = null;
  }

  add({payload, taskId, kept}, now) {
    const message = this.core.state.keepOutgoing(payload, taskId, this.core.configuration.outgoingBytes);
    if (kept) kept(message);
    if (!message) {
      this.core.report("refused", {request: 0, code: 0, reason: QUEUE_FULL, payload, taskId});
      return;
    }
    this.unstored.push(message);
    this.core.persist();
    this.sendFirst(now);
  }

  /** Takes out the messages whose write failed. A state that is too large could otherwise never be written again. */
  refuseUnstored(error) {
    const {state} = this.core, reason = `the message could not be stored: ${error.message}`;
    state.outgoing = state.outgoing.filter(message => !this.unstored.includes(message));
    for (const {payload, taskId} of this.unstored.splice(0)) {
      this.core.report("refused", {request: 0, code: 0, reason, payload, taskId});
    }
  }

  /** Sends the first kept message; only one is in flight, so that a later one cannot overtake a refused one. */
  sendFirst(now) {
    const isDue = this.retryAt === null || this.retryAt <= now.monotonic;
    if (this.core.phase !== "ready" || this.isSent || !isDue) return;
    this.retryAt = null;
    const first = this.core.state.outgoing[0];
    if (!first) return;
    this.isSent = true;
    this.core.send("upstream", {request: first.number, payload: first.payload, taskId: first.taskId}, now);
  }

  receiveResult({request, code, reason}, now) {
    const first = this.core.state.outgoing[0];
    if (!first || first.number !== request || !this.isSent) return;
    this.isSent = false;
    if (code >= LIMITS.firstRetriedCode) {
      this.retryAt = now.monotonic + (code === LIMITS.busyCode ? LIMITS.busyRetry : LIMITS.fullRetry);
      return;
    }
    this.core.state.outgoing.shift();
    this.core.persist();
    const {payload, taskId} = first;
    if (code === 0) this.core.report("taken", {request, payload, taskId});
    else this.core.report("refused", {request, code, reason, payload, taskId});
    this.sendFirst(now);
  }
}
