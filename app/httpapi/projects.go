package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/project"
	"glasshouse/vm"
)

// NewProject is what a project is made from.
type NewProject struct {
	Name      string   `json:"name,omitempty" maxLength:"100"`
	Source    string   `json:"source,omitempty" maxLength:"4096" doc:"absolute path of a folder or repository, or an address: https://HOST/PATH, ssh://HOST/PATH, HOST:PATH, file:///PATH (never with credentials: yours are used); empty = an empty workspace"`
	Branch    string   `json:"branch,omitempty" maxLength:"255" doc:"branch of an address to begin at; empty = the one its HEAD names"`
	NextName  bool     `json:"next_name,omitempty" doc:"when the name is taken, put the next free number behind it instead of refusing"`
	Kind      string   `json:"machine_kind,omitempty" enum:"lima,local" doc:"lima = a VM; local = a sandbox, not a VM"`
	Overlay   []string `json:"with,omitempty" maxItems:"2000" doc:"changed files of the source to bring along"`
	CPUs      int      `json:"cpus,omitempty" minimum:"0" maximum:"256"`
	MemoryMiB int      `json:"memory_mib,omitempty" minimum:"0" maximum:"262144"`
	DiskGiB   int      `json:"disk_gib,omitempty" minimum:"0" maximum:"4096"`
	Stay      bool     `json:"stay,omitempty" doc:"the making goes on when the caller goes away; events tell its end, and a cancel gives it up"`
}

// ProjectView is a project with what is known of its machine.
type ProjectView struct {
	domain.Project
	State    vm.State               `json:"machine_state"`
	VM       bool                   `json:"vm" doc:"false must be shown as: not a VM"`
	Imported *event.ProjectImported `json:"imported,omitempty"`
	Progress *event.MachineProgress `json:"progress,omitempty" doc:"what is being done for it now: its making, or the start of its machine"`
}

// Cancelled says what was given up.
type Cancelled struct {
	What string `json:"what" enum:"create,start,image" doc:"create: the project is deleted, nothing of it is left; start: the machine is off; image: nobody builds it any more"`
}

// MachineView is a machine as the host's processes and files show it.
type MachineView struct {
	ID      string         `json:"id"`
	Kind    vm.Kind        `json:"kind"`
	State   vm.State       `json:"state"`
	Problem string         `json:"problem,omitempty"`
	Pids    map[string]int `json:"pids,omitempty" doc:"host processes by role"`
}

// ImageView names the guest image.
type ImageView struct {
	Hash string `json:"hash"`
}

func (s *server) view(p domain.Project) ProjectView {
	v := ProjectView{Project: p, State: s.Fleet.State(p.ID)}
	if m := s.Fleet.Kinds()[p.Kind]; m != nil {
		v.VM = m.Features().VM
	}
	if i, ok := s.Projects.Imported(p.ID); ok {
		v.Imported = &i
	}
	v.Progress = s.Projects.Progress(p.ID)
	return v
}

