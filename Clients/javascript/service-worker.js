// The service worker of a page with a Longwire client. It shows notifications of Web Push, records what was shown and
// tapped for the page's client, and recognises messages that came over the connection.
//
// Serve this file at the root of the site. A site with its own service worker adds one line to it:
// importScripts("/longwire/service-worker.js").

(() => {
  const DATABASE = "longwire", VERSION = 1, INBOX_MOST = 256, TEXT_MOST = 1000;

  function openDatabase() {
    return new Promise((resolve, reject) => {
      const request = indexedDB.open(DATABASE, VERSION);
      request.onupgradeneeded = () => {
        request.result.createObjectStore("states");
        request.result.createObjectStore("inbox", {autoIncrement: true});
      };
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
      request.onblocked = () => reject(new Error("another tab has an older version of the database open"));
    });
  }

  async function inDatabase(name, mode, work) {
    const database = await openDatabase();
    try {
      return await new Promise((resolve, reject) => {
        const transaction = database.transaction(name, mode), request = work(transaction.objectStore(name));
        transaction.oncomplete = () => resolve(request && request.result);
        transaction.onabort = transaction.onerror = () => reject(transaction.error
          || new Error("the transaction was aborted"));
      });
    } finally {
      database.close();
    }
  }

  /** Reads the ids and texts of a push; a push from another sender gives null. */
  function parse(data) {
    let content;
    try {
      content = data.json();
    } catch {
      return null;
    }
    const ids = content && typeof content._gmid_ === "string" ? content._gmid_.split(":") : [];
    if (ids.length !== 2 || !/^[0-9a-f]{32}$/.test(ids[1])) return null;
    const text = value => typeof value === "string" ? value.slice(0, TEXT_MOST) : "";
    const notice = content.notification && typeof content.notification === "object" ? content.notification : null;
    return {
      message: {
        taskId: text(ids[0]), msgId: ids[1], payload: typeof content.payload === "string" ? content.payload : "",
        url: notice ? text(notice.url) : "",
      },
      notice: notice && {title: text(notice.title), body: text(notice.body), image: text(notice.image),
        tag: text(notice.tag)},
    };
  }

  /**
   * Whether a client of this site has processed the message. An unreadable state counts as no: a repeat is better than
   * a loss.
   */
  async function isProcessed(msgId) {
    try {
      const states = await inDatabase("states", "readonly", store => store.getAll());
      return states.some(text => typeof text === "string" && text.includes(`\nseen ${msgId}\n`));
    } catch {
      return false;
    }
  }

  /** Records a report for the page's client; the newest ones are kept. */
  async function record(kind, msgId) {
    await inDatabase("inbox", "readwrite", store => {
      store.add({kind, msgId, at: Date.now()});
      const keys = store.getAllKeys();
      keys.onsuccess = () => {
        for (const key of keys.result.slice(0, -INBOX_MOST)) store.delete(key);
      };
    }).catch(error => console.error("longwire: the report was not stored", error));
  }

  const windows = () => self.clients.matchAll({type: "window", includeUncontrolled: true});

  async function announce(longwire, message) {
    for (const client of await windows()) client.postMessage({longwire, message});
  }

  async function show({message, notice}) {
    const wasProcessed = await isProcessed(message.msgId);
    // The page has shown the message. A browser asks for a notification only while no page of the site is visible.
    if (wasProcessed && (await windows()).some(client => client.visibilityState === "visible")) return;
    const options = {body: notice.body, tag: notice.tag || message.msgId, data: message, silent: wasProcessed};
    if (notice.image) options.image = notice.image;
    await self.registration.showNotification(notice.title, options);
    if (wasProcessed) return;
    await record("shown", message.msgId);
    await announce("shown", message);
  }

  /** Returns the address to open: the push's own if it is http or https, else the site's root. */
  function target(url) {
    try {
      const found = new URL(url || "/", self.registration.scope);
      return found.protocol === "https:" || found.protocol === "http:" ? found.href : self.registration.scope;
    } catch {
      return self.registration.scope;
    }
  }

  async function open(message) {
    // Recorded first: the browser may end this worker once a window is open.
    await record("opened", message.msgId);
    const pages = await windows(), page = message.url ? pages.find(one => one.url === target(message.url)) : pages[0];
    if (page) await page.focus();
    else await self.clients.openWindow(target(message.url));
    await announce("opened", message);
  }

  self.addEventListener("install", () => self.skipWaiting());
  self.addEventListener("activate", event => event.waitUntil(self.clients.claim()));
  self.addEventListener("push", event => {
    const found = event.data && parse(event.data);
    if (!found) return;
    event.waitUntil(found.notice ? show(found) : announce("data", found.message));
  });
  self.addEventListener("notificationclick", event => {
    const message = event.notification.data;
    if (!message || typeof message.msgId !== "string") return;
    event.notification.close();
    event.waitUntil(open(message));
  });
})();
