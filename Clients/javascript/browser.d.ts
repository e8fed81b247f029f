import {CommonOptions, DeviceAttributes, LongwireClient, StateStore, Transport} from "./index.js";

export * from "./index.js";

export interface BrowserOptions extends CommonOptions {
  /** The name of the state in this browser; `longwire.state.APPID` by default. */
  name?: string;
  /** `wait`: the first tab has the connection. `takeOver`: the tab that starts last takes it. */
  tabs?: "wait" | "takeOver";
  /** False: the app calls `setApplicationState` and `stop` itself. */
  followsPage?: boolean;
  store?: StateStore;
  transport?: Transport;
}

/** A client that follows its page; `unfollow` ends that. */
export type BrowserClient = LongwireClient & {unfollow?(): void};

/** Returns the attributes that the browser knows. */
export function browserAttributes(): DeviceAttributes;
export function createClient(options: BrowserOptions): BrowserClient;
export function followPage(client: LongwireClient): () => void;

export class BrowserTransport implements Transport {
  connect: Transport["connect"];
}

export class LocalStorageStore implements StateStore {
  constructor(name: string, options?: {takesOver?: boolean; storage?: Storage});
  load(): string | null;
  save(text: string): void;
  clear(): void;
  setAside(): void;
  lock: NonNullable<StateStore["lock"]>;
  cancelLock(): void;
}

export class IndexedDBStore implements StateStore {
  constructor(name: string, options?: {takesOver?: boolean});
  load(): Promise<string | null>;
  save(text: string): Promise<void>;
  clear(): Promise<void>;
  setAside(): Promise<void>;
  pass: NonNullable<StateStore["pass"]>;
  takePassed: NonNullable<StateStore["takePassed"]>;
  followPassed: NonNullable<StateStore["followPassed"]>;
  lock: NonNullable<StateStore["lock"]>;
  cancelLock(): void;
}
