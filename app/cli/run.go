package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
)

const runHelp = `Let an agent work on a project, and watch it. The agent is a model, given what it
should do, or a playbook, a file with a list of tool calls:

  glasshouse run --project shop "fix the failing test"
  git log -5 | glasshouse run --project shop -            the prompt comes from a pipe
  glasshouse run --session s_… "now the other one"        more, in the same conversation
  glasshouse run --session s_… --go-on                    go on where the last turn ended
  glasshouse run --project shop fix.yaml                  a playbook; 'glasshouse tools' lists its tools

'glasshouse model add' sets a model up. Everything an agent does runs in the project's
machine; --mode says what it may do there without asking:

  plan   it looks and plans; changes are refused
  ask    each change is asked about
  auto   what stays in the machine runs (the default)
  full   as auto, and hosts that no rule covers are reached without a question

Questions are shown as they come. A terminal takes the answer; without one they are
answered in the window or with 'glasshouse approval answer', and the agent waits.
--limit and --limit-tokens stop the session; before they are reached you are asked.

Ctrl-C at a terminal first says what can be done; pressed again it stops the turn. A
command without a terminal, and one that is told to end, leaves the agent at work:
'glasshouse session watch' shows it again, 'glasshouse session stop' stops it. When the
core dies it is started again, and a model goes on with its turn.

With --json the session's stored events are printed, one a line, and nothing else.

The exit code says how the turn ended:
  0    its checks succeeded, or there are none
  1    failed, or a check did
  2    the command line is not understood
  3    stopped by a limit
  4    cancelled
  5    interrupted: it could not go on after its core or machine had ended
  130  this command was left; the agent goes on
`

// runOptions is what a command line of run says.
type runOptions struct {
	project, session, agent, model, mode, limit string
	tokens                                      int64
	checks                                      []string
	goOn, verbose, deltas                       bool
}

func (e *env) runCmd() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use: "run [flags] PROMPT|PLAYBOOK", Short: "Let a model or a playbook work on a project, with the timeline live", Long: runHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			start, title, err := o.understand(func() (string, error) { return e.typedText(cmd.Context(), "the prompt") }, args, cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return e.runAgent(cmd, o, start, title)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.project, "project", "", "project to work in, in a new session")
	f.StringVar(&o.session, "session", "", "session to work in")
	f.StringVar(&o.agent, "agent", "", "model or playbook (the default when the argument is a .yaml file)")
	f.StringVar(&o.model, "model", "", "which model, by its name in 'glasshouse model list' (default: the default one)")
	f.StringVar(&o.mode, "mode", "", "plan, ask, auto or full (default auto)")
	f.StringVar(&o.limit, "limit", "", "most that the session may cost, in US dollars: 2.50; 0 = no limit")
	f.Var(wholeFlag[int64]{&o.tokens}, "limit-tokens", "most tokens that the session may use; 0 = no limit")
	f.StringArrayVar(&o.checks, "check", nil, "a shell command whose success says that the result is right")
	f.BoolVar(&o.goOn, "go-on", false, "go on where the session's last turn ended, without a new prompt")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show too what the model thinks, and what each answer took")
	f.BoolVar(&o.deltas, "deltas", false, "with --json: also the pieces of answers as they are written")
	return cmd
}

// promptMost bounds a prompt and a message, in characters, as the core does.
const promptMost = 32768

