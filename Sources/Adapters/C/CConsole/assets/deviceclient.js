// A device of an app in this browser: it registers, connects, acks in order, deduplicates and reconnects (docs/use/Protocol.md).

import {BadFrame, FrameReader, STATE, encode, encodeHello, fromHex, hex} from "./frames.js";

const HEARTBEAT_SECONDS = 60;
const PONG_PATIENCE = 10_000;
const KEPT_MESSAGES = 100;
const CLOCK_TOLERANCE = 120_000;
const LASTING_SESSION = 60_000;
const shown = new TextDecoder();

export const storageKey = app => `longwire.device.${app}`;

/** Returns the stored state of a device of `app`, or null before its registration. */
export function kept(app, storage = localStorage) {
  try { return JSON.parse(storage.getItem(storageKey(app))); } catch { return null; }
}

const backoff = attempt => Math.random() * Math.min(1_000 * 2 ** attempt, 120_000);

export class DeviceClient {
  /** `changed` is called whenever the page must be updated. */
  constructor(app, url, changed, storage = localStorage) {
    Object.assign(this, {app, url, changed, storage});
    // One storage item for position and messages, so that each write is atomic.
    this.kept = kept(app, storage);
    this.state = "away";  // away, connecting, open, waiting, stopped
    this.applicationState = "foreground";
    this.reason = "";
    this.attempt = 0;
    this.lastCode = 0;
  }

  get isRegistered() { return Boolean(this.kept?.cid); }
  get messages() { return this.kept?.messages ?? []; }

  /** Registers with the app's secret, which is not stored, and stays connected. */
  register(appSecret) {
    this.kept = null;
    this.key = new TextEncoder().encode(appSecret);
    this.connect();
  }

  connect() {
    clearTimeout(this.timer);
    Object.assign(this, {attempt: 0, lastCode: 0, isWanted: true});
    this.#open();
  }

  disconnect() {
    this.isWanted = false;
    clearTimeout(this.timer);
    this.#leave();
    this.#show("away", "");
  }

  forget() {
    this.disconnect();
    this.kept = null;
    this.storage.removeItem(storageKey(this.app));
    this.changed();
  }

  setApplicationState(state) {
    this.applicationState = state;
    if (this.state === "open") {
      this.request = (this.request ?? 0) + 1;
      // Messages in flight were sent for the background state. They are ignored until the answer, and the gateway resends them.
      if (state === "foreground") this.returning = this.request;
      this.#send(encode("deviceUpdate", {request: this.request, applicationState: STATE[state]}));
    }
    this.changed();
  }

  // A session

  #open() {
    this.#show("connecting", "");
    const socket = new WebSocket(this.url, "longwire.v1");
    Object.assign(this, {socket, reader: new FrameReader(), returning: 0, close: null});
    socket.binaryType = "arraybuffer";
    socket.onopen = () => this.#hello(socket).catch(error => this.#stop(error.message));
    socket.onmessage = event => { if (socket === this.socket) this.#received(new Uint8Array(event.data)); };
    socket.onclose = event => { if (socket === this.socket) this.#ended(event); };
  }

  async #hello(socket) {
    const kept = this.kept ?? {};
    const timestamp = Math.max(Date.now() + (kept.offset ?? this.offset ?? 0), (kept.timestamp ?? this.timestamp ?? 0) + 1);
    this.timestamp = timestamp;
    const hello = {
      appId: this.app, timestamp, client: "longwire-console", heartbeatSeconds: HEARTBEAT_SECONDS,
      applicationState: STATE[this.applicationState],
    };
    if (kept.cid) {
      this.#keep({timestamp});
      Object.assign(hello, {
        cid: fromHex(kept.cid), queueEpoch: BigInt(kept.epoch),
        positions: Object.entries(kept.positions).map(([stream, sequence]) => ({stream: Number(stream), sequence})),
      });
    } else {
      Object.assign(hello, {registration: true, nonce: crypto.getRandomValues(new Uint8Array(16))});
    }
    const frame = await encodeHello(hello, kept.cid ? fromHex(kept.secret) : this.key);
    if (socket === this.socket && socket.readyState === WebSocket.OPEN) this.#send(frame);
  }

