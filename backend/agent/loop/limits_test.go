package loop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"glasshouse/backend/agent"
	"glasshouse/backend/event"
	"glasshouse/backend/model"
	"glasshouse/backend/session"
)

func yes(agent.Question) agent.Reply { return agent.Reply{State: "answered", Choice: "go_on"} }

// busy makes another call each time, n times.
func busy(t *testing.T, n int) *mind {
	return newMind(t, func(i int, _ model.Request) (model.Answer, error) {
		if i >= n {
			return say("done"), nil
		}
		return calls("exec", run("step", fmt.Sprint(i))), nil
	})
}

func TestCallLimit(t *testing.T) {
	h := newHouse(t)
	h.ask = yes
	m := busy(t, 10)
	h.begin("x")
	if err := workWith(t, h, Config{Models: m, Calls: 4}); err != nil {
		t.Fatal(err)
	}
	if len(h.asked) != 2 || h.asked[0].Kind != "limit" || h.asked[0].Key == h.asked[1].Key || !h.asked[0].Free {
		t.Fatalf("asked %+v", h.asked)
	}
	has(t, h.asked[0].Title, "4 calls", "4 more")
	if h.asked[0].Choices[0].ID != "go_on" || h.asked[0].Choices[1].ID != "stop" {
		t.Errorf("choices %+v", h.asked[0].Choices)
	}
	if n := len(recorded[*event.StepRequested](h)); n != 10 {
		t.Errorf("%d steps", n)
	}
	// A new turn counts anew.
	h.asked = nil
	h.begin("y")
	if err := workWith(t, h, Config{Models: busy(t, 4), Calls: 4}); err != nil || len(h.asked) != 0 {
		t.Errorf("%v, asked %+v", err, h.asked)
	}
}

// Calls that may not run are not counted: a yes is a yes to as many more as it says.
func TestCallsThatMayNotRunAreNotCounted(t *testing.T) {
	h := newHouse(t)
	h.ask = yes
	h.begin("x")
	var pairs []string
	for i := range 2000 {
		pairs = append(pairs, "exec", run("echo", fmt.Sprint(i)))
	}
	m := newMind(t, func(n int, _ model.Request) (model.Answer, error) {
		switch {
		case n == 0:
			return calls(pairs...), nil
		case n < 80:
			return calls("exec", run("echo", fmt.Sprint("more ", n))), nil
		}
		return say("done"), nil
	})
	mustWork(t, h, m)
	if len(h.asked) != 1 { // 32 and 79 are 111
		t.Errorf("asked %d times: %v", len(h.asked), h.asked)
	}
}

func TestCallLimitIsAHundred(t *testing.T) {
	h := newHouse(t)
	h.ask = func(agent.Question) agent.Reply {
		return agent.Reply{State: "answered", Choice: "stop", Text: "that is enough"}
	}
	h.begin("x")
	reason := stopped(t, work(t, h, busy(t, 200)))
	has(t, reason, "the person stopped it", "that is enough")
	if n := len(recorded[*event.StepRequested](h)); n != 100 {
		t.Errorf("%d steps", n)
	}
	// What it wanted to do is answered when the conversation goes on, and did not run.
	h.begin("go on with something else")
	m := newMind(t, func(_ int, r model.Request) (model.Answer, error) {
		rs := results(t, r)
		has(t, rs[0].Text, "it did not run")
		has(t, textOf(r, model.RoleUser), "that is enough", "something else")
		return say("ok"), nil
	})
	mustWork(t, h, m)
}

func TestNoAnswerIsNoYes(t *testing.T) {
	for _, state := range []string{"expired", "cancelled"} {
		h := newHouse(t)
		h.ask = func(agent.Question) agent.Reply { return agent.Reply{State: state} }
		h.begin("x")
		has(t, stopped(t, workWith(t, h, Config{Models: busy(t, 9), Calls: 2})), "nobody answered", "neither a yes nor a no")
		if n := len(recorded[*event.StepRequested](h)); n != 2 {
			t.Errorf("%s: %d steps", state, n)
		}
	}
}

// costly answers cost a cent each: 1,000 tokens out at 10 dollars a million.
func costly(t *testing.T, n int) *mind {
	m := busy(t, n)
	think := m.think
	m.think = func(i int, r model.Request) (model.Answer, error) {
		a, err := think(i, r)
		a.Usage = model.Usage{Input: 100, Output: 1000}
		return a, err
	}
	m.cfg.Price = &model.Price{Output: 10}
	return m
}

