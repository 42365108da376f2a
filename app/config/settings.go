package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"glasshouse/backend/domain"
)

// Settings a person can change in config.toml. The zero value of each is the usual.
type Settings struct {
	// Machine is the kind new projects get: "lima" or "local". Empty = local on
	// Linux, lima elsewhere.
	Machine string `toml:"machine" json:"machine" enum:",lima,local" doc:"kind of machine new projects get; empty = the usual of this system"`
	CPUs    int    `toml:"cpus" json:"cpus" doc:"of new machines; 0 = the usual"`
	Memory  int    `toml:"memory_mib" json:"memory_mib" doc:"of new machines, in MiB; 0 = the usual"`
	Disk    int    `toml:"disk_gib" json:"disk_gib" doc:"of new machines, in GiB; 0 = the usual"`
	// Resolver is a DNS server host:port for the egress gate; empty = the system's.
	Resolver string `toml:"resolver" json:"resolver" maxLength:"255" doc:"a DNS server, address:port, for the egress gate; empty = the system's"`
	// QuestionMinutes is how long a question waits before it expires; 0 = for ever.
	QuestionMinutes int `toml:"question_minutes" json:"question_minutes" doc:"how long a question waits before it expires; 0 = for ever"`
	// HoldSeconds is how long a connection waits for an answer; 0 = 300.
	HoldSeconds int    `toml:"hold_seconds" json:"hold_seconds" doc:"how long a connection waits for an answer; 0 = 300"`
	Limactl     string `toml:"limactl" json:"limactl" maxLength:"4096" doc:"path of a limactl to use instead of the bundled one; empty = the bundled one. Only the file sets it, a call can only take it away"`
}

// Applies says when a change of each setting counts: "now", "new" (for machines
// that are made from then on) or "restart" (of the core).
var Applies = map[string]string{
	"machine": "new", "cpus": "new", "memory_mib": "new", "disk_gib": "new",
	"resolver": "now", "question_minutes": "now", "hold_seconds": "now", "limactl": "restart",
}

// limits of the numbers: beyond them a machine cannot be, or the clock cannot count.
var numbers = []struct {
	name     string
	of       func(*Settings) *int
	min, max int // besides 0
	what     string
}{
	{"cpus", func(s *Settings) *int { return &s.CPUs }, 1, 256, "processors"},
	{"memory_mib", func(s *Settings) *int { return &s.Memory }, 256, 1 << 20, "MiB of memory"},
	{"disk_gib", func(s *Settings) *int { return &s.Disk }, 1, 4096, "GiB of disk"},
	{"question_minutes", func(s *Settings) *int { return &s.QuestionMinutes }, 1, 1 << 20, "minutes"},
	{"hold_seconds", func(s *Settings) *int { return &s.HoldSeconds }, 1, 1 << 20, "seconds"},
}

// Check says what is wrong with settings; the error points at the first wrong one.
func (s Settings) Check() error {
	bad := func(name, what, hint string) error {
		return &domain.Error{Code: domain.CodeInvalid, Pointer: "/" + name, What: what, Hint: hint}
	}
	if s.Machine != "" && s.Machine != "lima" && s.Machine != "local" {
		return bad("machine", fmt.Sprintf("machine is %q", s.Machine), "use lima or local, or nothing for the usual")
	}
	for _, n := range numbers {
		if v := *n.of(&s); v != 0 && (v < n.min || v > n.max) {
			return bad(n.name, fmt.Sprintf("%s is %d", n.name, v), fmt.Sprintf("give %d to %d %s, or 0 for the usual", n.min, n.max, n.what))
		}
	}
	if s.Resolver != "" {
		host, port, err := net.SplitHostPort(s.Resolver)
		n, perr := strconv.Atoi(port)
		if err != nil || host == "" || perr != nil || n < 1 || n > 65535 || strings.ContainsAny(host, " \t\r\n\"") {
			return bad("resolver", fmt.Sprintf("resolver is %q", s.Resolver), "give an address and a port, such as 192.0.2.53:53")
		}
	}
	if s.Limactl != "" && (!filepath.IsAbs(s.Limactl) || strings.ContainsFunc(s.Limactl, func(r rune) bool { return r < ' ' || r == 127 })) {
		return bad("limactl", fmt.Sprintf("limactl is %q", s.Limactl), "give an absolute path")
	}
	return nil
}

// Load reads config.toml. A missing file is fine; a broken or unknown line is an
// error, for a setting that is silently ignored protects nobody.
func (p Paths) Load() (Settings, error) {
	data, err := os.ReadFile(p.ConfigFile())
	if errors.Is(err, fs.ErrNotExist) {
		return Settings{}, nil
	}
	if err != nil {
		return Settings{}, domain.E(domain.CodeInvalid, "the settings in "+p.ConfigFile()+" cannot be read", "mend the file or move it away", err)
	}
	return p.parse(data)
}

