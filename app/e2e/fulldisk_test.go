//go:build linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// ownMounts runs the calling test again in a process with a mount namespace of its own,
// so that nothing it mounts is left on this computer, whatever becomes of it. It
// reports whether this is that process.
func ownMounts(t *testing.T) bool {
	t.Helper()
	const mark = "GLASSHOUSE_E2E_OWN_MOUNTS"
	if os.Getenv(mark) == t.Name() {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root may mount the small disk that this test fills")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pattern := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	c := exec.Command(exe, "-test.run="+pattern, "-test.v", "-test.timeout=8m")
	c.Env = append(os.Environ(), mark+"="+t.Name())
	// It ends with this thread, whose process may be stopped for taking too long.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := c.CombinedOutput()
	switch {
	case errors.Is(err, syscall.EPERM):
		t.Skipf("skipped: this system refuses a mount namespace: %v", err)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case bytes.Contains(out, []byte("--- SKIP")):
		t.Skipf("skipped there:\n%s", out)
	case !bytes.Contains(out, []byte("--- PASS: "+t.Name())):
		t.Fatalf("it did not run:\n%s", out)
	}
	t.Logf("%s", out)
	return false
}

// smallDisk puts a world's data on a file system of its own. What is large and never
// written again (the image, our programs) stays outside.
func smallDisk(t *testing.T, w *World, fs string, mib int) {
	t.Helper()
	if out, err := w.CLI("image", "build"); err != nil {
		t.Fatalf("the image: %v\n%s", err, out)
	}
	if out, err := w.CLI("quit", "--now"); err != nil {
		t.Fatalf("quit: %v\n%s", err, out)
	}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	outside := []string{"images", "tools"}
	for _, name := range outside {
		must("move "+name, os.Rename(filepath.Join(w.Data, name), filepath.Join(w.Dir, name)))
	}
	switch fs {
	case "tmpfs":
		if err := unix.Mount("tmpfs", w.Data, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=711", mib)); err != nil {
			t.Skipf("skipped: a small file system cannot be mounted here: %v", err)
		}
	default:
		img := filepath.Join(w.Dir, "disk.img")
		must("image", os.WriteFile(img, nil, 0o600))
		must("image", os.Truncate(img, int64(mib)<<20))
		// No blocks are kept for root, which the core is here: it meets the full disk too.
		if out, err := exec.Command("mkfs."+fs, "-q", "-m", "0", "-F", img).CombinedOutput(); err != nil {
			t.Skipf("skipped: no %s can be made here: %v %s", fs, err, out)
		}
		if out, err := exec.Command("mount", "-o", "loop", img, w.Data).CombinedOutput(); err != nil {
			t.Skipf("skipped: an image cannot be mounted here: %v %s", err, out)
		}
		must("mode", os.Chmod(w.Data, 0o711))
	}
	t.Cleanup(func() { // before the world looks for what is left
		for _, name := range outside {
			_ = unix.Unmount(filepath.Join(w.Data, name), unix.MNT_DETACH)
		}
	})
	for _, name := range outside {
		must("mkdir", os.Mkdir(filepath.Join(w.Data, name), 0o755))
		must("bind "+name, unix.Mount(filepath.Join(w.Dir, name), filepath.Join(w.Data, name), "", unix.MS_BIND, ""))
	}
}

// eat fills a disk as fast as it can, again and again, until it is stopped.
func eat(dir string) (stop func(), isFull <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	first := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		once := sync.OnceFunc(func() { close(first) })
		for i := 0; ctx.Err() == nil; i++ {
			f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("eaten%d", i%20)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
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
			time.Sleep(time.Millisecond)
		}
	})
	return sync.OnceFunc(func() { cancel(); wg.Wait() }), first
}

func freeBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}

// TestFullDisk: what agents do in a sandbox without a quota, and whatever else fills the
// disk, locks nobody out. What would free it works and is recorded.
func TestFullDisk(t *testing.T) {
	onKind(t, "local")
	for _, fs := range []string{"tmpfs", "ext4"} {
		t.Run(fs, func(t *testing.T) {
			if ownMounts(t) {
				fullDisk(t, fs)
			}
		})
	}
}

