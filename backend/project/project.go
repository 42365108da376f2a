// Package project keeps the projects: a source on the host, its mirror, its
// machine and what comes back out of it for review. What a project is can be
// folded from its events.
package project

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/egress"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/git"
	"glasshouse/backend/machine"
	"glasshouse/vm"
)

// Log is what projects need of the event log.
type Log interface {
	Append(ctx context.Context, events ...event.New) ([]event.Envelope, error)
	Publish(events ...event.New) error
	Fold(ctx context.Context, f eventlog.Filter, fn func(event.Envelope) error) error
}

// Config of a Service; every edge is injected.
type Config struct {
	Log    Log
	Ledger *approval.Ledger
	Fleet  *machine.Fleet
	// Mirror opens (or makes) the mirror of a project.
	Mirror func(id domain.ProjectID) (*git.Mirror, error)
	// Trash moves a project's folder out of the way.
	Trash func(id domain.ProjectID) (string, error)
	// Discard removes what is left of a project that was never finished, its machine's
	// trash too: all of it can be had again from its source. nil = Trash.
	Discard func(p domain.Project) error
	// DefaultKind of machines; Spec their default limits.
	DefaultKind string
	Spec        vm.Spec
	// Author of commits the host makes.
	Author func(ctx context.Context) git.Person
}

// Service holds the projects.
type Service struct {
	cfg     Config
	mu      sync.Mutex
	all     map[domain.ProjectID]*domain.Project
	leaving map[domain.ProjectID]bool           // being deleted
	gone    map[domain.ProjectID]domain.Project // deleted, as the log told at Load
	base    map[domain.ProjectID]event.ProjectImported
	mirrors map[domain.ProjectID]*git.Mirror
	making  map[domain.ProjectID]*making
	named   map[string]bool // names that are being taken
	closed  bool            // no project is made any more
	prog    *progress
	desk    *desk
}

// New returns a service without projects; Load fills it.
func New(cfg Config) *Service {
	s := &Service{cfg: cfg, all: map[domain.ProjectID]*domain.Project{}, leaving: map[domain.ProjectID]bool{}, gone: map[domain.ProjectID]domain.Project{}, base: map[domain.ProjectID]event.ProjectImported{}, mirrors: map[domain.ProjectID]*git.Mirror{}}
	s.making, s.named = map[domain.ProjectID]*making{}, map[string]bool{}
	s.prog = newProgress(func(n event.New) { _ = cfg.Log.Publish(n) })
	s.desk = newDesk(s)
	return s
}

// Load folds the log.
func (s *Service) Load(ctx context.Context) error {
	return s.cfg.Log.Fold(ctx, eventlog.Filter{}, func(e event.Envelope) error {
		s.desk.heard = e.ID
		switch e.Type {
		case "project.created", "project.deleted", "project.imported", "review.opened", "review.decided", "push.started", "push.ended",
			"review.viewed", "review.commented", "review.comment_edited", "review.comment_removed", "review.comments_sent", "message":
		default:
			return nil
		}
		p, err := event.Decode(e)
		if err != nil {
			return err
		}
		switch p := p.(type) {
		case *event.ProjectCreated:
			pr := p.Project
			s.all[e.ProjectID] = &pr
		case *event.ProjectDeleted:
			if p := s.all[e.ProjectID]; p != nil {
				s.gone[e.ProjectID] = *p
			}
			delete(s.all, e.ProjectID)
		case *event.ProjectImported:
			s.base[e.ProjectID] = *p
		default:
			s.desk.fold(e, p)
		}
		return nil
	})
}

