// The state of a device that must survive a restart, and its stored form.
//
// The stored form equals that of the Swift client: lines of `name value…`, a version first, a check sum and an end mark
// last. Only the JavaScript and Java clients have lines `seen ID`, and only the Swift client has lines `tap HEX`. An
// unknown name is an error, so that a state of a newer version or of such a client is refused.

import {bytesOfHex, hex, textOfUTF8, utf8} from "./bytes.js";
import {LongwireError} from "./errors.js";
import {decimal, halves} from "./frames.js";
import {HeartbeatPlan} from "./heartbeat.js";
import {LIMITS} from "./limits.js";
import {ProcessedSet} from "./processed.js";
import {CHANNELS, KINDS, excludes, isSameToken, removalOf} from "./tokens.js";

const FIRST_LINE = "longwire state 1";
const ID = /^[0-9a-f]{32}$/;
const NUMBER = /^[0-9]{1,16}$/;

export const isId = text => typeof text === "string" && ID.test(text);
export const NO_ID = "0".repeat(32);

/**
 * Returns the FNV-1a hash of a text of ASCII in 64 bits. It detects disk errors, and is no protection against
 * tampering.
 */
export function checkSum(text) {
  let high = 0xcbf29ce4, low = 0x84222325;
  for (let index = 0; index < text.length; index += 1) {
    low = (low ^ text.charCodeAt(index)) >>> 0;
    // The prime is 2^40 + 0x1b3.
    const product = low * 0x1b3;
    high = high * 0x1b3 + Math.floor(product / 4294967296) + (low << 8 >>> 0) >>> 0;
    low = product >>> 0;
  }
  return high.toString(16).padStart(8, "0") + low.toString(16).padStart(8, "0");
}

export class ClientState {
  constructor(appId) {
    this.appId = appId;
    this.cid = "";
    this.secret = new Uint8Array(0);
    /** The greatest timestamp ever sent in a Hello, and that of the last accepted Hello. */
    this.lastTimestamp = 0;
    this.acceptedTimestamp = 0;
    /** The gateway's clock minus this machine's, in milliseconds. */
    this.offset = 0;
    this.epoch = "0";
    /** The ProcessedSet of each stream: 0 direct, 1 broadcast. */
    this.streams = new Map();
    this.opened = [];
    this.unreportedOpened = [];
    /** Reports of shown messages and actions, `{kind, msgId, action}`, that the gateway has not confirmed. */
    this.unreported = [];
    /** Messages that the app rejected, until the gateway has confirmed the rejection. */
    this.rejections = [];
    /** Removals of vendor tokens that the gateway has not confirmed; a Hello cannot remove a token. */
    this.removedTokens = [];
    /** Messages to the app's server, `{number, payload, taskId}`, in order. */
    this.outgoing = [];
    this.lastOutgoing = 0;
    /** The learnt heartbeats as pairs of network and plan; the network used last is last. */
    this.heartbeats = [];
    /** Ids of the last 256 messages from a vendor, and with `vendorDuplicates` from the connection, oldest first. */
    this.seen = [];
  }

  get isRegistered() { return this.cid !== "" && this.secret.length > 0; }

  processed(stream) {
    let found = this.streams.get(stream);
    if (!found) this.streams.set(stream, found = new ProcessedSet());
    return found;
  }

  /** The positions for a Hello or an Ack. */
  get positions() {
    const streams = Array.from(this.streams.keys()).sort((one, other) => one - other);
    return streams.map(stream => this.streams.get(stream).position(stream));
  }

  noteOpened(id) {
    this.opened = this.opened.filter(one => one !== id).concat(id).slice(-LIMITS.opened);
    this.unreportedOpened = this.unreportedOpened.filter(one => one !== id).concat(id).slice(-LIMITS.opened);
  }

  /** Returns false when the report is already recorded. */
  noteReport(report) {
    if (this.unreported.some(one => isSameReport(one, report))) return false;
    this.unreported = this.unreported.concat(report).slice(-LIMITS.reports);
    return true;
  }

  noteRejection(rejection) {
    const others = this.rejections.filter(one => one.stream !== rejection.stream
      || one.sequence !== rejection.sequence);
    this.rejections = others.concat(rejection).slice(-LIMITS.rejections);
  }

  /** Records a removed token, or that a token is set again; returns false if nothing changes. */
  noteToken(token) {
    const before = this.removedTokens, removal = removalOf(token);
    const isRemoval = token.token === "" && this.isRegistered;
    if (isRemoval && before.some(one => isSameToken(one, removal))) return false;
    const kept = before.filter(one => !(token.token === "" ? excludes(removal, one) : excludes(one, token)));
    this.removedTokens = isRemoval ? kept.concat(removal).slice(-LIMITS.removedTokens) : kept;
    return this.removedTokens.length !== before.length || isRemoval;
  }

