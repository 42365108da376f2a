package core

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/model"
	"glasshouse/backend/secret"
)

func TestModelsByTheDoor(t *testing.T) {
	p := paths(t)
	t.Setenv("GLASSHOUSE_TEST_KEY", "sk-env-0123456789")
	store := &secret.Memory{}
	c, call, _ := modelCore(t, p, store)
	var v httpapi.ModelsView
	if code, body := call("GET", "/v1/models", "", &v); code != 200 || len(v.Models) != 0 || v.File != p.ModelsFile() || !strings.Contains(body, `"models":[]`) {
		t.Fatalf("%d %s", code, body)
	}
	local := chat("local", "http://127.0.0.1:9/v1", "")
	put(t, call, local)
	put(t, call, chat("env", "https://h/v1", "GLASSHOUSE_TEST_KEY"))
	put(t, call, chat("gone", "https://h/v1", "GLASSHOUSE_TEST_NONE"))
	put(t, call, model.Config{Name: "own", Format: model.FormatMessages, Model: "m"})
	v = put(t, call, chat("far", "http://192.0.2.1/v1", "GLASSHOUSE_TEST_KEY"))
	for name, want := range map[string][2]string{"local": {"none", ""}, "env": {"environment", ""}, "gone": {"missing", "GLASSHOUSE_TEST_NONE is not set"}, "own": {"missing", "glasshouse model key own"}, "far": {"environment", "plain text"}} {
		x := row(v, name)
		if x.Key != want[0] || (want[1] == "") != (x.Problem == "") || !strings.Contains(x.Problem, want[1]) {
			t.Errorf("%s: %+v", name, x)
		}
	}
	if code, body := call("PUT", "/v1/models/own/key", `{"key":"`+canary+`\n"}`, &v); code != 200 || row(v, "own").Key != "keychain" || row(v, "own").Problem != "" {
		t.Fatalf("%d %s", code, body)
	}
	if got, err := store.Get(t.Context(), "model:own"); err != nil || got != canary {
		t.Errorf("%q %v", got, err)
	}
	// A key in the keychain counts first.
	if call("PUT", "/v1/models/env/key", `{"key":"`+canary+`"}`, &v); row(v, "env").Key != "keychain" {
		t.Errorf("%+v", v)
	}
	if code, _ := call("DELETE", "/v1/models/env/key", "", &v); code != 200 || row(v, "env").Key != "environment" {
		t.Errorf("%d %+v", code, v)
	}
	if code, _ := call("DELETE", "/v1/models/env/key", "", nil); code != 404 {
		t.Errorf("twice: %d", code)
	}
	var d httpapi.Doctor
	call("GET", "/v1/doctor", "", &d)
	lines := map[string]httpapi.DoctorLine{}
	for _, l := range d.Lines {
		lines[l.Name] = l
	}
	if l := lines["models"]; !l.OK || !strings.HasPrefix(l.Text, "5 set up") {
		t.Errorf("%+v", l)
	}
	if l := lines["model own"]; !l.OK || !strings.Contains(l.Text, "keychain") {
		t.Errorf("%+v", l)
	}
	if l := lines["model gone"]; l.OK || l.Fix == "" || !strings.Contains(l.Text, "GLASSHOUSE_TEST_NONE") {
		t.Errorf("%+v", l)
	}
	if code, body := call("POST", "/v1/default-model", `{"name":"own"}`, &v); code != 200 || v.Default != "own" {
		t.Errorf("%d %s", code, body)
	}
	// A model that goes takes its key along, and the default.
	if code, _ := call("DELETE", "/v1/models/own", "", &v); code != 200 || v.Default != "" || row(v, "own").Name != "" {
		t.Errorf("%d %+v", code, v)
	}
	if _, err := store.Get(t.Context(), "model:own"); domain.CodeOf(err) != domain.CodeNotFound {
		t.Errorf("its key stays: %v", err)
	}
	evs, err := c.events.Read(t.Context(), eventlog.Filter{Types: []event.Type{"models.changed"}})
	if err != nil || len(evs) != 10 || evs[0].Actor != "person" || string(evs[8].Data) != `{"names":["own"],"default":"own","by":"person"}` {
		t.Errorf("%d %v %s", len(evs), err, evs[len(evs)-2].Data)
	}
	before, _ := os.ReadFile(p.ModelsFile())
	for what, want := range map[string]struct {
		method, path, body string
		code               int
		pointer            string
	}{
		"name":        {"PUT", "/v1/models/A%20b", `{"format":"openai-chat","model":"m"}`, 422, "/name"},
		"other name":  {"PUT", "/v1/models/a", `{"name":"b","format":"openai-chat","model":"m"}`, 422, "/name"},
		"format":      {"PUT", "/v1/models/a", `{"format":"cloud","model":"m"}`, 422, "/format"},
		"context":     {"PUT", "/v1/models/a", `{"format":"openai-chat","model":"m","context":5}`, 422, "/context"},
		"price":       {"PUT", "/v1/models/a", `{"format":"openai-chat","model":"m","price":{"input":-1,"output":1}}`, 422, "/price/input"},
		"a key":       {"PUT", "/v1/models/a", `{"format":"openai-chat","model":"m","key":"x"}`, 422, "/key"},
		"no model":    {"PUT", "/v1/models/nobody/key", `{"key":"` + canary + `"}`, 404, "/model"},
		"short key":   {"PUT", "/v1/models/local/key", `{"key":"abc"}`, 422, "/key"},
		"two lines":   {"PUT", "/v1/models/local/key", `{"key":"abcdefgh\nijklmnop"}`, 422, "/key"},
		"empty key":   {"PUT", "/v1/models/local/key", `{"key":""}`, 422, "/key"},
		"no key":      {"PUT", "/v1/models/local/key", `{}`, 422, "/key"},
		"long key":    {"PUT", "/v1/models/local/key", `{"key":"` + strings.Repeat("k", 3000) + `"}`, 422, "/key"},
		"large key":   {"PUT", "/v1/models/local/key", `{"key":"` + strings.Repeat("k", 20000) + `"}`, 413, ""},
		"large model": {"PUT", "/v1/models/a", `{"format":"openai-chat","model":"` + strings.Repeat("k", 70000) + `"}`, 413, ""},
		"delete":      {"DELETE", "/v1/models/lokal", "", 404, "/model"},
		"default":     {"POST", "/v1/default-model", `{"name":"lokal"}`, 404, "/model"},
		"try":         {"POST", "/v1/models/lokal/try", `{}`, 404, "/model"},
	} {
		var e struct{ Code, What, Pointer, Hint string }
		if code, body := call(want.method, want.path, want.body, &e); code != want.code || e.Pointer != want.pointer || e.Hint == "" {
			t.Errorf("%s: %d %s", what, code, body)
		}
	}
	for _, x := range [][3]string{{"PUT", "/v1/models/local", `{"format":"openai-chat","model":"m"}`}, {"DELETE", "/v1/models/local", ""}, {"PUT", "/v1/models/local/key", `{"key":"abcdefghi"}`}, {"DELETE", "/v1/models/local/key", ""}, {"POST", "/v1/default-model", `{"name":"local"}`}, {"POST", "/v1/models/local/try", "{}"}} {
		if code, _ := call(x[0], x[1], x[2], nil, "X-Glasshouse-Actor", "agent"); code != 403 {
			t.Errorf("an agent may %s %s: %d", x[0], x[1], code)
		}
	}
	if after, _ := os.ReadFile(p.ModelsFile()); string(after) != string(before) {
		t.Errorf("something refused was written:\n%s", after)
	}
}

