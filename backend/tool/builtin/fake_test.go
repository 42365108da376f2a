package builtin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"path"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/tool"
	"glasshouse/browser"
	"glasshouse/vm/guest"
)

// fakeGuest is a machine in memory: a map of files and scripted processes. Unlike
// the real one it has no links, no folders of its own and no ripgrep.
type fakeGuest struct {
	guest.Guest
	execs *fakeExecs
	files *fakeFiles
}

func (g *fakeGuest) Execs() guest.Execs { return g.execs }
func (g *fakeGuest) Files() guest.Files { return g.files }

type fakeExecs struct {
	guest.Execs
	mu       sync.Mutex
	start    func(guest.ExecSpec) (*fakeProcess, error)
	attach   func(id string) (*fakeProcess, error)
	started  []guest.ExecSpec
	silent   bool // answers nothing
	killed   []string
	onKilled func(id string)
}

func (e *fakeExecs) Start(ctx context.Context, s guest.ExecSpec) (guest.Process, error) {
	e.mu.Lock()
	e.started = append(e.started, s)
	e.mu.Unlock()
	if e.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	p, err := e.start(s)
	if err != nil {
		return nil, err
	}
	p.id = s.ID
	return p, nil
}

func (e *fakeExecs) Attach(ctx context.Context, id string, _, _ int64) (guest.Process, error) {
	if e.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	p, err := e.attach(id)
	if err != nil {
		return nil, err
	}
	p.id = id
	return p, nil
}

func (e *fakeExecs) Kill(_ context.Context, id string, _ time.Duration) error {
	e.mu.Lock()
	e.killed = append(e.killed, id)
	e.mu.Unlock()
	if e.onKilled != nil {
		e.onKilled(id)
	}
	return nil
}

// fakeProcess plays back pieces; more may come through live until it is closed.
type fakeProcess struct {
	guest.Process
	id     string
	pieces []guest.Output
	live   chan guest.Output
	err    error // instead of the end
	exit   guest.Exit
	mu     sync.Mutex
	closed bool
}

func (p *fakeProcess) ID() string { return p.id }
func (p *fakeProcess) Next() (guest.Output, error) {
	p.mu.Lock()
	if len(p.pieces) > 0 {
		o := p.pieces[0]
		p.pieces = p.pieces[1:]
		p.mu.Unlock()
		return o, nil
	}
	p.mu.Unlock()
	if p.live != nil {
		if o, ok := <-p.live; ok {
			return o, nil
		}
	}
	if p.err != nil {
		return guest.Output{}, p.err
	}
	return guest.Output{}, io.EOF
}
func (p *fakeProcess) Exit() guest.Exit { p.mu.Lock(); defer p.mu.Unlock(); return p.exit }
func (p *fakeProcess) Close() error     { p.mu.Lock(); defer p.mu.Unlock(); p.closed = true; return nil }

type fakeFiles struct {
	guest.Files
	data  map[string]string
	modes map[string]uint32
	// race runs between a Read and the Write after it.
	race func(f *fakeFiles)
	err  error
}

func newFiles(kv ...string) *fakeFiles {
	f := &fakeFiles{data: map[string]string{}, modes: map[string]uint32{}}
	for i := 0; i < len(kv); i += 2 {
		f.data[kv[i]] = kv[i+1]
	}
	return f
}

