//go:build desktop && linux

package desktop

/*
#include <signal.h>

// The web view's JavaScript engine installs handlers without SA_ONSTACK; Go needs
// that flag to turn a fault into a panic instead of ending the process.
static void gh_onstack(int sig) {
	struct sigaction now;
	if (sigaction(sig, 0, &now) == 0 && (now.sa_flags & SA_ONSTACK) == 0) {
		now.sa_flags |= SA_ONSTACK;
		sigaction(sig, &now, 0);
	}
}
static void gh_onstack_all(void) {
	gh_onstack(SIGSEGV); gh_onstack(SIGBUS); gh_onstack(SIGFPE);
	gh_onstack(SIGILL); gh_onstack(SIGABRT); gh_onstack(SIGTRAP);
}
*/
import "C"

func repairSignals() { C.gh_onstack_all() }
