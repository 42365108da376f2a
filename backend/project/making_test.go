package project

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/git/gittest"
	"glasshouse/backend/review"
	"glasshouse/vm"
)

// clean checks that nothing of a making is left, and that no event of it holds a word.
func (h *house) clean(secret string) {
	h.t.Helper()
	if got := h.svc.List(); len(got) != 0 {
		h.t.Errorf("the project is there: %+v", got)
	}
	if got := h.machines(); len(got) != 0 {
		h.t.Errorf("machines are left: %v", got)
	}
	if left, _ := os.ReadDir(filepath.Join(h.dir, "projects")); len(left) != 0 {
		h.t.Errorf("folders are left: %v", left)
	}
	if left, _ := os.ReadDir(filepath.Join(h.dir, "trash")); len(left) != 0 {
		h.t.Errorf("what was never a project is in the trash: %v", left)
	}
	if h.run.Live() != 0 {
		h.t.Error("processes are left")
	}
	_ = h.log.Fold(h.ctx(), eventlog.Filter{}, func(e event.Envelope) error {
		if secret != "" && strings.Contains(string(e.Data), secret) {
			h.t.Errorf("%s holds a secret: %s", e.Type, e.Data)
		}
		return nil
	})
}

func TestCreateFromAnAddress(t *testing.T) {
	h := newHouse(t)
	src := source(t)
	bare := gittest.InitBare(t)
	src.Git("push", "-q", bare.Dir, "main:trunk", "main:side")
	bare.Git("symbolic-ref", "HEAD", "refs/heads/trunk")
	address := "file://" + bare.Dir
	p, err := h.svc.Create(h.ctx(), CreateRequest{Source: address, Actor: "person"})
	if err != nil {
		t.Fatal(err)
	}
	imp, ok := h.svc.Imported(p.ID)
	if !ok || imp.Branch != "trunk" || imp.Remote != address || imp.Ref != "refs/heads/trunk" || imp.Files != 2 || p.Source != address || p.Name != "remote" {
		t.Fatalf("%+v %+v", p, imp)
	}
	if b, err := os.ReadFile(filepath.Join(h.d.Workspace(string(p.Machine)), "a.txt")); err != nil || string(b) != "one\ntwo\nthree\n" {
		t.Fatalf("%q %v", b, err)
	}
	// Where it came from is where its review is meant to go, also after a restart.
	h.restart()
	h.write(p, "new.txt", "new\n")
	v := h.review(p, "", "")
	if v.Remote != address || v.Ref != "refs/heads/trunk" || v.Expected != imp.Commit {
		t.Errorf("%+v", v)
	}
	if other := h.review(p, "", "fresh"); other.Ref != "refs/heads/fresh" || other.Expected != "" {
		t.Errorf("%+v", other)
	}
	h.decide(v, "", review.Accept)
	out := h.push(v, v.Remote, v.Ref)
	if got := strings.TrimSpace(bare.Git("rev-parse", "trunk")); got != out.Commit {
		t.Errorf("the remote has %s", got)
	}
	// A remote that is away keeps nobody from looking at changes.
	h.write(p, "more.txt", "more\n")
	if err := os.Rename(bare.Dir, bare.Dir+"-away"); err != nil {
		t.Fatal(err)
	}
	if v := h.review(p, "", ""); v.Remote != "" || len(v.Files) == 0 {
		t.Errorf("%+v", v)
	}
	if err := os.Rename(bare.Dir+"-away", bare.Dir); err != nil {
		t.Fatal(err)
	}
	q, err := h.svc.Create(h.ctx(), CreateRequest{Name: "side", Source: address, Branch: "side", Actor: "person"})
	if err != nil {
		t.Fatal(err)
	}
	if imp, _ := h.svc.Imported(q.ID); imp.Branch != "side" || imp.Ref != "refs/heads/side" {
		t.Errorf("%+v", imp)
	}
}

