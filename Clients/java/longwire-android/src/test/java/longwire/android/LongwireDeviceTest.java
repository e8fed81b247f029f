package longwire.android;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotNull;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;
import static org.junit.Assert.fail;

import android.app.Activity;
import android.app.ActivityManager;
import android.app.Notification;
import android.content.Context;
import android.content.Intent;
import android.net.Network;
import android.net.NetworkCapabilities;
import android.os.Handler;
import android.os.Looper;
import java.io.File;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import longwire.client.ClientConfiguration;
import longwire.client.FakeGateway;
import longwire.client.FileStateStore;
import longwire.client.LongwireException;
import longwire.client.NamesAnswer;
import longwire.client.ReceivedMessage;
import longwire.client.VendorMessage;
import longwire.client.VendorPush;
import longwire.client.VendorToken;
import org.junit.After;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** A device on the stubs of Android and a gateway on the loopback address. */
public class LongwireDeviceTest implements DeviceListener {
    @Rule
    public final TemporaryFolder folder = new TemporaryFolder();
    private final BlockingQueue<String> events = new LinkedBlockingQueue<>();

    @Override
    public void onMessage(ReceivedMessage message) {
        events.add("message " + message.text());
        if (message.text().equals("throw")) {
            throw new IllegalStateException("the app's fault");
        }
        if (message.text().equals("defer")) {
            message.deferred();
        } else {
            message.processed();
        }
    }

    @Override
    public void onCallbackFailed(RuntimeException error) {
        events.add(error.getMessage());
    }

    @Override
    public void onNames(NamesAnswer answer) {
        events.add("names " + answer.request() + " " + answer.code());
    }

    @Override
    public void onNotificationShown(ReceivedMessage message) {
        events.add("shown " + message.title());
    }

    @Override
    public void onNotificationTapped(VendorPush push) {
        events.add("tapped " + push.payload());
    }

    @Override
    public void onUnconfirmedTap(VendorPush push) {
        events.add("unconfirmed " + push.payload());
    }

    private static Intent intent(String ids, String payload, String seal) {
        return new Intent("main").putExtra(VendorPush.IDS_KEY, ids).putExtra(VendorPush.PAYLOAD_KEY, payload)
            .putExtra(TapCheck.SEAL_KEY, seal);
    }

    @Override
    public void onVendorMessage(VendorMessage message) {
        events.add("vendor " + message.push().payload());
        message.processed();
    }

    @Override
    public void onStopped(LongwireException error) {
        if (error != null) {
            events.add("stopped " + error.getMessage());
        }
    }

    private String next() throws Exception {
        return events.poll(FakeGateway.PATIENCE_SECONDS, TimeUnit.SECONDS);
    }

    /** A vendor whose first request fails. */
    private static final class Fcm implements VendorAdapter {
        private int requestCount;

        @Override
        public VendorToken.Channel channel() {
            return VendorToken.Channel.FCM;
        }

        @Override
        public boolean isAvailable(Context context) {
            return true;
        }

        @Override
        public void requestToken(Context context, TokenReceiver receiver) {
            if (requestCount++ == 0) {
                receiver.onFailure("SERVICE_NOT_AVAILABLE");
            } else {
                receiver.onToken("token-1");
            }
        }
    }

