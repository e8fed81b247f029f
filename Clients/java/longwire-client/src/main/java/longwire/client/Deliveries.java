package longwire.client;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Tracks each message from its arrival to its ack.
 *
 * <p>The sequence of an unfinished message is a hole, which an ack must not cover. It stays one until the message is recorded as
 * processed, or the gateway confirms its rejection.
 */
final class Deliveries {
    /** A message or revoke that the app has and has not decided on; a second copy is not handed to the app. */
    private static final class Handling {
        final Identifier cid;
        final long epoch;
        final long stream;
        final long sequence;
        final int byteCount;
        /** Whether an earlier session delivered this message and the current one has not yet. */
        boolean isOfEarlierSession;

        Handling(Identifier cid, long epoch, long stream, long sequence, int byteCount) {
            this.cid = cid;
            this.epoch = epoch;
            this.stream = stream;
            this.sequence = sequence;
            this.byteCount = byteCount;
        }

        boolean isOf(Identifier otherCid, long otherEpoch, long otherStream, long otherSequence) {
            return sequence == otherSequence && stream == otherStream && epoch == otherEpoch && cid.equals(otherCid);
        }
    }

    private static final class SentRejections {
        final long nonce;
        final List<Rejection> rejections;

        SentRejections(long nonce, List<Rejection> rejections) {
            this.nonce = nonce;
            this.rejections = rejections;
        }
    }

    private final ClientCore core;
    private final Map<Long, Holes> holes = new TreeMap<>();
    private final List<Handling> handling = new ArrayList<>();
    private int handlingByteCount;
    private int earlierCount;
    /** Rejections to send at the end of this turn. */
    private List<Rejection> pendingRejections = new ArrayList<>();
    /**
     * Rejections in flight; the Pong to the Ping after them confirms them, because the gateway handles frames in order.
     */
    private final List<SentRejections> sentRejections = new ArrayList<>();
    private boolean owesAck;

    Deliveries(ClientCore core) {
        this.core = core;
    }

    boolean isEmpty() {
        return handling.isEmpty();
    }

    /** Begins a session, in which nothing was received yet. */
    void begin() {
        holes.clear();
        for (Handling entry : handling) {
            entry.isOfEarlierSession = true;
        }
        earlierCount = handling.size();
        pendingRejections = new ArrayList<>();
        sentRejections.clear();
    }

    /** The holes stay until the next session, because the app may still have messages of this one. */
    void leaveSession() {
        owesAck = false;
    }

    /** Whether a stream may carry messages; each stream needs room in each Hello and Ack, so the number is limited. */
    private boolean isAllowed(long stream) {
        if (core.state.streams.containsKey(stream) || holes.containsKey(stream)) {
            return true;
        }
        int count = core.state.streams.size();
        for (Long other : holes.keySet()) {
            if (!core.state.streams.containsKey(other)) {
                count++;
            }
        }
        return count < Limits.STREAM_COUNT;
    }

    private boolean isSequence(long sequence, long now) {
        if (sequence > 0 && sequence <= Limits.GREATEST_SEQUENCE) {
            return true;
        }
        core.violate(CloseCode.MALFORMED, Long.toUnsignedString(sequence) + " is no sequence", now);
        return false;
    }

    void receive(ReceivedMessage message, long now) {
        long stream = message.stream;
        long sequence = message.sequence;
        if (!isSequence(sequence, now)) {
            return;
        }
        if (!isAllowed(stream)) {
            core.violate(CloseCode.FLOODS, "more streams than there can be", now);
            return;
        }
        ProcessedSet processed = core.state.streams.get(stream);
        if (processed != null && processed.contains(sequence)) {
            // The gateway did not receive the ack.
            owesAck = true;
            reportSuppressed(message, false);
            return;
        }
        forgetEndedRejections(sequence, stream);
        if (core.isDropping()) {
            if (addHole(sequence, stream, now)) {
                core.report(listener -> listener.onDroppedWhileSuspended(message.messageId, sequence));
            }
            return;
        }
        Rejection rejection = core.state.rejections.isEmpty() ? null : core.state.rejection(stream, sequence);
        if (rejection != null) {
            // The gateway did not receive the rejection.
            if (addHole(sequence, stream, now)) {
                pendingRejections.add(rejection);
                reportSuppressed(message, false);
            }
            return;
        }
        boolean wasOpened = !core.state.opened.isEmpty() && core.state.opened.contains(message.messageId);
        // `isCarriedByVendor` means that the notification held the complete message. Otherwise this copy is still
        // needed, even after the user opened the notification.
        if (wasOpened && message.isCarriedByVendor && !core.configuration.replaysOpened()) {
            settle(sequence, stream);
            reportSuppressed(message, true);
            return;
        }
        if (message.isCarriedByVendor && core.state.seen.contains(message.messageId)) {
            settle(sequence, stream);
            reportSuppressed(message, wasOpened);
            return;
        }
        boolean wasReceived = holes(stream).contains(sequence);
        if (!addHole(sequence, stream, now)) {
            return;
        }
        message.originCid = core.state.cid;
        message.originEpoch = core.state.queueEpoch;
        message.wasOpened = wasOpened;
        if (hand(stream, sequence, message.payload.length, wasReceived, now)) {
            core.act(Action.handle(message));
        }
    }

