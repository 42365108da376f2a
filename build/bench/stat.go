package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one comparison, as the report's last line gives it.
type row struct {
	What   string  `json:"what"`
	Ours   float64 `json:"ours"`
	Peer   float64 `json:"peer"`
	Unit   string  `json:"unit"`
	Ratio  float64 `json:"ratio"`
	Target float64 `json:"target"` // the largest ratio that is good
	OK     bool    `json:"ok"`
}

func compare(what, unit string, ours, peer, target float64) row {
	r := row{What: what, Unit: unit, Ours: round(ours, 3), Peer: round(peer, 3), Ratio: round(ours/peer, 3), Target: target}
	r.OK = ours/peer <= target
	return r
}

func round(f float64, digits int) float64 {
	var v float64
	_, _ = fmt.Sscanf(fmt.Sprintf("%.*f", digits, f), "%g", &v)
	return v
}

// series are the times of one way.
type series struct {
	name  string
	times []time.Duration
}

func (s *series) add(d time.Duration) { s.times = append(s.times, d) }

// at returns a percentile, 0 to 100, between the two nearest times.
func (s *series) at(p float64) time.Duration {
	t := slices.Sorted(slices.Values(s.times))
	x := p / 100 * float64(len(t)-1)
	i := int(x)
	if i+1 >= len(t) {
		return t[len(t)-1]
	}
	return t[i] + time.Duration((x-float64(i))*float64(t[i+1]-t[i]))
}

func (s *series) ms(p float64) float64 { return float64(s.at(p).Microseconds()) / 1000 }

// report is all that was measured.
type report struct {
	about []string
	execs []*series
	colds []*series
	rows  []row
}

func (r *report) print(w io.Writer) {
	for _, l := range r.about {
		fmt.Fprintln(w, l)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "no-op exec (/bin/true), interleaved\tn\tp50 ms\tp95 ms\tmin ms\tmax ms")
	for _, s := range r.execs {
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%.1f\t%.1f\t%.1f\n", s.name, len(s.times), s.ms(50), s.ms(95), s.ms(0), s.ms(100))
	}
	_ = t.Flush()
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "cold start, in turn\tmedian s\teach")
	for _, s := range r.colds {
		var each []string
		for _, d := range s.times {
			each = append(each, fmt.Sprintf("%.2f", d.Seconds()))
		}
		fmt.Fprintf(t, "%s\t%.2f\t%s\n", s.name, s.at(50).Seconds(), strings.Join(each, " "))
	}
	_ = t.Flush()
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "comparison\tours\tpeer\tunit\tratio\ttarget\t")
	for _, x := range r.rows {
		mark := "ok"
		if !x.OK {
			mark = "MISSED"
		}
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%s\t%.3f\t<= %.2f\t%s\n", x.What, x.Ours, x.Peer, x.Unit, x.Ratio, x.Target, mark)
	}
	_ = t.Flush()
	fmt.Fprintln(w)
}

// load is the host's load average, where it tells.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	f := strings.Fields(string(b))
	return strings.Join(f[:min(3, len(f))], " ")
}
