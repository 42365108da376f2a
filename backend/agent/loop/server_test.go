package loop

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/model"
	"glasshouse/backend/model/anthropic"
	"glasshouse/backend/model/modeltest"
	"glasshouse/backend/model/openai"
	"glasshouse/backend/model/wire"
)

// served is a model behind a real adapter.
type served struct {
	cfg model.Config
}

func (s served) Open(context.Context, string) (model.Client, model.Config, error) {
	hc := wire.NewClient(wire.Options{})
	if s.cfg.Format == model.FormatMessages {
		return anthropic.New(s.cfg, "key", hc), s.cfg, nil
	}
	return openai.New(s.cfg, "key", hc), s.cfg, nil
}

func formats(t *testing.T, f func(t *testing.T, cfg model.Config)) {
	for _, format := range []model.Format{model.FormatChat, model.FormatResponses, model.FormatMessages} {
		t.Run(string(format), func(t *testing.T) {
			f(t, model.Config{Name: "served", Format: format, Model: "m-1", Price: &model.Price{Input: 1, Output: 2, CacheRead: 0.1}})
		})
	}
}

func faultless(t *testing.T, s *modeltest.Server) {
	t.Helper()
	for _, f := range s.Faults() {
		t.Errorf("the server: %v", f)
	}
	if n := s.Left(); n != 0 {
		t.Errorf("%d answers of the script were not asked for", n)
	}
}

// Everything that can be odd about a conversation, against servers as strict as the
// real ones.
func TestAgainstStrictServers(t *testing.T) {
	const text = `
answers:
  - think: I look first.
    say: I look at three things.
    calls:
      - {tool: exec, args: {argv: [one]}}
      - {tool: exec, raw: '{"argv": ["two"'}
      - {tool: nothing_such, args: {a: 1}}
      - {tool: plan, args: {items: [{text: look, state: doing}]}}
      - {tool: read, raw: '[]'}
  - fail: {kind: busy}
  - expect: {results: 5, has: ["out of one", "no JSON object", "no tool", "1 item", "what the person says meanwhile"]}
    calls: [{tool: browser_screenshot}]
  - expect: {results: 1, images: 1}
    think: Only a thought.
  - expect: {has: ["Your answer was empty"]}
    say: Half a sent
    stop: length
  - expect: {has: ["cut at the limit"]}
    say: Done.
  - expect: {has: [And again], all: [begin, Half a sent]}
    calls: [{tool: exec, args: {argv: [four]}}]
  - expect: {has: [denied, not today]}
    say: Then not.
`
	formats(t, func(t *testing.T, cfg model.Config) {
		s := modeltest.Text(t, text)
		cfg.BaseURL = s.URL()
		h := newHouse(t)
		h.run = func(r *event.StepRequested) (*event.StepEnded, *event.StepRefused) {
			switch {
			case r.Tool == "browser_screenshot":
				b, _ := h.PutBlob(t.Context(), []byte("\x89PNG\r\n\x1a\nnot really"), "image/png", "screenshot.png")
				return &event.StepEnded{Outcome: domain.OutcomeOK, Result: []byte(`{"width":1}`), Artefacts: []event.Blob{b}}, nil
			case strings.Contains(r.Title, "four"):
				return nil, &event.StepRefused{State: domain.StepDenied, Reason: "not today"}
			}
			h.say("what the person says meanwhile")
			return wrote(0, "out of one\n"), nil
		}
		h.begin("begin")
		if err := workWith(t, h, Config{Models: served{cfg}}); err != nil {
			t.Fatal(err)
		}
		h.begin("And again")
		if err := workWith(t, h, Config{Models: served{cfg}}); err != nil {
			t.Fatal(err)
		}
		faultless(t, s)
		oneResultEach(t, h)
		// What the session cost is what the server counted.
		conv := newConversation(h.turn, h.ReadBlob)
		if err := conv.refresh(t.Context(), h.Fold); err != nil {
			t.Fatal(err)
		}
		counted := int64(0)
		for _, r := range s.Requests() {
			if r.Status == 200 {
				counted += r.Tokens
			}
		}
		if u := conv.usage; u.Input+u.CacheRead+u.CacheWrite != counted || u.Output == 0 || conv.cost == 0 {
			t.Errorf("used %+v, the server counted %d tokens in", u, counted)
		}
		if n := len(recorded[*event.ModelRetried](h)); n != 1 {
			t.Errorf("%d failed attempts are recorded", n)
		}
		var said string
		for _, d := range h.deltas() {
			if d.Kind == "text" {
				said += d.Text
			}
		}
		has(t, said, "I look at three things.", "Done.", "Then not.")
	})
}

