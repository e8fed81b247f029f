// The validation of a client's options, and their conversion for the core.

import {utf8} from "./bytes.js";
import {BACKGROUND, FOREGROUND} from "./codes.js";
import {endpointOf} from "./endpoints.js";
import {LongwireError} from "./errors.js";
import {LIMITS} from "./limits.js";
import {cleanToken, withToken} from "./tokens.js";

const SCHEMES = {tcp: 7000, tls: 7443, ws: 80, wss: 443};
export const STATES = {foreground: FOREGROUND, background: BACKGROUND};

export const bad = message => new LongwireError("badConfiguration", message);
export const isWhole = (value, least, most) => Number.isInteger(value) && value >= least && value <= most;
export const isState = state => Object.keys(STATES).includes(state);
export const isBadge = value => isWhole(value, -2147483648, 2147483647);
/** Whether the value is a token of the app's server in a valid size, or empty. */
export const isServerToken = token => typeof token === "string" && utf8(token).length <= LIMITS.serverTokenBytes;
export const isHeartbeat = seconds => isWhole(seconds, LIMITS.leastHeartbeatSeconds, LIMITS.mostHeartbeatSeconds);

/**
 * Parses the gateway's address: `tcp://HOST:PORT`, `tls://HOST:PORT`, `ws://HOST:PORT/PATH` or `wss://HOST:PORT/PATH`.
 */
export function parseURL(url) {
  const found = /^([a-z]+):\/\/(\[[^\]/]*\]|[^:/?#[\]]+)(?::([0-9]{1,5}))?(\/[^?#]*)?(\?[^#]*)?$/.exec(url);
  if (!found || !Object.keys(SCHEMES).includes(found[1])) {
    throw bad(`"${url}" is no address of a gateway; write tcp://HOST:PORT, tls://HOST:PORT or wss://HOST/v1/device`);
  }
  const [, scheme, host, port, path, query] = found;
  const endpoint = endpointOf(`${host}:${port || SCHEMES[scheme]}`);
  if (!endpoint) throw bad(`"${url}" has no valid host and port`);
  const isWebSocket = scheme === "ws" || scheme === "wss";
  if (!isWebSocket && path && path !== "/") throw bad(`"${url}" has a path; only ws:// and wss:// have one`);
  const target = path && path !== "/" ? path : "/v1/device";
  return Object.assign(endpoint, {scheme, path: isWebSocket ? target + (query || "") : ""});
}

/** Returns the name of a network, truncated to 64 bytes of UTF-8. */
export function networkName(name) {
  let text = "", count = 0;
  for (const character of String(name)) {
    count += utf8(character).length;
    if (count > LIMITS.networkNameBytes) break;
    text += character;
  }
  return text;
}

const PLATFORMS = ["", "android", "ios", "harmony", "web", "miniprogram", "other"];
const PERMISSIONS = ["", "allowed", "denied"];
// No control characters, line separators or marks that reverse the direction of text.
const TEXT = /^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufffd]*$/;
const TEXTS = {
  brand: TEXT, model: TEXT, systemVersion: TEXT, appVersion: TEXT, locale: /^[A-Za-z0-9_-]*$/,
  timeZone: /^[A-Za-z0-9/_+:-]*$/,
};

/**
 * Returns the wire form of the device's attributes. Texts that are too long or malformed are left out, as the gateway
 * does. `null` stands for no attributes: the gateway then keeps those of an earlier connection.
 */
export function cleanAttributes(attributes) {
  if (attributes === undefined || attributes === null) return null;
  const {platform = "", notificationPermission = ""} = attributes;
  const cleaned = {
    platform: PLATFORMS.indexOf(platform), notificationPermission: PERMISSIONS.indexOf(notificationPermission),
  };
  if (cleaned.platform < 0) throw bad(`"${platform}" is no platform; use one of ${PLATFORMS.slice(1).join(", ")}`);
  if (cleaned.notificationPermission < 0) {
    throw bad(`"${notificationPermission}" is no permission; use allowed or denied`);
  }
  for (const name of Object.keys(TEXTS)) {
    const text = attributes[name], limit = name === "locale" ? LIMITS.localeBytes : LIMITS.attributeBytes;
    const isGood = typeof text === "string" && TEXTS[name].test(text) && utf8(text).length <= limit;
    cleaned[name] = isGood ? text : "";
  }
  return cleaned;
}

/**
 * Returns the attributes of a Hello in their wire form: the platform's, with those of the app in their place; `null` if
 * the app wants none. The platform is asked each time, because a permission or the language may have changed.
 */
