package longwire.client;

/** The state of the app, which decides whether the gateway counts the device as reachable. */
public enum ApplicationState {
    /** The app is in use. */
    FOREGROUND(0),
    /** The app runs in the background, or is about to be suspended. */
    BACKGROUND(1),
    /** The app is about to end. */
    TERMINATED(2);

    private final int number;

    ApplicationState(int number) {
        this.number = number;
    }

    int number() {
        return number;
    }
}
