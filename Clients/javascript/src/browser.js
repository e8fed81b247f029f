// The adapters for browsers: WebSocket, IndexedDB or localStorage, one connection for all tabs, and the page's life
// cycle.

import {LongwireClient} from "./client.js";
import {inDatabase, openDatabase} from "./database.js";
import {LongwireError, OUTBOX_FULL} from "./errors.js";
import {LIMITS} from "./limits.js";
import {timeZone} from "./options.js";

export * from "./index.js";

const HIDDEN_LONG = 30000;

/** Connections over the browser's WebSocket. */
export class BrowserTransport {
  connect({scheme, url}, events) {
    if (scheme !== "ws" && scheme !== "wss") {
      throw new LongwireError("badConfiguration",
        `a browser has no ${scheme}:// connections; use wss://HOST:PORT/v1/device`);
    }
    const socket = new WebSocket(url, "longwire.v1");
    let isOver = false;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => { if (!isOver) events.opened(); };
    socket.onmessage = ({data}) => {
      if (isOver) return;
      if (data instanceof ArrayBuffer) events.received(new Uint8Array(data));
      else socket.close(1003);
    };
    socket.onclose = ({code, reason}) => {
      if (isOver) return;
      isOver = true;
      events.ended(`the WebSocket closed with ${code}${reason ? `: ${reason}` : ""}`);
    };
    return {
      send(bytes) {
        if (socket.bufferedAmount > LIMITS.outboxBytes) throw new Error(OUTBOX_FULL);
        if (socket.readyState === WebSocket.OPEN) socket.send(bytes);
      },
      close() {
        isOver = true;
        socket.close();
      },
    };
  }
}

/**
 * The right of one tab to use a state. With Web Locks the first tab has it and the others wait; with `takesOver` the
 * tab that starts last takes it. Without Web Locks (a page without https) the tab that starts last always takes it, by
 * a value in localStorage that the other tabs watch.
 */
class TabLock {
  constructor(name, takesOver) {
    Object.assign(this, {name, takesOver, owner: "", abort: null});
    /** Whether another tab has taken over the state. Reads and writes fail until this tab has the state again. */
    this.isLost = false;
    this.locks = typeof navigator === "object" ? navigator.locks : null;
    this.ownerKey = `${name}.owner`;
  }

  acquire({wait, lost, waits, isWanted}) {
    return this.locks ? this.acquireByLocks(wait, lost, waits, isWanted) : this.acquireByOwner(wait, lost);
  }

  cancel() { if (this.abort) this.abort.abort(); }

  lose(lost) {
    this.isLost = true;
    lost(takenOver());
  }

  async acquireByLocks(wait, lost, waits, isWanted) {
    const first = await this.request(this.takesOver && wait ? {steal: true} : {ifAvailable: true}, lost);
    if (first || !wait) return first;
    this.abort = new AbortController();
    waits();
    if (!isWanted()) return null;
    return this.request({signal: this.abort.signal}, lost);
  }

  /** Returns a function that releases the lock, or null if the lock is not available or no longer wanted. */
  request(options, lost) {
    return new Promise((resolve, reject) => {
      let isHeld = false, isReleased = false;
      const hold = lock => {
        if (!lock) return resolve(null);
        isHeld = true;
        this.isLost = false;
        return new Promise(release => resolve(() => {
          isReleased = true;
          release();
        }));
      };
      this.locks.request(this.name, options, hold).catch(error => {
        if (isHeld && !isReleased) this.lose(lost);
        else if (error.name === "AbortError") resolve(null);
        else reject(error);
      });
    });
  }

  async acquireByOwner(wait, lost) {
    let owners;
    try {
      owners = localStorage;
    } catch {
      return () => {};
    }
    if (!wait) {
      if (owners.getItem(this.ownerKey) !== null) return null;
      this.isLost = false;
      return () => {};
    }
    const owner = `${Date.now()}.${Math.random()}`;
    const watch = ({key, newValue}) => {
      if (key === this.ownerKey && newValue !== owner) this.lose(lost);
    };
    this.owner = owner;
    this.isLost = false;
    owners.setItem(this.ownerKey, owner);
    addEventListener("storage", watch);
    return () => {
      this.owner = "";
      removeEventListener("storage", watch);
      if (owners.getItem(this.ownerKey) === owner) owners.removeItem(this.ownerKey);
    };
  }

