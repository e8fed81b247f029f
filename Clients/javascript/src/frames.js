// The frames of the device protocol (Proto/README.md, Proto/longwire/v1/longwire.proto), with a small proto3 codec.
//
// Identifiers are texts of 32 hexadecimal digits, or empty. Numbers of 64 bits that a client only repeats (epochs,
// nonces) are decimal texts, because a double has 53 bits and mini programs have no BigInt. Other numbers above 53 bits
// become Infinity.

import {bytesOfHex, hex, textOfUTF8, utf8} from "./bytes.js";

export const TYPE = {
  hello: 1, welcome: 2, close: 3, ping: 4, pong: 5, deliver: 6, ack: 7, deviceUpdate: 8, updateResult: 9, feedback: 10,
  revoke: 11,
  upstream: 12, upstreamResult: 13, publish: 14, publishResult: 15, deviceNames: 16, deviceNamesResult: 17,
};
export const NAMES = Object.fromEntries(Object.entries(TYPE).map(([name, type]) => [type, name]));
export const HEADER = 4;
/** The protocol's default limit of a frame's body. */
export const BODY_LIMIT = 65536;

const field = (name, kind, limit = Infinity) => ({name, kind, limit});
const list = (name, kind, limit = Infinity) => ({name, kind, limit, isList: true});

// The kinds: "u32" (truncated to 32 bits), "number" (up to 53 bits), "long" (64 bits, decimal text), "sint" (zigzag),
// "flag", "text", "bytes", "id", or the fields of a message. A "?" at the end marks a field whose zero value is
// written.
const RANGE = {1: field("first", "number"), 2: field("last", "number")};
const POSITION = {1: field("stream", "u32"), 2: field("sequence", "number"), 3: list("ranges", RANGE)};
const REJECTED = {1: field("stream", "u32"), 2: field("sequence", "number"), 3: field("reason", "text", 512)};
const DROPPED = {1: field("reason", "text"), 2: field("count", "number")};
const ALERT = {1: field("title", "text"), 2: field("body", "text")};
const TOKEN = {
  1: field("kind", "u32"), 2: field("environment", "u32"), 3: field("topic", "text"), 4: field("token", "text"),
  5: field("channel", "u32"), 6: field("activity", "text"),
};
const ATTRIBUTES = {
  1: field("platform", "u32"), 2: field("brand", "text"), 3: field("model", "text"), 4: field("systemVersion", "text"),
  5: field("appVersion", "text"), 6: field("locale", "text"), 7: field("timeZone", "text"),
  8: field("notificationPermission", "u32"),
};
export const FIELDS = {
  hello: {
    1: field("appId", "text"), 2: field("role", "u32"), 3: field("cid", "id"), 4: field("registration", "flag"),
    5: field("timestamp", "number"), 6: field("proof", "bytes"), 7: field("queueEpoch", "long"),
    8: list("positions", POSITION),
    9: field("applicationState", "u32"), 10: field("keepsRunning", "flag"), 11: field("heartbeatSeconds", "u32"),
    12: field("badge", "sint?"), 13: list("tokens", TOKEN), 14: list("opened", "id"), 15: field("replayOpened", "flag"),
    16: field("client", "text"), 17: field("window", "u32"), 18: field("nonce", "bytes"),
    19: field("registrationToken", "text"), 20: field("attributes", ATTRIBUTES),
  },
  welcome: {
    1: field("generation", "long"), 2: field("queueEpoch", "long"), 3: field("heartbeatSeconds", "u32"),
    4: field("window", "u32"),
    5: field("serverTime", "number"), 6: field("backlog", "number"), 7: list("dropped", DROPPED, 16),
    8: field("cid", "id"),
    9: field("deviceSecret", "bytes", 64),
  },
  close: {
    1: field("code", "u32"), 2: field("reason", "text", 512), 3: field("retryAfterMinimum", "u32"),
    4: field("retryAfterMaximum", "u32"), 5: field("alternate", "text", 264), 6: field("serverTime", "number"),
  },
  ping: {1: field("nonce", "long")},
  pong: {1: field("nonce", "long")},
  deliver: {
    1: field("stream", "u32"), 2: field("sequence", "number"), 3: field("msgId", "id"), 4: field("taskId", "id"),
    5: field("payload", "bytes"), 6: field("offline", "flag"), 7: field("acceptedAt", "number"),
    8: field("alertedAt", "number"),
    9: field("attempt", "u32"), 10: field("collapseKey", "text"), 11: field("alert", ALERT),
    12: field("carriedByVendor", "flag"),
  },
  ack: {1: list("positions", POSITION, 8), 2: list("rejected", REJECTED, 32)},
  deviceUpdate: {
    1: field("request", "u32"), 2: field("applicationState", "u32?"), 3: field("keepsRunning", "flag?"),
    4: field("badge", "sint?"),
    5: list("tokens", TOKEN), 6: field("pushModeOff", "flag?"), 7: field("heartbeatSeconds", "u32"),
  },
  updateResult: {
    1: field("request", "u32"), 2: field("code", "u32"), 3: field("reason", "text"),
    4: field("heartbeatSeconds", "u32"),
  },
  feedback: {1: field("kind", "u32"), 2: field("msgId", "id"), 3: field("action", "u32")},
  revoke: {
    1: field("sequence", "number"), 2: field("msgId", "id"), 3: field("taskId", "id"), 4: field("revokedTaskId", "id"),
  },
  upstream: {1: field("request", "u32"), 2: field("payload", "bytes"), 3: field("taskId", "id")},
  upstreamResult: {1: field("request", "u32"), 2: field("code", "u32"), 3: field("reason", "text")},
  deviceNames: {
    1: field("request", "u32"), 2: field("operation", "u32"), 3: field("alias", "text"), 4: field("aliasType", "text"),
    5: list("tags", "text", 200), 6: field("token", "text"),
  },
  deviceNamesResult: {
    1: field("request", "u32"), 2: field("code", "u32"), 3: field("reason", "text", 512),
    4: field("alias", "text", 256), 5: list("tags", "text", 200),
  },
};

