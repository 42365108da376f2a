//go:build linux

// Package chromium starts headless Chromium in the guest and hands over its
// DevTools pipe. There is no debug port: who holds the pipe drives the browser,
// and nobody else.
package chromium

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/agent/cell"
	"glasshouse/vm/guest/agent/spawn"
)

// Binary is where the image has the browser.
const Binary = "/usr/lib/chromium/chromium-headless-shell"

// Config of a Launcher.
type Config struct {
	Binary   string // default Binary
	Home     string
	Proxy    string       // address of the door; empty = no proxy
	Env      [][]byte     // of the process
	UID, GID int          // below 0 = as guestd
	Cgroups  string       // parent of the browsers' cgroups; empty = none
	Cell     *cell.Config // run in an inner sandbox
}

// Launcher keeps one browser per profile.
type Launcher struct {
	cfg Config

	mu        sync.Mutex
	seq       int
	live      map[string]*Browser
	noSandbox bool // learned: Chromium's own sandbox does not work here
}

// ErrInUse: a browser of that profile is running for somebody.
var ErrInUse = errors.New("a browser of that profile is running already")

const (
	startWait  = 90 * time.Second // emulated machines are slow
	closeWait  = 3 * time.Second
	closeTicks = 30
	probeID    = 1<<31 - 7 // of our own first command
)

// New returns a Launcher.
func New(cfg Config) *Launcher {
	if cfg.Binary == "" {
		cfg.Binary = Binary
	}
	return &Launcher{cfg: cfg, live: map[string]*Browser{}}
}

// Browser is a running one. Read and Write are the DevTools pipe.
type Browser struct {
	Spec      guest.BrowserSpec
	NoSandbox bool

	l      *Launcher
	cmd    *exec.Cmd
	in     *os.File // to Chromium
	out    *os.File // from Chromium
	rest   []byte   // read past the answer to our probe
	cgroup string
	ended  chan struct{}
	once   sync.Once
	errs   tail
}

// Start runs a browser and returns once it answers.
func (l *Launcher) Start(ctx context.Context, spec guest.BrowserSpec) (*Browser, error) {
	if err := l.reserve(ctx, spec.Profile); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	l.mu.Lock()
	bare := l.noSandbox
	l.mu.Unlock()
	b, err := l.start(ctx, spec, bare)
	if err != nil && !bare && strings.Contains(err.Error(), "No usable sandbox") {
		log.Printf("browser: Chromium's own sandbox cannot be used in this guest; starting without it: %v", err)
		l.mu.Lock()
		l.noSandbox = true
		l.mu.Unlock()
		b, err = l.start(ctx, spec, true)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		delete(l.live, spec.Profile)
		return nil, err
	}
	select {
	case <-b.ended:
		delete(l.live, spec.Profile)
	default:
		l.live[spec.Profile] = b
	}
	return b, nil
}

// reserve takes the profile, waiting a moment for one that is just ending. The moment is
// counted in waits of our own: while this process is stopped, nothing can end.
func (l *Launcher) reserve(ctx context.Context, profile string) error {
	for waits := 0; ; waits++ {
		l.mu.Lock()
		old, taken := l.live[profile]
		if !taken {
			l.live[profile] = nil
		}
		l.mu.Unlock()
		if !taken {
			return nil
		}
		var ended <-chan struct{}
		if old != nil {
			ended = old.ended
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(closeWait / closeTicks):
			if waits >= closeTicks {
				return fmt.Errorf("%w: %s", ErrInUse, profile)
			}
		}
	}
}

