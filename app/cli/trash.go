package cli

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"glasshouse/app/httpapi"
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
			return e.print(t, func(w io.Writer) {
				for _, x := range t.Entries {
					fmt.Fprintf(w, "%s\t%s\t%s\n", one(x.Name), mib(x.Bytes), time.UnixMilli(x.At).Format(time.DateTime))
				}
				fmt.Fprintf(w, "%d entries, %s, in %s\n", len(t.Entries), mib(t.Bytes), one(t.Dir))
			})
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use: "empty", Short: "Remove it for good", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var t httpapi.Trash
			if err := c.call(cmd.Context(), http.MethodDelete, at{"trash"}, nil, nil, &t); err != nil {
				return err
			}
			return e.print(t, func(w io.Writer) { fmt.Fprintf(w, "removed %d entries, %s\n", len(t.Entries), mib(t.Bytes)) })
		},
	})
	return cmd
}
