package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"glasshouse/backend/domain"
	"glasshouse/backend/session"
	"glasshouse/vm/guest"
)

// FileEntry is one file of the workspace.
type FileEntry struct {
	Path   string `json:"path"`
	Type   string `json:"type"`
	Size   int64  `json:"size"`
	Mode   uint32 `json:"mode"`
	At     int64  `json:"modified_at"`
	Sha256 string `json:"sha256,omitempty"`
	Target string `json:"target,omitempty"`
	// Ignored comes with a folder's list alone.
	Ignored bool `json:"ignored,omitempty" doc:"git would ignore it: no checkpoint holds it"`
}

// FileContent is a piece of a file: Text when it is UTF-8, else Base64.
type FileContent struct {
	FileEntry
	Offset int64  `json:"offset"`
	Length int64  `json:"length" doc:"bytes in this piece; the next one begins at offset + length"`
	Text   string `json:"text,omitempty"`
	Base64 string `json:"base64,omitempty"`
	More   bool   `json:"more,omitempty"`
}

func entry(f guest.FileInfo) FileEntry {
	return FileEntry{Path: f.Path, Type: f.Type, Size: f.Size, Mode: f.Mode, At: f.ModTime.UnixMilli(), Sha256: f.Sha256, Target: f.Target, Ignored: f.Ignored}
}

// Looking at files is the person's, not a step: nothing changes by it. Writing
// goes through the write tool, so that it is a step like any other.
func (s *server) files(api huma.API) {
	guestOf := func(ctx context.Context, id string) (guest.Guest, error) {
		v, err := s.Sessions.Get(ctx, domain.SessionID(id))
		if err != nil {
			return nil, err
		}
		p, err := s.Projects.Get(v.ProjectID)
		if err != nil {
			return nil, err
		}
		return s.Fleet.Ensure(ctx, p)
	}
	type listIn struct {
		ID    string `path:"id"`
		Path  string `query:"path" default:"/workspace" maxLength:"4096"`
		Limit int    `query:"limit" minimum:"1" maximum:"5000" default:"1000"`
	}
	huma.Register(api, op("list-files", http.MethodGet, "/v1/sessions/{id}/files", "A folder of the machine"), func(ctx context.Context, in *listIn) (*body[FileList], error) {
		g, err := guestOf(ctx, in.ID)
		if err != nil {
			return nil, fail(err)
		}
		return ok(listFiles(ctx, g, in.Path, in.Limit))
	})
	type readIn struct {
		ID     string `path:"id"`
		Path   string `query:"path" required:"true" maxLength:"4096"`
		Offset int64  `query:"offset" minimum:"0"`
		Limit  int64  `query:"limit" minimum:"1" maximum:"8388608" default:"1048576"`
	}
	huma.Register(api, op("read-file", http.MethodGet, "/v1/sessions/{id}/file", "A file of the machine"), func(ctx context.Context, in *readIn) (*body[FileContent], error) {
		g, err := guestOf(ctx, in.ID)
		if err != nil {
			return nil, fail(err)
		}
		return ok(readFile(ctx, g, in.Path, in.Offset, in.Limit))
	})
	type writeIn struct {
		Caller
		WaitFor
		ID   string `path:"id"`
		Body struct {
			Path    string `json:"path" maxLength:"4096"`
			Content string `json:"content"`
		}
	}
	huma.Register(api, op("write-file", http.MethodPut, "/v1/sessions/{id}/file", "Write a file as a step of the session"), func(ctx context.Context, in *writeIn) (*body[session.StepView], error) {
		raw, err := json.Marshal(in.Body)
		if err != nil {
			return nil, fail(err)
		}
		st, err := s.Sessions.Call(ctx, domain.SessionID(in.ID), session.CallRequest{Tool: "write", Args: raw, Actor: in.actor()})
		if err != nil {
			return nil, fail(err)
		}
		v, err := s.wait(ctx, in.WaitFor, st)
		return ok(v, err)
	})
}