// Args is Chromium's command line.
func Args(cfg Config, spec guest.BrowserSpec, noSandbox bool) []string {
	width, height := spec.Width, spec.Height
	if width <= 0 || height <= 0 {
		width, height = 1280, 800
	}
	a := []string{
		"--headless", "--remote-debugging-pipe",
		"--user-data-dir=" + filepath.Join(cfg.Home, ".cache/glasshouse/browser", spec.Profile),
		"--window-size=" + strconv.Itoa(width) + "," + strconv.Itoa(height),
		"--no-first-run", "--no-default-browser-check", "--disable-background-networking", "--disable-component-update",
		"--disable-sync", "--disable-quic", "--disable-domain-reliability", "--disable-breakpad", "--disable-client-side-phishing-detection",
		"--disable-default-apps", "--disable-gpu", "--metrics-recording-only", "--no-pings", "--password-store=basic",
		"--disable-features=Translate,MediaRouter,OptimizationHints,AutofillServerCommunication,CertificateTransparencyComponentUpdater,NetworkTimeServiceQuerying",
		// A page's peer connections must not go around the proxy.
		"--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
	}
	if cfg.Proxy != "" {
		// The loopback goes direct: it is where the agent's own servers listen.
		a = append(a, "--proxy-server=http://"+cfg.Proxy, "--proxy-bypass-list=127.0.0.1;localhost;[::1]")
	}
	if noSandbox {
		a = append(a, "--no-sandbox")
	}
	return append(a, "about:blank")
}

func (l *Launcher) start(ctx context.Context, spec guest.BrowserSpec, noSandbox bool) (*Browser, error) {
	if _, err := os.Stat(l.cfg.Binary); err != nil {
		return nil, fmt.Errorf("this guest has no browser: %w", err)
	}
	toRead, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer toRead.Close()
	out, toWrite, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer toWrite.Close()
	b := &Browser{Spec: spec, NoSandbox: noSandbox, l: l, in: in, out: out, ended: make(chan struct{})}
	argv := append([]string{l.cfg.Binary}, Args(l.cfg, spec, noSandbox)...)
	attr := &syscall.SysProcAttr{Setsid: true}
	if l.cfg.Cell != nil {
		argv = append([]string{cell.Bwrap}, cell.CommandArgs(*l.cfg.Cell, "/", argv)...)
	} else if l.cfg.UID >= 0 {
		attr.Credential = &syscall.Credential{Uid: uint32(l.cfg.UID), Gid: uint32(l.cfg.GID)}
	}
	if l.cfg.Cgroups != "" {
		l.mu.Lock()
		l.seq++
		b.cgroup = filepath.Join(l.cfg.Cgroups, "b"+strconv.Itoa(os.Getpid())+"-"+strconv.Itoa(l.seq))
		l.mu.Unlock()
		if err := os.Mkdir(b.cgroup, 0o755); err == nil {
			d, err := os.Open(b.cgroup)
			if err != nil {
				return nil, err
			}
			defer d.Close()
			attr.UseCgroupFD, attr.CgroupFD = true, int(d.Fd())
		} else {
			log.Printf("browser: cgroup: %v", err)
			b.cgroup = ""
		}
	}
	b.cmd = exec.Command(argv[0], argv[1:]...)
	b.cmd.Dir = "/"
	for _, e := range l.cfg.Env {
		b.cmd.Env = append(b.cmd.Env, string(e))
	}
	b.cmd.ExtraFiles = []*os.File{toRead, toWrite}
	b.cmd.Stderr = &b.errs
	b.cmd.WaitDelay = time.Second
	b.cmd.SysProcAttr = attr
	if err := b.cmd.Start(); err != nil {
		in.Close()
		out.Close()
		b.removeCgroup()
		return nil, fmt.Errorf("the browser cannot be started: %w", err)
	}
	go b.wait()
	toRead.Close()
	toWrite.Close()
	if err := b.probe(ctx); err != nil {
		b.Close()
		<-b.ended
		return nil, fmt.Errorf("the browser does not come up: %w; it said: %s", err, b.errs.String())
	}
	return b, nil
}