  noteSeen(id) {
    if (id === "" || this.seen.includes(id)) return;
    this.seen.push(id);
    if (this.seen.length > LIMITS.seen) this.seen.shift();
  }

  /** Numbers and keeps a message to the app's server; returns null when the queue is full. */
  keepOutgoing(payload, taskId, mostBytes = LIMITS.outgoingBytes) {
    const count = this.outgoing.reduce((sum, one) => sum + one.payload.length, payload.length);
    if (this.outgoing.length >= LIMITS.outgoing || count > mostBytes) return null;
    this.lastOutgoing = this.lastOutgoing >= 4294967295 ? 1 : this.lastOutgoing + 1;
    const message = {number: this.lastOutgoing, payload, taskId};
    this.outgoing.push(message);
    return message;
  }

  heartbeat(network) {
    const found = this.heartbeats.find(([name]) => name === network);
    return found ? found[1] : new HeartbeatPlan();
  }

  keepHeartbeat(plan, network) {
    this.heartbeats = this.heartbeats.filter(([name]) => name !== network);
    // An unnamed network is stored only if something was learnt.
    if (network === "" && plan.learnt === null && plan.failed === null) return;
    this.heartbeats = this.heartbeats.concat([[network, plan]]).slice(-LIMITS.networks);
  }

  /**
   * Applies a call that the app made without a session. Only taps, reports, outgoing messages, tokens and verdicts
   * change the state. With the option `vendorDuplicates` it records processed ids, because a vendor may deliver them again.
   * Returns false if there is no room for an outgoing message.
   */
  keep(command, {vendorDuplicates, outgoingBytes}) {
    switch (command.do) {
      case "opened": this.noteOpened(command.msgId); break;
      case "report": this.noteReport(command.report); break;
      case "send": return this.keepOutgoing(command.payload, command.taskId, outgoingBytes) !== null;
      case "token": this.noteToken(command.token); break;
      case "finish": {
        const {message, verdict} = command;
        if (message.channel === "vendor") {
          if (verdict.kind !== "deferred") this.noteSeen(message.msgId);
          break;
        }
        if (message.origin !== this.origin) break;
        if (verdict.kind === "processed") {
          this.processed(message.stream).insertAlone(message.sequence);
          if (vendorDuplicates) this.noteSeen(message.msgId);
        }
        if (verdict.kind === "rejected") {
          this.noteRejection({stream: message.stream, sequence: message.sequence, reason: verdict.reason});
        }
        break;
      }
      default: break;
    }
    return true;
  }

  /** The registration and queue that sequences belong to. */
  get origin() { return `${this.cid}/${this.epoch}`; }

  /** Removes the registration. The clock offset, the heartbeats and the messages to the app's server stay. */
  forgetRegistration() {
    const {offset, heartbeats, outgoing, lastOutgoing} = this;
    Object.assign(this, new ClientState(this.appId), {offset, heartbeats, outgoing, lastOutgoing});
  }

  // The stored form

  serialized() {
    const lines = [FIRST_LINE, `app ${hex(utf8(this.appId))}`];
    if (this.isRegistered) lines.push(`cid ${this.cid}`, `secret ${hex(this.secret)}`);
    lines.push(`timestamp ${this.lastTimestamp} ${this.acceptedTimestamp}`, `offset ${this.offset}`,
      `epoch ${this.epoch}`);
    for (const stream of Array.from(this.streams.keys()).sort((one, other) => one - other)) {
      const {sequence, ranges} = this.streams.get(stream);
      lines.push(`stream ${stream} ${sequence}${ranges.map(([first, last]) => ` ${first}-${last}`).join("")}`);
    }
    for (const id of this.opened) lines.push(`opened ${id}`);
    for (const id of this.unreportedOpened) lines.push(`unreported ${id}`);
    for (const {kind, msgId, action} of this.unreported) {
      lines.push(kind === "shown" ? `shown ${msgId}` : `action ${action} ${msgId}`);
    }
    for (const {stream, sequence, reason} of this.rejections) {
      lines.push(`rejected ${stream} ${sequence} ${hex(utf8(reason))}`);
    }
    for (const {channel, kind, activity} of this.removedTokens) {
      lines.push(`untoken ${channel} ${kind} ${hex(utf8(activity))}`);
    }
    for (const [network, {learnt, ceiling, failed}] of this.heartbeats) {
      lines.push(`heartbeat -${hex(utf8(network))} ${learnt || 0} ${ceiling} ${failed || 0}`);
    }
    if (this.lastOutgoing > 0) lines.push(`sent ${this.lastOutgoing}`);
    for (const {number, payload, taskId} of this.outgoing) {
      lines.push(`send ${number} ${taskId || NO_ID} ${hex(payload)}`);
    }
    for (const id of this.seen) lines.push(`seen ${id}`);
    const text = `${lines.join("\n")}\n`;
    return `${text}check ${checkSum(text)}\nend\n`;
  }

