//go:build linux

package shim

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/agent/journal"
	"glasshouse/vm/guest/agent/spawn"
)

// job is one execution in a shim.
type job struct {
	Run
	s        *shim
	run      *spawn.Run
	out      [2]*stream // stderr is nil on a terminal
	in       *stdin
	inFile   *os.File
	ptmx     *os.File
	began    time.Time
	timedOut atomic.Bool
	killed   atomic.Bool
	over     chan struct{} // the command itself ended
	record   []byte        // guarded by s.mu; exit.json's text
	empty    bool          // guarded by s.mu; no process of it is left
	gone     bool          // guarded by s.mu; nor anything else, and its end is durable
}

// start begins an execution; how it went reaches the worker as state and exit.
func (s *shim) start(r Run) {
	j := &job{Run: r, s: s, began: time.Now(), over: make(chan struct{})}
	if s.grave != "" {
		j.Cmd.Cgroup, s.grave = s.grave, ""
		if err := limitCgroup(j.Cmd); err != nil {
			log.Printf("shim: limits of %s: %v", r.ID, err)
		}
	}
	err := j.launch()
	s.mu.Lock()
	s.job = j
	s.mu.Unlock()
	if err != nil {
		x := guest.Exit{Code: -1, StartError: err.Error(), StartedAt: j.began, EndedAt: time.Now()}
		close(j.over)
		j.finish(x)()
		s.idle(j)
		return
	}
	s.notify()
	go j.watch()
}

func limitCgroup(r spawn.Request) error {
	put := func(file string, n int) error {
		if n <= 0 {
			return nil
		}
		return os.WriteFile(filepath.Join(r.Cgroup, file), []byte(strconv.Itoa(n)), 0)
	}
	if err := put("pids.max", r.Pids); err != nil {
		return err
	}
	return put("memory.max", r.MemoryMiB<<20)
}

// launch makes the pipes and starts the command.
func (j *job) launch() (err error) {
	var childs []*os.File
	defer func() {
		for _, f := range childs {
			f.Close()
		}
	}()
	limit := j.OutputLimit
	if j.Cmd.TTY != nil {
		j.out[0] = newWindow(j.Dir, limit)
		if j.run, j.ptmx, err = j.s.run.start(j.Cmd, nil); err != nil {
			return err
		}
		j.in = newStdin()
		go j.in.pump(j.ptmx, true, j.s.notify)
		go j.out[0].pump(j.ptmx, j.s.notify)
		return nil
	}
	j.out[0] = newStream(filepath.Join(j.Dir, journal.Streams[0]), limit)
	j.out[1] = newStream(filepath.Join(j.Dir, journal.Streams[1]), limit)
	var reads [2]*os.File
	fail := func() {
		for _, r := range reads {
			if r != nil {
				r.Close()
			}
		}
		if j.inFile != nil {
			j.inFile.Close()
		}
	}
	if j.Stdin {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		childs, j.inFile = append(childs, r), w
	} else {
		null, err := openNull(os.O_RDONLY)
		if err != nil {
			return err
		}
		childs = append(childs, null)
	}
	for i := range reads {
		r, w, err := os.Pipe()
		if err != nil {
			fail()
			return err
		}
		reads[i], childs = r, append(childs, w)
		if err := j.out[i].of(r); err != nil {
			fail()
			return err
		}
	}
	if j.run, _, err = j.s.run.start(j.Cmd, childs); err != nil {
		fail()
		return err
	}
	if j.Stdin {
		j.in = newStdin()
		go j.in.pump(j.inFile, false, j.s.notify)
	}
	for i, r := range reads {
		go j.out[i].pump(r, j.s.notify)
	}
	return nil
}

// watch sees the execution through to the point where nothing of it is left.
func (j *job) watch() {
	var timer *time.Timer
	if j.Timeout > 0 {
		timer = time.AfterFunc(j.Timeout, func() { j.end(j.Grace, &j.timedOut) })
	}
	e := <-j.run.Exited
	close(j.over)
	if timer != nil {
		timer.Stop()
	}
	x := guest.Exit{
		Code: e.Code, Signal: e.Signal,
		TimedOut: j.timedOut.Load(), Killed: j.killed.Load(),
		UserCPU: e.UserCPU, SysCPU: e.SysCPU, MaxRSSKiB: e.MaxRSS,
		StartedAt: j.began, EndedAt: time.Now(),
	}
	j.drain()
	if !e.Empty {
		select {
		case <-j.run.Empty:
		default:
			x.Background = j.s.run.rest()
		}
	}
	j.counters(&x)
	// A disk is slow, and who wants everything of the command to end does not wait for it:
	// its end is written down already.
	durable := make(chan struct{})
	go func(sync func()) {
		defer close(durable)
		sync()
	}(j.finish(x))
	if j.in != nil {
		j.in.kill()
	}
	<-j.run.Empty
	j.left()
	if j.inFile != nil {
		j.inFile.Close()
	}
	for _, o := range j.out {
		if o == nil {
			continue
		}
		select {
		case <-o.done:
		case <-time.After(time.Second): // a process outside the tree got hold of the pipe
		}
	}
	if j.ptmx != nil {
		j.ptmx.Close()
	}
	<-durable
	j.s.idle(j)
}

