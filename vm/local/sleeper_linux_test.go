package local

import "glasshouse/vm/proc"

// sleeper is a process that is none of the driver's business. Its row lends it
// a program that waits: bwrap itself, under another name of the arguments.
func sleeper() proc.Cmd {
	return proc.Cmd{Role: "image", Path: "sh", Args: []string{"-c", "exec sleep 600"}, Dir: "/"}
}
