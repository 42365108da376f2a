package git_test

import (
	"math/rand"
	"os"
	"testing"

	"glasshouse/backend/git"
	"glasshouse/vm/proc"
)

// The test binary plays the hidden command, as Glasshouse's own binary does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == git.IndexRole {
		os.Exit(git.IndexMain(os.Args[2:], os.Stdin))
	}
	os.Exit(m.Run())
}

func newRand(seed int64) *rand.Rand { return rand.New(rand.NewSource(seed)) }

func openMirror(t testing.TB) (*git.Mirror, *proc.Runner) {
	t.Helper()
	r := &proc.Runner{}
	m, err := git.Open(t.TempDir()+"/mirror.git", git.Options{Runner: r})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := r.Live(); n != 0 {
			t.Errorf("%d processes are still running", n)
		}
	})
	return m, r
}