// left tells that no process is.
func (j *job) left() {
	j.s.mu.Lock()
	j.empty = true
	j.s.mu.Unlock()
	j.s.notify()
}

// drain waits for output that is still on its way: until the streams end, or
// were quiet for a moment although somebody holds them. The moment is counted in waits of
// our own: while this process is stopped, nothing can come and nothing is quiet.
func (j *job) drain() {
	waits := int(drainMax / drainTick)
	for _, o := range j.out {
		if o == nil {
			continue
		}
		last := o.last.Load()
	wait:
		for calm := 0; calm < int(quiet/drainTick) && waits > 0; waits-- {
			select {
			case <-o.done:
				break wait
			case <-time.After(drainTick):
			}
			calm++
			if now := o.last.Load(); now != last {
				last, calm = now, 0
			}
		}
	}
}

// counters adds what the cgroup knows better.
func (j *job) counters(x *guest.Exit) {
	if j.Cmd.Cgroup == "" {
		return
	}
	each := func(file string, f func(key string, n int64)) {
		for line := range strings.Lines(readCgroup(filepath.Join(j.Cmd.Cgroup, file))) {
			if k, v, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ok {
				if n, err := strconv.ParseInt(v, 10, 64); err == nil {
					f(k, n)
				}
			}
		}
	}
	each("memory.events", func(k string, n int64) { x.OOM = x.OOM || k == "oom_kill" && n > 0 })
	each("cpu.stat", func(k string, n int64) {
		switch k {
		case "user_usec":
			x.UserCPU = time.Duration(n) * time.Microsecond
		case "system_usec":
			x.SysCPU = time.Duration(n) * time.Microsecond
		}
	})
}

// readCgroup reads a small file of a cgroup; empty when it cannot be read. It
// goes past package os, which would first make the file known to the poller: the
// caller's exit waits for this.
func readCgroup(name string) string {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var b [4096]byte
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return ""
	}
	return string(b[:n])
}

// finish seals the streams, writes the record and tells it. What it returns makes the
// record durable.
func (j *job) finish(x guest.Exit) (durable func()) {
	ends := [2]*guest.StreamEnd{&x.Stdout, &x.Stderr}
	for i, o := range j.out {
		if o != nil {
			*ends[i] = o.seal()
		}
	}
	record, err := json.Marshal(x)
	if err != nil {
		log.Printf("shim: exit of %s: %v", j.ID, err)
		record = []byte(`{"Unknown":true}`)
	}
	sync, err := journal.WriteExit(j.Dir, record)
	if err != nil {
		log.Printf("shim: the exit of %s cannot be written down: %v", j.ID, err)
	}
	j.s.mu.Lock()
	j.record = record
	j.s.mu.Unlock()
	j.s.notify()
	return func() {
		if sync == nil {
			return
		}
		if err := sync(); err != nil && !errors.Is(err, fs.ErrNotExist) { // forgotten already
			log.Printf("shim: the exit of %s cannot be made durable: %v", j.ID, err)
		}
	}
}

// end stops the whole tree: SIGTERM, then SIGKILL after grace. why is set when
// the command itself was still running.
func (j *job) end(grace time.Duration, why *atomic.Bool) {
	if j.run == nil {
		return // it never started
	}
	select {
	case <-j.over:
	default:
		why.Store(true)
	}
	if grace > 0 {
		sigs := []syscall.Signal{syscall.SIGTERM}
		if j.ptmx != nil {
			sigs = append(sigs, syscall.SIGHUP) // a shell at a terminal ignores the other
		}
		j.s.run.signal(j.run, true, append(sigs, syscall.SIGCONT)...)
		select {
		case <-j.run.Empty:
			return
		case <-time.After(grace):
		}
	}
	j.s.run.killAll(j.run)
}

func (j *job) endRest() {
	select {
	case <-j.over:
		go j.end(termGrace, new(atomic.Bool))
	default: // still running: not what EndSession is for
	}
}

func (j *job) steer(m Steer) {
	select {
	case <-j.over:
		return
	default:
	}
	if m.Size != nil && j.ptmx != nil {
		_ = pty.Setsize(j.ptmx, winsize(*m.Size)) // a terminal that just ended has no size
	}
	if m.Sig > 0 {
		j.s.run.signal(j.run, false, syscall.Signal(m.Sig))
	}
}
