package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"glasshouse/backend/domain"
)

const workspace = "/workspace"

// EgressTool is the name under which the egress gate asks about a connection.
const EgressTool = "egress"

// Decide judges an action. It is pure, and never fails: what cannot be judged asks.
func Decide(a Action, rules *Rules) Decision {
	def := defaultFor(&a, rules)
	worst := Decision{}
	for i, it := range items(&a) {
		d := decideItem(&a, &it, rules, def)
		if i == 0 || strict(d.Decision) > strict(worst.Decision) {
			worst = d
		}
	}
	if (a.Mode == ModePlan || rules.degraded != nil) && strict(worst.Decision) < strict(def.Decision) {
		worst = def // no rule lets a plan change something, nor does half a set of rules decide
	}
	if worst.Decision == domain.Deny && worst.WouldAllow == "" {
		worst.WouldAllow = "the call without the part that is denied, or another way that needs none of it; a person can change the rule"
	}
	return worst
}

func strict(d domain.Decision) int {
	switch d {
	case domain.Deny:
		return 2
	case domain.Ask:
		return 1
	}
	return 0
}

// defaultFor is what holds where no rule matches.
func defaultFor(a *Action, rules *Rules) Decision {
	leaves := a.Reach == domain.ReachHost || a.Reach == domain.ReachNetwork
	if a.Mode == ModePlan && (a.Changes || leaves || a.Reach == domain.ReachMachine) {
		return Decision{Decision: domain.Deny, Rule: "mode:plan", Reason: "In plan mode nothing is changed and nothing leaves the machine.",
			WouldAllow: "tools that only read (read, list, glob, search), and questions to the person"}
	}
	// Which commands the person denies is in the file that cannot be read.
	if rules.degraded != nil && (leaves || a.Reach == domain.ReachMachine) {
		return Decision{Decision: domain.Ask, Rule: "default", Reason: "The rules file is not usable, so everything but reading asks; 'glasshouse doctor' says what is wrong with it."}
	}
	switch a.Reach {
	case domain.ReachRead:
		return Decision{Decision: domain.Allow, Rule: "default", Reason: "It only reads inside the machine."}
	case domain.ReachPerson:
		return Decision{Decision: domain.Allow, Rule: "default", Reason: "It asks the person."}
	case domain.ReachMachine:
		if a.Mode == ModeAsk {
			return Decision{Decision: domain.Ask, Rule: "mode:ask", Reason: "In ask mode everything that can change the machine asks."}
		}
		return Decision{Decision: domain.Allow, Rule: "default", Reason: "It stays inside the machine."}
	case domain.ReachNetwork:
		if a.Tool == EgressTool && a.Mode == ModeFull {
			return Decision{Decision: domain.Allow, Rule: "mode:full", Reason: "In full mode a host that no rule covers is connected to without a question."}
		}
		if a.Tool == EgressTool {
			return Decision{Decision: domain.Ask, Rule: "default", Reason: "No rule covers this host yet."}
		}
		return Decision{Decision: domain.Allow, Rule: "default", Reason: "The egress gate decides on each host it connects to."}
	}
	return Decision{Decision: domain.Ask, Rule: "default", Reason: "It leaves the machine for the host."}
}

// items takes an action apart.
func items(a *Action) []item {
	dir := a.Dir
	if dir == "" {
		dir = workspace
	}
	r := &reader{dirs: []string{resolve(workspace, dir)}}
	for n := range a.Env {
		r.env = append(r.env, n)
		if changesNames(n) {
			r.tainted = true
		}
	}
	slices.Sort(r.env)
	switch {
	case len(a.Argv) > 0:
		r.command(lits(a.Argv...), nil, true)
	case a.Script != "":
		if slices.Contains([]string{"", "sh", "bash", "dash"}, a.Lang) {
			r.script(a.Script)
		} else {
			r.opaque("a program in " + a.Lang)
		}
	}
	for _, p := range a.Paths {
		r.add(item{kind: itemPath, file: word{text: p, known: true}, write: a.Write, text: p})
	}
	if len(r.items) == 0 {
		r.add(item{kind: itemCall, text: a.Tool})
	}
	return r.items
}

func decideItem(a *Action, it *item, rules *Rules, def Decision) Decision {
	var best *Rule // strictest that surely matches
	var open *Rule // strictest that may match and is stricter than what is sure
	for i := range rules.rules {
		r := &rules.rules[i]
		switch r.match(a, it) {
		case yes:
			if best == nil || strict(r.Decision) > strict(best.Decision) {
				best = r
			}
		case maybe:
			if r.Decision != domain.Allow && (open == nil || strict(r.Decision) > strict(open.Decision)) {
				open = r
			}
		}
	}
	d := def
	if best != nil {
		d = Decision{Decision: best.Decision, Rule: best.name(), Reason: best.Reason, WouldAllow: best.WouldAllow}
		if d.Reason == "" {
			d.Reason = fmt.Sprintf("The rule %s says %s.", best.name(), best.Decision)
		}
		if it.kind == itemCommand && it.text != "" {
			d.Reason += " (" + it.text + ")"
		}
	}
	if open != nil && strict(d.Decision) < strict(domain.Ask) {
		d = Decision{Decision: domain.Ask, Rule: open.name(),
			Reason: fmt.Sprintf("It cannot be read with certainty (%s), and the rule %s may be meant.", it.text, open.name())}
	}
	return d
}

