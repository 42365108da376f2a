package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"glasshouse/app/config"
	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/model"
	"glasshouse/backend/model/anthropic"
	"glasshouse/backend/model/openai"
	"glasshouse/backend/model/wire"
	"glasshouse/backend/secret"
)

// models are those of models.toml with their keys: the only place where the two meet.
type models struct {
	paths   config.Paths
	store   secret.Store
	scrub   *secret.Scrubber
	env     func(string) string
	connect func(model.Config, string, *http.Client) (model.Client, error)
	record  func(context.Context, event.New) error
	log     *slog.Logger

	change sync.Mutex // held while file or keychain change

	mu      sync.Mutex
	last    config.Models     // as it could be read last
	inChain map[string]string // keys that were read from the keychain, by name
	clients map[string]*modelClient
}

// modelClient is a client that is used again while nothing of its model changes.
type modelClient struct {
	cfg    model.Config
	key    string
	http   *http.Client
	client model.Client
}

func newModels(p config.Paths, store secret.Store, scrub *secret.Scrubber, record func(context.Context, event.New) error, log *slog.Logger) *models {
	return &models{paths: p, store: store, scrub: scrub, env: os.Getenv, connect: connect, record: record, log: log, inChain: map[string]string{}, clients: map[string]*modelClient{}}
}

// scrubbed is a log without known keys. Each line comes in one piece.
type scrubbed struct {
	io.Writer
	s *secret.Scrubber
}

func (w scrubbed) Write(p []byte) (int, error) {
	line := bytes.Clone(p)
	w.s.Fixed(line)
	return w.Writer.Write(line)
}

// connect speaks a model's wire format.
func connect(c model.Config, key string, h *http.Client) (model.Client, error) {
	switch c.Format {
	case model.FormatChat, model.FormatResponses:
		return openai.New(c, key, h), nil
	case model.FormatMessages:
		return anthropic.New(c, key, h), nil
	}
	return nil, domain.E(domain.CodeInvalid, fmt.Sprintf("there is no wire format %q", c.Format), "use openai-chat, openai-responses or anthropic", nil)
}

func (m *models) account(name string) string { return "model:" + name }

// load reads models.toml. With a fault it also returns what could be read before.
func (m *models) load() (config.Models, error) {
	got, err := m.paths.LoadModels()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.last = got
	}
	return m.last, err
}

// Where a key comes from, as the door says it.
const (
	keyInChain = "keychain"
	keyInEnv   = "environment"
	keyNone    = "none"
	keyMissing = "missing"
)

// key finds a model's key and where it is. An error says why there is none that can
// be used; it never holds the key.
func (m *models) key(ctx context.Context, c model.Config) (key, from string, err error) {
	v, chain := m.store.Get(ctx, m.account(c.Name))
	v = strings.TrimSpace(v)
	m.mu.Lock()
	switch {
	case chain == nil:
		m.inChain[c.Name] = v
	case domain.CodeOf(chain) == domain.CodeNotFound:
		delete(m.inChain, c.Name)
	default: // it was locked meanwhile, perhaps in the middle of a turn: what was read counts
		v = m.inChain[c.Name]
	}
	m.mu.Unlock()
	if v != "" {
		if !m.scrub.Learn("model "+c.Name, v) && !c.Local() {
			return "", keyMissing, domain.E(domain.CodeInvalid, fmt.Sprintf("model %s is not asked with the key that %s holds: %s", c.Name, m.store.Name(), notHidden),
				fmt.Sprintf("put the whole key there with 'glasshouse model key %s'", c.Name), nil)
		}
		return v, keyInChain, nil
	}
	why := ""
	if chain != nil && domain.CodeOf(chain) != domain.CodeNotFound {
		why = "; " + bare(chain)
	}
	hint := fmt.Sprintf("put the key into the keychain with 'glasshouse model key %s', or start the core where the variable is set", c.Name)
	if c.KeyEnv != "" {
		v := strings.TrimSpace(m.env(c.KeyEnv))
		switch {
		case v == "":
			return "", keyMissing, domain.E(domain.CodeUnavailable, fmt.Sprintf("model %s has no key: %s is not set in the environment of the core%s", c.Name, c.KeyEnv, why), hint, nil)
		case noKey(v):
			return "", keyMissing, domain.E(domain.CodeInvalid, fmt.Sprintf("model %s has no key: what %s holds is none", c.Name, c.KeyEnv), hint, nil)
		}
		if !m.scrub.Learn("model "+c.Name, v) && !c.Local() {
			return "", keyMissing, domain.E(domain.CodeInvalid, fmt.Sprintf("model %s is not asked with what %s holds: %s", c.Name, c.KeyEnv, notHidden), hint, nil)
		}
		return v, keyInEnv, nil
	}
	if c.BaseURL == "" {
		return "", keyMissing, domain.E(domain.CodeUnavailable, fmt.Sprintf("model %s has no key%s", c.Name, why), fmt.Sprintf("put it into the keychain with 'glasshouse model key %s', or name a variable of the core's environment as key_env", c.Name), nil)
	}
	return "", keyNone, nil
}

