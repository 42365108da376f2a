//go:build linux

package watch

import (
	"context"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/watch/scan"
)

// guard ends a test that hangs; it asserts nothing about speed.
const guard = 60 * time.Second

type rig struct {
	t       *testing.T
	dir     string
	w       *Watcher
	ch      <-chan guest.ChangeBatch
	state   map[string]string // the fold of all batches
	inPlace map[string]bool   // written by write, in more than one step
	last    guest.ChangeBatch
	all     []guest.PathChange
}

func start(t *testing.T, prepare func(dir string), tweak func(*Watcher)) *rig {
	t.Helper()
	dir := t.TempDir()
	if prepare != nil {
		prepare(dir)
	}
	w := New(Options{Root: dir, Logf: t.Logf, Sweep: time.Hour})
	if tweak != nil {
		tweak(w)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	r := &rig{t: t, dir: dir, w: w, state: map[string]string{}, inPlace: map[string]bool{}}
	var err error
	if r.ch, err = w.Watch(ctx); err != nil {
		t.Fatal(err)
	}
	first := r.next()
	if len(first.Changes) != 0 || first.Seq != 1 || first.Epoch == 0 {
		t.Fatalf("first batch %+v", first)
	}
	return r
}

func (r *rig) live() {
	r.t.Helper()
	r.until("the watcher is live", func() bool {
		r.w.mu.Lock()
		defer r.w.mu.Unlock()
		return r.w.live
	})
	if d, _ := r.w.Barrier(context.Background()); !d.All {
		r.t.Fatal("the first barrier is not All")
	}
}

// exact waits until the watcher knows of each write: barriers name paths again.
func (r *rig) exact() {
	r.t.Helper()
	r.until("barriers are exact", func() bool { return r.barrier() != nil })
}

func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(guard); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatal("never: ", what)
		}
	}
}

func (r *rig) next() guest.ChangeBatch {
	r.t.Helper()
	select {
	case b, ok := <-r.ch:
		if !ok {
			r.t.Fatal("the stream ended")
		}
		for _, c := range b.Changes {
			if c.Op == "delete" {
				delete(r.state, c.Path)
			} else {
				r.state[c.Path] = c.Op
			}
		}
		r.all = append(r.all, b.Changes...)
		r.last = b
		return b
	case <-time.After(guard):
		r.t.Fatal("no batch")
	}
	panic("unreachable")
}

// expect reads batches until the change op of p came.
func (r *rig) expect(op, p string) {
	r.t.Helper()
	for {
		for i, c := range r.all {
			if c.Path == p && c.Op == op {
				r.all = append(r.all[:i:i], r.all[i+1:]...)
				return
			}
		}
		r.next()
	}
}

// calm says that nothing more comes: a file is written and its change is the only one.
// The second half of a write may have been told apart from the first, and late.
func (r *rig) calm() {
	r.t.Helper()
	told := maps.Clone(r.state)
	r.all = nil
	name := fmt.Sprintf("calm%d", time.Now().UnixNano())
	r.write(name, "x")
	r.expect("add", name)
	for _, c := range r.all {
		if c.Path != name && (c.Op != "modify" || !r.inPlace[c.Path] || told[c.Path] == "") {
			r.t.Fatalf("changes out of nothing: %+v", r.all)
		}
	}
}

func (r *rig) write(rel, data string) {
	r.t.Helper()
	r.inPlace[rel] = true
	write(r.t, filepath.Join(r.dir, rel), data)
}

