package project

import (
	"context"
	"sync"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/git"
)

// progress is what is being done for each project now ("" = for the host), so that a
// page that comes in the middle learns it.
type progress struct {
	publish func(event.New)

	mu  sync.Mutex
	all map[domain.ProjectID]event.MachineProgress
}

// repeatEvery is how often progress is told again while nothing changes.
const repeatEvery = 2 * time.Second

func newProgress(publish func(event.New)) *progress {
	return &progress{publish: publish, all: map[domain.ProjectID]event.MachineProgress{}}
}

// begin notes that a work began, unless one is under way.
func (g *progress) begin(id domain.ProjectID, m domain.MachineID, work string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.start(id, m, work)
}

func (g *progress) start(id domain.ProjectID, m domain.MachineID, work string) event.MachineProgress {
	p, ok := g.all[id]
	if !ok {
		p = event.MachineProgress{Machine: m, Work: work, Since: time.Now().UnixMilli()}
		g.all[id] = p
	}
	return p
}

// tell notes how far a work is and says it; a work nobody began begins here.
func (g *progress) tell(id domain.ProjectID, p event.MachineProgress, work string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.start(id, p.Machine, work)
	p.Work, p.Since, p.PhaseSince = was.Work, was.Since, was.PhaseSince
	if p.Machine == "" {
		p.Machine = was.Machine
	}
	if was.Phase != p.Phase || p.PhaseSince == 0 {
		p.PhaseSince = time.Now().UnixMilli()
	}
	g.all[id] = p
	g.say(id, p)
}

// say publishes; g.mu is held, so that nothing is told of a work after its end.
func (g *progress) say(id domain.ProjectID, p event.MachineProgress) {
	n := event.New{Stream: event.ProjectStream(id), Origin: domain.OriginHost, ProjectID: id, Payload: &p}
	if id == "" {
		n.Stream = event.HostStream
	}
	g.publish(n)
}

func (g *progress) end(id domain.ProjectID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.all[id]
	delete(g.all, id)
	if ok && id == "" {
		p.Phase, p.Text, p.Done, p.Total = "done", "", 0, 0
		g.say(id, p)
	}
}

func (g *progress) get(id domain.ProjectID) *event.MachineProgress {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p, ok := g.all[id]; ok && p.Phase != "" {
		return &p
	}
	return nil
}

// Progress is what is being done for a project now, nil when nothing is. With an empty id it is
// the host's: an image that is built without a machine.
func (s *Service) Progress(id domain.ProjectID) *event.MachineProgress { return s.prog.get(id) }

// TellProgress notes and says how far a machine or (with an empty id) the host's image is.
func (s *Service) TellProgress(id domain.ProjectID, p event.MachineProgress) {
	work := "start"
	if id == "" {
		work = "image"
	}
	s.prog.tell(id, p, work)
}

// EndProgress notes that the host's image is there, or was given up.
func (s *Service) EndProgress() { s.prog.end("") }

// MachineState notes what a machine's state says about its start: it has begun, or
// it is over, unless it is a part of the project's making.
func (s *Service) MachineState(id domain.ProjectID, m *event.MachineState) {
	if m.State == "starting" {
		s.prog.begin(id, m.Machine, "start")
		return
	}
	s.mu.Lock()
	_, making := s.making[id]
	s.mu.Unlock()
	if !making {
		s.prog.end(id)
	}
}

// RepeatProgress tells all progress again and again until ctx ends.
func (s *Service) RepeatProgress(ctx context.Context) {
	t := time.NewTicker(repeatEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		s.prog.repeat()
	}
}

func (g *progress) repeat() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, p := range g.all {
		if p.Phase != "" {
			g.say(id, p)
		}
	}
}

func (s *Service) progress(p domain.Project, phase, text string) {
	s.prog.tell(p.ID, event.MachineProgress{Machine: p.Machine, Phase: phase, Text: text}, "create")
}

func (s *Service) fetched(id domain.ProjectID, f git.FetchProgress) {
	p := event.MachineProgress{Phase: "fetch", Text: f.Text, Done: f.Done, Total: f.Total, Bytes: f.Bytes}
	if f.Total > 0 {
		p.Unit = "objects"
	}
	s.prog.tell(id, p, "create")
}
