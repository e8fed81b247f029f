package longwire.client;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** A queue of the app's calls for the client's thread. */
final class Mailbox {
    /** The queued calls, or {@code null} once the mailbox is closed; guarded by this object's monitor. */
    private List<Command> commands = new ArrayList<>();
    private volatile Runnable wake = () -> {};

    /** Sets the function that wakes the client's thread. */
    void setWake(Runnable wake) {
        this.wake = wake;
    }

    /**
     * Returns false when the mailbox is closed or full. It is full if the app makes thousands of calls while a callback
     * does not return.
     */
    boolean post(Command command) {
        synchronized (this) {
            boolean isFull = commands != null && commands.size() >= Limits.COMMAND_COUNT && !command.alwaysFindsRoom();
            if (commands == null || isFull) {
                return false;
            }
            commands.add(command);
        }
        wake.run();
        return true;
    }

    /** Wakes the client's thread without a call. */
    void wake() {
        wake.run();
    }

    synchronized boolean isShut() {
        return commands == null;
    }

    synchronized boolean isEmpty() {
        return commands == null || commands.isEmpty();
    }

    synchronized List<Command> take() {
        if (commands == null || commands.isEmpty()) {
            return Collections.emptyList();
        }
        List<Command> taken = commands;
        commands = new ArrayList<>();
        return taken;
    }

    /** Closes the mailbox and returns the calls that the client's thread did not take. */
    synchronized List<Command> shut() {
        List<Command> rest = commands == null ? Collections.emptyList() : commands;
        commands = null;
        return rest;
    }
}
