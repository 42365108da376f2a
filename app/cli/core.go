package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"glasshouse/app/config"
	"glasshouse/app/core"
	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/git"
	"glasshouse/vm/lima"
	"glasshouse/vm/netd"
)

// coreTaken is the exit code of a core that found another one over its data.
const coreTaken = 3

func (e *env) coreCmd() *cobra.Command {
	return &cobra.Command{
		Use: "core", Short: "Run the core in the foreground (the first command starts it by itself)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			paths, err := config.Default()
			if err != nil {
				return err
			}
			err = core.Run(cmd.Context(), core.Options{Paths: paths, Version: Version, Log: os.Stderr})
			if domain.CodeOf(err) == domain.CodeConflict && err != nil {
				fmt.Fprintf(e.err, "%s: %s\n", cmd.CommandPath(), safe(err.Error(), true))
				return exitCode(coreTaken)
			}
			return err
		},
	}
}

// hidden commands are processes of Glasshouse's own.
func (e *env) hidden() []*cobra.Command {
	raw := func(use string, run func(ctx context.Context, args []string) error) *cobra.Command {
		return &cobra.Command{Use: use, Hidden: true, DisableFlagParsing: true, RunE: func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), args) }}
	}
	return []*cobra.Command{
		raw("netd", netd.Main),
		raw("qemu", func(_ context.Context, args []string) error { return lima.QEMUMain(args) }),
		raw(git.IndexRole, func(_ context.Context, args []string) error {
			if code := git.IndexMain(args, os.Stdin); code != 0 {
				return exitCode(code)
			}
			return nil
		}),
	}
}

func (e *env) quitCmd() *cobra.Command {
	var now bool
	cmd := &cobra.Command{
		Use: "quit", Short: "Power off all machines and end the core", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			said, err := quit(cmd.Context(), now)
			if err != nil {
				return err
			}
			return e.print(map[string]string{"result": said}, func(w io.Writer) { fmt.Fprintln(w, said) })
		},
	}
	cmd.Flags().BoolVar(&now, "now", false, "also when something runs: it is cancelled")
	return cmd
}

// quit ends the core, if one runs, and waits for its end.
func quit(ctx context.Context, now bool) (string, error) {
	paths, err := config.Default()
	if err != nil {
		return "", err
	}
	c := socketClient(paths)
	// One that begins does not answer yet, one that ends does not answer any more. Who
	// holds the place before and after it answered has said its own number.
	var pid int
	if err := until(ctx, func() (bool, error) {
		if pid, err = core.Holder(paths); err != nil || pid == 0 {
			return true, err
		}
		if !c.running(ctx) {
			return false, nil
		}
		now, err := core.Holder(paths)
		return now == pid && pid > 0, err
	}); errors.Is(err, errLate) {
		return "", domain.E(domain.CodeUnavailable, fmt.Sprintf("the core (process %d) begins or ends since half a minute and does not answer", pid), "see its log in "+paths.Logs(), nil)
	} else if err != nil {
		return "", err
	}
	if pid == 0 {
		return "nothing runs", nil
	}
	if err := c.post(ctx, at{"quit"}, nil, map[string]bool{"now": now}, nil); err != nil {
		return "", err
	}
	// It has ended when its data are closed and anybody's to copy or to move, not when it
	// has stopped to answer. Another command may have started the next one by then.
	if err := until(ctx, func() (bool, error) {
		now, err := core.Holder(paths)
		return now != pid, err
	}); errors.Is(err, errLate) {
		return "", domain.E(domain.CodeUnavailable, fmt.Sprintf("the core (process %d) has not ended half a minute after it agreed to", pid), "see its log in "+paths.Logs(), nil)
	} else if err != nil {
		return "", err
	}
	return "all machines are off; the core has ended", nil
}

var errLate = errors.New("it takes longer than half a minute")

// until asks again and again, for half a minute.
func until(ctx context.Context, done func() (bool, error)) error {
	for range 1500 {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return errLate
}

func (e *env) doctorCmd() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Look at what works on this computer", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var d httpapi.Doctor
			if err := c.get(cmd.Context(), at{"doctor"}, nil, &d); err != nil {
				return err
			}
			if err := e.print(d, func(w io.Writer) {
				for _, l := range d.Lines {
					mark := "ok  "
					if !l.OK {
						mark = "look"
					}
					fmt.Fprintf(w, "%s\t%s\t%s\n", mark, l.Name, one(l.Text))
					if l.Fix != "" {
						fmt.Fprintf(w, "\t\t→ %s\n", l.Fix)
					}
				}
			}); err != nil {
				return err
			}
			if !d.OK {
				return exitCode(1)
			}
			return nil
		},
	}
}

func (e *env) toolCmd() *cobra.Command {
	return &cobra.Command{
		Use: "tools", Short: "List the tools agents can call", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var ts []httpapi.ToolInfo
			if err := c.get(cmd.Context(), at{"tools"}, nil, &ts); err != nil {
				return err
			}
			return e.print(ts, func(w io.Writer) {
				for _, t := range ts {
					fmt.Fprintf(w, "%s\t%s\t%s\n", t.Name, t.Reach, one(t.Description))
				}
			})
		},
	}
}
