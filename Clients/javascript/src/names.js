// The device's own alias and tags: the core's queue of requests, and the app's pending calls.

import {utf8} from "./bytes.js";
import {LongwireError} from "./errors.js";
import {LIMITS} from "./limits.js";
import {bad} from "./options.js";

const OPERATIONS = {query: 0, bindAlias: 1, unbindAlias: 2, setTags: 3, addTags: 4, removeTags: 5};
const ALIAS_OPERATIONS = [OPERATIONS.bindAlias, OPERATIONS.unbindAlias];
const LAST_REQUEST = 4294967295;
/** The number of the client's own request, which binds the alias of the registration token. */
const OWN_REQUEST = 0;

/** The core's queue of requests. One is in flight at a time, so that changes are made in the order of the calls. */
export class Names {
  constructor(core) {
    this.core = core;
    this.waiting = [];
    /** The time at which the request in flight must have its result, in monotonic milliseconds, or null. */
    this.resultDeadline = null;
    /** The token whose alias the client still has to bind in this run, or an empty text. */
    this.owedToken = core.configuration.registrationToken;
    /** The time of the next attempt at that alias, or null for the next opportunity. */
    this.retryAt = null;
    /** Whether the app has bound or unbound an alias in this run; its choice then overrides the token's alias. */
    this.hasAppsAlias = false;
  }

  /** The time of the next call of `wake`, or null. */
  get deadline() { return this.resultDeadline === null ? this.retryAt : this.resultDeadline; }

  /**
   * Marks the first request as not sent, so that the next session sends it again. Requests are idempotent, so a repeat
   * is harmless.
   */
  endSession() { this.resultDeadline = this.retryAt = null; }

  /** Notes that a new device was registered, which has no alias yet. */
  registered() {
    if (!this.hasAppsAlias) this.owedToken = this.core.configuration.registrationToken;
  }

  /** Takes another token, if the alias of the current one is not bound yet. */
  replaceToken(token) {
    if (this.owedToken === "") return;
    this.owedToken = token;
    this.dropOwn();
  }

  /** Removes the client's own request; in flight it keeps its place, and its result does not count any more. */
  dropOwn() {
    if (this.resultDeadline === null) this.waiting = this.waiting.filter(({request}) => request !== OWN_REQUEST);
  }

  add(names, now) {
    if (this.waiting.length >= LIMITS.names) {
      const reason = `${LIMITS.names} requests about names wait for the gateway already; call again later`;
      this.report({request: names.request, code: LIMITS.busyCode, reason, alias: "", tags: []});
      return;
    }
    if (ALIAS_OPERATIONS.includes(names.operation)) {
      this.hasAppsAlias = true;
      this.owedToken = "";
      this.retryAt = null;
      this.dropOwn();
    }
    this.waiting.push(names);
    this.sendFirst(now);
  }

  sendFirst(now) {
    if (this.core.phase !== "ready" || this.resultDeadline !== null) return;
    this.addOwn(now);
    if (this.waiting.length === 0) return;
    this.resultDeadline = now.monotonic + this.core.configuration.namesResult;
    this.core.send("deviceNames", this.waiting[0], now);
  }

  /** Puts the request for the alias of the registration token before the app's requests. */
  addOwn(now) {
    const isFirst = this.waiting.length > 0 && this.waiting[0].request === OWN_REQUEST;
    if (this.owedToken === "" || isFirst || this.retryAt !== null && now.monotonic < this.retryAt) return;
    this.retryAt = null;
    this.waiting.unshift({request: OWN_REQUEST, operation: OPERATIONS.bindAlias, token: this.owedToken});
  }

  receiveResult(result, now) {
    if (this.resultDeadline === null || this.waiting[0].request !== result.request) return;
    this.resultDeadline = null;
    const {request, token} = this.waiting.shift();
    // A token that replaced the sent one has no result yet.
    if (request === OWN_REQUEST && this.owedToken === token) {
      if (result.code < LIMITS.firstRetriedCode) this.owedToken = "";
      else this.retryAt = now.monotonic + LIMITS.fullRetry;
    }
    this.report(result);
    this.sendFirst(now);
  }

  /** Repeats the request for the token's alias, or gives up a connection that brings no result. */
  wake(now) {
    if (this.core.phase !== "ready" || this.deadline === null || now.monotonic < this.deadline) return;
    if (this.resultDeadline === null) return this.sendFirst(now);
    return this.core.abandon(`no DeviceNamesResult within ${this.core.configuration.namesResult / 1000} s`, now);
  }

  report({request, code, reason, alias, tags}) {
    this.core.report("names", {request, code, reason, alias: alias === "" ? null : alias, tags});
  }
}

/** The app's pending calls by request number. A `names` event resolves or rejects its call. */
export class NamesCalls {
  constructor(client) {
    this.client = client;
    this.last = 0;
    this.waiting = new Map();
  }

  /** Posts a request; returns a promise of `{alias, tags}`, which are empty unless `operation` is `query`. */
  request(operation, details) {
    const {alias, aliasType, tags, token} =
      Object.assign({alias: "", aliasType: "", tags: [], token: ""}, details);
    const isList = Array.isArray(tags), names = [alias, aliasType].concat(isList ? tags : []);
    if (!isList || !names.concat(token).every(name => typeof name === "string")) {
      throw bad("an alias, its type and a token are texts, and tags are a list of texts");
    }
    if (details.needsToken && token === "") throw bad("the token is empty");
    if (utf8(token).length > LIMITS.serverTokenBytes) {
      throw new LongwireError("namesRefused",
        `a token has at most ${LIMITS.serverTokenBytes} bytes; let the server sign one with fewer claims`);
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
    const values = {request, operation: code, alias, aliasType, tags: tags.slice(), token};
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
