// Command bench measures Glasshouse against what it replaces, in one run and on
// one host, and reports ratios:
//
//	bench [-bin DIR] [-n ROUNDS] [-cold STARTS] exec
//
// exec compares a command that does nothing, run through the core's socket with
// its policy and its log, with `limactl shell` and with multiplexed ssh into a
// plain Lima machine of the same image and size; and a project made from nothing
// to its first command with the start of such a plain machine. Both machines run
// at the same time, and the ways into them are measured in turn, so that whatever
// else the host does hits all of them.
//
// A missed target is reported, not an error: bench fails only when it could not measure.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	bin := flag.String("bin", "build/bin", "folder of glasshouse, guestd and lima/bin/limactl")
	rounds := flag.Int("n", 30, "executions by each way")
	cold := flag.Int("cold", 3, "cold starts of each")
	keep := flag.Bool("keep", false, "keep the bench's folder with its logs")
	flag.Parse()
	if flag.NArg() != 1 || flag.Arg(0) != "exec" || *rounds < 1 || *cold < 1 {
		fmt.Fprintln(os.Stderr, "usage: bench [-bin DIR] [-n ROUNDS] [-cold STARTS] exec")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, *bin, *rounds, *cold, *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin string, rounds, cold int, keep bool) (err error) {
	b, err := newBench(bin)
	if err != nil {
		return err
	}
	// Cleaning up is not cut short by the signal that ends the run.
	defer func() {
		if ctx.Err() != nil {
			err = errors.New("interrupted; nothing was measured")
		} else if err != nil {
			b.lastWords()
		}
		err = errors.Join(err, b.clean(context.WithoutCancel(ctx), keep))
	}()
	rep, err := b.exec(ctx, rounds, cold)
	if err != nil {
		return err
	}
	rep.print(os.Stdout)
	line, err := json.Marshal(map[string]any{"bench": "exec", "rows": rep.rows})
	if err != nil {
		return err
	}
	// Cleaned up first: what follows a result could hide a failure.
	if err := b.clean(context.WithoutCancel(ctx), keep); err != nil {
		return err
	}
	_, err = fmt.Printf("%s\n", line)
	return err
}

// say tells on standard error what goes on; standard output is the report's.
func say(format string, a ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", a...) }

// absBin checks that what is measured is built.
func absBin(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for _, p := range []string{"glasshouse", "guestd", "lima/bin/limactl"} {
		if _, err := os.Stat(filepath.Join(dir, p)); err != nil {
			return "", fmt.Errorf("%s is not built: %w (run 'make build')", p, err)
		}
	}
	return dir, nil
}
