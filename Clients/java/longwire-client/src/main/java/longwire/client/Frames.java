package longwire.client;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** The messages of the protocol: decoders of those from the gateway, encoders of those to it. */
final class Frames {
    private Frames() {}

    static final class Welcome {
        long generation;
        long queueEpoch;
        long heartbeatSeconds;
        long window;
        long serverTime;
        long backlog;
        List<WelcomeDetails.Dropped> dropped = Collections.emptyList();
        Identifier cid = Identifier.NONE;
        byte[] deviceSecret = new byte[0];

        static Welcome decode(ProtoReader in) throws WireException {
            Welcome welcome = new Welcome();
            for (int field = in.next(); field != 0; field = in.next()) {
                switch (field) {
                    case 1: welcome.generation = in.uint64(); break;
                    case 2: welcome.queueEpoch = in.uint64(); break;
                    case 3: welcome.heartbeatSeconds = in.uint32(); break;
                    case 4: welcome.window = in.uint32(); break;
                    case 5: welcome.serverTime = in.uint64(); break;
                    case 6: welcome.backlog = in.uint64(); break;
                    case 7: welcome.addDropped(in.message()); break;
                    case 8: welcome.cid = in.identifier(); break;
                    case 9: welcome.deviceSecret = in.bytes(Limits.SECRET_FIELD_BYTE_COUNT); break;
                    default: in.skip();
                }
            }
            return welcome;
        }

        private void addDropped(ProtoReader in) throws WireException {
            if (dropped.size() >= Limits.DROPPED_COUNT) {
                throw WireException.malformed("a Welcome has more than " + Limits.DROPPED_COUNT
                    + " counts of dropped messages");
            }
            String reason = "";
            long count = 0;
            for (int field = in.next(); field != 0; field = in.next()) {
                switch (field) {
                    case 1: reason = in.text(Limits.REASON_BYTE_COUNT); break;
                    case 2: count = in.uint64(); break;
                    default: in.skip();
                }
            }
            if (dropped.isEmpty()) {
                dropped = new ArrayList<>();
            }
            dropped.add(new WelcomeDetails.Dropped(reason, count));
        }
    }

    static final class Close {
        long code;
        String reason = "";
        long retryAfterMinimum;
        long retryAfterMaximum;
        String alternate = "";
        long serverTime;

        static Close decode(ProtoReader in) throws WireException {
            Close close = new Close();
            for (int field = in.next(); field != 0; field = in.next()) {
                switch (field) {
                    case 1: close.code = in.uint32(); break;
                    case 2: close.reason = in.text(Limits.REASON_BYTE_COUNT); break;
                    case 3: close.retryAfterMinimum = in.uint32(); break;
                    case 4: close.retryAfterMaximum = in.uint32(); break;
                    case 5: close.alternate = in.text(Limits.ALTERNATE_BYTE_COUNT); break;
                    case 6: close.serverTime = in.uint64(); break;
                    default: in.skip();
                }
            }
            return close;
        }
    }

    static long decodeNonce(ProtoReader in) throws WireException {
        long nonce = 0;
        for (int field = in.next(); field != 0; field = in.next()) {
            if (field == 1) {
                nonce = in.uint64();
            } else {
                in.skip();
            }
        }
        return nonce;
    }

    static ReceivedMessage decodeDeliver(ProtoReader in) throws WireException {
        ReceivedMessage message = new ReceivedMessage();
        for (int field = in.next(); field != 0; field = in.next()) {
            switch (field) {
                case 1: message.stream = in.uint32(); break;
                case 2: message.sequence = in.uint64(); break;
                case 3: message.messageId = in.identifier(); break;
                case 4: message.taskId = in.identifier(); break;
                case 5: message.payload = in.bytes(Integer.MAX_VALUE); break;
                case 6: message.isOffline = in.bool(); break;
                case 7: message.acceptedAt = in.uint64(); break;
                case 8: message.alertedAt = in.uint64(); break;
                case 9: message.attempt = in.uint32(); break;
                case 10: message.collapseKey = in.text(Integer.MAX_VALUE); break;
                case 11: decodeAlert(in.message(), message); break;
                case 12: message.isCarriedByVendor = in.bool(); break;
                default: in.skip();
            }
        }
        return message;
    }

