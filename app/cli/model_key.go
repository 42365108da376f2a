package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"glasshouse/backend/domain"
)

// keyMost bounds a key in bytes.
const keyMost = 8 << 10

func (e *env) modelKeyCmd() *cobra.Command {
	var remove bool
	cmd := &cobra.Command{
		Use: "key NAME", Short: "Put a model's key into the keychain, or take it out", Args: cobra.ExactArgs(1),
		Long: `Put a model's key into the keychain. A terminal asks for it and does not show what is
typed; without one it is read from the input:

  glasshouse model key claude
  pass show claude | glasshouse model key claude

It is never an argument, for those are seen by every program of this computer.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, _, r, err := e.oneModel(ctx, args[0])
			if err != nil {
				return err
			}
			if remove {
				if err := c.call(ctx, "DELETE", modelPath(r.Name, "key"), nil, nil, nil); err != nil {
					return err
				}
				e.note("the keychain holds no key of %s any more", one(r.Name))
				return nil
			}
			key, err := e.readKey(ctx, one(r.Name))
			if err != nil {
				return err
			}
			if err := c.call(ctx, "PUT", modelPath(r.Name, "key"), nil, map[string]string{"key": key}, nil); err != nil {
				err = withoutKey(err, key)
				if re := (*remoteError)(nil); errors.As(err, &re) && re.Code == domain.CodeUnavailable {
					e.note("where there is no keychain: export MY_KEY=…; glasshouse model edit %s --key-env MY_KEY; glasshouse quit. The next command starts a core that knows it", one(r.Name))
				}
				return err
			}
			e.note("the keychain holds the key of %s; try it with 'glasshouse model try %s'", one(r.Name), one(r.Name))
			return nil
		},
	}
	cmd.Flags().BoolVar(&remove, "delete", false, "take the key out of the keychain")
	return cmd
}

// readKey reads a key that nobody may see.
func (e *env) readKey(ctx context.Context, name string) (string, error) {
	var raw []byte
	var err error
	if f, is := e.in.(*os.File); is && isTerminal(f) {
		raw, err = hidden(ctx, f, e.err, "key of "+name+" (it is not shown): ")
	} else {
		raw, err = io.ReadAll(io.LimitReader(e.in, keyMost+2))
	}
	if errors.Is(err, errGivenUp) {
		return "", &interrupted{"nothing was changed"}
	}
	if err != nil {
		return "", fmt.Errorf("the key could not be read: %w", err)
	}
	key := strings.TrimSpace(string(raw))
	switch {
	case key == "":
		return "", errors.New("no key was given; nothing was changed")
	case len(key) > keyMost:
		return "", fmt.Errorf("what was given is longer than %d bytes and no key; nothing was changed", keyMost)
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 127 }):
		return "", errors.New("what was given holds spaces, line ends or characters that no key has; nothing was changed")
	}
	return key, nil
}

var errGivenUp = errors.New("given up")

// hidden reads a line from a terminal that shows nothing of it: not even what is typed
// in the moment before it is asked for. The terminal is put back as it was in any case.
func hidden(ctx context.Context, f *os.File, out io.Writer, prompt string) ([]byte, error) {
	was, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = term.Restore(int(f.Fd()), was) }()
	type read struct {
		line string
		err  error
	}
	done := make(chan read, 1)
	go func() {
		line, err := term.NewTerminal(struct {
			io.Reader
			io.Writer
		}{f, out}, "").ReadPassword(prompt)
		done <- read{line, err}
	}()
	select {
	case r := <-done:
		if errors.Is(r.err, io.EOF) { // Ctrl-C or Ctrl-D
			fmt.Fprint(out, "\r\n")
			return nil, errGivenUp
		}
		return []byte(r.line), r.err
	case <-ctx.Done():
		fmt.Fprint(out, "\r\n")
		return nil, errGivenUp
	}
}

// withoutKey takes a key out of an error that may repeat it.
func withoutKey(err error, key string) error {
	if !strings.Contains(err.Error(), key) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), key, "[the key]"))
}
