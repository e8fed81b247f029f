package longwire.client;

/** A callback with its values, ready to be made. */
interface Event {
    void report(Listener listener);
}
