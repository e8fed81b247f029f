// The client's state machine, without I/O: bytes, time and the app's calls go in, actions come out. It has the rules of
// the Swift client (Sources/Client/LongwireClient).
//
// Phases and their transitions:
//   idle       → connecting (start)
//   connecting → greeting (connected) | waiting (disconnected, deadline)
//   greeting   → ready (Welcome) | waiting, connecting or stopped (Close, disconnected, deadline)
//   ready      → waiting, connecting or stopped (Close, disconnected, a Ping without answer)
//   waiting    → connecting (deadline)
//   stopped    → connecting (start)
//
// Required order: a handler returns, the state is stored, the ack is sent. Actions run in their order, so `endTurn`
// queues `persist` before the Ack's `send`. If storing fails, the remaining actions are discarded and the connection is
// closed.

import {LongwireError} from "./errors.js";
import {BadFrame, FrameReader, encode, encodeHello} from "./frames.js";
import {LIMITS} from "./limits.js";
import {Backoff} from "./random.js";
import {ClientState, isSameReport} from "./state.js";
import {isSameToken, withToken} from "./tokens.js";
import {utf8} from "./bytes.js";

export const FOREGROUND = 0, BACKGROUND = 1;
const GOODBYE = 100, CLOCK_SKEW = 300, UNKNOWN_DEVICE = 301, REPLACED = 400, UNEXPECTED_FRAME = 410, MALFORMED = 412,
  FLOODS = 414;
const OF_CLIENTS = new Set(["hello", "ack", "deviceUpdate", "feedback", "upstream", "publish", "publishResult"]);
const FEEDBACK = {opened: 0, shown: 1, action: 2};

const isEqual = (one, other) => one.host === other.host && one.port === other.port;
export const addressOf = ({host, port}) => host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;

/** Parses host:port, with an IPv6 address in brackets; returns null for anything else. */
export function endpointOf(text) {
  const found = /^(?:\[([0-9A-Za-z.:_-]+)\]|([0-9A-Za-z._-]+)):([0-9]{1,5})$/.exec(text);
  if (!found) return null;
  const port = Number(found[3]);
  return port > 0 && port < 65536 ? {host: found[1] || found[2], port} : null;
}

export class ClientCore {
  /**
   * `configuration` has the settings that `LongwireClient` checked, `state` a ClientState or null, `random` a Random,
   * and `hmac` computes HMAC-SHA-256.
   */
  constructor({configuration, state, random, hmac}) {
    Object.assign(this, {configuration, random, hmac});
    this.phase = "idle";
    this.phaseDeadline = null;
    this.state = state && state.appId === configuration.appId ? state : new ClientState(configuration.appId);
    this.actions = [];

    // The connection.
    this.reader = new FrameReader();
    this.home = {host: configuration.host, port: configuration.port};
    this.endpoint = this.home;
    this.lastSentAt = 0;
    this.pingSentAt = null;
    this.nextNonce = 1;
    this.heartbeatMilliseconds = LIMITS.defaultHeartbeatSeconds * 1000;
    // The client assumes the network of its last run until the app reports another.
    const last = this.state.heartbeats[this.state.heartbeats.length - 1];
    this.network = last ? last[0] : "";
    this.heartbeat = this.state.heartbeat(this.network);
    this.lastReceivedAt = 0;
    /** Whether the Ping in flight follows a whole heartbeat without bytes from the gateway. */
    this.isProbing = false;
    this.welcomedAt = 0;
    /** The values of the last Hello, confirmed by its Welcome. */
    this.greeted = null;

    // Messages.
    /** Sequences by stream, ascending, that this session received and the app has not processed. */
    this.holes = new Map();
    /** Messages without a verdict by their key; a second copy is not handed to the app. */
    this.handling = new Map();
    this.handlingBytes = 0;
    /** Copies on the connection of messages that the app has from the vendor, by msgId. */
    this.copies = new Map();
    /** Ids of messages from the vendor that the app deferred in this session. */
    this.deferredVendor = new Set();
    this.pendingRejections = [];
    /**
     * Rejections in flight; the Pong to the Ping after them confirms them, because the gateway handles frames in order.
     */
    this.sentRejections = [];
    /** Tokens that the app set without a session. */
    this.renewedTokens = [];
    this.owesAck = false;
    this.isDirty = false;
    /**
     * Deliveries to drop without an ack: "none", "untilUpdate" (suspended), or the number of the update that ends it.
     */
    this.dropRule = "none";

    // The app's settings and reports for the gateway.
    this.nextRequest = 1;
    this.pendingUpdates = new Map();
    this.pendingBadge = configuration.badge;
    this.pushModeOff = configuration.pushModeOff;
    this.sentReports = null;
    this.fetch = null;
    this.isOutgoingSent = false;
    this.outgoingRetryAt = null;

    // Reconnecting.
    this.backoff = new Backoff(random, configuration.backoff.first, configuration.backoff.most);
    /** Whether the gateway, not the backoff, set the current delay. */
    this.isWaitNamed = false;
    this.skewRetries = 0;
    this.corrections = 0;
    /** The number of lost registrations since the last session of at least a minute. */
    this.losses = 0;
  }

  /** The time of the next call of `wake`, in monotonic milliseconds, or null. */
  get deadline() {
    const times = [this.ownDeadline];
    if (this.fetch) times.push(this.fetchDeadline);
    if (this.phase === "ready") times.push(this.outgoingRetryAt);
    const set = times.filter(time => time !== null);
    return set.length > 0 ? Math.min(...set) : null;
  }

