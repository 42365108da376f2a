package project

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/git"
	"glasshouse/backend/git/gittest"
	"glasshouse/backend/machine"
	"glasshouse/vm"
	"glasshouse/vm/guest"
	"glasshouse/vm/guest/client"
	"glasshouse/vm/proc"
	"glasshouse/vm/vmtest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == git.IndexRole {
		os.Exit(git.IndexMain(os.Args[2:], os.Stdin))
	}
	code := m.Run()
	vmtest.RemoveGuestd()
	os.Exit(code)
}

var errTest = errors.New("a fault of the test")

// faults makes parts fail that a test names.
type faults struct {
	mu    sync.Mutex
	at    map[string]bool
	holds map[string]chan struct{} // told when somebody waits there, for ever or until its context ends
}

// hold makes a part wait; what it returns is told when somebody does.
func (f *faults) hold(at string) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := make(chan struct{}, 100)
	f.holds = map[string]chan struct{}{at: c}
	return c
}

func (f *faults) wait(ctx context.Context, at string) error {
	f.mu.Lock()
	c := f.holds[at]
	f.mu.Unlock()
	if c == nil {
		return nil
	}
	c <- struct{}{}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (f *faults) set(at ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.holds = map[string]bool{}, nil
	for _, a := range at {
		f.at[a] = true
	}
}

func (f *faults) is(at string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at[at] {
		return errTest
	}
	return nil
}

// faultyManager is the real one with faults in front.
type faultyManager struct {
	*vmtest.Direct
	f *faults
}

func (m faultyManager) Check(ctx context.Context) error {
	return errors.Join(m.f.is("check"), m.Direct.Check(ctx))
}

func (m faultyManager) Create(ctx context.Context, s vm.Spec, p func(vm.Progress)) (vm.Machine, error) {
	if err := m.f.is("create"); err != nil {
		return nil, err
	}
	x, err := m.Direct.Create(ctx, s, p)
	if err != nil {
		return nil, err
	}
	return faultyMachine{x, m.f}, nil
}

func (m faultyManager) Open(ctx context.Context, id string) (vm.Machine, error) {
	x, err := m.Direct.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	return faultyMachine{x, m.f}, nil
}

func (m faultyManager) Destroy(ctx context.Context, id string) error {
	if err := m.f.is("destroy"); err != nil {
		return err
	}
	return m.Direct.Destroy(ctx, id)
}

type faultyMachine struct {
	vm.Machine
	f *faults
}

func (m faultyMachine) Start(ctx context.Context, p func(vm.Progress)) error {
	if err := errors.Join(m.f.is("start"), m.f.wait(ctx, "start")); err != nil {
		return err
	}
	if p != nil {
		p(vm.Progress{Phase: "boot", Text: "booting"})
	}
	return m.Machine.Start(ctx, p)
}

type faultyGuest struct {
	guest.Guest
	f *faults
}

func (g faultyGuest) Git() guest.Git { return faultyGit{g.Guest.Git(), g.f} }
func (g faultyGuest) Checkpoints() guest.Checkpoints {
	return faultyCheckpoints{g.Guest.Checkpoints(), g.f}
}

type faultyGit struct {
	guest.Git
	f *faults
}

func (g faultyGit) Import(ctx context.Context, r guest.ImportRequest, p io.Reader) error {
	if err := errors.Join(g.f.is("import"), g.f.wait(ctx, "import")); err != nil {
		return err
	}
	return g.Git.Import(ctx, r, p)
}

func (g faultyGit) Export(ctx context.Context, want, have []string, n int64) (io.ReadCloser, error) {
	if err := g.f.is("export"); err != nil {
		return nil, err
	}
	return g.Git.Export(ctx, want, have, n)
}

type faultyCheckpoints struct {
	guest.Checkpoints
	f *faults
}

func (c faultyCheckpoints) Take(ctx context.Context, r guest.CheckpointRequest) (guest.Checkpoint, error) {
	if err := c.f.is("checkpoint"); err != nil {
		return guest.Checkpoint{}, err
	}
	return c.Checkpoints.Take(ctx, r)
}

type faultyLog struct {
	*eventlog.Log
	f *faults
}

func (l faultyLog) Append(ctx context.Context, evs ...event.New) ([]event.Envelope, error) {
	for _, e := range evs {
		if err := l.f.is("log " + string(e.Payload.EventType())); err != nil {
			return nil, domain.E(domain.CodeUnavailable, "the disk is full", "", err)
		}
	}
	return l.Log.Append(ctx, evs...)
}

// house is a project service over the real guestd, without walls.
type house struct {
	t    *testing.T
	dir  string
	f    *faults
	d    *vmtest.Direct
	run  *proc.Runner
	log  *eventlog.Log
	flt  *machine.Fleet
	svc  *Service
	open bool
}

func newHouse(t *testing.T) *house {
	h := &house{t: t, dir: t.TempDir(), f: &faults{at: map[string]bool{}}, d: vmtest.NewDirect(t), run: &proc.Runner{}}
	h.start()
	t.Cleanup(h.end)
	return h
}

func (h *house) folder(id domain.ProjectID) string {
	return filepath.Join(h.dir, "projects", string(id))
}

func (h *house) start() {
	h.t.Helper()
	var err error
	if h.log, err = eventlog.Open(filepath.Join(h.dir, "log"), eventlog.Options{}); err != nil {
		h.t.Fatal(err)
	}
	log := faultyLog{h.log, h.f}
	h.flt = machine.New(machine.Config{Managers: map[string]vm.Manager{"local": faultyManager{h.d, h.f}},
		Open: func(ctx context.Context, c io.ReadWriteCloser, e guest.EgressHandler) (guest.Guest, error) {
			g, err := client.Open(ctx, c, e, client.Options{})
			if err != nil {
				return nil, err
			}
			return faultyGuest{g, h.f}, nil
		},
		Egress: func(domain.ProjectID) guest.EgressHandler { return nobody{} },
		Record: func(ctx context.Context, n event.New) error {
			_, err := log.Append(ctx, n)
			if m, ok := n.Payload.(*event.MachineState); ok && h.svc != nil {
				h.svc.MachineState(n.ProjectID, m)
			}
			return err
		},
		Publish: func(n event.New) { h.svc.TellProgress(n.ProjectID, *n.Payload.(*event.MachineProgress)) },
	})
	ledger := approval.New(log, nil)
	if err := ledger.Load(h.ctx()); err != nil {
		h.t.Fatal(err)
	}
	h.svc = New(Config{Log: log, Ledger: ledger, Fleet: h.flt, DefaultKind: "local",
		Mirror: func(id domain.ProjectID) (*git.Mirror, error) {
			return git.Open(filepath.Join(h.folder(id), "mirror.git"), git.Options{Runner: h.run})
		},
		Trash: func(id domain.ProjectID) (string, error) {
			if _, err := os.Stat(h.folder(id)); err != nil {
				return "", nil
			}
			to := filepath.Join(h.dir, "trash", fmt.Sprint(id, time.Now().UnixNano()))
			_ = os.MkdirAll(filepath.Dir(to), 0o700)
			return to, os.Rename(h.folder(id), to)
		},
		Discard: func(p domain.Project) error { return os.RemoveAll(h.folder(p.ID)) },
		Author: func(context.Context) git.Person {
			return git.Person{Name: "Pat", Email: "pat@example.org", When: time.Now()}
		}})
	if err := h.svc.Load(h.ctx()); err != nil {
		h.t.Fatal(err)
	}
	h.open = true
}

func (h *house) end() {
	if h.open {
		h.open = false
		h.flt.Leave()
		_ = h.log.Close()
	}
}

// restart is a core's end, in whatever state, and the next one's start.
func (h *house) restart() {
	h.t.Helper()
	h.end()
	h.start()
}

type nobody struct{}

func (nobody) ServeEgress(_ context.Context, _ guest.EgressClaim, c io.ReadWriteCloser) { c.Close() }

func (h *house) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	h.t.Cleanup(cancel)
	return ctx
}

