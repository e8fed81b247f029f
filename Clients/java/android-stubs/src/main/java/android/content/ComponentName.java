package android.content;

public final class ComponentName {
    private final String name;

    public ComponentName(String packageName, String className) {
        name = packageName + "/" + className;
    }

    public String flattenToString() {
        return name;
    }
}