  /** Throws when another tab has taken over the state. */
  check() {
    const isOther = this.owner !== "" && localStorage.getItem(this.ownerKey) !== this.owner;
    if (this.isLost || isOther) throw takenOver();
  }
}

const takenOver = () => new LongwireError("otherTab",
  "another tab took over the connection and the state of this device; use that tab, or start this client again");

function full(error, place) {
  const isFull = error && error.name === "QuotaExceededError";
  const message = isFull
    ? `${place} is full; remove other data of this site` : `cannot write ${place}: ${error && error.message}`;
  return new LongwireError("stateUnwritable", message, {cause: error});
}

/** A state in one item of localStorage, which is written at once. A service worker cannot read it. */
export class LocalStorageStore {
  constructor(name, {takesOver = false, storage = localStorage} = {}) {
    Object.assign(this, {name, storage, tabs: new TabLock(name, takesOver)});
  }

  lock(request) { return this.tabs.acquire(request); }
  cancelLock() { this.tabs.cancel(); }
  load() { return this.storage.getItem(this.name); }

  save(text) {
    this.tabs.check();
    try {
      this.storage.setItem(this.name, text);
    } catch (error) {
      throw full(error, "localStorage");
    }
  }

  clear() {
    this.tabs.check();
    this.storage.removeItem(this.name);
  }

  setAside() {
    this.tabs.check();
    this.storage.setItem(`${this.name}.damaged`, this.storage.getItem(this.name));
    this.storage.removeItem(this.name);
  }
}

/** A state in IndexedDB, which the service worker reads to recognise messages that came over the connection. */
export class IndexedDBStore {
  constructor(name, {takesOver = false} = {}) {
    Object.assign(this, {name, database: null, tabs: new TabLock(name, takesOver)});
  }

  lock(request) { return this.tabs.acquire(request); }
  cancelLock() { this.tabs.cancel(); }

  /** Runs work in a transaction; a database that the browser has closed is opened again, once. */
  async run(mode, work, name = "states") {
    for (let isSecond = false; ; isSecond = true) {
      if (!this.database) this.database = await openDatabase();
      try {
        return await inDatabase(this.database, name, mode, work);
      } catch (error) {
        this.database = null;
        if (isSecond || error.name !== "InvalidStateError") throw error;
      }
    }
  }

  async load() {
    try {
      const text = await this.run("readonly", store => store.get(this.name));
      return text === undefined ? null : text;
    } catch (error) {
      throw new LongwireError("stateUnreadable", `cannot read IndexedDB: ${error && error.message}`, {cause: error});
    }
  }

  async save(text) {
    try {
      // Another tab may have taken over while the database opened.
      await this.run("readwrite", store => {
        this.tabs.check();
        return store.put(text, this.name);
      });
    } catch (error) {
      if (error instanceof LongwireError) throw error;
      throw full(error, "IndexedDB");
    }
  }

  async clear() {
    this.tabs.check();
    await this.run("readwrite", store => store.delete(this.name));
  }

  async setAside() {
    this.tabs.check();
    const text = await this.load();
    await this.run("readwrite", store => store.put(text, `${this.name}.damaged`));
    await this.clear();
  }

  // The calls of standby tabs are records {kind: "call", state, command} of the inbox. The tab with the lock takes them.

  get channel() { return typeof BroadcastChannel === "function" ? new BroadcastChannel(`${this.name}.calls`) : null; }

  /** Adds calls of this standby tab to the inbox, and notifies the other tabs. */
  async pass(commands) {
    const keys = await this.run("readonly", store => store.getAllKeys(), "inbox");
    if (keys.length + commands.length > LIMITS.keptCalls) {
      throw new LongwireError("stateUnwritable", "too many calls wait for the tab with the connection; reload that tab");
    }
    await this.run("readwrite", store => {
      for (const command of commands) store.add({kind: "call", state: this.name, command, at: Date.now()});
    }, "inbox");
    const {channel} = this;
    if (!channel) return;
    channel.postMessage("passed");
    channel.close();
  }

