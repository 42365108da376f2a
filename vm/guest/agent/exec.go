//go:build linux

package agent

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/agent/execs"
	"glasshouse/vm/guest/agent/journal"
	"glasshouse/vm/guest/agent/shim"
	"glasshouse/vm/guest/proto"
)

type execService struct {
	proto.UnimplementedExecServer
	s *server
	n *session
}

const maxGrace = 60 * time.Second

func (x *execService) Run(st grpc.BidiStreamingServer[proto.ExecIn, proto.ExecOut]) error {
	first, err := st.Recv()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(st.Context())
	defer cancel()
	var e *execs.Exec
	var from [2]int64
	switch m := first.Msg.(type) {
	case *proto.ExecIn_Start:
		if err := proto.CheckStart(m.Start); err != nil {
			return proto.Invalid(err)
		}
		spec := m.Start.Spec()
		if e, err = x.enter(spec); err == nil {
			// Once begun, the start goes through even if the host leaves: it will ask by id.
			err = x.s.execs.Launch(context.WithoutCancel(ctx), e, spec)
		}
		if errors.Is(err, journal.ErrExists) {
			return status.Errorf(codes.AlreadyExists, "execution %s was started before; attach to it", m.Start.Id)
		}
	case *proto.ExecIn_Attach:
		if err := proto.CheckID("id", m.Attach.GetId()); err != nil {
			return proto.Invalid(err)
		}
		from = [2]int64{max(m.Attach.StdoutFrom, 0), max(m.Attach.StderrFrom, 0)}
		e, err = x.s.execs.Get(m.Attach.Id)
	default:
		return status.Error(codes.InvalidArgument, "the first message must start or attach")
	}
	if err != nil {
		return err
	}
	if err := st.Send(&proto.ExecOut{Msg: &proto.ExecOut_Started{Started: &proto.ExecStarted{}}}); err != nil {
		return err
	}
	go x.input(ctx, st, e)
	exit, err := e.Follow(ctx, from, func(stream int, offset int64, data []byte) error {
		return st.Send(&proto.ExecOut{Msg: &proto.ExecOut_Data{Data: &proto.ExecData{Stderr: stream == 1, Offset: offset, Data: data}}})
	})
	if err != nil {
		return err
	}
	return st.Send(&proto.ExecOut{Msg: &proto.ExecOut_Exit{Exit: proto.FromExit(exit, true)}})
}

// enter makes an execution known, unless another host has come since it was asked for:
// that one was told already that there is none, and nothing may come of it then.
func (x *execService) enter(spec guest.ExecSpec) (*execs.Exec, error) {
	x.s.entering.RLock()
	defer x.s.entering.RUnlock()
	if !x.s.mayEnter(x.n) {
		return nil, status.Error(codes.Unavailable, "another host has taken this one's place; nothing was started")
	}
	return x.s.execs.Enter(spec)
}

// input passes stdin on until the host stops sending. A half-close of the call
// is no end of stdin: that is said explicitly.
func (x *execService) input(ctx context.Context, st grpc.BidiStreamingServer[proto.ExecIn, proto.ExecOut], e *execs.Exec) {
	for {
		m, err := st.Recv()
		if err != nil {
			return
		}
		switch m := m.Msg.(type) {
		case *proto.ExecIn_Stdin:
			if len(m.Stdin) > 0 && e.Stdin(ctx, m.Stdin) != nil {
				return
			}
		case *proto.ExecIn_CloseStdin:
			if e.CloseStdin() != nil {
				return
			}
		}
	}
}

func (x *execService) List(_ *proto.ExecListRequest, st grpc.ServerStreamingServer[proto.ExecState]) error {
	for _, e := range x.s.execs.List() {
		if err := st.Send(proto.FromState(e.State())); err != nil {
			return err
		}
	}
	return nil
}

func (x *execService) Steer(_ context.Context, q *proto.SteerRequest) (*proto.SteerReply, error) {
	if err := errors.Join(proto.CheckID("id", q.Id), proto.CheckWinsize(q.Resize)); err != nil {
		return nil, proto.Invalid(err)
	}
	if q.Signal < 0 || q.Signal > 64 {
		return nil, proto.Invalid(errors.New("there is no such signal"))
	}
	e, err := x.s.execs.Get(q.Id)
	if err != nil {
		return nil, err
	}
	m := shim.Steer{Sig: int(q.Signal)}
	if q.Resize != nil {
		w := q.Resize.Size16()
		m.Size = &w
	}
	return &proto.SteerReply{}, e.Steer(m)
}

func (x *execService) Kill(ctx context.Context, q *proto.KillRequest) (*proto.KillReply, error) {
	if err := proto.CheckID("id", q.Id); err != nil {
		return nil, proto.Invalid(err)
	}
	return &proto.KillReply{}, x.s.execs.Kill(ctx, q.Id, min(max(time.Duration(q.Grace), 0), maxGrace))
}

func (x *execService) Forget(_ context.Context, q *proto.ForgetRequest) (*proto.ForgetReply, error) {
	if len(q.Ids) > proto.MaxIDs {
		return nil, proto.Invalid(errors.New("too many ids at once"))
	}
	for _, id := range q.Ids {
		if err := proto.CheckID("id", id); err != nil {
			return nil, proto.Invalid(err)
		}
	}
	return &proto.ForgetReply{}, x.s.execs.Forget(q.Ids)
}

func (x *execService) EndSession(ctx context.Context, q *proto.EndSessionRequest) (*proto.EndSessionReply, error) {
	if err := proto.CheckID("session", q.Session); err != nil {
		return nil, proto.Invalid(err)
	}
	x.s.browsers.EndSession(ctx, q.Session)
	return &proto.EndSessionReply{}, x.s.execs.EndSession(ctx, q.Session)
}
