package android.os;

import java.util.HashMap;
import java.util.Map;

public final class Bundle {
    private final Map<String, Object> values = new HashMap<>();

    public Object get(String key) {
        return values.get(key);
    }

    public String getString(String key) {
        return (String) values.get(key);
    }

    public void putString(String key, String value) {
        values.put(key, value);
    }
}
