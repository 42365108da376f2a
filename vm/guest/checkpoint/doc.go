// Package checkpoint keeps states of the workspace in a shadow git directory
// outside it. It implements guest.Checkpoints.
package checkpoint
