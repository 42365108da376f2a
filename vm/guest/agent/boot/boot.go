//go:build linux

// Package boot is `guestd init`: the tiny parent that is pid 1 of a guest. It
// holds the listener, starts the worker and starts it again when it dies, reaps
// what nobody else waits for, and ends the guest. It does as little as it can,
// because nothing restarts it.
package boot

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/agent"
	"glasshouse/vm/guest/agent/spawn"
)

const (
	backoffMin = 50 * time.Millisecond
	backoffMax = 5 * time.Second
	leaveWait  = 6 * time.Second // for the worker to end what runs
)

// Main runs init with the arguments after the subcommand and does not return
// before the guest ends.
func Main(args []string) error {
	fs := flag.NewFlagSet("init", flag.ContinueOnError)
	sandbox := fs.Bool("sandbox", false, "inside an unprivileged outer sandbox")
	direct := fs.Bool("direct", false, "for tests: no privilege change and no inner sandboxes")
	socket := fs.String("socket", "/run/glasshouse/chan.sock", "unix socket to listen on (sandbox, direct)")
	state := fs.String("state", "/var/lib/glasshouse", "folder kept over restarts")
	workspace := fs.String("workspace", guest.Workspace, "direct only")
	home := fs.String("home", guest.Home, "direct only")
	proxy := fs.String("proxy", guest.ProxyAddr, "direct only: where the door is offered, or \"off\"")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("init takes no arguments, got %q", fs.Args())
	}
	cfg := agent.Config{State: *state, Workspace: guest.Workspace, Home: guest.Home, Proxy: guest.ProxyAddr}
	syscall.Umask(0o022)
	sigs := make(chan os.Signal, 16)
	signal.Notify(sigs, syscall.SIGTERM, syscall.SIGINT, syscall.SIGPWR, syscall.SIGUSR2, syscall.SIGCHLD)
	spawn.Deaf(syscall.SIGHUP)
	switch {
	case *sandbox || *direct:
		cfg.Kind, cfg.BootID = agent.KindSandbox, randomID()
		// Not beside the channel's socket: that folder belongs to the host's driver.
		cfg.Run = *state
		if *direct {
			cfg.Kind, cfg.Workspace, cfg.Home, cfg.Proxy = agent.KindDirect, *workspace, *home, *proxy
			if *proxy == "off" {
				cfg.Proxy = ""
			}
			if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
				return err
			}
		}
		if err := os.MkdirAll(*state, 0o700); err != nil {
			return fmt.Errorf("the state folder cannot be made: %w", err)
		}
		l, err := listenUnix(*socket)
		if err != nil {
			return err
		}
		in := &initer{cfg: cfg, listener: l, sigs: sigs}
		in.run()
		killRest()
		os.Remove(*socket)
		return nil
	default:
		if os.Getpid() != 1 {
			return errors.New("init of a VM must be pid 1; inside a sandbox say --sandbox")
		}
		return vmMain(cfg, sigs)
	}
}

func randomID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func listenUnix(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("the channel's folder cannot be made: %w", err)
	}
	os.Remove(path)
	old := syscall.Umask(0o177)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("the channel's socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	l.Close()
	return f, err
}

type initer struct {
	cfg      agent.Config
	listener *os.File
	sigs     <-chan os.Signal
}

// run keeps the worker alive until the guest is to end.
func (in *initer) run() {
	backoff := backoffMin
	for {
		began := time.Now()
		pid, err := in.start()
		code := -1
		leaving := false
		if err == nil {
			code, leaving = in.watch(pid)
		} else {
			log.Printf("init: the worker cannot be started: %v", err)
		}
		if leaving || code == agent.ExitPowerOff {
			return
		}
		if code == agent.ExitRestart {
			backoff = backoffMin
			continue
		}
		log.Printf("init: the worker ended (code %d) after %v; starting it again", code, time.Since(began).Round(time.Millisecond))
		if time.Since(began) > time.Minute {
			backoff = backoffMin
		}
		if in.pause(backoff) {
			return
		}
		backoff = min(2*backoff, backoffMax)
	}
}

func (in *initer) start() (int, error) {
	arg, err := json.Marshal(in.cfg)
	if err != nil {
		return 0, err
	}
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return 0, err
	}
	// By name, so that an upgraded binary is what is started.
	self = strings.TrimSuffix(self, " (deleted)")
	return syscall.ForkExec(self, []string{"guestd", "serve", string(arg)}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2, in.listener.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
}

// watch waits for the worker's end, passing on the wish to leave.
func (in *initer) watch(pid int) (code int, leaving bool) {
	var force <-chan time.Time
	for {
		if code, ended := reap(pid); ended {
			return code, leaving
		}
		select {
		case sig := <-in.sigs:
			if sig == syscall.SIGCHLD {
				continue
			}
			log.Printf("init: %v: ending", sig)
			leaving = true
			syscall.Kill(pid, syscall.SIGTERM)
			force = time.After(leaveWait)
		case <-force:
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// pause waits between two workers; it returns true when the guest is to end.
func (in *initer) pause(d time.Duration) bool {
	t := time.After(d)
	for {
		reap(-1)
		select {
		case sig := <-in.sigs:
			if sig != syscall.SIGCHLD {
				return true
			}
		case <-t:
			return false
		}
	}
}

// reap collects every dead child and says whether pid was among them.
func reap(pid int) (code int, ended bool) {
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || got <= 0 {
			return code, ended
		}
		if got == pid {
			code, ended = ws.ExitStatus(), true
		}
	}
}