// projectFiles are the same looks by project: they need no session, and boot nothing
// unless asked, so that opening a pane never starts a machine.
func (s *server) projectFiles(api huma.API) {
	of := func(ctx context.Context, id string, start bool) (guest.Guest, error) {
		p, err := s.Projects.Get(domain.ProjectID(id))
		if err != nil {
			return nil, err
		}
		return s.running(ctx, p, start)
	}
	type listIn struct {
		ID    string `path:"project"`
		Path  string `query:"path" default:"/workspace" maxLength:"4096"`
		Limit int    `query:"limit" minimum:"1" maximum:"5000" default:"5000"`
		Start bool   `query:"start" doc:"start the machine where it is off"`
	}
	huma.Register(api, op("list-project-files", http.MethodGet, "/v1/projects/{project}/files", "A folder of the machine, if it runs"), func(ctx context.Context, in *listIn) (*body[FileList], error) {
		g, err := of(ctx, in.ID, in.Start)
		if err != nil {
			return nil, fail(err)
		}
		return ok(listFiles(ctx, g, in.Path, in.Limit))
	})
	type readIn struct {
		ID     string `path:"project"`
		Path   string `query:"path" required:"true" maxLength:"4096"`
		Offset int64  `query:"offset" minimum:"0"`
		Limit  int64  `query:"limit" minimum:"1" maximum:"8388608" default:"1048576"`
		Start  bool   `query:"start" doc:"start the machine where it is off"`
	}
	huma.Register(api, op("read-project-file", http.MethodGet, "/v1/projects/{project}/file", "A file of the machine, if it runs"), func(ctx context.Context, in *readIn) (*body[FileContent], error) {
		g, err := of(ctx, in.ID, in.Start)
		if err != nil {
			return nil, fail(err)
		}
		return ok(readFile(ctx, g, in.Path, in.Offset, in.Limit))
	})
	type findIn struct {
		ID      string `path:"project"`
		Pattern string `query:"pattern" required:"true" maxLength:"1024" doc:"like src/**/*.ts; ignored files are left out"`
		Limit   int    `query:"limit" minimum:"1" maximum:"2000" default:"500"`
		Start   bool   `query:"start" doc:"start the machine where it is off"`
	}
	type findOut struct {
		Paths []string `json:"paths"`
		More  bool     `json:"more,omitempty"`
	}
	huma.Register(api, op("find-project-files", http.MethodGet, "/v1/projects/{project}/find", "Files of the machine whose path matches, if it runs"), func(ctx context.Context, in *findIn) (*body[findOut], error) {
		g, err := of(ctx, in.ID, in.Start)
		if err != nil {
			return nil, fail(err)
		}
		paths, more, err := g.Files().Glob(ctx, in.Pattern, false, in.Limit)
		out := findOut{Paths: []string{}, More: more}
		for _, p := range paths {
			out.Paths = append(out.Paths, strings.ToValidUTF8(p, "\uFFFD"))
		}
		return ok(out, fileErr(err))
	})
}

// FileList is a folder's entries by name.
type FileList struct {
	Entries []FileEntry `json:"entries"`
	More    bool        `json:"more,omitempty" doc:"there are more than the limit"`
}

func listFiles(ctx context.Context, g guest.Guest, path string, limit int) (FileList, error) {
	fs, more, err := g.Files().List(ctx, path, limit)
	out := FileList{Entries: []FileEntry{}, More: more}
	for _, f := range fs {
		out.Entries = append(out.Entries, entry(f))
	}
	return out, fileErr(err)
}

func readFile(ctx context.Context, g guest.Guest, path string, offset, limit int64) (FileContent, error) {
	d, err := g.Files().Read(ctx, path, offset, limit)
	if err != nil {
		return FileContent{}, fileErr(err)
	}
	out := FileContent{FileEntry: entry(d.Info), Offset: d.Offset, More: d.Offset+int64(len(d.Data)) < d.Info.Size}
	if out.More { // a character that the limit cut comes whole with the next piece
		for i := 1; i < utf8.UTFMax && i < len(d.Data); i++ {
			if last := d.Data[len(d.Data)-i:]; utf8.RuneStart(last[0]) {
				if !utf8.FullRune(last) {
					d.Data = d.Data[:len(d.Data)-i]
				}
				break
			}
		}
	}
	out.Length = int64(len(d.Data))
	if utf8.Valid(d.Data) {
		out.Text = string(d.Data)
	} else {
		out.Base64 = base64.StdEncoding.EncodeToString(d.Data)
	}
	return out, nil
}

var fileHint = map[domain.ErrorCode]string{
	domain.CodeNotFound: "list the folder it should be in", domain.CodeDenied: "choose a file below /workspace or the agent's home",
	domain.CodeConflict: "read the file again and repeat the change", domain.CodeTooLarge: "read it in parts, with offset and limit",
	domain.CodeUnavailable: "start the machine and try again",
}

// fileErr gives the guest's file errors their code.
func fileErr(err error) error {
	for sentinel, code := range map[error]domain.ErrorCode{guest.ErrNotFound: domain.CodeNotFound, guest.ErrRefused: domain.CodeDenied,
		guest.ErrOlder: domain.CodeUnavailable, guest.ErrConflict: domain.CodeConflict, guest.ErrTooLarge: domain.CodeTooLarge, guest.ErrGone: domain.CodeUnavailable} {
		if errors.Is(err, sentinel) {
			return domain.E(code, err.Error(), fileHint[code], nil)
		}
	}
	return err
}
