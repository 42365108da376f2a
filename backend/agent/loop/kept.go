package loop

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// detail is how much of each kind of fact is shown.
type detail struct {
	newest int // bytes of the newest words of the person
	words  int // bytes of each of the older ones
	plain  int // how many plain decisions
	text   int // bytes of each decision
	files  int
	reads  int
	execs  int
}

// levels of detail, tried in order until all fits. What the person decided goes last.
var levels = []detail{
	{16000, 4000, 200, 1500, 200, 100, 20},
	{12000, 1500, 100, 800, 100, 40, 10},
	{8000, 700, 60, 500, 60, 20, 6},
	{5000, 300, 30, 350, 30, 8, 4},
	{3000, 160, 12, 250, 16, 0, 3},
	{1500, 90, 4, 180, 8, 0, 2},
	{800, 60, 0, 120, 4, 0, 1},
	{400, 40, 0, 80, 2, 0, 1},
}

// kept is what stands in place of a conversation up to an event: at most n bytes. It
// follows from the log alone. What the person said after that is in what stays.
func (f *facts) kept(n int, through int64) string {
	some := *f
	some.said = slices.Clone(f.said)
	some.said = slices.DeleteFunc(some.said, func(s said) bool { return s.id > through })
	return some.within(n)
}

func (f *facts) within(n int) string {
	for _, d := range levels {
		if s := f.render(d, 0, 0); len(s) <= n {
			return s
		}
	}
	// Even the shortest form is too long: the oldest of the oldest go, the first prompt stays.
	d := levels[len(levels)-1]
	words, decisions := len(f.said), len(f.decisions)
	for step := 1; step <= 40; step++ {
		if s := f.render(d, words*step/40, 0); len(s) <= n {
			return s
		}
	}
	for step := 1; step <= 40; step++ {
		if s := f.render(d, words, decisions*step/40); len(s) <= n {
			return s
		}
	}
	return cutMiddle(f.render(d, words, decisions), n)
}

// render leaves out so many of the oldest words and decisions.
func (f *facts) render(d detail, lessWords, lessDecisions int) string {
	var b strings.Builder
	part := func(title string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(&b, "## %s\n%s\n\n", title, strings.Join(lines, "\n"))
		}
	}
	part("What the person said, oldest first", f.words(d, lessWords))
	part("What was decided", f.decided(d, lessDecisions))
	part("Questions that wait for an answer", f.waiting(d))
	part("The plan", f.planned(d))
	part("Files changed so far (lines added and deleted, the last step that changed each)", f.changes(d))
	part("Checks of the session, as they last went", f.checked())
	part("The newest commands and how they ended", f.commands(d))
	part("Steps that have not ended", f.running())
	part("Processes that were left in the background and may still run", f.left)
	if n := min(len(f.reads), d.reads); n > 0 {
		part("Files that were read", []string{strings.Join(f.reads[len(f.reads)-n:], ", ")})
	}
	return strings.TrimSpace(b.String())
}

func (f *facts) words(d detail, less int) (out []string) {
	for i, s := range f.said {
		switch {
		case i == len(f.said)-1:
			out = append(out, "- "+cutMiddle(s.text, d.newest))
		case i == 0 && less > 0:
			out = append(out, "- "+cutMiddle(s.text, d.words))
			if n := min(less, len(f.said)-2); n > 0 {
				out = append(out, fmt.Sprintf("- (%s left out)", plural(n, "more is", "more are")))
			}
		case i > less || less == 0:
			out = append(out, "- "+cutMiddle(s.text, d.words))
		}
	}
	return out
}

func (f *facts) decided(d detail, less int) (out []string) {
	plain := 0
	for _, x := range f.decisions {
		if x.plain {
			plain++
		}
	}
	skip := max(0, plain-d.plain) // of the plain ones, the oldest
	if skip > 0 {
		out = append(out, fmt.Sprintf("- allowed once: %s", plural(skip, "earlier step", "earlier steps")))
	}
	if less > 0 {
		out = append(out, fmt.Sprintf("- %s left out", plural(less, "older decision is", "older decisions are")))
	}
	for i, x := range f.decisions {
		if x.plain && skip > 0 {
			skip--
			continue
		}
		if i < less {
			continue
		}
		s := "- " + short(x.text, d.text)
		if x.times > 1 {
			s += fmt.Sprintf(" (%d times)", x.times)
		}
		out = append(out, s)
	}
	return out
}

func (f *facts) waiting(d detail) (out []string) {
	for _, id := range slices.Sorted(maps.Keys(f.open)) {
		out = append(out, "- "+short(f.open[id].text, d.text))
	}
	return out
}

func (f *facts) planned(d detail) (out []string) {
	for _, p := range f.plan {
		out = append(out, fmt.Sprintf("- [%s] %s", p.State, short(line(p.Text, 300), max(60, d.text))))
	}
	return out
}

func (f *facts) changes(d detail) (out []string) {
	paths := slices.SortedFunc(maps.Keys(f.files), func(a, b string) int {
		if n := f.files[b].step - f.files[a].step; n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	for i, p := range paths {
		if i == d.files {
			out = append(out, fmt.Sprintf("- and %s that did not change since", plural(len(paths)-i, "file", "files")))
			break
		}
		c := f.files[p]
		how := fmt.Sprintf("+%d -%d", c.added, c.deleted)
		if c.binary {
			how = "no text"
		}
		out = append(out, fmt.Sprintf("- %s (%s, %s, step %d)", p, c.op, how, c.step))
	}
	return out
}

func (f *facts) checked() (out []string) {
	for _, c := range f.checks {
		s := "- " + line(c.name, 100) + ": passed"
		if !c.ok {
			s = "- " + line(c.name, 100) + ": failed: " + line(c.why, 200)
		}
		out = append(out, s)
	}
	return out
}

func (f *facts) commands(d detail) (out []string) {
	for _, st := range f.execs[max(0, len(f.execs)-d.execs):] {
		out = append(out, fmt.Sprintf("- step %d: %s: %s", st.number, short(st.title, 120), st.end))
	}
	return out
}

func (f *facts) running() (out []string) {
	for _, id := range slices.Sorted(maps.Keys(f.steps)) {
		if st := f.steps[id]; !st.over && st.started && len(out) < 10 {
			out = append(out, fmt.Sprintf("- step %d: %s", st.number, short(st.title, 120)))
		}
	}
	return out
}
