package session

import (
	"context"

	"glasshouse/backend/domain"
)

// Alone returns the step that runs in a project when it is the only one; a step whose
// checkpoint is being taken still counts. It says who most likely wrote what was touched.
func (s *Service) Alone(ctx context.Context, project domain.ProjectID) (session domain.SessionID, step domain.StepID, ok bool) {
	n := 0
	for _, a := range s.actors() {
		if a.who.ProjectID != project {
			continue
		}
		_ = a.do(ctx, func() {
			for _, st := range a.live {
				st.mu.Lock()
				state := st.state
				st.mu.Unlock()
				if state == domain.StepRunning || state == domain.StepEnded {
					n++
					session, step = a.who.ID, st.ID
				}
			}
		})
	}
	if n != 1 {
		return "", "", false
	}
	return session, step, true
}
