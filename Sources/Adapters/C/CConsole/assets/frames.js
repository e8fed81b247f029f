// The frames of the device protocol that a browser's device needs (Proto/README.md), with a small proto3 codec.

export const TYPE = {hello: 1, welcome: 2, close: 3, ping: 4, pong: 5, deliver: 6, ack: 7, deviceUpdate: 8, updateResult: 9, revoke: 11};
export const STATE = {foreground: 0, background: 1};

const HEADER = 4;
const BODY_LIMIT = 0xffffff;
const text = new TextEncoder();
const strictText = new TextDecoder("utf-8", {fatal: true});

// The kinds of fields by number. "number" fits a double exactly, "big" may have all 64 bits.
const RANGE = {1: ["first", "number"], 2: ["last", "number"]};
const POSITION = {1: ["stream", "number"], 2: ["sequence", "number"], 3: ["ranges", [RANGE]]};
const DROPPED = {1: ["reason", "text"], 2: ["count", "number"]};
const ALERT = {1: ["title", "text"], 2: ["body", "text"]};
const FIELDS = {
  hello: {
    1: ["appId", "text"], 2: ["role", "number"], 3: ["cid", "bytes"], 4: ["registration", "flag"], 5: ["timestamp", "number"],
    6: ["proof", "bytes"], 7: ["queueEpoch", "big"], 8: ["positions", [POSITION]], 9: ["applicationState", "number"],
    11: ["heartbeatSeconds", "number"], 16: ["client", "text"], 18: ["nonce", "bytes"],
  },
  welcome: {
    1: ["generation", "big"], 2: ["queueEpoch", "big"], 3: ["heartbeatSeconds", "number"], 4: ["window", "number"],
    5: ["serverTime", "number"], 6: ["backlog", "number"], 7: ["dropped", [DROPPED]], 8: ["cid", "bytes"], 9: ["deviceSecret", "bytes"],
  },
  close: {
    1: ["code", "number"], 2: ["reason", "text"], 3: ["retryAfterMinimum", "number"], 4: ["retryAfterMaximum", "number"],
    5: ["alternate", "text"], 6: ["serverTime", "number"],
  },
  ping: {1: ["nonce", "big"]},
  pong: {1: ["nonce", "big"]},
  deliver: {
    1: ["stream", "number"], 2: ["sequence", "number"], 3: ["msgId", "bytes"], 4: ["taskId", "bytes"], 5: ["payload", "bytes"],
    6: ["offline", "flag"], 7: ["acceptedAt", "number"], 8: ["alertedAt", "number"], 9: ["attempt", "number"],
    10: ["collapseKey", "text"], 11: ["alert", ALERT], 12: ["carriedByVendor", "flag"],
  },
  ack: {1: ["positions", [POSITION]]},
  // The state is optional in the schema, so its zero value, the foreground, is written.
  deviceUpdate: {1: ["request", "number"], 2: ["applicationState", "optional"]},
  updateResult: {1: ["request", "number"], 2: ["code", "number"], 3: ["reason", "text"], 4: ["heartbeatSeconds", "number"]},
  revoke: {1: ["sequence", "number"], 2: ["msgId", "bytes"], 3: ["taskId", "bytes"], 4: ["revokedTaskId", "bytes"]},
};
const NAMES = Object.fromEntries(Object.entries(TYPE).map(([name, type]) => [type, name]));

/** A frame that cannot be decoded. The connection must be closed. */
export class BadFrame extends Error {}

// Writing

function putVarint(bytes, value) {
  let rest = BigInt(value);
  while (rest >= 0x80n) { bytes.push(Number(rest & 0x7fn) | 0x80); rest >>= 7n; }
  bytes.push(Number(rest));
}

function putBytes(bytes, number, value) {
  putVarint(bytes, number << 3 | 2);
  putVarint(bytes, value.length);
  for (const byte of value) bytes.push(byte);
}

/** Returns the body of a message. Missing and zero values are omitted. */
export function encodeBody(fields, values) {
  const bytes = [];
  for (const [key, [name, kind]] of Object.entries(fields)) {
    const number = Number(key), value = values[name];
    if (value === undefined || value === null) continue;
    if (Array.isArray(kind)) for (const one of value) putBytes(bytes, number, encodeBody(kind[0], one));
    else if (typeof kind === "object") putBytes(bytes, number, encodeBody(kind, value));
    else if (kind === "text") { if (value !== "") putBytes(bytes, number, text.encode(value)); }
    else if (kind === "bytes") { if (value.length > 0) putBytes(bytes, number, value); }
    else if (value || kind === "optional") { putVarint(bytes, number << 3); putVarint(bytes, value); }
  }
  return bytes;
}

