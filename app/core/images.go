package core

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"glasshouse/app/config"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/vm"
	"glasshouse/vm/image"
	"glasshouse/vm/proc"
)

// images finds the guest image, building it when there is none yet.
type images struct {
	paths config.Paths
	progs *programs
	run   image.RunFunc
	mu    sync.Mutex
	have  *image.Image
}

// get returns the current image where machines can use it.
func (im *images) get(ctx context.Context, progress func(vm.Progress)) (*image.Image, error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.have != nil {
		return im.have, nil
	}
	guestd, err := im.progs.find("guestd")
	if err != nil {
		return nil, err
	}
	built, err := image.Build(ctx, image.Options{CacheDir: im.paths.Cache, Run: im.run, Guestd: guestd}, func(p image.Progress) {
		if progress != nil {
			progress(vm.Progress{Phase: "image", Text: fmt.Sprintf("guest image, part %d of %d: %s", p.Step, p.Steps, p.Message), Done: p.Done, Total: p.Total})
		}
	})
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(im.paths.Images(), 0o711); err != nil {
		return nil, err
	}
	if im.have, err = image.Install(ctx, built, im.paths.Images()); err != nil {
		return nil, err
	}
	return im.have, nil
}

// built returns the current image only if it is there already.
func (im *images) built() (*image.Image, error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.have != nil {
		return im.have, nil
	}
	guestd, err := im.progs.find("guestd")
	if err != nil {
		return nil, err
	}
	recipe, err := image.Default()
	if err != nil {
		return nil, err
	}
	return recipe.Open(im.paths.Cache, guestd)
}

// at returns the image a machine was made from; "" is the current one.
func (im *images) at(ctx context.Context, hash string, progress func(vm.Progress)) (*image.Image, error) {
	cur, err := im.get(ctx, progress)
	if err != nil || hash == "" || hash == cur.Hash {
		return cur, err
	}
	guestd, err := im.progs.find("guestd")
	if err != nil {
		return nil, err
	}
	return image.OpenDir(filepath.Join(im.paths.Images(), hash), guestd)
}

// imageRun starts the programs of an image build.
func (c *Core) imageRun(ctx context.Context, name string, args []string, o image.RunOptions) error {
	p, err := c.runner.Start(ctx, proc.Cmd{Role: "image", Path: name, Args: args, Dir: o.Dir, Env: append(os.Environ(), o.Env...), Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr})
	if err != nil {
		return err
	}
	_, err = p.Wait()
	return err
}

// buildImage is the image without a machine that needs it.
func (c *Core) buildImage(ctx context.Context) (string, error) {
	im, err := c.images.get(ctx, func(p vm.Progress) {
		_ = c.events.Publish(event.New{Stream: event.HostStream, Origin: domain.OriginHost,
			Payload: &event.MachineProgress{Phase: p.Phase, Text: p.Text, Done: p.Done, Total: p.Total}})
	})
	if err != nil {
		return "", err
	}
	return im.Hash, nil
}
