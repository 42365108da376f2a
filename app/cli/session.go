package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/session"
)

func (e *env) sessionCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "session", Short: "Sessions: one agent's work in a project"}
	var title, mode, class string
	var checks []string
	create := &cobra.Command{
		Use: "create PROJECT", Short: "Start a session", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			s, err := newSession(cmd.Context(), c, newOne{Project: args[0], Title: title, Agent: "manual", Mode: mode, Class: class}, checks)
			if err != nil {
				return err
			}
			return e.print(s, func(w io.Writer) { fmt.Fprintf(w, "%s\t%s\n", s.ID, one(s.Title)) })
		},
	}
	create.Flags().StringVar(&title, "title", "", "title")
	create.Flags().StringVar(&mode, "mode", "", "plan (changes are refused), ask (before every change), auto (the default: what stays in the machine runs) or full (as auto, and hosts are reached without a question)")
	create.Flags().StringVar(&class, "class", "", "ephemeral, task or workspace (default task)")
	create.Flags().StringArrayVar(&checks, "check", nil, "a shell command whose success says that the result is right")
	var project string
	var all bool
	list := &cobra.Command{
		Use: "list", Short: "List sessions, oldest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			id, err := c.projectID(cmd.Context(), project)
			if err != nil {
				return err
			}
			var ss []domain.Session
			if err := c.get(cmd.Context(), at{"sessions"}, url.Values{"project_id": {id}}, &ss); err != nil {
				return err
			}
			if e.json {
				return e.print(ss, nil) // a program leaves out by itself what it does not want
			}
			name, err := c.projectNames(cmd.Context())
			if err != nil {
				return err
			}
			there := len(ss)
			if !all {
				ss = slices.DeleteFunc(ss, bygone)
			}
			switch hidden := there - len(ss); {
			case hidden == 1:
				e.note("1 ended session of commands is not shown; --all shows it")
			case hidden > 1:
				e.note("%s ended sessions of commands are not shown; --all shows them", count(int64(hidden)))
			case there == 0:
				e.note("no sessions; start one with 'glasshouse session create PROJECT' or 'glasshouse run'")
			}
			used := map[domain.SessionID]string{}
			for _, s := range ss {
				if s.Agent != "model" {
					continue
				}
				var a httpapi.SessionAnswer
				if err := c.get(cmd.Context(), at{"sessions", string(s.ID)}, nil, &a); err != nil {
					return err
				}
				used[s.ID] = usedText(a.Spent)
			}
			return e.print(ss, func(w io.Writer) {
				for _, s := range ss {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", s.ID, name(s.ProjectID), s.Agent, s.State, used[s.ID], one(s.Title))
				}
			})
		},
	}
	list.Flags().StringVar(&project, "project", "", "of one project")
	list.Flags().BoolVar(&all, "all", false, "also the ended ones in which no agent worked, such as those of exec")
	show := &cobra.Command{
		Use: "show SESSION", Short: "Show a session, its last steps, and the text that tells a model where it works", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var s httpapi.SessionAnswer
			if err := c.get(cmd.Context(), at{"sessions", args[0]}, nil, &s); err != nil {
				return err
			}
			if e.json {
				return e.print(s, nil)
			}
			steps, err := c.lastSteps(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return e.print(s, func(w io.Writer) {
				fmt.Fprintf(w, "id\t%s\nproject\t%s\nagent\t%s\nstate\t%s\nsteps\t%d\n", s.ID, s.ProjectID, s.Agent, s.State, s.Steps)
				showAgent(w, s)
				showSteps(w, s.Steps, steps)
				fmt.Fprintf(w, "\n%s", s.Preset)
			})
		},
	}
	end := &cobra.Command{
		Use: "end SESSION", Short: "End a session and what it left running", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			return c.post(cmd.Context(), at{"sessions", args[0], "end"}, nil, nil, nil)
		},
	}
	var step string
	cancel := &cobra.Command{
		Use: "cancel SESSION", Short: "Cancel a step, or everything the session runs", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			return c.post(cmd.Context(), at{"sessions", args[0], "cancel"}, nil, map[string]string{"step_id": step}, nil)
		},
	}
	cancel.Flags().StringVar(&step, "step", "", "one step")
	cmd.AddCommand(create, list, show, e.sessionSetCmd(), e.sessionSayCmd(), e.sessionWatchCmd(), e.sessionStopCmd(), cancel, end)
	return cmd
}

// bygone sessions are those in which a person ran commands, as each exec without a
// session does, and that have ended: there is nothing to go on with.
func bygone(s domain.Session) bool {
	return s.State == domain.SessionEnded && (s.Agent == "manual" || s.Class == domain.ClassEphemeral)
}

// newOne is what a session is made of.
type newOne struct {
	Project string        `json:"project_id"`
	Title   string        `json:"title,omitempty"`
	Agent   string        `json:"agent"`
	Input   string        `json:"input,omitempty"`
	Mode    string        `json:"mode,omitempty"`
	Class   string        `json:"class,omitempty"`
	Model   string        `json:"model,omitempty"`
	Nanos   int64         `json:"limit_nanos,omitempty"`
	Tokens  int64         `json:"limit_tokens,omitempty"`
	Checks  []event.Check `json:"checks,omitempty"`
}

// newSession makes a session. What its agent will be given is checked first: when it
// is refused there is no session.
func newSession(ctx context.Context, c *Client, in newOne, checks []string) (s httpapi.SessionAnswer, err error) {
	for _, code := range checks {
		in.Checks = append(in.Checks, event.Check{Name: clip(code, 60), Code: code})
	}
	return s, c.post(ctx, at{"sessions"}, nil, in, &s)
}

func clip(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}

