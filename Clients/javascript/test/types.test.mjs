// The declarations: the same names as the modules, and, where a TypeScript compiler is installed, a program that uses
// them.

import assert from "node:assert/strict";
import {spawnSync} from "node:child_process";
import {mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync} from "node:fs";
import {tmpdir} from "node:os";
import * as path from "node:path";
import {test} from "node:test";
import {fileURLToPath} from "node:url";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const contents = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));

function declared(name) {
  const text = readFileSync(path.join(root, name), "utf8");
  const names = Array.from(text.matchAll(/^export (?:function|class|const) (\w+)/gm), found => found[1]);
  return names.concat(/^export \* from "\.\/index\.js";$/m.test(text) && name !== "index.d.ts" ? declared("index.d.ts")
    : []);
}

for (const [entry, files] of Object.entries(contents.exports)) {
  if (typeof files === "string") continue;
  test(`the declarations of ${entry} name what the module exports`, async () => {
    const module = await import(new URL(path.join(root, files.default), "file://"));
    assert.deepEqual(declared(files.types).sort(), Object.keys(module).sort());
  });
}

test("the declared methods of a client exist, and the other way round", async () => {
  const {LongwireClient} = await import("../src/index.js");
  const body = /export class LongwireClient \{\n([^]*?)\n\}/.exec(readFileSync(path.join(root, "index.d.ts"),
    "utf8"))[1];
  const methods = Array.from(body.matchAll(/^ {2}(\w+)\(/gm), found => found[1]);
  for (const name of methods) assert.ok(name in LongwireClient.prototype, `${name} is a method`);
  const inner = ["reserve", "run", "saveKept", "refuse", "load", "loadState", "end", "set", "post", "postOrKeep", "keep", "storeKept",
    "storeNow", "passKept", "takePassed", "now", "schedule", "fail", "pump", "finishStop", "setTimer", "feed", "persist", "perform", "emit",
    "connect", "arrived", "received", "cid", "isRunning", "vendorPlace", "notifyFollowers"];
  assert.deepEqual(Object.getOwnPropertyNames(LongwireClient.prototype).filter(name => !inner.includes(name)).sort(),
    methods.sort());
});

test("every module is in the package, and imports only modules of the package or of Node", () => {
  for (const name of readdirSync(path.join(root, "src"))) {
    const text = readFileSync(path.join(root, "src", name), "utf8");
    for (const [, from] of text.matchAll(/(?:from|import) "([^"]+)"/g)) {
      const isAllowed = from.startsWith("./") || from.startsWith("node:") && ["node.js", "websocket.js"].includes(name);
      assert.ok(isAllowed, `${name} imports ${from}`);
    }
  }
  assert.equal(contents.dependencies, undefined);
});

const compiler = spawnSync("tsc", ["--version"]);
test("a program that uses the declarations compiles", {skip: compiler.error ? "no TypeScript compiler is installed"
  : false}, () => {
  const folder = mkdtempSync(path.join(tmpdir(), "longwire-types-"));
  try {
    mkdirSync(path.join(folder, "node_modules/@longwire"), {recursive: true});
    symlinkSync(root, path.join(folder, "node_modules/@longwire/client"));
    // The types of Node may be missing; the declarations need one of them.
    const tls = path.join(root, "test/node-tls.d.ts");
    const compilerOptions = {
      noEmit: true, strict: true, module: "node16", moduleResolution: "node16", target: "es2020",
        lib: ["es2020", "dom"], types: [], preserveSymlinks: true,
    };
    symlinkSync(path.join(root, "test/types.ts"), path.join(folder, "types.mts"));
    writeFileSync(path.join(folder, "tsconfig.json"), JSON.stringify({compilerOptions, files: ["types.mts", tls]}));
    const {stdout, status} = spawnSync("tsc", ["-p", "."], {cwd: folder, encoding: "utf8"});
    assert.equal(status, 0, stdout);
  } finally {
    rmSync(folder, {recursive: true, force: true});
  }
});
