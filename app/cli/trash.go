package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

func (e *env) trashCmd() *cobra.Command {
	mib := func(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
	cmd := &cobra.Command{
		Use: "trash", Short: "What deleted projects left, and what it takes on the disk", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var t httpapi.Trash
			if err := c.get(cmd.Context(), at{"trash"}, nil, &t); err != nil {
				return err
			}
			if e.json {
				return e.print(t, nil)
			}
			rows, err := c.trashRows(cmd.Context(), t)
			if err != nil {
				return err
			}
			return e.print(t, func(w io.Writer) {
				for _, r := range rows {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", one(r.name), one(r.id), mib(r.bytes), time.UnixMilli(r.at).Format(time.DateTime))
				}
				if len(rows) == 0 {
					fmt.Fprintf(w, "nothing is in %s\n", one(t.Dir))
					return
				}
				fmt.Fprintf(w, "%s in all, in %s\n", mib(t.Bytes), one(t.Dir))
			})
		},
	}
	var yes *bool
	empty := &cobra.Command{
		Use: "empty", Short: "Remove it for good", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var t httpapi.Trash
			if !*yes {
				if err := c.get(cmd.Context(), at{"trash"}, nil, &t); err != nil {
					return err
				}
				if len(t.Entries) > 0 {
					if err := e.sure(cmd.Context(), fmt.Sprintf("Remove what deleted projects left, %s, for good?", mib(t.Bytes))); err != nil {
						return err
					}
				}
			}
			t = httpapi.Trash{}
			if err := c.call(cmd.Context(), http.MethodDelete, at{"trash"}, nil, nil, &t); err != nil {
				return err
			}
			return e.print(t, func(w io.Writer) { fmt.Fprintf(w, "removed %d entries, %s\n", len(t.Entries), mib(t.Bytes)) })
		},
	}
	yes = yesFlag(empty)
	cmd.AddCommand(empty)
	return cmd
}

// trashRow is what one deleted project left: its machine, and what the host kept.
type trashRow struct {
	name, id string // the folder's name where the log knows no project of it
	bytes    int64
	at       int64
}

// trashRows puts together what is of one project; the folders' names hold the ids.
func (c *Client) trashRows(ctx context.Context, t httpapi.Trash) ([]*trashRow, error) {
	if len(t.Entries) == 0 {
		return nil, nil
	}
	of := map[string]domain.Project{} // by the project's id and by the machine's
	err := c.every(ctx, url.Values{"types": {"project.created"}}, func(ev event.Envelope) (bool, error) {
		if ev.Type != "project.created" {
			return true, nil
		}
		p, err := event.Decode(ev)
		if err != nil {
			return false, err
		}
		if p, is := p.(*event.ProjectCreated); is {
			of[string(p.Project.ID)], of[string(p.Project.Machine)] = p.Project, p.Project
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	var rows []*trashRow
	by := map[domain.ProjectID]*trashRow{}
	for _, x := range t.Entries {
		var p domain.Project
		for _, part := range strings.FieldsFunc(x.Name, func(r rune) bool { return r == '-' || r == '.' }) {
			if found, is := of[part]; is && p.ID == "" {
				p = found
			}
		}
		r := by[p.ID]
		if r == nil || p.ID == "" {
			r = &trashRow{name: p.Name, id: string(p.ID)}
			if p.ID == "" {
				r.name = x.Name
			}
			by[p.ID] = r
			rows = append(rows, r)
		}
		r.bytes += x.Bytes
		r.at = max(r.at, x.At)
	}
	return rows, nil
}
