// Package gitx moves objects in and out of the workspace's own repository with
// the guest's real git, run as the agent user. It implements guest.Git.
package gitx
