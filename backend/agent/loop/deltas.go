package loop

import (
	"strings"
	"sync"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/model"
)

const (
	deltaWait = 100 * time.Millisecond
	deltaSize = 4 << 10
)

// deltas joins the pieces of an answer into fewer, larger ones and tells them. Pieces
// come from one goroutine, and the timer from another.
type deltas struct {
	publish func(event.Payload)
	turn    domain.TurnID
	answer  string
	after   func(time.Duration, func()) *time.Timer

	mu      sync.Mutex
	attempt int
	at      map[model.Kind]int64
	kind    model.Kind
	tool    string
	text    strings.Builder
	timer   *time.Timer
	over    bool
}

func newDeltas(publish func(event.Payload), turn domain.TurnID, answer string) *deltas {
	return &deltas{publish: publish, turn: turn, answer: answer, after: time.AfterFunc, attempt: 1, at: map[model.Kind]int64{}}
}

func (d *deltas) add(p model.Delta) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return
	}
	if p.Kind != d.kind || p.Tool != "" {
		d.flush()
		d.kind, d.tool = p.Kind, p.Tool
	}
	d.text.WriteString(p.Text)
	switch {
	case d.text.Len() >= deltaSize:
		d.flush()
	case d.timer == nil:
		attempt := d.attempt
		d.timer = d.after(deltaWait, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if !d.over && d.attempt == attempt {
				d.flush()
			}
		})
	}
}

// flush tells what has come; mu is held.
func (d *deltas) flush() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.text.Len() == 0 && d.tool == "" {
		return
	}
	s := d.text.String()
	d.text.Reset()
	for first := true; first || s != ""; first = false {
		piece := head(s, deltaSize)
		if piece == "" {
			piece = s
		}
		s = s[len(piece):]
		d.publish(&event.MessageDelta{Turn: d.turn, Answer: d.answer, Attempt: d.attempt, Kind: string(d.kind), Tool: line(d.tool, 80), Offset: d.at[d.kind],
			Text: strings.ToValidUTF8(piece, "\uFFFD")})
		d.at[d.kind] += int64(len(piece))
		d.tool = ""
	}
}

// again: what was told counts for nothing, another attempt begins.
func (d *deltas) again() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop()
	d.attempt++
	d.at = map[model.Kind]int64{}
}

func (d *deltas) drop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.text.Reset()
	d.kind, d.tool = "", ""
}

// end tells what is left; nothing is told after it.
func (d *deltas) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flush()
	d.over = true
}

// cancel lets go of what was not told; nothing is told after it.
func (d *deltas) cancel() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop()
	d.over = true
}