    private void reportSuppressed(ReceivedMessage message, boolean wasOpened) {
        core.report(listener -> listener.onSuppressed(message.messageId, message.sequence, wasOpened));
    }

    void receive(Frames.Revoke revoke, long now) {
        if (!isSequence(revoke.sequence, now)) {
            return;
        }
        ProcessedSet processed = core.state.streams.get(0L);
        if (processed != null && processed.contains(revoke.sequence)) {
            owesAck = true;
            return;
        }
        // A hole until the app has processed the revoke. If the client crashes before it stores its state, the gateway
        // sends the revoke again.
        boolean wasReceived = holes(0).contains(revoke.sequence);
        if (!addHole(revoke.sequence, 0, now) || core.isDropping()) {
            return;
        }
        if (hand(0, revoke.sequence, 0, wasReceived, now)) {
            core.act(Action.revoke(revoke.revokedTaskId, revoke.sequence));
        }
    }

    /** Returns false when the app has the message already, or the session has ended. */
    private boolean hand(long stream, long sequence, int byteCount, boolean wasReceived, long now) {
        Identifier cid = core.state.cid;
        long epoch = core.state.queueEpoch;
        // Only a sequence that arrived before, now or in an earlier session, can be in the app's hands.
        if (wasReceived || earlierCount > 0) {
            for (Handling entry : handling) {
                if (entry.isOf(cid, epoch, stream, sequence)) {
                    if (entry.isOfEarlierSession) {
                        entry.isOfEarlierSession = false;
                        earlierCount--;
                    }
                    return false;
                }
            }
        }
        if (handlingByteCount + byteCount > Limits.HANDLING_BYTE_COUNT) {
            core.violate(CloseCode.FLOODS, "more bytes un-acked than any window has", now);
            return false;
        }
        handling.add(new Handling(cid, epoch, stream, sequence, byteCount));
        handlingByteCount += byteCount;
        return true;
    }

    private Handling takeHandling(Identifier cid, long epoch, long stream, long sequence) {
        for (int index = 0; index < handling.size(); index++) {
            Handling entry = handling.get(index);
            if (entry.isOf(cid, epoch, stream, sequence)) {
                handling.remove(index);
                handlingByteCount -= entry.byteCount;
                if (entry.isOfEarlierSession) {
                    earlierCount--;
                }
                return entry;
            }
        }
        return null;
    }

    /** Marks a revoke as processed after the app has received its event. */
    void finishRevoke(long sequence) {
        Handling place = takeHandling(core.state.cid, core.state.queueEpoch, 0, sequence);
        if (place == null) {
            return;
        }
        if (place.isOfEarlierSession) {
            core.state.stream(0).insertAlone(sequence);
            core.markDirty();
        } else {
            settle(sequence, 0);
        }
    }

