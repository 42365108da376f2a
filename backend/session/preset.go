package session

import (
	"fmt"
	"strings"

	"glasshouse/backend/domain"
	"glasshouse/backend/policy"
)

// Preset is the text that tells a model where it works. It states only what
// holds: walls a model does not know of waste its turns.
func Preset(p domain.Project, v View) string {
	var b strings.Builder
	where := "a Linux VM of its own"
	if p.Kind != "lima" {
		where = "a Linux sandbox (not a VM)"
	}
	fmt.Fprintf(&b, "You work on the project %q inside %s. Its repository is at /workspace; your home is /home/agent; both last as long as the project.\n", p.Name, where)
	b.WriteString("A person watches every step and file change live. Call tools; each call is one recorded step.\n")
	b.WriteString("There is no network but an HTTP proxy at 127.0.0.1:3128, which the environment already points to. A host that was not used before makes a question to the person; the connection waits for the answer. Private addresses are never reachable; servers you start are reached at 127.0.0.1.\n")
	b.WriteString("Processes left in the background end with the session. Output beyond a limit is cut in the middle and kept as an artefact.\n")
	b.WriteString("You cannot push. Commit if you like; the person reviews the changes hunk by hunk and pushes.\n")
	switch v.Mode {
	case policy.ModePlan:
		b.WriteString("The session is in plan mode: only reading is allowed. Say what you would do.\n")
	case policy.ModeAsk:
		b.WriteString("The session asks before every change; make few and clear ones.\n")
	}
	if len(v.Checks) > 0 {
		b.WriteString("Your work is right when these succeed:\n")
		for _, c := range v.Checks {
			cmd := c.Code
			if len(c.Argv) > 0 {
				cmd = strings.Join(c.Argv, " ")
			}
			fmt.Fprintf(&b, "- %s: %s\n", c.Name, cmd)
		}
	}
	return b.String()
}
