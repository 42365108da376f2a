package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/tool"
	"glasshouse/vm/guest"
)

type execAnswer struct {
	ExitCode       *int `json:"exit_code"`
	Signal         string
	TimedOut       bool `json:"timed_out"`
	Stdout, Stderr string
	Background     []string `json:"still_running"`
}

func TestExecPassesTheCommand(t *testing.T) {
	r := newRig(t)
	for _, tc := range []struct {
		args string
		want guest.ExecSpec
	}{
		{`{"argv":["git","log","a b","$X"]}`, guest.ExecSpec{Argv: []string{"git", "log", "a b", "$X"}, Dir: "/workspace", Timeout: 2 * time.Minute}},
		{`{"code":"echo $HOME\n","workdir":"sub/../x","env":{"A":"1"},"timeout_ms":1500}`, guest.ExecSpec{Argv: []string{"bash", "-c", "echo $HOME\n"}, Dir: "/workspace/x", Env: map[string]string{"A": "1"}, Timeout: 1500 * time.Millisecond}},
		{`{"code":"print(1)","lang":"python","workdir":"/tmp"}`, guest.ExecSpec{Argv: []string{"python3", "-c", "print(1)"}, Dir: "/tmp", Timeout: 2 * time.Minute}},
		{`{"code":"1","lang":"node"}`, guest.ExecSpec{Argv: []string{"node", "-e", "1"}, Dir: "/workspace", Timeout: 2 * time.Minute}},
	} {
		r.process(&fakeProcess{pieces: outputs(false, "hi\n", 10), exit: guest.Exit{Stdout: guest.StreamEnd{Total: 3}}})
		var a execAnswer
		res := r.ok("exec", tc.args, &a)
		got := r.guest.execs.started[len(r.guest.execs.started)-1]
		if fmt.Sprint(got.Argv, got.Dir, got.Env, got.Timeout) != fmt.Sprint(tc.want.Argv, tc.want.Dir, tc.want.Env, tc.want.Timeout) || got.ID != "st_1" || got.Session != "s1" || got.Step != "st_1" || got.Root {
			t.Errorf("%s: %+v", tc.args, got)
		}
		if res.Outcome != domain.OutcomeOK || a.ExitCode == nil || *a.ExitCode != 0 || a.Stdout != "hi\n" || res.Exec.Stdout.Head != "hi\n" || res.Exec.Stdout.Blob != nil || res.Exec.Stderr != nil {
			t.Errorf("%+v %s", res, res.JSON)
		}
	}
	r.call.Timeout = time.Second
	r.process(&fakeProcess{})
	r.ok("exec", `{"argv":["x"],"timeout_ms":90000}`, nil)
	if got := r.guest.execs.started[len(r.guest.execs.started)-1].Timeout; got != time.Second {
		t.Errorf("the call's own limit is passed by: %v", got)
	}
}

func TestExecRefuses(t *testing.T) {
	r := newRig(t)
	for _, args := range []string{`{}`, `{"argv":[]}`, `{"argv":["a"],"code":"b"}`, `{"argv":"ls"}`, `{"code":""}`, `{"code":"x","lang":"cobol"}`, `{"argv":["a"],"env":{"A-B":"1"}}`,
		`{"argv":["a"],"env":{"A":1}}`, `{"argv":["a"],"timeout_ms":0}`, `{"argv":["a"],"timeout_ms":3600001}`, `{"argv":["a"],"root":true}`, `{"argv":["a\u0000b"]}`, `{"argv":["a"],"env":{"A":"\u0000"}}`, `{"argv":["a"],"workdir":"\u0000"}`} {
		r.fails("exec", args, domain.CodeInvalid)
	}
	long, _ := json.Marshal(map[string]string{"code": strings.Repeat("ü", 60000)})
	r.fails("exec", string(long), domain.CodeTooLarge, "write it to a file")
	if len(r.guest.execs.started) != 0 {
		t.Fatal("something ran")
	}
	r.call.Guest = nil
	r.fails("exec", `{"argv":["a"]}`, domain.CodeUnavailable, "nothing ran")
}

