package cli

import (
	"fmt"
	"io"
	"net/url"

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
			var as []approval.Approval
			if err := c.get(cmd.Context(), "/v1/approvals", url.Values{"project_id": {project}}, &as); err != nil {
				return err
			}
			return e.print(as, func(w io.Writer) {
				for _, a := range as {
					e.showQuestion(w, a)
				}
			})
		},
	}
	list.Flags().StringVar(&project, "project", "", "of one project")
	var text string
	answer := &cobra.Command{
		Use: "answer QUESTION CHOICE", Short: "Answer a question; the first answer wins", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var a approval.Approval
			if err := c.get(cmd.Context(), "/v1/approvals/"+args[0], nil, &a); err != nil {
				return err
			}
			var out approval.Outcome
			if err := c.post(cmd.Context(), "/v1/approvals/"+args[0]+"/answer", nil, map[string]string{"digest": a.Asked.Digest, "choice": args[1], "text": text}, &out); err != nil {
				return err
			}
			return e.print(out, func(w io.Writer) { fmt.Fprintf(w, "%s\t%s\n", out.State, out.Choice) })
		},
	}
	answer.Flags().StringVar(&text, "text", "", "what to say with it")
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
			if err := c.get(cmd.Context(), "/v1/projects/"+args[0]+"/rules", nil, &gs); err != nil {
				return err
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
				return c.post(cmd.Context(), "/v1/projects/"+args[0]+"/rules", nil, map[string]string{"host": args[1], "decision": v}, nil)
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
			return c.call(cmd.Context(), "DELETE", "/v1/projects/"+args[0]+"/rules/"+args[1], nil, nil, nil)
		},
	})
	return cmd
}
