package project

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/vm"
)

func TestCreateAndDelete(t *testing.T) {
	h := newHouse(t)
	src := source(t)
	before := src.Git("status", "--porcelain=v2", "--branch")
	p := h.create(src.Dir)
	if b, err := os.ReadFile(filepath.Join(h.d.Workspace(string(p.Machine)), "a.txt")); err != nil || string(b) != "one\ntwo\nthree\n" {
		t.Fatalf("%q %v", b, err)
	}
	if imp, ok := h.svc.Imported(p.ID); !ok || imp.Commit == "" || imp.Branch != "main" || imp.Files != 2 {
		t.Errorf("%+v", imp)
	}
	for _, id := range []domain.ProjectID{p.ID, "one"} {
		if got, err := h.svc.Get(id); err != nil || got.ID != p.ID {
			t.Errorf("%s: %v", id, err)
		}
	}
	second := h.create("")
	if second.Name != "one-2" {
		t.Errorf("the second is called %q", second.Name)
	}
	h.restart()
	if got := h.svc.List(); len(got) != 2 || got[0].ID != p.ID || got[1].ID != second.ID {
		t.Errorf("%+v", got)
	}
	// Deleted by two at once: once, and everything of it is away but the source.
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range 4 {
		wg.Go(func() {
			err := h.svc.Delete(h.ctx(), p.ID, "person")
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if c := domain.CodeOf(err); c != domain.CodeConflict && c != domain.CodeNotFound {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d deletes", won)
	}
	if got := h.machines(); !slices.Equal(got, []string{string(second.Machine)}) {
		t.Errorf("machines: %v", got)
	}
	if _, err := os.Stat(h.folder(p.ID)); !os.IsNotExist(err) {
		t.Errorf("its folder: %v", err)
	}
	if after := src.Git("status", "--porcelain=v2", "--branch"); after != before {
		t.Errorf("the source changed: %s", after)
	}
	if _, err := h.svc.mirror(p.ID); domain.CodeOf(err) != domain.CodeNotFound {
		t.Errorf("a mirror for a deleted project: %v", err)
	}
	h.restart()
	if err := h.svc.Tidy(h.ctx()); err != nil {
		t.Error(err)
	}
	if got := h.svc.List(); len(got) != 1 || got[0].ID != second.ID {
		t.Errorf("%+v", got)
	}
}

// Whatever part of a making fails, the error says which, and nothing is left.
func TestCreateFailsAtEachPart(t *testing.T) {
	src := source(t)
	for part, tc := range map[string]struct {
		code domain.ErrorCode
		has  string
	}{
		"check":                {domain.CodeUnavailable, "cannot run here"},
		"create":               {domain.CodeInternal, "a fault of the test"},
		"start":                {domain.CodeUnavailable, "did not start"},
		"import":               {domain.CodeUnavailable, "could not be put into the machine"},
		"checkpoint":           {domain.CodeUnavailable, "first checkpoint"},
		"log project.imported": {domain.CodeUnavailable, "disk is full"},
		"source":               {domain.CodeNotFound, ""},
	} {
		t.Run(part, func(t *testing.T) {
			h := newHouse(t)
			h.f.set(part)
			dir := src.Dir
			if part == "source" {
				dir = filepath.Join(dir, "not-there")
			}
			_, err := h.svc.Create(h.ctx(), CreateRequest{Name: "one", Source: dir, Actor: "person"})
			if err == nil || !strings.Contains(err.Error(), tc.has) || part != "source" && (domain.CodeOf(err) != tc.code || !errors.Is(err, errTest)) {
				t.Fatalf("%v (%s)", err, domain.CodeOf(err))
			}
			h.f.set()
			if got := h.svc.List(); len(got) != 0 {
				t.Errorf("the project is there: %+v", got)
			}
			if got := h.machines(); len(got) != 0 {
				t.Errorf("machines are left: %v", got)
			}
			if left, _ := os.ReadDir(filepath.Join(h.dir, "projects")); len(left) != 0 {
				t.Errorf("folders are left: %v", left)
			}
			got := h.types()
			if got[0] != "project.created" || !has(got, "project.deleted") || has(got, "project.imported") {
				t.Errorf("%v", got)
			}
			h.restart()
			if got := h.svc.List(); len(got) != 0 {
				t.Errorf("it came back: %+v", got)
			}
		})
	}
	t.Run("log project.created", func(t *testing.T) {
		h := newHouse(t)
		h.f.set("log project.created")
		if _, err := h.svc.Create(h.ctx(), CreateRequest{Name: "one", Source: src.Dir, Actor: "person"}); domain.CodeOf(err) != domain.CodeUnavailable {
			t.Error(err)
		}
		if len(h.types()) != 0 || len(h.machines()) != 0 {
			t.Error("something was made")
		}
	})
	t.Run("caller goes", func(t *testing.T) {
		h := newHouse(t)
		ctx, cancel := context.WithCancel(h.ctx())
		cancel()
		if _, err := h.svc.Create(ctx, CreateRequest{Name: "one", Source: src.Dir, Actor: "person"}); err == nil {
			t.Fatal("no error")
		}
		if len(h.svc.List()) != 0 || len(h.machines()) != 0 {
			t.Error("something is left")
		}
	})
}

// What a crash or a fault left behind is taken away by the next core; machines that
// the log does not know are nobody's to touch.
func TestTidy(t *testing.T) {
	h := newHouse(t)
	keep := h.create("")
	// A delete that could not take the machine away.
	gone := h.create("")
	h.f.set("destroy")
	if err := h.svc.Delete(h.ctx(), gone.ID, "person"); !errors.Is(err, errTest) {
		t.Fatalf("%v", err)
	}
	h.f.set()
	// A making that was cut short: the core died between its machine and its end.
	half := domain.Project{ID: "p_half", Name: "half", Kind: "local", Machine: "mhalf"}
	if err := h.svc.append(h.ctx(), half.ID, "person", &event.ProjectCreated{Project: half}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"mhalf", "mforeign"} {
		if _, err := h.d.Create(h.ctx(), vm.Spec{ID: id}, nil); err != nil {
			t.Fatal(err)
		}
	}
	h.restart()
	if err := h.svc.Tidy(h.ctx()); err != nil {
		t.Fatal(err)
	}
	want := []string{string(keep.Machine), "mforeign"}
	slices.Sort(want)
	if got := h.machines(); !slices.Equal(got, want) {
		t.Errorf("machines %v, not %v", got, want)
	}
	if got := h.svc.List(); len(got) != 1 || got[0].ID != keep.ID {
		t.Errorf("%+v", got)
	}
	for _, id := range []domain.ProjectID{gone.ID, half.ID} {
		if _, err := os.Stat(h.folder(id)); !os.IsNotExist(err) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	h := newHouse(t)
	for name, tc := range map[string]struct {
		r  CreateRequest
		at string
	}{
		"relative source":      {CreateRequest{Name: "x", Source: "some/where"}, "/source"},
		"control character":    {CreateRequest{Name: "a\nb"}, "/name"},
		"invisible character":  {CreateRequest{Name: "a\u202eb"}, "/name"},
		"no UTF-8":             {CreateRequest{Name: "a\xffb"}, "/name"},
		"too long":             {CreateRequest{Name: strings.Repeat("x", 101)}, "/name"},
		"an option":            {CreateRequest{Name: "--json"}, "/name"},
		"a path":               {CreateRequest{Name: "shop/rules"}, "/name"},
		"here":                 {CreateRequest{Name: "."}, "/name"},
		"above":                {CreateRequest{Name: ".."}, "/name"},
		"a space before":       {CreateRequest{Name: " shop"}, "/name"},
		"a space behind":       {CreateRequest{Name: "shop\u00a0"}, "/name"},
		"a space alone":        {CreateRequest{Name: " "}, "/name"},
		"of a folder":          {CreateRequest{Source: "/tmp/-rf"}, "/name"},
		"of the root":          {CreateRequest{Source: "/"}, "/name"},
		"of an address":        {CreateRequest{Source: "https://host.example/-x.git"}, "/name"},
		"no name, no source":   {CreateRequest{}, "/name"},
		"unknown machine kind": {CreateRequest{Name: "x", Kind: "cloud"}, "/machine_kind"},
	} {
		_, err := h.svc.Create(h.ctx(), tc.r)
		var e *domain.Error
		if !errors.As(err, &e) || e.Code != domain.CodeInvalid || e.Pointer != tc.at || e.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(h.types()) != 0 {
		t.Errorf("something was recorded: %v", h.types())
	}
	for _, name := range []string{"x", "My shop (2)", "x?y", "50%", "a-", "...", ".hidden", "größe", strings.Repeat("x", 100)} {
		if err := checkName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	// One that is there keeps its name, and goes by it or its id.
	old := domain.Project{ID: "p_older", Name: "-old/one ", Kind: "local", Machine: "molder"}
	if err := h.svc.append(h.ctx(), old.ID, "person", &event.ProjectCreated{Project: old}, &event.ProjectImported{}); err != nil {
		t.Fatal(err)
	}
	h.restart()
	for _, id := range []domain.ProjectID{old.ID, domain.ProjectID(old.Name)} {
		if p, err := h.svc.Get(id); err != nil || p.Name != old.Name {
			t.Errorf("%q: %+v %v", id, p, err)
		}
	}
	for in, want := range map[string]string{"My Project!": "my-project", "äöü": "workspace", "--a--b--": "a-b", strings.Repeat("ab-", 30): strings.TrimSuffix(strings.Repeat("ab-", 14)[:40], "-")} {
		if got := hostname(in); got != want {
			t.Errorf("%q becomes %q, not %q", in, got, want)
		}
	}
}
