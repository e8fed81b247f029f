package longwire.android;

import android.app.Notification;
import android.app.NotificationChannel;
import android.app.NotificationManager;
import android.app.PendingIntent;
import android.content.Context;
import android.content.Intent;
import longwire.client.Identifier;
import longwire.client.ReceivedMessage;
import longwire.client.VendorPush;

/**
 * The display of messages as notifications of one channel.
 *
 * <p>A notification is tagged with its task, so that a revoke of the task removes it. A tap opens the app's launcher
 * activity, with the message's ids in the intent.
 */
public final class MessageNotifications {
    private static final int ID = 1;

    private final Context context;
    private final NotificationManager manager;
    private final String channel;
    private final int icon;
    private volatile int number;
    private volatile TapCheck taps;

    /**
     * Creates the display and its channel.
     *
     * @param context the app
     * @param channel the channel's id
     * @param name the channel's name in the system's settings
     * @param icon a drawable for the status bar, or 0 for an icon of the system
     */
    public MessageNotifications(Context context, String channel, String name, int icon) {
        this.context = context;
        this.channel = channel;
        // The system refuses a notification without an icon. This is android.R.drawable.ic_dialog_info.
        this.icon = icon == 0 ? 0x0108009b : icon;
        manager = (NotificationManager) context.getSystemService(Context.NOTIFICATION_SERVICE);
        manager.createNotificationChannel(
            new NotificationChannel(channel, name, NotificationManager.IMPORTANCE_DEFAULT));
    }

    /**
     * Shows a message's alert.
     *
     * @param message a message with an alert
     * @return false when the user has switched the app's notifications off
     */
    public boolean show(ReceivedMessage message) {
        if (!manager.areNotificationsEnabled()) {
            return false;
        }
        Notification.Builder builder = new Notification.Builder(context, channel)
            .setSmallIcon(icon)
            .setContentTitle(message.title())
            .setContentText(message.body())
            .setStyle(new Notification.BigTextStyle().bigText(message.body()))
            .setAutoCancel(true);
        if (number > 0) {
            builder.setNumber(number);
        }
        Intent tap = context.getPackageManager().getLaunchIntentForPackage(context.getPackageName());
        if (tap != null) {
            tap.addFlags(Intent.FLAG_ACTIVITY_SINGLE_TOP);
            String ids = message.taskId().taskText() + ":" + message.messageId();
            tap.putExtra(VendorPush.IDS_KEY, ids);
            tap.putExtra(VendorPush.PAYLOAD_KEY, message.text());
            if (taps != null) {
                tap.putExtra(TapCheck.SEAL_KEY, taps.seal(ids, message.text()));
            }
            // The request distinguishes the intents of two messages, whose extras the system does not compare.
            builder.setContentIntent(PendingIntent.getActivity(
                context, message.messageId().hashCode(), tap,
                PendingIntent.FLAG_UPDATE_CURRENT | PendingIntent.FLAG_IMMUTABLE));
        }
        manager.notify(message.taskId().toString(), ID, builder.build());
        return true;
    }

    /**
     * Removes the notification of a task.
     *
     * @param taskId the task
     */
    public void remove(Identifier taskId) {
        manager.cancel(taskId.toString(), ID);
    }

    /** Removes all notifications of the app. */
    public void removeAll() {
        manager.cancelAll();
    }

    /** Sets the object that seals the intents of taps. */
    void setTaps(TapCheck check) {
        taps = check;
    }

    void setNumber(int newNumber) {
        number = newNumber;
    }
}
