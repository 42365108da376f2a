package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// event of a stream of server-sent events.
type event struct {
	name string
	data []byte
}

// last reports whether it is the mark that nothing follows.
func (e event) last() bool { return string(bytes.TrimSpace(e.data)) == "[DONE]" }

// events reads server-sent events. The SDK's own reader lets an event grow without
// bound, passes a half one over in silence, and takes an HTML page for an empty stream.
type events struct {
	r     *bufio.Reader
	most  int    // bytes of an event
	cr    bool   // the line before ended in CR: an LF that follows belongs to it
	buf   []byte // of the line
	any   bool   // a field of the format was seen
	wrong bool   // a line was seen that is none of the format
}

// next returns io.EOF where the stream ends between two events, and io.ErrUnexpectedEOF
// where it ends within one.
func (e *events) next() (event, error) {
	var ev event
	has := false
	for {
		line, err := e.line()
		if errors.Is(err, io.EOF) && (has || ev.name != "") {
			err = io.ErrUnexpectedEOF
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			if e.wrong && !e.any {
				return event{}, protocol("the server answered with neither a stream of events nor JSON")
			}
			if errors.Is(err, io.ErrUnexpectedEOF) {
				return event{}, cutOff()
			}
		}
		if err != nil {
			return event{}, err
		}
		if len(line) == 0 {
			if has {
				return ev, nil
			}
			ev.name = ""
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if !has && string(bytes.TrimSpace(value)) == "[DONE]" {
				// Servers are known that leave out the empty line after it.
				return event{data: []byte("[DONE]")}, nil
			}
			if has {
				ev.data = append(ev.data, '\n')
			}
			ev.data = append(ev.data, value...)
			if len(ev.data) > e.most {
				return event{}, tooLarge("an event", e.most)
			}
			has, e.any = true, true
		case "event":
			ev.name, e.any = string(value), true
		case "error":
			// llama.cpp wrote its errors so.
			return event{name: "error", data: append([]byte(nil), value...)}, nil
		case "", "id", "retry":
		default:
			e.wrong = true
		}
	}
}

var fields = []string{"data", "event", "id", "retry", "error"}

// line ends with LF, CR LF or CR. The bytes are good until the next call.
func (e *events) line() ([]byte, error) {
	e.buf = e.buf[:0]
	for {
		if _, err := e.r.Peek(1); err != nil {
			if errors.Is(err, io.EOF) && len(e.buf) > 0 {
				if text, ok := bytes.CutPrefix(e.buf, []byte("data:")); ok && (event{data: text}).last() {
					return e.buf, nil // the last word, without its line end
				}
				e.wrong = e.wrong || !begun(string(e.buf))
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		b, _ := e.r.Peek(e.r.Buffered())
		if e.cr {
			e.cr = false
			if b[0] == '\n' {
				_, _ = e.r.Discard(1)
				continue
			}
		}
		i := bytes.IndexAny(b, "\r\n")
		if i < 0 {
			e.buf = append(e.buf, b...)
			_, _ = e.r.Discard(len(b))
		} else {
			e.buf = append(e.buf, b[:i]...)
			e.cr = b[i] == '\r'
			_, _ = e.r.Discard(i + 1)
		}
		if len(e.buf) > e.most {
			return nil, tooLarge("a line", e.most)
		}
		if i >= 0 {
			return bytes.TrimPrefix(e.buf, []byte("\ufeff")), nil
		}
	}
}

// begun reports whether s can be the beginning of a line of the format.
func begun(s string) bool {
	if strings.HasPrefix("\ufeff", s) {
		return true
	}
	s = strings.TrimPrefix(s, "\ufeff")
	name, _, whole := strings.Cut(s, ":")
	for _, f := range fields {
		if name == f || !whole && strings.HasPrefix(f, name) {
			return true
		}
	}
	return name == ""
}

// checkJSON tells a value that breaks off, which is a cut connection, from nonsense.
func checkJSON(b []byte) error {
	if json.Valid(b) {
		return nil
	}
	err := json.NewDecoder(bytes.NewReader(b)).Decode(new(json.RawMessage))
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return cutOff()
	}
	if err == nil {
		err = errors.New("something follows the value")
	}
	return protocol("the server sent what is no JSON: %v", err)
}
