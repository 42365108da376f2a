// Package watch tells what changes in the workspace.
package watch
