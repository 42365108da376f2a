package lima

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"glasshouse/vm/proc"
)

// Acceleration is how guests run on this host, found by booting one. That
// /dev/kvm exists and answers says little: guests may hang on it all the same.
type Acceleration struct {
	Name    string            `json:"name"`    // "kvm", "hvf" or "tcg"
	Sandbox bool              `json:"sandbox"` // QEMU's own system call filter works
	Tried   map[string]string `json:"tried"`   // by candidate: "ok after 1.2s" or why not
	Key     string            `json:"key"`     // host boot, QEMU and kernel it holds for
	At      time.Time         `json:"at"`
}

const (
	accelFile = "accel.json"
	// hangAfter is how long a hardware accelerator may take, once the emulated
	// guest, which is always slower, has come up.
	hangAfter = 5 * time.Second
	hangSteps = 20
	tcgMax    = 90 * time.Second
)

// qemuName is the QEMU program for this host's own processor.
func qemuName() string {
	if runtime.GOARCH == "arm64" {
		return "qemu-system-aarch64"
	}
	return "qemu-system-x86_64"
}

// candidates for acceleration here, best first; "tcg" always works where QEMU does.
func candidates() []string {
	if runtime.GOOS == "darwin" {
		return []string{"hvf", "tcg"}
	}
	return []string{"kvm", "tcg"}
}

// Probe finds the accelerator for machines made from img. The answer is kept in
// the data folder until the host restarts or QEMU or the kernel changes.
func (m *Manager) Probe(ctx context.Context, img Image) (Acceleration, error) {
	m.probeMu.Lock()
	defer m.probeMu.Unlock()
	key, err := m.probeKey(img)
	if err != nil {
		return Acceleration{}, err
	}
	if a, ok := m.cachedAccel(); ok && a.Key == key {
		return a, nil
	}
	a, err := m.probe(ctx, img)
	if err != nil {
		return Acceleration{}, err
	}
	a.Key, a.At = key, time.Now()
	b, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return Acceleration{}, err
	}
	if err := os.MkdirAll(m.opt.Root, 0o755); err != nil {
		return Acceleration{}, fmt.Errorf("the data folder cannot be made: %w", err)
	}
	if err := writeDurably(filepath.Join(m.opt.Root, accelFile), append(b, '\n'), 0o600); err != nil {
		m.log.Warn("the accelerator's probe is not remembered", "err", err)
	}
	m.log.Info("accelerator probed", "name", a.Name, "sandbox", a.Sandbox, "tried", a.Tried)
	return a, nil
}

// Acceleration is what the last probe on this host, since it started, found;
// false when there was none yet. It starts nothing.
func (m *Manager) Acceleration() (Acceleration, bool) { return m.cachedAccel() }

// cachedAccel is the last answer, whatever it holds for.
func (m *Manager) cachedAccel() (Acceleration, bool) {
	var a Acceleration
	b, err := readSmall(filepath.Join(m.opt.Root, accelFile), 64<<10)
	if err != nil || json.Unmarshal(b, &a) != nil || a.Name == "" || !strings.HasPrefix(a.Key, bootID()+"/") {
		return Acceleration{}, false
	}
	return a, true
}

