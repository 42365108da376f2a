package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

const restoreHelp = `Put the files of a project's workspace back to what they were after one of its steps, or
with --before to what they were before it:

  glasshouse restore --session s_… 12            after step 12 of that session
  glasshouse restore --session s_… 12 --before   what step 12 did is gone, and all that came after it
  glasshouse restore st_…                        a step by its id
  glasshouse restore --project shop --checkpoint CHECKPOINT
                                                 a checkpoint by all of its 40 digits, as 'glasshouse log' shows it

'glasshouse session show' lists the last steps of a session, and which have a checkpoint.
What is there now is kept in a checkpoint first, and the command that brings it back is
printed. A restore is a step like any other: of the session whose step is named, or of a
new one where that has ended. Nothing else may be at work in the project meanwhile. Files
that git ignores and all that is outside the workspace stay as they are. So does .git; one
that was destroyed is made anew from what came in, and keeps what is left of the old one.`

// restoreLines bounds the files that are named.
const restoreLines = 100

var (
	checkpointID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	stepNumber   = regexp.MustCompile(`^[0-9]+$`)
)

// restoreIn is what a restore's door takes.
type restoreIn struct {
	Step       domain.StepID `json:"step,omitempty"`
	Side       string        `json:"side,omitempty"`
	Checkpoint string        `json:"checkpoint,omitempty"`
	Session    string        `json:"session_id,omitempty"`
}

func (e *env) restoreCmd() *cobra.Command {
	var session, project, checkpoint string
	var before bool
	cmd := &cobra.Command{
		Use: "restore STEP", Short: "Put the workspace back to what it was at a step", Long: restoreHelp, Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := restoreLine(args, session, project, checkpoint, before); err != nil {
				return err
			}
			ctx := cmd.Context()
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			in, of, to := restoreIn{Checkpoint: checkpoint, Session: session}, "", "it was in checkpoint "+clip(checkpoint, 12)
			switch {
			case checkpoint == "":
				in.Session = "" // that of the step, or a new one where it has ended
				var number int
				if in.Step, of, number, err = c.stepOf(ctx, session, args[0]); err != nil {
					return err
				}
				in.Side = "after"
				if before {
					in.Side = "before"
				}
				to = fmt.Sprintf("it was %s step %d", in.Side, number)
			case project != "":
				of, err = c.projectID(ctx, project)
			default:
				var s httpapi.SessionAnswer
				err = c.get(ctx, at{"sessions", session}, nil, &s)
				of = string(s.ProjectID)
				if err == nil && s.State == domain.SessionEnded {
					in.Session = "" // as with a step of one that has ended
					e.note("the session %s has ended; the restore stands in a new one", one(session))
				}
			}
			if err != nil {
				return err
			}
			stop := e.showProgress(ctx, c)
			var a httpapi.RestoreAnswer
			err = c.post(ctx, at{"projects", of, "restore"}, url.Values{"wait": {"sealed"}}, in, &a)
			stop()
			switch {
			case err != nil && ctx.Err() != nil:
				return &interrupted{"a restore that has begun goes on to its end: 'glasshouse log' shows it, and the checkpoint that it keeps first"}
			case err != nil:
				return err
			}
			return e.restored(to, a)
		},
	}
	f := cmd.Flags()
	f.StringVar(&session, "session", "", "session whose step is meant by its number, or in which that to a --checkpoint stands")
	f.BoolVar(&before, "before", false, "the state before the step, not the one after it")
	f.StringVar(&checkpoint, "checkpoint", "", "a checkpoint in the place of a step: all of its 40 digits, as 'glasshouse log' shows it")
	f.StringVar(&project, "project", "", "the project that --checkpoint is of")
	return cmd
}

// restoreLine looks at a command line by itself.
func restoreLine(args []string, session, project, checkpoint string, before bool) error {
	switch {
	case (len(args) == 0) == (checkpoint == ""):
		return usage("give either a STEP or a --checkpoint")
	case checkpoint != "" && before:
		return usage("--before is for a STEP; a checkpoint has one state alone")
	case checkpoint != "" && !checkpointID.MatchString(checkpoint):
		return usage("a checkpoint is 40 or 64 of the characters 0-9 and a-f, not %q", clip(checkpoint, 80))
	case checkpoint != "" && (project == "") == (session == ""):
		return usage("give --project with --checkpoint, or a --session of that project in which it should stand")
	case checkpoint == "" && project != "":
		return usage("--project is for --checkpoint; a STEP knows its project")
	case checkpoint == "" && session == "" && stepNumber.MatchString(args[0]):
		return usage("a step's number is that of its session: give --session too")
	}
	return nil
}

