package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"glasshouse/app/httpapi"
	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
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
			s, err := newSession(cmd.Context(), c, args[0], title, "manual", mode, class, checks)
			if err != nil {
				return err
			}
			return e.print(s, func(w io.Writer) { fmt.Fprintf(w, "%s\t%s\n", s.ID, one(s.Title)) })
		},
	}
	create.Flags().StringVar(&title, "title", "", "title")
	create.Flags().StringVar(&mode, "mode", "", "auto, ask or plan")
	create.Flags().StringVar(&class, "class", "", "ephemeral, task or workspace")
	create.Flags().StringArrayVar(&checks, "check", nil, "a shell command whose success says that the result is right")
	var project string
	list := &cobra.Command{
		Use: "list", Short: "List sessions", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var ss []domain.Session
			if err := c.get(cmd.Context(), "/v1/sessions", url.Values{"project_id": {project}}, &ss); err != nil {
				return err
			}
			return e.print(ss, func(w io.Writer) {
				for _, s := range ss {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", s.ID, s.ProjectID, s.Agent, s.State, one(s.Title))
				}
			})
		},
	}
	list.Flags().StringVar(&project, "project", "", "of one project")
	show := &cobra.Command{
		Use: "show SESSION", Short: "Show a session and the text that tells a model where it works", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var s httpapi.SessionAnswer
			if err := c.get(cmd.Context(), "/v1/sessions/"+args[0], nil, &s); err != nil {
				return err
			}
			return e.print(s, func(w io.Writer) {
				fmt.Fprintf(w, "id\t%s\nproject\t%s\nagent\t%s\nstate\t%s\nsteps\t%d\n\n%s", s.ID, s.ProjectID, s.Agent, s.State, s.Steps, s.Preset)
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
			return c.post(cmd.Context(), "/v1/sessions/"+args[0]+"/end", nil, nil, nil)
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
			return c.post(cmd.Context(), "/v1/sessions/"+args[0]+"/cancel", nil, map[string]string{"step_id": step}, nil)
		},
	}
	cancel.Flags().StringVar(&step, "step", "", "one step")
	cmd.AddCommand(create, list, show, end, cancel)
	return cmd
}

func newSession(ctx context.Context, c *Client, project, title, agent, mode, class string, checks []string) (httpapi.SessionAnswer, error) {
	in := map[string]any{"project_id": project, "agent": agent}
	for k, v := range map[string]string{"title": title, "mode": mode, "class": class} {
		if v != "" {
			in[k] = v
		}
	}
	var cs []event.Check
	for _, code := range checks {
		cs = append(cs, event.Check{Name: clip(code, 60), Code: code})
	}
	if cs != nil {
		in["checks"] = cs
	}
	var s httpapi.SessionAnswer
	return s, c.post(ctx, "/v1/sessions", nil, in, &s)
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
	s, err := newSession(ctx, c, project, "", "manual", "", "ephemeral", nil)
	if err != nil {
		return "", nil, err
	}
	return string(s.ID), func() {
		_ = c.post(context.WithoutCancel(ctx), "/v1/sessions/"+string(s.ID)+"/end", nil, nil, nil)
	}, nil
}

func (e *env) execCmd() *cobra.Command {
	var session, project, dir, lang, code string
	var envs []string
	var timeout int64
	cmd := &cobra.Command{
		Use: "exec [flags] -- COMMAND [ARG…]", Short: "Run a command in a machine; its exit code is this command's",
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 0) == (code == "") {
				return usage("give a command after --, or --code with --lang")
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
			var a httpapi.ExecAnswer
			if err := c.post(cmd.Context(), "/v1/sessions/"+id+"/exec", url.Values{"wait": {"ended"}}, in, &a); err != nil {
				return err
			}
			if a.State == domain.StepAsking {
				if err := e.question(cmd.Context(), c, a.ApprovalID); err != nil {
					return err
				}
				var v json.RawMessage
				if err := c.get(cmd.Context(), "/v1/sessions/"+id+"/steps/"+string(a.ExecutionID)+"/exec", url.Values{"wait": {"ended"}}, &v); err != nil {
					return err
				}
				a = httpapi.ExecAnswer{}
				if err := json.Unmarshal(v, &a); err != nil {
					return err
				}
			}
			return e.showExec(a)
		},
	}
	f := cmd.Flags()
	f.StringVar(&session, "session", "", "session to work in")
	f.StringVar(&project, "project", "", "project to work in, in a session that ends with the command")
	f.StringVar(&dir, "dir", "", "working folder (default /workspace)")
	f.StringVar(&lang, "lang", "bash", "language of --code")
	f.StringVar(&code, "code", "", "a script instead of a command")
	f.StringArrayVar(&envs, "env", nil, "NAME=VALUE for the command")
	f.Int64Var(&timeout, "timeout-ms", 0, "time limit")
	return cmd
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

