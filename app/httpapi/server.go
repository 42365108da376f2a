// Package httpapi is the door at /v1: the same handler serves the core's unix
// socket, the window's asset handler and the loopback listener of `serve`. Calls
// return an id or an error; state reaches clients as numbered events on
// /v1/events. The OpenAPI description is at /openapi.json.
package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"

	"glasshouse/app/config"
	"glasshouse/backend/agent/turn"
	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/git"
	"glasshouse/backend/machine"
	"glasshouse/backend/project"
	"glasshouse/backend/session"
	"glasshouse/backend/terminal"
	"glasshouse/backend/tool"
	"glasshouse/vm/guest"
)

// Services are the use cases behind the door.
type Services struct {
	Log       *eventlog.Log
	Projects  *project.Service
	Sessions  *session.Service
	Fleet     *machine.Fleet
	Ledger    *approval.Ledger
	Terminals *terminal.Service
	Browsers  Browsers
	Models    Models
	Tools     func() []tool.Tool
	// Turns lets agents work.
	Turns *turn.Service
	// Doctor looks at what this computer can do.
	Doctor func(ctx context.Context) Doctor
	// Quit ends the core: refused while steps run unless now is set.
	Quit    func(ctx context.Context, now bool) error
	Version string
	// Image builds the guest image where it is missing and returns its hash.
	Image func(ctx context.Context) (string, error)
	// CancelImage gives up the calls of Image that run.
	CancelImage func() error
	// Watch counts one who follows transient events, of a project or ("") of all,
	// until the function it returns is called.
	Watch func(id domain.ProjectID) func()
	// Settings and Policy show what is on disk and in force now.
	Settings     func(ctx context.Context) (SettingsView, error)
	PutSettings  func(ctx context.Context, s config.Settings, by domain.Actor) (SettingsView, error)
	Policy       func(id domain.ProjectID) PolicyView
	ReloadPolicy func() error
	// LookAt says what a project made from a folder would begin with.
	LookAt func(ctx context.Context, dir string) (git.ImportResult, error)
	// Disk says how full the disk is; Trash and EmptyTrash are of what deleted projects left.
	Disk       func() Disk
	Trash      func(ctx context.Context) (Trash, error)
	EmptyTrash func(ctx context.Context, by domain.Actor) (Trash, error)
	// Argv lists what was started on the host.
	Argv func() []ProcessRecord
}

// ProcessRecord is one process that Glasshouse started outside the machines.
type ProcessRecord struct {
	Role    string   `json:"role"`
	Argv    []string `json:"argv"`
	StartAt int64    `json:"start_at"`
	Pid     int      `json:"pid"`
	Running bool     `json:"running"`
	Code    int      `json:"code"`
}

// Doctor says what works here.
type Doctor struct {
	Version string       `json:"version"`
	Data    string       `json:"data"`
	Lines   []DoctorLine `json:"lines"`
	OK      bool         `json:"ok"`
}

// DoctorLine is one thing that was looked at.
type DoctorLine struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text"`
	Fix  string `json:"fix,omitempty"`
}

type server struct{ Services }

// running is the guest of a project's machine. It boots nothing unless start is set:
// to look at something is no reason to.
func (s *server) running(ctx context.Context, p domain.Project, start bool) (guest.Guest, error) {
	if start {
		return s.Fleet.Ensure(ctx, p)
	}
	g, on := s.Fleet.Running(p.ID)
	if !on {
		return nil, domain.E(domain.CodeUnavailable, fmt.Sprintf("the machine of project %s is %s", p.Name, s.Fleet.State(p.ID)), "start it, or ask with start=true", nil)
	}
	return g, nil
}

// apiError is the one shape of an error at this door.
type apiError struct {
	Status  int              `json:"-"`
	Code    domain.ErrorCode `json:"code" doc:"a stable word for the kind of error"`
	What    string           `json:"what" doc:"what happened and why"`
	Hint    string           `json:"hint,omitempty" doc:"what to do next"`
	Pointer string           `json:"pointer,omitempty" doc:"JSON pointer to the part of the input that is wrong"`
	Details []string         `json:"details,omitempty"`
}

func (e *apiError) Error() string  { return e.What }
func (e *apiError) GetStatus() int { return e.Status }

var statusOf = map[domain.ErrorCode]int{
	domain.CodeInvalid: 422, domain.CodeNotFound: 404, domain.CodeConflict: 409, domain.CodeDenied: 403,
	domain.CodeUnavailable: 503, domain.CodeTooLarge: 413, domain.CodeInternal: 500,
}

// fail turns any error into the door's shape.
func fail(err error) error {
	if err == nil {
		return nil
	}
	var de *domain.Error
	if errors.As(err, &de) {
		what := de.What
		if de.Err != nil {
			what += ": " + de.Err.Error()
		}
		return &apiError{Status: statusOf[de.Code], Code: de.Code, What: what, Hint: de.Hint, Pointer: de.Pointer}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &apiError{Status: 503, Code: domain.CodeUnavailable, What: "the call was given up before it was done", Hint: "look at the session's events for what came of it"}
	}
	return &apiError{Status: 500, Code: domain.CodeInternal, What: err.Error(), Hint: "see the log in the data folder's logs/"}
}

