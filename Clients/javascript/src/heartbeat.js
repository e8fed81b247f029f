import {LIMITS} from "./limits.js";

/**
 * The longest silence that one network tolerates, as learnt from its connections.
 *
 * A Ping after a silence that gets no answer halves the heartbeat, down to 30 s. Answered Pings raise it by half, in
 * steps, up to the app's or the gateway's heartbeat. A length that failed is tried again only after 32 answers.
 */
export class HeartbeatPlan {
  /** Restores a learnt plan; 0 stands for none. */
  constructor(learnt = 0, ceiling = 0, failed = 0) {
    const least = LIMITS.leastHeartbeatSeconds;
    this.ceiling = ceiling;
    this.learnt = learnt >= least && learnt <= Math.max(ceiling, least) ? learnt : null;
    this.failed = failed > 0 ? failed : null;
    this.answers = 0;
  }

  /** Records the heartbeat that the gateway chose for the session. */
  agreed(seconds) {
    if (this.learnt === null) this.ceiling = seconds;
  }

  /** Records that a connection died in a silence of this length. */
  lost(seconds) {
    const usual = this.learnt === null ? seconds : this.learnt;
    this.learnt = Math.max(LIMITS.leastHeartbeatSeconds, Math.floor(Math.min(usual, seconds) / 2));
    this.failed = this.failed === null ? seconds : Math.min(this.failed, seconds);
    this.answers = 0;
  }

  /** Records that a Ping after a silence was answered; returns a longer heartbeat to request, or null. */
  answered() {
    if (this.learnt === null) return null;
    this.answers += 1;
    const before = this.learnt, next = Math.min(this.ceiling, before + Math.floor(before / 2));
    const isRisky = this.failed !== null && next >= this.failed;
    if (this.answers < (isRisky ? LIMITS.answersBeforeRetrial : LIMITS.answersBeforeLonger)) return null;
    this.answers = 0;
    if (isRisky) this.failed = null;
    this.learnt = next < this.ceiling ? next : null;
    return next > before ? next : null;
  }

  /** Resets the plan, for another network or another requested heartbeat. */
  forget() {
    this.learnt = this.failed = null;
    this.answers = 0;
  }
}
