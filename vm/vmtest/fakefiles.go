package vmtest

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"glasshouse/vm/guest"
)

// fakeFiles are the files of a World; folders are what files have before a slash.
type fakeFiles struct{ g *Guest }

func (f fakeFiles) at(ctx context.Context, method, name string) (string, error) {
	if err := f.g.ok(ctx, method); err != nil {
		return "", err
	}
	return inside(name)
}

func info(p string, b []byte) guest.FileInfo {
	return guest.FileInfo{Path: p, Type: "file", Size: int64(len(b)), Mode: 0o644, Sha256: sum(b)}
}

func (f fakeFiles) Stat(ctx context.Context, name string) (guest.FileInfo, error) {
	p, err := f.at(ctx, "files.stat", name)
	if err != nil {
		return guest.FileInfo{}, err
	}
	w := f.g.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if b, ok := w.files[p]; ok {
		return info(p, b), nil
	}
	for q := range w.files {
		if strings.HasPrefix(q, p+"/") {
			return guest.FileInfo{Path: p, Type: "dir", Mode: 0o755}, nil
		}
	}
	return guest.FileInfo{}, fmt.Errorf("%w: %s", guest.ErrNotFound, p)
}

func (f fakeFiles) Read(ctx context.Context, name string, offset, limit int64) (guest.FileData, error) {
	p, err := f.at(ctx, "files.read", name)
	if err != nil {
		return guest.FileData{}, err
	}
	f.g.w.mu.Lock()
	b, ok := f.g.w.files[p]
	f.g.w.mu.Unlock()
	if !ok {
		return guest.FileData{}, fmt.Errorf("%w: %s", guest.ErrNotFound, p)
	}
	d := guest.FileData{Info: info(p, b), Offset: offset}
	if offset >= 0 && offset < int64(len(b)) {
		d.Data = slices.Clone(b[offset:min(int64(len(b)), offset+limit)])
	}
	return d, nil
}

func (f fakeFiles) Write(ctx context.Context, name string, data []byte, opt guest.WriteOptions) (guest.FileInfo, error) {
	p, err := f.at(ctx, "files.write", name)
	if err != nil {
		return guest.FileInfo{}, err
	}
	f.g.w.mu.Lock()
	b, ok := f.g.w.files[p]
	f.g.w.mu.Unlock()
	if opt.IfMatch == "absent" && ok || opt.IfMatch != "" && opt.IfMatch != "absent" && (!ok || sum(b) != opt.IfMatch) {
		return guest.FileInfo{}, fmt.Errorf("%w: %s", guest.ErrConflict, p)
	}
	f.g.w.Put(p, data)
	return info(p, data), nil
}

func (f fakeFiles) Remove(ctx context.Context, name string, recursive bool) error {
	p, err := f.at(ctx, "files.remove", name)
	if err != nil {
		return err
	}
	w := f.g.w
	w.mu.Lock()
	defer w.mu.Unlock()
	_, found := w.files[p]
	delete(w.files, p)
	for q := range w.files {
		if !strings.HasPrefix(q, p+"/") {
			continue
		}
		if !recursive {
			return fmt.Errorf("the folder %s is not empty", p)
		}
		found = true
		delete(w.files, q)
	}
	if !found {
		return fmt.Errorf("%w: %s", guest.ErrNotFound, p)
	}
	return nil
}

func (f fakeFiles) Mkdir(ctx context.Context, name string) error {
	_, err := f.at(ctx, "files.mkdir", name)
	return err
}

func (f fakeFiles) List(ctx context.Context, name string, limit int) ([]guest.FileInfo, bool, error) {
	p, err := f.at(ctx, "files.list", name)
	if err != nil {
		return nil, false, err
	}
	w := f.g.w
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := map[string]guest.FileInfo{}
	for q, b := range w.files {
		rest, ok := strings.CutPrefix(q, p+"/")
		if !ok {
			continue
		}
		first, _, deep := strings.Cut(rest, "/")
		if deep {
			seen[first] = guest.FileInfo{Path: p + "/" + first, Type: "dir", Mode: 0o755}
		} else {
			seen[first] = info(q, b)
		}
	}
	var out []guest.FileInfo
	for _, n := range slices.Sorted(maps.Keys(seen)) {
		if len(out) == limit {
			return out, true, nil
		}
		out = append(out, seen[n])
	}
	return out, false, nil
}

// paths lists the files below p by name; relative to the workspace where they are in it.
func (f fakeFiles) below(p string) (out []string) {
	f.g.w.mu.Lock()
	defer f.g.w.mu.Unlock()
	for _, q := range slices.Sorted(maps.Keys(f.g.w.files)) {
		if q == p || strings.HasPrefix(q, p+"/") {
			out = append(out, q)
		}
	}
	return out
}

// Glob matches the pattern against the whole path or, for one without a slash,
// against the last word.
func (f fakeFiles) Glob(ctx context.Context, pattern string, _ bool, limit int) (out []string, more bool, err error) {
	if _, err := f.at(ctx, "files.glob", "."); err != nil {
		return nil, false, err
	}
	for _, q := range f.below(guest.Workspace) {
		rel := strings.TrimPrefix(q, guest.Workspace+"/")
		ok, err := path.Match(strings.TrimPrefix(pattern, "**/"), path.Base(rel))
		if full, ferr := path.Match(pattern, rel); ferr == nil && full {
			ok = true
		}
		if err != nil {
			return nil, false, err
		}
		if ok {
			if len(out) == limit {
				return out, true, nil
			}
			out = append(out, rel)
		}
	}
	return out, false, nil
}

// Search looks for the pattern as plain text.
func (f fakeFiles) Search(ctx context.Context, q guest.SearchQuery) (guest.SearchResult, error) {
	var r guest.SearchResult
	if q.Path == "" {
		q.Path = guest.Workspace
	}
	p, err := f.at(ctx, "files.search", q.Path)
	if err != nil {
		return r, err
	}
	if q.Limit == 0 {
		q.Limit = 200
	}
	for _, name := range f.below(p) {
		b, _ := f.g.w.Get(name)
		for i, line := range strings.Split(string(b), "\n") {
			if !strings.Contains(line, q.Pattern) {
				continue
			}
			if len(r.Matches) == q.Limit {
				r.More = true
				return r, nil
			}
			r.Matches = append(r.Matches, guest.Match{Path: strings.TrimPrefix(name, guest.Workspace+"/"), Line: i + 1, Text: line})
		}
	}
	return r, nil
}
