package client

import (
	"context"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/proto"
)

// maxBatch bounds the changes in one batch.
const maxBatch = 20000

func (c *client) Watch(ctx context.Context) (<-chan guest.ChangeBatch, error) {
	ctx, cancel := context.WithCancel(ctx)
	st, err := proto.NewWatchClient(c.cc).Changes(ctx, &proto.WatchRequest{})
	if err != nil {
		cancel()
		return nil, c.wrap(ctx, err, nil)
	}
	out := make(chan guest.ChangeBatch)
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		defer cancel()
		defer close(out)
		var b guest.ChangeBatch
		for {
			m, err := st.Recv()
			if err != nil {
				return
			}
			// A broken batch ends the stream, which makes the caller resync.
			if b.Changes, err = addUpTo(b.Changes, maxBatch, m.Changes, (*proto.PathChange).Changed); err != nil {
				return
			}
			if m.More {
				continue
			}
			b.Epoch, b.Seq, b.Resync, b.Degraded = m.Epoch, m.Seq, m.Resync, m.Degraded
			b.Dropped = int(min(max(m.Dropped, 0), 1<<31))
			select {
			case out <- b:
			case <-ctx.Done():
				return
			case <-c.ctx.Done():
				return
			}
			b = guest.ChangeBatch{}
		}
	}()
	return out, nil
}
