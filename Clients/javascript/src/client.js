// The client: feeds the core with bytes, time and the app's calls, and performs the core's actions with the platform's
// adapters.

import {utf8} from "./bytes.js";
import {ClientCore} from "./core.js";
import {defaultRandom, makeClock} from "./defaults.js";
import {LongwireError, described} from "./errors.js";
import {Handover, isThenable, verdictOf} from "./handover.js";
import {LIMITS} from "./limits.js";
import {NamesCalls} from "./names.js";
import {
  STATES, bad, check, checkedAttributes, isBadge, isHeartbeat, isServerToken, isState, isWhole, networkName,
} from "./options.js";
import {Random} from "./random.js";
import {hmacSHA256} from "./sha256.js";
import {ClientState, isId} from "./state.js";
import {cleanToken, withToken} from "./tokens.js";
import {QUEUE_FULL} from "./upstream.js";

const LONGEST_TIMER = 2147483647;
const PAUSE_BYTES = 1048576;
/** The commands that outlive a session, and those that change the configuration. */
const KEPT = ["opened", "report", "send", "finish"];
/** The calls that a standby tab passes to the tab with the connection. */
const PASSED = ["opened", "report", "send", "token"];
const SETTINGS = ["applicationState", "badge", "token", "pushMode", "registrationToken", "attributes", "heartbeat"];

/**
 * A device of a Longwire gateway. It registers, stays connected, and hands each message to the app exactly once.
 *
 * `onMessage` receives one message at a time, in order. After it returns, or its promise is fulfilled, the client
 * stores the message's sequence and then acks it. If the app ends between the return and the store, the message is
 * delivered again.
 */
export class LongwireClient {
  constructor(options) {
    this.options = options;
    this.configuration = check(options);
    this.store = options.store;
    this.hmac = options.hmac || hmacSHA256;
    this.clock = options.clock || makeClock();
    /** `stopped`, `starting`, `standby` (another tab has the connection), or a phase of the core. */
    this.status = "stopped";
    this.core = null;
    this.connection = null;
    this.inputs = [];
    this.inputBytes = 0;
    this.isPumping = false;
    this.timer = null;
    this.handover = new Handover(this, options.parallel || 1);
    /** Calls without a running client, until the store has them. */
    this.kept = [];
    this.storing = null;
    /** The last work on calls that standby tabs have passed. */
    this.taking = Promise.resolve();
    this.unfollowPassed = null;
    /** The removal of the state in progress, or null. */
    this.forgetting = null;
    this.release = null;
    /** The error to report when another tab has taken over the store during this run. */
    this.lost = null;
    this.stopping = null;
    this.flushes = [];
    this.namesCalls = new NamesCalls(this);
    this.savedText = null;
    /** Functions to call when a run or a session begins, and when a vendor's message was processed. */
    this.followers = new Set();
  }

  get isRunning() { return this.core !== null; }

  /** Returns the status of a vendor's message: `new`, `handling`, `deferred` (in this session), or `processed`. */
  vendorPlace(msgId) {
    const {core} = this, key = `vendor:${msgId}`;
    if (!core) return "new";
    if (core.state.seen.includes(msgId)) return "processed";
    if (core.deliveries.handling.has(key)) return "handling";
    return core.deliveries.deferredVendor.has(msgId) ? "deferred" : "new";
  }

  notifyFollowers() { for (const follower of this.followers) follower(); }

  /** The device's id, or null before its registration is known. */
  get cid() { return this.core && this.core.state.cid !== "" ? this.core.state.cid : null; }

  /** Returns the sequence up to which a stream is processed. */
  position(stream = 0) {
    const found = this.core ? this.core.state.streams.get(stream) : null;
    return found ? found.sequence : 0;
  }

  // Starting and stopping

