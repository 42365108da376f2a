package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
)

type eventsIn struct {
	LastEventID string `header:"Last-Event-ID" doc:"go on after this id"`
	After       int64  `query:"after" doc:"the same as a parameter; the header wins"`
	Project     string `query:"project_id"`
	Session     string `query:"session_id"`
	Types       string `query:"types" doc:"comma separated event types"`
	Format      string `query:"format" enum:"sse,ndjson" default:"sse"`
	Transient   bool   `query:"transient" doc:"deltas and statistics too; they have id 0"`
	Follow      bool   `query:"follow" default:"true" doc:"false: end after the newest stored event"`
}

// pingEvery keeps proxies and clients aware that a quiet stream is alive.
const pingEvery = 15 * time.Second

func (s *server) events(api huma.API) {
	o := op("events", http.MethodGet, "/v1/events", "Events after an id, then live, as SSE or ndjson")
	o.Description = "Each stored event comes once, in id order. `id:` is the global row id; give the last one seen as Last-Event-ID to go on without gap or repetition. Transient events come without an id line."
	huma.Register(api, o, func(ctx context.Context, in *eventsIn) (*huma.StreamResponse, error) {
		after := in.After
		if in.LastEventID != "" {
			n, err := strconv.ParseInt(in.LastEventID, 10, 64)
			if err != nil || n < 0 {
				return nil, fail(domain.E(domain.CodeInvalid, fmt.Sprintf("Last-Event-ID is %q", cutText(in.LastEventID)), "give the number of the last event seen", nil))
			}
			after = n
		}
		if after > s.Log.LatestID() {
			return nil, fail(domain.E(domain.CodeConflict, fmt.Sprintf("the log has no event %d yet", after), "it is another log than the one you followed; start at 0", nil))
		}
		f := eventlog.Filter{Project: domain.ProjectID(in.Project), Session: domain.SessionID(in.Session)}
		for _, t := range strings.Split(in.Types, ",") {
			if t = strings.TrimSpace(t); t == "" {
				continue
			}
			if _, known := event.Registry[event.Type(t)]; !known {
				return nil, fail(domain.E(domain.CodeInvalid, fmt.Sprintf("there is no event type %q", cutText(t)), "see the description of events", nil))
			}
			f.Types = append(f.Types, event.Type(t))
		}
		return &huma.StreamResponse{Body: func(c huma.Context) { s.stream(c, f, after, in) }}, nil
	})
	type pageIn struct {
		After   int64  `query:"after"`
		Before  int64  `query:"before"`
		Project string `query:"project_id"`
		Session string `query:"session_id"`
		Step    string `query:"step_id"`
		Limit   int    `query:"limit" minimum:"1" maximum:"5000" default:"500"`
		Tail    bool   `query:"tail" doc:"the last matching events instead of the first"`
	}
	huma.Register(api, op("read-log", http.MethodGet, "/v1/log", "A page of stored events"), func(ctx context.Context, in *pageIn) (*body[[]event.Envelope], error) {
		evs, err := s.Log.Read(ctx, eventlog.Filter{AfterID: in.After, BeforeID: in.Before, Project: domain.ProjectID(in.Project), Session: domain.SessionID(in.Session),
			Step: domain.StepID(in.Step), Limit: in.Limit, Tail: in.Tail})
		if evs == nil {
			evs = []event.Envelope{}
		}
		return ok(evs, err)
	})
	huma.Register(api, op("verify-log", http.MethodPost, "/v1/log/verify", "Check the log's hash chain"), func(ctx context.Context, _ *none) (*body[eventlog.Report], error) {
		r, err := s.Log.Verify(ctx)
		return ok(r, err)
	})
}

// payloads puts the payload of every event type into the description, as the
// properties of one object, so that clients can type what the stream brings.
func payloads(api huma.API) {
	reg := api.OpenAPI().Components.Schemas
	all := &huma.Schema{Type: huma.TypeObject, Description: "the payload of each event type", Properties: map[string]*huma.Schema{}}
	for t, mk := range event.Registry {
		all.Properties[string(t)] = reg.Schema(reflect.TypeOf(mk()).Elem(), true, "")
		all.Required = append(all.Required, string(t))
	}
	slices.Sort(all.Required)
	reg.Map()["EventPayloads"] = all
}

func (s *server) stream(c huma.Context, f eventlog.Filter, after int64, in *eventsIn) {
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	sub := s.Log.Subscribe(f, after)
	defer sub.Close()
	if in.Transient && in.Follow && f.Session == "" && (len(f.Types) == 0 || slices.Contains(f.Types, "machine.stats")) && s.Watch != nil {
		defer s.Watch(f.Project)()
	}
	sse := in.Format != "ndjson"
	if sse {
		c.SetHeader("Content-Type", "text/event-stream")
	} else {
		c.SetHeader("Content-Type", "application/x-ndjson")
	}
	c.SetHeader("Cache-Control", "no-store")
	c.SetHeader("X-Accel-Buffering", "no")
	w := c.BodyWriter()
	flush := func() {
		if fl, ok := w.(http.Flusher); ok {
			fl.Flush()
		}
	}
	if sse {
		_, _ = io.WriteString(w, ": glasshouse\n\n")
	}
	flush()
	if !in.Follow {
		s.stored(ctx, w, f, after, sse)
		flush()
		return
	}
	for {
		nctx, stop := context.WithTimeout(ctx, pingEvery)
		e, err := sub.Next(nctx)
		stop()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return
		case nctx.Err() != nil:
			if sse {
				_, err = io.WriteString(w, ": ping\n\n")
			} else {
				_, err = io.WriteString(w, "\n")
			}
			if err != nil {
				return
			}
			flush()
			continue
		default:
			return
		}
		if e.ID == 0 && !in.Transient {
			continue
		}
		if err := writeEvent(w, sse, e); err != nil {
			return
		}
		flush()
	}
}

// stored sends what the log holds now, up to the newest event at the call.
func (s *server) stored(ctx context.Context, w io.Writer, f eventlog.Filter, after int64, sse bool) {
	f.AfterID, f.BeforeID, f.Limit = after, s.Log.LatestID()+1, 500
	for {
		page, err := s.Log.Read(ctx, f)
		if err != nil {
			return
		}
		for _, e := range page {
			if err := writeEvent(w, sse, e); err != nil {
				return
			}
			f.AfterID = e.ID
		}
		if len(page) < f.Limit {
			return
		}
	}
}

// writeEvent writes an event with its payload's bytes as they are stored: they are
// what the log's hashes are of.
func writeEvent(w io.Writer, sse bool, e event.Envelope) error {
	var b bytes.Buffer
	if sse && e.ID > 0 {
		fmt.Fprintf(&b, "id: %d\n", e.ID)
	}
	if sse {
		b.WriteString("data: ")
	}
	enc := json.NewEncoder(&b) // ends with a line break
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return err
	}
	if sse {
		b.WriteByte('\n')
	}
	_, err := w.Write(b.Bytes())
	return err
}

func cutText(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}
