package keychain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/zalando/go-keyring"

	"glasshouse/backend/domain"
)

// session is a message bus with a real keychain on it, of this test alone.
func session(t *testing.T) {
	t.Helper()
	for _, name := range []string{"dbus-daemon", "gnome-keyring-daemon"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed, so there is no real keychain to try", name)
		}
	}
	dir, err := os.MkdirTemp("", "ghk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	bus := filepath.Join(dir, "bus")
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "XDG_RUNTIME_DIR=" + dir, "XDG_DATA_HOME=" + dir, "LC_ALL=C.UTF-8", "DBUS_SESSION_BUS_ADDRESS=unix:path=" + bus}
	start := func(stdin, name string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Env, cmd.Stdin, cmd.Dir = env, strings.NewReader(stdin), dir
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	// A bus that starts no services: whoever would ask the person is not there.
	conf := filepath.Join(dir, "bus.conf")
	if err := os.WriteFile(conf, []byte(`<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path=`+bus+`</listen><policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`), 0o600); err != nil {
		t.Fatal(err)
	}
	start("", "dbus-daemon", "--nofork", "--nopidfile", "--config-file="+conf)
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path="+bus)
	// Its socket is there before it listens, and a keychain that meets it then is gone.
	until(t, "the message bus", func() bool {
		c, err := dbus.ConnectSessionBus()
		return err == nil && c.Close() == nil
	})
	start("a password", "gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets")
	until(t, "the keychain", func() bool {
		c, err := dbus.SessionBus()
		if err != nil {
			return false
		}
		var owner string
		return c.BusObject().Call("org.freedesktop.DBus.GetNameOwner", 0, "org.freedesktop.secrets").Store(&owner) == nil
	})
	t.Cleanup(func() {
		if c, err := dbus.SessionBus(); err == nil {
			_ = c.Close()
		}
	})
}

// prompter is what asks the person, and gets no answer.
type prompter struct{ asked chan struct{} }

func (p prompter) BeginPrompting(dbus.ObjectPath) *dbus.Error {
	p.asked <- struct{}{}
	return nil
}

func (p prompter) StopPrompting(dbus.ObjectPath) *dbus.Error { return nil }

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not come up", what)
		}
	}
}

