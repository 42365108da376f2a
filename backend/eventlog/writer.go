package eventlog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// maxBatch is how many requests share one transaction at most.
const maxBatch = 256

// request is one Append (or Redact) that waits for the writer goroutine.
type request struct {
	ctx    context.Context
	events []event.Envelope // without ID, Seq, At, Hash
	redact *redaction
	reply  chan error // buffered
}

// writerState is what the writer goroutine knows of the end of the log.
type writerState struct {
	id    int64
	hash  sum
	seq   map[event.Stream]int64 // of streams that were written to
	stale bool                   // a transaction failed: read it again before the next
}

func (s *writerState) load(ctx context.Context, db *sql.DB) error {
	var h []byte
	if err := db.QueryRowContext(ctx, "SELECT id, hash FROM head").Scan(&s.id, &h); err != nil {
		return err
	}
	var given sql.NullInt64
	if err := db.QueryRowContext(ctx, "SELECT max(seq) FROM sqlite_sequence WHERE name = 'event'").Scan(&given); err != nil {
		return err
	}
	var last sql.NullInt64
	if err := db.QueryRowContext(ctx, "SELECT max(id) FROM event").Scan(&last); err != nil {
		return err
	}
	if len(h) != len(s.hash) {
		return errors.New("the head's hash has a wrong length")
	}
	// Ids are never given twice, not even when rows at the end were removed from
	// outside (Verify reports that).
	s.id = max(s.id, given.Int64, last.Int64)
	copy(s.hash[:], h)
	s.seq = map[event.Stream]int64{}
	s.stale = false
	return nil
}

// Append stores events in one transaction, all or none, and returns them with
// ID, Seq, At and Hash. When it returns without error they are on disk. A ctx that
// ends before the write begins cancels it; afterwards Append waits for the outcome,
// so that an error always means that nothing was stored.
func (l *Log) Append(ctx context.Context, events ...event.New) ([]event.Envelope, error) {
	if len(events) == 0 {
		return nil, nil
	}
	req := &request{ctx: ctx, events: make([]event.Envelope, len(events)), reply: make(chan error, 1)}
	for i := range events {
		e, err := l.envelope(&events[i])
		if err != nil {
			return nil, err
		}
		if event.Transient(e.Type) {
			return nil, invalid("An event of type %s is transient and cannot be stored", e.Type)
		}
		req.events[i] = e
	}
	if err := l.submit(ctx, req); err != nil {
		return nil, err
	}
	return req.events, nil
}

func (l *Log) submit(ctx context.Context, req *request) error {
	select {
	case <-l.stop:
		return ErrClosed
	default:
	}
	select {
	case l.reqs <- req:
	case <-l.stop:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-req.reply:
		return err
	case <-l.done:
		select { // the writer may have answered just before it ended
		case err := <-req.reply:
			return err
		default:
			return ErrClosed
		}
	}
}

