package page

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
)

// The embedded bundle was built from the sources beside it.
func TestBundleIsFresh(t *testing.T) {
	names, err := filepath.Glob("src/*")
	if err != nil || len(names) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	sort.Strings(names)
	h := sha256.New()
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		h.Write([]byte(filepath.Base(n) + "\x00"))
		h.Write(b)
		h.Write([]byte{0})
	}
	first, _, _ := strings.Cut(Source, "\n")
	if want := "// sources sha256:" + hex.EncodeToString(h.Sum(nil)); first != want {
		t.Fatalf("page.js was built from other sources (%s): run npm ci && npm run build in browser/page", first)
	}
	if _, err := os.Stat("node_modules/esbuild"); err != nil {
		t.Log("the rebuild is not compared: esbuild is not installed here (npm ci)")
		return
	}
	out, err := exec.Command("node", "build.mjs", "--stdout").Output()
	if err != nil {
		t.Fatalf("building: %v", err)
	}
	if string(out) != Source {
		t.Fatal("page.js differs from what its sources build to: run npm run build in browser/page")
	}
}