// question shows a waiting question and answers it from the terminal.
func (e *env) question(ctx context.Context, c *Client, id domain.ApprovalID) error {
	var a approval.Approval
	if err := c.get(ctx, "/v1/approvals/"+string(id), nil, &a); err != nil {
		return err
	}
	e.showQuestion(e.err, a)
	fmt.Fprint(e.err, "answer: ")
	var choice string
	if _, err := fmt.Fscanln(e.in, &choice); err != nil {
		return fmt.Errorf("no answer was given; the question %s still waits: answer it with 'glasshouse approval answer %s CHOICE'", id, id)
	}
	return c.post(ctx, "/v1/approvals/"+string(id)+"/answer", nil, map[string]string{"digest": a.Asked.Digest, "choice": choice}, nil)
}

func (e *env) showQuestion(w io.Writer, a approval.Approval) {
	fmt.Fprintf(w, "%s  %s\n", a.ID, one(a.Asked.Title))
	for _, f := range a.Asked.Detail {
		by := ""
		if f.Origin == domain.OriginGuest {
			by = " (the machine says)"
		}
		fmt.Fprintf(w, "  %s%s: %s\n", one(f.Name), by, safe(f.Value, true))
	}
	for _, ch := range a.Asked.Choices {
		fmt.Fprintf(w, "  [%s] %s", ch.ID, one(ch.Label))
		if ch.Covers != "" {
			fmt.Fprintf(w, " — %s", one(ch.Covers))
		}
		fmt.Fprintln(w)
	}
}

func (e *env) runCmd() *cobra.Command {
	var project, session, agent string
	var checks []string
	cmd := &cobra.Command{
		Use: "run PLAYBOOK", Short: "Let an agent work on a project, with the timeline live", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			if (session == "") == (project == "") {
				return usage("give either --session or --project")
			}
			if session == "" {
				s, err := newSession(cmd.Context(), c, project, args[0], agent, "", "", checks)
				if err != nil {
					return err
				}
				session = string(s.ID)
			}
			return e.turn(cmd.Context(), c, session, agent, string(text))
		},
	}
	cmd.Flags().StringVar(&project, "project", "", "project to work in, in a new session")
	cmd.Flags().StringVar(&session, "session", "", "session to work in")
	cmd.Flags().StringVar(&agent, "agent", "playbook", "which agent works")
	cmd.Flags().StringArrayVar(&checks, "check", nil, "a shell command whose success says that the result is right")
	return cmd
}

// turn starts a turn, shows its timeline and ends with its result.
func (e *env) turn(ctx context.Context, c *Client, session, agent, input string) error {
	var info httpapi.Info
	if err := c.get(ctx, "/v1/info", nil, &info); err != nil {
		return err
	}
	var t struct {
		Turn domain.TurnID `json:"turn_id"`
	}
	if err := c.post(ctx, "/v1/sessions/"+session+"/turns", nil, map[string]string{"agent": agent, "input": input}, &t); err != nil {
		return err
	}
	tl := newTimeline(e.out)
	result := ""
	err := c.follow(ctx, url.Values{"session_id": {session}}, info.Latest, func(ev event.Envelope) (bool, error) {
		if e.json {
			_ = json.NewEncoder(plain{e.out}).Encode(ev)
		} else {
			tl.show(ev)
		}
		if ev.Type != "turn.ended" {
			return true, nil
		}
		p, err := event.Decode(ev)
		if err != nil {
			return false, err
		}
		end := p.(*event.TurnEnded)
		if end.Turn != t.Turn {
			return true, nil
		}
		result = end.Result
		return false, nil
	})
	if err != nil {
		return err
	}
	if result != "ok" && result != "unchecked" {
		return exitCode(1)
	}
	return nil
}
