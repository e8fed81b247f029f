// The database of a site: states of its clients, and reports of its service worker. `service-worker.js` has the same
// schema.

const DATABASE = "longwire", VERSION = 1;

/** Opens the database of states and of the service worker's reports. */
export function openDatabase() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(DATABASE, VERSION);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("states");
      request.result.createObjectStore("inbox", {autoIncrement: true});
    };
    request.onsuccess = () => {
      request.result.onversionchange = () => request.result.close();
      resolve(request.result);
    };
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error("another tab has an older version of the database open; close it"));
  });
}

/** Runs `work(store)` in one transaction, and returns the result of its request. */
export function inDatabase(database, name, mode, work) {
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(name, mode, mode === "readwrite" ? {durability: "strict"} : undefined);
    const request = work(transaction.objectStore(name));
    transaction.oncomplete = () => resolve(request ? request.result : undefined);
    transaction.onabort = transaction.onerror = () => reject(transaction.error
      || new Error("the transaction was aborted"));
  });
}
