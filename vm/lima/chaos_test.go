package lima

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"glasshouse/vm"
)

// TestChaos kills the machine's processes, and forgets the core, at any moment of
// a start, a run or a stop. Whatever happened, Info tells a state that the
// contract has, a stop leaves nothing, and the next start works.
func TestChaos(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			chaos(t, seed)
		})
	}
}

func chaos(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t, behaviour{})
	x := w.create("chaos")
	for round := range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		res := make(chan error, 1)
		go func() { res <- x.Start(ctx, nil) }()
		time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
		what := r.IntN(5)
		pids := w.state(x).Pids
		kill := func(role string) {
			if pid := pids[role]; pid != 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		switch what {
		case 0:
			kill("qemu")
		case 1:
			kill("hostagent")
		case 2:
			kill("netd")
		case 3:
			cancel()
		case 4:
			kill("qemu")
			kill("netd")
			kill("hostagent")
		}
		var err error
		select {
		case err = <-res:
		case <-time.After(time.Minute):
			t.Fatalf("seed %d round %d: the start hangs after %d", seed, round, what)
		}
		cancel()
		i := w.state(x)
		switch i.State {
		case vm.StateOff, vm.StateReady, vm.StateTrouble, vm.StateStarting:
		default:
			t.Fatalf("seed %d round %d: %+v after %v", seed, round, i, err)
		}
		if r.IntN(2) == 0 {
			// A new core without a memory.
			y, err := w.manager(nil).Open(t.Context(), "chaos")
			if err != nil {
				t.Fatal(err)
			}
			x = y.(*Machine)
		}
		if r.IntN(2) == 0 {
			err := x.Start(t.Context(), nil)
			if err != nil && !strings.Contains(err.Error(), "stop the machine") {
				t.Fatalf("seed %d round %d, did %d: no start afterwards: %v", seed, round, what, err)
			}
		}
		soft, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(1000))*time.Millisecond)
		if err := x.Stop(soft); err != nil {
			t.Fatalf("seed %d round %d: %v", seed, round, err)
		}
		cancel()
		noProcess(t, x)
		if i := w.state(x); i.State != vm.StateOff || t.Failed() {
			t.Fatalf("seed %d round %d, did %d: %+v", seed, round, what, i)
		}
	}
	w.start(x)
	if w.say(x, "disk") == "" {
		t.Fatal("no answer in the end")
	}
}
