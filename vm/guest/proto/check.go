package proto

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"
)

// Limits of fields. What is past them is refused with an error that names the field.
const (
	MaxID       = 96
	MaxPath     = 4096
	MaxArgv     = 4096
	MaxArgBytes = 640 << 10 // argv and environment together
	MaxEnv      = 1024
	MaxIDs      = 1024 // ids in one request

	MaxOutputLimit     = 64 << 20
	DefaultOutputLimit = 8 << 20
)

// CheckID accepts the ids that hosts make: letters, digits, "_", "-" and ".",
// not starting with a dot. They become file names and cgroup names.
func CheckID(field, id string) error {
	if id == "" {
		return fmt.Errorf("%s is empty", field)
	}
	if len(id) > MaxID {
		return fmt.Errorf("%s is longer than %d bytes", field, MaxID)
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		case c == '.' && i > 0:
		default:
			return fmt.Errorf("%s holds %q; only letters, digits, '_', '-' and '.' are allowed, and no leading '.'", field, c)
		}
	}
	return nil
}

// CheckLabel is CheckID for a field that may be empty.
func CheckLabel(field, id string) error {
	if id == "" {
		return nil
	}
	return CheckID(field, id)
}

// CheckHash accepts a full object id in hex (40 or 64 digits); empty only if optional.
func CheckHash(field, h string, optional bool) error {
	if h == "" && optional {
		return nil
	}
	if len(h) != 40 && len(h) != 64 {
		return fmt.Errorf("%s is no object id: it has %d characters", field, len(h))
	}
	for i := 0; i < len(h); i++ {
		if c := h[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return fmt.Errorf("%s is no object id: it holds %q", field, c)
		}
	}
	return nil
}

// CheckPath accepts a file name of any bytes but NUL, of bounded length.
func CheckPath(field string, p []byte) error {
	if len(p) > MaxPath {
		return fmt.Errorf("%s is longer than %d bytes", field, MaxPath)
	}
	if bytes.IndexByte(p, 0) >= 0 {
		return fmt.Errorf("%s holds a NUL byte", field)
	}
	return nil
}

// CheckTreePath accepts the path of a file in a tree: names between single slashes.
func CheckTreePath(field string, p []byte) error {
	if err := CheckPath(field, p); err != nil {
		return err
	}
	for name := range bytes.SplitSeq(p, []byte{'/'}) {
		switch string(name) {
		case "", ".", "..":
			return fmt.Errorf("%s is no path inside the workspace: a name in it is %q", field, name)
		}
	}
	return nil
}

// CheckStart checks a command before either side acts on it.
func CheckStart(s *ExecStart) error {
	if s == nil {
		return errors.New("the command is missing")
	}
	if err := errors.Join(CheckID("id", s.Id), CheckLabel("session", s.Session), CheckLabel("step", s.Step), CheckPath("dir", s.Dir)); err != nil {
		return err
	}
	if len(s.Dir) > 0 && !path.IsAbs(string(s.Dir)) {
		return errors.New("dir is not absolute")
	}
	if len(s.Argv) == 0 || len(s.Argv[0]) == 0 {
		return errors.New("argv is empty")
	}
	if len(s.Argv) > MaxArgv {
		return fmt.Errorf("argv has more than %d words", MaxArgv)
	}
	if len(s.Env) > MaxEnv {
		return fmt.Errorf("env has more than %d variables", MaxEnv)
	}
	total := 0
	for i, a := range s.Argv {
		if bytes.IndexByte(a, 0) >= 0 {
			return fmt.Errorf("argv[%d] holds a NUL byte", i)
		}
		total += len(a)
	}
	for _, e := range s.Env {
		if e == nil || len(e.Name) == 0 || bytes.ContainsAny(e.Name, "=\x00") {
			return errors.New("env has a variable whose name is empty or holds '=' or NUL")
		}
		if bytes.IndexByte(e.Value, 0) >= 0 {
			return fmt.Errorf("env %q holds a NUL byte", e.Name)
		}
		total += len(e.Name) + len(e.Value)
	}
	if total > MaxArgBytes {
		return fmt.Errorf("argv and env together are %d bytes; at most %d fit", total, MaxArgBytes)
	}
	switch {
	case s.Timeout < 0, s.Grace < 0:
		return errors.New("timeout or grace is negative")
	case s.OutputLimit < 0 || s.OutputLimit > MaxOutputLimit:
		return fmt.Errorf("output_limit is %d; at most %d", s.OutputLimit, MaxOutputLimit)
	case s.MemoryMib < 0 || s.MemoryMib > 1<<22, s.Pids < 0 || s.Pids > 1<<22:
		return errors.New("a limit is out of range")
	}
	return CheckWinsize(s.Tty)
}

// CheckWinsize accepts nil and sizes that fit 16 bits.
func CheckWinsize(w *Winsize) error {
	if w != nil && (w.Rows > 65535 || w.Cols > 65535) {
		return errors.New("the terminal size does not fit 16 bits")
	}
	return nil
}

// CheckProfile accepts a browser profile's name.
func CheckProfile(p string) error {
	if p == "" || len(p) > 64 || strings.Trim(p, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || p[0] == '-' {
		return fmt.Errorf("profile %.70q: only a-z, 0-9 and '-' (not first), 1 to 64 characters", p)
	}
	return nil
}
