// A device of an app in this browser: a client of the package in Clients/javascript, and the messages that it has
// received.

import {LocalStorageStore, createClient} from "./client/browser.js";
import {ClientState} from "./client/state.js";

const HEARTBEAT_SECONDS = 60;
const KEPT_MESSAGES = 100;
const UNKNOWN_DEVICE = 301;

export const storageKey = app => `longwire.state.${app}`;
const messagesKey = app => `longwire.messages.${app}`;

/** Returns the id of the stored device of `app`, or null before its registration. */
export function keptCid(app, storage = localStorage) {
  try { return ClientState.parse(storage.getItem(storageKey(app))).cid || null; } catch { return null; }
}

function keptMessages(app, storage) {
  try { return JSON.parse(storage.getItem(messagesKey(app))) ?? []; } catch { return []; }
}

export class DeviceClient {
  /** `changed` is called whenever the page must be updated. */
  constructor(app, url, changed, storage = localStorage) {
    Object.assign(this, {app, url, changed, storage});
    this.messages = keptMessages(app, storage);
    this.cid = keptCid(app, storage);
    this.state = "away";  // away, connecting, open, waiting, stopped
    this.applicationState = "foreground";
    this.reason = "";
    // The form of earlier versions, which has no use any more.
    storage.removeItem(`longwire.device.${app}`);
  }

  get isRegistered() { return this.cid !== null; }
  get position() { return this.client?.position(0) ?? 0; }

  /** Registers with the app's secret, which is not stored, and stays connected. */
  register(appSecret) {
    this.storage.removeItem(storageKey(this.app));
    this.#start(appSecret);
  }

  connect() { this.#start(""); }

  async disconnect() {
    const {client} = this;
    this.client = null;
    this.#show("away", "");
    await client?.stop();
  }

  async forget(reason = "") {
    await this.disconnect();
    this.storage.removeItem(storageKey(this.app));
    this.storage.removeItem(messagesKey(this.app));
    Object.assign(this, {cid: null, messages: []});
    this.#show(reason ? "stopped" : "away", reason);
  }

  setApplicationState(state) {
    this.applicationState = state;
    this.client?.setApplicationState(state);
    this.changed();
  }

  async #start(appSecret) {
    const earlier = this.client;
    this.client = null;
    this.#show("connecting", "");
    await earlier?.stop();
    // The newest tab is the device: a page that the user opens is a page that the user looks at.
    const client = createClient({
      url: this.url, appId: this.app, appSecret, heartbeatSeconds: HEARTBEAT_SECONDS, clientName: "longwire-console",
      applicationState: this.applicationState, usesAlternates: false, vendorDuplicates: false, followsPage: false,
      store: new LocalStorageStore(storageKey(this.app), {takesOver: true, storage: this.storage}),
      onMessage: message => this.#message(message),
        onEvent: event => { if (client === this.client) this.#happened(event); },
    });
    this.client = client;
    client.start().catch(error => { if (client === this.client) this.#show("stopped", error.message); });
  }

  #happened(event) {
    switch (event.type) {
      case "connecting": return this.#show("connecting", "");
      case "registered":
        this.client.forgetSecret();
        this.cid = event.cid;
        return this.#keep([]);
      case "welcomed": return this.#show("open", "");
      case "closed": this.closed = `${event.code} ${event.reason}`; return undefined;
      case "disconnected": this.closed = ""; return undefined;
      case "retrying": return this.#show("waiting", this.closed);
      case "revoked":
        for (const message of this.messages) if (message.taskId === event.taskId) message.isRevoked = true;
        return this.#keep(this.messages);
      case "stopped": return this.#stopped(event.error);
      default: return this.changed();
    }
  }

  #stopped(error) {
    const reason = error?.closeCode ? this.closed : error?.message ?? "";
    if (error?.closeCode === UNKNOWN_DEVICE) return this.forget(reason);
    return this.#show("stopped", reason);
  }

  /** Keeps a message before the client acks it. A repeat after a crash is recognised by its id. */
  #message({stream, sequence, msgId, taskId, text, payload, offline, acceptedAt, alertedAt, attempt}) {
    if (this.messages.some(message => message.msgId === msgId)) return;
    const shown = text ?? new TextDecoder().decode(payload);
    const message = {stream, sequence, msgId, taskId, payload: shown, offline, acceptedAt, alertedAt, attempt,
      at: Date.now()};
    this.#keep([message, ...this.messages].slice(0, KEPT_MESSAGES));
  }

  #keep(messages) {
    this.storage.setItem(messagesKey(this.app), JSON.stringify(messages));
    this.messages = messages;
    // The position is known after this turn of the client.
    setTimeout(() => this.changed());
  }

  #show(state, reason) {
    Object.assign(this, {state, reason});
    this.changed();
  }
}
