//go:build !linux || !(amd64 || arm64)

package local

import (
	"context"
	"fmt"
	"runtime"

	"glasshouse/vm"
)

// New returns a manager that can do nothing here: Check says why.
func New(Options) vm.Manager { return nowhere{} }

type nowhere struct{}

func (nowhere) Kind() vm.Kind { return vm.KindLocal }
func (nowhere) Features() vm.Features {
	return vm.Features{Missing: append([]string(nil), missing...)}
}

func (nowhere) Check(context.Context) error {
	return fmt.Errorf("local machines need Linux on amd64 or arm64 (this is %s on %s); use a machine of kind %q: %w",
		runtime.GOOS, runtime.GOARCH, vm.KindLima, vm.ErrUnsupported)
}

func (n nowhere) Create(ctx context.Context, _ vm.Spec, _ func(vm.Progress)) (vm.Machine, error) {
	return nil, n.Check(ctx)
}
func (n nowhere) Open(ctx context.Context, _ string) (vm.Machine, error) { return nil, n.Check(ctx) }
func (n nowhere) List(context.Context) ([]string, error)                 { return nil, nil }
func (n nowhere) Destroy(ctx context.Context, _ string) error            { return n.Check(ctx) }
