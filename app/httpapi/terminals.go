package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/terminal"
)

// TerminalView is a person's terminal in a machine. What is in it is read from its output.
type TerminalView struct {
	ID    string              `json:"id"`
	Title string              `json:"title" doc:"what runs in it"`
	Exit  *event.TerminalExit `json:"exit,omitempty" doc:"how it ended; absent while it runs"`
}

// TerminalLine is one line of a terminal's output. The first line has an epoch, where
// the output begins and where it ends so far; then come pieces; the last has an exit.
type TerminalLine struct {
	Epoch  string              `json:"epoch,omitempty" doc:"names this run of the core; send it with input"`
	End    int64               `json:"end,omitempty" doc:"of the first line: what is before this offset was said earlier"`
	Offset int64               `json:"offset"`
	Lost   int64               `json:"lost,omitempty" doc:"bytes in front of this piece that are no longer kept"`
	Data   []byte              `json:"data,omitempty" doc:"as the program wrote it, base64"`
	Note   string              `json:"note,omitempty" doc:"something the person must know"`
	Exit   *event.TerminalExit `json:"exit,omitempty"`
}

func terminalView(t *terminal.Terminal) TerminalView {
	return TerminalView{ID: t.ID, Title: t.Title, Exit: t.Exit()}
}

// terminalPiece is how many bytes one line of output has at most.
const terminalPiece = 64 << 10

func (s *server) terminals(api huma.API) {
	type terminalOpenIn struct {
		Caller
		Project string `path:"project"`
		Body    struct {
			Session string   `json:"session_id,omitempty" maxLength:"96" doc:"on whose card connections made in it ask; else they ask on the project's"`
			Rows    int      `json:"rows" doc:"1 to 1000"`
			Cols    int      `json:"cols" doc:"1 to 2000"`
			Command []string `json:"command,omitempty" maxItems:"100" doc:"what runs in it; default: a login shell"`
		}
	}
	huma.Register(api, op("open-terminal", http.MethodPost, "/v1/projects/{project}/terminals", "Open a terminal in the machine, starting the machine where it is off"), func(ctx context.Context, in *terminalOpenIn) (*body[TerminalView], error) {
		p, err := s.Projects.Get(domain.ProjectID(in.Project))
		if err != nil {
			return nil, fail(err)
		}
		size, err := terminal.Size(in.Body.Rows, in.Body.Cols)
		if err != nil {
			return nil, fail(err)
		}
		if id := domain.SessionID(in.Body.Session); id != "" {
			if known, _ := s.Sessions.Known(p.ID, id, ""); !known {
				return nil, fail(domain.E(domain.CodeNotFound, "there is no such session in this project, or it has ended", "leave session_id out", nil))
			}
		}
		t, err := s.Terminals.Open(ctx, p, terminal.OpenRequest{Session: domain.SessionID(in.Body.Session), Argv: in.Body.Command, Size: size, Actor: in.actor()})
		if err != nil {
			return nil, fail(err)
		}
		return ok(terminalView(t), nil)
	})
	type listIn struct {
		Project string `path:"project"`
	}
	huma.Register(api, op("list-terminals", http.MethodGet, "/v1/projects/{project}/terminals", "The terminals of a project, oldest first: those that run, and those that ended and were not closed yet"), func(_ context.Context, in *listIn) (*body[[]TerminalView], error) {
		p, err := s.Projects.Get(domain.ProjectID(in.Project))
		if err != nil {
			return nil, fail(err)
		}
		out := []TerminalView{}
		for _, t := range s.Terminals.List(p.ID) {
			out = append(out, terminalView(t))
		}
		return ok(out, nil)
	})
	type outIn struct {
		ID   string `path:"id"`
		From int64  `query:"from" minimum:"0" doc:"go on at this offset"`
	}
	o := op("terminal-output", http.MethodGet, "/v1/terminals/{id}/output", "A terminal's output from an offset on, then live, as ndjson")
	o.Description = "Each line is a TerminalLine; an empty one is a sign of life. Any number of readers may follow; one that is slow misses what is no longer kept and is told how much."
	api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[TerminalLine](), true, "")
	huma.Register(api, o, func(_ context.Context, in *outIn) (*huma.StreamResponse, error) {
		t, err := s.Terminals.Get(in.ID)
		if err != nil {
			return nil, fail(err)
		}
		return &huma.StreamResponse{Body: func(c huma.Context) { s.terminalOutput(c, t, in.From) }}, nil
	})
	type terminalInputIn struct {
		ID   string `path:"id"`
		Body struct {
			Data   []byte `json:"data" doc:"what was typed, base64"`
			Epoch  string `json:"epoch,omitempty" maxLength:"96" doc:"of the output's first line"`
			Writer string `json:"writer,omitempty" maxLength:"96" doc:"who numbers the input"`
			Seq    int64  `json:"seq,omitempty" minimum:"0" doc:"1, 2, … of the writer: a call that is sent again is not handed on again"`
		}
	}
	huma.Register(api, op("terminal-input", http.MethodPost, "/v1/terminals/{id}/input", "Type into a terminal"), func(_ context.Context, in *terminalInputIn) (*body[none], error) {
		t, err := s.Terminals.Get(in.ID)
		if err != nil {
			return nil, fail(err)
		}
		if e := in.Body.Epoch; e != "" && e != s.Terminals.Epoch() {
			return nil, fail(domain.E(domain.CodeConflict, "Glasshouse was started again in the meantime; what was typed last may have arrived or not", "look at the output before you type it again", nil))
		}
		return ok(none{}, t.Input(in.Body.Writer, in.Body.Seq, in.Body.Data))
	})
	type terminalSizeIn struct {
		ID   string `path:"id"`
		Body struct {
			Rows int `json:"rows" doc:"1 to 1000"`
			Cols int `json:"cols" doc:"1 to 2000"`
		}
	}
	huma.Register(api, op("terminal-size", http.MethodPost, "/v1/terminals/{id}/size", "Set a terminal's size; the last one wins"), func(_ context.Context, in *terminalSizeIn) (*body[none], error) {
		t, err := s.Terminals.Get(in.ID)
		if err != nil {
			return nil, fail(err)
		}
		size, err := terminal.Size(in.Body.Rows, in.Body.Cols)
		if err == nil {
			err = t.Resize(size)
		}
		return ok(none{}, err)
	})
	type oneIn struct {
		ID string `path:"id"`
	}
	huma.Register(api, op("close-terminal", http.MethodDelete, "/v1/terminals/{id}", "End what runs in a terminal, with all its children, and forget it"), func(ctx context.Context, in *oneIn) (*body[none], error) {
		return ok(none{}, s.Terminals.Close(ctx, in.ID))
	})
}

