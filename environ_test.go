package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// whole lists the files that hand an environment on whole, and why no key of a model
// can be in it or it stays with Glasshouse itself.
var whole = map[string]string{
	"app/cli/client.go":            "starts the core, which reads the keys",
	"app/cli/demo_linux.go":        "starts the demo again, in a network of its own",
	"app/core/images.go":           "picks names out of it",
	"vm/lima/qemu.go":              "is started by limactl, whose environment is fixed",
	"vm/guest/agent/boot/boot.go":  "runs in a guest",
	"vm/guest/agent/boot/vm.go":    "runs in a guest",
	"vm/guest/agent/execs/conn.go": "runs in a guest",
	"build/bench/ours.go":          "the benchmark's own core",
}

// The core's environment may hold keys of models: what starts processes must say which
// part of it they get.
func TestEnvironmentsAreNotHandedOn(t *testing.T) {
	var found []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && d != nil {
			return nil // a test or a build beside this one took its own away
		}
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || strings.HasSuffix(d.Name(), "test") || d.Name() == ".git") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && (strings.Contains(string(b), "os.Environ()") || strings.Contains(string(b), "syscall.Environ()")) {
			found = append(found, filepath.ToSlash(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if whole[f] == "" {
			t.Errorf("%s hands on its whole environment: name what is needed, or say here why it may", f)
		}
	}
	for f := range whole {
		if !slices.Contains(found, f) {
			t.Errorf("%s hands on nothing any more: take it out of the list", f)
		}
	}
}