    private static void decodeAlert(ProtoReader in, ReceivedMessage message) throws WireException {
        message.hasAlert = true;
        for (int field = in.next(); field != 0; field = in.next()) {
            switch (field) {
                case 1: message.title = in.text(Integer.MAX_VALUE); break;
                case 2: message.body = in.text(Integer.MAX_VALUE); break;
                default: in.skip();
            }
        }
    }

    static final class UpdateResult {
        long request;
        long code;
        String reason = "";
        long heartbeatSeconds;

        static UpdateResult decode(ProtoReader in) throws WireException {
            UpdateResult result = new UpdateResult();
            for (int field = in.next(); field != 0; field = in.next()) {
                switch (field) {
                    case 1: result.request = in.uint32(); break;
                    case 2: result.code = in.uint32(); break;
                    case 3: result.reason = in.text(Limits.REASON_BYTE_COUNT); break;
                    case 4: result.heartbeatSeconds = in.uint32(); break;
                    default: in.skip();
                }
            }
            return result;
        }
    }

    static final class Revoke {
        long sequence;
        Identifier messageId = Identifier.NONE;
        Identifier taskId = Identifier.NONE;
        Identifier revokedTaskId = Identifier.NONE;

        static Revoke decode(ProtoReader in) throws WireException {
            Revoke revoke = new Revoke();
            for (int field = in.next(); field != 0; field = in.next()) {
                switch (field) {
                    case 1: revoke.sequence = in.uint64(); break;
                    case 2: revoke.messageId = in.identifier(); break;
                    case 3: revoke.taskId = in.identifier(); break;
                    case 4: revoke.revokedTaskId = in.identifier(); break;
                    default: in.skip();
                }
            }
            return revoke;
        }
    }

    static final class UpstreamResult {
        long request;
        long code;
        String reason = "";

        static UpstreamResult decode(ProtoReader in) throws WireException {
            UpstreamResult result = new UpstreamResult();
            for (int field = in.next(); field != 0; field = in.next()) {
                switch (field) {
                    case 1: result.request = in.uint32(); break;
                    case 2: result.code = in.uint32(); break;
                    case 3: result.reason = in.text(Limits.REASON_BYTE_COUNT); break;
                    default: in.skip();
                }
            }
            return result;
        }
    }

    static NamesAnswer decodeNamesResult(ProtoReader in) throws WireException {
        long request = 0;
        long code = 0;
        String reason = "";
        String alias = "";
        // Only the frame's length limits the tags, because a gateway may allow a device more tags than a request holds.
        List<String> tags = new ArrayList<>();
        for (int field = in.next(); field != 0; field = in.next()) {
            switch (field) {
                case 1: request = in.uint32(); break;
                case 2: code = in.uint32(); break;
                case 3: reason = in.text(Limits.REASON_BYTE_COUNT); break;
                case 4: alias = in.text(Limits.NAME_BYTE_COUNT); break;
                case 5: tags.add(in.text(Limits.NAME_BYTE_COUNT)); break;
                default: in.skip();
            }
        }
        return new NamesAnswer(request, code, reason, alias, tags);
    }

    static final class Hello {
        String appId = "";
        Identifier cid = Identifier.NONE;
        boolean isRegistration;
        long timestamp;
        long queueEpoch;
        List<ProtoWriter> positions = Collections.emptyList();
        ApplicationState applicationState = ApplicationState.FOREGROUND;
        boolean keepsRunning;
        long heartbeatSeconds;
        /** The badge, or {@code null} to leave the gateway's unchanged. */
        Integer badge;
        List<VendorToken> tokens = Collections.emptyList();
        List<Identifier> opened = Collections.emptyList();
        boolean replaysOpened;
        String client = "";
        long window;
        byte[] nonce = new byte[0];
        String registrationToken = "";
        /** The attributes, or {@code null} to leave those at the gateway unchanged. */
        DeviceAttributes attributes;

