//go:build desktop && linux && windowfault

package desktop

/*
#include <signal.h>

// For a test alone: takes the flag away as a JavaScript engine does that installs its
// own handlers.
static int gh_unstack(void) {
	int all[] = {SIGSEGV, SIGBUS, SIGFPE};
	for (int i = 0; i < 3; i++) {
		struct sigaction now;
		if (sigaction(all[i], 0, &now) != 0) return -1;
		now.sa_flags &= ~SA_ONSTACK;
		if (sigaction(all[i], &now, 0) != 0) return -1;
	}
	return 0;
}
*/
import "C"

func breakSignals() bool { return C.gh_unstack() == 0 }
