package longwire.client;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A reader of one JSON object with texts, whole numbers, booleans, and arrays of these. All other values are read as
 * {@code null}.
 */
final class JsonReader {
    /** The maximum nesting, so that hostile text cannot exhaust the stack. */
    private static final int DEPTH = 32;

    private final String text;
    private int offset;

    private JsonReader(String text) {
        this.text = text;
    }

    /**
     * Reads an object.
     *
     * @throws IllegalArgumentException for any other text
     */
    static Map<String, Object> object(String text) {
        JsonReader reader = new JsonReader(text);
        Map<String, Object> members = new HashMap<>();
        reader.readObject(members, 0);
        if (reader.next() != 0) {
            throw new IllegalArgumentException("text behind the object");
        }
        return members;
    }

    /** Returns the next character after white space, or 0 at the end. */
    private char next() {
        while (offset < text.length()) {
            char character = text.charAt(offset++);
            if (character != ' ' && character != '\n' && character != '\r' && character != '\t') {
                return character;
            }
        }
        return 0;
    }

    private void expect(char wanted) {
        if (next() != wanted) {
            throw new IllegalArgumentException("no " + wanted);
        }
    }

    private void readObject(Map<String, Object> members, int depth) {
        expect('{');
        char character = next();
        while (character != '}') {
            if (character != '"') {
                throw new IllegalArgumentException("no name");
            }
            String name = string();
            expect(':');
            Object value = value(depth + 1);
            if (members != null) {
                members.put(name, value);
            }
            character = next();
            if (character == ',') {
                character = next();
            } else if (character != '}') {
                throw new IllegalArgumentException("no comma");
            }
        }
    }

    private Object value(int depth) {
        if (depth > DEPTH) {
            throw new IllegalArgumentException("nested too deeply");
        }
        char character = next();
        if (character == '"') {
            return string();
        }
        if (character == '{') {
            offset--;
            readObject(null, depth);
            return null;
        }
        if (character == '[') {
            return array(depth);
        }
        int start = offset - 1;
        while (offset < text.length()
            && "+-.0123456789abcdefghijklmnopqrstuvwxyzE".indexOf(text.charAt(offset)) >= 0) {
            offset++;
        }
        String word = text.substring(start, offset);
        if (word.equals("true") || word.equals("false")) {
            return word.equals("true");
        }
        if (word.matches("-?[0-9]{1,18}")) {
            return Long.parseLong(word);
        }
        if (!word.matches("null|-?[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)?")) {
            throw new IllegalArgumentException("no value");
        }
        return null;
    }

    private List<Object> array(int depth) {
        List<Object> elements = new ArrayList<>();
        char character = next();
        if (character == ']') {
            return elements;
        }
        offset--;
        while (true) {
            elements.add(value(depth + 1));
            character = next();
            if (character == ']') {
                return elements;
            }
            if (character != ',') {
                throw new IllegalArgumentException("no comma");
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
            char escaped = offset < text.length() ? text.charAt(offset++) : 0;
            int plain = "bfnrt\"\\/".indexOf(escaped);
            if (plain >= 0) {
                value.append("\b\f\n\r\t\"\\/".charAt(plain));
            } else if (escaped == 'u' && offset + 4 <= text.length()) {
                value.append((char) Integer.parseInt(text.substring(offset, offset + 4), 16));
                offset += 4;
            } else {
                throw new IllegalArgumentException("an unknown escape");
            }
        }
        throw new IllegalArgumentException("a text without an end");
    }
}
