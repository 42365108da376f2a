package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/policy"
	"glasshouse/backend/tool"
	"glasshouse/vm/guest"
)

const (
	defaultTimeout = 2 * time.Minute
	maxScript      = 100 << 10 // one argument holds at most 128 KiB in Linux
	killGrace      = 2 * time.Second
	// hangGuard is how long after a call's own timeout the host stops believing that the guest will end it.
	hangGuard = 30 * time.Second
)

// startGuard is how long a guest may take to say that a command was started. A channel
// that is lost and opened again meanwhile fits in.
var startGuard = 2 * time.Minute

// errNoStart ends the wait for a guest that does not say whether it starts a command.
var errNoStart = errors.New("the machine does not answer")

// langs says how a script is run: its text is one argument, no file and no shell in between.
var langs = map[string][]string{
	"bash": {"bash", "-c"}, "sh": {"sh", "-c"}, "python": {"python3", "-c"}, "node": {"node", "-e"}, "perl": {"perl", "-e"}, "ruby": {"ruby", "-e"},
}

type execArgs struct {
	Argv      []string          `json:"argv"`
	Script    string            `json:"code"`
	Lang      string            `json:"lang"`
	Workdir   string            `json:"workdir"`
	Env       map[string]string `json:"env"`
	TimeoutMS int64             `json:"timeout_ms"`
}

func (a *execArgs) lang() string {
	if a.Lang == "" {
		return "bash"
	}
	return a.Lang
}

func execTool() tool.Tool {
	return tool.Tool{
		Name: "exec",
		Description: "Run a command in the machine and wait for it to end. Give either argv (a program and its arguments, passed as they are: no shell, no globs, no variables) " +
			"or code (a text in lang, by default bash). The working folder is /workspace unless workdir says otherwise. Each call is a new process: cd and variables do not carry over. " +
			"The answer has exit_code, stdout and stderr (long output is cut in the middle; all of it is kept as an artefact). A command that does not end within timeout_ms (default 120000) is killed with its children. " +
			"Network access works through a proxy and may wait for the person's permission. To start a server, run it in the background with its output redirected to a file.",
		Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"argv": {"type": "array", "items": {"type": "string", "maxLength": 100000}, "minItems": 1, "maxItems": 4096, "description": "program and arguments"},
				"code": {"type": "string", "minLength": 1, "maxLength": 100000, "description": "text to run with lang"},
				"lang": {"enum": ["bash", "sh", "python", "node", "perl", "ruby"], "description": "language of code; default bash"},
				"workdir": {"type": "string", "maxLength": 4096, "description": "folder to run in; relative to /workspace"},
				"env": {"type": "object", "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "maxLength": 200}, "additionalProperties": {"type": "string", "maxLength": 32768}, "maxProperties": 64, "description": "variables to set"},
				"timeout_ms": {"type": "integer", "minimum": 1, "maximum": 3600000, "description": "default 120000"}
			},
			"additionalProperties": false,
			"oneOf": [{"required": ["argv"]}, {"required": ["code"]}]
		}`),
		Reach:   domain.ReachMachine,
		Changes: true,
		Title: func(raw json.RawMessage) string {
			a := args[execArgs](raw)
			if a.Script == "" {
				return "Run " + quoteArgv(a.Argv)
			}
			first, rest, _ := strings.Cut(strings.TrimSpace(a.Script), "\n")
			if rest != "" {
				first += " …"
			}
			return "Run " + a.lang() + ": " + first
		},
		Action: func(raw json.RawMessage) policy.Action {
			a := args[execArgs](raw)
			act := policy.Action{Argv: a.Argv, Script: a.Script, Dir: abs(a.Workdir), Env: a.Env}
			if a.Script != "" {
				act.Lang = a.lang()
			}
			return act
		},
		Detail: func(raw json.RawMessage) []event.Field {
			a := args[execArgs](raw)
			var out []event.Field
			add := func(name, value string) {
				out = append(out, event.Field{Name: name, Value: value, Origin: domain.OriginAgent})
			}
			if a.Script != "" {
				add("language", a.lang())
				add("code", a.Script)
			} else {
				add("argv", shown(a.Argv))
			}
			add("folder", abs(a.Workdir))
			names := make([]string, 0, len(a.Env))
			for n := range a.Env {
				names = append(names, n)
			}
			slices.Sort(names)
			for _, n := range names {
				add("variable", n+"="+a.Env[n])
			}
			if a.TimeoutMS > 0 {
				add("timeout", fmt.Sprintf("%d ms", a.TimeoutMS))
			}
			return out
		},
		Handler: runExec,
		Resume:  resumeExec,
	}
}

// quoteArgv shows arguments as a shell would take them.
func quoteArgv(argv []string) string {
	var b strings.Builder
	for i, a := range argv {
		if b.Len() > 400 {
			b.WriteString(" …")
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		if a == "" || strings.ContainsAny(a, " \t\r\n'\"\\$`;&|<>()*?[]#~{}!") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		b.WriteString(a)
	}
	return b.String()
}

