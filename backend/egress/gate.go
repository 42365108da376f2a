// Package egress is the only way out of a machine. guestd relays every
// connection made to the guest's proxy port as raw bytes; the Gate reads the
// proxy request, asks the rules (and, where they are silent, a person), resolves
// the name itself, refuses addresses that are not public, dials, pipes and
// records. The guest never chooses an address and never learns a private one.
package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// Scope says on whose behalf a connection is made. Session and step are the
// guest's claim, checked to exist by the caller; they place the question on the
// right card and decide nothing.
type Scope struct {
	Project domain.ProjectID
	Session domain.SessionID
	Step    domain.StepID
	Claim   string // who connected, in words
}

// Verdict is a person's answer about one target.
type Verdict struct {
	Allow  bool
	Rule   string // the exact rule, or "once", for the record
	Reason string // of a refusal
	Asked  domain.ApprovalID
}

// Config of a Gate; every edge is injected.
type Config struct {
	// Match finds the rule about a target, a refusal before a permission. Every
	// process of a machine is one identity: a session's rule is matched by the
	// session that the guest claims.
	Match func(s Scope, t Target) (Rule, bool)
	// Ask puts a question and waits for its answer until ctx is done.
	Ask func(ctx context.Context, s Scope, t Target, method string) (Verdict, error)
	// Record appends an event; its failure closes the door.
	Record func(ctx context.Context, n event.New) error
	// Resolve turns a name into addresses. nil = the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Hold is how long a connection waits for an answer before it is refused
	// while the question stays open. 0 = 5 minutes.
	Hold time.Duration
	// HoldNow, when set, is asked for Hold each time.
	HoldNow func() time.Duration
	// DialTimeout per address. 0 = 15 seconds.
	DialTimeout time.Duration
	// CheckPublic decides whether an address may be dialled. nil = CheckPublic.
	CheckPublic func(netip.Addr) error
	// Questions is how many may be open about one project's targets. A program can
	// make up names without end, and a person asked a thousand times answers
	// without reading; what is past it is refused. 0 = 32.
	Questions int
	// Pace is how many targets are dialled for one project in a second, once
	// PaceBurst of them were dialled faster; those past it wait their turn. A
	// program with one allowed host could otherwise use this computer to flood that
	// host, and fill its disk with records. 0 = 20, and a burst of 400.
	Pace, PaceBurst float64
}

// Gate serves the connections of all machines.
type Gate struct {
	cfg  Config
	open atomic.Bool
	mu   sync.Mutex
	wait map[waitKey]*waiting
	lim  limiters
	pace pacer
	pass passes
	next atomic.Int64
}

type waitKey struct {
	project domain.ProjectID
	session domain.SessionID
	target  string
}

// waiting is one question that several connections wait for.
type waiting struct {
	done    chan struct{}
	verdict Verdict
	err     error
	n       int
	cancel  context.CancelFunc
}

// New returns a shut gate; Open it once the rules are loaded.
func New(cfg Config) *Gate {
	if cfg.Hold == 0 {
		cfg.Hold = 5 * time.Minute
	}
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = 15 * time.Second
	}
	if cfg.Resolve == nil {
		cfg.Resolve = systemResolve
	}
	if cfg.CheckPublic == nil {
		cfg.CheckPublic = CheckPublic
	}
	if cfg.Questions == 0 {
		cfg.Questions = 32
	}
	if cfg.Pace == 0 {
		cfg.Pace = 20
	}
	if cfg.PaceBurst == 0 {
		cfg.PaceBurst = 400
	}
	return &Gate{cfg: cfg, wait: map[waitKey]*waiting{}, pace: pacer{rate: cfg.Pace, burst: cfg.PaceBurst}}
}

// Open lets connections in. Before, and after Shut, everything is refused.
func (g *Gate) Open() { g.open.Store(true) }

// Shut refuses everything from now on; connections that run go on.
func (g *Gate) Shut() { g.open.Store(false) }

// refusal is why a request does not pass; its text is for the guest's program.
type refusal struct {
	status int
	reason string
	group  string // refusals of one group are one kind, whatever their target
	asked  domain.ApprovalID
	rule   string
}

func (r *refusal) Error() string { return r.reason }

