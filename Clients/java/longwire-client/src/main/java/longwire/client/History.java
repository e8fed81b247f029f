package longwire.client;

/** The messages that this run and earlier ones have processed, opened or shown. */
final class History {
    private final CallBoard calls;
    private final String appId;
    private final VendorCopies copies = new VendorCopies();
    private final RecentIds opened = new RecentIds();
    private final RecentIds shown = new RecentIds();
    /** Whether the messages of earlier runs are included; guarded by this object's monitor. */
    private boolean isLoaded;

    History(CallBoard calls, String appId) {
        this.calls = calls;
        this.appId = appId;
    }

    /** Returns the filter of vendors' copies. */
    VendorCopies copies() {
        load();
        return copies;
    }

    RecentIds opened() {
        load();
        return opened;
    }

    RecentIds shown() {
        load();
        return shown;
    }

    /** Adds the state of the client that starts, or {@code null}. */
    synchronized void note(ClientState state) {
        if (state != null && state.appId.equals(appId)) {
            copies.addAll(state.seen);
            opened.addAll(state.opened);
            shown.addAll(state.shown);
        }
        isLoaded = true;
    }

    /** Forgets the taps that the store may lack, so that the app can record them again. */
    synchronized void forgetOpened() {
        opened.clear();
        isLoaded = false;
    }

    private synchronized void load() {
        if (isLoaded) {
            return;
        }
        try {
            byte[] bytes = calls.load();
            note(bytes == null ? null : ClientState.parse(bytes));
        } catch (LongwireException error) {
            // The next call tries again, and the next start reports the fault.
            return;
        }
    }
}
