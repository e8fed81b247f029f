package longwire.client;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * The router of the app's calls.
 *
 * <p>Calls go to the client's thread while the client runs. Otherwise taps, reports, messages and verdicts are written
 * to the store. A tap before the start or after a stop therefore survives the end of the process. A call whose write
 * failed is refused. It stays in memory for the next attempt, unless it is a message to the server, which the app may
 * send again. At most {@code Limits.KEPT_CALL_COUNT} calls stay. One monitor guards all fields and the store's use. A
 * holder of the monitor never waits for the client's thread.
 */
final class CallBoard {
    /** A function that reads the state of the client that starts. */
    interface Loader {
        ClientState load() throws LongwireException;
    }

    private final StateStore store;
    private final String appId;
    /** The mailbox of the running client, or {@code null}. */
    private Mailbox mailbox;
    private List<Command> kept = new ArrayList<>();

    CallBoard(StateStore store, String appId) {
        this.store = store;
        this.appId = appId;
    }

    synchronized boolean isRunning() {
        return mailbox != null;
    }

    /** Returns false when the client does not run, or when its mailbox is full. */
    synchronized boolean post(Command command) {
        return mailbox != null && mailbox.post(command);
    }

    synchronized void wake() {
        if (mailbox != null) {
            mailbox.wake();
        }
    }

    /** Returns false when the call can be neither posted nor stored. */
    synchronized boolean postOrKeep(Command command) {
        if (post(command)) {
            return true;
        }
        boolean isMailboxFull = mailbox != null && !mailbox.isShut();
        if (isMailboxFull || kept.size() >= Limits.KEPT_CALL_COUNT) {
            return false;
        }
        kept.add(command);
        // A client that is ending stores the call in `release`.
        if (mailbox != null || flush()) {
            return true;
        }
        if (command instanceof Command.Send) {
            kept.remove(command);
        }
        return false;
    }

    /** Writes the kept calls. Returns false if that fails, or if the state has no room for the last call. */
    private boolean flush() {
        if (kept.isEmpty()) {
            return true;
        }
        try {
            byte[] old = store.load();
            ClientState state = old == null ? new ClientState(appId) : ClientState.parse(old);
            if (!state.appId.equals(appId)) {
                if (state.isRegistered()) {
                    return false;
                }
                // The start does not use this state either.
                state = new ClientState(appId);
            }
            boolean isTaken = true;
            for (Command command : kept) {
                isTaken = command.keep(state);
            }
            byte[] changed = state.serialize();
            if (!Arrays.equals(changed, old)) {
                store.save(changed);
            }
            kept = new ArrayList<>();
            return isTaken;
        } catch (LongwireException error) {
            // The next call, start or stop tries again.
            return false;
        }
    }

    /**
     * Stores the kept calls, reads the state and switches to the client that starts with this state.
     *
     * <p>The steps are one critical section. Otherwise the client could overwrite a call that was stored after it read
     * the state. Calls that could not be stored are posted to the client. {@link #release} takes them back if the client
     * does not start.
     */
    synchronized ClientState run(Mailbox running, Loader loader) throws LongwireException {
        flush();
        ClientState state = loader.load();
        mailbox = running;
        for (Command command : kept) {
            running.post(command);
        }
        kept = new ArrayList<>();
        return state;
    }

    /** Reads the stored state of a client that does not run. */
    synchronized byte[] load() throws LongwireException {
        return store.load();
    }

    /** Marks that no client runs, and stores the calls that arrived too late for the client's thread. */
    synchronized void release() {
        if (mailbox != null) {
            for (Command command : mailbox.shut()) {
                if (command.isKept()) {
                    kept.add(command);
                }
            }
        }
        mailbox = null;
        flush();
    }
}
