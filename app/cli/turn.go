package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"
	"syscall"
	"time"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// Exit codes of a command that follows a turn, beside 0 and those of every command.
const (
	codeFailed      = 1
	codeStopped     = 3 // by a limit, or by an answer to a question about one
	codeCancelled   = 4
	codeInterrupted = 5 // its core or machine ended, and it could not go on
)

// turnStart begins a turn.
type turnStart struct {
	Agent  string `json:"agent"`
	Input  string `json:"input,omitempty"`
	Prompt string `json:"prompt,omitempty"`
	GoOn   bool   `json:"go_on,omitempty"`
}

// view is how a turn is shown.
type view struct {
	verbose bool             // thoughts, and what each answer took
	deltas  bool             // with --json: the pieces of answers too
	ask     bool             // its questions are shown, and answered at a terminal
	stops   bool             // Ctrl-C at a terminal may stop it
	set     []event.Envelope // what was set before it began, to be shown first
}

// turn starts a turn, shows its timeline and ends with its result.
func (e *env) turn(ctx context.Context, c *Client, session string, start turnStart, v view) error {
	var info httpapi.Info
	if err := c.get(ctx, at{"info"}, nil, &info); err != nil {
		return err
	}
	var t struct {
		Turn domain.TurnID `json:"turn_id"`
	}
	if err := c.post(ctx, at{"sessions", session, "turns"}, nil, start, &t); err != nil {
		if ctx.Err() != nil {
			return (&follower{session: session}).left("")
		}
		return err
	}
	return e.followTurn(ctx, c, session, t.Turn, info.Latest, v)
}

// follower shows one turn as it goes on.
type follower struct {
	e       *env
	c       *Client
	session string
	turn    domain.TurnID
	after   int64 // the last event seen
	view    view
	tl      *timeline
	q       *questions // nil when none are shown
	waits   *waiting
	result  string

	leave context.CancelCauseFunc
	mu    sync.Mutex
	press int // of Ctrl-C since the person last wished to watch on
}

var errLeft = errors.New("left")

// followTurn shows a turn from after an event on until it has ended, and ends with its
// result. A core that died meanwhile is started again: the turn's end is what counts.
func (e *env) followTurn(ctx context.Context, c *Client, session string, turn domain.TurnID, after int64, v view) error {
	f := &follower{e: e, c: c, session: session, turn: turn, after: after, view: v, tl: newTimeline(e.out), waits: newWaiting()}
	f.tl.verbose = v.verbose
	f.tl.whole = func(b event.Blob) (parts []event.ModelPart, err error) {
		return parts, c.get(ctx, at{"blobs", b.Sha256}, nil, &parts)
	}
	f.tl.how = c.actor != "demo" && !v.ask // which answers by itself
	beside, own := f.tl.s.beside(e.err), *e
	own.err = beside
	f.e = &own
	ctx, f.leave = context.WithCancelCause(ctx)
	defer f.leave(nil)
	if v.ask {
		f.tl.silent = beside.same
		f.q = f.e.questions(c)
		f.q.first = f.line
		defer func() {
			f.leave(nil)
			close(f.q.done)
			f.q.shown.Wait()
		}()
	}
	if v.stops && e.terminal() && isTerminal(e.err) {
		defer e.intr.catch(func() bool { return f.pressed(ctx) })()
	}
	if f.tl.s.tty && !e.json {
		sctx, stop := context.WithCancel(ctx)
		var shows sync.WaitGroup
		shows.Go(func() { f.waits.show(sctx, f.tl.s) })
		defer func() { stop(); shows.Wait(); f.tl.s.status("") }()
	}
	for _, ev := range v.set {
		if !e.json {
			f.tl.show(ev)
		}
	}
	err := f.follow(ctx)
	f.tl.closeText()
	switch {
	case err != nil && ctx.Err() != nil:
		return f.left("")
	case err != nil:
		return err
	}
	switch f.result {
	case "ok", "unchecked":
		return nil
	case "stopped":
		return exitCode(codeStopped)
	case "cancelled":
		return exitCode(codeCancelled)
	case "interrupted":
		return exitCode(codeInterrupted)
	}
	return exitCode(codeFailed)
}

func (f *follower) left(why string) error {
	f.mu.Lock()
	stopping := f.press > 1
	f.mu.Unlock()
	if stopping {
		return &interrupted{why + "the turn is being stopped: 'glasshouse session watch " + f.session + "' shows its end"}
	}
	return &interrupted{why + "the agent goes on in session " + f.session + ": 'glasshouse session watch " + f.session + "' shows it again, 'glasshouse session stop " + f.session + "' stops it"}
}

