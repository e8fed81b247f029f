package longwire.client;

import java.util.Map;

/** The driver's access to the client's JSON reader, which is not part of the library's interface. */
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
}
