// The messages from the gateway and from vendors: delivery to the app, verdicts and acks.

import {FLOODS, MALFORMED} from "./codes.js";
import {LIMITS} from "./limits.js";

export class Deliveries {
  constructor(core) {
    this.core = core;
    /** The sequences by stream, ascending, that this session has received and the app has not processed. */
    this.holes = new Map();
    /** Messages without a verdict, by their key. The app receives no second copy of them. */
    this.handling = new Map();
    this.handlingBytes = 0;
    /** Held copies on the connection of vendors' messages without a verdict, by msgId. */
    this.copies = new Map();
    /** The ids of vendors' messages that the app has deferred in this session. */
    this.deferredVendor = new Set();
    this.pendingRejections = [];
    /**
     * Rejections in flight. The Pong to the next Ping confirms them, because the gateway handles frames in order.
     */
    this.sentRejections = [];
    this.owesAck = false;
    /**
     * The rule for dropping deliveries without an ack: "none", "untilUpdate" (while suspended), or the number of the
     * update whose result ends the rule.
     */
    this.dropRule = "none";
  }

  /** Begins a session without received messages. The app may still have messages of an earlier session. */
  beginSession() {
    this.holes = new Map();
    for (const place of this.handling.values()) place.isOfEarlierSession = true;
    this.copies = new Map();
    this.deferredVendor = new Set();
    this.pendingRejections = [];
    this.sentRejections = [];
  }

  /** Withdraws the messages that wait for the app. Messages that the app already has are not affected. */
  withdraw() {
    if (this.handling.size > 0) this.core.actions.push({type: "withdraw"});
  }

  receive(deliver, now) {
    const {state} = this.core, {stream, sequence, msgId} = deliver;
    if (!this.isSequence(sequence, now)) return;
    // Every stream needs room in each Hello and Ack, so their number is limited.
    const known = new Set(Array.from(state.streams.keys()).concat(Array.from(this.holes.keys())));
    if (!known.has(stream) && known.size >= LIMITS.streams) {
      this.core.violate(FLOODS, "more streams than there can be", now);
      return;
    }
    const processed = state.streams.get(stream);
    if (processed && processed.contains(sequence)) {
      // The gateway did not receive the ack.
      this.owesAck = true;
      this.core.report("suppressed", {msgId, sequence, wasOpened: false});
      return;
    }
    this.forgetEndedRejections(sequence, stream);
    if (this.dropRule !== "none") {
      this.addHole(sequence, stream, now);
      this.core.report("droppedWhileSuspended", {msgId, sequence});
      return;
    }
    const rejection = state.rejections.find(one => one.stream === stream && one.sequence === sequence);
    if (rejection) {
      // The gateway did not receive the rejection.
      this.addHole(sequence, stream, now);
      this.pendingRejections.push(rejection);
      this.core.report("suppressed", {msgId, sequence, wasOpened: false});
      return;
    }
    // `carriedByVendor` means that the notification held the complete message. Otherwise this copy is still needed,
    // even after the user opened the notification.
    const wasOpened = state.opened.includes(msgId);
    const isFromVendor = msgId !== "" && state.seen.includes(msgId);
    if (isFromVendor || wasOpened && deliver.carriedByVendor && !this.core.configuration.replaysOpened) {
      this.settle(sequence, stream);
      this.core.report("suppressed", {msgId, sequence, wasOpened});
      return;
    }
    // The sequence is a hole until the verdict, because an ack must not cover it before then.
    this.addHole(sequence, stream, now);
    const origin = state.origin;
    const message = {
      channel: "connection", stream, sequence, msgId, taskId: deliver.taskId, payload: deliver.payload,
      offline: deliver.offline, acceptedAt: deliver.acceptedAt, alertedAt: deliver.alertedAt,
      attempt: deliver.attempt, collapseKey: deliver.collapseKey,
      alert: deliver.alert, wasOpened, origin, key: `${stream}:${sequence}:${origin}`,
    };
    if (msgId !== "" && this.handling.has(`vendor:${msgId}`)) {
      this.copies.set(msgId, message);
      return;
    }
    if (this.begin(message.key, origin, message.payload.length, now, msgId)) {
      this.core.actions.push({type: "handle", message});
    }
  }

