package core

import (
	"context"
	"os"
	"runtime"

	"glasshouse/vm"
	"glasshouse/vm/image"
	"glasshouse/vm/lima"
	"glasshouse/vm/local"
)

// managers makes the drivers; it touches nothing yet.
func (c *Core) managers() (map[string]vm.Manager, error) {
	out := map[string]vm.Manager{}
	limactl := c.set.get().Limactl
	if limactl == "" {
		// A missing limactl shows in Check, with what to do.
		limactl, _ = c.progs.find("lima/bin/limactl")
	}
	c.lima = lima.New(lima.Options{
		Root: c.opt.Paths.Machines(), Trash: c.opt.Paths.Trash(), Limactl: limactl, Runner: c.runner, User: c.user, Log: c.log.With("driver", "lima"),
		Image: func(ctx context.Context, hash string, progress func(vm.Progress)) (lima.Image, error) {
			im, err := c.images.at(ctx, hash, progress)
			if err != nil {
				return lima.Image{}, err
			}
			return limaImage(im), nil
		},
	})
	out[string(vm.KindLima)] = c.lima
	if runtime.GOOS == "linux" {
		out[string(vm.KindLocal)] = local.New(local.Options{
			Root: c.opt.Paths.Machines(), Trash: c.opt.Paths.Trash(), Runner: c.runner, User: c.user, Log: c.log.With("driver", "local"),
			RootFS: func(ctx context.Context, hash string, progress func(vm.Progress)) (string, string, error) {
				im, err := c.images.at(ctx, hash, progress)
				if err != nil {
					return "", "", err
				}
				return im.RootFS, im.Hash, nil
			},
			Guestd: func(context.Context) (string, error) { return c.progs.find("guestd") },
		})
	}
	return out, os.MkdirAll(c.opt.Paths.Machines(), 0o711)
}

func limaImage(im *image.Image) lima.Image {
	return lima.Image{Hash: im.Hash, Disk: im.QCOW2, Kernel: im.Kernel, Initrd: im.Initrd,
		Args: image.KernelArgs, ArgsEmulated: image.KernelArgsEmulated, ProbeArg: image.ProbeArg, ProbeLine: image.ProbeLine}
}

// defaultKind is what new projects get: what the settings say, else the embedded
// default of this system.
func (c *Core) defaultKind() string {
	if kind := c.set.get().Machine; kind != "" {
		return kind
	}
	return usualKind()
}

func usualKind() string {
	if runtime.GOOS == "linux" {
		return string(vm.KindLocal)
	}
	return string(vm.KindLima)
}