/** A frame that cannot be decoded. The connection must be closed with `closeCode`. */
export class BadFrame extends Error {
  constructor(message, closeCode = 412) {
    super(message);
    this.name = "BadFrame";
    this.closeCode = closeCode;
  }
}

// Numbers of 64 bits, as two halves of 32 bits

/** Returns the decimal digits of a number of 64 bits. */
export function decimal(high, low) {
  if (high < 0x200000) return String(high * 4294967296 + low);
  let text = "";
  while (high > 0 || low > 0) {
    const carried = high % 10 * 4294967296 + low;
    high = Math.floor(high / 10);
    low = Math.floor(carried / 10);
    text = carried % 10 + text;
  }
  return text;
}

/** Returns the halves `[high, low]` of decimal digits, or null for a text that is no number of 64 bits. */
export function halves(text) {
  if (!/^[0-9]{1,20}$/.test(text)) return null;
  let high = 0, low = 0;
  for (const digit of text) {
    low = low * 10 + Number(digit);
    high = high * 10 + Math.floor(low / 4294967296);
    low %= 4294967296;
    if (high >= 4294967296) return null;
  }
  return [high, low];
}

// Writing

function putHalves(bytes, high, low) {
  while (high > 0 || low >= 128) {
    bytes.push(low & 127 | 128);
    low = (low >>> 7 | high << 25) >>> 0;
    high >>>= 7;
  }
  bytes.push(low);
}

const putNumber = (bytes, value) => putHalves(bytes, Math.floor(value / 4294967296), value % 4294967296);

function putBytes(bytes, number, value) {
  putNumber(bytes, (number << 3 | 2) >>> 0);
  putNumber(bytes, value.length);
  for (let index = 0; index < value.length; index += 1) bytes.push(value[index]);
}

function putValue(bytes, number, kind, value, isWritten) {
  switch (kind) {
    case "text": if (isWritten || value !== "") putBytes(bytes, number, utf8(value)); return;
    case "bytes": if (isWritten || value.length > 0) putBytes(bytes, number, value); return;
    case "id": {
      const id = bytesOfHex(value);
      if (!id || id.length !== 16 && id.length !== 0) {
        throw new RangeError(`"${value}" is no identifier of 32 hexadecimal digits`);
      }
      if (isWritten || id.length > 0) putBytes(bytes, number, id);
      return;
    }
    case "long": {
      const parts = halves(value);
      if (!parts) throw new RangeError(`"${value}" is no number of 64 bits`);
      if (!isWritten && value === "0") return;
      putNumber(bytes, number << 3);
      putHalves(bytes, parts[0], parts[1]);
      return;
    }
    case "sint": value = value < 0 ? -value * 2 - 1 : value * 2; break;
    case "flag": value = value ? 1 : 0; break;
    case "u32": case "number": break;
    default: putBytes(bytes, number, encodeBody(kind, value)); return;
  }
  if (!(value >= 0 && value <= Number.MAX_SAFE_INTEGER)) throw new RangeError(`${value} is no number of the protocol`);
  if (!isWritten && value === 0) return;
  putNumber(bytes, number << 3);
  putNumber(bytes, value);
}

