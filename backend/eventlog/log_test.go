package eventlog

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

func openTest(t testing.TB, dir string) *Log {
	t.Helper()
	l, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func msg(stream event.Stream, text string) event.New {
	n := event.New{Stream: stream, Origin: domain.OriginHost, Actor: "person", Payload: &event.Message{Role: "person", Text: text}}
	if s, ok := strings.CutPrefix(string(stream), "session:"); ok {
		n.SessionID = domain.SessionID(s)
	}
	return n
}

func text(t testing.TB, e event.Envelope) string {
	t.Helper()
	var m event.Message
	if err := json.Unmarshal(e.Data, &m); err != nil {
		t.Fatal(err)
	}
	return m.Text
}

func mustVerify(t testing.TB, l *Log) Report {
	t.Helper()
	rep, err := l.Verify(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range rep.Problems {
		t.Errorf("event %d: %s", p.ID, p.What)
	}
	return rep
}

func TestAppendAndReopen(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	l := openTest(t, dir)
	out, err := l.Append(ctx, msg("session:a", "one"), msg("session:b", "two"), msg("session:a", "three"))
	if err != nil {
		t.Fatal(err)
	}
	if out[0].Seq != 1 || out[1].Seq != 1 || out[2].Seq != 2 || out[2].ID != out[0].ID+2 || out[0].Hash == "" {
		t.Fatalf("%+v", out)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(ctx, msg("session:a", "late")); domain.CodeOf(err) != domain.CodeUnavailable {
		t.Fatalf("append after close: %v", err)
	}
	l = openTest(t, dir)
	next, err := l.Append(ctx, msg("session:a", "four"))
	if err != nil {
		t.Fatal(err)
	}
	if next[0].ID != out[2].ID+1 || next[0].Seq != 3 {
		t.Fatalf("numbers do not go on after a restart: %+v", next[0])
	}
	got, err := l.Read(ctx, Filter{Session: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || text(t, got[2]) != "four" || got[1].Hash != out[2].Hash {
		t.Fatalf("%+v", got)
	}
	if tail, err := l.Read(ctx, Filter{Tail: true, Limit: 2}); err != nil || len(tail) != 2 || text(t, tail[0]) != "three" || text(t, tail[1]) != "four" {
		t.Fatalf("%v %v", tail, err)
	}
	if got, err := l.Read(ctx, Filter{AfterID: out[0].ID, BeforeID: next[0].ID, Stream: "session:b", Types: []event.Type{"message"}}); err != nil || len(got) != 1 || text(t, got[0]) != "two" {
		t.Fatalf("%v %v", got, err)
	}
	if rep := mustVerify(t, l); rep.Events != 4 {
		t.Fatalf("%+v", rep)
	}
	if seq, err := l.LatestSeq(ctx, "session:a"); err != nil || seq != 3 || l.LatestID() != next[0].ID {
		t.Fatal(seq, err)
	}
}

func TestAppendRefuses(t *testing.T) {
	ctx := context.Background()
	l := openTest(t, t.TempDir())
	long := msg("session:a", strings.Repeat("x", MaxPayload))
	noOrigin := msg("session:a", "x")
	noOrigin.Origin = ""
	for name, c := range map[string]struct {
		n    event.New
		code domain.ErrorCode
		say  string
	}{
		"too large": {long, domain.CodeTooLarge, "artefact"},
		"transient": {event.New{Stream: "session:a", Origin: domain.OriginGuest, Payload: &event.StepOutput{Text: "x"}}, domain.CodeInvalid, "transient"},
		"stream":    {msg("task:a", "x"), domain.CodeInvalid, "task:a"},
		"no id":     {msg("session:", "x"), domain.CodeInvalid, "session:"},
		"origin":    {noOrigin, domain.CodeInvalid, "origin"},
		"nil":       {event.New{Stream: "host", Origin: domain.OriginHost}, domain.CodeInvalid, "payload"},
		"raw":       {event.New{Stream: "session:a", Origin: domain.OriginHost, Payload: &event.StepRequested{Args: json.RawMessage("{")}}, domain.CodeInvalid, "JSON"},
	} {
		// A bad event in a batch keeps the good one out too.
		_, err := l.Append(ctx, msg("session:a", "good"), c.n)
		if domain.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if l.LatestID() != 0 {
		t.Fatal("something was stored")
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := l.Append(cancelled, msg("session:a", "x")); err == nil {
		if got, _ := l.Read(ctx, Filter{}); len(got) != 1 {
			t.Fatal("success without an event")
		}
	} else if got, _ := l.Read(ctx, Filter{}); len(got) != 0 {
		t.Fatal("an error although the event was stored")
	}
}

func TestConcurrentAppends(t *testing.T) {
	ctx := context.Background()
	l := openTest(t, t.TempDir())
	var wg sync.WaitGroup
	const workers, each = 16, 40
	for w := range workers {
		wg.Go(func() {
			stream := event.Stream(fmt.Sprintf("session:s%d", w%4))
			for i := range each {
				out, err := l.Append(ctx, msg(stream, fmt.Sprintf("%d/%d", w, i)), msg("host", "pair"))
				if err != nil {
					t.Error(err)
					return
				}
				if out[1].ID != out[0].ID+1 {
					t.Error("the events of one append lie apart")
				}
			}
		})
	}
	wg.Wait()
	if rep := mustVerify(t, l); rep.Events != workers*each*2 {
		t.Fatalf("%+v", rep)
	}
	if seq, _ := l.LatestSeq(ctx, "host"); seq != workers*each {
		t.Fatal(seq)
	}
}

func TestSubscribeReplaysThenLives(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := Open(t.TempDir(), Options{Ring: 50}) // small: readers fall out of memory
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const total = 2000
	for i := range 300 {
		if _, err := l.Append(ctx, msg("session:a", fmt.Sprint(i)), msg("session:b", "noise")); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for r := range 5 {
		f := Filter{Session: "a"}
		after := int64(0)
		first := 0
		if r == 4 {
			after, first = 100, 50
		}
		sub := l.Subscribe(f, after)
		wg.Go(func() {
			defer sub.Close()
			want := first
			for e, err := range sub.All(ctx) {
				if err != nil {
					t.Errorf("reader %d after %d: %v", r, want, err)
					return
				}
				if got := text(t, e); got != fmt.Sprint(want) {
					t.Errorf("reader %d: got %s, want %d", r, got, want)
					return
				}
				want++
				if want == total {
					return
				}
				if r == 3 && want%40 == 0 {
					time.Sleep(time.Millisecond) // a slow one
				}
			}
		})
	}
	for i := 300; i < total; i += 5 {
		var batch []event.New
		for j := range 5 {
			batch = append(batch, msg("session:a", fmt.Sprint(i+j)), msg("session:b", "noise"))
		}
		if _, err := l.Append(ctx, batch...); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}

func TestIdleReaderHoldsNothingUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := Open(t.TempDir(), Options{Ring: 10, Transients: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sub := l.Subscribe(Filter{}, 0)
	for i := range 100 {
		if _, err := l.Append(ctx, msg("session:a", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		if err := l.Publish(event.New{Stream: "session:a", SessionID: "a", Origin: domain.OriginGuest, Payload: &event.StepOutput{Text: fmt.Sprint(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	var stored, lost []string
	for range 103 {
		e, err := sub.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if e.ID == 0 {
			var o event.StepOutput
			if err := json.Unmarshal(e.Data, &o); err != nil {
				t.Fatal(err)
			}
			if last := stored[len(stored)-1]; last != o.Text {
				t.Errorf("output %s came after event %s", o.Text, last)
			}
			lost = append(lost, o.Text)
			continue
		}
		stored = append(stored, text(t, e))
	}
	if len(stored) != 100 || fmt.Sprint(lost) != "[97 98 99]" || sub.Dropped() != 97 || l.DroppedTotal() != 97 {
		t.Fatal(len(stored), lost, sub.Dropped())
	}
	if err := l.Publish(msg("session:a", "x")); err == nil {
		t.Fatal("a stored type was published")
	}
	go sub.Close()
	if _, err := sub.Next(ctx); domain.CodeOf(err) != domain.CodeUnavailable {
		t.Fatal(err)
	}
}

// A reader that comes with a place of another log is told so, instead of missing what comes.
func TestPlaceOfAnotherLog(t *testing.T) {
	ctx := context.Background()
	l := openTest(t, t.TempDir())
	out, err := l.Append(ctx, msg("session:a", "x"))
	must(t, err)
	sub := l.Subscribe(Filter{}, out[0].ID+1)
	defer sub.Close()
	if _, err := sub.Next(ctx); domain.CodeOf(err) != domain.CodeConflict {
		t.Fatal(err)
	}
	at := l.Subscribe(Filter{}, out[0].ID)
	defer at.Close()
	next, err := l.Append(ctx, msg("session:a", "y"))
	must(t, err)
	if e, err := at.Next(ctx); err != nil || e.ID != next[0].ID {
		t.Fatal(e, err)
	}
}

func TestCloseEndsReaders(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l := openTest(t, t.TempDir())
	sub := l.Subscribe(Filter{}, 0)
	got := make(chan error, 1)
	go func() { _, err := sub.Next(ctx); got <- err }()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; domain.CodeOf(err) != domain.CodeUnavailable {
		t.Fatal(err)
	}
}
