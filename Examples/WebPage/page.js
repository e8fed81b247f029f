// A page that is a device: it registers, receives messages once each, and keeps its identity in this browser.

import {createClient} from "/longwire/browser.js";
import {closeNotifications, followNotifications, registerWebPush} from "/longwire/webpush.js";

const form = document.querySelector("form"), find = id => document.getElementById(id);
let client = null;

function show(message) {
  const line = document.createElement("li");
  line.textContent = `${message.text ?? "(binary)"}${message.provenance === "live" ? "" : ` (${message.provenance})`}`;
  find("messages").append(line);
}

function report(event) {
  const states = {welcomed: "connected", standby: "another tab is connected", connecting: "connecting",
    retrying: "waiting"};
  if (event.type in states) find("state").textContent = states[event.type];
  if (event.type === "stopped") find("state").textContent = event.error ? `stopped: ${event.error.message}`
      : "not connected";
  if (event.type === "welcomed") find("cid").textContent = event.cid;
  if (event.type === "revoked") closeNotifications(event.taskId);
}

/** Returns a token of the app's server for a user; serve.mjs plays this server. */
async function tokenOf(appId, user) {
  const answer = await fetch(`/token?${new URLSearchParams({app: appId, user})}`);
  if (answer.status === 404) throw new Error("serve.mjs signs tokens when LONGWIRE_MASTER_SECRET is set");
  if (!answer.ok) throw new Error(await answer.text());
  return answer.text();
}

async function connect() {
  await client?.stop();
  client?.unfollow();
  const {url, appId, appSecret, user} = Object.fromEntries(new FormData(form));
  const proof = user ? {registrationToken: await tokenOf(appId, user)} : {appSecret};
  client = createClient({url, appId, ...proof, onMessage: show, onEvent: report});
  followNotifications(client, tap => show({text: `opened: ${tap.payload}`, provenance: "live"}));
  await client.start();
  sessionStorage.setItem("settings", JSON.stringify({url, appId, user}));
}

const fail = error => { find("state").textContent = `stopped: ${error.message}`; };

form.addEventListener("submit", event => {
  event.preventDefault();
  connect().catch(fail);
});
find("notify").addEventListener("click", () => {
  const vapidKey = form.elements.vapidKey.value.trim();
  if (!client) fail(new Error("connect first"));
  else registerWebPush(client, {vapidKey}).catch(fail);
});

// After a reload the page connects by itself: the device's id and secret are in this browser.
const settings = JSON.parse(sessionStorage.getItem("settings"));
if (settings) {
  for (const [name, value] of Object.entries(settings)) form.elements[name].value = value;
  connect().catch(fail);
}
