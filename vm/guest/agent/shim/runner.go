//go:build linux

package shim

import (
	"os"
	"syscall"
	"time"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/agent/cell"
	"glasshouse/vm/guest/agent/spawn"
)

// runner is where commands run: as our own children, or in a cell.
type runner interface {
	// start returns the terminal's master when the request has a TTY.
	start(spawn.Request, []*os.File) (*spawn.Run, *os.File, error)
	signal(run *spawn.Run, all bool, sigs ...syscall.Signal)
	killAll(run *spawn.Run)
	rest() []guest.BackgroundProcess
	// renew makes the runner ready for the next command once the tree is empty.
	renew(used spawn.Request) error
}

const killWait = 20 * time.Second

type direct struct{ t *spawn.Tree }

func (d direct) start(r spawn.Request, files []*os.File) (*spawn.Run, *os.File, error) {
	if r.TTY != nil {
		return cell.StartTTY(d.t, r)
	}
	run, err := d.t.Start(r, [3]*os.File(files))
	return run, nil, err
}

func (d direct) signal(run *spawn.Run, all bool, sigs ...syscall.Signal) {
	if all {
		d.t.SignalAll(run, sigs...)
		return
	}
	for _, sig := range sigs {
		run.Signal(sig)
	}
}

func (d direct) killAll(run *spawn.Run)          { d.t.KillAll(run.Empty, killWait) }
func (d direct) rest() []guest.BackgroundProcess { return d.t.Rest(64) }
func (d direct) renew(used spawn.Request) error {
	if used.Cgroup == "" && used.MemoryMiB > 0 {
		return errUsedUp
	}
	return nil
}

type celled struct {
	cfg cell.Config
	c   *cell.Cell
}

func newCelled(cfg cell.Config) (*celled, error) {
	c, err := cell.New(cfg)
	return &celled{cfg, c}, err
}

func (c *celled) start(r spawn.Request, files []*os.File) (*spawn.Run, *os.File, error) {
	select {
	case <-c.c.Gone(): // it died while it waited
		if err := c.renew(r); err != nil {
			return nil, nil, err
		}
	default:
	}
	return c.c.Start(r, files)
}

func (c *celled) signal(_ *spawn.Run, all bool, sigs ...syscall.Signal) {
	for _, sig := range sigs {
		c.c.Signal(sig, all)
	}
}

func (c *celled) killAll(*spawn.Run)              { c.c.Close() }
func (c *celled) rest() []guest.BackgroundProcess { return c.c.Rest() }

// renew keeps a cell that ran to its natural end.
func (c *celled) renew(used spawn.Request) error {
	select {
	case <-c.c.Gone():
	default:
		if used.MemoryMiB == 0 && used.Pids == 0 {
			return nil
		}
		c.c.Close()
	}
	n, err := cell.New(c.cfg)
	if err == nil {
		c.c = n
	}
	return err
}
