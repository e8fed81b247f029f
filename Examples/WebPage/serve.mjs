#!/usr/bin/env node
// Serves this page on the loopback: node serve.mjs [PORT]. The package's modules are below /longwire/, its service
// worker at /. With LONGWIRE_MASTER_SECRET it also signs users' tokens at /token, as an app's own server does.

import {createHmac} from "node:crypto";
import {createReadStream} from "node:fs";
import {createServer} from "node:http";
import * as path from "node:path";
import {fileURLToPath} from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url)), client = path.resolve(here, "../../Clients/javascript");
const TYPES = {".html": "text/html;charset=utf-8", ".js": "text/javascript;charset=utf-8"};

/** Returns the file of a request's path, or null. */
function fileOf(target) {
  const found = /^\/(longwire\/)?([a-z0-9-]+\.(?:html|js))?$/.exec(target.split("?")[0]);
  if (!found) return null;
  const [, isClient, name = "index.html"] = found;
  if (isClient) return path.join(client, "src", name);
  return name === "service-worker.js" ? path.join(client, name) : path.join(here, name);
}

const OWN_HOST = /^(127\.0\.0\.1|localhost):\d+$/;

const encoded = value => Buffer.from(JSON.stringify(value)).toString("base64url");

/** Returns a user's token for one app, valid for five minutes. A real server authenticates the user first. */
function tokenOf(appId, user) {
  const claims = {aud: appId, sub: user, exp: Math.floor(Date.now() / 1000) + 300};
  const text = `${encoded({alg: "HS256", typ: "JWT"})}.${encoded(claims)}`;
  return `${text}.${createHmac("sha256", process.env.LONGWIRE_MASTER_SECRET).update(text).digest("base64url")}`;
}

const server = createServer((request, response) => {
  const refuse = (status = 404, reason = "no such file") =>
    response.writeHead(status, {"Content-Type": "text/plain"}).end(`${reason}\n`);
  const [target, query] = request.url.split("?");
  if (target === "/token" && process.env.LONGWIRE_MASTER_SECRET) {
    const names = new URLSearchParams(query), [app, user] = [names.get("app"), names.get("user")];
    // A foreign page may have its own name resolved to this address.
    if (!OWN_HOST.test(request.headers.host)) return refuse(403, "a token is only for this server's own page");
    if (!app || !user) return refuse(400, "a token needs app and user");
    response.writeHead(200, {"Content-Type": "text/plain", "Cache-Control": "no-store"});
    response.end(tokenOf(app, user));
    return undefined;
  }
  const name = fileOf(request.url);
  if (!name) return refuse();
  const file = createReadStream(name);
  file.on("error", refuse);
  file.on("open", () => {
    response.writeHead(200, {"Content-Type": TYPES[path.extname(name)], "Cache-Control": "no-cache"});
    file.pipe(response);
  });
  return undefined;
});
server.listen(Number(process.argv[2] || 8000), "127.0.0.1",
  () => console.log(`http://127.0.0.1:${server.address().port}/`));
