package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/vm/proc"
)

// size of both machines.
const (
	cpus      = 2
	memoryMiB = 2048
	diskGiB   = 16
)

// core is an installation of Glasshouse with a core of its own.
type core struct {
	bin  string
	env  []string
	data string
	run  *proc.Runner
	http *http.Client
	proc *proc.Process
	log  string
}

func newCore(run *proc.Runner, bin, dir string) *core {
	c := &core{bin: filepath.Join(bin, "glasshouse"), data: filepath.Join(dir, "d"), run: run, log: filepath.Join(dir, "core.log")}
	c.env = append(os.Environ(), "GLASSHOUSE_DATA="+c.data, "GLASSHOUSE_CONFIG="+filepath.Join(dir, "c"), "GLASSHOUSE_LIBEXEC="+bin)
	c.http = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(c.data, "core.sock"))
	}, DisableCompression: true}}
	return c
}

// start starts the core and waits until it answers.
func (c *core) start(ctx context.Context) error {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// Detached, for a signal to us must reach it through clean, in order.
	if c.proc, err = c.run.Start(ctx, proc.Cmd{Role: "bench", Path: c.bin, Args: []string{"core"}, Env: c.env, Dir: "/", Stdout: log, Stderr: log, Detach: true}); err != nil {
		return err
	}
	for {
		if c.call(ctx, http.MethodGet, "/v1/info", nil, nil) == nil {
			return nil
		}
		select {
		case <-c.proc.Done():
			b, _ := os.ReadFile(c.log)
			return fmt.Errorf("the core ended: %s", b)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// quit powers everything off and waits for the core's end.
func (c *core) quit(ctx context.Context) error {
	if c.proc == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err := c.call(ctx, http.MethodPost, "/v1/quit", map[string]bool{"now": true}, nil)
	select {
	case <-c.proc.Done():
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("the core does not end: %w", context.Cause(ctx)), err)
	}
}

// call sends one request to the core's socket.
func (c *core) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://core"+path, body)
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, b)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

// image builds the guest image where it is missing and returns its hash.
func (c *core) image(ctx context.Context) (string, error) {
	var v httpapi.ImageView
	return v.Hash, errFirst(c.call(ctx, http.MethodPost, "/v1/image", nil, &v), func() error {
		if v.Hash == "" {
			return errors.New("the core names no image")
		}
		return nil
	})
}

func errFirst(err error, next func() error) error {
	if err != nil {
		return err
	}
	return next()
}

// machine is a project's machine with a session in it.
type machine struct {
	project string
	session string
	path    string // of its executions
}

// create makes a project from nothing, starts its machine and runs a first command.
func (c *core) create(ctx context.Context, name string) (machine, time.Duration, error) {
	var m machine
	start := time.Now()
	var p httpapi.ProjectView
	if err := c.call(ctx, http.MethodPost, "/v1/projects", httpapi.NewProject{Name: name, Kind: "lima", CPUs: cpus, MemoryMiB: memoryMiB, DiskGiB: diskGiB}, &p); err != nil {
		return m, 0, err
	}
	m.project = string(p.ID)
	if err := c.open(ctx, &m); err != nil {
		return m, 0, err
	}
	_, err := c.exec(ctx, m, "ended")
	return m, time.Since(start), err
}

// open starts a session in a project.
func (c *core) open(ctx context.Context, m *machine) error {
	var s httpapi.SessionAnswer
	if err := c.call(ctx, http.MethodPost, "/v1/sessions", map[string]any{"project_id": m.project, "title": "bench"}, &s); err != nil {
		return err
	}
	m.session = string(s.ID)
	m.path = "/v1/sessions/" + m.session + "/exec"
	return nil
}

func (c *core) remove(ctx context.Context, m machine) error {
	return c.call(ctx, http.MethodDelete, "/v1/projects/"+m.project, nil, nil)
}

// power starts or stops a project's machine.
func (c *core) power(ctx context.Context, m machine, what string) error {
	return c.call(ctx, http.MethodPost, "/v1/projects/"+m.project+"/machine/"+what, nil, nil)
}

// noop is the command that all ways run.
const noop = "/bin/true"

// exec runs the no-op through the door and checks its outcome.
func (c *core) exec(ctx context.Context, m machine, wait string) (string, error) {
	var a httpapi.ExecAnswer
	if err := c.call(ctx, http.MethodPost, m.path+"?wait="+wait, map[string]any{"argv": []string{noop}}, &a); err != nil {
		return "", err
	}
	if a.Outcome != domain.OutcomeOK || a.ExitCode == nil || *a.ExitCode != 0 {
		return "", fmt.Errorf("%s ended as %+v", noop, a)
	}
	return string(a.ExecutionID), nil
}

// sealed waits until a step is sealed, so that its checkpoint is not going on
// while something else is measured.
func (c *core) sealed(ctx context.Context, m machine, step string) error {
	return c.call(ctx, http.MethodGet, "/v1/sessions/"+m.session+"/steps/"+step+"?wait=sealed", nil, nil)
}

// The events of a step, in order. All of them up to the end are stored before the
// door answers with the end.
var (
	untilEnded  = []event.Type{"step.requested", "step.decided", "step.started", "step.ended"}
	untilSealed = append(slices.Clone(untilEnded), "step.sealed")
)

// stored checks that the log holds exactly these events of a step, in this order.
// A step that is expected to have ended may be sealed already.
func (c *core) stored(ctx context.Context, m machine, step string, want []event.Type) error {
	got, err := c.events(ctx, m, step)
	if err != nil {
		return err
	}
	if len(want) == len(untilEnded) && len(got) == len(untilSealed) {
		want = untilSealed
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("the log holds %v of step %s, not %v", got, step, want)
	}
	return nil
}

// steps counts a session's sealed steps and checks that each has all its events.
func (c *core) steps(ctx context.Context, m machine, want int) error {
	got, err := c.events(ctx, m, "")
	if err != nil {
		return err
	}
	n := map[event.Type]int{}
	for _, t := range got {
		n[t]++
	}
	for _, t := range untilSealed {
		if n[t] != want {
			return fmt.Errorf("the log holds %d events %s of %d executions", n[t], t, want)
		}
	}
	return nil
}

// events lists the types of a step's events, or with "" of all steps of the session.
func (c *core) events(ctx context.Context, m machine, step string) ([]event.Type, error) {
	var out []event.Type
	q := url.Values{"session_id": {m.session}, "limit": {"5000"}}
	if step != "" {
		q.Set("step_id", step)
	}
	var page []event.Envelope
	if err := c.call(ctx, http.MethodGet, "/v1/log?"+q.Encode(), nil, &page); err != nil {
		return nil, err
	}
	for _, e := range page {
		if e.StepID != "" {
			out = append(out, e.Type)
		}
	}
	return out, nil
}

// cli runs the no-op by the command line.
func (c *core) cli(ctx context.Context, m machine) error {
	_, err := c.run.Run(ctx, proc.Cmd{Role: "bench", Path: c.bin, Env: c.env, Dir: "/", Args: []string{"exec", "--session", m.session, "--", noop}})
	return err
}
