package packcheck

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"testing"
	"testing/iotest"

	"glasshouse/backend/git/odb"
)

// A full disk under the quarantine is no fault of the pack's.
func TestOwnTroubleIsNotCorruption(t *testing.T) {
	full := fmt.Errorf("writing the pack: %w", &fs.PathError{Op: "write", Path: "pack", Err: syscall.ENOSPC})
	for _, c := range []struct {
		err  error
		code string
	}{
		{full, "failed"},
		{tooLarge("the pack is larger than %d bytes", 1), "too_large"},
		{io.ErrUnexpectedEOF, "corrupt"},
		{errors.New("flate: bad"), "corrupt"},
	} {
		err := short(drain(iotest.ErrReader(c.err), 5, io.Discard))
		if code := codeOf(err); code != c.code {
			t.Errorf("%v: %s (%v), want %s", c.err, code, err, c.code)
		}
		if c.code != "corrupt" && errors.Is(err, odb.ErrCorrupt) {
			t.Errorf("%v is called corrupt: %v", c.err, err)
		}
	}
}
