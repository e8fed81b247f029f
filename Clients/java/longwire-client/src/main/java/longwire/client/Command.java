package longwire.client;

/** A call of the app, performed on the client's thread. */
abstract class Command {
    abstract void perform(ClientCore core, long now);

    /** Whether the call outlives a session, in the stored state. */
    boolean isKept() {
        return false;
    }

    /**
     * Whether the call is exempt from the mailbox's limit; the messages in the app's hands bound the number of
     * verdicts.
     */
    boolean alwaysFindsRoom() {
        return false;
    }

    /** Applies the call to the stored state while the client does not run; returns false if the state has no room. */
    boolean keep(ClientState state) {
        return true;
    }

    static final class Stop extends Command {
        @Override
        void perform(ClientCore core, long now) {
            core.stop(now);
        }

        @Override
        boolean alwaysFindsRoom() {
            return true;
        }
    }

    static final class Open extends Command {
        private final Identifier id;

        Open(Identifier id) {
            this.id = id;
        }

        @Override
        void perform(ClientCore core, long now) {
            core.reports().open(id, now);
        }

        @Override
        boolean isKept() {
            return true;
        }

        @Override
        boolean keep(ClientState state) {
            state.noteOpened(id);
            return true;
        }
    }

    static final class Seen extends Command {
        private final Identifier id;

        Seen(Identifier id) {
            this.id = id;
        }

        @Override
        void perform(ClientCore core, long now) {
            core.reports().see(id);
        }

        @Override
        boolean isKept() {
            return true;
        }

        @Override
        boolean keep(ClientState state) {
            state.noteSeen(id);
            return true;
        }
    }

    static final class Report extends Command {
        private final MessageReport report;

        Report(MessageReport report) {
            this.report = report;
        }

        @Override
        void perform(ClientCore core, long now) {
            core.reports().note(report, now);
        }

        @Override
        boolean isKept() {
            return true;
        }

        @Override
        boolean keep(ClientState state) {
            state.note(report);
            return true;
        }
    }

    static final class RemoveTokens extends Command {
        private final VendorToken.Channel channel;

        RemoveTokens(VendorToken.Channel channel) {
            this.channel = channel;
        }

        @Override
        void perform(ClientCore core, long now) {
            core.settings().removeTokens(channel, now);
        }

        @Override
        boolean isKept() {
            return true;
        }

        @Override
        boolean keep(ClientState state) {
            state.removedTokens.add(channel);
            return true;
        }
    }

    static final class Send extends Command {
        private final byte[] payload;
        private final Identifier task;

        Send(byte[] payload, Identifier task) {
            this.payload = payload;
            this.task = task;
        }

        @Override
        void perform(ClientCore core, long now) {
            core.upstream().send(payload, task, now);
        }

        @Override
        boolean isKept() {
            return true;
        }

        @Override
        boolean keep(ClientState state) {
            return state.keep(payload, task) != null;
        }
    }

    static final class Ask extends Command {
        private final NamesRequest names;

        Ask(NamesRequest names) {
            this.names = names;
        }

        @Override
        void perform(ClientCore core, long now) {
            core.names().ask(names, now);
        }
    }

    static final class Finish extends Command {
        private final ReceivedMessage message;
        private final ReceivedMessage.Verdict verdict;
        private final String reason;

        Finish(ReceivedMessage message, ReceivedMessage.Verdict verdict, String reason) {
            this.message = message;
            this.verdict = verdict;
            this.reason = reason;
        }

        @Override
        void perform(ClientCore core, long now) {
            core.finish(message, verdict, reason);
        }

        @Override
        boolean isKept() {
            return true;
        }

        @Override
        boolean alwaysFindsRoom() {
            return true;
        }

        @Override
        boolean keep(ClientState state) {
            if (!state.isOrigin(message)) {
                return true;
            }
            if (verdict == ReceivedMessage.Verdict.PROCESSED) {
                state.noteProcessed(message);
                state.stream(message.stream).insertAlone(message.sequence);
            } else if (verdict == ReceivedMessage.Verdict.REJECTED) {
                state.note(new Rejection(message.stream, message.sequence, reason));
            }
            return true;
        }
    }

    static final class FinishRevoke extends Command {
        private final long sequence;

        FinishRevoke(long sequence) {
            this.sequence = sequence;
        }

        @Override
        void perform(ClientCore core, long now) {
            core.finishRevoke(sequence);
        }

        @Override
        boolean alwaysFindsRoom() {
            return true;
        }
    }
}
