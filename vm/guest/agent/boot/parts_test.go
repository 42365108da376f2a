//go:build linux

package boot_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"glasshouse/vm/guest"
)

func TestFilesOverTheChannel(t *testing.T) {
	h := newHouse(t)
	f := h.open(nil).Files()
	data := bytes.Repeat([]byte("0123456789abcdef"), 200_000) // several pieces
	i, err := f.Write(h.ctx(), "dir/big", data, guest.WriteOptions{})
	if err != nil || i.Sha256 != sha(data) || i.Size != int64(len(data)) {
		t.Fatalf("%+v %v", i, err)
	}
	d, err := f.Read(h.ctx(), "dir/big", 16, 1<<20)
	if err != nil || !bytes.Equal(d.Data, data[16:16+1<<20]) || d.Info.Sha256 != i.Sha256 {
		t.Fatalf("%d bytes, %v", len(d.Data), err)
	}
	if _, err := f.Read(h.ctx(), "none", 0, 10); !errors.Is(err, guest.ErrNotFound) {
		t.Errorf("missing: %v", err)
	}
	if _, err := f.Read(h.ctx(), "/etc/passwd", 0, 10); !errors.Is(err, guest.ErrRefused) {
		t.Errorf("outside: %v", err)
	}
	if _, err := f.Read(h.ctx(), "dir/big", 0, 9<<20); !errors.Is(err, guest.ErrTooLarge) {
		t.Errorf("too much: %v", err)
	}
	if _, err := f.Write(h.ctx(), "dir/big", []byte("x"), guest.WriteOptions{IfMatch: strings.Repeat("0", 64)}); !errors.Is(err, guest.ErrConflict) {
		t.Errorf("conflict: %v", err)
	}
	if _, err := f.Write(h.ctx(), "empty", nil, guest.WriteOptions{IfMatch: "absent"}); err != nil {
		t.Errorf("empty: %v", err)
	}
	odd := "odd \xff\n name"
	if _, err := f.Write(h.ctx(), odd, []byte("needle in \xfe bytes\n"), guest.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 300; n++ {
		if _, err := f.Write(h.ctx(), "many/"+strings.Repeat("n", 200)+strings.Repeat("x", n%20)+string(rune('a'+n%26))+strings.Repeat("y", n/26), nil, guest.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	entries, more, err := f.List(h.ctx(), "many", 0)
	if err != nil || more || len(entries) < 200 {
		t.Fatalf("%d entries, more %v, %v", len(entries), more, err)
	}
	entries, more, err = f.List(h.ctx(), "many", 10)
	if err != nil || !more || len(entries) != 10 {
		t.Fatalf("%d entries, more %v, %v", len(entries), more, err)
	}
	paths, _, err := f.Glob(h.ctx(), "**/odd*", true, 100)
	if err != nil || len(paths) != 1 || paths[0] != odd {
		t.Fatalf("%q %v", paths, err)
	}
	if err := f.Remove(h.ctx(), "many", true); err != nil {
		t.Fatal(err)
	}
	if err := f.Mkdir(h.ctx(), "a/b/c"); err != nil {
		t.Fatal(err)
	}
	if st, err := f.Stat(h.ctx(), "a/b"); err != nil || st.Type != "dir" {
		t.Fatalf("%+v %v", st, err)
	}
}

func TestWatchOverTheChannel(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	ctx, cancel := context.WithCancel(h.ctx())
	ch, err := g.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	first := <-ch
	h.run(g, sh("echo x >seen.txt"))
	for found := false; !found; {
		select {
		case b, ok := <-ch:
			if !ok {
				t.Fatal("the watch ended")
			}
			if b.Seq <= first.Seq && b.Epoch == first.Epoch {
				t.Fatalf("seq %d after %d", b.Seq, first.Seq)
			}
			for _, c := range b.Changes {
				found = found || c.Path == "seen.txt"
			}
		case <-time.After(hang):
			t.Fatal("the change was not told")
		}
	}
	cancel()
	for range ch { // closes
	}
}

func TestCheckpointsOverTheChannel(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	h.run(g, sh("echo one >a; mkdir d; echo two >d/b"))
	k := g.Checkpoints()
	first, err := k.Take(h.ctx(), guest.CheckpointRequest{Session: "s", Step: "1"})
	if err != nil || len(first.Commit) != 40 || first.Same {
		t.Fatalf("%+v %v", first, err)
	}
	h.run(g, sh("echo changed >a; rm d/b; i=0; while [ $i -lt 1500 ]; do echo $i >f$i; i=$((i+1)); done"))
	second, err := k.Take(h.ctx(), guest.CheckpointRequest{Session: "s", Step: "2"})
	if err != nil || second.Parent != first.Commit || len(second.Changes) != 1000 || !second.More {
		t.Fatalf("%d changes, more %v, parent %s of %s, %v", len(second.Changes), second.More, second.Parent, first.Commit, err)
	}
	diff, more, err := k.Diff(h.ctx(), first.Commit, second.Commit)
	if err != nil || len(diff) < 1000 || len(diff) < 1502 && !more {
		t.Fatalf("%d %v %v", len(diff), more, err)
	}
	before, err := k.Restore(h.ctx(), first.Commit)
	if err != nil {
		t.Fatal(err)
	}
	if before.Tree != second.Tree {
		t.Errorf("the checkpoint before restoring is %s, want %s", before.Tree, second.Tree)
	}
	if r := h.run(g, sh("cat a d/b; ls | wc -l")); r.out != "one\ntwo\n2\n" {
		t.Fatalf("got %q", r.out)
	}
	if _, err := k.Restore(h.ctx(), strings.Repeat("0", 40)); err == nil {
		t.Error("restored nothing")
	}
	if _, err := k.Restore(h.ctx(), "HEAD"); err == nil {
		t.Error("restored a name")
	}
}
