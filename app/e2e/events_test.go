package e2e

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	_ "modernc.org/sqlite"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
)

// oddTexts are what a frame could trip over: its own syntax, line ends of all
// sorts, characters of one to four bytes.
var oddTexts = []string{
	"plain", "two\nlines", "\n\nid: 7\ndata: {}\n\n", "\r\n\r\n: comment\r\n", "\u2028\u2029", "žluťoučký kůň", "漢字かな交じり文", "👩‍👩‍👧‍👦🏳️‍🌈",
	"</script><img src=x onerror=alert(1)>", "\u202eevil\u202c", "\x1b[31m\x07", `"quotes" and \backslash`, "\x00nul",
}

// prefill writes n messages of a few sessions into the log of a core that does
// not run yet, and returns their texts by id.
func prefill(t *testing.T, w *World, n int) map[int64]string {
	t.Helper()
	if err := os.MkdirAll(w.Data, 0o711); err != nil {
		t.Fatal(err)
	}
	l, err := eventlog.Open(w.Data, eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	texts := map[int64]string{}
	rng := rand.New(rand.NewSource(1))
	for len(texts) < n {
		var batch []event.New
		for range min(1000, n-len(texts)) {
			text := strings.Repeat(oddTexts[rng.Intn(len(oddTexts))]+" ", 1+rng.Intn(8))
			if rng.Intn(500) == 0 {
				text = strings.Repeat("long 漢 ", 3000)
			}
			s := domain.SessionID(fmt.Sprintf("s-old%d", rng.Intn(5)))
			batch = append(batch, event.New{Stream: event.SessionStream(s), Origin: domain.OriginAgent, Actor: "agent", ProjectID: "p-old", SessionID: s,
				Payload: &event.Message{Role: "agent", Text: text}})
		}
		out, err := l.Append(context.Background(), batch...)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range out {
			texts[e.ID] = batch[i].Payload.(*event.Message).Text
		}
	}
	return texts
}

// storedRow is a row of the database, and what a client must see of it.
type storedRow struct {
	id    int64
	data  string
	frame string
}

// exact is an event as the door writes it, its payload byte for byte.
func exact(t *testing.T, e event.Envelope) string {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// database reads the log's table past the core.
func database(t *testing.T, w *World, where string, args ...any) []storedRow {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(w.Data, eventlog.FileName)+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query("SELECT id,stream,seq,at,type,origin,actor,project,session,step,data,lower(hex(hash)) FROM event WHERE "+where+" ORDER BY id", args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []storedRow
	for rows.Next() {
		var e event.Envelope
		var data string
		if err := rows.Scan(&e.ID, &e.Stream, &e.Seq, &e.At, &e.Type, &e.Origin, &e.Actor, &e.ProjectID, &e.SessionID, &e.StepID, &data, &e.Hash); err != nil {
			t.Fatal(err)
		}
		e.Data = json.RawMessage(data)
		out = append(out, storedRow{e.ID, data, exact(t, e)})
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// where a connection is cut.
const (
	cutInID = iota
	cutBetween
	cutInData
	cutInRune
	cutBeforeEnd
	cutAfter
	cutKinds
)

// cutter is a client that reads byte by byte and lets its connection drop at
// chosen bytes. It joins nothing and drops no repetition: only whole frames count.
type cutter struct {
	w      *World
	path   string
	ndjson bool
	rng    *rand.Rand
	frames []Frame
	last   int64
	cuts   [cutKinds]int
}

// run reads until a frame with id end (or later) was read whole.
func (c *cutter) run(t *testing.T, end int64) {
	t.Helper()
	for n := 0; c.last < end; n++ {
		if n > 20000 {
			t.Fatalf("no progress: at %d of %d", c.last, end)
		}
		kind := n % cutKinds
		if c.ndjson {
			kind = []int{cutInData, cutInRune, cutAfter}[n%3]
		}
		c.connect(t, kind, c.rng.Intn(60), end)
	}
}

func (c *cutter) connect(t *testing.T, kind, after int, end int64) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute) // against hanging
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://core"+c.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.last > 0 {
		req.Header.Set("Last-Event-ID", strconv.FormatInt(c.last, 10))
	}
	resp, err := c.w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		b, _ := io.ReadAll(resp.Body)
		t.Fatalf("%d %s", resp.StatusCode, b)
	}
	r := bufio.NewReaderSize(resp.Body, 64<<10)
	var line []byte
	var id int64
	var data string
	whole := 0
	cut := func(k int) bool {
		if whole < after || k != kind {
			return false
		}
		c.cuts[k]++
		return true
	}
	for c.last < end {
		b, err := r.ReadByte()
		if err != nil {
			t.Fatalf("the stream ended by itself after %d: %v", c.last, err)
		}
		line = append(line, b)
		inID, inData := bytes.HasPrefix(line, []byte("id: ")), bytes.HasPrefix(line, []byte("data: "))
		if c.ndjson {
			inData = line[0] == '{'
		}
		switch {
		case b != '\n' && inID && len(line) > 4 && cut(cutInID), b != '\n' && inData && len(line) > 60 && cut(cutInData):
			return
		case b >= 0xc0 && inData && cut(cutInRune):
			return
		}
		if b != '\n' {
			continue
		}
		text := string(line[:len(line)-1])
		line = line[:0]
		switch {
		case c.ndjson && text == "":
			continue
		case c.ndjson:
			var e struct {
				ID int64 `json:"id"`
			}
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				t.Fatalf("a line is no JSON: %v", err)
			}
			id, data = e.ID, text
		case strings.HasPrefix(text, "id: "):
			if id, err = strconv.ParseInt(text[4:], 10, 64); err != nil {
				t.Fatal(err)
			}
			if cut(cutBetween) {
				return
			}
			continue
		case strings.HasPrefix(text, "data: "):
			if data != "" {
				t.Fatalf("frame %d has two data lines", id)
			}
			data = text[6:]
			if cut(cutBeforeEnd) {
				return
			}
			continue
		case strings.HasPrefix(text, ":"):
			continue
		case text != "":
			t.Fatalf("a line that is no part of a frame: %q", text)
		case data == "":
			continue // after a comment
		}
		c.frames = append(c.frames, Frame{id, data})
		c.last, id, data = id, 0, ""
		whole++
		if cut(cutAfter) {
			return
		}
	}
}