// A file that somebody broke stops nothing and loses nothing.
func TestBrokenModelsFile(t *testing.T) {
	p := paths(t)
	const broken = "[[model]]\nname = \"a\"\nkey = \"" + canary + "\"\n"
	write(t, p.ModelsFile(), broken)
	c, call, log := modelCore(t, p, &secret.Memory{})
	var v httpapi.ModelsView
	if code, body := call("GET", "/v1/models", "", &v); code != 200 || !strings.Contains(v.Problem, "a key is written into it in line 3") || len(v.Models) != 0 || strings.Contains(body, canary) {
		t.Fatalf("%d %s", code, body)
	}
	if _, _, err := c.models.Open(t.Context(), ""); domain.CodeOf(err) != domain.CodeInvalid || !strings.Contains(err.Error(), "models.toml") || strings.Contains(err.Error(), canary) {
		t.Errorf("%v", err)
	}
	for _, x := range [][3]string{{"PUT", "/v1/models/b", `{"format":"openai-chat","model":"m"}`}, {"DELETE", "/v1/models/a", ""}, {"POST", "/v1/default-model", `{"name":""}`}, {"PUT", "/v1/models/a/key", `{"key":"` + canary + `"}`}} {
		if code, body := call(x[0], x[1], x[2], nil); code != 422 || strings.Contains(body, canary) {
			t.Errorf("%v: %d %s", x, code, body)
		}
	}
	if got, _ := os.ReadFile(p.ModelsFile()); string(got) != broken {
		t.Errorf("it became %q", got)
	}
	var d httpapi.Doctor
	call("GET", "/v1/doctor", "", &d)
	if i := slices.IndexFunc(d.Lines, func(l httpapi.DoctorLine) bool { return l.Name == "models" }); i < 0 || d.Lines[i].OK || d.Lines[i].Fix == "" || d.OK {
		t.Errorf("%+v", d.Lines)
	}
	// Mended, it counts at once; broken again, what it said last goes on.
	write(t, p.ModelsFile(), "[[model]]\nname = \"a\"\nformat = \"openai-chat\"\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:9/v1\"\n")
	if call("GET", "/v1/models", "", &v); v.Problem != "" && len(v.Models) != 1 {
		t.Errorf("%+v", v)
	}
	write(t, p.ModelsFile(), "broken")
	if _, cfg, err := c.models.Open(t.Context(), ""); err != nil || cfg.Name != "a" {
		t.Errorf("%+v %v", cfg, err)
	}
	if strings.Contains(log.String(), canary) {
		t.Error("the core's log has the key")
	}
}