  /** Gives the passed calls to `perform`, and removes those that it returns. */
  async takePassed(perform) {
    let keys = null;
    const records = await this.run("readonly", store => {
      keys = store.getAllKeys();
      return store.getAll();
    }, "inbox");
    const isPassed = record => record && record.kind === "call" && record.state === this.name && record.command;
    const passed = records.map((record, index) => [keys.result[index], record]).filter(([, one]) => isPassed(one));
    if (passed.length === 0) return;
    const done = await perform(passed.map(([, {command}]) => command));
    const taken = passed.filter(([, {command}]) => done.includes(command));
    if (taken.length === 0) return;
    await this.run("readwrite", store => {
      for (const [key] of taken) store.delete(key);
    }, "inbox");
  }

  /** Calls `take` after each call that another tab passes. Returns a function that ends it. */
  followPassed(take) {
    const {channel} = this;
    if (!channel) return () => {};
    channel.onmessage = () => take();
    return () => channel.close();
  }
}

/**
 * Reports the page's visibility as the app's state, tests the connection after a long time in the background, and
 * leaves the connection with the page. Returns a function that ends it.
 */
export function followPage(client) {
  let hiddenAt = null, isLeft = false;
  const update = () => {
    if (document.visibilityState === "visible") {
      client.setApplicationState("foreground");
      if (hiddenAt !== null && Date.now() - hiddenAt > HIDDEN_LONG) client.probe();
      hiddenAt = null;
    } else {
      hiddenAt = hiddenAt === null ? Date.now() : hiddenAt;
      // A hidden page runs and keeps its WebSocket. A frozen one does not.
      client.setApplicationState("background", {keepsRunning: true});
    }
  };
  const handlers = [
    [document, "visibilitychange", update], [document, "resume", update],
    [document, "freeze", () => client.setApplicationState("background")],
    [window, "online", () => client.networkChanged()],
    [window, "pagehide", () => {
      isLeft = client.status !== "stopped";
      client.stop();
    }],
    [window, "pageshow", ({persisted}) => {
      if (persisted && isLeft) {
        client.stop().then(() => client.start()).catch(error => client.emit({type: "stopped", error}));
      }
    }],
  ];
  for (const [target, name, handler] of handlers) target.addEventListener(name, handler);
  update();
  return () => { for (const [target, name, handler] of handlers) target.removeEventListener(name, handler); };
}

const PERMISSIONS = {granted: "allowed", denied: "denied"};

/** Returns the attributes of this page's device that the browser knows. */
export function browserAttributes() {
  const {language = "", userAgentData, platform = ""} = typeof navigator === "object" ? navigator : {};
  return {
    platform: "web", systemVersion: userAgentData && userAgentData.platform || platform, locale: language,
    timeZone: timeZone(),
    notificationPermission: typeof Notification === "function" ? PERMISSIONS[Notification.permission] || "" : "",
  };
}

/**
 * Returns a client of this page. Besides the options of LongwireClient: `name` (of the state), `tabs` (`wait` or
 * `takeOver`), `followsPage` (false: the app reports its state itself).
 */
export function createClient(options) {
  const {name = `longwire.state.${options.appId}`, tabs = "wait", followsPage = true, ...others} = options;
  if (tabs !== "wait" && tabs !== "takeOver") {
    throw new LongwireError("badConfiguration", `tabs is ${tabs}; use wait or takeOver`);
  }
  const takesOver = tabs === "takeOver";
  const Store = typeof indexedDB === "object" && indexedDB ? IndexedDBStore : LocalStorageStore;
  const client = new LongwireClient(Object.assign({
    store: others.store || new Store(name, {takesOver}), transport: new BrowserTransport(), vendorDuplicates: true,
    platformAttributes: browserAttributes,
  }, others));
  if (followsPage) client.unfollow = followPage(client);
  return client;
}
