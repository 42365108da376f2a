package secret_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"testing"

	"glasshouse/backend/secret"
)

// keys of the lengths and characters that providers give out.
var keys = []string{
	"sk-0Af93kLm",
	"sk-test-0123456789abcdefGHIJ",
	"sk-proj-" + strings.Repeat("aB3_xY-9", 19) + "zQ4w",
	"AKIA/with+every=thing&odd\"in\\it<>%41",
	"0123456789abcdef0123456789abcdef",
}

func percent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

func inJSON(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b[1 : len(b)-1])
}

// forms a key leaks in.
func forms(key string) map[string]string {
	f := map[string]string{
		"plain": key, "json": inJSON(key), "json in json": inJSON(inJSON(key)), "query": url.QueryEscape(key), "path": url.PathEscape(key), "every byte": percent(key),
		"hex": hex.EncodeToString([]byte(key)), "big hex": strings.ToUpper(hex.EncodeToString([]byte(key))),
	}
	for name, enc := range map[string]*base64.Encoding{"std": base64.StdEncoding, "raw std": base64.RawStdEncoding, "url": base64.URLEncoding, "raw url": base64.RawURLEncoding} {
		for lead := range 3 {
			f[fmt.Sprintf("%s with %d before", name, lead)] = enc.EncodeToString([]byte("::"[:lead] + key + "\n"))
		}
	}
	return f
}

func learned(t testing.TB, keys ...string) *secret.Scrubber {
	t.Helper()
	s := &secret.Scrubber{}
	for i, k := range keys {
		if !s.Learn(fmt.Sprintf("model m%d", i), k) {
			t.Fatalf("%q is not looked for", k)
		}
	}
	return s
}

// leaks reports whether a part of the key worth having is left in any form.
func leaks(text, key string) bool {
	n := min(len(key), 24)
	for i := 0; i+n <= len(key); i++ {
		if strings.Contains(text, key[i:i+n]) {
			return true
		}
	}
	for _, f := range forms(key) {
		n := min(len(f)-4, 40) // base64 shares its last characters with what is beside
		for i := 0; i+n <= len(f); i++ {
			if strings.Contains(text, f[i:i+n]) {
				return true
			}
		}
	}
	return false
}

func TestTextInEveryForm(t *testing.T) {
	s := learned(t, keys...)
	for i, key := range keys {
		for name, f := range forms(key) {
			for _, around := range []string{"%s", "token=%s&x=1", "x%sx", "\\n%s\\n", "%%20%s%%20", `{"a":"%s"}`} {
				in := fmt.Sprintf(around, f)
				got := s.Text(in)
				if leaks(got, key) || !strings.Contains(got, "[key") {
					t.Errorf("key %d, %s: %q became %q", i, name, in, got)
				}
				if len(got) > len(in) {
					t.Errorf("key %d, %s: longer than before", i, name)
				}
			}
		}
	}
	if got := s.Text("curl -H 'Authorization: Bearer " + keys[1] + "'"); got != "curl -H 'Authorization: Bearer [key of model m1]'" {
		t.Errorf("%q", got)
	}
	if got := s.Text("two: " + keys[0] + keys[0] + "."); got != "two: [key][key]." {
		t.Errorf("%q", got)
	}
}

// What a program wraps or cuts gives no more away than a short end.
func TestPartsOfALongKey(t *testing.T) {
	key := keys[2]
	s := learned(t, keys...)
	b := base64.StdEncoding.EncodeToString([]byte("key: " + key + "\n"))
	for _, width := range []int{64, 76} {
		var lines []string
		for rest := b; rest != ""; rest = rest[min(width, len(rest)):] {
			lines = append(lines, rest[:min(width, len(rest))])
		}
		got := s.Text(strings.Join(lines, "\n"))
		for _, line := range lines[1 : len(lines)-1] {
			if strings.Contains(got, line[:20]) || strings.Contains(got, line[20:40]) {
				t.Errorf("in lines of %d: %q is left in %q", width, line, got)
			}
		}
	}
	for _, part := range []string{key[:100], key[60:], key[40:80]} {
		if got := s.Text("…" + part + "…"); strings.Contains(got, part[10:30]) {
			t.Errorf("%q stays in %q", part, got)
		}
	}
}