  /**
   * Reads the state and starts to connect. `opened` has the ids of messages whose notification started the app.
   * Fulfilled when the client runs, or stands by for another tab; rejected with a LongwireError when it cannot start.
   */
  async start({opened = []} = {}) {
    if (this.status !== "stopped") throw new LongwireError("wrongState", "the client runs already; stop it first");
    this.status = "starting";
    this.error = null;
    this.stopping = new Promise(resolve => { this.stopped = resolve; });
    this.isStopWanted = false;
    this.lost = null;
    try {
      // The handler of the event `stopped` may start the client before `forget` has removed the state.
      if (this.forgetting) await this.forgetting.catch(() => {});
      if (this.storing) await this.storing;
      for (const msgId of opened) this.keep({do: "opened", msgId});
      const waits = await this.reserve();
      if (!waits) await this.run();
    } catch (error) {
      this.end();
      throw described(error, "stateUnreadable");
    }
  }

  /** Reserves the store; returns true when another tab has it, and continues in the background then. */
  async reserve() {
    if (!this.store.lock) return false;
    const lost = error => {
      this.lost = error;
      this.post({command: {do: "stop", error}});
    };
    let resolveWaits;
    const waits = new Promise(resolve => { resolveWaits = resolve; });
    const request = {wait: true, lost, waits: () => resolveWaits(true), isWanted: () => !this.isStopWanted};
    const locked = Promise.resolve(this.store.lock(request));
    const isWaiting = await Promise.race([waits, locked.then(() => false)]);
    if (!isWaiting) {
      this.release = await locked;
      return false;
    }
    this.status = "standby";
    this.emit({type: "standby"});
    if (this.kept.length > 0) this.storeKept();
    locked.then(async release => {
      this.release = release;
      if (release && !this.isStopWanted) await this.run();
      else this.end({type: "stopped", error: null});
    }).catch(error => this.end({type: "stopped", error: described(error, "stateUnreadable")}));
    return true;
  }

  /**
   * Creates the core from the stored state and the kept calls. There is no `await` between the last check for kept
   * calls and the creation. Each call is therefore either in the state or posted to the core.
   */
  async run() {
    // Calls that are being passed to the former tab must not be kept as well.
    this.status = "starting";
    if (this.storing) await this.storing;
    const seed = await (this.options.random || defaultRandom)(32);
    if (!(seed instanceof Uint8Array) || seed.length !== 32) {
      throw bad("random must return a Uint8Array of the requested length");
    }
    const state = await this.load();
    // Calls may arrive during each save.
    while (this.kept.length > 0 && !this.isStopWanted && !this.lost) await this.saveKept(state);
    if (this.lost) throw this.lost;
    if (this.isStopWanted) {
      this.end({type: "stopped", error: null});
      return;
    }
    this.savedText = null;
    const {configuration, hmac} = this;
    this.core = new ClientCore({configuration, state, random: new Random(seed, hmac), hmac});
    this.core.start(this.now());
    // A stop keeps the vendors' messages that wait for the handler.
    for (const message of this.handover.begin()) this.post({command: {do: "vendorMessage", message}});
    this.schedule();
    if (this.store.takePassed) {
      this.unfollowPassed = this.store.followPassed(() => this.takePassed());
      this.takePassed();
    }
    this.notifyFollowers();
  }

  /** Performs the calls that standby tabs have passed. */
  takePassed() {
    const perform = async commands => {
      const known = commands.filter(command => PASSED.includes(command.do));
      if (!known.every(command => this.post({command}))) return [];
      try {
        await this.flush();
        return commands;
      } catch {
        // A repeat of a report is harmless, but a message to the app's server would be sent twice.
        return commands.filter(command => command.do === "send");
      }
    };
    this.taking = this.taking.then(() => this.core ? this.store.takePassed(perform) : undefined).catch(error => {
      console.error("longwire: calls of other tabs were not taken; they stay for the next start", error);
    });
  }

