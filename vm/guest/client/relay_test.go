package client

import (
	"bytes"
	"context"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/proto"
)

type handler func(ctx context.Context, c guest.EgressClaim, conn io.ReadWriteCloser)

func (h handler) ServeEgress(ctx context.Context, c guest.EgressClaim, conn io.ReadWriteCloser) {
	h(ctx, c, conn)
}

func TestRelayFlood(t *testing.T) {
	var open, most atomic.Int64
	release := make(chan struct{})
	g, ys, err := serve(t, &evil{}, nil, handler(func(ctx context.Context, c guest.EgressClaim, conn io.ReadWriteCloser) {
		if n := open.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer open.Add(-1)
		select {
		case <-release:
		case <-ctx.Done():
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	cc, err := proto.Dial(ys)
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for n := 0; n < 2*proto.MaxRelays; n++ {
		go func() {
			st, err := proto.NewEgressClient(cc).Relay(ctx)
			if err != nil {
				return
			}
			for st.Send(&proto.EgressFrame{Data: make([]byte, proto.RelayChunk)}) == nil {
			}
		}()
	}
	for end := time.Now().Add(hang); open.Load() < proto.MaxRelays; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("only %d relays are open", open.Load())
		}
	}
	// The channel works meanwhile.
	if _, err := g.Execs().List(soon(t)); err == nil {
		t.Error("the endless list ended")
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 250<<20 {
		t.Errorf("%d MiB are in use", m.HeapAlloc>>20)
	}
	if n := most.Load(); n > proto.MaxRelays {
		t.Errorf("%d relays at once", n)
	}
	close(release)
	cancel()
}

// More connections to the host do not give a guest ever more relays.
func TestRelaysOverConnections(t *testing.T) {
	var open, most atomic.Int64
	_, ys, err := serve(t, &evil{}, nil, handler(func(ctx context.Context, _ guest.EgressClaim, _ io.ReadWriteCloser) {
		n := open.Add(1)
		defer open.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		<-ctx.Done()
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const conns = 4
	var refused atomic.Int64
	for range conns {
		cc, err := proto.Dial(ys)
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		for range proto.MaxRelays {
			go func() {
				st, err := proto.NewEgressClient(cc).Relay(ctx)
				if err != nil {
					return
				}
				_ = st.Send(&proto.EgressFrame{Claim: &proto.EgressClaim{}})
				if _, err := st.Recv(); err != nil && ctx.Err() == nil {
					refused.Add(1)
				}
			}()
		}
	}
	for end := time.Now().Add(hang); refused.Load() < conns*proto.MaxRelays-maxOpen; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d relays are open, %d were refused", open.Load(), refused.Load())
		}
	}
	if n := most.Load(); n > maxOpen {
		t.Errorf("%d relays at once", n)
	}
}

func TestRelayClaims(t *testing.T) {
	claims := make(chan guest.EgressClaim, 8)
	_, ys, err := serve(t, &evil{}, nil, handler(func(ctx context.Context, c guest.EgressClaim, conn io.ReadWriteCloser) {
		claims <- c
		conn.Close()
		if _, err := conn.Write([]byte("x")); err == nil {
			t.Error("written after Close")
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("read after Close")
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	cc, err := proto.Dial(ys)
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	bad := &proto.EgressClaim{Session: "../x", Step: strings.Repeat("s", 5000), Exec: "ok-1", Pid: -7}
	for i := 0; i < 100; i++ {
		bad.Argv = append(bad.Argv, bytes.Repeat([]byte("a"), 400))
	}
	for _, m := range []*proto.EgressFrame{{Claim: bad}, {}, {Fin: true}} {
		st, err := proto.NewEgressClient(cc).Relay(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		st.Send(m)
		c := <-claims
		if c.Session != "" || c.Step != "" || len(c.Argv) > 32 || len(c.Argv) > 0 && len(c.Argv[0]) > 256 {
			t.Errorf("claim %.200v", c)
		}
		if m.Claim != nil && c.Exec != "ok-1" {
			t.Errorf("claim %.200v", c)
		}
		if _, err := st.Recv(); err != io.EOF {
			t.Errorf("after Close the guest sees %v", err)
		}
	}
}
