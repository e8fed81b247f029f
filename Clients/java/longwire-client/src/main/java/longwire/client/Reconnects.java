package longwire.client;

/**
 * The rules for the next connection after a Close or a failure.
 *
 * <p>The hundreds digit of the code selects the rule, so codes of newer gateways work, too.
 *
 * <p>The client connects to the configured address, unless a Close of 2xx names an alternate. It uses an alternate for
 * one connection. After that it returns to the configured address, which may name an alternate again.
 */
final class Reconnects {
    private final ClientCore core;
    private final Backoff backoff;
    private int skewRetryCount;
    private int correctionCount;
    /** The number of lost registrations since the last session of at least {@code Limits.STEADY_TIME}. */
    private int lossCount;

    Reconnects(ClientCore core, Backoff backoff) {
        this.core = core;
        this.backoff = backoff;
    }

    Backoff backoff() {
        return backoff;
    }

    /** Resets the number of corrections in a row, because a session has begun. */
    void welcomed() {
        correctionCount = 0;
    }

    void receive(Frames.Close close, long now) {
        core.report(listener -> listener.onClosed(close.code, close.reason));
        core.act(Action.DISCONNECT);
        LongwireException error = new LongwireException(
            LongwireException.Code.REFUSED, "the gateway closed with code " + close.code + ": " + close.reason,
            close.code,
            null);
        boolean wasWelcomed = core.isReady();
        boolean wasSteady = forgiveFailures(now);
        boolean isHome = core.endpoint().equals(core.home());
        Endpoint next = close.code / 100 == 2 ? Endpoint.parse(close.alternate) : null;
        if (next != null && next.equals(core.endpoint())) {
            next = null;
        }
        // The configured address redirected the client before a session began. The connection attempt continues at the
        // alternate.
        boolean isSentOn = next != null && !wasWelcomed && isHome;
        if (!core.configuration.reconnects() && !isSentOn && !isCorrection(close.code)) {
            core.halt(error);
            return;
        }
        long rule = close.code / 100;
        if (rule == 2 && next != null) {
            // The first redirect is immediate. Later ones back off, so that gateways that redirect in a circle cannot
            // cause a busy loop.
            long pause = isHome || wasSteady ? 0 : backoff.next();
            long window = window(close);
            core.await(Math.max(Math.max(window, 0), pause), window >= 0, next, now);
        } else if ((rule == 3 || rule == 4) && !isHome && !wasWelcomed && close.code != CloseCode.CLOCK_SKEW) {
            // A refusal by an alternate gateway does not change the backoff of the configured one.
            core.await(backoff.next(), false, core.home(), now);
        } else if (rule == 3) {
            correct(close, error, now);
        } else if (rule == 4) {
            // The client reconnects only after `replaced`, and after a long delay. Otherwise two processes with the
            // same cid would replace each other continuously.
            if (close.code == CloseCode.REPLACED) {
                core.await(Limits.REPLACED_TIME + backoff.next(), true, core.home(), now);
            } else {
                core.halt(error);
            }
        } else {
            leave(close, now);
        }
    }

    private void leave(Frames.Close close, long now) {
        long window = window(close);
        if (window < 0) {
            core.await(backoff.next(), false, core.home(), now);
            return;
        }
        // A delay below the first backoff step is raised to the backoff. Otherwise repeated short delays could flood the
        // gateway with connections.
        boolean isShort = window < backoff.base();
        core.await(isShort ? Math.max(window, backoff.next()) : window, true, core.home(), now);
    }

    /**
     * Handles a Close of 3xx: corrects the named problem and reconnects once; a second such Close in a row stops the
     * client.
     */
    private void correct(Frames.Close close, LongwireException error, long now) {
        if (close.code == CloseCode.CLOCK_SKEW) {
            if (close.serverTime > 0) {
                core.state.clockOffset = close.serverTime - core.configuration.clock().wallMillis();
            }
            // The gateway has not recorded the refused timestamp. If it stayed in the state, a device whose clock was
            // once far ahead would be locked out until then.
            core.state.lastTimestamp = core.state.acceptedTimestamp;
            core.markDirty();
            skewRetryCount++;
            Endpoint next = core.isReady() ? core.home() : core.endpoint();
            core.await(skewRetryCount == 1 ? 0 : backoff.next(), false, next, now);
        } else if (close.code == CloseCode.UNKNOWN_DEVICE) {
            correctionCount++;
            if (correctionCount != 1 || !core.state.isRegistered() || core.configuration.registrationKey().isEmpty()) {
                core.halt(error);
                return;
            }
            Identifier lost = core.state.cid;
            core.report(listener -> listener.onRegistrationLost(lost));
            core.state.forgetRegistration();
            core.markDirty();
            lossCount++;
            // The first lost registration reconnects at once. Later ones back off, in case a gateway loses every
            // registration.
            core.await(lossCount == 1 ? 0 : backoff.next(), false, core.home(), now);
        } else {
            correctionCount++;
            if (correctionCount == 1) {
                leave(close, now);
            } else {
                core.halt(error);
            }
        }
    }

    /**
     * Whether the Close asks for the first correction of its kind; it is allowed even if the client must not reconnect.
     */
    private boolean isCorrection(long code) {
        return code == CloseCode.CLOCK_SKEW && skewRetryCount == 0
            || code == CloseCode.UNKNOWN_DEVICE && correctionCount == 0;
    }

    /** Returns a random time in the window that a Close names, or −1 if it names none. */
    private long window(Frames.Close close) {
        long least = Math.min(close.retryAfterMinimum, Limits.RETRY_WINDOW);
        long most = Math.min(close.retryAfterMaximum, Limits.RETRY_WINDOW);
        return least == 0 && most == 0 ? -1 : backoff.within(least, Math.max(least, most));
    }

    /**
     * Resets the backoff if the session lasted at least a minute; returns false if it did not, or without a session.
     */
    private boolean forgiveFailures(long now) {
        if (!core.isReady() || now - core.welcomedAt() < Limits.STEADY_TIME) {
            return false;
        }
        backoff.reset();
        skewRetryCount = 0;
        lossCount = 0;
        return true;
    }

    /** Reconnects with backoff after a failure without a Close. */
    void retry(LongwireException error, long now) {
        if (!core.configuration.reconnects()) {
            core.halt(error);
            return;
        }
        forgiveFailures(now);
        core.await(backoff.next(), false, core.home(), now);
    }
}
