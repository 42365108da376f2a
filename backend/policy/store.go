package policy

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"glasshouse/backend/domain"
)

// Store holds the user's rules and each project's on top of them. Files that are
// missing are no rules; bad ones are reported and do not loosen anything. A file that
// changed is read again the next time its rules are asked for.
type Store struct {
	user    string // path of the user's file
	project func(domain.ProjectID) string

	mu    sync.Mutex
	rules map[domain.ProjectID]*loaded // "" = without a project
}

// loaded is a set and what it was read from.
type loaded struct {
	rules *Rules
	fault error  // what is wrong with the files now, also when older rules stay in force
	stamp string // the files as they were then
}

// NewStore reads from user (a path) and project (a path for each; nil = none).
// Files in a workspace are no place for rules: agents write there.
func NewStore(user string, project func(domain.ProjectID) string) *Store {
	return &Store{user: user, project: project, rules: map[domain.ProjectID]*loaded{}}
}

// Rules returns the set in force for a project, reading the files when they changed.
// The set is usable also when there is an error, which says what is wrong with them
// now: rules that were good before stay in force.
func (s *Store) Rules(p domain.ProjectID) (*Rules, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.rules[p]
	// The stamp is taken before the files are read: what changes in between is seen next time.
	if stamp := s.stamp(p); l == nil || l.stamp != stamp {
		l = s.read(p, l, stamp)
	}
	return l.rules, l.fault
}

// Reload reads the files again. Sets whose files are bad now stay as they were.
func (s *Store) Reload() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for p, old := range s.rules {
		errs = append(errs, s.read(p, old, s.stamp(p)).fault)
	}
	return errors.Join(errs...)
}

// read loads a project's files; s.mu is held.
func (s *Store) read(p domain.ProjectID, old *loaded, stamp string) *loaded {
	var before *Rules
	if old != nil && old.rules.Problem() == nil {
		before = old.rules // else it never was good
	}
	r, err := Load(before, s.sources(p)...)
	l := &loaded{rules: r, fault: err, stamp: stamp}
	s.rules[p] = l
	return l
}

// file is where rules of a tier are read from.
type file struct {
	tier Tier
	path string
}

func (s *Store) files(p domain.ProjectID) []file {
	var out []file
	if s.user != "" {
		out = append(out, file{TierUser, s.user})
	}
	if s.project != nil && p != "" {
		out = append(out, file{TierProject, s.project(p)})
	}
	return out
}

// stamp changes whenever one of the files does.
func (s *Store) stamp(p domain.ProjectID) string {
	out := ""
	for _, f := range s.files(p) {
		fi, err := os.Stat(f.path)
		if err != nil {
			out += fmt.Sprintf("%s %v\n", f.path, errors.Is(err, os.ErrNotExist))
			continue
		}
		out += fmt.Sprintf("%s %d %d %v\n", f.path, fi.Size(), fi.ModTime().UnixNano(), fi.Mode())
	}
	return out
}

func (s *Store) sources(p domain.ProjectID) []Source {
	var out []Source
	for _, f := range s.files(p) {
		data, err := os.ReadFile(f.path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		out = append(out, Source{Tier: f.tier, Name: f.path, Data: data, Err: err})
	}
	return out
}

// RulesFile is a rules file as it is on disk now.
type RulesFile struct {
	Tier  Tier   `json:"tier" enum:"builtin,user,project"`
	Path  string `json:"path,omitempty" doc:"empty: the built-in rules"`
	There bool   `json:"there" doc:"false: no such file, so no rules of it"`
	Text  string `json:"text" doc:"the file, at most 256 KiB of it"`
	Fault string `json:"fault,omitempty" doc:"what is wrong with it: it then adds no rules, and rules from before stay in force"`
}

// maxShown of a rules file's text.
const maxShown = 256 << 10

// Files shows the files behind a project's rules, read now, each with its own faults.
func (s *Store) Files(p domain.ProjectID) []RulesFile {
	out := []RulesFile{{Tier: TierBuiltin, There: true, Text: string(builtin)}}
	src := map[string]Source{}
	for _, x := range s.sources(p) {
		src[x.Name] = x
	}
	for _, f := range s.files(p) {
		v := RulesFile{Tier: f.tier, Path: f.path}
		if x, ok := src[f.path]; ok {
			v.There, v.Text = true, shown(x.Data)
			if _, err := parse(x); err != nil {
				v.Fault = err.Error()
			}
		}
		out = append(out, v)
	}
	return out
}