// Tidy finishes what an earlier core did not get to: a project whose making was cut
// short is taken away again, and what is left of deleted ones goes to the trash.
// Only what the log says was deleted is touched; a folder that cannot be listed says
// nothing.
func (s *Service) Tidy(ctx context.Context) error {
	var errs []error
	for _, p := range s.List() {
		if _, filled := s.Imported(p.ID); !filled {
			if err := s.remove(ctx, p, "host", "the core ended while it was being made"); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", p.Name, err))
			}
		}
	}
	there := map[string]bool{}
	for kind, m := range s.cfg.Fleet.Kinds() {
		ids, err := m.List(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("the %s machines cannot be listed: %w", kind, err))
			continue
		}
		for _, id := range ids {
			there[kind+"/"+id] = true
		}
	}
	for _, p := range s.gone {
		var err error
		if there[p.Kind+"/"+string(p.Machine)] {
			err = s.cfg.Fleet.Destroy(ctx, p)
		}
		if _, terr := s.cfg.Trash(p.ID); terr != nil {
			err = errors.Join(err, terr)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (s *Service) append(ctx context.Context, id domain.ProjectID, actor domain.Actor, ps ...event.Payload) error {
	var evs []event.New
	for _, p := range ps {
		evs = append(evs, event.New{Stream: event.ProjectStream(id), Origin: domain.OriginHost, Actor: actor, ProjectID: id, Payload: p})
	}
	_, err := s.cfg.Log.Append(context.WithoutCancel(ctx), evs...)
	return err
}

// Get finds a project by id or, where it is unique, by name.
func (s *Service) Get(id domain.ProjectID) (domain.Project, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.all[id]; p != nil {
		return *p, nil
	}
	var found []domain.Project
	for _, p := range s.all {
		if p.Name == string(id) {
			found = append(found, *p)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return domain.Project{}, notThere(id)
	}
	return domain.Project{}, domain.E(domain.CodeConflict, fmt.Sprintf("%d projects are called %q", len(found), id), "give the project's id", nil)
}

// List returns the projects, oldest first.
func (s *Service) List() []domain.Project {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []domain.Project{}
	for _, p := range s.all {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b domain.Project) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// Imported is what the workspace began with.
func (s *Service) Imported(id domain.ProjectID) (event.ProjectImported, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.base[id]
	return b, ok
}

// Delete stops the machine and moves it and the mirror to the trash. The source
// is never touched: Glasshouse deletes only what it made. Of a project that is still
// being made the making is given up.
func (s *Service) Delete(ctx context.Context, id domain.ProjectID, actor domain.Actor) error {
	p, err := s.Get(id)
	if err != nil {
		return err
	}
	if ok, err := s.giveUp(ctx, p.ID, actor); ok || err != nil {
		return err
	}
	return s.remove(ctx, p, actor, "")
}

// remove records the end first, so that a rescan never revives the project. What
// then cannot be taken away is taken by the next core's Tidy.
func (s *Service) remove(ctx context.Context, p domain.Project, actor domain.Actor, reason string) error {
	if s.desk.pushing(p.ID) {
		return domain.E(domain.CodeConflict, fmt.Sprintf("a push of project %s is running", p.Name), "wait for its end, then delete the project", nil)
	}
	s.mu.Lock()
	switch {
	case s.all[p.ID] == nil:
		s.mu.Unlock()
		return notThere(p.ID)
	case s.leaving[p.ID]:
		s.mu.Unlock()
		return domain.E(domain.CodeConflict, fmt.Sprintf("project %s is being deleted already", p.Name), "", nil)
	}
	s.leaving[p.ID] = true
	s.mu.Unlock()
	err := s.append(ctx, p.ID, actor, &event.ProjectDeleted{Reason: reason})
	s.mu.Lock()
	delete(s.leaving, p.ID)
	if err == nil {
		delete(s.all, p.ID)
		delete(s.mirrors, p.ID)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	// The caller may go; what was begun is finished.
	ctx = context.WithoutCancel(ctx)
	err = s.cfg.Fleet.Destroy(ctx, p)
	if reason != "" && s.cfg.Discard != nil {
		return errors.Join(err, s.cfg.Discard(p))
	}
	if _, terr := s.cfg.Trash(p.ID); terr != nil {
		err = errors.Join(err, terr)
	}
	return err
}

func notThere(id domain.ProjectID) error {
	return domain.E(domain.CodeNotFound, fmt.Sprintf("there is no project %q", id), "list them with 'glasshouse project list'", nil)
}

func (s *Service) exists(id domain.ProjectID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[id] != nil
}

// AddEgressRule records a rule about a host that a person wrote.
func (s *Service) AddEgressRule(ctx context.Context, id domain.ProjectID, t egress.Target, d domain.Decision, by domain.Actor) (approval.Grant, error) {
	return s.cfg.Ledger.AddGrant(ctx, id, "", event.RuleAdded{Kind: "egress", Scope: "project", Host: t.Host, Port: t.Port, Decision: d,
		Text: fmt.Sprintf("%s connections to %s, in this project", d, t)}, by)
}

func (s *Service) mirror(id domain.ProjectID) (*git.Mirror, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.mirrors[id]; m != nil {
		return m, nil
	}
	if s.all[id] == nil {
		return nil, notThere(id) // a mirror is never made for a project that is gone
	}
	m, err := s.cfg.Mirror(id)
	if err != nil {
		return nil, err
	}
	s.mirrors[id] = m
	return m, nil
}

func unsafeRune(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError
}

// hostname makes a valid host name out of a project's name.
func hostname(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else if b.Len() > 0 && !strings.HasSuffix(b.String(), "-") {
			b.WriteByte('-')
		}
	}
	h := strings.Trim(b.String(), "-")
	if len(h) > 40 {
		h = strings.Trim(h[:40], "-")
	}
	if h == "" {
		h = "workspace"
	}
	return h
}