  /** Applies the kept calls to a state and saves it. Calls that arrive during the save stay kept. */
  async saveKept(state) {
    const commands = this.kept.slice(), refused = commands.filter(command => !state.keep(command, this.configuration));
    try {
      await this.store.save(state.serialized());
    } catch (error) {
      // A message that makes the stored state too large would keep the client from starting again.
      const messages = commands.filter(command => command.do === "send");
      this.kept = this.kept.filter(command => !messages.includes(command));
      this.refuse(messages, `the message could not be stored: ${error && error.message || error}`);
      throw error;
    }
    this.kept = this.kept.slice(commands.length);
    this.refuse(refused, QUEUE_FULL);
  }

  refuse(messages, reason) {
    for (const {payload, taskId} of messages) {
      this.emit({type: "refused", request: 0, code: 0, reason, payload, taskId});
    }
  }

  async load() {
    const {appSecret, registrationToken} = this.configuration, state = await this.loadState();
    if (!state.isRegistered && appSecret === "" && registrationToken === "") {
      throw bad("this device is not registered yet; give a registrationToken or an appSecret");
    }
    return state;
  }

  /** Returns the stored state, or a new one. An unregistered state of another app is replaced: its messages stay out. */
  async loadState() {
    const text = await this.store.load(), {appId} = this.configuration;
    const state = text === null ? new ClientState(appId) : ClientState.parse(text);
    if (state.appId === appId) return state;
    if (!state.isRegistered) return new ClientState(appId);
    throw new LongwireError("stateUnreadable",
      `the state belongs to the app ${state.appId}, not to ${appId}; use another place`);
  }

  /** Disconnects and stops the client; fulfilled after its last event. */
  async stop() {
    if (this.status === "stopped") return;
    this.isStopWanted = true;
    if (this.core) this.post({command: {do: "stop"}});
    else if (this.status === "standby" && this.store.cancelLock) this.store.cancelLock();
    await this.stopping;
  }

  /** Stops the client and removes its state. The next start registers a new device. */
  forget() {
    this.forgetting = this.stop().then(async () => {
      if (this.storing) await this.storing;
      this.kept = [];
      await this.store.clear();
    }).finally(() => { this.forgetting = null; });
    return this.forgetting;
  }

  /**
   * Removes the app's secret and the registration token from the options after a registration; a lost registration then
   * stops the client.
   */
  forgetSecret() { Object.assign(this.configuration, {appSecret: "", registrationToken: ""}); }

  /** Fulfilled once all calls so far are in the store; rejected if they cannot be stored. */
  flush() {
    if (this.core) {
      return new Promise((resolve, reject) => {
        this.flushes.push({resolve, reject});
        this.post({});
      });
    }
    return this.storeKept().then(isStored => {
      if (!isStored) {
        throw new LongwireError("stateUnwritable", "the calls are in memory only; start the client, or try again");
      }
    });
  }

  /** Leaves the running state; the store is free again. */
  end(event = null) {
    clearTimeout(this.timer);
    this.timer = null;
    this.core = this.connection = null;
    this.inputs = [];
    this.inputBytes = 0;
    this.status = "stopped";
    const {release} = this;
    this.release = null;
    if (release) release();
    for (const {reject} of this.flushes) {
      reject(new LongwireError("wrongState", "the client stopped before the calls were stored"));
    }
    this.flushes = [];
    this.namesCalls.end();
    if (this.unfollowPassed) this.unfollowPassed();
    this.unfollowPassed = null;
    // The handler of the event may start the client again, which replaces the promise of the stop.
    const {stopped} = this;
    if (event) this.emit(event);
    if (stopped) stopped();
    if (this.kept.length > 0) this.storeKept();
  }

  // The app's calls. They return false when the client does not run, unless their comment says otherwise. The settings
  // also apply to the next start.

  /**
   * Reports the app's state: `foreground` or `background`. Messages that arrive in the background stay un-acked unless
   * the app keeps its socket open (`keepsRunning`).
   */
  setApplicationState(state, {keepsRunning = false} = {}) {
    if (!isState(state)) throw bad(`${state} is no state of an app; use foreground or background`);
    return this.set({do: "applicationState", applicationState: STATES[state], keepsRunning: Boolean(keepsRunning)});
  }