// notHidden is why a key is not taken that the scrubber cannot look for. A server on this
// very machine may want one all the same, which nobody need keep from anybody.
const notHidden = "it is shorter than 8 characters, or a short word in small letters, so that it could not be told from other text and kept out of the log; no provider gives such keys"

// noKey: a variable holds something else, a path or an address perhaps.
func noKey(v string) bool {
	if strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r > '~' }) || strings.Contains(v, "://") {
		return true
	}
	_, err := os.Lstat(filepath.SplitList(v + ":")[0])
	return strings.HasPrefix(v, "/") && err == nil
}

// bare is an error without what to do about it.
func bare(err error) string {
	var known *domain.Error
	if errors.As(err, &known) {
		k := *known
		k.Hint = ""
		return k.Error()
	}
	return err.Error()
}

// safe refuses a key that others could read on its way.
func safe(c model.Config, key string) error {
	if key == "" || c.KeySafe() {
		return nil
	}
	return &domain.Error{Code: domain.CodeDenied, Pointer: "/base_url", What: fmt.Sprintf("the key of model %s would go in plain text over the network to %s", c.Name, c.BaseURL),
		Hint: "give its address as https, or use the model without a key"}
}

// learn reads the keys of all models, so that they are known before a text with one
// comes along.
func (m *models) learn(ctx context.Context) {
	all, err := m.load()
	if err != nil {
		m.log.Error("the models file has a fault: "+bare(err), "file", m.paths.ModelsFile())
	}
	for _, c := range all.Models {
		if _, _, err := m.key(ctx, c); err != nil && ctx.Err() == nil {
			m.log.Info("a model cannot be used yet", "model", c.Name, "why", bare(err))
		}
	}
}

// learnEnv reads the keys that are in the environment: that asks nobody.
func (m *models) learnEnv() {
	all, _ := m.load() // a fault is told by learn
	for _, c := range all.Models {
		if v := strings.TrimSpace(m.env(c.KeyEnv)); c.KeyEnv != "" && !noKey(v) {
			m.scrub.Learn("model "+c.Name, v)
		}
	}
}

// pick finds a model by name; "" is the default, or the only one.
func (m *models) pick(name string) (model.Config, error) {
	all, fault := m.load()
	if name == "" {
		name = all.Default
	}
	if name == "" && len(all.Models) == 1 {
		return all.Models[0], nil
	}
	if c, ok := all.Find(name); ok {
		return c, nil
	}
	switch {
	case fault != nil:
		return model.Config{}, fault
	case len(all.Models) == 0:
		return model.Config{}, domain.E(domain.CodeNotFound, "no model is set up", "add one with 'glasshouse model add', or in the window under Settings, Models", nil)
	case name == "":
		return model.Config{}, &domain.Error{Code: domain.CodeInvalid, Pointer: "/model", What: "no model was named, and several are set up: " + some(all.Names()), Hint: "name one, or choose a default with 'glasshouse model default NAME'"}
	}
	if config.LooksLikeKey(name) { // put into the wrong place: it is not repeated
		return model.Config{}, &domain.Error{Code: domain.CodeNotFound, Pointer: "/model", What: "there is no model of that name", Hint: "there are " + some(all.Names())}
	}
	hint := "there are " + some(all.Names())
	if near := nearest(name, all.Names()); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return model.Config{}, &domain.Error{Code: domain.CodeNotFound, Pointer: "/model", What: fmt.Sprintf("there is no model %.60q", name), Hint: hint}
}

