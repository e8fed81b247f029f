// Web Push: the subscription of this browser as a vendor token, and the reports of `service-worker.js`.

import {inDatabase, openDatabase} from "./database.js";
import {LongwireError} from "./errors.js";
import {isId} from "./state.js";

const INBOX_MOST = 256;

function base64URL(buffer) {
  const text = btoa(String.fromCharCode(...new Uint8Array(buffer)));
  return text.replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");
}

function bytesOfBase64URL(text) {
  const binary = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
  return Uint8Array.from(binary, character => character.charCodeAt(0));
}

/** Returns a PushSubscription as the gateway's token, `ENDPOINT#P256DH.AUTH`. */
export function tokenOfSubscription(subscription) {
  const endpoint = subscription.endpoint.split("#")[0];
  return `${endpoint}#${base64URL(subscription.getKey("p256dh"))}.${base64URL(subscription.getKey("auth"))}`;
}

/**
 * Returns the id on the wire (32 hexadecimal digits) of a task's text, such as `RASS_1129_…`; null for any other text.
 */
export function taskIdOfText(text) {
  const found = /^RAS([SLA])_([0-9]{2})([0-9]{2})_([0-9a-f]{24})$/.exec(text);
  if (!found) return null;
  const digits = number => Number(number).toString(16).padStart(2, "0");
  return `0${"SLA".indexOf(found[1]) + 1}${digits(found[2])}${digits(found[3])}00${found[4]}`;
}

/**
 * Registers the service worker, subscribes with the gateway's public VAPID key, and gives the token to the client. Asks
 * the user for permission, so call it from a click; with `asks: false` it only renews a permitted subscription, for
 * each start of the page. Returns the token, or null without permission.
 */
export async function registerWebPush(client, {vapidKey, serviceWorker = "/service-worker.js", scope, asks = true}) {
  if (!("serviceWorker" in navigator) || typeof PushManager === "undefined") {
    throw new LongwireError("badConfiguration", "this browser has no Web Push here; open the page over https");
  }
  const key = bytesOfBase64URL(vapidKey);
  if (key.length !== 65 || key[0] !== 4) {
    throw new LongwireError("badConfiguration",
      "vapidKey is no public key: 65 bytes in base64url (docs/use/Vendors.md, Web Push)");
  }
  const registration = await navigator.serviceWorker.register(serviceWorker, scope === undefined ? {} : {scope});
  let permission = Notification.permission;
  if (permission === "default" && asks) permission = await Notification.requestPermission();
  if (permission !== "granted") return null;
  await navigator.serviceWorker.ready;
  let subscription = await registration.pushManager.getSubscription();
  const old = subscription && subscription.options && subscription.options.applicationServerKey;
  // A subscription of another key would be refused by the push service.
  if (old && base64URL(old) !== base64URL(key)) {
    await subscription.unsubscribe();
    subscription = null;
  }
  if (!subscription) {
    subscription = await registration.pushManager.subscribe({userVisibleOnly: true, applicationServerKey: key});
  }
  const token = tokenOfSubscription(subscription);
  client.setToken({vendor: "webPush", token});
  return token;
}

/** Ends the subscription and removes the token from the gateway. */
export async function unregisterWebPush(client, {scope} = {}) {
  const registration = await navigator.serviceWorker.getRegistration(scope);
  const subscription = registration && await registration.pushManager.getSubscription();
  if (subscription) await subscription.unsubscribe();
  client.setToken({vendor: "webPush", token: ""});
}

/**
 * Gives the service worker's records of shown and opened notifications to the client, and removes them once they are
 * stored.
 */
export async function takeReports(client) {
  const database = await openDatabase();
  try {
    const records = await inDatabase(database, "inbox", "readonly", store => store.getAll(null, INBOX_MOST));
    const keys = await inDatabase(database, "inbox", "readonly", store => store.getAllKeys(null, INBOX_MOST));
    if (keys.length === 0) return 0;
    for (const record of records) {
      if (!record || !isId(record.msgId)) continue;
      if (record.kind === "shown") client.report({kind: "shown", msgId: record.msgId});
      if (record.kind === "opened") client.markOpened(record.msgId);
    }
    await client.flush();
    await inDatabase(database, "inbox", "readwrite", store => {
      for (const key of keys) store.delete(key);
    });
    return keys.length;
  } finally {
    database.close();
  }
}

/**
 * Takes the service worker's reports now and whenever it has more, and passes taps to `onTap({msgId, taskId, payload,
 * url})`. Returns a function that ends it.
 */
export function followNotifications(client, onTap = () => {}) {
  let last = Promise.resolve();
  const take = () => { last = last.then(() => takeReports(client)).catch(() => {}); };
  const listen = ({data}) => {
    if (!data || data.longwire === undefined) return;
    const {message} = data;
    if (data.longwire === "opened") onTap(message);
    // A push without a notification holds the complete message.
    if (data.longwire === "data" && isId(message.msgId)) {
      const {msgId, payload} = message;
      client.receiveVendorMessage({msgId, taskId: taskIdOfText(message.taskId) || "", payload});
    }
    take();
  };
  navigator.serviceWorker.addEventListener("message", listen);
  navigator.serviceWorker.startMessages();
  take();
  return () => navigator.serviceWorker.removeEventListener("message", listen);
}

/** Closes the notifications of a revoked task; call it with the event `revoked`. */
export async function closeNotifications(taskId, {scope} = {}) {
  const registration = await navigator.serviceWorker.getRegistration(scope);
  if (!registration) return 0;
  const isOfTask = ({data}) => data && typeof data.taskId === "string" && taskIdOfText(data.taskId) === taskId;
  const notifications = (await registration.getNotifications()).filter(isOfTask);
  for (const notification of notifications) notification.close();
  return notifications.length;
}
