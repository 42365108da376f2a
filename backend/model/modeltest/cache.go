package modeltest

import "glasshouse/backend/model"

// counted is what the server reports of an answer when the script does not say.
func (x *exchange) counted(a *Asked, r *reply) model.Usage {
	out := len(r.think) + len(r.say)
	for _, k := range r.calls {
		out += len(k.tool) + len(k.args)
	}
	u := model.Usage{Output: max(1, quarter(out)), Reasoning: quarter(len(r.think))}
	total := a.Tokens()
	x.mu.Lock()
	defer x.mu.Unlock()
	if a.Format == model.FormatMessages {
		if len(a.marks) > 0 {
			held := a.canon.b[:a.marks[len(a.marks)-1]]
			u.CacheRead = quarter(x.common(held))
			u.CacheWrite = quarter(len(held)) - u.CacheRead
		}
	} else if n := quarter(x.common(a.canon.b)); n >= 1024 {
		u.CacheRead = min(n, total) / 128 * 128
	}
	u.Input = total - u.CacheRead - u.CacheWrite
	return u
}

// common is the longest beginning that text has in common with one in the cache.
func (x *exchange) common(text []byte) (best int) {
	for _, b := range x.read {
		n := 0
		for n < len(b) && n < len(text) && b[n] == text[n] {
			n++
		}
		best = max(best, n)
	}
	return best
}

// remember puts a request into the cache, which holds the newest 16.
func (s *Server) remember(a *Asked) {
	b := a.canon.b
	if a.Format == model.FormatMessages {
		if len(a.marks) == 0 {
			return
		}
		b = b[:a.marks[len(a.marks)-1]]
	}
	if s.read = append(s.read, b); len(s.read) > 16 {
		s.read = s.read[1:]
	}
}
