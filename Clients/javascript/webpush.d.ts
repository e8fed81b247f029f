import {LongwireClient} from "./index.js";

export interface Tap {
  msgId: string;
  /** The task's text, such as `RASS_1129_…`. */
  taskId: string;
  payload: string;
  url: string;
}

export interface WebPushOptions {
  /** The gateway's public VAPID key in base64url. */
  vapidKey: string;
  /** The address of the service worker; `/service-worker.js` by default. */
  serviceWorker?: string;
  scope?: string;
  /** False: does not ask the user; for each start of the page. */
  asks?: boolean;
}

/** Subscribes, and gives the token to the client; returns the token, or null without the user's permission. */
export function registerWebPush(client: LongwireClient, options: WebPushOptions): Promise<string | null>;
export function unregisterWebPush(client: LongwireClient, options?: {scope?: string}): Promise<void>;
/**
 * Takes the service worker's records while the client runs. Calls `onTap` on the one page that a tap opens or focuses.
 * Returns a function that stops this.
 */
export function followNotifications(client: LongwireClient, onTap?: (tap: Tap) => void): () => void;
/** Takes the service worker's records now, if the client runs; returns the number of removed records. */
export function takeReports(client: LongwireClient): Promise<number>;
export function closeNotifications(taskId: string, options?: {scope?: string}): Promise<number>;
export function tokenOfSubscription(subscription: PushSubscription): string;
export function taskIdOfText(text: string): string | null;