func runExec(ctx context.Context, c tool.Call) (tool.Result, error) {
	g, err := machine(&c)
	if err != nil {
		return tool.Result{}, err
	}
	a := args[execArgs](c.Args)
	argv := a.Argv
	if a.Script != "" {
		if len(a.Script) > maxScript {
			e := domain.E(domain.CodeTooLarge, fmt.Sprintf("The script has %d bytes, at most %d can be passed", len(a.Script), maxScript), "write it to a file with write and run that", nil)
			e.Pointer = "/code"
			return tool.Result{}, e
		}
		argv = append(slices.Clone(langs[a.lang()]), a.Script)
	}
	for i, s := range append([]string{a.Workdir}, argv...) {
		if strings.ContainsRune(s, 0) {
			e := domain.E(domain.CodeInvalid, "A command cannot hold a zero byte", "write the bytes to a file instead", nil)
			e.Pointer = "/workdir"
			if i > 0 {
				e.Pointer = fmt.Sprintf("/argv/%d", i-1)
			}
			if i > 0 && a.Script != "" {
				e.Pointer = "/code"
			}
			return tool.Result{}, e
		}
	}
	for n, v := range a.Env {
		if strings.ContainsRune(v, 0) {
			e := domain.E(domain.CodeInvalid, "A variable cannot hold a zero byte", "", nil)
			e.Pointer = "/env/" + n
			return tool.Result{}, e
		}
	}
	timeout := limit(&c, a.TimeoutMS)
	sctx, joined, stop := streamOf(ctx)
	defer stop()
	p, err := g.Execs().Start(sctx, guest.ExecSpec{ID: string(c.Step), Session: string(c.Session), Step: string(c.Step),
		Argv: argv, Dir: abs(a.Workdir), Env: a.Env, Timeout: timeout, Grace: killGrace})
	switch {
	case err != nil && errors.Is(context.Cause(sctx), errNoStart):
		kill(ctx, g, string(c.Step))
		return lost(fmt.Sprintf("The machine did not say within %v whether it started the command; whether it ran is not known", startGuard)), nil
	case errors.Is(err, guest.ErrGone):
		return lost("The connection to the machine was lost while the command was being started; whether it ran is not known"), nil
	case err != nil && ctx.Err() != nil && errors.Is(context.Cause(ctx), tool.ErrLeaving):
		return tool.Result{}, context.Cause(ctx)
	case err != nil && ctx.Err() != nil:
		return crossed(ctx, &c, g, timeout)
	case err != nil:
		return tool.Result{}, domain.E(domain.CodeUnavailable, "The command could not be started", "see what the machine says; nothing ran", err)
	}
	if !joined() {
		p.Close()
		if errors.Is(context.Cause(ctx), tool.ErrLeaving) {
			return tool.Result{}, context.Cause(ctx)
		}
		return crossed(ctx, &c, g, timeout)
	}
	return follow(ctx, &c, g, p, timeout)
}

// crossed is a start that a cancel met on its way: what may run is ended, and its end
// is waited for over another stream.
func crossed(ctx context.Context, c *tool.Call, g guest.Guest, timeout time.Duration) (tool.Result, error) {
	kill(ctx, g, string(c.Step))
	sctx, joined, stop := streamOf(context.WithoutCancel(ctx))
	defer stop()
	p, err := g.Execs().Attach(sctx, string(c.Step), 0, 0)
	if err != nil {
		return tool.Result{Outcome: domain.OutcomeCancelled, Error: "cancelled while it was being started"}, nil
	}
	joined()
	return follow(ctx, c, g, p, timeout)
}

