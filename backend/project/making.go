package project

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/git"
	"glasshouse/vm"
	"glasshouse/vm/guest"
)

// CreateRequest of a project.
type CreateRequest struct {
	Name string
	// Source is an absolute path, an address (see git.IsAddress), or empty for an
	// empty workspace.
	Source  string
	Branch  string // of an address; empty = what its HEAD names
	Kind    string // "lima" or "local"; empty = the default
	Spec    vm.Spec
	Overlay []string // dirty files of the source to bring along, relative to it
	// NextName puts a number behind a name that is taken, instead of refusing it.
	NextName bool
	Actor    domain.Actor
}

// making is a project that is being made.
type making struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when all of it is there, or nothing
}

// givenUp is why a making ended: somebody wanted it to.
type givenUp struct{ by domain.Actor }

func (g *givenUp) Error() string { return "it was given up by " + string(g.by) }

// Create records a project, reads its source into the mirror, makes and starts
// its machine and puts the objects into the workspace. The source is only read.
// When a part fails, or somebody gives it up, the project is deleted again and the
// error says why; nothing of it is left but its two events.
func (s *Service) Create(ctx context.Context, r CreateRequest) (domain.Project, error) {
	if err := s.check(&r); err != nil {
		return domain.Project{}, err
	}
	p := domain.Project{ID: domain.ProjectID(domain.NewID("p")), Name: r.Name, Source: r.Source, Machine: domain.NewMachineID(),
		Kind: cmp.Or(r.Kind, s.DefaultKind()), CreatedAt: time.Now().UnixMilli()}
	if _, ok := s.cfg.Fleet.Kinds()[p.Kind]; !ok {
		return domain.Project{}, &domain.Error{Code: domain.CodeInvalid, Pointer: "/machine_kind", What: fmt.Sprintf("there is no machine kind %q here", p.Kind), Hint: "use lima or local"}
	}
	if s.isClosed() {
		return domain.Project{}, errLeaving
	}
	name, err := s.takeName(p.Name, r.NextName)
	if err != nil {
		return domain.Project{}, err
	}
	p.Name = name
	leave := sync.OnceFunc(func() { s.leaveName(name) })
	defer leave()
	limits := s.defaultSpec()
	spec := r.Spec
	spec.CPUs = cmp.Or(spec.CPUs, limits.CPUs)
	spec.MemoryMiB = cmp.Or(spec.MemoryMiB, limits.MemoryMiB)
	spec.DiskGiB = cmp.Or(spec.DiskGiB, limits.DiskGiB)
	spec.Hostname = hostname(p.Name)
	if err := s.append(ctx, p.ID, r.Actor, &event.ProjectCreated{Project: p}); err != nil {
		return domain.Project{}, err
	}
	mctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	mk := &making{cancel: cancel, done: make(chan struct{})}
	s.prog.begin(p.ID, p.Machine, "create")
	s.mu.Lock()
	s.all[p.ID] = &p
	s.making[p.ID] = mk
	if s.closed {
		cancel(errLeaving)
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.making, p.ID)
		s.mu.Unlock()
		s.prog.end(p.ID)
		leave() // who waited for the end of a making that was given up may make it again at once
		close(mk.done)
	}()
	err = s.fill(mctx, p, spec, r)
	if err == nil {
		return p, nil
	}
	s.prog.end(p.ID)
	by := domain.Actor("host")
	var gave *givenUp
	if errors.As(context.Cause(mctx), &gave) {
		by = gave.by
		err = domain.E(domain.CodeConflict, fmt.Sprintf("the making of project %s was given up by %s", p.Name, by), "make it again; nothing of it is left", nil)
	}
	cctx, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer stop()
	if derr := s.remove(cctx, p, by, text(clip(err.Error(), 2000))); derr != nil {
		err = errors.Join(err, derr)
	}
	return domain.Project{}, err
}

