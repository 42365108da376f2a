package approval

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
)

// Log is what the ledger needs of the event log.
type Log interface {
	// Append stores all events or none; an error means none.
	Append(ctx context.Context, events ...event.New) ([]event.Envelope, error)
	Fold(ctx context.Context, f eventlog.Filter, fn func(event.Envelope) error) error
}

// Ledger holds the questions and grants. Its methods may be called from any
// goroutine; only one Ledger may be over a log.
type Ledger struct {
	log Log
	now func() time.Time

	mu     sync.Mutex
	items  map[domain.ApprovalID]*item
	queue  []*item // pending, oldest first
	grants map[string]*Grant
	wake   chan struct{} // a nearer expiry may have come
}

// item is one question. end serialises what may end it; it is held while the
// deciding event is written, so that the first writer wins and a later one sees
// the outcome. Everything else is guarded by Ledger.mu.
type item struct {
	end  sync.Mutex
	a    Approval
	done chan struct{} // closed when Outcome is final
}

// New returns an empty ledger; call Load before using it. now may be nil.
func New(log Log, now func() time.Time) *Ledger {
	if now == nil {
		now = time.Now
	}
	return &Ledger{log: log, now: now, items: map[domain.ApprovalID]*item{}, grants: map[string]*Grant{}, wake: make(chan struct{}, 1)}
}

// Ask records a question. It is pending from the moment its event is stored; wait
// for its end with Wait.
func (l *Ledger) Ask(ctx context.Context, r Request) (Approval, error) {
	asked, err := l.prepare(&r)
	if err != nil {
		return Approval{}, err
	}
	it := &item{done: make(chan struct{}), a: Approval{
		ID: asked.Approval, Stream: r.Stream, Project: r.Project, Session: r.Session, Step: r.Step,
		Asked: *asked, Outcome: Outcome{State: Pending},
	}}
	// Known before its event is: an answer that comes at once waits for the write.
	it.end.Lock()
	defer it.end.Unlock()
	l.mu.Lock()
	l.items[it.a.ID] = it
	l.mu.Unlock()
	out, err := l.log.Append(ctx, event.New{Stream: r.Stream, Origin: domain.OriginHost, Actor: r.Actor,
		ProjectID: r.Project, SessionID: r.Session, StepID: r.Step, Payload: asked})
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		delete(l.items, it.a.ID)
		return Approval{}, err
	}
	it.a.EventID, it.a.CreatedAt = out[0].ID, out[0].At
	l.enqueue(it)
	l.poke()
	return it.a, nil
}

// enqueue keeps the order of the events, whoever comes to the lock first.
func (l *Ledger) enqueue(it *item) {
	i, _ := slices.BinarySearchFunc(l.queue, it.a.EventID, func(q *item, id int64) int { return int(q.a.EventID - id) })
	l.queue = slices.Insert(l.queue, i, it)
}

