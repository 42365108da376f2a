// Package page holds the script that runs in an isolated world of each frame: it
// describes the page, checks that an element can be pressed, and stops presses
// that would land elsewhere. It never sends input itself.
//
// The sources are TypeScript (src/); `npm ci && npm run build` here writes page.js.
package page

import _ "embed"

// Source is the script. Run in a world, it defines globalThis.__glasshouse once.
//
//go:embed page.js
var Source string
