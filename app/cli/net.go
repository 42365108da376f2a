package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"glasshouse/backend/event"
)

func (e *env) netCmd() *cobra.Command {
	var session string
	cmd := &cobra.Command{
		Use: "net", Short: "What passed the gate and what was refused", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.showNet(cmd.Context(), session) },
	}
	cmd.Flags().StringVar(&session, "session", "", "of one session")
	return cmd
}

const netTypes = "egress.opened,egress.blocked,egress.closed"

// showNet prints a line a connection, in the order they came.
func (e *env) showNet(ctx context.Context, session string) error {
	if e.json {
		return e.showLog(ctx, session, netTypes, false)
	}
	c, err := e.client(ctx)
	if err != nil {
		return err
	}
	var rows []*connection
	open := map[string]*connection{}
	err = c.stored(ctx, url.Values{"session_id": {session}, "types": {netTypes}}, func(ev event.Envelope) {
		p, err := event.Decode(ev)
		if err != nil {
			return
		}
		r := &connection{at: ev.At, session: string(ev.SessionID)}
		switch p := p.(type) {
		case *event.EgressOpened:
			r.what = fmt.Sprintf("%s %s:%d", p.Method, p.Host, p.Port)
			r.text = fmt.Sprintf("to %s by %s", p.Addr, p.Rule)
			r.bytes = "open"
			open[p.Conn] = r
			rows = append(rows, r)
		case *event.EgressBlocked:
			r.refused = true
			r.what, r.text = fmt.Sprintf("%s %s:%d", p.Method, p.Host, p.Port), p.Reason
			rows = append(rows, r)
		case *event.EgressClosed:
			if o := open[p.Conn]; o != nil {
				o.bytes = fmt.Sprintf("%d out, %d in", p.BytesOut, p.BytesIn)
				delete(open, p.Conn)
			}
		}
	})
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		if session != "" {
			if err := c.get(ctx, at{"sessions", session}, nil, nil); err != nil {
				return err
			}
		}
		e.note("nothing came to the gate")
	}
	return e.print(nil, func(w io.Writer) {
		for _, r := range rows {
			mark := "passed"
			if r.refused {
				mark = "refused"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", when(r.at), r.session, mark, one(r.what), one(r.bytes), one(r.text))
		}
	})
}

// connection is what one line of net shows.
type connection struct {
	at                         int64
	session, what, bytes, text string
	refused                    bool
}
