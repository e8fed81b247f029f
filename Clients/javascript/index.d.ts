// The types of @longwire/client.

/** An address of a gateway, as a transport receives it. */
export interface Endpoint {
  scheme: "tcp" | "tls" | "ws" | "wss";
  /** A host name, or a numeric address without brackets. */
  host: string;
  port: number;
  url: string;
}

/** The events that a transport reports for one connection: `opened` once, then bytes, and `ended` once. */
export interface ConnectionEvents {
  opened(): void;
  received(bytes: Uint8Array): void;
  ended(reason: string): void;
}

export interface Connection {
  /** Sends bytes; throws when too many wait already. */
  send(bytes: Uint8Array): void;
  /** Sends what waits and closes; `ended` is not called any more. */
  close(): void;
  pause?(): void;
  resume?(): void;
}

/** An adapter that connects to a gateway. */
export interface Transport {
  connect(endpoint: Endpoint, events: ConnectionEvents): Connection;
}

/** The request of a client for the right to use a store. */
export interface LockRequest {
  /** Whether to wait until another client releases the store. */
  wait: boolean;
  /** Reports that another client has taken the store. */
  lost(error: LongwireError): void;
  /** Reports that the lock is not available at once. */
  waits(): void;
  /** Whether the client still wants the lock. */
  isWanted(): boolean;
}

/**
 * An adapter that keeps the state of a device. `load` returns null only if no state was ever stored, and throws if a
 * state exists and cannot be read. After `save` the new state must survive a crash; if it throws, the old state must be
 * intact.
 */
export interface StateStore {
  /** The bytes of all messages to the app's server that a state may hold, if the store has less room than usual. */
  readonly outgoingBytes?: number;
  load(): string | null | Promise<string | null>;
  save(text: string): void | Promise<void>;
  clear(): void | Promise<void>;
  /** Returns a function that releases the store, or null if it is not available. */
  lock?(request: LockRequest): Promise<(() => void) | null>;
  cancelLock?(): void;
  setAside?(): void | Promise<void>;
  /** Passes calls of a standby client to the client that runs. A store has all three methods or none. */
  pass?(commands: object[]): Promise<void>;
  /** Gives the passed calls to `perform`, and removes those that it returns. */
  takePassed?(perform: (commands: object[]) => Promise<object[]>): Promise<void>;
  /** Calls `take` after each passed call. Returns a function that ends it. */
  followPassed?(take: () => void): () => void;
}

export interface Clock {
  /** Milliseconds that never run backwards. */
  monotonic(): number;
  /** Milliseconds since 1970. */
  wall(): number;
}

export type Vendor = "apns" | "fcm" | "hms" | "harmony" | "honor" | "xiaomi" | "oppo" | "vivo" | "meizu" | "webPush";

export interface VendorToken {
  vendor: Vendor;
  /** The vendor's token; an empty one removes the vendor's tokens. */
  token: string;
  kind?: "alert" | "voip" | "liveActivity" | "liveActivityStart";
  environment?: "production" | "sandbox";
  topic?: string;
  activity?: string;
}

export type ApplicationState = "foreground" | "background";

/** A message for the app. */
export interface Message {
  /** `connection`, or `vendor` for a message given to `receiveVendorMessage`. */
  readonly channel: "connection" | "vendor";
  /** 0 for a message to this device, 1 for a broadcast. */
  readonly stream: number;
  readonly sequence: number;
  /** 32 hexadecimal digits. */
  readonly msgId: string;
  readonly taskId: string;
  readonly payload: Uint8Array;
  /** The payload as text, or null if it is not UTF-8. */
  readonly text: string | null;
  /** `live`, `queued` (the device was away) or `alerted` (a vendor accepted a notification of it). */
  readonly provenance: "live" | "queued" | "alerted";
  readonly offline: boolean;
  readonly acceptedAt: number;
  /** The time when the vendor accepted the notification, or 0. */
  readonly alertedAt: number;
  readonly attempt: number;
  readonly collapseKey: string;
  readonly alert: {title: string; body: string} | null;
  /** Whether the user opened the message's notification. */
  readonly wasOpened: boolean;
}

/**
 * The app's decision. `deferred` leaves the message un-acked until the next session. `rejected` ends it as failed, with
 * a reason of at most 128 characters. Any other value means that the message is processed.
 */
export type Verdict = "processed" | "deferred" | {rejected: string};