// decide says whether a target may be dialled for this scope, asking if need be.
func (g *Gate) decide(ctx context.Context, s Scope, t Target, method string) (string, error) {
	if !g.open.Load() {
		return "", &refusal{status: 503, reason: "the gate is shut: rules are not loaded yet. Try again in a moment"}
	}
	if t.IP.IsValid() {
		if err := g.cfg.CheckPublic(t.IP); err != nil {
			return "", &refusal{status: 403, reason: "refused: " + err.Error() + ". Machines reach public addresses only"}
		}
	}
	if r, ok := g.cfg.Match(s, t); ok && r.Decision != domain.Ask {
		if r.Decision != domain.Allow {
			return "", &refusal{status: 403, reason: "refused by the rule: " + r.Text, rule: r.Name}
		}
		return r.Name, nil
	}
	if g.pass.take(s.Project, t) {
		return "once", nil
	}
	return g.ask(ctx, s, t, method)
}

// ask joins or starts the one question about a target in a session. The question
// outlives the connection that raised it: a person may answer after the program
// gave up, and its next try then passes.
func (g *Gate) ask(ctx context.Context, s Scope, t Target, method string) (string, error) {
	key := waitKey{s.Project, s.Session, t.String()}
	g.mu.Lock()
	w := g.wait[key]
	if w == nil {
		open := 0
		for k := range g.wait {
			if k.project == s.Project {
				open++
			}
		}
		if open >= g.cfg.Questions {
			g.mu.Unlock()
			return "", &refusal{status: 403, group: "questions", reason: fmt.Sprintf("refused: %d questions about hosts wait in Glasshouse already. Try again once they are answered", open)}
		}
		w = g.put(ctx, key, s, t, func(ctx context.Context) (Verdict, error) { return g.cfg.Ask(ctx, s, t, method) })
	}
	w.n++
	g.mu.Unlock()
	defer func() { g.mu.Lock(); w.n--; g.mu.Unlock() }()
	timer := time.NewTimer(g.hold())
	defer timer.Stop()
	select {
	case <-w.done:
	case <-ctx.Done():
		return "", &refusal{status: 503, reason: "the connection was given up while a question about " + t.String() + " waits"}
	case <-timer.C:
		return "", &refusal{status: 403, reason: "no answer yet: a question about " + t.String() + " waits in Glasshouse. Try again once it is answered"}
	}
	if w.err != nil {
		return "", &refusal{status: 503, reason: "the question about " + t.String() + " could not be put: " + w.err.Error()}
	}
	if !w.verdict.Allow {
		reason := w.verdict.Reason
		if reason == "" {
			reason = "the person said no"
		}
		return "", &refusal{status: 403, reason: "refused: " + t.String() + ": " + reason, asked: w.verdict.Asked}
	}
	return w.verdict.Rule, nil
}

func (g *Gate) hold() time.Duration {
	if g.cfg.HoldNow != nil {
		if d := g.cfg.HoldNow(); d > 0 {
			return d
		}
	}
	return g.cfg.Hold
}

// put starts the wait for a question's answer; g.mu is held.
func (g *Gate) put(ctx context.Context, key waitKey, s Scope, t Target, answer func(ctx context.Context) (Verdict, error)) *waiting {
	qctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &waiting{done: make(chan struct{}), cancel: cancel}
	g.wait[key] = w
	go func() {
		defer cancel()
		v, err := answer(qctx)
		g.mu.Lock()
		delete(g.wait, key)
		w.verdict, w.err = v, err
		if err == nil && v.Allow && v.Rule == "once" && w.n == 0 {
			g.pass.add(s.Project, t, 2*time.Minute)
		}
		g.mu.Unlock()
		close(w.done)
	}()
	return w
}

// Rejoin goes on with a question that an earlier gate put and nobody has answered:
// connections to the same target wait for it instead of asking again, and an answer
// that finds none lets the next one through, as ever. answer waits for it.
func (g *Gate) Rejoin(ctx context.Context, s Scope, t Target, answer func(ctx context.Context) (Verdict, error)) {
	key := waitKey{s.Project, s.Session, t.String()}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wait[key] == nil {
		g.put(ctx, key, s, t, answer)
	}
}

// Close ends questions that still wait.
func (g *Gate) Close() {
	g.Shut()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.wait {
		w.cancel()
	}
}