        /** Returns the body without the proof. */
        byte[] body() {
            ProtoWriter out = new ProtoWriter();
            out.text(1, appId);
            out.identifier(3, cid);
            out.flag(4, isRegistration);
            out.number(5, timestamp);
            out.number(7, queueEpoch);
            for (ProtoWriter position : positions) {
                out.element(8, position);
            }
            out.number(9, applicationState.number());
            out.flag(10, keepsRunning);
            out.number(11, heartbeatSeconds);
            if (badge != null) {
                out.presentSigned(12, badge);
            }
            for (VendorToken token : tokens) {
                out.element(13, token.encoded());
            }
            for (Identifier id : opened) {
                out.element(14, id);
            }
            out.flag(15, replaysOpened);
            out.text(16, client);
            out.number(17, window);
            out.bytes(18, nonce);
            out.text(19, registrationToken);
            if (attributes != null) {
                out.element(20, attributes.encoded());
            }
            return out.toBytes();
        }
    }

    /** Returns the frame of a Hello: its body with the proof appended. */
    static byte[] hello(byte[] body, byte[] proof) {
        ProtoWriter out = ProtoWriter.ofFrame(FrameType.HELLO);
        out.raw(body);
        out.bytes(6, proof);
        return out.frame();
    }

    static byte[] nonce(int type, long nonce) {
        ProtoWriter out = ProtoWriter.ofFrame(type);
        out.number(1, nonce);
        return out.frame();
    }

    static byte[] close(int code, String reason) {
        ProtoWriter out = ProtoWriter.ofFrame(FrameType.CLOSE);
        out.number(1, code);
        out.text(2, reason);
        return out.frame();
    }

    static byte[] ack(List<ProtoWriter> positions, List<Rejection> rejected) {
        ProtoWriter out = ProtoWriter.ofFrame(FrameType.ACK);
        for (ProtoWriter position : positions) {
            out.element(1, position);
        }
        for (Rejection rejection : rejected) {
            ProtoWriter element = new ProtoWriter();
            element.number(1, rejection.stream);
            element.number(2, rejection.sequence);
            element.text(3, rejection.reason);
            out.element(2, element);
        }
        return out.frame();
    }

    static final class DeviceUpdate {
        long request;
        ApplicationState applicationState;
        Boolean keepsRunning;
        Integer badge;
        List<VendorToken> tokens = Collections.emptyList();
        Boolean isPushModeOff;
        long heartbeatSeconds;

        byte[] frame() {
            ProtoWriter out = ProtoWriter.ofFrame(FrameType.DEVICE_UPDATE);
            out.number(1, request);
            if (applicationState != null) {
                out.present(2, applicationState.number());
            }
            if (keepsRunning != null) {
                out.present(3, keepsRunning ? 1 : 0);
            }
            if (badge != null) {
                out.presentSigned(4, badge);
            }
            for (VendorToken token : tokens) {
                out.element(5, token.encoded());
            }
            if (isPushModeOff != null) {
                out.present(6, isPushModeOff ? 1 : 0);
            }
            out.number(7, heartbeatSeconds);
            return out.frame();
        }
    }

    static byte[] feedback(int kind, Identifier messageId, long action) {
        ProtoWriter out = ProtoWriter.ofFrame(FrameType.FEEDBACK);
        out.number(1, kind);
        out.identifier(2, messageId);
        out.number(3, action);
        return out.frame();
    }

    static byte[] deviceNames(NamesRequest names) {
        ProtoWriter out = ProtoWriter.ofFrame(FrameType.DEVICE_NAMES);
        out.number(1, names.request);
        out.number(2, names.operation.number());
        out.text(3, names.alias);
        out.text(4, names.aliasType);
        for (String tag : names.tags) {
            out.element(5, tag.getBytes(StandardCharsets.UTF_8));
        }
        out.text(6, names.token);
        return out.frame();
    }

    static byte[] upstream(OutgoingMessage message) {
        ProtoWriter out = ProtoWriter.ofFrame(FrameType.UPSTREAM);
        out.number(1, message.number);
        out.bytes(2, message.payload);
        out.identifier(3, message.task);
        return out.frame();
    }
}
