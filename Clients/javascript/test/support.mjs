// Helpers of the tests: random numbers from a seed, and a gateway and a database in memory.

import {randomBytes} from "node:crypto";

import {FrameReader, encode} from "../src/frames.js";
import {LongwireClient, MemoryStore} from "../src/index.js";

/** Returns a generator of numbers from 0 to 1 (mulberry32). */
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = state + 0x6d2b79f5 >>> 0;
    let word = Math.imul(state ^ state >>> 15, state | 1);
    word ^= word + Math.imul(word ^ word >>> 7, word | 61);
    return ((word ^ word >>> 14) >>> 0) / 4294967296;
  };
}

export const id = number => number.toString(16).padStart(32, "0");
export const SECRET = new Uint8Array(32).fill(7);

/** Waits until `look` returns something true; a test's own timeout ends a wait in vain. */
export async function until(look) {
  for (;;) {
    const found = look();
    if (found) return found;
    await new Promise(resolve => setTimeout(resolve, 1));
  }
}

/** The gateway's side of one connection. */
export class Session {
  constructor(endpoint, events) {
    Object.assign(this, {endpoint, events, frames: [], reader: new FrameReader(), isClosed: false});
  }

  /** The transport's side. */
  get connection() {
    return {
      send: bytes => this.frames.push(...this.reader.take(bytes.slice())),
      close: () => { this.isClosed = true; },
    };
  }

  /** Takes the next frame of this name that the client has sent or sends. */
  async expect(name) {
    const index = await until(() => {
      const found = this.frames.findIndex(frame => frame.name === name);
      return found < 0 ? false : found + 1;
    });
    return this.frames.splice(index - 1, 1)[0].values;
  }

  has(name) { return this.frames.some(frame => frame.name === name); }
  send(name, values) { this.events.received(encode(name, values)); }
  sendBytes(bytes) { this.events.received(bytes); }
  deliver(sequence, values = {}) {
    this.send("deliver", {stream: 0, sequence, msgId: id(sequence), taskId: id(9),
      payload: Uint8Array.of(sequence & 255), attempt: 1, ...values});
  }

  async welcome(values = {}) {
    const hello = await this.expect("hello");
    const registered = hello.registration ? {cid: id(1), deviceSecret: SECRET} : {};
    this.send("welcome", {generation: "1", queueEpoch: "5", heartbeatSeconds: 300, window: 32, serverTime: 1,
      ...registered, ...values});
    return hello;
  }

  cut(reason = "cut") { this.events.ended(reason); }
}

/** A gateway in memory: each connection of the client becomes a Session. */
export class FakeGateway {
  constructor() {
    this.sessions = [];
    this.count = 0;
  }

  connect(endpoint, events) {
    const session = new Session(endpoint, events);
    this.sessions.push(session);
    queueMicrotask(() => events.opened());
    return session.connection;
  }

  async next() {
    await until(() => this.sessions.length > this.count);
    this.count += 1;
    return this.sessions[this.count - 1];
  }
}

/** A client of a FakeGateway with its messages and events in lists. */
export function party(options = {}) {
  const gateway = options.transport || new FakeGateway(), messages = [], events = [];
  const store = options.store || new MemoryStore();
  const client = new LongwireClient({
    url: "ws://gateway.example", appId: "demo", appSecret: "secret", store, transport: gateway,
      backoff: {first: 1, most: 4},
    random: count => new Uint8Array(randomBytes(count)),
    onMessage: message => { messages.push(message); }, onEvent: event => events.push(event), ...options,
  });
  const event = async (type, count = 1) => {
    await until(() => events.filter(one => one.type === type).length >= count);
    return events.filter(one => one.type === type)[count - 1];
  };
  return {gateway, client, messages, events, store, event};
}

/** A fake of the part of IndexedDB that clients and the worker use. A transaction completes after its requests. */
export class FakeDatabases {
  constructor() { this.stores = null; }

  open() {
    const request = {};
    setTimeout(() => {
      const isNew = this.stores === null;
      if (isNew) this.stores = new Map();
      request.result = {createObjectStore: name => this.stores.set(name, new Map()), close() {},
        transaction: name => this.begin(name)};
      if (isNew) request.onupgradeneeded();
      request.onsuccess();
    });
    return request;
  }

  begin(name) {
    const rows = this.stores.get(name), transaction = {};
    let count = 0;
    const later = result => {
      const request = {result};
      count += 1;
      setTimeout(() => {
        if (request.onsuccess) request.onsuccess();
        count -= 1;
        if (count === 0) setTimeout(() => transaction.oncomplete());
      });
      return request;
    };
    transaction.objectStore = () => ({
      getAll: () => later(Array.from(rows.values())), getAllKeys: () => later(Array.from(rows.keys())),
      get: key => later(rows.get(key)), put: (value, key) => later(rows.set(key, value)),
      delete: key => later(rows.delete(key)),
      add: value => {
        this.last = (this.last || 0) + 1;
        rows.set(this.last, value);
        return later(this.last);
      },
    });
    return transaction;
  }
}

/** Runs a function with these globals, then restores them. */
export async function having(globals, work) {
  const saved = Object.keys(globals).map(name => [name, Object.getOwnPropertyDescriptor(globalThis, name)]);
  for (const [name, value] of Object.entries(globals)) {
    Object.defineProperty(globalThis, name, {value, configurable: true, writable: true});
  }
  try {
    return await work();
  } finally {
    for (const [name, descriptor] of saved) {
      if (descriptor) Object.defineProperty(globalThis, name, descriptor);
      else delete globalThis[name];
    }
  }
}