    /** Records the app's verdict on a message. */
    void finish(ReceivedMessage message, ReceivedMessage.Verdict verdict, String reason) {
        Handling place = takeHandling(message.originCid, message.originEpoch, message.stream, message.sequence);
        // A sequence may belong to an earlier registration or queue.
        if (place == null || !core.state.isOrigin(message)) {
            return;
        }
        // The session may have ended since the delivery. Verdicts are recorded nevertheless.
        switch (verdict) {
            case PROCESSED:
                core.countFetched();
                core.state.noteProcessed(message);
                if (place.isOfEarlierSession) {
                    // The current session has not redelivered this message, so nothing is known about neighboring
                    // sequences.
                    core.state.stream(message.stream).insertAlone(message.sequence);
                    core.markDirty();
                } else {
                    settle(message.sequence, message.stream);
                }
                break;
            case REJECTED:
                // The sequence stays a hole until the gateway confirms the rejection. A position that covered it would
                // report it as delivered.
                Rejection rejection = new Rejection(message.stream, message.sequence, reason);
                core.state.note(rejection);
                core.markDirty();
                // A gateway accepts a rejection only for messages of the same session. Another message will be
                // redelivered.
                if (!place.isOfEarlierSession) {
                    pendingRejections.add(rejection);
                }
                break;
            default:
                // A deferred message stays a hole.
        }
    }

    private void settle(long sequence, long stream) {
        Holes own = holes(stream);
        own.remove(sequence);
        Holes open = own;
        for (Rejection rejection : core.state.rejections) {
            if (rejection.stream == stream) {
                if (open == own) {
                    open = own.copy();
                }
                open.add(rejection.sequence);
            }
        }
        core.state.stream(stream).insert(sequence, open);
        owesAck = true;
        core.markDirty();
    }

    /**
     * Removes rejections that have ended. A stream is in order, so a rejected message that was not redelivered before
     * {@code sequence} has ended.
     */
    private void forgetEndedRejections(long sequence, long stream) {
        if (core.state.rejections.isEmpty()) {
            return;
        }
        Holes brought = holes(stream);
        boolean isChanged = core.state.rejections.removeIf(rejection ->
            rejection.stream == stream && rejection.sequence < sequence && !brought.contains(rejection.sequence));
        if (isChanged) {
            core.markDirty();
        }
    }

    /** Settles rejections once the Pong confirms them; from then on positions may cover their sequences. */
    void settleRejected(long nonce) {
        Iterator<SentRejections> iterator = sentRejections.iterator();
        while (iterator.hasNext()) {
            SentRejections sent = iterator.next();
            if (sent.nonce != nonce) {
                continue;
            }
            iterator.remove();
            for (Rejection rejection : sent.rejections) {
                core.state.rejections.removeIf(other -> other.isOf(rejection.stream, rejection.sequence));
                settle(rejection.sequence, rejection.stream);
            }
            return;
        }
    }

    private Holes holes(long stream) {
        Holes list = holes.get(stream);
        if (list == null) {
            list = new Holes();
            holes.put(stream, list);
        }
        return list;
    }

    /** Returns false when the peer has exceeded the bound and the session has ended. */
    private boolean addHole(long sequence, long stream, long now) {
        Holes list = holes(stream);
        list.add(sequence);
        if (list.count() > Limits.HOLE_COUNT) {
            core.violate(CloseCode.FLOODS, "more un-acked messages than any window", now);
            return false;
        }
        return true;
    }

    /** Sends the rejections and the ack that this turn owes. The state was stored before. */
    void sendAck(long now) {
        if (!pendingRejections.isEmpty()) {
            for (int start = 0; start < pendingRejections.size(); start += Limits.REJECTED_PER_ACK_COUNT) {
                int end = Math.min(pendingRejections.size(), start + Limits.REJECTED_PER_ACK_COUNT);
                core.send(Frames.ack(new ArrayList<>(), pendingRejections.subList(start, end)), now);
            }
            sentRejections.add(new SentRejections(core.sendPing(now), pendingRejections));
            pendingRejections = new ArrayList<>();
        }
        if (owesAck) {
            owesAck = false;
            core.send(Frames.ack(core.state.positions(), new ArrayList<>()), now);
        }
    }

    boolean owesFrames() {
        return owesAck || !pendingRejections.isEmpty();
    }

    /** Forgets a message or revoke that did not reach the app, because an action before it failed. */
    void skip(Action action) {
        if (action.kind == Action.Kind.HANDLE) {
            ReceivedMessage message = (ReceivedMessage) action.value;
            takeHandling(message.originCid, message.originEpoch, message.stream, message.sequence);
        } else if (action.kind == Action.Kind.REVOKE) {
            takeHandling(core.state.cid, core.state.queueEpoch, 0, action.sequence);
        }
    }
}
