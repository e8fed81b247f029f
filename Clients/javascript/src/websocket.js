// A WebSocket client (RFC 6455) over a socket of Node, for versions without a global WebSocket and for certificates of
// one's own. The payloads of its messages form one byte stream, so they are passed on as they arrive, without a buffer
// for a message.

import {createHash} from "node:crypto";

import {OUTBOX_FULL} from "./errors.js";

const SUFFIX = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const HEAD_BYTES = 16384;
const CONTINUATION = 0, BINARY = 2, CLOSE = 8, PING = 9, PONG = 10;

export class WebSocketStream {
  /**
   * Sends the request at once. `write` sends bytes, and `random` returns random bytes. `opened`, `received` and
   * `failed` are the callbacks. `isFull` returns whether too many bytes wait to be sent.
   */
  constructor(url, {write, opened, received, failed, isFull, random}) {
    Object.assign(this, {write, opened, received, failed, isFull, random});
    const [, host, target] = /^wss?:\/\/([^/]+)(.*)$/.exec(url);
    this.key = Buffer.from(random(16)).toString("base64");
    this.kept = Buffer.alloc(0);
    this.isOpen = false;
    this.isClosed = false;
    // The missing payload bytes of the current data frame, and whether the message has another fragment.
    this.remaining = 0;
    this.isFragmented = false;
    write(Buffer.from([
      `GET ${target} HTTP/1.1`, `Host: ${host}`, "Upgrade: websocket", "Connection: Upgrade",
      `Sec-WebSocket-Key: ${this.key}`,
      "Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: longwire.v1", "", "",
    ].join("\r\n"), "latin1"));
  }

  send(bytes) { this.frame(BINARY, bytes); }

  close() {
    if (this.isOpen && !this.isClosed) this.frame(CLOSE, Buffer.from([1000 >> 8, 1000 & 255]));
    this.isClosed = true;
  }

  frame(opcode, bytes) {
    const count = bytes.length, extra = count < 126 ? 0 : count < 65536 ? 2 : 8;
    const frame = Buffer.alloc(6 + extra + count), mask = this.random(4);
    frame[0] = 128 | opcode;
    frame[1] = 128 | (extra === 0 ? count : extra === 2 ? 126 : 127);
    if (extra === 2) frame.writeUInt16BE(count, 2);
    if (extra === 8) frame.writeBigUInt64BE(BigInt(count), 2);
    frame.set(mask, 2 + extra);
    for (let index = 0; index < count; index += 1) frame[6 + extra + index] = bytes[index] ^ mask[index & 3];
    this.write(frame);
  }

  fail(reason) {
    if (this.isClosed) return;
    this.isClosed = true;
    this.failed(reason);
  }

  /** Takes bytes of the socket. */
  take(bytes) {
    if (this.isClosed) return;
    let rest = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    if (this.kept.length > 0) rest = Buffer.concat([this.kept, rest]);
    this.kept = Buffer.alloc(0);
    if (!this.isOpen) {
      rest = this.takeHead(rest);
      if (!rest) return;
    }
    while (rest.length > 0 && !this.isClosed) {
      if (this.remaining > 0) {
        const part = rest.subarray(0, this.remaining);
        this.remaining -= part.length;
        rest = rest.subarray(part.length);
        this.received(new Uint8Array(part.buffer, part.byteOffset, part.length));
        continue;
      }
      const after = this.takeHeader(rest);
      if (!after) {
        // At most a header and the payload of a control frame.
        this.kept = Buffer.from(rest);
        return;
      }
      rest = after;
    }
  }

  /** Returns the bytes behind the response's head, or null if it is incomplete or refused. */
  takeHead(bytes) {
    const end = bytes.indexOf("\r\n\r\n");
    if (end < 0 || end > HEAD_BYTES) {
      if (bytes.length > HEAD_BYTES) this.fail("the answer to the WebSocket request has no end");
      else this.kept = Buffer.from(bytes);
      return null;
    }
    const [status, ...lines] = bytes.subarray(0, end).toString("latin1").split("\r\n");
    const headers = new Map(lines.map(line => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon).trim().toLowerCase(), line.slice(colon + 1).trim()];
    }));
    if (!/^HTTP\/1\.1 101(?: |$)/.test(status)) {
      const text = bytes.subarray(end + 4, end + 204).toString("latin1").split("\n")[0];
      this.fail(`the gateway refused the WebSocket: ${status.slice(9, 100)}${text ? `: ${text}` : ""}`);
      return null;
    }
    const proof = createHash("sha1").update(this.key + SUFFIX).digest("base64");
    const isUpgrade = (headers.get("upgrade") || "").toLowerCase() === "websocket";
    if (!isUpgrade || headers.get("sec-websocket-accept") !== proof || headers.has("sec-websocket-extensions")) {
      this.fail("the answer does not belong to the WebSocket request; another server or a proxy may have the address");
      return null;
    }
    this.isOpen = true;
    this.opened();
    return bytes.subarray(end + 4);
  }

  /** Reads a frame's header, and a control frame as a whole; returns the bytes behind, or null if more are needed. */
  takeHeader(bytes) {
    if (bytes.length < 2) return null;
    const isLast = (bytes[0] & 128) !== 0, opcode = bytes[0] & 15, length = bytes[1] & 127;
    const isControl = opcode >= 8, start = length < 126 ? 2 : length === 126 ? 4 : 10;
    if ((bytes[0] & 112) !== 0 || (bytes[1] & 128) !== 0) return this.broken("a frame has reserved bits or a mask");
    if (isControl && (!isLast || length > 125)) return this.broken("a control frame is fragmented or too long");
    if (bytes.length < start) return null;
    const count = start === 2 ? length : start === 4 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2));
    if (count > Number.MAX_SAFE_INTEGER) return this.broken("a frame is longer than any message");
    if (isControl) {
      if (bytes.length < start + count) return null;
      const payload = bytes.subarray(start, start + count);
      if (opcode === PING) {
        // Otherwise a server that sends Pings and does not read could fill the memory with Pongs.
        if (this.isFull()) this.fail(OUTBOX_FULL);
        else this.frame(PONG, payload);
      } else if (opcode === CLOSE) {
        const code = count >= 2 ? payload.readUInt16BE(0) : 1005;
        if (!this.isClosed) this.frame(CLOSE, payload.subarray(0, 2));
        this.fail(`the gateway closed the WebSocket with ${code}`);
      } else if (opcode !== PONG) return this.broken(`frame type ${opcode} does not exist`);
      return bytes.subarray(start + count);
    }
    if (opcode !== BINARY && opcode !== CONTINUATION) return this.broken("a message is not binary");
    if ((opcode === CONTINUATION) !== this.isFragmented) return this.broken("fragments of messages are mixed");
    this.isFragmented = !isLast;
    this.remaining = count;
    return bytes.subarray(start);
  }

  broken(reason) {
    this.fail(`the gateway broke the WebSocket protocol: ${reason}`);
    return null;
  }
}
