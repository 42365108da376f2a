package model

import "testing"

// What a server reports of tokens can be anything. Costs stay above zero and can be
// summed up, so that a limit is reached and not passed under.
func TestCostOfAbsurdUsage(t *testing.T) {
	most := Usage{Input: 1 << 40, CacheRead: 1 << 40, CacheWrite: 1 << 40, Output: 1 << 40}
	for _, p := range []Price{{Input: 3, Output: 15}, {Input: 100_000, Output: 100_000}, {Output: 0.000_001}, {}} {
		var sum int64
		for range 5000 {
			c := p.Cost(most)
			if c < 0 || c > maxCost {
				t.Fatalf("%+v: %d", p, c)
			}
			if sum += c; sum < 0 {
				t.Fatalf("%+v: the sum turned over", p)
			}
		}
	}
	if got := (&Price{Input: 3, CacheRead: 0.3, Output: 15}).Cost(Usage{Input: 1000, CacheRead: 10_000, CacheWrite: 100, Output: 10}); got != 3_000_000+3_000_000+300_000+150_000 {
		t.Error(got)
	}
}

func TestLocal(t *testing.T) {
	for base, want := range map[string]bool{"http://127.0.0.1:11434/v1": true, "http://localhost:8080": true, "https://[::1]:1": true, "http://127.9.9.9": true,
		"": false, "https://api.test/v1": false, "http://192.0.2.1": false, "http://localhost.test": false, "http://127.0.0.1.test": false, ":": false} {
		if c := (Config{BaseURL: base}); c.Local() != want {
			t.Errorf("%q: %v", base, c.Local())
		}
	}
}