// match asks whether every condition of a rule holds for an item.
func (r *Rule) match(a *Action, it *item) tri {
	if len(r.Tool) > 0 && !slices.ContainsFunc(r.Tool, func(p string) bool { return globText(p, a.Tool) }) {
		return no
	}
	if len(r.Reach) > 0 && !slices.Contains(r.Reach, a.Reach) {
		return no
	}
	if len(r.Lang) > 0 && (a.Script == "" || !slices.Contains(r.Lang, a.Lang)) {
		return no
	}
	if len(r.Host) > 0 {
		if a.Host == "" || !slices.ContainsFunc(r.Host, func(p string) bool { return matchHost(p, a.Host, a.Port) }) {
			return no
		}
	}
	if len(r.Argv)+len(r.Path)+len(r.Env) == 0 {
		return yes
	}
	allow := r.Decision == domain.Allow
	if it.kind == itemOpaque {
		return maybe
	}
	out := yes
	if len(r.Argv) > 0 {
		if it.kind != itemCommand {
			return no
		}
		got := no
		for _, v := range it.variants {
			if !allow || v.exact {
				got = or(got, matchArgv(r.Argv, v.words))
			}
		}
		out = and(out, got)
	}
	if len(r.Env) > 0 {
		got := no
		for _, n := range it.env {
			if slices.ContainsFunc(r.Env, func(p string) bool { return globText(p, n) }) {
				got = yes
			}
		}
		if it.envOpen {
			got = or(got, maybe)
		}
		out = and(out, got)
	}
	if len(r.Path) > 0 {
		out = and(out, r.matchFiles(it, allow))
	}
	return out
}

func (r *Rule) matchFiles(it *item, allow bool) tri {
	if it.kind == itemPath {
		if r.Write != nil && *r.Write != it.write {
			return no
		}
		return matchPath(r.Path, it.file, it.dirs, it.dirOpen)
	}
	if allow || it.kind != itemCommand {
		return no // that a word is a file is a guess; a guess never allows
	}
	got := no
	for _, v := range it.variants {
		for i, w := range v.words {
			if i == 0 && w.known && !strings.Contains(w.text, "/") {
				continue // a program's name
			}
			if w.known {
				// --file=NAME, dd of=NAME
				if _, val, ok := strings.Cut(w.text, "="); ok && val != "" {
					got = or(got, matchPath(r.Path, word{text: val, known: true}, it.dirs, it.dirOpen))
				}
				if strings.HasPrefix(w.text, "-") {
					continue
				}
			}
			got = or(got, matchPath(r.Path, w, it.dirs, it.dirOpen))
		}
	}
	if r.Write != nil {
		got = and(got, maybe) // whether the command reads or writes it is not known
	}
	return got
}

// GrantKey names a call exactly, for an answer that is to be remembered: the same
// call again has the same match, a call with one more word or variable has not.
// text says in words what it covers. ok is false for what cannot be remembered,
// because what it does is not known before it runs.
func GrantKey(a Action, args json.RawMessage) (match, text string, ok bool) {
	for _, it := range items(&a) {
		if it.kind == itemOpaque || (it.kind == itemPath && !it.file.known) || it.dirOpen {
			return "", "", false
		}
		if len(it.variants) > 0 && slices.ContainsFunc(it.variants[0].words, func(w word) bool { return !w.known }) {
			return "", "", false
		}
	}
	type pair struct{ Name, Value string }
	var env []pair
	for n, v := range a.Env {
		env = append(env, pair{n, v})
	}
	slices.SortFunc(env, func(x, y pair) int { return strings.Compare(x.Name, y.Name) })
	dir := a.Dir
	if dir == "" {
		dir = workspace
	}
	key := struct {
		Tool, Lang, Script, Dir string
		Argv                    []string
		Env                     []pair
		Args                    json.RawMessage
	}{a.Tool, a.Lang, a.Script, dir, a.Argv, env, nil}
	switch {
	case len(a.Argv) > 0:
		text = "exactly this command: " + show(lits(a.Argv...))
	case a.Script != "":
		text = "exactly this " + a.Lang + " script"
	default:
		text = "exactly this call of " + a.Tool + " with these arguments"
		key.Args = args
	}
	if len(a.Argv) > 0 || a.Script != "" {
		text += ", in " + dir
		for i, p := range env {
			if i == 0 {
				text += ", with"
			}
			text += " " + p.Name + "=" + show(lits(p.Value))
		}
	}
	raw, err := json.Marshal(key)
	if err != nil {
		return "", "", false
	}
	sum := sha256.Sum256(raw)
	return a.Tool + ":" + hex.EncodeToString(sum[:]), text, true
}
