package proto

import (
	"errors"
	"fmt"
	"time"

	"glasshouse/vm/guest"
)

// Limits of what a guest may say of an end.
const (
	maxBackground = 64
	maxWords      = 32
	maxWord       = 256
	maxText       = 1000
)

// Words turns strings into the wire's byte words.
func Words(s []string) [][]byte {
	out := make([][]byte, len(s))
	for i, w := range s {
		out[i] = []byte(w)
	}
	return out
}

// Strings turns byte words back, keeping at most n of max bytes each.
func Strings(b [][]byte, n, max int) []string {
	if len(b) == 0 {
		return nil
	}
	out := make([]string, 0, min(len(b), n))
	for i := 0; i < len(b) && i < n; i++ {
		w := b[i]
		if len(w) > max {
			w = w[:max]
		}
		out = append(out, string(w))
	}
	return out
}

// Text bounds a string the guest said.
func Text(s string, max int) string {
	if len(s) > max {
		return s[:max]
	}
	return s
}

func unixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// Time reads a wire time; out of range is the zero time.
func Time(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

// FromSpec puts a command on the wire.
func FromSpec(s guest.ExecSpec) *ExecStart {
	m := &ExecStart{
		Id: s.ID, Session: s.Session, Step: s.Step, Argv: Words(s.Argv), Dir: []byte(s.Dir), Stdin: s.Stdin,
		Timeout: int64(s.Timeout), Grace: int64(s.Grace), OutputLimit: s.OutputLimit,
		MemoryMib: int64(s.Limits.MemoryMiB), Pids: int64(s.Limits.Pids), Root: s.Root,
	}
	for k, v := range s.Env {
		m.Env = append(m.Env, &EnvVar{Name: []byte(k), Value: []byte(v)})
	}
	if s.TTY != nil {
		m.Tty = FromWinsize(*s.TTY)
	}
	return m
}

// Spec reads a checked command.
func (s *ExecStart) Spec() guest.ExecSpec {
	g := guest.ExecSpec{
		ID: s.Id, Session: s.Session, Step: s.Step, Argv: Strings(s.Argv, MaxArgv, MaxArgBytes), Dir: string(s.Dir), Stdin: s.Stdin,
		Timeout: time.Duration(s.Timeout), Grace: time.Duration(s.Grace), OutputLimit: s.OutputLimit,
		Limits: guest.Limits{MemoryMiB: int(s.MemoryMib), Pids: int(s.Pids)}, Root: s.Root,
	}
	if g.OutputLimit == 0 {
		g.OutputLimit = DefaultOutputLimit
	}
	if len(s.Env) > 0 {
		g.Env = make(map[string]string, len(s.Env))
		for _, e := range s.Env {
			g.Env[string(e.Name)] = string(e.Value)
		}
	}
	if s.Tty != nil {
		w := s.Tty.Size16()
		g.TTY = &w
	}
	return g
}

// FromWinsize puts a terminal size on the wire.
func FromWinsize(w guest.Winsize) *Winsize {
	return &Winsize{Rows: uint32(w.Rows), Cols: uint32(w.Cols)}
}

// Size16 reads a checked terminal size.
func (x *Winsize) Size16() guest.Winsize {
	return guest.Winsize{Rows: uint16(x.GetRows()), Cols: uint16(x.GetCols())}
}

// FromExit puts an end on the wire; tails only if asked.
func FromExit(x guest.Exit, tails bool) *ExecExit {
	m := &ExecExit{
		Code: int32(x.Code), Signal: x.Signal, TimedOut: x.TimedOut, Killed: x.Killed, Oom: x.OOM,
		StartError: cut(x.StartError), Unknown: x.Unknown,
		Stdout: fromEnd(x.Stdout, tails), Stderr: fromEnd(x.Stderr, tails),
		UserCpu: int64(x.UserCPU), SysCpu: int64(x.SysCPU), MaxRssKib: x.MaxRSSKiB,
		StartedAt: unixNano(x.StartedAt), EndedAt: unixNano(x.EndedAt),
	}
	for i, b := range x.Background {
		if i == maxBackground {
			break
		}
		m.Background = append(m.Background, &BackgroundProcess{Pid: int32(b.Pid), Argv: Words(b.Argv)})
	}
	return m
}

func fromEnd(e guest.StreamEnd, tail bool) *StreamEnd {
	m := &StreamEnd{Total: e.Total, Dropped: e.Dropped}
	if tail {
		m.Tail = e.Tail
	}
	return m
}

// Exit reads an end as a guest said it, bounded.
func (x *ExecExit) Exit() (guest.Exit, error) {
	g := guest.Exit{
		Code: int(x.GetCode()), Signal: Text(x.GetSignal(), 16), TimedOut: x.GetTimedOut(), Killed: x.GetKilled(), OOM: x.GetOom(),
		StartError: Text(x.GetStartError(), maxText), Unknown: x.GetUnknown(),
		UserCPU: time.Duration(max(x.GetUserCpu(), 0)), SysCPU: time.Duration(max(x.GetSysCpu(), 0)), MaxRSSKiB: max(x.GetMaxRssKib(), 0),
		StartedAt: Time(x.GetStartedAt()), EndedAt: Time(x.GetEndedAt()),
	}
	for _, e := range []struct {
		from *StreamEnd
		to   *guest.StreamEnd
	}{{x.GetStdout(), &g.Stdout}, {x.GetStderr(), &g.Stderr}} {
		if len(e.from.GetTail()) > guest.TailBytes {
			return g, fmt.Errorf("the guest sent a tail of %d bytes", len(e.from.GetTail()))
		}
		*e.to = guest.StreamEnd{Total: max(e.from.GetTotal(), 0), Dropped: max(e.from.GetDropped(), 0), Tail: e.from.GetTail()}
	}
	for i, b := range x.GetBackground() {
		if i == maxBackground {
			break
		}
		g.Background = append(g.Background, guest.BackgroundProcess{Pid: int(b.GetPid()), Argv: Strings(b.GetArgv(), maxWords, maxWord)})
	}
	return g, nil
}

// FromState puts a line of the journal on the wire.
func FromState(s guest.ExecState) *ExecState {
	m := &ExecState{Id: s.ID, Session: s.Session, Step: s.Step, Running: s.Running, Stdout: s.Stdout, Stderr: s.Stderr}
	total := 0
	for _, a := range s.Argv { // a long command is cut: the host knows it anyway
		if total += len(a); total > 64<<10 {
			break
		}
		m.Argv = append(m.Argv, []byte(a))
	}
	if !s.Running {
		m.Exit = FromExit(s.Exit, false)
	}
	return m
}

// State reads a line of the journal, bounded.
func (x *ExecState) State() (guest.ExecState, error) {
	if err := CheckID("id", x.GetId()); err != nil {
		return guest.ExecState{}, fmt.Errorf("the guest sent a bad execution: %w", err)
	}
	g := guest.ExecState{
		ID: x.Id, Session: Text(x.Session, MaxID), Step: Text(x.Step, MaxID), Argv: Strings(x.Argv, MaxArgv, 64<<10),
		Running: x.Running, Stdout: max(x.Stdout, 0), Stderr: max(x.Stderr, 0),
	}
	var err error
	if x.Exit != nil {
		g.Exit, err = x.Exit.Exit()
		g.Exit.Stdout.Tail, g.Exit.Stderr.Tail = nil, nil
	}
	return g, err
}

// maxMatchText bounds a matching line.
const maxMatchText = 1000

// FromInfo puts a file's description on the wire.
func FromInfo(f guest.FileInfo) *FileInfo {
	return &FileInfo{
		Path: []byte(f.Path), Type: f.Type, Size: f.Size, Mode: f.Mode, ModTime: unixNano(f.ModTime), Sha256: f.Sha256, Target: []byte(f.Target), Ignored: f.Ignored,
	}
}

// Info reads a file's description as a guest said it.
func (x *FileInfo) Info() (guest.FileInfo, error) {
	if err := errors.Join(CheckPath("path", x.GetPath()), CheckPath("target", x.GetTarget())); err != nil {
		return guest.FileInfo{}, said(err)
	}
	f := guest.FileInfo{
		Path: string(x.GetPath()), Size: max(x.GetSize(), 0), Mode: x.GetMode() & 0o7777, ModTime: Time(x.GetModTime()), Target: string(x.GetTarget()), Ignored: x.GetIgnored(),
	}
	switch t := x.GetType(); t {
	case "file", "dir", "link":
		f.Type = t
	default:
		f.Type = "other"
	}
	if x.GetSha256() != "" {
		if len(x.Sha256) != 64 || CheckHash("sha256", x.Sha256, false) != nil {
			return f, said(errors.New("a file's sha256 is none"))
		}
		f.Sha256 = x.Sha256
	}
	return f, nil
}

func said(err error) error { return fmt.Errorf("the guest's answer is broken: %w", err) }

// FromChange puts a changed path on the wire.
func FromChange(c guest.FileChange) *FileChange {
	return &FileChange{
		Path: []byte(c.Path), OldPath: []byte(c.OldPath), Op: c.Op, OldMode: c.OldMode, NewMode: c.NewMode,
		Added: int64(c.Added), Deleted: int64(c.Deleted), Binary: c.Binary,
	}
}

// Change reads a changed path.
func (x *FileChange) Change() (guest.FileChange, error) {
	if err := errors.Join(CheckPath("path", x.GetPath()), CheckPath("old path", x.GetOldPath())); err != nil {
		return guest.FileChange{}, said(err)
	}
	switch x.GetOp() {
	case "add", "modify", "delete", "rename", "mode", "type":
	default:
		return guest.FileChange{}, said(fmt.Errorf("the kind of change %.20q is unknown", x.GetOp()))
	}
	const most = 1 << 31
	return guest.FileChange{
		Path: string(x.Path), OldPath: string(x.OldPath), Op: x.Op, OldMode: x.OldMode, NewMode: x.NewMode,
		Added: int(min(max(x.Added, 0), most)), Deleted: int(min(max(x.Deleted, 0), most)), Binary: x.Binary,
	}, nil
}

// FromMatch puts a matching line on the wire.
func FromMatch(m guest.Match) *Match {
	t := m.Text
	if len(t) > maxMatchText {
		t = t[:maxMatchText]
	}
	return &Match{Path: []byte(m.Path), Line: int32(m.Line), Text: []byte(t)}
}

// Found reads a matching line.
func (x *Match) Found() (guest.Match, error) {
	if err := CheckPath("path", x.GetPath()); err != nil {
		return guest.Match{}, said(err)
	}
	if len(x.GetText()) > maxMatchText {
		return guest.Match{}, said(errors.New("a matching line is too long"))
	}
	return guest.Match{Path: string(x.GetPath()), Line: int(max(x.GetLine(), 0)), Text: string(x.GetText())}, nil
}

// FromPathChange puts a watcher's change on the wire.
func FromPathChange(c guest.PathChange) *PathChange {
	return &PathChange{Path: []byte(c.Path), Op: c.Op, Size: c.Size, Mode: c.Mode}
}

// Changed reads a watcher's change.
func (x *PathChange) Changed() (guest.PathChange, error) {
	if err := CheckPath("path", x.GetPath()); err != nil {
		return guest.PathChange{}, said(err)
	}
	switch x.GetOp() {
	case "add", "modify", "delete":
	default:
		return guest.PathChange{}, said(fmt.Errorf("the kind of change %.20q is unknown", x.GetOp()))
	}
	return guest.PathChange{Path: string(x.Path), Op: x.Op, Size: max(x.Size, 0), Mode: x.Mode}, nil
}