  /** Sets the badge number that the gateway continues from. */
  setBadge(value) {
    if (!isBadge(value)) throw bad(`${value} is no badge; use a whole number of 32 bits`);
    return this.set({do: "badge", value});
  }

  /**
   * Adds or replaces a vendor token `{vendor, token}`; an empty token removes the vendor's tokens. A removal is kept
   * across restarts until the gateway confirms it.
   */
  setToken(token) { return this.set({do: "token", token: cleanToken(token)}); }

  /** Turns all pushes to this device off or on, both over the connection and through the vendor. */
  setPushModeOff(off) { return this.set({do: "pushMode", off: Boolean(off)}); }

  /**
   * Sets the token of the app's server for the next registration and the next start; an empty token removes it. A
   * registered device takes another user's token with `bindAliasWithToken`.
   */
  setRegistrationToken(token) {
    if (!isServerToken(token)) throw bad(`a token is a text of at most ${LIMITS.serverTokenBytes} bytes`);
    return this.set({do: "registrationToken", token});
  }

  /** Sets the app's attributes for the next connection; the platform's others stay, and `null` reports none at all. */
  setAttributes(attributes) {
    return this.set({do: "attributes", attributes: attributes ? checkedAttributes(attributes) : null});
  }

  /** Requests another heartbeat of 30 to 1800 seconds. */
  setHeartbeat(seconds) {
    if (!isHeartbeat(seconds)) throw bad(`${seconds} is no heartbeat; use 30 to 1800 seconds`);
    return this.set({do: "heartbeat", seconds});
  }

  /**
   * Reports that the network is usable again or has changed. A name keeps the heartbeat that was learnt on this
   * network.
   */
  networkChanged(name = null) {
    return this.post({command: {do: "network", name: name === null ? null : networkName(name)}});
  }

  /** Tests the connection and shortens a backoff, for example after a suspended page runs again. */
  probe() { return this.post({command: {do: "probe"}}); }

  /**
   * Records that the user opened this message from its notification. Kept across restarts until the gateway confirms
   * it.
   */
  markOpened(msgId) {
    if (!isId(msgId)) throw bad(`"${msgId}" is no message id`);
    return this.postOrKeep({do: "opened", msgId});
  }

  /**
   * Reports `{kind: "shown", msgId}` or `{kind: "action", msgId, action}` (90001 to 90999) to the publisher's
   * statistics.
   */
  report({kind, msgId, action = 0}) {
    if (kind !== "shown" && kind !== "action") throw bad(`"${kind}" is no report; use shown or action`);
    if (!isId(msgId)) throw bad(`"${msgId}" is no message id`);
    if (kind === "action" && !isWhole(action, 90001, 90999)) throw bad(`${action} is no action; use 90001 to 90999`);
    return this.postOrKeep({do: "report", report: {kind, msgId, action: kind === "action" ? action : 0}});
  }

  /**
   * Sends 1 to 16,384 bytes, or a text, to the app's server. The message is kept across restarts until the gateway has
   * it: the event `taken` confirms it, `refused` reports that it was not accepted.
   */
  send(payload, {taskId = ""} = {}) {
    const bytes = typeof payload === "string" ? utf8(payload) : payload;
    if (!(bytes instanceof Uint8Array) || bytes.length < 1 || bytes.length > LIMITS.outgoingPayloadBytes) {
      throw bad(`a message has 1 to ${LIMITS.outgoingPayloadBytes} bytes`);
    }
    if (taskId !== "" && !isId(taskId)) throw bad(`"${taskId}" is no task id`);
    return this.postOrKeep({do: "send", payload: bytes.slice(), taskId});
  }

  // The app's setting `deviceMay` must allow the calls about aliases or tags. They are queued, also across reconnects,
  // and sent one at a time. They reject with `namesRefused`, `tryLater`, or with `wrongState` if the client does not run.

  /** Binds an alias to this device, in place of the device's alias of the same type. */
  async bindAlias(alias, type = "") { await this.namesCalls.request("bindAlias", {alias, aliasType: type}); }

