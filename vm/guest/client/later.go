package client

import (
	"context"
	"errors"
	"io"

	"glasshouse/vm/guest"
)

func (c *client) Files() guest.Files             { return nil }
func (c *client) Checkpoints() guest.Checkpoints { return nil }
func (c *client) Git() guest.Git                 { return nil }
func (c *client) Browser(ctx context.Context, spec guest.BrowserSpec) (io.ReadWriteCloser, error) {
	return nil, errors.New("not yet")
}
func (c *client) Watch(ctx context.Context) (<-chan guest.ChangeBatch, error) {
	return nil, errors.New("not yet")
}
