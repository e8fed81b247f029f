package android.app;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

public class NotificationManager {
    public static final int IMPORTANCE_LOW = 2;
    public static final int IMPORTANCE_DEFAULT = 3;

    public final List<String> channels = new ArrayList<>();
    public final Map<String, Notification> shown = new TreeMap<>();

    public void createNotificationChannel(NotificationChannel channel) {
        channels.add(channel.getId());
    }

    public boolean areNotificationsEnabled() {
        return true;
    }

    public void notify(String tag, int id, Notification notification) {
        shown.put(tag + "#" + id, notification);
    }

    public void cancel(String tag, int id) {
        shown.remove(tag + "#" + id);
    }

    public void cancelAll() {
        shown.clear();
    }
}
