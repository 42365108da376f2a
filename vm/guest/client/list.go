package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	pb "google.golang.org/protobuf/proto"
)

// listBytes bounds what one answer may hold in all.
const listBytes = 32 << 20

var errTooMuch = errors.New("guestd sent more than was asked for")

// pages reads a streamed answer piece by piece, within listBytes.
func pages[T any, P interface {
	*T
	pb.Message
}](c *client, ctx context.Context, open func(context.Context) (grpc.ServerStreamingClient[T], error), notFound error, each func(P) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := open(ctx)
	if err != nil {
		return c.wrap(ctx, err, notFound)
	}
	left := budget(listBytes)
	for {
		m, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return c.wrap(ctx, err, notFound)
		}
		if !left.take(P(m)) {
			return errTooMuch
		}
		if err := each(P(m)); err != nil {
			return err
		}
	}
}

// addUpTo appends converted items while there are fewer than limit.
func addUpTo[M, G any](to []G, limit int, items []M, convert func(M) (G, error)) ([]G, error) {
	for _, m := range items {
		if len(to) >= limit {
			return nil, fmt.Errorf("%w: over %d entries", errTooMuch, limit)
		}
		g, err := convert(m)
		if err != nil {
			return nil, err
		}
		to = append(to, g)
	}
	return to, nil
}