// typedText reads all of the input, a little more than a prompt may have at most.
func (e *env) typedText(ctx context.Context, what string) (string, error) {
	if e.terminal() {
		e.note("write %s; Ctrl-D on a line of its own ends it", what)
	}
	type read struct {
		b   []byte
		err error
	}
	done := make(chan read, 1)
	go func() { // a read from a terminal cannot be taken back
		b, err := io.ReadAll(io.LimitReader(e.in, 4*promptMost+1))
		done <- read{b, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return "", fmt.Errorf("%s could not be read from the input: %w", what, r.err)
		}
		return string(r.b), nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// understand makes a turn of the command line: what its agent is and is given.
func (o *runOptions) understand(input func() (string, error), args []string, given func(string) bool) (start turnStart, title string, err error) {
	switch {
	case len(args) > 1:
		return start, "", usage("the prompt is one argument; put it in quotes")
	case len(args) == 0 && !o.goOn:
		return start, "", usage("give a prompt in quotes, a playbook's file, or - to read the prompt from the input")
	case len(args) == 1 && o.goOn:
		return start, "", usage("--go-on takes no prompt; leave one of them out")
	case (o.session == "") == (o.project == ""):
		return start, "", usage("give either --session or --project")
	case o.goOn && o.session == "":
		return start, "", usage("--go-on goes on in a --session")
	case o.session != "" && len(o.checks) > 0:
		return start, "", usage("--check is for a new session; the checks of one that exists are its own")
	case o.mode != "" && o.mode != "plan" && o.mode != "ask" && o.mode != "auto" && o.mode != "full":
		return start, "", usage("--mode is plan, ask, auto or full, not %q", clip(o.mode, 40))
	}
	if o.limit != "" || given("limit") {
		if _, err := dollars(o.limit); err != nil {
			return start, "", err
		}
	}
	arg := ""
	if len(args) == 1 {
		arg = args[0]
	}
	yaml := strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml")
	switch {
	case o.agent != "":
	case yaml && exists(arg):
		o.agent = "playbook"
	case yaml && !strings.ContainsAny(arg, " \n"):
		_, err := os.Stat(arg) // a name that was mistyped is no prompt
		return start, "", err
	default:
		o.agent = "model"
	}
	start = turnStart{Agent: o.agent, GoOn: o.goOn}
	switch o.agent {
	case "playbook":
		if o.goOn {
			return start, "", usage("a playbook has no conversation to go on with")
		}
		for _, name := range []string{"model", "limit", "limit-tokens"} {
			if given(name) {
				return start, "", usage("--%s is for models; a playbook asks none", name)
			}
		}
		text, err := os.ReadFile(arg)
		if err != nil {
			return start, "", err
		}
		start.Input = string(text)
		return start, filepath.Base(arg), nil
	case "model":
		if o.goOn {
			return start, "", nil
		}
		start.Prompt = arg
		if arg == "-" {
			if start.Prompt, err = input(); err != nil {
				return start, "", err
			}
		}
		switch {
		case strings.TrimSpace(start.Prompt) == "":
			return start, "", usage("the prompt is empty")
		case utf8.RuneCountInString(start.Prompt) > promptMost:
			return start, "", usage("the prompt is longer than %s characters; put what is long into a file of the project and name that", count(promptMost))
		case !utf8.ValidString(start.Prompt):
			return start, "", usage("the prompt is no UTF-8 text")
		}
		return start, firstLine(start.Prompt, 100), nil
	}
	return start, "", usage("--agent is model or playbook, not %q", clip(o.agent, 40))
}

// runAgent makes or takes the session, starts the turn and shows it.
func (e *env) runAgent(cmd *cobra.Command, o runOptions, start turnStart, title string) error {
	ctx := cmd.Context()
	c, err := e.client(ctx)
	if err != nil {
		return err
	}
	var nanos int64
	if o.limit != "" {
		nanos, _ = dollars(o.limit) // understood before
	}
	session, made := o.session, false
	if session == "" {
		s, err := newSession(ctx, c, newOne{Project: o.project, Title: title, Agent: start.Agent, Input: start.Input,
			Mode: o.mode, Model: o.model, Nanos: nanos, Tokens: o.tokens}, o.checks)
		if err != nil {
			return err
		}
		session, made = string(s.ID), true
	} else {
		set := map[string]any{}
		for name, v := range map[string]any{"mode": o.mode, "model": o.model, "limit": nanos, "limit-tokens": o.tokens} {
			if cmd.Flags().Changed(name) {
				set[strings.NewReplacer("limit-tokens", "limit_tokens", "limit", "limit_nanos").Replace(name)] = v
			}
		}
		if len(set) > 0 {
			if err := c.call(ctx, "PATCH", at{"sessions", session}, nil, set, nil); err != nil {
				return err
			}
		}
	}
	var s httpapi.SessionAnswer
	if err := c.get(ctx, at{"sessions", session}, nil, &s); err != nil {
		return err
	}
	err = e.turn(ctx, c, session, start, view{verbose: o.verbose, deltas: o.deltas, ask: true, stops: true})
	if _, refused := err.(*remoteError); refused && made { //nolint:errorlint // of this very call
		_ = c.post(context.WithoutCancel(ctx), at{"sessions", session, "end"}, nil, nil, nil) // nothing was done in it
	}
	if code, ended := err.(exitCode); err == nil || ended { //nolint:errorlint // of this very call
		e.note("session %s; see the changes with 'glasshouse review open %s'", session, s.ProjectID)
		switch {
		case start.Agent != "model" || code == 0:
		case c.get(context.WithoutCancel(ctx), at{"sessions", session}, nil, &s) == nil && s.State == domain.SessionEnded:
			e.note("the session has ended; 'glasshouse run --project %s' works in a new one", s.ProjectID)
		case code == codeStopped:
			e.note("'glasshouse run --session %s --go-on' goes on; a limit that is reached is raised first: 'glasshouse session set %s --limit …', or --limit-tokens …", session, session)
		default:
			e.note("'glasshouse run --session %s --go-on' goes on; a prompt in its place says what else to do", session)
		}
	}
	return err
}