func TestOtherTextStays(t *testing.T) {
	s := learned(t, keys...)
	none := &secret.Scrubber{}
	for _, text := range []string{"", "x", "sk-test-", "sk-test-0123456789abcdefGHI", "sk-proj-aB3_xY-", "100 %", "%41%4", "\\u00", "\\", strings.Repeat("ab", 5000), "\xff\xfe\x00", "0123456789abcdef"} {
		if got := s.Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
		if got := none.Text(text + keys[0]); got != text+keys[0] {
			t.Errorf("who knows nothing changed %q", got)
		}
	}
	for _, v := range []string{"", "short", "sk-1234", "localhost", "password", "lmstudio"} {
		if none.Learn("model x", v) {
			t.Errorf("%q is looked for", v)
		}
	}
	if got := none.Text("the password of localhost"); got != "the password of localhost" {
		t.Errorf("%q", got)
	}
}

func TestMarkIsHarmless(t *testing.T) {
	s := &secret.Scrubber{}
	s.Learn("model \"x\"\n<b>", keys[2])
	got := s.JSON(json.RawMessage(`{"a":"` + keys[2] + `"}`))
	if !json.Valid(got) || string(got) != `{"a":"[key of model _x___b_]"}` {
		t.Errorf("%s", got)
	}
}

func TestJSONStaysOfItsShape(t *testing.T) {
	s := learned(t, append([]string{"nA1bC2dE3f", "shape_of_a_name"}, keys...)...)
	type payload struct {
		Text  string          `json:"text"`
		Name  string          `json:"shape_of_a_name"`
		Blob  []byte          `json:"blob"`
		Args  json.RawMessage `json:"args"`
		Plain int             `json:"plain"`
	}
	for i, key := range keys {
		p := payload{Text: "a\n" + key + "\té\u2028", Name: "x", Blob: []byte("\x00\xff" + key + "\x00tail"), Args: json.RawMessage(`{"argv":["echo",` + quote(key) + `],"` + inJSON(key) + `":1,"deep":` + quote(quote(key)) + `}`), Plain: 7}
		in, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		out := s.JSON(in)
		var got payload
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("key %d: %v: %s", i, err, out)
		}
		if leaks(string(out), key) || bytes.Contains(got.Blob, []byte(key)) {
			t.Errorf("key %d: %s", i, out)
		}
		if len(got.Blob) != len(p.Blob) || !bytes.HasSuffix(got.Blob, []byte("\x00tail")) || got.Name != "x" || got.Plain != 7 || !strings.HasPrefix(got.Text, "a\n[key") || !strings.HasSuffix(got.Text, "\té\u2028") {
			t.Errorf("key %d: %+v", i, got)
		}
		if len(out) > len(in) {
			t.Errorf("key %d: longer than before", i)
		}
		var args map[string]any
		if err := json.Unmarshal(got.Args, &args); err != nil || len(args) != 3 {
			t.Errorf("key %d: %v %v", i, args, err)
		}
	}
	// An escape that ends where a key begins is not torn; a name of ours stays.
	in := json.RawMessage(`{"t":"x\nA1bC2dE3f","u":"\\nA1bC2dE3f","shape_of_a_name":"shape_of_a_name","\u006eA1bC2dE3f":1}`)
	if got := s.JSON(in); string(got) != `{"t":"x\nA1bC2dE3f","u":"\\[key]","shape_of_a_name":"[key]","[key]":1}` {
		t.Errorf("%s", got)
	}
	// Written in another way than any encoder does.
	if got := s.JSON(json.RawMessage(`{"t":"\u0073k-\u0074est-0123456789abcdefGHIJ"}`)); leaks(string(got), keys[1]) || !json.Valid(got) || string(got) != `{"t":"[key of model m3]"}` {
		t.Errorf("%s", got)
	}
	same := json.RawMessage(`{"a":[1,2.5,null,true,"é\"\\"],"b":{}}`)
	if got := s.JSON(same); string(got) != string(same) {
		t.Errorf("%s", got)
	}
}

func quote(s string) string { return `"` + inJSON(s) + `"` }

// FuzzJSON: whatever comes, valid stays valid and the key is gone.
func FuzzJSON(f *testing.F) {
	f.Add("before", "after", 3)
	f.Add("\\", "\"", 0)
	f.Add("%4", "1\\u00", 1)
	s := learned(f, keys...)
	f.Fuzz(func(t *testing.T, before, after string, n int) {
		key := keys[(n%len(keys)+len(keys))%len(keys)]
		in, err := json.Marshal(map[string]any{before: before + key + after, "raw": []byte(before + key + after)})
		if err != nil {
			t.Skip("no JSON can hold it: " + err.Error())
		}
		out := s.JSON(in)
		var got map[string]string
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		for _, v := range got {
			if strings.Contains(v, key) || strings.Contains(v, base64.StdEncoding.EncodeToString([]byte(key))) {
				t.Errorf("%q", v)
			}
		}
	})
}

