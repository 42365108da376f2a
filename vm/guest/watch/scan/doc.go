// Package scan looks at a folder that somebody hostile may be changing: no link
// is followed, nothing blocks on a pipe, and git's ignore rules are applied on
// the way. Paths are relative to the folder, with slashes; "" is the folder.
package scan