// A long turn against a server that holds no more than the settings say: it never has
// to refuse a request for its length.
func TestLongTurnWithinAServersContext(t *testing.T) {
	formats(t, func(t *testing.T, cfg model.Config) {
		cfg.Context, cfg.MaxOutput = 24000, 4000
		n := 80
		s := modeltest.Text(t, `
context: 24000
summary: The work is half done.
keyed:
  - match: {all: ["denied", "never touch vendor"]}
    times: 100000
    calls: [{tool: exec, args: {argv: [after, "${n}"]}}]
  - match: {}
    calls: [{tool: exec, args: {argv: [before, "${n}"]}}]
answers: []
`)
		cfg.BaseURL = s.URL()
		h := newHouse(t)
		h.run = func(r *event.StepRequested) (*event.StepEnded, *event.StepRefused) {
			if r.Number == 5 {
				return nil, &event.StepRefused{State: domain.StepDenied, Reason: "the person said no: never touch vendor"}
			}
			return wrote(0, strings.Repeat(fmt.Sprintf("line of step %d with words in it\n", r.Number), 60)), nil
		}
		h.ask = yes
		h.begin("PROMPT")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		h.onAppend = func(e event.Envelope) {
			if e.Type == "model.told" && len(recorded[*event.ModelTold](h)) == n {
				cancel()
			}
		}
		if err := New(Config{Models: served{cfg}}, h).Turn(ctx, h, ""); err == nil {
			t.Fatal("it ended by itself")
		}
		for _, f := range s.Faults() {
			t.Errorf("the server: %v", f)
		}
		cs := recorded[*event.ContextCompacted](h)
		if len(cs) < 3 {
			t.Errorf("room was made %d times", len(cs))
		}
		most := int64(0)
		for _, r := range s.Requests() {
			most = max(most, r.Tokens)
		}
		if most > 20000 {
			t.Errorf("a request had %d tokens", most)
		}
		for _, c := range cs {
			if c.Summary != "The work is half done." {
				t.Errorf("the summary is %q", c.Summary)
			}
		}
		t.Logf("%d requests, the largest of %d tokens; room was made %d times", len(s.Requests()), most, len(cs))
	})
}

// The settings say more than the server holds: it says so, and the turn goes on.
func TestServerThatHoldsLess(t *testing.T) {
	formats(t, func(t *testing.T, cfg model.Config) {
		s := modeltest.Text(t, `
context: 24000
keyed:
  - match: {}
    times: 60
    calls: [{tool: exec, args: {argv: [step, "${n}"]}}]
answers: [{say: Done.}]
`)
		cfg.BaseURL, cfg.MaxOutput = s.URL(), 2000
		h := newHouse(t)
		h.run = func(r *event.StepRequested) (*event.StepEnded, *event.StepRefused) {
			return wrote(0, strings.Repeat(fmt.Sprintf("line of step %d with words in it\n", r.Number), 60)), nil
		}
		h.begin("PROMPT")
		if err := workWith(t, h, Config{Models: served{cfg}}); err != nil {
			t.Fatal(err)
		}
		long := 0
		for _, f := range s.Faults() {
			if f.Kind != "too_long" {
				t.Errorf("the server: %v", f)
			}
			long++
		}
		if long == 0 || long > 3 {
			t.Errorf("the server said %d times that it is too long", long)
		}
		oneResultEach(t, h)
	})
}
