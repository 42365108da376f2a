package lima

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"glasshouse/vm"
	"glasshouse/vm/proc"
)

// Start implements vm.Machine.
func (x *Machine) Start(ctx context.Context, progress func(vm.Progress)) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	say := reporter(progress)
	if err := x.l.hasDisk(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, x.m.opt.BootTimeout)
	defer cancel()
	x.abort.Store(&cancel)
	defer x.abort.Store(nil)

	p, st := x.l.procs(), x.l.readState()
	switch {
	case p.qemu != nil && p.netd == nil:
		return fmt.Errorf("machine %q: %s", x.l.id, problemNetd)
	case p.qemu != nil && st != nil && st.Phase == "ready" && st.QEMU == p.qemu.pid:
		return nil // adopted as it is
	case p.qemu != nil:
		// A core died while it started the machine: take over its waiting.
		defer x.enter(vm.StateStarting)()
		say("connect", "Waiting for the running machine")
		return x.settle(ctx, start{qemu: p.qemu})
	}
	defer x.enter(vm.StateStarting)()
	if !p.none() {
		// The machine ended under its helpers.
		if err := x.stop(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		defer x.enter(vm.StateStarting)()
	}
	x.l.clear()
	err := x.boot(ctx, say, progress)
	if err != nil && ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return fmt.Errorf("the start of machine %q was cancelled: %w", x.l.id, context.Canceled)
	}
	return err
}

// boot starts a machine of which nothing runs.
func (x *Machine) boot(ctx context.Context, say func(phase, text string), progress func(vm.Progress)) error {
	o := x.m.opt
	mk := x.marker()
	say("image", "Looking for the guest image")
	img, err := o.Image(ctx, mk.ImageHash, progress)
	if err != nil {
		return fmt.Errorf("machine %q needs image %s: %w", x.l.id, mk.ImageHash, err)
	}
	if img.Disk != mk.BaseDisk {
		return fmt.Errorf("machine %q was made over the disk %s, and its image is now at %s; put the image back where it was", x.l.id, mk.BaseDisk, img.Disk)
	}
	if _, err := os.Stat(img.Disk); err != nil {
		return fmt.Errorf("the image that machine %q was made from is gone; without it its disk is worthless: %w", x.l.id, err)
	}
	version, err := x.m.limactlVersion(ctx)
	if err != nil {
		return err
	}
	qemu, err := x.m.qemuPath()
	if err != nil {
		return err
	}
	if _, ok := x.m.cachedAccel(); !ok {
		say("boot", "Finding out how machines run best on this computer")
	}
	accel, err := x.m.Probe(ctx, img)
	if err != nil {
		return err
	}
	if x.l.run != x.l.dir {
		if err := x.makeRun(); err != nil {
			return err
		}
	}
	if err := x.l.prepare(mk.Spec, img, accel, version, o.Self, qemu, o.User); err != nil {
		return err
	}
	say("boot", "Starting the machine")
	err = x.bootOnce(ctx, say, true)
	if errors.Is(err, errStill) {
		x.m.log.Warn("the machine stood still while it started and is started again", "machine", x.l.id, "err", err)
		say("boot", "Starting the machine again: it stood still")
		x.l.clear()
		err = x.bootOnce(ctx, say, false)
	}
	return err
}

// bootOnce starts what a machine consists of and waits until guestd answers; after an
// error nothing of it is left. With again one that stands still is given up with errStill.
func (x *Machine) bootOnce(ctx context.Context, say func(phase, text string), again bool) error {
	if err := x.l.writeState(runState{Phase: "starting"}); err != nil {
		return fmt.Errorf("the machine's state cannot be kept: %w", err)
	}
	netd, err := x.startNetd(ctx)
	if err == nil {
		var ctl *proc.Process
		if ctl, err = x.startLima(ctx); err == nil {
			say("connect", "Waiting for the machine to answer")
			if err = x.settle(ctx, start{netd: netd, ctl: ctl, again: again}); err == nil {
				return nil
			}
			err = fmt.Errorf("machine %q did not come up: %w\n%s", x.l.id, err, x.lastWords())
			x.giveUp(ctl)
			return err
		}
	}
	x.giveUp(nil)
	return err
}

// makeRun makes the short folder of a machine whose own path is too long.
func (x *Machine) makeRun() error {
	short := filepath.Dir(x.l.run)
	if err := os.MkdirAll(short, 0o711); err != nil {
		return fmt.Errorf("the folder for sockets cannot be made: %w", err)
	}
	fi, err := os.Lstat(x.l.run)
	switch {
	case os.IsNotExist(err):
		return x.m.mkdirOwned(x.l.run)
	case err != nil:
		return fmt.Errorf("the folder for sockets cannot be used: %w", err)
	}
	owner, _, ok := ownerOf(fi)
	want := uint32(os.Geteuid())
	if x.m.opt.User != nil {
		want = x.m.opt.User.UID
	}
	if !fi.IsDir() || fi.Mode().Perm()&0o077 != 0 || ok && owner != want {
		return fmt.Errorf("the folder for sockets %s is open to others or not the service user's own; remove it", x.l.run)
	}
	return nil
}

// log opens a log file in the run folder for a process to write to.
func (x *Machine) log(name string) (*os.File, error) {
	f, err := openFolder(x.l.run, x.m.opt.User)
	if err != nil {
		return nil, err
	}
	defer f.root.Close()
	w, err := f.create(name, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the log %s cannot be made: %w", name, err)
	}
	return w, nil
}