function frame(type, body) {
  return Uint8Array.from([type, body.length >> 16 & 0xff, body.length >> 8 & 0xff, body.length & 0xff, ...body]);
}

/** Returns a complete frame: `encode("ack", {positions: …})`. */
export const encode = (name, values) => frame(TYPE[name], encodeBody(FIELDS[name], values));

/** Returns the frame of a Hello with the proof, computed with `key` (bytes), as its last field. */
export async function encodeHello(values, key) {
  const body = encodeBody(FIELDS.hello, {...values, proof: undefined});
  const signing = await crypto.subtle.importKey("raw", key, {name: "HMAC", hash: "SHA-256"}, false, ["sign"]);
  const proof = await crypto.subtle.sign("HMAC", signing, Uint8Array.from([...text.encode("longwire hello 1"), ...body]));
  putBytes(body, 6, new Uint8Array(proof));
  return frame(TYPE.hello, body);
}

// Reading

class Cursor {
  constructor(bytes) { this.bytes = bytes; this.place = 0; }
  get isAtEnd() { return this.place >= this.bytes.length; }

  varint() {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      if (this.isAtEnd) throw new BadFrame("a number is cut off");
      const byte = this.bytes[this.place++];
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) {
        if (value >= 1n << 64n) break;
        return value;
      }
    }
    throw new BadFrame("a number has more than 64 bits");
  }

  take(count) {
    if (count > this.bytes.length - this.place) throw new BadFrame("a field is cut off");
    const taken = this.bytes.subarray(this.place, this.place + count);
    this.place += count;
    return taken;
  }
}

function empty(fields) {
  const zero = {text: "", bytes: new Uint8Array(), number: 0, flag: false, big: 0n};
  return Object.fromEntries(Object.values(fields).map(([name, kind]) =>
    [name, Array.isArray(kind) ? [] : typeof kind === "object" || kind === "optional" ? null : zero[kind]]));
}

/** Returns the values of a body. Unknown fields are skipped. */
export function decodeBody(fields, bytes) {
  const values = empty(fields), cursor = new Cursor(bytes);
  while (!cursor.isAtEnd) {
    const tag = cursor.varint(), number = Number(tag >> 3n), wire = Number(tag & 7n);
    if (number === 0) throw new BadFrame("a field has number 0");
    let value;
    if (wire === 0) value = cursor.varint();
    else if (wire === 1) value = cursor.take(8);
    else if (wire === 2) value = cursor.take(Number(cursor.varint()));
    else if (wire === 5) value = cursor.take(4);
    else throw new BadFrame("a field has a type that is none");
    if (!fields[number]) continue;
    const [name, kind] = fields[number];
    const isVarint = ["number", "flag", "big", "optional"].includes(kind);
    if (wire !== (isVarint ? 0 : 2)) throw new BadFrame("a field has another type");
    if (Array.isArray(kind)) values[name].push(decodeBody(kind[0], value));
    else if (typeof kind === "object") values[name] = decodeBody(kind, value);
    else if (kind === "text") {
      try { values[name] = strictText.decode(value); } catch { throw new BadFrame("a text is not UTF-8"); }
    } else if (kind === "bytes") values[name] = value.slice();
    else if (kind === "flag") values[name] = value !== 0n;
    else values[name] = kind === "big" ? value : Number(value);
  }
  return values;
}

/** An incremental parser of frames, which may span several WebSocket messages. */
export class FrameReader {
  #kept = new Uint8Array();

  /** Returns the complete frames as `{name, values}`. `name` is undefined for an unknown type. */
  take(bytes) {
    let rest = bytes;
    if (this.#kept.length > 0) {
      rest = new Uint8Array(this.#kept.length + bytes.length);
      rest.set(this.#kept);
      rest.set(bytes, this.#kept.length);
    }
    const frames = [];
    while (rest.length >= HEADER) {
      const count = rest[1] << 16 | rest[2] << 8 | rest[3];
      if (rest.length < HEADER + count) break;
      const name = NAMES[rest[0]], body = rest.subarray(HEADER, HEADER + count);
      frames.push({name, values: name && decodeBody(FIELDS[name], body)});
      rest = rest.subarray(HEADER + count);
    }
    if (rest.length > HEADER + BODY_LIMIT) throw new BadFrame("a frame is too large");
    this.#kept = rest.slice();
    return frames;
  }
}

export const decode = (name, body) => decodeBody(FIELDS[name], body);

export const hex = bytes => Array.from(bytes, byte => byte.toString(16).padStart(2, "0")).join("");
export const fromHex = digits => Uint8Array.from(digits.match(/../g) ?? [], pair => parseInt(pair, 16));
