package files

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/vm/guest"
	"glasshouse/vm/vmtest"
)

const hang = time.Minute // a guard, never a measure

// scripted is a guest whose watch gives what a test sends.
type scripted struct {
	guest.Guest
	watches atomic.Int32
	live    atomic.Int32
	fail    atomic.Bool
	in      chan guest.ChangeBatch
	cut     chan struct{}
}

func (s *scripted) Watch(ctx context.Context) (<-chan guest.ChangeBatch, error) {
	if s.watches.Add(1); s.fail.Load() {
		return nil, guest.ErrGone
	}
	out := make(chan guest.ChangeBatch)
	s.live.Add(1)
	go func() {
		defer s.live.Add(-1)
		defer close(out)
		for {
			select {
			case b := <-s.in:
				select {
				case out <- b:
				case <-ctx.Done():
					return
				}
			case <-s.cut:
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

type bench struct {
	t      *testing.T
	g      *scripted
	on     atomic.Bool
	wanted atomic.Bool
	step   atomic.Value
	mu     sync.Mutex
	got    []event.New
	done   chan struct{}
	stop   context.CancelFunc
}

func run(t *testing.T) *bench {
	b := &bench{t: t, g: &scripted{in: make(chan guest.ChangeBatch), cut: make(chan struct{})}, done: make(chan struct{})}
	b.on.Store(true)
	b.wanted.Store(true)
	b.step.Store("")
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	f := New(Config{
		Projects: func() []domain.ProjectID { return []domain.ProjectID{"p1", "p2"} },
		Running:  func(id domain.ProjectID) (guest.Guest, bool) { return b.g, b.on.Load() && id == "p1" },
		Wanted:   func(domain.ProjectID) bool { return b.wanted.Load() },
		Step: func(context.Context, domain.ProjectID) (domain.SessionID, domain.StepID, bool) {
			s := b.step.Load().(string)
			return "s1", domain.StepID(s), s != ""
		},
		Publish: func(n event.New) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.got = append(b.got, n)
		},
		Look: time.Millisecond, Pause: time.Millisecond, Wait: time.Millisecond,
	})
	go func() {
		defer close(b.done)
		f.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-b.done
		b.until("the end of the watches", func() bool { return b.g.live.Load() == 0 })
	})
	return b
}

func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	for end := time.Now().Add(hang); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%s never came", what)
		}
	}
}

func (b *bench) send(c guest.ChangeBatch) {
	b.t.Helper()
	select {
	case b.g.in <- c:
	case <-time.After(hang):
		b.t.Fatal("nobody watches")
	}
}

func (b *bench) events() []event.New {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]event.New(nil), b.got...)
}

func (b *bench) next(n int) *event.FilesTouched {
	b.t.Helper()
	b.until(fmt.Sprintf("event %d", n), func() bool { return len(b.events()) > n })
	return b.events()[n].Payload.(*event.FilesTouched)
}

func TestWhatIsTouchedIsShown(t *testing.T) {
	b := run(t)
	b.send(guest.ChangeBatch{Epoch: 1}) // the first may be empty: no event
	b.step.Store("st7")
	b.send(guest.ChangeBatch{Epoch: 1, Changes: []guest.PathChange{{Path: "a", Op: "add", Size: 3, Mode: 0o100644}, {Path: "b", Op: "delete", Mode: 0o100644}}})
	p := b.next(0)
	if len(p.Changes) != 2 || p.Changes[0].Path != "a" || p.Changes[0].NewMode != 0o100644 || p.Changes[1].NewMode != 0 || p.Resync || p.Degraded {
		t.Errorf("%+v", p)
	}
	e := b.events()[0]
	if e.ProjectID != "p1" || e.Stream != "project:p1" || e.StepID != "st7" || e.SessionID != "s1" || e.Origin != domain.OriginGuest {
		t.Errorf("%+v", e)
	}
	b.step.Store("") // none runs, or several
	b.send(guest.ChangeBatch{Epoch: 1, Changes: []guest.PathChange{{Path: "c", Op: "modify"}}})
	b.next(1)
	if e := b.events()[1]; e.StepID != "" || e.SessionID != "" {
		t.Errorf("a step was guessed: %+v", e)
	}
	b.send(guest.ChangeBatch{Epoch: 1, Degraded: true})
	if p := b.next(2); !p.Degraded || p.Resync {
		t.Errorf("degraded: %+v", p)
	}
	b.send(guest.ChangeBatch{Epoch: 2, Degraded: true})
	if p := b.next(3); !p.Resync {
		t.Errorf("a new epoch: %+v", p)
	}
}

func TestWhatGitKeepsIsNotTold(t *testing.T) {
	b := run(t)
	b.send(guest.ChangeBatch{Epoch: 1})
	b.send(guest.ChangeBatch{Epoch: 1, Changes: []guest.PathChange{{Path: ".git/index", Op: "modify"}, {Path: ".git/refs/heads/x", Op: "add"}}})
	b.send(guest.ChangeBatch{Epoch: 1, Changes: []guest.PathChange{{Path: ".git/HEAD", Op: "modify"}, {Path: ".gitignore", Op: "add"}, {Path: "sub/.git/x", Op: "add"}}})
	p := b.next(0)
	if len(p.Changes) != 2 || p.Changes[0].Path != ".gitignore" || p.Dropped != 0 {
		t.Errorf("%+v", p)
	}
}

