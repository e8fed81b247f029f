#!/usr/bin/env node
// Serves this page on the loopback: node serve.mjs [PORT]. The package's modules are below /longwire/, its service
// worker at /.

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

const server = createServer((request, response) => {
  const name = fileOf(request.url);
  const refuse = () => response.writeHead(404, {"Content-Type": "text/plain"}).end("no such file\n");
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