  get fetchDeadline() {
    const {until, quietAt} = this.fetch;
    return quietAt === null ? until : Math.min(until, quietAt);
  }

  get ownDeadline() {
    if (this.phase !== "ready") return this.phaseDeadline;
    return this.pingSentAt === null ? this.lastSentAt + this.heartbeatMilliseconds : this.pingSentAt + LIMITS.pong;
  }

  get isStopped() { return this.phase === "stopped"; }

  report(type, values) { this.actions.push({type: "report", event: Object.assign({type}, values)}); }

  // The connection's phases

  enter(phase, deadline = null) {
    this.phase = phase;
    this.phaseDeadline = deadline;
  }

  start(now) {
    if (this.phase === "idle" || this.phase === "stopped") this.connect(now);
  }

  connect(now) {
    this.reader.reset();
    this.enter("connecting", now.monotonic + LIMITS.connect);
    this.report("connecting", {address: addressOf(this.endpoint)});
    this.actions.push({type: "connect", endpoint: this.endpoint});
  }

  connected(now) {
    if (this.phase !== "connecting") return;
    this.holes = new Map();
    for (const place of this.handling.values()) place.isOfEarlierSession = true;
    this.copies = new Map();
    this.deferredVendor = new Set();
    this.pendingRejections = [];
    this.sentRejections = [];
    this.enter("greeting", now.monotonic + LIMITS.welcome);
    this.sendHello(now);
  }

  /** Reconnects after the connection failed or the gateway closed it without a Close. */
  disconnected(reason, now) {
    if (this.phase !== "connecting" && this.phase !== "greeting" && this.phase !== "ready") return;
    this.report("disconnected", {reason});
    if (this.isProbing && this.phase === "ready") {
      this.heartbeat.lost(Math.floor(this.heartbeatMilliseconds / 1000));
      this.keepHeartbeat();
    }
    this.retry(now, new LongwireError("unreachable", reason));
  }

  wake(now) {
    if (this.fetch && now.monotonic >= this.fetchDeadline) this.endFetch(now);
    if (this.outgoingRetryAt !== null) this.sendOutgoing(now);
    const deadline = this.ownDeadline;
    if (deadline === null || now.monotonic < deadline) return;
    switch (this.phase) {
      case "waiting": this.connect(now); break;
      case "connecting": this.abandon(`no connection within ${LIMITS.connect / 1000} s`, now); break;
      case "greeting": this.abandon(`no Welcome within ${LIMITS.welcome / 1000} s`, now); break;
      case "ready":
        if (this.pingSentAt !== null) {
          this.abandon(`a Ping was not answered within ${LIMITS.pong / 1000} s`, now);
        } else {
          this.isProbing = now.monotonic - this.lastReceivedAt >= this.heartbeatMilliseconds * 0.9;
          this.sendPing(now);
        }
        break;
      default: break;
    }
  }

  /**
   * Handles a failed write of the state: sends no Ack, closes the connection and schedules a reconnect. The changed
   * state stays in memory and is written before the next Hello. `skipped` are the actions after the failed one; they
   * are discarded.
   */
  persistFailed(error, skipped, now) {
    for (const action of skipped.concat(this.actions)) {
      if (action.type === "handle") this.removeHandling(action.message.key);
      if (action.type === "revoke") this.removeHandling(action.key);
    }
    this.actions = [];
    // If the state stayed dirty, the end of this turn would try to store it again in an endless loop.
    this.isDirty = false;
    this.report("stateNotStored", {error, reason: error.message});
    this.actions.push({type: "disconnect"});
    if (this.phase === "stopped") this.report("stopped", {error});
    else if (this.phase !== "idle" && this.phase !== "waiting") this.retry(now, error);
  }

  stop(now, error = null) {
    if (this.phase === "stopped") return;
    if (this.phase === "ready") {
      this.endTurn(now);
      this.send("close", {code: GOODBYE, reason: "the client stops"}, now);
    }
    this.halt(error);
  }

  /** Closes the connection and stops the client. */
  halt(error) {
    this.actions.push({type: "disconnect"});
    this.leaveSession();
    this.enter("stopped");
    this.endFetchEarly();
    this.report("stopped", {error});
  }

  abandon(reason, now) {
    this.actions.push({type: "disconnect"});
    this.disconnected(reason, now);
  }

  /**
   * Resets what belongs to one connection. The holes stay until the next one, because handlers may still have messages.
   */
  leaveSession() {
    if (this.handling.size > 0) this.actions.push({type: "withdraw"});
    this.reader.reset();
    this.owesAck = false;
    this.pingSentAt = null;
    this.isProbing = false;
    this.sentReports = null;
    if (this.fetch) this.fetch.quietAt = null;
    this.pendingUpdates = new Map();
    this.isOutgoingSent = false;
    this.outgoingRetryAt = null;
  }

  // Sending

  send(name, values, now) {
    this.actions.push({type: "send", bytes: encode(name, values)});
    this.lastSentAt = now.monotonic;
  }

  sendPing(now) {
    const nonce = String(this.nextNonce);
    this.nextNonce += 1;
    this.send("ping", {nonce}, now);
    if (this.pingSentAt === null) this.pingSentAt = now.monotonic;
    return nonce;
  }

