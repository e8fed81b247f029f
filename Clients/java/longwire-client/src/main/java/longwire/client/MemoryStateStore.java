package longwire.client;

/** A store in memory, for tests and for devices that may register anew at each start. */
public final class MemoryStateStore implements StateStore {
    private byte[] state;

    /** Creates an empty store. */
    public MemoryStateStore() {}

    @Override
    public synchronized byte[] load() {
        return state == null ? null : state.clone();
    }

    @Override
    public synchronized void save(byte[] newState) {
        state = newState.clone();
    }
}
