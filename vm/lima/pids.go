package lima

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A pid file is only a hint: the number may belong to another process by now.
// A process counts as the machine's when its command line names the machine's
// own paths; only such a process is ever signalled.

// process is one of a machine's processes that was alive when it was looked up.
type process struct {
	pid  int
	hint string // what its command line must hold
}

// lookup reads a pid file and returns the process if it is alive and ours.
func lookup(pidFile, hint string) (process, bool) {
	b, err := readSmall(pidFile, 64)
	if err != nil {
		return process{}, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 {
		return process{}, false
	}
	p := process{pid: pid, hint: hint}
	return p, p.alive()
}

// alive reports whether the process still runs and is still the machine's. A
// process that ended and was not reaped yet has no command line.
func (p process) alive() bool {
	line, err := commandLine(p.pid)
	return err == nil && strings.Contains(line, p.hint)
}

// signal sends sig if the process is still the machine's. Where the system has
// handles for processes (Go uses pidfds on Linux) the check and the signal
// cannot hit two different processes.
func (p process) signal(sig syscall.Signal) error {
	h, err := os.FindProcess(p.pid)
	if err != nil {
		return err
	}
	defer func() { _ = h.Release() }() // it lets go of a handle, whatever it says
	if !p.alive() {
		return os.ErrProcessDone
	}
	return h.Signal(sig)
}

// gone waits until the process ended or ctx is done, and reports which.
func (p process) gone(ctx context.Context) bool {
	for pause := 5 * time.Millisecond; p.alive(); {
		select {
		case <-ctx.Done():
			return !p.alive()
		case <-time.After(pause):
		}
		pause = min(pause*2, 40*time.Millisecond)
	}
	return true
}

// end makes the process go: SIGTERM, then SIGKILL after grace.
func (p process) end(grace time.Duration) bool {
	if grace > 0 {
		_ = p.signal(syscall.SIGTERM)
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		if p.gone(ctx) {
			return true
		}
	}
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return false
	}
	// On a busy host even what was killed takes its time to go.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return p.gone(ctx)
}

// procs are the live processes of a machine.
type procs struct{ qemu, agent, netd *process }

func (l layout) procs() procs {
	find := func(file, hint string) *process {
		if p, ok := lookup(file, hint); ok {
			return &p
		}
		return nil
	}
	return procs{
		qemu:  find(l.in("qemu.pid"), l.in("qemu.pid")),
		agent: find(l.in("ha.pid"), l.in("ha.pid")),
		netd:  find(l.netPid(), l.net()),
	}
}

func (p procs) pids() map[string]int {
	m := map[string]int{}
	for role, x := range map[string]*process{"qemu": p.qemu, "hostagent": p.agent, "netd": p.netd} {
		if x != nil {
			m[role] = x.pid
		}
	}
	return m
}

func (p procs) none() bool { return p.qemu == nil && p.agent == nil && p.netd == nil }

// stragglers are processes of the machine that no pid file names: QEMU, or the
// agent, that started while it was already being stopped. They are known by the
// pid file on their command line.
func (l layout) stragglers() (found []process) {
	for _, pid := range allPids() {
		line, err := commandLine(pid)
		if err != nil || pid == os.Getpid() {
			continue
		}
		for _, f := range []string{l.in("qemu.pid"), l.in("ha.pid")} {
			if hint := "-pidfile " + f; strings.Contains(line, hint) {
				found = append(found, process{pid: pid, hint: hint})
				break
			}
		}
	}
	return found
}

// clear deletes the files and sockets of processes that are gone, and what is
// known of the last start. Lima refuses to start an instance over them. What
// cannot be deleted is said by the start that follows.
func (l layout) clear() {
	r, err := os.OpenRoot(l.run)
	if err != nil {
		return
	}
	defer r.Close()
	for _, f := range []string{
		l.in("qemu.pid"), l.in("ha.pid"), l.in("ha.sock"), l.in("qmp.sock"), l.in("serial.sock"), l.in("serialv.sock"), l.in("ssh.sock"),
		l.netPid(), l.netSock("qemu"), l.netSock("fd"), l.netSock("ep"), l.chanSock(), l.macFile(), filepath.Join(l.run, stateFile),
	} {
		_ = r.Remove(l.relRun(f))
	}
}
