package httpapi

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the description of the door")

// The page's types are generated from this file, so it must be what the door says.
func TestOpenAPIIsFresh(t *testing.T) {
	got, err := OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(got) {
		t.Fatal("not JSON")
	}
	path := filepath.Join("..", "..", "frontend", "openapi.json")
	if *update {
		if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.TrimSpace(want), bytes.TrimSpace(got)) {
		t.Errorf("%s is stale: run 'go test ./app/httpapi -run OpenAPI -update' and 'npm run types' in frontend", path)
	}
}