  persist() {
    this.isDirty = false;
    this.actions.push({type: "persist"});
  }

  // The handshake

  sendHello(now) {
    const {configuration, state} = this;
    const least = Math.max(Math.round(now.wall + state.offset), state.lastTimestamp + 1, 0);
    const timestamp = Math.min(least, LIMITS.greatestSequence);
    const hello = {
      appId: configuration.appId, timestamp, applicationState: configuration.applicationState,
      keepsRunning: configuration.keepsRunning,
      heartbeatSeconds: this.heartbeat.learnt === null ? configuration.heartbeatSeconds : this.heartbeat.learnt,
      badge: this.pendingBadge, tokens: configuration.tokens, replayOpened: configuration.replaysOpened,
      client: configuration.clientName, window: configuration.window, opened: [],
    };
    if (state.isRegistered) {
      Object.assign(hello, {
        cid: state.cid, queueEpoch: state.epoch, positions: state.positions,
        opened: state.unreportedOpened.slice(0, LIMITS.openedPerHello),
      });
    } else {
      // All devices of an app prove their registration with the same secret. Without a nonce, two equal Hellos of one
      // millisecond would be refused as a replay.
      Object.assign(hello, {registration: true, nonce: this.random.nonce()});
    }
    const bytes = encodeHello(hello, state.isRegistered ? state.secret : utf8(configuration.appSecret), this.hmac);
    this.greeted = hello;
    // Stored before it is sent, so that a timestamp is never reused after a crash.
    state.lastTimestamp = timestamp;
    this.persist();
    this.actions.push({type: "send", bytes});
    this.lastSentAt = now.monotonic;
  }

  receiveWelcome(welcome, now) {
    const {state, greeted} = this;
    if (!state.isRegistered) {
      if (/^0*$/.test(welcome.cid) || welcome.deviceSecret.length !== 32) {
        return this.violate(MALFORMED, "the Welcome of a registration has no cid or no secret", now);
      }
      Object.assign(state, {cid: welcome.cid, secret: welcome.deviceSecret, epoch: welcome.queueEpoch});
      this.actions.push({type: "persist"});
      this.report("registered", {cid: welcome.cid});
    } else if (welcome.queueEpoch !== state.epoch) {
      // A device without processed messages has no positions to lose.
      if (state.streams.size > 0) this.report("queueReset", {from: state.epoch, to: welcome.queueEpoch});
      Object.assign(state, {epoch: welcome.queueEpoch, streams: new Map(), rejections: [], seen: []});
    }
    state.acceptedTimestamp = greeted.timestamp;
    state.unreportedOpened = state.unreportedOpened.filter(id => !greeted.opened.includes(id));
    if (greeted.badge === this.pendingBadge) this.pendingBadge = null;
    this.persist();

    this.enter("ready");
    this.welcomedAt = now.monotonic;
    this.corrections = 0;
    const seconds = welcome.heartbeatSeconds || LIMITS.defaultHeartbeatSeconds;
    this.heartbeatMilliseconds = seconds * 1000;
    this.heartbeat.agreed(seconds);
    if (this.fetch) this.fetch.quietAt = now.monotonic + LIMITS.fetchQuiet;
    this.dropRule = greeted.applicationState !== FOREGROUND && !greeted.keepsRunning ? "untilUpdate" : "none";
    this.report("welcomed", {
      cid: state.cid, session: welcome.generation, epoch: welcome.queueEpoch, heartbeat: welcome.heartbeatSeconds,
      window: welcome.window, serverTime: welcome.serverTime, pending: welcome.backlog, dropped: welcome.dropped,
    });

    this.sendChanges(now);
    const {pendingBadge, pushModeOff} = this;
    if (pendingBadge !== null) this.update(now, {badge: pendingBadge});
    if (pushModeOff !== null) this.update(now, {pushModeOff});
    this.sendReports(now);
    this.sendOutgoing(now);
  }

  /** Sends the changes that the app made between Hello and Welcome. */
  sendChanges(now) {
    const {applicationState, keepsRunning, tokens} = this.configuration, {greeted} = this;
    if (applicationState !== greeted.applicationState || keepsRunning !== greeted.keepsRunning) {
      this.perform({do: "applicationState", applicationState, keepsRunning}, now);
    }
    const isHad = old => tokens.some(one => one.channel === old.channel && one.kind === old.kind
      && (old.activity === "" || one.activity === old.activity));
    const removed = greeted.tokens.filter(old => !isHad(old))
      .map(({channel, kind, activity}) => ({channel, kind, activity, environment: 0, topic: "", token: ""}));
    // A Hello does not renew a token that the gateway already has. Tokens that the app set without a session are
    // therefore sent again: the vendor has just reissued them.
    const added = tokens.filter(token => !greeted.tokens.some(old => isSameToken(old, token))
      || this.renewedTokens.some(renewed => isSameToken(renewed, token)));
    this.renewedTokens = [];
    const changes = removed.concat(added);
    for (let start = 0; start < changes.length; start += LIMITS.tokens) {
      this.update(now, {tokens: changes.slice(start, start + LIMITS.tokens)});
    }
  }