func write(t *testing.T, name, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) barrier() map[string]bool {
	r.t.Helper()
	d, err := r.w.Barrier(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	if d.All {
		return nil
	}
	out := map[string]bool{}
	for _, p := range d.Paths {
		out[p] = true
	}
	return out
}

func TestFilesComeChangeAndGo(t *testing.T) {
	r := start(t, func(dir string) { write(t, dir+"/old", "1") }, nil)
	r.live()
	r.write("a", "1")
	r.expect("add", "a")
	r.write("a", "22")
	r.expect("modify", "a")
	os.Chmod(r.dir+"/a", 0o755)
	r.expect("modify", "a")
	os.Remove(r.dir + "/old")
	r.expect("delete", "old")
	os.Symlink("/etc/passwd", r.dir+"/l")
	r.expect("add", "l")
	os.Rename(r.dir+"/a", r.dir+"/b\n\xff")
	r.expect("delete", "a")
	r.expect("add", "b\n\xff")
	r.calm()
}

func TestAtomicSave(t *testing.T) {
	r := start(t, func(dir string) { write(t, dir+"/f", "1") }, nil)
	r.live()
	r.write("f.tmp", "22")
	os.Rename(r.dir+"/f.tmp", r.dir+"/f")
	r.expect("modify", "f")
	r.calm()
	if r.state["f.tmp"] != "" {
		t.Fatal("the temporary file stayed")
	}
}

func TestFolderAndFileAtOnce(t *testing.T) {
	r := start(t, nil, nil)
	r.live()
	for i := range 20 {
		p := fmt.Sprintf("n%d/n2/n3/f", i)
		r.write(p, "x")
		got := r.barrier()
		if !got[fmt.Sprintf("n%d", i)] && !got[p] {
			t.Fatalf("the barrier misses %s: %v", p, got)
		}
		r.expect("add", p)
		r.write(fmt.Sprintf("n%d/n2/n3/g", i), "x")
		if got := r.barrier(); !got[fmt.Sprintf("n%d/n2/n3/g", i)] {
			t.Fatalf("the new folder is not watched: %v", got)
		}
	}
}

func TestFoldersMove(t *testing.T) {
	r := start(t, func(dir string) {
		write(t, dir+"/a/b/f", "1")
		write(t, dir+"/a/g", "1")
	}, nil)
	r.live()
	os.Rename(r.dir+"/a", r.dir+"/z")
	for _, p := range []string{"b/f", "g"} {
		r.expect("delete", "a/"+p)
		r.expect("add", "z/"+p)
	}
	if got := r.barrier(); !got["a"] || !got["z"] {
		t.Fatalf("barrier: %v", got)
	}
	r.write("z/b/f", "22")
	if got := r.barrier(); !got["z/b/f"] {
		t.Fatalf("the moved folder goes by its old name: %v", got)
	}
	r.expect("modify", "z/b/f")
	os.RemoveAll(r.dir + "/z")
	r.expect("delete", "z/b/f")
	r.expect("delete", "z/g")
	// A folder moved out, and another in under its name.
	out := t.TempDir()
	write(t, out+"/q/h", "1")
	os.Rename(out+"/q", r.dir+"/q")
	r.expect("add", "q/h")
	os.Rename(r.dir+"/q", out+"/q2")
	r.expect("delete", "q/h")
	r.write("q", "now a file")
	r.expect("add", "q")
	r.calm()
}

func TestIgnoredIsSilent(t *testing.T) {
	r := start(t, func(dir string) {
		write(t, dir+"/.gitignore", "node_modules/\n*.o\n")
		write(t, dir+"/node_modules/x/y.js", "1")
	}, nil)
	r.live()
	r.write("node_modules/x/y.js", "2")
	r.write("node_modules/new/z.js", "2")
	r.write("a.o", "1")
	r.calm()
	r.w.mu.Lock()
	watched := r.w.in.find("node_modules") != nil
	r.w.mu.Unlock()
	if watched {
		t.Fatal("an ignored folder is watched")
	}
	// A rule goes: what it hid appears, and is watched from now on.
	r.write(".gitignore", "*.o\n")
	if got := r.barrier(); got != nil {
		t.Fatalf("a change of rules must make the barrier say All, not %v", got)
	}
	r.expect("add", "node_modules/new/z.js")
	r.exact()
	r.write("node_modules/new/z.js", "333")
	if got := r.barrier(); !got["node_modules/new/z.js"] {
		t.Fatalf("barrier: %v", got)
	}
	r.write(".gitignore", "node_modules\n*.o\n")
	r.expect("delete", "node_modules/new/z.js")
}

func TestRepository(t *testing.T) {
	r := start(t, nil, nil)
	r.live()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
		cmd.Dir = r.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	git("init", "-q", "-b", "main")
	r.expect("add", ".git/HEAD")
	r.live()
	r.write("f", "1")
	git("add", "f")
	git("commit", "-qm", "one")
	r.expect("add", ".git/refs/heads/main")
	r.expect("add", "f")
	git("checkout", "-qb", "deep/branch/name")
	r.expect("modify", ".git/HEAD")
	r.expect("add", ".git/refs/heads/deep/branch/name")
	git("pack-refs", "--all")
	r.expect("add", ".git/packed-refs")
	r.expect("delete", ".git/refs/heads/deep/branch/name")
	r.expect("delete", ".git/refs/heads/main")
	for _, c := range r.all {
		if strings.HasPrefix(c.Path, ".git/objects") || strings.HasSuffix(c.Path, ".lock") {
			t.Fatalf("noise of .git: %+v", c)
		}
	}
	write(t, r.dir+"/.git/info/exclude", "f2\n")
	r.exact()
	r.write("f2", "1")
	r.calm()
	// A nested repository is files like others, without its .git.
	cmd := exec.Command("git", "init", "-q", "nested")
	cmd.Dir = r.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	r.write("nested/n", "1")
	r.expect("add", "nested/n")
	for p := range r.state {
		if strings.HasPrefix(p, "nested/.git") {
			t.Fatal(p)
		}
	}
}

func TestOverflow(t *testing.T) {
	r := start(t, nil, nil)
	r.live()
	epoch := r.last.Epoch
	most := 16384
	fmt.Sscan(string(must(os.ReadFile("/proc/sys/fs/inotify/max_queued_events"))), &most)
	if most > 40000 {
		t.Skipf("the kernel's queue of %d events is too long to overflow here", most)
	}
	// While the lock is held nobody reads the queue.
	r.w.mu.Lock()
	for i := range most/2 + 200 {
		r.write(fmt.Sprintf("d/f%d", i%40), "x")
		r.write("e", fmt.Sprint(i))
	}
	r.write("late/after/overflow", "x")
	r.w.mu.Unlock()
	r.expect("add", "late/after/overflow")
	if !r.last.Resync || r.last.Epoch <= epoch {
		t.Fatalf("an overflow must show: %+v", r.last)
	}
	if r.state["d/f39"] == "" || r.state["e"] == "" {
		t.Fatal("files are missing after the overflow")
	}
	r.live()
	r.write("late/after/g", "x")
	if got := r.barrier(); !got["late/after/g"] {
		t.Fatalf("barrier: %v", got)
	}
	r.expect("add", "late/after/g")
	r.calm()
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func TestDegraded(t *testing.T) {
	full := true
	r := start(t, func(dir string) { write(t, dir+"/sub/f", "1") }, func(w *Watcher) {
		w.opts.Sweep = 400 * time.Millisecond
		w.fault = func(rel string) error { // called with w.mu held
			if full && rel == "sub" {
				return fmt.Errorf("%w: no space", errFull)
			}
			return nil
		}
	})
	for !r.last.Degraded {
		r.next()
	}
	r.write("sub/g", "1")
	r.expect("add", "sub/g")
	if !r.last.Degraded {
		t.Fatalf("a watcher without watches must say so: %+v", r.last)
	}
	if got := r.barrier(); got != nil {
		t.Fatalf("a degraded barrier must say All, not %v", got)
	}
	r.w.mu.Lock()
	full = false
	r.w.mu.Unlock()
	r.until("watches are tried again", func() bool {
		r.w.mu.Lock()
		defer r.w.mu.Unlock()
		return r.w.live
	})
	for r.last.Degraded {
		r.next()
	}
}

func TestSweepFindsMappedWrites(t *testing.T) {
	r := start(t, func(dir string) { write(t, dir+"/m", strings.Repeat("x", 4096)) }, func(w *Watcher) {
		w.opts.Sweep = 50 * time.Millisecond
	})
	r.live()
	f, err := os.OpenFile(r.dir+"/m", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := unix.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	otherTick(t, r.dir+"/m")
	mem[7] = 'y'
	unix.Msync(mem, unix.MS_SYNC)
	r.expect("modify", "m")
	if got := r.barrier(); got != nil && !got["m"] {
		t.Fatalf("barrier: %v", got)
	}
}

// otherTick waits until the file system would stamp the file name with another time.
func otherTick(t *testing.T, name string) {
	t.Helper()
	probe := t.TempDir() + "/probe"
	for end := time.Now().Add(guard); ; time.Sleep(time.Millisecond) {
		write(t, probe, "x")
		was, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if now, err := os.Stat(probe); err != nil || time.Now().After(end) {
			t.Fatal("the clock of the file system stands: ", err)
		} else if now.ModTime().After(was.ModTime()) {
			return
		}
	}
}

// Whatever is written after the first batch is told, however early the watch began.
func TestFirstBatchWaitsForTheFirstLook(t *testing.T) {
	dir := t.TempDir()
	w := New(Options{Root: dir + "/ws", Logf: t.Logf, Sweep: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ch, err := w.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case b := <-ch:
		t.Errorf("before anything was looked at came %+v", b)
	case <-time.After(20 * time.Millisecond):
	}
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	defer func() { cancel(); <-done }()
	// There is no folder, which is a truth like any other.
	r := &rig{t: t, dir: dir + "/ws", w: w, ch: ch, state: map[string]string{}, inPlace: map[string]bool{}}
	if b := r.next(); len(b.Changes) != 0 || b.Seq != 1 {
		t.Fatalf("first batch %+v", b)
	}
	r.write("d/f", "1")
	r.expect("add", "d/f")
	// One that joins now has its first batch at once.
	if r.ch, err = w.Watch(ctx); err != nil {
		t.Fatal(err)
	}
	if b := r.next(); len(b.Changes) != 0 || b.Seq != 1 {
		t.Fatalf("first batch %+v", b)
	}
	r.write("g", "1")
	r.expect("add", "g")
}

func TestRootComesBack(t *testing.T) {
	r := start(t, func(dir string) { write(t, dir+"/ws/f", "1") }, func(w *Watcher) {
		w.opts.Root += "/ws"
	})
	r.live()
	ws := r.dir + "/ws"
	os.Rename(ws, r.dir+"/away")
	r.until("the loss is seen", func() bool { return r.barrier() == nil })
	write(t, ws+"/g", "1")
	r.expect("delete", "f")
	r.expect("add", "g")
}

func TestSlowReader(t *testing.T) {
	s := &stream{pending: map[string]guest.PathChange{}, wake: make(chan struct{}, 1)}
	var many []guest.PathChange
	for i := range maxPending + 50 {
		many = append(many, guest.PathChange{Path: fmt.Sprint(i), Op: "add"})
	}
	s.push(many, 1, false, false)
	s.push([]guest.PathChange{{Path: "0", Op: "modify", Size: 9}, {Path: "1", Op: "delete"}}, 1, false, false)
	got := map[string]guest.PathChange{}
	dropped := 0
	for {
		b, ok := s.next()
		if !ok {
			break
		}
		if len(b.Changes) > batchChanges {
			t.Fatal("batch too large")
		}
		dropped += b.Dropped
		for _, c := range b.Changes {
			got[c.Path] = c
		}
	}
	if dropped != 50 || len(got) != maxPending-1 || got["0"].Op != "add" || got["0"].Size != 9 {
		t.Fatalf("dropped %d, kept %d, %+v", dropped, len(got), got["0"])
	}
}

// TestBarrierNeverMisses writes at random and checks after each step that every
// path written is named by the barrier, itself or a folder above it.
func TestBarrierNeverMisses(t *testing.T) {
	r := start(t, nil, nil)
	r.live()
	rnd := rand.New(rand.NewSource(7))
	files := map[string]bool{}
	name := func() string {
		var parts []string
		for range 1 + rnd.Intn(3) {
			parts = append(parts, fmt.Sprintf("%c", 'a'+rnd.Intn(4)))
		}
		return strings.Join(parts, "/")
	}
	for step := range 400 {
		touched := map[string]bool{}
		for range 1 + rnd.Intn(5) {
			p := name()
			abs := filepath.Join(r.dir, p)
			switch rnd.Intn(5) {
			case 0:
				os.RemoveAll(abs)
				for f := range files {
					if f == p || strings.HasPrefix(f, p+"/") {
						delete(files, f)
						touched[f] = true
					}
				}
			case 1:
				to := name()
				if strings.HasPrefix(to+"/", p+"/") || os.Rename(abs, filepath.Join(r.dir, to)) != nil {
					continue
				}
				for f := range files {
					if f == to || strings.HasPrefix(f, to+"/") {
						delete(files, f)
						touched[f] = true
					}
				}
				for f := range files {
					if f == p || strings.HasPrefix(f, p+"/") {
						delete(files, f)
						n := to + strings.TrimPrefix(f, p)
						files[n] = true
						touched[f], touched[n] = true, true
					}
				}
			default:
				if os.MkdirAll(filepath.Dir(abs), 0o755) != nil || os.WriteFile(abs, []byte(fmt.Sprint(step)), 0o644) != nil {
					continue
				}
				files[p] = true
				touched[p] = true
			}
		}
		got := r.barrier()
		if got == nil {
			t.Fatal("All in calm times")
		}
		for p := range touched {
			named := false
			for up := p; up != "." && !named; up = filepath.Dir(up) {
				named = got[up]
			}
			if !named {
				t.Fatalf("step %d: %s was touched, the barrier says %v", step, p, got)
			}
		}
	}
	// The stream converges on what is there.
	var want []string
	filepath.Walk(r.dir, func(p string, fi os.FileInfo, err error) error {
		if err == nil && fi.Mode().IsRegular() {
			rel, _ := filepath.Rel(r.dir, p)
			want = append(want, rel)
		}
		return nil
	})
	r.write("the-end", "x")
	r.expect("add", "the-end")
	delete(r.state, "the-end")
	var have []string
	for p := range r.state {
		have = append(have, p)
	}
	sort.Strings(want)
	sort.Strings(have)
	if strings.Join(want, "\n") != strings.Join(have, "\n") {
		t.Fatalf("the stream says %v, there is %v", have, want)
	}
}

// TestRescanIsSilent: comparing everything again reports nothing by itself.
func TestRescanIsSilent(t *testing.T) {
	r := start(t, func(dir string) {
		for i := range 30 {
			write(t, fmt.Sprintf("%s/d%d/f", dir, i), "x")
		}
	}, nil)
	r.live()
	for range 3 {
		r.w.mu.Lock()
		r.w.lose(true, "a test asks for it")
		r.w.mu.Unlock()
		r.next()
		if len(r.last.Changes) != 0 || !r.last.Resync {
			t.Fatalf("%+v", r.last)
		}
	}
	r.live()
	if got := r.barrier(); len(got) != 0 {
		t.Fatalf("the walk dirtied %v", got)
	}
}

// A repository that is made in the place of a destroyed one is none of the person's files,
// neither while it is made nor where that was cut short.
func TestRepositoryBeingMadeIsSilent(t *testing.T) {
	r := start(t, func(dir string) { write(t, dir+"/"+scan.NewGit+"/left", "1") }, nil)
	r.live()
	r.w.mu.Lock()
	watched := r.w.in.find(scan.NewGit) != nil
	r.w.mu.Unlock()
	if watched {
		t.Fatal("it is watched")
	}
	os.RemoveAll(r.dir + "/" + scan.NewGit)
	r.write(scan.NewGit+"/HEAD", "ref: refs/heads/main\n")
	r.write(scan.NewGit+"/objects/pack/p.pack", "1")
	r.write("sub/"+scan.NewGit+"/HEAD", "an ordinary file")
	r.expect("add", "sub/"+scan.NewGit+"/HEAD")
	if got := r.barrier(); got[scan.NewGit] || got[scan.NewGit+"/HEAD"] {
		t.Fatalf("the barrier tells of it: %v", got)
	}
	for _, c := range r.all {
		if strings.HasPrefix(c.Path, scan.NewGit) {
			t.Fatalf("told: %+v", c)
		}
	}
	if err := os.Rename(r.dir+"/"+scan.NewGit, r.dir+"/.git"); err != nil {
		t.Fatal(err)
	}
	r.expect("add", ".git/HEAD")
	r.calm()
}
