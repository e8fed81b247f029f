// The messages to the app's server, sent one at a time and kept until the gateway has answered.

import {LIMITS} from "./limits.js";

export class Upstream {
  constructor(core) {
    this.core = core;
    this.isSent = false;
    /** The time of the next attempt after a temporary refusal, in monotonic milliseconds, or null. */
    this.retryAt = null;
  }

  /** Marks the first message as not sent, so that the next session sends it again. */
  endSession() {
    this.isSent = false;
    this.retryAt = null;
  }

  add({payload, taskId, kept}, now) {
    const message = this.core.state.keepOutgoing(payload, taskId);
    if (kept) kept(message);
    if (!message) {
      const reason = "too many messages wait for the gateway already";
      this.core.report("refused", {request: 0, code: 0, reason, payload, taskId});
      return;
    }
    this.core.persist();
    this.sendFirst(now);
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
