package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// Info says who answers.
type Info struct {
	Version string          `json:"version"`
	Kinds   map[string]Kind `json:"machine_kinds"`
	Latest  int64           `json:"latest_event_id"`
	// Default is what a new project gets that names no kind.
	Default  string                 `json:"default_kind"`
	Progress *event.MachineProgress `json:"progress,omitempty" doc:"a guest image that is being built without a machine"`
	Program  *Program               `json:"program,omitempty" doc:"what the core runs; older cores do not say it"`
	Disk     *Disk                  `json:"disk,omitempty" doc:"the disk that holds the data and the machines; older cores do not say it"`
	Page     *Program               `json:"page,omitempty" doc:"what holds the page that asks, where a window or serve does: it is set on the way"`
	Differs  string                 `json:"differs,omitempty" doc:"for the person, set on the way: how the two programs differ, and what to do"`
}

// Kind is what a machine kind can do here.
type Kind struct {
	VM          bool     `json:"vm"`
	Accelerator string   `json:"accelerator,omitempty"`
	Limits      string   `json:"limits"`
	Missing     []string `json:"missing,omitempty"`
	Problem     string   `json:"problem,omitempty"`
}

// ToolInfo describes a tool to an agent.
type ToolInfo struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	Reach       domain.Reach    `json:"reach"`
	Changes     bool            `json:"changes"`
}

func (s *server) misc(api huma.API) {
	own := ThisProgram(s.Version)
	huma.Register(api, op("info", http.MethodGet, "/v1/info", "Version and machine kinds"), func(ctx context.Context, _ *none) (*body[Info], error) {
		in := Info{Version: s.Version, Kinds: map[string]Kind{}, Latest: s.Log.LatestID(), Default: s.Projects.DefaultKind(), Progress: s.Projects.Progress(""), Program: &own}
		if s.Disk != nil {
			d := s.Disk()
			in.Disk = &d
		}
		for name, m := range s.Fleet.Kinds() {
			f := m.Features()
			in.Kinds[name] = Kind{VM: f.VM, Accelerator: f.Accelerator, Limits: f.Limits, Missing: f.Missing}
		}
		return ok(in, nil)
	})
	huma.Register(api, op("doctor", http.MethodGet, "/v1/doctor", "What works on this computer"), func(ctx context.Context, _ *none) (*body[Doctor], error) {
		return ok(s.Doctor(ctx), nil)
	})
	type quitIn struct {
		Body struct {
			Now bool `json:"now,omitempty" doc:"cancel what runs"`
		}
	}
	huma.Register(api, op("quit", http.MethodPost, "/v1/quit", "Power off all machines and end the core"), func(ctx context.Context, in *quitIn) (*body[none], error) {
		return ok(none{}, s.Quit(ctx, in.Body.Now))
	})
	huma.Register(api, op("list-tools", http.MethodGet, "/v1/tools", "The tools agents can call"), func(ctx context.Context, _ *none) (*body[[]ToolInfo], error) {
		out := []ToolInfo{}
		for _, t := range s.Tools() {
			out = append(out, ToolInfo{Name: t.Name, Description: t.Description, Schema: t.Schema, Reach: t.Reach, Changes: t.Changes})
		}
		return ok(out, nil)
	})
	huma.Register(api, op("list-processes", http.MethodGet, "/v1/processes", "Every process started outside the machines"), func(ctx context.Context, _ *none) (*body[[]ProcessRecord], error) {
		return ok(s.Argv(), nil)
	})
	type blobIn struct {
		Sha string `path:"sha256" pattern:"^[0-9a-f]{64}$"`
	}
	// An artefact is bytes of a guest: it is never served as a type that a browser
	// would run.
	huma.Register(api, op("get-blob", http.MethodGet, "/v1/blobs/{sha256}", "An artefact's bytes"), func(ctx context.Context, in *blobIn) (*huma.StreamResponse, error) {
		b, err := s.Log.OpenBlob(in.Sha)
		if err != nil {
			return nil, fail(err)
		}
		return &huma.StreamResponse{Body: func(c huma.Context) {
			defer b.Close()
			c.SetHeader("Content-Type", "application/octet-stream")
			c.SetHeader("X-Content-Type-Options", "nosniff")
			c.SetHeader("Content-Security-Policy", "default-src 'none'; sandbox")
			c.SetHeader("Content-Disposition", "attachment")
			c.SetHeader("Cache-Control", "private, max-age=31536000, immutable")
			c.SetHeader("Content-Length", strconv.FormatInt(b.Size, 10))
			_, _ = io.Copy(c.BodyWriter(), b)
		}}, nil
	})
}