func (l *Ledger) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Answer ends a question with a person's answer. digest must be the one the
// question was shown with. The first answer wins; a later one is a conflict that
// says who answered what and when.
func (l *Ledger) Answer(ctx context.Context, id domain.ApprovalID, digest, choice, text string, by domain.Actor) (Outcome, error) {
	it, err := l.find(id)
	if err != nil {
		return Outcome{}, err
	}
	if !human(by) {
		return Outcome{}, domain.E(domain.CodeDenied, fmt.Sprintf("%q may not answer a question that is put to a person", by), "a person answers it in the window or with glasshouse approval", nil)
	}
	it.end.Lock()
	defer it.end.Unlock()
	a, known := l.get(it)
	if !known {
		return Outcome{}, notFound(id)
	}
	if a.Outcome.State != Pending {
		return a.Outcome, ended(&a)
	}
	if a.Asked.ExpiresAt > 0 && l.now().UnixMilli() >= a.Asked.ExpiresAt {
		out, err := l.closeLocked(ctx, it, Expired)
		if err != nil {
			return Outcome{}, err
		}
		a.Outcome = out
		return out, ended(&a)
	}
	if digest != a.Asked.Digest {
		return Outcome{}, domain.E(domain.CodeConflict, "The answer is for something else than what is asked (its digest differs)", "load the question again and answer what it shows now", nil)
	}
	i := slices.IndexFunc(a.Asked.Choices, func(c event.Choice) bool { return c.ID == choice })
	if i < 0 && !(choice == "" && text != "" && a.Asked.FreeText) {
		var ids []string
		for _, c := range a.Asked.Choices {
			ids = append(ids, c.ID)
		}
		return Outcome{}, domain.E(domain.CodeInvalid, fmt.Sprintf("%q is no answer to this question", choice), "choose one of: "+strings.Join(ids, ", "), nil)
	}
	if text != "" && !a.Asked.FreeText {
		return Outcome{}, domain.E(domain.CodeInvalid, "This question takes no text", "answer with a choice alone", nil)
	}
	if len(text) > maxText {
		return Outcome{}, domain.E(domain.CodeTooLarge, fmt.Sprintf("The answer has %d bytes, at most %d are taken", len(text), maxText), "shorten it", nil)
	}
	events := []event.New{l.event(&a, by, &event.ApprovalAnswered{Approval: id, Choice: choice, Text: text, By: by})}
	var g *Grant
	if i >= 0 && a.Asked.Choices[i].Grant != nil {
		// In the same transaction: an answer that saves a rule never comes without it.
		g = l.grantOf(&a, &a.Asked.Choices[i], by)
		events = append(events, g.added(by))
	}
	stored, err := l.log.Append(ctx, events...)
	if err != nil {
		return Outcome{}, err
	}
	out := Outcome{State: Answered, Choice: choice, Text: text, By: by, At: stored[0].At}
	l.mu.Lock()
	if g != nil {
		out.GrantID = g.ID
		g.CreatedAt = stored[1].At
		l.grants[g.ID] = g
	}
	l.mu.Unlock()
	l.finish(it, out)
	return out, nil
}

// human: only these may answer. Agents, policies and the host itself may not.
func human(by domain.Actor) bool {
	return by == "person" || by == "demo" || strings.HasPrefix(string(by), "person:")
}

func (l *Ledger) event(a *Approval, by domain.Actor, p event.Payload) event.New {
	return event.New{Stream: a.Stream, Origin: domain.OriginHost, Actor: by,
		ProjectID: a.Project, SessionID: a.Session, StepID: a.Step, Payload: p}
}

func (l *Ledger) finish(it *item, out Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	it.a.Outcome = out
	if i := slices.Index(l.queue, it); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
	close(it.done)
}

// Close ends a question without an answer; why is Cancelled or Superseded.
func (l *Ledger) Close(ctx context.Context, id domain.ApprovalID, why State) (Outcome, error) {
	if why != Cancelled && why != Superseded {
		return Outcome{}, domain.E(domain.CodeInvalid, fmt.Sprintf("A question cannot be closed as %q", why), "", nil)
	}
	it, err := l.find(id)
	if err != nil {
		return Outcome{}, err
	}
	it.end.Lock()
	defer it.end.Unlock()
	a, known := l.get(it)
	if !known {
		return Outcome{}, notFound(id)
	}
	if a.Outcome.State != Pending {
		return a.Outcome, ended(&a)
	}
	return l.closeLocked(ctx, it, why)
}

// closeLocked ends a pending question; it.end is held.
func (l *Ledger) closeLocked(ctx context.Context, it *item, why State) (Outcome, error) {
	a, _ := l.get(it)
	stored, err := l.log.Append(ctx, l.event(&a, "host", &event.ApprovalClosed{Approval: a.ID, Why: string(why)}))
	if err != nil {
		return Outcome{}, err
	}
	out := Outcome{State: why, At: stored[0].At}
	l.finish(it, out)
	return out, nil
}

// Scope selects questions; empty fields select all.
type Scope struct {
	Project domain.ProjectID
	Session domain.SessionID
	Step    domain.StepID
}

func (s Scope) holds(a *Approval) bool {
	return (s.Project == "" || s.Project == a.Project) && (s.Session == "" || s.Session == a.Session) && (s.Step == "" || s.Step == a.Step)
}