func TestALostWatchIsMadeAgain(t *testing.T) {
	b := run(t)
	b.send(guest.ChangeBatch{Epoch: 1})
	b.g.cut <- struct{}{}
	b.send(guest.ChangeBatch{Epoch: 1})
	if p := b.next(0); !p.Resync || len(p.Changes) != 0 {
		t.Errorf("after a loss it is not known what happened: %+v", p)
	}
	b.g.fail.Store(true)
	b.g.cut <- struct{}{}
	n := b.g.watches.Load()
	b.until("more tries", func() bool { return b.g.watches.Load() > n+3 })
	b.g.fail.Store(false)
	b.send(guest.ChangeBatch{Epoch: 1, Changes: []guest.PathChange{{Path: "x", Op: "add"}}})
	if p := b.next(1); !p.Resync || len(p.Changes) != 1 {
		t.Errorf("%+v", p)
	}
}

func TestNobodyLooksNothingIsWatched(t *testing.T) {
	b := run(t)
	b.send(guest.ChangeBatch{Epoch: 1})
	b.wanted.Store(false)
	b.until("the end of the watch", func() bool { return b.g.live.Load() == 0 })
	n := b.g.watches.Load()
	b.wanted.Store(true)
	b.until("another watch", func() bool { return b.g.watches.Load() > n })
	b.on.Store(false)
	b.until("the end of the watch of a machine that is off", func() bool { return b.g.live.Load() == 0 })
}

// Whatever the guest says fits an event, with a count of what does not.
func TestAFloodFitsAnEvent(t *testing.T) {
	b := run(t)
	var many, long []guest.PathChange
	for i := range 20_000 {
		many = append(many, guest.PathChange{Path: fmt.Sprintf("f\xff\u202e%d", i), Op: "add"})
	}
	for i := range 1000 {
		long = append(long, guest.PathChange{Path: strings.Repeat("\x01", 4000) + fmt.Sprint(i), Op: "add"})
	}
	b.send(guest.ChangeBatch{Epoch: 1, Changes: many, Dropped: 7})
	b.send(guest.ChangeBatch{Epoch: 1, Changes: long})
	for i, all := range []int{20_007, 1000} {
		p := b.next(i)
		raw, err := json.Marshal(p)
		if err != nil || len(raw) > eventlog.MaxPayload {
			t.Errorf("%d bytes, %v", len(raw), err)
		}
		if len(p.Changes) == 0 || len(p.Changes)+p.Dropped != all {
			t.Errorf("%d shown and %d counted of %d", len(p.Changes), p.Dropped, all)
		}
		if !utf8.ValidString(p.Changes[0].Path) {
			t.Errorf("%q", p.Changes[0].Path)
		}
	}
}

// The log takes what the feed makes and hands it to those who look.
func TestThroughTheLog(t *testing.T) {
	log, err := eventlog.Open(t.TempDir(), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	w := vmtest.NewWorld()
	g := w.Open()
	f := New(Config{
		Projects: func() []domain.ProjectID { return []domain.ProjectID{"p1"} },
		Running:  func(domain.ProjectID) (guest.Guest, bool) { return g, true },
		Wanted: func(id domain.ProjectID) bool {
			return log.Wanted(event.Envelope{Stream: event.ProjectStream(id), ProjectID: id, Type: "files.touched"})
		},
		Step: func(context.Context, domain.ProjectID) (domain.SessionID, domain.StepID, bool) { return "", "", false },
		Publish: func(n event.New) {
			if err := log.Publish(n); err != nil {
				t.Error(err)
			}
		},
		Look: time.Millisecond, Pause: time.Millisecond,
	})
	if log.Wanted(event.Envelope{ProjectID: "p1", Type: "files.touched"}) {
		t.Error("nobody looks yet")
	}
	other := log.Subscribe(eventlog.Filter{Project: "p2"}, 0)
	defer other.Close()
	if log.Wanted(event.Envelope{ProjectID: "p1", Type: "files.touched"}) {
		t.Error("somebody looks at another project")
	}
	sub := log.Subscribe(eventlog.Filter{Types: []event.Type{"files.touched"}}, 0)
	defer sub.Close()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	var over sync.WaitGroup
	defer func() { cancel(); over.Wait() }() // before the log is closed
	over.Go(func() { f.Run(ctx) })
	over.Go(func() { // until the watch is there
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = g.Files().Write(ctx, "a", []byte(fmt.Sprint(i)), guest.WriteOptions{})
			time.Sleep(5 * time.Millisecond)
		}
	})
	e, err := sub.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p, err := event.Decode(e)
	if err != nil || p.(*event.FilesTouched).Changes[0].Path != "a" || e.ID != 0 {
		t.Errorf("%+v %v", e, err)
	}
}
