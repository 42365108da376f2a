package proto

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/quick"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pb "google.golang.org/protobuf/proto"

	"glasshouse/vm/guest"
)

func FuzzCheckID(f *testing.F) {
	for _, s := range []string{"", "a", ".a", "../x", "a/b", "a\x00", strings.Repeat("x", 97), "A-Z_0.9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if CheckID("id", s) != nil {
			return
		}
		// What passes is one plain file name.
		if s == "" || len(s) > MaxID || s[0] == '.' || strings.ContainsAny(s, "/\x00 \n") {
			t.Fatalf("accepted %q", s)
		}
	})
}

// FuzzStart feeds bytes of the wire through decoder and check; what passes must
// be safe to act on.
func FuzzStart(f *testing.F) {
	for _, s := range []*ExecStart{
		{}, {Id: "a", Argv: [][]byte{[]byte("true")}},
		{Id: "a", Argv: [][]byte{[]byte("a\x00")}}, {Id: "a", Argv: [][]byte{{}}, Env: []*EnvVar{nil, {Name: []byte("A=B")}}},
		{Id: "a", Argv: [][]byte{[]byte("x")}, Dir: []byte("rel"), Timeout: -1, OutputLimit: 1 << 40, Tty: &Winsize{Rows: 1 << 20}},
	} {
		b, err := pb.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s ExecStart
		if pb.Unmarshal(b, &s) != nil || CheckStart(&s) != nil {
			return
		}
		g := s.Spec()
		if len(g.Argv) == 0 || g.Argv[0] == "" || g.OutputLimit <= 0 || g.OutputLimit > MaxOutputLimit || g.Timeout < 0 || g.Limits.MemoryMiB < 0 {
			t.Fatalf("accepted %+v", g)
		}
		for _, a := range g.Argv {
			if strings.Contains(a, "\x00") {
				t.Fatalf("accepted %q", a)
			}
		}
		for k, v := range g.Env {
			if k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
				t.Fatalf("accepted %q=%q", k, v)
			}
		}
		if CheckStart(FromSpec(g)) != nil {
			t.Fatalf("what was accepted is refused on the way back: %+v", g)
		}
	})
}

// FuzzFromGuest feeds bytes as every answer a guest can give; whatever is
// accepted stays within its bounds.
func FuzzFromGuest(f *testing.F) {
	exit, _ := pb.Marshal(&ExecExit{Code: 1, Signal: strings.Repeat("S", 5000), Stdout: &StreamEnd{Total: -5, Tail: make([]byte, 70000)},
		Background: []*BackgroundProcess{{Argv: [][]byte{make([]byte, 10000)}}, nil}, StartedAt: -1 << 63})
	state, _ := pb.Marshal(&ExecState{Id: "x", Session: strings.Repeat("s", 1000), Argv: [][]byte{{255}}, Exit: &ExecExit{}})
	info, _ := pb.Marshal(&FileInfo{Path: bytes.Repeat([]byte("p"), 5000), Type: "socket", Size: -1, Sha256: "zz"})
	change, _ := pb.Marshal(&FileChange{Path: []byte("a"), Op: "explode", Added: -1})
	for _, s := range [][]byte{exit, state, info, change, {}, {0xff}} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var x ExecExit
		if pb.Unmarshal(b, &x) == nil {
			if g, err := x.Exit(); err == nil {
				if len(g.Signal) > 16 || len(g.StartError) > maxText || len(g.Background) > maxBackground || len(g.Stdout.Tail) > guest.TailBytes || g.Stdout.Total < 0 {
					t.Fatalf("%+v", g)
				}
				for _, b := range g.Background {
					for _, w := range b.Argv {
						if len(w) > maxWord || len(b.Argv) > maxWords {
							t.Fatalf("%d words, one of %d", len(b.Argv), len(w))
						}
					}
				}
			}
		}
		var s ExecState
		if pb.Unmarshal(b, &s) == nil {
			if g, err := s.State(); err == nil && (CheckID("id", g.ID) != nil || len(g.Session) > MaxID || len(g.Exit.Stdout.Tail) > 0) {
				t.Fatalf("%+v", g)
			}
		}
		var i FileInfo
		if pb.Unmarshal(b, &i) == nil {
			if g, err := i.Info(); err == nil && (len(g.Path) > MaxPath || strings.Contains(g.Path, "\x00") || g.Size < 0 || len(g.Sha256) != 0 && len(g.Sha256) != 64) {
				t.Fatalf("%+v", g)
			}
		}
		var c FileChange
		if pb.Unmarshal(b, &c) == nil {
			if g, err := c.Change(); err == nil && (g.Added < 0 || g.Op == "" || len(g.OldPath) > MaxPath) {
				t.Fatalf("%+v", g)
			}
		}
		var m Match
		if pb.Unmarshal(b, &m) == nil {
			if g, err := m.Found(); err == nil && (len(g.Text) > maxMatchText || g.Line < 0) {
				t.Fatalf("%+v", g)
			}
		}
		var p PathChange
		if pb.Unmarshal(b, &p) == nil {
			if g, err := p.Changed(); err == nil && (g.Size < 0 || len(g.Path) > MaxPath) {
				t.Fatalf("%+v", g)
			}
		}
	})
}