func TestExecOutcomes(t *testing.T) {
	for name, tc := range map[string]struct {
		exit guest.Exit
		want domain.Outcome
		code bool
		say  string
	}{
		"ok":         {guest.Exit{}, domain.OutcomeOK, true, ""},
		"code":       {guest.Exit{Code: 3}, domain.OutcomeFailed, true, "exit code 3"},
		"signal":     {guest.Exit{Code: -1, Signal: "SIGSEGV"}, domain.OutcomeFailed, false, "SIGSEGV"},
		"timeout":    {guest.Exit{Code: -1, Signal: "SIGKILL", TimedOut: true, Killed: true}, domain.OutcomeTimeout, false, "did not end within"},
		"killed":     {guest.Exit{Code: -1, Signal: "SIGTERM", Killed: true}, domain.OutcomeCancelled, false, "killed"},
		"oom":        {guest.Exit{Code: -1, Signal: "SIGKILL", OOM: true}, domain.OutcomeFailed, false, "memory"},
		"no program": {guest.Exit{StartError: "exec: \"x\": not found\x1b[2J"}, domain.OutcomeFailed, false, "not found<U+001B>"},
		"unknown":    {guest.Exit{Unknown: true}, domain.OutcomeUnknown, false, "not known"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			tc.exit.StartedAt = time.UnixMilli(1000)
			tc.exit.EndedAt = time.UnixMilli(1250)
			tc.exit.UserCPU, tc.exit.SysCPU, tc.exit.MaxRSSKiB = 30*time.Millisecond, 12*time.Millisecond, 77
			tc.exit.Background = []guest.BackgroundProcess{{Pid: 9, Argv: []string{"sleep", "\xff\x1b"}}}
			r.process(&fakeProcess{pieces: outputs(true, "err", 2), exit: tc.exit})
			res := r.ok("exec", `{"argv":["x"]}`, nil)
			if res.Outcome != tc.want || !strings.Contains(res.Error, tc.say) || (tc.say == "" && res.Error != "") || (res.Exec.ExitCode != nil) != tc.code {
				t.Errorf("%+v", res)
			}
			if res.Exec.DurationMS != 250 || res.Exec.CPUMS != 42 || res.Exec.MaxRSSKiB != 77 || res.Exec.Stderr.Head != "err" || !strings.HasPrefix(res.Exec.Background[0], "9 sleep") {
				t.Errorf("%+v", res.Exec)
			}
		})
	}
}

