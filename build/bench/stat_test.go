package main

import (
	"testing"
	"time"
)

func TestPercentiles(t *testing.T) {
	s := &series{}
	for _, ms := range []int{40, 10, 30, 20} {
		s.add(time.Duration(ms) * time.Millisecond)
	}
	for p, want := range map[float64]float64{0: 10, 50: 25, 100: 40} {
		if got := s.ms(p); got != want {
			t.Errorf("p%g is %g ms, want %g", p, got, want)
		}
	}
	if s.times[0] != 40*time.Millisecond {
		t.Error("the times were sorted in place: their order tells of drift")
	}
	one := &series{times: []time.Duration{time.Second}}
	if one.at(95) != time.Second {
		t.Error("a single time is every percentile")
	}
}

func TestTargets(t *testing.T) {
	if r := compare("x", "ms", 25, 100, 0.25); !r.OK || r.Ratio != 0.25 {
		t.Errorf("exactly on target: %+v", r)
	}
	// What rounds to the target is not within it.
	if r := compare("x", "ms", 25.004, 100, 0.25); r.OK {
		t.Errorf("just past the target: %+v", r)
	}
}
