// The browser's stores between the tabs of one site, with faked Web Locks, storage and IndexedDB.

import assert from "node:assert/strict";
import {test} from "node:test";

import {IndexedDBStore, LocalStorageStore} from "../src/browser.js";
import {takeReports} from "../src/webpush.js";
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

/** A fake of BroadcastChannel. */
class FakeChannel {
  static all = new Set();

  constructor(name) {
    this.name = name;
    FakeChannel.all.add(this);
  }

  postMessage(data) {
    for (const one of FakeChannel.all) if (one !== this && one.name === this.name && one.onmessage) one.onmessage({data});
  }

  close() { FakeChannel.all.delete(this); }
}

const globals = (databases = new FakeDatabases()) => ({navigator: {locks: new FakeLocks()}, indexedDB: databases,
  BroadcastChannel: FakeChannel});

test("a standby tab passes its calls to the tab with the connection, each once", limit, async () => {
  const databases = new FakeDatabases();
  await having(globals(databases), async () => {
    const tab = () => party({store: new IndexedDBStore("state"), vendorDuplicates: true});
    const one = tab(), other = tab();
    await one.client.start();
    const session = await one.gateway.next();
    await session.welcome();
    await one.event("welcomed");
    await other.client.start({opened: [id(6)]});
    await other.event("standby");
    assert.equal(other.client.send("order"), true);
    assert.equal(other.client.markOpened(id(7)), true);
    assert.equal(other.client.report({kind: "shown", msgId: id(8)}), true);
    other.client.setToken({vendor: "fcm", token: "t"});
    await other.client.flush();
    assert.equal(Buffer.from((await session.expect("upstream")).payload).toString(), "order");
    assert.equal((await session.expect("feedback")).msgId, id(6));
    assert.equal((await session.expect("deviceUpdate")).tokens[0].token, "t");
    session.send("upstreamResult", {request: 1, code: 0});
    await one.event("taken");
    await until(() => databases.stores.get("inbox").size === 0);
    // Calls that no tab has taken stay for the next one that runs.
    await databases.stores.get("inbox").set(1000, {kind: "call", state: "state", command: {do: "opened", msgId: id(9)}});
    await takeReports(one.client);
    assert.equal(databases.stores.get("inbox").size, 1);
    await one.client.stop();
    await other.event("connecting");
    const {opened: inHello} = await (await other.gateway.next()).welcome();
    await until(() => databases.stores.get("inbox").size === 0);
    await other.client.flush();
    const text = databases.stores.get("states").get("state");
    for (const number of [6, 7, 9]) assert.ok(text.includes(`\nopened ${id(number)}\n`), String(number));
    assert.ok(!/\nsend /.test(text) && inHello.length <= 2);
    await other.client.stop();
    assert.equal(FakeChannel.all.size, 0);
  });
});

test("a tab that cannot store the passed calls leaves the reports in the inbox", limit, async () => {
  const databases = new FakeDatabases();
  await having(globals(databases), async () => {
    const one = party({store: new IndexedDBStore("state"), backoff: {first: 3600000, most: 3600000}});
    await one.client.start();
    await (await one.gateway.next()).welcome();
    await one.event("welcomed");
    await one.client.flush();
    const save = one.store.save;
    one.store.save = async () => { throw new Error("quota"); };
    const other = party({store: new IndexedDBStore("state")});
    await other.client.start();
    other.client.markOpened(id(7));
    other.client.send("order");
    await one.event("stateNotStored");
    await until(() => databases.stores.get("inbox").size === 1);
    one.store.save = save;
    one.client.takePassed();
    await until(() => databases.stores.get("inbox").size === 0);
    assert.ok(databases.stores.get("states").get("state").includes(`\nopened ${id(7)}\n`));
    await one.client.stop();
    await other.client.stop();
  });
});

test("a standby tab without IndexedDB refuses calls that it would lose", limit, () => having(
  {navigator: {locks: new FakeLocks()}}, async () => {
  const storage = fakeStorage(), tab = () => party({store: new LocalStorageStore("state", {storage})});
  const one = tab(), other = tab();
  await one.client.start();
  await other.client.start();
  await other.event("standby");
  assert.deepEqual([other.client.send("x"), other.client.markOpened(id(1)),
    other.client.report({kind: "shown", msgId: id(2)})], [false, false, false]);
  await one.client.stop();
  await other.event("connecting");
  assert.equal(other.client.markOpened(id(1)), true);
  await other.client.stop();
}));
