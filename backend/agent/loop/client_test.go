package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"glasshouse/backend/agent"
	"glasshouse/backend/model"
)

// mind is a model that answers from a function, and holds each request to the rules of
// the strictest server.
type mind struct {
	t   *testing.T
	cfg model.Config
	// think answers the nth request of the conversation, from 0.
	think func(n int, r model.Request) (model.Answer, error)
	// sum answers requests for a summary; nil = nothing.
	sum func(r model.Request) (model.Answer, error)
	// dense is how many bytes make a token on its server; 0 = 4.
	dense float64
	// mute: its server counts nothing.
	mute bool
	// names it was opened by.
	names []string

	mu     sync.Mutex
	asked  []model.Request
	summed []model.Request
}

func newMind(t *testing.T, think func(n int, r model.Request) (model.Answer, error)) *mind {
	return &mind{t: t, cfg: model.Config{Name: "test", Format: model.FormatChat, Model: "test-1"}, think: think}
}

// script answers one after the other.
func script(t *testing.T, as ...model.Answer) *mind {
	return newMind(t, func(n int, _ model.Request) (model.Answer, error) {
		if n >= len(as) {
			t.Errorf("asked for answer %d of %d", n+1, len(as))
			return say("That is all."), nil
		}
		return as[n], nil
	})
}

func (m *mind) Open(_ context.Context, name string) (model.Client, model.Config, error) {
	m.names = append(m.names, name)
	cfg := m.cfg
	if name != "" {
		cfg.Name = name
	}
	return m, cfg, nil
}

func (m *mind) Answer(ctx context.Context, r model.Request, each func(model.Delta)) (model.Answer, error) {
	if ctx.Err() != nil {
		return model.Answer{}, context.Cause(ctx)
	}
	if err := valid(r); err != nil {
		m.t.Errorf("a server would refuse this request: %v\n%s", err, show(r))
	}
	m.mu.Lock()
	var a model.Answer
	var err error
	if r.Quiet {
		m.summed = append(m.summed, r)
		m.mu.Unlock()
		if m.sum == nil {
			return model.Answer{Stop: model.StopEnd, Usage: m.usage(r, "")}, nil
		}
		a, err = m.sum(r)
	} else {
		n := len(m.asked)
		m.asked = append(m.asked, r)
		m.mu.Unlock()
		a, err = m.think(n, r)
	}
	if err != nil {
		return model.Answer{}, err
	}
	for _, p := range a.Parts {
		switch p.Kind {
		case model.KindCall:
			each(model.Delta{Kind: p.Kind, Tool: p.Call.Tool})
			each(model.Delta{Kind: p.Kind, Text: p.Call.Args})
		default:
			each(model.Delta{Kind: p.Kind, Text: p.Text})
		}
	}
	if a.Usage == (model.Usage{}) && !m.mute {
		a.Usage = m.usage(r, fmt.Sprint(a.Parts))
	}
	a.Served = "test-1-served"
	return a, nil
}

// usage as its server counts it.
func (m *mind) usage(r model.Request, out string) model.Usage {
	size, images := sizeOf(r.Messages)
	per := m.dense
	if per == 0 {
		per = 4
	}
	return model.Usage{Input: int64(float64(size+sizeOfRest(&r))/per) + int64(images*1000), Output: int64(float64(len(out))/per) + 1}
}

// valid holds a request to what servers want of one.
func valid(r model.Request) error {
	if len(r.Messages) == 0 || r.Messages[0].Role != model.RoleUser {
		return errors.New("it does not begin with the user")
	}
	var open []string
	prev := model.Role("")
	for i, m := range r.Messages {
		if len(m.Parts) == 0 {
			return fmt.Errorf("message %d is empty", i)
		}
		if len(open) > 0 && m.Role != model.RoleTool {
			return fmt.Errorf("message %d: the calls before it have no results", i)
		}
		if m.Role == prev {
			return fmt.Errorf("message %d: two in a row of %s", i, m.Role)
		}
		prev = m.Role
		if m.Role == model.RoleTool && len(m.Parts) != len(open) {
			return fmt.Errorf("message %d: %d results for %d calls", i, len(m.Parts), len(open))
		}
		ids := map[string]bool{}
		var calls []string
		for j, p := range m.Parts {
			switch {
			case m.Role == model.RoleUser && p.Kind != model.KindText, m.Role == model.RoleTool && p.Kind != model.KindResult,
				m.Role == model.RoleAssistant && p.Kind != model.KindText && p.Kind != model.KindThought && p.Kind != model.KindCall:
				return fmt.Errorf("message %d holds a %s", i, p.Kind)
			case p.Kind == model.KindText && strings.TrimSpace(p.Text) == "":
				return fmt.Errorf("message %d has an empty text", i)
			case p.Kind == model.KindCall:
				if p.Call.ID == "" || ids[p.Call.ID] {
					return fmt.Errorf("message %d: the id %q of a call", i, p.Call.ID)
				}
				ids[p.Call.ID] = true
				calls = append(calls, p.Call.ID)
			case p.Kind == model.KindResult:
				if p.Result.ID != open[j] {
					return fmt.Errorf("message %d: result %d is of %q, not of %q", i, j, p.Result.ID, open[j])
				}
				if p.Result.Text == "" {
					return fmt.Errorf("message %d: an empty result", i)
				}
			}
		}
		open = calls
	}
	if len(open) > 0 || prev == model.RoleAssistant {
		return errors.New("it ends with the assistant")
	}
	return nil
}