    /** Makes this process one without a device, for the next test. */
    @After
    public void forgetTheDevice() throws Exception {
        LongwireDevice.current().stop();
        assertTrue(LongwireDevice.current().client().awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
        Field current = LongwireDevice.class.getDeclaredField("current");
        current.setAccessible(true);
        current.set(null, null);
        ActivityManager.importance = ActivityManager.RunningAppProcessInfo.IMPORTANCE_CACHED;
    }

    private LongwireDevice start(FakePhone phone, FakeGateway gateway) throws Exception {
        ClientConfiguration configuration = new ClientConfiguration("127.0.0.1", gateway.port(), "demo")
            .setAppSecret("secret").setTls(false).setReconnectDelays(1, 10);
        LongwireDevice device =
            LongwireDevice.start(phone.app, configuration, new LongwireDevice.Options(), this);
        gateway.awaitSession();
        return device;
    }

    /** The app starts the device in a visible activity, for example after the user's consent. */
    @Test
    public void aDeviceThatStartsLateKnowsWhetherTheAppIsVisible() throws Exception {
        FakePhone phone = new FakePhone(folder.getRoot());
        try (FakeGateway gateway = new FakeGateway()) {
            ActivityManager.importance = ActivityManager.RunningAppProcessInfo.IMPORTANCE_FOREGROUND;
            start(phone, gateway);
            gateway.deliver(1, "one", null);
            assertEquals("message one", next());

            // The start of the first activity was not reported, but its stop is.
            Activity consent = new Activity();
            Activity home = new Activity();
            phone.app.callbacks.onActivityStarted(home);
            phone.app.callbacks.onActivityResumed(home);
            phone.app.callbacks.onActivityStopped(consent);
            gateway.deliver(2, "two", null);
            assertEquals("message two", next());
            phone.app.callbacks.onActivityStopped(home);
            assertEquals("state 1 runs false", gateway.awaitUpdate());
            phone.app.callbacks.onActivityStarted(home);
            assertEquals("state 0 runs false", gateway.awaitUpdate());
        }
    }

    /** The app does not process its messages at once, so they arrive in each session, also of the next process. */
    @Test
    public void aNotificationIsShownOnce() throws Exception {
        FakePhone phone = new FakePhone(folder.getRoot());
        try (FakeGateway gateway = new FakeGateway()) {
            ActivityManager.importance = ActivityManager.RunningAppProcessInfo.IMPORTANCE_FOREGROUND;
            start(phone, gateway);
            gateway.deliver(1, "defer", "One");
            assertEquals("shown One", next());
            assertEquals("message defer", next());
            assertEquals("1 0 " + FakeGateway.message(1), gateway.awaitFeedback());
            gateway.deliver(2, "throw", "Two");
            assertEquals("shown Two", next());
            assertEquals("message throw", next());
            assertEquals("the app's fault", next());
            assertEquals("1 0 " + FakeGateway.message(2), gateway.awaitFeedback());
            gateway.roundTrip();
            gateway.cut();
            gateway.awaitSession();
            gateway.deliver(1, "defer", "One");
            assertEquals("message defer", next());
            gateway.roundTrip();

            forgetTheDevice();
            ActivityManager.importance = ActivityManager.RunningAppProcessInfo.IMPORTANCE_FOREGROUND;
            LongwireDevice later = start(phone, gateway);
            gateway.deliver(1, "processed", "One");
            assertEquals("message processed", next());
            gateway.awaitAck(1);
            gateway.deliver(2, "throw", "Two");
            assertEquals("message throw", next());
            assertEquals("the app's fault", next());
            later.stop();
            assertTrue(later.client().awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
            String state = new String(
                Files.readAllBytes(new File(folder.getRoot(), "longwire/state").toPath()), StandardCharsets.US_ASCII);
            assertFalse("a processed message is not kept", state.contains("displayed " + FakeGateway.message(1)));
            assertTrue(state.contains("displayed " + FakeGateway.message(2)));
        }
    }

    @Test
    public void aResumedActivityIsVisibleWithoutItsStart() throws Exception {
        FakePhone phone = new FakePhone(folder.getRoot());
        try (FakeGateway gateway = new FakeGateway()) {
            start(phone, gateway);
            phone.app.callbacks.onActivityResumed(new Activity());
            assertEquals("state 0 runs false", gateway.awaitUpdate());
        }
    }

    @Test
    public void aDeviceFollowsItsPhone() throws Exception {
        FakePhone phone = new FakePhone(folder.getRoot());
        try (FakeGateway gateway = new FakeGateway()) {
            ClientConfiguration configuration = new ClientConfiguration("127.0.0.1", gateway.port(), "demo")
                .setRegistrationToken("a.b.c").setTls(false).setReconnectDelays(1, 10);
            // A start with faulty settings fails, and one with others succeeds.
            try {
                LongwireDevice.start(
                    phone.app, new ClientConfiguration("127.0.0.1", 0, "demo"), new LongwireDevice.Options(), this);
                fail("a device without a port was started");
            } catch (LongwireException error) {
                assertEquals(LongwireException.Code.BAD_CONFIGURATION, error.code());
            }
            gateway.refuse("the token has expired");
            LongwireDevice device =
                LongwireDevice.start(phone.app, configuration, new LongwireDevice.Options(), this);
            assertEquals(device, LongwireDevice.current());
            assertEquals("a.b.c", gateway.awaitRegistrationToken());
            // The gateway refuses the token of the app's server; another one registers the device.
            assertEquals("stopped the gateway closed with code 401: the token has expired", next());
            assertTrue(device.client().awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
            assertTrue(device.client().setRegistrationToken("d.e.f"));
            assertEquals(device, LongwireDevice.start(phone.app, configuration, new LongwireDevice.Options(), this));
            assertEquals("d.e.f", gateway.awaitRegistrationToken());
            gateway.awaitSession();
            assertEquals("0 operation 1 token d.e.f", gateway.awaitNames());
            gateway.answerNames(0, 0, "");
            assertEquals("names 0 0", next());
            // Platform 1, the manufacturer of the stubs, and the app's version of the fake package manager.
            assertTrue(gateway.wasGreetedWith("\b\u0001\u0012\u0004stub\u001a\u0004stub\"\u000214*\u00052.7.0"));
            assertTrue(new File(folder.getRoot(), "longwire/state").exists());

            // The device's own names.
            assertEquals(1, device.client().bindAlias("user7", ""));
            assertEquals("1 operation 1 alias user7", gateway.awaitNames());
            gateway.answerNames(1, 0, "");
            assertEquals("names 1 0", next());

            // Visible activities make a foreground app.
            Activity activity = new Activity();
            phone.app.callbacks.onActivityCreated(activity, null);
            phone.app.callbacks.onActivityStarted(activity);
            assertEquals("state 0 runs false", gateway.awaitUpdate());
            phone.app.callbacks.onActivityStarted(new Activity());
            phone.app.callbacks.onActivityStopped(activity);

            // Deliveries before the answer would be dropped. An alert is shown in a channel, reported, and handed to
            // the app.
            gateway.answerUpdate(1);
            gateway.deliver(1, "order 7", "Order");
            assertEquals("shown Order", next());
            assertEquals("message order 7", next());
            assertEquals("1 0 " + FakeGateway.message(1), gateway.awaitFeedback());
            Notification shown = phone.notifications.shown.get(FakeGateway.task(1) + "#1");
            assertEquals("body of Order", shown.text);
            assertTrue(phone.notifications.channels.contains(shown.channel));

            // Its tap is reported once, although the activity is created again.
            activity.setIntent(shown.tap.intent);
            phone.app.callbacks.onActivityCreated(activity, null);
            phone.app.callbacks.onActivityResumed(activity);
            assertEquals("tapped order 7", next());
            assertEquals("0 0 " + FakeGateway.message(1), gateway.awaitFeedback());
            assertNull(events.poll());
            assertNull(phone.notifications.shown.get(FakeGateway.task(1) + "#1"));

            // The system repeats the original intent in a new process.
            String first = FakeGateway.task(1).taskText() + ":" + FakeGateway.message(1);
            activity.setIntent(intent(first, "order 7", shown.tap.intent.getStringExtra(TapCheck.SEAL_KEY)));
            phone.app.callbacks.onActivityCreated(activity, null);
            assertNull("it is counted already", events.poll());

            // A revoke removes the notification of its task.
            gateway.deliver(2, "two", "Two");
            assertEquals("shown Two", next());
            assertEquals("message two", next());
            gateway.revoke(3, 2);
            gateway.awaitAck(3);
            assertTrue(phone.notifications.shown.isEmpty());

            // Another app can forge an intent. A vendor's tap looks the same, and counts after its message has arrived.
            String tapped = FakeGateway.task(4).taskText() + ":" + FakeGateway.message(4);
            assertNull(device.handleTap(intent(tapped, "invented", null)));
            assertEquals("unconfirmed invented", next());
            assertNull(device.handleTap(intent(tapped, "invented", shown.tap.intent.getStringExtra(TapCheck.SEAL_KEY))));
            assertEquals("unconfirmed invented", next());
            assertNull(device.handleTap(intent(FakeGateway.task(5).taskText() + ":" + FakeGateway.message(5), null, null)));
            assertEquals("unconfirmed null", next());
            assertFalse(device.client().wasOpened(FakeGateway.message(4)));
            gateway.deliver(4, "four", "Four", true);
            assertEquals("tapped four", next());
            assertEquals("message four", next());
            assertEquals("0 0 " + FakeGateway.message(4), gateway.awaitFeedback());

            // The key of the seals is stored, because notifications outlive the process.
            String seal = new TapCheck(new FileStateStore(new File(folder.getRoot(), "longwire/tap-key"))).seal(first, "x");
            assertTrue(new TapCheck(new FileStateStore(new File(folder.getRoot(), "longwire/tap-key")))
                .isSealed(first, "x", seal));

            // A vendor's copy counts once, also after the message itself.
            String ids = FakeGateway.task(2).taskText() + ":" + FakeGateway.message(2);
            assertTrue(device.onVendorMessage("{\"_gmid_\": \"" + ids + "\", \"payload\": \"two\"}"));
            assertNull(events.poll());
            String other = FakeGateway.task(9).taskText() + ":" + FakeGateway.message(9);
            assertTrue(device.onVendorMessage("{\"_gmid_\": \"" + other + "\", \"payload\": \"nine\"}"));
            assertEquals("vendor nine", next());
            assertFalse(device.onVendorMessage("{\"from\": \"someone else\"}"));

            // The alarm, the network and Doze wake the client.
            BlockingQueue<String> wakes = new LinkedBlockingQueue<>();
            assertTrue(phone.alarms.count > 0);
            phone.receivers.get(HeartbeatAlarm.ACTION).onReceive(phone, new Intent(HeartbeatAlarm.ACTION));
            assertEquals(HeartbeatAlarm.AWAKE_MILLIS, phone.power.lockedFor);
            phone.connectivity.callback.onCapabilitiesChanged(
                new Network(), new NetworkCapabilities(NetworkCapabilities.TRANSPORT_WIFI));
            gateway.await(4);
            DozeWatch doze = new DozeWatch(phone, () -> wakes.add("awake"));
            phone.power.isIdle = true;
            doze.onReceive(phone, new Intent());
            assertTrue(wakes.isEmpty());
            phone.power.isIdle = false;
            doze.onReceive(phone, new Intent());
            assertEquals("awake", wakes.poll());

            // Badges and tokens go to the gateway; a failed request for a token is repeated.
            List<Integer> icons = new ArrayList<>();
            device.setBadge(4, (context, number) -> icons.add(number));
            assertEquals("badge 4", gateway.awaitUpdate());
            assertEquals(4, (int) icons.get(0));
            Handler handler = new Handler(Looper.getMainLooper());
            VendorTokens tokens = new VendorTokens(handler, device.client()::setToken);
            tokens.request(phone, new Fcm());
            assertNotNull("a repeated request is planned", handler.delayed);
            handler.delayed.run();
            assertEquals("token 1:token-1", gateway.awaitUpdate());
            tokens.received(new Fcm(), "");

            // A start during a stop does not return the stopping device.
            device.stop();
            try {
                LongwireDevice.start(phone.app, configuration, new LongwireDevice.Options(), this);
            } catch (LongwireException error) {
                assertEquals(LongwireException.Code.WRONG_STATE, error.code());
                assertTrue(device.client().awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
                LongwireDevice.start(phone.app, configuration, new LongwireDevice.Options(), this);
            }
            gateway.awaitSession();
            assertNotNull(phone.connectivity.callback);

            assertFalse("the system does not allow it now", LongwireService.startForeground(phone));
            device.stop();
            assertTrue(device.client().awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
            assertNull(phone.connectivity.callback);
            assertTrue("the alarm is cancelled", phone.alarms.at == -1 && phone.receivers.isEmpty());
        }
    }
}