// probe asks the browser one thing and takes the answer out of the pipe.
func (b *Browser) probe(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { b.kill() })
	defer stop()
	id := strconv.Itoa(probeID)
	if _, err := b.in.WriteString(`{"id":` + id + `,"method":"Browser.getVersion"}` + "\x00"); err != nil {
		return err
	}
	var got []byte
	buf := make([]byte, 16<<10)
	for len(got) < 1<<20 {
		n, err := b.out.Read(buf)
		got = append(got, buf[:n]...)
		for {
			i := bytes.IndexByte(got, 0)
			if i < 0 {
				break
			}
			msg := got[:i]
			got = got[i+1:]
			if bytes.Contains(msg, []byte(`"id":`+id)) {
				b.rest = append([]byte(nil), got...)
				return ctx.Err()
			}
		}
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
	}
	return errors.New("it floods its pipe")
}

func (b *Browser) Read(p []byte) (int, error) {
	if len(b.rest) > 0 {
		n := copy(p, b.rest)
		b.rest = b.rest[n:]
		return n, nil
	}
	n, err := b.out.Read(p)
	if errors.Is(err, os.ErrClosed) {
		err = io.EOF
	}
	return n, err
}

func (b *Browser) Write(p []byte) (int, error) { return b.in.Write(p) }

// Ended is closed when nothing of the browser is left.
func (b *Browser) Ended() <-chan struct{} { return b.ended }

// Close ends the browser and everything it started.
func (b *Browser) Close() error {
	b.once.Do(func() {
		b.in.Close() // an orderly end: Chromium leaves when its pipe does
		go func() {
			select {
			case <-b.ended:
			case <-time.After(closeWait / 2):
				b.kill()
			}
		}()
	})
	return nil
}

func (b *Browser) kill() {
	pid := b.cmd.Process.Pid
	rest := spawn.Descendants(pid)
	if b.cgroup != "" {
		spawn.KillCgroup(b.cgroup)
	}
	syscall.Kill(-pid, syscall.SIGKILL)
	for _, p := range rest {
		syscall.Kill(p, syscall.SIGKILL)
	}
}

func (b *Browser) wait() {
	_ = b.cmd.Wait() // however it ended, it is over
	if b.cgroup != "" {
		spawn.KillCgroup(b.cgroup)
	} else {
		syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
	}
	b.in.Close()
	b.removeCgroup()
	b.l.mu.Lock()
	if b.l.live[b.Spec.Profile] == b {
		delete(b.l.live, b.Spec.Profile)
	}
	b.l.mu.Unlock()
	close(b.ended)
}

func (b *Browser) removeCgroup() {
	for n := 0; b.cgroup != "" && n < 50; n++ {
		if err := os.Remove(b.cgroup); err == nil || os.IsNotExist(err) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// EndSession closes the browsers of a session; empty = all. It waits for them.
func (l *Launcher) EndSession(ctx context.Context, session string) {
	l.mu.Lock()
	var all []*Browser
	for _, b := range l.live {
		if b != nil && (session == "" || b.Spec.Session == session) {
			all = append(all, b)
		}
	}
	l.mu.Unlock()
	for _, b := range all {
		b.Close()
	}
	for _, b := range all {
		select {
		case <-b.ended:
		case <-ctx.Done():
			return
		}
	}
}

// ByCgroup and ByProcess find the browser a process belongs to.
func (l *Launcher) ByCgroup(name string) *Browser {
	return l.find(func(b *Browser) bool { return b.cgroup != "" && filepath.Base(b.cgroup) == name })
}

func (l *Launcher) ByProcess(pid int) *Browser {
	return l.find(func(b *Browser) bool { return b.cmd.Process.Pid == pid })
}

func (l *Launcher) find(is func(*Browser) bool) *Browser {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.live {
		if b != nil && is(b) {
			return b
		}
	}
	return nil
}

// tail keeps the last of what was written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailKept = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 2*tailKept {
		t.b = append(t.b[:0], t.b[len(t.b)-tailKept:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.b))
}
