package android.os;

public class Build {
    public static final String MANUFACTURER = "stub";
    public static final String BRAND = "stub";
    public static final String MODEL = "stub";

    public static class VERSION {
        public static final String RELEASE = "14";
        public static final int SDK_INT = Integer.parseInt("34");
    }
}
