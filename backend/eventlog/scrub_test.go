package eventlog

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"glasshouse/backend/event"
	"glasshouse/backend/secret"
)

const aKey = `sk-live/"Canary"+0123456789=abcdefXYZ`

// encodings of the key, and the parts of each that must not be found. A key between
// other bytes shares the first and last characters of its base64 with them.
func encodings() map[string][2]string {
	mid := func(s string) string { return s[4 : len(s)-6] }
	j, _ := json.Marshal(aKey)
	b := base64.StdEncoding.EncodeToString([]byte("user:" + aKey))
	u := base64.RawURLEncoding.EncodeToString([]byte(aKey))
	return map[string][2]string{
		"plain": {aKey, aKey}, "base64": {b, mid(b[8:])}, "url base64": {u, mid(u)}, "hex": {hex.EncodeToString([]byte(aKey)), hex.EncodeToString([]byte(aKey))},
		"url": {url.QueryEscape(aKey), url.QueryEscape(aKey)}, "json": {string(j), string(j[1 : len(j)-1])},
	}
}

func scrubbed(t testing.TB) (*Log, string) {
	t.Helper()
	s := &secret.Scrubber{}
	s.Learn("model m", aKey)
	dir := t.TempDir()
	l, err := Open(dir, Options{Scrub: s.JSON, ScrubBlob: s.Writer})
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l, dir
}

// onDisk fails when a file of the log holds one of the texts.
func onDisk(t *testing.T, dir string, texts map[string]string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		for name, x := range texts {
			in, _ := json.Marshal(x) // as it would lie in the database
			if bytes.Contains(b, []byte(x)) || bytes.Contains(b, in[1:len(in)-1]) {
				t.Errorf("%s is in %s", name, path)
			}
		}
		return err
	})
	must(t, err)
}

func TestKnownKeysAreNotRecorded(t *testing.T) {
	ctx := context.Background()
	l, dir := scrubbed(t)
	sub := l.Subscribe(Filter{}, 0)
	defer sub.Close()
	gone := map[string]string{}
	for name, e := range encodings() {
		gone[name] = e[1]
		out, err := l.Append(ctx, msg("session:a", "before "+e[0]+" after"), msg("session:a", "same"))
		must(t, err)
		got := text(t, out[0])
		if strings.Contains(got, e[1]) || !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") || !strings.Contains(got, "[key of model m]") || text(t, out[1]) != "same" {
			t.Errorf("%s: %q", name, got)
		}
		must(t, l.Publish(event.New{Stream: event.HostStream, Origin: "host", Payload: &event.StepOutput{Text: "now " + e[0]}}))
		read, err := l.Read(ctx, Filter{AfterID: out[0].ID - 1, Limit: 1})
		must(t, err)
		if len(read) != 1 || string(read[0].Data) != string(out[0].Data) {
			t.Errorf("%s: read back %s", name, read[0].Data)
		}
		for range 3 {
			c, cancel := context.WithTimeout(ctx, time.Minute)
			ev, err := sub.Next(c)
			cancel()
			must(t, err)
			if strings.Contains(string(ev.Data), e[1]) || ev.Type == "step.output" && !strings.Contains(string(ev.Data), "[key of model m]") {
				t.Errorf("%s: readers are told %s", name, ev.Data)
			}
		}
	}
	// A replacement is a payload too.
	first, err := l.Read(ctx, Filter{Limit: 1})
	must(t, err)
	if _, err := l.Redact(ctx, first[0].ID, &event.Message{Text: aKey}, "person", "why "+aKey); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, l)
	must(t, l.Close())
	onDisk(t, dir, gone)
}

// A payload is as small as it was: what fits fits, key or no key.
func TestScrubbingMakesNothingTooLarge(t *testing.T) {
	s := &secret.Scrubber{}
	s.Learn("model with-a-long-name-of-forty-characters", "k1234567")
	l, err := Open(t.TempDir(), Options{Scrub: s.JSON})
	must(t, err)
	defer l.Close()
	if _, err := l.Append(context.Background(), msg("session:a", strings.Repeat("k1234567 ", (MaxPayload-200)/9))); err != nil {
		t.Error(err)
	}
}

func TestKnownKeysAreNotInArtefacts(t *testing.T) {
	ctx := context.Background()
	l, dir := scrubbed(t)
	gone := map[string]string{}
	noise := bytes.Repeat([]byte("\x00\xff\x89PNG text\n"), 12000) // over two reads of PutBlob
	for name, e := range encodings() {
		gone[name] = e[1]
		for _, at := range []int{0, 1, 64<<10 - 1, 64<<10 - len(e[0])/2, 64 << 10, 128<<10 - 3, len(noise)} {
			in := append(append(bytes.Clone(noise[:at]), e[0]...), noise[at:]...)
			b, err := l.PutBlob(ctx, bytes.NewReader(in), int64(len(in)))
			must(t, err)
			got, err := l.ReadBlob(b.Sha256, 1<<20)
			must(t, err)
			if b.Size != int64(len(in)) || len(got) != len(in) || bytes.Contains(got, []byte(e[1])) || !bytes.Equal(got[:at], noise[:at]) || !bytes.HasSuffix(got, noise[at:]) {
				t.Errorf("%s at %d: %d bytes of %d, %q", name, at, len(got), len(in), got[at:min(len(got), at+len(e[0]))])
			}
		}
		for _, size := range []int{1, 3, 50} {
			w, err := l.CreateBlob(int64(len(e[0])+20), "text/plain", "out")
			must(t, err)
			in := []byte("0123456789" + e[0] + strings.Repeat("x", 100))
			for rest := in; len(rest) > 0; rest = rest[min(size, len(rest)):] {
				_, err := w.Write(rest[:min(size, len(rest))])
				must(t, err)
			}
			if w.Size() != int64(len(e[0])+20) || w.Dropped() != 90 {
				t.Errorf("%s: %d kept, %d dropped", name, w.Size(), w.Dropped())
			}
			b, err := w.Commit()
			must(t, err)
			got, err := l.ReadBlob(b.Sha256, 1<<20)
			must(t, err)
			if b.Size != int64(len(got)) || len(got) != len(e[0])+20 || bytes.Contains(got, []byte(e[1])) || !bytes.HasPrefix(got, []byte("0123456789")) || !bytes.HasSuffix(got, []byte("xxxxxxxxxx")) {
				t.Errorf("%s in pieces of %d: %q", name, size, got)
			}
		}
	}
	w, err := l.CreateBlob(1000, "", "")
	must(t, err)
	_, err = w.Write([]byte(aKey[:20]))
	must(t, err)
	w.Abort()
	must(t, l.Close())
	onDisk(t, dir, gone)
}
