package core

import (
	"context"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/files"
)

// followFiles shows what is touched in the machines that run.
func (c *Core) followFiles(ctx context.Context) {
	files.New(files.Config{
		Projects: func() []domain.ProjectID {
			var ids []domain.ProjectID
			for _, p := range c.projects.List() {
				ids = append(ids, p.ID)
			}
			return ids
		},
		Running: c.fleet.Running,
		Wanted: func(id domain.ProjectID) bool {
			return c.events.Wanted(event.Envelope{Stream: event.ProjectStream(id), ProjectID: id, Type: "files.touched"})
		},
		Step:    c.sessions.Alone,
		Publish: func(n event.New) { _ = c.events.Publish(n) },
	}).Run(ctx)
}
