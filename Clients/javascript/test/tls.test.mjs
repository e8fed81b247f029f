// TLS of Node's transport: verification, an authority of one's own, and pinned certificates.

import assert from "node:assert/strict";
import {spawnSync} from "node:child_process";
import {X509Certificate, createHash} from "node:crypto";
import {mkdtempSync, readFileSync, rmSync} from "node:fs";
import {tmpdir} from "node:os";
import * as path from "node:path";
import {test} from "node:test";
import {createServer} from "node:tls";

import {NodeTransport} from "../src/node.js";

const hasOpenSSL = !spawnSync("openssl", ["version"]).error;

test("a certificate is verified, and a pin is needed besides", {
  timeout: 30000, skip: hasOpenSSL ? false : "no openssl is installed",
}, async () => {
  const folder = mkdtempSync(path.join(tmpdir(), "longwire-tls-"));
  let server = null;
  try {
    const [keyFile, file] = [path.join(folder, "key.pem"), path.join(folder, "certificate.pem")];
    const made = spawnSync("openssl", [
      "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", keyFile, "-out",
        file,
      "-days", "2", "-subj", "/CN=gateway", "-addext", "subjectAltName=IP:127.0.0.1",
    ], {encoding: "utf8"});
    assert.equal(made.status, 0, made.stderr);
    const ca = readFileSync(file, "utf8"), pin = createHash("sha256").update(new X509Certificate(ca).raw).digest("hex");
    server = createServer({key: readFileSync(keyFile), cert: ca}, socket => socket.on("error", () => {}).resume());
    server.on("tlsClientError", () => {});
    await new Promise(resolve => server.listen(0, "127.0.0.1", resolve));
    const connect = options => new Promise(resolve => {
      const endpoint = {scheme: "tls", host: "127.0.0.1", port: server.address().port, url: ""};
      const connection = new NodeTransport(options).connect(endpoint, {
        opened() {
          connection.close();
          resolve("opened");
        },
        received() {}, ended: resolve,
      });
    });
    assert.equal(await connect({tls: {ca}}), "opened");
    assert.match(await connect({}), /self.signed/);
    assert.equal(await connect({tls: {ca}, pins: ["0".repeat(64), pin]}), "opened");
    assert.match(await connect({tls: {ca}, pins: ["0".repeat(64)]}), /no certificate of the gateway's chain is pinned/);
    assert.match(await connect({pins: [pin]}), /self.signed/);
    assert.throws(() => new NodeTransport({pins: ["AB"]}), /no SHA-256 digest/);
  } finally {
    if (server) await new Promise(resolve => server.close(resolve));
    rmSync(folder, {recursive: true, force: true});
  }
});