func TestCreateFromABadAddress(t *testing.T) {
	closed := gittest.Refusing(t)
	const secret = "hunter2-token"
	for name, tc := range map[string]struct {
		r        CreateRequest
		code     domain.ErrorCode
		at       string
		recorded bool
	}{
		"password":         {CreateRequest{Source: "https://ann:" + secret + "@example.com/x.git"}, domain.CodeInvalid, "/source", false},
		"token":            {CreateRequest{Source: "https://" + secret + "@example.com/x.git"}, domain.CodeInvalid, "/source", false},
		"scp password":     {CreateRequest{Source: "ann:" + secret + "@example.com:x.git"}, domain.CodeInvalid, "/source", false},
		"helper":           {CreateRequest{Name: "x", Source: "ext::sh -c 'touch /tmp/" + secret + "'"}, domain.CodeInvalid, "/source", false},
		"option":           {CreateRequest{Name: "x", Source: "--upload-pack=" + secret}, domain.CodeInvalid, "/source", false},
		"host option":      {CreateRequest{Name: "x", Source: "ssh://-oProxyCommand=" + secret + "/x"}, domain.CodeInvalid, "/source", false},
		"overlay":          {CreateRequest{Source: "https://example.com/x", Overlay: []string{"a"}}, domain.CodeInvalid, "/with", false},
		"branch of folder": {CreateRequest{Source: "/tmp", Branch: "x"}, domain.CodeInvalid, "/branch", false},
		"nobody there":     {CreateRequest{Source: "http://" + closed + "/x.git"}, domain.CodeUnavailable, "", true},
		"no repository":    {CreateRequest{Source: "file://" + t.TempDir()}, domain.CodeUnavailable, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			_, err := h.svc.Create(h.ctx(), tc.r)
			var e *domain.Error
			if !errors.As(err, &e) || e.Code != tc.code || e.Pointer != tc.at || e.Hint == "" || strings.Contains(err.Error(), secret) && tc.code != domain.CodeInvalid {
				t.Fatalf("%v", err)
			}
			h.clean(secret)
			want := ""
			if tc.recorded {
				want = "project.created project.deleted"
			}
			if got := strings.Join(h.types(), " "); got != want && !(tc.recorded && strings.HasPrefix(got, "project.created")) {
				t.Errorf("%s", got)
			}
		})
	}
}

