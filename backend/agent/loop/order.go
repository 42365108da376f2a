package loop

import (
	"context"

	"glasshouse/backend/domain"
	"glasshouse/backend/tool"
)

// kind of a call, for what may be under way beside it.
type kind int

const (
	kindNone   kind = iota // no step comes of it
	kindRead               // looks at the machine
	kindChange             // changes the workspace: sessions let one at a time do so, in order
	kindPerson             // asks the person
	kindOther              // does something else in the order of the answer, such as a click
)

func (t *turn) kindOf(name string) kind {
	if name == checksName {
		return kindChange
	}
	for _, x := range t.room.Tools() {
		if x.Name == name {
			return kindOfTool(x)
		}
	}
	return kindNone
}

func kindOfTool(x tool.Tool) kind {
	switch {
	case x.Changes:
		return kindChange
	case x.Reach == domain.ReachRead:
		return kindRead
	case x.Reach == domain.ReachPerson:
		return kindPerson
	}
	return kindOther
}

// beside reports whether a call may be begun while an earlier one of the same answer is
// under way. Looks may; changes wait for each other by themselves; a look must not
// overtake a change, nor a click the typing before it.
func beside(earlier, later kind) bool {
	switch {
	case earlier == kindNone || later == kindNone || earlier == kindPerson || later == kindPerson:
		return true
	}
	return earlier == later && earlier != kindOther
}

// inOrder waits for what was begun before a call when that must have ended first.
func (t *turn) inOrder(ctx context.Context, begun []*call, next *call) error {
	later := t.kindOf(next.part.Tool)
	for _, c := range begun {
		if !c.done && !beside(t.kindOf(c.part.Tool), later) {
			return t.wait(ctx, begun)
		}
	}
	return nil
}

// wait until all calls that were begun have their results.
func (t *turn) wait(ctx context.Context, begun []*call) error {
	for _, c := range begun {
		if c.done {
			continue
		}
		if c.checks != nil {
			if err := waitChecks(ctx, c); err != nil {
				return err
			}
			continue
		}
		v, err := c.step.Wait(ctx, domain.StepEnded)
		if err != nil {
			return err
		}
		text, failed, images := outcome(v)
		c.end(text, failed)
		c.result.Images = images
	}
	return nil
}
