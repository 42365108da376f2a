package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/url"
	"os"
	"strings"
	"testing"
)

// Whatever a person writes in the place of a name or an id is one part of a call's path,
// or is refused before there is a call.
func TestNamesInPaths(t *testing.T) {
	commands := []struct {
		args []string // NAME stands for what the person wrote
		call string   // the first call that holds it
	}{
		{[]string{"project", "show", "NAME"}, "GET /v1/projects/NAME"},
		{[]string{"project", "delete", "NAME"}, "/v1/projects/NAME"},
		{[]string{"project", "cancel", "NAME"}, "POST /v1/projects/NAME/cancel"},
		{[]string{"machine", "start", "NAME"}, "POST /v1/projects/NAME/machine/start"},
		{[]string{"machine", "stop", "NAME"}, "POST /v1/projects/NAME/machine/stop"},
		{[]string{"machine", "show", "NAME"}, "GET /v1/projects/NAME/machine"},
		{[]string{"rule", "list", "NAME"}, "GET /v1/projects/NAME/rules"},
		{[]string{"rule", "allow", "NAME", "x.example"}, "POST /v1/projects/NAME/rules"},
		{[]string{"rule", "remove", "NAME", "g_1"}, "DELETE /v1/projects/NAME/rules/g_1"},
		{[]string{"rule", "remove", "p_1", "NAME"}, "DELETE /v1/projects/p_1/rules/NAME"},
		{[]string{"approval", "answer", "NAME", "yes"}, "GET /v1/approvals/NAME"},
		{[]string{"review", "open", "NAME"}, "POST /v1/projects/NAME/reviews"},
		{[]string{"review", "show", "NAME"}, "GET /v1/reviews/NAME"},
		{[]string{"session", "show", "NAME"}, "GET /v1/sessions/NAME"},
		{[]string{"session", "end", "NAME"}, "POST /v1/sessions/NAME/end"},
		{[]string{"session", "cancel", "NAME"}, "POST /v1/sessions/NAME/cancel"},
		{[]string{"session", "stop", "NAME"}, "POST /v1/sessions/NAME/cancel"},
		{[]string{"file", "list", "NAME"}, "GET /v1/sessions/NAME/files"},
		{[]string{"file", "read", "NAME", "a"}, "GET /v1/sessions/NAME/file"},
		{[]string{"exec", "--session", "NAME", "--", "true"}, "POST /v1/sessions/NAME/exec"},
		{[]string{"restore", "--project", "NAME", "--checkpoint", someState}, "GET /v1/projects/NAME"},
		{[]string{"run", "--session", "NAME", "do it"}, "GET /v1/sessions/NAME"},
	}
	for _, name := range []string{"x?y", "x#y", "50%", "%73hop", "a b/c", "shop/rules", "..", ".", ""} {
		for _, c := range commands {
			if name == "" && (c.args[0] == "restore" || c.args[0] == "run" || c.args[0] == "exec") {
				continue // an empty flag is one that was not given
			}
			d := newDoors(t)
			args := append([]string{}, c.args...)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "NAME", name)
			}
			r := line(t, "", args...)
			want, found := strings.ReplaceAll(c.call, "NAME", url.PathEscape(name)), false
			d.mu.Lock()
			for _, call := range d.calls {
				switch got := call.method + " " + call.escaped; {
				case strings.HasSuffix(got, want):
					found = true
				case name != "" && strings.Contains(got, "/"+url.PathEscape(name)+"/"): // what comes after the first
				case got != "GET /v1/info" && got != "GET /v1/events" && got != "GET /v1/log": // these name nothing in their paths
					t.Errorf("%q called %s", args, got)
				}
			}
			d.mu.Unlock()
			refused := name == "" || name == "." || name == ".."
			if refused && (found || r.code == 0 || !strings.Contains(r.err, "nam")) || !refused && !found {
				t.Errorf("%q: %d %s, the call was made: %v", args, r.code, r.err, found)
			}
			d.shut()
		}
	}
}

// No path is put together but by at: none is written out, or made of one, elsewhere.
func TestPathsAreMadeInOnePlace(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") || f.Name() == "at.go" {
			continue
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if n.Kind == token.STRING && (strings.Contains(n.Value, "/v1/") && !strings.Contains(n.Value, "://") || strings.Contains(n.Value, "http://core")) {
					t.Errorf("%s writes out a path: %s", set.Position(n.Pos()), n.Value)
				}
			case *ast.CompositeLit:
				id, is := n.Type.(*ast.Ident)
				if !is || id.Name != "at" {
					return true
				}
				seen++
				for _, part := range n.Elts {
					if b, is := part.(*ast.BinaryExpr); is {
						t.Errorf("%s puts a part together: each is one of its own", set.Position(b.Pos()))
					}
				}
			}
			return true
		})
	}
	if seen < 30 {
		t.Errorf("%d places of calls were looked at; where are the others?", seen)
	}
}