// sessionFor picks where a command works: a given session, or a new one in a project.
func sessionFor(ctx context.Context, c *Client, session, project string) (string, func(), error) {
	if (session == "") == (project == "") {
		return "", nil, usage("give either --session or --project")
	}
	if session != "" {
		return session, func() {}, nil
	}
	s, err := newSession(ctx, c, newOne{Project: project, Agent: "manual", Class: "ephemeral"}, nil)
	if err != nil {
		return "", nil, err
	}
	return string(s.ID), func() {
		_ = c.post(context.WithoutCancel(ctx), at{"sessions", string(s.ID), "end"}, nil, nil, nil)
	}, nil
}

func (e *env) execCmd() *cobra.Command {
	var session, project, dir, lang, code string
	var envs []string
	var timeout int64
	cmd := &cobra.Command{
		Use: "exec [flags] -- COMMAND [ARG…]", Short: "Run a command in a machine; its exit code is this command's",
		Long: `Run a command in a machine. Its exit code is this command's; 125 means that it has
none: it could not start, was ended by a signal or its time limit, or was refused.

The command is run as it is, by no shell (for one: -- bash -c '…', or --code), gets
nothing on its standard input, and its output is shown when it has ended. What asks
meanwhile, a new host for one, is shown here; a terminal takes the answer.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 0) == (code == "") {
				return usage("give a command after --, or --code with --lang")
			}
			in := map[string]any{}
			if code != "" {
				in["code"], in["lang"] = code, lang
			} else {
				in["argv"] = args
			}
			if dir != "" {
				in["workdir"] = dir
			}
			if timeout > 0 {
				in["timeout_ms"] = timeout
			}
			if len(envs) > 0 {
				m := map[string]string{}
				for _, kv := range envs {
					k, v, ok := strings.Cut(kv, "=")
					if !ok {
						return usage("--env takes NAME=VALUE, not %q", kv)
					}
					m[k] = v
				}
				in["env"] = m
			}
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			id, done, err := sessionFor(cmd.Context(), c, session, project)
			if err != nil {
				return err
			}
			defer done()
			a, err := e.exec(cmd.Context(), c, id, in)
			if err != nil && cmd.Context().Err() != nil {
				if session == "" {
					return &interrupted{"the command was ended with its session"}
				}
				return &interrupted{"the command goes on: stop it with 'glasshouse session cancel " + id + "'"}
			}
			if err != nil {
				return err
			}
			if a.State == domain.StepDenied && len(a.Logs) > 0 && !e.json {
				a.Logs[0] = c.deniedBy(cmd.Context(), id, a.ExecutionID) + ": " + a.Logs[0]
			}
			return e.showExec(a)
		},
	}
	f := cmd.Flags()
	f.StringVar(&session, "session", "", "session to work in")
	f.StringVar(&project, "project", "", "project to work in, in a session that ends with the command")
	f.StringVar(&dir, "dir", "", "working folder (default /workspace)")
	f.StringVar(&lang, "lang", "bash", "language of --code: bash, sh, python, node, perl, ruby")
	f.StringVar(&code, "code", "", "a script instead of a command")
	f.StringArrayVar(&envs, "env", nil, "NAME=VALUE for the command")
	f.Var(wholeFlag[int64]{&timeout}, "timeout-ms", "time limit in ms; 0 = 120000, two minutes")
	return cmd
}

// exec runs a command as a step and shows the questions that come up meanwhile.
func (e *env) exec(ctx context.Context, c *Client, session string, in map[string]any) (a httpapi.ExecAnswer, err error) {
	q, err := e.watch(ctx, c, session)
	if err != nil {
		return a, err
	}
	defer q.end()
	if err := c.post(ctx, at{"sessions", session, "exec"}, url.Values{"wait": {"ended"}}, in, &a); err != nil {
		return a, err
	}
	for a.State == domain.StepAsking {
		if err := q.wait(ctx, a.ApprovalID); err != nil {
			return a, err
		}
		step := at{"sessions", session, "steps", string(a.ExecutionID), "exec"}
		a = httpapi.ExecAnswer{}
		if err := c.get(ctx, step, url.Values{"wait": {"ended"}}, &a); err != nil {
			return a, err
		}
	}
	return a, nil
}

// deniedBy says what denied a step: a mode, a rule, or, without a word more, a person.
func (c *Client) deniedBy(ctx context.Context, sess string, id domain.StepID) string {
	var v session.StepView
	if c.get(ctx, at{"sessions", sess, "steps", string(id)}, nil, &v) != nil || v.Decision.Decision != domain.Deny {
		return "denied"
	}
	return "denied" + by(v.Decision.Rule)
}

// showExec prints an outcome and turns it into this command's exit code. Output
// to a terminal is escaped; a pipe gets the text as it is.
func (e *env) showExec(a httpapi.ExecAnswer) error {
	if e.json {
		if err := e.print(a, nil); err != nil {
			return err
		}
	} else {
		fmt.Fprint(e.out, e.guestText(a.Stdout, e.out))
		fmt.Fprint(e.err, e.guestText(a.Stderr, e.err))
		for _, l := range a.Logs {
			fmt.Fprintln(e.err, "glasshouse: "+one(l))
		}
	}
	switch {
	case a.ExitCode != nil && *a.ExitCode != 0:
		return exitCode(*a.ExitCode & 0xff)
	case a.Outcome != domain.OutcomeOK:
		return exitCode(125)
	}
	return nil
}

// guestText escapes a guest's text where a terminal would interpret it.
func (e *env) guestText(s string, w io.Writer) string {
	if f, ok := w.(*os.File); ok {
		if st, err := f.Stat(); err == nil && st.Mode()&os.ModeCharDevice == 0 {
			return s
		}
	}
	return safe(s, true)
}
