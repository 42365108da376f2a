package cli

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
	"strings"
	"time"

	"glasshouse/app/config"
	"glasshouse/app/core"
	"glasshouse/backend/domain"
	"glasshouse/vm/proc"
)

// Client speaks to the core over its socket.
type Client struct {
	paths config.Paths
	http  *http.Client
	actor string
}

// socketClient returns a client for a core that may not run.
func socketClient(paths config.Paths) *Client {
	return &Client{paths: paths, http: &http.Client{Transport: SocketTransport(paths.Socket())}}
}

// SocketTransport carries HTTP to the core's socket, whatever the URL's host.
func SocketTransport(path string) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}, MaxIdleConnsPerHost: 8, DisableCompression: true}
}

// running reports whether a core answers.
func (c *Client) running(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	d := net.Dialer{}
	conn, err := d.DialContext(ctx, "unix", c.paths.Socket())
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// Connect returns a client, starting the core when none runs.
func Connect(ctx context.Context) (*Client, error) {
	paths, err := config.Default()
	if err != nil {
		return nil, err
	}
	c := socketClient(paths)
	if c.running(ctx) {
		return c, nil
	}
	if err := startCore(ctx, paths); err != nil {
		return nil, err
	}
	return c, nil
}

// startCore starts a detached core and waits until it answers.
func startCore(ctx context.Context, paths config.Paths) error {
	if err := paths.Prepare(); err != nil {
		return err
	}
	logPath := filepath.Join(paths.Logs(), "core.log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	at, _ := log.Seek(0, io.SeekEnd)
	// The runner's reaper ends with this command; the core's parent is then init.
	r := &proc.Runner{}
	start := func() (*proc.Process, error) {
		return r.Start(context.WithoutCancel(ctx), proc.Cmd{Role: "core", Path: proc.Self(), Args: []string{"core"}, Env: os.Environ(), Dir: "/", Stdout: log, Stderr: log, Detach: true})
	}
	p, err := start()
	if err != nil {
		return err
	}
	c := socketClient(paths)
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	for {
		// Where another command's core answers, this one's is not left behind half begun: it
		// would take the place of the other after a quit, when nobody wants one any more.
		if c.running(ctx) {
			if pid, err := core.Holder(paths); err == nil && pid == p.Pid() {
				return nil
			}
		}
		select {
		case <-p.Done():
			if c.running(ctx) {
				return nil
			}
			code, _ := p.Wait()
			if code != coreTaken {
				why := tail(logPath, at)
				if why == "" { // it was killed, for one
					why = fmt.Sprintf("its process ended with code %d and said nothing", code)
				}
				return domain.E(domain.CodeUnavailable, "the core did not start: "+why, "try again; see "+logPath, nil)
			}
			// Another command started one at the same moment. It will answer, or end and
			// leave the place.
			time.Sleep(100 * time.Millisecond)
			if c.running(ctx) {
				return nil
			}
			if p, err = start(); err != nil {
				return err
			}
		case <-deadline.C:
			return domain.E(domain.CodeUnavailable, "the core does not answer after two minutes", "see "+logPath, nil)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func tail(path string, from int64) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return err.Error()
	}
	b, _ := io.ReadAll(io.LimitReader(f, 8000))
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if len(lines) > 5 {
		lines = lines[len(lines)-5:]
	}
	return strings.Join(lines, "\n")
}

// remoteError is an error the core answered with.
type remoteError struct {
	Status  int
	Code    domain.ErrorCode `json:"code"`
	What    string           `json:"what"`
	Hint    string           `json:"hint"`
	Pointer string           `json:"pointer"`
	Details []string         `json:"details"`
}

func (e *remoteError) Error() string {
	s := e.What
	if e.Pointer != "" && !strings.Contains(s, e.Pointer) {
		s = e.Pointer + ": " + s
	}
	for _, d := range e.Details {
		s += "\n  " + d
	}
	if e.Hint != "" {
		s += "\n  " + e.Hint
	}
	return s
}

// open sends a request and returns the answer's body; the caller closes it.
func (c *Client) open(ctx context.Context, method string, path at, q url.Values, in any) (io.ReadCloser, error) {
	var rd io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		rd = bytes.NewReader(b)
	}
	u, err := path.url()
	if err != nil {
		return nil, err
	}
	if len(q) > 0 {
		u += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, rd)
	if err != nil {
		return nil, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.actor != "" {
		req.Header.Set("X-Glasshouse-Actor", c.actor)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			return nil, domain.E(domain.CodeUnavailable, "the core does not answer", "run the command again to start it; see "+filepath.Join(c.paths.Logs(), "core.log"), err)
		}
		return nil, err
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		e := &remoteError{Status: resp.StatusCode}
		if json.Unmarshal(b, e) != nil || e.What == "" {
			e.What = fmt.Sprintf("the core answered %s: %s", resp.Status, strings.TrimSpace(string(b)))
		}
		return nil, e
	}
	return resp.Body, nil
}

// call sends a request and decodes the answer into out (nil = discard).
func (c *Client) call(ctx context.Context, method string, path at, q url.Values, in, out any) error {
	b, err := c.open(ctx, method, path, q, in)
	if err != nil {
		return err
	}
	defer b.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, b)
		return err
	}
	return json.NewDecoder(b).Decode(out)
}

// projectID returns the id of a project given by id or name; none given = all.
func (c *Client) projectID(ctx context.Context, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	var p domain.Project
	err := c.get(ctx, at{"projects", name}, nil, &p)
	return string(p.ID), err
}

// projectNames returns the names of the projects there are, by id.
func (c *Client) projectNames(ctx context.Context) (func(domain.ProjectID) string, error) {
	var ps []domain.Project
	if err := c.get(ctx, at{"projects"}, nil, &ps); err != nil {
		return nil, err
	}
	names := map[domain.ProjectID]string{}
	for _, p := range ps {
		names[p.ID] = p.Name
	}
	return func(id domain.ProjectID) string {
		if n := names[id]; n != "" {
			return one(n)
		}
		return string(id) // deleted
	}, nil
}

func (c *Client) get(ctx context.Context, path at, q url.Values, out any) error {
	return c.call(ctx, http.MethodGet, path, q, nil, out)
}

func (c *Client) post(ctx context.Context, path at, q url.Values, in, out any) error {
	if in == nil {
		in = struct{}{}
	}
	return c.call(ctx, http.MethodPost, path, q, in, out)
}
