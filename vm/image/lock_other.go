//go:build !unix

package image

import (
	"context"
	"errors"
)

func lockFile(context.Context, string, func()) (func(), error) {
	return nil, errors.New("the guest image is built on Linux; take a finished one here")
}

func holdDir(string) (func(), bool) { return nil, false }
