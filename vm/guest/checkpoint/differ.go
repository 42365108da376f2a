//go:build linux

package checkpoint

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/checkpoint/objects"
)

const (
	differUses = 500             // comparisons by one process; its memory grows a little with each
	differIdle = 5 * time.Minute // without use it is ended
)

// differ is a `git diff-tree --stdin` that stays: starting a process costs more
// than most comparisons. It ends with its input, so with guestd.
type differ struct {
	in   *io.PipeWriter
	out  *bufio.Reader
	stop context.CancelFunc
	done chan struct{}
	uses int
	idle *time.Timer
}

// mark is a line that is no object id: git writes it back and flushes.
const mark = "sync\n"

func (c *Checkpoints) startDiffer() *differ {
	ctx, stop := context.WithCancel(context.Background())
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	d := &differ{in: inW, out: bufio.NewReaderSize(outR, 64<<10), stop: stop, done: make(chan struct{})}
	go func() {
		defer close(d.done)
		err := c.git(ctx, inR, outW, append(append([]string{"diff-tree", "--stdin"}, diffArgs...), "--")...)
		if err == nil {
			err = io.EOF
		}
		inR.CloseWithError(err)
		outW.CloseWithError(err)
	}()
	d.idle = time.AfterFunc(differIdle, func() {
		select {
		case <-c.turn:
			if c.differ == d {
				c.endDiffer()
			}
			c.unlock()
		default: // in use
		}
	})
	context.AfterFunc(ctx, func() {
		inR.CloseWithError(errEnough)
		outR.CloseWithError(errEnough)
	})
	return d
}

// endDiffer ends the process, if there is one. The turn is held.
func (c *Checkpoints) endDiffer() {
	if d := c.differ; d != nil {
		c.differ = nil
		d.idle.Stop()
		d.in.Close()
		d.stop()
		<-d.done
	}
}

// treeDiff compares two trees. The turn is held.
func (c *Checkpoints) treeDiff(ctx context.Context, from, to objects.ID) (out []guest.FileChange, more bool, err error) {
	if c.differ != nil && c.differ.uses >= differUses {
		c.endDiffer()
	}
	if c.differ == nil {
		c.differ = c.startDiffer()
	}
	d := c.differ
	d.uses++
	d.idle.Reset(differIdle)
	defer context.AfterFunc(ctx, d.stop)()
	defer func() {
		// What was not read would be taken for the next answer.
		if err != nil || more {
			c.endDiffer()
		}
	}()
	ask := fmt.Sprintf("%s %s\n", from, to)
	if _, err := io.WriteString(d.in, ask+mark); err != nil {
		return nil, false, err
	}
	echo := make([]byte, len(ask))
	if _, err := io.ReadFull(d.out, echo); err != nil {
		return nil, false, err
	}
	if string(echo) != ask {
		return nil, false, errors.New("git's list of changes is of other trees")
	}
	return parseDiff(d.out, mark)
}

// Close ends what runs in the background. Checkpoints can be used again after it.
func (c *Checkpoints) Close() error {
	<-c.turn
	defer c.unlock()
	c.endDiffer()
	return nil
}