// check refuses a request before anything of it is recorded.
func (s *Service) check(r *CreateRequest) error {
	r.Source, r.Branch = strings.TrimSpace(r.Source), strings.TrimSpace(r.Branch)
	address := git.IsAddress(r.Source)
	switch {
	case address:
		if err := git.CheckAddress(r.Source); err != nil {
			return err
		}
		if len(r.Overlay) > 0 {
			return &domain.Error{Code: domain.CodeInvalid, Pointer: "/with", What: "an address has no changed files to bring along", Hint: "pick none, or choose a folder"}
		}
	case r.Source != "" && !filepath.IsAbs(r.Source):
		return &domain.Error{Code: domain.CodeInvalid, Pointer: "/source", What: fmt.Sprintf("the source %q is neither an absolute path nor an address", clip(git.Redact(r.Source), 200)),
			Hint: "give the whole path of the folder, or https://HOST/PATH, ssh://HOST/PATH or HOST:PATH"}
	case r.Branch != "":
		return &domain.Error{Code: domain.CodeInvalid, Pointer: "/branch", What: "a branch can be chosen of an address only; a folder comes with the branch it is on", Hint: "give no branch, or the folder as file:///PATH"}
	}
	if r.Name == "" {
		switch {
		case r.Source == "":
			return &domain.Error{Code: domain.CodeInvalid, Pointer: "/name", What: "a project without a source needs a name", Hint: "give it one"}
		case address:
			r.Name = strings.TrimSpace(git.AddressName(r.Source))
		default:
			r.Name = strings.TrimSpace(filepath.Base(r.Source))
		}
	}
	return checkName(r.Name)
}

// checkName refuses a name for a new project that could not be typed, or would be read as
// something else: in a command line, in a path, or by a person. Projects that are there
// keep theirs.
func checkName(name string) error {
	bad := func(why, hint string) error {
		return &domain.Error{Code: domain.CodeInvalid, Pointer: "/name", What: fmt.Sprintf("a project cannot be called %q: %s", clip(name, 200), why), Hint: hint}
	}
	switch {
	case name == "":
		return bad("that is no name", "give 1 to 100 characters that can be printed")
	case len(name) > 100:
		return bad("it is longer than 100 bytes", "give a shorter name")
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unsafeRune):
		return bad("it holds characters that cannot be printed", "give 1 to 100 characters that can be printed")
	case strings.TrimSpace(name) != name:
		return bad("it begins or ends with a space", "leave the space out")
	case name == "." || name == "..":
		return bad("that is a folder", "give another name")
	case strings.HasPrefix(name, "-"):
		return bad("commands would take it for an option", "give a name that begins with another character")
	case strings.Contains(name, "/"):
		return bad("it holds a /", "give a name of one part, without a /")
	}
	return nil
}

// takeName keeps a name for one project, or says which one is free.
func (s *Service) takeName(name string, next bool) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := func(n string) bool {
		if s.named[n] || s.all[domain.ProjectID(n)] != nil {
			return true
		}
		for _, p := range s.all {
			if p.Name == n {
				return true
			}
		}
		return false
	}
	free := name
	for i := 2; taken(free); i++ {
		end := fmt.Sprintf("-%d", i)
		free = strings.ToValidUTF8(name[:min(len(name), 100-len(end))], "") + end
	}
	if free != name && !next {
		return "", &domain.Error{Code: domain.CodeConflict, Pointer: "/name", What: fmt.Sprintf("there is a project called %q already", name), Hint: fmt.Sprintf("use that one, or take a name that is free, such as %q", free)}
	}
	s.named[free] = true
	return free, nil
}

func (s *Service) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *Service) leaveName(name string) {
	s.mu.Lock()
	delete(s.named, name)
	s.mu.Unlock()
}

