package policy

import (
	"fmt"
	"strings"

	"glasshouse/backend/domain"
)

func shown(b []byte) string {
	if len(b) > maxShown {
		b = b[:maxShown]
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// Text says in one line what a rule decides about what.
func (r Rule) Text() string {
	var when []string
	list := func(name string, v []string) {
		if len(v) > 0 {
			when = append(when, name+" "+strings.Join(v, " or "))
		}
	}
	list("tool", r.Tool)
	var reach []string
	for _, x := range r.Reach {
		reach = append(reach, string(x))
	}
	list("reach", reach)
	list("language", r.Lang)
	if len(r.Argv) > 0 {
		when = append(when, "command "+strings.Join(r.Argv, " "))
	}
	path := "path"
	if r.Write != nil {
		path = map[bool]string{true: "writing", false: "reading"}[*r.Write]
	}
	list(path, r.Path)
	list("host", r.Host)
	list("variable", r.Env)
	return fmt.Sprintf("%s: %s", r.Decision, strings.Join(when, ", "))
}

// Tier is where the rule was written.
func (r Rule) Tier() Tier { return r.tier }

// DecideEgress judges a connection. Only a rule that names hosts can open one: a
// rule that allows a tool or all of the network says nothing of a host. Asking is
// the answer where no rule of a file is about it.
func DecideEgress(host string, port int, mode Mode, rules *Rules) Decision {
	d := Decide(Action{Tool: EgressTool, Reach: domain.ReachNetwork, Mode: mode, Host: host, Port: port}, rules)
	if d.Decision != domain.Allow {
		return d
	}
	named := *rules
	named.rules = nil
	for _, r := range rules.rules {
		if r.Decision != domain.Allow || len(r.Host) > 0 {
			named.rules = append(named.rules, r)
		}
	}
	return Decide(Action{Tool: EgressTool, Reach: domain.ReachNetwork, Mode: mode, Host: host, Port: port}, &named)
}
