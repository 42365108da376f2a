package config

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"glasshouse/backend/model"
)

// Whatever is done in whatever order, the file means what it should, and no comment
// is lost but those of a model that is deleted.
func TestModelsManyChanges(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 7))
		p := modelsIn(t, "# head\n\n# above default\ndefault = \"m0\" # beside default\n\n[[model]]\nname = \"m0\"\nformat = \"anthropic\"\nmodel = \"x\"\n# end")
		want := Models{Default: "m0", Models: []model.Config{{Name: "m0", Format: model.FormatMessages, Model: "x"}}}
		loose := []string{"# head", "# above default"}
		owned := map[string][]string{} // comments of a model's table
		n := 0
		for step := range 60 {
			name := fmt.Sprintf("m%d", r.IntN(6))
			i := slices.Index(want.Names(), name)
			var err error
			what := ""
			switch k := r.IntN(10); {
			case k < 6:
				c := model.Config{Name: name, Format: model.FormatChat, Model: fmt.Sprintf("x%d", r.IntN(4))}
				if r.IntN(2) == 0 {
					c.BaseURL = fmt.Sprintf("http://127.0.0.1:%d/v1", 1+r.IntN(3))
				}
				if r.IntN(3) == 0 {
					c.KeyEnv, c.Effort, c.TextOnly = "K", "low", true
				}
				if r.IntN(2) == 0 {
					c.Context, c.MaxOutput = 9000+r.IntN(2), 300
				}
				if r.IntN(2) == 0 {
					c.Price = &model.Price{Input: float64(r.IntN(3)), Output: 0.5, CacheRead: float64(r.IntN(2)) / 4}
				}
				what = fmt.Sprintf("save %+v", c)
				err = p.SaveModel(c)
				if i >= 0 {
					want.Models[i] = c
				} else {
					if len(want.Models) == 1 && want.Default == "" {
						want.Default = want.Models[0].Name
					}
					want.Models = append(want.Models, c)
				}
			case k < 8:
				what = "delete " + name
				err = p.DeleteModel(name)
				if (err == nil) != (i >= 0) {
					t.Fatalf("seed %d, step %d: %s: %v", seed, step, what, err)
				}
				if err = nil; i >= 0 {
					want.Models = slices.Delete(want.Models, i, i+1)
					delete(owned, name)
					if want.Default == name {
						want.Default = ""
					}
				}
			default:
				if i < 0 {
					name = ""
				}
				what = "default " + name
				err = p.SetDefaultModel(name)
				want.Default = name
			}
			text, _ := os.ReadFile(p.ModelsFile())
			if err != nil {
				t.Fatalf("seed %d, step %d: %s: %v\n%s", seed, step, what, err, text)
			}
			got, err := p.LoadModels()
			if err != nil || got.Default != want.Default || len(got.Models) != len(want.Models) || len(want.Models) > 0 && !reflect.DeepEqual(got.Models, want.Models) {
				t.Fatalf("seed %d, step %d: %s: %v\n%+v, not\n%+v\n%s", seed, step, what, err, got, want, text)
			}
			for _, c := range loose {
				if !strings.Contains(string(text), c+"\n") {
					t.Fatalf("seed %d, step %d: %s: %q is lost\n%s", seed, step, what, c, text)
				}
			}
			for m, cs := range owned {
				for _, c := range cs {
					if !strings.Contains(string(text), c) {
						t.Fatalf("seed %d, step %d: %s: %q of %s is lost\n%s", seed, step, what, c, m, text)
					}
				}
			}
			// Somebody writes a comment with an editor: on a line of its own in a table that
			// goes on after it, above a table, or between two.
			lines := strings.Split(string(text), "\n")
			at := r.IntN(len(lines))
			if strings.HasPrefix(lines[at], "format") { // within a table, after its name
				if in, ok := strings.CutPrefix(lines[at-1], "name = "); ok {
					in = strings.Trim(in, "\"")
					n++
					c := fmt.Sprintf("# c%d.", n)
					owned[in] = append(owned[in], c)
					if err := os.WriteFile(p.ModelsFile(), []byte(strings.Join(slices.Insert(lines, at, c), "\n")), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			} else if lines[at] == "[[model]]" && r.IntN(2) == 0 {
				n++
				c := fmt.Sprintf("# loose%d.", n)
				loose = append(loose, c)
				if err := os.WriteFile(p.ModelsFile(), []byte(strings.Join(slices.Insert(lines, at, "", c, ""), "\n")), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
