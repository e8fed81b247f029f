package android.content;

import java.util.HashMap;
import java.util.Map;

public class Intent {
    public static final int FLAG_ACTIVITY_NEW_TASK = 0x10000000;
    public static final int FLAG_ACTIVITY_SINGLE_TOP = 0x20000000;

    private String action;
    private String target;
    private final Map<String, String> extras = new HashMap<>();

    public Intent() {}

    public Intent(String action) {
        this.action = action;
    }

    public Intent(Context context, Class<?> target) {
        this.target = target.getName();
    }

    public String getAction() {
        return action;
    }

    public Intent setPackage(String packageName) {
        return this;
    }

    public Intent setClassName(Context context, String className) {
        target = className;
        return this;
    }

    public String target() {
        return target;
    }

    public Intent addFlags(int flags) {
        return this;
    }

    public Intent putExtra(String name, String value) {
        extras.put(name, value);
        return this;
    }

    public String getStringExtra(String name) {
        return extras.get(name);
    }

    public void removeExtra(String name) {
        extras.remove(name);
    }
}
