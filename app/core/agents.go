package core

import (
	"context"
	"errors"
	"fmt"

	"glasshouse/backend/agent"
	"glasshouse/backend/agent/loop"
	"glasshouse/backend/agent/playbook"
	"glasshouse/backend/agent/turn"
	"glasshouse/backend/domain"
	"glasshouse/vm/guest"
)

// agent makes what works on a turn. What could never work is refused here, before
// anything is recorded.
func (c *Core) agent(ctx context.Context, s turn.Spec, r agent.Room) (agent.Agent, error) {
	switch s.Kind {
	case "playbook":
		pb, err := playbook.Parse([]byte(s.Input))
		if err != nil {
			return nil, err
		}
		return playbook.New(pb), nil
	case "model":
		if _, _, err := c.models.Open(ctx, s.Model); err != nil {
			return nil, err
		}
		return loop.New(loop.Config{Models: c.models}, r), nil
	}
	return nil, domain.E(domain.CodeInvalid, fmt.Sprintf("there is no agent %q", s.Kind), "use model or playbook", nil)
}

// readFile reads the first bytes of a file of a workspace.
func (c *Core) readFile(ctx context.Context, p domain.Project, path string, limit int64) ([]byte, error) {
	g, err := c.fleet.Ensure(ctx, p)
	if err != nil {
		return nil, err
	}
	d, err := g.Files().Read(ctx, path, 0, limit)
	if errors.Is(err, guest.ErrNotFound) {
		return nil, domain.E(domain.CodeNotFound, "there is no such file in the workspace", "", err)
	}
	return d.Data, err
}
