// Vendor tokens: their numbers on the wire, and the checks of Sources/Core/Wire/TokenFault.swift.

import {utf8} from "./bytes.js";
import {LongwireError} from "./errors.js";
import {LIMITS} from "./limits.js";

export const CHANNELS = ["apns", "fcm", "hms", "harmony", "honor", "xiaomi", "oppo", "vivo", "meizu", "webPush"];
export const KINDS = ["alert", "voip", "liveActivity", "liveActivityStart"];
export const ENVIRONMENTS = ["production", "sandbox"];

const BLANKS = /[\s\u0085<>]/g;
const PLAIN = /^[\x21-\x7e]*$/;
const SUBSCRIPTION = /^https:\/\/[^#]+#[A-Za-z0-9_-]{87}\.[A-Za-z0-9_-]{22}$/;

const bad = message => new LongwireError("badConfiguration", message);

/**
 * Returns the wire form of a token `{vendor, token, kind?, environment?, topic?, activity?}`, without blanks and angle
 * brackets. An empty token removes the tokens of its vendor and kind.
 */
export function cleanToken({vendor, token, kind = "alert", environment = "production", topic = "", activity = ""}) {
  const channel = CHANNELS.indexOf(vendor), numbers = [KINDS.indexOf(kind), ENVIRONMENTS.indexOf(environment)];
  if (channel < 0) throw bad(`"${vendor}" is no vendor; use one of ${CHANNELS.join(", ")}`);
  if (numbers[0] < 0) throw bad(`"${kind}" is no kind of token; use one of ${KINDS.join(", ")}`);
  if (numbers[1] < 0) throw bad(`"${environment}" is no environment; use one of ${ENVIRONMENTS.join(", ")}`);
  for (const [name, text] of [["token", token], ["topic", topic], ["activity", activity]]) {
    if (typeof text !== "string") throw bad(`a token's ${name} must be a text`);
  }
  if (channel !== 0 && numbers[0] !== 0) throw bad("only tokens of apns have another kind than alert");
  const cleaned = token.replace(BLANKS, "");
  const cleanedTopic = PLAIN.test(topic) ? topic : topic.replace(/[\s\u0085]/g, "");
  if (token !== "" && cleaned === "") {
    throw bad("the token consists of blanks; an empty token removes the vendor's tokens");
  }
  if (!PLAIN.test(cleaned) || !PLAIN.test(cleanedTopic)) {
    throw bad("a token or its topic has characters other than visible ASCII");
  }
  if (cleaned.length > LIMITS.tokenBytes) throw bad(`the token has more than ${LIMITS.tokenBytes} bytes`);
  if (cleanedTopic.length > LIMITS.topicBytes) throw bad(`the token's topic has more than ${LIMITS.topicBytes} bytes`);
  if (utf8(activity).length > LIMITS.activityBytes) {
    throw bad(`the token's activity has more than ${LIMITS.activityBytes} bytes`);
  }
  if (vendor === "webPush" && cleaned !== "" && !SUBSCRIPTION.test(cleaned)) {
    throw bad("a webPush token is not ENDPOINT#P256DH.AUTH with an https endpoint; use tokenOfSubscription");
  }
  return {kind: numbers[0], environment: numbers[1], topic: cleanedTopic, token: cleaned, channel, activity};
}

const isOfSameUse = (one, other) => one.channel === other.channel && one.kind === other.kind
  && (one.activity === other.activity || other.token === "" && other.activity === "");

/** Returns the empty token that removes a token and all others of its use. */
export const removalOf = ({channel, kind, activity}) =>
  ({channel, kind, activity, environment: 0, topic: "", token: ""});

/** Whether a removal, sent after the token, would remove it. */
export const excludes = (removal, token) => isOfSameUse(token, removal);

export const isSameToken = (one, other) => ["kind", "environment", "topic", "token", "channel", "activity"]
  .every(name => one[name] === other[name]);

/** Returns the tokens after `token` replaced the one of the same use; an empty token removes such tokens. */
export function withToken(tokens, token) {
  const kept = tokens.filter(other => !(isOfSameUse(other, token)
    && (other.topic === token.topic || token.token === "" || other.topic === "")));
  if (token.token === "") return kept;
  kept.push(token);
  // Tokens of Live Activities are short-lived, so they are evicted before the app's own tokens.
  const activities = kept.filter(other => other.kind === KINDS.indexOf("liveActivity")).length;
  if (activities > LIMITS.activityTokens || kept.length > LIMITS.tokens) {
    const oldest = kept.slice(0, -1).findIndex(other => other.kind === KINDS.indexOf("liveActivity"));
    kept.splice(Math.max(oldest, 0), 1);
  }
  return kept;
}
