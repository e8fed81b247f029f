package longwire.driver;

import java.util.LinkedHashMap;
import java.util.Map;

/** One JSON object a line: a reader for flat objects of texts, numbers and booleans, and a writer for the same. */
final class Json {
    private final String text;
    private int offset;

    private Json(String text) {
        this.text = text;
    }

    /**
     * Reads an object; nested values are refused.
     *
     * @throws IllegalArgumentException for any other text
     */
    static Map<String, Object> parse(String line) {
        Json json = new Json(line);
        Map<String, Object> object = json.object();
        json.skipBlanks();
        if (json.offset != line.length()) {
            throw json.fault("text behind the object");
        }
        return object;
    }

    private IllegalArgumentException fault(String reason) {
        return new IllegalArgumentException(reason + " at character " + offset + " of: " + text);
    }

    private void skipBlanks() {
        while (offset < text.length() && Character.isWhitespace(text.charAt(offset))) {
            offset++;
        }
    }

    private char next() {
        skipBlanks();
        if (offset >= text.length()) {
            throw fault("the object ends too early");
        }
        return text.charAt(offset++);
    }

    private Map<String, Object> object() {
        Map<String, Object> object = new LinkedHashMap<>();
        if (next() != '{') {
            throw fault("no object");
        }
        char character = next();
        while (character != '}') {
            if (character != '"') {
                throw fault("no name");
            }
            String name = string();
            if (next() != ':') {
                throw fault("no colon");
            }
            object.put(name, value());
            character = next();
            if (character == ',') {
                character = next();
            } else if (character != '}') {
                throw fault("no comma");
            }
        }
        return object;
    }

    private Object value() {
        char character = next();
        if (character == '"') {
            return string();
        }
        int start = offset - 1;
        while (offset < text.length() && "+-.0123456789abcdefghijklmnopqrstuvwxyzE".indexOf(text.charAt(offset)) >= 0) {
            offset++;
        }
        String word = text.substring(start, offset);
        switch (word) {
            case "true": return true;
            case "false": return false;
            case "null": return null;
            default:
                try {
                    return Long.parseLong(word);
                } catch (NumberFormatException error) {
                    throw fault("no value");
                }
        }
    }

    private String string() {
        StringBuilder value = new StringBuilder();
        while (offset < text.length()) {
            char character = text.charAt(offset++);
            if (character == '"') {
                return value.toString();
            }
            if (character != '\\') {
                value.append(character);
                continue;
            }
            char escaped = offset < text.length() ? text.charAt(offset++) : ' ';
            switch (escaped) {
                case 'n': value.append('\n'); break;
                case 't': value.append('\t'); break;
                case 'r': value.append('\r'); break;
                case 'b': value.append('\b'); break;
                case 'f': value.append('\f'); break;
                case '"':
                case '\\':
                case '/': value.append(escaped); break;
                case 'u':
                    if (offset + 4 > text.length()) {
                        throw fault("an escape is cut short");
                    }
                    value.append((char) Integer.parseInt(text.substring(offset, offset + 4), 16));
                    offset += 4;
                    break;
                default: throw fault("an unknown escape");
            }
        }
        throw fault("a text without an end");
    }

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
