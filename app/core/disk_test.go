package core

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

func TestDiskFloors(t *testing.T) {
	for _, c := range []struct{ total, low int64 }{
		{100 << 20, 10 << 20}, // a tenth of a small one
		{10 << 30, 256 << 20}, // at least
		{100 << 30, 1 << 30},  // one in a hundred
		{4000 << 30, 2 << 30}, // at most
		{2560 << 20, 256 << 20},
	} {
		if low, full := floors(c.total); low != c.low || full != c.low/4 {
			t.Errorf("%d MiB: low below %d, full below %d", c.total>>20, low, full)
		}
	}
}

// A disk that is at a floor does not change its state at every file that comes and goes.
func TestDiskStateDoesNotFlutter(t *testing.T) {
	const total = 100 << 30 // low below 1 GiB, full below 256 MiB
	for _, c := range []struct {
		was  string
		mib  int64
		want string
	}{
		{"", 2000, diskOK}, {diskOK, 1025, diskOK}, {diskOK, 1000, diskLow}, {diskLow, 1100, diskLow}, {diskLow, 1300, diskOK},
		{diskLow, 257, diskLow}, {diskLow, 255, diskFull}, {diskFull, 300, diskFull}, {diskFull, 400, diskLow}, {diskFull, 1100, diskLow}, {diskFull, 2000, diskOK},
		{diskOK, 0, diskFull}, {"", 0, diskFull},
	} {
		if got := (room{Free: c.mib << 20, Total: total}).next(c.was); got != c.want {
			t.Errorf("%q with %d MiB free became %q, expected %q", c.was, c.mib, got, c.want)
		}
	}
}

func TestDiskWatch(t *testing.T) {
	ctx := context.Background()
	free := map[string]int64{"a": 50 << 30, "b": 50 << 30}
	var told []string
	var stops []func(domain.Actor) bool
	gave, refuseRecord := 0, false
	d := &disk{dirs: []string{"a", "b", "gone"}, measure: func(dir string) (room, error) {
		if dir == "gone" {
			return room{}, os.ErrNotExist
		}
		return room{Dir: dir, Free: free[dir], Total: 100 << 30}, nil
	}, record: func(_ context.Context, n event.New) error {
		if refuseRecord {
			return errors.New("full")
		}
		e := n.Payload.(*event.DiskSpace)
		told = append(told, e.State+" "+e.Dir)
		if e.State != diskOK && !strings.Contains(e.Text, "trash empty") {
			t.Errorf("%q does not say what to do", e.Text)
		}
		return nil
	}, stop: func(_ context.Context, why string, hit func(domain.Actor) bool) int {
		if !strings.Contains(why, "nearly full") {
			t.Errorf("steps are stopped because %q", why)
		}
		stops = append(stops, hit)
		return 1
	}, give: func() bool { gave++; return true }}

	d.look(ctx)
	if len(told) != 0 || d.refuse("agent") != "" || d.view().State != diskOK {
		t.Fatalf("a disk with space: %v %q", told, d.refuse("agent"))
	}
	free["b"] = 800 << 20
	d.look(ctx)
	d.look(ctx)
	if !slices.Equal(told, []string{"low b"}) || d.refuse("agent") != "" || len(stops) != 0 || d.doctor().OK {
		t.Fatalf("a low disk: %v, %d stops", told, len(stops))
	}
	// What cannot be recorded is told at the next look.
	free["b"], refuseRecord = 200<<20, true
	d.look(ctx)
	if d.refuse("agent:model") == "" {
		t.Error("a state that could not be recorded is not in force")
	}
	refuseRecord = false
	d.look(ctx)
	if !slices.Equal(told, []string{"low b", "full b"}) || gave != 0 {
		t.Fatalf("a full disk: %v, given %d times", told, gave)
	}
	if len(stops) != 2 || !stops[0]("person") || !stops[0]("agent:model") {
		t.Fatal("at the change everybody's steps are stopped")
	}
	if d.refuse("person") != "" || !strings.Contains(d.refuse("agent:model"), "200 MiB left at b") {
		t.Errorf("refusals: %q %q", d.refuse("person"), d.refuse("agent:model"))
	}
	free["b"] = 1 << 20
	d.look(ctx)
	if last := stops[len(stops)-1]; last("person") || !last("agent:model") || gave != 1 {
		t.Errorf("while it is full a person works on, agents do not; given %d times", gave)
	}
	free["b"] = 60 << 30
	d.look(ctx)
	if !slices.Equal(told, []string{"low b", "full b", "ok " + d.view().Dir}) || d.refuse("agent") != "" || !d.doctor().OK {
		t.Errorf("with space again: %v", told)
	}
}

// What agents left closed to its owner goes too, what is linked to from there stays.
func TestRemoveTree(t *testing.T) {
	dir := t.TempDir()
	keep := filepath.Join(dir, "keep")
	tree := filepath.Join(dir, "tree")
	for _, err := range []error{os.Mkdir(keep, 0o700), os.WriteFile(filepath.Join(keep, "file"), []byte("x"), 0o600),
		os.MkdirAll(filepath.Join(tree, "a", "b"), 0o700), os.WriteFile(filepath.Join(tree, "a", "b", "file"), make([]byte, 8192), 0o400),
		os.Link(filepath.Join(tree, "a", "b", "file"), filepath.Join(tree, "again")), os.Symlink(keep, filepath.Join(tree, "link")),
		os.Chmod(filepath.Join(tree, "a", "b"), 0o500), os.Chmod(filepath.Join(tree, "a"), 0o000)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		n, err := usage(context.Background(), tree)
		if err != nil || n < 8192 || n > 64<<10 {
			t.Errorf("a file of 8 KiB with two names takes %d bytes: %v", n, err)
		}
	}
	if err := removeTree(tree); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(tree); !os.IsNotExist(err) {
		t.Errorf("the tree stays: %v", err)
	}
	if _, err := os.Stat(filepath.Join(keep, "file")); err != nil {
		t.Errorf("what was linked to is gone: %v", err)
	}
}
