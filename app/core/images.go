package core

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"glasshouse/app/config"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/vm"
	"glasshouse/vm/image"
	"glasshouse/vm/proc"
)

// images finds the guest image, building it when there is none yet. One build
// serves all who want it, and goes on while one of them still does.
type images struct {
	paths config.Paths
	progs *programs
	// make builds and installs the image; it ends with its context.
	make func(ctx context.Context, progress func(vm.Progress)) (*image.Image, error)

	mu    sync.Mutex
	have  *image.Image
	build *build
	host  context.CancelCauseFunc // ends the calls that want the image and no machine
	calls int
}

// build is one run of make and who waits for it.
type build struct {
	cancel  context.CancelFunc
	done    chan struct{} // closed when im and err are set
	im      *image.Image
	err     error
	last    vm.Progress
	waiters map[*waiter]struct{}
}

type waiter struct{ progress func(vm.Progress) }

// errImageGivenUp is why a build ended that nobody wants any more.
var errImageGivenUp = domain.E(domain.CodeConflict, "the building of the guest image was given up", "begin it again; what is built already is kept", nil)

// get returns the current image where machines can use it. Who goes while it is
// built leaves the build to the others; the last one ends it.
func (im *images) get(ctx context.Context, progress func(vm.Progress)) (*image.Image, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		im.mu.Lock()
		if im.have != nil {
			defer im.mu.Unlock()
			return im.have, nil
		}
		b := im.build
		if b == nil {
			b = im.begin()
		}
		w := &waiter{progress}
		b.waiters[w] = struct{}{}
		if progress != nil && b.last.Phase != "" {
			progress(b.last)
		}
		im.mu.Unlock()
		select {
		case <-b.done:
			if errors.Is(b.err, errImageGivenUp) {
				continue // it ended under one who came just then
			}
			return b.im, b.err
		case <-ctx.Done():
		}
		im.mu.Lock()
		delete(b.waiters, w)
		last := len(b.waiters) == 0
		if last {
			b.cancel()
		}
		im.mu.Unlock()
		if last {
			<-b.done // its programs are gone when this returns
		}
		return nil, context.Cause(ctx)
	}
}

// begin starts a build; im.mu is held.
func (im *images) begin() *build {
	ctx, cancel := context.WithCancel(context.Background()) // ends with its last waiter
	b := &build{cancel: cancel, done: make(chan struct{}), waiters: map[*waiter]struct{}{}}
	im.build = b
	go func() {
		got, err := im.make(ctx, func(p vm.Progress) {
			im.mu.Lock()
			defer im.mu.Unlock()
			b.last = p
			for w := range b.waiters {
				if w.progress != nil {
					w.progress(p)
				}
			}
		})
		im.mu.Lock()
		if err == nil {
			im.have = got
		} else if ctx.Err() != nil {
			err = errImageGivenUp
		}
		b.im, b.err, im.build = got, err, nil
		im.mu.Unlock()
		cancel()
		close(b.done)
	}()
	return b
}

// makeImage builds the image and puts it where machines can use it.
func (c *Core) makeImage(ctx context.Context, progress func(vm.Progress)) (*image.Image, error) {
	guestd, err := c.progs.find("guestd")
	if err != nil {
		return nil, err
	}
	built, err := image.Build(ctx, image.Options{CacheDir: c.opt.Paths.Cache, Run: c.imageRun, Guestd: guestd}, func(p image.Progress) {
		progress(vm.Progress{Phase: "image", Text: fmt.Sprintf("guest image, part %d of %d: %s", p.Step, p.Steps, p.Message), Done: p.Done, Total: p.Total})
	})
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.opt.Paths.Images(), 0o711); err != nil {
		return nil, err
	}
	progress(vm.Progress{Phase: "image", Text: "guest image: putting it in its place"})
	return image.Install(ctx, built, c.opt.Paths.Images())
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
	p, err := c.runner.Start(ctx, proc.Cmd{Role: "image", Path: name, Args: args, Dir: o.Dir, Env: append(buildEnv(name, os.Environ()), o.Env...), Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr})
	if err != nil {
		return err
	}
	_, err = p.Wait()
	return err
}

// buildEnv is what an image's build gets of the core's environment: the way to
// packages, and nothing that could be a key. npm runs programs of the packages it gets.
func buildEnv(program string, env []string) []string {
	var out []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		low := strings.ToLower(name)
		switch {
		case slices.Contains([]string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "SOURCE_DATE_EPOCH", "APT_CONFIG", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE"}, name),
			slices.Contains([]string{"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"}, low), strings.HasPrefix(name, "LC_"), strings.HasPrefix(name, "XDG_"):
		case program == "npm" && (strings.HasPrefix(low, "npm_config_") || name == "NPM_TOKEN"): // the person's registry, and the way into it
		default:
			continue
		}
		out = append(out, e)
	}
	return out
}

// buildImage is the image without a machine that needs it.
func (c *Core) buildImage(ctx context.Context) (string, error) {
	ctx, leave := c.images.call(ctx)
	defer func() {
		if leave() {
			c.projects.EndProgress()
		}
	}()
	im, err := c.images.get(ctx, func(p vm.Progress) {
		c.projects.TellProgress("", event.MachineProgress{Phase: p.Phase, Text: p.Text, Done: p.Done, Total: p.Total})
	})
	if err != nil {
		return "", err
	}
	return im.Hash, nil
}

// call is a context that cancelImage ends; the function tells whether the call was the last one.
func (im *images) call(ctx context.Context) (context.Context, func() bool) {
	cctx, cancel := context.WithCancelCause(ctx)
	im.mu.Lock()
	before := im.host
	im.calls++
	im.host = func(err error) {
		cancel(err)
		if before != nil {
			before(err)
		}
	}
	im.mu.Unlock()
	return cctx, func() bool {
		cancel(nil)
		im.mu.Lock()
		defer im.mu.Unlock()
		if im.calls--; im.calls == 0 {
			im.host = nil
		}
		return im.calls == 0
	}
}

// cancelImage gives up the calls that want the image alone. A build that a
// project's making waits for goes on for it.
func (c *Core) cancelImage() error {
	c.images.mu.Lock()
	end := c.images.host
	c.images.mu.Unlock()
	if end == nil {
		return domain.E(domain.CodeConflict, "nobody waits for a guest image that could be given up", "it is there already, or a project's making builds it: cancel that", nil)
	}
	end(errImageGivenUp)
	return nil
}
