//go:build linux

package agent

import (
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/agent/chromium"
	"glasshouse/vm/guest/agent/execs"
	"glasshouse/vm/guest/proto"
)

func browserConfig(cfg Config, e execs.Config) chromium.Config {
	return chromium.Config{
		Home: cfg.Home, Proxy: cfg.Proxy, Env: e.Env, UID: e.UID, GID: e.GID, Cgroups: e.Shim.Cgroups, Cell: e.Shim.Cell,
	}
}

type browserService struct {
	proto.UnimplementedBrowserServer
	s *server
}

func (b *browserService) Pipe(st grpc.BidiStreamingServer[proto.BrowserIn, proto.BrowserOut]) error {
	first, err := st.Recv()
	if err != nil {
		return err
	}
	q := first.Spec
	if q == nil {
		return proto.Invalid(errors.New("the first message must say which browser"))
	}
	if err := errors.Join(proto.CheckProfile(q.Profile), proto.CheckLabel("session", q.Session)); err != nil {
		return proto.Invalid(err)
	}
	br, err := b.s.browsers.Start(st.Context(), guest.BrowserSpec{Profile: q.Profile, Width: int(q.Width), Height: int(q.Height), Session: q.Session})
	if errors.Is(err, chromium.ErrInUse) {
		return status.Error(codes.AlreadyExists, err.Error())
	}
	if err != nil {
		return err
	}
	defer br.Close()
	if err := st.Send(&proto.BrowserOut{Started: true, NoSandbox: br.NoSandbox}); err != nil {
		return err
	}
	go func() {
		defer br.Close() // the host closed its side, or is gone
		for {
			m, err := st.Recv()
			if err != nil {
				return
			}
			if _, err := br.Write(m.Data); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, proto.MaxChunk)
	for {
		n, err := br.Read(buf)
		if n > 0 {
			if err := st.Send(&proto.BrowserOut{Data: buf[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