// envelope checks a new event and encodes its payload, without what must not be kept.
func (l *Log) envelope(n *event.New) (event.Envelope, error) {
	if n.Payload == nil {
		return event.Envelope{}, invalid("An event without a payload cannot be recorded")
	}
	typ := n.Payload.EventType()
	if _, ok := event.Registry[typ]; !ok {
		return event.Envelope{}, invalid("The event type %q is unknown", typ)
	}
	kind, id, _ := strings.Cut(string(n.Stream), ":")
	if n.Stream != event.HostStream && !((kind == "project" || kind == "session") && id != "") {
		return event.Envelope{}, invalid("The stream %q of a %s event is none of host, project:ID, session:ID", n.Stream, typ)
	}
	switch n.Origin {
	case domain.OriginHost, domain.OriginGuest, domain.OriginAgent:
	default:
		return event.Envelope{}, invalid("The origin %q of a %s event is none of host, guest, agent", n.Origin, typ)
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(n.Payload); err != nil {
		return event.Envelope{}, domain.E(domain.CodeInvalid, fmt.Sprintf("The payload of a %s event is not valid JSON", typ), "", err)
	}
	data := bytes.TrimSuffix(buf.Bytes(), []byte{'\n'})
	if l.opt.Scrub != nil {
		data = l.opt.Scrub(data)
	}
	if len(data) > MaxPayload {
		return event.Envelope{}, domain.E(domain.CodeTooLarge,
			fmt.Sprintf("The payload of a %s event has %d bytes, at most %d are stored inline", typ, len(data), MaxPayload),
			"store the large part as an artefact and refer to it by its blob", nil)
	}
	return event.Envelope{Stream: n.Stream, Type: typ, Origin: n.Origin, Actor: n.Actor,
		ProjectID: n.ProjectID, SessionID: n.SessionID, StepID: n.StepID, Data: data}, nil
}

// write is the writer goroutine: it takes what waits, up to maxBatch requests, into one transaction.
func (l *Log) write() {
	defer close(l.done)
	for {
		var batch []*request
		select {
		case req := <-l.reqs:
			batch = append(batch, req)
		case <-l.room.look:
			l.room.keep()
			continue
		case <-l.stop:
			for { // what was accepted is written
				select {
				case req := <-l.reqs:
					batch = append(batch, req)
					continue
				default:
				}
				break
			}
			l.commit(batch)
			return
		}
	more:
		for len(batch) < maxBatch {
			select {
			case req := <-l.reqs:
				batch = append(batch, req)
			default:
				break more
			}
		}
		l.commit(batch)
		l.room.lookSoon()
	}
}

func (l *Log) commit(batch []*request) {
	live := batch[:0]
	for _, req := range batch {
		if err := req.ctx.Err(); err != nil {
			req.reply <- err
			continue
		}
		live = append(live, req)
	}
	if len(live) == 0 {
		return
	}
	err := l.withRoom(func() error { return l.transact(live) })
	if err != nil && len(live) > 1 {
		// One request may have been the cause (or the last bytes of the disk): each gets its own try.
		for _, req := range live {
			err := l.transact([]*request{req})
			l.publishCommitted([]*request{req}, err)
			req.reply <- err
		}
		return
	}
	l.publishCommitted(live, err)
	for _, req := range live {
		req.reply <- err
	}
}

// publishCommitted makes stored events visible to live readers, before Append returns.
func (l *Log) publishCommitted(reqs []*request, err error) {
	if err != nil {
		return
	}
	for _, req := range reqs {
		if req.redact != nil {
			l.ring.replace(req.redact.id, req.redact.data)
		}
		l.ring.add(req.events)
	}
	l.committed.Store(l.writer.id)
	l.subMu.RLock()
	for s := range l.subs {
		s.poke()
	}
	l.subMu.RUnlock()
}

const insertSQL = `INSERT INTO event(id, stream, seq, at, type, origin, actor, project, session, step, data, payload_hash, prev_hash, hash)
	VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?)`

const headSQL = "UPDATE head SET id = ?, hash = ?"

func (l *Log) transact(reqs []*request) (err error) {
	ctx := context.Background() // the outcome must be known: not cut short
	s := &l.writer
	if s.stale {
		if err := s.load(ctx, l.w); err != nil {
			return explain("The event could not be recorded", err)
		}
	}
	defer func() {
		if err != nil {
			s.stale = true
			err = explain("The event could not be recorded", err)
		}
	}()
	tx, err := l.w.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing after a commit
	ins := tx.StmtContext(ctx, l.insert)
	defer ins.Close()
	now := l.opt.Now().UnixMilli()
	for _, req := range reqs {
		if req.redact != nil {
			if err := req.redact.apply(ctx, tx); err != nil {
				return err
			}
		}
		for i := range req.events {
			e := &req.events[i]
			seq, ok := s.seq[e.Stream]
			if !ok {
				var have sql.NullInt64
				if err := tx.QueryRowContext(ctx, "SELECT max(seq) FROM event WHERE stream = ?", string(e.Stream)).Scan(&have); err != nil {
					return err
				}
				seq = have.Int64
			}
			s.id++
			seq++
			s.seq[e.Stream] = seq
			e.ID, e.Seq, e.At = s.id, seq, now
			payload := sum(sha256.Sum256(e.Data))
			prev := s.hash
			s.hash = chainHash(prev, payload, e)
			e.Hash = hex.EncodeToString(s.hash[:])
			if _, err := ins.ExecContext(ctx, e.ID, string(e.Stream), e.Seq, e.At, string(e.Type), string(e.Origin), string(e.Actor),
				string(e.ProjectID), string(e.SessionID), string(e.StepID), string(e.Data), payload[:], prev[:], s.hash[:]); err != nil {
				return err
			}
		}
	}
	head := tx.StmtContext(ctx, l.head)
	defer head.Close()
	if _, err := head.ExecContext(ctx, s.id, s.hash[:]); err != nil {
		return err
	}
	return tx.Commit()
}
