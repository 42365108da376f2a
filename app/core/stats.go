package core

import (
	"context"
	"sync"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/vm/guest"
)

// How often machines that somebody looks at are asked how they are, and how long one
// may take to say it.
const (
	statsEvery = 2 * time.Second
	statsWait  = 5 * time.Second
)

// watching counts who follows transient events, of one project or of all ("").
// Nobody looks at numbers that nobody sees.
type watching struct {
	mu   sync.Mutex
	by   map[domain.ProjectID]int
	came chan struct{} // told when somebody begins to look
}

func newWatching() *watching {
	return &watching{by: map[domain.ProjectID]int{}, came: make(chan struct{}, 1)}
}

// watch counts one more; the function takes it back, once.
func (w *watching) watch(id domain.ProjectID) func() {
	w.mu.Lock()
	w.by[id]++
	w.mu.Unlock()
	select {
	case w.came <- struct{}{}:
	default:
	}
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.by[id]--; w.by[id] == 0 {
			delete(w.by, id)
		}
	})
}

func (w *watching) wants(id domain.ProjectID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.by[""] > 0 || w.by[id] > 0
}

// meter asks machines how they are.
type meter struct {
	projects func() []domain.Project
	running  func(domain.ProjectID) (guest.Guest, bool)
	wants    func(domain.ProjectID) bool
	publish  func(...event.New) error
	every    time.Duration
	wait     time.Duration // for one answer

	mu   sync.Mutex
	busy map[domain.ProjectID]bool
	wg   sync.WaitGroup
}

// run asks until ctx ends. A machine that is slow to say it is not asked again before
// it did, and keeps nobody else waiting.
func (m *meter) run(ctx context.Context, came <-chan struct{}) {
	defer m.wg.Wait()
	t := time.NewTicker(m.every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-came:
		}
		for _, p := range m.projects() {
			if m.wants(p.ID) {
				m.ask(ctx, p.ID)
			}
		}
	}
}

func (m *meter) ask(ctx context.Context, id domain.ProjectID) {
	g, on := m.running(id)
	if !on {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy[id] {
		return
	}
	if m.busy == nil {
		m.busy = map[domain.ProjectID]bool{}
	}
	m.busy[id] = true
	m.wg.Go(func() {
		defer func() {
			m.mu.Lock()
			delete(m.busy, id)
			m.mu.Unlock()
		}()
		actx, stop := context.WithTimeout(ctx, m.wait)
		defer stop()
		s, err := g.Stats(actx)
		if err != nil {
			return
		}
		if _, on := m.running(id); !on {
			return // of a machine that went meanwhile there is nothing to say
		}
		// What it says of itself is the guest's word.
		_ = m.publish(event.New{Stream: event.ProjectStream(id), Origin: domain.OriginGuest, ProjectID: id, Payload: &event.MachineStats{
			CPUPercent: s.CPUPercent, MemUsedKiB: s.MemUsedKiB, MemTotalKiB: s.MemTotalKiB, DiskUsedKiB: s.DiskUsedKiB, DiskTotalKiB: s.DiskTotalKiB, Procs: s.Procs, Load: s.Load1}})
	})
}

// measure runs the core's meter.
func (c *Core) measure(ctx context.Context) {
	m := &meter{projects: c.projects.List, running: c.fleet.Running, wants: c.watching.wants, publish: c.events.Publish, every: statsEvery, wait: statsWait}
	m.run(ctx, c.watching.came)
}
