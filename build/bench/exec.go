package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"glasshouse/app/httpapi"
	"glasshouse/vm/image"
	"glasshouse/vm/proc"
)

// The targets: the largest ratio of ours to a peer's.
const (
	targetShell = 0.25 // exec against limactl shell
	targetMux   = 0.75 // exec against multiplexed ssh
	targetCold  = 0.35 // cold create to the first exec against READY
)

// rest is the pause before each measured execution.
const rest = 50 * time.Millisecond

// bench holds what has to be cleaned up.
type bench struct {
	bin  string
	dir  string // short, for it holds sockets
	run  *proc.Runner
	core *core
	lima *lima
	done bool
}

func newBench(bin string) (*bench, error) {
	bin, err := absBin(bin)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "ghb-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil { // the service user passes through
		return nil, err
	}
	b := &bench{bin: bin, dir: dir, run: &proc.Runner{}}
	b.core = newCore(b.run, bin, dir)
	return b, nil
}

// exec is the whole comparison.
func (b *bench) exec(ctx context.Context, rounds, cold int) (*report, error) {
	before := load()
	say("starting the core in %s", b.dir)
	if err := b.core.start(ctx); err != nil {
		return nil, err
	}
	say("guest image")
	hash, err := b.core.image(ctx)
	if err != nil {
		return nil, err
	}
	say("one machine of each that is not measured: our accelerator's probe and the disk's cache are warm afterwards")
	m, _, err := b.core.create(ctx, "warm")
	if err != nil {
		return nil, err
	}
	accel, err := b.accelerator(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.core.remove(ctx, m); err != nil {
		return nil, err
	}
	img, err := image.OpenDir(filepath.Join(b.core.data, "images", hash), filepath.Join(b.bin, "guestd"))
	if err != nil {
		return nil, err
	}
	if b.lima, err = newLima(b.run, b.bin, b.dir, img, accel); err != nil {
		return nil, err
	}
	version, err := b.lima.version(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := b.lima.start(ctx, "warm"); err != nil {
		return nil, err
	}
	if err := b.lima.remove(ctx, "warm"); err != nil {
		return nil, err
	}
	rep := &report{}
	m, err = b.cold(ctx, rep, cold)
	if err != nil {
		return nil, err
	}
	if err := b.warm(ctx, rep, m, rounds); err != nil {
		return nil, err
	}
	rep.about = []string{
		fmt.Sprintf("host: %d cores, load average %s before and %s after; guests: %d processors, %d MiB, accelerator %s, image %s", runtime.NumCPU(), before, load(), cpus, memoryMiB, accel, hash[:12]),
		"ours: over HTTP on the core's socket, through policy and log; each execution's events were found in the log",
		fmt.Sprintf("peer: %s in plain mode, same image, kernel command line and size, its own (slirp) network, both machines running at once", version),
		"cold: from nothing to the first command answered, against limactl start of a new instance; image built, accelerator probed and one machine of each made before",
	}
	return rep, nil
}

// accelerator is what the core found to work here.
func (b *bench) accelerator(ctx context.Context) (string, error) {
	var in httpapi.Info
	if err := b.core.call(ctx, http.MethodGet, "/v1/info", nil, &in); err != nil {
		return "", err
	}
	a := in.Kinds["lima"].Accelerator
	if a == "" {
		return "", errors.New("the core does not tell the accelerator of its machine")
	}
	return a, nil
}

// cold measures starts in turn, one machine at a time; the last of each kind is
// left running.
func (b *bench) cold(ctx context.Context, rep *report, n int) (last machine, err error) {
	ours, peer := &series{name: "glasshouse: create to first exec"}, &series{name: "plain lima: start to READY"}
	rep.colds = []*series{ours, peer}
	one := map[bool]func(i int) error{
		true: func(i int) error {
			m, took, err := b.core.create(ctx, fmt.Sprintf("cold%d", i))
			if err != nil {
				return err
			}
			ours.add(took)
			say("cold %d: glasshouse %.2f s", i, took.Seconds())
			if i < n {
				return b.core.remove(ctx, m)
			}
			last = m
			return b.core.power(ctx, m, "stop")
		},
		false: func(i int) error {
			name := fmt.Sprintf("cold%d", i)
			took, err := b.lima.start(ctx, name)
			if err != nil {
				return err
			}
			peer.add(took)
			say("cold %d: plain lima %.2f s", i, took.Seconds())
			if i < n {
				return b.lima.remove(ctx, name)
			}
			return nil
		},
	}
	for i := 1; i <= n; i++ {
		// Who goes first changes, but ends with the peer, for its instance stays.
		first := (n-i)%2 == 0
		for _, who := range []bool{first, !first} {
			syscall.Sync() // what the other one wrote is not this one's to wait for
			if err := one[who](i); err != nil {
				return last, err
			}
		}
	}
	rep.rows = append(rep.rows, compare("cold create to first exec / limactl start to READY", "s", ours.at(50).Seconds(), peer.at(50).Seconds(), targetCold))
	return last, b.core.power(ctx, last, "start")
}

// warm measures the no-op by every way in turn.
func (b *bench) warm(ctx context.Context, rep *report, m machine, rounds int) error {
	name := ""
	for n := range b.lima.started {
		name = n
	}
	if err := b.core.open(ctx, &m); err != nil { // a session of which every step is known
		return err
	}
	execs := 0
	timed := func(f func() error) (time.Duration, error) {
		start := time.Now()
		err := f()
		return time.Since(start), err
	}
	ended := func() (took time.Duration, err error) {
		var step string
		if took, err = timed(func() (err error) { step, err = b.core.exec(ctx, m, "ended"); return err }); err != nil {
			return took, err
		}
		execs++
		if err = b.core.stored(ctx, m, step, untilEnded); err == nil {
			if err = b.core.sealed(ctx, m, step); err == nil {
				err = b.core.stored(ctx, m, step, untilSealed)
			}
		}
		return took, err
	}
	sealed := func() (took time.Duration, err error) {
		var step string
		if took, err = timed(func() (err error) { step, err = b.core.exec(ctx, m, "sealed"); return err }); err != nil {
			return took, err
		}
		execs++
		return took, b.core.stored(ctx, m, step, untilSealed)
	}
	cli := func() (time.Duration, error) {
		took, err := timed(func() error { return b.core.cli(ctx, m) })
		if err != nil {
			return took, err
		}
		execs++
		return took, b.settled(ctx, m, execs)
	}
	ways := []struct {
		*series
		f func() (time.Duration, error)
	}{
		{&series{name: "glasshouse HTTP, wait=ended"}, ended},
		{&series{name: "limactl shell"}, func() (time.Duration, error) { return timed(func() error { return b.lima.shell(ctx, name) }) }},
		{&series{name: "ssh, multiplexed"}, func() (time.Duration, error) { return timed(func() error { return b.lima.mux(ctx, name) }) }},
		{&series{name: "glasshouse HTTP, wait=sealed"}, sealed},
		{&series{name: "glasshouse exec (CLI)"}, cli},
	}
	// Once each without counting; limactl shell opens the master connection.
	for _, w := range ways {
		if w.name == "ssh, multiplexed" {
			continue
		}
		if _, err := w.f(); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	say("%d rounds of %s by %d ways", rounds, noop, len(ways))
	order := rand.New(rand.NewPCG(1, 2)) // the same in each run
	for i := range rounds {
		for _, k := range order.Perm(len(ways)) {
			w := ways[k]
			// What the one before left to do (a login's end, a seal's) is not this one's.
			select {
			case <-time.After(rest):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			took, err := w.f()
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", i+1, w.name, err)
			}
			w.add(took)
		}
	}
	if err := b.core.steps(ctx, m, execs); err != nil {
		return err
	}
	for _, w := range ways {
		rep.execs = append(rep.execs, w.series)
	}
	ours := ways[0].ms(50)
	rep.rows = append([]row{
		compare("no-op exec over HTTP / limactl shell, p50", "ms", ours, ways[1].ms(50), targetShell),
		compare("no-op exec over HTTP / multiplexed ssh, p50", "ms", ours, ways[2].ms(50), targetMux),
	}, rep.rows...)
	return nil
}

// settled waits until all executions of a session are sealed.
func (b *bench) settled(ctx context.Context, m machine, execs int) error {
	for {
		err := b.core.steps(ctx, m, execs)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}
