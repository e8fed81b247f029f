package longwire.client;

import java.util.Map;

/** The driver's access to parts of the client that are not in the library's interface. */
public final class DriverAccess {
    private DriverAccess() {}

    /**
     * Reads an object.
     *
     * @param line the text
     * @return its members
     * @throws IllegalArgumentException for any other text
     */
    public static Map<String, Object> parse(String line) {
        return JsonReader.object(line);
    }

    /**
     * Sets the wait for the result of a request about names.
     *
     * @param configuration the settings to change
     * @param milliseconds the wait
     */
    public static void setNamesTime(ClientConfiguration configuration, long milliseconds) {
        configuration.setNamesTime(milliseconds);
    }
}
