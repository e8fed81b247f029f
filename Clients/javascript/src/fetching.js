// Fetches of queued messages. A fetch ends after a silence of the gateway, or at its time limit.

import {LIMITS} from "./limits.js";

export class Fetching {
  constructor(core) {
    this.core = core;
    this.fetch = null;
  }

  /** The time of the next check for the end, in monotonic milliseconds, or null without a fetch. */
  get deadline() {
    if (!this.fetch) return null;
    const {until, quietAt} = this.fetch;
    return quietAt === null ? until : Math.min(until, quietAt);
  }

  /** Restarts the wait for the gateway's silence after a frame. */
  received(now) {
    if (this.fetch && this.fetch.quietAt !== null) this.fetch.quietAt = now.monotonic + LIMITS.fetchQuiet;
  }

  /** Starts the wait for the gateway's silence when a session begins. */
  beginSession(now) {
    if (this.fetch) this.fetch.quietAt = now.monotonic + LIMITS.fetchQuiet;
  }

  endSession() {
    if (this.fetch) this.fetch.quietAt = null;
  }

  /** Leaves `keepsRunning` unchanged at the end, because the app has set it during the fetch. */
  leaveRunning() {
    if (this.fetch) this.fetch.ownsRunning = false;
  }

  /** Counts a processed message for the fetch's result. */
  count() {
    if (this.fetch) this.fetch.messages += 1;
  }

  begin({milliseconds, done}, now) {
    if (this.core.phase === "stopped") {
      if (done) done({messages: 0, isComplete: false});
      return;
    }
    const fetch = this.fetch || {until: 0, quietAt: null, messages: 0, ownsRunning: false, done: []};
    fetch.until = Math.max(fetch.until, now.monotonic + milliseconds);
    if (done) fetch.done.push(done);
    if (this.core.phase === "ready") fetch.quietAt = now.monotonic + LIMITS.fetchQuiet;
    const wasSuspended = this.core.isSuspended;
    this.fetch = fetch;
    if (wasSuspended) {
      this.keepRunning(true, now);
      fetch.ownsRunning = true;
    }
    if (this.core.phase === "waiting" && !this.core.reconnection.isWaitNamed) this.core.connect(now);
  }

  keepRunning(keepsRunning, now) {
    const {applicationState} = this.core.configuration;
    this.core.perform({do: "applicationState", applicationState, keepsRunning}, now);
  }

  end(now) {
    const {fetch} = this;
    if (this.core.deliveries.handling.size > 0 && now.monotonic < fetch.until) {
      // The gateway is silent, but the app has not returned its verdicts yet.
      fetch.quietAt = now.monotonic + LIMITS.fetchQuiet;
      return;
    }
    this.fetch = null;
    if (fetch.ownsRunning) {
      this.keepRunning(false, now);
    }
    const isComplete = this.core.phase === "ready" && now.monotonic < fetch.until;
    this.core.report("fetched", {messages: fetch.messages, isComplete});
    for (const done of fetch.done) done({messages: fetch.messages, isComplete});
  }

  endEarly() {
    const {fetch} = this;
    this.fetch = null;
    if (fetch) for (const done of fetch.done) done({messages: fetch.messages, isComplete: false});
  }
}
