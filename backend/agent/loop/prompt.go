package loop

import (
	_ "embed"
	"strings"

	"glasshouse/backend/domain"
	"glasshouse/backend/session"
)

//go:embed prompt.md
var promptFile string

// words are the sections of prompt.md by their headings.
var words = sections(promptFile)

func sections(file string) map[string]string {
	out := map[string]string{}
	for _, s := range strings.Split("\n"+file, "\n# ")[1:] {
		name, text, _ := strings.Cut(s, "\n")
		out[name] = strings.TrimSpace(text)
	}
	return out
}

const (
	// maxAgents is how much of AGENTS.md is read.
	maxAgents = 32 << 10
	fence     = "=========="
)

// system is the text before the conversation. What changes least comes first, so that
// a server's cache of the beginning stays good.
func system(p domain.Project, v session.View, agents string) string {
	var b strings.Builder
	b.WriteString(session.Preset(p, v))
	b.WriteString("\n" + words["rules"] + "\n")
	if agents != "" {
		b.WriteString("\n" + words["agents"] + "\n" + fence + "\n" + agents + "\n" + fence + "\n")
	}
	return b.String()
}

// agentsText makes what the repository's AGENTS.md says fit to stand among our words.
func agentsText(raw []byte) string {
	s := strings.TrimSpace(clean(string(raw)))
	// It does not end its own quotation, nor does what is left of a longer row.
	s = strings.ReplaceAll(s, fence, "= = = = = ")
	if len(raw) >= maxAgents {
		s += "\n[the rest of AGENTS.md is left out: read the file]"
	}
	return s
}
