package lima

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"glasshouse/vm"
)

const (
	instName  = "gh" // Lima's name of the instance and of its network
	diskFile  = "disk.qcow2"
	stateFile = "run.json"
	// longestSock is the longest socket path that Lima wants to be possible in
	// an instance's folder: an ssh control socket and its temporary suffix.
	longestSock = "ssh.sock.1234567890123456"
)

// sockMax is how many bytes the path of a unix socket may have.
func sockMax() int {
	if runtime.GOOS == "darwin" {
		return 103
	}
	return 107
}

var idPattern = regexp.MustCompile(`^[a-z0-9]{1,20}$`)
var hostPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// layout is every path of one machine. What must survive lives in dir; what
// Lima and the network process need while it runs lives in run, which is dir
// itself unless its sockets' paths would be too long.
type layout struct {
	id  string
	dir string // ROOT/ID
	run string // dir, or a short folder elsewhere
}

func (l layout) marker() string { return filepath.Join(l.dir, markerFile) }
func (l layout) disk() string   { return filepath.Join(l.dir, diskFile) }
func (l layout) home() string   { return filepath.Join(l.run, "l") } // LIMA_HOME; short on purpose
func (l layout) inst() string   { return filepath.Join(l.home(), instName) }
func (l layout) net() string    { return filepath.Join(l.home(), "_networks", instName) }
func (l layout) chanSock() string {
	return filepath.Join(l.run, "chan.sock")
}
func (l layout) in(elem ...string) string {
	return filepath.Join(append([]string{l.inst()}, elem...)...)
}
func (l layout) netPid() string { return filepath.Join(l.net(), "usernet_"+instName+".pid") }
func (l layout) netSock(kind string) string {
	return filepath.Join(l.net(), instName+"_"+kind+".sock")
}
func (l layout) macFile() string { return filepath.Join(l.run, "mac") }
func (l layout) wrapper() string { return filepath.Join(l.run, "bin", "qemu") }

// longest is the length of the longest socket path of a machine that runs in run.
func longest(run string) int {
	l := layout{run: run}
	return max(len(l.in(longestSock)), len(l.netSock("qemu"))+1, len(l.chanSock())+1)
}

// lay finds a machine's paths: its own folder when that is short enough, else
// a folder named by a hash below short.
func lay(root, short, id string) (layout, error) {
	if !idPattern.MatchString(id) {
		return layout{}, fmt.Errorf("%q cannot be a machine's id: use 1 to 20 of a-z and 0-9", id)
	}
	l := layout{id: id, dir: filepath.Join(root, id)}
	l.run = l.dir
	if longest(l.run) > sockMax() {
		sum := sha256.Sum256([]byte(l.dir))
		l.run = filepath.Join(short, hex.EncodeToString(sum[:4]))
	}
	if n := longest(l.run); short == "" || n > sockMax() {
		return layout{}, fmt.Errorf("the data folder's path is too long: a socket of machine %q would have %d bytes, more than the %d that the system allows; choose a shorter data folder (now %s)", id, max(n, longest(l.dir)), sockMax(), root)
	}
	return l, nil
}

// checkPath refuses paths that QEMU's or Lima's own syntax would take apart.
func checkPath(what, p string) error {
	bad := ""
	switch {
	case !filepath.IsAbs(p):
		bad = "is not absolute"
	case !utf8.ValidString(p):
		bad = "is not valid UTF-8"
	case strings.ContainsRune(p, ','):
		bad = "has a comma, which QEMU takes for the start of an option"
	case strings.ContainsRune(p, ':'):
		bad = "has a colon, which divides the folders where programs are looked for"
	case strings.Contains(p, "{{"):
		bad = "has {{, which Lima takes for a template"
	case strings.ContainsFunc(p, unicode.IsControl):
		bad = "has control characters"
	default:
		return nil
	}
	return fmt.Errorf("%s %q %s; move it", what, p, bad)
}

// tail returns the last part of a text file, for error messages: at most n
// bytes, made printable. The file may be written by the guest.
func tail(root *os.Root, name string, n int64) string {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return ""
	}
	b := make([]byte, min(n, fi.Size()))
	m, _ := f.ReadAt(b, fi.Size()-int64(len(b)))
	return printable(string(b[:m]))
}

var escapes = regexp.MustCompile(`\x1b(\[[0-?]*[ -/]*[@-~]|[@-~])`)

// printable keeps line feeds and visible characters; escape sequences go and
// control characters become spaces, so that a guest's text cannot steer a terminal.
func printable(s string) string {
	s = escapes.ReplaceAllString(s, "")
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r == '\r':
			return -1
		case r == utf8.RuneError || !unicode.IsGraphic(r) || unicode.Is(unicode.Cf, r):
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, " "))
	return strings.TrimSpace(s)
}

// errNotOurs: a folder that this manager did not make.
var errNotOurs = errors.New("the folder was not made by Glasshouse")

// hasDisk returns ErrNotExist for a machine whose disk is gone, and another error
// when that cannot be told.
func (l layout) hasDisk() error {
	_, err := os.Stat(l.disk())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("machine %q has lost its disk (%s): %w", l.id, l.disk(), vm.ErrNotExist)
	case err != nil:
		return fmt.Errorf("the disk of machine %q cannot be looked at: %w", l.id, err)
	}
	return nil
}
