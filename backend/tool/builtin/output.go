package builtin

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"glasshouse/backend/event"
	"glasshouse/backend/tool"
	"glasshouse/vm/guest"
)

const (
	// keepHead and keepTail are how much of a stream is held in memory for the inline parts.
	keepHead = 16 << 10
	keepTail = 16 << 10
	// inline is how many bytes of JSON head and tail take each in step.ended.
	inline = 5 << 10
	// maxSpill is how much of a stream is kept as an artefact.
	maxSpill = 64 << 20
)

// stream takes one output stream: it passes text on, keeps the head and the tail,
// and puts all of it into an artefact once it is longer than that.
type stream struct {
	name   string
	stderr bool
	call   *tool.Call

	total   int64
	head    []byte
	tail    []byte
	partial []byte // bytes of a rune that is not complete yet
	at      int64  // offset of the next text that is passed on
	binary  bool
	blob    event.BlobWriter
	lost    error // why the artefact could not be kept
}

func (s *stream) write(p []byte) {
	if len(p) == 0 {
		return
	}
	if s.total < 8000 && bytes.IndexByte(p, 0) >= 0 {
		s.binary = true
	}
	if room := keepHead - len(s.head); room > 0 {
		s.head = append(s.head, p[:min(room, len(p))]...)
	}
	s.total += int64(len(p))
	s.tail = append(s.tail, p...)
	if len(s.tail) > 2*keepTail {
		s.tail = append(s.tail[:0], s.tail[len(s.tail)-keepTail:]...)
	}
	s.spill(p)
	s.pass(p)
}

// spill starts the artefact when the head is full; the head is what came before.
func (s *stream) spill(p []byte) {
	if s.call.Blobs == nil || s.lost != nil {
		return
	}
	if s.blob == nil {
		if s.total <= keepHead {
			return
		}
		w, err := s.call.Blobs.CreateBlob(maxSpill, "", s.name+".txt")
		if err != nil {
			s.lost = err
			return
		}
		s.blob = w
		before := s.total - int64(len(p))
		if _, err := w.Write(s.head[:min(before, int64(len(s.head)))]); err != nil {
			s.drop(err)
			return
		}
	}
	if _, err := s.blob.Write(p); err != nil {
		s.drop(err)
	}
}

func (s *stream) drop(err error) {
	s.lost = err
	s.blob.Abort()
	s.blob = nil
}

// pass hands text on, without cutting a rune that comes in two pieces.
func (s *stream) pass(p []byte) {
	if s.call.Output == nil {
		return
	}
	buf := append(s.partial, p...)
	n := len(whole(buf, false))
	s.emit(buf[:n])
	s.partial = append([]byte(nil), buf[n:]...)
}

func (s *stream) emit(p []byte) {
	for len(p) > 0 {
		n := min(len(p), 8<<10)
		for n < len(p) && n > 8<<10-4 && !utf8.RuneStart(p[n]) {
			n--
		}
		s.call.Output(event.StepOutput{Stderr: s.stderr, Offset: s.at, Text: clean(string(p[:n]))})
		s.at += int64(n)
		p = p[n:]
	}
}

// end makes what step.ended says of the stream.
func (s *stream) end(e guest.StreamEnd) *event.OutputStream {
	if s.call.Output != nil {
		s.emit(s.partial)
		s.partial = nil
	}
	if e.Total == 0 && s.total == 0 {
		if s.blob != nil {
			s.blob.Abort()
		}
		return nil
	}
	out := &event.OutputStream{Total: max(e.Total, s.total), Dropped: e.Dropped, Binary: s.binary}
	if s.blob != nil {
		b, err := s.blob.Commit()
		if err != nil {
			s.lost = err
		} else {
			out.Dropped = out.Total - b.Size // also what the guest kept of the end: it is not in the artefact
			if s.binary {
				b.Mime, b.Name = "application/octet-stream", s.name+".bin"
			} else {
				b.Mime = "text/plain; charset=utf-8"
			}
			out.Blob = &b
		}
	}
	if !s.binary {
		head, tail := s.text(e)
		if tail == "" {
			out.Head = headOf(head, 2*inline)
			if rest := head[len(out.Head):]; rest != "" {
				out.Head, out.Tail = headOf(head, inline), tailOf(head[len(headOf(head, inline)):], inline)
			}
		} else {
			out.Head, out.Tail = headOf(head, inline), tailOf(tail, inline)
		}
	}
	return out
}

// text is what is known of the stream: all of it in head, or its head and its tail.
func (s *stream) text(e guest.StreamEnd) (head, tail string) {
	end := s.tail
	if e.Dropped > 0 {
		end = e.Tail // the guest kept the last bytes of what it did not send
	}
	if e.Dropped == 0 && s.total <= int64(len(s.head)) {
		return clean(string(s.head)), ""
	}
	if e.Dropped == 0 && s.total <= int64(len(s.head)+len(end)) {
		// head and tail overlap or meet
		return clean(string(s.head) + string(end[int64(len(end))-(s.total-int64(len(s.head))):])), ""
	}
	return clean(string(whole(s.head, false))), clean(string(whole(end, true)))
}

// whole cuts off what a cut through a rune left at one end.
func whole(p []byte, start bool) []byte {
	if start {
		for i := 0; i < 3 && len(p) > 0 && !utf8.RuneStart(p[0]); i++ {
			p = p[1:]
		}
		return p
	}
	for i := 1; i <= 3 && i <= len(p); i++ {
		if utf8.RuneStart(p[len(p)-i]) {
			if p[len(p)-i] >= 0xc0 && !utf8.FullRune(p[len(p)-i:]) {
				p = p[:len(p)-i]
			}
			break
		}
	}
	return p
}

// forModel joins head and tail with a note between them, at most n bytes of JSON.
func (s *stream) forModel(e guest.StreamEnd, n int) string {
	if s.binary {
		return fmt.Sprintf("[%d bytes that are no text]", max(e.Total, s.total))
	}
	head, tail := s.text(e)
	if tail == "" {
		if h := headOf(head, n); h == head {
			return head
		}
		h := headOf(head, n*2/3)
		t := tailOf(head[len(h):], n/3)
		return h + s.gap(head, h, t) + t
	}
	h, t := headOf(head, n*2/3), tailOf(tail, n/3)
	total := max(e.Total, s.total)
	return h + fmt.Sprintf("\n[… %d bytes left out …]\n", total-int64(len(h))-int64(len(t))) + t
}

func (s *stream) gap(all, h, t string) string {
	return fmt.Sprintf("\n[… %d bytes, %s left out …]\n", len(all)-len(h)-len(t), plural(strings.Count(all[len(h):len(all)-len(t)], "\n"), "line", "lines"))
}
