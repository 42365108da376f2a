package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// built makes the program of another version, and with another file in the place of
// one of its own.
func built(t *testing.T, dir, name, version, flags string, instead map[string]string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, name)
	args := []string{"build", "-ldflags", flags + " -X glasshouse/app/cli.Version=" + version, "-o", at}
	if instead != nil {
		over := map[string]map[string]string{"Replace": {}}
		for of, text := range instead {
			file := filepath.Join(dir, name+"-"+filepath.Base(of))
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			over["Replace"][filepath.Join(root, of)] = file
		}
		b, err := json.Marshal(over)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at+".json", b, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "-overlay", at+".json")
	}
	c := exec.Command("go", append(args, ".")...)
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("go %q: %v\n%s", args, err, out)
	}
	return at
}

// TestVersions: programs of different versions meet in one core. Each says so, on its
// error output alone; one that the core would misunderstand does nothing but end it.
func TestVersions(t *testing.T) {
	onKind(t, "local") // no machine is needed
	dir := t.TempDir() // before the world, which ends before it
	w := NewWorld(t, "local")
	version, err := os.ReadFile("../httpapi/version.go")
	if err != nil {
		t.Fatal(err)
	}
	later := bytes.Replace(version, []byte("const Generation = 1\n"), []byte("const Generation = 2\n"), 1)
	if bytes.Equal(later, version) {
		t.Fatal("the generation of /v1 is not where this test looks for it")
	}
	one, two := built(t, dir, "one", "v-one", "-s -w", nil), built(t, dir, "two", "v-two", "-s -w", nil)
	anew := built(t, dir, "anew", "v-two", "-s -w -X main.other=build", nil)
	far := built(t, dir, "far", "v-far", "-s -w", map[string]string{"app/httpapi/version.go": string(later)})
	run := func(program string, args ...string) (code int, out, errs string) {
		t.Helper()
		ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute) // a hang guard
		defer stop()
		var o, e bytes.Buffer
		c := exec.CommandContext(ctx, program, args...)
		c.Env, c.Stdout, c.Stderr = w.Env, &o, &e
		if err := c.Run(); err != nil && c.ProcessState == nil {
			t.Fatal(err)
		}
		return c.ProcessState.ExitCode(), o.String(), e.String()
	}
	// says runs a command and looks for what it says of the core, once; "" = nothing.
	says := func(code int, text, program string, args ...string) (out string) {
		t.Helper()
		got, out, errs := run(program, args...)
		if got != code || strings.Contains(out, "the core that runs") || (text == "") == strings.Contains(errs, "the core that runs") || strings.Count(errs, text) != 1 && text != "" {
			t.Errorf("%s %q: %d\n%s\n%s", filepath.Base(program), args, got, out, errs)
		}
		return out
	}
	w.Bin = one
	w.Start()
	says(0, "", one, "project", "list")
	says(0, "the core that runs is Glasshouse v-one and this is v-two; they work together", two, "project", "list")
	if out := says(0, "v-one and this is v-two", two, "--json", "project", "list"); strings.TrimSpace(out) != "[]" {
		t.Errorf("the answer is not it alone: %q", out)
	}
	says(0, "", two, "quit")
	says(0, "", two, "project", "list") // which starts its own
	says(0, "the core that runs is Glasshouse v-two and this is v-one", one, "tools")
	// The program is built anew where the core was started from.
	if err := os.Rename(anew, two); err != nil {
		t.Fatal(err)
	}
	says(0, "before this program (Glasshouse v-two) was built anew", two, "project", "list")
	// One that speaks otherwise.
	says(1, "v-two and this is v-far; they do not understand each other (generations 1 and 2", far, "project", "create", "--name", "x")
	says(0, "", far, "quit")
	says(0, "", far, "project", "list")
	if out := says(1, "v-far and this is v-one; they do not understand each other (generations 2 and 1 of their calls). The newer one is "+far, one, "--json", "project", "list"); out != "" {
		t.Errorf("it answered: %q", out)
	}
	says(0, "", one, "quit")
}