func TestSpendingLimit(t *testing.T) {
	h := newHouse(t)
	h.view.Nanos = 100_000_000 // 10 cents
	h.ask = yes
	h.begin("x")
	m := costly(t, 50)
	reason := stopped(t, work(t, h, m))
	has(t, reason, "limit of what the session may cost is reached", "$0.10 of $0.10", "raise it")
	if len(m.asked) != 10 {
		t.Errorf("%d answers for 10 cents", len(m.asked))
	}
	if len(h.asked) != 1 {
		t.Fatalf("asked %d times: %+v", len(h.asked), h.asked)
	}
	has(t, h.asked[0].Title, "80 %", "$0.08 of $0.10")
	// The last answers may not be longer than what is left.
	for i, want := range []int{8192, 8192, 8000, 7000, 6000, 5000, 4000, 3000, 2000, 1000} {
		if got := m.asked[i].MaxOutput; got != want {
			t.Errorf("answer %d may have %d tokens, want %d", i, got, want)
		}
	}
	// It is reached: nothing more is asked of the model, also in the next turn.
	h.begin("y")
	stopped(t, work(t, h, m))
	if len(m.asked) != 10 {
		t.Error("it was asked again")
	}
	// A higher limit is another one, and asked about again at its own 80 %.
	h.view.Nanos = 200_000_000
	h.begin("z")
	stopped(t, work(t, h, m))
	if len(m.asked) != 20 || len(h.asked) != 2 {
		t.Errorf("%d answers, asked %d times", len(m.asked), len(h.asked))
	}
}

func TestTokenLimit(t *testing.T) {
	h := newHouse(t)
	h.view.Tokens = 11_000
	h.ask = func(q agent.Question) agent.Reply { return agent.Reply{State: "expired"} }
	h.begin("x")
	m := costly(t, 50)
	has(t, stopped(t, work(t, h, m)), "nobody answered", "8,800 tokens of 11,000 tokens")
	if len(m.asked) != 8 {
		t.Errorf("%d answers", len(m.asked))
	}
	h.ask = yes
	h.begin("")
	has(t, stopped(t, work(t, h, m)), "11,000 tokens of 11,000 tokens")
	if last := m.asked[len(m.asked)-1].MaxOutput; last != leastOutput {
		t.Errorf("the last answer may have %d tokens", last)
	}
}

// A model that says as much as it may never goes over a limit with it, wherever that is:
// not even by the smallest answer.
func TestWhatIsWrittenNeverGoesOverALimit(t *testing.T) {
	for limit := int64(1_000); limit < 40_000; limit += 1_777 {
		for _, money := range []bool{true, false} {
			h := newHouse(t)
			h.ask = yes
			h.begin("x")
			m := busy(t, 200)
			think := m.think
			m.think = func(i int, r model.Request) (model.Answer, error) {
				a, err := think(i, r)
				a.Usage = model.Usage{Input: 100, Output: int64(r.MaxOutput)}
				return a, err
			}
			m.cfg.Price = &model.Price{Input: 0.001, Output: 1}
			m.cfg.MaxOutput = 900
			if money {
				h.view.Nanos = limit * 1000
			} else {
				h.view.Tokens = limit
			}
			if why := stopped(t, work(t, h, m)); !strings.Contains(why, "limit") {
				t.Fatal(why)
			}
			var tokens, nanos int64
			for _, a := range recorded[*event.ModelAnswered](h) {
				tokens, nanos = tokens+a.Context, nanos+a.CostNanos
			}
			if h.view.Nanos > 0 && nanos > h.view.Nanos || h.view.Tokens > 0 && tokens > h.view.Tokens {
				t.Errorf("limit %d, money %v: %d tokens, %d nanos in %d answers", limit, money, tokens, nanos, len(m.asked))
			}
		}
	}
}

