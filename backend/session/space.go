package session

import (
	"context"
	"fmt"
	"sync"
)

// use says which started steps may change a workspace now, whatever their session.
// Its zero value is a workspace that nobody uses.
type use struct {
	mu    sync.Mutex
	steps map[*Step]struct{}
	alone chan struct{} // not nil while a step has the workspace for itself; closed by its leave
}

// join lets a step in that had started under an earlier core: whatever it is, it is in.
func (u *use) join(st *Step) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.add(st)
}

func (u *use) add(st *Step) {
	if u.steps == nil {
		u.steps = map[*Step]struct{}{}
	}
	u.steps[st] = struct{}{}
	if st.p.Tool.Alone && u.alone == nil {
		u.alone = make(chan struct{})
	}
}

// enter lets a step in. A step that wants to be alone is turned away where another is
// in; any other step is told what to wait for while one has it for itself.
func (u *use) enter(st *Step) (wait <-chan struct{}, other error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, in := u.steps[st]; in {
		return nil, nil
	}
	if st.p.Tool.Alone {
		for o := range u.steps {
			return nil, fmt.Errorf("step %d of session %s is at work in the workspace", o.number, o.a.who.ID)
		}
	} else if u.alone != nil {
		return u.alone, nil
	}
	u.add(st)
	return nil, nil
}

// leave lets a step go; one that is not in may leave too.
func (u *use) leave(st *Step) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, in := u.steps[st]; !in {
		return
	}
	delete(u.steps, st)
	if st.p.Tool.Alone && u.alone != nil {
		close(u.alone)
		u.alone = nil
	}
}

// space is who is at work in the step's workspace.
func (st *Step) space() *use { return &st.a.s.workspace(st.a.who.ProjectID).use }

// occupy waits until the step may use the workspace, or its context ended. It returns
// why it may not.
func (st *Step) occupy() error {
	for st.ctx.Err() == nil {
		wait, other := st.space().enter(st)
		if wait == nil {
			return other
		}
		closeOnce(st.decided)
		waitFor(st.ctx, wait)
	}
	return nil
}

// waitFor returns when ch is closed or ctx ended.
func waitFor(ctx context.Context, ch <-chan struct{}) {
	select {
	case <-ch:
	case <-ctx.Done():
	}
}
