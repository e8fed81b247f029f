package longwire.getui;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;
import static org.junit.Assert.fail;

import android.app.Activity;
import android.content.Context;
import android.os.Handler;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import longwire.android.FakePhone;
import longwire.android.LongwireDevice;
import longwire.client.FakeGateway;
import org.junit.ClassRule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** An app of Getui's on this layer. A process has one manager, so this is one story. */
public class PushManagerTest {
    @ClassRule
    public static final TemporaryFolder FOLDER = new TemporaryFolder();
    private static final BlockingQueue<String> EVENTS = new LinkedBlockingQueue<>();
    private static final Set<String> THREADS = ConcurrentHashMap.newKeySet();

    /** The service as an app of Getui's has it. */
    public static final class DemoIntentService extends GTIntentService {
        @Override
        public void onReceiveClientId(Context context, String clientid) {
            EVENTS.add("cid " + clientid);
        }

        @Override
        public void onReceiveMessageData(Context context, GTTransmitMessage message) {
            String text = new String(message.getPayload(), StandardCharsets.UTF_8);
            if (text.equals("throw")) {
                throw new IllegalStateException("the app's fault");
            }
            EVENTS.add("message " + text + " " + message.getTaskId());
        }

        @Override
        public void onReceiveOnlineState(Context context, boolean online) {
            EVENTS.add("online " + online);
        }

        @Override
        public void onDeviceStopped(Context context, long closeCode, String reason) {
            EVENTS.add("stopped " + closeCode + " " + reason);
        }

        @Override
        public void onReceiveCommandResult(Context context, GTCmdMessage message) {
            THREADS.add(Thread.currentThread().getName());
            StringBuilder tags = new StringBuilder();
            if (message instanceof QueryTagCmdMessage) {
                for (Tag tag : ((QueryTagCmdMessage) message).getTags()) {
                    tags.append(' ').append(tag.getName());
                }
            }
            EVENTS.add("command " + message.getAction() + " " + message.getSn() + " " + message.getCode() + tags);
        }

        @Override
        public void onNotificationMessageArrived(Context context, GTNotificationMessage message) {
            EVENTS.add("arrived " + message.getTitle() + ": " + message.getContent());
        }

        @Override
        public void onNotificationMessageClicked(Context context, GTNotificationMessage message) {
            EVENTS.add("clicked " + message.getMessageId());
        }
    }

    private static String next() throws Exception {
        return EVENTS.poll(FakeGateway.PATIENCE_SECONDS, TimeUnit.SECONDS);
    }

    private static Tag[] tags(String... names) {
        Tag[] tags = new Tag[names.length];
        for (int index = 0; index < names.length; index++) {
            tags[index] = new Tag().setName(names[index]);
        }
        return tags;
    }

    private static String vendorMessage(long sequence, String payload) {
        String ids = FakeGateway.task(sequence).taskText() + ":" + FakeGateway.message(sequence);
        return "{\"_gmid_\": \"" + ids + "\", \"payload\": \"" + payload + "\"}";
    }

    private static boolean isSeen(long sequence) throws Exception {
        File state = new File(FOLDER.getRoot(), "longwire/state");
        String text = new String(Files.readAllBytes(state.toPath()), StandardCharsets.US_ASCII);
        return text.contains("seen " + FakeGateway.message(sequence));
    }

