package core

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"glasshouse/app/config"
	"glasshouse/backend/agent/turn"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/policy"
	"glasshouse/vm/proc"
)

// paths is an installation of its own, below a short folder: a socket lives in it.
func paths(t *testing.T) config.Paths {
	t.Helper()
	dir, err := os.MkdirTemp("", "ghc")
	if err != nil {
		t.Fatal(err)
	}
	proc.UseSelf("") // a root core's copy of the binary lies in its data folder
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := config.Paths{Data: filepath.Join(dir, "d"), Config: filepath.Join(dir, "c"), Cache: filepath.Join(dir, "k")}
	if err := os.MkdirAll(p.Config, 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// running is a core that serves; end ends it as a signal does.
func running(t *testing.T, p config.Paths) (end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, Options{Paths: p, Version: "test", Log: io.Discard}) }()
	ended := false
	end = func() error {
		if ended {
			return nil
		}
		ended = true
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(time.Minute):
			t.Fatal("the core does not end")
			return nil
		}
	}
	t.Cleanup(func() { _ = end() })
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", p.Socket())
	}}}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if res, err := client.Get("http://core/v1/sessions"); err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return end
			}
		}
		select {
		case err := <-done:
			ended = true
			t.Fatalf("the core ended: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("the core does not answer")
		}
	}
}

// Whatever stops a core at its start is an error that says what to do, leaves what
// was there as it was, and lets go of the lock.
func TestOpenFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(t *testing.T, p *config.Paths)
		code  domain.ErrorCode
		has   string
	}{
		"a damaged log": {func(t *testing.T, p *config.Paths) {
			write(t, filepath.Join(p.Data, eventlog.FileName), strings.Repeat("this is no database ", 300))
		}, domain.CodeUnavailable, "left"},
		"settings that cannot be read": {func(t *testing.T, p *config.Paths) { write(t, p.ConfigFile(), "machine = \n") }, domain.CodeInvalid, "config.toml"},
		"an unknown setting":           {func(t *testing.T, p *config.Paths) { write(t, p.ConfigFile(), "memmory = 3\n") }, domain.CodeInvalid, "memmory"},
		"a socket path too long": {func(t *testing.T, p *config.Paths) {
			p.Data = filepath.Join(p.Data, strings.Repeat("x", 120))
		}, domain.CodeInvalid, "GLASSHOUSE_DATA"},
		"a data folder that is a file": {func(t *testing.T, p *config.Paths) { write(t, p.Data, "x") }, domain.CodeUnavailable, "GLASSHOUSE_DATA"},
		"a folder where the socket is": {func(t *testing.T, p *config.Paths) { write(t, filepath.Join(p.Socket(), "x"), "x") }, domain.CodeUnavailable, "socket"},
	} {
		t.Run(name, func(t *testing.T) {
			p := paths(t)
			tc.spoil(t, &p)
			err := Run(context.Background(), Options{Paths: p, Version: "test", Log: io.Discard})
			if domain.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.has) {
				t.Fatalf("%v", err)
			}
			if name == "a socket path too long" {
				if _, err := os.Stat(p.Data); err == nil {
					t.Error("the folder was made all the same")
				}
				return
			}
			if f, err := os.OpenFile(p.Lock(), os.O_RDWR, 0); err == nil {
				f.Close()
				lk, err := lock(p)
				if err != nil {
					t.Fatalf("the lock is still held: %v", err)
				}
				unlock(lk)
			}
		})
	}
}

func TestSecondCoreIsTold(t *testing.T) {
	p := paths(t)
	end := running(t, p)
	err := Run(context.Background(), Options{Paths: p, Version: "test", Log: io.Discard})
	if domain.CodeOf(err) != domain.CodeConflict || !strings.Contains(err.Error(), "running already (process ") {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.Socket()); err != nil {
		t.Fatal("the second core took the first one's socket away")
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
}

// Who only looks whether a core runs keeps none from beginning, however slow the look is.
func TestLookingKeepsNoCoreOut(t *testing.T) {
	p := paths(t)
	if err := p.Prepare(); err != nil {
		t.Fatal(err)
	}
	if pid, err := Holder(p); pid != 0 || err != nil {
		t.Fatalf("before any core: %d %v", pid, err)
	}
	look, err := os.OpenFile(p.Lock(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(look.Fd()), syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	looked := make(chan struct{})
	time.AfterFunc(time.Second, func() { defer close(looked); unlock(look) })
	lk, err := lock(p)
	<-looked
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := Holder(p); pid != os.Getpid() || err != nil {
		t.Errorf("this process is the core: %d %v", pid, err)
	}
	if second, err := lock(p); domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("a second core: %v %v", second, err)
	}
	unlock(lk)
	if pid, err := Holder(p); pid != 0 || err != nil {
		t.Errorf("after the core: %d %v", pid, err)
	}
}

// A socket that a crash left behind is in nobody's way; after an end in order there is none.
func TestLeftoverSocketAndEnds(t *testing.T) {
	p := paths(t)
	if err := p.Prepare(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", p.Socket())
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if err := running(t, p)(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.Socket()); !os.IsNotExist(err) {
		t.Fatalf("a socket is left: %v", err)
	}
	st, err := os.Stat(p.Data)
	if err != nil || st.Mode().Perm()&0o066 != 0 {
		t.Fatalf("the data folder can be read by others: %v %v", st.Mode(), err)
	}
	// The next core knows that this one ended in order.
	if err := running(t, p)(); err != nil {
		t.Fatal(err)
	}
	log, err := eventlog.Open(p.Data, eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	evs, err := log.Read(context.Background(), eventlog.Filter{Types: []event.Type{"core.started"}})
	if err != nil || len(evs) != 2 {
		t.Fatal(evs, err)
	}
	for _, e := range evs {
		if v, err := event.Decode(e); err != nil || !v.(*event.CoreStarted).Clean {
			t.Errorf("%s %v", e.Data, err)
		}
	}
}

// A policy file with a fault does not open the house: the core runs, says so, and
// what leaves the machine asks.
func TestFaultyPolicy(t *testing.T) {
	p := paths(t)
	write(t, p.PolicyFile(), "[[rule]]\nid = \"x\"\ndecision = \"alow\"\n")
	var said noisy
	c, err := open(context.Background(), Options{Paths: p, Version: "test", Log: &said})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if !strings.Contains(said.String(), "policy") {
		t.Errorf("nobody is told: %s", said.String())
	}
	d, version := c.decide("p_1", policy.Action{Tool: "fetch", Reach: domain.ReachHost, Mode: policy.ModeAuto})
	if d.Decision == domain.Allow || version == "" {
		t.Errorf("%+v", d)
	}
}

func TestUnknownAgent(t *testing.T) {
	c := &Core{}
	if _, err := c.agent(t.Context(), turn.Spec{Kind: "oracle"}, nil); domain.CodeOf(err) != domain.CodeInvalid {
		t.Error(err)
	}
	if _, err := c.agent(t.Context(), turn.Spec{Kind: "playbook", Input: "steps: ["}, nil); domain.CodeOf(err) != domain.CodeInvalid {
		t.Error(err)
	}
}

// What is in the log is the user's alone, although a root core's folder can be passed through.
func TestNobodyElseReadsTheLog(t *testing.T) {
	p := paths(t)
	if err := running(t, p)(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{eventlog.FileName, eventlog.BlobFolder, "core.lock"} {
		st, err := os.Stat(filepath.Join(p.Data, name))
		if err != nil || st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v %v", name, st.Mode(), err)
		}
	}
}