const OPTIONAL = {"u32?": "u32", "sint?": "sint", "flag?": "flag"};

/** Returns the body of a message as an array of bytes. Missing and zero values are omitted. */
export function encodeBody(fields, values) {
  const bytes = [];
  for (const key of Object.keys(fields)) {
    const {name, kind, isList} = fields[key], value = values[name];
    if (value === undefined || value === null) continue;
    if (isList) for (const one of value) putValue(bytes, Number(key), kind, one, true);
    else putValue(bytes, Number(key), OPTIONAL[kind] || kind, value, kind in OPTIONAL || typeof kind !== "string");
  }
  return bytes;
}

export function frame(type, body) {
  const bytes = new Uint8Array(HEADER + body.length);
  bytes[0] = type;
  bytes[1] = body.length >> 16;
  bytes[2] = body.length >> 8;
  bytes[3] = body.length;
  bytes.set(body, HEADER);
  return bytes;
}

/** Returns a complete frame: `encode("ack", {positions: …})`. */
export const encode = (name, values) => frame(TYPE[name], encodeBody(FIELDS[name], values));

const LABEL = utf8("longwire hello 1");

/** Returns the frame of a Hello with its proof as the last field; `hmac(key, bytes)` computes HMAC-SHA-256. */
export function encodeHello(values, key, hmac) {
  const body = encodeBody(FIELDS.hello, Object.assign({}, values, {proof: undefined}));
  const transcript = new Uint8Array(LABEL.length + body.length);
  transcript.set(LABEL);
  transcript.set(body, LABEL.length);
  putBytes(body, 6, hmac(key, transcript));
  return frame(TYPE.hello, body);
}

// Reading

class Cursor {
  constructor(bytes) {
    this.bytes = bytes;
    this.offset = 0;
    this.high = 0;
    this.low = 0;
  }

  /** Reads a number of 64 bits into `high` and `low`. */
  read() {
    const {bytes} = this;
    let high = 0, low = 0;
    for (let shift = 0; ; shift += 7) {
      if (this.offset >= bytes.length) throw new BadFrame("a number is cut off");
      const byte = bytes[this.offset];
      this.offset += 1;
      // The tenth byte holds the 64th bit and nothing else.
      if (shift === 63 && byte > 1) throw new BadFrame("a number has more than 64 bits");
      const part = byte & 127;
      if (shift < 28) {
        low |= part << shift;
      } else if (shift === 28) {
        low |= part << 28;
        high |= part >> 4;
      } else {
        high |= part << shift - 32;
      }
      if (byte < 128) break;
    }
    this.high = high >>> 0;
    this.low = low >>> 0;
  }

  number() {
    this.read();
    return this.high < 0x200000 ? this.high * 4294967296 + this.low : Infinity;
  }

  /** Returns the next `count` bytes, which the caller must copy. */
  take(count) {
    if (!(count <= this.bytes.length - this.offset)) throw new BadFrame("a field is cut off");
    const taken = this.bytes.subarray(this.offset, this.offset + count);
    this.offset += count;
    return taken;
  }
}

const ZERO = {u32: 0, number: 0, long: "0", sint: 0, flag: false, text: "", id: "", bytes: new Uint8Array(0)};
const VARINTS = new Set(["u32", "u32?", "number", "long", "sint", "sint?", "flag", "flag?"]);

/** The fields of a message in a form for reading: by number, and the defaults of all that are no lists. */
const PLANS = new Map();

function planOf(fields) {
  let plan = PLANS.get(fields);
  if (plan) return plan;
  plan = {byNumber: [], lists: [], defaults: {}};
  for (const key of Object.keys(fields)) {
    const {name, kind, isList} = fields[key];
    plan.byNumber[Number(key)] = Object.assign({wire: VARINTS.has(kind) ? 0 : 2}, fields[key]);
    if (isList) plan.lists.push(name);
    plan.defaults[name] = isList || !(kind in ZERO) ? null : ZERO[kind];
  }
  PLANS.set(fields, plan);
  return plan;
}

