// Package frontend embeds the built page. In a fresh clone dist holds one empty
// file, so that everything compiles before the first front-end build.
package frontend

import "embed"

//go:embed all:dist
var Assets embed.FS
