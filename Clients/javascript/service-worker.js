// The service worker of a site with a Longwire client. It shows notifications of Web Push, and recognises messages that
// arrived over the connection. For the site's pages it records shown and tapped notifications and received messages.
//
// The inbox has records {kind: "shown", msgId}, {kind: "opened", msgId} and {kind: "data", message} for the page whose
// client runs, and {kind: "tap", message} for one page. Standby tabs add {kind: "call", state, command}. Each has a time
// `at`. A page removes the records that it took.
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

  /** Adds a record to the inbox, which keeps the newest ones. Returns its key, or null if it was not stored. */
  async function record(values) {
    try {
      return await inDatabase("inbox", "readwrite", store => {
        const added = store.add({...values, at: Date.now()}), keys = store.getAllKeys();
        keys.onsuccess = () => {
          for (const key of keys.result.slice(0, -INBOX_MOST)) store.delete(key);
        };
        return added;
      });
    } catch (error) {
      console.error(`longwire: the record "${values.kind}" of a push was not stored; free space of this site`, error);
      return null;
    }
  }

  const windows = () => self.clients.matchAll({type: "window", includeUncontrolled: true});

  /** Notifies all pages except one of a new record; the page whose client runs takes it. */
  async function announce(except = null) {
    for (const page of await windows()) {
      if (!except || page.id !== except.id) page.postMessage({longwire: "recorded"});
    }
  }

  /** Passes a push without a notification to the pages, through the inbox so that it can wait for a page. */
  async function pass(message) {
    if (await record({kind: "data", message}) !== null) return announce();
    for (const page of await windows()) page.postMessage({longwire: "data", message});
    return undefined;
  }

  async function show({message, notice}) {
    const wasProcessed = await isProcessed(message.msgId);
    // The page has shown the message. A browser asks for a notification only while no page of the site is visible.
    if (wasProcessed && (await windows()).some(client => client.visibilityState === "visible")) return;
    const options = {body: notice.body, tag: notice.tag || message.msgId, data: message, silent: wasProcessed};
    if (notice.image) options.image = notice.image;
    await self.registration.showNotification(notice.title, options);
    if (wasProcessed) return;
    await record({kind: "shown", msgId: message.msgId});
    await announce();
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

  /** Returns the page for a tap at the push's address, if any: the focused, else a visible, else the most recent one. */
  async function pageFor(message) {
    const pages = (await windows()).filter(one => !message.url || one.url === target(message.url));
    return pages.find(one => one.focused) || pages.find(one => one.visibilityState === "visible") || pages[0];
  }

  /** Passes a tap to one page, and focuses or opens the page. The other pages only take the report. */
  async function open(message) {
    const address = target(message.url), isOfSite = new URL(address).origin === new URL(self.registration.scope).origin;
    // The records come first: the browser may end this worker once a window is open, and a new page reads the tap.
    await record({kind: "opened", msgId: message.msgId});
    const key = isOfSite ? await record({kind: "tap", message}) : null;
    let page = await pageFor(message);
    if (page) await page.focus().catch(() => {});
    else page = await self.clients.openWindow(address);
    if (page && isOfSite) page.postMessage({longwire: "opened", message, key});
    await announce(isOfSite ? page : null);
  }

  self.addEventListener("install", () => self.skipWaiting());
  self.addEventListener("activate", event => event.waitUntil(self.clients.claim()));
  self.addEventListener("push", event => {
    const found = event.data && parse(event.data);
    if (!found) return;
    event.waitUntil(found.notice ? show(found) : pass(found.message));
  });
  self.addEventListener("notificationclick", event => {
    const message = event.notification.data;
    if (!message || typeof message.msgId !== "string") return;
    event.notification.close();
    event.waitUntil(open(message));
  });
})();
