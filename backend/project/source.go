package project

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/git"
	"glasshouse/vm/guest"
)

// imported is what a source gave, on its way into the guest.
type imported struct {
	res   git.ImportResult
	event event.ProjectImported
}

// maxListed bounds the lists of a project.imported event.
const maxListed = 200

// importSource reads the source into the mirror, or nothing where there is none.
func (s *Service) importSource(ctx context.Context, p domain.Project, r CreateRequest) (imported, error) {
	m, err := s.mirror(p.ID)
	if err != nil {
		return imported{}, err
	}
	if p.Source == "" {
		return imported{res: git.ImportResult{Branch: "main"}, event: event.ProjectImported{Branch: "main"}}, nil
	}
	res, err := m.ImportSource(ctx, p.Source, git.ImportOptions{Overlay: r.Overlay, Branch: r.Branch, Progress: func(f git.FetchProgress) { s.fetched(p.ID, f) }})
	if err != nil {
		return imported{}, err
	}
	ev := event.ProjectImported{Branch: text(res.Branch), Commit: res.Commit, Files: res.Files, IgnoredOut: res.Ignored, Overlaid: texts(res.Overlaid), MayDiffer: texts(res.MayDiffer)}
	if res.Kind == "remote" {
		ev.Remote, ev.Ref = text(res.Path), "refs/heads/"+text(res.Branch)
	}
	// Where the source comes from is where its changes are likely to go. An address
	// that holds credentials would have to be cut, and lead nowhere.
	if o := res.Origin; o != "" && ev.Remote == "" && git.Redact(o) == o && (filepath.IsAbs(o) || strings.Contains(o, ":")) {
		ev.Remote = text(clip(o, 4096))
	}
	over := map[string]bool{}
	for _, p := range res.Overlaid {
		over[p] = true
	}
	for _, d := range res.Dirty {
		if !over[d.Path] {
			ev.Dirty = append(ev.Dirty, text(d.Path))
		}
	}
	ev.Dirty = texts(ev.Dirty)
	return imported{res, ev}, nil
}

// importGuest gives the guest one pack of what was imported.
func (s *Service) importGuest(ctx context.Context, p domain.Project, g guest.Guest, imp imported) error {
	who := s.cfg.Author(ctx)
	req := guest.ImportRequest{Branch: imp.res.Branch, Commit: imp.res.Commit, AuthorName: who.Name, AuthorEmail: who.Email, Overlay: imp.res.Overlay}
	pack := io.NopCloser(bytes.NewReader(nil))
	if imp.res.Commit != "" {
		m, err := s.mirror(p.ID)
		if err != nil {
			return err
		}
		if pack, err = m.PackFor(ctx, imp.res.Commit); err != nil {
			return err
		}
	}
	defer pack.Close()
	if err := g.Git().Import(ctx, req, pack); err != nil {
		return domain.E(domain.CodeUnavailable, "the repository could not be put into the machine", "try again; the source is unchanged", err)
	}
	return nil
}

// Repair makes the repository of a project's workspace anew, out of what was imported,
// where it was destroyed: its files stay, and what is left of the old one is kept in
// the new one. It reports whether it had to. Commits the machine made itself are only
// in what was kept; their files are in the workspace.
func (s *Service) Repair(ctx context.Context, p domain.Project, g guest.Guest) (bool, error) {
	imp, ok := s.Imported(p.ID)
	if !ok {
		return false, nil // it was never filled: there is nothing to make it of
	}
	who := s.cfg.Author(ctx)
	req := guest.ImportRequest{Branch: imp.Branch, Commit: imp.Commit, AuthorName: who.Name, AuthorEmail: who.Email}
	// Most often it is whole, and to collect a pack for nothing takes long.
	made, err := g.Git().Repair(ctx, req, nil)
	if err == nil || imp.Commit == "" || ctx.Err() != nil {
		return made, err
	}
	m, err := s.mirror(p.ID)
	if err != nil {
		return false, err
	}
	pack, err := m.PackFor(ctx, imp.Commit)
	if err != nil {
		return false, err
	}
	defer pack.Close()
	return g.Git().Repair(ctx, req, pack)
}

// text makes a name of raw bytes fit for JSON; what is no UTF-8 is shown so.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func texts(in []string) []string {
	var out []string
	for i, s := range in {
		if i == maxListed {
			break
		}
		out = append(out, text(s))
	}
	return out
}
