package builtin

import (
	"context"
	"strings"
	"testing"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/vm/guest"
)

// silentFiles answers nothing.
type silentFiles struct{ guest.Files }

func silence[T any](ctx context.Context) (v T, err error) {
	<-ctx.Done()
	return v, context.Cause(ctx)
}

func (silentFiles) Stat(ctx context.Context, _ string) (guest.FileInfo, error) {
	return silence[guest.FileInfo](ctx)
}
func (silentFiles) Read(ctx context.Context, _ string, _, _ int64) (guest.FileData, error) {
	return silence[guest.FileData](ctx)
}
func (silentFiles) Write(ctx context.Context, _ string, _ []byte, _ guest.WriteOptions) (guest.FileInfo, error) {
	return silence[guest.FileInfo](ctx)
}
func (silentFiles) List(ctx context.Context, _ string, _ int) ([]guest.FileInfo, bool, error) {
	v, err := silence[[]guest.FileInfo](ctx)
	return v, false, err
}
func (silentFiles) Glob(ctx context.Context, _ string, _ bool, _ int) ([]string, bool, error) {
	v, err := silence[[]string](ctx)
	return v, false, err
}
func (silentFiles) Search(ctx context.Context, _ guest.SearchQuery) (guest.SearchResult, error) {
	return silence[guest.SearchResult](ctx)
}

type silentGuest struct{ guest.Guest }

func (silentGuest) Files() guest.Files { return silentFiles{} }

func TestFilesOfASilentGuest(t *testing.T) {
	old := fileGuard
	fileGuard = 20 * time.Millisecond
	t.Cleanup(func() { fileGuard = old })
	r := newRig(t)
	r.call.Guest = silentGuest{}
	for _, call := range [][2]string{{"read", `{"path":"a"}`}, {"list", `{"path":"a"}`}, {"glob", `{"pattern":"*"}`}, {"search", `{"pattern":"x"}`},
		{"write", `{"path":"a","content":"x"}`}, {"edit", `{"path":"a","old":"x","new":"y"}`}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		res, err := r.run(ctx, call[0], call[1])
		cancel()
		if call[0] == "write" || call[0] == "edit" {
			if err != nil || res.Outcome != domain.OutcomeUnknown || !strings.Contains(res.Error, "not known") {
				t.Errorf("%s: %+v %v", call[0], res, err)
			}
		} else if domain.CodeOf(err) != domain.CodeUnavailable {
			t.Errorf("%s: %+v %v", call[0], res, err)
		}
	}
	// A cancel stays a cancel.
	fileGuard = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.run(ctx, "read", `{"path":"a"}`); err == nil || strings.Contains(err.Error(), "did not answer") {
		t.Errorf("a cancelled call: %v", err)
	}
}
