package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// seeds is how many different moments each target is killed at: a few in CI, more
// in the long runs.
func seeds(def int) int {
	if n, err := strconv.Atoi(os.Getenv("GLASSHOUSE_SEEDS")); err == nil && n > 0 {
		return n
	}
	return def
}

// TestKill kills the core, guestd, or the machine itself in mid-step, with an
// outside reader of the events, and looks for everything that was seen before.
func TestKill(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		for _, target := range []string{"core", "guestd", "machine"} {
			t.Run(target, func(t *testing.T) {
				w := NewWorld(t, kind)
				w.Start()
				p := w.Project("")
				for seed := range seeds(2) {
					t.Run(fmt.Sprint(seed), func(t *testing.T) {
						old := w.t
						w.t = t
						defer func() { w.t = old }()
						killOnce(t, w, p, target, int64(seed))
					})
					if t.Failed() {
						return
					}
				}
			})
		}
	})
}

func killOnce(t *testing.T, w *World, p httpapi.ProjectView, target string, seed int64) {
	rng := rand.New(rand.NewSource(seed*7919 + int64(len(target))))
	s := w.Session(p)
	f := w.Follow()
	var once sync.Once
	stop := func() (fr []Frame) { once.Do(func() { fr = f.Stop() }); return fr }
	defer stop()
	// A few whole steps, then one that is killed in its middle.
	n := 2 + rng.Intn(2)
	for i := range n {
		if a := w.Bash(s, step(seed, i, "")); a.ExitCode == nil || *a.ExitCode != 0 {
			t.Fatalf("step %d: %+v", i, a)
		}
	}
	var st httpapi.ExecAnswer
	w.Call("POST", "/v1/sessions/"+s+"/exec", map[string]any{"argv": []string{"bash", "-c", step(seed, n, "for i in $(seq 20); do echo line $i; sleep 0.1; done;")}}, &st)
	w.begun(s, fmt.Sprintf("step-%d-%d", seed, n))
	time.Sleep(time.Duration(rng.Intn(2200)) * time.Millisecond)
	killed := time.Now()
	switch target {
	case "core":
		w.KillCore()
		time.Sleep(time.Duration(rng.Intn(500)) * time.Millisecond)
		w.Start()
	case "guestd":
		killGuestd(t, w, p)
	case "machine":
		killMachine(t, w, p)
	}
	// The step gets its real outcome, or "unknown" when the machine died under it.
	var v struct {
		State domain.StepState `json:"state"`
		Ended *event.StepEnded `json:"ended"`
	}
	w.Until("the end of the killed step", func() bool {
		w.Call("GET", "/v1/sessions/"+s+"/steps/"+string(st.ExecutionID)+"?wait=sealed&wait_ms=2000", nil, &v)
		return v.State == domain.StepSealed
	})
	t.Logf("killed %s; the step ended %s %q after %s", target, v.Ended.Outcome, v.Ended.Error, time.Since(killed).Round(time.Millisecond))
	witnessed := w.Bash(s, "cat /workspace/witness")
	done := strings.Contains(witnessed.Stdout, fmt.Sprintf("done %d.%d\n", seed, n))
	switch {
	case target != "machine" && v.Ended.Outcome != domain.OutcomeOK:
		t.Errorf("the command went on and ended, but its outcome is %s: %s", v.Ended.Outcome, v.Ended.Error)
	case target != "machine" && !done:
		t.Error("the outcome is ok but the witness knows nothing of it")
	case target == "machine" && v.Ended.Outcome == domain.OutcomeOK && !done:
		t.Error("the outcome is ok but the witness was lost")
	case target == "machine" && v.Ended.Outcome != domain.OutcomeOK && v.Ended.Outcome != domain.OutcomeUnknown:
		t.Errorf("a step whose machine died ended %s", v.Ended.Outcome)
	}
	if target != "machine" {
		want := ""
		for i := 1; i <= 20; i++ {
			want += fmt.Sprintf("line %d\n", i)
		}
		if got := v.Ended.Stdout.Head + v.Ended.Stdout.Tail; got != want {
			t.Errorf("output over the kill: %q", got)
		}
	}
	// Work goes on.
	if a := w.Bash(s, step(seed, n+1, "")); a.ExitCode == nil || *a.ExitCode != 0 {
		t.Fatalf("after the kill: %+v", a)
	}
	var newest httpapi.Info
	w.Call("GET", "/v1/info", nil, &newest)
	w.Until("the reader to have it all", func() bool { return f.last.Load() >= newest.Latest })
	frames := stop()
	stored := map[int64]string{}
	var sealed []event.StepSealed
	for _, e := range w.Log(nil) {
		stored[e.ID] = exact(t, e)
	}
	for i, fr := range frames {
		if i > 0 && fr.ID <= frames[i-1].ID {
			t.Fatalf("frame %d came after frame %d", fr.ID, frames[i-1].ID)
		}
		if stored[fr.ID] != fr.Data {
			t.Errorf("event %d was received and is not what is stored:\n%s\n%s", fr.ID, fr.Data, stored[fr.ID])
		}
		var e event.Envelope
		if json.Unmarshal([]byte(fr.Data), &e) == nil && e.Type == "step.sealed" && string(e.SessionID) == s {
			var x event.StepSealed
			if err := json.Unmarshal(e.Data, &x); err != nil {
				t.Fatal(err)
			}
			sealed = append(sealed, x)
		}
	}
	if len(sealed) < n {
		t.Errorf("the reader saw %d seals of %d whole steps", len(sealed), n)
	}
	for _, x := range sealed {
		if x.Failed != "" || x.Commit == "" {
			t.Errorf("a step was not sealed: %+v", x)
			continue
		}
		if got := checkpointSum(t, w, p, s, x.Commit); got != x.Sum {
			t.Errorf("checkpoint %s has sum %s, sealed was %s", x.Commit, got, x.Sum)
		}
	}
	for i := range n {
		if a := w.Bash(s, fmt.Sprintf("cat step-%d-%d", seed, i)); a.Stdout != fmt.Sprintf("content %d\n", i) {
			t.Errorf("sealed file of step %d: %+v", i, a)
		}
	}
	w.Call("POST", "/v1/log/verify", nil, nil)
	w.Call("POST", "/v1/sessions/"+s+"/end", nil, nil)
}

