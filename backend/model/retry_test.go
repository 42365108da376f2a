package model_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"glasshouse/backend/model"
)

// script answers with its errors in turn, then with an answer.
type script struct {
	errs  []error
	asked int
	took  time.Duration // of each attempt
	clock *clock
	then  func() // before each attempt ends
}

func (s *script) Answer(_ context.Context, _ model.Request, each func(model.Delta)) (model.Answer, error) {
	s.asked++
	each(model.Delta{Kind: model.KindText, Text: "piece"})
	if s.clock != nil {
		s.clock.now = s.clock.now.Add(s.took)
	}
	if s.then != nil {
		s.then()
	}
	if s.asked <= len(s.errs) {
		return model.Answer{}, s.errs[s.asked-1]
	}
	return model.Answer{Stop: model.StopEnd, ID: "whole"}, nil
}

// clock is a time in which only sleeping passes.
type clock struct {
	now   time.Time
	slept []time.Duration
}

func (c *clock) Now() time.Time { return c.now }

func (c *clock) Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.slept = append(c.slept, d)
	c.now = c.now.Add(d)
	return nil
}

func fails(n int, e *model.Error) (out []error) {
	for range n {
		out = append(out, e)
	}
	return out
}

func retry(s *script, chance float64) (*model.Retry, *clock, *[]model.Failed) {
	c := &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	s.clock = c
	var told []model.Failed
	return &model.Retry{Client: s, Rand: func() float64 { return chance }, Sleep: c.Sleep, Now: c.Now,
		Notify: func(f model.Failed) { told = append(told, f) }}, c, &told
}

func TestWaitsDoubleUpToTheMost(t *testing.T) {
	s := &script{errs: fails(9, &model.Error{Kind: model.ErrBusy})}
	r, c, told := retry(s, 0.5)
	r.Attempts = 10
	var pieces int
	a, err := r.Answer(t.Context(), model.Request{}, func(model.Delta) { pieces++ })
	if err != nil || a.ID != "whole" || a.Attempts != 10 || pieces != 10 {
		t.Fatalf("%+v, %v, %d pieces", a, err, pieces)
	}
	want := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second,
		30 * time.Second, 30 * time.Second, 30 * time.Second}
	if !slices.Equal(c.slept, want) {
		t.Errorf("slept %v, want %v", c.slept, want)
	}
	for i, f := range *told {
		if f.Attempt != i+1 || f.Wait != want[i] || f.Err.Kind != model.ErrBusy {
			t.Errorf("told %+v", f)
		}
	}
	if len(*told) != 9 {
		t.Errorf("told %d times", len(*told))
	}
}

func TestJitterIsFull(t *testing.T) {
	for chance, want := range map[float64]time.Duration{0: 0, 0.25: 250 * time.Millisecond, 0.999: 999 * time.Millisecond} {
		s := &script{errs: fails(1, &model.Error{Kind: model.ErrNetwork})}
		r, c, _ := retry(s, chance)
		if _, err := r.Answer(t.Context(), model.Request{}, func(model.Delta) {}); err != nil || c.slept[0] != want {
			t.Errorf("chance %v: slept %v, %v", chance, c.slept, err)
		}
	}
}

func TestFirstAnswerIsTheFirstAttempt(t *testing.T) {
	r, c, told := retry(&script{}, 0.5)
	a, err := r.Answer(t.Context(), model.Request{}, func(model.Delta) {})
	if err != nil || a.Attempts != 1 || len(c.slept) != 0 || len(*told) != 0 {
		t.Errorf("%+v, %v, slept %v, told %v", a, err, c.slept, *told)
	}
}

func TestGivesUpAfterTheLastAttempt(t *testing.T) {
	s := &script{errs: fails(100, &model.Error{Kind: model.ErrServer, Status: 500, Message: "it broke", RequestID: "req_1"})}
	r, _, told := retry(s, 0.5)
	_, err := r.Answer(t.Context(), model.Request{}, func(model.Delta) {})
	var e *model.Error
	if !errors.As(err, &e) || s.asked != 6 || len(*told) != 5 {
		t.Fatalf("asked %d times, told %d times, %v", s.asked, len(*told), err)
	}
	if e.Kind != model.ErrServer || e.Status != 500 || e.RequestID != "req_1" || e.Attempts != 6 || e.Message != "it broke (tried 6 times in 16s)" {
		t.Errorf("%+v", e)
	}
	if s.errs[5].(*model.Error).Message != "it broke" {
		t.Error("the client's own error was changed")
	}
}