// equal compares what a client put together with the database's rows.
func equal(t *testing.T, what string, got []Frame, want []storedRow) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d frames, the database has %d", what, len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if got[i].ID != want[i].id || got[i].Data != want[i].frame {
			t.Errorf("%s: frame %d is\n%d %s\nthe database has\n%d %s", what, i, got[i].ID, got[i].Data, want[i].id, want[i].frame)
			return
		}
		var e event.Envelope
		if err := json.Unmarshal([]byte(got[i].Data), &e); err != nil || !utf8.ValidString(got[i].Data) {
			t.Errorf("%s: frame %d is no JSON text: %v", what, i, err)
			return
		}
		if string(e.Data) != want[i].data {
			t.Errorf("%s: the payload of %d is %s, stored is %s", what, e.ID, e.Data, want[i].data)
			return
		}
	}
}

// TestEventStream reads more than ten thousand stored events, while others are
// being written, over connections that drop at every kind of byte.
func TestEventStream(t *testing.T) {
	onKind(t, "local")
	w := NewWorld(t, "local")
	texts := prefill(t, w, 12000)
	w.Start()
	p := w.Project("")
	s := w.Session(p)
	say := func(n, i int) {
		w.Call("POST", "/v1/sessions/"+s+"/messages", map[string]any{"text": fmt.Sprintf("live %d %d %s", n, i, oddTexts[i%len(oddTexts)])}, nil)
	}

	t.Run("slow readers hold up nobody", func(t *testing.T) {
		// None of them reads a byte while the writer writes: one that the writer
		// waited for would hang it. What waits for each is more than any buffer holds.
		var slow []*http.Response
		for range 4 {
			resp, err := w.http.Get("http://core/v1/events?after=0")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			slow = append(slow, resp)
		}
		var wg sync.WaitGroup
		for n := range 4 {
			wg.Go(func() {
				for i := range 100 {
					say(n, i)
				}
			})
		}
		wg.Wait()
		want := database(t, w, "1")
		for n, resp := range slow {
			var got []Frame
			sc := bufio.NewScanner(resp.Body)
			sc.Buffer(nil, 4<<20)
			var id int64
			for len(got) < len(want) && sc.Scan() {
				if v, ok := strings.CutPrefix(sc.Text(), "id: "); ok {
					id, _ = strconv.ParseInt(v, 10, 64)
				} else if v, ok := strings.CutPrefix(sc.Text(), "data: "); ok {
					got = append(got, Frame{id, v})
				}
			}
			equal(t, fmt.Sprintf("slow reader %d", n), got, want)
		}
	})

	for _, format := range []string{"sse", "ndjson"} {
		t.Run("cuts "+format, func(t *testing.T) {
			for seed := range seeds(1) {
				c := &cutter{w: w, path: "/v1/events?format=" + format, ndjson: format == "ndjson", rng: rand.New(rand.NewSource(int64(seed)))}
				// Half is there before, half comes while the reader reads.
				var wg sync.WaitGroup
				for n := range 4 {
					wg.Go(func() {
						for i := range 50 {
							say(n, i)
						}
					})
				}
				c.run(t, database(t, w, "1")[11000].id)
				wg.Wait()
				want := database(t, w, "1")
				c.run(t, want[len(want)-1].id)
				equal(t, format, c.frames, want)
				for id, text := range texts {
					f := c.frames[id-1]
					var e event.Envelope
					var m event.Message
					if err := errors.Join(json.Unmarshal([]byte(f.Data), &e), json.Unmarshal(e.Data, &m)); err != nil || m.Text != text {
						t.Fatalf("message %d reads %q, written was %q (%v)", id, m.Text, text, err)
					}
				}
				total := 0
				for k, n := range c.cuts {
					total += n
					if n == 0 && !(c.ndjson && (k == cutInID || k == cutBetween || k == cutBeforeEnd)) {
						t.Errorf("no cut of kind %d happened", k)
					}
				}
				t.Logf("%d frames over %d cuts: in id %d, between id and data %d, in data %d, in a character %d, before the end %d, after a frame %d",
					len(c.frames), total, c.cuts[0], c.cuts[1], c.cuts[2], c.cuts[3], c.cuts[4], c.cuts[5])
			}
		})
	}

	t.Run("filters", func(t *testing.T) {
		for q, where := range map[string]string{
			"session_id=s-old3":                "session='s-old3'",
			"session_id=" + s:                  "session='" + s + "'",
			"project_id=" + string(p.ID):       "project='" + string(p.ID) + "'",
			"types=core.started,machine.state": "type IN ('core.started','machine.state')",
			"session_id=s-old1&types=message":  "session='s-old1' AND type='message'",
			"session_id=nobody":                "0",
		} {
			want := database(t, w, where)
			if len(want) == 0 && q != "session_id=nobody" {
				t.Fatalf("the filter %s matches nothing: the test is blind", q)
			}
			for _, format := range []string{"sse", "ndjson"} {
				equal(t, q+" "+format, readAll(t, w, "/v1/events?follow=false&format="+format+"&"+q), want)
			}
		}
	})

	t.Run("a place that is none", func(t *testing.T) {
		var info struct {
			Latest int64 `json:"latest_event_id"`
		}
		w.Call("GET", "/v1/info", nil, &info)
		for _, q := range []string{"", "&format=ndjson", "&session_id=" + s} {
			err := w.Try("GET", fmt.Sprintf("/v1/events?after=%d%s", info.Latest+1000000, q), nil, nil)
			if e := new(apiErr); !errors.As(err, &e) || e.Status != 409 || e.Code != "conflict" || e.Hint == "" {
				t.Errorf("after the end: %v", err)
			}
		}
		for id, code := range map[string]string{"99999999": "conflict", "x": "invalid", "-1": "invalid", "9223372036854775808": "invalid"} {
			req, _ := http.NewRequest("GET", "http://core/v1/events", nil)
			req.Header.Set("Last-Event-ID", id)
			resp, err := w.http.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			var e apiErr
			_ = json.NewDecoder(resp.Body).Decode(&e)
			resp.Body.Close()
			if e.Code != code {
				t.Errorf("Last-Event-ID %q: %d %+v", id, resp.StatusCode, e)
			}
		}
	})

	t.Run("pages and the chain", func(t *testing.T) {
		var got []Frame
		for _, e := range w.Log(url.Values{}) {
			got = append(got, Frame{e.ID, exact(t, e)})
		}
		equal(t, "pages", got, database(t, w, "1"))
		if out, err := w.CLI("log", "verify"); err != nil || !strings.Contains(out, "the chain holds") {
			t.Errorf("%s %v", out, err)
		}
	})
}

// readAll reads a stream that ends by itself.
func readAll(t *testing.T, w *World, path string) (out []Frame) {
	t.Helper()
	resp, err := w.http.Get("http://core" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var id int64
	for line := range strings.SplitSeq(string(b), "\n") {
		if v, ok := strings.CutPrefix(line, "id: "); ok {
			id, _ = strconv.ParseInt(v, 10, 64)
		} else if v, ok := strings.CutPrefix(line, "data: "); ok {
			out = append(out, Frame{id, v})
		} else if strings.HasPrefix(line, "{") {
			var e event.Envelope
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			out = append(out, Frame{e.ID, line})
		}
	}
	return out
}
