package wire_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"glasshouse/backend/model"
	"glasshouse/backend/model/wire"
)

// percent writes every byte as in a URL.
func percent(s string, form string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, form, s[i])
	}
	return b.String()
}

func TestScrub(t *testing.T) {
	keys := []string{
		"sk-test-0123456789abcdef",
		"sk/te+st=0123456789/abc_-%41\\\"&<>",
		"12345678",
		"a key with spaces",
	}
	for _, key := range keys {
		forms := map[string]string{
			"plain":       key,
			"query":       url.QueryEscape(key),
			"path":        url.PathEscape(key),
			"all percent": percent(key, "%%%02X"),
			"low percent": percent(key, "%%%02x"),
			"all unicode": percent(key, "\\u%04x"),
			"big unicode": percent(key, "\\u%04X"),
			"hex":         hex.EncodeToString([]byte(key)),
			"big hex":     strings.ToUpper(hex.EncodeToString([]byte(key))),
		}
		j, err := json.Marshal(key)
		if err != nil {
			t.Fatal(err)
		}
		forms["json"] = string(j[1 : len(j)-1])
		var plainJSON bytes.Buffer
		e := json.NewEncoder(&plainJSON)
		e.SetEscapeHTML(false)
		_ = e.Encode(key)
		forms["json without html"] = strings.Trim(plainJSON.String(), "\n\"")
		for name, form := range forms {
			for _, around := range []string{"%s", "before %s after", "x%sx", `{"error":"bad key %s, %[1]s"}`} {
				text := fmt.Sprintf(around, form)
				want := fmt.Sprintf(around, "[key]")
				if got := wire.Scrub(text, key); got != strings.Split(want, "%!(EXTRA")[0] {
					t.Errorf("%s of %q: %q became %q, want %q", name, key, text, got, want)
				}
			}
		}
		for name, enc := range map[string]*base64.Encoding{"std": base64.StdEncoding, "rawstd": base64.RawStdEncoding, "url": base64.URLEncoding, "rawurl": base64.RawURLEncoding} {
			for lead := range 7 {
				for trail := range 4 {
					text := enc.EncodeToString([]byte(strings.Repeat("u", lead) + key + strings.Repeat(":", trail)))
					got := wire.Scrub("Basic "+text+" .", key)
					if !strings.Contains(got, "[key]") {
						t.Errorf("%s of %q with %d before and %d after: %q stays %q", name, key, lead, trail, text, got)
					}
					// At most the two characters shared with the neighbours are left of it.
					left := strings.TrimSuffix(strings.TrimPrefix(got, "Basic "), " .")
					if most := (lead+trail)*8/6 + 2 + len("[key]") + 4; len(left) > most {
						t.Errorf("%s of %q: %q is left", name, key, left)
					}
				}
			}
		}
	}
}

func TestScrubLeavesOtherTextAlone(t *testing.T) {
	for _, c := range [][2]string{
		{"nothing here", "sk-test-0123456789abcdef"},
		{"sk-test-0123456789abcde and more", "sk-test-0123456789abcdef"},
		{"abc abc", ""}, {"abc abc", "abc"},
		{"YWJjZGU=", "abcde"}, // short keys in plain alone
		{"6162636465", "abcde"},
		{"", "sk-test-0123456789abcdef"},
		{"%", "%%%%%%%%"}, {"\\", "\\\\\\\\\\\\\\\\"}, {"100 % done \\u00", "sk-test-0123456789abcdef"},
	} {
		if got := wire.Scrub(c[0], c[1]); got != c[0] {
			t.Errorf("%q without %q became %q", c[0], c[1], got)
		}
	}
	if got := wire.Scrub("my abcde.", "abcde"); got != "my [key]." {
		t.Errorf("got %q", got)
	}
}

func FuzzScrub(f *testing.F) {
	f.Add("error: sk-0123456789 is wrong", "sk-0123456789", 1)
	f.Add("%41%41\\u0041+", "AAAAAAAA ", 2)
	f.Fuzz(func(t *testing.T, text, key string, lead int) {
		if len(key) > 100 || len(text) > 1000 {
			t.Skip("larger than what is worth a try")
		}
		got := wire.Scrub(text+key+text, key)
		if len(key) < 8 || strings.ContainsAny(key, "[key]") { // what stands for it may then be part of it
			return
		}
		if strings.Contains(got, key) {
			t.Errorf("%q is left in %q", key, got)
		}
		in := base64.StdEncoding.EncodeToString([]byte(text[:min(len(text), abs(lead)%4)] + key + "z"))
		if !strings.Contains(wire.Scrub(in, key), "[key]") {
			t.Errorf("%q stays in %q", key, in)
		}
	})
}

