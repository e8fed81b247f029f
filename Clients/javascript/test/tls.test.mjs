// TLS of Node's transport: verification, an authority of one's own, and pinned certificates.

import assert from "node:assert/strict";
import {spawnSync} from "node:child_process";
import {X509Certificate, createHash} from "node:crypto";
import {mkdtempSync, readFileSync, rmSync, writeFileSync} from "node:fs";
import {tmpdir} from "node:os";
import * as path from "node:path";
import {test} from "node:test";
import {createServer} from "node:tls";

import {NodeTransport} from "../src/node.js";

/** Runs the command openssl in a folder. */
function openssl(folder, ...words) {
  const {status, stderr} = spawnSync("openssl", words, {cwd: folder, encoding: "utf8"});
  assert.equal(status, 0, stderr);
}

const NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
const digest = pem => createHash("sha256").update(new X509Certificate(pem).raw).digest("hex");

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

test("a pin of an issuer counts only if that issuer signed the chain", {
  timeout: 30000, skip: hasOpenSSL ? false : "no openssl is installed",
}, async () => {
  const folder = mkdtempSync(path.join(tmpdir(), "longwire-tls-"));
  let server = null;
  try {
    // Two certificate authorities have the same name; the first one issues the server's certificate.
    for (const name of ["authority", "other"]) {
      openssl(folder, "req", "-x509", ...NEW_KEY, "-keyout", `${name}.key`, "-out", `${name}.pem`, "-days", "2",
        "-subj", "/CN=authority");
    }
    writeFileSync(path.join(folder, "extensions"), "subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=none\n");
    openssl(folder, "req", "-new", ...NEW_KEY, "-keyout", "leaf.key", "-out", "leaf.csr", "-subj", "/CN=gateway");
    openssl(folder, "x509", "-req", "-in", "leaf.csr", "-CA", "authority.pem", "-CAkey", "authority.key",
      "-set_serial", "5", "-days", "2", "-extfile", "extensions", "-out", "leaf.pem");
    const read = name => readFileSync(path.join(folder, name), "utf8");
    const [ca, other, leaf] = ["authority.pem", "other.pem", "leaf.pem"].map(read);
    const connect = async (chain, pins) => {
      server = createServer({key: read("leaf.key"), cert: chain.join("")},
        socket => socket.on("error", () => {}).resume());
      server.on("tlsClientError", () => {});
      await new Promise(resolve => server.listen(0, "127.0.0.1", resolve));
      const endpoint = {scheme: "tls", host: "127.0.0.1", port: server.address().port, url: ""};
      const outcome = await new Promise(resolve => {
        const connection = new NodeTransport({tls: {ca}, pins}).connect(endpoint, {
          opened() {
            connection.close();
            resolve("opened");
          },
          received() {}, ended: resolve,
        });
      });
      await new Promise(resolve => server.close(resolve));
      server = null;
      return outcome;
    };
    assert.equal(await connect([leaf, ca], [digest(ca)]), "opened");
    assert.equal(await connect([leaf], [digest(ca)]), "opened");
    assert.equal(await connect([leaf, other], [digest(leaf)]), "opened");
    assert.match(await connect([leaf, other], [digest(other)]), /is pinned/);
  } finally {
    if (server) await new Promise(resolve => server.close(resolve));
    rmSync(folder, {recursive: true, force: true});
  }
});
