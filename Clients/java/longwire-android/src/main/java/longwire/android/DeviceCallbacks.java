package longwire.android;

import longwire.client.ForwardingListener;
import longwire.client.Identifier;
import longwire.client.ReceivedMessage;

/** The app's listener, with notifications shown and withdrawn on the way. */
final class DeviceCallbacks extends ForwardingListener {
    private final DeviceListener listener;
    private final MessageNotifications notifications;
    private final LongwireDevice device;

    DeviceCallbacks(DeviceListener listener, MessageNotifications notifications, LongwireDevice device) {
        super(listener);
        this.listener = listener;
        this.notifications = notifications;
        this.device = device;
    }

    @Override
    public void onMessage(ReceivedMessage message) {
        device.confirmTap(message);
        // A message that the app deferred arrives again, and its notification was shown.
        boolean isDue = message.hasAlert() && !device.client().wasShown(message.messageId());
        if (isDue && listener.showsNotification(message) && notifications.show(message)) {
            device.reportShown(message.messageId());
            listener.onNotificationShown(message);
        }
        super.onMessage(message);
    }

    @Override
    public void onRevoked(Identifier taskId) {
        notifications.remove(taskId);
        super.onRevoked(taskId);
    }
}
