package desktop

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Notice is one message to the desktop outside the window. Both texts are plain.
type Notice struct {
	Title, Body string
	// Show is the question or session that a click opens; empty: the window alone.
	Show string
	// Urgent: something waits for the person.
	Urgent bool
}

// board is a place where notices appear, one at a time: a later one takes the place
// of the one before. clicked is called with what its notice is to show.
type board interface {
	Post(Notice) error
	Clear()
}

// Limits of what is said outside the window.
const (
	noticeRest  = 5 * time.Second        // between two of them
	noticeWait  = 400 * time.Millisecond // for others to come together with the first
	noticeTitle = 80
	noticeBody  = 160
)

// Notices gathers what happened while the person looked elsewhere and says it in as
// few notices as do. Its words are its own: what an agent or a machine wrote comes
// as a short quotation, without control characters.
type Notices struct {
	board  board
	away   func() bool // the window is not looked at
	mu     sync.Mutex
	quiet  bool
	waits  []question // not told yet
	ends   []Notice
	told   map[string]bool // questions in the notice that is shown
	last   time.Time
	timer  *time.Timer
	now    func() time.Time
	closed bool
}

type question struct{ id, project, text string }

func newNotices(b board, away func() bool) *Notices {
	return &Notices{board: b, away: away, told: map[string]bool{}, now: time.Now}
}

// Quiet turns notices off or on.
func (n *Notices) Quiet(q bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.quiet = q
	if q {
		n.forget()
	}
}

// Question tells that a question began to wait.
func (n *Notices) Question(id, project, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.skip() {
		return
	}
	n.waits = append(n.waits, question{id, plain(project, 40), plain(text, noticeBody)})
	n.later()
}

// Answered takes a question back that was answered or ended.
func (n *Notices) Answered(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waits = slices.DeleteFunc(n.waits, func(q question) bool { return q.id == id })
	if n.told[id] {
		if delete(n.told, id); len(n.told) == 0 {
			n.board.Clear()
		}
	}
}

// Ended tells that an agent's turn ended.
func (n *Notices) Ended(session, project, result string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.skip() {
		return
	}
	title := "Work ended"
	switch result {
	case "ok":
		title = "Work is done, checks passed"
	case "failed":
		title = "Work failed"
	case "cancelled":
		title = "Work was cancelled"
	case "unchecked":
		title = "Work ended, unchecked"
	case "interrupted":
		title = "Work was interrupted"
	}
	n.ends = append(n.ends, Notice{Title: title, Body: "In " + plain(project, 40) + ".", Show: session})
	n.later()
}

// Looked: the person came to the window; what it shows need not be told.
func (n *Notices) Looked() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forget()
}

// Close ends it.
func (n *Notices) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	n.forget()
}

func (n *Notices) skip() bool { return n.closed || n.quiet || !n.away() }

func (n *Notices) forget() {
	n.waits, n.ends = nil, nil
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
	if len(n.told) > 0 {
		clear(n.told)
		n.board.Clear()
	}
}

func (n *Notices) later() {
	if n.timer != nil {
		return
	}
	n.timer = time.AfterFunc(max(noticeWait, n.last.Add(noticeRest).Sub(n.now())), n.post)
}

func (n *Notices) post() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.timer = nil
	if n.closed || n.quiet || len(n.waits)+len(n.ends) == 0 {
		return
	}
	if !n.away() {
		n.forget()
		return
	}
	said := gather(n.waits, n.ends)
	clear(n.told)
	for _, q := range n.waits {
		n.told[q.id] = true
	}
	n.waits, n.ends, n.last = nil, nil, n.now()
	// A desktop without notices is no fault: the window's title counts as well.
	_ = n.board.Post(said)
}

// gather makes one notice of what happened. Questions come first: they wait.
func gather(waits []question, ends []Notice) Notice {
	switch {
	case len(waits) == 1:
		return Notice{Title: plain("A question waits in "+waits[0].project, noticeTitle), Body: "“" + waits[0].text + "”", Show: waits[0].id, Urgent: true}
	case len(waits) > 1:
		var in []string
		for _, q := range waits {
			if !slices.Contains(in, q.project) {
				in = append(in, q.project)
			}
		}
		return Notice{Title: fmt.Sprintf("%d questions wait", len(waits)), Body: plain("In "+strings.Join(in, ", "), noticeBody-1) + ".", Show: waits[0].id, Urgent: true}
	case len(ends) == 1:
		return ends[0]
	}
	return Notice{Title: fmt.Sprintf("%d pieces of work ended", len(ends)), Show: ends[len(ends)-1].Show}
}

// plain makes one short line of a text that somebody else wrote: nothing in it
// commands, hides or reorders.
func plain(s string, most int) string {
	var b strings.Builder
	space, count := false, 0
	for _, r := range s {
		if unicode.IsSpace(r) || unicode.IsControl(r) || r == 0xFFFD ||
			unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp, unicode.Variation_Selector) || r == 0x115F || r == 0x1160 || r == 0x3164 || r == 0xFFA0 || r == 0x034F {
			space = count > 0
			continue
		}
		if space {
			count++
		}
		if count++; count >= most {
			b.WriteRune('…')
			break
		}
		if space {
			b.WriteByte(' ')
		}
		space = false
		b.WriteRune(r)
	}
	return b.String()
}