// dial resolves the target on the host and connects to the first address that
// answers; every address is checked again on the socket itself just before the
// connect, so that nothing between the check and the dial can change it.
func (g *Gate) dial(ctx context.Context, s Scope, t Target) (net.Conn, error) {
	if err := g.pace.wait(ctx, s.Project); err != nil {
		return nil, &refusal{status: 503, reason: "the connection was given up while it waited for its turn"}
	}
	addrs := []netip.Addr{t.IP}
	if !t.IP.IsValid() {
		rctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		found, err := g.cfg.Resolve(rctx, t.Host)
		cancel()
		if err != nil {
			return nil, &refusal{status: 502, reason: "the name " + t.Host + " could not be resolved: " + resolveReason(err)}
		}
		addrs = found
	}
	if len(addrs) == 0 {
		return nil, &refusal{status: 502, reason: "the name " + t.Host + " has no address"}
	}
	if len(addrs) > 16 {
		addrs = addrs[:16]
	}
	// One private address among public ones is how rebinding looks: refuse all.
	for _, a := range addrs {
		if err := g.cfg.CheckPublic(a); err != nil {
			return nil, &refusal{status: 403, reason: "refused: " + t.Host + " resolves to an address out of bounds: " + err.Error()}
		}
	}
	d := net.Dialer{Timeout: g.cfg.DialTimeout, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return g.cfg.CheckPublic(ap.Addr())
	}}
	var last error
	for _, a := range addrs {
		c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(a.Unmap(), uint16(t.Port)).String())
		if err == nil {
			return c, nil
		}
		last = err
	}
	return nil, &refusal{status: 502, reason: fmt.Sprintf("%s could not be reached: %v", t, last)}
}

// resolveReason says why a name has no address without the host's resolver and own
// addresses in it: the text goes to the guest.
func resolveReason(err error) string {
	var d *net.DNSError
	switch {
	case errors.As(err, &d) && d.IsNotFound:
		return "there is no such name"
	case errors.As(err, &d) && d.IsTimeout, errors.Is(err, context.DeadlineExceeded):
		return "the resolver did not answer in time"
	}
	return "the resolver gave no answer"
}

// blocked records a refusal, without letting a guest flood the log.
func (g *Gate) blocked(ctx context.Context, s Scope, t Target, method string, err error) {
	var r *refusal
	if !errors.As(err, &r) {
		r = &refusal{reason: err.Error()}
	}
	kind := t.String() + "|" + r.reason
	if r.group != "" {
		kind = r.group
	}
	extra, ok := g.lim.take(s.Project, string(s.Session)+"|"+kind, time.Now())
	if !ok {
		return
	}
	reason := r.reason
	if extra > 0 {
		reason += fmt.Sprintf(" (%d further refusals were not recorded)", extra)
	}
	_ = g.cfg.Record(context.WithoutCancel(ctx), event.New{
		Stream: streamOf(s), Origin: domain.OriginHost, Actor: "host", ProjectID: s.Project, SessionID: s.Session, StepID: s.Step,
		Payload: &event.EgressBlocked{Host: t.Host, Port: t.Port, Method: method, Reason: reason, Rule: r.rule, Claim: s.Claim, Approval: r.asked},
	})
}

func streamOf(s Scope) event.Stream {
	if s.Session != "" {
		return event.SessionStream(s.Session)
	}
	return event.ProjectStream(s.Project)
}

// passage is the record of one connection (or plain request) that was let through.
type passage struct {
	g       *Gate
	s       Scope
	id      string
	start   time.Time
	out, in atomic.Int64
}

func (g *Gate) begin(ctx context.Context, s Scope, t Target, method, rule string, remote net.Addr) (*passage, error) {
	p := &passage{g: g, s: s, id: fmt.Sprintf("c%d-%d", time.Now().UnixMilli(), g.next.Add(1)), start: time.Now()}
	err := g.cfg.Record(ctx, event.New{
		Stream: streamOf(s), Origin: domain.OriginHost, Actor: "host", ProjectID: s.Project, SessionID: s.Session, StepID: s.Step,
		Payload: &event.EgressOpened{Conn: p.id, Host: t.Host, Port: t.Port, Addr: remote.String(), Method: method, Rule: rule, Claim: s.Claim},
	})
	if err != nil {
		return nil, &refusal{status: 503, reason: "the passage could not be recorded, so it is refused: " + err.Error()}
	}
	return p, nil
}

func (p *passage) end(ctx context.Context, err error) {
	msg := ""
	if err != nil && !errors.Is(err, io.EOF) {
		msg = cut(err.Error())
	}
	_ = p.g.cfg.Record(context.WithoutCancel(ctx), event.New{
		Stream: streamOf(p.s), Origin: domain.OriginHost, Actor: "host", ProjectID: p.s.Project, SessionID: p.s.Session, StepID: p.s.Step,
		Payload: &event.EgressClosed{Conn: p.id, BytesOut: p.out.Load(), BytesIn: p.in.Load(), DurationMS: time.Since(p.start).Milliseconds(), Error: msg},
	})
}
