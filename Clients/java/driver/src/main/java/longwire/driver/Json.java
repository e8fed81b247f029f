package longwire.driver;

/** A writer of flat JSON objects, one a line. */
final class Json {
    private Json() {}

    /** Writes an object from names and values in turn; values are texts, numbers, booleans or {@code null}. */
    static String object(Object... pairs) {
        StringBuilder out = new StringBuilder("{");
        for (int index = 0; index < pairs.length; index += 2) {
            if (index > 0) {
                out.append(',');
            }
            quote(out, (String) pairs[index]);
            out.append(':');
            Object value = pairs[index + 1];
            if (value instanceof String) {
                quote(out, (String) value);
            } else {
                out.append(value);
            }
        }
        return out.append('}').toString();
    }

    private static void quote(StringBuilder out, String text) {
        out.append('"');
        for (int index = 0; index < text.length(); index++) {
            char character = text.charAt(index);
            if (character == '"' || character == '\\') {
                out.append('\\').append(character);
            } else if (character < ' ' || character > '~') {
                out.append(String.format("\\u%04x", (int) character));
            } else {
                out.append(character);
            }
        }
        out.append('"');
    }
}
