package domain

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestIDsSortByBirthAndNeverRepeat(t *testing.T) {
	form := regexp.MustCompile(`^p_[0-9a-hjkmnp-tv-z]{16}$`)
	var ids []string
	for range 20_000 {
		ids = append(ids, NewID("p"))
	}
	if !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
		t.Error("ids are out of order or repeat")
	}
	if !form.MatchString(ids[0]) {
		t.Errorf("%q", ids[0])
	}
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				id := NewID("s")
				mu.Lock()
				if seen[id] {
					t.Errorf("%s came twice", id)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if m := NewMachineID(); len(m) > 10 {
		t.Errorf("%q is too long for socket paths", m)
	}
}

// The whole matrix: what is not listed must be refused.
func TestStepMoves(t *testing.T) {
	all := []StepState{StepRequested, StepAsking, StepRunning, StepEnded, StepSealed, StepDenied, StepCancelled, StepExpired}
	allowed := "requested>asking requested>running requested>denied requested>cancelled asking>running asking>denied asking>cancelled asking>expired running>ended ended>sealed"
	for _, from := range all {
		for _, to := range all {
			want := slices.Contains(strings.Fields(allowed), string(from)+">"+string(to))
			if CanStep(from, to) != want {
				t.Errorf("%s to %s: %v", from, to, !want)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	base := errors.New("disk full")
	err := fmt.Errorf("outer: %w", E(CodeUnavailable, "nothing was written", "free some space", base))
	if CodeOf(err) != CodeUnavailable || !errors.Is(err, base) || CodeOf(base) != CodeInternal {
		t.Error(err)
	}
	if got := err.Error(); got != "outer: nothing was written: disk full (free some space)" {
		t.Error(got)
	}
}
