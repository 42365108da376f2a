package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"glasshouse/backend/project"
	"glasshouse/backend/review"
)

func (e *env) reviewCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "review", Short: "Changes that wait for your decision"}
	var remote, ref string
	open := &cobra.Command{
		Use: "open PROJECT", Short: "Take the changes out of the machine and show them as hunks", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var v project.ReviewView
			if err := c.post(cmd.Context(), at{"projects", args[0], "reviews"}, nil, map[string]string{"remote": remote, "ref": ref}, &v); err != nil {
				return err
			}
			if err := e.print(v, func(w io.Writer) { showReview(w, v) }); err != nil {
				return err
			}
			e.nextOf(v)
			return nil
		},
	}
	open.Flags().StringVar(&remote, "remote", "", "where the changes are meant to go")
	open.Flags().StringVar(&ref, "ref", "", "branch there; what it holds now it must still hold at the push")
	var of string
	list := &cobra.Command{
		Use: "list", Short: "List reviews, newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var vs []project.ReviewView
			id, err := c.projectID(cmd.Context(), of)
			if err != nil {
				return err
			}
			if err := c.get(cmd.Context(), at{"reviews"}, url.Values{"project_id": {id}}, &vs); err != nil {
				return err
			}
			name, err := c.projectNames(cmd.Context())
			if err != nil {
				return err
			}
			if len(vs) == 0 {
				e.note("no reviews; open one with 'glasshouse review open PROJECT'")
			}
			return e.print(vs, func(w io.Writer) {
				for _, v := range vs {
					fmt.Fprintf(w, "%s\t%s\t%s\t%d accepted, %d rejected, %d open\tpushes: %d\n", v.ID, name(v.ProjectID), when(v.At), v.Accepted, v.Rejected, v.Undecided, len(v.Pushes))
				}
			})
		},
	}
	list.Flags().StringVar(&of, "project", "", "of one project")
	show := &cobra.Command{
		Use: "show REVIEW", Short: "Show a review's hunks and decisions", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			v, err := getReview(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if err := e.print(v, func(w io.Writer) { showReview(w, v) }); err != nil {
				return err
			}
			e.nextOf(v)
			return nil
		},
	}
	cmd.AddCommand(open, list, show)
	for name, d := range map[string]review.Decision{"accept": review.Accept, "reject": review.Reject, "reset": review.Undecided} {
		short := map[review.Decision]string{review.Accept: "Accept", review.Reject: "Reject", review.Undecided: "Take back what was decided of"}[d]
		cmd.AddCommand(&cobra.Command{
			Use: name + " REVIEW [FILE [HUNK]]", Short: short + " a hunk (its number), a file (its path) or, with neither, everything", Args: cobra.RangeArgs(1, 3),
			RunE: func(cmd *cobra.Command, args []string) error {
				c, err := e.client(cmd.Context())
				if err != nil {
					return err
				}
				v, err := getReview(cmd.Context(), c, args[0])
				if err != nil {
					return err
				}
				file, unit, err := findUnit(v, args[1:])
				if err != nil {
					return err
				}
				if err := c.post(cmd.Context(), at{"reviews", args[0], "decisions"}, nil, map[string]string{"file": file, "unit": unit, "decision": string(d)}, &v); err != nil {
					return err
				}
				if err := e.print(v, func(w io.Writer) {
					fmt.Fprintf(w, "%d accepted, %d rejected, %d open\n", v.Accepted, v.Rejected, v.Undecided)
				}); err != nil {
					return err
				}
				if v.Undecided == 0 {
					e.nextOf(v)
				}
				return nil
			},
		})
	}
	return cmd
}

func getReview(ctx context.Context, c *Client, id string) (project.ReviewView, error) {
	var v project.ReviewView
	return v, c.get(ctx, at{"reviews", id}, nil, &v)
}

// findUnit turns a path and a number into ids. A number counts the file's
// decisions as 'review show' prints them.
func findUnit(v project.ReviewView, args []string) (file, unit string, err error) {
	if len(args) == 0 {
		return "", "", nil
	}
	for _, f := range v.Files {
		if f.Path != args[0] && f.Display != args[0] && f.ID != args[0] {
			continue
		}
		if len(args) == 1 {
			return f.ID, "", nil
		}
		if n, err := strconv.Atoi(args[1]); err == nil && n >= 1 && n <= len(f.Units) {
			return f.ID, f.Units[n-1], nil
		}
		if f.Has(args[1]) {
			return f.ID, args[1], nil
		}
		return "", "", usage("%s has no hunk %q; 'glasshouse review show %s' numbers them from 1 to %d", f.Display, args[1], v.ID, len(f.Units))
	}
	return "", "", usage("the review has no file %q; 'glasshouse review show %s' lists them", args[0], v.ID)
}

