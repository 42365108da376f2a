// Package openai speaks OpenAI's two wire formats, Chat Completions and Responses. Many
// other servers speak the first (Ollama, llama.cpp, vLLM, LM Studio, OpenRouter,
// DeepSeek, …), each a little differently; where they differ the reader is lenient and
// the writer sends what all of them take.
package openai

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/openai/openai-go/v3/option"

	"glasshouse/backend/model"
	"glasshouse/backend/model/wire"
)

const (
	ownAddress = "https://api.openai.com/v1"

	// maxAnswer is the most bytes of text, thoughts, calls and opaque parts together.
	maxAnswer = 8 << 20
	// maxEvent is the most bytes of one event of a stream, and of a body that is no stream.
	maxEvent = 16 << 20
	// maxCalls is the most calls of one answer. How many of them are run, and go back, is
	// not for this package to say.
	maxCalls = 4096
	// maxRefusal is how much is read of a body that says why there is no answer.
	maxRefusal = 256 << 10
	// usualDrain is the most time spent on what follows an answer.
	usualDrain = 300 * time.Millisecond
)

type client struct {
	cfg  model.Config
	key  string
	own  bool // the address is the provider's, not a compatible server's
	opts []option.RequestOption
	how  learned

	maxDrain time.Duration
}

// New makes a client of one model; cfg.Format says of which of the two formats. Nothing
// is taken from the environment. With an empty key no Authorization header is sent. hc
// should be of package wire, which bounds times and sizes.
func New(cfg model.Config, key string, hc *http.Client) model.Client {
	c := &client{cfg: cfg, key: strings.TrimSpace(key), own: true, maxDrain: usualDrain}
	address := ownAddress
	if cfg.BaseURL != "" {
		address = cfg.BaseURL
		c.own = isOwn(address)
	}
	c.how.h = known(cfg, c.own)
	c.opts = []option.RequestOption{
		option.WithBaseURL(address),
		option.WithAPIKey(c.key),
		option.WithHTTPClient(hc),
		option.WithMaxRetries(0),
		option.WithMiddleware(c.refuse),
	}
	return c
}

// isOwn reports whether an address is OpenAI's, or Azure's, which is as strict.
func isOwn(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	host := strings.ToLower(u.Hostname())
	return host == "api.openai.com" || strings.HasSuffix(host, ".api.openai.com") || strings.HasSuffix(host, ".openai.azure.com")
}

// from names what gave an opaque part and may get it back.
func (c *client) from() string { return string(c.cfg.Format) + ":" + c.cfg.Model }

// Answer implements model.Client.
func (c *client) Answer(ctx context.Context, r model.Request, each func(model.Delta)) (model.Answer, error) {
	if each == nil {
		each = func(model.Delta) {}
	}
	a, err := c.answer(ctx, r, each)
	if err != nil {
		return model.Answer{}, wire.Error(ctx, err, c.key)
	}
	return a, nil
}

func (c *client) answer(ctx context.Context, r model.Request, each func(model.Delta)) (model.Answer, error) {
	if c.key != "" && !c.cfg.KeySafe() {
		return model.Answer{}, &model.Error{Kind: model.ErrAuth, Message: fmt.Sprintf("%s is neither this machine nor reached over TLS, so the key is not sent there: use an https address, or take the key out", c.cfg.BaseURL)}
	}
	if strings.ContainsFunc(c.key, func(r rune) bool { return r <= ' ' || r == 127 }) {
		return model.Answer{}, &model.Error{Kind: model.ErrAuth, Message: "the key holds spaces or control characters, which no key has: enter it again"}
	}
	// A derived context, so that whatever ends this ends the connection.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	if c.cfg.Format != model.FormatChat && c.cfg.Format != model.FormatResponses {
		return model.Answer{}, &model.Error{Kind: model.ErrInvalid, Message: fmt.Sprintf("the format %q is not one of OpenAI's", c.cfg.Format)}
	}
	h := c.how.get()
	resp, read, err := c.ask(ctx, r, h, each)
	for err != nil && c.how.refused(h, err) {
		h = c.how.get()
		resp, read, err = c.ask(ctx, r, h, each)
	}
	if err != nil {
		return model.Answer{}, err
	}
	if resp == nil {
		return model.Answer{}, &model.Error{Kind: model.ErrProtocol, Message: "the server gave no answer"}
	}
	defer resp.Body.Close()
	a, err := decode(ctx, resp.Body, read)
	if err != nil {
		var f *failure
		if errors.As(err, &f) {
			return model.Answer{}, f.error(resp.StatusCode, resp.Header, c.key)
		}
		var e *model.Error
		if errors.As(err, &e) && e.Status == 0 && e.RequestID == "" {
			e.RequestID = wire.RequestID(resp.Header, c.key)
		}
		return model.Answer{}, err
	}
	if a.ID == "" {
		a.ID = wire.RequestID(resp.Header, c.key)
	}
	c.drain(resp.Body, cancel)
	return a, nil
}

