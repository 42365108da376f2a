package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"glasshouse/backend/event"
)

// showLog prints stored events from the beginning, and goes on when asked to.
func (e *env) showLog(ctx context.Context, session, types string, follow bool) error {
	c, err := e.client(ctx)
	if err != nil {
		return err
	}
	q := url.Values{}
	if session != "" {
		q.Set("session_id", session)
	}
	if types != "" {
		q.Set("types", types)
	}
	shown := false
	print := func(ev event.Envelope) {
		shown = true
		if e.json {
			_ = json.NewEncoder(plain{e.out}).Encode(ev)
			return
		}
		fmt.Fprintf(e.out, "%6d  %s  %-20s %-6s %-14s ", ev.ID, when(ev.At), ev.Type, ev.Origin, one(string(ev.Actor)))
		fmt.Fprintln(e.out, one(clip(string(ev.Data), 200)))
	}
	if follow {
		err := c.follow(ctx, q, 0, func(ev event.Envelope) (bool, error) { print(ev); return true, nil })
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the person ending it is how it ends
		}
		return err
	}
	if err := c.stored(ctx, q, print); err != nil {
		return err
	}
	if !shown && session != "" { // it has none, or there is none
		return c.get(ctx, "/v1/sessions/"+url.PathEscape(session), nil, nil)
	}
	return nil
}

// stored hands over the events recorded until now.
func (c *Client) stored(ctx context.Context, q url.Values, f func(event.Envelope)) error {
	var info struct {
		Latest int64 `json:"latest_event_id"`
	}
	if err := c.get(ctx, "/v1/info", nil, &info); err != nil {
		return err
	}
	types := q.Get("types")
	for after := int64(0); after < info.Latest; {
		q.Set("after", fmt.Sprint(after))
		q.Set("limit", "1000")
		var page []event.Envelope
		if err := c.get(ctx, "/v1/log", q, &page); err != nil {
			return err
		}
		if len(page) == 0 {
			return nil
		}
		for _, ev := range page {
			if types == "" || contains(types, string(ev.Type)) {
				f(ev)
			}
			after = ev.ID
		}
	}
	return nil
}

func contains(list, item string) bool {
	for _, s := range strings.Split(list, ",") {
		if s == item {
			return true
		}
	}
	return false
}