func abs(i int) int {
	if i < 0 {
		return -(i + 1)
	}
	return i
}

func TestMessage(t *testing.T) {
	got := wire.Message("\x1b[31mbad\x00 "+key+"\u202e \xff\nline\t", key)
	if got != "[31mbad [key] \uFFFD\nline" {
		t.Errorf("got %q", got)
	}
	long := wire.Message(strings.Repeat("ä", 3000)+key, key)
	if len(long) > wire.MaxMessage || !utf8.ValidString(long) || !strings.HasSuffix(long, "[…]") {
		t.Errorf("%d bytes, ends in %q", len(long), long[len(long)-10:])
	}
	// The key is taken out before the text is cut, so no beginning of it is left.
	for pad := 1900; pad < 2010; pad++ {
		if got := wire.Message(strings.Repeat("a", pad)+key+strings.Repeat("b", 100), key); strings.Contains(got, key[:4]) {
			t.Fatalf("with %d before: %q", pad, got[1890:])
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "7", 7 * time.Second},
		{"Retry-After", " 0.5 ", 500 * time.Millisecond},
		{"Retry-After", "0", 0},
		{"Retry-After", "-5", 0},
		{"Retry-After", "soon", 0},
		{"Retry-After", "NaN", 0},
		{"Retry-After", "1e300", 366 * 24 * time.Hour},
		{"Retry-After", "Inf", 366 * 24 * time.Hour},
		{"Retry-After", "Fri, 02 Jan 2026 03:05:05 GMT", time.Minute},
		{"Retry-After", "Fri, 02 Jan 2026 03:00:00 GMT", 0},
		{"Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT", 366 * 24 * time.Hour},
		{"Retry-After-Ms", "1500", 1500 * time.Millisecond},
	} {
		h := http.Header{}
		h.Set(c.name, c.value)
		if got := wire.RetryAfter(h, now); got != c.want {
			t.Errorf("%s: %q is %s, want %s", c.name, c.value, got, c.want)
		}
	}
	both := http.Header{"Retry-After": {"7"}, "Retry-After-Ms": {"6500"}}
	if got := wire.RetryAfter(both, now); got != 6500*time.Millisecond {
		t.Errorf("both: %s", got)
	}
}

func TestRefusal(t *testing.T) {
	h := http.Header{"X-Request-Id": {"req_" + key + "\x07"}, "Retry-After": {"3"}}
	e := wire.Refusal("", 429, h, "slow down, "+key, key)
	if e.Kind != model.ErrRate || e.Status != 429 || e.Message != "slow down, [key]" || e.RetryAfter != 3*time.Second || e.RequestID != "req_[key]" {
		t.Errorf("%+v", e)
	}
	if e := wire.Refusal(model.ErrQuota, 429, nil, " ", ""); e.Kind != model.ErrQuota || e.Message != "Too Many Requests" {
		t.Errorf("%+v", e)
	}
	for status, again := range map[int]bool{400: false, 401: false, 402: false, 403: false, 404: false, 413: false, 422: false, 408: true, 409: true, 429: true, 500: true, 502: true, 503: true, 504: true, 529: true} {
		if e := wire.Refusal("", status, nil, "", ""); e.Again() != again {
			t.Errorf("%d is %s: tried again: %v", status, e.Kind, e.Again())
		}
	}
}

func TestErrorKeepsKindsAndDropsKeys(t *testing.T) {
	in := fmt.Errorf("reading: %w", &model.Error{Kind: model.ErrBusy, Status: 529, Err: errors.New("with " + key)})
	var e *model.Error
	if !errors.As(wire.Error(t.Context(), in, key), &e) || e.Kind != model.ErrBusy || e.Status != 529 || e.Message != "with [key]" || e.Err != nil {
		t.Errorf("%+v", e)
	}
	if err := wire.Error(t.Context(), nil, key); err != nil {
		t.Errorf("nil became %v", err)
	}
	var bad struct{ A int }
	if got := model.KindOf(wire.Error(t.Context(), json.Unmarshal([]byte(`{"A":"x"}`), &bad), "")); got != model.ErrProtocol {
		t.Errorf("wrong JSON is %q", got)
	}
	if got := model.KindOf(wire.Error(t.Context(), json.Unmarshal([]byte(`{`), &bad), "")); got != model.ErrProtocol {
		t.Errorf("no JSON is %q", got)
	}
}
