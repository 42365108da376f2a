package httpapi

import (
	"context"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"glasshouse/backend/domain"
	"glasshouse/backend/git"
)

// SourceView is what a project made from a folder would begin with.
type SourceView struct {
	Kind      string       `json:"kind" enum:"repository,bare,folder"`
	Path      string       `json:"path" doc:"links resolved"`
	Branch    string       `json:"branch,omitempty" doc:"empty: HEAD is detached, or there is none"`
	Commit    string       `json:"commit,omitempty" doc:"empty: no commits yet"`
	Files     int          `json:"files"`
	Dirty     []SourceFile `json:"dirty" doc:"files that differ from the commit, by path"`
	More      bool         `json:"more,omitempty" doc:"there are more of them than are listed"`
	MayDiffer int          `json:"may_differ,omitempty" doc:"filtered files, which only their filter could compare"`
	Ignored   int          `json:"ignored,omitempty" doc:"ignored files and folders, which stay outside"`
	Notes     []string     `json:"notes,omitempty"`
}

// SourceFile is one that differs from the commit.
type SourceFile struct {
	Path     string `json:"path"`
	Op       string `json:"op" enum:"add,modify,delete,type,mode"`
	Size     int64  `json:"size"`
	Withheld string `json:"withheld,omitempty" doc:"why it cannot be brought along; empty: it can"`
}

const (
	// maxSourceListed is as many as a project may bring along.
	maxSourceListed = 2000
	// sourceWait bounds the look at a folder that is very large or on a slow disk.
	sourceWait = 30 * time.Second
)

func (s *server) source(api huma.API) {
	type in struct {
		Caller
		Path string `query:"path" required:"true" maxLength:"4096" doc:"absolute path of a folder or repository on this computer"`
	}
	huma.Register(api, op("look-at-source", http.MethodGet, "/v1/source", "What a project made from a folder would begin with; the folder is only read"), func(ctx context.Context, in *in) (*body[SourceView], error) {
		if err := byPerson(in.Caller, "look at folders of this computer"); err != nil {
			return nil, fail(err)
		}
		ctx, stop := context.WithTimeoutCause(ctx, sourceWait, domain.E(domain.CodeUnavailable, "the folder is too large to be looked through in time", "make the project without choosing files, or choose a smaller folder", nil))
		defer stop()
		res, err := s.LookAt(ctx, in.Path)
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, fail(err)
		}
		return ok(sourceView(res), nil)
	})
}

// valid is a text that JSON can hold.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func sourceView(r git.ImportResult) SourceView {
	v := SourceView{Kind: r.Kind, Path: valid(r.Path), Branch: valid(r.Branch), Commit: r.Commit, Files: r.Files, Dirty: []SourceFile{}, More: r.MoreDirty, MayDiffer: len(r.MayDiffer), Ignored: r.Ignored}
	for _, n := range r.Notes {
		v.Notes = append(v.Notes, valid(n))
	}
	for _, d := range r.Dirty {
		if len(v.Dirty) == maxSourceListed {
			v.More = true
			break
		}
		f := SourceFile{Path: valid(d.Path), Op: d.Op, Size: d.Size, Withheld: d.Withheld}
		switch {
		case f.Withheld != "":
		case !utf8.ValidString(d.Path):
			f.Withheld = "its name is no text"
		}
		v.Dirty = append(v.Dirty, f)
	}
	return v
}