// nextOf says what can be done with a review now.
func (e *env) nextOf(v project.ReviewView) {
	switch {
	case len(v.Files) == 0:
		e.note("nothing changed: there is nothing to push")
	case v.Undecided > 0:
		e.note("decide with 'glasshouse review accept %s [FILE [HUNK]]' and 'review reject', then push", v.ID)
	case v.Accepted > 0:
		e.note("push with 'glasshouse push %s --remote ADDRESS --ref refs/heads/NAME'", v.ID)
	}
}

func showReview(w io.Writer, v project.ReviewView) {
	fmt.Fprintf(w, "review %s of project %s: %s → %s\n", v.ID, v.ProjectID, cmpShort(v.Base), cmpShort(v.Candidate))
	if v.Remote != "" {
		fmt.Fprintf(w, "for %s %s, which holds %s\n", one(v.Remote), one(v.Ref), cmpShort(v.Expected))
	}
	for _, f := range v.Files {
		fmt.Fprintf(w, "\n%s %s", f.Op, f.Display)
		if f.OldPath != "" && f.OldPath != f.Path {
			fmt.Fprintf(w, " (was %s)", one(f.OldPath))
		}
		if f.Binary {
			fmt.Fprintf(w, "  %d → %d bytes\n", f.OldSize, f.NewSize)
		} else {
			fmt.Fprintf(w, "  +%d −%d\n", f.Added, f.Deleted)
		}
		for _, fl := range f.Flags {
			fmt.Fprintf(w, "  ⚑ %s\n", one(fl.Text))
		}
		for i, u := range f.Units {
			h, ok := f.Hunk(u)
			if !ok {
				fmt.Fprintf(w, "  [%d] %s: %s\n", i+1, u, f.Decisions[u])
				continue
			}
			fmt.Fprintf(w, "  [%d] lines %d–%d: %s\n", i+1, h.NewStart, h.NewStart+max(h.NewLines, 1)-1, f.Decisions[u])
			for _, l := range h.Lines {
				fmt.Fprintf(w, "      %s %s\n", l.Op, one(l.Text))
			}
		}
	}
	fmt.Fprintf(w, "\n%d accepted, %d rejected, %d open\n", v.Accepted, v.Rejected, v.Undecided)
}

func cmpShort(id string) string {
	if id == "" {
		return "nothing"
	}
	return id[:min(12, len(id))]
}

func (e *env) pushCmd() *cobra.Command {
	in := map[string]string{}
	var remote, ref, message string
	cmd := &cobra.Command{
		Use: "push REVIEW", Short: "Push exactly what you accepted", Args: cobra.ExactArgs(1),
		Long: `Push exactly what you accepted, with your own git credentials, once everything is
decided. What is accepted is pushed as one commit. If the branch moved meanwhile, nothing is pushed.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			if remote == "" || ref == "" {
				return usage("give --remote and --ref")
			}
			in["remote"], in["ref"], in["message"] = remote, ref, message
			var v project.PushView
			if err := c.post(cmd.Context(), at{"reviews", args[0], "push"}, nil, in, &v); err != nil {
				return err
			}
			return e.print(v, func(w io.Writer) {
				fmt.Fprintf(w, "%s\t%s %s → %s\n", v.State, cmpShort(v.Commit), one(v.Remote), one(v.Ref))
				if v.Output != "" {
					fmt.Fprintln(w, safe(strings.TrimSpace(v.Output), true))
				}
			})
		},
	}
	cmd.Flags().StringVar(&remote, "remote", "", "where to: an absolute path, https://HOST/PATH, ssh://HOST/PATH or HOST:PATH")
	cmd.Flags().StringVar(&ref, "ref", "", "branch there, such as refs/heads/fix; it is made if it is not there")
	cmd.Flags().StringVar(&message, "message", "", "commit message, when only parts were accepted")
	return cmd
}