func TestSomeErrorsAreNotTriedAgain(t *testing.T) {
	for _, kind := range []model.ErrorKind{model.ErrAuth, model.ErrQuota, model.ErrTooLong, model.ErrInvalid, model.ErrNotFound} {
		s := &script{errs: fails(1, &model.Error{Kind: kind})}
		r, c, _ := retry(s, 0.5)
		_, err := r.Answer(t.Context(), model.Request{}, func(model.Delta) {})
		if err != s.errs[0] || s.asked != 1 || len(c.slept) != 0 {
			t.Errorf("%s: asked %d times, %v", kind, s.asked, err)
		}
	}
	for _, kind := range []model.ErrorKind{model.ErrRate, model.ErrBusy, model.ErrServer, model.ErrNetwork, model.ErrTimeout, model.ErrProtocol} {
		s := &script{errs: fails(1, &model.Error{Kind: kind})}
		r, _, _ := retry(s, 0.5)
		if _, err := r.Answer(t.Context(), model.Request{}, func(model.Delta) {}); err != nil || s.asked != 2 {
			t.Errorf("%s: asked %d times, %v", kind, s.asked, err)
		}
	}
	other := errors.New("no error of a model")
	s := &script{errs: []error{other}}
	r, _, _ := retry(s, 0.5)
	if _, err := r.Answer(t.Context(), model.Request{}, func(model.Delta) {}); err != other || s.asked != 1 {
		t.Errorf("asked %d times, %v", s.asked, err)
	}
}

func TestRetryAfterIsKept(t *testing.T) {
	s := &script{errs: fails(1, &model.Error{Kind: model.ErrRate, RetryAfter: 90 * time.Second})}
	r, c, _ := retry(s, 0.5)
	if _, err := r.Answer(t.Context(), model.Request{}, func(model.Delta) {}); err != nil {
		t.Fatal(err)
	}
	if d := c.slept[0]; d < 90*time.Second || d > 91*time.Second {
		t.Errorf("slept %s", d)
	}
}

func TestTooLongAWaitIsToldWithItsTime(t *testing.T) {
	s := &script{errs: fails(1, &model.Error{Kind: model.ErrRate, Message: "slow down", RetryAfter: 2 * time.Hour})}
	r, c, told := retry(s, 0.5)
	_, err := r.Answer(t.Context(), model.Request{}, func(model.Delta) {})
	if err == nil || s.asked != 1 || len(c.slept) != 0 || len(*told) != 0 {
		t.Fatalf("asked %d times, slept %v, %v", s.asked, c.slept, err)
	}
	for _, w := range []string{"slow down", "2h0m0s", "2026-01-02 05:04 UTC", "10m0s"} {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	if model.KindOf(err) != model.ErrRate {
		t.Errorf("it is %q", model.KindOf(err))
	}
	// Exactly as long as may be is waited for.
	s = &script{errs: fails(1, &model.Error{Kind: model.ErrRate, RetryAfter: 10 * time.Minute})}
	r, _, _ = retry(s, 0.5)
	if _, err := r.Answer(t.Context(), model.Request{}, func(model.Delta) {}); err != nil {
		t.Error(err)
	}
}

func TestTheWholeIsBounded(t *testing.T) {
	s := &script{errs: fails(100, &model.Error{Kind: model.ErrTimeout, Message: "silence"}), took: 5 * time.Minute}
	r, c, _ := retry(s, 0.5)
	r.Attempts = 50
	begun := c.now
	_, err := r.Answer(t.Context(), model.Request{}, func(model.Delta) {})
	if err == nil || s.asked != 3 || !strings.Contains(err.Error(), "15m0s") || !strings.Contains(err.Error(), "3 times") {
		t.Errorf("asked %d times in %s, %v", s.asked, c.now.Sub(begun), err)
	}
}

func TestMessagesStayShort(t *testing.T) {
	s := &script{errs: fails(100, &model.Error{Kind: model.ErrServer, Message: strings.Repeat("ä", 1000)})}
	r, _, _ := retry(s, 0.5)
	_, err := r.Answer(t.Context(), model.Request{}, func(model.Delta) {})
	var e *model.Error
	if !errors.As(err, &e) || len(e.Message) > 2000 || !strings.HasSuffix(e.Message, "(tried 6 times in 16s)") {
		t.Errorf("%v", err)
	}
}

func TestCancelEndsTheWaitAtOnce(t *testing.T) {
	cause := errors.New("the person said stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	s := &script{errs: fails(1, &model.Error{Kind: model.ErrRate, RetryAfter: 9 * time.Minute})}
	r := &model.Retry{Client: s, Notify: func(model.Failed) { cancel(cause) }} // with the real clock
	if _, err := r.Answer(ctx, model.Request{}, func(model.Delta) {}); err != cause || s.asked != 1 {
		t.Errorf("asked %d times, %v", s.asked, err)
	}
}

func TestCancelDuringAnAttempt(t *testing.T) {
	cause := errors.New("the person said stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	s := &script{errs: fails(9, &model.Error{Kind: model.ErrNetwork}), then: func() { cancel(cause) }}
	r, c, told := retry(s, 0.5)
	if _, err := r.Answer(ctx, model.Request{}, func(model.Delta) {}); err != cause || s.asked != 1 || len(c.slept) != 0 || len(*told) != 0 {
		t.Errorf("asked %d times, %v", s.asked, err)
	}
}

func TestRealChanceAndTime(t *testing.T) {
	s := &script{errs: fails(3, &model.Error{Kind: model.ErrNetwork})}
	r := &model.Retry{Client: s, First: time.Microsecond, Most: time.Millisecond}
	if a, err := r.Answer(t.Context(), model.Request{}, func(model.Delta) {}); err != nil || a.Attempts != 4 {
		t.Errorf("%+v, %v", a, err)
	}
}
