package longwire.client;

import java.util.ArrayList;
import java.util.List;

/** The reports of taps, shown messages and actions, which are kept until the gateway has confirmed them. */
final class Reports {
    private final ClientCore core;
    /** The nonce of the Ping after the Feedback in flight. Its Pong confirms the Feedback, because frames are in order. */
    private long reportNonce;
    private List<Identifier> sentOpened;
    private List<MessageReport> sentReports;

    Reports(ClientCore core) {
        this.core = core;
    }

    void open(Identifier id, long now) {
        core.state.noteOpened(id);
        // The state is stored at once, because the system may kill the app at any moment.
        core.persist();
        resume(now);
    }

    /** Records a message that arrived through a vendor, so that its copy on the connection is suppressed. */
    void see(Identifier id) {
        core.state.noteSeen(id);
        core.persist();
    }

    /** Keeps the report, across sessions and restarts, until the gateway has confirmed it. */
    void note(MessageReport report, long now) {
        if (core.state.note(report)) {
            core.markDirty();
            resume(now);
        }
    }

    /** Sends Feedback for the opened messages that did not fit into Hello, and for later reports. */
    void resume(long now) {
        boolean isNothing = core.state.unreportedOpened.isEmpty() && core.state.unreported.isEmpty();
        if (!core.isReady() || sentReports != null || isNothing) {
            return;
        }
        sentOpened = new ArrayList<>(core.state.unreportedOpened);
        sentReports = new ArrayList<>(core.state.unreported);
        for (Identifier id : sentOpened) {
            core.send(Frames.feedback(0, id, 0), now);
        }
        for (MessageReport report : sentReports) {
            core.send(Frames.feedback(report.action == 0 ? 1 : 2, report.messageId, report.action), now);
        }
        reportNonce = core.sendPing(now);
    }

    void settle(long nonce, long now) {
        if (sentReports == null || nonce != reportNonce) {
            return;
        }
        core.state.unreportedOpened.removeAll(sentOpened);
        core.state.unreported.removeAll(sentReports);
        sentOpened = null;
        sentReports = null;
        core.markDirty();
        resume(now);
    }

    /** Marks the Feedback in flight as not sent, because the session has ended. */
    void leaveSession() {
        sentOpened = null;
        sentReports = null;
    }
}
