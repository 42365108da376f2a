package openai

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"

	"glasshouse/backend/model"
)

// habits are what a server or a model wants in another way than most. Some are known by
// its address or name; the rest is learned from the words with which it refuses a
// request, which is then sent again in the other way. Nothing was answered and nothing
// is paid for by then, so that this is no second attempt.
type habits struct {
	own bool // the address is OpenAI's
	// responses: tools are taken in Responses alone, though the model is set up for Chat
	// Completions. OpenAI's newer models think there, and only there.
	responses bool
	// tokens is the name of the most tokens of an answer; turned: it was the other once.
	tokens string
	turned bool
	// noUsage: stream_options are not known; usage comes unasked or not at all.
	noUsage bool
	// noStream: the account may not have this model's answers as a stream.
	noStream bool
	// noSummary and noSealed: the account may not see what the model thinks, or the model
	// does not think (Responses).
	noSummary, noSealed bool
	// thoughts: calls must have the thought before them, also when another model made
	// them; and what was thought in a turn goes back with all of it.
	thoughts bool
	// noThoughts: what was thought is not taken back, in the form or from the account
	// that it has.
	noThoughts bool
	// signed: calls must have Gemini's signature, also when another model made them.
	signed bool
	// shortIDs: ids of calls are nine letters or digits.
	shortIDs bool
	// plain: schemas of tools are in the few words that Gemini's servers know.
	plain bool
	// bridged: between results and the user's words the model must have said something.
	bridged bool
}

const (
	maxTokens           = "max_tokens"            // the name that all compatible servers know
	maxCompletionTokens = "max_completion_tokens" // what OpenAI's own want instead
)

// mistrals are the families of models of which each server has the same template.
var mistrals = []string{"mistral", "mixtral", "ministral", "magistral", "devstral", "codestral", "pixtral"}

// known habits of an address and a model. own: the address is OpenAI's.
func known(cfg model.Config, own bool) habits {
	h := habits{tokens: maxTokens, own: own}
	if own {
		h.tokens = maxCompletionTokens
		return h
	}
	host := ""
	if u, err := url.Parse(cfg.BaseURL); err == nil {
		host = strings.ToLower(u.Hostname())
	}
	at := func(domains ...string) bool {
		for _, d := range domains {
			if host == d || strings.HasSuffix(host, "."+d) {
				return true
			}
		}
		return false
	}
	name := strings.ToLower(cfg.Model)
	h.noUsage = at("mistral.ai")
	h.thoughts = at("deepseek.com", "moonshot.ai", "moonshot.cn", "kimi.com")
	h.plain = at("googleapis.com")
	h.signed = h.plain && strings.Contains(name, "gemini")
	for _, m := range mistrals {
		if at("mistral.ai") || strings.Contains(name, m) {
			h.shortIDs, h.bridged = true, true
			break
		}
	}
	return h
}

// learned are the habits of a client, from any goroutine.
type learned struct {
	mu sync.Mutex
	h  habits
}

func (l *learned) get() habits {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.h
}

// refused takes what the refusal of a request that was written by the habits was teaches;
// false = nothing that is not kept to already. A habit is learned once, so this ends.
func (l *learned) refused(was habits, err error) bool {
	var e *model.Error
	if !errors.As(err, &e) || e.Status < 400 || e.Kind != model.ErrInvalid && e.Kind != model.ErrServer {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.h != was { // it was taught to another meanwhile
		return true
	}
	l.h = was.taught(strings.ToLower(e.Message))
	return l.h != was
}

// taught reads a refusal, in small letters.
func (h habits) taught(text string) habits {
	all := func(words ...string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
	}
	one := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	unknown := one("not supported", "unsupported", "not permitted", "extra_forbidden", "unrecognized", "unknown", "not allowed", "unexpected", "not have access")
	switch {
	case h.own && all("function tools", "/v1/responses"):
		h.responses = true
	// The name of the one it wants stands in the refusal of the other.
	case h.tokens == maxTokens && !h.turned && all(maxCompletionTokens) && (unknown || one("instead")):
		h.tokens, h.turned = maxCompletionTokens, true
	case h.tokens == maxCompletionTokens && !h.turned && all(maxCompletionTokens) && unknown:
		h.tokens, h.turned = maxTokens, true
	case all("verified to stream"):
		h.noStream = true
	case one("stream_options", "include_usage") && unknown:
		h.noUsage = true
	case all("reasoning summar") && one("verified", "not supported"), all("reasoning.summary") && unknown:
		h.noSummary = true
	case one("encrypted content is not supported", "encrypted_content' is not supported"):
		h.noSealed = true
	case all("unknown name", "function_declarations"), one("additionalproperties", "propertynames", "uniqueitems") && unknown:
		h.plain = true
	case all("thought_signature", "missing"):
		h.signed = true
	case all("tool call id", "length of 9"):
		h.shortIDs = true
	case all("after role 'tool'"), all("roles must alternate"):
		h.bridged = true
	case all("reasoning_content") && one("missing", "must be passed back"):
		h.thoughts = true
	case one("reasoning_content", "reasoning_details", "messages.reasoning") && unknown,
		one("thought signature", "`signature` in `thinking`", "encrypted content") && one("invalid", "corrupted", "could not be"),
		all("reasoning", "was provided without its required following item"):
		h.noThoughts = true
	}
	return h
}