export type ClientEvent =
  | {type: "standby"}
  | {type: "connecting"; address: string}
  | {type: "registered"; cid: string}
  | {type: "registrationLost"; cid: string}
  | {
    type: "welcomed"; cid: string; session: string; epoch: string; heartbeat: number; window: number;
    serverTime: number; pending: number; dropped: {reason: string; count: number}[];
  }
  | {type: "queueReset"; from: string; to: string}
  | {type: "closed"; code: number; reason: string}
  | {type: "disconnected"; reason: string}
  | {type: "retrying"; milliseconds: number}
  | {type: "updated"; request: number; code: number; reason: string}
  | {type: "suppressed"; msgId: string; sequence: number; wasOpened: boolean}
  | {type: "droppedWhileSuspended"; msgId: string; sequence: number}
  | {type: "revoked"; taskId: string}
  | {type: "taken"; request: number; payload: Uint8Array; taskId: string}
  | {type: "refused"; request: number; code: number; reason: string; payload: Uint8Array; taskId: string}
  /** The result of a call about names. The request 0 is the client's own, for the alias of the registration token. */
  | {type: "names"; request: number; code: number; reason: string; alias: string | null; tags: string[]}
  | {type: "fetched"; messages: number; isComplete: boolean}
  | {type: "stateNotStored"; reason: string; error: LongwireError}
  | {type: "handlerFailed"; message: Message; error: unknown}
  | {type: "stopped"; error: LongwireError | null};

/**
 * The device's attributes. A text of more than 64 bytes (35 for the locale) or with control characters is not sent.
 */
export interface DeviceAttributes {
  platform?: "android" | "ios" | "harmony" | "web" | "miniprogram" | "other";
  brand?: string;
  model?: string;
  systemVersion?: string;
  appVersion?: string;
  /** A BCP 47 language tag, such as `zh-Hans-CN`. */
  locale?: string;
  /** A name such as `Asia/Shanghai`, or an offset such as `+08:00`. */
  timeZone?: string;
  notificationPermission?: "allowed" | "denied";
}

/** The options that every platform has. */
export interface CommonOptions {
  /** `tcp://HOST:PORT`, `tls://HOST:PORT`, `ws://HOST:PORT/PATH` or `wss://HOST:PORT/PATH`. */
  url: string;
  appId: string;
  /** The app's secret; needed only until the device is registered. */
  appSecret?: string;
  /**
   * A token of the app's server, which registers the device without an `appSecret`: a JSON Web Token with the appId in
   * `aud` and an end in `exp`, at most 2,048 bytes. After each start the client also binds the alias in its `sub`.
   */
  registrationToken?: string;
  onMessage(message: Message): unknown;
  onEvent?(event: ClientEvent): void;
  /** The number of messages that the app has at a time; 1 by default. */
  parallel?: number;
  clientName?: string;
  /** 30 to 1800; 0 for the gateway's default. */
  heartbeatSeconds?: number;
  window?: number;
  applicationState?: ApplicationState;
  keepsRunning?: boolean;
  badge?: number;
  tokens?: VendorToken[];
  /** Attributes in place of those that the platform knows; `null` sends none. */
  attributes?: DeviceAttributes | null;
  /** Returns the attributes that the platform knows, for each connection; the adapters set it. */
  platformAttributes?: () => DeviceAttributes;
  /** Whether messages that were opened from a notification are delivered over the connection as well. */
  replaysOpened?: boolean;
  /** False: the client stops when its first connection ends. */
  reconnects?: boolean;
  /** False: the client never connects to an address that a Close names. */
  usesAlternates?: boolean;
  /** Whether the client filters copies of messages that are given to `receiveVendorMessage`. */
  vendorDuplicates?: boolean;
  /** The first ceiling of the reconnect delay and the greatest one, in milliseconds. */
  backoff?: {first?: number; most?: number};
  /** Returns `count` random bytes of a secure generator. */
  random?(count: number): Uint8Array | Promise<Uint8Array>;
  hmac?(key: Uint8Array, bytes: Uint8Array): Uint8Array;
  clock?: Clock;
}

export interface ClientOptions extends CommonOptions {
  store: StateStore;
  transport: Transport;
}

export class LongwireError extends Error {
  code: "badConfiguration" | "stateUnreadable" | "stateDamaged" | "stateUnwritable" | "otherTab" | "unreachable"
    | "refused" | "namesRefused" | "tryLater" | "protocolViolation" | "wrongState";
  /** The gateway's Close code, or null. */
  closeCode: number | null;
  /** The code of a refused call about names (docs/use/Errors.md, "DeviceNamesResult codes"), or null. */
  resultCode: number | null;
  cause?: unknown;
}