  #received(bytes) {
    this.heardAt = Date.now();
    let acked = new Set();
    try {
      for (const {name, values} of this.reader.take(bytes)) {
        if (!name) throw new BadFrame("a type of frame that this page does not know");
        if (name === "welcome") this.#welcome(values);
        else if (name === "close") this.close = values;
        else if (name === "ping") this.#send(encode("pong", {nonce: values.nonce}));
        else if (name === "updateResult" && values.request === this.returning) this.returning = 0;
        else if (name === "deliver") this.#take(values.stream, values.sequence, acked, () => this.#message(values));
        else if (name === "revoke") this.#take(0, values.sequence, acked, () => this.#revoke(values));
      }
    } catch (error) {
      if (!(error instanceof BadFrame)) throw error;
      this.#leave();
      return this.#stop(error.message);
    }
    if (acked.size === 0) return;
    this.#keep({});
    const positions = [...acked].map(stream => ({stream, sequence: this.kept.positions[stream]}));
    this.#send(encode("ack", {positions}));
    this.changed();
  }

  #welcome(welcome) {
    if (welcome.cid.length > 0) {
      this.kept = {cid: hex(welcome.cid), secret: hex(welcome.deviceSecret), epoch: "0", positions: {}, messages: [], timestamp: this.timestamp};
      this.key = null;
    }
    // The gateway's store was restored from an older copy, so stored positions are invalid.
    if (String(welcome.queueEpoch) !== this.kept.epoch) Object.assign(this.kept, {epoch: String(welcome.queueEpoch), positions: {}});
    this.#keep({offset: this.offset ?? this.kept.offset ?? 0});
    this.openedAt = Date.now();
    this.heartbeat = welcome.heartbeatSeconds * 1_000;
    this.#beat();
    this.#show("open", "");
  }

  /** Shows a message unless its position was already shown. It is acked in both cases. */
  #take(stream, sequence, acked, show) {
    if (this.returning) return;
    if (sequence > (this.kept.positions[stream] ?? 0)) {
      show();
      this.kept.positions[stream] = sequence;
    }
    acked.add(stream);
  }

  #message(deliver) {
    this.kept.messages.unshift({
      stream: deliver.stream, sequence: deliver.sequence, msgId: hex(deliver.msgId), taskId: hex(deliver.taskId),
      payload: shown.decode(deliver.payload), offline: deliver.offline, acceptedAt: deliver.acceptedAt, alertedAt: deliver.alertedAt,
      attempt: deliver.attempt, at: Date.now(),
    });
    this.kept.messages.length = Math.min(this.kept.messages.length, KEPT_MESSAGES);
  }

  #revoke({revokedTaskId}) {
    for (const message of this.kept.messages) if (message.taskId === hex(revokedTaskId)) message.isRevoked = true;
  }

  #beat() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const sentAt = Date.now();
      this.#send(encode("ping", {nonce: 1n}));
      this.timer = setTimeout(() => {
        if (this.heardAt >= sentAt) return this.#beat();
        this.socket.close();
        this.#ended({code: 1006});
      }, PONG_PATIENCE);
    }, this.heartbeat);
  }

  // Ends

  #ended(event) {
    this.socket = null;
    clearTimeout(this.timer);
    if (!this.isWanted) return;
    if (this.openedAt && Date.now() - this.openedAt > LASTING_SESSION) this.attempt = 0;
    this.openedAt = 0;
    const close = this.close ?? {code: event.code > 4_000 ? event.code - 4_000 : 0, reason: event.reason, serverTime: 0};
    const again = close.code !== 0 && close.code === this.lastCode;
    this.lastCode = close.code;
    const text = close.code ? `${close.code} ${close.reason}` : "";
    if (close.code === 300 && close.serverTime) {
      this.offset = close.serverTime - Date.now();
      // The gateway has never accepted a timestamp so far ahead, so it can be reset.
      const isAhead = (this.kept?.timestamp ?? 0) > close.serverTime + CLOCK_TOLERANCE;
      this.timestamp = 0;
      if (this.kept) this.#keep({offset: this.offset, timestamp: isAhead ? 0 : this.kept.timestamp});
      return this.#wait(again ? backoff(this.attempt) : 0, text);
    }
    if (close.code === 301) {
      this.forget();
      return this.#stop(text);
    }
    if (close.code >= 300 && close.code < 500) return this.#stop(text);
    const {retryAfterMinimum: from = 0, retryAfterMaximum: to = 0} = close;
    this.#wait(to > 0 ? from + Math.random() * (to - from) : backoff(this.attempt), text);
  }

  #wait(milliseconds, reason) {
    this.attempt += 1;
    this.timer = setTimeout(() => this.#open(), milliseconds);
    this.#show("waiting", reason);
  }

  #stop(reason) {
    this.isWanted = false;
    clearTimeout(this.timer);
    this.#show("stopped", reason);
  }

  #leave() {
    const socket = this.socket;
    this.socket = null;
    if (!socket) return;
    if (socket.readyState === WebSocket.OPEN && this.state === "open") socket.send(encode("close", {code: 100}));
    socket.close();
  }

  #send(frame) { if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(frame); }

  #keep(values) {
    Object.assign(this.kept, values);
    this.storage.setItem(storageKey(this.app), JSON.stringify(this.kept));
  }

  #show(state, reason) {
    Object.assign(this, {state, reason});
    this.changed();
  }
}
