package eventlog

import (
	"crypto/sha256"
	"encoding/binary"

	"glasshouse/backend/event"
)

type sum [sha256.Size]byte

// chainHash binds an event's place and fields, its payload's hash and everything
// before it. The payload itself is only in by its hash, so that it can be redacted.
func chainHash(prev, payload sum, e *event.Envelope) sum {
	h := sha256.New()
	h.Write([]byte("glasshouse event 1\x00"))
	h.Write(prev[:])
	h.Write(payload[:])
	var n [8]byte
	num := func(v int64) {
		binary.BigEndian.PutUint64(n[:], uint64(v))
		h.Write(n[:])
	}
	num(e.ID)
	num(e.Seq)
	num(e.At)
	for _, s := range [...]string{string(e.Stream), string(e.Type), string(e.Origin), string(e.Actor),
		string(e.ProjectID), string(e.SessionID), string(e.StepID)} {
		num(int64(len(s)))
		h.Write([]byte(s))
	}
	var out sum
	h.Sum(out[:0])
	return out
}
