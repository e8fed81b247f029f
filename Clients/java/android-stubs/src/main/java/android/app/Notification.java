package android.app;

import android.content.Context;

public class Notification {
    public String title;
    public String text;
    public String channel;
    public int number;
    public PendingIntent tap;

    public static class BigTextStyle extends Style {
        public BigTextStyle bigText(CharSequence text) {
            return this;
        }
    }

    public abstract static class Style {}

    public static class Builder {
        private final Notification notification = new Notification();

        public Builder(Context context, String channel) {
            notification.channel = channel;
        }

        public Builder setContentTitle(CharSequence title) {
            notification.title = title.toString();
            return this;
        }

        public Builder setContentText(CharSequence text) {
            notification.text = text.toString();
            return this;
        }

        public Builder setStyle(Style style) {
            return this;
        }

        public Builder setSmallIcon(int icon) {
            return this;
        }

        public Builder setNumber(int number) {
            notification.number = number;
            return this;
        }

        public Builder setAutoCancel(boolean isCancelled) {
            return this;
        }

        public Builder setContentIntent(PendingIntent intent) {
            notification.tap = intent;
            return this;
        }

        public Notification build() {
            return notification;
        }
    }
}
