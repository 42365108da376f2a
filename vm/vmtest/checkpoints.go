package vmtest

import (
	"errors"
	"testing"

	"glasshouse/vm/guest"
)

func (s *suite) checkpoints(t *testing.T) {
	g := s.open(t)
	cp := g.Checkpoints()
	take := func(t *testing.T, full bool) guest.Checkpoint {
		t.Helper()
		c, err := cp.Take(s.ctx(t), guest.CheckpointRequest{Session: "suite", Step: unique("st"), Full: full})
		must(t, err)
		if len(c.Commit) != 40 || len(c.Tree) != 40 || c.Sum == "" {
			t.Fatalf("checkpoint: %+v", c)
		}
		return c
	}
	ops := func(changes []guest.FileChange) map[string]string {
		m := map[string]string{}
		for _, c := range changes {
			m[c.Path] = c.Op
		}
		return m
	}
	s.sh(t, g, "cd /workspace && find . -mindepth 1 -delete; mkdir -p a/b; echo one > a/one; printf 'x\\r\\ny\\n' > a/crlf; echo '* text=auto eol=lf' > .gitattributes; printf 'bin\\0ary' > a/bin; chmod +x a/one; ln -s one a/link; echo stay > stay; mkdir -p nested/.git; echo hidden > nested/file")
	s.sub(t, "take", func(t *testing.T) {
		c1 := take(t, true)
		if same := take(t, false); !same.Same || same.Tree != c1.Tree {
			t.Errorf("nothing was written: %+v", same)
		}
		s.sh(t, g, "echo two >> a/one; rm a/bin; echo new > 玻璃.txt; chmod -x a/one; echo more > nested/file")
		c2 := take(t, false)
		if c2.Same || c2.Tree == c1.Tree || c2.Parent == "" {
			t.Errorf("changed: %+v", c2)
		}
		got := ops(c2.Changes)
		for path, op := range map[string]string{"a/one": "modify", "a/bin": "delete", "玻璃.txt": "add", "nested/file": "modify"} {
			if got[path] != op {
				t.Errorf("%s: %q, want %q (%+v)", path, got[path], op, c2.Changes)
			}
		}
		if full := take(t, true); full.Tree != c2.Tree || full.Sum != c2.Sum {
			t.Errorf("the watcher's way gave %s, a full walk %s", c2.Tree, full.Tree)
		}
		diff, more, err := cp.Diff(s.ctx(t), c1.Commit, c2.Commit)
		must(t, err)
		if d := ops(diff); more || d["a/one"] != "modify" || d["a/bin"] != "delete" || d["玻璃.txt"] != "add" || d["stay"] != "" {
			t.Errorf("diff: %+v", diff)
		}
	})
	s.sub(t, "show", func(t *testing.T) {
		s.sh(t, g, "mkdir -p x/y; printf 'v1\\n' > x/y/f; ln -sfn one x/l; printf 'odd\\n' > \"$(printf 'x/\\377:HEAD ^*')\"; head -c 300000 /dev/zero > x/big")
		c1 := take(t, false)
		s.sh(t, g, "printf 'v2\\n' > x/y/f; chmod +x x/y/f; rm x/big")
		c2 := take(t, false)
		show := func(q guest.ShowRequest) guest.KeptFile {
			t.Helper()
			f, err := cp.Show(s.ctx(t), q)
			must(t, err)
			return f
		}
		for name, c := range map[string]struct {
			q    guest.ShowRequest
			mode uint32
			size int64
			data string
		}{
			"now":             {guest.ShowRequest{Commit: c2.Commit, Path: "x/y/f", Limit: 100}, 0o100755, 3, "v2\n"},
			"as it was":       {guest.ShowRequest{Commit: c1.Commit, Path: "x/y/f", Limit: 100}, 0o100644, 3, "v1\n"},
			"before":          {guest.ShowRequest{Commit: c2.Commit, Before: true, Path: "x/y/f", Limit: 100}, 0o100644, 3, "v1\n"},
			"its beginning":   {guest.ShowRequest{Commit: c2.Commit, Path: "x/y/f", Limit: 1}, 0o100755, 3, "v"},
			"a link":          {guest.ShowRequest{Commit: c2.Commit, Path: "x/l", Limit: 100}, 0o120000, 3, "one"},
			"a hostile name":  {guest.ShowRequest{Commit: c2.Commit, Path: "x/\xff:HEAD ^*", Limit: 100}, 0o100644, 4, "odd\n"},
			"a large one":     {guest.ShowRequest{Commit: c1.Commit, Path: "x/big", Limit: 10}, 0o100644, 300000, string(make([]byte, 10))},
			"a removed one":   {guest.ShowRequest{Commit: c2.Commit, Path: "x/big", Limit: 10}, 0, 0, ""},
			"a folder":        {guest.ShowRequest{Commit: c2.Commit, Path: "x/y", Limit: 10}, 0, 0, ""},
			"below a file":    {guest.ShowRequest{Commit: c2.Commit, Path: "x/y/f/z", Limit: 10}, 0, 0, ""},
			"an expression":   {guest.ShowRequest{Commit: c2.Commit, Path: "HEAD:x", Limit: 10}, 0, 0, ""},
			"an option":       {guest.ShowRequest{Commit: c2.Commit, Path: "--textconv", Limit: 10}, 0, 0, ""},
			"a line and more": {guest.ShowRequest{Commit: c2.Commit, Path: "x/y/f\n" + c1.Tree, Limit: 10}, 0, 0, ""},
		} {
			if f := show(c.q); f.Mode != c.mode || f.Size != c.size || string(f.Data) != c.data {
				t.Errorf("%s: mode %o, size %d, %.20q; want %o, %d, %.20q", name, f.Mode, f.Size, f.Data, c.mode, c.size, c.data)
			}
		}
		if big := show(guest.ShowRequest{Commit: c1.Commit, Path: "x/big", Limit: 8 << 20}); len(big.Data) != 300000 {
			t.Errorf("all of a file in several messages: %d bytes", len(big.Data))
		}
		for name, q := range map[string]guest.ShowRequest{
			"never was": {Commit: "0123456789012345678901234567890123456789", Path: "stay"},
			"no commit": {Commit: c2.Tree, Path: "stay"},
		} {
			if f, err := cp.Show(s.ctx(t), q); !errors.Is(err, guest.ErrNotFound) {
				t.Errorf("%s: %+v, %v", name, f, err)
			}
		}
		s.sh(t, g, "rm -rf x")
	})
	s.sub(t, "restore", func(t *testing.T) {
		snapshot := "cd /workspace && find . -path ./nested/.git -prune -o \\( -type f -o -type l \\) -printf '%p %m %l ' -exec sh -c 'test -L \"$1\" || sha256sum < \"$1\"; echo' sh {} \\; | sort"
		c1 := take(t, true)
		before := s.sh(t, g, snapshot)
		s.sh(t, g, "rm -rf a nested/file; echo junk > junk; echo changed > stay; mkdir -p d/e; echo x > d/e/f; ln -s /etc e; ln -sfn /etc link2")
		saved, err := cp.Restore(s.ctx(t), c1.Commit)
		must(t, err)
		after := s.sh(t, g, snapshot)
		if after.out() != before.out() {
			t.Errorf("restored:\n%s\nwas:\n%s", after.stdout, before.stdout)
		}
		// What was there before the restore was kept first.
		if saved.Commit == "" || saved.Tree == c1.Tree {
			t.Fatalf("the checkpoint before the restore: %+v", saved)
		}
		if _, err := cp.Restore(s.ctx(t), saved.Commit); err != nil {
			t.Fatal(err)
		}
		if r := s.sh(t, g, "cat junk stay d/e/f"); r.out() != "junk\nchanged\nx\n" {
			t.Errorf("back again: %v", r)
		}
		_, err = cp.Restore(s.ctx(t), c1.Commit)
		must(t, err)
	})
	// The agent cannot reach where checkpoints are kept.
	s.sub(t, "hidden", func(t *testing.T) {
		r := s.sh(t, g, "ls -la /var/lib/glasshouse 2>&1; ls /var/lib/glasshouse/* 2>&1; cat /workspace/.git/objects/info/alternates 2>&1; find / -xdev -name 'shadow*' -path '*glasshouse*' 2>/dev/null; true")
		if containsString(r.stdout, "HEAD") || containsString(r.stdout, "journal") {
			t.Errorf("the agent sees guestd's folder: %v", r)
		}
	})
	s.sub(t, "unknown", func(t *testing.T) {
		if _, err := cp.Restore(s.ctx(t), "0123456789012345678901234567890123456789"); err == nil {
			t.Error("a checkpoint that never was was restored")
		}
		if _, err := cp.Restore(s.ctx(t), "--help"); err == nil {
			t.Error("an option was taken for a checkpoint")
		}
		if r := s.sh(t, g, "cat stay"); r.out() != "stay\n" {
			t.Errorf("after a refused restore: %v", r)
		}
	})
}