function valueOf(cursor, {kind, limit, isList, name}) {
  if (typeof kind !== "string") return decodeBody(kind, cursor.take(cursor.number()));
  switch (kind) {
    case "u32": case "u32?": cursor.read(); return cursor.low;
    case "number": return cursor.number();
    case "long": cursor.read(); return decimal(cursor.high, cursor.low);
    case "sint": case "sint?": cursor.read(); return cursor.low >>> 1 ^ -(cursor.low & 1);
    case "flag": case "flag?": cursor.read(); return cursor.high !== 0 || cursor.low !== 0;
    default: break;
  }
  const bytes = cursor.take(cursor.number());
  if (!isList && bytes.length > limit) throw new BadFrame(`${name} has more than ${limit} bytes`);
  if (kind === "bytes") return bytes.slice();
  if (kind === "id") {
    if (bytes.length !== 0 && bytes.length !== 16) {
      throw new BadFrame(`${name} has ${bytes.length} bytes instead of 16`);
    }
    return hex(bytes);
  }
  const text = textOfUTF8(bytes);
  if (text === null) throw new BadFrame(`${name} is not UTF-8`);
  return text;
}

/** Returns the values of a body. Unknown fields are skipped; any other deviation from the schema throws BadFrame. */
export function decodeBody(fields, bytes) {
  const {byNumber, lists, defaults} = planOf(fields), values = Object.assign({}, defaults), cursor = new Cursor(bytes);
  for (const name of lists) values[name] = [];
  while (cursor.offset < bytes.length) {
    cursor.read();
    const number = cursor.low >>> 3, wire = cursor.low & 7;
    if (cursor.high !== 0 || number === 0) throw new BadFrame("a field has no valid number");
    const found = number < byNumber.length ? byNumber[number] : undefined;
    if (found) {
      if (wire !== found.wire) throw new BadFrame(`${found.name} has another wire type`);
      const value = valueOf(cursor, found);
      if (!found.isList) {
        values[found.name] = value;
      } else if (values[found.name].push(value) > found.limit) {
        throw new BadFrame(`${found.name} has more than ${found.limit} items`);
      }
    } else if (wire === 0) cursor.read();
    else if (wire === 1) cursor.take(8);
    else if (wire === 2) cursor.take(cursor.number());
    else if (wire === 5) cursor.take(4);
    else throw new BadFrame(`field ${number} has the wire type ${wire}, which does not exist`);
  }
  return values;
}

export const decode = (name, body) => decodeBody(FIELDS[name], body);

/** An incremental parser of frames, which may span several reads. It holds at most one frame. */
export class FrameReader {
  constructor(limit = BODY_LIMIT) {
    this.limit = limit;
    this.reset();
  }

  reset() {
    this.bytes = new Uint8Array(0);
    this.offset = 0;
  }

  /** Adds received bytes. The caller must not change the array afterwards. */
  append(bytes) {
    const rest = this.bytes.length - this.offset;
    if (rest === 0) {
      this.bytes = bytes;
    } else {
      const joined = new Uint8Array(rest + bytes.length);
      joined.set(this.bytes.subarray(this.offset));
      joined.set(bytes, rest);
      this.bytes = joined;
    }
    this.offset = 0;
  }

  /** Returns the next complete frame as `{name, values}`, or null if more bytes are needed. */
  next() {
    const {bytes, offset} = this;
    if (bytes.length - offset < HEADER) return null;
    const name = NAMES[bytes[offset]];
    if (!name) throw new BadFrame(`frame type ${bytes[offset]} is unknown; this client is too old`, 410);
    const count = bytes[offset + 1] << 16 | bytes[offset + 2] << 8 | bytes[offset + 3];
    if (count > this.limit) throw new BadFrame(`a frame of ${count} bytes exceeds the limit of ${this.limit}`, 411);
    if (bytes.length - offset - HEADER < count) return null;
    this.offset = offset + HEADER + count;
    const fields = FIELDS[name], body = bytes.subarray(offset + HEADER, this.offset);
    return {name, values: fields ? decodeBody(fields, body) : null};
  }

  /** Adds received bytes and returns all complete frames. */
  take(bytes) {
    this.append(bytes);
    const frames = [];
    for (let found = this.next(); found; found = this.next()) frames.push(found);
    return frames;
  }
}

export {bytesOfHex, hex};