// A long conversation costs much to be read alone: it is not sent where that surely goes
// over a limit, nor summed up, and the session is gone on with under a higher one.
func TestARequestThatAloneGoesOverALimit(t *testing.T) {
	long := strings.Repeat("many words ", 30_000) // some 100,000 tokens
	for _, c := range []struct {
		name   string
		limits session.Limits
		price  model.Price
		want   string
	}{
		{"money", session.Limits{Nanos: 50_000_000}, model.Price{Input: 10, Output: 30}, "$0.05"},
		{"money, read from the cache", session.Limits{Nanos: 5_000_000}, model.Price{Input: 10, CacheRead: 1, Output: 30}, "$0.005"},
		{"tokens", session.Limits{Tokens: 30_000}, model.Price{}, "30,000 tokens"},
	} {
		for _, context := range []int{1_000_000, 60_000} { // one that holds it, one for which it must be made shorter
			t.Run(fmt.Sprintf("%s %d", c.name, context), func(t *testing.T) {
				h := newHouse(t)
				h.view.Limits = c.limits
				h.begin("x")
				for range 10 {
					h.say(long[:len(long)/10])
				}
				m := script(t, say("done"))
				m.cfg.Price, m.cfg.Context = &c.price, context
				has(t, stopped(t, work(t, h, m)), "would go over the limit", c.want, "raise it")
				if len(m.asked)+len(m.summed) != 0 {
					t.Error("the model was asked all the same")
				}
				h.view.Limits = session.Limits{Nanos: 100 * c.limits.Nanos, Tokens: 100 * c.limits.Tokens}
				h.begin("")
				mustWork(t, h, m)
				if context < 1_000_000 {
					return
				}
				// With 90 % used a yes would lead nowhere: nobody is asked for one.
				var used int64
				for _, a := range recorded[*event.ModelAnswered](h) {
					used += a.Context
				}
				h.view.Limits = session.Limits{Tokens: used * 10 / 9}
				h.begin("more")
				has(t, stopped(t, work(t, h, m)), "would go over the limit")
			})
		}
	}
}

func TestALimitThatCannotBeKept(t *testing.T) {
	h := newHouse(t)
	h.view.Nanos = 1_000_000_000
	h.begin("x")
	m := busy(t, 3)
	has(t, stopped(t, work(t, h, m)), "$1.00", "no price is known for the model test", "take the limit away")
	if len(m.asked) != 0 {
		t.Error("it was asked all the same")
	}
}

func TestTheSameCallAgainAndAgain(t *testing.T) {
	h := newHouse(t)
	h.run = func(*event.StepRequested) (*event.StepEnded, *event.StepRefused) {
		return wrote(1, "no such file\n"), nil
	}
	h.ask = func(q agent.Question) agent.Reply {
		return agent.Reply{State: "answered", Choice: "go_on", Text: "look in src instead"}
	}
	m := newMind(t, nil)
	m.think = func(n int, r model.Request) (model.Answer, error) {
		if n < 3 {
			// The same arguments, written in another way.
			return calls("exec", []string{`{"argv":["cat","x"],"workdir":"."}`, `{ "workdir":".", "argv":["cat","x"] }`, `{"argv":["cat", "x"],"workdir":"."}`}[n]), nil
		}
		has(t, textOf(r, model.RoleUser), "look in src instead")
		return say("ok"), nil
	}
	h.begin("x")
	mustWork(t, h, m)
	if len(h.asked) != 1 || h.asked[0].Kind != "loop" {
		t.Fatalf("asked %+v", h.asked)
	}
	q := h.asked[0]
	has(t, q.Title, "the same call again (exec)", "2 times")
	var detail []string
	for _, f := range q.Detail {
		detail = append(detail, f.Name+": "+f.Value)
	}
	has(t, strings.Join(detail, "\n"), `"cat"`, "exit code 1", "no such file")
	if n := len(recorded[*event.StepRequested](h)); n != 3 {
		t.Errorf("%d steps: the call was let go on", n)
	}
}

