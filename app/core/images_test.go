package core

import (
	"context"
	"errors"
	"sync"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/vm"
	"glasshouse/vm/image"
)

// One build serves all who want it; it goes on while one of them does, and ends with
// the last one, for whom its programs are gone when the call returns.
func TestImageBuildIsShared(t *testing.T) {
	began, release := make(chan context.Context, 10), make(chan error, 10)
	var mu sync.Mutex
	running := 0
	im := &images{make: func(ctx context.Context, say func(vm.Progress)) (*image.Image, error) {
		mu.Lock()
		running++
		mu.Unlock()
		defer func() { mu.Lock(); running--; mu.Unlock() }()
		say(vm.Progress{Phase: "image", Text: "part 1 of 2", Done: 1, Total: 2})
		began <- ctx
		select {
		case err := <-release:
			if err != nil {
				return nil, err
			}
			return &image.Image{Hash: "abc"}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	type answer struct {
		im  *image.Image
		err error
	}
	want := func(ctx context.Context) (<-chan answer, <-chan vm.Progress) {
		out, told := make(chan answer, 1), make(chan vm.Progress, 10)
		go func() {
			got, err := im.get(ctx, func(p vm.Progress) { told <- p })
			out <- answer{got, err}
		}()
		return out, told
	}
	why := errors.New("the caller went")
	actx, leaveA := context.WithCancelCause(t.Context())
	bctx, leaveB := context.WithCancelCause(t.Context())
	a, _ := want(actx)
	build := <-began
	b, told := want(bctx)
	if p := <-told; p.Text != "part 1 of 2" {
		t.Errorf("who comes in the middle is told %+v", p)
	}
	leaveA(why)
	if got := <-a; !errors.Is(got.err, why) {
		t.Errorf("%v", got.err)
	}
	if build.Err() != nil {
		t.Fatal("the build ended under one who wants it")
	}
	leaveB(why)
	if got := <-b; !errors.Is(got.err, why) {
		t.Errorf("%v", got.err)
	}
	mu.Lock()
	if running != 0 {
		t.Error("the build still runs")
	}
	mu.Unlock()
	// A build that failed is tried again by the next one; one that did well is kept.
	fault := errors.New("no space")
	c, _ := want(t.Context())
	<-began
	release <- fault
	if got := <-c; !errors.Is(got.err, fault) {
		t.Errorf("%v", got.err)
	}
	d, _ := want(t.Context())
	<-began
	release <- nil
	if got := <-d; got.err != nil || got.im.Hash != "abc" {
		t.Errorf("%+v", got)
	}
	if got, err := im.get(t.Context(), nil); err != nil || got.Hash != "abc" || len(began) != 0 {
		t.Errorf("it was built again: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := im.get(gone, nil); err == nil {
		t.Error("a caller that went gets nothing")
	}
}

// Giving up the host's build ends the calls that want nothing but the image.
func TestCancelImage(t *testing.T) {
	began := make(chan struct{}, 10)
	c := &Core{images: &images{make: func(ctx context.Context, _ func(vm.Progress)) (*image.Image, error) {
		began <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}}}
	if err := c.cancelImage(); domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("nobody builds: %v", err)
	}
	project, leave := context.WithCancel(t.Context())
	defer leave()
	other := make(chan error, 1)
	go func() { _, err := c.images.get(project, nil); other <- err }()
	<-began
	errs := make(chan error, 2)
	ready := make(chan struct{}, 2)
	for range 2 {
		go func() {
			ctx, done := c.images.call(t.Context())
			ready <- struct{}{}
			_, err := c.images.get(ctx, nil)
			done()
			errs <- err
		}()
		<-ready
	}
	if err := c.cancelImage(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-errs; !errors.Is(err, errImageGivenUp) {
			t.Errorf("%v", err)
		}
	}
	select {
	case err := <-other:
		t.Fatalf("a project's making lost its image: %v", err)
	default:
	}
	leave()
	<-other
	if err := c.cancelImage(); domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("it is over: %v", err)
	}
}