// fill reads the source in and brings the workspace up.
func (s *Service) fill(ctx context.Context, p domain.Project, spec vm.Spec, r CreateRequest) error {
	if git.IsAddress(p.Source) {
		s.progress(p, "fetch", "asking the remote")
	} else {
		s.progress(p, "source", "reading the source")
	}
	imp, err := s.importSource(ctx, p, r)
	if err != nil {
		return err
	}
	s.progress(p, "machine", "making the machine")
	if err := s.cfg.Fleet.Create(ctx, p, spec); err != nil {
		return err
	}
	g, err := s.cfg.Fleet.Ensure(ctx, p)
	if err != nil {
		return err
	}
	s.progress(p, "workspace", "filling the workspace")
	if err := s.importGuest(ctx, p, g, imp); err != nil {
		return err
	}
	// The first checkpoint is what later ones are compared with.
	s.progress(p, "workspace", "taking the first checkpoint")
	if _, err := g.Checkpoints().Take(ctx, guest.CheckpointRequest{Full: true}); err != nil {
		return domain.E(domain.CodeUnavailable, "the first checkpoint of the workspace could not be taken", "try again", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // given up at the last moment: a project is whole or not there
	}
	// Nothing is told of the making after the event that ends it.
	s.prog.end(p.ID)
	ev := imp.event
	if err := s.append(ctx, p.ID, r.Actor, &ev); err != nil {
		return err
	}
	s.mu.Lock()
	s.base[p.ID] = ev
	s.mu.Unlock()
	return nil
}

// giveUp ends a making and waits until nothing of it is left. It reports whether
// there was one and it did not finish first.
func (s *Service) giveUp(ctx context.Context, id domain.ProjectID, by domain.Actor) (bool, error) {
	s.mu.Lock()
	mk := s.making[id]
	s.mu.Unlock()
	if mk == nil {
		return false, nil
	}
	mk.cancel(&givenUp{by})
	select {
	case <-mk.done:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	return !s.exists(id), nil
}

// Cancel gives up what is being done for a project: its making, of which nothing is
// left then, or the start of its machine, which is off then. It says which, and is a
// conflict when nothing is under way, also when it became ready just before.
func (s *Service) Cancel(ctx context.Context, id domain.ProjectID, by domain.Actor) (string, error) {
	p, err := s.Get(id)
	if err != nil {
		return "", err
	}
	if ok, err := s.giveUp(ctx, p.ID, by); err != nil {
		return "", err
	} else if ok {
		return "create", nil
	}
	ok, err := s.cfg.Fleet.GiveUp(ctx, p)
	if err != nil {
		return "", err
	}
	if !ok {
		return "", domain.E(domain.CodeConflict, fmt.Sprintf("nothing is under way for project %s that could be given up", p.Name), "it is done already, or was never begun", nil)
	}
	return "start", nil
}

// DefaultKind is what a new project gets that names no kind.
func (s *Service) DefaultKind() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg.DefaultKind
}

func (s *Service) defaultSpec() vm.Spec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg.Spec
}

// SetDefaults changes what new projects get; those that are there keep theirs.
func (s *Service) SetDefaults(kind string, spec vm.Spec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.DefaultKind, s.cfg.Spec = kind, spec
}

// errLeaving is why no project is made any more.
var errLeaving = domain.E(domain.CodeUnavailable, "Glasshouse is shutting down", "start it again, then make the project", nil)

// Making lists the projects that are being made now.
func (s *Service) Making() []domain.Project {
	var out []domain.Project
	for _, p := range s.List() {
		s.mu.Lock()
		_, ok := s.making[p.ID]
		s.mu.Unlock()
		if ok {
			out = append(out, p)
		}
	}
	return out
}

// GiveUpAll gives up every making and waits until nothing of them is left; none
// begins after it was called. What does not end before ctx is left to the next core.
func (s *Service) GiveUpAll(ctx context.Context, by domain.Actor) error {
	s.mu.Lock()
	s.closed = true
	var all []*making
	for _, mk := range s.making {
		all = append(all, mk)
		mk.cancel(&givenUp{by})
	}
	s.mu.Unlock()
	for _, mk := range all {
		select {
		case <-mk.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