func TestWriterAcrossEveryBorder(t *testing.T) {
	s := learned(t, keys...)
	for i, key := range keys {
		for name, f := range forms(key) {
			if name == "every byte" {
				continue // of bytes that are no text, only what programs write is looked for
			}
			in := strings.Repeat("\x00\xffPNG", 40) + f + strings.Repeat("tail ", 40)
			for _, size := range []int{1, 2, 7, 64, 300, 1 << 20} {
				var out bytes.Buffer
				w := s.Writer(&out)
				for rest := []byte(in); len(rest) > 0; rest = rest[min(size, len(rest)):] {
					if n, err := w.Write(rest[:min(size, len(rest))]); err != nil || n != min(size, len(rest)) {
						t.Fatal(n, err)
					}
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				if out.Len() != len(in) || leaks(out.String(), key) || !strings.HasSuffix(out.String(), strings.Repeat("tail ", 30)) || !strings.HasPrefix(out.String(), strings.Repeat("\x00\xffPNG", 40)) {
					t.Errorf("key %d, %s in pieces of %d: %d bytes of %d: %q", i, name, size, out.Len(), len(in), out.String())
				}
			}
		}
	}
}

type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

func TestWriterTellsAFullDisk(t *testing.T) {
	w := learned(t, keys...).Writer(&full{left: 4000})
	var err error
	for range 10 {
		if _, e := w.Write(make([]byte, 1000)); e != nil {
			err = e
		}
	}
	if err == nil || w.Close() == nil {
		t.Error("it went unsaid")
	}
}

// A value may be learned while others scrub.
func TestLearnWhileScrubbing(t *testing.T) {
	s := &secret.Scrubber{}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 20 {
				s.Learn("model x", fmt.Sprintf("sk-%d-%d-0123456789abcdef", i, n))
			}
		})
		wg.Go(func() {
			w := s.Writer(io.Discard)
			for n := range 50 {
				k := fmt.Sprintf("sk-%d-%d-0123456789abcdef", i, n%20)
				s.Text(k)
				s.JSON(json.RawMessage(`{"a":"` + k + `"}`))
				_, _ = w.Write([]byte(k))
			}
			_ = w.Close()
		})
	}
	wg.Wait()
	if got := s.Text("sk-3-19-0123456789abcdef"); got != "[key of model x]" {
		t.Errorf("%q", got)
	}
}

// payload of the largest size, as a build's output is: letters, escapes, no key.
func payload(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	words := []string{"glasshouse/backend/session", "\x1b[32mok\x1b[0m", "=== RUN", "TestTurn", "0.02s", "\n", "error:", "é", "4f2a9c", "(cached)"}
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(words[r.IntN(len(words))] + " ")
	}
	out, _ := json.Marshal(map[string]string{"text": b.String()[:n-20]})
	return out
}

// The cost of a payload of 64 KiB: with nothing known, with many keys known and none
// in it, and with one in it.
func BenchmarkJSON(b *testing.B) {
	plain := payload(64 << 10)
	with := bytes.Replace(plain, []byte("TestTurn TestTurn"), []byte(keys[1]), 1)
	if bytes.Equal(plain, with) {
		with = append(bytes.TrimSuffix(bytes.Clone(plain), []byte(`"}`)), []byte(keys[1]+`"}`)...)
	}
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("sk-proj-%s%04d", strings.Repeat("aB3_xY-9", 19), i*7919))
	}
	for name, bench := range map[string]struct {
		s  *secret.Scrubber
		in []byte
	}{
		"nothing known": {&secret.Scrubber{}, plain}, "5 keys": {learned(b, keys...), plain}, "20 long keys": {learned(b, many...), plain}, "found": {learned(b, keys...), with},
		"small event, 5 keys": {learned(b, keys...), payload(400)},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(bench.in)))
			for b.Loop() {
				bench.s.JSON(bench.in)
			}
		})
	}
}

func BenchmarkWriter(b *testing.B) {
	in := payload(64 << 10)
	w := learned(b, keys...).Writer(io.Discard)
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		_, _ = w.Write(in)
	}
}
