package desktop

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// watcher follows the core's events for what is said outside the page. It reads the
// core itself: the page could be asked to say anything.
type watcher struct {
	http    *http.Client
	notices *Notices
	// ended is told whether the core said that it was asked to end.
	ended func(bool)

	after    int64
	projects map[string]string
}

// envelope is the little of an event that is needed here; anything else in it is ignored.
type envelope struct {
	ID      int64  `json:"id"`
	Type    string `json:"type"`
	Project string `json:"project_id"`
	Session string `json:"session_id"`
	Data    struct {
		Approval string `json:"approval_id"`
		Title    string `json:"title"`
		Result   string `json:"result"`
		Reason   string `json:"reason"`
	} `json:"data"`
}

// followed are the event types that are asked for.
const followed = "approval.requested,approval.answered,approval.closed,turn.ended,core.started,core.stopped"

const (
	longestLine = 4 << 20
	// The core says something every 15 seconds; quiet for longer is dead.
	quietFor = 45 * time.Second
)

// run follows until the context ends. It never starts a core.
func (w *watcher) run(ctx context.Context) {
	wait := 250 * time.Millisecond
	for ctx.Err() == nil {
		began := time.Now()
		_ = w.follow(ctx) // a cut stream is taken up again
		if time.Since(began) > time.Minute {
			wait = 250 * time.Millisecond
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, 4*time.Second)
	}
}

func (w *watcher) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var info struct {
		Latest int64 `json:"latest_event_id"`
	}
	if err := w.get(ctx, "/v1/info", &info); err != nil {
		return err
	}
	if w.after == 0 || w.after > info.Latest {
		w.after = info.Latest // what happened before was not missed by this window
	}
	resp, err := w.open(ctx, "/v1/events?"+url.Values{"format": {"ndjson"}, "types": {followed}, "after": {fmt.Sprint(w.after)}}.Encode())
	if err != nil {
		return err
	}
	defer resp.Close()
	quiet := time.AfterFunc(quietFor, cancel)
	defer quiet.Stop()
	lines := bufio.NewScanner(resp)
	lines.Buffer(make([]byte, 64<<10), longestLine)
	for lines.Scan() {
		quiet.Reset(quietFor)
		if len(lines.Bytes()) == 0 {
			continue
		}
		var e envelope
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // of another version, perhaps; what follows is still told
		}
		if e.ID > w.after {
			w.after = e.ID
		}
		w.take(ctx, e)
	}
	return lines.Err()
}

func (w *watcher) take(ctx context.Context, e envelope) {
	switch e.Type {
	case "approval.requested":
		w.notices.Question(e.Data.Approval, w.project(ctx, e.Project), e.Data.Title)
	case "approval.answered", "approval.closed":
		w.notices.Answered(e.Data.Approval)
	case "turn.ended":
		w.notices.Ended(e.Session, w.project(ctx, e.Project), e.Data.Result)
	case "core.started": // a core that still answers while it ends is no new one
		w.ended(false)
	case "core.stopped":
		w.ended(strings.HasPrefix(e.Data.Reason, "quit"))
	}
}

// project is a project's name.
func (w *watcher) project(ctx context.Context, id string) string {
	if n, ok := w.projects[id]; ok {
		return n
	}
	var all []struct{ ID, Name string }
	if err := w.get(ctx, "/v1/projects", &all); err != nil {
		return "a project"
	}
	w.projects = map[string]string{}
	for _, p := range all {
		w.projects[p.ID] = p.Name
	}
	if n := w.projects[id]; n != "" {
		return n
	}
	return "a project"
}

func (w *watcher) get(ctx context.Context, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	b, err := w.open(ctx, path)
	if err != nil {
		return err
	}
	defer b.Close()
	return json.NewDecoder(io.LimitReader(b, longestLine)).Decode(out)
}

func (w *watcher) open(ctx context.Context, path string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://core"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := w.http.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, errors.New("the core answered " + resp.Status)
	}
	return resp.Body, nil
}
