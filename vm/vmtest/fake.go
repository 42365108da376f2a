package vmtest

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"glasshouse/vm/guest"
)

// World is what is inside of a machine that exists in memory alone: files, a
// journal of executions, checkpoints. Guests are channels to it. For tests of
// sessions, where every step of a command must be in the test's hands.
type World struct {
	// OnExec plays a command; nil ends every command with code 0. It runs in a
	// goroutine of its own and should return when ctx ends: it was killed then.
	OnExec func(ctx context.Context, spec guest.ExecSpec, x *Exec) guest.Exit
	// Fail, when it returns an error for a method's name ("checkpoints.take"),
	// makes the call fail with it.
	Fail func(method string) error
	// Candidate is what Git.Candidate answers.
	Candidate guest.Candidate
	// Head is what Git.Head answers.
	Head guest.HeadInfo
	// OnBrowser answers Browser; nil: there is none.
	OnBrowser func(spec guest.BrowserSpec) (io.ReadWriteCloser, error)
	// Pack is what Git.Export answers.
	Pack []byte

	mu       sync.Mutex
	boot     int
	guest    *Guest
	files    map[string][]byte
	execs    map[string]*Exec
	order    []string
	commits  map[string]map[string][]byte
	parents  map[string]string
	last     guest.Checkpoint
	taken    []guest.CheckpointRequest
	ended    []string
	imported []guest.ImportRequest
	watchers map[chan guest.ChangeBatch]struct{}
}

// NewWorld returns an empty one.
func NewWorld() *World {
	return &World{
		boot: 1, files: map[string][]byte{}, execs: map[string]*Exec{}, commits: map[string]map[string][]byte{},
		parents:  map[string]string{},
		watchers: map[chan guest.ChangeBatch]struct{}{},
	}
}

// Open opens a channel. An earlier one is lost by it.
func (w *World) Open() *Guest {
	w.mu.Lock()
	old := w.guest
	g := &Guest{w: w, done: make(chan struct{}), hello: guest.Hello{
		Generation: guest.Generation, BootID: fmt.Sprintf("boot-%d", w.boot), Hostname: "fake", Kind: "sandbox", AgentHash: strings.Repeat("0", 64),
	}}
	w.guest = g
	w.mu.Unlock()
	if old != nil {
		old.lose(guest.ErrGone)
	}
	return g
}

// Drop loses the channel; what runs goes on.
func (w *World) Drop() {
	w.mu.Lock()
	g := w.guest
	w.mu.Unlock()
	if g != nil {
		g.lose(guest.ErrGone)
	}
}

// Crash is a power cut and a new boot: the channel is lost, what ran is known
// no more, files and checkpoints stay.
func (w *World) Crash() {
	w.Drop()
	w.mu.Lock()
	w.boot++
	running := []*Exec{}
	for id, x := range w.execs {
		if !x.over() {
			running = append(running, x)
			delete(w.execs, id)
			w.order = slices.DeleteFunc(w.order, func(s string) bool { return s == id })
		}
	}
	w.mu.Unlock()
	for _, x := range running {
		x.cancel()
	}
}

// Put writes a file as a command inside would, and tells who watches.
func (w *World) Put(name string, data []byte) {
	p, err := inside(name)
	if err != nil {
		panic(err)
	}
	w.mu.Lock()
	_, was := w.files[p]
	w.files[p] = slices.Clone(data)
	w.mu.Unlock()
	op := "add"
	if was {
		op = "modify"
	}
	w.tell(guest.PathChange{Path: strings.TrimPrefix(p, guest.Workspace+"/"), Op: op, Size: int64(len(data)), Mode: 0o644})
}

// Get reads a file; ok is false when there is none.
func (w *World) Get(name string) (data []byte, ok bool) {
	p, err := inside(name)
	if err != nil {
		return nil, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	data, ok = w.files[p]
	return slices.Clone(data), ok
}

// Taken lists the checkpoints that were asked for.
func (w *World) Taken() []guest.CheckpointRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.taken)
}

// EndedSessions lists the sessions whose background children were ended.
func (w *World) EndedSessions() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.ended)
}

// Imported lists the imports that were made.
func (w *World) Imported() []guest.ImportRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.imported)
}

// Started lists the ids of executions, in the order of their starts.
func (w *World) Started() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.order)
}

func (w *World) tell(c ...guest.PathChange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.watchers {
		select {
		case ch <- guest.ChangeBatch{Epoch: uint64(w.boot), Changes: c}:
		default: // a reader that does not read; the real one resyncs
		}
	}
}

func inside(name string) (string, error) {
	p := name
	if !path.IsAbs(p) {
		p = path.Join(guest.Workspace, p)
	}
	p = path.Clean(p)
	for _, d := range []string{guest.Workspace, guest.Home, "/tmp"} {
		if p == d || strings.HasPrefix(p, d+"/") {
			return p, nil
		}
	}
	return "", fmt.Errorf("%w: %s", guest.ErrRefused, name)
}

