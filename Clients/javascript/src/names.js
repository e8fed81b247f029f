// The device's own alias and tags: the core's queue of requests, and the app's pending calls.

import {utf8} from "./bytes.js";
import {LongwireError} from "./errors.js";
import {LIMITS} from "./limits.js";
import {bad} from "./options.js";

const OPERATIONS = {query: 0, bindAlias: 1, unbindAlias: 2, setTags: 3, addTags: 4, removeTags: 5};
const LAST_REQUEST = 4294967295;

/** The core's queue of requests. One is in flight at a time, so that changes are made in the order of the calls. */
export class Names {
  constructor(core) {
    this.core = core;
    this.waiting = [];
    /** The deadline of the request in flight, in monotonic milliseconds, or null if no request is in flight. */
    this.deadline = null;
  }

  /**
   * Marks the first request as not sent, so that the next session sends it again. Requests are idempotent, so a repeat
   * is harmless.
   */
  endSession() { this.deadline = null; }

  add(names, now) {
    if (this.waiting.length >= LIMITS.names) {
      const reason = `${LIMITS.names} requests about names wait for the gateway already; call again later`;
      this.report({request: names.request, code: LIMITS.busyCode, reason, alias: "", tags: []});
      return;
    }
    this.waiting.push(names);
    this.sendFirst(now);
  }

  sendFirst(now) {
    if (this.core.phase !== "ready" || this.deadline !== null || this.waiting.length === 0) return;
    this.deadline = now.monotonic + LIMITS.namesResult;
    this.core.send("deviceNames", this.waiting[0], now);
  }

  receiveResult(result, now) {
    if (this.deadline === null || this.waiting[0].request !== result.request) return;
    this.deadline = null;
    this.waiting.shift();
    this.report(result);
    this.sendFirst(now);
  }

  /** Abandons the connection when a request times out. */
  wake(now) {
    if (this.deadline === null || now.monotonic < this.deadline) return;
    this.core.abandon(`no DeviceNamesResult within ${LIMITS.namesResult / 1000} s`, now);
  }

  report({request, code, reason, alias, tags}) {
    this.core.report("names", {request, code, reason, alias: alias === "" ? null : alias, tags});
  }
}

/** The app's pending calls, which the event `names` of their request settles. */
export class NamesCalls {
  constructor(client) {
    this.client = client;
    this.last = 0;
    this.waiting = new Map();
  }

  /** Posts a request; returns a promise of `{alias, tags}`, which are empty unless `operation` is `query`. */
  request(operation, details) {
    const {alias, aliasType, tags} = Object.assign({alias: "", aliasType: "", tags: []}, details);
    const isList = Array.isArray(tags), names = [alias, aliasType].concat(isList ? tags : []);
    if (!isList || !names.every(name => typeof name === "string")) {
      throw bad("an alias and its type are texts, and tags are a list of texts");
    }
    const sizes = names.map(name => utf8(name).length), sum = sizes.reduce((all, size) => all + size, 0);
    if (tags.length > LIMITS.deviceTags || Math.max(...sizes) > LIMITS.nameBytes || sum > LIMITS.namesBytes) {
      throw new LongwireError("namesRefused", `a name has at most ${LIMITS.nameBytes} bytes, and a device at most `
        + `${LIMITS.deviceTags} tags with ${LIMITS.namesBytes} bytes together; shorten the list`);
    }
    do {
      this.last = this.last >= LAST_REQUEST ? 1 : this.last + 1;
    } while (this.waiting.has(this.last));
    const request = this.last, code = OPERATIONS[operation];
    const values = {request, operation: code, alias, aliasType, tags: tags.slice()};
    if (!this.client.isRunning) throw notRunning();
    return new Promise((resolve, reject) => {
      // The call is registered before the post, because the client may answer during the post.
      this.waiting.set(request, {resolve, reject});
      this.client.post({command: {do: "names", names: values}});
    });
  }

  /** Resolves or rejects the call that an event `names` belongs to. */
  note({request, code, reason, alias, tags}) {
    const call = this.waiting.get(request);
    if (!call) return;
    this.waiting.delete(request);
    if (code === 0) {
      call.resolve({alias, tags});
      return;
    }
    const kind = code < LIMITS.firstRetriedCode ? "namesRefused" : "tryLater";
    call.reject(new LongwireError(kind, reason || `the gateway answered with code ${code}`, {resultCode: code}));
  }

  /** Rejects the pending calls, because the client has stopped. */
  end() {
    const calls = Array.from(this.waiting.values());
    this.waiting.clear();
    for (const {reject} of calls) reject(notRunning());
  }
}

function notRunning() {
  return new LongwireError("wrongState", "the client does not run or has stopped; start it and call again");
}
