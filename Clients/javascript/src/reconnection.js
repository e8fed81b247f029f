// The rules after the end of a connection: a reconnect with its delay, a correction, or a stop of the client.

import {CLOCK_SKEW, REPLACED, UNKNOWN_DEVICE} from "./codes.js";
import {endpointOf, isEqual} from "./endpoints.js";
import {LongwireError} from "./errors.js";
import {LIMITS} from "./limits.js";
import {Backoff} from "./random.js";

export class Reconnection {
  constructor(core, random, {first, most}) {
    this.core = core;
    this.backoff = new Backoff(random, first, most);
    /** Whether the gateway requested the current delay, rather than the backoff. */
    this.isWaitNamed = false;
    this.skewRetries = 0;
    this.corrections = 0;
    /** The number of lost registrations since the last session of at least a minute. */
    this.losses = 0;
  }

  receiveClose(close, now) {
    const {code} = close, rule = Math.floor(code / 100);
    this.core.report("closed", {code, reason: close.reason});
    this.core.actions.push({type: "disconnect"});
    const error = new LongwireError("refused", `the gateway closed with code ${code}: ${close.reason}`,
      {closeCode: code});
    const wasWelcomed = this.core.phase === "ready", wasSteady = this.forgiveFailures(now);
    const isAtHome = isEqual(this.core.endpoint, this.core.home);
    let next = rule === 2 && this.core.configuration.usesAlternates ? endpointOf(close.alternate) : null;
    if (next && isEqual(next, this.core.endpoint)) next = null;
    // The configured address redirected the client before a session began. The attempt continues at the alternate.
    const isSentOn = next !== null && !wasWelcomed && isAtHome;
    if (!this.core.configuration.reconnects && !isSentOn && !this.isCorrection(code)) return this.core.halt(error);

    if (rule === 2 && next) {
      // The first redirect is immediate. Later ones back off, so that gateways that redirect in a circle cannot cause a
      // busy loop.
      const pause = isAtHome || wasSteady ? 0 : this.backoff.next(), window = this.windowOf(close);
      return this.wait(Math.max(window === null ? 0 : window, pause), now, window !== null, next);
    }
    // A refusal by an alternate gateway does not change the rules of the configured one.
    if ((rule === 3 || rule === 4) && !isAtHome && !wasWelcomed && code !== CLOCK_SKEW) {
      return this.wait(this.backoff.next(), now);
    }
    if (rule === 3) return this.correct(close, error, now);
    if (rule === 4) {
      // The client reconnects only after `replaced`, and after a long delay. Otherwise two processes with the same cid
      // would replace each other continuously.
      if (code !== REPLACED) return this.core.halt(error);
      return this.wait(LIMITS.replaced + this.backoff.next(), now, true);
    }
    return this.leave(close, now);
  }

  leave(close, now) {
    const window = this.windowOf(close);
    if (window === null) return this.wait(this.backoff.next(), now);
    // A short delay is raised to the backoff, so that repeated short delays do not flood the gateway with connections.
    const isShort = window < this.core.configuration.backoff.first;
    return this.wait(isShort ? Math.max(window, this.backoff.next()) : window, now, true);
  }

  /** Shortens a backoff to at most its first step; a delay that the gateway requested is kept. */
  endWaitSoon(now) {
    if (this.core.phase !== "waiting" || this.isWaitNamed) return;
    const soon = now.monotonic + this.backoff.within(0, this.core.configuration.backoff.first);
    this.core.phaseDeadline = Math.min(this.core.phaseDeadline, soon);
  }

  /** Resets the backoff if the session lasted a minute; returns false if it did not, or without a session. */
  forgiveFailures(now) {
    if (this.core.phase !== "ready" || now.monotonic - this.core.welcomedAt < LIMITS.steady) return false;
    this.backoff.reset();
    this.skewRetries = this.losses = 0;
    return true;
  }

  /** Reconnects with backoff after a failure without a Close. */
  retry(now, error) {
    if (!this.core.configuration.reconnects) return this.core.halt(error);
    this.forgiveFailures(now);
    return this.wait(this.backoff.next(), now);
  }

  wait(milliseconds, now, isNamed = false, next = null) {
    this.core.leaveSession();
    this.core.endpoint = next || this.core.home;
    this.isWaitNamed = isNamed;
    this.core.enter("waiting", now.monotonic + milliseconds);
    this.core.report("retrying", {milliseconds});
  }

  /** Handles a Close of 3xx: corrects the problem and reconnects once. A second one in a row stops the client. */
  correct(close, error, now) {
    const {state} = this.core;
    if (close.code === CLOCK_SKEW) {
      if (close.serverTime > 0 && close.serverTime <= LIMITS.greatestTime) {
        state.offset = Math.round(close.serverTime - now.wall);
      }
      // The gateway has not recorded the refused timestamp. If it stayed in the state, a device whose clock was once
      // far ahead would be locked out until then.
      state.lastTimestamp = state.acceptedTimestamp;
      this.core.isDirty = true;
      this.skewRetries += 1;
      const delay = this.skewRetries === 1 ? 0 : this.backoff.next();
      return this.wait(delay, now, false, this.core.phase === "ready" ? null : this.core.endpoint);
    }
    this.corrections += 1;
    if (close.code === UNKNOWN_DEVICE) {
      const {appSecret, registrationToken} = this.core.configuration;
      const canRegister = appSecret !== "" || registrationToken !== "";
      if (this.corrections !== 1 || !state.isRegistered || !canRegister) return this.core.halt(error);
      this.core.report("registrationLost", {cid: state.cid});
      state.forgetRegistration();
      this.core.isDirty = true;
      this.losses += 1;
      // The first lost registration reconnects at once. Later ones back off, in case a gateway loses every
      // registration.
      return this.wait(this.losses === 1 ? 0 : this.backoff.next(), now);
    }
    if (this.corrections !== 1) return this.core.halt(error);
    return this.leave(close, now);
  }

  /**
   * Whether the Close asks for the first correction of its kind; it is allowed even if the client must not reconnect.
   */
  isCorrection(code) {
    return code === CLOCK_SKEW ? this.skewRetries === 0 : code === UNKNOWN_DEVICE && this.corrections === 0;
  }

  windowOf({retryAfterMinimum, retryAfterMaximum}) {
    const [least, most] = [retryAfterMinimum, retryAfterMaximum].map(time => Math.min(time, LIMITS.retryWindow));
    return least > 0 || most > 0 ? this.backoff.within(least, Math.max(least, most)) : null;
  }
}
