//go:build !linux

package cli

import (
	"context"
	"errors"
)

const (
	demoHost = "rates.demo.example"
	demoDNS  = ""
)

var errDemo = errors.New("the demo's own internet needs Linux network namespaces; on this system the demo is unproved")

func (d *demo) isolate(context.Context) error  { return errDemo }
func (d *demo) internet(context.Context) error { return errDemo }