// Guest is one channel to a World.
type Guest struct {
	w     *World
	hello guest.Hello

	once sync.Once
	done chan struct{}
	err  error
}

var _ guest.Guest = (*Guest)(nil)

func (g *Guest) lose(err error) {
	g.once.Do(func() { g.err = err; close(g.done) })
}

// ok says whether a call may go on.
func (g *Guest) ok(ctx context.Context, method string) error {
	select {
	case <-g.done:
		return fmt.Errorf("%s: %w", method, guest.ErrGone)
	default:
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if f := g.w.Fail; f != nil {
		return f(method)
	}
	return nil
}

func (g *Guest) Hello() guest.Hello             { return g.hello }
func (g *Guest) Execs() guest.Execs             { return fakeExecs{g} }
func (g *Guest) Files() guest.Files             { return fakeFiles{g} }
func (g *Guest) Checkpoints() guest.Checkpoints { return fakeCheckpoints{g} }
func (g *Guest) Git() guest.Git                 { return fakeGit{g} }
func (g *Guest) Done() <-chan struct{}          { return g.done }

func (g *Guest) Err() error {
	select {
	case <-g.done:
		return g.err
	default:
		return nil
	}
}

func (g *Guest) Close() error {
	g.lose(guest.ErrGone)
	return nil
}

func (g *Guest) Browser(ctx context.Context, spec guest.BrowserSpec) (io.ReadWriteCloser, error) {
	if err := g.ok(ctx, "browser"); err != nil {
		return nil, err
	}
	if g.w.OnBrowser == nil {
		return nil, fmt.Errorf("no browser in this world")
	}
	return g.w.OnBrowser(spec)
}

func (g *Guest) Watch(ctx context.Context) (<-chan guest.ChangeBatch, error) {
	if err := g.ok(ctx, "watch"); err != nil {
		return nil, err
	}
	in := make(chan guest.ChangeBatch, 256)
	g.w.mu.Lock()
	first := guest.ChangeBatch{Epoch: uint64(g.w.boot)}
	g.w.watchers[in] = struct{}{}
	g.w.mu.Unlock()
	out := make(chan guest.ChangeBatch)
	go func() {
		defer close(out)
		defer func() {
			g.w.mu.Lock()
			delete(g.w.watchers, in)
			g.w.mu.Unlock()
		}()
		for b, seq := first, uint64(1); ; seq++ {
			b.Seq = seq
			select {
			case out <- b:
			case <-ctx.Done():
				return
			case <-g.done:
				return
			}
			select {
			case b = <-in:
			case <-ctx.Done():
				return
			case <-g.done:
				return
			}
		}
	}()
	return out, nil
}

func (g *Guest) Stats(ctx context.Context) (guest.Stats, error) {
	if err := g.ok(ctx, "stats"); err != nil {
		return guest.Stats{}, err
	}
	return guest.Stats{MemUsedKiB: 1 << 10, MemTotalKiB: 1 << 20, DiskUsedKiB: 1 << 10, DiskTotalKiB: 1 << 24, Procs: 1, Uptime: time.Minute}, nil
}

func (g *Guest) Shutdown(ctx context.Context) error {
	if err := g.ok(ctx, "shutdown"); err != nil {
		return err
	}
	g.w.Crash()
	return nil
}

// fakeCheckpoints keep copies of the files below the workspace.
type fakeCheckpoints struct{ g *Guest }

func snapshot(files map[string][]byte) map[string][]byte {
	out := map[string][]byte{}
	for p, b := range files {
		if strings.HasPrefix(p, guest.Workspace+"/") {
			out[strings.TrimPrefix(p, guest.Workspace+"/")] = b
		}
	}
	return out
}

func treeOf(files map[string][]byte) string {
	h := sha1.New()
	for _, p := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%s\x00%x\x00", p, sha1.Sum(files[p]))
	}
	return hex.EncodeToString(h.Sum(nil))
}

func changes(from, to map[string][]byte) (out []guest.FileChange) {
	for _, p := range slices.Sorted(maps.Keys(to)) {
		if old, ok := from[p]; !ok {
			out = append(out, guest.FileChange{Path: p, Op: "add", NewMode: 0o100644})
		} else if string(old) != string(to[p]) {
			out = append(out, guest.FileChange{Path: p, Op: "modify", OldMode: 0o100644, NewMode: 0o100644})
		}
	}
	for _, p := range slices.Sorted(maps.Keys(from)) {
		if _, ok := to[p]; !ok {
			out = append(out, guest.FileChange{Path: p, Op: "delete", OldMode: 0o100644})
		}
	}
	return out
}

func (c fakeCheckpoints) Take(ctx context.Context, req guest.CheckpointRequest) (guest.Checkpoint, error) {
	if err := c.g.ok(ctx, "checkpoints.take"); err != nil {
		return guest.Checkpoint{}, err
	}
	w := c.g.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taken = append(w.taken, req)
	return w.take(), nil
}

