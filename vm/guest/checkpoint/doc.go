// Package checkpoint keeps states of the workspace in a shadow git directory
// outside it. It implements guest.Checkpoints.
//
// The store is an ordinary bare git repository with its own objects, so that
// nothing the agent does to its own repository (gc, config, hooks) reaches it.
// Bytes are recorded as they are: no attribute, filter or line-end rule of the
// workspace has a say. Nested repositories are walked as files; what lies in a
// folder named .git is never recorded and never touched.
//
// Process starts are slow on an emulated machine, so the index, the trees and
// the objects are ours (see package objects): a Take without changes starts
// nothing, and one git process, which stays, compares trees for all others. git
// reads what is written here, and the tests hold every tree against git's own.
//
// Not recorded: ignored files (counted), files past Options.MaxFile, unreadable
// ones and names that git refuses (listed), empty folders, owners, and
// permissions other than the executable bit. Global ignore settings of the user
// are left aside: more is recorded then, never less.
package checkpoint