// Cancel closes every pending question in scope as cancelled and returns how many.
// A question that is answered at the same moment keeps its answer. An empty scope is refused.
func (l *Ledger) Cancel(ctx context.Context, s Scope) (int, error) {
	if s == (Scope{}) {
		return 0, domain.E(domain.CodeInvalid, "Cancelling needs a project, a session or a step", "", nil)
	}
	n := 0
	for _, a := range l.Pending(s) {
		_, err := l.Close(ctx, a.ID, Cancelled)
		if err == nil {
			n++
		} else if domain.CodeOf(err) != domain.CodeConflict {
			return n, err
		}
	}
	return n, nil
}

// Wait returns the outcome of a question, when it has one. After a restart a waiter
// comes back by id.
func (l *Ledger) Wait(ctx context.Context, id domain.ApprovalID) (Outcome, error) {
	it, err := l.find(id)
	if err != nil {
		return Outcome{}, err
	}
	select {
	case <-it.done:
	default:
		select {
		case <-it.done:
		case <-ctx.Done():
			return Outcome{State: Pending}, ctx.Err()
		}
	}
	a, _ := l.get(it)
	return a.Outcome, nil
}

// Get returns one question, pending or not.
func (l *Ledger) Get(id domain.ApprovalID) (Approval, error) {
	it, err := l.find(id)
	if err != nil {
		return Approval{}, err
	}
	a, known := l.get(it)
	if known && a.EventID == 0 {
		// It is being put. Who follows the log may have its event before Ask has this lock
		// back, and looks because of it.
		it.end.Lock()
		a, known = l.get(it)
		it.end.Unlock()
	}
	if !known || a.EventID == 0 {
		return Approval{}, notFound(id)
	}
	return a, nil
}

// Pending returns the open questions in scope, oldest first.
func (l *Ledger) Pending(s Scope) []Approval {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Approval
	for _, it := range l.queue {
		if s.holds(&it.a) {
			out = append(out, it.a)
		}
	}
	return out
}

func (l *Ledger) find(id domain.ApprovalID) (*item, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	it := l.items[id]
	if it == nil {
		return nil, notFound(id)
	}
	return it, nil
}

// get copies an item; known is false when its question could not be recorded.
func (l *Ledger) get(it *item) (a Approval, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return it.a, l.items[it.a.ID] == it
}

// Run closes questions as their time runs out, until ctx ends.
func (l *Ledger) Run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := time.Hour
		for _, a := range l.Pending(Scope{}) {
			if a.Asked.ExpiresAt == 0 {
				continue
			}
			left := time.UnixMilli(a.Asked.ExpiresAt).Sub(l.now())
			if left > 0 {
				next = min(next, left)
				continue
			}
			if err := l.expire(ctx, a.ID); err != nil {
				next = min(next, time.Second) // the log cannot be written now: try again
			}
		}
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-l.wake:
		case <-ctx.Done():
			return
		}
	}
}

func (l *Ledger) expire(ctx context.Context, id domain.ApprovalID) error {
	it, err := l.find(id)
	if err != nil {
		return nil
	}
	it.end.Lock()
	defer it.end.Unlock()
	if a, known := l.get(it); !known || a.Outcome.State != Pending {
		return nil
	}
	_, err = l.closeLocked(ctx, it, Expired)
	return err
}

func notFound(id domain.ApprovalID) error {
	return domain.E(domain.CodeNotFound, fmt.Sprintf("There is no question %q", id), "list the open ones with glasshouse approval list", nil)
}

// ended is what the loser of a race is told.
func ended(a *Approval) error {
	at := time.UnixMilli(a.Outcome.At).UTC().Format(time.RFC3339)
	if a.Outcome.State == Answered {
		answer := a.Outcome.Choice
		if answer == "" {
			answer = "a text"
		}
		return domain.E(domain.CodeConflict, fmt.Sprintf("The question was answered already: %q by %s at %s", answer, a.Outcome.By, at), "that answer stands; a rule it saved can be removed", nil)
	}
	return domain.E(domain.CodeConflict, fmt.Sprintf("The question is closed: %s at %s, without an answer", a.Outcome.State, at), "run the call again to be asked again", nil)
}
