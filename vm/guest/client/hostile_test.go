package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
	"google.golang.org/grpc"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/proto"
)

const hang = 60 * time.Second // a guard, never a measure

var hash40 = strings.Repeat("a", 40)

func goodHello() *proto.HelloReply {
	return &proto.HelloReply{Generation: 1, BootId: "b", AgentHash: strings.Repeat("0", 64), Hostname: "h", Kind: "vm"}
}

// evil is a guest that answers as a test tells it to.
type evil struct {
	proto.UnimplementedChannelServer
	proto.UnimplementedExecServer
	proto.UnimplementedCheckpointsServer
	proto.UnimplementedGitServer
	proto.UnimplementedWatchServer

	hello func() (*proto.HelloReply, error)
	run   func(grpc.BidiStreamingServer[proto.ExecIn, proto.ExecOut]) error
	show  []*proto.ShowChunk
	sent  atomic.Int64
}

func (e *evil) Hello(context.Context, *proto.HelloRequest) (*proto.HelloReply, error) {
	if e.hello != nil {
		return e.hello()
	}
	return goodHello(), nil
}

func (e *evil) Run(st grpc.BidiStreamingServer[proto.ExecIn, proto.ExecOut]) error {
	if _, err := st.Recv(); err != nil {
		return err
	}
	if err := st.Send(&proto.ExecOut{Msg: &proto.ExecOut_Started{Started: &proto.ExecStarted{}}}); err != nil {
		return err
	}
	return e.run(st)
}

// flood sends the same message until the host has had enough.
func flood[T any](e *evil, st grpc.ServerStreamingServer[T], m *T) error {
	for {
		if err := st.Send(m); err != nil {
			return err
		}
		e.sent.Add(1)
	}
}

func (e *evil) List(_ *proto.ExecListRequest, st grpc.ServerStreamingServer[proto.ExecState]) error {
	return flood(e, st, &proto.ExecState{Id: "x", Argv: [][]byte{make([]byte, 60<<10)}})
}

// filesEvil is apart, because both services have a List.
type filesEvil struct {
	proto.UnimplementedFilesServer
	e    *evil
	read []*proto.ReadChunk
	info *proto.FileInfo
}

func (f *filesEvil) Stat(context.Context, *proto.PathRequest) (*proto.FileInfo, error) {
	return f.info, nil
}

func (f *filesEvil) Read(_ *proto.ReadRequest, st grpc.ServerStreamingServer[proto.ReadChunk]) error {
	for _, m := range f.read {
		if err := st.Send(m); err != nil {
			return err
		}
	}
	return nil
}

func (f *filesEvil) List(_ *proto.ListRequest, st grpc.ServerStreamingServer[proto.ListPage]) error {
	return flood(f.e, st, &proto.ListPage{Entries: []*proto.FileInfo{{Path: bytes.Repeat([]byte("p"), 4000), Type: "file"}}})
}

func (f *filesEvil) Glob(_ *proto.GlobRequest, st grpc.ServerStreamingServer[proto.GlobPage]) error {
	return flood(f.e, st, &proto.GlobPage{}) // nothing, for ever
}

func (f *filesEvil) Search(_ *proto.SearchRequest, st grpc.ServerStreamingServer[proto.SearchPage]) error {
	return flood(f.e, st, &proto.SearchPage{Matches: []*proto.Match{{Path: []byte("p"), Text: make([]byte, 900)}}})
}

func (e *evil) Take(_ *proto.TakeRequest, st grpc.ServerStreamingServer[proto.CheckpointPage]) error {
	return flood(e, st, &proto.CheckpointPage{Commit: hash40, Tree: hash40, Changes: []*proto.FileChange{{Path: []byte("p"), Op: "add"}}})
}

func (e *evil) Diff(_ *proto.DiffRequest, st grpc.ServerStreamingServer[proto.DiffPage]) error {
	return flood(e, st, &proto.DiffPage{Changes: []*proto.FileChange{{Path: []byte("p"), Op: "add"}}})
}

func (e *evil) Show(q *proto.ShowRequest, st grpc.ServerStreamingServer[proto.ShowChunk]) error {
	for _, m := range e.show {
		if err := st.Send(m); err != nil {
			return err
		}
	}
	if e.show != nil {
		return nil
	}
	return flood(e, st, &proto.ShowChunk{Mode: 0o100644, Size: 1 << 40, Data: make([]byte, 100<<10)})
}

