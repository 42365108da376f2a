//go:build linux

package checkpoint

import (
	"bufio"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/checkpoint/objects"
)

// TestMain lets the test binary play a guestd that is killed.
func TestMain(m *testing.M) {
	if ws := os.Getenv("CHECKPOINT_VICTIM"); ws != "" {
		victim(ws, os.Getenv("CHECKPOINT_SHADOW"))
		return
	}
	os.Exit(m.Run())
}

// victim changes the workspace and takes and restores checkpoints until it is
// killed; it prints each checkpoint once it was answered.
func victim(ws, shadow string) {
	c := New(Options{Root: ws, Shadow: shadow})
	rnd := rand.New(rand.NewSource(time.Now().UnixNano()))
	var done []string
	for i := 0; ; i++ {
		n := 3
		if i%7 == 0 {
			n = 150 // a pack
		}
		for range n {
			name := fmt.Sprintf("%s/d%d/f%d", ws, rnd.Intn(9), rnd.Intn(40))
			os.MkdirAll(filepath.Dir(name), 0o755)
			os.WriteFile(name, []byte(strings.Repeat(fmt.Sprint(rnd.Int()), 20)), 0o644)
		}
		cp, err := c.Take(bg, guest.CheckpointRequest{Step: fmt.Sprint(i)})
		if err != nil {
			fmt.Println("error", err)
			os.Exit(3)
		}
		fmt.Println("took", cp.Commit, cp.Sum)
		done = append(done, cp.Commit)
		if i%5 == 4 {
			if _, err := c.Restore(bg, done[rnd.Intn(len(done))]); err != nil {
				fmt.Println("error", err)
				os.Exit(3)
			}
		}
	}
}

func TestKilledAtAnyTime(t *testing.T) {
	r := setup(t, false)
	rnd := rand.New(rand.NewSource(11))
	sums := map[string]string{}
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	for round := range rounds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "CHECKPOINT_VICTIM="+r.ws, "CHECKPOINT_SHADOW="+r.shadow)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// In every other life the time runs from its first answer, so that there is one
		// also where a machine is slow.
		life := time.Duration(20+rnd.Intn(500)) * time.Millisecond
		running := round%2 == 0
		if running {
			time.AfterFunc(life, func() { cmd.Process.Kill() })
		}
		last := ""
		for s := bufio.NewScanner(out); s.Scan(); {
			if !running {
				running = true
				time.AfterFunc(life, func() { cmd.Process.Kill() })
			}
			f := strings.Fields(s.Text())
			if f[0] != "took" {
				t.Fatal(s.Text())
			}
			last = f[1]
			sums[f[1]] = f[2]
		}
		cmd.Wait()
		// Everything answered is there, whole, and a new guestd goes on from it.
		c := New(Options{Root: r.ws, Shadow: r.shadow, Logf: t.Logf})
		cp, err := c.Take(bg, guest.CheckpointRequest{})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		r.check(cp)
		if last != "" {
			r.inShadow("merge-base", "--is-ancestor", last, cp.Commit)
		}
		r.fsck()
		for _, name := range []string{"/tmp_*", "/objects/tmp_*", "/objects/pack/tmp_*", "/*.lock"} {
			if left, _ := filepath.Glob(r.shadow + name); len(left) != 0 {
				t.Fatalf("round %d: %v", round, left)
			}
		}
	}
	if len(sums) == 0 {
		t.Fatal("no checkpoint was ever answered, so nothing was tested")
	}
	// And each can still be restored.
	c := New(Options{Root: r.ws, Shadow: r.shadow, Logf: t.Logf})
	n := 0
	for commit, sum := range sums {
		if n++; n > 5 {
			break
		}
		if _, err := c.Restore(bg, commit); err != nil {
			t.Fatal(err)
		}
		cp, err := c.Take(bg, guest.CheckpointRequest{Full: true})
		if err != nil || cp.Sum != sum {
			t.Fatalf("checkpoint %s has another sum after a restore: %v", commit, err)
		}
	}
	t.Logf("%d checkpoints in %d lives", len(sums), rounds)
}

