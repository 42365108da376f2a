//go:build linux

package objects

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func git(t *testing.T, s *Store, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"--git-dir", s.Dir()}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// commit writes a tree of the blobs and a commit, and names it.
func commit(t *testing.T, s *Store, b *Batch, blobs []ID) {
	t.Helper()
	var tree []byte
	for i, id := range blobs {
		tree = append(append(tree, fmt.Sprintf("100644 f%04d\x00", i)...), id[:]...)
	}
	root, err := b.Put("tree", tree)
	if err != nil {
		t.Fatal(err)
	}
	who := "a <a@b> 1700000000 +0000"
	c, err := b.Put("commit", fmt.Appendf(nil, "tree %s\nauthor %s\ncommitter %s\n\nx\n", root, who, who))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := s.SetHead(c); err != nil {
		t.Fatal(err)
	}
}

func TestGitReadsWhatIsWritten(t *testing.T) {
	for _, pack := range []bool{false, true} {
		s, err := Open(filepath.Join(t.TempDir(), "sh[a]dow"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := s.Begin(pack)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewSource(1))
		var blobs [][]byte
		for _, n := range []int{0, 1, 15, 16, 2047, 2048, 70000, inMemory, inMemory + 1, 3 << 20} {
			d := make([]byte, n)
			r.Read(d)
			blobs = append(blobs, d, bytes.Repeat([]byte("a\r\n"), n/3))
		}
		ids := make([]ID, len(blobs))
		var wg sync.WaitGroup
		for i, d := range blobs {
			wg.Add(1)
			go func() {
				defer wg.Done()
				var err error
				if ids[i], err = b.Blob(bytes.NewReader(d), int64(len(d))); err != nil {
					t.Error(err)
				}
			}()
		}
		wg.Wait()
		commit(t, s, b, ids)
		for i, d := range blobs {
			if got := git(t, s, "cat-file", "blob", ids[i].String()); got != string(d) {
				t.Fatalf("pack=%v: blob %d of %d bytes differs", pack, i, len(d))
			}
			if !s.Has(ids[i]) {
				t.Fatal("Has does not know what was written")
			}
		}
		if out := git(t, s, "fsck", "--strict", "--full"); strings.Contains(out, "error") || strings.Contains(out, "warning") {
			t.Fatal(out)
		}
		if pack {
			git(t, s, "verify-pack", "-v", glob1(t, escape(s.Dir())+"/objects/pack/*.idx"))
		}
		again, err := Open(s.Dir())
		if err != nil {
			t.Fatal(err)
		}
		if !again.Has(ids[3]) || again.Has(ID{1}) || again.Has(ID{}) || again.Has(ID{0xff, 0xff}) {
			t.Fatal("Has is wrong after opening again")
		}
		head, ok, err := again.Head()
		if !ok || err != nil || git(t, s, "rev-parse", Ref) != head.String()+"\n" {
			t.Fatal("the head is not what git sees")
		}
	}
}

func glob1(t *testing.T, pattern string) string {
	t.Helper()
	m, err := filepath.Glob(pattern)
	if err != nil || len(m) != 1 {
		t.Fatalf("%s: %v %v", pattern, m, err)
	}
	return m[0]
}

func TestShortReader(t *testing.T) {
	s, _ := Open(t.TempDir())
	for _, n := range []int64{10, inMemory + 10} {
		b, _ := s.Begin(false)
		if _, err := b.Blob(bytes.NewReader(make([]byte, n-1)), n); !errors.Is(err, ErrShort) {
			t.Fatalf("%d: %v", n, err)
		}
	}
	left, _ := filepath.Glob(s.Dir() + "/objects/tmp_*")
	if len(left) != 0 {
		t.Fatal(left)
	}
}

func TestLeftoversAreCleared(t *testing.T) {
	dir := t.TempDir()
	s, _ := Open(dir)
	b, _ := s.Begin(true)
	b.Put("blob", []byte("never finished"))
	for _, name := range []string{"objects/tmp_obj_1", "index.lock", Ref + ".lock", "tmp_9"} {
		os.WriteFile(filepath.Join(dir, name), nil, 0o600)
	}
	os.WriteFile(filepath.Join(dir, "config"), []byte("broken ["), 0o600)
	if _, err := Open(dir); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"tmp_*", "objects/tmp_*", "objects/pack/tmp_*", "*.lock", "refs/heads/*.lock"} {
		if m, _ := filepath.Glob(filepath.Join(dir, p)); len(m) != 0 {
			t.Fatal(m)
		}
	}
	git(t, s, "fsck", "--strict")
}

func TestDamagedHead(t *testing.T) {
	s, _ := Open(t.TempDir())
	if _, ok, err := s.Head(); ok || err != nil {
		t.Fatal(ok, err)
	}
	os.WriteFile(filepath.Join(s.Dir(), Ref), []byte("\x00\x00\x00"), 0o600)
	if _, _, err := s.Head(); !errors.Is(err, ErrBadRef) {
		t.Fatal(err)
	}
	if err := s.SetAside(); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := s.Head(); ok || err != nil {
		t.Fatal(ok, err)
	}
}

// TestPowerLoss: objects that were written but never synced may be cut short.
func TestPowerLoss(t *testing.T) {
	for _, pack := range []bool{false, true} {
		dir := t.TempDir()
		s, _ := Open(dir)
		b, _ := s.Begin(false)
		first, err := b.Put("blob", []byte("first"))
		if err != nil {
			t.Fatal(err)
		}
		commit(t, s, b, []ID{first})
		b, _ = s.Begin(pack)
		whole, _ := b.Put("blob", []byte("whole"))
		half, _ := b.Put("blob", bytes.Repeat([]byte("half"), 100))
		if err := b.Finish(); err != nil {
			t.Fatal(err)
		}
		if pack {
			name := glob1(t, escape(dir)+"/objects/pack/*.pack")
			os.Chmod(name, 0o600)
			os.Truncate(name, 40)
		} else {
			os.Chmod(s.loose(half), 0o600)
			os.Truncate(s.loose(half), 9)
		}
		again, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if again.Has(half) || again.Has(whole) == pack || !again.Has(first) {
			t.Fatalf("pack=%v: half %v whole %v first %v", pack, again.Has(half), again.Has(whole), again.Has(first))
		}
		b, _ = again.Begin(pack)
		if _, err := b.Put("blob", bytes.Repeat([]byte("half"), 100)); err != nil {
			t.Fatal(err)
		}
		commit(t, again, b, []ID{half})
		git(t, again, "fsck", "--strict")
	}
}