// FuzzSession feeds bytes as a peer's whole stream: both ends must end, never
// crash or hang.
func FuzzSession(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x01\x00\x01\x00\x00\x00\x02\x00\x00\x00\x00"))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x01\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x02\x00\x01\x00\x00\x00\x00\x00\x00\x00\x07\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, open := range []func(io.ReadWriteCloser) (interface {
			CloseChan() <-chan struct{}
			Close() error
		}, error){
			func(c io.ReadWriteCloser) (interface {
				CloseChan() <-chan struct{}
				Close() error
			}, error) {
				return HostSession(c)
			},
			func(c io.ReadWriteCloser) (interface {
				CloseChan() <-chan struct{}
				Close() error
			}, error) {
				return GuestSession(c)
			},
		} {
			ours, theirs := net.Pipe()
			go io.Copy(io.Discard, theirs)
			s, err := open(ours)
			if err != nil {
				t.Fatal(err)
			}
			theirs.SetWriteDeadline(time.Now().Add(time.Minute))
			theirs.Write(b)
			theirs.Close()
			select {
			case <-s.CloseChan():
			case <-time.After(time.Minute):
				t.Fatal("the session outlives its stream")
			}
			s.Close()
		}
	})
}

func TestSpecRoundTrip(t *testing.T) {
	in := guest.ExecSpec{
		ID: "a", Session: "b", Step: "c", Argv: []string{"x", "\xff y"}, Dir: "/d", Env: map[string]string{"K": "v\xfe"}, Stdin: true,
		TTY: &guest.Winsize{Rows: 1, Cols: 65535}, Timeout: time.Minute, Grace: time.Second, OutputLimit: 5, Limits: guest.Limits{MemoryMiB: 7, Pids: 8}, Root: true,
	}
	b, err := pb.Marshal(FromSpec(in))
	if err != nil {
		t.Fatal(err)
	}
	var m ExecStart
	if err := pb.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	if out := m.Spec(); !reflect.DeepEqual(in, out) {
		t.Fatalf("%+v became %+v", in, out)
	}
	// No field is left behind: a spec with every field set has no zero field on the wire.
	m.ProtoReflect()
	v := reflect.ValueOf(in)
	for i := 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("the test leaves %s empty", v.Type().Field(i).Name)
		}
	}
}

func TestExitRoundTrip(t *testing.T) {
	err := quick.Check(func(code int32, user, sys, rss uint32, total uint32, tail []byte, started uint32) bool {
		in := guest.Exit{
			Code: int(code), Signal: "SIGKILL", TimedOut: true, Killed: true, OOM: true, StartError: "why", Unknown: true,
			Stdout: guest.StreamEnd{Total: int64(total), Dropped: 3, Tail: append([]byte{1}, tail...)}, Stderr: guest.StreamEnd{Total: 1, Dropped: 1, Tail: []byte{2}},
			UserCPU: time.Duration(user), SysCPU: time.Duration(sys), MaxRSSKiB: int64(rss),
			StartedAt: time.Unix(int64(started)+1, 5).UTC(), EndedAt: time.Unix(int64(started)+2, 6).UTC(),
			Background: []guest.BackgroundProcess{{Pid: 4, Argv: []string{"\xff", ""}}},
		}
		out, err := FromExit(in, true).Exit()
		return err == nil && reflect.DeepEqual(in, out)
	}, &quick.Config{MaxCount: 50})
	if err != nil {
		t.Fatal(err)
	}
}

func TestErrorsTravel(t *testing.T) {
	for _, want := range []error{guest.ErrNotFound, guest.ErrConflict, guest.ErrRefused, guest.ErrTooLarge} {
		err := FromStatus(ToStatus(fmt.Errorf("reading /x: %w", want)), guest.ErrNotFound)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "/x") {
			t.Errorf("%v became %v", want, err)
		}
	}
	if err := FromStatus(ToStatus(guest.ErrNoExec), guest.ErrNoExec); !errors.Is(err, guest.ErrNoExec) || strings.Count(err.Error(), "no such execution") != 1 {
		t.Errorf("%v", err)
	}
	long := FromStatus(status.Error(codes.Unknown, strings.Repeat("x", 1<<20)), nil)
	if len(long.Error()) > maxErrorText {
		t.Errorf("an error of %d bytes got through", len(long.Error()))
	}
	if err := ToStatus(context.Canceled); status.Code(err) != codes.Canceled {
		t.Errorf("%v", err)
	}
	if ToStatus(nil) != nil || FromStatus(nil, nil) != nil {
		t.Error("nil became an error")
	}
}

// A stream on which nothing is answered any more is noticed, and one that only
// pauses is not given up.
func TestSilentStream(t *testing.T) {
	every, wait := pingEvery, pingWait
	defer func() { pingEvery, pingWait = every, wait }()
	pingEvery, pingWait = 20*time.Millisecond, 10*time.Second
	a, b := net.Pipe()
	host, err := HostSession(a)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	guestEnd := &pausable{Conn: b}
	g, err := GuestSession(guestEnd)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	guestEnd.pause(time.Second)
	select {
	case <-host.CloseChan():
		t.Fatal("a pause ended the session")
	case <-time.After(2 * time.Second):
	}
	guestEnd.pause(time.Hour)
	select {
	case <-host.CloseChan():
	case <-time.After(60 * time.Second):
		t.Fatal("the silence was not noticed")
	}
}

// pausable holds back what its owner writes.
type pausable struct {
	net.Conn
	mu    sync.Mutex
	until time.Time
}

func (p *pausable) pause(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Now().Add(d)
}

func (p *pausable) Write(b []byte) (int, error) {
	for {
		p.mu.Lock()
		left := time.Until(p.until)
		p.mu.Unlock()
		if left <= 0 {
			return p.Conn.Write(b)
		}
		if left > time.Minute {
			return len(b), nil // lost for ever
		}
		time.Sleep(left)
	}
}
