package session

import (
	"context"
	"errors"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
)

// The wait between tries to write an event while the log cannot take it.
const (
	recordFirst = 20 * time.Millisecond
	recordMost  = 2 * time.Second
)

// later reports whether an append that failed may succeed when it is tried again: a
// full disk may be emptied, a payload stays too large.
func later(err error) bool {
	switch domain.CodeOf(err) {
	case domain.CodeInvalid, domain.CodeTooLarge:
		return false
	}
	return !errors.Is(err, eventlog.ErrClosed)
}

// record appends events that tell what happened already. Nothing may be shown as
// happened that is not in the log, and nothing that happened may be left out of it:
// while the log cannot take them, record tries again until it can or the core goes.
// It returns the id of the last event. An error means that nothing was recorded:
// the events are such as the log never takes, or the core is going.
func (s *Service) record(ctx context.Context, events ...event.New) (int64, error) {
	for delay := recordFirst; ; delay = min(2*delay, recordMost) {
		out, err := s.cfg.Log.Append(context.WithoutCancel(ctx), events...)
		if err == nil {
			return out[len(out)-1].ID, nil
		}
		if !later(err) {
			return 0, err
		}
		select {
		case <-time.After(delay):
		case <-s.ctx.Done():
			return 0, err
		}
	}
}

// shrunk is what of an end always fits into one event: how it ended, and where the
// whole output is.
func shrunk(e *event.StepEnded, why error) *event.StepEnded {
	out := *e
	out.Result = nil
	cut := func(o *event.OutputStream) *event.OutputStream {
		if o == nil {
			return nil
		}
		c := *o
		c.Head, c.Tail = clip(o.Head, 4000), ""
		return &c
	}
	out.Stdout, out.Stderr = cut(e.Stdout), cut(e.Stderr)
	out.Artefacts = out.Artefacts[:min(len(out.Artefacts), 20)]
	out.Background = out.Background[:min(len(out.Background), 10)]
	out.Error = clip(out.Error, 2000)
	if out.Error != "" {
		out.Error += "\n"
	}
	out.Error += "The answer could not be recorded whole: " + clip(why.Error(), 1000)
	return &out
}

// bare is the last resort: the outcome alone.
func bare(e *event.StepEnded, why error) *event.StepEnded {
	return &event.StepEnded{Outcome: e.Outcome, ExitCode: e.ExitCode, DurationMS: e.DurationMS, Source: e.Source,
		Error: "The answer could not be recorded: " + clip(why.Error(), 1000)}
}