// streamOf is the context of a process's stream. Until joined is called it ends with
// the call, or when the guest says nothing; afterwards a cancelled call leaves it open, so that the end of what was
// killed for it is still seen.
// joined reports false when the call was cancelled before, which ended the stream.
func streamOf(ctx context.Context) (sctx context.Context, joined func() bool, stop func()) {
	sctx, end := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	guard := time.AfterFunc(startGuard, func() { end(errNoStart) })
	return sctx, func() bool { guard.Stop(); return unhook() }, func() { unhook(); guard.Stop(); end(nil) }
}

// resumeExec joins a command that an earlier core started.
func resumeExec(ctx context.Context, c tool.Call) (tool.Result, error) {
	g, err := machine(&c)
	if err != nil {
		return tool.Result{}, err
	}
	sctx, joined, stop := streamOf(ctx)
	defer stop()
	p, err := g.Execs().Attach(sctx, string(c.Step), 0, 0)
	switch {
	case err != nil && errors.Is(context.Cause(sctx), errNoStart):
		return lost("The machine does not say what became of the command; how it ended is not known"), nil
	case errors.Is(err, guest.ErrNoExec):
		return tool.Result{Outcome: domain.OutcomeUnknown, Error: "The machine knows nothing of this command: it was not started, or the machine was restarted under it; whether it took effect is not known"}, nil
	case errors.Is(err, guest.ErrGone):
		return lost("The connection to the machine was lost; how the command ended is not known"), nil
	case err != nil:
		return tool.Result{}, err
	}
	a := args[execArgs](c.Args)
	if !joined() && !errors.Is(context.Cause(ctx), tool.ErrLeaving) {
		p.Close()
		return crossed(ctx, &c, g, limit(&c, a.TimeoutMS))
	}
	return follow(ctx, &c, g, p, limit(&c, a.TimeoutMS))
}

func lost(why string) tool.Result {
	return tool.Result{Outcome: domain.OutcomeUnknown, Error: why, Lost: true}
}

// kill ends an execution; it outlives the ctx that was cancelled, for a bounded time.
func kill(ctx context.Context, g guest.Guest, id string) {
	kctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer stop()
	_ = g.Execs().Kill(kctx, id, killGrace)
}

