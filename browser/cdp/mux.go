package cdp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp/jsonv2"
	"github.com/chromedp/cdproto/page"

	"glasshouse/browser"
)

// Limits of the wire. What comes over it is the guest's.
const (
	maxQueuedBytes = 32 << 20 // commands not yet taken by the pipe
	maxErrorText   = 400
	maxResult      = 8 << 20 // of a reply, but for pictures: decoding multiplies it
	maxEvent       = 4 << 20
)

var (
	// errDetached ends calls on a session whose target went away or navigated.
	errDetached = errors.New("the page's target is gone")
	// errSilent ends calls that got no reply in time.
	errSilent = errors.New("no answer")
	// errCrashed ends calls on a tab whose renderer died.
	errCrashed = errors.New("renderer crashed")

	jsonRead  = jsonv2.JoinOptions(jsonv2.DefaultOptionsV2(), jsonv2.AllowInvalidUTF8(true))
	jsonWrite = jsonRead
)

// message is one DevTools message in either direction.
type message struct {
	ID        int64        `json:"id,omitempty,omitzero"`
	SessionID string       `json:"sessionId,omitempty,omitzero"`
	Method    string       `json:"method,omitempty,omitzero"`
	Params    jsonv2.Value `json:"params,omitempty,omitzero"`
	Result    jsonv2.Value `json:"result,omitempty,omitzero"`
	Error     *wireError   `json:"error,omitempty,omitzero"`
}

// wireError is an error that Chromium answered.
type wireError struct {
	Code    int64  `json:"code"`
	Message string `json:"message"`
}

func (e *wireError) Error() string { return clean(e.Message, maxErrorText) }

type reply struct {
	result jsonv2.Value
	err    error
}

type waiting struct {
	session string
	done    func(reply)
}

// mux carries many sessions over one pipe. Replies and events are handled in the
// order in which they arrive, on the reading goroutine; onEvent must not block.
type mux struct {
	rw      io.ReadWriteCloser
	max     int
	timeout time.Duration // of a call without a nearer deadline
	onEvent func(session, method string, params jsonv2.Value)

	mu     sync.Mutex
	nextID int32
	wait   map[int64]waiting
	queue  [][]byte
	queued int
	wake   chan struct{}
	err    error

	done chan struct{}
	wg   sync.WaitGroup
}

func newMux(rw io.ReadWriteCloser, max int, timeout time.Duration, onEvent func(string, string, jsonv2.Value)) *mux {
	return &mux{
		rw: rw, max: max, timeout: timeout, onEvent: onEvent,
		wait: map[int64]waiting{}, wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

func (m *mux) start() {
	m.wg.Add(2)
	go m.readLoop()
	go m.writeLoop()
}

// fail ends the connection once: every call, now and later, gets err.
func (m *mux) fail(err error) {
	m.mu.Lock()
	if m.err != nil {
		m.mu.Unlock()
		return
	}
	m.err = fmt.Errorf("%w: %w", browser.ErrGone, err)
	all := m.wait
	m.wait = map[int64]waiting{}
	m.queue, m.queued = nil, 0
	gone := m.err
	close(m.done)
	m.mu.Unlock()
	m.rw.Close()
	for _, w := range all {
		w.done(reply{err: gone})
	}
}

func (m *mux) failed() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func (m *mux) readLoop() {
	defer m.wg.Done()
	r := bufio.NewReaderSize(m.rw, 64<<10)
	var buf []byte
	for {
		part, err := r.ReadSlice(0)
		if len(buf)+len(part) > m.max {
			m.fail(fmt.Errorf("a message was larger than %d bytes", m.max))
			return
		}
		buf = append(buf, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			m.fail(fmt.Errorf("its pipe closed: %w", err))
			return
		}
		msg := bytes.TrimSpace(buf[:len(buf)-1])
		if len(msg) > 0 {
			if err := m.take(msg); err != nil {
				m.fail(err)
				return
			}
		}
		if cap(buf) > 1<<20 {
			buf = nil
		}
		buf = buf[:0]
	}
}

// take handles one message. What the guest sends may find a fault of ours; it costs
// this browser then, not the process.
func (m *mux) take(b []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("a message of it could not be handled: %s", clean(fmt.Sprint(r), 200))
		}
	}()
	return m.handle(b)
}

func (m *mux) handle(b []byte) error {
	var msg message
	if err := jsonv2.Unmarshal(b, &msg, jsonRead); err != nil {
		return fmt.Errorf("it sent something that is no DevTools message: %s", clean(err.Error(), 200))
	}
	if msg.ID != 0 {
		m.mu.Lock()
		w, ok := m.wait[msg.ID]
		delete(m.wait, msg.ID)
		m.mu.Unlock()
		if ok {
			rep := reply{result: msg.Result}
			if msg.Error != nil {
				rep = reply{err: msg.Error}
			}
			w.done(rep)
		}
		return nil
	}
	if msg.Method != "" && len(msg.Params) <= maxEvent {
		m.onEvent(msg.SessionID, msg.Method, msg.Params)
	}
	return nil
}

