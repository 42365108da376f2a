package model

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Retry asks Client again where that may help: after errors whose Again says so, with
// a wait that doubles at most each time and is drawn at random from zero to that, so
// that many who failed together do not come back together. A wait the server asks for
// is kept in full. Fields are set before its first use.
type Retry struct {
	Client   Client
	Attempts int           // most attempts of an answer, with the first; 0 = 6
	First    time.Duration // most of the first wait; 0 = 1 s
	Most     time.Duration // most of any wait of ours; 0 = 60 s
	Longest  time.Duration // most that a server may ask us to wait; 0 = 10 min
	// Within is the time in which an attempt may begin, from the beginning of the
	// first; 0 = 15 min.
	Within time.Duration
	// Notify is told before each wait, in the goroutine of Answer; nil = nobody is.
	Notify func(Failed)

	// What chance and time are; nil = the real ones. Rand is in [0, 1). Sleep ends
	// early, with any error, when ctx ends.
	Rand  func() float64
	Sleep func(ctx context.Context, d time.Duration) error
	Now   func() time.Time
}

// Failed is an attempt after which another follows. What came of it counts for nothing.
type Failed struct {
	Attempt int // the one that failed: 1, 2, …
	Err     *Error
	Wait    time.Duration // before the next one
}

const (
	usualAttempts = 6
	usualFirst    = time.Second
	usualMost     = time.Minute
	usualLongest  = 10 * time.Minute
	usualWithin   = 15 * time.Minute

	maxMessage = 2000 // bytes, of an Error
)

// Answer asks until an answer is whole, no attempt is left, or ctx ends. Its error is
// that of the last attempt and says why no other follows.
func (r *Retry) Answer(ctx context.Context, q Request, each func(Delta)) (Answer, error) {
	now, random, sleep := r.Now, r.Rand, r.Sleep
	if now == nil {
		now = time.Now
	}
	if random == nil {
		random = rand.Float64
	}
	if sleep == nil {
		sleep = pause
	}
	attempts := r.Attempts
	if attempts <= 0 {
		attempts = usualAttempts
	}
	begun := now()

	for n := 1; ; n++ {
		a, err := r.Client.Answer(ctx, q, each)
		if err == nil {
			a.Attempts = n
			return a, nil
		}
		if ctx.Err() != nil {
			return Answer{}, context.Cause(ctx)
		}
		var e *Error
		if !errors.As(err, &e) || !e.Again() {
			return Answer{}, err
		}
		if n >= attempts {
			return Answer{}, giveUp(e, n, fmt.Sprintf("tried %s in %s", times(n), now().Sub(begun).Round(time.Second)))
		}
		wait := r.wait(n, e.RetryAfter, random())
		at := now()
		if longest := or(r.Longest, usualLongest); e.RetryAfter > longest {
			return Answer{}, giveUp(e, n, fmt.Sprintf("the server asks to wait %s, until %s, which is longer than %s",
				e.RetryAfter.Round(time.Second), at.Add(e.RetryAfter).Format("2006-01-02 15:04 MST"), longest))
		}
		if within := or(r.Within, usualWithin); at.Add(wait).After(begun.Add(within)) {
			return Answer{}, giveUp(e, n, fmt.Sprintf("tried %s in %s; the next attempt would begin at %s, more than %s after the first",
				times(n), at.Sub(begun).Round(time.Second), at.Add(wait).Format("2006-01-02 15:04 MST"), within))
		}
		if r.Notify != nil {
			r.Notify(Failed{Attempt: n, Err: e, Wait: wait})
		}
		if err := sleep(ctx, wait); err != nil {
			if ctx.Err() != nil {
				return Answer{}, context.Cause(ctx)
			}
			return Answer{}, err
		}
	}
}

// wait after attempt n.
func (r *Retry) wait(n int, asked time.Duration, chance float64) time.Duration {
	first, most := or(r.First, usualFirst), or(r.Most, usualMost)
	ours := min(first, most)
	for i := 1; i < n && ours < most; i++ {
		ours = min(2*ours, most)
	}
	if asked > 0 { // never earlier than asked, and not all at the same moment
		return asked + time.Duration(chance*float64(min(first, most)))
	}
	return time.Duration(chance * float64(ours))
}

func or(d, usual time.Duration) time.Duration {
	if d <= 0 {
		return usual
	}
	return d
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// giveUp adds why no attempt follows to what went wrong.
func giveUp(e *Error, attempts int, why string) error {
	last := *e
	said := e.Message
	if said == "" && e.Err != nil {
		said = e.Err.Error()
	}
	why = "(" + why + ")"
	if most := maxMessage - len(why) - 1; len(said) > most {
		said = strings.ToValidUTF8(said[:most], "")
	}
	last.Message = strings.TrimSpace(said + " " + why)
	last.Attempts = attempts
	return &last
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
