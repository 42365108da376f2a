package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/proto"
)

// Browser starts Chromium. ctx bounds the start alone; Close, or the loss of
// the channel, ends the pipe.
func (c *client) Browser(ctx context.Context, spec guest.BrowserSpec) (io.ReadWriteCloser, error) {
	if err := errors.Join(proto.CheckProfile(spec.Profile), proto.CheckLabel("session", spec.Session)); err != nil {
		return nil, err
	}
	if spec.Width < 0 || spec.Height < 0 || spec.Width > 16384 || spec.Height > 16384 {
		return nil, fmt.Errorf("a window of %d by %d is no window", spec.Width, spec.Height)
	}
	sctx, cancel := context.WithCancel(c.ctx)
	stop := context.AfterFunc(ctx, cancel)
	st, err := proto.NewBrowserClient(c.cc).Pipe(sctx)
	if err == nil {
		err = st.Send(&proto.BrowserIn{Spec: &proto.BrowserSpec{
			Profile: spec.Profile, Width: int32(spec.Width), Height: int32(spec.Height), Session: spec.Session,
		}})
	}
	var m *proto.BrowserOut
	if err == nil || errors.Is(err, io.EOF) {
		m, err = st.Recv()
	}
	if err == nil && !m.Started {
		err = errors.New("guestd answered a start with something else")
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, c.wrap(ctx, err, guest.ErrNotFound)
	}
	return &pipe{c: c, ctx: sctx, cancel: cancel, st: st, buf: m.Data, noSandbox: m.NoSandbox}, nil
}

type pipe struct {
	c         *client
	ctx       context.Context
	cancel    context.CancelFunc
	st        grpc.BidiStreamingClient[proto.BrowserIn, proto.BrowserOut]
	buf       []byte
	noSandbox bool
	wr        sync.Mutex
}

// NoSandbox reports that Chromium's own sandbox could not be used in this
// guest; callers ask for it through an interface of this one method.
func (p *pipe) NoSandbox() bool { return p.noSandbox }

func (p *pipe) Read(b []byte) (int, error) {
	for len(p.buf) == 0 {
		m, err := p.st.Recv()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, p.c.wrap(p.ctx, err, nil)
		}
		p.buf = m.Data
	}
	n := copy(b, p.buf)
	p.buf = p.buf[n:]
	return n, nil
}

func (p *pipe) Write(b []byte) (int, error) {
	p.wr.Lock()
	defer p.wr.Unlock()
	n := 0
	for len(b) > 0 {
		k := min(len(b), proto.MaxChunk)
		if err := p.st.Send(&proto.BrowserIn{Data: b[:k]}); errors.Is(err, io.EOF) {
			return n, io.ErrClosedPipe
		} else if err != nil {
			return n, p.c.wrap(p.ctx, err, nil)
		}
		n, b = n+k, b[k:]
	}
	return n, nil
}

func (p *pipe) Close() error {
	p.cancel()
	return nil
}
