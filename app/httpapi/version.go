package httpapi

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// Generation of /v1. It grows when a call or an event changes so that a program of the
// generation before would take it wrongly; what is merely added leaves it. /v1/info
// and /v1/quit are understood by every generation, so that one can end another.
const Generation = 1

// Program is what a process that speaks or answers /v1 runs. A core that is older than
// this type says its version alone.
type Program struct {
	Version string `json:"version"`
	API     int    `json:"api" doc:"generation of /v1 that it speaks; programs of different ones do not work together"`
	Path    string `json:"path,omitempty"`
	Build   string `json:"build,omitempty" doc:"differs between builds of one version; empty where it is not known"`
}

// ThisProgram is what this process runs.
func ThisProgram(version string) Program {
	path, _ := os.Executable()
	return Program{Version: version, API: Generation, Path: path, Build: thisBuild()}
}

// Differ compares the program of a core with that of one who calls it, and says in a
// sentence how they differ and what to do; "" when they do not. fits is false where
// they would misunderstand each other.
func Differ(core Info, own Program) (text string, fits bool) {
	c := Program{API: 1}
	if core.Program != nil {
		c = *core.Program
	}
	c.Version = core.Version
	rest := "when nothing runs, 'glasshouse quit' ends it, and the next command or window starts this one; projects, sessions and the log are kept"
	switch {
	case c.Version == "" || own.Version == "":
		return "", true // nothing that can be compared
	case c.API != own.API:
		newer := ""
		if c.API > own.API && c.Path != "" {
			newer = " The newer one is " + c.Path + "."
		}
		return fmt.Sprintf("the core that runs is Glasshouse %s and this is %s; they do not understand each other (generations %d and %d of their calls).%s To go on with this one: %s", c.Version, own.Version, c.API, own.API, newer, rest), false
	case c.Version != own.Version:
		return fmt.Sprintf("the core that runs is Glasshouse %s and this is %s; they work together, but for what only one of them knows. To use this one alone: %s", c.Version, own.Version, rest), true
	case c.Path != "" && c.Path == own.Path && c.Build != "" && own.Build != "" && c.Build != own.Build:
		return fmt.Sprintf("the core that runs was started before this program (Glasshouse %s) was built anew; they work together, but for what only one of them knows. To use the new one alone: %s", own.Version, rest), true
	}
	return "", true
}

// infoMost bounds an answer of /v1/info that is read whole.
const infoMost = 1 << 20

type telling struct {
	next http.RoundTripper
	own  Program
}

// Telling is a way to the core for a page that another program than the core's may
// hold: answers of /v1/info say in "page" which one that is, and in "differs" what the
// person should know when it is another.
func Telling(next http.RoundTripper, own Program) http.RoundTripper { return telling{next, own} }

func (t telling) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil || r.Method != http.MethodGet || r.URL.Path != "/v1/info" || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, infoMost+1))
	if err != nil || len(b) > infoMost {
		resp.Body.Close()
		return nil, errors.Join(errors.New("what the core says of itself could not be read"), err)
	}
	resp.Body.Close()
	var all map[string]json.RawMessage // of a newer core too, with fields not known here
	var core Info
	if json.Unmarshal(b, &all) == nil && json.Unmarshal(b, &core) == nil && all != nil {
		all["page"], _ = json.Marshal(t.own)
		delete(all, "differs")
		if text, _ := Differ(core, t.own); text != "" {
			all["differs"], _ = json.Marshal(text)
		}
		if with, err := json.Marshal(all); err == nil {
			b = with
		}
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	resp.Header.Set("Content-Length", strconv.Itoa(len(b)))
	return resp, nil
}

// thisBuild is the identity that the linker gave this program, read at the first call:
// its file may be replaced later.
var thisBuild = sync.OnceValue(func() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	if runtime.GOOS == "linux" {
		path = "/proc/self/exe" // also when the file is replaced already
	}
	return buildOf(path)
})

func buildOf(path string) string {
	if f, err := elf.Open(path); err == nil {
		defer f.Close()
		s := f.Section(".note.go.buildid")
		if s == nil || s.Size > 4096 {
			return ""
		}
		note, err := s.Data() // sizes of name and text, a type, the name "Go\0\0", the text
		if err != nil || len(note) < 16 {
			return ""
		}
		n := f.ByteOrder.Uint32(note[4:])
		return string(note[16:min(16+int(min(n, 4096)), len(note))])
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 64<<10))
	_, id, _ := strings.Cut(string(b), "\xff Go build ID: \"")
	id, _, found := strings.Cut(id, "\"")
	if !found {
		return ""
	}
	return id
}
