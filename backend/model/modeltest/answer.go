package modeltest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"glasshouse/backend/model"
)

// choice is an answer of the script and its numbers.
type choice struct {
	a    *Answer
	i, n int
}

// ask is a request that asks the model.
func (x *exchange) ask() {
	a, bad := x.face.parse(x.r.Header, x.r.Body)
	x.mu.Lock()
	x.r.Format = x.face.format()
	if a != nil {
		x.r.Asked, x.r.Tokens, x.r.Summary = a, a.Tokens(), a.Quiet
	}
	x.mu.Unlock()
	switch {
	case bad != nil:
		x.refuse(bad)
		return
	case x.script.Model != "" && a.Model != x.script.Model:
		x.fault(x.r, "refused", "there is no model "+a.Model)
		x.fail(failure{kind: "not_found"})
		return
	case x.script.Context > 0 && a.Tokens()+a.MaxOutput > x.script.Context:
		x.fault(x.r, "too_long", fmt.Sprintf("%d tokens and %d for the answer are more than %d", a.Tokens(), a.MaxOutput, x.script.Context))
		x.fail(failure{kind: "too_long"})
		return
	}
	c, given, why := x.choose(a)
	if why != "" {
		kind := "expect"
		if c.a == nil {
			kind = "script"
		}
		x.fault(x.r, kind, why)
		x.fail(failure{kind: "invalid", message: "the script: " + why})
		return
	}
	if f := c.a.Fail; f != nil {
		x.failAs(f)
		return
	}
	r := x.reply(a, given, c)
	if c.a.FirstMS > 0 && !x.wait(c.a.FirstMS) {
		x.takeBack(c)
		return
	}
	x.send(a, r, c)
}

// reckon takes an answer into the sums. It comes before the last of it is sent: a client
// that has all of it may ask again, or ask for the sums, at once.
func (x *exchange) reckon(a *Asked, r *reply, c choice) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.r.Whole = true
	x.usage = x.usage.Plus(r.usage)
	x.remember(a)
	if x.script.Replay && c.n > 0 {
		x.whole[string(a.canon.b)] = c
	}
}

// choose finds the answer to a request and fills in what varies; why says what is wrong.
func (x *exchange) choose(a *Asked) (c choice, given Answer, why string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.script
	if a.Quiet {
		return choice{a: &Answer{}}, Answer{Say: s.Summary}, ""
	}
	if len(a.Tools) == 0 && s.Plain != nil {
		return choice{a: &Answer{}}, Answer{Say: *s.Plain}, ""
	}
	c, ok := x.pick(a)
	if !ok {
		return c, given, fmt.Sprintf("it has no answer any more; what came last is %.300q", a.NewestText())
	}
	x.r.Answer = c.n
	if e := c.a.Expect; e != nil {
		if why := e.met(a); why != "" {
			return c, given, "the answer of " + c.a.where(c.n-1) + " expects: " + why
		}
	}
	for name, re := range c.a.Capture {
		found := compile(re).FindStringSubmatch(a.NewestText())
		if found == nil {
			return c, given, fmt.Sprintf("nothing for ${%s}: %q is not in what came last: %.600q", name, re, a.NewestText())
		}
		x.captured[name] = found[len(found)-1]
	}
	fill := x.filler(c)
	given = Answer{Say: fill.Replace(c.a.Say), Think: fill.Replace(c.a.Think)}
	for _, k := range c.a.Calls {
		if k.Raw != nil {
			raw := fill.Replace(*k.Raw)
			k.Raw = &raw
		} else if k.Args != nil {
			k.Args = filled(k.Args, fill).(map[string]any)
		}
		given.Calls = append(given.Calls, k)
	}
	return c, given, ""
}

// pick takes the next answer.
func (x *exchange) pick(a *Asked) (choice, bool) {
	s := x.script
	if c, ok := x.whole[string(a.canon.b)]; s.Replay && ok {
		return c, true
	}
	if len(x.again) > 0 {
		c := x.again[0]
		x.again = x.again[1:]
		return c, true
	}
	take := func(an *Answer) choice {
		x.given[an]++
		x.answers++
		return choice{an, x.given[an], x.answers}
	}
	for i := range s.Keyed {
		k := &s.Keyed[i]
		if (k.Times == 0 || x.given[&k.Answer] < k.Times) && k.Match.met(a) == "" {
			return take(&k.Answer), true
		}
	}
	if x.next == len(s.Answers) {
		return choice{}, false
	}
	c := take(&s.Answers[x.next])
	if c.i >= max(1, c.a.Repeat) {
		x.next++
	}
	return c, true
}

// takeBack gives an answer whose client left to the next who asks.
func (x *exchange) takeBack(c choice) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.script.Replay && c.n > 0 {
		x.again = append(x.again, c)
	}
}

func (x *exchange) filler(c choice) *strings.Replacer {
	pairs := []string{"${i}", strconv.Itoa(c.i), "${n}", strconv.Itoa(c.n)}
	for name, v := range x.captured {
		pairs = append(pairs, "${"+name+"}", v)
	}
	return strings.NewReplacer(pairs...)
}

// filled is v with every string in it filled in.
func filled(v any, fill *strings.Replacer) any {
	switch v := v.(type) {
	case string:
		return fill.Replace(v)
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = filled(e, fill)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = filled(e, fill)
		}
		return out
	}
	return v
}

