//go:build linux

package boot

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/agent"
	"glasshouse/vm/guest/agent/cell"
	"glasshouse/vm/guest/agent/shim"
)

const usage = `guestd runs inside a Glasshouse machine. Subcommands:
  init     be the parent of everything (pid 1)
  connect  join standard input and output to the channel (VM, root)
  version  print the generation of the wire
serve, shim and cell are started by guestd itself.`

// Command runs one guestd process by its arguments and returns its exit code.
func Command(argv []string) (int, error) {
	log.SetFlags(0)
	log.SetPrefix("guestd: ")
	args := argv[1:]
	if filepath.Base(argv[0]) == "init" || len(args) == 0 && os.Getpid() == 1 {
		args = []string{"init"} // a kernel may pass words of its command line: not for us
	}
	if len(args) == 0 {
		return 2, errors.New(usage)
	}
	// Whoever started us may have left files open; no command is to have them.
	from := 3
	if args[0] == "serve" || args[0] == "shim" || args[0] == "cell" {
		from = 4 // 3 is meant for them, and they mark it themselves
	}
	if err := closeOnExec(from); err != nil && args[0] != "init" { // pid 1 has but the console
		return 1, err
	}
	one := func(f func(string) error) (int, error) {
		if len(args) != 2 {
			return 2, fmt.Errorf("%s is started by guestd itself", args[0])
		}
		return result(f(args[1]))
	}
	switch args[0] {
	case "init":
		return result(Main(args[1:]))
	case "serve":
		if len(args) != 2 {
			return 2, errors.New("serve is started by init")
		}
		if k, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0); err == nil && os.Getuid() == 0 && os.Getppid() == 1 {
			log.SetOutput(kmsg{k})
			log.SetPrefix("")
		}
		return agent.Serve(args[1])
	case "shim":
		return one(shim.Main)
	case "cell":
		return result(cell.Inner())
	case "connect":
		return result(connect(os.Stdin, os.Stdout))
	case "version":
		fmt.Printf("guestd, wire generation %d\n", guest.Generation)
		return 0, nil
	}
	return 2, fmt.Errorf("unknown subcommand %q\n%s", args[0], usage)
}

func result(err error) (int, error) {
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// closeOnExec keeps every file from first on from the programs that are run.
func closeOnExec(first int) error {
	err := unix.CloseRange(uint(first), 1<<31-1, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	// Kernels before 5.11 and some seccomp filters have no such call.
	if err = markOpen(first); err != nil {
		return fmt.Errorf("files that were left open cannot be kept from commands: %w", err)
	}
	return nil
}

func markOpen(first int) error {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
