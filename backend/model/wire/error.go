package wire

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"glasshouse/backend/model"
)

// MaxMessage is the most bytes of an error's message.
const MaxMessage = 2000

// Error turns what failed on the way to a server or back into a *model.Error that does
// not hold the key, or into ctx's cause when that ended. An *model.Error in err's chain
// keeps its kind. It returns nil for nil.
func Error(ctx context.Context, err error, key string) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var known *model.Error
	if errors.As(err, &known) {
		e := *known
		if e.Message == "" && e.Err != nil {
			e.Message = e.Err.Error()
		}
		e.Message, e.Err = Message(e.Message, key), nil
		return &e
	}
	kind, text := reason(err)
	return &model.Error{Kind: kind, Message: Message(text, key)}
}

// badHTTP is how the standard library names what is no HTTP; it has no types for it.
var badHTTP = []string{
	"response headers exceeded", "header list larger", "too many 1xx", "malformed", "chunk",
	"PROTOCOL_ERROR", "FRAME_SIZE_ERROR", "FLOW_CONTROL_ERROR", "COMPRESSION_ERROR",
}

// reason of a failure below HTTP's statuses.
func reason(err error) (model.ErrorKind, string) {
	at := "the server"
	var ue *url.Error
	if errors.As(err, &ue) {
		if u, e := url.Parse(ue.URL); e == nil && u.Host != "" {
			at = u.Host
		}
		err = ue.Err
	}
	text := err.Error()

	var (
		dns     *net.DNSError
		cert    *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
		record  tls.RecordHeaderError
		alert   tls.AlertError
		op      *net.OpError
		timeout net.Error
		syntax  *json.SyntaxError
		typed   *json.UnmarshalTypeError
	)
	switch {
	case errors.As(err, &op) && op.Op == "proxyconnect":
		return model.ErrNetwork, fmt.Sprintf("the proxy by which %s is to be reached cannot be reached itself: %s; see HTTPS_PROXY and NO_PROXY in the environment in which Glasshouse was started", at, op.Err)
	case errors.As(err, &name):
		return model.ErrNotFound, fmt.Sprintf("%s shows a certificate that is another's: %s; nothing was sent: check the address", at, text)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return model.ErrNotFound, fmt.Sprintf("%s shows a certificate whose time is over or has not come: %s; nothing was sent: check this machine's clock, or tell who runs the server", at, text)
	case errors.As(err, &cert), errors.As(err, &unknown), errors.As(err, &invalid):
		return model.ErrNotFound, fmt.Sprintf("%s shows a certificate that this machine does not trust: %s; nothing was sent: if the server is your own, add who signed its certificate to those that this machine trusts", at, text)
	case errors.As(err, &record), strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return model.ErrNotFound, fmt.Sprintf("%s does not speak TLS: does its address begin with http:// ?", at)
	case errors.As(err, &dns) && !dns.IsTimeout:
		return model.ErrNetwork, fmt.Sprintf("the name %s was not found: check the address and the connection", dns.Name)
	case errors.Is(err, syscall.ECONNREFUSED):
		return model.ErrNetwork, fmt.Sprintf("nothing listens at %s (connection refused): is the server running?", at)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return model.ErrNetwork, fmt.Sprintf("%s cut the connection (reset)", at)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return model.ErrNetwork, fmt.Sprintf("%s ended the connection before its answer was whole", at)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		if errors.As(err, &op) && op.Op == "dial" {
			return model.ErrTimeout, fmt.Sprintf("no connection to %s within %s", at, dialTimeout)
		}
		return model.ErrTimeout, fmt.Sprintf("%s did not answer in time: %s", at, text)
	case errors.As(err, &alert), strings.Contains(text, "tls: "):
		return model.ErrNetwork, fmt.Sprintf("no TLS with %s: %s", at, text)
	case strings.Contains(text, `malformed HTTP response "\x15\x03`):
		return model.ErrNotFound, fmt.Sprintf("%s speaks TLS alone: its address begins with https://", at)
	case slices.ContainsFunc(badHTTP, func(w string) bool { return strings.Contains(text, w) }):
		return model.ErrProtocol, fmt.Sprintf("%s does not speak HTTP as it should: %s", at, text)
	case errors.Is(err, bufio.ErrTooLong):
		return model.ErrProtocol, fmt.Sprintf("%s sent a line that is longer than any should be", at)
	case errors.As(err, &syntax), errors.As(err, &typed):
		return model.ErrProtocol, fmt.Sprintf("%s sent what is no JSON of the expected form: %s", at, text)
	}
	return model.ErrNetwork, fmt.Sprintf("%s could not be asked: %s", at, text)
}

// Refusal makes the error of a server that answered with a status or an error of its
// own. An empty kind is chosen by the status; an empty text is made from it.
func Refusal(kind model.ErrorKind, status int, h http.Header, text, key string) *model.Error {
	if kind == "" {
		kind = KindOfStatus(status)
	}
	if strings.TrimSpace(text) == "" {
		text = "the server gave no reason"
		if s := http.StatusText(status); s != "" {
			text = s
		}
	}
	return &model.Error{Kind: kind, Status: status, Message: Message(text, key), RetryAfter: RetryAfter(h, time.Now()), RequestID: requestID(h, key)}
}

// KindOfStatus is what a status of HTTP means where a server says no more.
func KindOfStatus(status int) model.ErrorKind {
	switch status {
	case 401, 403, 407:
		return model.ErrAuth
	case 402:
		return model.ErrQuota
	case 404, 405, 410:
		return model.ErrNotFound
	case 408, 504, 524:
		return model.ErrTimeout
	case 413:
		return model.ErrTooLong
	case 409, 425, 503, 529:
		return model.ErrBusy
	case 429:
		return model.ErrRate
	}
	switch {
	case status >= 500:
		return model.ErrServer
	case status >= 400:
		return model.ErrInvalid
	}
	return model.ErrProtocol
}

// RetryAfter is how long the server asks to wait: its header Retry-After-Ms, or
// Retry-After in seconds or as a date. 0 = it does not say, or says nonsense.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	const most = 366 * 24 * time.Hour // what is longer is as good as never, and must not overflow
	if v, err := strconv.ParseFloat(strings.TrimSpace(h.Get("Retry-After-Ms")), 64); err == nil && v > 0 {
		return time.Duration(min(v*float64(time.Millisecond), float64(most)))
	}
	text := strings.TrimSpace(h.Get("Retry-After"))
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		if v > 0 {
			return time.Duration(min(v*float64(time.Second), float64(most)))
		}
		return 0
	}
	if t, err := http.ParseTime(text); err == nil {
		if d := t.Sub(now); d > 0 {
			return min(d, most)
		}
	}
	return 0
}

// RequestID is the server's name for an exchange, for a support ticket.
func RequestID(h http.Header, key string) string { return requestID(h, key) }

func requestID(h http.Header, key string) string {
	for _, name := range []string{"Request-Id", "X-Request-Id"} {
		if v := h.Get(name); v != "" {
			return cut(line(Scrub(v, key)), 200)
		}
	}
	return ""
}

// Message makes a server's text fit to be shown and kept: without the key, without
// control characters, valid UTF-8 and at most MaxMessage bytes.
func Message(text, key string) string {
	text = text[:min(len(text), maxRefusal)]
	return cut(line(Scrub(text, key)), MaxMessage)
}

// line has no control characters but line ends and tabs.
func line(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) && !unicode.Is(unicode.Cf, r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(s, "\uFFFD")))
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const more = " […]"
	n := most - len(more)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + more
}