  /** Sends Feedback for the opened messages that Hello had no room for, and for later reports. */
  sendReports(now) {
    const {unreportedOpened: opened, unreported: others} = this.state;
    if (this.phase !== "ready" || this.sentReports || opened.length + others.length === 0) return;
    for (const msgId of opened) this.send("feedback", {kind: FEEDBACK.opened, msgId}, now);
    for (const {kind, msgId, action} of others) this.send("feedback", {kind: FEEDBACK[kind], msgId, action}, now);
    this.sentReports = {nonce: this.sendPing(now), opened: opened.slice(), others: others.slice()};
  }

  // Incoming frames

  receive(bytes, now) {
    if (this.phase !== "greeting" && this.phase !== "ready") return;
    // Any received byte proves that the connection works.
    this.pingSentAt = null;
    this.lastReceivedAt = now.monotonic;
    if (this.fetch && this.fetch.quietAt !== null) this.fetch.quietAt = now.monotonic + LIMITS.fetchQuiet;
    if (this.isProbing) {
      this.isProbing = false;
      const seconds = this.heartbeat.answered();
      if (seconds !== null) {
        this.keepHeartbeat();
        this.update(now, {heartbeatSeconds: seconds});
      }
    }
    this.reader.append(bytes);
    try {
      // Frames after one that ended the session are not read.
      while (this.phase === "greeting" || this.phase === "ready") {
        const frame = this.reader.next();
        if (!frame) break;
        this.receiveFrame(frame.name, frame.values, now);
      }
    } catch (error) {
      if (!(error instanceof BadFrame)) throw error;
      this.violate(error.closeCode, error.message, now);
    }
  }

  receiveFrame(name, values, now) {
    if (name === "close") return this.receiveClose(values, now);
    if (OF_CLIENTS.has(name)) return this.violate(UNEXPECTED_FRAME, `a gateway does not send ${name}`, now);
    if (this.phase !== "ready") {
      if (name === "welcome") return this.receiveWelcome(values, now);
      return this.violate(UNEXPECTED_FRAME, "a frame came before Welcome", now);
    }
    switch (name) {
      case "ping": return this.send("pong", {nonce: values.nonce}, now);
      case "pong":
        this.settleRejected(values.nonce);
        return this.settleReported(values.nonce, now);
      case "deliver": return this.receiveDeliver(values, now);
      case "revoke": return this.receiveRevoke(values, now);
      case "updateResult": return this.receiveUpdateResult(values, now);
      case "upstreamResult": return this.receiveUpstreamResult(values, now);
      default: return this.violate(UNEXPECTED_FRAME, "a second Welcome", now);
    }
  }

  // Deliveries

