// Package cli is the door for the terminal: each command is a file, named like
// the command, and a client of the core like every window.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/spf13/cobra"
)

// Version of the program; the build sets it.
var Version = "dev"

// exitCode lets a command end with a code of its own, silently.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// env is what commands share.
type env struct {
	out, err io.Writer
	in       io.Reader
	json     bool
	actor    string
	assets   fs.FS
	intr     *interrupts
	told     bool // that the core runs another program
}

// interrupted says what goes on, or does not, after a command was interrupted.
type interrupted struct{ rest string }

func (i *interrupted) Error() string { return "interrupted; " + i.rest }

// Main runs one command line and returns the exit code: 0, 1 for a failure, 2 for
// a command line that is not understood, 130 when it was interrupted. Commands that
// have codes of their own say so in their help.
func Main(assets fs.FS, args []string) int {
	parent, end := context.WithCancel(context.Background())
	defer end()
	e := &env{out: os.Stdout, err: os.Stderr, in: os.Stdin, assets: assets, intr: &interrupts{}}
	ctx, stop := e.intr.context(parent)
	defer stop()
	return e.run(ctx, args)
}

func (e *env) run(ctx context.Context, args []string) int {
	root := e.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var code exitCode
	if errors.As(err, &code) {
		return int(code)
	}
	var i *interrupted
	switch {
	case errors.As(err, &i):
		fmt.Fprintf(e.err, "%s: %s\n", cmd.CommandPath(), i)
		return 130
	case ctx.Err() == nil:
	case errors.Is(err, context.Canceled), errors.Is(err, context.Cause(ctx)):
		fmt.Fprintf(e.err, "%s: interrupted\n", cmd.CommandPath())
		return 130
	}
	// An error may repeat what a machine or an argument said.
	fmt.Fprintf(e.err, "%s: %s\n", cmd.CommandPath(), safe(err.Error(), true))
	if errors.Is(err, errUsage) {
		fmt.Fprintf(e.err, "  see '%s --help'\n", cmd.CommandPath())
		return 2
	}
	return 1
}

var errUsage = errors.New("the command line is not understood")

func usage(format string, a ...any) error {
	return fmt.Errorf("%w: %s", errUsage, fmt.Sprintf(format, a...))
}

// note says something beside the answer, where it is in no program's way.
func (e *env) note(format string, a ...any) {
	if !e.json {
		fmt.Fprintf(e.err, format+"\n", a...)
	}
}

// strict makes every wrong command line an error that says what would be right.
func strict(c *cobra.Command) {
	if kids := c.Commands(); len(kids) > 0 {
		if c.RunE == nil {
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
		c.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			cmd.SuggestionsMinimumDistance = 2
			if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
				return usage("there is no command %q; did you mean %s?", args[0], strings.Join(like, " or "))
			}
			return usage("there is no command %q", args[0])
		}
		for _, k := range kids {
			strict(k)
		}
		return
	}
	check := c.Args
	if check == nil || c.Hidden {
		return
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) == nil {
			return nil
		}
		_, takes, some := strings.Cut(cmd.Use, " ")
		if !some {
			return usage("it takes no arguments, and was given %q", args)
		}
		return usage("it takes %s, and was given %d", takes, len(args))
	}
}

func (e *env) root() *cobra.Command {
	root := &cobra.Command{
		Use:               "glasshouse",
		Short:             "Agents work inside machines of glass; you keep the only door",
		Version:           Version,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetOut(e.out)
	root.SetErr(e.err)
	root.PersistentFlags().BoolVar(&e.json, "json", false, "print the core's answer as JSON")
	root.PersistentFlags().StringVar(&e.actor, "as", "person", "who acts: person, demo, agent or script")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		text, _, _ := strings.Cut(err.Error(), ": strconv.") // how it was parsed helps nobody
		return usage("%s", text)
	})
	root.AddCommand(e.coreCmd(), e.serveCmd(), e.projectCmd(), e.sessionCmd(), e.execCmd(), e.runCmd(), e.modelCmd(), e.approvalCmd(), e.ruleCmd(), e.fileCmd(),
		e.logCmd(), e.netCmd(), e.reviewCmd(), e.pushCmd(), e.machineCmd(), e.imageCmd(), e.doctorCmd(), e.trashCmd(), e.quitCmd(), e.toolCmd())
	root.AddCommand(e.hidden()...)
	root.AddCommand(e.restoreCmd(), e.demoCmd())
	if d := e.desktopCmd(); d != nil {
		root.AddCommand(d)
		root.RunE = d.RunE
	}
	strict(root)
	return root
}

// client connects to the core, starting it when none runs.
func (e *env) client(ctx context.Context) (*Client, error) {
	c, err := Connect(ctx)
	if err != nil {
		return nil, err
	}
	c.actor = e.actor
	return c, e.fits(ctx, c)
}

// print writes v as JSON when that was asked for, else by text.
func (e *env) print(v any, text func(w io.Writer)) error {
	if e.json {
		enc := json.NewEncoder(plain{e.out})
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	tw := tabwriter.NewWriter(e.out, 0, 4, 2, ' ', 0)
	text(tw)
	return tw.Flush()
}

// plain passes JSON on with every character that a terminal or an eye could take for
// something else as its JSON escape: the same JSON, fit to be shown.
type plain struct{ w io.Writer }

func (p plain) Write(b []byte) (int, error) {
	var out strings.Builder
	for _, r := range string(b) {
		switch {
		case r == '\n' || !odd(r):
			out.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	_, err := io.WriteString(p.w, out.String())
	return len(b), err
}

// odd reports characters that are not what they seem when shown.
func odd(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp) || r == 0xFFFD || r == 0x115F || r == 0x1160 || r == 0x3164 || r == 0xFFA0 || r == 0x034F || r >= 0xFE00 && r <= 0xFE0F
}

// safe makes text of a guest fit for a terminal: control characters, bidi
// controls and invisible ones are written as escapes. Line ends pass when multi is set.
func safe(s string, multi bool) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' && multi, r == '\t':
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case odd(r):
			if r < 0x100 {
				fmt.Fprintf(&b, `\x%02x`, r)
			} else {
				fmt.Fprintf(&b, `\u{%x}`, r)
			}
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func one(s string) string { return safe(s, false) }

func when(ms int64) string { return time.UnixMilli(ms).Format("2006-01-02 15:04:05") }
