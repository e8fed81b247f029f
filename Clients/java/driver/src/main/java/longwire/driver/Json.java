package longwire.driver;

import java.util.List;

/** A writer of JSON objects, one per line. */
final class Json {
    private Json() {}

    /** Writes an object from alternating names and values: texts, numbers, booleans, lists of these, {@code null}. */
    static String object(Object... pairs) {
        StringBuilder out = new StringBuilder("{");
        for (int index = 0; index < pairs.length; index += 2) {
            if (index > 0) {
                out.append(',');
            }
            quote(out, (String) pairs[index]);
            out.append(':');
            value(out, pairs[index + 1]);
        }
        return out.append('}').toString();
    }

    private static void value(StringBuilder out, Object value) {
        if (value instanceof String) {
            quote(out, (String) value);
        } else if (value instanceof List) {
            out.append('[');
            String separator = "";
            for (Object element : (List<?>) value) {
                out.append(separator);
                value(out, element);
                separator = ",";
            }
            out.append(']');
        } else {
            out.append(value);
        }
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
