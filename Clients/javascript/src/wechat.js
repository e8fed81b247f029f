// The adapters for WeChat mini programs: `wx.connectSocket`, `wx.getStorageSync` and `wx.getRandomValues`. Mini
// programs lack the browser's WebSocket, localStorage, crypto, TextEncoder and URL.

import {LongwireClient} from "./client.js";
import {LongwireError, OUTBOX_FULL} from "./errors.js";
import {LIMITS} from "./limits.js";
import {timeZone} from "./options.js";

export * from "./index.js";

const describe = (failure, what) => failure && failure.errMsg ? String(failure.errMsg) : what;

/** Connections over `wx.connectSocket`. The host must be a socket domain of the mini program's settings. */
export class WeChatTransport {
  constructor(platform) { this.wx = platform; }

  connect({scheme, url}, events) {
    if (scheme !== "ws" && scheme !== "wss") {
      throw new LongwireError("badConfiguration",
        `a mini program has no ${scheme}:// connections; use wss://HOST/v1/device`);
    }
    let isOver = false, isOpen = false, waitingBytes = 0;
    const end = reason => {
      if (isOver) return;
      isOver = true;
      events.ended(reason);
    };
    const task = this.wx.connectSocket({
      url, protocols: ["longwire.v1"], tcpNoDelay: true,
      fail: failure => end(describe(failure, "the connection failed")),
    });
    task.onOpen(() => {
      isOpen = true;
      if (!isOver) events.opened();
    });
    task.onMessage(({data}) => {
      if (isOver) return;
      if (data instanceof ArrayBuffer || Object.prototype.toString.call(data) === "[object ArrayBuffer]") {
        events.received(new Uint8Array(data));
      } else {
        task.close({code: 1003});
      }
    });
    task.onError(failure => end(describe(failure, "the connection failed")));
    task.onClose(close => end(`the WebSocket closed with ${close && close.code || "no code"}`));
    return {
      send(bytes) {
        if (!isOpen || isOver) return;
        if (waitingBytes > LIMITS.outboxBytes) throw new Error(OUTBOX_FULL);
        const data = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
        waitingBytes += bytes.length;
        task.send({
          data, fail: failure => end(describe(failure, "a frame could not be sent")),
          complete: () => { waitingBytes -= bytes.length; },
        });
      },
      close() {
        isOver = true;
        // A close while the connection is being made is an error on some versions; the answer is not needed.
        task.close({code: 1000, fail() {}});
      },
    };
  }
}

/**
 * A state in one item of the mini program's storage, which is written at once. The storage has 10 MB; one item 1 MB.
 */
export class WeChatStore {
  constructor(platform, name) {
    Object.assign(this, {wx: platform, name, outgoingBytes: LIMITS.weChatOutgoingBytes});
  }

  load() {
    let text;
    try {
      text = this.wx.getStorageSync(this.name);
    } catch (error) {
      throw new LongwireError("stateUnreadable", `cannot read the storage: ${describe(error, String(error))}`,
        {cause: error});
    }
    // A missing item reads as an empty text. An item that is empty is damaged.
    if (text === "" && !this.wx.getStorageInfoSync().keys.includes(this.name)) return null;
    return String(text);
  }

  save(text) {
    try {
      this.wx.setStorageSync(this.name, text);
    } catch (error) {
      throw new LongwireError("stateUnwritable", `cannot write the storage: ${describe(error, String(error))}`,
        {cause: error});
    }
  }

  clear() { this.wx.removeStorageSync(this.name); }

  setAside() {
    this.wx.setStorageSync(`${this.name}.damaged`, this.wx.getStorageSync(this.name));
    this.clear();
  }
}

/** Returns random bytes of `wx.getRandomValues`, which base library 2.19.0 and later have. */
export function weChatRandom(platform) {
  return count => new Promise((resolve, reject) => {
    if (typeof platform.getRandomValues !== "function") {
      reject(new LongwireError("badConfiguration",
        "wx.getRandomValues is missing; require base library 2.19.0, or give the option random"));
      return;
    }
    platform.getRandomValues({
      length: count,
      success: ({randomValues}) => resolve(new Uint8Array(randomValues)),
      fail: failure => reject(new LongwireError("badConfiguration", describe(failure, "wx.getRandomValues failed"))),
    });
  });
}

/** Reports the mini program's show, hide and network changes to the client. Returns a function that ends it. */
export function followApp(client, platform) {
  const show = () => client.setApplicationState("foreground");
  // WeChat closes the sockets of a hidden mini program after seconds.
  const hide = () => client.setApplicationState("background");
  const network = ({isConnected, networkType}) => { if (isConnected) client.networkChanged(networkType); };
  platform.onAppShow(show);
  platform.onAppHide(hide);
  platform.onNetworkStatusChange(network);
  return () => {
    platform.offAppShow(show);
    platform.offAppHide(hide);
    platform.offNetworkStatusChange(network);
  };
}

/** Returns the result of a call that some versions of the base library lack. */
function known(platform, ...names) {
  for (const name of names) {
    try {
      if (typeof platform[name] === "function") return platform[name]() || {};
    } catch { /* The next call may succeed. */ }
  }
  return {};
}

/** Returns the attributes of this device that the mini program knows. */
export function weChatAttributes(platform) {
  const {brand, model, system} = known(platform, "getDeviceInfo", "getSystemInfoSync");
  const {language} = known(platform, "getAppBaseInfo", "getSystemInfoSync");
  const {miniProgram} = known(platform, "getAccountInfoSync");
  return {
    platform: "miniprogram", brand, model, systemVersion: system, appVersion: miniProgram && miniProgram.version,
    locale: language, timeZone: timeZone(),
  };
}

/**
 * Returns a client for this mini program. Its options are those of LongwireClient, and `name` (the state's storage
 * key), `wx` (for tests) and `followsApp`. With `followsApp: false` the app must report its state and network changes
 * itself.
 */
export function createClient(options) {
  const {name = `longwire.state.${options.appId}`, wx: platform = wx, followsApp = true, ...others} = options;
  const client = new LongwireClient(Object.assign({
    store: new WeChatStore(platform, name), transport: new WeChatTransport(platform), random: weChatRandom(platform),
    platformAttributes: () => weChatAttributes(platform),
  }, others));
  if (followsApp) client.unfollow = followApp(client, platform);
  return client;
}