// A key goes in and comes out nowhere: not of any door, in an answer or an error, nor
// into any file of the data folder, whatever form a person or a program gives it.
func TestKeyComesOutNowhere(t *testing.T) {
	p := paths(t)
	t.Setenv("GLASSHOUSE_TEST_KEY", "sk-env-"+canary[8:])
	env := os.Getenv("GLASSHOUSE_TEST_KEY")
	// The one in the environment is known before the first event.
	write(t, p.ModelsFile(), "[[model]]\nname = \"env\"\nformat = \"openai-chat\"\nmodel = \"m\"\nbase_url = \"https://h/v1\"\nkey_env = \"GLASSHOUSE_TEST_KEY\"\n")
	c, call, log := modelCore(t, p, &secret.Memory{})
	put(t, call, chat("m", "https://h/v1", ""))
	if code, _ := call("PUT", "/v1/models/m/key", `{"key":"`+canary+`"}`, nil); code != 200 {
		t.Fatal(code)
	}
	secrets := []string{canary, env}
	leak := func(where, text string) {
		t.Helper()
		for _, s := range secrets {
			b := base64.RawStdEncoding.EncodeToString([]byte(s))
			for _, f := range []string{s, b[:40], base64.RawStdEncoding.EncodeToString([]byte("x" + s))[4:40], hex.EncodeToString([]byte(s))} {
				if strings.Contains(text, f) {
					t.Errorf("%s holds %q: %.300q", where, f, text)
				}
			}
		}
	}
	quoted, _ := json.Marshal(canary)
	bodies := []string{"", canary, string(quoted), `{"key":` + string(quoted), `{"key":[` + string(quoted) + `]}`, `{"key":{"` + canary + `":1}}`, `{"` + canary + `":1}`, `{"key":"` + canary + ` x"}`, `{"key":"` + canary + `","` + canary + `":2}`,
		`{"name":` + string(quoted) + `}`, `{"format":` + string(quoted) + `,"model":"m"}`, `{"format":"openai-chat","model":"m","key_env":` + string(quoted) + `}`, `{"format":"openai-chat","model":"m","base_url":"https://u:` + canary + `@h/"}`,
		`{"format":"openai-chat","model":"m","context":` + string(quoted) + `}`, `{"format":"openai-chat","model":"m","effort":` + string(quoted) + `}`}
	for _, body := range bodies {
		for _, at := range [][2]string{{"PUT", "/v1/models/m/key"}, {"PUT", "/v1/models/nobody/key"}, {"PUT", "/v1/models/m"}, {"PUT", "/v1/models/" + canary}, {"PUT", "/v1/models/" + canary + "/key"}, {"DELETE", "/v1/models/" + canary}, {"DELETE", "/v1/models/" + canary + "/key"},
			{"POST", "/v1/models/" + canary + "/try"}, {"POST", "/v1/default-model"}} {
			_, got := call(at[0], at[1], body, nil)
			leak(strings.Join(at[:], " ")+" "+body, got)
		}
	}
	// A person pastes it, a program prints it.
	big := bytes.Repeat([]byte("line of output\n"), 20000)
	for _, s := range secrets {
		for _, f := range []string{s, hex.EncodeToString([]byte(s)), base64.StdEncoding.EncodeToString([]byte("x" + s)), strings.ToUpper(hex.EncodeToString([]byte(s))), base64.URLEncoding.EncodeToString([]byte(s))} {
			if err := c.record(t.Context(), event.New{Stream: event.HostStream, Origin: domain.OriginHost, Actor: "person", Payload: &event.Message{Text: "use " + f + " please"}}); err != nil {
				t.Fatal(err)
			}
			for _, at := range []int{0, 64<<10 - 7, len(big)} {
				if _, err := c.events.PutBlob(t.Context(), bytes.NewReader(slices.Concat(big[:at], []byte(f), big[at:])), 1<<20); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	var d map[string]any
	raw, err := httpapi.OpenAPI()
	if err != nil || json.Unmarshal(raw, &d) != nil {
		t.Fatal(err)
	}
	seen := 0
	for path, ops := range d["paths"].(map[string]any) {
		if _, get := ops.(map[string]any)["get"]; !get || strings.Contains(path, "{") {
			continue
		}
		if path == "/v1/events" {
			path += "?follow=false&transient=true"
		}
		if path == "/v1/source" {
			path += "?path=/"
		}
		_, got := call("GET", path, "", nil)
		leak("GET "+path, got)
		seen++
	}
	if seen < 12 {
		t.Errorf("only %d doors were looked through", seen)
	}
	if _, got := call("GET", "/v1/log?limit=5000", "", nil); !strings.Contains(got, "[key of model m]") || !strings.Contains(got, "[key of model env]") {
		t.Errorf("what stands for the keys is not there: %.500s", got)
	}
	if r, err := c.events.Verify(t.Context()); err != nil || len(r.Problems) > 0 {
		t.Errorf("%+v %v", r, err)
	}
	c.log.Warn("something failed", "err", "it was "+canary+", not that", "key", env)
	leak("the core's log", log.String())
	if !strings.Contains(log.String(), "it was [key of model m]") {
		t.Errorf("%s", log.String())
	}
	c.close()
	files := 0
	for _, dir := range []string{p.Data, p.Config} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if path == p.Tools() { // a root core's copy of this very program
				return fs.SkipDir
			}
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			files++
			leak(path, string(b))
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if files < 25 {
		t.Errorf("only %d files were looked through", files)
	}
}

// Many clients at once: each call is whole, and the file is at every moment.
func TestModelsFromManySides(t *testing.T) {
	p := paths(t)
	c, call, _ := modelCore(t, p, &secret.Memory{})
	m := c.models
	put(t, call, chat("base", "http://127.0.0.1:9/v1", ""))
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := p.LoadModels(); err != nil {
				t.Errorf("read in between: %v", err)
				return
			}
			if v, err := m.List(t.Context()); err != nil || v.Problem != "" {
				t.Errorf("%+v %v", v, err)
				return
			}
			_, _, _ = m.Open(t.Context(), "base")
			m.doctor(t.Context())
		}
	})
	for i := range 6 {
		writers.Go(func() {
			name := fmt.Sprintf("m%d", i)
			for n := range 4 {
				_, err1 := m.Put(t.Context(), chat(name, fmt.Sprintf("http://127.0.0.1:%d/v1", n+1), ""), "person")
				_, err2 := m.PutKey(t.Context(), name, fmt.Sprintf("sk-%d-%d-0123456789", i, n), "person")
				_, err3 := m.SetDefault(t.Context(), name, "person")
				if err := errors.Join(err1, err2, err3); err != nil {
					t.Error(err)
				}
			}
			if i%2 == 0 {
				if _, err := m.Delete(t.Context(), name, "person"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	all, err := p.LoadModels()
	names := all.Names()
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"base", "m1", "m3", "m5"}) {
		t.Errorf("%v %v", names, err)
	}
	for _, c := range all.Models[1:] {
		if c.BaseURL != "http://127.0.0.1:4/v1" {
			t.Errorf("%+v", c)
		}
	}
}