func (p Paths) parse(data []byte) (Settings, error) {
	var s Settings
	meta, err := toml.Decode(string(data), &s)
	if err != nil {
		return s, domain.E(domain.CodeInvalid, "the settings in "+p.ConfigFile()+" cannot be read", "mend the file or move it away", err)
	}
	if un := meta.Undecoded(); len(un) > 0 {
		return s, domain.E(domain.CodeInvalid, fmt.Sprintf("%s has an unknown setting %q", p.ConfigFile(), un[0]), "remove it, or check its spelling", nil)
	}
	var e *domain.Error
	if err := s.Check(); errors.As(err, &e) {
		e.What = p.ConfigFile() + ": " + e.What
		return s, e
	}
	return s, nil
}

// Save writes settings into config.toml, whole or not at all. Lines that stay as they
// are keep their place and their comments, and a changed one its comment; a setting
// that goes back to its usual leaves the file. A file that cannot be read is not
// written over.
func (p Paths) Save(s Settings) error {
	if err := s.Check(); err != nil {
		return err
	}
	old, err := os.ReadFile(p.ConfigFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return domain.E(domain.CodeUnavailable, "the settings in "+p.ConfigFile()+" cannot be read", "check its permissions", err)
	}
	if _, err := p.parse(old); err != nil {
		return err
	}
	text := rewrite(old, s)
	// What was written must mean what was asked for, however the file was put.
	if got, err := p.parse(text); err != nil || got != s {
		return domain.E(domain.CodeConflict, p.ConfigFile()+" is written in a way that cannot be changed line by line", "change it with an editor", err)
	}
	return p.put(p.ConfigFile(), "the settings", text)
}

// put replaces a file of the config folder as one act, with the mode it had.
func (p Paths) put(path, what string, text []byte) error {
	name := path
	wrong := func(err error) error {
		return domain.E(domain.CodeUnavailable, what+" could not be written to "+name, "check the permissions of "+p.Config+" and the free space; nothing was changed", err)
	}
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to // a link stays one
	}
	mode := fs.FileMode(0o600)
	if fi, err := os.Stat(path); err == nil {
		mode = fi.Mode().Perm()
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return wrong(err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".config-*.toml")
	if err != nil {
		return wrong(err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return wrong(err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return wrong(err)
	}
	if d, err := os.Open(filepath.Dir(path)); err == nil {
		_ = d.Sync() // makes the new name last; where that is not possible it is as safe as can be
		d.Close()
	}
	return nil
}

// A setting's line: key = value, with what follows the value.
var settingLine = regexp.MustCompile(`^[ \t]*(?:"([A-Za-z0-9_-]+)"|'([A-Za-z0-9_-]+)'|([A-Za-z0-9_-]+))[ \t]*=[ \t]*("(?:[^"\\]|\\.)*"|'[^']*'|[^#\s]+)([ \t]*(?:#.*)?)$`)

// rewrite changes the lines of a file that differ from s.
func rewrite(old []byte, s Settings) []byte {
	want := map[string]string{}
	var order []string
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		key := v.Type().Field(i).Tag.Get("toml")
		order = append(order, key)
		if f := v.Field(i); !f.IsZero() {
			if f.Kind() == reflect.Int {
				want[key] = strconv.FormatInt(f.Int(), 10)
			} else {
				want[key] = quote(f.String())
			}
		}
	}
	var was Settings
	_, _ = toml.Decode(string(old), &was)
	before := reflect.ValueOf(was)
	same := map[string]bool{}
	for i, key := range order {
		same[key] = before.Field(i).Equal(v.Field(i))
	}
	nl := "\n"
	if bytes.Contains(old, []byte("\r\n")) {
		nl = "\r\n"
	}
	var out []string
	seen := map[string]bool{}
	body := strings.TrimSuffix(string(old), "\n")
	if body != "" {
		for line := range strings.SplitSeq(body, "\n") {
			line = strings.TrimSuffix(line, "\r")
			m := settingLine.FindStringSubmatch(line)
			if m == nil {
				out = append(out, line)
				continue
			}
			key := m[1] + m[2] + m[3]
			isSame, known := same[key]
			value, set := want[key]
			switch {
			case !known || isSame && set:
				out = append(out, line)
			case set:
				out = append(out, key+" = "+value+m[5])
			}
			seen[key] = true
		}
	}
	for _, key := range order {
		if value, set := want[key]; set && !seen[key] {
			out = append(out, key+" = "+value)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return []byte(strings.Join(out, nl) + nl)
}

// quote writes a TOML basic string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 127:
			fmt.Fprintf(&b, "\\u%04X", r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
