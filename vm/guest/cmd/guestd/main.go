//go:build linux

// Command guestd is the agent inside a guest: see glasshouse/vm/guest/agent.
package main

import (
	"fmt"
	"os"

	"glasshouse/vm/guest/agent/boot"
)

func main() {
	code, err := boot.Command(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "guestd:", err)
	}
	os.Exit(code)
}
