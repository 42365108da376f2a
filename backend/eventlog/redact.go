package eventlog

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

type redaction struct {
	id   int64
	data json.RawMessage
}

func (r *redaction) apply(ctx context.Context, tx *sql.Tx) error {
	res, err := tx.ExecContext(ctx, "UPDATE event SET data = ?, redacted = 1 WHERE id = ?", string(r.data), r.id)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return errors.Join(err, fmt.Errorf("event %d is not there", r.id))
	}
	return nil
}

// Redact replaces the payload of a stored event by another of the same type, and
// records that it did (log.redacted, on the host stream) in the same transaction.
// The old payload's hash stays in the chain; its bytes leave the database and the
// write-ahead log. Copies made earlier (backups) and artefacts are not touched.
func (l *Log) Redact(ctx context.Context, id int64, replacement event.Payload, by domain.Actor, reason string) (event.Envelope, error) {
	l.redactMu.Lock()
	defer l.redactMu.Unlock()
	old, err := l.Read(ctx, Filter{AfterID: id - 1, BeforeID: id + 1})
	if err != nil {
		return event.Envelope{}, err
	}
	if len(old) != 1 {
		return event.Envelope{}, domain.E(domain.CodeNotFound, fmt.Sprintf("There is no event %d", id), "", nil)
	}
	if old[0].Type == (*event.LogRedacted)(nil).EventType() {
		return event.Envelope{}, invalid("Event %d records a redaction and cannot be redacted itself", id)
	}
	n := event.New{Stream: old[0].Stream, Origin: old[0].Origin, Payload: replacement}
	e, err := l.envelope(&n)
	if err != nil {
		return event.Envelope{}, err
	}
	if e.Type != old[0].Type {
		return event.Envelope{}, invalid("Event %d is of type %s and cannot be replaced by a %s", id, old[0].Type, e.Type)
	}
	digest := sha256.Sum256(e.Data)
	note := event.New{Stream: event.HostStream, Origin: domain.OriginHost, Actor: by,
		ProjectID: old[0].ProjectID, SessionID: old[0].SessionID, StepID: old[0].StepID,
		Payload: &event.LogRedacted{Event: id, Replacement: hex.EncodeToString(digest[:]), Reason: reason, By: by}}
	ne, err := l.envelope(&note)
	if err != nil {
		return event.Envelope{}, err
	}
	req := &request{ctx: ctx, events: []event.Envelope{ne}, redact: &redaction{id: id, data: e.Data}, reply: make(chan error, 1)}
	if err := l.submit(ctx, req); err != nil {
		return event.Envelope{}, err
	}
	// The old bytes may still lie in the write-ahead log.
	if err := l.checkpoint(ctx); err != nil {
		return req.events[0], domain.E(domain.CodeUnavailable,
			fmt.Sprintf("Event %d is redacted, but its old bytes may still be in the write-ahead log", id), "close other readers of the database; the next restart clears it", err)
	}
	return req.events[0], nil
}

// checkpoint moves the write-ahead log into the database and empties it.
func (l *Log) checkpoint(ctx context.Context) error {
	var busy, frames, moved int
	if err := l.w.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved); err != nil {
		return err
	}
	if busy != 0 {
		return errors.New("a reader holds the write-ahead log")
	}
	return nil
}