    private static void commandsFromManyThreadsReachTheMainThread(PushManager manager, Context phone) throws Exception {
        ExecutorService main = Executors.newSingleThreadExecutor(task -> new Thread(task, "main thread"));
        Handler.executor = main;
        THREADS.clear();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < 4; number++) {
            Thread thread = new Thread(() -> {
                for (int count = 0; count < 250; count++) {
                    manager.bindAlias(phone, "", "many");
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (int count = 0; count < 1_000; count++) {
            assertEquals("result " + count, "command 10010 many 30007", next());
        }
        for (Thread thread : threads) {
            thread.join();
        }
        assertEquals(Collections.singleton("main thread"), THREADS);
        Handler.executor = Runnable::run;
        main.shutdown();
    }

    private static void aliasesReachTheGateway(
        PushManager manager, Context phone, FakeGateway gateway
    ) throws Exception {
        assertTrue(manager.bindAlias(phone, "user7", "sn1"));
        assertEquals("1 operation 1 alias user7", gateway.awaitNames());
        gateway.answerNames(1, 0, "");
        assertEquals("command 10010 sn1 0", next());
        assertTrue(manager.unBindAlias(phone, "user7", true, "sn2"));
        assertEquals("2 operation 2 alias user7", gateway.awaitNames());
        gateway.answerNames(2, 5, "");
        assertEquals("command 10011 sn2 30004", next());
        assertFalse("a device cannot release the alias of others", manager.unBindAlias(phone, "user7", false, "sn3"));
        assertEquals("command 10011 sn3 30004", next());
        assertFalse(manager.bindAlias(phone, "", "sn4"));
        assertEquals("command 10010 sn4 30007", next());
        char[] long257 = new char[257];
        Arrays.fill(long257, 'x');
        assertFalse(manager.bindAlias(phone, new String(long257), "sn5"));
        assertEquals("command 10010 sn5 30007", next());
        assertEquals(PushConsts.SETTAG_TAG_ILLEGAL, manager.setTag(phone, tags(new String(long257)), "sn5"));
        // A request that the app makes through the client itself has no result in this layer.
        assertEquals(3, LongwireDevice.current().client().queryNames(""));
        gateway.awaitNames();
        gateway.answerNames(3, 0, "user7");
    }

    private static void tagsReachTheGateway(
        PushManager manager, Context phone, FakeGateway gateway
    ) throws Exception {
        assertEquals(PushConsts.SETTAG_ERROR_NULL, manager.setTag(phone, tags(), "sn6"));
        assertEquals(PushConsts.SETTAG_ERROR_COUNT, manager.setTag(phone, tags(new String[101]), "sn6"));
        assertEquals(PushConsts.SETTAG_TAG_ILLEGAL, manager.setTag(phone, tags("a b"), "sn6"));
        assertEquals(PushConsts.SUCCESS, manager.setTag(phone, tags("vip", "会员"), "sn7"));
        assertEquals(PushConsts.SUCCESS, manager.queryTag(phone, "sn8"));
        assertEquals("4 operation 3 tag vip tag 会员", gateway.awaitNames());
        gateway.answerNames(4, 100, "");
        assertEquals("command 10009 sn7 20002", next());
        assertEquals("5 operation 0", gateway.awaitNames());
        gateway.answerNames(5, 0, "user7", "vip", "会员");
        assertEquals("command 10012 sn8 0 vip 会员", next());
    }

    private static void aTokenReplacesTheSecret(
        PushManager manager, FakePhone phone, FakeGateway gateway
    ) throws Exception {
        char[] long2049 = new char[2_049];
        Arrays.fill(long2049, 'x');
        assertFalse(manager.setRegistrationToken(phone, null));
        assertFalse(manager.setRegistrationToken(phone, new String(long2049)));
        assertTrue(manager.setRegistrationToken(phone, "a.b.c"));
        phone.metaData.putString("PUSH_APPSECRET", null);
        gateway.refuse("the token has expired");
        manager.initialize(phone);
        assertEquals("stopped 401 the gateway closed with code 401: the token has expired", next());
        assertTrue(LongwireDevice.current().client().awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
        assertTrue(manager.setRegistrationToken(phone, "d.e.f"));
        manager.initialize(phone);
        gateway.awaitSession();
        assertEquals("cid " + FakeGateway.CID, next());
        assertEquals("online true", next());
        String names = gateway.awaitNames();
        while (!names.startsWith("0 ")) {
            names = gateway.awaitNames();
        }
        assertEquals("0 operation 1 token d.e.f", names);
        gateway.answerNames(0, 0, "");
        assertTrue(manager.bindAliasWithToken(phone, "g.h.i", "sn16"));
        names = gateway.awaitNames();
        assertTrue(names, names.endsWith(" operation 1 token g.h.i"));
        gateway.answerNames(Long.parseLong(names.substring(0, names.indexOf(' '))), 0, "");
        assertEquals("command 10010 sn16 0", next());
        assertFalse(manager.bindAliasWithToken(phone, new String(long2049), "sn17"));
        assertEquals("command 10010 sn17 30007", next());
        LongwireDevice.current().stop();
        assertTrue(LongwireDevice.current().client().awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
    }

    @Test
    public void theGatewaysCodesBecomeGetuis() {
        long[] codes = {0, 1, 2, 3, 4, 5, 100, 102, 1_000, 77};
        StringBuilder aliases = new StringBuilder();
        StringBuilder tags = new StringBuilder();
        for (long code : codes) {
            aliases.append(' ').append(AliasesAndTags.aliasCode(code));
            tags.append(' ').append(AliasesAndTags.tagCode(code));
        }
        assertEquals(" 0 30003 30007 30004 30004 30004 30001 30001 30006 30004", aliases.toString());
        assertEquals(" 0 20009 20011 20005 20001 20005 20002 20005 20008 20005", tags.toString());
    }

    @Test
    public void anAppMovesByItsImports() throws Exception {
        FakePhone phone = new FakePhone(FOLDER.getRoot());
        PushManager manager = PushManager.getInstance();
        try {
            manager.initialize(phone);
            fail("a manifest without an address was accepted");
        } catch (IllegalArgumentException error) {
            assertTrue(error.getMessage().contains("LONGWIRE_ADDRESS"));
        }
        assertNull("not registered yet", manager.getClientid(phone));
        assertFalse(manager.bindAlias(phone, "user7", "sn0"));
        try (FakeGateway gateway = new FakeGateway()) {
            phone.metaData.putString("LONGWIRE_ADDRESS", "127.0.0.1:" + gateway.port());
            phone.metaData.putString("LONGWIRE_TLS", "false");
            phone.metaData.putString("GETUI_APPID", "demo");
            phone.metaData.putString("PUSH_APPSECRET", "secret");
            phone.metaData.putString("LONGWIRE_INTENT_SERVICE", ".DemoIntentService");
            manager.initialize(phone);
            assertEquals("com.example.app.DemoIntentService", phone.bound.target());
            gateway.awaitSession();

            // Callbacks wait until the system has created the app's service.
            Activity activity = new Activity();
            phone.app.callbacks.onActivityStarted(activity);
            gateway.awaitUpdate();
            gateway.answerUpdate(1);
            gateway.deliver(1, "seven", "Order");
            gateway.awaitFeedback();
            LongwireDevice.current().onVendorMessage(vendorMessage(9, "nine"));
            assertNull(EVENTS.poll());
            assertFalse("the app does not have it yet", isSeen(9));
            DemoIntentService service = new DemoIntentService();
            service.onCreate();
            assertEquals("command 10010 sn0 30005", next());
            assertEquals("cid " + FakeGateway.CID, next());
            assertEquals("online true", next());
            assertEquals("arrived Order: body of Order", next());
            assertEquals("message seven RASS_1129_000000000000000000000001", next());
            gateway.awaitAck(1);
            assertEquals("message nine " + FakeGateway.task(9).taskText(), next());
            while (!isSeen(9)) {
                Thread.sleep(1);
            }
            try {
                LongwireDevice.current().onVendorMessage(vendorMessage(8, "throw"));
            } catch (IllegalStateException error) {
                assertEquals("the app's fault", error.getMessage());
            }

            activity.setIntent(phone.notifications.shown.get(FakeGateway.task(1) + "#1").tap.intent);
            phone.app.callbacks.onActivityResumed(activity);
            assertEquals("clicked " + FakeGateway.message(1), next());

            assertEquals(FakeGateway.CID.toString(), manager.getClientid(phone));
            aliasesReachTheGateway(manager, phone, gateway);
            tagsReachTheGateway(manager, phone, gateway);
            commandsFromManyThreadsReachTheMainThread(manager, phone);

            manager.turnOffPush(phone);
            assertEquals("off true", gateway.awaitUpdate());
            assertFalse(manager.isPushTurnedOn(phone));
            String task = FakeGateway.task(1).taskText();
            String message = FakeGateway.message(1).toString();
            assertFalse(manager.sendFeedbackMessage(phone, task, message, 90_000));
            assertFalse(manager.sendFeedbackMessage(phone, "x", message, 90_001));
            assertTrue(manager.sendFeedbackMessage(phone, task, message, 90_001));
            while (!gateway.awaitFeedback().equals("2 90001 " + message)) {
                continue;
            }

            // A stop ends the waiting commands.
            assertTrue(manager.bindAlias(phone, "user7", "sn13"));
            assertEquals(PushConsts.SUCCESS, manager.queryTag(phone, "sn14"));
            LongwireDevice.current().stop();
            assertEquals("command 10010 sn13 30006", next());
            assertEquals("command 10012 sn14 20008", next());
            assertEquals("online false", next());
            assertEquals(PushConsts.SETTAG_NOTONLINE, manager.queryTag(phone, "sn15"));
            assertTrue(LongwireDevice.current().client().awaitStop(FakeGateway.PATIENCE_SECONDS * 1_000));
            aTokenReplacesTheSecret(manager, phone, gateway);
            service.onDestroy();
        }
    }
}
