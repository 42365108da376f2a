package policy

import (
	"errors"
	"os"
	"sync"

	"glasshouse/backend/domain"
)

// Store holds the user's rules and each project's on top of them. Files that are
// missing are no rules; bad ones are reported and do not loosen anything.
type Store struct {
	user    string // path of the user's file
	project func(domain.ProjectID) string

	mu    sync.Mutex
	rules map[domain.ProjectID]*Rules // "" = without a project
}

// NewStore reads from user (a path) and project (a path for each; nil = none).
// Files in a workspace are no place for rules: agents write there.
func NewStore(user string, project func(domain.ProjectID) string) *Store {
	return &Store{user: user, project: project, rules: map[domain.ProjectID]*Rules{}}
}

// Rules returns the set for a project, reading the files the first time. The set is
// usable also when there is an error; Rules.Problem repeats it.
func (s *Store) Rules(p domain.ProjectID) (*Rules, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.rules[p]; r != nil {
		return r, r.Problem()
	}
	r, err := Load(nil, s.sources(p)...)
	s.rules[p] = r
	return r, err
}

// Reload reads the files again. Sets whose files are bad now stay as they were.
func (s *Store) Reload() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for p, old := range s.rules {
		if old.Problem() != nil {
			old = nil // never was good
		}
		r, err := Load(old, s.sources(p)...)
		s.rules[p] = r
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (s *Store) sources(p domain.ProjectID) []Source {
	var out []Source
	read := func(t Tier, path string) {
		if path == "" {
			return
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return
		}
		out = append(out, Source{Tier: t, Name: path, Data: data, Err: err})
	}
	read(TierUser, s.user)
	if s.project != nil && p != "" {
		read(TierProject, s.project(p))
	}
	return out
}
