package model

import (
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"glasshouse/backend/domain"
)

// Format is a wire format.
type Format string

const (
	// FormatChat is OpenAI's Chat Completions, which Ollama, llama.cpp, vLLM and many
	// others speak too.
	FormatChat Format = "openai-chat"
	// FormatResponses is OpenAI's Responses.
	FormatResponses Format = "openai-responses"
	// FormatMessages is Anthropic's Messages.
	FormatMessages Format = "anthropic"
)

// Config is one model that a person set up. The key is never part of it.
type Config struct {
	Name    string `toml:"name" json:"name" doc:"how it is chosen: small letters, digits, . _ -"`
	Format  Format `toml:"format" json:"format" enum:"openai-chat,openai-responses,anthropic" doc:"wire format"`
	Model   string `toml:"model" json:"model" doc:"the server's name for the model"`
	BaseURL string `toml:"base_url,omitempty" json:"base_url,omitempty" doc:"address of a compatible server, such as http://127.0.0.1:11434/v1; empty = the provider's own"`
	// KeyEnv names a variable in the core's environment. A key in the keychain counts first.
	KeyEnv    string `toml:"key_env,omitempty" json:"key_env,omitempty" doc:"environment variable with the key; a key in the keychain counts first"`
	Context   int    `toml:"context,omitempty" json:"context,omitempty" doc:"tokens that request and answer may have together; 0 = 128000"`
	MaxOutput int    `toml:"max_output,omitempty" json:"max_output,omitempty" doc:"most tokens of an answer; 0 = 8192"`
	Effort    string `toml:"effort,omitempty" json:"effort,omitempty" enum:",low,medium,high" doc:"how much it thinks before it answers; empty = the server's usual"`
	TextOnly  bool   `toml:"text_only,omitempty" json:"text_only,omitempty" doc:"it cannot see pictures"`
	Price     *Price `toml:"price,omitempty" json:"price,omitempty" doc:"without one, costs are not known"`
}

// Price of tokens in US dollars per million.
type Price struct {
	Input      float64 `toml:"input" json:"input" minimum:"0"`
	CacheRead  float64 `toml:"cache_read,omitempty" json:"cache_read,omitempty" minimum:"0" doc:"0 = as input"`
	CacheWrite float64 `toml:"cache_write,omitempty" json:"cache_write,omitempty" minimum:"0" doc:"0 = as input"`
	Output     float64 `toml:"output" json:"output" minimum:"0"`
}

// What is meant where a Config says nothing.
const (
	usualContext   = 128000
	usualMaxOutput = 8192
)

// ContextSize is Context or the usual.
func (c Config) ContextSize() int {
	if c.Context == 0 {
		return usualContext
	}
	return c.Context
}

// OutputSize is MaxOutput or the usual, never more than half the context.
func (c Config) OutputSize() int {
	n := c.MaxOutput
	if n == 0 {
		n = usualMaxOutput
	}
	return min(n, c.ContextSize()/2)
}

// Cost of tokens in billionths of a US dollar. A dollar per million tokens is a
// thousand billionths per token.
func (p *Price) Cost(u Usage) int64 {
	if p == nil {
		return 0
	}
	or := func(a, b float64) float64 {
		if a == 0 {
			return b
		}
		return a
	}
	nanos := float64(u.Input)*p.Input + float64(u.CacheRead)*or(p.CacheRead, p.Input) + float64(u.CacheWrite)*or(p.CacheWrite, p.Input) + float64(u.Output)*p.Output
	// A server may report any number; the sum over a long session must not turn over.
	return int64(math.Round(min(nanos*1000, maxCost)))
}

// maxCost of one answer: a million dollars.
const maxCost = 1e15

var (
	nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,39}$`)
	envForm  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)
)

// Check says what is wrong; the error points at the field.
func (c Config) Check() error {
	bad := func(field, what, hint string) error {
		return &domain.Error{Code: domain.CodeInvalid, Pointer: "/" + field, What: what, Hint: hint}
	}
	switch {
	case !nameForm.MatchString(c.Name):
		return bad("name", fmt.Sprintf("a model cannot be called %q", c.Name), "use up to 40 small letters, digits, dots, _ and -")
	case c.Format != FormatChat && c.Format != FormatResponses && c.Format != FormatMessages:
		return bad("format", fmt.Sprintf("there is no wire format %q", c.Format), "use openai-chat, openai-responses or anthropic")
	case c.Model == "" || len(c.Model) > 200 || strings.ContainsFunc(c.Model, func(r rune) bool { return r <= ' ' || r == 127 }):
		return bad("model", "the server's name for the model is missing or holds spaces", "give it as the server lists it")
	case c.KeyEnv != "" && !envForm.MatchString(c.KeyEnv):
		return bad("key_env", "key_env is no name of an environment variable", "give the variable's name, never the key itself")
	case c.Context != 0 && (c.Context < 8000 || c.Context > 100_000_000):
		return bad("context", fmt.Sprintf("context is %d", c.Context), "give at least 8000 tokens, or 0 for the usual")
	case c.MaxOutput != 0 && (c.MaxOutput < 256 || c.MaxOutput > 10_000_000):
		return bad("max_output", fmt.Sprintf("max_output is %d", c.MaxOutput), "give at least 256 tokens, or 0 for the usual")
	case c.Effort != "" && c.Effort != "low" && c.Effort != "medium" && c.Effort != "high":
		return bad("effort", fmt.Sprintf("there is no effort %q", c.Effort), "use low, medium or high, or nothing")
	}
	if c.BaseURL != "" {
		u, err := url.Parse(c.BaseURL)
		switch {
		case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
			return bad("base_url", "base_url is no address", "give one such as http://127.0.0.1:11434/v1")
		case u.User != nil || u.RawQuery != "" || u.Fragment != "":
			return bad("base_url", "base_url holds more than an address", "leave out names, passwords and everything after ?; keys go into the keychain")
		}
	}
	if p := c.Price; p != nil {
		for _, v := range []struct {
			name string
			v    float64
		}{{"input", p.Input}, {"cache_read", p.CacheRead}, {"cache_write", p.CacheWrite}, {"output", p.Output}} {
			if !(v.v >= 0 && v.v <= 100_000) {
				return bad("price/"+v.name, fmt.Sprintf("the price %s is %v", v.name, v.v), "give US dollars per million tokens")
			}
		}
	}
	return nil
}

// KeySafe reports whether a key may be sent to the model's address: over TLS, or to
// this very machine.
func (c Config) KeySafe() bool {
	if c.BaseURL == "" {
		return true
	}
	u, err := url.Parse(c.BaseURL)
	return err == nil && (u.Scheme == "https" || c.Local())
}

// Local reports whether the model's server is on this very machine.
func (c Config) Local() bool {
	u, err := url.Parse(c.BaseURL)
	if err != nil {
		return false
	}
	if u.Hostname() == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err == nil && ip.IsLoopback()
}
