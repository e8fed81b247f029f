package longwire.android;

import longwire.client.Listener;
import longwire.client.ReceivedMessage;
import longwire.client.VendorPush;

/** The app's callbacks on Android: those of the client, and those of notifications. They run on the main thread. */
public interface DeviceListener extends Listener {
    /**
     * Decides whether a message with an alert is shown as a notification, before {@link #onMessage}. Each message is
     * shown once, also if the app defers it and it arrives again.
     *
     * @param message a message with an alert
     * @return by default true, unless a vendor has shown it already
     */
    default boolean showsNotification(ReceivedMessage message) {
        return message.alertedAt() == 0 && !message.wasOpened();
    }

    /**
     * Reports that a notification was shown.
     *
     * @param message its message
     */
    default void onNotificationShown(ReceivedMessage message) {}

    /**
     * Reports a tap on a notification of this client or of a vendor, once for each message.
     *
     * @param push the ids, and the payload if the notification has it
     */
    default void onNotificationTapped(VendorPush push) {}

    /**
     * Reports a tap that may be forged: its message has not arrived, and its intent has no seal of this library.
     *
     * <p>The intent belongs to a vendor's notification, or another app has made it. {@link #onNotificationTapped} follows
     * when the message arrives over the connection. Do not trust the payload before that.
     *
     * @param push the ids, and the payload if the intent has it
     */
    default void onUnconfirmedTap(VendorPush push) {}
}