func TestRepeatsThatAreNone(t *testing.T) {
	for _, c := range []struct {
		name  string
		calls int
		// before each call but the first
		between func(h *house, n int)
		out     func(n int) string
		asks    string // the numbers of the calls before which it was asked
	}{
		{"the third with the same result", 6, nil, func(int) string { return "same" }, "[3 5]"},
		{"polling", 12, nil, func(n int) string { return fmt.Sprint("at ", n) }, "[10]"},
		{"the person spoke", 4, func(h *house, n int) {
			if n == 3 {
				h.say("try it once more")
			}
		}, func(int) string { return "same" }, "[]"},
		{"an edit between", 8, func(h *house, n int) {
			if n < 6 {
				h.put("st_edit", &event.StepSealed{Commit: "c", Changes: []event.FileChange{{Path: "a"}}})
			}
		}, func(int) string { return "FAILED" }, "[7]"},
		{"a step that changed nothing between", 3, func(h *house, _ int) {
			h.put("st_edit", &event.StepSealed{Commit: "c", Same: true})
		}, func(int) string { return "FAILED" }, "[3]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t)
			steps := 0
			h.run = func(*event.StepRequested) (*event.StepEnded, *event.StepRefused) {
				steps++
				return wrote(0, c.out(steps)), nil
			}
			at := []int{}
			h.ask = func(q agent.Question) agent.Reply {
				at = append(at, steps+1)
				return agent.Reply{State: "answered", Choice: "go_on"}
			}
			m := newMind(t, func(n int, _ model.Request) (model.Answer, error) {
				if n >= c.calls {
					return say("ok"), nil
				}
				if n > 0 && c.between != nil {
					c.between(h, n+1)
				}
				return calls("exec", run("check")), nil
			})
			h.begin("x")
			mustWork(t, h, m)
			if got := fmt.Sprint(at); got != c.asks {
				t.Errorf("asked before calls %s, want %s", got, c.asks)
			}
		})
	}
}

func TestStoppingARepeat(t *testing.T) {
	h := newHouse(t)
	h.ask = func(agent.Question) agent.Reply { return agent.Reply{State: "answered", Choice: "stop"} }
	m := newMind(t, func(int, model.Request) (model.Answer, error) { return calls("list", `{}`), nil })
	h.begin("x")
	has(t, stopped(t, work(t, h, m)), "the person stopped it", "the same call again (list)")
	if n := len(recorded[*event.StepRequested](h)); n != 2 {
		t.Errorf("%d steps", n)
	}
}

