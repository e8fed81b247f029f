// The browser's stores between the tabs of one site, with faked Web Locks, storage and IndexedDB.

import assert from "node:assert/strict";
import {test} from "node:test";

import {IndexedDBStore, LocalStorageStore} from "../src/browser.js";
import {FakeDatabases, having, id, party, until} from "./support.mjs";

const limit = {timeout: 20000};

/** A fake of Web Locks for one name. A lock is held until its callback's promise settles, or until it is stolen. */
class FakeLocks {
  constructor() { this.holder = null; }

  request(name, {steal = false, ifAvailable = false, signal = null}, hold) {
    return new Promise((resolve, reject) => {
      const take = () => {
        const holder = this.holder = {reject};
        Promise.resolve(hold({name})).then(() => {
          if (this.holder === holder) this.holder = null;
          resolve();
        });
      };
      if (steal && this.holder) {
        this.holder.reject(Object.assign(new Error("stolen"), {name: "AbortError"}));
        return take();
      }
      if (!this.holder) return take();
      if (ifAvailable) return resolve(hold(null));
      return until(() => signal && signal.aborted || !this.holder)
        .then(() => signal && signal.aborted ? reject(Object.assign(new Error(), {name: "AbortError"})) : take());
    });
  }
}

const fakeStorage = (items = new Map()) => ({
  items, getItem: key => items.has(key) ? items.get(key) : null, removeItem: key => items.delete(key),
  setItem: (key, value) => items.set(key, value),
});

const isRefused = error => error.code === "otherTab"
  && /another tab took over the connection and the state.*use that tab, or start this client again/.test(error.message);

test("a store whose lock is stolen refuses calls until the tab has the lock again", limit, async () => {
  const storage = fakeStorage(), databases = new FakeDatabases();
  for (const make of [
    options => new LocalStorageStore("state", {storage, ...options}), options => new IndexedDBStore("state", options),
  ]) {
    await having({navigator: {locks: new FakeLocks()}, indexedDB: databases}, async () => {
      const [one, other] = [make({}), make({takesOver: true})], losses = [];
      const request = {wait: true, lost: error => losses.push(error), waits() {}, isWanted: () => true};
      await one.lock(request);
      await one.save("one");
      const release = await other.lock({...request, lost: () => assert.fail("nobody steals it")});
      await until(() => losses.length > 0);
      assert.ok(isRefused(losses[0]));
      for (const call of [() => one.save("late"), () => one.clear(), () => one.setAside()]) {
        await assert.rejects(async () => call(), isRefused);
      }
      await other.save("other");
      assert.equal(await one.load(), "other");
      assert.equal(await one.lock({...request, wait: false}), null);
      await assert.rejects(async () => one.save("late"), isRefused);
      release();
      await until(() => globalThis.navigator.locks.holder === null);
      const free = await one.lock({...request, wait: false});
      await one.save("again");
      assert.equal(await other.load(), "again");
      free();
    });
  }
});

test("a client whose lock is stolen stops, and writes nothing more", limit, () => having(
  {navigator: {locks: new FakeLocks()}}, async () => {
  const storage = fakeStorage(), tab = takesOver => party({store: new LocalStorageStore("state",
    {storage, takesOver})});
  const one = tab(false), other = tab(true);
  await one.client.start();
  const session = await one.gateway.next();
  await session.welcome();
  await one.event("welcomed");
  await other.client.start();
  const {error} = await one.event("stopped");
  assert.ok(isRefused(error), error.message);
  assert.ok(session.isClosed);
  await (await other.gateway.next()).welcome();
  await other.event("welcomed");
  const text = storage.items.get("state");
  one.client.markOpened(id(4));
  await assert.rejects(() => one.client.flush(), ({code}) => code === "stateUnwritable");
  await assert.rejects(() => one.client.forget(), isRefused);
  assert.equal(storage.items.get("state"), text);
  await other.client.stop();
  await one.client.start();
  await one.event("connecting", 2);
  await one.client.stop();
}));
