//go:build linux

package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/checkpoint/objects"
)

func TestShowIsExactAndWalksNamesOnly(t *testing.T) {
	r := setup(t, false)
	odd := []string{"a:b", "HEAD", "--batch", "x y", "\xff\xfe", "tab\there", "new\nline", "^{tree}", "@{1}", "..."}
	for _, n := range odd {
		r.write("d/"+n, "data of "+n+"\r\n")
	}
	r.write("HEAD:d/deep", "nested")
	first := r.take()
	r.write("d/HEAD", "second")
	second := r.take()
	show := func(q guest.ShowRequest) guest.KeptFile {
		t.Helper()
		f, err := r.c.Show(context.Background(), q)
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		return f
	}
	for _, n := range odd {
		if f := show(guest.ShowRequest{Commit: first.Commit, Path: "d/" + n, Limit: 1000}); string(f.Data) != "data of "+n+"\r\n" || f.Mode != 0o100644 {
			t.Errorf("%q: %o %q", n, f.Mode, f.Data)
		}
	}
	if f := show(guest.ShowRequest{Commit: second.Commit, Path: "HEAD:d/deep", Limit: 10}); string(f.Data) != "nested" {
		t.Errorf("%q", f.Data)
	}
	if f := show(guest.ShowRequest{Commit: second.Commit, Path: "d/HEAD", Before: true, Limit: 4}); string(f.Data) != "data" || f.Size != 14 {
		t.Errorf("%+v", f)
	}
	if f := show(guest.ShowRequest{Commit: first.Commit, Path: "d/HEAD", Before: true, Limit: 4}); f.Mode != 0 {
		t.Errorf("before the first there is nothing: %+v", f)
	}
	for _, p := range []string{"d/nothing", "d", "d/HEAD/x", "HEAD", strings.Repeat("n/", 300) + "n"} {
		if f := show(guest.ShowRequest{Commit: first.Commit, Path: p, Limit: 10}); f.Mode != 0 || f.Size != 0 || f.Data != nil {
			t.Errorf("%.40q: %+v", p, f)
		}
	}
	if _, err := r.c.Show(context.Background(), guest.ShowRequest{Commit: first.Tree, Path: "d/HEAD"}); !errors.Is(err, guest.ErrNotFound) {
		t.Errorf("a tree is no checkpoint: %v", err)
	}
}

// Reading does not wait for a checkpoint that is being taken.
func TestShowBesideATake(t *testing.T) {
	r := setup(t, false)
	r.write("f", "kept")
	cp := r.take()
	if err := r.c.lock(context.Background()); err != nil {
		t.Fatal(err)
	}
	defer r.c.unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if f, err := r.c.Show(ctx, guest.ShowRequest{Commit: cp.Commit, Path: "f", Limit: 10}); err != nil || string(f.Data) != "kept" {
		t.Errorf("%+v %v", f, err)
	}
}

func TestTreeEntryOfDamage(t *testing.T) {
	for _, tree := range []string{"100644 f", "100644 f\x00short", "100644f\x0012345678901234567890", "zz f\x0012345678901234567890"} {
		if _, _, ok, err := treeEntry([]byte(tree), "f"); ok || err == nil {
			t.Errorf("%q was read", tree)
		}
	}
	var id objects.ID
	copy(id[:], bytes.Repeat([]byte{7}, len(id)))
	tree := append([]byte("100644 e\x00"), bytes.Repeat([]byte{0}, len(id))...)
	tree = append(append(tree, "120000 f\x00"...), id[:]...)
	if m, got, ok, err := treeEntry(tree, "f"); err != nil || !ok || m != 0o120000 || got != id {
		t.Errorf("%o %v %v %v", m, got, ok, err)
	}
}