func TestMoneyInWords(t *testing.T) {
	for n, want := range map[int64]string{0: "$0.00", 1_000_000_000: "$1.00", 1_234_500_000: "$1.2345", 5: "$0.000000005", 120_000_000_000: "$120.00"} {
		if got := dollars(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
	if got := roughly(84_123_456); got != "$0.0841" {
		t.Error(got)
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
}

func TestServersThatCountNothing(t *testing.T) {
	h := newHouse(t)
	h.view.Tokens, h.view.Nanos = 40_000, 1_000_000_000_000
	h.ask = yes
	m := busy(t, 50)
	m.mute, m.cfg.Price = true, &model.Price{Input: 1, Output: 1}
	h.begin("x")
	has(t, stopped(t, work(t, h, m)), "of 40,000 tokens are used")
	if n := len(m.asked); n < 8 || n > 14 {
		t.Errorf("%d answers", n)
	}
	for _, a := range recorded[*event.ModelAnswered](h) {
		if a.Usage != (event.ModelUsage{}) || a.Context < 3000 || a.CostNanos == 0 {
			t.Errorf("recorded %+v", a)
		}
	}
}

func TestTheModelIsSwitched(t *testing.T) {
	h := newHouse(t)
	h.view.Model = "first"
	m := newMind(t, func(n int, r model.Request) (model.Answer, error) {
		switch n {
		case 0:
			h.mu.Lock()
			h.view.Model = "second"
			h.mu.Unlock()
			return calls("exec", run("a")), nil
		case 1:
			return calls("exec", run("b")), nil
		}
		return say("ok"), nil
	})
	h.begin("x")
	mustWork(t, h, m)
	as := recorded[*event.ModelAnswered](h)
	if got := fmt.Sprint(m.names, []string{as[0].Model, as[1].Model, as[2].Model}); got != "[first second second] [first second second]" {
		t.Errorf("%s", got)
	}
}

// breaking breaks off some attempts in the middle of an answer.
type breaking struct {
	*mind
	left  int
	says  string
	broke func() // after each, if any
}

func (b *breaking) Open(ctx context.Context, name string) (model.Client, model.Config, error) {
	_, cfg, err := b.mind.Open(ctx, name)
	return b, cfg, err
}

func (b *breaking) Answer(ctx context.Context, r model.Request, each func(model.Delta)) (model.Answer, error) {
	if b.left--; b.left >= 0 {
		if b.says != "" {
			each(model.Delta{Kind: model.KindText, Text: b.says})
		}
		if b.broke != nil {
			b.broke()
			return model.Answer{}, context.Cause(ctx)
		}
		return model.Answer{}, &model.Error{Kind: model.ErrNetwork, Message: "it was cut"}
	}
	return b.mind.Answer(ctx, r, each)
}

// A server bills an answer that breaks off, and says nowhere what it took: the limits
// know it by our guess. One that never began costs nothing.
func TestAttemptsThatBreakOffCount(t *testing.T) {
	for _, says := range []string{"", strings.Repeat("word ", 3000)} {
		h := newHouse(t)
		h.begin("x")
		m := script(t, say("done"))
		m.cfg.Price = &model.Price{Input: 1, Output: 10}
		b := &breaking{mind: m, left: 3, says: says}
		if err := workWith(t, h, Config{Models: b}); err != nil {
			t.Fatal(err)
		}
		a := recorded[*event.ModelAnswered](h)[0]
		plain := m.cfg.Price.Cost(model.Usage(a.Usage))
		if says == "" {
			if a.Attempts != 4 || a.Lost != 0 || a.CostNanos != plain {
				t.Errorf("nothing came: %+v", a)
			}
			continue
		}
		if a.Attempts != 4 || a.Lost < 3*5000 || a.CostNanos < plain+3*5000*10*1000 {
			t.Errorf("recorded %+v", a)
		}
		// They count in the limits of the turns after it.
		h.view.Tokens = 15_000
		h.begin("more")
		has(t, stopped(t, work(t, h, m)), "tokens is reached")
	}
}

// Nor is the next attempt made where those before it left too little of a limit.
func TestAttemptsThatBreakOffStopAtALimit(t *testing.T) {
	for _, l := range []session.Limits{{Tokens: 14_000}, {Nanos: 60_000_000}} {
		h := newHouse(t)
		h.view.Limits = l
		h.begin("x")
		m := script(t)
		m.cfg.Price = &model.Price{Input: 1, Output: 10}
		b := &breaking{mind: m, left: 100, says: strings.Repeat("word ", 1500)}
		has(t, stopped(t, workWith(t, h, Config{Models: b})), "would go over the limit", "raise it")
		as := recorded[*event.ModelAnswered](h)
		if len(as) != 1 || as[0].Purpose != event.PurposeBroken {
			t.Fatalf("recorded %+v", as)
		}
		if n := as[0].Usage.Input + as[0].Usage.Output; as[0].Attempts < 2 || l.Tokens > 0 && n > l.Tokens || l.Nanos > 0 && as[0].CostNanos > l.Nanos {
			t.Errorf("with %+v: %d attempts, %d tokens, %d nanos", l, as[0].Attempts, n, as[0].CostNanos)
		}
	}
}

// An answer that is stopped in its middle, or breaks off for good, leaves what it had
// said and what it cost. The model is shown none of it.
func TestAnAnswerThatBrokeOffIsKept(t *testing.T) {
	for _, stop := range []bool{true, false} {
		h := newHouse(t)
		h.begin("x")
		m := script(t, say("done"))
		m.cfg.Price = &model.Price{Input: 1, Output: 10}
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		b := &breaking{mind: m, left: 1 << 20, says: strings.Repeat("word ", 3000)}
		if stop {
			b.broke = func() { cancel(errors.New("stopped")) }
		}
		cfg := Config{Models: b}
		cfg.Retry.Attempts = 2
		cfg.Retry.Sleep = func(context.Context, time.Duration) error { return nil }
		if err := New(cfg, h).Turn(ctx, h, ""); err == nil {
			t.Fatal("no error")
		}
		as := recorded[*event.ModelAnswered](h)
		if len(as) != 1 || as[0].Purpose != event.PurposeBroken || len(as[0].Parts) != 1 || as[0].Parts[0].Text != b.says || as[0].Usage.Output < 3500 || as[0].CostNanos < 3500*10*1000 {
			t.Fatalf("recorded %+v", as)
		}
		m.think = func(_ int, r model.Request) (model.Answer, error) {
			if len(r.Messages) != 1 {
				t.Errorf("the conversation is\n%s", show(r))
			}
			return say("ok"), nil
		}
		mustWork(t, h, m)
		h.view.Tokens = 3000
		h.begin("y")
		has(t, stopped(t, work(t, h, m)), "limit")
	}
}
