//go:build linux

package agent

import (
	"errors"

	"google.golang.org/grpc"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/proto"
)

type checkpointsService struct {
	proto.UnimplementedCheckpointsServer
	k guest.Checkpoints
}

func (s *checkpointsService) Take(q *proto.TakeRequest, st grpc.ServerStreamingServer[proto.CheckpointPage]) error {
	if err := errors.Join(proto.CheckLabel("session", q.Session), proto.CheckLabel("step", q.Step)); err != nil {
		return proto.Invalid(err)
	}
	c, err := s.k.Take(st.Context(), guest.CheckpointRequest{Session: q.Session, Step: q.Step, Full: q.Full})
	if err != nil {
		return err
	}
	return sendCheckpoint(c, st)
}

func (s *checkpointsService) Restore(q *proto.RestoreRequest, st grpc.ServerStreamingServer[proto.CheckpointPage]) error {
	if err := proto.CheckHash("commit", q.Commit, false); err != nil {
		return proto.Invalid(err)
	}
	c, err := s.k.Restore(st.Context(), q.Commit)
	if err != nil {
		return err
	}
	return sendCheckpoint(c, st)
}

func (s *checkpointsService) Show(q *proto.ShowRequest, st grpc.ServerStreamingServer[proto.ShowChunk]) error {
	if err := errors.Join(proto.CheckHash("commit", q.Commit, false), proto.CheckTreePath("path", q.Path)); err != nil {
		return proto.Invalid(err)
	}
	if q.Limit < 0 || q.Limit > maxRead {
		return proto.Invalid(errors.New("the limit is out of range"))
	}
	f, err := s.k.Show(st.Context(), guest.ShowRequest{Commit: q.Commit, Before: q.Before, Path: string(q.Path), Limit: q.Limit})
	if err != nil {
		return err
	}
	m := &proto.ShowChunk{Mode: f.Mode, Size: f.Size}
	for {
		n := min(len(f.Data), proto.MaxChunk)
		m.Data, f.Data = f.Data[:n], f.Data[n:]
		if err := st.Send(m); err != nil || len(f.Data) == 0 {
			return err
		}
		m = &proto.ShowChunk{}
	}
}

func changeSize(m *proto.FileChange) int { return len(m.Path) + len(m.OldPath) + 64 }

func sendCheckpoint(c guest.Checkpoint, st grpc.ServerStreamingServer[proto.CheckpointPage]) error {
	err := inPages(c.Changes, proto.FromChange, changeSize, func(page []*proto.FileChange, first bool) error {
		m := &proto.CheckpointPage{Changes: page}
		if first {
			m.Commit, m.Tree, m.Parent, m.Same, m.More, m.Ignored, m.Sum = c.Commit, c.Tree, c.Parent, c.Same, c.More, int64(c.Ignored), c.Sum
		}
		return st.Send(m)
	})
	if err != nil || len(c.NotCaptured) == 0 {
		return err
	}
	return inPages(c.NotCaptured, func(p string) []byte { return []byte(p) }, func(p []byte) int { return len(p) + 8 },
		func(page [][]byte, _ bool) error { return st.Send(&proto.CheckpointPage{NotCaptured: page}) })
}

func (s *checkpointsService) Diff(q *proto.DiffRequest, st grpc.ServerStreamingServer[proto.DiffPage]) error {
	if err := errors.Join(proto.CheckHash("from", q.From, false), proto.CheckHash("to", q.To, false)); err != nil {
		return proto.Invalid(err)
	}
	changes, more, err := s.k.Diff(st.Context(), q.From, q.To)
	if err != nil {
		return err
	}
	return inPages(changes, proto.FromChange, changeSize, func(page []*proto.FileChange, _ bool) error {
		return st.Send(&proto.DiffPage{Changes: page, More: more})
	})
}