// Output of any kind and length: the answer fits, nothing is lost that was sent, and
// what is passed on while it runs is valid text at the right places.
func TestExecOutput(t *testing.T) {
	numbers := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "line %d\n", i)
		}
		return b.String()
	}
	for name, out := range map[string]string{
		"empty":          "",
		"short":          "hello",
		"exactly head":   strings.Repeat("x", keepHead),
		"one more":       strings.Repeat("x", keepHead) + "y",
		"meeting":        numbers(3000),
		"long":           numbers(40000),
		"runes":          strings.Repeat("äöü€😀", 9000),
		"invalid":        strings.Repeat("\xff\xfe\x80", 20000),
		"half runes":     strings.Repeat("\xe2\x82", 10000),
		"escapes":        strings.Repeat("\x1b[31m\x01\x02", 20000),
		"angle brackets": strings.Repeat("<&>", 20000),
		"one line":       strings.Repeat("z", 1<<20),
		"binary":         "\x7fELF\x00\x01" + strings.Repeat("\x00\xff", 40000),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.process(&fakeProcess{pieces: append(outputs(false, out, 777), outputs(true, out, 4096)...),
				exit: guest.Exit{Stdout: guest.StreamEnd{Total: int64(len(out))}, Stderr: guest.StreamEnd{Total: int64(len(out))}}})
			var a execAnswer
			res := r.ok("exec", `{"argv":["x"]}`, &a)
			if len(res.JSON) > tool.MaxResult {
				t.Fatal(len(res.JSON))
			}
			if out == "" {
				if res.Exec.Stdout != nil {
					t.Fatal("an empty stream")
				}
				return
			}
			for i, s := range []*struct {
				stream string
				ans    string
			}{{"stdout", a.Stdout}, {"stderr", a.Stderr}} {
				o := res.Exec.Stdout
				if i == 1 {
					o = res.Exec.Stderr
				}
				if o.Total != int64(len(out)) || o.Dropped != 0 {
					t.Errorf("%s: %+v", s.stream, o)
				}
				if len(out) > keepHead {
					if o.Blob == nil {
						t.Fatalf("%s: no artefact", s.stream)
					}
					kept, err := r.log.ReadBlob(o.Blob.Sha256, 1<<30)
					if err != nil || string(kept) != out {
						t.Fatalf("%s: the artefact has %d bytes of %d: %v", s.stream, len(kept), len(out), err)
					}
				} else if o.Blob != nil {
					t.Errorf("%s: an artefact for a short output", s.stream)
				}
				if name == "binary" {
					if !o.Binary || o.Head != "" || !strings.Contains(s.ans, "no text") {
						t.Errorf("%s: %+v", s.stream, o)
					}
					continue
				}
				valid := strings.ToValidUTF8(out, "\uFFFD")
				if o.Tail == "" && len(out) < 5000 && o.Head != valid {
					t.Errorf("%s: a short output is not whole", s.stream)
				}
				if name == "long" || name == "meeting" || name == "one line" {
					if !strings.HasPrefix(out, o.Head) || !strings.HasSuffix(out, o.Tail) || len(o.Head) < 4000 || len(o.Tail) < 4000 || !strings.Contains(s.ans, "left out") {
						t.Errorf("%s: head %d, tail %d", s.stream, len(o.Head), len(o.Tail))
					}
				}
			}
			var live [2]strings.Builder
			next := [2]int64{}
			for _, o := range r.out {
				i := 0
				if o.Stderr {
					i = 1
				}
				if o.Offset != next[i] {
					t.Fatalf("a piece at %d, expected %d", o.Offset, next[i])
				}
				live[i].WriteString(o.Text)
				next[i] = int64(live[i].Len())
				if valid := strings.ToValidUTF8(out, "\uFFFD"); valid == out && strings.ContainsRune(o.Text, '\uFFFD') {
					t.Fatal("a rune was cut in two")
				}
				if strings.ContainsRune(o.Text, '\uFFFD') { // lengths differ where bytes were replaced
					next[i] = -1
					break
				}
			}
			if next[0] >= 0 && next[1] >= 0 && (live[0].String() != out || live[1].String() != out) {
				t.Errorf("passed on: %d and %d of %d", live[0].Len(), live[1].Len(), len(out))
			}
		})
	}
}

func TestExecDroppedOutput(t *testing.T) {
	r := newRig(t)
	sent := strings.Repeat("a", 100000)
	r.process(&fakeProcess{pieces: outputs(false, sent, 9999), exit: guest.Exit{Stdout: guest.StreamEnd{Total: 900000, Dropped: 800000 - 3, Tail: []byte("end")}}})
	var a execAnswer
	res := r.ok("exec", `{"argv":["x"]}`, &a)
	o := res.Exec.Stdout
	if o.Total != 900000 || o.Dropped != 800000 || o.Tail != "end" || !strings.HasPrefix(o.Head, "aaa") || o.Blob.Size != 100000 || !strings.HasSuffix(a.Stdout, "end") {
		t.Errorf("%+v", o)
	}
}

func TestExecCancel(t *testing.T) {
	r := newRig(t)
	p := &fakeProcess{live: make(chan guest.Output, 1)}
	r.process(p)
	r.guest.execs.onKilled = func(string) {
		p.mu.Lock()
		p.exit = guest.Exit{Code: -1, Signal: "SIGTERM", Killed: true}
		p.mu.Unlock()
		close(p.live)
	}
	p.live <- guest.Output{Data: []byte("before")}
	ctx, cancel := context.WithCancelCause(context.Background())
	// It runs: it has said something. A cancel before that is the next test's.
	r.call.Output = func(event.StepOutput) { cancel(errors.New("a person's cancel")) }
	res, err := r.run(ctx, "exec", `{"argv":["sleep","inf"]}`)
	if err != nil || res.Outcome != domain.OutcomeCancelled || !slices.Equal(r.guest.execs.killed, []string{"st_1"}) || res.Exec.Stdout.Head != "before" {
		t.Fatalf("%+v %v %v", res, err, r.guest.execs.killed)
	}
}