// mute is a server that takes a call and never answers.
func mute(t *testing.T) (string, <-chan struct{}) {
	reached := make(chan struct{}, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/x.git", reached
}

// A making is given up at whatever part it is, by whom and however: the caller is
// told so, and nothing is left.
func TestGiveUpAMaking(t *testing.T) {
	address, reached := mute(t)
	src := source(t)
	for part, how := range map[string][]string{"fetch": {"cancel", "delete", "caller goes"}, "start": {"cancel", "delete"}, "import": {"cancel"}} {
		for _, how := range how {
			t.Run(part+" "+how, func(t *testing.T) {
				h := newHouse(t)
				r := CreateRequest{Name: "one", Source: src.Dir, Actor: "person"}
				at := reached
				if part == "fetch" {
					r.Source = address
				} else {
					at = h.f.hold(part)
				}
				ctx, leave := context.WithCancel(h.ctx())
				defer leave()
				done := make(chan error, 1)
				go func() { _, err := h.svc.Create(ctx, r); done <- err }()
				<-at
				p, err := h.svc.Get("one")
				if err != nil {
					t.Fatal(err)
				}
				prog := h.svc.Progress(p.ID)
				if prog == nil || prog.Work != "create" || prog.Since == 0 || prog.PhaseSince < prog.Since || prog.Text == "" {
					t.Errorf("progress: %+v", prog)
				}
				switch how {
				case "cancel":
					if what, err := h.svc.Cancel(h.ctx(), "one", "person"); what != "create" || err != nil {
						t.Errorf("%s %v", what, err)
					}
					// Its name is free at once.
					if name, err := h.svc.takeName("one", false); err != nil {
						t.Error(err)
					} else {
						h.svc.leaveName(name)
					}
				case "delete":
					if err := h.svc.Delete(h.ctx(), p.ID, "person"); err != nil {
						t.Error(err)
					}
				default:
					leave()
				}
				err = <-done
				if how == "caller goes" {
					if err == nil {
						t.Error("no error")
					}
				} else if domain.CodeOf(err) != domain.CodeConflict || !strings.Contains(err.Error(), "given up by person") {
					t.Errorf("%v", err)
				}
				h.f.set()
				h.clean("")
				if h.svc.Progress(p.ID) != nil {
					t.Error("its progress goes on")
				}
				if _, err := h.svc.Cancel(h.ctx(), p.ID, "person"); domain.CodeOf(err) != domain.CodeNotFound {
					t.Errorf("a second time: %v", err)
				}
				h.restart()
				h.clean("")
			})
		}
	}
}

func TestGiveUpAStart(t *testing.T) {
	h := newHouse(t)
	p := h.create("")
	if _, err := h.svc.Cancel(h.ctx(), p.ID, "person"); domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("nothing is under way: %v", err)
	}
	if err := h.flt.Stop(h.ctx(), p); err != nil {
		t.Fatal(err)
	}
	at := h.f.hold("start")
	var wg, queued sync.WaitGroup
	errs := make(chan error, 3)
	for range 3 {
		queued.Add(1)
		ctx := &noticed{Context: h.ctx(), told: queued.Done}
		wg.Go(func() { _, err := h.flt.Ensure(ctx, p); errs <- err })
	}
	<-at
	if prog := h.svc.Progress(p.ID); prog != nil && prog.Work != "start" {
		t.Errorf("%+v", prog)
	}
	queued.Wait() // one that comes later begins a start of its own
	if what, err := h.svc.Cancel(h.ctx(), p.ID, "person"); what != "start" || err != nil {
		t.Fatalf("%s %v", what, err)
	}
	h.f.set()
	wg.Wait()
	close(errs)
	for err := range errs {
		if domain.CodeOf(err) != domain.CodeConflict || !strings.Contains(err.Error(), "given up") {
			t.Errorf("%v", err)
		}
	}
	if err := h.flt.Stop(h.ctx(), p); err != nil {
		t.Fatal(err)
	}
	if h.svc.Progress(p.ID) != nil {
		t.Error("progress of a start that is over")
	}
	if _, err := h.flt.Ensure(h.ctx(), p); err != nil {
		t.Errorf("it does not start again: %v", err)
	}
	if got := h.svc.List(); len(got) != 1 {
		t.Errorf("the project went: %+v", got)
	}
}

// A page that comes in the middle is told the progress again.
func TestProgressIsRepeated(t *testing.T) {
	h := newHouse(t)
	at := h.f.hold("import")
	ctx, stop := context.WithCancel(h.ctx())
	defer stop()
	go h.svc.RepeatProgress(ctx)
	done := make(chan error, 1)
	go func() {
		_, err := h.svc.Create(ctx, CreateRequest{Name: "one", Actor: "person"})
		done <- err
	}()
	<-at
	sub := h.log.Subscribe(eventlog.Filter{Types: []event.Type{"machine.progress"}}, 0)
	defer sub.Close()
	for range 2 {
		e, err := sub.Next(h.ctx())
		if err != nil {
			t.Fatal(err)
		}
		p, err := event.Decode(e)
		if m, ok := p.(*event.MachineProgress); err != nil || !ok || m.Phase != "workspace" || m.Work != "create" || m.Since == 0 {
			t.Errorf("%+v %v", p, err)
		}
	}
	stop()
	<-done
	h.svc.TellProgress("", event.MachineProgress{Phase: "image", Text: "part 1 of 2"})
	if p := h.svc.Progress(""); p == nil || p.Work != "image" || p.Since == 0 {
		t.Errorf("%+v", p)
	}
	h.svc.EndProgress()
	var last *event.MachineProgress
	for last == nil || last.Phase != "done" {
		e, err := sub.Next(h.ctx())
		if err != nil {
			t.Fatal(err)
		}
		if e.ProjectID == "" {
			p, _ := event.Decode(e)
			last = p.(*event.MachineProgress)
		}
	}
	if h.svc.Progress("") != nil {
		t.Error("it is over")
	}
}