  /**
   * Binds the alias in the `sub` of a token of the app's server; it needs no right in `deviceMay`.
   *
   * For another user on a registered device. The alias of the option `registrationToken` is bound automatically, once
   * after each start, unless the app binds or unbinds an alias itself. The `resultCode` 5 means that the token is
   * invalid or has expired.
   */
  async bindAliasWithToken(token) { await this.namesCalls.request("bindAlias", {token, needsToken: true}); }

  /** Unbinds an alias from this device; other devices keep it. */
  async unbindAlias(alias, type = "") { await this.namesCalls.request("unbindAlias", {alias, aliasType: type}); }

  /** Replaces all tags of this device. */
  async setTags(tags) { await this.namesCalls.request("setTags", {tags}); }

  /** Adds tags to this device. */
  async addTags(tags) { await this.namesCalls.request("addTags", {tags}); }

  /** Removes tags from this device. */
  async removeTags(tags) { await this.namesCalls.request("removeTags", {tags}); }

  /** Queries this device's alias of a type (or null) and its tags; resolves to `{alias, tags}`. */
  async ownNames(aliasType = "") { return this.namesCalls.request("query", {aliasType}); }

  /** Receives the queued messages, for example after a silent push; fulfilled with `{messages, isComplete}`. */
  fetch(milliseconds = 20000) {
    const time = Math.min(Math.max(0, milliseconds), LIMITS.fetch);
    return new Promise(resolve => {
      if (!this.post({command: {do: "fetch", milliseconds: time, done: resolve}})) {
        resolve({messages: 0, isComplete: false});
      }
    });
  }

  /** Decides on a message for which `onMessage` returned `later`; returns false when it was already decided. */
  finish(message, verdict = "processed") {
    if (!this.handover.active.has(message.key)) return false;
    this.handover.decide(message, verdictOf(verdict));
    return true;
  }

  /**
   * Hands over a message that came complete through a vendor's channel. The copy on the connection is acked and not
   * shown, and a message that the app has already is not shown again. Needs the option `vendorDuplicates`.
   */
  receiveVendorMessage({msgId, taskId = "", payload = new Uint8Array(0)}) {
    if (!isId(msgId)) throw bad(`"${msgId}" is no message id`);
    if (!this.configuration.vendorDuplicates) throw bad("receiveVendorMessage needs the option vendorDuplicates");
    const bytes = typeof payload === "string" ? utf8(payload) : payload;
    return this.post({command: {do: "vendorMessage", message: {msgId, taskId, payload: bytes}}});
  }

  set(command) {
    if (this.post({command})) return true;
    const {configuration} = this;
    switch (command.do) {
      case "applicationState":
        Object.assign(configuration, {applicationState: command.applicationState, keepsRunning: command.keepsRunning});
        break;
      case "badge": configuration.badge = command.value; break;
      case "token":
        configuration.tokens = withToken(configuration.tokens, command.token);
        // The next Hello has the tokens, but cannot remove one. A standby tab may have no Hello.
        if (command.token.token === "" || this.status === "standby" && this.store.pass) this.postOrKeep(command);
        break;
      case "pushMode": configuration.pushModeOff = command.off; break;
      case "registrationToken": configuration.registrationToken = command.token; break;
      case "attributes": configuration.attributes = command.attributes; break;
      default: configuration.heartbeatSeconds = command.seconds; break;
    }
    return false;
  }

  post(input) {
    if (!this.core) return false;
    this.inputs.push(input);
    this.schedule();
    return true;
  }

  postOrKeep(command) {
    if (this.post({command})) return true;
    const isStandby = this.status === "standby";
    if (isStandby && !this.store.pass && ["opened", "report", "send"].includes(command.do)) return false;
    if (!this.keep(command)) return false;
    if (isStandby || this.status === "stopped") this.storeKept();
    return true;
  }

