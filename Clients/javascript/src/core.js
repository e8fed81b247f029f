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

import {utf8} from "./bytes.js";
import {FOREGROUND, GOODBYE, MALFORMED, UNEXPECTED_FRAME} from "./codes.js";
import {Deliveries} from "./deliveries.js";
import {addressOf} from "./endpoints.js";
import {LongwireError} from "./errors.js";
import {Fetching} from "./fetching.js";
import {BadFrame, FrameReader, encode, encodeHello} from "./frames.js";
import {LIMITS} from "./limits.js";
import {Names} from "./names.js";
import {helloAttributes} from "./options.js";
import {Reconnection} from "./reconnection.js";
import {ClientState, isSameReport} from "./state.js";
import {excludes, isSameToken, removalOf, withToken} from "./tokens.js";
import {Upstream} from "./upstream.js";

const OF_CLIENTS = new Set(["hello", "ack", "deviceUpdate", "feedback", "upstream", "publish", "publishResult",
  "deviceNames"]);
const FEEDBACK = {opened: 0, shown: 1, action: 2};

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

    this.deliveries = new Deliveries(this);
    this.upstream = new Upstream(this);
    this.names = new Names(this);
    this.fetching = new Fetching(this);
    this.reconnection = new Reconnection(this, random, configuration.backoff);

    /** Tokens that the app set without a session. */
    this.renewedTokens = [];
    /** Whether the state has unsaved changes. */
    this.isDirty = false;
    /** Whether the last write of the state failed, so that the store has an older state. */
    this.owesWrite = false;

    // The app's settings and reports for the gateway.
    this.nextRequest = 1;
    this.pendingUpdates = new Map();
    this.pushModeOff = configuration.pushModeOff;
    this.sentReports = null;
  }

  /** The time of the next call of `wake`, in monotonic milliseconds, or null. */
  get deadline() {
    const times = [this.ownDeadline, this.fetching.deadline];
    if (this.phase === "ready") times.push(this.upstream.retryAt, this.names.deadline);
    const set = times.filter(time => time !== null);
    return set.length > 0 ? Math.min(...set) : null;
  }

  get ownDeadline() {
    if (this.phase !== "ready") return this.phaseDeadline;
    return this.pingSentAt === null ? this.lastSentAt + this.heartbeatMilliseconds : this.pingSentAt + LIMITS.pong;
  }

  /** The badge that the gateway has not confirmed, or null; kept in the configuration for the next start. */
  get pendingBadge() { return this.configuration.badge; }
  set pendingBadge(value) { this.configuration.badge = value; }

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
    this.deliveries.beginSession();
    this.enter("greeting", now.monotonic + LIMITS.welcome);
    this.sendHello(now);
  }

  /** Reconnects after the connection failed or the gateway closed it without a Close. */
  disconnected(reason, now) {
    if (this.phase !== "connecting" && this.phase !== "greeting" && this.phase !== "ready") return;
    this.report("disconnected", {reason});
    // After a late end, as after a sleep with the Ping in flight, the loss says nothing about the network either.
    const isTimely = this.pingSentAt !== null && now.monotonic - this.pingSentAt < 2 * LIMITS.pong;
    if (this.isProbing && isTimely && this.phase === "ready") {
      this.heartbeat.lost(Math.floor(this.heartbeatMilliseconds / 1000));
      this.keepHeartbeat();
    }
    this.reconnection.retry(now, new LongwireError("unreachable", reason));
  }

  wake(now) {
    if (this.fetching.fetch && now.monotonic >= this.fetching.deadline) this.fetching.end(now);
    if (this.upstream.retryAt !== null) this.upstream.sendFirst(now);
    this.names.wake(now);
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
          // After a sleep of the machine, a lost connection says nothing about the network. A gateway closes a session
          // after 1.5 silent heartbeats.
          const mostDelay = Math.max(LIMITS.pong, Math.min(this.heartbeatMilliseconds / 2, LIMITS.timerDelay));
          const isLate = now.monotonic - deadline >= mostDelay;
          this.isProbing = !isLate && now.monotonic - this.lastReceivedAt >= this.heartbeatMilliseconds * 0.9;
          this.sendPing(now);
        }
        break;
      default: break;
    }
  }

  /**
   * Handles a failed write of the state: sends no Ack, closes the connection and schedules a reconnect. The changed
   * state stays in memory and is written by the next flush, Hello or stop. The actions in `skipped`, after the failed
   * one, are discarded. Results about names and vendors' messages are kept, because they do not come again.
   */
  persistFailed(error, skipped, now) {
    const discarded = skipped.concat(this.actions);
    const isKept = ({type, event, message}) => type === "report" && event.type === "names" || type === "withdraw"
      || type === "handle" && message.channel === "vendor";
    this.actions = discarded.filter(isKept);
    for (const action of discarded) {
      if (action.type === "handle" && !isKept(action)) this.deliveries.removeHandling(action.message.key);
      if (action.type === "revoke") this.deliveries.removeHandling(action.key);
    }
    // If the state stayed dirty, the end of this turn would try to store it again in an endless loop.
    this.isDirty = false;
    this.owesWrite = true;
    this.report("stateNotStored", {error, reason: error.message});
    this.upstream.refuseUnstored(error);
    this.actions.push({type: "disconnect"});
    if (this.phase === "stopped") this.report("stopped", {error});
    else if (this.phase !== "idle" && this.phase !== "waiting") this.reconnection.retry(now, error);
  }

  /** Notes a successful write of the state. */
  persisted() {
    this.owesWrite = false;
    this.upstream.unstored = [];
  }

  /** Writes the state at the end of this turn if its last write failed. */
  repeatWrite() { if (this.owesWrite) this.isDirty = true; }

  stop(now, error = null) {
    if (this.phase === "stopped") return;
    if (this.phase === "ready") {
      this.repeatWrite();
      this.endTurn(now);
      this.send("close", {code: GOODBYE, reason: "the client stops"}, now);
    }
    this.halt(error);
  }

  /** Closes the connection and stops the client. */
  halt(error) {
    this.repeatWrite();
    this.actions.push({type: "disconnect"});
    this.leaveSession();
    this.enter("stopped");
    this.fetching.endEarly();
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
    this.deliveries.withdraw();
    this.reader.reset();
    this.deliveries.owesAck = false;
    this.pingSentAt = null;
    this.isProbing = false;
    this.sentReports = null;
    this.fetching.endSession();
    this.upstream.endSession();
    this.names.endSession();
    this.pendingUpdates = new Map();
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
      client: configuration.clientName, window: configuration.window, opened: [], attributes: helloAttributes(configuration),
    };
    if (state.isRegistered) {
      Object.assign(hello, {
        cid: state.cid, queueEpoch: state.epoch, positions: state.positions,
        opened: state.unreportedOpened.slice(0, LIMITS.openedPerHello),
      });
    } else {
      // All devices of an app prove their registration with the same secret. Without a nonce, two equal Hellos of one
      // millisecond would be refused as a replay.
      const {registrationToken} = configuration;
      Object.assign(hello, {registration: true, nonce: this.random.nonce(), registrationToken});
    }
    const key = state.isRegistered ? state.secret : utf8(configuration.registrationToken || configuration.appSecret);
    const bytes = encodeHello(hello, key, this.hmac);
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
      this.names.registered();
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
    this.reconnection.corrections = 0;
    const seconds = welcome.heartbeatSeconds || LIMITS.defaultHeartbeatSeconds;
    this.heartbeatMilliseconds = seconds * 1000;
    this.heartbeat.agreed(seconds);
    this.fetching.beginSession(now);
    const isSuspended = greeted.applicationState !== FOREGROUND && !greeted.keepsRunning;
    this.deliveries.dropRule = isSuspended ? "untilUpdate" : "none";
    this.report("welcomed", {
      cid: state.cid, session: welcome.generation, epoch: welcome.queueEpoch, heartbeat: welcome.heartbeatSeconds,
      window: welcome.window, serverTime: welcome.serverTime, pending: welcome.backlog, dropped: welcome.dropped,
    });

    this.sendChanges(now);
    const {pendingBadge, pushModeOff} = this;
    if (pendingBadge !== null) this.update(now, {badge: pendingBadge});
    if (pushModeOff !== null) this.update(now, {pushModeOff});
    this.sendReports(now);
    this.upstream.sendFirst(now);
    this.names.sendFirst(now);
  }

  /** Sends the changes that the app made between Hello and Welcome. */
  sendChanges(now) {
    const {applicationState, keepsRunning, tokens} = this.configuration, {greeted, state} = this;
    if (applicationState !== greeted.applicationState || keepsRunning !== greeted.keepsRunning) {
      this.perform({do: "applicationState", applicationState, keepsRunning}, now);
    }
    // A removal would also remove the remaining tokens of the same use.
    const isFree = removal => !tokens.some(token => excludes(removal, token));
    const noted = state.removedTokens.filter(isFree);
    if (noted.length < state.removedTokens.length) this.isDirty = true;
    state.removedTokens = noted;
    const removed = noted.concat(greeted.tokens.map(removalOf)
      .filter(removal => isFree(removal) && !noted.some(one => isSameToken(one, removal))));
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
    this.fetching.received(now);
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
    if (name === "close") return this.reconnection.receiveClose(values, now);
    if (OF_CLIENTS.has(name)) return this.violate(UNEXPECTED_FRAME, `a gateway does not send ${name}`, now);
    if (this.phase !== "ready") {
      if (name === "welcome") return this.receiveWelcome(values, now);
      return this.violate(UNEXPECTED_FRAME, "a frame came before Welcome", now);
    }
    switch (name) {
      case "ping": return this.send("pong", {nonce: values.nonce}, now);
      case "pong":
        this.deliveries.settleRejected(values.nonce);
        return this.settleReported(values.nonce, now);
      case "deliver": return this.deliveries.receive(values, now);
      case "revoke": return this.deliveries.receiveRevoke(values, now);
      case "updateResult": return this.receiveUpdateResult(values, now);
      case "upstreamResult": return this.upstream.receiveResult(values, now);
      case "deviceNamesResult": return this.names.receiveResult(values, now);
      default: return this.violate(UNEXPECTED_FRAME, "a second Welcome", now);
    }
  }

  /** Ends a turn: stores the changed state, then acks everything that was processed with one frame. */
  endTurn(now) {
    if (this.isDirty) this.persist();
    if (this.phase === "ready") this.deliveries.sendAcks(now);
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
    this.reconnection.retry(now, new LongwireError("protocolViolation", reason));
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
    if (this.phase === "waiting" && !this.reconnection.isWaitNamed) {
      this.reconnection.backoff.reset();
      this.reconnection.endWaitSoon(now);
    } else if (this.phase === "ready" && this.pingSentAt === null) {
      this.sendPing(now);
    }
  }

  /** Records the heartbeat of the current network in the state; it is stored with the next change. */
  keepHeartbeat() { this.state.keepHeartbeat(this.heartbeat, this.network); }

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
        this.fetching.leaveRunning();
        this.update(now, {applicationState, keepsRunning});
        // This update starts the suspension. Deliveries are dropped until the gateway confirms the update that ends it.
        if (this.isSuspended) {
          this.deliveries.dropRule = "untilUpdate";
          // Messages that wait for the app would appear as new after the suspension. They are delivered again.
          this.deliveries.withdraw();
        } else if (wasSuspended) {
          this.resume(now);
        }
        break;
      }
      case "finish": this.deliveries.finish(command.message, command.verdict, now); break;
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
        // A removal is stored before it is sent, because the next Hello cannot repeat it.
        if (this.state.noteToken(token)) this.persist();
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
      // The next Hello has them.
      case "attributes": configuration.attributes = command.attributes; break;
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
      case "send": this.upstream.add(command, now); break;
      case "names": this.names.add(command.names, now); break;
      case "registrationToken":
        configuration.registrationToken = command.token;
        this.names.replaceToken(command.token);
        break;
      case "fetch": this.fetching.begin(command, now); break;
      case "vendorMessage": this.deliveries.receiveFromVendor(command.message, now); break;
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
    const {deliveries} = this;
    if (deliveries.dropRule === "untilUpdate") deliveries.dropRule = request;
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
      if (update.tokens) this.confirmRemovals(update.tokens);
    }
    if (result.heartbeatSeconds !== 0) {
      this.heartbeatMilliseconds = result.heartbeatSeconds * 1000;
      this.heartbeat.agreed(result.heartbeatSeconds);
    }
    const {deliveries} = this;
    if (deliveries.dropRule === result.request) deliveries.dropRule = this.isSuspended ? "untilUpdate" : "none";
    this.report("updated", {request: result.request, code: result.code, reason: result.reason});
  }

  /** Forgets the removals of a confirmed update, except those that a later update repeats. */
  confirmRemovals(tokens) {
    const {state} = this, later = [];
    for (const update of this.pendingUpdates.values()) later.push(...update.tokens || []);
    const isIn = (list, removal) => list.some(one => one.token === "" && isSameToken(removalOf(one), removal));
    const kept = state.removedTokens.filter(one => !isIn(tokens, one) || isIn(later, one));
    if (kept.length < state.removedTokens.length) this.isDirty = true;
    state.removedTokens = kept;
  }

  /** Reacts to an app that runs again: shortens a reconnect delay, or sends a Ping to find a dead connection. */
  resume(now) {
    if (this.phase !== "ready") this.reconnection.endWaitSoon(now);
    else if (this.pingSentAt === null) this.sendPing(now);
  }
}
