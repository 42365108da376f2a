package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

const yesHelp = "do not ask (without a terminal nothing is asked)"

// sure asks a person at a terminal once before something goes that is hard to get back;
// another answer than yes, and none, is a no. A program that calls is not asked: it could
// not answer.
func (e *env) sure(ctx context.Context, question string) error {
	if !e.terminal() || !isTerminal(e.err) {
		return nil
	}
	next := e.lines(nil).next()
	fmt.Fprintf(e.err, "%s [y/N] ", question)
	select {
	case line, ok := <-next:
		if !ok {
			fmt.Fprintln(e.err)
		}
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return fmt.Errorf("nothing was deleted")
	case <-ctx.Done():
		fmt.Fprintln(e.err)
		return &interrupted{"nothing was deleted"}
	}
}

func yesFlag(cmd *cobra.Command) *bool { return cmd.Flags().BoolP("yes", "y", false, yesHelp) }
