import {CommonOptions, DeviceAttributes, LongwireClient, StateStore, Transport} from "./index.js";

export * from "./index.js";

/** The parts of `wx` that the client uses. */
export interface WeChat {
  connectSocket(options: object): {
    send(options: object): void; close(options: object): void; onOpen(handler: (result: any) => void): void;
    onMessage(handler: (result: any) => void): void; onError(handler: (result: any) => void): void;
    onClose(handler: (result: any) => void): void;
  };
  getStorageSync(key: string): any;
  setStorageSync(key: string, value: any): void;
  removeStorageSync(key: string): void;
  getStorageInfoSync(): {keys: string[]};
  getRandomValues?(options: object): void;
  onAppShow(handler: (result: any) => void): void;
  offAppShow(handler: (result: any) => void): void;
  onAppHide(handler: (result: any) => void): void;
  offAppHide(handler: (result: any) => void): void;
  onNetworkStatusChange(handler: (result: any) => void): void;
  offNetworkStatusChange(handler: (result: any) => void): void;
}

export interface WeChatOptions extends CommonOptions {
  /** The name of the state in the mini program's storage; `longwire.state.APPID` by default. */
  name?: string;
  wx?: WeChat;
  /** False: the app calls `setApplicationState` and `networkChanged` itself. */
  followsApp?: boolean;
  store?: StateStore;
  transport?: Transport;
}

/** A client that follows its mini program; `unfollow` ends that. */
export type WeChatClient = LongwireClient & {unfollow?(): void};

/** Returns the attributes that the mini program knows. */
export function weChatAttributes(wx: WeChat): DeviceAttributes;
export function createClient(options: WeChatOptions): WeChatClient;
export function followApp(client: LongwireClient, wx: WeChat): () => void;
export function weChatRandom(wx: WeChat): (count: number) => Promise<Uint8Array>;

export class WeChatTransport implements Transport {
  constructor(wx: WeChat);
  connect: Transport["connect"];
}

export class WeChatStore implements StateStore {
  constructor(wx: WeChat, name: string);
  load(): string | null;
  save(text: string): void;
  clear(): void;
  setAside(): void;
}
