package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/model"
)

// treeCode becomes a tree of processes that go on for ever, as many as a build or a run of
// tests has: a shell, its children, and one of them in a session of its own. Each carries
// the mark and a name.
const treeCode = `exec -a MARK-root bash -c '
for i in {1..21}; do bash -c "exec -a MARK-$i sleep 1000" & done
setsid bash -c "exec -a MARK-own sleep 1000" &
bash -c "HEEDexec -a MARK-last sleep 1000" &
wait'`

const treeSize = 24

// tree with a mark. A deaf one holds a process that does not listen to SIGTERM: it gets
// SIGKILL after the time that processes have to end by themselves.
func tree(mark string, deaf bool) string {
	heed := ""
	if deaf {
		heed = `trap \"\" TERM; `
	}
	return strings.NewReplacer("MARK", mark, "HEED", heed).Replace(treeCode)
}

// trees looks at the marked processes of a world's machine.
type trees struct {
	w     *modelWorld
	watch string // a session that looks inside
}

// marked lists the processes that carry a mark with their names, but not what holds the
// tree's own text: in a VM by ps inside, in a sandbox, whose steps do not see each other,
// from outside.
func (x *trees) marked(mark string) map[int]string {
	found := map[int]string{}
	if x.w.Kind == "lima" {
		a := x.w.Exec(x.watch, "ps", "-eo", "pid=,args=")
		for line := range strings.Lines(a.Stdout) {
			f := strings.Fields(line)
			if len(f) > 1 && strings.HasPrefix(f[1], mark+"-") {
				pid, _ := strconv.Atoi(f[0])
				found[pid] = f[1]
			}
		}
		return found
	}
	ents, _ := os.ReadDir("/proc")
	for _, e := range ents {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cmd, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		name, _, _ := bytes.Cut(cmd, []byte{0})
		if bytes.HasPrefix(name, []byte(mark+"-")) {
			found[pid] = string(name)
		}
	}
	return found
}

// up waits for the whole tree: one process of each name. A shell's child has the shell's
// name until it is what it is going to be.
func (x *trees) up(mark string) (pids []int) {
	x.w.t.Helper()
	x.w.Until("the tree of processes", func() bool {
		found := x.marked(mark)
		names := map[string]bool{}
		for _, name := range found {
			names[name] = true
		}
		pids = slices.Sorted(maps.Keys(found))
		return len(names) == treeSize && len(pids) == treeSize
	})
	return pids
}

func TestModelCancel(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		for _, f := range formats(kind) {
			t.Run(string(f), func(t *testing.T) { modelCancel(t, kind, f) })
		}
	})
}