// some lists names, the first ones of many.
func some(names []string) string {
	if len(names) > 10 {
		return strings.Join(names[:10], ", ") + fmt.Sprintf(" and %d more", len(names)-10)
	}
	return strings.Join(names, ", ")
}

// nearest are up to three names that were perhaps meant.
func nearest(name string, names []string) []string {
	name = strings.ToLower(name)
	if len(name) > 100 {
		return nil
	}
	type hit struct {
		name string
		far  int
	}
	var hits []hit
	for _, n := range names {
		far := distance(name, n)
		if len(name) >= 2 && strings.Contains(n, name) || strings.Contains(name, n) {
			far = min(far, 1)
		}
		if far <= 1+len(name)/4 {
			hits = append(hits, hit{n, far})
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return a.far - b.far })
	var out []string
	for _, h := range hits[:min(3, len(hits))] {
		out = append(out, h.name)
	}
	return out
}

// distance is how many letters must be put, taken or changed.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j]+1, last+1)
		}
	}
	return row[len(b)]
}

// Open makes a client of a model; "" is the default model, or the only one.
func (m *models) Open(ctx context.Context, name string) (model.Client, model.Config, error) {
	c, err := m.pick(name)
	if err != nil {
		return nil, model.Config{}, err
	}
	key, _, err := m.key(ctx, c)
	if err == nil {
		err = safe(c, key)
	}
	if err != nil {
		return nil, model.Config{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.clients[c.Name]
	if o != nil && o.key == key && reflect.DeepEqual(o.cfg, c) {
		return o.client, c, nil
	}
	h := wire.NewClient(wire.Options{Key: key})
	client, err := m.connect(c, key, h)
	if err != nil {
		return nil, model.Config{}, err
	}
	if o != nil {
		o.http.CloseIdleConnections() // who still holds it may go on
	}
	m.clients[c.Name] = &modelClient{c, key, h, client}
	return client, c, nil
}

// The tiny question of Try and its bound.
const (
	tryText   = "Answer with the one word ready."
	tryOutput = 64
)

var tryTime = 60 * time.Second

// Try asks a model one tiny question. That it fails is an answer, not an error.
func (m *models) Try(ctx context.Context, name string) (httpapi.ModelTry, error) {
	c, err := m.pick(name)
	if err != nil {
		return httpapi.ModelTry{}, err
	}
	late := &model.Error{Kind: model.ErrTimeout, Message: fmt.Sprintf("no answer within %s", tryTime)}
	ctx, cancel := context.WithTimeoutCause(ctx, tryTime, late)
	defer cancel()
	start := time.Now()
	var a model.Answer
	client, _, err := m.Open(ctx, c.Name)
	if err == nil {
		a, err = client.Answer(ctx, model.Request{MaxOutput: tryOutput,
			Messages: []model.Message{{Role: model.RoleUser, Parts: []model.Part{{Kind: model.KindText, Text: tryText}}}}}, func(model.Delta) {})
	}
	t := httpapi.ModelTry{OK: err == nil, TookMS: time.Since(start).Milliseconds(), Served: m.scrub.Text(cut(a.Served, 200)), Usage: a.Usage}
	var said *domain.Error
	switch {
	case errors.As(err, &said):
		t.Error, t.Code, t.Hint = m.scrub.Text(bare(said)), said.Code, said.Hint
	case err != nil:
		t.Error, t.Kind = m.scrub.Text(cut(err.Error(), wire.MaxMessage)), model.KindOf(err)
	}
	for _, p := range a.Parts {
		if p.Kind == model.KindText {
			t.Text += p.Text
		}
	}
	t.Text = m.scrub.Text(cut(strings.TrimSpace(t.Text), wire.MaxMessage))
	return t, nil
}

// cut keeps at most n bytes of a text, and whole letters of it.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
