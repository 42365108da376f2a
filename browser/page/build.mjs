// Bundles src/ into page.js, which page.go embeds. The first line carries the
// hash of the sources, so that a test can tell a stale bundle without Node.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const hash = createHash("sha256");
for (const name of readdirSync(join(here, "src")).sort()) {
  hash.update(name + "\0");
  hash.update(readFileSync(join(here, "src", name)));
  hash.update("\0");
}
const out = await build({
  entryPoints: [join(here, "src/main.ts")],
  bundle: true,
  format: "iife",
  target: "es2022",
  minifySyntax: true,
  minifyWhitespace: true,
  charset: "ascii",
  legalComments: "none",
  write: false,
});
const text = `// sources sha256:${hash.digest("hex")}\n` + out.outputFiles[0].text;
if (process.argv.includes("--stdout")) process.stdout.write(text);
else writeFileSync(join(here, "page.js"), text);
