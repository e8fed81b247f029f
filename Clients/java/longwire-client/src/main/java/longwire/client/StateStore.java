package longwire.client;

/**
 * A store for the client's state.
 *
 * <p>Calls come from one thread at a time: the client's thread, or the caller's before the start and after the stop.
 */
public interface StateStore {
    /**
     * Returns the stored state.
     *
     * @return the bytes of the last {@link #save}, or {@code null} if none were ever stored
     * @throws LongwireException when a state exists and cannot be read. Do not return {@code null} in that case: the
     *     device would register anew and lose its queue.
     */
    byte[] load() throws LongwireException;

    /**
     * Replaces the stored state.
     *
     * <p>After a return the new state must survive a crash of the machine.
     *
     * @param state the bytes to store
     * @throws LongwireException when the state cannot be stored. The old state must be intact then.
     */
    void save(byte[] state) throws LongwireException;
}