func (e *evil) Restore(_ *proto.RestoreRequest, st grpc.ServerStreamingServer[proto.CheckpointPage]) error {
	return st.Send(&proto.CheckpointPage{Commit: "--upload-pack=x", Tree: hash40})
}

func (e *evil) Head(context.Context, *proto.HeadRequest) (*proto.HeadReply, error) {
	return &proto.HeadReply{Commit: "$(reboot)"}, nil
}

func (e *evil) Candidate(context.Context, *proto.CandidateRequest) (*proto.CandidateReply, error) {
	return &proto.CandidateReply{Commit: hash40, Tree: ""}, nil
}

func (e *evil) Export(st grpc.BidiStreamingServer[proto.ExportRequest, proto.PackChunk]) error {
	for {
		if err := st.Send(&proto.PackChunk{Data: make([]byte, 100<<10)}); err != nil {
			return err
		}
		e.sent.Add(1)
	}
}

func (e *evil) Changes(_ *proto.WatchRequest, st grpc.ServerStreamingServer[proto.ChangeBatch]) error {
	return flood(e, st, &proto.ChangeBatch{More: true, Changes: []*proto.PathChange{{Path: []byte("p"), Op: "add"}}})
}

// serve runs a hostile guest and returns what a client makes of it, and the
// guest's end of the session.
func serve(t *testing.T, e *evil, f *filesEvil, eg guest.EgressHandler) (guest.Guest, *yamux.Session, error) {
	t.Helper()
	host, theirs := net.Pipe()
	ys, err := proto.GuestSession(theirs)
	if err != nil {
		t.Fatal(err)
	}
	if f == nil {
		f = &filesEvil{}
	}
	f.e = e
	s := grpc.NewServer(grpc.MaxSendMsgSize(64 << 20)) // keeps to no limit
	proto.RegisterChannelServer(s, e)
	proto.RegisterExecServer(s, e)
	proto.RegisterFilesServer(s, f)
	proto.RegisterCheckpointsServer(s, e)
	proto.RegisterGitServer(s, e)
	proto.RegisterWatchServer(s, e)
	go s.Serve(ys)
	t.Cleanup(func() {
		ys.Close()
		s.Stop()
	})
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	g, err := Open(ctx, host, eg, Options{})
	if err == nil {
		t.Cleanup(func() { g.Close() })
	}
	return g, ys, err
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	t.Cleanup(cancel)
	return ctx
}