func TestDamageIsWorkedAround(t *testing.T) {
	for name, damage := range map[string]func(r *rig, cp guest.Checkpoint){
		"state cut":     func(r *rig, _ guest.Checkpoint) { os.Truncate(r.shadow+"/state", 100) },
		"state changed": func(r *rig, _ guest.Checkpoint) { flip(r.shadow + "/state") },
		"state gone":    func(r *rig, _ guest.Checkpoint) { os.Remove(r.shadow + "/state") },
		"locks": func(r *rig, _ guest.Checkpoint) {
			os.WriteFile(r.shadow+"/index.lock", nil, 0o600)
			os.WriteFile(r.shadow+"/"+objects.Ref+".lock", nil, 0o600)
		},
		"config": func(r *rig, _ guest.Checkpoint) { os.WriteFile(r.shadow+"/config", []byte("[core"), 0o600) },
		"head":   func(r *rig, _ guest.Checkpoint) { os.Remove(r.shadow + "/HEAD") },
	} {
		r := setup(t, false)
		for i := range 100 {
			r.write(fmt.Sprintf("d%d/f%d", i%7, i), fmt.Sprint(i))
		}
		cp := r.take()
		damage(r, cp)
		r.c = New(Options{Root: r.ws, Shadow: r.shadow, Logf: t.Logf})
		again := r.take()
		if !again.Same || again.Commit != cp.Commit || again.Sum != cp.Sum {
			t.Fatalf("%s: %+v", name, again)
		}
		r.write("new", "x")
		next := r.take()
		r.check(next)
		if next.Parent != cp.Commit || len(next.Changes) != 1 {
			t.Fatalf("%s: %+v", name, next)
		}
		r.fsck()
	}
}

func flip(name string) {
	data, _ := os.ReadFile(name)
	data[len(data)/2] ^= 1
	os.WriteFile(name, data, 0o600)
}

// TestLostHead: when even the newest checkpoint is damaged, a new chain begins
// and nothing is deleted.
func TestLostHead(t *testing.T) {
	for _, how := range []string{"ref", "commit"} {
		r := setup(t, false)
		r.write("a", "1")
		cp := r.take()
		if how == "ref" {
			os.WriteFile(filepath.Join(r.shadow, objects.Ref), make([]byte, 41), 0o600)
		} else {
			os.Remove(r.shadow + "/objects/" + cp.Commit[:2] + "/" + cp.Commit[2:])
		}
		r.c = New(Options{Root: r.ws, Shadow: r.shadow, Logf: t.Logf})
		next := r.take()
		r.check(next)
		if next.Parent != "" || next.Same {
			t.Fatalf("%+v", next)
		}
		if _, err := os.Stat(r.shadow + "/damaged-0"); err != nil {
			t.Fatal(err)
		}
		r.fsck()
	}
}

func TestTakesWaitForEachOther(t *testing.T) {
	r := setup(t, true)
	for i := range 50 {
		r.write(fmt.Sprint("f", i), "x")
	}
	var wg sync.WaitGroup
	commits := make([]string, 16)
	for i := range commits {
		wg.Add(1)
		go func() {
			defer wg.Done()
			os.WriteFile(r.path(fmt.Sprint("w", i)), []byte("x"), 0o644)
			cp, err := r.c.Take(bg, guest.CheckpointRequest{})
			if err != nil {
				t.Error(err)
				return
			}
			commits[i] = cp.Commit
			// What this goroutine wrote is in what it got.
			cmd := exec.Command("git", "--git-dir", r.shadow, "cat-file", "-e", cp.Commit+":w"+fmt.Sprint(i))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("checkpoint %s misses w%d: %s", cp.Commit, i, out)
			}
		}()
	}
	wg.Wait()
	last := r.take()
	r.check(last)
	for _, c := range slices.Compact(commits) {
		r.inShadow("merge-base", "--is-ancestor", c, last.Commit)
	}
	r.fsck()
}

// TestWhileBeingWritten: a writer that never stops does not hold a checkpoint up,
// and the one after it stops is exact.
func TestWhileBeingWritten(t *testing.T) {
	for _, watched := range []bool{false, true} {
		r := setup(t, watched)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for n := range 2 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				rnd := rand.New(rand.NewSource(int64(n)))
				for {
					select {
					case <-stop:
						return
					default:
					}
					p := r.path(fmt.Sprintf("d%d/log%d", rnd.Intn(3), rnd.Intn(5)))
					switch rnd.Intn(6) {
					case 0:
						os.Remove(p)
					case 1:
						os.RemoveAll(filepath.Dir(p))
					case 2:
						os.Truncate(p, int64(rnd.Intn(3000)))
					default:
						os.MkdirAll(filepath.Dir(p), 0o755)
						if f, err := os.OpenFile(p, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err == nil {
							fmt.Fprintln(f, strings.Repeat("x", rnd.Intn(2000)))
							f.Close()
						}
					}
				}
			}()
		}
		for range 20 {
			r.take()
		}
		close(stop)
		wg.Wait()
		r.check(r.take())
		r.fsck()
	}
}