func sha(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

func (f *fakeFiles) info(p string) guest.FileInfo {
	d := f.data[p]
	return guest.FileInfo{Path: p, Type: "file", Size: int64(len(d)), Sha256: sha(d)}
}

func (f *fakeFiles) Read(_ context.Context, p string, off, limit int64) (guest.FileData, error) {
	if f.err != nil {
		return guest.FileData{}, f.err
	}
	d, ok := f.data[p]
	if !ok {
		return guest.FileData{}, guest.ErrNotFound
	}
	out := guest.FileData{Info: f.info(p), Data: []byte(d[min(off, int64(len(d))):min(off+limit, int64(len(d)))]), Offset: off}
	if f.race != nil {
		f.race(f)
	}
	return out, nil
}

func (f *fakeFiles) Write(_ context.Context, p string, data []byte, o guest.WriteOptions) (guest.FileInfo, error) {
	if f.err != nil {
		return guest.FileInfo{}, f.err
	}
	d, ok := f.data[p]
	if (o.IfMatch == "absent" && ok) || (o.IfMatch != "" && o.IfMatch != "absent" && (!ok || sha(d) != o.IfMatch)) {
		return guest.FileInfo{}, guest.ErrConflict
	}
	f.data[p], f.modes[p] = string(data), o.Mode
	return f.info(p), nil
}

func (f *fakeFiles) names() []string {
	var out []string
	for p := range f.data {
		out = append(out, p)
	}
	sort.Strings(out)
	return out
}

func (f *fakeFiles) List(_ context.Context, dir string, limit int) ([]guest.FileInfo, bool, error) {
	var out []guest.FileInfo
	for _, p := range f.names() {
		if path.Dir(p) == dir {
			if len(out) == limit {
				return out, true, nil
			}
			out = append(out, f.info(p))
		}
	}
	return out, false, f.err
}

func (f *fakeFiles) Glob(_ context.Context, pattern string, _ bool, limit int) ([]string, bool, error) {
	var out []string
	for _, p := range f.names() {
		if ok, _ := path.Match(pattern, path.Base(p)); ok {
			if len(out) == limit {
				return out, true, nil
			}
			out = append(out, p)
		}
	}
	return out, false, f.err
}

func (f *fakeFiles) Search(_ context.Context, q guest.SearchQuery) (guest.SearchResult, error) {
	var out guest.SearchResult
	for _, p := range f.names() {
		for i, l := range strings.Split(f.data[p], "\n") {
			if strings.HasPrefix(p, q.Path) && strings.Contains(l, q.Pattern) {
				if len(out.Matches) == q.Limit {
					out.More = true
					return out, f.err
				}
				out.Matches = append(out.Matches, guest.Match{Path: p, Line: i + 1, Text: l})
			}
		}
	}
	return out, f.err
}

// rig runs tools the way a session does: through the registry, then the handler.
type rig struct {
	t     *testing.T
	reg   *tool.Registry
	log   *eventlog.Log
	guest *fakeGuest
	out   []event.StepOutput
	call  tool.Call
}

func newRig(t *testing.T) *rig {
	t.Helper()
	reg, err := tool.NewRegistry(All()...)
	if err != nil {
		t.Fatal(err)
	}
	log, err := eventlog.Open(t.TempDir(), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	r := &rig{t: t, reg: reg, log: log, guest: &fakeGuest{execs: &fakeExecs{}, files: newFiles()}}
	r.call = tool.Call{Project: "p1", Session: "s1", Step: "st_1", Guest: r.guest, Blobs: log, Output: func(o event.StepOutput) { r.out = append(r.out, o) }}
	return r
}

func (r *rig) run(ctx context.Context, name, args string) (tool.Result, error) {
	r.t.Helper()
	p, err := r.reg.Prepare(name, json.RawMessage(args))
	if err != nil {
		return tool.Result{}, err
	}
	c := r.call
	c.Args = p.Args
	return p.Tool.Handler(ctx, c)
}

// ok runs a call that must succeed, checks what every answer must be, and decodes it.
func (r *rig) ok(name, args string, into any) tool.Result {
	r.t.Helper()
	res, err := r.run(context.Background(), name, args)
	if err != nil {
		r.t.Fatalf("%s %s: %v", name, args, err)
	}
	r.fits(res)
	if into != nil {
		if err := json.Unmarshal(res.JSON, into); err != nil {
			r.t.Fatal(err)
		}
	}
	return res
}

// fits: the answer can be recorded, whatever the machine sent.
func (r *rig) fits(res tool.Result) {
	r.t.Helper()
	end := &event.StepEnded{Outcome: res.Outcome, Error: res.Error, Result: res.JSON, Artefacts: res.Artefacts}
	if x := res.Exec; x != nil {
		end.ExitCode, end.Signal, end.Stdout, end.Stderr, end.Background = x.ExitCode, x.Signal, x.Stdout, x.Stderr, x.Background
	}
	if _, err := r.log.Append(context.Background(), event.New{Stream: "session:s1", Origin: domain.OriginGuest, Payload: end}); err != nil {
		r.t.Fatalf("the answer cannot be recorded: %v", err)
	}
}

func (r *rig) fails(name, args string, code domain.ErrorCode, say ...string) error {
	r.t.Helper()
	_, err := r.run(context.Background(), name, args)
	if domain.CodeOf(err) != code {
		r.t.Errorf("%s %s: %v, want %s", name, args, err, code)
		return err
	}
	for _, s := range say {
		if !strings.Contains(err.Error(), s) {
			r.t.Errorf("%s %s: %q does not say %q", name, args, err, s)
		}
	}
	return err
}

func outputs(stderr bool, data string, size int) []guest.Output {
	var out []guest.Output
	off := int64(0)
	for len(data) > 0 {
		n := min(size, len(data))
		out = append(out, guest.Output{Stderr: stderr, Offset: off, Data: []byte(data[:n])})
		off += int64(n)
		data = data[n:]
	}
	return out
}

func (r *rig) process(p *fakeProcess) {
	r.guest.execs.start = func(guest.ExecSpec) (*fakeProcess, error) { return p, nil }
}

type fakeBrowser struct {
	browser.Browser
	page   browser.Page
	err    error
	effect browser.Effect
	snap   browser.Snapshot
	image  []byte
	did    []string
}

func (b *fakeBrowser) Open(_ context.Context, u string) (browser.Page, error) {
	b.did = append(b.did, "open "+u)
	return b.page, b.err
}
func (b *fakeBrowser) Snapshot(_ context.Context, o browser.SnapshotOptions) (browser.Snapshot, error) {
	return b.snap, b.err
}
func (b *fakeBrowser) Click(_ context.Context, ref string) (browser.Effect, error) {
	b.did = append(b.did, "click "+ref)
	return b.effect, b.err
}
func (b *fakeBrowser) Type(_ context.Context, ref, text string, o browser.TypeOptions) (browser.Effect, error) {
	b.did = append(b.did, "type "+ref+" "+text)
	return b.effect, b.err
}
func (b *fakeBrowser) Screenshot(context.Context, browser.ScreenshotOptions) (browser.Image, error) {
	return browser.Image{Mime: "text/html", Data: bytes.Clone(b.image), Width: 4, Height: 3}, b.err
}

type provider struct{ b *fakeBrowser }

func (p provider) Browser(context.Context) (browser.Browser, error) { return p.b, nil }
