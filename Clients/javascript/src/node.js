// The adapters for Node: TCP, TLS and WebSocket transports, and a state in one file.

import {X509Certificate, createHash, createHmac, randomBytes} from "node:crypto";
import * as files from "node:fs";
import * as net from "node:net";
import * as os from "node:os";
import * as path from "node:path";
import * as tls from "node:tls";

import {LongwireClient} from "./client.js";
import {LongwireError, OUTBOX_FULL} from "./errors.js";
import {LIMITS} from "./limits.js";
import {locale, timeZone} from "./options.js";
import {ClientState} from "./state.js";
import {WebSocketStream} from "./websocket.js";

export * from "./index.js";

const LINGER = 500;
const STATE_BYTES = 16777216;

const ABSENT = "absent";
/** A text that differs between two versions of a file, which is always replaced and never changed in place. */
const markOf = ({ino, size, mtimeNs}) => `${ino} ${size} ${mtimeNs}`;
const call = (work, file) => new Promise((resolve, reject) => {
  work(file, error => error ? reject(error) : resolve());
});

const plain = buffer => new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.length);

/** HMAC-SHA-256 of Node's own library. */
export const nodeHMAC = (key, bytes) => plain(createHmac("sha256", key).update(bytes).digest());

/**
 * Connections over TCP, TLS and WebSockets, by the scheme of the client's url. `tls` has options of Node's
 * `tls.connect`, such as `ca`, `cert` and `key`. `pins` are SHA-256 digests of certificates in hexadecimal: one
 * certificate of the gateway's chain must have one of them, in addition to the usual verification.
 */
export class NodeTransport {
  constructor({tls: options = {}, pins = []} = {}) {
    for (const pin of pins) {
      if (!/^[0-9a-f]{64}$/.test(pin)) {
        throw new LongwireError("badConfiguration", `"${pin}" is no SHA-256 digest in lower-case hexadecimal`);
      }
    }
    this.options = options;
    this.pins = pins;
  }

  connect({scheme, host, port, url}, events) {
    const isSecure = scheme === "tls" || scheme === "wss";
    const socket = isSecure
      ? tls.connect(Object.assign({host, port, servername: net.isIP(host) ? "" : host}, this.options))
      : net.connect({host, port});
    const isWebSocket = scheme === "ws" || scheme === "wss";
    return new NodeConnection(socket, isWebSocket ? url : null, isSecure ? this.pins : [], events);
  }
}

/**
 * Returns whether a certificate of the chain has one of the digests. Node links certificates only by their issuers'
 * names. This function therefore verifies each signature; otherwise a server could append any pinned certificate.
 */
function isPinned(socket, pins) {
  const seen = new Set();
  let last = null;
  for (let one = socket.getPeerCertificate(true); one && one.raw && !seen.has(one); one = one.issuerCertificate) {
    seen.add(one);
    const certificate = new X509Certificate(one.raw);
    if (last && !isIssuedBy(last, certificate)) return false;
    if (pins.includes(createHash("sha256").update(one.raw).digest("hex"))) return true;
    last = certificate;
  }
  return false;
}

function isIssuedBy(certificate, issuer) {
  try {
    return certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey);
  } catch {
    // The key has an unknown type, or another type than the signature.
    return false;
  }
}

class NodeConnection {
  constructor(socket, url, pins, events) {
    Object.assign(this, {socket, events, stream: null, isOver: false});
    socket.setNoDelay(true);
    socket.setKeepAlive(true, 60000);
    socket.on("error", error => this.end(error.message || error.code || "the connection failed"));
    socket.on("close", () => this.end("the gateway closed the connection"));
    socket.on("end", () => this.end("the gateway closed the connection"));
    socket.on(socket instanceof tls.TLSSocket ? "secureConnect" : "connect", () => {
      if (this.isOver) return;
      if (pins.length > 0 && !isPinned(socket, pins)) {
        return this.fail("no certificate of the gateway's chain is pinned; compare the chain with the option pins");
      }
      if (!url) return events.opened();
      this.stream = new WebSocketStream(url, {
        write: bytes => socket.write(bytes), opened: events.opened, received: events.received,
        failed: reason => this.fail(reason), isFull: () => this.isFull, random: randomBytes,
      });
    });
    socket.on("data", buffer => {
      if (this.isOver) return;
      if (this.stream) this.stream.take(plain(buffer));
      else events.received(plain(buffer));
    });
  }

  get isFull() { return this.socket.writableLength > LIMITS.outboxBytes; }

  send(bytes) {
    if (this.isOver) return;
    if (this.isFull) throw new Error(OUTBOX_FULL);
    if (this.stream) this.stream.send(bytes);
    else this.socket.write(bytes);
  }

  pause() { this.socket.pause(); }

  resume() { this.socket.resume(); }

  /** Sends what waits and closes. The gateway has half a second to read the last bytes and to close its side. */
  close() {
    if (this.isOver) return;
    this.isOver = true;
    if (this.stream) this.stream.close();
    this.socket.resume();
    if (this.socket.connecting) this.socket.destroy();
    else this.socket.end();
    const timer = setTimeout(() => this.socket.destroy(), LINGER);
    this.socket.once("close", () => clearTimeout(timer));
  }

