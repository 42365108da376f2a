package machine

import (
	"context"

	"glasshouse/backend/domain"
	"glasshouse/vm"
)

// errGivenUp is why a start ended that somebody gave up.
var errGivenUp = domain.E(domain.CodeConflict, "the start of the machine was given up", "start it again", nil)

// GiveUp ends a start that is under way; the machine is off then. It reports
// whether there was one: a machine that became ready in between stays on.
func (f *Fleet) GiveUp(ctx context.Context, p domain.Project) (bool, error) {
	u := f.unit(p)
	u.mu.Lock()
	starting := u.busy != nil && u.state == vm.StateStarting
	if starting {
		u.wanted = false
		// Who waits for this start is told the same, and does not begin another.
		u.tries++
		u.failed = errGivenUp
		u.busy(errGivenUp)
	}
	u.mu.Unlock()
	if !starting {
		return false, nil
	}
	if err := u.lock(ctx); err != nil {
		return false, err
	}
	defer u.unlock()
	u.mu.Lock()
	state := u.state
	u.mu.Unlock()
	if state == vm.StateReady {
		return false, nil
	}
	return true, u.stop(context.WithoutCancel(ctx))
}
