// The device's attributes: their checks, their bytes, and those that each platform knows.

import assert from "node:assert/strict";
import {test} from "node:test";

import {FrameReader, encodeHello} from "../src/frames.js";
import {LongwireClient, LongwireError, MemoryStore, hmacSHA256} from "../src/index.js";
import {createClient, nodeAttributes} from "../src/node.js";
import {cleanAttributes, helloAttributes, timeZone} from "../src/options.js";
import {weChatAttributes} from "../src/wechat.js";
import {SECRET} from "./support.mjs";

const NONE = {
  platform: 0, brand: "", model: "", systemVersion: "", appVersion: "", locale: "", timeZone: "",
  notificationPermission: 0,
};

test("attributes become their numbers, and texts that are too long or malformed are left out", () => {
  assert.equal(cleanAttributes(undefined), null);
  assert.equal(cleanAttributes(null), null);
  assert.deepEqual(cleanAttributes({}), NONE);
  const good = {
    brand: "华为", model: "x".repeat(64), locale: "zh-Hans-CN", timeZone: "Etc/GMT+8", appVersion: "1.0 (2)",
  };
  assert.deepEqual(cleanAttributes({...good, platform: "harmony", notificationPermission: "denied"}),
    {...NONE, ...good, platform: 3, notificationPermission: 2});
  const wrongs = ["x".repeat(65), "界".repeat(22), "a\nb", "\u007f", "\u0085", "\u202e", "\u2066", "\ufffd", 7, null];
  for (const text of wrongs) {
    for (const name of ["brand", "model", "systemVersion", "appVersion", "locale", "timeZone"]) {
      assert.deepEqual(cleanAttributes({[name]: text}), NONE, name);
    }
  }
  assert.deepEqual(cleanAttributes({locale: "x".repeat(36), timeZone: "a b"}), NONE);
  for (const wrong of [{platform: "symbian"}, {notificationPermission: "maybe"}]) {
    assert.throws(() => cleanAttributes(wrong), LongwireError);
  }
});

test("a Hello carries attributes as an embedded message, and none without them", () => {
  const attributes = cleanAttributes({platform: "web", locale: "de", notificationPermission: "allowed"});
  const read = values => new FrameReader().take(encodeHello({appId: "demo", ...values}, SECRET, hmacSHA256))[0].values;
  assert.deepEqual(read({attributes}).attributes, attributes);
  assert.deepEqual(read({attributes: cleanAttributes({})}).attributes, NONE);
  assert.equal(read({attributes: null}).attributes || null, null);
});

test("a client has the platform's attributes, those of the app in their place, or none", () => {
  const make = options => createClient({
    url: "tcp://h:1", appId: "a", appSecret: "s", store: new MemoryStore(), onMessage() {}, ...options,
  });
  const system = helloAttributes(make({}).configuration);
  assert.equal(system.platform, 6);
  assert.ok(system.systemVersion && system.timeZone);
  const own = helloAttributes(make({attributes: {platform: "android", model: "box"}}).configuration);
  assert.deepEqual([own.platform, own.model, own.timeZone], [1, "box", cleanAttributes(nodeAttributes()).timeZone]);
  const none = make({attributes: null});
  assert.equal(helloAttributes(none.configuration), null);
  assert.equal(none.setAttributes({notificationPermission: "denied"}), false);
  const merged = helloAttributes(none.configuration);
  assert.deepEqual([merged.platform, merged.notificationPermission], [6, 2]);
  none.setAttributes(null);
  assert.equal(helloAttributes(none.configuration), null);
  assert.throws(() => none.setAttributes({platform: "symbian"}), LongwireError);
  assert.throws(() => make({attributes: {platform: "symbian"}}), LongwireError);
});

test("the platform's attributes are those at the time of the Hello", () => {
  let notificationPermission = "";
  const platformAttributes = () => ({platform: "web", notificationPermission});
  const {configuration} = new LongwireClient({
    url: "tcp://h:1", appId: "a", appSecret: "s", store: new MemoryStore(), transport: {}, onMessage() {}, platformAttributes,
  });
  assert.equal(helloAttributes(configuration).notificationPermission, 0);
  notificationPermission = "allowed";
  assert.equal(helloAttributes(configuration).notificationPermission, 1);
  // A value that is no permission, or an error, costs the platform's attributes and not the Hello.
  notificationPermission = "default";
  assert.deepEqual(helloAttributes(configuration), NONE);
  configuration.platformAttributes = () => { throw new Error("no"); };
  configuration.attributes = {model: "box", brand: undefined};
  assert.deepEqual(helloAttributes(configuration), {...NONE, model: "box"});
});

test("the attributes of a mini program are those that its base library has", () => {
  const device = {brand: "HUAWEI", model: "Mate 60", system: "Android 14"};
  const found = weChatAttributes({
    getDeviceInfo: () => device, getAppBaseInfo: () => ({language: "zh_CN"}),
    getAccountInfoSync: () => ({miniProgram: {version: "2.1.0"}}),
  });
  assert.deepEqual(found, {
    platform: "miniprogram", brand: "HUAWEI", model: "Mate 60", systemVersion: "Android 14", appVersion: "2.1.0",
    locale: "zh_CN", timeZone: timeZone(),
  });
  const old = weChatAttributes({getSystemInfoSync: () => ({...device, language: "en"})});
  assert.deepEqual([old.model, old.locale, old.appVersion], ["Mate 60", "en", undefined]);
  const broken = weChatAttributes({getDeviceInfo() { throw new Error("no"); }});
  assert.equal(cleanAttributes(broken).platform, 5);
});
