// A use of every part of the declarations; `types.test.mjs` compiles it without running it.

import {createClient as forBrowser} from "@longwire/client/browser";
import {LongwireError, Message, Verdict, createClient as forNode, FileStore} from "@longwire/client/node";
import {registerWebPush, tokenOfSubscription} from "@longwire/client/webpush";
import {createClient as forWeChat, WeChat} from "@longwire/client/wechat";
import {LongwireClient, MemoryStore, StateStore, Transport, encode} from "@longwire/client";

declare const wx: WeChat;
declare const transport: Transport;
declare const subscription: PushSubscription;

const store: StateStore = new FileStore("state");
const verdict = (message: Message): Verdict => message.text === null ? {rejected: "no text"} : "processed";
const client: LongwireClient = forNode({
  url: "tls://h:7443", appId: "a", appSecret: "s", state: "state", tls: {ca: "pem"}, onMessage: verdict,
  onEvent(event) {
    if (event.type === "welcomed") console.log(event.cid, event.pending);
    if (event.type === "stopped" && event.error instanceof LongwireError) console.log(event.error.closeCode);
  },
});
client.setRegistrationToken("a.b.c");
client.bindAliasWithToken("a.b.c").catch((error: LongwireError) => console.log(error.resultCode));
new LongwireClient({
  url: "ws://h", appId: "a", registrationToken: "a.b.c", store: new MemoryStore(), transport, onMessage: () => "deferred",
});
forBrowser({url: "wss://h", appId: "a", tabs: "takeOver", onMessage() {}}).unfollow?.();
forWeChat({url: "wss://h", appId: "a", wx, onMessage: async message => { console.log(message.provenance); }});
registerWebPush(client, {vapidKey: "k"}).then(token => console.log(token?.length));
client.setToken({vendor: "webPush", token: tokenOfSubscription(subscription)});
client.report({kind: "action", msgId: "0", action: 90001});
client.setTags(["vip"]).catch((error: LongwireError) => console.log(error.resultCode, error.code === "tryLater"));
client.bindAlias("alice", "user").then(() => client.ownNames("user")).then(({alias, tags}) => alias ?? tags.length);
encode("ack", {positions: []});
console.log(store.load());

// @ts-expect-error There is no such vendor.
client.setToken({vendor: "nokia", token: ""});
// @ts-expect-error Tags must be a list.
client.addTags("vip");
// @ts-expect-error A token is a text.
client.bindAliasWithToken({token: "a.b.c"});
// @ts-expect-error A client of Node needs an app.
forNode({url: "tcp://h", onMessage() {}});
// @ts-expect-error A custom action has a number.
client.report({kind: "action", msgId: "0"});