// failAs is a failure of the script.
func (x *exchange) failAs(f *Fail) {
	kind := f.Kind
	if kind == "" {
		kind = map[int]string{401: "auth", 403: "auth", 404: "not_found", 429: "rate", 503: "busy", 529: "busy"}[f.Status]
		if kind == "" && f.Status >= 500 {
			kind = "server"
		}
	}
	status, body := x.face.failure(x.told(failure{kind: kind}))
	if f.Status != 0 {
		status = f.Status
	}
	if f.Body != "" {
		body = []byte(f.Body)
	}
	if f.RetryAfter != "" {
		x.w.Header().Set("Retry-After", f.RetryAfter)
	}
	x.json(status, body)
}

// reply puts an answer into its last form.
func (x *exchange) reply(a *Asked, given Answer, c choice) *reply {
	r := &reply{id: fmt.Sprintf("answer_%d", x.r.Number), served: x.script.Served, think: given.Think, say: given.Say, stop: c.a.Stop, n: x.r.Number}
	if r.served == "" {
		r.served = a.Model
	}
	for i, k := range given.Calls {
		o := outCall{id: k.ID, item: fmt.Sprintf("fc_%d_%d", x.r.Number, i+1), tool: k.Tool}
		if o.id == "" {
			o.id = fmt.Sprintf("call_%d_%d", x.r.Number, i+1)
			if c, ok := x.face.(chat); ok {
				o.id = c.callID(x.r.Number, i+1, given.Think != "")
			}
		}
		switch {
		case k.Raw != nil:
			o.args = *k.Raw
		case k.Args == nil:
			o.args = "{}"
		default:
			o.args = string(js(k.Args))
		}
		r.calls = append(r.calls, o)
	}
	if r.stop == "" {
		r.stop = model.StopEnd
		if len(r.calls) > 0 {
			r.stop = model.StopCalls
		}
	}
	var opts struct {
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
		Include []string `json:"include"`
	}
	_ = json.Unmarshal(x.r.Body, &opts)
	r.withUsage, r.sealed = opts.StreamOptions.IncludeUsage, slices.Contains(opts.Include, "reasoning.encrypted_content")
	if u := c.a.Usage; u != nil {
		r.usage = model.Usage(*u)
	} else {
		r.usage = x.counted(a, r)
	}
	return r
}

// send writes an answer.
func (x *exchange) send(a *Asked, r *reply, c choice) {
	if !a.Stream {
		body := x.face.whole(r)
		switch {
		case c.a.MidError != nil:
			x.fail(failure{kind: c.a.MidError.Kind})
			return
		case c.a.Stall != nil:
			<-x.ctx.Done()
			return
		case c.a.Cut != nil:
			x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			x.header(200, "application/json")
			x.cut(body[:min(len(body)-1, max(1, c.a.Cut.AfterBytes))], c.a.Cut.How)
			return
		}
		x.reckon(a, r, c)
		x.json(200, body)
		return
	}
	frames := x.face.stream(r, first(c.a.Chunk, x.script.Chunk, 12))
	last := len(frames)
	switch {
	case c.a.MidError != nil:
		last = min(c.a.MidError.AfterEvents, last-1)
	case c.a.Stall != nil:
		last = min(c.a.Stall.AfterEvents, last-1)
	case c.a.Cut != nil && c.a.Cut.AfterEvents > 0:
		last = min(c.a.Cut.AfterEvents, last-1)
	}
	whole := c.a.MidError == nil && c.a.Stall == nil && c.a.Cut == nil
	frames = frames[:last]
	if c.a.MidError != nil {
		frames = append(frames, x.face.midError(x.told(failure{kind: c.a.MidError.Kind}))...)
	}
	x.header(200, "text/event-stream; charset=utf-8")
	flush := x.w.(http.Flusher)
	flush.Flush()
	total := 0
	for i, f := range frames {
		if !x.held(c.a.Hold, i, len(frames)) {
			x.takeBack(c)
			return
		}
		if d := first(c.a.DelayMS, x.script.DelayMS); d > 0 && !x.wait(d) {
			x.takeBack(c)
			return
		}
		b := f.bytes()
		if cut := c.a.Cut; cut != nil && cut.AfterBytes > 0 && total+len(b) >= cut.AfterBytes {
			x.cut(b[:cut.AfterBytes-total], cut.How)
			return
		}
		total += len(b)
		x.sent.Write(b)
		if whole && i == len(frames)-1 {
			x.reckon(a, r, c)
		}
		if _, err := x.w.Write(b); err != nil {
			if i < len(frames)-1 {
				x.takeBack(c)
			}
			return
		}
		flush.Flush()
	}
	switch {
	case c.a.Cut != nil:
		x.cut(nil, c.a.Cut.How)
	case c.a.Stall != nil:
		<-x.ctx.Done()
	}
}

func first(ns ...int) int {
	for _, n := range ns {
		if n > 0 {
			return n
		}
	}
	return 0
}

// held stands still where it should, until the file is there; false when the client left.
func (x *exchange) held(at []Hold, i, frames int) bool {
	for _, h := range at {
		for i == min(h.AfterEvents, frames-1) {
			if _, err := os.Stat(h.File); err == nil {
				break
			}
			if !x.wait(20) {
				return false
			}
		}
	}
	return true
}

// wait returns false when the client left.
func (x *exchange) wait(ms int) bool {
	t := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-x.ctx.Done():
		return false
	}
}

// cut sends the rest and breaks the connection.
func (x *exchange) cut(rest []byte, how string) {
	x.sent.Write(rest)
	_, _ = x.w.Write(rest)
	if f, ok := x.w.(http.Flusher); ok {
		f.Flush()
	}
	c, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		x.fault(x.r, "script", "the connection could not be cut: "+err.Error())
		return
	}
	if tcp, ok := c.(*net.TCPConn); ok && how != "close" {
		// A reset throws away what the client has not read yet.
		time.Sleep(20 * time.Millisecond)
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