func (s *server) terminalOutput(c huma.Context, t *terminal.Terminal, from int64) {
	ctx := c.Context()
	c.SetHeader("Content-Type", "application/x-ndjson")
	c.SetHeader("Cache-Control", "no-store")
	c.SetHeader("X-Accel-Buffering", "no")
	w := c.BodyWriter()
	enc := json.NewEncoder(w)
	line := func(l TerminalLine) bool {
		if enc.Encode(l) != nil {
			return false
		}
		if fl, ok := w.(http.Flusher); ok {
			fl.Flush()
		}
		return true
	}
	r := t.Read(from)
	if !line(TerminalLine{Epoch: s.Terminals.Epoch(), Offset: from, End: r.End}) {
		return
	}
	for {
		nctx, stop := context.WithTimeout(ctx, pingEvery)
		p, err := r.Next(nctx, terminalPiece)
		stop()
		switch {
		case err != nil || ctx.Err() != nil:
			return // cut, without an exit: the reader asks again
		case p == nil:
			if _, err := io.WriteString(w, "\n"); err != nil {
				return
			}
			if fl, ok := w.(http.Flusher); ok {
				fl.Flush()
			}
			continue
		}
		for _, n := range p.Notes {
			if !line(TerminalLine{Offset: p.Offset, Note: n}) {
				return
			}
		}
		if len(p.Data) > 0 && !line(TerminalLine{Offset: p.Offset, Lost: p.Lost, Data: p.Data}) {
			return
		}
		if p.Exit != nil {
			line(TerminalLine{Offset: p.Offset, Exit: p.Exit})
			return
		}
	}
}