// restored prints what came of a restore.
func (e *env) restored(to string, a httpapi.RestoreAnswer) error {
	if a.Outcome != domain.OutcomeOK {
		what := "nothing was restored"
		if a.Outcome != "" {
			what = "the restore ended " + string(a.Outcome)
		}
		if e.json {
			if err := e.print(a, nil); err != nil {
				return err
			}
		}
		if len(a.Logs) > 0 {
			what += ": " + strings.Join(a.Logs, "\n  ")
		}
		if a.Before != "" {
			what += "\n  what was there before: " + undo(a)
		}
		return errors.New(what)
	}
	return e.print(a, func(w io.Writer) {
		if a.Repository != "" {
			fmt.Fprintf(w, "the repository, .git, was destroyed: %s\n", one(a.Repository))
		}
		switch a.Files {
		case 0:
			fmt.Fprintf(w, "no file had to change: the workspace is as %s\n", to)
			return
		case 1:
			fmt.Fprintf(w, "the workspace is as %s; 1 file changed\n", to)
		default:
			fmt.Fprintf(w, "the workspace is as %s; %s files changed\n", to, count(int64(a.Files)))
		}
		for i, c := range a.FileChanges {
			if i == restoreLines {
				fmt.Fprintf(w, "  and %s more\n", count(int64(max(a.Files, len(a.FileChanges))-i)))
				break
			}
			path := one(c.Path)
			if c.OldPath != "" {
				path = one(c.OldPath) + " → " + path
			}
			fmt.Fprintf(w, "  %-8s %s\n", one(c.Op), path)
		}
		for _, l := range a.Logs {
			fmt.Fprintf(w, "  %s\n", one(l))
		}
		fmt.Fprintf(w, "what was there is kept in checkpoint %s; to bring it back:\n  %s\n", one(a.Before), undo(a))
	})
}

// undo stands in the timeline of what it undoes.
func undo(a httpapi.RestoreAnswer) string {
	return "glasshouse restore --session " + one(string(a.Session)) + " --checkpoint " + one(a.Before)
}

// stepOf finds a step by its id, or by its number in a session, and its project.
func (c *Client) stepOf(ctx context.Context, session, step string) (id domain.StepID, project string, number int, err error) {
	q := url.Values{}
	if stepNumber.MatchString(step) {
		if number, err = strconv.Atoi(step); err != nil {
			return "", "", 0, usage("there is no step %s", clip(step, 40))
		}
	}
	visit := func(ev event.Envelope) (more bool, err error) {
		if ev.Type != "step.requested" {
			return true, nil
		}
		p, err := event.Decode(ev)
		if err != nil {
			return false, err
		}
		r, is := p.(*event.StepRequested)
		if !is || number > 0 && r.Number != number || number == 0 && string(ev.StepID) != step || session != "" && string(ev.SessionID) != session {
			return true, nil
		}
		id, project, number = ev.StepID, string(ev.ProjectID), r.Number
		return false, nil
	}
	if number > 0 {
		q.Set("session_id", session)
		q.Set("types", "step.requested")
		err = c.every(ctx, q, visit)
	} else {
		q.Set("step_id", step)
		var page []event.Envelope
		err = c.get(ctx, at{"log"}, q, &page)
		for more, i := true, 0; err == nil && more && i < len(page); i++ {
			more, err = visit(page[i])
		}
	}
	switch {
	case err != nil || id != "":
		return id, project, number, err
	case session == "":
		return "", "", 0, fmt.Errorf("there is no step %s\n  'glasshouse session show SESSION' lists the last steps with their ids; with --session a step has a number", one(clip(step, 80)))
	}
	if err := c.get(ctx, at{"sessions", session}, nil, nil); err != nil {
		return "", "", 0, err
	}
	return "", "", 0, fmt.Errorf("the session %s has no step %s\n  'glasshouse log --session %s' shows what it did", one(session), one(clip(step, 80)), one(session))
}

// every hands over the stored events that a filter lets through, until f has enough.
func (c *Client) every(ctx context.Context, q url.Values, f func(event.Envelope) (more bool, err error)) error {
	q.Set("format", "ndjson")
	q.Set("follow", "false")
	b, err := c.open(ctx, "GET", at{"events"}, q, nil)
	if err != nil {
		return err
	}
	defer b.Close()
	d := json.NewDecoder(b)
	for {
		var ev event.Envelope
		switch err := d.Decode(&ev); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if more, err := f(ev); err != nil || !more {
			return err
		}
	}
}
