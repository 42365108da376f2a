package core

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"glasshouse/backend/domain"
)

// Of a project that was never finished nothing is left; what others left in the trash
// is not touched.
func TestDiscard(t *testing.T) {
	p := paths(t)
	c, _ := opened(t, p)
	write(t, filepath.Join(p.Mirror("p_1"), "config"), "x")
	write(t, filepath.Join(p.Project("p_2"), "keep"), "x")
	for _, name := range []string{"machine-mabc-20260101T000000.000", "machine-mabcd-20260101T000000.000", "p_2-1234", "mabc.txt.old-mabcx"} {
		write(t, filepath.Join(p.Trash(), name, "disk"), "x")
	}
	if err := c.discard(domain.Project{ID: "p_1", Machine: "mabcd"}); err != nil {
		t.Fatal(err)
	}
	if err := c.discard(domain.Project{ID: "p_3"}); err != nil { // it never came to a machine
		t.Fatal(err)
	}
	left := func(dir string) (out []string) {
		es, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			out = append(out, e.Name())
		}
		return out
	}
	if got := left(p.Trash()); !slices.Equal(got, []string{"mabc.txt.old-mabcx", "machine-mabc-20260101T000000.000", "p_2-1234"}) {
		t.Errorf("%v", got)
	}
	if got := left(filepath.Join(p.Data, "projects")); !slices.Equal(got, []string{"p_2"}) {
		t.Errorf("%v", got)
	}
}
