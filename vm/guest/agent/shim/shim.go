//go:build linux

package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/agent/frame"
	"glasshouse/vm/guest/agent/spawn"
)

const (
	quiet     = 50 * time.Millisecond  // without output after the command's end, while someone holds the pipe
	drainMax  = 500 * time.Millisecond // at most this long
	drainTick = 10 * time.Millisecond
	orphaned  = time.Minute // an idle shim waits this long for a new worker
	uses      = 500         // executions in one shim's life
	termGrace = 2 * time.Second

	defaultPids = 4096 // a fork bomb ends here
)

var errUsedUp = errors.New("limits stay with this process")

type shim struct {
	cfg  Config
	run  runner
	used int

	mu    sync.Mutex
	conn  *frame.Conn // of the worker; nil while there is none
	wake  chan struct{}
	job   *job   // nil = idle
	grave string // the cgroup made ready for the next execution
	seq   int
	worn  atomic.Bool
	quit  chan struct{}
	once  sync.Once
}

// Main is `guestd shim CONFIG`: descriptor 3 is the worker's socket.
func Main(config string) error {
	var cfg Config
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return fmt.Errorf("shim config: %w", err)
	}
	spawn.Deaf(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("the shim cannot be closed to its commands: %w", err)
	}
	first, err := frame.FromFD(3)
	if err != nil {
		return err
	}
	s := &shim{cfg: cfg, wake: make(chan struct{}, 1), quit: make(chan struct{})}
	if cfg.Cell != nil {
		s.run, err = newCelled(*cfg.Cell)
	} else {
		var t *spawn.Tree
		t, err = spawn.New()
		s.run = direct{t}
	}
	if err != nil {
		return err
	}
	s.prepare()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: cfg.Socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("shim socket: %w", err)
	}
	defer os.Remove(cfg.Socket)
	if err := os.Chmod(cfg.Socket, 0o600); err != nil {
		l.Close()
		return fmt.Errorf("shim socket: %w", err)
	}
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			s.serve(frame.New(c))
		}
	}()
	s.serve(first)
	<-s.quit
	l.Close()
	if s.grave != "" {
		os.Remove(s.grave)
	}
	if c, ok := s.run.(*celled); ok {
		c.c.Close()
	}
	return nil
}

func (s *shim) leave() { s.once.Do(func() { close(s.quit) }) }

// prepare makes the next execution's cgroup ahead of time.
func (s *shim) prepare() {
	if s.cfg.Cgroups == "" {
		return
	}
	s.seq++
	dir := filepath.Join(s.cfg.Cgroups, "x"+strconv.Itoa(os.Getpid())+"-"+strconv.Itoa(s.seq))
	if err := os.Mkdir(dir, 0o755); err != nil {
		log.Printf("shim: cgroup: %v", err)
		return
	}
	if err := os.WriteFile(filepath.Join(dir, "pids.max"), []byte(strconv.Itoa(defaultPids)), 0); err != nil {
		log.Printf("shim: %v", err)
	}
	s.grave = dir
}

// serve makes c the worker's connection; an earlier one is dropped.
func (s *shim) serve(c *frame.Conn) {
	s.mu.Lock()
	if s.conn != nil {
		s.conn.Close()
	}
	s.conn = c
	s.mu.Unlock()
	go s.tell(c)
	go s.hear(c)
}

func (s *shim) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// tell sends the state whenever it changed. A slow worker holds up only this.
func (s *shim) tell(c *frame.Conn) {
	told := false // the exit of the current job
	var of *job
	for {
		s.mu.Lock()
		if s.conn != c {
			s.mu.Unlock()
			s.notify() // the wake-up was for the new connection
			return
		}
		j := s.job
		st := State{Pid: os.Getpid(), Worn: s.worn.Load()}
		var record []byte
		if j != nil {
			if j != of {
				of, told = j, false
			}
			st.ID, st.Started, st.Ended, st.Empty, st.Cgroup = j.ID, true, j.record != nil, j.empty, j.Cmd.Cgroup
			for i, o := range j.out {
				if o != nil {
					st.Kept[i] = o.kept.Load()
				}
			}
			if j.in != nil {
				st.StdinGot, st.StdinPut = j.in.got.Load(), j.in.put.Load()
			}
			record = j.record
		}
		s.mu.Unlock()
		exit := []byte(nil)
		if !told {
			exit, told = record, record != nil
		}
		if send(c, st, exit) != nil {
			return
		}
		if told && s.forget(j) {
			continue
		}
		select {
		case <-s.wake:
		case <-s.quit:
			return
		}
	}
}