  fail(reason) {
    if (this.isOver) return;
    this.end(reason);
    this.socket.destroy();
  }

  end(reason) {
    if (this.isOver) return;
    this.isOver = true;
    this.events.ended(reason);
  }
}

/**
 * A state in one file, which is replaced as a whole: a crash leaves either the old state or the new one. The file holds
 * the device's secret and is readable by its owner only. One client uses it at a time: a save fails if another has
 * written it.
 */
export class FileStore {
  /** The folder of `name` must exist. The store also creates files named `name` plus `.new` and a suffix. */
  constructor(name) {
    this.name = path.resolve(name);
    this.draft = `${this.name}.new${randomBytes(6).toString("hex")}`;
    this.seen = null;
  }

  /** Returns the file's text and its mark, or null if it does not exist. */
  read() {
    let file;
    try {
      file = files.openSync(this.name, "r");
    } catch (error) {
      if (error.code === "ENOENT") return null;
      throw new LongwireError("stateUnreadable", `cannot open ${this.name}: ${error.message}`, {cause: error});
    }
    try {
      const stat = files.fstatSync(file, {bigint: true});
      if (stat.size > STATE_BYTES) {
        throw new LongwireError("stateDamaged", `${this.name} has ${stat.size} bytes and is no state; move it away`);
      }
      return {text: files.readFileSync(file, "latin1"), mark: markOf(stat)};
    } catch (error) {
      if (error instanceof LongwireError) throw error;
      throw new LongwireError("stateUnreadable", `cannot read ${this.name}: ${error.message}`, {cause: error});
    } finally {
      files.closeSync(file);
    }
  }

  load() {
    const found = this.read();
    if (found) ClientState.parse(found.text);
    this.seen = found ? found.mark : ABSENT;
    this.removeDrafts();
    return found ? found.text : null;
  }

  /** Removes the drafts of clients that were killed while they wrote. A draft that cannot be removed stays. */
  removeDrafts() {
    const folder = path.dirname(this.name), start = `${path.basename(this.name)}.new`;
    try {
      for (const entry of files.readdirSync(folder)) {
        if (entry.startsWith(start) && /^[0-9a-f]{12}$/.test(entry.slice(start.length))) {
          files.unlinkSync(path.join(folder, entry));
        }
      }
    } catch {
      return;
    }
  }

  /**
   * Replaces the file. Calls that only change the system's memory block for microseconds and are synchronous; the two
   * syncs wait for the disk and are not.
   */
  async save(text) {
    // If the file is gone, it was removed on purpose, and this state is written.
    const current = this.seen === null ? null : files.statSync(this.name, {bigint: true, throwIfNoEntry: false});
    if (current && markOf(current) !== this.seen) {
      throw new LongwireError("stateUnwritable", `another client has written ${this.name}; run one at a time`);
    }
    try {
      const file = files.openSync(this.draft, "w", 0o600);
      let mark;
      try {
        files.writeFileSync(file, text, "latin1");
        await call(files.fdatasync, file);
        mark = markOf(files.fstatSync(file, {bigint: true}));
      } finally {
        files.closeSync(file);
      }
      files.renameSync(this.draft, this.name);
      this.seen = mark;
      await this.syncFolder();
    } catch (error) {
      files.rmSync(this.draft, {force: true});
      throw new LongwireError("stateUnwritable", `cannot write ${this.name}: ${error.message}`, {cause: error});
    }
  }

  /** Syncs the folder; without this, a power loss could undo the rename and restore an old state. */
  async syncFolder() {
    if (process.platform === "win32") return;
    const folder = files.openSync(path.dirname(this.name), "r");
    try {
      await call(files.fsync, folder);
    } finally {
      files.closeSync(folder);
    }
  }

  /** Renames a damaged file to its name plus `.damaged`. The next start registers a new device. */
  async setAside() {
    files.renameSync(this.name, `${this.name}.damaged`);
    this.seen = null;
    await this.syncFolder();
  }

  clear() {
    files.rmSync(this.name, {force: true});
    this.seen = null;
  }
}

/** Returns the attributes of this device that the system knows. */
export const nodeAttributes = () => ({
  platform: "other", systemVersion: `${os.type()} ${os.release()}`,
  locale: locale(), timeZone: timeZone(),
});

/**
 * Returns a client with its state in the file `state`. The options `tls` and `pins` are those of NodeTransport; all
 * others are those of LongwireClient.
 */
export function createClient(options) {
  const {state, tls: tlsOptions, pins, ...others} = options;
  if (!others.store && typeof state !== "string") {
    throw new LongwireError("badConfiguration", "state must be the path of a file for the device's id and secret");
  }
  return new LongwireClient(Object.assign({
    store: others.store || new FileStore(state), transport: new NodeTransport({tls: tlsOptions, pins}), hmac: nodeHMAC,
    random: count => plain(randomBytes(count)),
    platformAttributes: nodeAttributes,
  }, others));
}
