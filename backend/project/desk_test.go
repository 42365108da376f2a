package project

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/git"
	"glasshouse/backend/git/gittest"
	"glasshouse/backend/review"
	"glasshouse/vm/proc"
)

// desked returns a service with one review of many files, and its mirror's folder.
func desked(t *testing.T) (*Service, domain.ReviewID) {
	t.Helper()
	log, err := eventlog.Open(t.TempDir(), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	r := gittest.Init(t)
	r.Write("a.txt", "one\n")
	base := r.Commit("base")
	for i := range 40 {
		r.Write(fmt.Sprintf("f%d.txt", i), "new\n")
	}
	candidate := r.Commit("candidate")
	bare := filepath.Join(t.TempDir(), "mirror.git")
	r.Git("clone", "-q", "--bare", ".", bare)
	s := New(Config{Log: log, Author: func(context.Context) git.Person { return git.Person{Name: "A", Email: "a@example.com"} },
		Mirror: func(domain.ProjectID) (*git.Mirror, error) {
			return git.Open(bare, git.Options{Runner: &proc.Runner{}})
		}})
	p := domain.Project{ID: "p_1", Name: "one", Kind: "local", Machine: "m1"}
	var evs []event.New
	for _, pl := range []event.Payload{&event.ProjectCreated{Project: p}, &event.ProjectImported{Commit: base},
		&event.ReviewOpened{Review: "r_1", Base: base, Candidate: candidate, Files: 40, Units: 40}} {
		evs = append(evs, event.New{Stream: event.ProjectStream(p.ID), Origin: domain.OriginHost, Actor: "person", ProjectID: p.ID, Payload: pl})
	}
	if _, err := log.Append(t.Context(), evs...); err != nil {
		t.Fatal(err)
	}
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, "r_1"
}

// Two clients look and decide at once: nothing is torn, nobody waits for ever.
func TestLookingWhileDeciding(t *testing.T) {
	s, id := desked(t)
	v, err := s.Review(t.Context(), id)
	if err != nil || len(v.Files) != 40 {
		t.Fatalf("%d files: %v", len(v.Files), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, look := range []func() error{
		func() error { s.Reviews(""); return nil },
		func() error { _, err := s.Review(ctx, id); return err },
	} {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := look(); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 200 {
		d := review.Accept
		if i%2 == 1 {
			d = review.Reject
		}
		if _, err := s.Decide(ctx, id, v.Files[i%40].ID, "", d, "person"); err != nil {
			t.Error(err)
			break
		}
	}
	cancel()
	wg.Wait()
}

// A remote that takes its time keeps nobody from looking at the review.
func TestLookingWhilePushing(t *testing.T) {
	s, id := desked(t)
	if _, err := s.Review(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	sh, _, err := s.sheet(id)
	if err != nil {
		t.Fatal(err)
	}
	sh.mu.Lock() // as a push holds it
	defer sh.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		_, err := s.Review(t.Context(), id)
		s.Reviews("")
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("looking waits for the push")
	}
}

func TestAgentsNeitherDecideNorPush(t *testing.T) {
	s, id := desked(t)
	for _, by := range []domain.Actor{"agent", "agent:playbook"} {
		if _, err := s.Decide(t.Context(), id, "", "", review.Accept, by); domain.CodeOf(err) != domain.CodeDenied {
			t.Errorf("%s decides: %v", by, err)
		}
		if _, err := s.Push(t.Context(), id, PushRequest{Remote: t.TempDir(), Ref: "main", Actor: by}); domain.CodeOf(err) != domain.CodeDenied {
			t.Errorf("%s pushes: %v", by, err)
		}
	}
	v, err := s.Review(t.Context(), id)
	if err != nil || v.Accepted != 0 || v.Undecided == 0 {
		t.Errorf("%+v %v", v, err)
	}
}
