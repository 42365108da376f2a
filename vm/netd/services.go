package netd

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// counts of frames by what was done with them.
type counts struct{ n [kinds]atomic.Uint64 }

func (c *counts) add(k kind) { c.n[k].Add(1) }

// Status is what GET /status on the "ep" socket answers.
type Status struct {
	Pid       int               `json:"pid"`
	Connected bool              `json:"connected"` // a machine's card is attached
	Ended     bool              `json:"ended"`     // it was and is no more
	Since     int64             `json:"since_ms"`  // Unix time of the attachment
	GuestMAC  string            `json:"guest_mac"`
	Frames    map[string]uint64 `json:"frames"` // by kind; see kindNames
}

func (l *link) status() Status {
	mac := l.guestMAC()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Status{Pid: os.Getpid(), Connected: l.wire != nil, Ended: l.seen && l.wire == nil, GuestMAC: mac.String(), Frames: map[string]uint64{}}
	if l.seen {
		s.Since = l.since.UnixMilli()
	}
	for i, name := range kindNames {
		s.Frames[name] = l.counts.n[i].Load()
	}
	return s
}

// services answers what Lima's host agent asks its network. Asking to forward a
// port or to add a name succeeds and does nothing: Lima stops a machine whose
// network says no, and nothing is forwarded here.
func services(c *Config, l *link) http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("GET /services/dhcp/leases", func(w http.ResponseWriter, _ *http.Request) {
		leases := map[string]string{c.Gateway.String(): GatewayMAC}
		if m := l.guestMAC(); m != nil {
			leases[c.Guest.String()] = m.String()
		}
		answer(w, leases)
	})
	ignore := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, 64<<10))
		w.WriteHeader(http.StatusOK)
	}
	mux.HandleFunc("POST /services/forwarder/expose", ignore)
	mux.HandleFunc("POST /services/forwarder/unexpose", ignore)
	mux.HandleFunc("POST /services/dns/add", ignore)
	empty := func(w http.ResponseWriter, _ *http.Request) { answer(w, []struct{}{}) }
	mux.HandleFunc("GET /services/forwarder/all", empty)
	mux.HandleFunc("GET /services/dns/all", empty)
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { answer(w, l.status()) })
	return mux
}

// reporter logs what was dropped, seldom: the guest decides how much there is
// to say, so the pauses double from ten seconds to an hour while it goes on.
type reporter struct {
	log   *slog.Logger
	c     *counts
	last  [kinds]uint64
	next  time.Time
	pause time.Duration
}

const (
	reportFirst = 10 * time.Second
	reportMax   = time.Hour
)

func newReporter(log *slog.Logger, c *counts) *reporter {
	return &reporter{log: log, c: c, pause: reportFirst}
}

func (r *reporter) tick(now time.Time) {
	if now.Before(r.next) {
		return
	}
	if !r.write("frames not passed") {
		r.pause = reportFirst
		return
	}
	r.next = now.Add(r.pause)
	r.pause = min(2*r.pause, reportMax)
}

func (r *reporter) final() { r.write("frames not passed, at the end") }

func (r *reporter) write(msg string) bool {
	var parts []string
	for i := range kindNames {
		n := r.c.n[i].Load()
		if kind(i) != kPass && kind(i) != kARPReply && n != r.last[i] {
			parts = append(parts, fmt.Sprintf("%s=%d", kindNames[i], n))
		}
		r.last[i] = n
	}
	if len(parts) == 0 {
		return false
	}
	r.log.Info(msg, "counts", strings.Join(parts, " "))
	return true
}
