// Package runas starts programs inside the guest as the agent user. guestd is
// root in a VM, and nothing the agent can configure (a repository, a ripgrep
// file) may make root run something; in the local sandbox guestd already is
// that user and programs are started as they are.
package runas