// source is a small repository of a person's.
func source(t *testing.T) *gittest.Repo {
	r := gittest.Init(t)
	r.Write("a.txt", "one\ntwo\nthree\n")
	r.Write("b.txt", "b\n")
	r.Commit("first")
	return r
}

func (h *house) create(src string) domain.Project {
	h.t.Helper()
	p, err := h.svc.Create(h.ctx(), CreateRequest{Name: "one", NextName: true, Source: src, Actor: "person"})
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

// write puts a file into the workspace, as an agent would.
func (h *house) write(p domain.Project, name, text string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.d.Workspace(string(p.Machine)), name), []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// in is the workspace's repository, for commits of an agent.
func (h *house) in(p domain.Project) *gittest.Repo {
	return &gittest.Repo{T: h.t, Dir: h.d.Workspace(string(p.Machine))}
}

func (h *house) machines() []string {
	h.t.Helper()
	ids, err := h.d.List(h.ctx())
	if err != nil {
		h.t.Fatal(err)
	}
	return ids
}

func (h *house) types() (out []string) {
	h.t.Helper()
	if err := h.log.Fold(h.ctx(), eventlog.Filter{}, func(e event.Envelope) error { out = append(out, string(e.Type)); return nil }); err != nil {
		h.t.Fatal(err)
	}
	return out
}

func has(list []string, s string) bool { return slices.Contains(list, s) }

// noticed is a context that tells when it is waited for first.
type noticed struct {
	context.Context
	once sync.Once
	told func()
}

func (n *noticed) Done() <-chan struct{} {
	n.once.Do(n.told)
	return n.Context.Done()
}
