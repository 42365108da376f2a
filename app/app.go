// Package app is the composition root: it joins the doors, the core and the
// drivers into one program of several commands.
package app

import (
	"io/fs"

	"glasshouse/app/cli"
)

// Main runs one command and returns the exit code.
func Main(assets fs.FS, args []string) int {
	return cli.Main(assets, args)
}