// A cancel that comes while the command is being started ends the stream; what was
// started is ended, and how it ended is learned over another one.
func TestExecCancelCrossesTheStart(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	r.guest.execs.start = func(guest.ExecSpec) (*fakeProcess, error) {
		cancel(errors.New("a person's cancel"))
		return &fakeProcess{err: context.Canceled}, nil
	}
	r.guest.execs.attach = func(string) (*fakeProcess, error) {
		if len(r.guest.execs.killed) == 0 {
			t.Error("it was joined before it was killed")
		}
		return &fakeProcess{pieces: outputs(false, "begun", 5), exit: guest.Exit{Code: -1, Signal: "SIGTERM", Killed: true}}, nil
	}
	res, err := r.run(ctx, "exec", `{"argv":["sleep","inf"]}`)
	if err != nil || res.Outcome != domain.OutcomeCancelled || res.Lost || res.Exec == nil || res.Exec.Stdout.Head != "begun" {
		t.Fatalf("%+v %v", res, err)
	}
	// The same for one that an earlier core started.
	ctx, cancel = context.WithCancelCause(context.Background())
	first := true
	again := r.guest.execs.attach
	r.guest.execs.attach = func(id string) (*fakeProcess, error) {
		if first {
			first = false
			cancel(errors.New("a person's cancel"))
			return &fakeProcess{err: context.Canceled}, nil
		}
		return again(id)
	}
	res, err = resumeExec(ctx, tool.Call{Step: "st_1", Guest: r.guest, Blobs: r.call.Blobs, Args: json.RawMessage(`{"argv":["sleep","inf"]}`)})
	if err != nil || res.Outcome != domain.OutcomeCancelled || res.Lost {
		t.Fatalf("resume: %+v %v", res, err)
	}
}

// A guest that never says whether it starts a command does not hold the step for ever.
func TestExecOfASilentGuest(t *testing.T) {
	old := startGuard
	startGuard = 20 * time.Millisecond
	t.Cleanup(func() { startGuard = old })
	r := newRig(t)
	r.guest.execs.silent = true
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	res, err := r.run(ctx, "exec", `{"argv":["true"]}`)
	if err != nil || res.Outcome != domain.OutcomeUnknown || !res.Lost || !slices.Equal(r.guest.execs.killed, []string{"st_1"}) {
		t.Errorf("start: %+v %v, killed %v", res, err, r.guest.execs.killed)
	}
	res, err = resumeExec(ctx, tool.Call{Step: "st_1", Guest: r.guest, Args: json.RawMessage(`{"argv":["true"]}`)})
	if err != nil || res.Outcome != domain.OutcomeUnknown || !res.Lost {
		t.Errorf("resume: %+v %v", res, err)
	}
}

// The core goes: the command goes on in the machine, and the next core learns its end.
func TestExecOutlivesTheCore(t *testing.T) {
	r := newRig(t)
	p := &fakeProcess{live: make(chan guest.Output)}
	r.process(p)
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(20*time.Millisecond, func() { cancel(tool.ErrLeaving) })
	_, err := r.run(ctx, "exec", `{"argv":["make"]}`)
	if !errors.Is(err, tool.ErrLeaving) || len(r.guest.execs.killed) != 0 {
		t.Fatal(err, r.guest.execs.killed)
	}
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if !closed {
		t.Fatal("the stream stays open")
	}
	close(p.live)

	prep, err := r.reg.Prepare("exec", json.RawMessage(`{"argv":["make"]}`))
	if err != nil {
		t.Fatal(err)
	}
	c := r.call
	c.Args = prep.Args
	r.guest.execs.attach = func(id string) (*fakeProcess, error) {
		return &fakeProcess{pieces: outputs(false, "all of it", 3), exit: guest.Exit{Code: 2}}, nil
	}
	res, err := prep.Tool.Resume(context.Background(), c)
	if err != nil || res.Outcome != domain.OutcomeFailed || res.Exec.Stdout.Head != "all of it" || *res.Exec.ExitCode != 2 {
		t.Fatalf("%+v %v", res, err)
	}
	r.guest.execs.attach = func(string) (*fakeProcess, error) { return nil, fmt.Errorf("attach: %w", guest.ErrNoExec) }
	res, err = prep.Tool.Resume(context.Background(), c)
	if err != nil || res.Outcome != domain.OutcomeUnknown || res.Lost {
		t.Fatalf("%+v %v", res, err)
	}
	if len(r.guest.execs.started) != 1 {
		t.Fatal("it was started again")
	}
}

