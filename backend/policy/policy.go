// Package policy decides about a call before it runs: allow, ask or deny. It is
// pure: Decide looks at an Action and a compiled set of Rules and at nothing else.
//
// All rules that match are weighed, and the strictest wins (deny, then ask, then
// allow); a shell text is judged by every simple command in it. What cannot be
// read with certainty (a command name out of a variable, a text that does not
// parse) asks, as soon as some rule that could be meant is stricter than the
// default. The walls are elsewhere (the egress gate, the push gate, the machine):
// a rule labels and stops what a person does not want inside them.
package policy

import "glasshouse/backend/domain"

// Mode is how much the person wants to be asked.
type Mode string

const (
	ModeFull Mode = "full" // as auto, and hosts that no rule covers are connected to without a question
	ModeAuto Mode = "auto" // inside the machine everything runs; what leaves it asks
	ModeAsk  Mode = "ask"  // every change asks
	ModePlan Mode = "plan" // nothing changes: reads only
)

// Action is one call as the policy sees it.
type Action struct {
	Tool    string
	Reach   domain.Reach
	Changes bool
	Mode    Mode // "" = ModeAuto

	// A process: either Argv, or Script in the language Lang ("bash", "sh",
	// "python", …). Only shell scripts can be looked into.
	Argv   []string
	Script string
	Lang   string
	Dir    string            // working folder; "" = the workspace
	Env    map[string]string // what the call sets itself; only the names reach the digest

	// Paths the tool itself reads or writes, absolute or relative to the workspace.
	Paths []string
	Write bool // Paths are written

	Host string // where it connects to, for network and host reach
	Port int
}

// Decision is the policy's answer with its reason.
type Decision struct {
	Decision domain.Decision
	Rule     string // id of the deciding rule: "user:no-push", "builtin:host", "default"
	Reason   string // one sentence for the person
	// WouldAllow says what would be allowed instead, for a denied caller; may be empty.
	WouldAllow string
}
