package android.app;

public final class NotificationChannel {
    private final String id;

    public NotificationChannel(String id, CharSequence name, int importance) {
        this.id = id;
    }

    public String getId() {
        return id;
    }
}