  keep(command) {
    if (this.kept.length >= LIMITS.keptCalls) return false;
    this.kept.push(command);
    return true;
  }

  /**
   * Writes the kept calls into the store, or passes those of a standby tab. Returns false when the store is in use or
   * cannot be written.
   */
  storeKept() {
    if (!this.storing) this.storing = this.storeNow().finally(() => { this.storing = null; });
    return this.storing;
  }

  async storeNow() {
    if (this.status === "standby") return this.passKept();
    if (this.status !== "stopped") return false;
    let release = null;
    try {
      if (this.store.lock) release = await this.store.lock({wait: false, lost() {}, waits() {}, isWanted: () => true});
      if (this.store.lock && !release) return false;
      const state = await this.loadState();
      // Calls may arrive during each save.
      while (this.kept.length > 0) await this.saveKept(state);
      return true;
    } catch {
      return false;
    } finally {
      if (release) release();
    }
  }

  /** Passes the kept calls of a standby tab to the tab with the connection; a verdict stays for this tab's run. */
  async passKept() {
    if (!this.store.pass) return false;
    const isPassed = command => PASSED.includes(command.do);
    try {
      for (let some = this.kept.filter(isPassed); some.length > 0; some = this.kept.filter(isPassed)) {
        await this.store.pass(some);
        this.kept = this.kept.filter(command => !some.includes(command));
      }
      return this.kept.length === 0;
    } catch {
      return false;
    }
  }

  // The pump: inputs go into the core, its actions are performed in order. The core is never entered while an action
  // waits for the store.

  now() { return {monotonic: this.clock.monotonic(), wall: this.clock.wall()}; }

  schedule() {
    if (!this.isPumping) this.pump().catch(error => this.fail(error));
  }

  /** Ends a client whose own code or adapter failed; the state in the store is intact. */
  fail(error) {
    this.isPumping = false;
    if (this.connection) this.connection.close();
    this.end({type: "stopped", error: described(error, "wrongState")});
  }

  async pump() {
    this.isPumping = true;
    const {core} = this;
    do {
      const inputs = this.inputs, flushes = this.flushes;
      this.inputs = [];
      this.flushes = [];
      this.inputBytes = 0;
      for (const input of inputs) this.feed(input);
      core.wake(this.now());
      if (flushes.length > 0) core.repeatWrite();
      do {
        const actions = core.actions;
        core.actions = [];
        for (let index = 0; index < actions.length; index += 1) {
          if (actions[index].type !== "persist") {
            this.perform(actions[index]);
            continue;
          }
          const error = await this.persist();
          if (!error) {
            core.persisted();
            continue;
          }
          // The actions after a failed store, such as an ack, must not run.
          core.persistFailed(error, actions.slice(index + 1), this.now());
          break;
        }
        core.endTurn(this.now());
      } while (core.actions.length > 0);
      for (const {resolve, reject} of flushes) {
        if (!core.owesWrite) resolve();
        else reject(new LongwireError("stateUnwritable", "the state could not be stored"));
      }
      if (this.connection && this.connection.isPaused && this.connection.resume) this.connection.resume();
      this.status = core.phase;
    } while (this.inputs.length > 0 && !core.isStopped);
    this.isPumping = false;
    if (core.isStopped) this.finishStop();
    else this.setTimer();
  }

  finishStop() {
    // Calls that arrived after the stop count for the next session.
    const late = this.inputs.map(({command}) => command).filter(command => command);
    const event = this.lastEvent || {type: "stopped", error: null};
    this.lastEvent = null;
    this.core = null;
    for (const command of late) {
      if (KEPT.includes(command.do)) this.keep(command);
      else if (SETTINGS.includes(command.do)) this.set(command);
      else if (command.do === "vendorMessage") this.handover.waiting.push({...command.message, channel: "vendor"});
      else if (command.do === "fetch") command.done({messages: 0, isComplete: false});
    }
    this.end(event);
  }

