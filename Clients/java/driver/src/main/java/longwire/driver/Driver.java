package longwire.driver;

import java.io.BufferedReader;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import longwire.client.ApplicationState;
import longwire.client.ClientConfiguration;
import longwire.client.DeviceAttributes;
import longwire.client.DriverAccess;
import longwire.client.FileStateStore;
import longwire.client.Identifier;
import longwire.client.Listener;
import longwire.client.LongwireClient;
import longwire.client.LongwireException;
import longwire.client.MessageReport;
import longwire.client.NamesAnswer;
import longwire.client.OutgoingMessage;
import longwire.client.ReceivedMessage;
import longwire.client.VendorMessage;
import longwire.client.VendorPush;
import longwire.client.VendorToken;
import longwire.client.WelcomeDetails;

/**
 * A device for the conformance suite: commands come from standard input and events go to standard output, one JSON
 * object a line.
 */
public final class Driver implements Listener {
    private static final int USAGE = 64;
    /** The code of a name that is not valid (docs/use/Errors.md, "DeviceNamesResult codes"). */
    private static final long BAD_NAME = 2;

    private final OutputStream out = new FileOutputStream(FileDescriptor.out);
    private final boolean isManual;
    private final LongwireClient client;
    /** The messages that wait for the command {@code finish}, by msgId; guarded by its own monitor. */
    private final Map<String, ReceivedMessage> open = new HashMap<>();

    private Driver(ClientConfiguration configuration, File folder, boolean isManual) {
        this.isManual = isManual;
        client = new LongwireClient(configuration, new FileStateStore(new File(folder, "longwire.state")), this);
    }

    /**
     * Runs the driver until standard input ends.
     *
     * @param arguments see {@code Clients/java/driver/README.md}
     * @throws Exception when standard input cannot be read
     */
    public static void main(String[] arguments) throws Exception {
        Driver driver;
        try {
            driver = create(arguments);
        } catch (IllegalArgumentException error) {
            System.err.println("driver: " + error.getMessage());
            System.exit(USAGE);
            return;
        }
        driver.run();
        System.exit(0);
    }

    private static Driver create(String[] arguments) {
        Map<String, String> options = new HashMap<>();
        for (int index = 0; index < arguments.length; index++) {
            String name = arguments[index];
            if (name.equals("--manual") || name.equals("--alternates-from-close")) {
                options.put(name, "");
            } else if (index + 1 < arguments.length) {
                options.put(name, arguments[++index]);
            } else {
                throw new IllegalArgumentException(name + " needs a value");
            }
        }
        String address = required(options, "--address");
        int colon = address.lastIndexOf(':');
        String transport = required(options, "--transport");
        if (!transport.equals("tcp") && !transport.equals("tls")) {
            throw new IllegalArgumentException("the transport " + transport + " is not offered; use tcp or tls");
        }
        ClientConfiguration configuration = new ClientConfiguration(
            address.substring(0, colon), Integer.parseInt(address.substring(colon + 1)), required(options, "--app"));
        if (options.containsKey("--token")) {
            configuration.setRegistrationToken(options.remove("--token"));
        } else {
            configuration.setAppSecret(required(options, "--secret"));
        }
        configuration.setTls(transport.equals("tls"));
        configuration.setClientName("longwire-java-driver/1");
        File folder = new File(required(options, "--state"));
        if (!folder.isDirectory() && !folder.mkdirs()) {
            throw new IllegalArgumentException("cannot create the folder " + folder);
        }
        boolean isManual = options.remove("--manual") != null;
        options.remove("--alternates-from-close");
        for (Map.Entry<String, String> option : options.entrySet()) {
            set(configuration, option.getKey(), option.getValue());
        }
        return new Driver(configuration, folder, isManual);
    }

    private static String required(Map<String, String> options, String name) {
        String value = options.remove(name);
        if (value == null) {
            throw new IllegalArgumentException(name + " is missing");
        }
        return value;
    }

    private static void set(ClientConfiguration configuration, String name, String value) {
        switch (name) {
            case "--ca": configuration.setTrustedCertificates(new File(value)); break;
            case "--window": configuration.setWindow(Long.parseLong(value)); break;
            case "--heartbeat": configuration.setHeartbeatSeconds(Long.parseLong(value)); break;
            case "--backoff-ms": {
                String[] parts = value.split(":");
                configuration.setReconnectDelays(Long.parseLong(parts[0]), Long.parseLong(parts[parts.length - 1]));
                break;
            }
            case "--names-ms": DriverAccess.setNamesTime(configuration, Long.parseLong(value)); break;
            default: throw new IllegalArgumentException("the option " + name + " is unknown");
        }
    }

