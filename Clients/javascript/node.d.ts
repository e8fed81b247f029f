import type {ConnectionOptions} from "node:tls";

import {CommonOptions, DeviceAttributes, LongwireClient, StateStore, Transport} from "./index.js";

export * from "./index.js";

export interface NodeOptions extends CommonOptions {
  /** The path of the state's file, which holds the device's secret. Its folder must exist. */
  state?: string;
  /** Options of Node's `tls.connect`, such as `ca`, `cert` and `key`. */
  tls?: ConnectionOptions;
  /** SHA-256 digests of certificates in hexadecimal; one certificate of the gateway's chain must have one of them. */
  pins?: string[];
  store?: StateStore;
  transport?: Transport;
}

/** Returns the attributes that the system knows. */
export function nodeAttributes(): DeviceAttributes;
export function createClient(options: NodeOptions): LongwireClient;
export function nodeHMAC(key: Uint8Array, bytes: Uint8Array): Uint8Array;

export class NodeTransport implements Transport {
  constructor(options?: {tls?: ConnectionOptions; pins?: string[]});
  connect: Transport["connect"];
}

export class FileStore implements StateStore {
  constructor(name: string);
  load(): string | null;
  save(text: string): Promise<void>;
  clear(): void;
  /** Renames a damaged file to its name plus `.damaged`. */
  setAside(): Promise<void>;
}