  setTimer() {
    clearTimeout(this.timer);
    const {deadline} = this.core;
    if (deadline === null) return;
    const delay = Math.min(Math.max(0, Math.ceil(deadline - this.clock.monotonic())), LONGEST_TIMER);
    this.timer = setTimeout(() => this.schedule(), delay);
  }

  feed({command, bytes, opened, ended, connection, handOver}) {
    const {core} = this;
    if (handOver) return this.handover.handOver();
    if (command) return core.perform(command, this.now());
    // Events of an earlier connection are ignored.
    if (!connection || connection !== this.connection) return undefined;
    if (bytes) return core.receive(bytes, this.now());
    if (opened) return core.connected(this.now());
    this.connection = null;
    return core.disconnected(ended, this.now());
  }

  /** Stores the state; returns null or the error. */
  persist() {
    const text = this.core.state.serialized();
    if (text === this.savedText) return null;
    this.savedText = null;
    try {
      const saved = this.store.save(text);
      if (!isThenable(saved)) {
        this.savedText = text;
        return null;
      }
      return saved.then(() => {
        this.savedText = text;
        return null;
      }, error => described(error, "stateUnwritable"));
    } catch (error) {
      return described(error, "stateUnwritable");
    }
  }

  perform(action) {
    switch (action.type) {
      case "connect": this.connect(action.endpoint); break;
      case "send":
        if (!this.connection) break;
        try {
          this.connection.send(action.bytes);
        } catch (error) {
          const {connection} = this;
          this.connection = null;
          connection.close();
          this.core.disconnected(String(error && error.message || error), this.now());
        }
        break;
      case "disconnect": {
        const {connection} = this;
        this.connection = null;
        if (connection) connection.close();
        break;
      }
      case "handle":
        this.handover.waiting.push(action.message);
        this.handover.handOver();
        break;
      case "withdraw":
        this.handover.withdraw();
        break;
      case "revoke":
        this.handover.revoke(action);
        break;
      case "vendorProcessed": this.notifyFollowers(); break;
      default:
        if (action.event.type === "stopped") this.lastEvent = action.event;
        else this.emit(action.event);
        if (action.event.type === "names") this.namesCalls.note(action.event);
        if (action.event.type === "welcomed") this.notifyFollowers();
        break;
    }
  }

  emit(event) {
    if (!this.options.onEvent) return;
    try {
      this.options.onEvent(event);
    } catch (error) {
      console.error("longwire: onEvent failed", error);
    }
  }

  connect({host, port}) {
    const {scheme, path} = this.configuration, authority = host.includes(":") ? `[${host}]` : host;
    const endpoint = {scheme, host, port, url: `${scheme}://${authority}:${port}${path}`};
    const connection = {send() { throw new Error("the connection is not open"); }, close() {}};
    this.connection = connection;
    try {
      const made = this.options.transport.connect(endpoint, {
        opened: () => this.arrived({opened: true, connection}),
        received: bytes => this.received(bytes, connection),
        ended: reason => this.arrived({ended: reason, connection}),
      });
      connection.send = bytes => made.send(bytes);
      connection.close = () => made.close();
      if (made.pause && made.resume) {
        connection.isPaused = false;
        connection.pause = () => {
          connection.isPaused = true;
          made.pause();
        };
        connection.resume = () => {
          connection.isPaused = false;
          made.resume();
        };
      }
    } catch (error) {
      this.connection = null;
      this.core.disconnected(String(error && error.message || error), this.now());
    }
  }

  arrived(input) {
    if (this.core && input.connection === this.connection) this.post(input);
  }

  received(bytes, connection) {
    if (!this.core || connection !== this.connection || connection.isRefused) return;
    this.inputBytes += bytes.length;
    if (this.inputBytes > LIMITS.inboxBytes) {
      connection.isRefused = true;
      this.post({ended: "the gateway sent more bytes than any window", connection});
      connection.close();
      return;
    }
    if (this.inputBytes > PAUSE_BYTES && connection.pause && !connection.isPaused) connection.pause();
    this.post({bytes, connection});
  }
}
