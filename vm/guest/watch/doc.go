// Package watch tells what changes in the workspace.
//
// The truth is a map from path to what stat says; inotify only marks paths as
// dirty, and a change is reported only when the map differs, so the end state
// converges whatever was missed. Marks go to two takers: the stream of changes
// for the screen, and checkpoints, which ask by Barrier.
//
// inotify is read directly: the kernel queues an event before the write that
// caused it returns, so "the queue is read empty" is a barrier without any cookie
// file; a library that hands events on through channels hides that moment.
//
// Not seen at once, because inotify does not tell: writes through a shared
// mapping and through a hard link that lies elsewhere. The sweep finds them by stat.
package watch