func TestRealKeychain(t *testing.T) {
	session(t)
	k := New("glasshouse-test")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := k.Get(ctx, "model:a"); domain.CodeOf(err) != domain.CodeNotFound {
		t.Fatalf("%v", err)
	}
	for _, v := range []string{canary, "another/" + canary + `'"\`} {
		if err := k.Set(ctx, "model:a", v); err != nil {
			t.Fatal(err)
		}
		if got, err := k.Get(ctx, "model:a"); err != nil || got != v {
			t.Fatalf("%q %v", got, err)
		}
	}
	if _, err := k.Get(ctx, "model:b"); domain.CodeOf(err) != domain.CodeNotFound {
		t.Errorf("%v", err)
	}
	if err := k.Delete(ctx, "model:a"); err != nil {
		t.Error(err)
	}
	if _, err := k.Get(ctx, "model:a"); domain.CodeOf(err) != domain.CodeNotFound {
		t.Errorf("%v", err)
	}
	// Locked, with nobody there who could be asked for the password.
	if err := k.Set(ctx, "model:c", canary); err != nil {
		t.Fatal(err)
	}
	c, err := dbus.SessionBus()
	if err != nil {
		t.Fatal(err)
	}
	var locked []dbus.ObjectPath
	var prompt dbus.ObjectPath
	if err := c.Object("org.freedesktop.secrets", "/org/freedesktop/secrets").Call("org.freedesktop.Secret.Service.Lock", 0, []dbus.ObjectPath{"/org/freedesktop/secrets/collection/login"}).Store(&locked, &prompt); err != nil || len(locked) != 1 {
		t.Fatalf("it cannot be locked: %v %v", locked, err)
	}
	k.wait = 2 * time.Second
	for range 3 {
		if _, err := k.Get(ctx, "model:c"); domain.CodeOf(err) != domain.CodeUnavailable || strings.Contains(err.Error(), canary) {
			t.Errorf("locked: %v", err)
		}
	}
	// Locked, and whoever asks for the password waits for a person who is away.
	away, err := dbus.ConnectSessionBus()
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	asked := make(chan struct{}, 10)
	if err := away.Export(prompter{asked}, "/org/gnome/keyring/Prompter", "org.gnome.keyring.internal.Prompter"); err != nil {
		t.Fatal(err)
	}
	if r, err := away.RequestName("org.gnome.keyring.SystemPrompter", 0); err != nil || r != dbus.RequestNameReplyPrimaryOwner {
		t.Fatal(r, err)
	}
	// The time is over when the person was asked, however long that takes here.
	k.wait = time.Minute
	tired, leave := context.WithCancel(ctx)
	defer leave()
	was := make(chan bool, 1)
	go func() {
		defer leave()
		select {
		case <-asked:
			was <- true
		case <-tired.Done():
			was <- false
		}
	}()
	if _, err := k.Get(tired, "model:c"); domain.CodeOf(err) != domain.CodeUnavailable || !strings.Contains(err.Error(), "in time") {
		t.Errorf("nobody answers: %v", err)
	}
	leave()
	if !<-was {
		t.Error("nobody was asked")
	}
	// No call is left behind that waits for ever.
	until(t, "the end of the calls", func() bool {
		var b strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
		return !strings.Contains(b.String(), "keychain.(*Keychain).do.func")
	})
	fmt.Fprintln(os.Stderr, "a real keychain was tried") // a skip looks the same without it
}

// Without a session's message bus the library is not asked, for it would start one.
func TestSecretServiceWithoutASession(t *testing.T) {
	t.Setenv("PATH", "/nonexistent")
	for addr, ok := range map[string]bool{"": false, "autolaunch:": false, "unixexec:path=/bin/sh": false, "unix:path=/x;autolaunch:scope=1": false, "nonsense": false, "unix:path=/run/user/1/bus": true, "unix:abstract=/x,guid=1;unix:path=/y": true} {
		t.Setenv("DBUS_SESSION_BUS_ADDRESS", addr)
		if err := (&secretService{runtime: t.TempDir()}).reachable(); (err == nil) != ok {
			t.Errorf("%q: %v", addr, err)
		}
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path="+t.TempDir()+"/none")
	k := newKeychain("glasshouse", &secretService{runtime: t.TempDir()})
	k.wait = time.Minute
	if _, err := k.Get(t.Context(), "model:a"); domain.CodeOf(err) != domain.CodeUnavailable {
		t.Errorf("%v", err)
	}
}

// The library's own stand-in, to see that our calls fit it.
func TestSecretServiceByTheLibrary(t *testing.T) {
	if os.Getenv("KEYCHAIN_TEST_MOCK") == "" { // the stand-in stays in its place: it gets a process of its own
		cmd := exec.Command(os.Args[0], "-test.run=^TestSecretServiceByTheLibrary$", "-test.v")
		cmd.Env = append(os.Environ(), "KEYCHAIN_TEST_MOCK=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestSecretServiceByTheLibrary") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	keyring.MockInit()
	s := &secretService{}
	ctx := t.Context()
	if _, err := s.get(ctx, "glasshouse", "model:a"); !errors.Is(err, errNone) {
		t.Errorf("%v", err)
	}
	if err := s.set(ctx, "glasshouse", "model:a", canary); err != nil {
		t.Fatal(err)
	}
	if v, err := s.get(ctx, "glasshouse", "model:a"); err != nil || v != canary {
		t.Errorf("%q %v", v, err)
	}
	if v, _ := keyring.Get("glasshouse", "model:a"); v != canary {
		t.Errorf("%q", v)
	}
	if err := s.remove(ctx, "glasshouse", "model:a"); err != nil {
		t.Error(err)
	}
	if err := s.remove(ctx, "glasshouse", "model:a"); !errors.Is(err, errNone) {
		t.Errorf("%v", err)
	}
}
