//go:build linux

package agent

import (
	"context"

	"google.golang.org/grpc"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/proto"
)

type watchService struct {
	proto.UnimplementedWatchServer
	watch func(ctx context.Context) (<-chan guest.ChangeBatch, error)
}

func (s *watchService) Changes(_ *proto.WatchRequest, st grpc.ServerStreamingServer[proto.ChangeBatch]) error {
	ch, err := s.watch(st.Context())
	if err != nil {
		return err
	}
	for b := range ch {
		left := len(b.Changes)
		err := inPages(b.Changes, proto.FromPathChange, func(m *proto.PathChange) int { return len(m.Path) + 32 },
			func(page []*proto.PathChange, _ bool) error {
				left -= len(page)
				return st.Send(&proto.ChangeBatch{
					Epoch: b.Epoch, Seq: b.Seq, Changes: page, Degraded: b.Degraded, Resync: b.Resync, Dropped: int64(b.Dropped), More: left > 0,
				})
			})
		if err != nil {
			return err
		}
	}
	return st.Context().Err()
}