// follow streams a process to its end.
func follow(ctx context.Context, c *tool.Call, g guest.Guest, p guest.Process, timeout time.Duration) (tool.Result, error) {
	defer p.Close()
	stdout := &stream{name: "stdout", call: c}
	stderr := &stream{name: "stderr", call: c, stderr: true}
	defer func() { // what end did not commit
		for _, s := range []*stream{stdout, stderr} {
			if s.blob != nil {
				s.blob.Abort()
			}
		}
	}()
	type piece struct {
		out guest.Output
		err error
	}
	pieces := make(chan piece)
	quit := make(chan struct{})
	defer close(quit)
	go func() { // ends with the process, or with p.Close
		for {
			out, err := p.Next()
			select {
			case pieces <- piece{out, err}:
			case <-quit:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	guard := time.NewTimer(timeout + hangGuard)
	defer guard.Stop()
	done := ctx.Done()
	cancelled, hung := false, false
	for {
		select {
		case <-done:
			if errors.Is(context.Cause(ctx), tool.ErrLeaving) {
				return tool.Result{}, context.Cause(ctx) // it goes on in the guest
			}
			cancelled, done = true, nil
			kill(ctx, g, p.ID())
			guard.Reset(killGrace + hangGuard)
		case <-guard.C:
			if hung || cancelled {
				return lost("The command was told to end, and the machine does not say that it did"), nil
			}
			hung = true
			kill(ctx, g, p.ID())
			guard.Reset(killGrace + hangGuard)
		case pc := <-pieces:
			switch {
			case pc.err == nil && pc.out.Stderr:
				stderr.write(pc.out.Data)
			case pc.err == nil:
				stdout.write(pc.out.Data)
			case errors.Is(pc.err, io.EOF):
				return ended(p.Exit(), stdout, stderr, cancelled, timeout)
			case ctx.Err() != nil && errors.Is(context.Cause(ctx), tool.ErrLeaving):
				return tool.Result{}, context.Cause(ctx)
			default:
				return lost("The connection to the machine was lost while the command ran; how it ended is not known (" + show(pc.err.Error()) + ")"), nil
			}
		}
	}
}

func ended(x guest.Exit, stdout, stderr *stream, cancelled bool, timeout time.Duration) (tool.Result, error) {
	info := &tool.ExecInfo{Signal: show(x.Signal), CPUMS: (x.UserCPU + x.SysCPU).Milliseconds(), MaxRSSKiB: x.MaxRSSKiB}
	if d := x.EndedAt.Sub(x.StartedAt); d > 0 {
		info.DurationMS = d.Milliseconds()
	}
	code := x.Code
	if !x.Unknown && x.StartError == "" && x.Signal == "" {
		info.ExitCode = &code
	}
	for i, b := range x.Background {
		if i == 16 {
			break
		}
		info.Background = append(info.Background, tool.OneLine(fmt.Sprintf("%d %s", b.Pid, clean(quoteArgv(b.Argv))), 200))
	}
	out := struct {
		ExitCode   *int     `json:"exit_code,omitempty"`
		Signal     string   `json:"signal,omitempty"`
		TimedOut   bool     `json:"timed_out,omitempty"`
		Stdout     string   `json:"stdout"`
		Stderr     string   `json:"stderr"`
		Background []string `json:"still_running,omitempty"`
	}{info.ExitCode, info.Signal, x.TimedOut, stdout.forModel(x.Stdout, maxText), stderr.forModel(x.Stderr, maxText/2), info.Background}
	res, err := answer(out)
	if err != nil {
		return tool.Result{}, err
	}
	info.Stdout, info.Stderr = stdout.end(x.Stdout), stderr.end(x.Stderr)
	res.Exec = info
	switch {
	case x.Unknown:
		res.Outcome, res.Error = domain.OutcomeUnknown, "The machine ended while the command ran; how far it came is not known"
	case x.StartError != "":
		res.Outcome, res.Error = domain.OutcomeFailed, "The command could not be started: "+show(x.StartError)
	case x.TimedOut:
		res.Outcome, res.Error = domain.OutcomeTimeout, fmt.Sprintf("The command did not end within %v and was killed", timeout)
	case cancelled || x.Killed:
		res.Outcome, res.Error = domain.OutcomeCancelled, "The command was cancelled and killed with its children"
	case x.OOM:
		res.Outcome, res.Error = domain.OutcomeFailed, "The command ran out of memory and was killed"
	case x.Signal != "":
		res.Outcome, res.Error = domain.OutcomeFailed, "The command was ended by "+show(x.Signal)
	case x.Code != 0:
		res.Outcome, res.Error = domain.OutcomeFailed, fmt.Sprintf("The command ended with exit code %d", x.Code)
	}
	for _, s := range []*stream{stdout, stderr} {
		s.blob = nil // committed or gone
		if s.lost != nil {
			res.Error = strings.TrimSpace(res.Error + "\nIts whole " + s.name + " could not be kept: " + s.lost.Error())
		}
	}
	res.Text = execText(&res, out.Stdout, out.Stderr)
	return res, nil
}

func execText(r *tool.Result, stdout, stderr string) string {
	var b strings.Builder
	if r.Error != "" {
		b.WriteString(r.Error + "\n")
	}
	b.WriteString(stdout)
	if stderr != "" {
		if stdout != "" && !strings.HasSuffix(stdout, "\n") {
			b.WriteByte('\n')
		}
		b.WriteString("[stderr]\n" + stderr)
	}
	if b.Len() == 0 {
		return "(no output)"
	}
	return b.String()
}

// limit is how long a command may take: its own timeout, else the default, and
// never more than the call's.
func limit(c *tool.Call, ms int64) time.Duration {
	t := defaultTimeout
	if ms > 0 {
		t = time.Duration(ms) * time.Millisecond
	}
	if c.Timeout > 0 && c.Timeout < t {
		t = c.Timeout
	}
	return t
}

// shown writes words so that each is told from the next and stands as it is: a
// person judges it, so nothing is escaped but what quotes need.
func shown(argv []string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(argv); err != nil {
		return fmt.Sprintf("%q", argv)
	}
	return strings.TrimSpace(b.String())
}
