package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/review"
	"glasshouse/vm/guest"
)

// StepDiff is what one step did to one file, between the checkpoint before it and
// its own. The bytes come from the machine: a claim of the guest, unlike a review.
type StepDiff struct {
	Path     string        `json:"path"`
	OldPath  string        `json:"old_path,omitempty"`
	Display  string        `json:"display" doc:"the path with every odd character spelt out"`
	Op       review.Op     `json:"op"`
	OldMode  uint32        `json:"old_mode,omitempty"`
	NewMode  uint32        `json:"new_mode,omitempty"`
	OldSize  int64         `json:"old_size"`
	NewSize  int64         `json:"new_size"`
	Binary   bool          `json:"binary"`
	TooLarge bool          `json:"too_large"`
	Why      string        `json:"why,omitempty" doc:"why there are no hunks"`
	Added    int           `json:"added"`
	Deleted  int           `json:"deleted"`
	Coarse   bool          `json:"coarse,omitempty" doc:"right, but not minimal"`
	Hunks    []review.Hunk `json:"hunks"`
}

func (s *server) stepDiffs(api huma.API) {
	type in struct {
		ID    string `path:"id"`
		Step  string `path:"step"`
		Path  string `query:"path" required:"true" maxLength:"4096" doc:"as the step's list of changes names it"`
		Start bool   `query:"start" doc:"start the machine where it is off"`
	}
	huma.Register(api, op("step-diff", http.MethodGet, "/v1/sessions/{id}/steps/{step}/diff", "What a step changed in one file, line by line"), func(ctx context.Context, in *in) (*body[StepDiff], error) {
		v, err := s.Sessions.Get(ctx, domain.SessionID(in.ID))
		if err != nil {
			return nil, fail(err)
		}
		st, err := s.Sessions.Step(ctx, domain.SessionID(in.ID), domain.StepID(in.Step))
		if err != nil {
			return nil, fail(err)
		}
		sv, err := st.Wait(ctx, domain.StepRequested)
		if err != nil {
			return nil, fail(err)
		}
		if sv.Sealed == nil || sv.Sealed.Commit == "" {
			return nil, fail(domain.E(domain.CodeNotFound, fmt.Sprintf("step %d has no checkpoint", sv.Number), "only a step that changes the workspace has one, once it is sealed", nil))
		}
		p, err := s.Projects.Get(v.ProjectID)
		if err != nil {
			return nil, fail(err)
		}
		g, err := s.running(ctx, p, in.Start)
		if err != nil {
			return nil, fail(err)
		}
		d, err := stepDiff(ctx, g.Checkpoints(), sv.Sealed, strings.TrimPrefix(in.Path, guest.Workspace+"/"))
		if err == nil && d == nil {
			err = domain.E(domain.CodeNotFound, fmt.Sprintf("step %d did not touch %q", sv.Number, review.Display(in.Path)), "use a path of its file changes", nil)
		}
		if err != nil {
			return nil, fail(fileErr(err))
		}
		return ok(*d, nil)
	})
}

// stepDiff compares a file before and after a step; nil when it is in neither.
func stepDiff(ctx context.Context, c guest.Checkpoints, sealed *event.StepSealed, path string) (*StepDiff, error) {
	old := path
	for _, ch := range sealed.Changes {
		if ch.Path == path && ch.OldPath != "" {
			old = ch.OldPath
		}
	}
	before, after, err := bothSides(ctx, c, sealed, old, path)
	if err != nil {
		return nil, err
	}
	if before.Mode == 0 && after.Mode == 0 || old != path && before.Mode == 0 {
		// Names that are no UTF-8 are written down with the odd bytes replaced; the
		// checkpoint still knows the right ones.
		real, was, found, err := realName(ctx, c, sealed, path)
		if err != nil {
			return nil, err
		}
		if !found && after.Mode == 0 {
			return nil, nil
		}
		if found {
			if path, old = real, was; old == "" {
				old = path
			}
			if before, after, err = bothSides(ctx, c, sealed, old, path); err != nil {
				return nil, err
			}
		}
	}
	d := &StepDiff{Path: strings.ToValidUTF8(path, "\uFFFD"), Display: review.Display(path), OldMode: before.Mode, NewMode: after.Mode,
		OldSize: before.Size, NewSize: after.Size, Hunks: []review.Hunk{}}
	if old != path {
		d.OldPath = strings.ToValidUTF8(old, "\uFFFD")
	}
	const kind = 0o170000
	same := before.Size == after.Size && bytes.Equal(before.Data, after.Data)
	switch {
	case before.Mode == 0:
		d.Op, d.OldPath = review.OpAdd, ""
	case after.Mode == 0:
		d.Op = review.OpDelete
	case before.Mode&kind != after.Mode&kind:
		d.Op = review.OpType
	case old != path:
		d.Op = review.OpRename
	case same && before.Mode != after.Mode:
		d.Op = review.OpMode
	default:
		d.Op = review.OpModify
	}
	// The reading stops past the limit, so a file that is larger shows itself by its size.
	t := review.DiffTexts(path, before.Data, after.Data)
	d.Binary, d.TooLarge, d.Why, d.Added, d.Deleted, d.Coarse = t.Binary, t.Large, t.Why, t.Added, t.Deleted, t.Coarse
	if len(t.Hunks) > 0 {
		d.Hunks = t.Hunks
	}
	return d, nil
}

func bothSides(ctx context.Context, c guest.Checkpoints, sealed *event.StepSealed, old, path string) (before, after guest.KeptFile, err error) {
	const limit = review.MaxTextBytes + 1
	q := guest.ShowRequest{Commit: sealed.Base, Path: old, Limit: limit}
	if sealed.Base == "" {
		q.Commit, q.Before = sealed.Commit, true
	}
	if before, err = c.Show(ctx, q); err != nil {
		return before, after, err
	}
	after, err = c.Show(ctx, guest.ShowRequest{Commit: sealed.Commit, Path: path, Limit: limit})
	return before, after, err
}

// realName finds the bytes of a name that was written down as shown.
func realName(ctx context.Context, c guest.Checkpoints, sealed *event.StepSealed, shown string) (path, old string, found bool, err error) {
	if sealed.Base == "" || !strings.ContainsRune(shown, '\uFFFD') {
		return "", "", false, nil
	}
	changes, _, err := c.Diff(ctx, sealed.Base, sealed.Commit)
	for _, ch := range changes {
		if strings.ToValidUTF8(ch.Path, "\uFFFD") == shown {
			return ch.Path, ch.OldPath, true, nil
		}
	}
	return "", "", false, err
}