  receiveRevoke(revoke, now) {
    const {sequence} = revoke, processed = this.core.state.streams.get(0);
    if (!this.isSequence(sequence, now)) return;
    if (processed && processed.contains(sequence)) {
      this.owesAck = true;
      return;
    }
    // The sequence is a hole until the app has processed the revoke. If the client crashes before it stores its state,
    // the gateway sends the revoke again.
    this.addHole(sequence, 0, now);
    if (this.dropRule !== "none") return;
    const {origin} = this.core.state, key = `0:${sequence}:${origin}`;
    if (this.begin(key, origin, 0, now)) {
      this.core.actions.push({type: "revoke", taskId: revoke.revokedTaskId, sequence, key});
    }
  }

  /** Records a message as passed to the app; returns false if the app has it already or the session has ended. */
  begin(key, origin, byteCount, now, msgId = "") {
    if (this.core.phase !== "ready") return false;
    const place = this.handling.get(key);
    if (place) {
      place.isOfEarlierSession = false;
      return false;
    }
    if (this.handlingBytes + byteCount > LIMITS.handlingBytes) {
      this.core.violate(FLOODS, "more bytes un-acked than any window has", now);
      return false;
    }
    this.handling.set(key, {origin, msgId, byteCount, isOfEarlierSession: false});
    this.handlingBytes += byteCount;
    return true;
  }

  removeHandling(key) {
    const place = this.handling.get(key);
    if (!place) return null;
    this.handling.delete(key);
    this.handlingBytes -= place.byteCount;
    return place;
  }

  /** Marks a revoke as processed after the app has received its event. */
  finishRevoke(sequence, key) {
    const place = this.removeHandling(key);
    if (place && place.origin === this.core.state.origin) this.settleAt(place, sequence, 0);
  }

  /** Records the app's verdict `{kind, reason?}` on a message; returns false if it has a verdict already. */
  finish(message, verdict, now) {
    const place = this.removeHandling(message.key);
    if (!place) return false;
    if (message.channel === "vendor") {
      this.finishVendor(message, verdict, now);
      return true;
    }
    // The sequence belongs to an earlier registration or queue.
    if (place.origin !== this.core.state.origin) return true;
    // The session may have ended since the delivery. Processed messages are recorded nevertheless.
    if (verdict.kind === "deferred") return true;
    if (verdict.kind === "rejected") {
      // The sequence stays a hole until the gateway confirms the rejection. Otherwise an ack would report the message
      // as delivered.
      const rejection = {stream: message.stream, sequence: message.sequence, reason: verdict.reason};
      this.core.state.noteRejection(rejection);
      this.core.isDirty = true;
      // A gateway accepts a rejection only for messages of the same session. This message will be redelivered.
      if (!place.isOfEarlierSession) this.pendingRejections.push(rejection);
      return true;
    }
    this.core.fetching.count();
    if (this.core.configuration.vendorDuplicates) this.core.state.noteSeen(message.msgId);
    this.settleAt(place, message.sequence, message.stream);
    return true;
  }

  /** Marks the sequence of a place as processed. */
  settleAt({isOfEarlierSession}, sequence, stream) {
    if (!isOfEarlierSession) return this.settle(sequence, stream);
    // The current session has not redelivered this sequence, so the neighbouring ones may be unprocessed.
    this.core.state.processed(stream).insertAlone(sequence);
    this.core.isDirty = true;
    return undefined;
  }

  /** Passes a complete message from a vendor to the app, unless the app has it already. */
  receiveFromVendor(values, now) {
    const {msgId} = values, key = `vendor:${msgId}`;
    const isKnown = this.core.state.seen.includes(msgId) || this.handling.has(key)
      || Array.from(this.handling.values()).some(place => place.msgId === msgId);
    if (isKnown) {
      this.core.report("suppressed", {msgId, sequence: 0, wasOpened: false});
      return;
    }
    const message = Object.assign({
      channel: "vendor", stream: 0, sequence: 0, taskId: "", payload: new Uint8Array(0), offline: true, acceptedAt: 0,
      alertedAt: now.wall, attempt: 1, collapseKey: "", alert: null, wasOpened: false, origin: "", key,
    }, values);
    if (this.handlingBytes + message.payload.length > LIMITS.handlingBytes) return;
    this.handling.set(key, {origin: "", msgId, byteCount: message.payload.length, isOfEarlierSession: false});
    this.handlingBytes += message.payload.length;
    this.core.actions.push({type: "handle", message});
  }