// send sends the state and, in the same write, the exit record if there is one:
// the worker is woken once.
func send(c *frame.Conn, st State, exit []byte) error {
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	frames := []frame.Frame{{Type: FrState, Payload: b}}
	if exit != nil {
		frames = append(frames, frame.Frame{Type: FrExit, Payload: exit})
	}
	return c.SendFrames(frames...)
}

// forget makes the shim idle once nothing of j is left and its end was told.
func (s *shim) forget(j *job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j == nil || s.job != j || !j.gone {
		return false
	}
	s.job = nil
	return true
}

// hear obeys the worker until its connection ends.
func (s *shim) hear(c *frame.Conn) {
	defer s.lose(c)
	for {
		typ, b, files, err := c.Recv()
		for _, f := range files {
			f.Close()
		}
		if err != nil {
			return
		}
		s.mu.Lock()
		j := s.job
		s.mu.Unlock()
		switch typ {
		case FrRun:
			var r Run
			if err := json.Unmarshal(b, &r); err != nil || j != nil {
				log.Printf("shim: a command that cannot be taken: %v", err)
				return
			}
			s.start(r)
		case FrStdin:
			if j != nil && j.in != nil {
				j.in.add(b)
			}
		case FrCloseStdin:
			if j != nil && j.in != nil {
				j.in.close()
			}
		case FrSteer:
			var m Steer
			if json.Unmarshal(b, &m) == nil && j != nil {
				j.steer(m)
			}
		case FrKill:
			var k Kill
			if json.Unmarshal(b, &k) == nil && j != nil {
				go j.end(k.Grace, &j.killed)
			}
		case FrEnd:
			if j != nil {
				j.endRest()
			}
		case FrQuit:
			if j == nil {
				s.leave()
				return
			}
		}
	}
}

// lose is called when a worker's connection ended.
func (s *shim) lose(c *frame.Conn) {
	c.Close()
	s.mu.Lock()
	if s.conn == c {
		s.conn = nil
		if s.job != nil && s.job.gone {
			s.job = nil // a new worker reads the journal
		}
	}
	s.mu.Unlock()
	s.notify()
	s.leaveUnlessWanted()
}

// leaveUnlessWanted ends an idle shim that no worker comes for.
func (s *shim) leaveUnlessWanted() {
	time.AfterFunc(orphaned, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.conn == nil && s.job == nil {
			s.leave()
		}
	})
}

// idle is called when nothing of a job is left.
func (s *shim) idle(j *job) {
	s.used++
	err := s.run.renew(j.Cmd)
	if j.Cmd.Cgroup != "" {
		removeCgroup(j.Cmd.Cgroup)
	}
	s.prepare()
	s.mu.Lock()
	j.gone = true
	if s.conn == nil {
		s.job = nil
	}
	s.mu.Unlock()
	if err != nil || s.used >= uses {
		s.worn.Store(true) // the worker sends it away once it was told everything
	}
	s.notify()
	s.leaveUnlessWanted()
}

func removeCgroup(dir string) {
	ents, _ := os.ReadDir(dir)
	for _, e := range ents {
		if e.IsDir() {
			removeCgroup(filepath.Join(dir, e.Name()))
		}
	}
	os.Remove(dir)
}

func openNull(flag int) (*os.File, error) { return os.OpenFile(os.DevNull, flag, 0) }

func winsize(w guest.Winsize) *pty.Winsize { return &pty.Winsize{Rows: w.Rows, Cols: w.Cols} }
