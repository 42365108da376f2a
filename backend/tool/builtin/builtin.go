// Package builtin is the set of tools every session has: commands and files in the
// machine, its browser, and questions to the person. What comes out of the machine
// is cut to fixed sizes and made valid text here; the whole output of a command is
// kept as an artefact.
package builtin

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"glasshouse/backend/domain"
	"glasshouse/backend/tool"
	"glasshouse/vm/guest"
)

// All returns the tools, in the order in which they are documented.
func All() []tool.Tool {
	return []tool.Tool{
		execTool(),
		readTool(), writeTool(), editTool(), listTool(), globTool(), searchTool(),
		browserOpen(), browserSnapshot(), browserClick(), browserType(), browserScreenshot(),
		askUser(),
		restoreTool(),
	}
}

// maxText is how many bytes of JSON a text in an answer takes at most; an answer
// has room for two and some fields (tool.MaxResult).
const maxText = 14 << 10

// args decodes valid arguments into a struct; the schema was checked before.
func args[T any](raw json.RawMessage) T {
	var v T
	_ = json.Unmarshal(raw, &v)
	return v
}

func answer(v any) (tool.Result, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return tool.Result{}, err
	}
	if len(raw) > tool.MaxResult {
		return tool.Result{}, domain.E(domain.CodeTooLarge, "The answer is too large", "ask for less at a time", nil)
	}
	return tool.Result{JSON: raw, Outcome: domain.OutcomeOK}, nil
}

func machine(c *tool.Call) (guest.Guest, error) {
	if c.Guest == nil {
		return nil, domain.E(domain.CodeUnavailable, "The machine is not running", "start it and try again; nothing ran", nil)
	}
	return c.Guest, nil
}

// abs is where a path of an argument lies in the guest.
func abs(p string) string {
	if p == "" {
		return guest.Workspace
	}
	if !path.IsAbs(p) {
		p = guest.Workspace + "/" + p
	}
	return path.Clean(p)
}

func checkPath(pointer, p string) error {
	if strings.ContainsRune(p, 0) {
		e := domain.E(domain.CodeInvalid, "A path cannot hold a zero byte", "", nil)
		e.Pointer = pointer
		return e
	}
	return nil
}

// fileError says what a failure of the guest's files means for the caller.
func fileError(p string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, guest.ErrNotFound):
		return domain.E(domain.CodeNotFound, fmt.Sprintf("There is no %s", show(p)), "look with list or glob; paths are relative to /workspace", err)
	case errors.Is(err, guest.ErrConflict):
		return domain.E(domain.CodeConflict, fmt.Sprintf("%s changed since it was read", show(p)), "read it again and repeat the change on what is there now", err)
	case errors.Is(err, guest.ErrRefused):
		return domain.E(domain.CodeDenied, fmt.Sprintf("%s cannot be used", show(p)), "paths must be plain files below /workspace, /home/agent or /tmp, and links may not lead out; exec reaches everything else in the machine", err)
	case errors.Is(err, guest.ErrTooLarge):
		return domain.E(domain.CodeTooLarge, fmt.Sprintf("%s is too large", show(p)), "work on a part of it with exec", err)
	case errors.Is(err, guest.ErrGone):
		return domain.E(domain.CodeUnavailable, "The connection to the machine is lost", "try again when it is back; a file that was being written is either the old one or the new one", err)
	}
	return fmt.Errorf("%s: %w", show(p), err)
}

// show makes a name from the guest fit for a message.
func show(s string) string { return tool.OneLine(strings.ToValidUTF8(s, "\uFFFD"), 200) }

// clean makes text of the guest valid; JSON takes the rest.
func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// cost is how many bytes a rune takes in JSON as encoding/json writes it.
func cost(r rune) int {
	switch {
	case r == '"' || r == '\\' || r == '\n' || r == '\r' || r == '\t' || r == '\b' || r == '\f':
		return 2
	case r < 0x20 || r == '<' || r == '>' || r == '&' || r == 0x7f || r == '\u2028' || r == '\u2029':
		return 6
	}
	return utf8.RuneLen(r)
}

// headOf cuts valid text to at most n bytes of JSON.
func headOf(s string, n int) string {
	used := 0
	for i, r := range s {
		if used += cost(r); used > n {
			return s[:i]
		}
	}
	return s
}

// tailOf keeps the end of valid text, at most n bytes of JSON.
func tailOf(s string, n int) string {
	used := 0
	for i := len(s); i > 0; {
		r, size := utf8.DecodeLastRuneInString(s[:i])
		if used += cost(r); used > n {
			return s[i:]
		}
		i -= size
	}
	return s
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
