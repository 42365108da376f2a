//go:build linux

package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// smallDisks runs f on small file systems of their own.
func smallDisks(t *testing.T, mib int, f func(t *testing.T, dir string)) {
	t.Run("tmpfs", func(t *testing.T) {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
			t.Skipf("skipped: a small file system cannot be mounted here: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		f(t, dir)
	})
	t.Run("ext4", func(t *testing.T) {
		dir := t.TempDir()
		img := filepath.Join(t.TempDir(), "disk")
		must(t, os.WriteFile(img, nil, 0o600))
		must(t, os.Truncate(img, int64(mib)<<20))
		// No blocks are kept for root: what tests run as must meet the full disk too.
		if out, err := exec.Command("mkfs.ext4", "-q", "-m", "0", "-F", img).CombinedOutput(); err != nil {
			t.Skipf("skipped: no ext4 can be made here: %v %s", err, out)
		}
		if out, err := exec.Command("mount", "-o", "loop", img, dir).CombinedOutput(); err != nil {
			t.Skipf("skipped: an image cannot be mounted here: %v %s", err, out)
		}
		t.Cleanup(func() {
			if exec.Command("umount", dir).Run() != nil { // somebody looks at it just now
				_ = unix.Unmount(dir, unix.MNT_DETACH)
			}
		})
		f(t, dir)
	})
}

// eater writes whatever there is free, again and again, until it is stopped.
func eater(t *testing.T, dir string) (stop func(), isFull <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	first := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		once := sync.OnceFunc(func() { close(first) })
		for i := 0; ctx.Err() == nil; i++ {
			f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("eaten%d", i%50)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			if err != nil {
				time.Sleep(time.Millisecond)
				continue
			}
			for n := 1 << 20; n >= 512 && ctx.Err() == nil; {
				if _, err := f.Write(bytes.Repeat([]byte("e"), n)); errors.Is(err, syscall.ENOSPC) {
					n /= 2
				}
			}
			f.Close()
			once()
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return stop, first
}

func blocks(t *testing.T, path string) int64 {
	var st unix.Stat_t
	must(t, unix.Stat(path, &st))
	return st.Blocks * 512
}

// On a disk that somebody fills as fast as he can, and goes on filling, the log takes
// what is needed to end that; a crash then and a new start change nothing of it.
func TestRoomOnAFullDisk(t *testing.T) {
	ctx := context.Background()
	smallDisks(t, 64, func(t *testing.T, dir string) {
		l, err := Open(dir, Options{HoldNow: true})
		must(t, err)
		defer func() { l.Close() }()
		ballast := filepath.Join(dir, BallastName)
		// From the first moment on, not a while later.
		if st, err := os.Stat(ballast); err != nil || st.Size() == 0 || blocks(t, ballast) < st.Size() {
			t.Fatalf("there is no ballast: %v", err)
		}
		_, err = l.Append(ctx, msg("session:a", "before"))
		must(t, err)
		stop, isFull := eater(t, dir)
		<-isFull
		n := 1
		for ; n < 200; n++ {
			if _, err = l.Append(ctx, msg("session:a", fmt.Sprint(n, strings.Repeat("x", 1500)))); err != nil {
				t.Fatalf("event %d on a disk that is being filled: %v", n, err)
			}
		}
		select {
		case <-l.Short():
		default:
			t.Error("nobody was told that the disk is full")
		}
		// A crash leaves the write-ahead log; the eater was ended by it.
		stop()
		crashed := t.TempDir()
		for _, name := range []string{FileName, FileName + "-wal"} {
			b, err := os.ReadFile(filepath.Join(dir, name))
			must(t, err)
			must(t, os.WriteFile(filepath.Join(crashed, name), b, 0o600))
		}
		if rep := mustVerify(t, openTest(t, crashed)); rep.Events != int64(n) {
			t.Errorf("after a crash the log has %d events of %d", rep.Events, n)
		}
		must(t, l.Close())
		// What the orderly end let go of is filled too: only the ballast is left.
		stop, isFull = eater(t, dir)
		<-isFull
		stop()
		_, free, _ := space(dir)
		l, err = Open(dir, Options{})
		if err != nil {
			t.Fatalf("a new start with %d bytes free: %v", free, err)
		}
		for ; n < 250; n++ {
			if _, err = l.Append(ctx, msg("session:a", fmt.Sprint(n))); err != nil {
				t.Fatalf("event %d of the new start: %v", n, err)
			}
		}
		if rep := mustVerify(t, l); rep.Events != int64(n) {
			t.Fatalf("%d events of %d", rep.Events, n)
		}
		// With space there is a ballast again.
		eaten, err := filepath.Glob(filepath.Join(dir, "eaten*"))
		must(t, err)
		for _, f := range eaten {
			must(t, os.Remove(f))
		}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			_, err = l.Append(ctx, msg("session:a", "after"))
			must(t, err)
			if st, err := os.Stat(ballast); err == nil && st.Size() > 0 && blocks(t, ballast) >= st.Size() {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the ballast is not made again")
			}
		}
		// While there is no space it is not made again at once.
		stop, isFull = eater(t, dir)
		<-isFull
		stop()
		if !l.GiveRoom() || l.GiveRoom() {
			t.Error("the ballast is given up once")
		}
		if st, err := os.Stat(ballast); err != nil || st.Size() != 0 {
			t.Errorf("given up, the ballast has %d bytes: %v", st.Size(), err)
		}
	})
}

// What is held is bounded, however much is written.
func TestRoomIsBounded(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, dir)
	for i := range 500 {
		_, err := l.Append(context.Background(), msg("session:a", fmt.Sprint(i, strings.Repeat("x", 40000))))
		must(t, err)
	}
	wal := filepath.Join(dir, FileName+"-wal")
	if st, err := os.Stat(wal); err != nil || blocks(t, wal)-st.Size() > 2*mostAhead {
		t.Errorf("the write-ahead log holds %d bytes behind its %d: %v", blocks(t, wal), st.Size(), err)
	}
	var free, page int64
	must(t, l.r.QueryRow("PRAGMA page_size").Scan(&page))
	for deadline := time.Now().Add(time.Minute); free == 0; time.Sleep(10 * time.Millisecond) {
		must(t, l.r.QueryRow("PRAGMA freelist_count").Scan(&free))
		if time.Now().After(deadline) {
			t.Fatal("no free pages are held")
		}
	}
	if free*page > 2*mostPages {
		t.Errorf("%d free pages are held", free)
	}
}

// What says, while a log is opened, that there was no room is tried again; what else is
// wrong is said at once.
func TestOpenedTriesAgain(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"no block behind a mapped page": {sqliteError(t, sqlite3.SQLITE_IOERR_IN_PAGE), 3},
		"no room for the shared part":   {sqliteError(t, sqlite3.SQLITE_IOERR_SHMSIZE), 3},
		"damage":                        {sqliteError(t, sqlite3.SQLITE_CORRUPT), 1},
	} {
		n := 0
		_, err := opened(t.TempDir(), func() (*Log, error) {
			if n++; n < 3 {
				return nil, explain("The event log cannot be read", c.err)
			}
			return &Log{}, nil
		})
		if n != c.want || (err == nil) != (c.want > 1) {
			t.Errorf("%s: opened %d times: %v", name, n, err)
		}
	}
}

// sqliteError is one with a code, as the database makes it.
func sqliteError(t *testing.T, code int32) error {
	t.Helper()
	e := new(sqlite.Error)
	f := reflect.ValueOf(e).Elem().FieldByName("code")
	reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem().SetInt(int64(code))
	return e
}