// ask sends a request by the habits that are known, and returns the response, unread,
// with what can read it.
func (c *client) ask(ctx context.Context, r model.Request, h habits, each func(model.Delta)) (*http.Response, reader, error) {
	if c.cfg.Format == model.FormatResponses || h.responses {
		resp, err := c.askResponses(ctx, r, h)
		return resp, newResponses(c.from(), each), err
	}
	resp, err := c.askChat(ctx, r, h)
	return resp, newChat(c.from(), each), err
}

// drain reads the little that follows a stream's last word, so that the server sees its
// answer taken to the end and the connection can be used again. It waits no longer than
// that is worth.
func (c *client) drain(body io.Reader, stop func()) {
	t := time.AfterFunc(c.maxDrain, stop)
	defer t.Stop()
	_, _ = io.CopyN(io.Discard, body, maxEvent)
}

// refuse turns a status that is no answer into an error, before the SDK looks at it: it
// would read the whole body and lose the status where that is no JSON.
func (c *client) refuse(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	resp, err := next(req)
	if err != nil || resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, err
	}
	defer resp.Body.Close()
	// What can be read of the reason is enough; a body that breaks off has its status.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	return nil, parseFailure(body).error(resp.StatusCode, resp.Header, c.key)
}

// reader makes an answer of the events of a stream.
type reader interface {
	// event takes one event; done means that no more is needed.
	event(e event) (done bool, err error)
	// whole takes an answer that came at once, as one JSON value.
	whole(body []byte) error
	// last takes the mark that nothing follows.
	last()
	// end makes the answer once the stream ended in order; one that is not whole is an error.
	end() (model.Answer, error)
}

// decode reads a body to its end or to the stream's last word.
func decode(ctx context.Context, body io.Reader, read reader) (model.Answer, error) {
	br := bufio.NewReaderSize(body, 32<<10)
	first, err := firstByte(br)
	if errors.Is(err, io.EOF) {
		return model.Answer{}, cutOff()
	}
	if err != nil {
		return model.Answer{}, err
	}
	if first == '{' || first == '[' {
		return decodeWhole(br, read)
	}
	es := &events{r: br, most: maxEvent}
	for {
		e, err := es.next()
		if errors.Is(err, io.EOF) {
			return read.end()
		}
		if err != nil {
			return model.Answer{}, err
		}
		if ctx.Err() != nil {
			return model.Answer{}, context.Cause(ctx)
		}
		if e.last() {
			read.last()
			return read.end()
		}
		done, err := read.event(e)
		if err != nil {
			return model.Answer{}, err
		}
		if done {
			return read.end()
		}
	}
}

// firstByte skips white space, with which some servers keep a connection alive.
func firstByte(br *bufio.Reader) (byte, error) {
	for {
		b, err := br.Peek(1)
		if err != nil {
			return 0, err
		}
		if b[0] != ' ' && b[0] != '\t' && b[0] != '\r' && b[0] != '\n' {
			return b[0], nil
		}
		_, _ = br.Discard(1)
	}
}

// decodeWhole reads an answer that was not streamed, which some servers and proxies
// give whatever they were asked for.
func decodeWhole(br *bufio.Reader, read reader) (model.Answer, error) {
	body, err := io.ReadAll(io.LimitReader(br, maxEvent+1))
	if err != nil {
		return model.Answer{}, err
	}
	if len(body) > maxEvent {
		return model.Answer{}, tooLarge("a body", maxEvent)
	}
	if err := checkJSON(body); err != nil {
		return model.Answer{}, err
	}
	if f := parseFailure(body); f.explicit {
		return model.Answer{}, f
	}
	if err := read.whole(body); err != nil {
		return model.Answer{}, err
	}
	return read.end()
}

func cutOff() error {
	return &model.Error{Kind: model.ErrNetwork, Message: "the stream ended before the answer was whole"}
}

func protocol(format string, args ...any) error {
	return &model.Error{Kind: model.ErrProtocol, Message: fmt.Sprintf(format, args...)}
}

func tooLarge(what string, most int) error {
	return protocol("the server sent %s of more than %d MiB", what, most>>20)
}
