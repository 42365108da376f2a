package wire

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"glasshouse/backend/model"
)

// overPipe gives each connection of a client to serve, in a time that passes only while
// all wait.
func overPipe(t *testing.T, o Options, serve func(net.Conn)) *http.Client {
	c := NewClient(o)
	base := c.Transport.(*transport).base
	base.Proxy = nil
	base.DialContext = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			serve(theirs)
		}()
		return ours, nil
	}
	t.Cleanup(base.CloseIdleConnections)
	return c
}

// pieces is a body that takes its time.
type pieces struct {
	n     int
	every time.Duration
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.n == 0 {
		return 0, io.EOF
	}
	p.n--
	time.Sleep(p.every)
	return copy(b, "piece"), nil
}

// untilEnd reads a request with a body in chunks.
func untilEnd(c net.Conn) {
	var all []byte
	b := make([]byte, 4096)
	for !strings.HasSuffix(string(all), "0\r\n\r\n") {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		all = append(all, b[:n]...)
	}
}

func TestUsualTimes(t *testing.T) {
	const minute = time.Minute
	for name, c := range map[string]struct {
		body  *pieces
		serve func(net.Conn)
		read  func(io.Reader) // between what is read
		kind  model.ErrorKind
		text  string
		took  time.Duration
	}{
		"silence": {
			body:  &pieces{1, 0},
			serve: func(c net.Conn) { untilEnd(c); _, _ = io.Copy(io.Discard, c) },
			kind:  model.ErrTimeout, text: "did not begin to answer within 5m0s", took: 5 * minute,
		},
		"a slow beginning": {
			body: &pieces{1, 0},
			serve: func(c net.Conn) {
				untilEnd(c)
				time.Sleep(5*minute - time.Second)
				fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
			},
			took: 5*minute - time.Second,
		},
		"a header and then silence": {
			body: &pieces{1, 0},
			serve: func(c net.Conn) {
				untilEnd(c)
				fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
				_, _ = io.Copy(io.Discard, c)
			},
			kind: model.ErrTimeout, text: "did not begin to answer within 5m0s", took: 5 * minute,
		},
		"silence in mid-body": {
			body: &pieces{1, 0},
			serve: func(c net.Conn) {
				untilEnd(c)
				fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
				_, _ = io.Copy(io.Discard, c)
			},
			kind: model.ErrTimeout, text: "for 3m0s in the middle", took: 3 * minute,
		},
		"drops that never end": {
			body: &pieces{1, 0},
			serve: func(c net.Conn) {
				untilEnd(c)
				fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n")
				for {
					if _, err := c.Write([]byte("a")); err != nil {
						return
					}
					time.Sleep(2 * minute)
				}
			},
			kind: model.ErrTimeout, text: "more than 2h0m0s", took: 2 * time.Hour,
		},
		// An upload that moves is no silence of the server, and one that stands still is.
		"a long upload": {
			body: &pieces{15, minute},
			serve: func(c net.Conn) {
				untilEnd(c)
				fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
			},
			took: 15 * minute,
		},
		"an upload that nobody takes": {
			body:  &pieces{15, minute},
			serve: func(c net.Conn) { _, _ = io.ReadFull(c, make([]byte, 100)); time.Sleep(time.Hour) },
			kind:  model.ErrTimeout, text: "did not begin to answer within 5m0s", // some pieces are buffered before
		},
		// Nor is the time in which nobody reads.
		"a slow reader": {
			body: &pieces{1, 0},
			serve: func(c net.Conn) {
				untilEnd(c)
				fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
				time.Sleep(11 * minute)
				fmt.Fprint(c, "world")
			},
			read: func(r io.Reader) {
				_, _ = io.ReadFull(r, make([]byte, 5))
				time.Sleep(10 * minute)
			},
			took: 11 * minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := overPipe(t, Options{}, c.serve)
				defer client.CloseIdleConnections()
				begun := time.Now()
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://model.test/", io.NopCloser(c.body))
				if err != nil {
					t.Fatal(err)
				}
				resp, err := client.Do(req)
				if err == nil {
					defer resp.Body.Close()
					if c.read != nil {
						c.read(resp.Body)
					}
					_, err = io.ReadAll(resp.Body)
				}
				took := time.Since(begun)
				err = Error(t.Context(), err, "")
				if model.KindOf(err) != c.kind || c.kind == "" && err != nil || c.kind != "" && !strings.Contains(err.Error(), c.text) || c.took != 0 && took != c.took || took > 2*time.Hour {
					t.Errorf("after %s: %v; want %q %q after %s", took, err, c.kind, c.text, c.took)
				}
				time.Sleep(3 * time.Hour) // whoever still sleeps there ends
			})
		})
	}
}