// follow reads the session's events until the turn's end, over every cut.
func (f *follower) follow(ctx context.Context) error {
	q := url.Values{"session_id": {f.session}}
	if !f.e.json || f.view.deltas {
		q.Set("transient", "true")
	}
	for died, cut, at := 0, 0, int64(-1); ; {
		err := f.c.follow(ctx, q, f.after, func(ev event.Envelope) (bool, error) { return f.see(ctx, ev) })
		var re *remoteError
		if err == nil || ctx.Err() != nil || errors.As(err, &re) {
			return err
		}
		if f.after > at {
			died, cut, at = 0, 0, f.after
		}
		if died > 3 || cut > 100 {
			return fmt.Errorf("the core ended %d times and did not answer %d times without the session going on: %w", died, cut, err)
		}
		began, err := f.again(ctx)
		switch {
		case err != nil:
			return err
		case began:
			died++
		default:
			// It is there, or is only just going: a process that was killed can take
			// calls for a while after it cut this one.
			cut++
			select {
			case <-ctx.Done():
			case <-time.After(min(time.Duration(cut)*20*time.Millisecond, time.Second)):
			}
		}
	}
}

// again starts the core when it died. One that was asked to end took its socket away
// and stays ended. It reports whether it was started.
func (f *follower) again(ctx context.Context) (began bool, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", f.c.paths.Socket())
	// A core that begins takes the place of a dead one: between the two there is none.
	for tries := 0; errors.Is(err, syscall.ENOENT) && tries < 10 && ctx.Err() == nil; tries++ {
		time.Sleep(30 * time.Millisecond)
		conn, err = (&net.Dialer{}).DialContext(ctx, "unix", f.c.paths.Socket())
	}
	switch {
	case err == nil:
		conn.Close()
		return false, nil
	case errors.Is(err, syscall.ENOENT):
		return false, f.left("the core was ended; when it is started again ")
	}
	f.e.note("the core died; it is started again")
	return true, startCore(ctx, f.c.paths)
}

func (f *follower) see(ctx context.Context, ev event.Envelope) (more bool, err error) {
	if ev.ID > 0 {
		f.after = ev.ID
	}
	p, derr := event.Decode(ev)
	switch {
	case f.e.json:
		if f.view.deltas && event.Transient(ev.Type) && ev.Type != "message.delta" {
			return true, nil
		}
		if err := json.NewEncoder(plain{f.e.out}).Encode(ev); err != nil {
			return false, err
		}
	case !event.Transient(ev.Type) || ev.Type == "message.delta":
		f.tl.show(ev)
	}
	if derr != nil {
		return true, nil //nolint:nilerr // an event that is not known here is no end
	}
	f.waits.see(ev, p, time.Now())
	if f.q != nil {
		f.q.see(ctx, p)
	}
	if end, is := p.(*event.TurnEnded); is && end.Turn == f.turn {
		f.result = end.Result
		return false, nil
	}
	return true, nil
}

// pressed is Ctrl-C at a terminal: the first says what can be done, the second stops
// the turn, a third leaves it to its end.
func (f *follower) pressed(ctx context.Context) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.press++
	switch f.press {
	case 1:
		fmt.Fprintln(f.e.err, "the agent still works. Ctrl-C again: stop the turn. d and Enter: leave it working. Enter: watch on.")
		if f.q != nil {
			f.q.typed()
		}
		return true
	case 2:
		fmt.Fprintln(f.e.err, "stopping the turn…")
		go func() {
			if err := f.c.post(ctx, at{"sessions", f.session, "cancel"}, nil, nil, nil); err != nil && ctx.Err() == nil {
				fmt.Fprintln(f.e.err, "it was not stopped: "+safe(err.Error(), true))
				f.mu.Lock()
				f.press = 0
				f.mu.Unlock()
			}
		}()
		return true
	}
	return false
}

// line takes a line that answers what the first Ctrl-C asked.
func (f *follower) line(line string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.press != 1 {
		return false
	}
	f.press = 0
	if line == "d" {
		f.leave(errLeft)
	} else {
		fmt.Fprintln(f.e.err, "watching on.")
	}
	return true
}

// exists reports whether a path names a file.
func exists(path string) bool {
	st, err := os.Stat(path)
	return err == nil && !st.IsDir()
}
