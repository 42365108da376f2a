package httpapi

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"glasshouse/backend/event"
	"glasshouse/backend/review"
	"glasshouse/vm/guest"
	"glasshouse/vm/vmtest"
)

// steps drives a made-up guest: each write is a step that is sealed.
type steps struct {
	t *testing.T
	g guest.Guest
	c guest.Checkpoints
}

func newSteps(t *testing.T) *steps {
	g := vmtest.NewWorld().Open()
	return &steps{t, g, g.Checkpoints()}
}

func (s *steps) seal(files map[string]string) *event.StepSealed {
	s.t.Helper()
	ctx := context.Background()
	for p, data := range files {
		var err error
		if data == "" {
			err = s.g.Files().Remove(ctx, p, false)
		} else {
			_, err = s.g.Files().Write(ctx, p, []byte(data), guest.WriteOptions{})
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	cp, err := s.c.Take(ctx, guest.CheckpointRequest{Session: "s", Step: "st"})
	if err != nil {
		s.t.Fatal(err)
	}
	out := &event.StepSealed{Commit: cp.Commit, Base: cp.Parent}
	for _, c := range cp.Changes {
		out.Changes = append(out.Changes, event.FileChange{Path: strings.ToValidUTF8(c.Path, "\uFFFD"), Op: c.Op})
	}
	return out
}

func (s *steps) diff(sealed *event.StepSealed, path string) *StepDiff {
	s.t.Helper()
	d, err := stepDiff(context.Background(), s.c, sealed, path)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func TestStepDiff(t *testing.T) {
	s := newSteps(t)
	first := s.seal(map[string]string{"a.txt": "one\ntwo\n", "bin": "a\x00b", "odd\xff\u202e.txt": "x\n"})
	second := s.seal(map[string]string{"a.txt": "one\n2\n", "bin": "", "big": strings.Repeat("x", review.MaxTextBytes+1), "odd\xff\u202e.txt": "y\n"})
	if d := s.diff(first, "a.txt"); d.Op != review.OpAdd || d.Added != 2 || d.OldPath != "" {
		t.Errorf("the first step: %+v", d)
	}
	d := s.diff(second, "a.txt")
	if d.Op != review.OpModify || d.Added != 1 || d.Deleted != 1 || len(d.Hunks) != 1 || d.Hunks[0].Lines[1].Text != "two" {
		t.Errorf("the second step: %+v", d)
	}
	// Another change later does not alter what a step did.
	s.seal(map[string]string{"a.txt": "later\n"})
	if again := s.diff(second, "a.txt"); again.Hunks[0].ID != d.Hunks[0].ID {
		t.Error("a step's diff changed")
	}
	if d := s.diff(second, "bin"); d.Op != review.OpDelete || !d.Binary || len(d.Hunks) != 0 {
		t.Errorf("a binary that was removed: %+v", d)
	}
	if d := s.diff(second, "big"); !d.TooLarge || d.NewSize != review.MaxTextBytes+1 || len(d.Hunks) != 0 {
		t.Errorf("a large one: %+v", d)
	}
	// The name as the events and the page have it, not as the guest has it.
	d = s.diff(second, "odd\uFFFD\u202e.txt")
	if d == nil || d.Op != review.OpModify || d.Added != 1 || strings.ContainsRune(d.Display, '\u202e') {
		t.Errorf("a name that is no UTF-8: %+v", d)
	}
	if _, err := json.Marshal(d); err != nil {
		t.Error(err)
	}
	if d := s.diff(second, "never"); d != nil {
		t.Errorf("a file that never was: %+v", d)
	}
	// An event of an older core does not name what it is against.
	old := &event.StepSealed{Commit: second.Commit, Changes: second.Changes}
	if d := s.diff(old, "a.txt"); d.Deleted != 1 {
		t.Errorf("against the checkpoint before: %+v", d)
	}
}

func TestStepDiffOfARename(t *testing.T) {
	s := newSteps(t)
	s.seal(map[string]string{"old.txt": "one\ntwo\n"})
	sealed := s.seal(map[string]string{"old.txt": "", "new.txt": "one\ntwo\nthree\n"})
	sealed.Changes = []event.FileChange{{Path: "new.txt", OldPath: "old.txt", Op: "rename"}}
	if d := s.diff(sealed, "new.txt"); d.Op != review.OpRename || d.OldPath != "old.txt" || d.Added != 1 || d.Deleted != 0 {
		t.Errorf("%+v", d)
	}
}
