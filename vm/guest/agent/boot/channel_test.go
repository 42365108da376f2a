//go:build linux

package boot_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"glasshouse/vm/guest"
)

func TestSupersede(t *testing.T) {
	h := newHouse(t)
	first := h.open(nil)
	// A connection without a hello supersedes nothing.
	mute, err := net.Dial("unix", h.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	if _, err := first.Stats(h.ctx()); err != nil {
		t.Fatal(err)
	}
	second := h.open(nil)
	select {
	case <-first.Done():
	case <-time.After(hang):
		t.Fatal("the first channel lives on")
	}
	if _, err := first.Stats(h.ctx()); !errors.Is(err, guest.ErrGone) {
		t.Fatalf("first: %v", err)
	}
	if _, err := second.Stats(h.ctx()); err != nil {
		t.Fatal(err)
	}
}

// What a new host is told of the executions holds: nothing that the one before it asked
// for begins afterwards.
func TestNothingBeginsForAHostThatWasReplaced(t *testing.T) {
	h := newHouse(t)
	for range 8 {
		old := h.open(nil)
		var asked, asking sync.WaitGroup
		for range 12 {
			id := newID()
			asking.Add(1)
			asked.Go(func() {
				asking.Done()
				// However it ends: the host is replaced while it asks.
				if p, err := old.Execs().Start(h.ctx(), guest.ExecSpec{ID: id, Argv: []string{"true"}}); err == nil {
					p.Close()
				}
			})
		}
		asking.Wait()
		g := h.open(nil)
		list := func() map[string]bool {
			states, err := g.Execs().List(h.ctx())
			if err != nil {
				t.Fatal(err)
			}
			ids := map[string]bool{}
			for _, s := range states {
				ids[s.ID] = true
			}
			return ids
		}
		told := list()
		asked.Wait()
		h.run(g, sh("true")) // who was asked before this has begun by now
		late := 0
		for id := range list() {
			if !told[id] {
				late++
			}
		}
		if late > 1 {
			t.Errorf("%d executions began after the new host was told of %d", late-1, len(told))
		}
	}
}

// Bytes that are no channel end that connection and nothing else.
func TestMalformed(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	for _, junk := range []string{
		"GET / HTTP/1.1\r\n\r\n",
		"\x00\x00\x00\x01\x00\x00\x00\x01\xff\xff\xff\xff",               // a data frame of 4 GiB
		strings.Repeat("\xff", 4096),                                     // no such version
		"\x00\x01\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00PRI * HTTP/2.0", // a stream with half a preface
		"",
	} {
		c, err := net.Dial("unix", h.socket)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, junk)
		c.(*net.UnixConn).CloseWrite()
		c.SetReadDeadline(time.Now().Add(hang))
		if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%.20q: %v", junk, err)
		}
		c.Close()
	}
	if r := h.run(g, sh("echo alive")); r.out != "alive\n" {
		t.Fatalf("got %+v", r)
	}
}