func fullDisk(t *testing.T, fs string) {
	var w *World
	t.Cleanup(func() { // after the world's own: a folder that is mounted on cannot be removed
		if w != nil && os.Getenv("GLASSHOUSE_KEEP") == "" {
			_ = unix.Unmount(w.Data, unix.MNT_DETACH)
			_ = os.RemoveAll(w.Dir)
		}
	})
	w = NewWorld(t, "local")
	smallDisk(t, w, fs, 128)
	w.Start()
	p, other := w.Project(""), w.Project("")
	s := w.Session(p)
	bash := func(code string) map[string]any { return map[string]any{"argv": []string{"bash", "-c", code}} }

	// An agent's step fills the disk. It is stopped, and its end says why.
	var st httpapi.ExecAnswer
	if err := w.TryAs("agent", "POST", "/v1/sessions/"+s+"/exec?wait=sealed",
		bash("while :; do dd if=/dev/urandom of=/workspace/f$RANDOM bs=1M count=200 2>/dev/null; sleep 0.1; done"), &st); err != nil {
		t.Fatal(err)
	}
	var v struct {
		State  domain.StepState   `json:"state"`
		Ended  *event.StepEnded   `json:"ended"`
		Sealed *event.StepSealed  `json:"sealed"`
		Refuse *event.StepRefused `json:"refused"`
	}
	w.Call("GET", "/v1/sessions/"+s+"/steps/"+string(st.ExecutionID)+"?wait=sealed", nil, &v)
	if v.Ended == nil || v.Ended.Outcome != domain.OutcomeCancelled || !strings.Contains(v.Ended.Error, "nearly full") || !strings.Contains(v.Ended.Error, "trash empty") {
		t.Fatalf("the step that filled the disk ended %+v", v.Ended)
	}
	if v.Sealed == nil || v.Sealed.Failed == "" && v.Sealed.Commit == "" {
		t.Fatalf("it was sealed with neither a checkpoint nor a reason: %+v", v.Sealed)
	}
	t.Logf("%d bytes free; sealed %q %s", freeBytes(t, w.Data), v.Sealed.Failed, v.Sealed.Commit)

	// From here on something else takes every byte that gets free.
	stop, isFull := eat(w.Data)
	defer func() { stop() }()
	<-isFull
	w.Until("the core's word that the disk is full", func() bool {
		var in httpapi.Info
		w.Call("GET", "/v1/info", nil, &in)
		return in.Disk != nil && in.Disk.State == "full"
	})
	if err := w.TryAs("agent", "POST", "/v1/sessions/"+s+"/exec?wait=ended", bash("echo more >more"), &st); err != nil {
		t.Fatal(err)
	}
	w.Call("GET", "/v1/sessions/"+s+"/steps/"+string(st.ExecutionID), nil, &v)
	if v.State != domain.StepDenied || v.Refuse == nil || !strings.Contains(v.Refuse.Reason, "nearly full") {
		t.Errorf("an agent's next change: %s %+v", v.State, v.Refuse)
	}
	if out, err := w.CLI("doctor"); !strings.Contains(out, "nearly full") {
		t.Errorf("doctor says nothing of it: %v\n%s", err, out)
	}
	// A person's step may run (the guest may have no room for it, then it says so); it
	// can be cancelled.
	begun := make(chan error, 1)
	go func() {
		var a httpapi.ExecAnswer
		begun <- w.Try("POST", "/v1/sessions/"+s+"/exec?wait=ended", bash("sleep 1000"), &a)
	}()
	w.Until("the person's step", func() bool {
		asked := domain.StepID("")
		for _, e := range w.Log(url.Values{"session_id": {s}}) {
			if e.Type == "step.requested" && e.Actor == "person" {
				asked = e.StepID
			} else if e.StepID == asked && (e.Type == "step.started" || e.Type == "step.ended") {
				return true
			}
		}
		return false
	})
	mustWork := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s on a full disk (%d bytes free): %v", what, freeBytes(t, w.Data), err)
		}
	}
	if err := w.Try("POST", "/v1/sessions/"+s+"/cancel", map[string]any{}, nil); err != nil && code(err) != "conflict" {
		mustWork("cancel", err)
	}
	mustWork("the cancelled call", <-begun)
	mustWork("machine stop", w.Try("POST", "/v1/projects/"+string(p.ID)+"/machine/stop", nil, nil))

	// A crash while the disk is full. While the next core opens the log nobody races it for
	// the few blocks that SQLite lets go of for a moment: that race can be lost.
	stop()
	w.KillCore()
	w.Start()
	stop, isFull = eat(w.Data)
	<-isFull
	mustWork("session end", w.Try("POST", "/v1/sessions/"+s+"/end", nil, nil))
	mustWork("project delete", w.Try("DELETE", "/v1/projects/"+string(p.ID), nil, nil))
	var had httpapi.Trash
	mustWork("trash", w.Try("GET", "/v1/trash", nil, &had))
	if err := w.TryAs("agent", "DELETE", "/v1/trash", nil, nil); code(err) != "denied" {
		t.Errorf("an agent empties the trash: %v", err)
	}
	// The other machine works in the meantime as it can, and is stopped too.
	mustWork("the other machine's stop", w.Try("POST", "/v1/projects/"+string(other.ID)+"/machine/stop", nil, nil))

	// The end of what ate it, and there is space again.
	stop()
	eaten, _ := filepath.Glob(filepath.Join(w.Data, "eaten*"))
	for _, f := range eaten {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := w.CLI("trash", "empty"); err != nil || !strings.Contains(out, fmt.Sprintf("removed %d entries", len(had.Entries))) {
		t.Errorf("trash empty: %v\n%s", err, out)
	}
	w.Until("the word that there is space", func() bool {
		var in httpapi.Info
		w.Call("GET", "/v1/info", nil, &in)
		return in.Disk.State == "ok"
	})
	s2 := w.Session(other)
	var a httpapi.ExecAnswer
	if err := w.TryAs("agent", "POST", "/v1/sessions/"+s2+"/exec?wait=sealed", bash("echo again >again; cat again"), &a); err != nil || a.ExitCode == nil || *a.ExitCode != 0 || a.Stdout != "again\n" {
		t.Errorf("after there is space: %v %+v", err, a)
	}
	fresh := w.Project("")
	if a := w.Bash(w.Session(fresh), "echo ok"); a.Stdout != "ok\n" {
		t.Errorf("a new project: %+v", a)
	}
	w.Until("the ballast", func() bool {
		w.Call("POST", "/v1/sessions/"+s2+"/exec?wait=ended", bash("true"), nil)
		st, err := os.Stat(filepath.Join(w.Data, "ballast"))
		return err == nil && st.Size() > 0
	})

	// All of it is in the log, and the chain holds.
	seen := map[string]int{}
	for _, e := range w.Log(nil) {
		key := string(e.Type)
		var x struct {
			State   string `json:"state"`
			Outcome string `json:"outcome"`
		}
		_ = json.Unmarshal(e.Data, &x)
		seen[strings.TrimSpace(key+" "+x.State+x.Outcome)]++
	}
	for want, n := range map[string]int{"disk.space full": 1, "disk.space ok": 1, "step.ended cancelled": 1, "session.state ended": 1, "machine.state off": 2, "project.deleted": 1, "trash.emptied": 1, "core.started": 2} {
		if seen[want] < n {
			t.Errorf("the log holds %d of %q, expected %d at least: %v", seen[want], want, n, seen)
		}
	}
	w.Call("POST", "/v1/log/verify", nil, nil)
	if out, err := w.CLI("log", "verify"); err != nil || !strings.Contains(out, "the chain holds") {
		t.Errorf("verify: %v\n%s", err, out)
	}
}
