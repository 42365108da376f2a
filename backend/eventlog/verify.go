package eventlog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"glasshouse/backend/event"
)

const maxProblems = 20

// Verify walks the whole chain. A broken chain is not an error but a Report with
// Problems; an error means that the log could not be read.
func (l *Log) Verify(ctx context.Context) (Report, error) {
	l.redactMu.RLock()
	defer l.redactMu.RUnlock()
	head, err := l.Head(ctx)
	if err != nil {
		return Report{}, err
	}
	v := &verifier{replaced: map[int64]string{}, seq: map[string]int64{}}
	err = l.Fold(ctx, Filter{Types: []event.Type{(*event.LogRedacted)(nil).EventType()}}, func(e event.Envelope) error {
		var r event.LogRedacted
		if json.Unmarshal(e.Data, &r) == nil {
			v.replaced[r.Event] = r.Replacement
		}
		return nil
	})
	if err != nil {
		return Report{}, err
	}
	// Pages, not one long read: a reader that stays would keep the write-ahead log from shrinking.
	for v.last < head.ID || v.rep.Events == 0 {
		n, err := v.page(ctx, l.r, head.ID)
		if err != nil {
			return Report{}, l.readErr(err)
		}
		if n == 0 {
			break
		}
	}
	v.rep.Head = Head{ID: v.last, Hash: hex.EncodeToString(v.hash[:])}
	if v.last != head.ID || v.rep.Head.Hash != head.Hash {
		v.problem(head.ID, fmt.Sprintf("the log ends at event %d, its head says %d (%s): events at the end are missing or were changed", v.last, head.ID, head.Hash))
	}
	var given sql.NullInt64
	if err := l.r.QueryRowContext(ctx, "SELECT max(seq) FROM sqlite_sequence WHERE name = 'event'").Scan(&given); err != nil {
		return Report{}, l.readErr(err)
	}
	if given.Int64 < head.ID {
		v.problem(head.ID, fmt.Sprintf("the id counter stands at %d, below the newest event: ids could be given twice", given.Int64))
	}
	return v.rep, nil
}

type verifier struct {
	rep      Report
	last     int64
	hash     sum
	seq      map[string]int64
	replaced map[int64]string // by log.redacted
}

func (v *verifier) problem(id int64, what string) {
	if len(v.rep.Problems) < maxProblems {
		v.rep.Problems = append(v.rep.Problems, Problem{ID: id, What: what})
	}
}

func (v *verifier) page(ctx context.Context, db *sql.DB, upTo int64) (int, error) {
	rows, err := db.QueryContext(ctx, `SELECT id, stream, seq, at, type, origin, actor, project, session, step, data, payload_hash, prev_hash, hash, redacted
		FROM event WHERE id > ? AND id <= ? ORDER BY id LIMIT 1000`, v.last, upTo)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var e event.Envelope
		var data string
		var payload, prev, hash []byte
		var redacted bool
		if err := rows.Scan(&e.ID, &e.Stream, &e.Seq, &e.At, &e.Type, &e.Origin, &e.Actor, &e.ProjectID, &e.SessionID, &e.StepID,
			&data, &payload, &prev, &hash, &redacted); err != nil {
			return 0, err
		}
		v.row(&e, data, payload, prev, hash, redacted)
		n++
	}
	return n, rows.Err()
}

func (v *verifier) row(e *event.Envelope, data string, payload, prev, hash []byte, redacted bool) {
	v.rep.Events++
	if e.ID != v.last+1 {
		v.problem(e.ID, fmt.Sprintf("events %d to %d are missing", v.last+1, e.ID-1))
	}
	if want := v.seq[string(e.Stream)] + 1; e.Seq != want {
		v.problem(e.ID, fmt.Sprintf("its number in %s is %d, expected %d", e.Stream, e.Seq, want))
	}
	if !bytes.Equal(prev, v.hash[:]) {
		v.problem(e.ID, "it does not follow the event before it: one was changed, removed or moved")
	}
	got := sha256.Sum256([]byte(data))
	if redacted {
		v.rep.Redacted++
		if v.replaced[e.ID] != hex.EncodeToString(got[:]) {
			v.problem(e.ID, "its payload is marked as redacted, but no recorded redaction put this text there")
		}
	} else if !bytes.Equal(got[:], payload) {
		v.problem(e.ID, "its payload was changed")
	}
	var p, pr sum
	copy(p[:], payload)
	copy(pr[:], prev)
	if want := chainHash(pr, p, e); !bytes.Equal(want[:], hash) {
		v.problem(e.ID, "its fields were changed")
	}
	v.last = e.ID
	v.seq[string(e.Stream)] = e.Seq
	copy(v.hash[:], hash)
}
