package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glasshouse/app/config"
	"glasshouse/app/core"
	"glasshouse/backend/eventlog"
)

// TestQuitIsTheEnd copies the log right after a quit: the core has closed its data by
// then, although a client that never finishes its request holds it up.
func TestQuitIsTheEnd(t *testing.T) {
	onKind(t, "local")
	w := NewWorld(t, "local")
	w.Start()
	half, err := net.Dial("unix", filepath.Join(w.Data, "core.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	if _, err := half.Write([]byte("POST /v1/projects HTTP/1.1\r\nHost: core\r\n")); err != nil {
		t.Fatal(err)
	}
	if out, err := w.CLI("quit"); err != nil || !strings.Contains(out, "the core has ended") {
		t.Fatalf("%v %s", err, out)
	}
	w.core = nil
	for _, of := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(filepath.Join(w.Data, eventlog.FileName+of)); !os.IsNotExist(err) {
			t.Errorf("the log is still open: %s: %v", of, err)
		}
	}
	if pid, err := core.Holder(config.Paths{Data: w.Data}); pid != 0 || err != nil {
		t.Errorf("the core has not ended: process %d, %v", pid, err)
	}
	if out, err := w.CLI("quit"); err != nil || !strings.Contains(out, "nothing runs") {
		t.Errorf("%v %s", err, out)
	}
}
