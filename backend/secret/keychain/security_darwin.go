package keychain

import (
	"context"
	"strings"

	"glasshouse/vm/proc"
)

// Unproved: no test has seen it on a Mac.
func systemRing() ring {
	r := &proc.Runner{}
	return &security{run: func(ctx context.Context, stdin string, args ...string) (string, int, error) {
		res, err := r.Run(ctx, proc.Cmd{Role: "keychain", Path: "/usr/bin/security", Args: args, Stdin: strings.NewReader(stdin)})
		return string(res.Stdout), res.Code, err
	}}
}