func init() {
	// The library's own errors (a body that does not fit its schema) take our shape.
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		e := &apiError{Status: status, Code: domain.CodeInvalid, What: msg}
		for code, s := range statusOf {
			if s == status {
				e.Code = code
			}
		}
		for _, err := range errs {
			if err == nil {
				continue
			}
			var d huma.ErrorDetailer
			if errors.As(err, &d) {
				x := d.ErrorDetail()
				if e.Pointer == "" {
					e.Pointer = pointer(x.Location)
				}
				e.Details = append(e.Details, strings.TrimPrefix(pointer(x.Location)+": "+x.Message, ": "))
				continue
			}
			e.Details = append(e.Details, err.Error())
		}
		if len(e.Details) > 10 {
			e.Details = e.Details[:10]
		}
		if len(e.Details) > 0 {
			e.What = "what was sent does not fit: " + e.Details[0]
		}
		switch status {
		case http.StatusRequestEntityTooLarge:
			e.Hint = "send less; large things come as files of the workspace"
		case http.StatusUnsupportedMediaType:
			e.Hint = "send JSON, as application/json"
		default:
			e.Hint = "/openapi.json says what each call takes"
		}
		return e
	}
}

// pointer turns "body.args[0].x" into "/args/0/x".
func pointer(loc string) string {
	loc = strings.TrimPrefix(loc, "body")
	loc = strings.NewReplacer(".", "/", "[", "/", "]", "").Replace(loc)
	parts := strings.Split(loc, "/")
	for i, p := range parts {
		if config.LooksLikeKey(p) { // in the place of a name: it is not repeated
			parts[i] = "…"
		}
	}
	loc = strings.Join(parts, "/")
	if loc != "" && !strings.HasPrefix(loc, "/") {
		loc = "/" + loc
	}
	return loc
}

// Handler returns the door.
func Handler(s Services) http.Handler {
	h, _ := build(s)
	return h
}

// OpenAPI returns the description of the door as JSON.
func OpenAPI() ([]byte, error) {
	_, api := build(Services{})
	return json.MarshalIndent(api.OpenAPI(), "", "  ")
}

func build(s Services) (http.Handler, huma.API) {
	r := chi.NewMux()
	r.NotFound(func(w http.ResponseWriter, q *http.Request) {
		refuse(w, http.StatusNotFound, &apiError{Code: domain.CodeNotFound, What: fmt.Sprintf("there is no %q here", cutText(q.URL.Path)), Hint: "/openapi.json lists all calls"})
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, q *http.Request) {
		refuse(w, http.StatusMethodNotAllowed, &apiError{Code: domain.CodeInvalid, What: fmt.Sprintf("%q takes no %s", cutText(q.URL.Path), cutText(q.Method)), Hint: "/openapi.json lists all calls"})
	})
	cfg := huma.DefaultConfig("Glasshouse", "1")
	cfg.DocsPath, cfg.SchemasPath = "", ""
	cfg.CreateHooks = nil
	// Payloads of events have names of their own: two nouns may share a word.
	cfg.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", func(t reflect.Type, hint string) string {
		name := huma.DefaultSchemaNamer(t, hint)
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if strings.HasSuffix(t.PkgPath(), "/event") {
			return "Event" + name
		}
		return name
	})
	cfg.Info.Description = "Agents work inside machines; this is the person's door to them."
	api := humachi.New(r, cfg)
	sv := &server{s}
	sv.misc(api)
	sv.trash(api)
	sv.projects(api)
	sv.sessions(api)
	sv.files(api)
	sv.stepDiffs(api)
	sv.restores(api)
	sv.projectFiles(api)
	sv.approvals(api)
	sv.browsers(api)
	sv.reviews(api)
	sv.comments(api)
	sv.terminals(api)
	sv.settings(api)
	sv.models(api)
	sv.source(api)
	sv.events(api)
	payloads(api)
	return recovered(limitBody(r)), api
}

// recovered keeps a fault in one call from ending the core.
func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(v) // cuts the connection: what was sent so far is no whole answer
			}
			if v != nil {
				fmt.Fprintf(os.Stderr, "fault in %s %s: %v\n", r.Method, r.URL.Path, v)
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(500)
				_ = json.NewEncoder(w).Encode(&apiError{Code: domain.CodeInternal, What: fmt.Sprint("a fault inside Glasshouse: ", v), Hint: "please report it with the log"})
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// maxBody of any call; larger things come as files of the workspace.
const maxBody = 16 << 20

// A caller that still sends when its answer is there may never read it, so what it
// sends is taken, up to a bound, and thrown away.
func limitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all := r.Body // the server closes it; a closed one could not be read to its end
		r.Body = http.MaxBytesReader(nil, io.NopCloser(all), maxBody+1)
		next.ServeHTTP(w, r)
		_, _ = io.CopyN(io.Discard, all, 4*maxBody)
	})
}

// refuse answers outside the library's routes.
func refuse(w http.ResponseWriter, status int, e *apiError) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(e)
}

// Caller carries who calls: a person unless the client says otherwise. The door
// is reached by the user's own programs alone, so the word is taken.
type Caller struct {
	Actor string `header:"X-Glasshouse-Actor" enum:"person,demo,agent,script" default:"person" doc:"who acts"`
}

func (c Caller) actor() domain.Actor {
	if c.Actor == "" {
		return "person"
	}
	return domain.Actor(c.Actor)
}

// body wraps an answer for the library.
type body[T any] struct{ Body T }

func ok[T any](v T, err error) (*body[T], error) {
	if err != nil {
		return nil, fail(err)
	}
	return &body[T]{Body: v}, nil
}

type none struct{}

// op is a route's description.
func op(id, method, path, summary string) huma.Operation {
	tag := strings.SplitN(strings.TrimPrefix(path, "/v1/"), "/", 2)[0]
	return huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary, Tags: []string{tag}, MaxBodyBytes: maxBody}
}