  /** Reads the form that `serialized` writes; throws `stateDamaged` for anything else. */
  static parse(text) {
    const bad = message => new LongwireError("stateDamaged", message);
    if (typeof text !== "string" || !text.startsWith(`${FIRST_LINE}\n`)) {
      throw bad("this is not a state of version 1; use another place, or remove the state to register a new device");
    }
    const found = /^([^]*\n)check ([0-9a-f]{16})\nend\n$/.exec(text);
    if (!found) throw bad("the state is cut short; restore it, or remove it to register a new device");
    if (checkSum(found[1]) !== found[2]) {
      throw bad("the state does not have its check sum; restore it, or remove it to register a new device");
    }
    const state = new ClientState("");
    found[1].slice(0, -1).split("\n").forEach((line, index) => {
      const words = line.split(" ");
      if (index > 0 && !(words.length > 1 && state.readLine(words[0], words.slice(1)))) {
        throw bad(`line ${index + 1} of the state is not understood; use a newer client, or remove the state`);
      }
    });
    return state;
  }

  readLine(name, values) {
    const [value] = values, bytes = name === "app" || name === "secret" ? bytesOfHex(value) : null;
    const isNumber = text => NUMBER.test(text) && Number(text) <= LIMITS.greatestSequence;
    const numbers = values.map(text => isNumber(text) ? Number(text) : null);
    switch (name) {
      case "app": {
        const text = bytes && textOfUTF8(bytes);
        if (text === null) return false;
        this.appId = text;
        return true;
      }
      case "cid": this.cid = value; return isId(value);
      case "secret":
        if (!bytes || bytes.length === 0) return false;
        this.secret = bytes;
        return true;
      case "timestamp":
        [this.lastTimestamp, this.acceptedTimestamp] = numbers;
        return numbers.length === 2 && !numbers.includes(null);
      case "offset": {
        this.offset = Number(value);
        return /^-?[0-9]{1,16}$/.test(value) && Number.isSafeInteger(this.offset);
      }
      case "epoch": {
        const parts = halves(value);
        if (!parts) return false;
        this.epoch = decimal(parts[0], parts[1]);
        return true;
      }
      case "stream": {
        const ranges = values.slice(2).map(text => text.split("-"));
        if (numbers.length < 2 || numbers[0] === null || numbers[1] === null) return false;
        if (!ranges.every(ends => ends.length === 2 && ends.every(end => NUMBER.test(end)))) return false;
        this.streams.set(numbers[0], new ProcessedSet(numbers[1], ranges.map(ends => ends.map(Number))));
        return this.streams.size <= LIMITS.streams;
      }
      case "opened": this.opened.push(value); return isId(value) && this.opened.length <= LIMITS.opened;
      case "unreported":
        this.unreportedOpened.push(value);
        return isId(value) && this.unreportedOpened.length <= LIMITS.opened;
      case "seen": this.seen.push(value); return isId(value) && this.seen.length <= LIMITS.seen;
      case "shown": this.unreported.push({kind: "shown", msgId: value, action: 0}); return isId(value);
      case "action":
        this.unreported.push({kind: "action", msgId: values[1], action: numbers[0]});
        return values.length === 2 && numbers[0] !== null && isId(values[1]);
      case "rejected": {
        const reason = values.length === 3 ? bytesOfHex(values[2]) : null, text = reason && textOfUTF8(reason);
        if (text === null || numbers[0] === null || numbers[1] === null) return false;
        this.rejections.push({stream: numbers[0], sequence: numbers[1], reason: text});
        return true;
      }
      case "untoken": {
        const activity = values.length === 3 ? bytesOfHex(values[2]) : null, text = activity && textOfUTF8(activity);
        if (text === null || !CHANNELS[numbers[0]] || !KINDS[numbers[1]]) return false;
        this.removedTokens.push(removalOf({channel: numbers[0], kind: numbers[1], activity: text}));
        return this.removedTokens.length <= LIMITS.removedTokens;
      }
      case "sent": this.lastOutgoing = numbers[0]; return numbers[0] !== null && numbers[0] <= 4294967295;
      case "send": {
        const payload = values.length === 3 ? bytesOfHex(values[2]) : null;
        if (!payload || numbers[0] === null || !isId(values[1])) return false;
        this.outgoing.push({number: numbers[0], payload, taskId: values[1] === NO_ID ? "" : values[1]});
        return true;
      }
      case "heartbeat": {
        const network = value[0] === "-" ? bytesOfHex(value.slice(1)) : null, text = network && textOfUTF8(network);
        if (text === null || values.length !== 4 || numbers.slice(1).includes(null)) return false;
        this.keepHeartbeat(new HeartbeatPlan(numbers[1], numbers[2], numbers[3]), text);
        return true;
      }
      default: return false;
    }
  }
}

export const isSameReport = (one, other) =>
  one.kind === other.kind && one.msgId === other.msgId && one.action === other.action;