func modelCancel(t *testing.T, kind string, f model.Format) {
	rounds := 15
	if kind == "lima" {
		rounds = 7
	}
	own := domain.NewID("") // others may run this test beside us
	text := "answers: [{say: There is no more.}]\nkeyed:\n  - match: {has: [Go on.]}\n    say: Gone on with.\n" +
		"  - {match: {has: [Say something.]}, say: A long text that stops in its middle and never ends., stall: true}\n"
	for prompt, code := range map[string]string{"Work.": tree(own+".${i}", false), "Be deaf.": tree(own+".deaf", true)} {
		text += fmt.Sprintf("  - match: {has: [%q]}\n    say: I work.\n    calls: [{tool: exec, args: {lang: bash, code: %q, timeout_ms: 900000}}]\n", prompt, code)
	}
	w := newModelWorld(t, kind, f, script(t, text), "")
	w.p = w.Project("")
	ses := w.modelSession(nil)
	x := &trees{w: w, watch: w.Session(w.p)}
	manual := w.Session(w.p)
	// stopped lets the model begin a tree and cancels its turn.
	stopped := func(prompt, mark string) time.Duration {
		turn := w.prompt(ses, prompt)
		x.up(mark)
		begun := time.Now()
		w.Call("POST", "/v1/sessions/"+ses+"/cancel", map[string]any{}, nil)
		took := time.Since(begun)
		if left := x.marked(mark); len(left) > 0 {
			t.Errorf("%s: %d processes are left after the cancel", mark, len(left))
		}
		w.Until("the model's server to be let go of", func() bool { return w.srv.Conns() == 0 })
		if end := w.ended(ses, turn); end.Result != "cancelled" {
			t.Errorf("%s: the turn ended %s: %s", mark, end.Result, end.Reason)
		}
		return took
	}
	var cancels, kills, steps, alone []time.Duration
	round := func() {
		i := len(cancels) + 1
		cancels = append(cancels, stopped("Work.", fmt.Sprintf("%s.%d", own, i)))

		// The same tree, killed as barely as can be.
		mark := fmt.Sprintf("%s.bare%d", own, i)
		var a httpapi.ExecAnswer
		w.Call("POST", "/v1/sessions/"+manual+"/exec", map[string]any{"lang": "bash", "code": tree(mark, false), "timeout_ms": 900000}, &a)
		kill, step := x.bare(x.up(mark), manual, a.ExecutionID)
		kills, steps = append(kills, kill), append(steps, step)

		// And as a step that no model called.
		mark = fmt.Sprintf("%s.step%d", own, i)
		w.Call("POST", "/v1/sessions/"+manual+"/exec", map[string]any{"lang": "bash", "code": tree(mark, false), "timeout_ms": 900000}, &a)
		x.up(mark)
		begun := time.Now()
		w.Call("POST", "/v1/sessions/"+manual+"/cancel", map[string]any{"step_id": a.ExecutionID}, nil)
		alone = append(alone, time.Since(begun))
	}
	// What is slower by itself is so at its best, too; a busy computer is not.
	slower := func(a, b []time.Duration) bool { return median(a) > 3*median(b) && slices.Min(a) > 3*slices.Min(b) }
	// And it stays so however often it is measured: where few rounds seem to show it, more
	// of them tell it from what else this computer did at the time.
	for len(cancels) < rounds || len(cancels) < 4*rounds && (slower(cancels, kills) || slower(cancels, alone)) {
		round()
	}
	t.Logf("with a process that ignores SIGTERM the cancel takes %v", stopped("Be deaf.", own+".deaf"))
	t.Logf("the cancel of a turn answers in %v (median %v); a bare kill takes %v (median %v), until its step has ended %v (median %v); the cancel of a step without a model answers in %v (median %v)",
		rounded(cancels), median(cancels), rounded(kills), median(kills), rounded(steps), median(steps), rounded(alone), median(alone))
	if slower(cancels, kills) {
		t.Errorf("the cancel of a turn takes %v, which is more than three times a bare kill's %v", median(cancels), median(kills))
	}
	if slower(cancels, alone) {
		t.Errorf("the cancel of a turn takes %v, which is more than three times that of a step, %v", median(cancels), median(alone))
	}

	// While an answer comes in.
	before := len(w.srv.Requests())
	turn := w.prompt(ses, "Say something.")
	w.Until("the answer's beginning", func() bool {
		rs := w.srv.Requests()
		return len(rs) == before+1 && rs[before].Answer > 0 && w.srv.Conns() == 1
	})
	w.Call("POST", "/v1/sessions/"+ses+"/cancel", map[string]any{}, nil)
	w.Until("the end of the connection", func() bool { return w.srv.Conns() == 0 })
	if end := w.ended(ses, turn); end.Result != "cancelled" {
		t.Errorf("the turn ended %s: %s", end.Result, end.Reason)
	}
	// And the conversation is whole: the next answer is taken.
	if end := w.ended(ses, w.prompt(ses, "Go on.")); end.Result != "unchecked" {
		t.Errorf("after all cancels the turn ended %s: %s", end.Result, end.Reason)
	}
	w.faultless()
	w.oneResultEach(ses)
	for _, e := range payloads[*event.ModelTold](w.World, ses) {
		for _, r := range e.Results {
			if !strings.Contains(r.Text, "ancelled") {
				t.Errorf("a cancelled call is told as %q", r.Text)
			}
		}
	}
}

// bareCode kills processes where they are and says in nanoseconds how long it took until
// none was left.
const bareCode = `import os, select, signal, sys, time
pids = [int(p) for p in sys.argv[1:]]
fds = [os.pidfd_open(p) for p in pids]
begun = time.monotonic_ns()
for p in pids:
    os.kill(p, signal.SIGKILL)
for f in fds:
    select.select([f], [], [])
for p in pids:
    while True:
        try:
            os.kill(p, 0)
        except ProcessLookupError:
            break
        os.sched_yield()
print(time.monotonic_ns() - begun)`

// bare kills a tree with SIGKILL and nothing else, and measures until no process of it
// is left, not even one that has ended and was not waited for, and until the core knows
// that its step ended. It looks for the processes before, and sleeps while they end: who
// spins on one of two processors holds up what it waits for.
func (x *trees) bare(pids []int, session string, step domain.StepID) (gone, ended time.Duration) {
	x.w.t.Helper()
	begun := time.Now()
	if x.w.Kind == "lima" {
		argv := []string{"python3", "-c", bareCode}
		for _, pid := range pids {
			argv = append(argv, strconv.Itoa(pid))
		}
		a := x.w.Exec(x.watch, argv...)
		n, err := strconv.ParseInt(strings.TrimSpace(a.Stdout), 10, 64)
		if err != nil {
			x.w.t.Fatalf("%+v", a)
		}
		gone = time.Duration(n)
	} else {
		fds := make([]unix.PollFd, len(pids))
		for i, pid := range pids {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				x.w.t.Fatal(err)
			}
			defer unix.Close(fd)
			fds[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		}
		begun = time.Now()
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		for i := range fds {
			for {
				if n, err := unix.Poll(fds[i:i+1], -1); n == 1 {
					break
				} else if err != nil && !errors.Is(err, unix.EINTR) {
					x.w.t.Fatal(err)
				}
			}
		}
		for _, pid := range pids {
			for syscall.Kill(pid, 0) == nil {
				runtime.Gosched()
			}
		}
		gone = time.Since(begun)
	}
	x.w.Call("GET", "/v1/sessions/"+session+"/steps/"+string(step)+"?wait=ended", nil, nil)
	return gone, time.Since(begun)
}

func median(ds []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(ds))
	return s[len(s)/2].Round(time.Microsecond)
}

func rounded(ds []time.Duration) (out []time.Duration) {
	for _, d := range ds {
		out = append(out, d.Round(100*time.Microsecond))
	}
	return out
}
