package git

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"glasshouse/backend/git/packcheck"
	"glasshouse/vm/proc"
)

// Received says what a pack brought.
type Received struct {
	Objects      int
	Bytes        int64 // of the pack
	Inflated     int64
	Findings     []Finding // things a person should see, at most packcheck.MaxFindings
	MoreFindings int
}

// reportBytes bounds what is read of the checking process's answer.
const reportBytes = 4 << 20

var packName = regexp.MustCompile(`^pack-[0-9a-f]{40}$`)

// Receive takes a pack from a guest over into the mirror. A process with limits
// checks it first (package packcheck): until it says yes the mirror is unchanged,
// and afterwards every object in it is whole, named by its true hash, connected to
// what was there, and holds no name that could harm a checkout. want are the
// commits that must be there at the end. Errors are *PackError; no reference is moved.
//
// When r can be closed it is closed once ctx ends, so that a silent guest cannot
// hold the call.
func (m *Mirror) Receive(ctx context.Context, r io.Reader, want []string, lim Limits) (Received, error) {
	return m.receive(ctx, r, want, lim, true)
}

func (m *Mirror) receive(ctx context.Context, r io.Reader, want []string, lim Limits, known bool) (Received, error) {
	var out Received
	if err := os.MkdirAll(m.quarantineDir(), 0o700); err != nil {
		return out, err
	}
	q, err := os.MkdirTemp(m.quarantineDir(), "in-")
	if err != nil {
		return out, err
	}
	defer os.RemoveAll(q)
	job := packcheck.Job{Quarantine: q, Want: want, Limits: lim}
	if known {
		job.Known = []string{m.objectsDir()}
	}
	arg, err := json.Marshal(job)
	if err != nil {
		return out, err
	}
	// A file is the process's own input, which ends with it, and whoever gave it closes
	// it: closing it here could meet the very start of the process.
	if c, ok := r.(io.Closer); ok && !isFile(r) {
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		defer stop()
	}
	answer := &limited{max: reportBytes}
	res, runErr := m.opt.Runner.Run(ctx, proc.Cmd{
		Role: IndexRole, Path: m.opt.IndexCommand[0], Args: append(m.opt.IndexCommand[1:len(m.opt.IndexCommand):len(m.opt.IndexCommand)], string(arg)),
		Dir: q, Env: []string{"LANG=C.UTF-8", "GOTRACEBACK=none"}, Stdin: r, Stdout: answer, Timeout: timeoutOf(lim),
	})
	var rep packcheck.Report
	if json.Unmarshal(answer.b.Bytes(), &rep) != nil || answer.over {
		// No answer: the process was ended by a limit, a signal or a deadline.
		switch {
		case ctx.Err() != nil:
			return out, context.Cause(ctx)
		case runErr == nil:
			runErr = errors.New("it gave no answer")
		case errors.Is(runErr, proc.ErrTimeout):
			return out, &PackError{ErrTooLarge, "checking them took longer than is allowed"}
		}
		return out, &PackError{ErrTooLarge, fmt.Sprintf("the process that checked them was ended by its limits (exit %d: %s)", res.Code, lastLine(runErr))}
	}
	if !rep.OK {
		why := map[string]error{"too_large": ErrTooLarge, "corrupt": ErrCorrupt, "refused": ErrRefused, "missing": ErrMissing}[rep.Code]
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		return out, &PackError{why, rep.Error}
	}
	out = Received{rep.Objects, rep.Bytes, rep.Inflated, rep.Findings, rep.More}
	if len(out.Findings) > packcheck.MaxFindings {
		out.Findings = out.Findings[:packcheck.MaxFindings]
	}
	if rep.Pack == "" {
		return out, nil
	}
	if !packName.MatchString(rep.Pack) {
		return Received{}, &PackError{nil, "the checking process named its files wrongly"}
	}
	return out, m.adopt(q, rep.Pack)
}

func isFile(r io.Reader) bool {
	_, ok := r.(*os.File)
	return ok
}

// adopt moves a checked pack into the object store: the pack first, as an index
// without its pack would be an error to every reader.
func (m *Mirror) adopt(q, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dst := filepath.Join(m.objectsDir(), "pack")
	if _, err := os.Lstat(filepath.Join(dst, name+".idx")); err == nil {
		return nil // the very same pack came before
	}
	for _, ext := range []string{".pack", ".idx"} {
		if err := os.Rename(filepath.Join(q, name+ext), filepath.Join(dst, name+ext)); err != nil {
			return fmt.Errorf("taking the objects over: %w", err)
		}
	}
	return syncDir(dst)
}

func timeoutOf(lim Limits) time.Duration {
	if lim.CPUSeconds <= 0 {
		lim.CPUSeconds = packcheck.Guest().CPUSeconds
	}
	return time.Duration(lim.CPUSeconds)*time.Second*2 + time.Minute
}

// limited keeps what is written up to a limit.
type limited struct {
	b    bytes.Buffer
	max  int
	over bool
}

func (l *limited) Write(p []byte) (int, error) {
	if l.b.Len()+len(p) > l.max {
		l.over = true
		return len(p), nil
	}
	return l.b.Write(p)
}

func lastLine(err error) string {
	s := err.Error()
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return s
}
