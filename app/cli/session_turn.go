package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// Commands about a session's agent while it works, or between its turns.

func (e *env) sessionSetCmd() *cobra.Command {
	var mode, model, limit string
	var tokens int64
	cmd := &cobra.Command{
		Use: "set SESSION", Short: "Change a session's mode, model or limits, also while its agent works", Args: cobra.ExactArgs(1),
		Long: `Change a session's mode, model or limits, also while its agent works: they hold from
its next call and its next answer on. A limit is for all of the session, what it has
used already included.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			set := map[string]any{}
			given := cmd.Flags().Changed
			if given("mode") {
				set["mode"] = mode
			}
			if given("model") {
				set["model"] = model
			}
			if given("limit") {
				nanos, err := dollars(limit)
				if err != nil {
					return err
				}
				set["limit_nanos"] = nanos
			}
			if given("limit-tokens") {
				set["limit_tokens"] = tokens
			}
			if len(set) == 0 {
				return usage("give what should change: --mode, --model, --limit or --limit-tokens")
			}
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var s httpapi.SessionAnswer
			if err := c.call(cmd.Context(), "PATCH", at{"sessions", args[0]}, nil, set, &s); err != nil {
				return err
			}
			return e.print(s, func(w io.Writer) { showAgent(w, s) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&mode, "mode", "", "plan, ask, auto or full ('glasshouse run --help' says what they mean)")
	f.StringVar(&model, "model", "", "a model by its name in 'glasshouse model list'; \"\" = the default one")
	f.StringVar(&limit, "limit", "", "most that the session may cost, in US dollars: 2.50; 0 = no limit")
	f.Var(wholeFlag[int64]{&tokens}, "limit-tokens", "most tokens that the session may use; 0 = no limit")
	return cmd
}

// showAgent says how a session's agent works and what it took.
func showAgent(w io.Writer, s httpapi.SessionAnswer) {
	fmt.Fprintf(w, "mode\t%s\n", or(one(string(s.Mode)), "auto"))
	if s.Agent != "model" && s.Spent.Answers == 0 {
		return
	}
	fmt.Fprintf(w, "model\t%s\n", or(one(s.Model), "the default one"))
	fmt.Fprintf(w, "used\t%s\n", spentText(s.Spent))
	tokens := "none"
	if s.Limits.Tokens > 0 {
		tokens = count(s.Limits.Tokens) + " tokens"
	}
	fmt.Fprintf(w, "limits\tcost %s, tokens %s\n", limitText(s.Limits.Nanos), tokens)
}

func spentText(s httpapi.Spent) string {
	if s.Answers == 0 {
		return "nothing yet"
	}
	t := tally{answers: s.Answers, in: s.Usage.Input + s.Usage.CacheRead + s.Usage.CacheWrite, cached: s.Usage.CacheRead, out: s.Usage.Output, uncounted: s.Uncounted, nanos: s.CostNanos}
	if !s.Priced {
		t.unpriced = s.Answers
		if s.CostNanos > 0 {
			t.unpriced = 0
			return t.String() + " and what answers without a known price cost"
		}
	}
	return t.String()
}

// usedText is spentText in a few words.
func usedText(s httpapi.Spent) string {
	if s.Answers == 0 {
		return "-"
	}
	text := count(s.Usage.Input+s.Usage.CacheRead+s.Usage.CacheWrite+s.Usage.Output+s.Uncounted) + " tokens"
	if s.Priced || s.CostNanos > 0 {
		text += ", " + cost(s.CostNanos)
	}
	return text
}

func (e *env) sessionStopCmd() *cobra.Command {
	return &cobra.Command{
		Use: "stop SESSION", Short: "Stop a session's agent and all it runs; the session stays", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			return c.post(cmd.Context(), at{"sessions", args[0], "cancel"}, nil, nil, nil)
		},
	}
}

func (e *env) sessionSayCmd() *cobra.Command {
	return &cobra.Command{
		Use: "say SESSION TEXT", Short: "Leave a message: a model at work reads it before its next answer", Args: cobra.ExactArgs(2),
		Long: `Leave a message in a session. A model at work reads it before its next answer; else it
is part of the conversation when the next turn begins. With - as TEXT it is read from the
input.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			text := args[1]
			if text == "-" {
				var err error
				if text, err = e.typedText(cmd.Context(), "the message"); err != nil {
					return err
				}
			}
			if utf8.RuneCountInString(text) > promptMost {
				return usage("the message is longer than %s characters", count(promptMost))
			}
			if strings.TrimSpace(text) == "" {
				return usage("the message is empty")
			}
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			return c.post(cmd.Context(), at{"sessions", args[0], "messages"}, nil, map[string]string{"text": text}, nil)
		},
	}
}

func (e *env) sessionWatchCmd() *cobra.Command {
	var v view
	cmd := &cobra.Command{
		Use: "watch SESSION", Short: "Show the session's turn, to its end when it still runs", Args: cobra.ExactArgs(1),
		Long: `Show the newest turn of a session from its beginning, as 'glasshouse run' does, and to
its end when it still runs. The exit code says how it ended, as that of run. Ctrl-C ends
the showing alone.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			turn, before, set, err := c.newestTurn(ctx, args[0])
			if err != nil {
				return err
			}
			v.set = set
			return e.followTurn(ctx, c, args[0], turn, before, v)
		},
	}
	v.ask = true
	cmd.Flags().BoolVarP(&v.verbose, "verbose", "v", false, "show too what the model thinks, and what each answer took")
	cmd.Flags().BoolVar(&v.deltas, "deltas", false, "with --json: also the pieces of answers as they are written")
	return cmd
}

// newestTurn finds the turn that began last, the event before it, and what was set in
// the session since the turn before that: it holds in this one.
func (c *Client) newestTurn(ctx context.Context, session string) (turn domain.TurnID, before int64, set []event.Envelope, err error) {
	const most = 1000
	q := url.Values{"session_id": {session}, "limit": {fmt.Sprint(most)}, "tail": {"true"}}
	for more := true; more; {
		var page []event.Envelope
		if err := c.get(ctx, at{"log"}, q, &page); err != nil {
			return "", 0, nil, err
		}
		for i := len(page) - 1; i >= 0; i-- {
			switch ev := page[i]; {
			case turn == "" && ev.Type == "turn.started":
				p, err := event.Decode(ev)
				if err != nil {
					return "", 0, nil, err
				}
				turn, before = p.(*event.TurnStarted).Turn, ev.ID-1
			case turn == "":
			case ev.Type == "session.changed":
				set = append(set, ev)
			case ev.Type == "turn.ended", ev.Type == "turn.started":
				slices.Reverse(set)
				return turn, before, set, nil
			}
		}
		if more = len(page) == most; more {
			q.Set("before", fmt.Sprint(page[0].ID))
		}
	}
	if turn != "" {
		slices.Reverse(set)
		return turn, before, set, nil
	}
	if err := c.get(ctx, at{"sessions", session}, nil, nil); err != nil {
		return "", 0, nil, err
	}
	return "", 0, nil, fmt.Errorf("no agent has worked in the session %s\n  'glasshouse run --session %s' lets one", one(session), one(session))
}
