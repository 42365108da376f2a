package git

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	"glasshouse/backend/domain"
)

// FetchProgress is how far a fetch is. Done and Total count objects, both zero
// when the remote gave no number; Bytes is what is on this computer's disk by now.
type FetchProgress struct {
	Text  string // of our own words, no part of it the remote's
	Done  int64
	Total int64
	Bytes int64
}

// fetchSay passes progress on, not more often than people can read it.
type fetchSay struct {
	mu   sync.Mutex
	to   func(FetchProgress)
	last FetchProgress
	at   time.Time
}

func newFetchSay(to func(FetchProgress)) *fetchSay {
	s := &fetchSay{to: to}
	s.now("asking the remote", 0, 0)
	return s
}

func (s *fetchSay) now(text string, done, total int64) {
	s.change(func(p *FetchProgress) { p.Text, p.Done, p.Total = text, done, total })
}

func (s *fetchSay) change(f func(*FetchProgress)) {
	if s.to == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.last
	f(&s.last)
	if s.last == before || s.last.Text == before.Text && time.Since(s.at) < 200*time.Millisecond && (s.last.Done != s.last.Total || s.last.Total == 0) {
		return
	}
	s.at = time.Now()
	s.to(s.last)
}

// fetchSteps are git's names for the parts of a fetch, and ours.
var fetchSteps = []struct {
	line *regexp.Regexp
	text string
}{
	{regexp.MustCompile(`^remote: Enumerating objects: +()()`), "the remote lists its objects"},
	{regexp.MustCompile(`^remote: Counting objects: +\d{1,3}% \((\d{1,12})/(\d{1,12})\)`), "the remote counts its objects"},
	{regexp.MustCompile(`^remote: Compressing objects: +\d{1,3}% \((\d{1,12})/(\d{1,12})\)`), "the remote packs its objects"},
	{regexp.MustCompile(`^Receiving objects: +\d{1,3}% \((\d{1,12})/(\d{1,12})\)`), "receiving objects"},
	{regexp.MustCompile(`^Resolving deltas: +\d{1,3}% \((\d{1,12})/(\d{1,12})\)`), "putting the objects together"},
}

// fetchLines takes git's progress out of its stderr; the rest is what a person is
// told when it fails. The other side writes part of it, so lines are bounded and
// only numbers are taken from them.
type fetchLines struct {
	say  *fetchSay
	rest io.Writer
	line []byte
}

func (f *fetchLines) Write(p []byte) (int, error) {
	for _, c := range p {
		if c != '\r' && c != '\n' {
			if len(f.line) < 4096 {
				f.line = append(f.line, c)
			}
			continue
		}
		f.end(c)
	}
	return len(p), nil
}

func (f *fetchLines) end(by byte) {
	line := bytes.TrimRight(bytes.ReplaceAll(f.line, []byte("\x1b[K"), nil), " ")
	f.line = f.line[:0]
	for _, s := range fetchSteps {
		if m := s.line.FindSubmatch(line); m != nil {
			done, _ := strconv.ParseInt(string(m[1]), 10, 64)
			total, _ := strconv.ParseInt(string(m[2]), 10, 64)
			f.say.now(s.text, done, total)
			return
		}
	}
	if by == '\n' && len(line) > 0 {
		_, _ = f.rest.Write(append(line, '\n'))
	}
}

// watchInbox bounds what a remote can put on this computer's disk: git itself
// writes down whatever a server sends. The context ends when it is too much;
// the function ends the watch and says why it did, nil when it did not.
func (m *Mirror) watchInbox(ctx context.Context, inbox string, say *fetchSay) (context.Context, func() error) {
	wctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(300 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-wctx.Done():
				return
			case <-tick.C:
			}
			n := folderBytes(inbox)
			say.change(func(p *FetchProgress) { p.Bytes = n })
			if n > m.opt.MaxFetch {
				cancel(domain.E(domain.CodeTooLarge, fmt.Sprintf("the remote sent more than %s", sizeText(m.opt.MaxFetch)), "make a smaller repository of it, or clone it yourself and give the folder; nothing of it was kept", nil))
				return
			}
		}
	}()
	return wctx, func() error {
		err := context.Cause(wctx)
		cancel(nil)
		<-ended
		return err
	}
}

func folderBytes(dir string) int64 {
	var n int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // a file that git has just renamed
		}
		if fi, err := d.Info(); err == nil && fi.Mode().IsRegular() {
			n += fi.Size()
		}
		return nil
	})
	return n
}

func sizeText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d KiB", (n+1023)>>10)
}
