package cli

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A terminal shows again what is typed after a key was given, or the question for it
// was given up.
func TestATerminalIsPutBack(t *testing.T) {
	d := newDoors(t)
	for name, c := range map[string]struct {
		keys string
		code int
	}{"given": {aKey + "\n", 0}, "Ctrl-C": {"half\x03", 130}, "Ctrl-D": {"\x04", 130}, "SIGTERM": {"", 130}} {
		s := sit(t, "model", "key", "big")
		s.sees("not shown): ")
		shows := func() bool {
			st, err := unix.IoctlGetTermios(int(s.tty.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			return st.Lflag&unix.ECHO != 0
		}
		if shows() {
			t.Errorf("%s: it is shown while it is typed", name)
		}
		s.types(c.keys)
		if c.keys == "" {
			if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		if code := s.ends(); code != c.code || !shows() {
			t.Errorf("%s: %d, shows %v, %q", name, code, shows(), s.text.String())
		}
	}
	if sent := d.called("PUT", "/v1/models/big/key"); len(sent) != 1 {
		t.Errorf("%d keys were sent", len(sent))
	}
}
