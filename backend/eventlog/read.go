package eventlog

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"glasshouse/backend/event"
)

// Read returns the stored events that match, by id. A page that is full may have
// more behind it: read again with AfterID set to its last id.
func (l *Log) Read(ctx context.Context, f Filter) ([]event.Envelope, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = DefaultPage
	}
	limit = min(limit, MaxPage)
	var where []string
	var args []any
	add := func(cond string, v any) {
		where = append(where, cond)
		args = append(args, v)
	}
	add("id > ?", f.AfterID)
	if f.BeforeID > 0 {
		add("id < ?", f.BeforeID)
	}
	if f.Stream != "" {
		add("stream = ?", string(f.Stream))
	}
	if f.Project != "" {
		add("project = ?", string(f.Project))
	}
	if f.Session != "" {
		add("session = ?", string(f.Session))
	}
	if f.Step != "" {
		add("step = ?", string(f.Step))
	}
	if len(f.Types) > 0 {
		where = append(where, "type IN (?"+strings.Repeat(",?", len(f.Types)-1)+")")
		for _, t := range f.Types {
			args = append(args, string(t))
		}
	}
	order := "ASC"
	if f.Tail {
		order = "DESC"
	}
	args = append(args, limit)
	rows, err := l.r.QueryContext(ctx, fmt.Sprintf(`SELECT id, stream, seq, at, type, origin, actor, project, session, step, data, hash
		FROM event WHERE %s ORDER BY id %s LIMIT ?`, strings.Join(where, " AND "), order), args...)
	if err != nil {
		return nil, l.readErr(err)
	}
	defer rows.Close()
	var out []event.Envelope
	for rows.Next() {
		var e event.Envelope
		var data string
		var hash []byte
		if err := rows.Scan(&e.ID, &e.Stream, &e.Seq, &e.At, &e.Type, &e.Origin, &e.Actor, &e.ProjectID, &e.SessionID, &e.StepID, &data, &hash); err != nil {
			return nil, l.readErr(err)
		}
		e.Data = []byte(data)
		e.Hash = hex.EncodeToString(hash)
		out = append(out, e)
	}
	if err := rows.Err(); err != nil {
		return nil, l.readErr(err)
	}
	if f.Tail {
		slices.Reverse(out)
	}
	return out, nil
}

// Fold calls fn for every stored event that matches, by id, until it returns an error.
// f.Limit is ignored.
func (l *Log) Fold(ctx context.Context, f Filter, fn func(event.Envelope) error) error {
	f.Limit, f.Tail = DefaultPage, false
	for {
		page, err := l.Read(ctx, f)
		if err != nil {
			return err
		}
		for _, e := range page {
			if err := fn(e); err != nil {
				return err
			}
		}
		if len(page) < f.Limit {
			return nil
		}
		f.AfterID = page[len(page)-1].ID
	}
}