    private void run() throws IOException, InterruptedException {
        start();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (line.trim().isEmpty()) {
                continue;
            }
            try {
                perform(DriverAccess.parse(line));
            } catch (IllegalArgumentException | ClassCastException | NullPointerException error) {
                System.err.println("driver: cannot perform " + line + ": " + error.getMessage());
            }
        }
        client.stop();
        client.awaitStop(5_000);
    }

    private void start() {
        try {
            client.start();
        } catch (LongwireException error) {
            print("stopped", "reason", error.toString());
        }
    }

    private void perform(Map<String, Object> command) {
        String name = (String) command.get("do");
        switch (name) {
            case "finish": finish(command); break;
            case "send": {
                byte[] payload = Base64.getDecoder().decode((String) command.get("payload"));
                String task = (String) command.get("task");
                if (!client.send(payload, task == null ? Identifier.NONE : id(task))) {
                    print("refused", "request", 0, "code", 0);
                }
                break;
            }
            case "opened": client.markOpened(id(command.get("msgId"))); break;
            case "report": report(command); break;
            case "foreground": client.setApplicationState(ApplicationState.FOREGROUND, false); break;
            case "background":
                client.setApplicationState(
                    ApplicationState.BACKGROUND, Boolean.TRUE.equals(command.get("keepsRunning")));
                break;
            case "network": client.networkChanged((String) command.get("name")); break;
            case "token":
                client.setToken(
                    new VendorToken(channel((String) command.get("vendor")), (String) command.get("token")));
                break;
            case "badge": client.setBadge(((Long) command.get("value")).intValue()); break;
            case "attributes":
                client.setAttributes(
                    new DeviceAttributes().withModel((String) command.get("model"))
                        .withLocale((String) command.get("locale"))
                        .withNotifications((Boolean) command.get("allowed")));
                break;
            case "push-mode": client.setPushModeOff((Boolean) command.get("off")); break;
            case "heartbeat": client.setHeartbeatSeconds((Long) command.get("seconds")); break;
            case "vendor-message":
                client.receivedFromVendor(vendorPush(command));
                break;
            case "names": names(command); break;
            case "stop": client.stop(); break;
            default: print("unsupported", "do", name);
        }
    }

    private void finish(Map<String, Object> command) {
        ReceivedMessage message;
        synchronized (open) {
            message = open.remove((String) command.get("msgId"));
        }
        if (message == null) {
            System.err.println("driver: no open message " + command.get("msgId"));
        } else if (command.get("verdict").equals("rejected")) {
            Object reason = command.get("reason");
            message.rejected(reason == null ? "rejected by the suite" : (String) reason);
        } else {
            message.processed();
        }
    }

    private void names(Map<String, Object> command) {
        String alias = text(command.get("alias"));
        String type = text(command.get("aliasType"));
        List<String> tags = new ArrayList<>();
        if (command.get("tags") != null) {
            for (Object tag : (List<?>) command.get("tags")) {
                tags.add((String) tag);
            }
        }
        String token = (String) command.get("token");
        long request = token != null
            ? client.bindAliasWithToken(token) : ask((String) command.get("operation"), alias, type, tags);
        if (request == 0) {
            // The client's own refusal: it does not run, or a name or token is too long.
            Object code = client.isRunning() ? (Object) BAD_NAME : null;
            print("names", "code", code, "alias", "", "tags", Collections.emptyList());
        }
    }

    private long ask(String operation, String alias, String type, List<String> tags) {
        switch (operation) {
            case "query": return client.queryNames(type);
            case "bindAlias": return client.bindAlias(alias, type);
            case "unbindAlias": return client.unbindAlias(alias, type);
            case "setTags": return client.setTags(tags);
            case "addTags": return client.addTags(tags);
            case "removeTags": return client.removeTags(tags);
            default: throw new IllegalArgumentException("the operation is unknown");
        }
    }

    private static String text(Object value) {
        return value == null ? "" : (String) value;
    }

    private void report(Map<String, Object> command) {
        Identifier id = id(command.get("msgId"));
        switch ((String) command.get("kind")) {
            case "shown": client.report(MessageReport.shown(id)); break;
            case "clicked": client.markOpened(id); break;
            case "custom": client.report(MessageReport.action(((Long) command.get("action")).intValue(), id)); break;
            default: throw new IllegalArgumentException("the kind of report is unknown");
        }
    }

    private static VendorPush vendorPush(Map<String, Object> command) {
        Identifier task = command.get("taskId") == null ? Identifier.NONE : id(command.get("taskId"));
        return VendorPush.of(task.taskText() + ":" + command.get("msgId"), (String) command.get("payload"));
    }

    private static Identifier id(Object hex) {
        Identifier id = Identifier.parse((String) hex);
        if (id == null) {
            throw new IllegalArgumentException(hex + " is no identifier");
        }
        return id;
    }

    private static VendorToken.Channel channel(String vendor) {
        return vendor.equals("webPush") ? VendorToken.Channel.WEB_PUSH
            : VendorToken.Channel.valueOf(vendor.toUpperCase(java.util.Locale.ROOT));
    }

    /** Returns a number of 64 bits without a sign, as the protocol has it. */
    private static BigInteger unsigned(long number) {
        return new BigInteger(Long.toUnsignedString(number));
    }

    private void print(String event, Object... pairs) {
        Object[] all = new Object[pairs.length + 2];
        all[0] = "event";
        all[1] = event;
        System.arraycopy(pairs, 0, all, 2, pairs.length);
        byte[] line = (Json.object(all) + "\n").getBytes(StandardCharsets.US_ASCII);
        synchronized (out) {
            try {
                // One write for each line, so that a killed driver leaves no half line.
                out.write(line);
            } catch (IOException error) {
                System.err.println("driver: standard output is closed");
                Runtime.getRuntime().halt(1);
            }
        }
    }

    @Override
    public void onVendorMessage(VendorMessage message) {
        VendorPush push = message.push();
        print(
            "message", "msgId", push.messageId().toString(), "taskId", push.taskId().toString(), "sequence", 0, "payload",
            push.payload() == null ? "" : push.payload(), "offline", true, "kind", "message");
        message.processed();
    }

    @Override
    public void onMessage(ReceivedMessage message) {
        if (isManual) {
            synchronized (open) {
                open.put(message.messageId().toString(), message);
            }
        }
        print(
            "message", "msgId", message.messageId().toString(), "taskId", message.taskId().toString(), "sequence",
            message.sequence(), "payload", Base64.getEncoder().encodeToString(message.payload()), "offline",
            message.isOffline(), "title", message.title(), "body", message.body(), "kind",
            message.stream() == 0 ? "message" : "broadcast");
        if (!isManual) {
            message.processed();
        }
    }

    @Override
    public void onRegistered(Identifier cid) {
        print("registered", "cid", cid.toString());
    }

    @Override
    public void onRegistrationLost(Identifier cid) {
        print("registrationLost", "cid", cid.toString());
    }

    @Override
    public void onConnecting(String host, int port) {
        print("connecting", "address", (host.indexOf(':') < 0 ? host : "[" + host + "]") + ":" + port);
    }

    @Override
    public void onWelcomed(WelcomeDetails details) {
        print(
            "welcomed", "cid", details.cid().toString(), "session", unsigned(details.generation()), "epoch",
            unsigned(details.queueEpoch()),
            "heartbeat", details.heartbeatSeconds(), "window", details.window(), "serverTime", details.serverTime(),
            "pending", details.backlog());
    }

    @Override
    public void onQueueReset(long from, long to) {
        print("queueReset", "from", unsigned(from), "to", unsigned(to));
    }

    @Override
    public void onClosed(long code, String reason) {
        print("closed", "code", code, "reason", reason);
    }

    @Override
    public void onDisconnected(String reason) {
        print("disconnected", "reason", reason);
    }

    @Override
    public void onRetrying(long milliseconds) {
        print("retrying", "ms", milliseconds);
    }

    @Override
    public void onUpdated(long request, long code, String reason) {
        print("updated", "request", request, "code", code);
    }

    @Override
    public void onSuppressed(Identifier messageId, long sequence, boolean wasOpened) {
        print("suppressed", "msgId", messageId.toString(), "sequence", sequence, "wasOpened", wasOpened);
    }

    @Override
    public void onRevoked(Identifier taskId) {
        print("revoked", "taskId", taskId.toString());
    }

    @Override
    public void onMessageTaken(OutgoingMessage message) {
        print("taken", "request", message.number());
    }

    @Override
    public void onMessageRefused(OutgoingMessage message, long code, String reason) {
        print("refused", "request", message.number(), "code", code);
    }

    @Override
    public void onNames(NamesAnswer answer) {
        // The suite's sign of a request that a stop has ended.
        Object code = answer.code() == NamesAnswer.STOPPED ? null : (Object) answer.code();
        print("names", "code", code, "alias", answer.alias(), "tags", answer.tags());
    }

    @Override
    public void onStateNotStored(LongwireException error) {
        print("stateNotStored", "reason", error.toString());
    }

    @Override
    public void onStopped(LongwireException error) {
        print("stopped", "reason", error == null ? null : error.toString());
    }
}