func (x *Machine) startNetd(ctx context.Context) (*proc.Process, error) {
	log, err := x.log("netd.log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p, err := x.m.opt.Runner.Start(ctx, proc.Cmd{
		Role: "netd", Path: x.m.opt.Self, User: x.m.opt.User, Dir: x.l.run, Stdout: log, Stderr: log, Detach: true,
		Args: []string{"netd", "-dir", x.l.net(), "-name", instName, "-chan", x.l.chanSock(), "-macfile", x.l.macFile(), "-seriallog", x.l.in("serial.log")},
	})
	if err != nil {
		return nil, err
	}
	for {
		if _, err := os.Lstat(x.l.netSock("qemu")); err == nil {
			return p, nil
		}
		select {
		case <-p.Done():
			return nil, fmt.Errorf("machine %q: its network process did not start: %s", x.l.id, x.lastWords())
		case <-ctx.Done():
			_ = p.Kill()
			<-p.Done() // who stops the machine next finds no trace of it
			return nil, fmt.Errorf("machine %q: its network process did not start: %w", x.l.id, context.Cause(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// startLima starts limactl, which becomes the instance's host agent: with
// --foreground no second process waits for Lima's own idea of being ready.
func (x *Machine) startLima(ctx context.Context) (*proc.Process, error) {
	log, err := x.log("limactl.log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/bin:/usr/bin:/bin"
	}
	env := []string{
		"PATH=" + filepath.Join(x.l.run, "bin") + ":" + path,
		"HOME=" + os.Getenv("HOME"),
		"LANG=C.UTF-8",
		"LIMA_HOME=" + x.l.home(),
		"QEMU_SYSTEM_X86_64=" + shellQuote(x.l.wrapper()),
		"QEMU_SYSTEM_AARCH64=" + shellQuote(x.l.wrapper()),
	}
	return x.m.opt.Runner.Start(ctx, proc.Cmd{
		Role: "limactl", Path: x.m.opt.Limactl, User: x.m.opt.User, Dir: x.l.run, Env: env, Stdout: log, Stderr: log, Detach: true,
		Args: []string{"--tty=false", "start", "--foreground", instName},
	})
}

// stillAfter is how long a guest that does not answer may leave its disk alone. From its
// kernel's first second to guestd's answer it reads all the time; now and then an
// emulated one hangs on the way, and comes up when it is started once more.
const (
	stillAfter = time.Minute
	stillSteps = 20
)

var errStill = errors.New("the guest neither answers nor uses its disk")

// start is what a start waits with: the processes it has just started, nil when they are
// another core's, whose qemu runs already. again: it can be begun once more.
type start struct {
	netd, ctl *proc.Process
	qemu      *process
	again     bool
}

// settle waits until guestd answers.
func (x *Machine) settle(ctx context.Context, s start) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := make(chan struct{})
	defer func() { <-watch }()
	defer cancel(nil)
	go func() {
		defer close(watch)
		x.watchStart(ctx, cancel, s)
	}()
	var last error
	for {
		err := x.ask(ctx)
		if err == nil {
			q, ok := lookup(x.l.in("qemu.pid"), x.l.in("qemu.pid"))
			if !ok {
				return errors.New("the machine answered and was gone at once")
			}
			return x.l.writeState(runState{Phase: "ready", QEMU: q.pid})
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			cause := context.Cause(ctx)
			if errors.Is(cause, context.DeadlineExceeded) {
				return fmt.Errorf("guestd did not answer within %s: %w", x.m.opt.BootTimeout, cmp.Or(last, cause))
			}
			return cause
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// watchStart ends a wait that became hopeless.
func (x *Machine) watchStart(ctx context.Context, cancel context.CancelCauseFunc, s start) {
	var netdDone, ctlDone <-chan struct{}
	if s.netd != nil {
		netdDone = s.netd.Done()
	}
	if s.ctl != nil {
		ctlDone = s.ctl.Done()
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	// Counted in looks: while the whole host stands still, none is made.
	look := time.NewTicker(x.m.stillAfter / stillSteps)
	defer look.Stop()
	var use uint64
	still, qemu := 0, s.qemu
	for {
		select {
		case <-ctx.Done():
			return
		case <-netdDone:
			cancel(errors.New("its network process ended"))
			return
		case <-ctlDone:
			cancel(errors.New("Lima's host agent ended"))
			return
		case <-look.C:
			if !s.again || qemu == nil {
				continue
			}
			switch now, err := diskUse(x.l.in("qmp.sock")); {
			case err != nil: // unknown
			case now != use:
				use, still = now, 0
			default:
				still++
			}
			if still >= stillSteps {
				cancel(fmt.Errorf("%w since %s", errStill, x.m.stillAfter))
				return
			}
			continue
		case <-tick.C:
		}
		switch {
		case qemu != nil && !qemu.alive():
			cancel(errors.New("QEMU ended"))
			return
		case qemu == nil:
			qemu = x.l.procs().qemu
		}
	}
}

// giveUp ends everything that a failed start left. Nothing of the guest's is at
// stake: it never answered.
func (x *Machine) giveUp(ctl *proc.Process) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if err := x.stop(done); err != nil {
		x.m.log.Error("a failed start is not cleared up", "machine", x.l.id, "err", err)
	}
	if ctl != nil {
		select {
		case <-ctl.Done():
		default:
			// limactl before it wrote its pid file.
			_ = ctl.Kill()
			<-ctl.Done()
			_ = x.stop(done)
		}
	}
}
