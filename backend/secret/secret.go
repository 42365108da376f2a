// Package secret is the contract of stores that keep secrets outside the log, and the
// scrubber that takes known secrets out of texts. The computer's keychain is in a
// package of its own below.
package secret

import (
	"context"
	"fmt"
	"sync"

	"glasshouse/backend/domain"
)

// Store keeps secrets by account. Its methods may be called from any goroutine; they
// return when ctx ends at the latest.
type Store interface {
	// Get returns the secret of an account, or an error of the code not_found when
	// there is none and unavailable when the store cannot be asked.
	Get(ctx context.Context, account string) (string, error)
	// Set keeps a secret, in the place of an earlier one.
	Set(ctx context.Context, account, value string) error
	// Delete forgets a secret; a not_found error when there is none.
	Delete(ctx context.Context, account string) error
	// Name of the store, for people: "the keychain".
	Name() string
}

// MaxValue is the most bytes of a secret: what every keychain takes.
const MaxValue = 2000

// Check says why a value can be no secret that is sent in a header and found again in
// texts. The error never holds the value.
func Check(value string) error {
	bad := func(what, hint string) error {
		return &domain.Error{Code: domain.CodeInvalid, Pointer: "/key", What: "that is no key: " + what, Hint: hint}
	}
	switch {
	case value == "":
		return bad("it is empty", "give the key as the provider shows it; a server that needs none is set up without")
	case len(value) < MinValue:
		return bad(fmt.Sprintf("it has fewer than %d characters", MinValue), "give the whole key; a server that needs none is set up without")
	case len(value) > MaxValue:
		return bad(fmt.Sprintf("it has more than %d characters", MaxValue), "give the key alone")
	}
	for i := range len(value) {
		if value[i] <= ' ' || value[i] > '~' {
			return bad("it holds a space, a line end or a character that is not ASCII", "give the key alone, without quotes or a name before it")
		}
	}
	return nil
}

func notFound(account string) error {
	return domain.E(domain.CodeNotFound, fmt.Sprintf("there is no secret for %q", account), "", nil)
}

// Memory is a store that forgets everything with the process. The zero value works.
type Memory struct {
	mu sync.Mutex
	m  map[string]string
}

var _ Store = (*Memory)(nil)

func (s *Memory) Get(ctx context.Context, account string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.m[account]
	if !ok {
		return "", notFound(account)
	}
	return v, nil
}

func (s *Memory) Set(ctx context.Context, account, value string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[string]string{}
	}
	s.m[account] = value
	return nil
}

func (s *Memory) Delete(ctx context.Context, account string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.m[account]; !ok {
		return notFound(account)
	}
	delete(s.m, account)
	return nil
}

func (s *Memory) Name() string { return "memory" }