func show(r model.Request) string {
	var b strings.Builder
	for _, m := range r.Messages {
		fmt.Fprintf(&b, "[%s]", m.Role)
		for _, p := range m.Parts {
			switch p.Kind {
			case model.KindCall:
				fmt.Fprintf(&b, " call %s %s %s;", p.Call.ID, p.Call.Tool, short(p.Call.Args, 80))
			case model.KindResult:
				fmt.Fprintf(&b, " result %s %q images=%d;", p.Result.ID, short(p.Result.Text, 300), len(p.Result.Images))
			default:
				fmt.Fprintf(&b, " %s %q;", p.Kind, short(p.Text, 200))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// text of all messages of a role.
func textOf(r model.Request, role model.Role) string {
	var b strings.Builder
	for _, m := range r.Messages {
		for _, p := range m.Parts {
			if m.Role != role {
				continue
			}
			b.WriteString(p.Text + "\n")
			if p.Result != nil {
				b.WriteString(p.Result.Text + "\n")
			}
		}
	}
	return b.String()
}

// last is the newest message.
func last(r model.Request) model.Message { return r.Messages[len(r.Messages)-1] }

func say(text string) model.Answer {
	return model.Answer{Parts: []model.Part{{Kind: model.KindText, Text: text}}, Stop: model.StopEnd}
}

var callNumber int

// calls makes an answer of pairs of tool and arguments.
func calls(pairs ...string) model.Answer {
	a := model.Answer{Stop: model.StopCalls}
	for i := 0; i < len(pairs); i += 2 {
		callNumber++
		a.Parts = append(a.Parts, model.Part{Kind: model.KindCall, Call: &model.Call{ID: fmt.Sprintf("call_%d", callNumber), Tool: pairs[i], Args: pairs[i+1]}})
	}
	return a
}

func run(argv ...string) string {
	raw, _ := json.Marshal(map[string]any{"argv": argv})
	return string(raw)
}

// work runs a turn.
func work(t *testing.T, h *house, m *mind) error {
	t.Helper()
	return workWith(t, h, Config{Models: m})
}

func workWith(t *testing.T, h *house, cfg Config) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // a guard against hanging
	defer cancel()
	cfg.Retry.Sleep = func(context.Context, time.Duration) error { return nil }
	return New(cfg, h).Turn(ctx, h, "")
}

func mustWork(t *testing.T, h *house, m *mind) {
	t.Helper()
	if err := work(t, h, m); err != nil {
		t.Fatalf("the turn failed: %v", err)
	}
}

func stopped(t *testing.T, err error) string {
	t.Helper()
	var s *agent.Stopped
	if !errors.As(err, &s) {
		t.Fatalf("the turn was not stopped but ended with %v", err)
	}
	return s.Reason
}

// results of the newest message, or fail.
func results(t *testing.T, r model.Request) (out []*model.Result) {
	t.Helper()
	for i := len(r.Messages) - 1; i >= 0; i-- {
		if r.Messages[i].Role == model.RoleTool {
			for _, p := range r.Messages[i].Parts {
				out = append(out, p.Result)
			}
			return out
		}
	}
	t.Fatalf("no results in\n%s", show(r))
	return nil
}

func has(t *testing.T, s string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(s, w) {
			t.Errorf("%q is not in:\n%s", w, short(s, 6000))
		}
	}
}

func hasNot(t *testing.T, s string, not ...string) {
	t.Helper()
	for _, w := range not {
		if strings.Contains(s, w) {
			t.Errorf("%q is in:\n%s", w, short(s, 6000))
		}
	}
}
