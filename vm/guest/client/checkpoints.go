package client

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/proto"
)

// Limits of what a checkpoint may tell.
const (
	maxChanges     = 1000
	maxDiff        = 10000
	maxNotCaptured = 100
)

type checkpoints struct {
	c *client
	p proto.CheckpointsClient
}

func (c *client) Checkpoints() guest.Checkpoints {
	return &checkpoints{c, proto.NewCheckpointsClient(c.cc)}
}

func (k *checkpoints) Take(ctx context.Context, req guest.CheckpointRequest) (guest.Checkpoint, error) {
	if err := errors.Join(proto.CheckLabel("session", req.Session), proto.CheckLabel("step", req.Step)); err != nil {
		return guest.Checkpoint{}, err
	}
	return k.read(ctx, func(ctx context.Context) (grpc.ServerStreamingClient[proto.CheckpointPage], error) {
		return k.p.Take(ctx, &proto.TakeRequest{Session: req.Session, Step: req.Step, Full: req.Full})
	})
}

func (k *checkpoints) Restore(ctx context.Context, commit string) (guest.Checkpoint, error) {
	if err := proto.CheckHash("commit", commit, false); err != nil {
		return guest.Checkpoint{}, err
	}
	return k.read(ctx, func(ctx context.Context) (grpc.ServerStreamingClient[proto.CheckpointPage], error) {
		return k.p.Restore(ctx, &proto.RestoreRequest{Commit: commit})
	})
}

func (k *checkpoints) read(ctx context.Context, open func(context.Context) (grpc.ServerStreamingClient[proto.CheckpointPage], error)) (guest.Checkpoint, error) {
	var p guest.Checkpoint
	first := true
	err := pages(k.c, ctx, open, guest.ErrNotFound, func(m *proto.CheckpointPage) (err error) {
		if first {
			first = false
			p = guest.Checkpoint{
				Commit: m.Commit, Tree: m.Tree, Parent: m.Parent, Same: m.Same, More: m.More, Ignored: int(min(max(m.Ignored, 0), 1<<31)), Sum: m.Sum,
			}
			if err := errors.Join(proto.CheckHash("commit", p.Commit, false), proto.CheckHash("tree", p.Tree, false),
				proto.CheckHash("parent", p.Parent, true), proto.CheckHash("sum", p.Sum, true)); err != nil {
				return fmt.Errorf("the guest's checkpoint is broken: %w", err)
			}
		}
		if p.Changes, err = addUpTo(p.Changes, maxChanges, m.Changes, (*proto.FileChange).Change); err != nil {
			return err
		}
		p.NotCaptured, err = addUpTo(p.NotCaptured, maxNotCaptured, m.NotCaptured, name)
		return err
	})
	if err == nil && first {
		err = errors.New("guestd sent no checkpoint")
	}
	return p, err
}

func (k *checkpoints) Show(ctx context.Context, q guest.ShowRequest) (f guest.KeptFile, err error) {
	if err := errors.Join(proto.CheckHash("commit", q.Commit, false), proto.CheckTreePath("path", []byte(q.Path))); err != nil {
		return f, fmt.Errorf("%w: %w", guest.ErrRefused, err)
	}
	if q.Limit < 0 || q.Limit > maxRead {
		return f, fmt.Errorf("%w: %d bytes; at most %d at once", guest.ErrTooLarge, q.Limit, maxRead)
	}
	first := true
	err = pages(k.c, ctx, func(ctx context.Context) (grpc.ServerStreamingClient[proto.ShowChunk], error) {
		return k.p.Show(ctx, &proto.ShowRequest{Commit: q.Commit, Before: q.Before, Path: []byte(q.Path), Limit: q.Limit})
	}, guest.ErrNotFound, func(m *proto.ShowChunk) error {
		if first {
			first = false
			switch m.Mode {
			case 0, 0o100644, 0o100755, 0o120000:
			default:
				return fmt.Errorf("the guest's checkpoint is broken: a file's mode is %o", m.Mode)
			}
			if f.Mode, f.Size = m.Mode, m.Size; f.Size < 0 || f.Mode == 0 && f.Size > 0 {
				return fmt.Errorf("the guest's checkpoint is broken: a file's size is %d", m.Size)
			}
		}
		if int64(len(f.Data)+len(m.Data)) > min(q.Limit, f.Size) {
			return errTooMuch
		}
		f.Data = append(f.Data, m.Data...)
		return nil
	})
	if err == nil && first {
		err = errors.New("guestd sent no file")
	}
	if err == nil && int64(len(f.Data)) < min(q.Limit, f.Size) {
		err = fmt.Errorf("guestd sent %d bytes of a file of %d", len(f.Data), f.Size)
	}
	return f, err
}

func (k *checkpoints) Diff(ctx context.Context, from, to string) (changes []guest.FileChange, more bool, err error) {
	if err := errors.Join(proto.CheckHash("from", from, false), proto.CheckHash("to", to, false)); err != nil {
		return nil, false, err
	}
	err = pages(k.c, ctx, func(ctx context.Context) (grpc.ServerStreamingClient[proto.DiffPage], error) {
		return k.p.Diff(ctx, &proto.DiffRequest{From: from, To: to})
	}, guest.ErrNotFound, func(m *proto.DiffPage) (err error) {
		more = more || m.More
		changes, err = addUpTo(changes, maxDiff, m.Changes, (*proto.FileChange).Change)
		return err
	})
	return changes, more, err
}
