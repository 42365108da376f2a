package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"

	"glasshouse/app/httpapi"
	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// questions shows what a session asks while a command waits for it, and takes
// answers from the terminal. An answer may come from any other door as well.
type questions struct {
	e    *env
	c    *Client
	stop context.CancelFunc
	done chan struct{}
	// first gets every line before a question does; true = it was for somebody else.
	first func(line string) bool

	mu     sync.Mutex
	closed map[domain.ApprovalID]chan struct{}

	shown sync.WaitGroup
	turn  sync.Mutex // one question has the terminal
	lines *typist
	taken bool // a question went away under the person's hands: no line is taken any more
}

// watch follows a session's questions from now on until stop is called.
func (e *env) watch(ctx context.Context, c *Client, session string) (*questions, error) {
	var info httpapi.Info
	if err := c.get(ctx, at{"info"}, nil, &info); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	q := e.questions(c)
	q.stop = cancel
	go func() {
		defer close(q.done)
		filter := url.Values{"session_id": {session}, "types": {"approval.requested,approval.answered,approval.closed"}}
		_ = c.follow(ctx, filter, info.Latest, func(ev event.Envelope) (bool, error) {
			p, err := event.Decode(ev)
			if err != nil {
				return true, nil //nolint:nilerr // an event that is not known here asks nothing
			}
			q.see(ctx, p)
			switch p := p.(type) {
			case *event.ApprovalAnswered:
				fmt.Fprintf(e.err, "%s: answered %q by %s\n", p.Approval, one(p.Choice), one(string(p.By)))
			case *event.ApprovalClosed:
				fmt.Fprintf(e.err, "%s: closed without an answer: %s\n", p.Approval, one(p.Why))
			}
			return true, nil
		})
	}()
	return q, nil
}

// questions returns a place for questions that is told of them by see.
func (e *env) questions(c *Client) *questions {
	return &questions{e: e, c: c, stop: func() {}, done: make(chan struct{}), closed: map[domain.ApprovalID]chan struct{}{}}
}

// see shows a question that still waits, or takes it from the terminal at its end.
func (q *questions) see(ctx context.Context, p event.Payload) {
	switch p := p.(type) {
	case *event.ApprovalRequested:
		var a approval.Approval
		if q.c.get(ctx, at{"approvals", string(p.Approval)}, nil, &a) == nil && a.Outcome.State == approval.Pending {
			q.shown.Go(func() { q.prompt(ctx, a) })
		} // one that cannot be looked at still waits elsewhere
	case *event.ApprovalAnswered:
		q.close(p.Approval)
	case *event.ApprovalClosed:
		q.close(p.Approval)
	}
}

// end stops following.
func (q *questions) end() { q.stop(); <-q.done; q.shown.Wait() }

func (q *questions) closing(id domain.ApprovalID) chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed[id] == nil {
		q.closed[id] = make(chan struct{})
	}
	return q.closed[id]
}

func (q *questions) close(id domain.ApprovalID) {
	ch := q.closing(id)
	select {
	case <-ch:
	default:
		close(ch)
	}
}