// TestSameSizeSameTick: edits that leave size and (coarse) time as they were.
// Kernels since 6.13 stamp files finely, older ones by the tick.
func TestSameSizeSameTick(t *testing.T) {
	r := setup(t, false)
	// In memory syncing takes no time, so that many edits share a tick.
	if dir, err := os.MkdirTemp("/dev/shm", "checkpoint"); err == nil {
		t.Cleanup(func() { os.RemoveAll(dir) })
		os.Mkdir(dir+"/ws", 0o755)
		r.ws, r.shadow = dir+"/ws", dir+"/shadow"
		r.c = New(Options{Root: r.ws, Shadow: r.shadow, Logf: t.Logf})
	}
	r.write("f", "first")
	r.take()
	for i := range 300 {
		r.write("f", fmt.Sprintf("%05d", i))
		cp := r.take()
		if sum := sha1.Sum(fmt.Appendf(nil, "blob 5\x00%05d", i)); r.c.x.get("f").id != sum || cp.Same {
			t.Fatalf("edit %d was not seen", i)
		}
	}
}

// TestMappedWrites raise no event; a small workspace is compared by stat.
func TestMappedWrites(t *testing.T) {
	r := setup(t, true)
	r.write("m", strings.Repeat("x", 4096))
	f, err := os.OpenFile(r.path("m"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	r.take()
	time.Sleep(2 * racyWindow)
	r.take()
	mem[7] = 'y'
	unix.Msync(mem, unix.MS_SYNC)
	cp := r.take()
	if cp.Same {
		t.Fatal("a write through a mapping was missed")
	}
	r.check(cp)
}

func TestCancelled(t *testing.T) {
	r := setup(t, true)
	for i := range 200 {
		r.write(fmt.Sprint("f", i), "x")
	}
	ctx, cancel := contextThatEnds(3)
	defer cancel()
	if _, err := r.c.Take(ctx, guest.CheckpointRequest{}); err == nil {
		t.Log("the checkpoint was faster")
	}
	r.check(r.take())
	done, end := contextThatEnds(0)
	defer end()
	if _, err := r.c.Take(done, guest.CheckpointRequest{}); err == nil {
		t.Fatal("took a checkpoint for nobody")
	}
	r.fsck()
}

// TestStoreCannotBeWritten: a store that cannot be written is an error, and a later Take
// makes up for it.
func TestStoreCannotBeWritten(t *testing.T) {
	r := setup(t, true)
	r.write("a", "1")
	first := r.take()
	// A file in the place of the objects folder stops even root.
	os.Rename(r.shadow+"/objects", r.shadow+"/away")
	os.WriteFile(r.shadow+"/objects", nil, 0o600)
	r.write("a", "2")
	if _, err := r.c.Take(bg, guest.CheckpointRequest{}); err == nil {
		t.Fatal("took a checkpoint into nothing")
	}
	os.Remove(r.shadow + "/objects")
	os.Rename(r.shadow+"/away", r.shadow+"/objects")
	second := r.take()
	r.check(second)
	if second.Parent != first.Commit || len(second.Changes) != 1 {
		t.Fatalf("%+v", second)
	}
}

func TestWorkspaceReplaced(t *testing.T) {
	r := setup(t, true)
	r.write("a", "1")
	r.take()
	os.Rename(r.ws, r.ws+"-old")
	if _, err := r.c.Take(bg, guest.CheckpointRequest{}); err == nil {
		t.Fatal("took a checkpoint of no folder")
	}
	os.Mkdir(r.ws, 0o755)
	r.write("b", "2")
	cp := r.take()
	r.check(cp)
	if len(cp.Changes) != 2 {
		t.Fatalf("%+v", cp.Changes)
	}
}

func TestErrorsAreOfTheContract(t *testing.T) {
	r := setup(t, false)
	if _, err := r.c.Restore(bg, strings.Repeat("a", 40)); !errors.Is(err, guest.ErrNotFound) {
		t.Fatal(err)
	}
}

// contextThatEnds is a context whose Err turns after so many questions.
func contextThatEnds(after int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	c := &ending{Context: ctx, left: after, cancel: cancel}
	if after == 0 {
		cancel()
	}
	return c, cancel
}

type ending struct {
	context.Context
	mu     sync.Mutex
	left   int
	cancel func()
}

func (e *ending) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left--; e.left <= 0 {
		e.cancel()
	}
	return e.Context.Err()
}