  finishVendor(message, verdict, now) {
    const copy = this.copies.get(message.msgId);
    this.copies.delete(message.msgId);
    if (verdict.kind === "deferred") {
      if (this.deferredVendor.size >= LIMITS.seen) this.deferredVendor.clear();
      this.deferredVendor.add(message.msgId);
      if (copy && this.begin(copy.key, copy.origin, copy.payload.length, now, copy.msgId)) {
        this.core.actions.push({type: "handle", message: copy});
      }
      return;
    }
    this.core.state.noteSeen(message.msgId);
    this.core.isDirty = true;
    this.core.actions.push({type: "vendorProcessed"});
    if (copy && copy.origin === this.core.state.origin) {
      this.settle(copy.sequence, copy.stream);
      this.core.report("suppressed", {msgId: copy.msgId, sequence: copy.sequence, wasOpened: false});
    }
  }

  settle(sequence, stream) {
    const holes = this.holes.get(stream) || [], index = holes.indexOf(sequence);
    if (index === 0) holes.shift();
    else if (index > 0) holes.splice(index, 1);
    const rejected = this.core.state.rejections.filter(one => one.stream === stream).map(one => one.sequence);
    const open = rejected.length === 0 ? holes
      : Array.from(new Set(rejected.concat(holes))).filter(one => one !== sequence).sort((one, other) => one - other);
    this.core.state.processed(stream).insert(sequence, open);
    this.owesAck = this.core.isDirty = true;
  }

  /** Removes obsolete rejections: a message below `sequence` that was not redelivered in this session has ended. */
  forgetEndedRejections(sequence, stream) {
    const {state} = this.core;
    if (state.rejections.length === 0) return;
    const brought = this.holes.get(stream) || [];
    const kept = state.rejections
      .filter(one => one.stream !== stream || one.sequence >= sequence || brought.includes(one.sequence));
    if (kept.length !== state.rejections.length) this.core.isDirty = true;
    state.rejections = kept;
  }

  /** Marks rejections as confirmed after their Pong, so that acks may cover their sequences. */
  settleRejected(nonce) {
    const index = this.sentRejections.findIndex(one => one.nonce === nonce);
    if (index < 0) return;
    for (const {stream, sequence} of this.sentRejections.splice(index, 1)[0].rejections) {
      const {state} = this.core;
      state.rejections = state.rejections.filter(one => one.stream !== stream || one.sequence !== sequence);
      this.settle(sequence, stream);
    }
  }

  addHole(sequence, stream, now) {
    let list = this.holes.get(stream);
    if (!list) this.holes.set(stream, list = []);
    // Sequences arrive in order, so the insertion is nearly always at the end.
    let index = list.length;
    while (index > 0 && list[index - 1] > sequence) index -= 1;
    if (index > 0 && list[index - 1] === sequence) return;
    list.splice(index, 0, sequence);
    if (list.length > LIMITS.holes) this.core.violate(FLOODS, "more un-acked messages than any window", now);
  }

  isSequence(sequence, now) {
    if (sequence > 0 && sequence <= LIMITS.greatestSequence) return true;
    this.core.violate(MALFORMED, `${sequence} is no sequence`, now);
    return false;
  }

  /** Sends the rejections of this turn, then one Ack for all processed messages. */
  sendAcks(now) {
    if (this.pendingRejections.length > 0) {
      const rejections = this.pendingRejections;
      this.pendingRejections = [];
      for (let start = 0; start < rejections.length; start += LIMITS.rejectedPerAck) {
        this.core.send("ack", {rejected: rejections.slice(start, start + LIMITS.rejectedPerAck)}, now);
      }
      this.sentRejections.push({nonce: this.core.sendPing(now), rejections});
    }
    if (!this.owesAck) return;
    this.owesAck = false;
    this.core.send("ack", {positions: this.core.state.positions}, now);
  }
}