func (s *server) projects(api huma.API) {
	type createIn struct {
		Caller
		Body NewProject
	}
	huma.Register(api, op("create-project", http.MethodPost, "/v1/projects", "Bring a source into a machine of its own; answers when the workspace is ready"), func(ctx context.Context, in *createIn) (*body[ProjectView], error) {
		b := in.Body
		if b.Stay {
			// The service ends it when the core leaves.
			ctx = context.WithoutCancel(ctx)
		}
		p, err := s.Projects.Create(ctx, project.CreateRequest{Name: b.Name, Source: b.Source, Branch: b.Branch, NextName: b.NextName, Kind: b.Kind, Overlay: b.Overlay, Actor: in.actor(),
			Spec: vm.Spec{CPUs: b.CPUs, MemoryMiB: b.MemoryMiB, DiskGiB: b.DiskGiB}})
		if err != nil {
			return nil, fail(err)
		}
		return ok(s.view(p), nil)
	})
	huma.Register(api, op("list-projects", http.MethodGet, "/v1/projects", "Projects, oldest first"), func(ctx context.Context, _ *none) (*body[[]ProjectView], error) {
		out := []ProjectView{}
		for _, p := range s.Projects.List() {
			out = append(out, s.view(p))
		}
		return ok(out, nil)
	})
	type oneIn struct {
		Caller
		ID string `path:"project"`
	}
	find := func(id string) (domain.Project, error) { return s.Projects.Get(domain.ProjectID(id)) }
	huma.Register(api, op("get-project", http.MethodGet, "/v1/projects/{project}", "A project, by id or unique name"), func(ctx context.Context, in *oneIn) (*body[ProjectView], error) {
		p, err := find(in.ID)
		if err != nil {
			return nil, fail(err)
		}
		return ok(s.view(p), nil)
	})
	huma.Register(api, op("delete-project", http.MethodDelete, "/v1/projects/{project}", "Stop the machine and move it to the trash; the source stays"), func(ctx context.Context, in *oneIn) (*body[none], error) {
		p, err := find(in.ID)
		if err != nil {
			return nil, fail(err)
		}
		for _, d := range s.Sessions.List(ctx, p.ID) {
			if d.State != domain.SessionEnded {
				if err := s.Turns.End(ctx, d.ID, in.actor()); err != nil {
					return nil, fail(err)
				}
			}
		}
		if err := s.Projects.Delete(ctx, p.ID, in.actor()); err != nil {
			return nil, fail(err)
		}
		s.Terminals.Drop(p.ID)
		_, err = s.Ledger.Cancel(ctx, approval.Scope{Project: p.ID})
		return ok(none{}, err)
	})
	huma.Register(api, op("cancel-project", http.MethodPost, "/v1/projects/{project}/cancel", "Give up the making of a project, or the start of its machine; answers when that is over"), func(ctx context.Context, in *oneIn) (*body[Cancelled], error) {
		what, err := s.Projects.Cancel(ctx, domain.ProjectID(in.ID), in.actor())
		return ok(Cancelled{what}, err)
	})
	huma.Register(api, op("get-machine", http.MethodGet, "/v1/projects/{project}/machine", "The machine as the host sees it"), func(ctx context.Context, in *oneIn) (*body[MachineView], error) {
		p, err := find(in.ID)
		if err != nil {
			return nil, fail(err)
		}
		i, err := s.Fleet.Info(ctx, p)
		return ok(MachineView{ID: i.ID, Kind: i.Kind, State: i.State, Problem: i.Problem, Pids: i.Pids}, err)
	})
	huma.Register(api, op("start-machine", http.MethodPost, "/v1/projects/{project}/machine/start", "Start the machine; answers when it is ready"), func(ctx context.Context, in *oneIn) (*body[none], error) {
		p, err := find(in.ID)
		if err == nil {
			_, err = s.Fleet.Ensure(ctx, p)
		}
		return ok(none{}, err)
	})
	huma.Register(api, op("stop-machine", http.MethodPost, "/v1/projects/{project}/machine/stop", "Power the machine off"), func(ctx context.Context, in *oneIn) (*body[none], error) {
		p, err := find(in.ID)
		if err != nil {
			return nil, fail(err)
		}
		// An agent at work would start it again with its next call.
		for _, d := range s.Sessions.List(ctx, p.ID) {
			if d.State == domain.SessionRunning {
				if err := s.Turns.Stop(ctx, d.ID); err != nil {
					return nil, fail(err)
				}
			}
		}
		return ok(none{}, s.Fleet.Stop(ctx, p))
	})
	huma.Register(api, op("build-image", http.MethodPost, "/v1/image", "Build the guest image if it is not there; progress comes as events of the host"), func(ctx context.Context, _ *none) (*body[ImageView], error) {
		h, err := s.Image(ctx)
		return ok(ImageView{Hash: h}, err)
	})
	huma.Register(api, op("cancel-image", http.MethodPost, "/v1/image/cancel", "Give up building the guest image; a build that a project's making waits for goes on"), func(_ context.Context, _ *none) (*body[Cancelled], error) {
		return ok(Cancelled{"image"}, s.CancelImage())
	})
}