func TestHello(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for name, change := range map[string]func(*proto.HelloReply){
		"no generation":  func(h *proto.HelloReply) { h.Generation = 0 },
		"too new":        func(h *proto.HelloReply) { h.Generation = 99 },
		"no boot id":     func(h *proto.HelloReply) { h.BootId = "" },
		"path boot id":   func(h *proto.HelloReply) { h.BootId = "../../x" },
		"long boot id":   func(h *proto.HelloReply) { h.BootId = long },
		"no hash":        func(h *proto.HelloReply) { h.AgentHash = "" },
		"hash of spaces": func(h *proto.HelloReply) { h.AgentHash = strings.Repeat(" ", 64) },
		"huge":           func(h *proto.HelloReply) { h.Hostname = strings.Repeat("x", 2<<20) },
	} {
		h := goodHello()
		change(h)
		if _, _, err := serve(t, &evil{hello: func() (*proto.HelloReply, error) { return h, nil }}, nil, nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	h := goodHello()
	h.Hostname, h.Kind = long, long
	for i := 0; i < 100; i++ {
		h.Notes = append(h.Notes, strings.Repeat("n", 5000))
	}
	g, _, err := serve(t, &evil{hello: func() (*proto.HelloReply, error) { return h, nil }}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if x := g.Hello(); len(x.Hostname) > 64 || len(x.Kind) > 16 || len(x.Notes) > maxNotes || len(x.Notes[0]) > 500 {
		t.Errorf("kept %d, %d, %d", len(x.Hostname), len(x.Kind), len(x.Notes))
	}
}

func TestSilentGuest(t *testing.T) {
	host, theirs := net.Pipe()
	go io.Copy(io.Discard, theirs)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, host, nil, Options{}); err == nil {
		t.Fatal("opened")
	}
	if _, err := host.Write([]byte("x")); err == nil {
		t.Error("the stream was left open")
	}
}

func data(stderr bool, off int64, b []byte) *proto.ExecOut {
	return &proto.ExecOut{Msg: &proto.ExecOut_Data{Data: &proto.ExecData{Stderr: stderr, Offset: off, Data: b}}}
}

func TestOutputOfLiar(t *testing.T) {
	for name, msgs := range map[string][]*proto.ExecOut{
		"past its limit": {data(false, 0, make([]byte, 900)), data(false, 900, make([]byte, 900))},
		"gap":            {data(false, 0, make([]byte, 10)), data(false, 11, make([]byte, 10))},
		"back":           {data(true, 0, make([]byte, 10)), data(true, 0, make([]byte, 10))},
		"negative":       {data(false, -5, make([]byte, 10))},
		"empty":          {data(false, 0, nil)},
		"no data":        {{Msg: &proto.ExecOut_Data{}}},
		"nothing":        {{}},
		"started again":  {{Msg: &proto.ExecOut_Started{}}},
		"huge tail":      {{Msg: &proto.ExecOut_Exit{Exit: &proto.ExecExit{Stdout: &proto.StreamEnd{Tail: make([]byte, guest.TailBytes+1)}}}}},
		"huge message":   {data(false, 0, make([]byte, 2<<20))},
		"no end":         {},
	} {
		t.Run(name, func(t *testing.T) {
			g, _, err := serve(t, &evil{run: func(st grpc.BidiStreamingServer[proto.ExecIn, proto.ExecOut]) error {
				for _, m := range msgs {
					if err := st.Send(m); err != nil {
						return err
					}
				}
				return nil
			}}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			p, err := g.Execs().Start(soon(t), guest.ExecSpec{ID: "x", Argv: []string{"x"}, OutputLimit: 1000})
			if err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, err = p.Next()
			}
			if err == io.EOF {
				t.Fatal("taken for a good end")
			}
			if _, again := p.Next(); again != err {
				t.Errorf("first %v, then %v", err, again)
			}
		})
	}
	// A missing exit inside an exit message is an empty one, not a crash.
	g, _, err := serve(t, &evil{run: func(st grpc.BidiStreamingServer[proto.ExecIn, proto.ExecOut]) error {
		return st.Send(&proto.ExecOut{Msg: &proto.ExecOut_Exit{}})
	}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := g.Execs().Start(soon(t), guest.ExecSpec{ID: "x", Argv: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Next(); err != io.EOF {
		t.Fatal(err)
	}
}

// Answers without end must end in an error, after a bounded amount.
func TestEndlessAnswers(t *testing.T) {
	calls := map[string]func(ctx context.Context, g guest.Guest) error{
		"execs": func(ctx context.Context, g guest.Guest) error { _, err := g.Execs().List(ctx); return err },
		"list":  func(ctx context.Context, g guest.Guest) error { _, _, err := g.Files().List(ctx, "x", 0); return err },
		"glob": func(ctx context.Context, g guest.Guest) error {
			_, _, err := g.Files().Glob(ctx, "x", false, 0)
			return err
		},
		"search": func(ctx context.Context, g guest.Guest) error {
			_, err := g.Files().Search(ctx, guest.SearchQuery{Pattern: "x"})
			return err
		},
		"take": func(ctx context.Context, g guest.Guest) error {
			_, err := g.Checkpoints().Take(ctx, guest.CheckpointRequest{})
			return err
		},
		"diff": func(ctx context.Context, g guest.Guest) error {
			_, _, err := g.Checkpoints().Diff(ctx, hash40, hash40)
			return err
		},
		"show": func(ctx context.Context, g guest.Guest) error {
			_, err := g.Checkpoints().Show(ctx, guest.ShowRequest{Commit: hash40, Path: "p", Limit: 1 << 20})
			return err
		},
		"export": func(ctx context.Context, g guest.Guest) error {
			r, err := g.Git().Export(ctx, []string{hash40}, nil, 1<<20)
			if err != nil {
				return err
			}
			n, err := io.Copy(io.Discard, r)
			if n > 1<<20 {
				t.Errorf("%d bytes of a pack of at most 1 MiB", n)
			}
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			g, _, err := serve(t, &evil{}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			if err := call(soon(t), g); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("got %v", err)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			if after.HeapAlloc > before.HeapAlloc+64<<20 {
				t.Errorf("%d MiB are kept", (after.HeapAlloc-before.HeapAlloc)>>20)
			}
		})
	}
	g, _, err := serve(t, &evil{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := g.Watch(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	for range ch {
		t.Fatal("a batch without end was delivered")
	}
}

func TestLyingAnswers(t *testing.T) {
	ctx := soon(t)
	f := &filesEvil{info: &proto.FileInfo{Path: []byte("a\x00b")}, read: []*proto.ReadChunk{{Data: []byte("x")}}}
	g, _, err := serve(t, &evil{}, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Files().Stat(ctx, "x"); err == nil {
		t.Error("a name with NUL was accepted")
	}
	if _, err := g.Files().Read(ctx, "x", 0, 10); err == nil {
		t.Error("a file without description was accepted")
	}
	f.read = []*proto.ReadChunk{{Info: &proto.FileInfo{Path: []byte("x"), Type: "file"}, Data: make([]byte, 11)}}
	if _, err := g.Files().Read(ctx, "x", 0, 10); err == nil {
		t.Error("11 bytes of 10 were accepted")
	}
	f.read = nil
	if _, err := g.Files().Read(ctx, "x", 0, 10); err == nil {
		t.Error("no answer was accepted")
	}
	if _, err := g.Checkpoints().Restore(ctx, hash40); err == nil {
		t.Error("an option was accepted as a commit")
	}
	if _, err := g.Git().Head(ctx); err == nil {
		t.Error("a command was accepted as a commit")
	}
	if _, err := g.Git().Candidate(ctx, hash40, "m"); err == nil {
		t.Error("a candidate without a tree was accepted")
	}
}

// A guest that opens stream after stream loses the channel.
func TestStreamFlood(t *testing.T) {
	g, ys, err := serve(t, &evil{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(hang)
	for n := 0; time.Now().Before(end); n++ {
		select {
		case <-g.Done():
			return
		default:
		}
		s, err := ys.OpenStream()
		if err != nil {
			time.Sleep(time.Millisecond)
			continue
		}
		s.Write(make([]byte, 1000))
	}
	t.Fatal("the channel stands")
}

// Requests that must not even leave the host.
func TestRefusedHere(t *testing.T) {
	g, _, err := serve(t, &evil{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := soon(t)
	for name, call := range map[string]func() error{
		"path":    func() error { _, err := g.Files().Stat(ctx, "a\x00"); return err },
		"no path": func() error { return g.Files().Remove(ctx, "", true) },
		"commit":  func() error { _, err := g.Checkpoints().Restore(ctx, "main"); return err },
		"want":    func() error { _, err := g.Git().Export(ctx, []string{"HEAD"}, nil, 1); return err },
		"nothing": func() error { _, err := g.Git().Export(ctx, nil, nil, 1); return err },
		"ref": func() error {
			return g.Git().Import(ctx, guest.ImportRequest{Refs: map[string]string{"refs/heads/x": "y"}}, nil)
		},
		"profile": func() error { _, err := g.Browser(ctx, guest.BrowserSpec{Profile: "../x"}); return err },
		"big write": func() error {
			_, err := g.Files().Write(ctx, "x", make([]byte, maxWrite+1), guest.WriteOptions{})
			return err
		},
	} {
		if call() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// What a guest says of a kept file is taken only where it fits together.
func TestShowOfLiar(t *testing.T) {
	for name, chunks := range map[string][]*proto.ShowChunk{
		"nothing":     {},
		"a folder":    {{Mode: 0o040000}},
		"less":        {{Mode: 0o100644, Size: 10, Data: []byte("short")}},
		"more":        {{Mode: 0o100644, Size: 3, Data: []byte("longer")}},
		"past limit":  {{Mode: 0o100644, Size: 1 << 30, Data: make([]byte, 900)}, {Data: make([]byte, 900)}},
		"negative":    {{Mode: 0o100644, Size: -1}},
		"absent data": {{Size: 3, Data: []byte("abc")}},
	} {
		t.Run(name, func(t *testing.T) {
			g, _, err := serve(t, &evil{show: chunks}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if f, err := g.Checkpoints().Show(soon(t), guest.ShowRequest{Commit: hash40, Path: "p", Limit: 1000}); err == nil {
				t.Errorf("taken: %+v", f)
			}
		})
	}
	g, _, err := serve(t, &evil{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []guest.ShowRequest{{Commit: "HEAD", Path: "p"}, {Commit: hash40}, {Commit: hash40, Path: "/etc/passwd"}, {Commit: hash40, Path: "a/../b"}, {Commit: hash40, Path: "a\x00b"}, {Commit: hash40, Path: "p", Limit: 1 << 40}} {
		if _, err := g.Checkpoints().Show(soon(t), q); err == nil {
			t.Errorf("%+v was asked", q)
		}
	}
}