func TestExecLostChannel(t *testing.T) {
	r := newRig(t)
	r.process(&fakeProcess{pieces: outputs(false, "x", 1), err: fmt.Errorf("stream: %w", guest.ErrGone)})
	res, err := r.run(context.Background(), "exec", `{"argv":["x"]}`)
	if err != nil || res.Outcome != domain.OutcomeUnknown || !res.Lost {
		t.Fatalf("%+v %v", res, err)
	}
	r.guest.execs.start = func(guest.ExecSpec) (*fakeProcess, error) { return nil, guest.ErrGone }
	res, err = r.run(context.Background(), "exec", `{"argv":["x"]}`)
	if err != nil || res.Outcome != domain.OutcomeUnknown || !res.Lost || !strings.Contains(res.Error, "not known") {
		t.Fatalf("%+v %v", res, err)
	}
	r.guest.execs.start = func(guest.ExecSpec) (*fakeProcess, error) { return nil, errors.New("no such folder") }
	r.fails("exec", `{"argv":["x"],"workdir":"nope"}`, domain.CodeUnavailable, "nothing ran", "no such folder")
}

// The disk of the host is full: the command's end is still told.
func TestExecWithoutRoomForOutput(t *testing.T) {
	r := newRig(t)
	if err := r.log.Close(); err != nil { // its folder goes
		t.Fatal(err)
	}
	r.call.Blobs = noRoom{r.call.Blobs}
	r.process(&fakeProcess{pieces: outputs(false, strings.Repeat("x", 100000), 5000), exit: guest.Exit{Code: 1, Stdout: guest.StreamEnd{Total: 100000}}})
	res, err := r.run(context.Background(), "exec", `{"argv":["x"]}`)
	if err != nil || res.Outcome != domain.OutcomeFailed || !strings.Contains(res.Error, "exit code 1") || !strings.Contains(res.Error, "could not be kept") || res.Exec.Stdout.Blob != nil || res.Exec.Stdout.Total != 100000 {
		t.Fatalf("%+v %v", res, err)
	}
}

func TestExecView(t *testing.T) {
	r := newRig(t)
	for args, want := range map[string][3]string{
		`{"argv":["git","commit","-m","a b"]}`:                        {"Run git commit -m 'a b'", "git", ""},
		`{"code":"cd x\nmake"}`:                                       {"Run bash: cd x …", "", "bash"},
		`{"code":"print(1)","lang":"python","env":{"B":"2","A":"1"}}`: {"Run python: print(1)", "", "python"},
		`{"argv":["a\nb\u001b[0m"]}`:                                  {"Run 'a b<U+001B>[0m'", "a\nb\x1b[0m", ""},
	} {
		p, err := r.reg.Prepare("exec", json.RawMessage(args))
		if err != nil {
			t.Fatal(err)
		}
		first := ""
		if len(p.Action.Argv) > 0 {
			first = p.Action.Argv[0]
		}
		if p.Title != want[0] || first != want[1] || p.Action.Lang != want[2] || !p.Action.Changes {
			t.Errorf("%s: %q %+v", args, p.Title, p.Action)
		}
	}
	// The card hides nothing: command, folder, every variable.
	p, _ := r.reg.Prepare("exec", json.RawMessage(`{"argv":["x","y z"],"workdir":"sub","env":{"B":"2","A":"1"},"timeout_ms":5}`))
	var shown []string
	for _, f := range p.Detail {
		shown = append(shown, f.Name+": "+f.Value)
	}
	if got := strings.Join(shown, "; "); got != `argv: ["x","y z"]; folder: /workspace/sub; variable: A=1; variable: B=2; timeout: 5 ms` {
		t.Error(got)
	}
}
