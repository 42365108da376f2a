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
	// soFarEvery is how often what was told is said again, and soFarSize how much of it.
	soFarEvery = 2 * time.Second
	soFarSize  = 16 << 10
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
	soFar   map[model.Kind]string // the newest part of what was told
	repeat  *time.Timer
	over    bool
}

func newDeltas(publish func(event.Payload), turn domain.TurnID, answer string) *deltas {
	return &deltas{publish: publish, turn: turn, answer: answer, after: time.AfterFunc, attempt: 1, at: map[model.Kind]int64{}, soFar: map[model.Kind]string{}}
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
		if d.kind != model.KindCall {
			d.soFar[d.kind] = endOf(d.soFar[d.kind]+strings.ToValidUTF8(piece, "\uFFFD"), soFarSize)
		}
	}
	if d.repeat == nil {
		d.repeatLater()
	}
}

// repeatLater says what was told again after a while, as long as the answer is being
// written: who comes in the middle of it has missed the beginning. mu is held.
func (d *deltas) repeatLater() {
	attempt := d.attempt
	d.repeat = d.after(soFarEvery, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.over || d.attempt != attempt {
			return
		}
		text, thought := d.soFar[model.KindText], d.soFar[model.KindThought]
		if text+thought != "" {
			d.publish(&event.MessageSoFar{Turn: d.turn, Answer: d.answer, Attempt: d.attempt,
				Text: text, TextEnd: d.at[model.KindText], Thought: thought, ThoughtEnd: d.at[model.KindThought]})
		}
		d.repeatLater()
	})
}

// endOf is the end of a text, from the beginning of a line where there is one.
func endOf(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	if i := strings.IndexByte(s, '\n'); i >= 0 && i < len(s)/2 {
		return s[i+1:]
	}
	return strings.ToValidUTF8(s, "")
}

// again: what was told counts for nothing, another attempt begins.
func (d *deltas) again() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop()
	d.attempt++
	d.at, d.soFar = map[model.Kind]int64{}, map[model.Kind]string{}
}

func (d *deltas) drop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.quiet()
	d.text.Reset()
	d.kind, d.tool = "", ""
}

func (d *deltas) quiet() {
	if d.repeat != nil {
		d.repeat.Stop()
		d.repeat = nil
	}
}

// end tells what is left; nothing is told after it.
func (d *deltas) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flush()
	d.quiet()
	d.over = true
}

// cancel lets go of what was not told; nothing is told after it.
func (d *deltas) cancel() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop()
	d.over = true
}