export function helloAttributes({attributes, platformAttributes}) {
  if (attributes === null) return null;
  if (!platformAttributes) return cleanAttributes(attributes);
  let known = {};
  // A Hello without the platform's attributes is better than none.
  try { known = checkedAttributes(platformAttributes()); } catch { /* The adapter's fault. */ }
  const given = Object.entries(attributes || {}).filter(([, value]) => value !== undefined);
  return cleanAttributes({...known, ...Object.fromEntries(given)});
}

/** Returns this system's language tag, or an empty text. */
export function locale() {
  try {
    return Intl.DateTimeFormat().resolvedOptions().locale;
  } catch { /* A Node may be built without Intl. */ }
  return "";
}

function checkedFunction(name, value) {
  if (value === undefined || typeof value === "function") return value;
  throw bad(`${name} must be a function`);
}

/** Returns a copy of the app's attributes; throws if one names no platform or permission. */
export function checkedAttributes(attributes) {
  cleanAttributes(attributes);
  return attributes ? {...attributes} : attributes;
}

/** Returns the name of this system's time zone, or its offset from UTC; JavaScript may lack both. */
export function timeZone() {
  try {
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    if (zone) return zone;
  } catch { /* Mini programs have no Intl. */ }
  const minutes = -new Date().getTimezoneOffset(), size = Math.abs(minutes);
  const pair = number => String(number).padStart(2, "0");
  return `${minutes < 0 ? "-" : "+"}${pair(Math.floor(size / 60))}:${pair(size % 60)}`;
}

/** Validates the options of a client; returns its configuration, or throws `badConfiguration`. */
export function check(options) {
  const {appId, appSecret = "", registrationToken = "", heartbeatSeconds = 0, window = 0, parallel = 1} = options;
  const {backoff = {}, tokens = []} = options;
  if (typeof appId !== "string" || appId === "" || utf8(appId).length > LIMITS.appIdBytes) {
    throw bad("appId must have 1 to 64 bytes");
  }
  if (typeof appSecret !== "string") throw bad("appSecret must be a text");
  if (!isServerToken(registrationToken)) {
    throw bad(`registrationToken must be a text of at most ${LIMITS.serverTokenBytes} bytes`);
  }
  if (typeof options.onMessage !== "function") throw bad("onMessage must be a function that handles a message");
  for (const name of ["store", "transport"]) {
    if (!options[name]) throw bad(`${name} is missing; use the client of your platform`);
  }
  if (heartbeatSeconds !== 0 && !isHeartbeat(heartbeatSeconds)) {
    throw bad(`heartbeatSeconds is ${heartbeatSeconds}; use 0 or 30 to 1800`);
  }
  if (!isWhole(window, 0, 4294967295)) throw bad(`window is ${window}; use 0 for the gateway's default`);
  if (!isWhole(parallel, 1, LIMITS.holes)) throw bad(`parallel is ${parallel}; use 1 to ${LIMITS.holes}`);
  const clientName = options.clientName === undefined ? "longwire-js/1" : options.clientName;
  if (typeof clientName !== "string" || utf8(clientName).length > LIMITS.clientNameBytes) {
    throw bad("clientName has more than 64 bytes");
  }
  const badge = options.badge === undefined ? null : options.badge;
  if (badge !== null && !isBadge(badge)) throw bad(`badge is ${badge}; use a whole number of 32 bits`);
  const state = options.applicationState === undefined ? "foreground" : options.applicationState;
  if (!isState(state)) throw bad(`applicationState is ${state}; use foreground or background`);
  const {first = LIMITS.backoffFirst, most = LIMITS.backoffMost} = backoff;
  if (!isWhole(first, 1, LIMITS.retryWindow) || !isWhole(most, first, LIMITS.retryWindow)) {
    throw bad("backoff must have first and most in milliseconds, in this order");
  }
  const {outgoingBytes = LIMITS.outgoingBytes} = options.store;
  if (!Array.isArray(tokens) || tokens.length > LIMITS.tokens) {
    throw bad(`tokens must be a list of at most ${LIMITS.tokens}`);
  }
  return Object.assign(parseURL(options.url), {
    appId, appSecret, registrationToken, clientName, heartbeatSeconds, window, badge, applicationState: STATES[state],
    keepsRunning: Boolean(options.keepsRunning), tokens: tokens.map(cleanToken).reduce(withToken, []),
    replaysOpened: Boolean(options.replaysOpened), reconnects: options.reconnects !== false,
    usesAlternates: options.usesAlternates !== false, vendorDuplicates: Boolean(options.vendorDuplicates),
    pushModeOff: null, outgoingBytes: Math.min(outgoingBytes, LIMITS.outgoingBytes), namesResult: LIMITS.namesResult, attributes: checkedAttributes(options.attributes),
    platformAttributes: checkedFunction("platformAttributes", options.platformAttributes), backoff: {first, most},
  });
}
