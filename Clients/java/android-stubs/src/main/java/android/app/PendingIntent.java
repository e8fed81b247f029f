package android.app;

import android.content.Context;
import android.content.Intent;

public final class PendingIntent {
    public static final int FLAG_UPDATE_CURRENT = 1 << 27;
    public static final int FLAG_IMMUTABLE = 1 << 26;

    public final Intent intent;

    private PendingIntent(Intent intent) {
        this.intent = intent;
    }

    public static PendingIntent getBroadcast(Context context, int request, Intent intent, int flags) {
        return new PendingIntent(intent);
    }

    public static PendingIntent getActivity(Context context, int request, Intent intent, int flags) {
        return new PendingIntent(intent);
    }
}
