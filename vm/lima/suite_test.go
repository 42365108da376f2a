package lima

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"glasshouse/vm"
	"glasshouse/vm/guest"
	"glasshouse/vm/guest/client"
	"glasshouse/vm/vmtest"
)

// TestContract runs the suite that every kind of machine passes, on virtual machines.
func TestContract(t *testing.T) {
	root := filepath.Join(shortTemp(t), "m")
	first := realManager(t, root)
	vmtest.Run(t, vmtest.Factory{
		New:       func(t testing.TB) vm.Manager { return New(first.opt) },
		GuestKind: "vm",
		PowerLoss: func(t testing.TB, m vm.Machine) {
			q := m.(*Machine).l.procs().qemu
			if q == nil {
				t.Fatal("no QEMU to pull the plug of")
			}
			if err := q.signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			for q.alive() {
				time.Sleep(5 * time.Millisecond)
			}
		},
		KillWorker: func(t testing.TB, m vm.Machine) {
			c, err := m.Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			g, err := client.Open(t.Context(), c, nil, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			// The worker may be dead before it has answered.
			_, err = g.Execs().Start(t.Context(), guest.ExecSpec{ID: "kill-worker", Root: true, Dir: "/", Argv: []string{"/bin/bash", "-c",
				`sleep 0.2; for p in /proc/[0-9]*; do mapfile -d '' a <$p/cmdline; [[ ${a[1]} == serve && ${a[0]} == *guestd ]] && kill -9 ${p#/proc/}; done`}})
			select {
			case <-g.Done():
			case <-time.After(time.Minute):
				t.Fatalf("guestd's worker did not die: %v", err)
			}
		},
		Left: func(_ testing.TB, id string) []string { return mention(filepath.Join(root, id)) },
		Trashed: func(t testing.TB, id string) bool {
			kept, _ := filepath.Glob(filepath.Join(filepath.Dir(root), "trash", "machine-"+id+"-*", diskFile))
			return len(kept) == 1
		},
	})
}