func TestNamesAreTakenOnce(t *testing.T) {
	h := newHouse(t)
	h.create("")
	_, err := h.svc.Create(h.ctx(), CreateRequest{Name: "one", Actor: "person"})
	var e *domain.Error
	if !errors.As(err, &e) || e.Code != domain.CodeConflict || e.Pointer != "/name" || !strings.Contains(e.Hint, `"one-2"`) {
		t.Errorf("%v", err)
	}
	if got := len(h.svc.List()); got != 1 {
		t.Errorf("%d projects", got)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	names, refused := map[string]bool{}, 0
	for i := range 6 {
		wg.Go(func() {
			p, err := h.svc.Create(h.ctx(), CreateRequest{Name: "two", NextName: i%2 == 0, Actor: "person"})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && names[p.Name]:
				t.Errorf("%s twice", p.Name)
			case err == nil:
				names[p.Name] = true
			case domain.CodeOf(err) == domain.CodeConflict:
				refused++
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(names)+refused != 6 || refused < 2 {
		t.Errorf("%v, %d refused", names, refused)
	}
	// A name is free again when its making failed.
	h.f.set("start")
	if _, err := h.svc.Create(h.ctx(), CreateRequest{Name: "three", Actor: "person"}); err == nil {
		t.Error("no error")
	}
	h.f.set()
	if p, err := h.svc.Create(h.ctx(), CreateRequest{Name: "three", Actor: "person"}); err != nil || p.Name != "three" {
		t.Errorf("%+v %v", p, err)
	}
	long := strings.Repeat("ä", 50)
	if _, err := h.svc.Create(h.ctx(), CreateRequest{Name: long, Actor: "person"}); err != nil {
		t.Fatal(err)
	}
	if p, err := h.svc.Create(h.ctx(), CreateRequest{Name: long, NextName: true, Actor: "person"}); err != nil || len(p.Name) > 100 || !strings.HasSuffix(p.Name, "-2") {
		t.Errorf("%+v %v", p, err)
	}
	// An older log may hold one name twice: then it names neither.
	for i := range 2 {
		p := domain.Project{ID: domain.ProjectID(fmt.Sprint("p_old", i)), Name: "old", Kind: "local", Machine: domain.MachineID(fmt.Sprint("mold", i))}
		if err := h.svc.append(h.ctx(), p.ID, "person", &event.ProjectCreated{Project: p}, &event.ProjectImported{}); err != nil {
			t.Fatal(err)
		}
	}
	h.restart()
	if _, err := h.svc.Get("old"); domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("a name of two: %v", err)
	}
}

func TestDefaultsOfNewProjects(t *testing.T) {
	h := newHouse(t)
	h.svc.SetDefaults("cloud", vm.Spec{CPUs: 3})
	if _, err := h.svc.Create(h.ctx(), CreateRequest{Name: "x", Actor: "person"}); domain.CodeOf(err) != domain.CodeInvalid {
		t.Errorf("%v", err)
	}
	h.svc.SetDefaults("local", vm.Spec{})
	if _, err := h.svc.Create(h.ctx(), CreateRequest{Name: "x", Actor: "person"}); err != nil {
		t.Error(err)
	}
}

// When the core goes, what is being made is given up first and nothing begins any more.
func TestGiveUpAll(t *testing.T) {
	h := newHouse(t)
	h.create("")
	at := h.f.hold("import")
	done := make(chan error, 2)
	for _, name := range []string{"a", "b"} {
		go func() { _, err := h.svc.Create(h.ctx(), CreateRequest{Name: name, Actor: "person"}); done <- err }()
		<-at
	}
	if got := h.svc.Making(); len(got) != 2 {
		t.Errorf("%+v", got)
	}
	if err := h.svc.GiveUpAll(h.ctx(), "host"); err != nil {
		t.Fatal(err)
	}
	if got := h.svc.List(); len(got) != 1 || len(h.svc.Making()) != 0 || len(h.machines()) != 1 {
		t.Errorf("%+v, machines %v", got, h.machines())
	}
	for range 2 {
		if err := <-done; domain.CodeOf(err) != domain.CodeConflict || !strings.Contains(err.Error(), "given up by host") {
			t.Errorf("%v", err)
		}
	}
	h.f.set()
	if _, err := h.svc.Create(h.ctx(), CreateRequest{Name: "c", Actor: "person"}); domain.CodeOf(err) != domain.CodeUnavailable {
		t.Errorf("%v", err)
	}
}
