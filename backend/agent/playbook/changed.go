package playbook

import "glasshouse/backend/event"

func changed(path string) func(event.FileChange) bool {
	return func(c event.FileChange) bool { return c.Path == path }
}
