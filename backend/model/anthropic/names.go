package anthropic

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"glasshouse/backend/model"
)

const maxName = 64

var (
	idForm   = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	nameForm = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
)

// names of tools where the wire's form is narrower than ours.
type names struct{ out, in map[string]string }

func newNames(tools []model.Tool) names {
	n := names{out: map[string]string{}, in: map[string]string{}}
	for _, fits := range []bool{true, false} { // names that fit stay as they are
		for _, t := range tools {
			if nameForm.MatchString(t.Name) == fits {
				n.add(t.Name)
			}
		}
	}
	return n
}

func (n names) add(name string) string {
	w := name
	if !nameForm.MatchString(w) {
		w = strings.Map(func(r rune) rune {
			if r < 128 && idForm.MatchString(string(r)) {
				return r
			}
			return '_'
		}, name)
		w = w[:min(len(w), maxName)]
	}
	for i := 0; w == "" || n.in[w] != "" && n.in[w] != name; i++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", i, name))
		w = w[:min(len(w), maxName-9)] + "_" + hex.EncodeToString(sum[:4])
	}
	n.out[name], n.in[w] = w, name
	return w
}

// wire's name of a tool of ours, or of one that a model made up earlier.
func (n names) wire(name string) string {
	if w, ok := n.out[name]; ok {
		return w
	}
	return n.add(name)
}

// ours is the tool that the model means.
func (n names) ours(w string) string {
	if name, ok := n.in[w]; ok {
		return name
	}
	return w
}

// ids of calls must have a form and be unique within a request, while those of another
// format may be neither. The same conversation always gets the same ids.
type ids map[string]bool

func (d ids) wire(id string) string {
	w := id
	for i := 0; d[w] || !idForm.MatchString(w); i++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", i, id))
		w = "call_" + hex.EncodeToString(sum[:10])
	}
	d[w] = true
	return w
}