// TestMachineDiesBeforeTheSeal takes the power away when a step has ended and its
// checkpoint is about to be taken: it is taken of what the step wrote.
func TestMachineDiesBeforeTheSeal(t *testing.T) {
	onKind(t, "local")
	w := NewWorld(t, "local")
	w.Start()
	p := w.Project("")
	s := w.Session(p)
	for i := range 3 {
		name := fmt.Sprintf("written-%d", i)
		var a httpapi.ExecAnswer
		w.Call("POST", "/v1/sessions/"+s+"/exec?wait=ended", map[string]any{"argv": []string{"bash", "-c", "echo x >" + name + "; sync " + name}}, &a)
		killed := pids(t, w, p)["guestd"]
		killMachine(t, w, p)
		w.Call("GET", "/v1/sessions/"+s+"/steps/"+string(a.ExecutionID)+"/exec?wait=sealed", nil, &a)
		if a.ExitCode == nil || *a.ExitCode != 0 || a.Checkpoint == "" || len(a.FileChanges) != 1 || a.FileChanges[0].Path != name {
			t.Errorf("%+v", a)
		}
		// Where the seal was quicker nobody needed the machine: its end is noticed.
		w.Until("the end of the machine", func() bool {
			var m httpapi.MachineView
			var v httpapi.ProjectView
			w.Call("GET", "/v1/projects/"+string(p.ID)+"/machine", nil, &m)
			w.Call("GET", "/v1/projects/"+string(p.ID), nil, &v)
			return m.Pids["guestd"] != killed && (m.Pids["guestd"] != 0 || v.State != "ready")
		})
	}
}

// begun waits until a command of a session made a file.
func (w *World) begun(session, file string) {
	w.t.Helper()
	w.Until("the begin of the command", func() bool {
		err := w.Try("GET", "/v1/sessions/"+session+"/file?path="+url.QueryEscape(file), nil, nil)
		if err != nil && code(err) != "not_found" {
			w.t.Fatal(err)
		}
		return err == nil
	})
}

// step writes a file and, at its very end, a synced line into the witness file.
func step(seed int64, i int, body string) string {
	return fmt.Sprintf("echo content %d >step-%d-%d; %s echo done %d.%d >>witness; sync witness", i, seed, i, body, seed, i)
}

func pids(t *testing.T, w *World, p httpapi.ProjectView) map[string]int {
	var m httpapi.MachineView
	w.Call("GET", "/v1/projects/"+string(p.ID)+"/machine", nil, &m)
	if len(m.Pids) == 0 {
		t.Fatalf("the machine has no processes: %+v", m)
	}
	return m.Pids
}

// killGuestd kills the worker: from outside where its process is the host's, as
// the guest's root in a VM.
func killGuestd(t *testing.T, w *World, p httpapi.ProjectView) {
	if w.Kind == "lima" {
		other := w.Session(p)
		w.Call("POST", "/v1/sessions/"+other+"/exec", map[string]any{"argv": []string{"sudo", "pkill", "-9", "-f", "guestd serve"}}, nil)
		return
	}
	hit := 0
	roots := pids(t, w, p)
	ents, _ := os.ReadDir("/proc")
	for _, e := range ents {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		argv := strings.Split(commandLine(pid), "\x00")
		if len(argv) < 2 || !strings.HasSuffix(argv[0], "guestd") || argv[1] != "serve" || !inMachine(pid, roots) {
			continue
		}
		// What the worker is about to run looks like the worker until it runs.
		if of, alive := parent(pid); !alive || copies(pid, of) {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		hit++
	}
	if hit != 1 {
		t.Fatalf("%d guestd workers of this machine were found", hit)
	}
}

// inMachine reports whether a process descends from one of the machine's.
func inMachine(pid int, roots map[string]int) bool {
	for range 64 {
		for _, r := range roots {
			if r == pid {
				return true
			}
		}
		of, alive := parent(pid)
		if pid = of; !alive || pid <= 1 {
			return false
		}
	}
	return false
}

// killMachine takes the power away: QEMU, or the sandbox's pid 1.
func killMachine(t *testing.T, w *World, p httpapi.ProjectView) {
	roles := pids(t, w, p)
	for _, role := range []string{"qemu", "guestd"} {
		if pid := roles[role]; pid > 0 {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no process to kill among %v", roles)
}

// checkpointSum reads a checkpoint's tree out of the shadow store, past guestd.
func checkpointSum(t *testing.T, w *World, p httpapi.ProjectView, s, commit string) string {
	if w.Kind == "lima" {
		a := w.Bash(s, "sudo git --git-dir=/var/lib/glasshouse/shadow ls-tree -r -z "+commit+" | sha256sum")
		return strings.Fields(a.Stdout + " -")[0]
	}
	dir := filepath.Join(w.Data, "m", string(p.Machine), "var", "shadow")
	c := exec.Command("git", "-c", "safe.directory=*", "--git-dir", dir, "ls-tree", "-r", "-z", commit)
	out, err := c.Output()
	if err != nil {
		t.Fatalf("the shadow store lacks %s: %v", commit, err)
	}
	sum := sha256.Sum256(out)
	return hex.EncodeToString(sum[:])
}