// take records the workspace; w.mu is held.
func (w *World) take() guest.Checkpoint {
	now := snapshot(w.files)
	tree := treeOf(now)
	if w.last.Tree == tree {
		w.last.Same, w.last.Changes = true, nil
		return w.last
	}
	cp := guest.Checkpoint{Tree: tree, Parent: w.last.Commit, Sum: sum([]byte(tree)), Changes: changes(w.commits[w.last.Commit], now)}
	cp.Commit = sum([]byte(cp.Parent + tree))[:40]
	w.commits[cp.Commit], w.parents[cp.Commit], w.last = now, cp.Parent, cp
	return cp
}

func (c fakeCheckpoints) Diff(ctx context.Context, from, to string) ([]guest.FileChange, bool, error) {
	if err := c.g.ok(ctx, "checkpoints.diff"); err != nil {
		return nil, false, err
	}
	w := c.g.w
	w.mu.Lock()
	defer w.mu.Unlock()
	a, okA := w.commits[from]
	b, okB := w.commits[to]
	if !okA || !okB {
		return nil, false, fmt.Errorf("%w: checkpoint %s or %s", guest.ErrNotFound, from, to)
	}
	return changes(a, b), false, nil
}

func (c fakeCheckpoints) Show(ctx context.Context, q guest.ShowRequest) (f guest.KeptFile, err error) {
	if err := c.g.ok(ctx, "checkpoints.show"); err != nil {
		return f, err
	}
	w := c.g.w
	w.mu.Lock()
	defer w.mu.Unlock()
	files, ok := w.commits[q.Commit]
	if !ok {
		return f, fmt.Errorf("%w: checkpoint %s", guest.ErrNotFound, q.Commit)
	}
	if q.Before {
		files = w.commits[w.parents[q.Commit]]
	}
	b, ok := files[q.Path]
	if !ok {
		return f, nil
	}
	return guest.KeptFile{Mode: 0o100644, Size: int64(len(b)), Data: slices.Clone(b[:min(int64(len(b)), q.Limit)])}, nil
}

func (c fakeCheckpoints) Restore(ctx context.Context, commit string) (guest.Checkpoint, error) {
	if err := c.g.ok(ctx, "checkpoints.restore"); err != nil {
		return guest.Checkpoint{}, err
	}
	w := c.g.w
	w.mu.Lock()
	defer w.mu.Unlock()
	files, ok := w.commits[commit]
	if !ok {
		return guest.Checkpoint{}, fmt.Errorf("%w: checkpoint %s", guest.ErrNotFound, commit)
	}
	before := w.take()
	maps.DeleteFunc(w.files, func(p string, _ []byte) bool { return strings.HasPrefix(p, guest.Workspace+"/") })
	for p, b := range files {
		w.files[guest.Workspace+"/"+p] = slices.Clone(b)
	}
	return before, nil
}

// fakeGit answers what the World was told to.
type fakeGit struct{ g *Guest }

func (f fakeGit) Import(ctx context.Context, req guest.ImportRequest, pack io.Reader) error {
	if err := f.g.ok(ctx, "git.import"); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, pack); err != nil {
		return err
	}
	w := f.g.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.imported = append(w.imported, req)
	w.Head = guest.HeadInfo{Branch: req.Branch, Commit: req.Commit, Clean: len(req.Overlay) == 0, Repo: true}
	for _, o := range req.Overlay {
		w.files[path.Join(guest.Workspace, o.Path)] = slices.Clone(o.Data)
	}
	return nil
}

// Repair makes one where Head says that there is none.
func (f fakeGit) Repair(ctx context.Context, req guest.ImportRequest, pack io.Reader) (bool, error) {
	if err := f.g.ok(ctx, "git.repair"); err != nil {
		return false, err
	}
	w := f.g.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Head.Repo {
		return false, nil
	}
	if _, err := io.Copy(io.Discard, pack); err != nil {
		return false, err
	}
	w.imported = append(w.imported, req)
	w.Head = guest.HeadInfo{Branch: req.Branch, Commit: req.Commit, Repo: true}
	return true, nil
}

func (f fakeGit) Head(ctx context.Context) (guest.HeadInfo, error) {
	if err := f.g.ok(ctx, "git.head"); err != nil {
		return guest.HeadInfo{}, err
	}
	f.g.w.mu.Lock()
	defer f.g.w.mu.Unlock()
	return f.g.w.Head, nil
}

func (f fakeGit) Candidate(ctx context.Context, _, _ string) (guest.Candidate, error) {
	if err := f.g.ok(ctx, "git.candidate"); err != nil {
		return guest.Candidate{}, err
	}
	return f.g.w.Candidate, nil
}

func (f fakeGit) Export(ctx context.Context, _, _ []string, maxBytes int64) (io.ReadCloser, error) {
	if err := f.g.ok(ctx, "git.export"); err != nil {
		return nil, err
	}
	if int64(len(f.g.w.Pack)) > maxBytes {
		return nil, fmt.Errorf("%w: the pack", guest.ErrTooLarge)
	}
	return io.NopCloser(strings.NewReader(string(f.g.w.Pack))), nil
}
