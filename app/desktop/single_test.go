package desktop

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOneWindow(t *testing.T) {
	dir := t.TempDir()
	lock, socket := filepath.Join(dir, "window.lock"), filepath.Join(dir, "win.sock")
	// What a window that was killed leaves behind.
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := Claim(lock, socket)
	if err != nil {
		t.Fatal(err)
	}
	raised := make(chan string, 4)
	// The first is not ready to answer yet when the second asks.
	late := time.AfterFunc(200*time.Millisecond, func() { first.Serve(t.Context(), func(tok string) { raised <- tok }) })
	defer late.Stop()
	t.Setenv("XDG_ACTIVATION_TOKEN", "gnome-shell/term/1-2_TIME3")
	if _, err := Claim(lock, socket); !errors.Is(err, ErrRaised) {
		t.Fatalf("the second window: %v", err)
	}
	if tok := <-raised; tok != "gnome-shell/term/1-2_TIME3" {
		t.Errorf("token %q", tok)
	}
	t.Setenv("XDG_ACTIVATION_TOKEN", "x\nraise y")
	if _, err := Claim(lock, socket); !errors.Is(err, ErrRaised) {
		t.Fatal(err)
	}
	if tok := <-raised; tok != "" {
		t.Errorf("a token that is none came through: %q", tok)
	}
	// Nonsense is not an order, and does not keep the next one from being heard.
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, strings.Repeat("raise", 100)+"\n")
	if b, _ := io.ReadAll(c); len(b) > 0 {
		t.Errorf("it answered %q", b)
	}
	c.Close()
	if st, _ := os.Stat(socket); st.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode is %v", st.Mode())
	}
	if len(raised) > 0 {
		t.Error("nonsense raised the window")
	}
	first.Close()
	again, err := Claim(lock, socket)
	if err != nil {
		t.Fatalf("after the first closed: %v", err)
	}
	again.Close()
}

func TestWindowThatDoesNotAnswer(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = bufio.NewReader(c).ReadString('\n')
			_, _ = io.WriteString(c, "what?\n")
			c.Close()
		}
	}()
	if err := raiseOnce(socket, time.Now().Add(raiseWait)); err == nil || !strings.Contains(err.Error(), "what?") {
		t.Errorf("%v", err)
	}
}
