package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/session"
)

func (e *env) fileCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "file", Short: "Files of a session's machine"}
	list := &cobra.Command{
		Use: "list SESSION [FOLDER]", Short: "List a folder (default /workspace)", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			q := url.Values{}
			if len(args) == 2 {
				q.Set("path", args[1])
			}
			var out struct {
				Entries []httpapi.FileEntry `json:"entries"`
				More    bool                `json:"more"`
			}
			if err := c.get(cmd.Context(), at{"sessions", args[0], "files"}, q, &out); err != nil {
				return err
			}
			return e.print(out, func(w io.Writer) {
				for _, f := range out.Entries {
					fmt.Fprintf(w, "%s\t%04o\t%d\t%s\t%s\n", f.Type, f.Mode, f.Size, when(f.At), one(f.Path))
				}
				if out.More {
					fmt.Fprintln(w, "…")
				}
			})
		},
	}
	read := &cobra.Command{
		Use: "read SESSION FILE", Short: "Print a file", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			for offset := int64(0); ; {
				var f httpapi.FileContent
				q := url.Values{"path": {args[1]}, "offset": {fmt.Sprint(offset)}}
				if err := c.get(cmd.Context(), at{"sessions", args[0], "file"}, q, &f); err != nil {
					return err
				}
				data := []byte(f.Text)
				if f.Base64 != "" {
					if data, err = base64.StdEncoding.DecodeString(f.Base64); err != nil {
						return err
					}
				}
				if _, err := io.WriteString(e.out, e.guestText(string(data), e.out)); err != nil {
					return err
				}
				offset += int64(len(data))
				if !f.More || len(data) == 0 {
					return nil
				}
			}
		},
	}
	write := &cobra.Command{
		Use: "write SESSION FILE", Short: "Write standard input to a file, as a step", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := io.ReadAll(io.LimitReader(e.in, 8<<20+1))
			if err != nil {
				return err
			}
			if len(b) > 8<<20 {
				return fmt.Errorf("the input is larger than 8 MiB; bring it in by the source or a command")
			}
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			st, err := e.writeFile(cmd.Context(), c, args[0], args[1], string(b))
			if err != nil {
				return err
			}
			if e.json {
				if err := e.print(st, nil); err != nil {
					return err
				}
			}
			switch {
			case st.Refused != nil:
				what := string(st.State)
				if st.Decision.Decision == domain.Deny {
					what += by(st.Decision.Rule)
				}
				return fmt.Errorf("nothing was written, %s: %s", what, st.Refused.Reason)
			case st.Ended == nil || st.Ended.Outcome != domain.OutcomeOK:
				why := string(st.State)
				if st.Ended != nil {
					why = st.Ended.Error
				}
				return fmt.Errorf("it was not written: %s", why)
			}
			return nil
		},
	}
	cmd.AddCommand(list, read, write)
	return cmd
}

// writeFile writes as a step and shows its question, if it asks.
func (e *env) writeFile(ctx context.Context, c *Client, sess, path, content string) (st session.StepView, err error) {
	q, err := e.watch(ctx, c, sess)
	if err != nil {
		return st, err
	}
	defer q.end()
	sealed := url.Values{"wait": {"sealed"}}
	if err := c.call(ctx, "PUT", at{"sessions", sess, "file"}, sealed, map[string]string{"path": path, "content": content}, &st); err != nil {
		return st, err
	}
	for st.State == domain.StepAsking {
		if err := q.wait(ctx, st.Approval); err != nil {
			return st, err
		}
		step := at{"sessions", sess, "steps", string(st.ID)}
		st = session.StepView{}
		if err := c.get(ctx, step, sealed, &st); err != nil {
			return st, err
		}
	}
	return st, nil
}

func (e *env) logCmd() *cobra.Command {
	var session string
	var follow bool
	cmd := &cobra.Command{
		Use: "log", Short: "Show the record, or check its chain", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.showLog(cmd.Context(), session, "", follow) },
	}
	cmd.Flags().StringVar(&session, "session", "", "of one session")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on as events come")
	cmd.AddCommand(&cobra.Command{
		Use: "verify", Short: "Check the log's hash chain", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var r struct {
				Events   int64 `json:"events"`
				Redacted int64 `json:"redacted"`
				Problems []struct {
					ID   int64  `json:"id"`
					What string `json:"what"`
				} `json:"problems"`
			}
			if err := c.post(cmd.Context(), at{"log", "verify"}, nil, nil, &r); err != nil {
				return err
			}
			for _, p := range r.Problems {
				fmt.Fprintf(e.err, "event %d: %s\n", p.ID, p.What)
			}
			if len(r.Problems) > 0 {
				return exitCode(1)
			}
			return e.print(r, func(w io.Writer) { fmt.Fprintf(w, "%d events, the chain holds\n", r.Events) })
		},
	})
	return cmd
}
