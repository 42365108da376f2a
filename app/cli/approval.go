package cli

import (
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"glasshouse/backend/approval"
)

func (e *env) approvalCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "approval", Short: "Questions that wait for you"}
	var project string
	list := &cobra.Command{
		Use: "list", Short: "List open questions, oldest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			id, err := c.projectID(cmd.Context(), project)
			if err != nil {
				return err
			}
			var as []approval.Approval
			if err := c.get(cmd.Context(), at{"approvals"}, url.Values{"project_id": {id}}, &as); err != nil {
				return err
			}
			name, err := c.projectNames(cmd.Context())
			if err != nil {
				return err
			}
			if err := e.print(as, func(w io.Writer) {
				for _, a := range as {
					e.showQuestion(w, a)
					fmt.Fprintf(w, "  project %s, session %s, since %s\n", name(a.Project), a.Session, when(a.CreatedAt))
				}
			}); err != nil {
				return err
			}
			if len(as) == 0 {
				e.note("no question waits")
			} else {
				e.note("answer with 'glasshouse approval answer QUESTION CHOICE'")
			}
			return nil
		},
	}
	list.Flags().StringVar(&project, "project", "", "of one project")
	var text string
	answer := &cobra.Command{
		Use: "answer QUESTION [CHOICE]", Short: "Answer a question; the first answer wins", Args: cobra.RangeArgs(1, 2),
		Long: `Answer a question with one of the choices that 'glasshouse approval list' shows, such
as once or deny, or with a text where that is taken. The first answer wins.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			choice := ""
			if len(args) == 2 {
				choice = args[1]
			} else if text == "" {
				return usage("give a CHOICE or --text")
			}
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var a approval.Approval
			if err := c.get(cmd.Context(), at{"approvals", args[0]}, nil, &a); err != nil {
				return err
			}
			var out approval.Outcome
			if err := c.post(cmd.Context(), at{"approvals", args[0], "answer"}, nil, answerOf(a, choice, text), &out); err != nil {
				return err
			}
			return e.print(out, func(w io.Writer) {
				fmt.Fprintf(w, "%s: %s\n", out.State, strings.TrimSpace(one(out.Choice)+" "+one(out.Text)))
				if out.GrantID != "" {
					fmt.Fprintf(w, "rule %s was saved; 'glasshouse rule remove %s %s' takes it back\n", out.GrantID, a.Project, out.GrantID)
				}
			})
		},
	}
	answer.Flags().StringVar(&text, "text", "", "what to say with it, or the answer itself")
	cmd.AddCommand(list, answer)
	return cmd
}

func (e *env) ruleCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "rule", Short: "Hosts a project may reach, and remembered answers"}
	list := &cobra.Command{
		Use: "list PROJECT", Short: "List rules with their hits", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var gs []approval.Grant
			if err := c.get(cmd.Context(), at{"projects", args[0], "rules"}, nil, &gs); err != nil {
				return err
			}
			if len(gs) == 0 {
				e.note("no rules; a host that is used first is asked about")
			}
			return e.print(gs, func(w io.Writer) {
				for _, g := range gs {
					fmt.Fprintf(w, "%s\t%s\t%s\t%d hits\n", g.ID, g.Rule.Decision, one(g.Rule.Text), g.Hits)
				}
			})
		},
	}
	cmd.AddCommand(list)
	for _, v := range []string{"allow", "deny"} {
		cmd.AddCommand(&cobra.Command{
			Use: v + " PROJECT HOST[:PORT]", Short: "Add a rule that says " + v + " (port 443 if none is given)", Args: cobra.ExactArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error {
				c, err := e.client(cmd.Context())
				if err != nil {
					return err
				}
				var g approval.Grant
				if err := c.post(cmd.Context(), at{"projects", args[0], "rules"}, nil, map[string]string{"host": args[1], "decision": v}, &g); err != nil {
					return err
				}
				return e.print(g, func(w io.Writer) { fmt.Fprintf(w, "%s\t%s\n", g.ID, one(g.Rule.Text)) })
			},
		})
	}
	cmd.AddCommand(&cobra.Command{
		Use: "remove PROJECT RULE", Short: "Take a rule back", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			return c.call(cmd.Context(), "DELETE", at{"projects", args[0], "rules", args[1]}, nil, nil, nil)
		},
	})
	return cmd
}