export class LongwireClient {
  constructor(options: ClientOptions);
  readonly cid: string | null;
  readonly status: "stopped" | "starting" | "standby" | "idle" | "connecting" | "greeting" | "ready" | "waiting";
  readonly store: StateStore;
  position(stream?: number): number;
  start(options?: {opened?: string[]}): Promise<void>;
  stop(): Promise<void>;
  /** Stops the client and removes its state; the next start registers a new device. */
  forget(): Promise<void>;
  /** Removes the app's secret and the registration token from the options. */
  forgetSecret(): void;
  /** Fulfilled once all calls so far are in the store. */
  flush(): Promise<void>;
  setApplicationState(state: ApplicationState, options?: {keepsRunning?: boolean}): boolean;
  setBadge(value: number): boolean;
  /** Adds or replaces a token; a removal is kept across restarts until the gateway confirms it. */
  setToken(token: VendorToken): boolean;
  setPushModeOff(off: boolean): boolean;
  /** Sets the token of the app's server for the next registration and the next start; an empty token removes it. */
  setRegistrationToken(token: string): boolean;
  setHeartbeat(seconds: number): boolean;
  /** Sets the app's attributes for the next connection; the platform's others stay, and `null` reports none at all. */
  setAttributes(attributes: DeviceAttributes | null): boolean;
  networkChanged(name?: string | null): boolean;
  probe(): boolean;
  /** Like `report` and `send`, returns false in a standby tab without IndexedDB. */
  markOpened(msgId: string): boolean;
  report(report: {kind: "shown"; msgId: string} | {kind: "action"; msgId: string; action: number}): boolean;
  send(payload: Uint8Array | string, options?: {taskId?: string}): boolean;
  /**
   * Binds an alias to this device, in place of the device's alias of the same type. Calls about aliases and tags reject
   * with a LongwireError: `namesRefused` (permanent), `tryLater` (temporary) or `wrongState` (the client does not run).
   */
  bindAlias(alias: string, type?: string): Promise<void>;
  /**
   * Binds the alias in the `sub` of a token of the app's server, for another user on a registered device. The
   * `resultCode` 5 of `namesRefused` means that the token is invalid or has expired.
   */
  bindAliasWithToken(token: string): Promise<void>;
  /** Unbinds an alias from this device; other devices keep it. */
  unbindAlias(alias: string, type?: string): Promise<void>;
  /** Replaces all tags of this device. */
  setTags(tags: string[]): Promise<void>;
  addTags(tags: string[]): Promise<void>;
  removeTags(tags: string[]): Promise<void>;
  /** Queries this device's alias of a type, and its tags. */
  ownNames(aliasType?: string): Promise<{alias: string | null; tags: string[]}>;
  fetch(milliseconds?: number): Promise<{messages: number; isComplete: boolean}>;
  finish(message: Message, verdict?: Verdict): boolean;
  receiveVendorMessage(message: {msgId: string; taskId?: string; payload?: Uint8Array | string}): boolean;
}

export class MemoryStore implements StateStore {
  constructor(text?: string | null);
  load(): string | null;
  save(text: string): void;
  clear(): void;
}

export function makeClock(): Clock;
export function parseURL(url: string): {scheme: Endpoint["scheme"]; host: string; port: number; path: string};

/** A frame that cannot be decoded. */
export class BadFrame extends Error {
  constructor(message: string, closeCode?: number);
  closeCode: number;
}

export type FrameName = "hello" | "welcome" | "close" | "ping" | "pong" | "deliver" | "ack" | "deviceUpdate"
  | "updateResult" | "feedback" | "revoke" | "upstream" | "upstreamResult" | "publish" | "publishResult"
  | "deviceNames" | "deviceNamesResult";

export class FrameReader {
  constructor(limit?: number);
  reset(): void;
  append(bytes: Uint8Array): void;
  next(): {name: FrameName; values: Record<string, unknown> | null} | null;
  take(bytes: Uint8Array): {name: FrameName; values: Record<string, unknown> | null}[];
}

export function encode(name: FrameName, values: Record<string, unknown>): Uint8Array;
export function decode(name: FrameName, body: Uint8Array): Record<string, unknown>;
export function encodeHello(
  values: Record<string, unknown>, key: Uint8Array, hmac: (key: Uint8Array,
    bytes: Uint8Array) => Uint8Array): Uint8Array;

export function hex(bytes: Uint8Array): string;
export function bytesOfHex(text: string): Uint8Array | null;
export function utf8(text: string): Uint8Array;
export function textOfUTF8(bytes: Uint8Array): string | null;
export function sha256(bytes: Uint8Array): Uint8Array;
export function hmacSHA256(key: Uint8Array, bytes: Uint8Array): Uint8Array;
