// Package anthropic speaks Anthropic's Messages, to its own servers or to others that
// offer the same. It alone imports the library for that.
package anthropic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"glasshouse/backend/model"
	"glasshouse/backend/model/wire"
)

const ownAddress = "https://api.anthropic.com/"

type client struct {
	cfg      model.Config
	key      string
	messages anthropic.MessageService
	how      learned
}

// New makes a client of the model. An empty key sends none; hc is made by wire.NewClient.
// Nothing is read from the environment.
func New(cfg model.Config, key string, hc *http.Client) model.Client {
	return &client{cfg: cfg, key: key, messages: anthropic.NewMessageService(options(cfg, key, hc)...), how: learned{h: known(cfg)}}
}

func options(cfg model.Config, key string, hc *http.Client) []option.RequestOption {
	base := address(cfg.BaseURL)
	out := []option.RequestOption{
		option.WithBaseURL(base),
		option.WithHTTPClient(hc),
		option.WithMaxRetries(0),
		option.WithoutOpenTelemetry(),
		option.WithOpenTelemetryPropagation(false),
	}
	if key != "" {
		out = append(out, option.WithAPIKey(key)) // sent as a bearer token
		if base != ownAddress {
			// Servers that offer the same format look for the key in the one place or the other.
			out = append(out, option.WithHeader("X-Api-Key", key))
		}
	}
	return out
}

// address below which /v1/messages is. A /v1 at its end, as the other formats have it,
// is taken off.
func address(base string) string {
	if base == "" {
		return ownAddress
	}
	u, err := url.Parse(base)
	if err != nil {
		return base // the library says what is wrong with it
	}
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1") + "/"
	u.RawPath = ""
	return u.String()
}

// from is what thoughts of this model are marked with.
func (c *client) from() string { return string(model.FormatMessages) + ":" + c.cfg.Model }

func (c *client) Answer(ctx context.Context, r model.Request, each func(model.Delta)) (model.Answer, error) {
	if c.key != "" && !c.cfg.KeySafe() {
		return model.Answer{}, &model.Error{Kind: model.ErrAuth, Message: fmt.Sprintf("%s is neither this machine nor reached over TLS, so the key is not sent there: use an https address, or take the key out", c.cfg.BaseURL)}
	}
	for {
		was := c.how.get()
		a, err := c.once(ctx, r, each)
		if err == nil || !c.how.refused(was, err) {
			return a, err
		}
	}
}

// once asks by the habits that are known.
func (c *client) once(ctx context.Context, r model.Request, each func(model.Delta)) (model.Answer, error) {
	q, names, err := c.request(ctx, r)
	if err != nil {
		return model.Answer{}, wire.Error(ctx, err, c.key)
	}
	var resp *http.Response
	stream := c.messages.NewStreaming(ctx, q, option.WithResponseInto(&resp))
	defer stream.Close()
	if err := stream.Err(); err != nil {
		return model.Answer{}, c.failed(ctx, err, nil)
	}
	if err := c.notAStream(resp); err != nil {
		return model.Answer{}, c.failed(ctx, err, resp)
	}
	a, err := read(stream, c.from(), names, each)
	if err != nil {
		return model.Answer{}, c.failed(ctx, err, resp)
	}
	if id := wire.RequestID(resp.Header, c.key); id != "" {
		a.ID = id
	}
	return a, nil
}

// notAStream says what came in place of a stream of events.
func (c *client) notAStream(resp *http.Response) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "text/event-stream" || kind == "" {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return err
	}
	if e := parseFailure(b); e.kind != "" {
		return wire.Refusal(e.kindOf(0), resp.StatusCode, resp.Header, e.text, c.key)
	}
	return &model.Error{Kind: model.ErrProtocol, Message: fmt.Sprintf("the server sent %s where a stream of events was asked for: %s", kind, begin(string(b)))}
}

// failed turns any error of the library into one of the contract. resp is the answer in
// whose middle it came, nil when there is none.
func (c *client) failed(ctx context.Context, err error, resp *http.Response) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var api *anthropic.Error
	if errors.As(err, &api) {
		f := parseFailure([]byte(api.RawJSON()))
		var h http.Header
		if api.Response != nil {
			h = api.Response.Header
		}
		status := api.StatusCode
		if resp != nil { // the status told of the beginning, not of this
			status = 0
		}
		return wire.Refusal(f.kindOf(status), status, h, f.text, c.key)
	}
	err = wire.Error(ctx, err, c.key)
	var e *model.Error
	if resp != nil && errors.As(err, &e) && e.RequestID == "" {
		e.RequestID = wire.RequestID(resp.Header, c.key)
	}
	return err
}