func (m *mux) writeLoop() {
	defer m.wg.Done()
	for {
		select {
		case <-m.done:
			return
		case <-m.wake:
		}
		for {
			m.mu.Lock()
			if len(m.queue) == 0 {
				m.mu.Unlock()
				break
			}
			b := m.queue[0]
			m.queue = m.queue[1:]
			m.queued -= len(b)
			m.mu.Unlock()
			if _, err := m.rw.Write(b); err != nil {
				m.fail(fmt.Errorf("writing to its pipe: %w", err))
				return
			}
		}
	}
}

// send queues one command and never blocks; done is called exactly once, on the
// reading goroutine or by whoever ended the call, and must not block.
func (m *mux) send(session, method string, params any, done func(reply)) (id int64, err error) {
	msg := message{SessionID: session, Method: method}
	if params != nil {
		if msg.Params, err = jsonv2.Marshal(params, jsonWrite); err != nil {
			return 0, fmt.Errorf("encoding %s: %w", method, err)
		}
	}
	m.mu.Lock()
	if m.err != nil {
		defer m.mu.Unlock()
		return 0, m.err
	}
	if m.nextID++; m.nextID <= 0 { // Chromium takes 32-bit ids only
		m.nextID = 1
	}
	msg.ID = int64(m.nextID)
	b, err := jsonv2.Marshal(msg, jsonWrite)
	if err != nil {
		m.mu.Unlock()
		return 0, fmt.Errorf("encoding %s: %w", method, err)
	}
	b = append(b, 0)
	if m.queued+len(b) > maxQueuedBytes {
		m.mu.Unlock()
		m.fail(errors.New("it stopped taking commands"))
		return 0, m.failed()
	}
	m.queue = append(m.queue, b)
	m.queued += len(b)
	if done != nil {
		m.wait[msg.ID] = waiting{session: session, done: done}
	}
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return msg.ID, nil
}

// post sends a command whose reply nobody needs.
func (m *mux) post(session, method string, params any) { _, _ = m.send(session, method, params, nil) }

// call sends a command and waits for its reply: until ctx ends, and never longer
// than the mux's own timeout.
func (m *mux) call(ctx context.Context, session, method string, params, result any) error {
	ch := make(chan reply, 1)
	id, err := m.send(session, method, params, func(r reply) { ch <- r })
	if err != nil {
		return err
	}
	t := time.NewTimer(m.timeout)
	defer t.Stop()
	var r reply
	select {
	case r = <-ch:
	case <-ctx.Done():
		m.forget(id)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("%s: %w: %w", method, errSilent, ctx.Err())
		}
		return ctx.Err()
	case <-t.C:
		m.forget(id)
		return fmt.Errorf("%s: %w within %v", method, errSilent, m.timeout)
	}
	if r.err != nil {
		return fmt.Errorf("%s: %w", method, r.err)
	}
	if result == nil || len(r.result) == 0 {
		return nil
	}
	if len(r.result) > maxResult && method != page.CommandCaptureScreenshot {
		return fmt.Errorf("%s: the answer has %d bytes, more than the %d taken", method, len(r.result), maxResult)
	}
	if err := jsonv2.Unmarshal(r.result, result, jsonRead); err != nil {
		return fmt.Errorf("%s: unreadable answer: %s", method, clean(err.Error(), 200))
	}
	return nil
}

func (m *mux) forget(id int64) {
	m.mu.Lock()
	delete(m.wait, id)
	m.mu.Unlock()
}

// drop ends the calls that wait on a session.
func (m *mux) drop(session string, err error) {
	var ended []waiting
	m.mu.Lock()
	for id, w := range m.wait {
		if w.session == session {
			ended = append(ended, w)
			delete(m.wait, id)
		}
	}
	m.mu.Unlock()
	for _, w := range ended {
		w.done(reply{err: err})
	}
}

// sess is one attached target; "" is the browser itself. It is a cdp.Session,
// so the typed commands of cdproto run on it.
type sess struct {
	m      *mux
	id     string
	target string
	kind   string // "page" or "iframe"
	tab    *tab
	parent *sess // of an iframe
}

func (s *sess) Call(ctx context.Context, method string, params, result any) error {
	return s.m.call(ctx, s.id, method, params, result)
}

// Subscribe is not used: events are handled in order by the browser.
func (s *sess) Subscribe(string) (<-chan jsonv2.Value, func()) { return nil, func() {} }

func (s *sess) post(method string, params any) { s.m.post(s.id, method, params) }
