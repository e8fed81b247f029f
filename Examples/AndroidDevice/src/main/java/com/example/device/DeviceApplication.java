package com.example.device;

import android.app.Application;
import java.util.ArrayList;
import java.util.List;
import longwire.android.DeviceListener;
import longwire.android.LongwireDevice;
import longwire.android.MessageNotifications;
import longwire.client.ClientConfiguration;
import longwire.client.Identifier;
import longwire.client.LongwireException;
import longwire.client.ReceivedMessage;
import longwire.client.VendorPush;

/** Starts the device with the process: an activity, a vendor's service and a tap all find it. */
public class DeviceApplication extends Application implements DeviceListener {
    /** The lines of the list; a real app stores a message in its database before it ends it. */
    static final List<String> LINES = new ArrayList<>();
    static Runnable whenChanged = () -> {};

    @Override
    public void onCreate() {
        super.onCreate();
        ClientConfiguration gateway =
            new ClientConfiguration("push.example.com", 7443, "demo").setAppSecret("demo-app-secret");
        LongwireDevice.Options options = new LongwireDevice.Options()
            .setNotifications(new MessageNotifications(this, "orders", "Orders", 0));
        try {
            LongwireDevice.start(this, gateway, options, this).useVendors(new FcmAdapter());
        } catch (LongwireException error) {
            add("cannot start: " + error);
        }
    }

    static void add(String line) {
        LINES.add(line);
        whenChanged.run();
    }

    @Override
    public void onMessage(ReceivedMessage message) {
        add(message.text());
        message.processed();
    }

    @Override
    public void onNotificationTapped(VendorPush push) {
        add("tapped " + push.messageId());
    }

    @Override
    public void onRevoked(Identifier taskId) {
        add("revoked " + taskId.taskText());
    }

    @Override
    public void onStopped(LongwireException error) {
        add("stopped: " + error);
    }
}
