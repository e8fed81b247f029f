// Web Push: the subscription of this browser as a vendor token, and the reports of `service-worker.js`.

import {inDatabase, openDatabase} from "./database.js";
import {LongwireError} from "./errors.js";
import {isId} from "./state.js";

const INBOX_MOST = 256;
/** Records of the inbox that are no reports: taps for one page, and calls of standby tabs (browser.js). */
const OTHERS = ["tap", "call"];

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

/** Runs a function with the database of the service worker's records, then closes the database. */
async function withDatabase(work) {
  const database = await openDatabase();
  try {
    return await work(database);
  } finally {
    database.close();
  }
}

/** Returns the records of the inbox as pairs of key and record, in order. */
async function recordsOf(database) {
  let keys = null;
  const records = await inDatabase(database, "inbox", "readonly", store => {
    keys = store.getAllKeys(null, INBOX_MOST);
    return store.getAll(null, INBOX_MOST);
  });
  return keys.result.map((key, index) => [key, records[index]]);
}

/** Passes a message from a push without a notification to the client; such a push has the complete message. */
function receive(client, {msgId, taskId, payload}) {
  if (!client.configuration.vendorDuplicates) return;
  client.receiveVendorMessage({msgId, taskId: taskIdOfText(taskId) || "", payload});
}

/**
 * Passes the service worker's reports and messages to the client. Removes a report after the client has stored it, and
 * a message after the app has processed it. Returns the number of removed records. Does nothing if the client does not
 * run, such as in a standby tab.
 */
export async function takeReports(client) {
  if (!client.isRunning) return 0;
  return withDatabase(async database => {
    const records = (await recordsOf(database)).filter(([, record]) => !record || !OTHERS.includes(record.kind));
    if (records.length === 0 || !client.isRunning) return 0;
    const isMessage = record => record && record.kind === "data" && record.message && isId(record.message.msgId);
    for (const [, record] of records) {
      if (isMessage(record) && client.vendorPlace(record.message.msgId) === "new") receive(client, record.message);
      if (!record || !isId(record.msgId)) continue;
      if (record.kind === "shown") client.report({kind: "shown", msgId: record.msgId});
      if (record.kind === "opened") client.markOpened(record.msgId);
    }
    await client.flush();
    const taken = records.filter(([, record]) => !isMessage(record)
      || client.vendorPlace(record.message.msgId) === "processed");
    if (taken.length === 0) return 0;
    await inDatabase(database, "inbox", "readwrite", store => {
      for (const [key] of taken) store.delete(key);
    });
    return taken.length;
  });
}

/** Removes a tap from the inbox; returns false if another page has taken it. */
async function takeTap(database, key) {
  const found = await inDatabase(database, "inbox", "readwrite", store => {
    const request = store.get(key);
    request.onsuccess = () => { if (request.result !== undefined) store.delete(key); };
    return request;
  });
  return found !== undefined;
}

/** Removes and returns the remaining taps, for a page that a tap has opened. */
function takeTaps() {
  return withDatabase(async database => {
    const taken = [];
    for (const [key, record] of await recordsOf(database)) {
      if (record && record.kind === "tap" && await takeTap(database, key)) taken.push(record.message);
    }
    return taken;
  });
}

/**
 * Takes the service worker's records now, after each new record, and when the client begins to run. Calls
 * `onTap({msgId, taskId, payload, url})` for a tap that the worker passes to this page, and for remaining taps if the
 * page is visible. Returns a function that stops all this.
 */
export function followNotifications(client, onTap = () => {}) {
  let last = Promise.resolve();
  const queue = work => {
    last = last.then(work).catch(error => {
      console.error("longwire: records of the service worker were not taken; they stay for the next start", error);
    });
  };
  const take = () => queue(() => takeReports(client));
  const tap = async (message, key) => {
    // If the record cannot be read, the tap is delivered nevertheless.
    const isOwn = key === null || await withDatabase(database => takeTap(database, key)).catch(() => true);
    if (isOwn) onTap(message);
  };
  const listen = ({data}) => {
    if (!data || data.longwire === undefined) return;
    const {message} = data;
    if (data.longwire === "opened") queue(() => tap(message, data.key));
    if (data.longwire === "data" && isId(message.msgId)) receive(client, message);
    take();
  };
  navigator.serviceWorker.addEventListener("message", listen);
  navigator.serviceWorker.startMessages();
  client.followers.add(take);
  if (document.visibilityState === "visible") {
    queue(async () => { for (const message of await takeTaps()) onTap(message); });
  }
  take();
  return () => {
    navigator.serviceWorker.removeEventListener("message", listen);
    client.followers.delete(take);
  };
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