  receiveDeliver(deliver, now) {
    const {state} = this, {stream, sequence, msgId} = deliver;
    if (!this.isSequence(sequence, now)) return;
    // Every stream needs room in each Hello and Ack, so their number is limited.
    const known = new Set(Array.from(state.streams.keys()).concat(Array.from(this.holes.keys())));
    if (!known.has(stream) && known.size >= LIMITS.streams) {
      this.violate(FLOODS, "more streams than there can be", now);
      return;
    }
    const processed = state.streams.get(stream);
    if (processed && processed.contains(sequence)) {
      // The gateway did not receive the ack.
      this.owesAck = true;
      this.report("suppressed", {msgId, sequence, wasOpened: false});
      return;
    }
    this.forgetEndedRejections(sequence, stream);
    if (this.dropRule !== "none") {
      this.addHole(sequence, stream, now);
      this.report("droppedWhileSuspended", {msgId, sequence});
      return;
    }
    const rejection = state.rejections.find(one => one.stream === stream && one.sequence === sequence);
    if (rejection) {
      // The gateway did not receive the rejection.
      this.addHole(sequence, stream, now);
      this.pendingRejections.push(rejection);
      this.report("suppressed", {msgId, sequence, wasOpened: false});
      return;
    }
    // `carriedByVendor` means that the notification held the complete message. Otherwise this copy is still needed,
    // even after the user opened the notification.
    const wasOpened = state.opened.includes(msgId);
    const isFromVendor = msgId !== "" && state.seen.includes(msgId);
    if (isFromVendor || wasOpened && deliver.carriedByVendor && !this.configuration.replaysOpened) {
      this.settle(sequence, stream);
      this.report("suppressed", {msgId, sequence, wasOpened});
      return;
    }
    // The sequence is a hole until the handler has returned: an ack must not cover it before then.
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
      this.actions.push({type: "handle", message});
    }
  }

  receiveRevoke(revoke, now) {
    const {sequence} = revoke, processed = this.state.streams.get(0);
    if (!this.isSequence(sequence, now)) return;
    if (processed && processed.contains(sequence)) {
      this.owesAck = true;
      return;
    }
    // A hole until the app has processed the revoke. If the client crashes before it stores its state, the gateway
    // sends the revoke again.
    this.addHole(sequence, 0, now);
    if (this.dropRule !== "none") return;
    const {origin} = this.state, key = `0:${sequence}:${origin}`;
    if (this.begin(key, origin, 0, now)) {
      this.actions.push({type: "revoke", taskId: revoke.revokedTaskId, sequence, key});
    }
  }

  /** Returns false when the app has the message already, or the session has ended. */
  begin(key, origin, byteCount, now, msgId = "") {
    if (this.phase !== "ready") return false;
    const place = this.handling.get(key);
    if (place) {
      place.isOfEarlierSession = false;
      return false;
    }
    if (this.handlingBytes + byteCount > LIMITS.handlingBytes) {
      this.violate(FLOODS, "more bytes un-acked than any window has", now);
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
    if (this.removeHandling(key)) this.settle(sequence, 0);
  }

  /** Records the app's verdict `{kind, reason?}` on a message; returns false when it was already decided. */
  finish(message, verdict, now) {
    const place = this.removeHandling(message.key);
    if (!place) return false;
    if (message.channel === "vendor") {
      this.finishVendor(message, verdict, now);
      return true;
    }
    // The sequence belongs to an earlier registration or queue.
    if (place.origin !== this.state.origin) return true;
    // The session may have ended since the delivery. Processed messages are recorded nevertheless.
    if (verdict.kind === "deferred") return true;
    if (verdict.kind === "rejected") {
      // The sequence stays a hole until the gateway confirms the rejection. A position that covered it would report it
      // as delivered.
      const rejection = {stream: message.stream, sequence: message.sequence, reason: verdict.reason};
      this.state.noteRejection(rejection);
      this.isDirty = true;
      // A gateway accepts a rejection only for messages of the same session. This message will be redelivered.
      if (!place.isOfEarlierSession) this.pendingRejections.push(rejection);
      return true;
    }
    if (this.fetch) this.fetch.messages += 1;
    if (this.configuration.vendorDuplicates) this.state.noteSeen(message.msgId);
    if (place.isOfEarlierSession) {
      // The current session has not redelivered this message, so nothing is known about neighbouring sequences.
      this.state.processed(message.stream).insertAlone(message.sequence);
      this.isDirty = true;
    } else {
      this.settle(message.sequence, message.stream);
    }
    return true;
  }

  /** Hands over a message that came complete through the vendor, unless the app has it already. */
  receiveVendorMessage(values, now) {
    const {msgId} = values, key = `vendor:${msgId}`;
    const isKnown = this.state.seen.includes(msgId) || this.handling.has(key)
      || Array.from(this.handling.values()).some(place => place.msgId === msgId);
    if (isKnown) {
      this.report("suppressed", {msgId, sequence: 0, wasOpened: false});
      return;
    }
    const message = Object.assign({
      channel: "vendor", stream: 0, sequence: 0, taskId: "", payload: new Uint8Array(0), offline: true, acceptedAt: 0,
      alertedAt: now.wall, attempt: 1, collapseKey: "", alert: null, wasOpened: false, origin: "", key,
    }, values);
    if (this.handlingBytes + message.payload.length > LIMITS.handlingBytes) return;
    this.handling.set(key, {origin: "", msgId, byteCount: message.payload.length, isOfEarlierSession: false});
    this.handlingBytes += message.payload.length;
    this.actions.push({type: "handle", message});
  }

  finishVendor(message, verdict, now) {
    const copy = this.copies.get(message.msgId);
    this.copies.delete(message.msgId);
    if (verdict.kind === "deferred") {
      if (this.deferredVendor.size >= LIMITS.seen) this.deferredVendor.clear();
      this.deferredVendor.add(message.msgId);
      if (copy && this.begin(copy.key, copy.origin, copy.payload.length, now, copy.msgId)) {
        this.actions.push({type: "handle", message: copy});
      }
      return;
    }
    this.state.noteSeen(message.msgId);
    this.isDirty = true;
    this.actions.push({type: "vendorProcessed"});
    if (copy && copy.origin === this.state.origin) {
      this.settle(copy.sequence, copy.stream);
      this.report("suppressed", {msgId: copy.msgId, sequence: copy.sequence, wasOpened: false});
    }
  }

  settle(sequence, stream) {
    const holes = this.holes.get(stream) || [], index = holes.indexOf(sequence);
    if (index === 0) holes.shift();
    else if (index > 0) holes.splice(index, 1);
    const rejected = this.state.rejections.filter(one => one.stream === stream).map(one => one.sequence);
    const open = rejected.length === 0 ? holes
      : Array.from(new Set(rejected.concat(holes))).filter(one => one !== sequence).sort((one, other) => one - other);
    this.state.processed(stream).insert(sequence, open);
    this.owesAck = this.isDirty = true;
  }

  /** Removes rejections that have ended: a rejected message that was not redelivered before `sequence` has ended. */
  forgetEndedRejections(sequence, stream) {
    const {state} = this;
    if (state.rejections.length === 0) return;
    const brought = this.holes.get(stream) || [];
    const kept = state.rejections
      .filter(one => one.stream !== stream || one.sequence >= sequence || brought.includes(one.sequence));
    if (kept.length !== state.rejections.length) this.isDirty = true;
    state.rejections = kept;
  }

  /** Settles rejections once the Pong confirms them; from then on positions may cover their sequences. */
  settleRejected(nonce) {
    const index = this.sentRejections.findIndex(one => one.nonce === nonce);
    if (index < 0) return;
    for (const {stream, sequence} of this.sentRejections.splice(index, 1)[0].rejections) {
      this.state.rejections = this.state.rejections.filter(one => one.stream !== stream || one.sequence !== sequence);
      this.settle(sequence, stream);
    }
  }

  addHole(sequence, stream, now) {
    let list = this.holes.get(stream);
    if (!list) this.holes.set(stream, list = []);
    // Streams are in order, so the insertion is nearly always at the end.
    let index = list.length;
    while (index > 0 && list[index - 1] > sequence) index -= 1;
    if (index > 0 && list[index - 1] === sequence) return;
    list.splice(index, 0, sequence);
    if (list.length > LIMITS.holes) this.violate(FLOODS, "more un-acked messages than any window", now);
  }

  isSequence(sequence, now) {
    if (sequence > 0 && sequence <= LIMITS.greatestSequence) return true;
    this.violate(MALFORMED, `${sequence} is no sequence`, now);
    return false;
  }

  /** Ends a turn: stores the changed state, then acks everything that was processed with one frame. */
  endTurn(now) {
    if (this.isDirty) this.persist();
    if (this.phase !== "ready") return;
    if (this.pendingRejections.length > 0) {
      const rejections = this.pendingRejections;
      this.pendingRejections = [];
      for (let start = 0; start < rejections.length; start += LIMITS.rejectedPerAck) {
        this.send("ack", {rejected: rejections.slice(start, start + LIMITS.rejectedPerAck)}, now);
      }
      this.sentRejections.push({nonce: this.sendPing(now), rejections});
    }
    if (!this.owesAck) return;
    this.owesAck = false;
    this.send("ack", {positions: this.state.positions}, now);
  }

  settleReported(nonce, now) {
    const sent = this.sentReports, {state} = this;
    if (!sent || sent.nonce !== nonce) return;
    this.sentReports = null;
    state.unreportedOpened = state.unreportedOpened.filter(id => !sent.opened.includes(id));
    state.unreported = state.unreported.filter(report => !sent.others.some(other => isSameReport(report, other)));
    this.isDirty = true;
    this.sendReports(now);
  }

  /** Closes the connection with a protocol error, and reconnects after the backoff. */
  violate(code, reason, now) {
    if (this.phase !== "greeting" && this.phase !== "ready") return;
    this.send("close", {code, reason: reason.slice(0, 100)}, now);
    this.actions.push({type: "disconnect"});
    this.report("disconnected", {reason: `the gateway broke the protocol: ${reason}`});
    this.retry(now, new LongwireError("protocolViolation", reason));
  }

  // Reconnecting

  receiveClose(close, now) {
    const {code} = close, rule = Math.floor(code / 100);
    this.report("closed", {code, reason: close.reason});
    this.actions.push({type: "disconnect"});
    const error = new LongwireError("refused", `the gateway closed with code ${code}: ${close.reason}`,
      {closeCode: code});
    const wasWelcomed = this.phase === "ready", wasSteady = this.forgiveFailures(now);
    const isAtHome = isEqual(this.endpoint, this.home);
    let next = rule === 2 && this.configuration.usesAlternates ? endpointOf(close.alternate) : null;
    if (next && isEqual(next, this.endpoint)) next = null;
    // The configured address redirected the client before a session began. The attempt continues at the alternate.
    const isSentOn = next !== null && !wasWelcomed && isAtHome;
    if (!this.configuration.reconnects && !isSentOn && !this.isCorrection(code)) return this.halt(error);

    if (rule === 2 && next) {
      // The first redirect is immediate. Later ones back off, so that gateways that redirect in a circle cannot cause a
      // busy loop.
      const pause = isAtHome || wasSteady ? 0 : this.backoff.next(), window = this.windowOf(close);
      return this.wait(Math.max(window === null ? 0 : window, pause), now, window !== null, next);
    }
    // A refusal by an alternate gateway does not change the rules of the configured one.
    if ((rule === 3 || rule === 4) && !isAtHome && !wasWelcomed && code !== CLOCK_SKEW) {
      return this.wait(this.backoff.next(), now);
    }
    if (rule === 3) return this.correct(close, error, now);
    if (rule === 4) {
      // The client reconnects only after `replaced`, and after a long delay. Otherwise two processes with the same cid
      // would replace each other continuously.
      if (code !== REPLACED) return this.halt(error);
      return this.wait(LIMITS.replaced + this.backoff.next(), now, true);
    }
    return this.leave(close, now);
  }

  leave(close, now) {
    const window = this.windowOf(close);
    if (window === null) return this.wait(this.backoff.next(), now);
    // A short delay is raised to the backoff, so that repeated short delays do not flood the gateway with connections.
    const isShort = window < this.configuration.backoff.first;
    return this.wait(isShort ? Math.max(window, this.backoff.next()) : window, now, true);
  }

  /**
   * Handles a network that became usable: loads the heartbeat learnt on it, and shortens a backoff or tests the
   * connection. A delay that the gateway requested is kept.
   */
  networkChanged(name, now) {
    this.network = name === null ? "" : name;
    if (name === null) this.heartbeat.forget();
    else this.heartbeat = this.state.heartbeat(name);
    this.keepHeartbeat();
    if (this.phase === "waiting" && !this.isWaitNamed) {
      this.backoff.reset();
      this.endWaitSoon(now);
    } else if (this.phase === "ready" && this.pingSentAt === null) {
      this.sendPing(now);
    }
  }

  /** Shortens a backoff to at most its first step; a delay that the gateway requested is kept. */
  endWaitSoon(now) {
    if (this.phase !== "waiting" || this.isWaitNamed) return;
    const soon = now.monotonic + this.backoff.within(0, this.configuration.backoff.first);
    this.phaseDeadline = Math.min(this.phaseDeadline, soon);
  }

  /** Records the heartbeat of the current network in the state; it is stored with the next change. */
  keepHeartbeat() { this.state.keepHeartbeat(this.heartbeat, this.network); }

  /** Resets the backoff if the session lasted a minute; returns false if it did not, or without a session. */
  forgiveFailures(now) {
    if (this.phase !== "ready" || now.monotonic - this.welcomedAt < LIMITS.steady) return false;
    this.backoff.reset();
    this.skewRetries = this.losses = 0;
    return true;
  }

  /** Reconnects with backoff after a failure without a Close. */
  retry(now, error) {
    if (!this.configuration.reconnects) return this.halt(error);
    this.forgiveFailures(now);
    return this.wait(this.backoff.next(), now);
  }

  wait(milliseconds, now, isNamed = false, next = null) {
    this.leaveSession();
    this.endpoint = next || this.home;
    this.isWaitNamed = isNamed;
    this.enter("waiting", now.monotonic + milliseconds);
    this.report("retrying", {milliseconds});
  }

  /** Handles a Close of 3xx: corrects the named problem and reconnects once; a second one in a row stops the client. */
  correct(close, error, now) {
    const {state} = this;
    if (close.code === CLOCK_SKEW) {
      if (close.serverTime > 0 && close.serverTime <= LIMITS.greatestTime) {
        state.offset = Math.round(close.serverTime - now.wall);
      }
      // The gateway has not recorded the refused timestamp. If it stayed in the state, a device whose clock was once
      // far ahead would be locked out until then.
      state.lastTimestamp = state.acceptedTimestamp;
      this.isDirty = true;
      this.skewRetries += 1;
      const delay = this.skewRetries === 1 ? 0 : this.backoff.next();
      return this.wait(delay, now, false, this.phase === "ready" ? null : this.endpoint);
    }
    this.corrections += 1;
    if (close.code === UNKNOWN_DEVICE) {
      if (this.corrections !== 1 || !state.isRegistered || this.configuration.appSecret === "") return this.halt(error);
      this.report("registrationLost", {cid: state.cid});
      state.forgetRegistration();
      this.isDirty = true;
      this.losses += 1;
      // The first lost registration reconnects at once. Later ones back off, in case a gateway loses every
      // registration.
      return this.wait(this.losses === 1 ? 0 : this.backoff.next(), now);
    }
    if (this.corrections !== 1) return this.halt(error);
    return this.leave(close, now);
  }

  /**
   * Whether the Close asks for the first correction of its kind; it is allowed even if the client must not reconnect.
   */
  isCorrection(code) {
    return code === CLOCK_SKEW ? this.skewRetries === 0 : code === UNKNOWN_DEVICE && this.corrections === 0;
  }

  windowOf({retryAfterMinimum, retryAfterMaximum}) {
    const [least, most] = [retryAfterMinimum, retryAfterMaximum].map(time => Math.min(time, LIMITS.retryWindow));
    return least > 0 || most > 0 ? this.backoff.within(least, Math.max(least, most)) : null;
  }

  // The app's calls

  /** Whether the system may freeze the app with its socket open; the gateway treats such a device as offline. */
  get isSuspended() { return this.configuration.applicationState !== FOREGROUND && !this.configuration.keepsRunning; }

  perform(command, now) {
    const {configuration} = this;
    switch (command.do) {
      case "stop": this.stop(now, command.error || null); break;
      case "applicationState": {
        const wasSuspended = this.isSuspended, {applicationState, keepsRunning} = command;
        Object.assign(configuration, {applicationState, keepsRunning});
        if (this.fetch) this.fetch.ownsRunning = false;
        this.update(now, {applicationState, keepsRunning});
        // This update starts the suspension. Deliveries are dropped until the gateway confirms the update that ends it.
        if (this.isSuspended) {
          this.dropRule = "untilUpdate";
          // Messages that wait for the app would appear as new after the suspension. They are delivered again.
          if (this.handling.size > 0) this.actions.push({type: "withdraw"});
        } else if (wasSuspended) {
          this.resume(now);
        }
        break;
      }
      case "finish": this.finish(command.message, command.verdict, now); break;
      case "badge":
        this.pendingBadge = command.value;
        this.update(now, {badge: command.value});
        break;
      case "token": {
        const {token} = command;
        configuration.tokens = withToken(configuration.tokens, token);
        if (token.token !== "" && this.phase !== "ready") {
          const others = this.renewedTokens.filter(one => !isSameToken(one, token));
          this.renewedTokens = others.concat(token).slice(-LIMITS.tokens);
        }
        this.update(now, {tokens: [token]});
        break;
      }
      case "pushMode":
        this.pushModeOff = configuration.pushModeOff = command.off;
        this.update(now, {pushModeOff: command.off});
        break;
      case "heartbeat":
        configuration.heartbeatSeconds = command.seconds;
        this.heartbeat.forget();
        this.keepHeartbeat();
        this.update(now, {heartbeatSeconds: command.seconds});
        break;
      case "opened":
        this.state.noteOpened(command.msgId);
        // Stored at once, because the system may end the app at any moment.
        this.persist();
        this.sendReports(now);
        break;
      case "report":
        if (!this.state.noteReport(command.report)) break;
        this.isDirty = true;
        this.sendReports(now);
        break;
      case "probe": this.resume(now); break;
      case "network": this.networkChanged(command.name, now); break;
      case "send": this.sendUpstream(command, now); break;
      case "fetch": this.beginFetch(command, now); break;
      case "vendorMessage": this.receiveVendorMessage(command.message, now); break;
      default: throw new TypeError(`the client has no command ${command.do}`);
    }
  }

  /** Sends a DeviceUpdate; does nothing without a session, because the next Hello carries the values. */
  update(now, values) {
    if (this.phase !== "ready") return;
    // Messages handled before the change are acked before it. Otherwise the gateway would redeliver them with other
    // flags.
    this.endTurn(now);
    const request = this.nextRequest;
    this.nextRequest = request >= 4294967295 ? 1 : request + 1;
    this.pendingUpdates.set(request, values);
    if (this.dropRule === "untilUpdate") this.dropRule = request;
    this.send("deviceUpdate", Object.assign({request}, values), now);
  }

  receiveUpdateResult(result, now) {
    const update = this.pendingUpdates.get(result.request);
    this.pendingUpdates.delete(result.request);
    if (result.code === 0 && update) {
      if (update.pushModeOff !== undefined && this.pushModeOff === update.pushModeOff) this.pushModeOff = null;
      // A badge that the app set again after this update is still unconfirmed, even if the value is equal.
      const isSetAgain = Array.from(this.pendingUpdates.values()).some(one => one.badge !== undefined);
      if (update.badge !== undefined && update.badge === this.pendingBadge && !isSetAgain) this.pendingBadge = null;
    }
    if (result.heartbeatSeconds !== 0) {
      this.heartbeatMilliseconds = result.heartbeatSeconds * 1000;
      this.heartbeat.agreed(result.heartbeatSeconds);
    }
    if (this.dropRule === result.request) this.dropRule = this.isSuspended ? "untilUpdate" : "none";
    this.report("updated", {request: result.request, code: result.code, reason: result.reason});
  }

  /** Reacts to an app that runs again: shortens a reconnect delay, or sends a Ping to find a dead connection. */
  resume(now) {
    if (this.phase !== "ready") this.endWaitSoon(now);
    else if (this.pingSentAt === null) this.sendPing(now);
  }

  // Messages to the app's server

  sendUpstream({payload, taskId, kept}, now) {
    const message = this.state.keepOutgoing(payload, taskId);
    if (kept) kept(message);
    if (!message) {
      const reason = "too many messages wait for the gateway already";
      this.report("refused", {request: 0, code: 0, reason, payload, taskId});
      return;
    }
    this.persist();
    this.sendOutgoing(now);
  }

  /** Sends the first kept message; only one is in flight, so that a later one cannot overtake a refused one. */
  sendOutgoing(now) {
    const isDue = this.outgoingRetryAt === null || this.outgoingRetryAt <= now.monotonic;
    if (this.phase !== "ready" || this.isOutgoingSent || !isDue) return;
    this.outgoingRetryAt = null;
    const first = this.state.outgoing[0];
    if (!first) return;
    this.isOutgoingSent = true;
    this.send("upstream", {request: first.number, payload: first.payload, taskId: first.taskId}, now);
  }

  receiveUpstreamResult({request, code, reason}, now) {
    const first = this.state.outgoing[0];
    if (!first || first.number !== request || !this.isOutgoingSent) return;
    this.isOutgoingSent = false;
    if (code >= LIMITS.firstRetriedCode) {
      this.outgoingRetryAt = now.monotonic + (code === LIMITS.busyCode ? LIMITS.busyRetry : LIMITS.fullRetry);
      return;
    }
    this.state.outgoing.shift();
    this.persist();
    const {payload, taskId} = first;
    if (code === 0) this.report("taken", {request, payload, taskId});
    else this.report("refused", {request, code, reason, payload, taskId});
    this.sendOutgoing(now);
  }

  // Fetching

  beginFetch({milliseconds, done}, now) {
    if (this.phase === "stopped") {
      if (done) done({messages: 0, isComplete: false});
      return;
    }
    const fetch = this.fetch || {until: 0, quietAt: null, messages: 0, ownsRunning: false, done: []};
    fetch.until = Math.max(fetch.until, now.monotonic + milliseconds);
    if (done) fetch.done.push(done);
    if (this.phase === "ready") fetch.quietAt = now.monotonic + LIMITS.fetchQuiet;
    const wasSuspended = this.isSuspended;
    this.fetch = fetch;
    if (wasSuspended) {
      this.keepRunning(true, now);
      fetch.ownsRunning = true;
    }
    if (this.phase === "waiting" && !this.isWaitNamed) this.connect(now);
  }

  keepRunning(keepsRunning, now) {
    const {applicationState} = this.configuration;
    this.perform({do: "applicationState", applicationState, keepsRunning}, now);
  }

  endFetch(now) {
    const {fetch} = this;
    if (this.handling.size > 0 && now.monotonic < fetch.until) {
      // The gateway is silent, but the app has not returned its verdicts yet.
      fetch.quietAt = now.monotonic + LIMITS.fetchQuiet;
      return;
    }
    this.fetch = null;
    if (fetch.ownsRunning) {
      this.keepRunning(false, now);
    }
    const isComplete = this.phase === "ready" && now.monotonic < fetch.until;
    this.report("fetched", {messages: fetch.messages, isComplete});
    for (const done of fetch.done) done({messages: fetch.messages, isComplete});
  }

  endFetchEarly() {
    const {fetch} = this;
    this.fetch = null;
    if (fetch) for (const done of fetch.done) done({messages: fetch.messages, isComplete: false});
  }
}
