package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// Disk is how full the disk is that holds the data and the machines.
type Disk struct {
	State      string `json:"state" enum:"ok,low,full" doc:"full: changing steps of agents are refused"`
	Dir        string `json:"dir,omitempty" doc:"a folder on it"`
	FreeBytes  int64  `json:"free_bytes"`
	TotalBytes int64  `json:"total_bytes"`
	Text       string `json:"text,omitempty" doc:"what it means and what to do, for a person"`
}

// Trash is what deleted projects left.
type Trash struct {
	Dir     string       `json:"dir"`
	Bytes   int64        `json:"bytes" doc:"what it takes on the disk"`
	Entries []TrashEntry `json:"entries"`
}

// TrashEntry is a machine, or what the host kept of a project.
type TrashEntry struct {
	Name  string `json:"name"`
	At    int64  `json:"at" doc:"Unix ms"`
	Bytes int64  `json:"bytes"`
}

func (s *server) trash(api huma.API) {
	huma.Register(api, op("get-trash", http.MethodGet, "/v1/trash", "What deleted projects left, with its size"), func(ctx context.Context, _ *none) (*body[Trash], error) {
		t, err := s.Trash(ctx)
		return ok(t, err)
	})
	type in struct{ Caller }
	huma.Register(api, op("empty-trash", http.MethodDelete, "/v1/trash", "Remove it for good; answers what is gone. Only a person may"), func(ctx context.Context, in *in) (*body[Trash], error) {
		t, err := s.EmptyTrash(ctx, in.actor())
		return ok(t, err)
	})
}
