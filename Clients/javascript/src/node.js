// The adapters for Node: TCP, TLS and WebSocket transports, and a state in one file.

import {createHash, createHmac, randomBytes} from "node:crypto";
import {promises as files} from "node:fs";
import * as net from "node:net";
import * as path from "node:path";
import * as tls from "node:tls";

import {LongwireClient} from "./client.js";
import {LongwireError} from "./errors.js";
import {ClientState} from "./state.js";
import {WebSocketStream} from "./websocket.js";

export * from "./index.js";

const OUTBOX_BYTES = 1048576;
const LINGER = 500;
const STATE_BYTES = 16777216;

const plain = buffer => new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.length);

/** HMAC-SHA-256 of Node's own library. */
export const nodeHMAC = (key, bytes) => plain(createHmac("sha256", key).update(bytes).digest());

/**
 * Connections over TCP, TLS and WebSockets, by the scheme of the client's url. `tls` has options of Node's `tls.connect`, such as
 * `ca`, `cert` and `key`. `pins` are SHA-256 digests of certificates in hexadecimal: one certificate of the gateway's chain must
 * have one of them, in addition to the usual verification.
 */
export class NodeTransport {
  constructor({tls: options = {}, pins = []} = {}) {
    for (const pin of pins) {
      if (!/^[0-9a-f]{64}$/.test(pin)) throw new LongwireError("badConfiguration", `"${pin}" is no SHA-256 digest in lower-case hexadecimal`);
    }
    this.options = options;
    this.pins = pins;
  }

  connect({scheme, host, port, url}, events) {
    const isSecure = scheme === "tls" || scheme === "wss";
    const socket = isSecure
      ? tls.connect(Object.assign({host, port, servername: net.isIP(host) ? "" : host}, this.options))
      : net.connect({host, port});
    return new NodeConnection(socket, scheme === "ws" || scheme === "wss" ? url : null, isSecure ? this.pins : [], events);
  }
}

/** Whether one certificate of the chain has one of the digests. */
function isPinned(socket, pins) {
  const seen = new Set();
  for (let one = socket.getPeerCertificate(true); one && one.raw && !seen.has(one); one = one.issuerCertificate) {
    seen.add(one);
    if (pins.includes(createHash("sha256").update(one.raw).digest("hex"))) return true;
  }
  return false;
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
      if (pins.length > 0 && !isPinned(socket, pins)) return this.fail("no certificate of the gateway's chain is pinned");
      if (!url) return events.opened();
      this.stream = new WebSocketStream(url, {
        write: bytes => socket.write(bytes), opened: events.opened, received: events.received, failed: reason => this.fail(reason),
        random: randomBytes,
      });
    });
    socket.on("data", buffer => {
      if (this.isOver) return;
      if (this.stream) this.stream.take(plain(buffer));
      else events.received(plain(buffer));
    });
  }

  send(bytes) {
    if (this.isOver) return;
    if (this.socket.writableLength > OUTBOX_BYTES) throw new Error("the gateway does not read; too many bytes wait to be sent");
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
 * A state in one file, which is replaced as a whole: a crash leaves either the old state or the new one. The file holds the
 * device's secret and is readable by its owner only. One client uses it at a time: a save fails if another has written it.
 */
export class FileStore {
  /** The folder of `name` must exist. The store also creates files named `name` plus `.new` and a suffix. */
  constructor(name) {
    this.name = path.resolve(name);
    this.draft = `${this.name}.new${randomBytes(6).toString("hex")}`;
    this.seen = null;
  }

  async read() {
    try {
      const {size} = await files.stat(this.name);
      if (size > STATE_BYTES) throw new LongwireError("stateDamaged", `${this.name} has ${size} bytes and is no state; move it away`);
      return await files.readFile(this.name, "latin1");
    } catch (error) {
      if (error.code === "ENOENT") return null;
      if (error instanceof LongwireError) throw error;
      throw new LongwireError("stateUnreadable", `cannot read ${this.name}: ${error.message}`, {cause: error});
    }
  }

  async load() {
    const text = await this.read();
    if (text !== null) ClientState.parse(text);
    this.seen = text === null ? "" : text;
    await this.removeDrafts();
    return text;
  }

  /** Removes the drafts of clients that were killed while they wrote. */
  async removeDrafts() {
    const folder = path.dirname(this.name), start = `${path.basename(this.name)}.new`;
    const entries = await files.readdir(folder).catch(() => []);
    for (const entry of entries) {
      if (entry.startsWith(start) && /^[0-9a-f]{12}$/.test(entry.slice(start.length))) {
        await files.unlink(path.join(folder, entry)).catch(() => {});
      }
    }
  }

  async save(text) {
    // If the file is gone, it was removed on purpose, and this state is written.
    const current = this.seen === null ? null : await this.read();
    if (current !== null && current !== this.seen) {
      throw new LongwireError("stateUnwritable", `another client has written ${this.name}; run one at a time`);
    }
    try {
      const file = await files.open(this.draft, "w", 0o600);
      try {
        await file.writeFile(text, "latin1");
        await file.sync();
      } finally {
        await file.close();
      }
      await files.rename(this.draft, this.name);
      this.seen = text;
      await this.syncFolder();
    } catch (error) {
      await files.unlink(this.draft).catch(() => {});
      throw new LongwireError("stateUnwritable", `cannot write ${this.name}: ${error.message}`, {cause: error});
    }
  }

  /** Syncs the folder; without this, a power loss could undo the rename and restore an old state. */
  async syncFolder() {
    if (process.platform === "win32") return;
    const folder = await files.open(path.dirname(this.name), "r");
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  }

  /** Renames a damaged file to its name plus `.damaged`. The next start registers a new device. */
  async setAside() {
    await files.rename(this.name, `${this.name}.damaged`);
    this.seen = null;
    await this.syncFolder();
  }

  async clear() {
    await files.unlink(this.name).catch(error => { if (error.code !== "ENOENT") throw error; });
    this.seen = null;
  }
}

/** Returns a client whose state is the file `state`. The other options are those of LongwireClient, `NodeTransport` included. */
export function createClient(options) {
  const {state, tls: tlsOptions, pins, ...others} = options;
  if (!others.store && typeof state !== "string") {
    throw new LongwireError("badConfiguration", "state must be the path of a file for the device's id and secret");
  }
  return new LongwireClient(Object.assign({
    store: others.store || new FileStore(state), transport: new NodeTransport({tls: tlsOptions, pins}), hmac: nodeHMAC,
    random: count => plain(randomBytes(count)),
  }, others));
}
