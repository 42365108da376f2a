package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"glasshouse/backend/domain"
)

func TestFilesAreReadWhenTheyChange(t *testing.T) {
	dir := t.TempDir()
	user, mine := filepath.Join(dir, "policy.toml"), filepath.Join(dir, "project.toml")
	s := NewStore(user, func(domain.ProjectID) string { return mine })
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	says := func(host string) domain.Decision {
		t.Helper()
		r, _ := s.Rules("p_1")
		return DecideEgress(host, 443, "", r).Decision
	}
	if got := says("a.example"); got != domain.Ask {
		t.Fatalf("without a file: %s", got)
	}
	write(user, "[[rule]]\nid = \"a\"\ndecision = \"allow\"\nhost = [\"a.example\", \"*.b.example:443\"]\n")
	if says("a.example") != domain.Allow || says("x.b.example") != domain.Allow || says("c.example") != domain.Ask {
		t.Error("the new file does not hold")
	}
	write(mine, "[[rule]]\nid = \"n\"\ndecision = \"deny\"\nhost = [\"a.example\"]\n")
	if says("a.example") != domain.Deny {
		t.Error("a project's file may tighten")
	}
	// A file that went bad loosens nothing, and says so until it is mended.
	write(mine, "[[rule]]\nid = \"n\"\ndecision = \"perhaps\"\nhost = [\"a.example\"]\n")
	if _, err := s.Rules("p_1"); err == nil || says("a.example") != domain.Deny || says("x.b.example") != domain.Allow {
		t.Errorf("%v", err)
	}
	for _, f := range s.Files("p_1") {
		if bad := f.Path == mine; bad != (f.Fault != "") || !f.There || f.Text == "" {
			t.Errorf("%+v", f)
		}
	}
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Rules("p_1"); err != nil || says("a.example") != domain.Allow {
		t.Errorf("%v", err)
	}
	// The same length at another time.
	write(user, "[[rule]]\nid = \"a\"\ndecision = \"allow\"\nhost = [\"z.example\", \"*.b.example:443\"]\n")
	if err := os.Chtimes(user, time.Now(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if says("a.example") != domain.Ask || says("z.example") != domain.Allow {
		t.Error("the change was not seen")
	}
	if fs := s.Files(""); len(fs) != 2 || fs[0].Tier != TierBuiltin || fs[0].Text == "" {
		t.Errorf("%+v", fs)
	}
}

// Only a rule that names hosts opens one; every rule closes.
func TestDecideEgress(t *testing.T) {
	for text, want := range map[string]domain.Decision{
		"decision = \"allow\"\nreach = [\"network\"]":      domain.Ask,
		"decision = \"allow\"\ntool = [\"*\"]":             domain.Ask,
		"decision = \"deny\"\nreach = [\"network\"]":       domain.Deny,
		"decision = \"ask\"\nhost = [\"a.example\"]":       domain.Ask,
		"decision = \"allow\"\nhost = [\"a.example:80\"]":  domain.Ask,
		"decision = \"allow\"\nhost = [\"a.example:443\"]": domain.Allow,
		"decision = \"allow\"\nhost = [\"*\"]":             domain.Allow,
		"decision = \"allow\"\nhost = [\"a.example\"]\n[[rule]]\nid = \"y\"\ndecision = \"deny\"\nhost = [\"*.example\"]": domain.Deny,
	} {
		r, err := Load(nil, Source{Tier: TierUser, Name: "t", Data: []byte("[[rule]]\nid = \"x\"\n" + text + "\n")})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := DecideEgress("a.example", 443, "", r); got.Decision != want {
			t.Errorf("%s: %+v", text, got)
		}
		for _, rule := range r.List() {
			if got := rule.Text(); !strings.HasPrefix(got, string(rule.Decision)+": ") {
				t.Errorf("%s", got)
			}
		}
	}
	// Full mode opens what no rule is about, and nothing that one closes or asks about.
	for text, want := range map[string]domain.Decision{
		"decision = \"deny\"\nhost = [\"b.example\"]":      domain.Allow,
		"decision = \"deny\"\nhost = [\"a.example\"]":      domain.Deny,
		"decision = \"ask\"\nhost = [\"a.example\"]":       domain.Ask,
		"decision = \"deny\"\nreach = [\"network\"]":       domain.Deny,
		"decision = \"allow\"\nhost = [\"a.example:443\"]": domain.Allow,
	} {
		r, err := Load(nil, Source{Tier: TierUser, Name: "t", Data: []byte("[[rule]]\nid = \"x\"\n" + text + "\n")})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := DecideEgress("a.example", 443, ModeFull, r); got.Decision != want {
			t.Errorf("full: %s: %+v", text, got)
		}
	}
	bad, _ := Load(nil, Source{Tier: TierUser, Name: "t", Data: []byte("nonsense")})
	if got := DecideEgress("a.example", 443, ModeFull, bad); got.Decision != domain.Ask {
		t.Errorf("%+v", got)
	}
	if got := DecideEgress("a.example", 443, "", bad); got.Decision != domain.Ask {
		t.Errorf("%+v", got)
	}
}
