package longwire.client;

/** An action that the core's owner performs; actions are performed in order. */
final class Action {
    enum Kind {
        /** Connect to the {@link Endpoint}. */
        CONNECT,
        /** Send the bytes. */
        SEND,
        /**
         * Flush and close the connection; the core already left the session and does not expect {@code disconnected}.
         */
        DISCONNECT,
        /** Store the core's state; if that fails, skip the actions behind it. */
        PERSIST,
        /** Hand the {@link ReceivedMessage} to the app. */
        HANDLE,
        /** Take back the messages whose callback has not begun, and finish each as deferred. */
        WITHDRAW,
        /** Report the revoked task to the app, then call {@code finishRevoke}. */
        REVOKE,
        /** Make the callback of the {@link Event}. */
        REPORT,
        /** Call back with the {@link Event} that answers a call, even after a failed write of the state. */
        ANSWER,
        /** End the fetches with the {@link FetchResult}. */
        FETCHED,
        /** Report the stop with the {@link LongwireException} or {@code null}, as the last event of the thread. */
        STOP
    }

    final Kind kind;
    final Object value;
    final long sequence;

    private Action(Kind kind, Object value, long sequence) {
        this.kind = kind;
        this.value = value;
        this.sequence = sequence;
    }

    static final Action DISCONNECT = new Action(Kind.DISCONNECT, null, 0);
    static final Action PERSIST = new Action(Kind.PERSIST, null, 0);
    static final Action WITHDRAW = new Action(Kind.WITHDRAW, null, 0);

    static Action connect(Endpoint endpoint) {
        return new Action(Kind.CONNECT, endpoint, 0);
    }

    static Action send(byte[] frame) {
        return new Action(Kind.SEND, frame, 0);
    }

    static Action handle(ReceivedMessage message) {
        return new Action(Kind.HANDLE, message, message.sequence);
    }

    static Action revoke(Identifier task, long sequence) {
        return new Action(Kind.REVOKE, task, sequence);
    }

    static Action fetched(FetchResult result) {
        return new Action(Kind.FETCHED, result, 0);
    }

    static Action stop(LongwireException error) {
        return new Action(Kind.STOP, error, 0);
    }

    static Action answer(Event event) {
        return new Action(Kind.ANSWER, event, 0);
    }

    static Action report(Event event) {
        return new Action(Kind.REPORT, event, 0);
    }
}
