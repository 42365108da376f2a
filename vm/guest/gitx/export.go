//go:build linux

package gitx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"glasshouse/vm/guest"
)

// maxRevs bounds the ids of one export.
const maxRevs = 10_000

// Export writes a pack that stands on its own given what have reaches; ids of
// have that the repository does not know are left out. The stream ends with
// guest.ErrTooLarge past maxBytes (0 = no bound), and with git's error, never
// early without one. Close ends git.
func (g *Git) Export(ctx context.Context, want []string, have []string, maxBytes int64) (io.ReadCloser, error) {
	if len(want) == 0 || len(want)+len(have) > maxRevs {
		return nil, fmt.Errorf("an export names between 1 and %d commits", maxRevs)
	}
	for _, id := range want {
		if err := checkID("commit", id); err != nil {
			return nil, err
		}
	}
	for _, id := range have {
		if err := checkID("commit", id); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	ids := append(append([]string(nil), want...), have...)
	err := g.run(ctx, nil, strings.NewReader(strings.Join(ids, "\n")+"\n"), &out, "git", "cat-file", "--batch-check=%(objectname) %(objecttype)")
	if err != nil {
		return nil, err
	}
	kinds := map[string]string{}
	for line := range strings.SplitSeq(out.String(), "\n") {
		id, kind, _ := strings.Cut(line, " ")
		kinds[id] = kind
	}
	var revs strings.Builder
	for _, id := range want {
		if k := kinds[id]; k != "commit" && k != "tag" {
			return nil, fmt.Errorf("commit %s is not in the workspace's repository (%s): %w", id, k, guest.ErrNotFound)
		}
		fmt.Fprintf(&revs, "%s\n", id)
	}
	for _, id := range have {
		if k := kinds[id]; k == "commit" || k == "tag" {
			fmt.Fprintf(&revs, "^%s\n", id)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	pr, pw := io.Pipe()
	e := &export{r: pr, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		limit := &limited{w: pw, left: maxBytes, endless: maxBytes <= 0}
		err := g.run(ctx, nil, strings.NewReader(revs.String()), limit,
			"git", "-c", "pack.windowMemory=64m", "pack-objects", "--revs", "--stdout", "--delta-base-offset", "-q")
		if limit.over {
			err = fmt.Errorf("the pack has more than %d bytes: %w", maxBytes, guest.ErrTooLarge)
		}
		if err == nil && e.closed() {
			err = io.ErrClosedPipe
		}
		pw.CloseWithError(err) // nil = io.EOF
	}()
	return e, nil
}

type export struct {
	r      *io.PipeReader
	cancel context.CancelFunc
	done   chan struct{}
	mu     sync.Mutex
	ended  bool
}

func (e *export) Read(p []byte) (int, error) { return e.r.Read(p) }

func (e *export) closed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended
}

func (e *export) Close() error {
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	e.cancel()
	e.r.Close()
	<-e.done
	return nil
}

var errOver = errors.New("too many bytes")

// limited fails once too much was written, which ends git.
type limited struct {
	w       io.Writer
	left    int64
	endless bool
	over    bool
}

func (l *limited) Write(p []byte) (int, error) {
	if !l.endless && int64(len(p)) > l.left {
		l.over = true
		return 0, errOver
	}
	l.left -= int64(len(p))
	return l.w.Write(p)
}