// probeKey names everything that could change the answer.
func (m *Manager) probeKey(img Image) (string, error) {
	qemu, err := m.qemuPath()
	if err != nil {
		return "", err
	}
	fi, err := os.Stat(qemu)
	if err != nil {
		return "", fmt.Errorf("QEMU cannot be looked at: %w", err)
	}
	f, err := os.Open(img.Kernel)
	if err != nil {
		return "", fmt.Errorf("the image's kernel cannot be read; build the image again: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("the image's kernel cannot be read: %w", err)
	}
	uid := os.Getuid()
	if m.opt.User != nil {
		uid = int(m.opt.User.UID)
	}
	// The program's size and time stand for QEMU's version and its patches.
	return fmt.Sprintf("%s/%s:%d:%d/%s/%d", bootID(), qemu, fi.Size(), fi.ModTime().UnixNano(), hex.EncodeToString(h.Sum(nil)[:8]), uid), nil
}

type boot struct {
	name string
	took time.Duration
	err  error
}

func (m *Manager) probe(ctx context.Context, img Image) (Acceleration, error) {
	sandbox := runtime.GOOS == "linux"
	a, err := m.probeWith(ctx, img, sandbox)
	if err != nil && sandbox && ctx.Err() == nil && strings.Contains(err.Error(), "sandbox") {
		m.log.Warn("this QEMU has no system call filter; machines run without it")
		return m.probeWith(ctx, img, false)
	}
	return a, err
}

// probeWith boots a guest under every candidate at once and takes the best one
// that came up. The emulated guest is the yardstick: on a busy host everything is
// slow, but a working accelerator is never slower than emulation by seconds.
func (m *Manager) probeWith(ctx context.Context, img Image, sandbox bool) (Acceleration, error) {
	ctx, cancel := context.WithTimeout(ctx, tcgMax)
	defer cancel()
	names := candidates()
	results := make(chan boot, len(names))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	begin := time.Now()
	for _, n := range names {
		wg.Go(func() { results <- m.bootOnce(ctx, img, n, sandbox) })
	}
	a := Acceleration{Sandbox: sandbox, Tried: map[string]string{}}
	done := map[string]boot{}
	// Patience is counted in steps: while the whole host stands still, or this process
	// does, the guest does nothing either, and many steps become one.
	step := time.NewTicker(m.hangAfter / hangSteps)
	defer step.Stop()
	steps, last := 0, 0
	best := names[0]
	for len(done) < len(names) {
		select {
		case b := <-results:
			done[b.name] = b
			a.Tried[b.name] = "came up after " + b.took.Round(10*time.Millisecond).String()
			if b.err != nil {
				a.Tried[b.name] = b.err.Error()
			}
			if b.err == nil && b.name == best {
				a.Name = best
				return a, nil
			}
			if b.err == nil {
				last = max(hangSteps, steps+hangSteps/5)
			}
		case <-step.C:
			if steps++; last == 0 || steps < last {
				continue
			}
			for _, n := range names {
				if b, ok := done[n]; ok && b.err == nil {
					a.Name = n
					break
				} else if !ok {
					a.Tried[n] = fmt.Sprintf("no sign of life within %s, while emulation came up: guests hang on it", time.Since(begin).Round(100*time.Millisecond))
				}
			}
			return a, nil
		case <-ctx.Done():
			return a, fmt.Errorf("no guest could be started to see which accelerator works: %w (%v)", context.Cause(ctx), a.Tried)
		}
	}
	for _, n := range names {
		if done[n].err == nil {
			a.Name = n
			return a, nil
		}
	}
	var why []string
	for _, n := range names {
		why = append(why, n+": "+a.Tried[n])
	}
	return a, errors.New("no guest comes up on this host under any accelerator; check that QEMU works and the image is whole: " + strings.Join(why, "; "))
}

// bootOnce starts the image's kernel and initrd alone and waits for their word.
func (m *Manager) bootOnce(ctx context.Context, img Image, accel string, sandbox bool) boot {
	b := boot{name: accel}
	fail := func(err error) boot { b.err = err; return b }
	if accel == "kvm" {
		if _, err := os.Stat("/dev/kvm"); err != nil {
			return fail(errors.New("there is no /dev/kvm"))
		}
	}
	qemu, err := m.qemuPath()
	if err != nil {
		return fail(err)
	}
	args, err := accelArgs(accel)
	if err != nil {
		return fail(err)
	}
	args = append(args, baseArgs(sandbox)...)
	args = append(args, "-cpu", cpuFor(accel), "-smp", "1", "-m", "256", "-serial", "stdio", "-monitor", "none",
		"-kernel", img.Kernel, "-initrd", img.Initrd, "-append", img.args(accel)+" "+img.ProbeArg)
	begin := time.Now()
	seen := make(chan struct{})
	var errOut limited
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p, err := m.opt.Runner.Start(ctx, proc.Cmd{
		Role: "qemu-probe", Path: qemu, Args: args, Dir: "/", User: m.opt.User, Timeout: tcgMax,
		Stdout: &watcher{want: []byte(img.ProbeLine), seen: seen}, Stderr: &errOut,
	})
	if err != nil {
		return fail(err)
	}
	select {
	case <-seen:
	case <-p.Done():
		select {
		case <-seen:
		default:
			_, werr := p.Wait()
			if werr == nil {
				werr = errors.New("the guest ended without a word")
			}
			if s := printable(errOut.String()); s != "" {
				werr = errors.New(s)
			}
			return fail(werr)
		}
	}
	b.took = time.Since(begin)
	cancel()
	<-p.Done()
	return b
}

// watcher closes seen when the wanted bytes went by.
type watcher struct {
	want []byte
	buf  []byte
	seen chan struct{}
	once sync.Once
}

func (w *watcher) Write(p []byte) (int, error) {
	w.buf = append(w.buf, p...)
	if bytes.Contains(w.buf, w.want) {
		w.once.Do(func() { close(w.seen) })
	}
	if over := len(w.buf) - 4096; over > 0 {
		w.buf = append(w.buf[:0], w.buf[over:]...)
	}
	return len(p), nil
}

// limited keeps the first 4 KiB.
type limited struct {
	mu sync.Mutex
	b  []byte
}

func (l *limited) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if room := 4096 - len(l.b); room > 0 {
		l.b = append(l.b, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

func (l *limited) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.b)
}

// cpuFor is QEMU's processor model. la57 costs an emulated guest another level
// of page tables for nothing.
func cpuFor(accel string) string {
	switch {
	case accel != "tcg":
		return "host"
	case runtime.GOARCH == "amd64":
		return "max,la57=off"
	}
	return "max"
}