// wait returns when a question is answered or closed.
func (q *questions) wait(ctx context.Context, id domain.ApprovalID) error {
	select {
	case <-q.closing(id):
		return nil
	case <-q.done:
		return fmt.Errorf("the question %s cannot be followed any more", id)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// prompt shows a question and takes lines until one answers it. Questions come one
// after the other: a line answers what was shown last. When one is closed while its
// answer may be half written, that line must not fall to the next.
func (q *questions) prompt(ctx context.Context, a approval.Approval) {
	q.turn.Lock()
	defer q.turn.Unlock()
	select {
	case <-q.closing(a.ID):
		return
	default:
	}
	var text bytes.Buffer
	q.e.showQuestion(&text, a)
	how := fmt.Sprintf("  it waits: answer it in the window or with 'glasshouse approval answer %s CHOICE'\n", a.ID)
	if q.taken || !q.e.terminal() {
		text.WriteString(how)
		_, _ = q.e.err.Write(text.Bytes())
		return
	}
	_, _ = q.e.err.Write(text.Bytes())
	lines := q.typed()
	defer lines.none()
	for {
		next := lines.next() // awaited before it is asked for: what is typed at once is an answer too
		q.ask("answer: ", false)
		select {
		case <-q.closing(a.ID):
			q.ask("", false)
			q.taken = true
			return
		case <-ctx.Done():
			q.ask("", false)
			return
		case line, ok := <-next:
			q.ask("", ok)
			if !ok {
				fmt.Fprint(q.e.err, "\n"+how)
				q.taken = true
				return
			}
			err := q.c.post(ctx, at{"approvals", string(a.ID), "answer"}, nil, typedAnswer(a, line), nil)
			if err == nil || ctx.Err() != nil {
				return
			}
			fmt.Fprintln(q.e.err, safe(err.Error(), true))
		}
	}
}

// ask shows what a line is awaited for; "" that none is.
func (q *questions) ask(prompt string, typed bool) {
	if b, ok := q.e.err.(besides); ok {
		b.ask(prompt, typed)
	} else if prompt != "" {
		fmt.Fprint(q.e.err, prompt)
	}
}

// typed returns who takes the lines that a person types from now on. The input is read
// only once one is awaited: a command in the background would be stopped for it.
func (q *questions) typed() *typist {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lines == nil {
		q.lines = q.e.lines(q.first)
	}
	return q.lines
}

// typedAnswer makes an answer of a line: a choice, and after it what to say with it.
func typedAnswer(a approval.Approval, line string) map[string]string {
	line = strings.TrimSpace(line)
	if !a.Asked.FreeText || takesText(a.Asked) {
		return answerOf(a, line, "")
	}
	for _, ch := range a.Asked.Choices {
		for _, word := range []string{ch.ID, ch.Label} {
			if word == "" || len(line) <= len(word) || !strings.EqualFold(line[:len(word)], word) {
				continue
			}
			if text := strings.TrimLeft(line[len(word):], " \t,:"); text != line[len(word):] {
				return answerOf(a, ch.ID, text)
			}
		}
	}
	return answerOf(a, line, "")
}

// answerOf makes an answer of what a person wrote: a choice by its word or its
// label, or a text where one is asked for.
func answerOf(a approval.Approval, choice, text string) map[string]string {
	in := map[string]string{"digest": a.Asked.Digest, "choice": choice, "text": text}
	for _, ch := range a.Asked.Choices {
		if ch.ID == choice {
			return in
		}
	}
	for _, ch := range a.Asked.Choices {
		if strings.EqualFold(ch.Label, choice) {
			in["choice"] = ch.ID
			return in
		}
	}
	if takesText(a.Asked) && text == "" {
		in["choice"], in["text"] = "", choice
	}
	return in
}

// takesText reports whether a question is answered by any text, not by a choice alone.
func takesText(q event.ApprovalRequested) bool { return q.Kind == "question" && q.FreeText }

// asks is a question in a line. What an agent asks is told from what Glasshouse does:
// its words may be those of an approval.
func asks(q event.ApprovalRequested) string {
	if q.Kind == "question" {
		return "the agent asks: " + one(q.Title)
	}
	return one(q.Title)
}

// terminal reports whether a person may be at the input.
func (e *env) terminal() bool { return isTerminal(e.in) }

// typist hands a line that is typed to who awaits it. One that comes while nobody does
// answers nothing.
type typist struct {
	mu    sync.Mutex
	await chan string // nil while no line is awaited
	over  bool
}

// lines reads the input for the rest of the process: a read cannot be taken back.
func (e *env) lines(first func(string) bool) *typist {
	t := &typist{}
	go func() {
		for sc := bufio.NewScanner(e.in); sc.Scan(); {
			if first == nil || !first(sc.Text()) {
				t.give(sc.Text())
			}
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.over = true; t.await != nil {
			close(t.await)
		}
	}()
	return t
}

func (t *typist) give(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.await != nil {
		t.await <- line
		t.await = nil
	}
}

// next is where the next line comes; it is closed when there is none.
func (t *typist) next() <-chan string {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := make(chan string, 1)
	if t.over {
		close(c)
	} else {
		t.await = c
	}
	return c
}

// none: no line is awaited any more.
func (t *typist) none() { t.mu.Lock(); t.await = nil; t.mu.Unlock() }

func (e *env) showQuestion(w io.Writer, a approval.Approval) {
	fmt.Fprintf(w, "%s  %s\n", a.ID, asks(a.Asked))
	if a.Asked.Kind == "question" {
		fmt.Fprintln(w, "  the answer is told to the agent; it allows nothing")
	}
	for _, f := range a.Asked.Detail {
		by := ""
		if f.Origin == domain.OriginGuest {
			by = " (the machine says)"
		}
		// No line of a value can pass for one of the question.
		value := strings.ReplaceAll(safe(strings.TrimRight(f.Value, "\n"), true), "\n", "\n    | ")
		fmt.Fprintf(w, "  %s%s: %s\n", one(f.Name), by, value)
	}
	for _, ch := range a.Asked.Choices {
		fmt.Fprintf(w, "  [%s] %s", one(ch.ID), one(ch.Label))
		if ch.Covers != "" {
			fmt.Fprintf(w, " — %s", one(ch.Covers))
		}
		fmt.Fprintln(w)
	}
	if takesText(a.Asked) {
		fmt.Fprintln(w, "  or any text")
	} else if a.Asked.FreeText && len(a.Asked.Choices) > 0 {
		fmt.Fprintf(w, "  a text may follow the word, as in: %s because …\n", one(a.Asked.Choices[len(a.Asked.Choices)-1].ID))
	}
}
