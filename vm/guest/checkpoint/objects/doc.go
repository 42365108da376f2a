// Package objects writes git objects without git: one checkpoint is a handful of
// blobs, trees and a commit, and a process start costs more than all of them on
// an emulated machine. It writes what git reads (loose objects, packs without
// deltas) and leaves reading to git.
//
// Nothing is synced object by object. Write, Finish, Sync, then SetHead: a
// checkpoint either is complete on disk and named, or is not named.
package objects
