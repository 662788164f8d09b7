package replicas

import (
	"testing"
	"time"
)

// The checker detects each kind of escape.
func TestChecker(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	for _, c := range []struct {
		name      string
		judgement judgement
		unknown   int
		bound     time.Duration
		own       time.Duration
		escapes   int
		longest   time.Duration
	}{
		{name: "judged by it", judgement: judgement{began: at(10), revision: 7, versions: map[string]int{"a": 2}}},
		{name: "judged by what came later", judgement: judgement{began: at(10), revision: 9, versions: map[string]int{"a": 3}}},
		{name: "began before", judgement: judgement{began: at(-1), revision: 6, versions: map[string]int{"a": 1}}},
		{name: "an older revision", judgement: judgement{began: at(10), revision: 6, versions: map[string]int{"a": 2}}, escapes: 1, longest: 10 * time.Millisecond},
		{name: "an older param", judgement: judgement{began: at(10), revision: 7, versions: map[string]int{"a": 2, "param": 4}}, escapes: 1, longest: 10 * time.Millisecond},
		{name: "a param, whatever the revision is", judgement: judgement{began: at(10), revision: 7, versions: map[string]int{"a": 2, "param": 5}}},
		{name: "an older version, whatever the header says", judgement: judgement{began: at(10), revision: 7, versions: map[string]int{"a": 1}}, escapes: 1, longest: 10 * time.Millisecond},
		{name: "no hook at all", judgement: judgement{began: at(10), revision: 7}, escapes: 1, longest: 10 * time.Millisecond},
		{name: "a write that came into effect late", judgement: judgement{began: at(10), revision: 8, versions: map[string]int{"a": 1}}, unknown: 1},
		{name: "within the bound", judgement: judgement{server: 1, began: at(10), revision: 6, versions: map[string]int{"a": 1}}, bound: time.Second, longest: 10 * time.Millisecond},
		{name: "within the bound of others", judgement: judgement{began: at(10), revision: 6, versions: map[string]int{"a": 1}}, bound: time.Second, escapes: 1, longest: 10 * time.Millisecond},
		{name: "within the bound of the server that acknowledged it", judgement: judgement{began: at(10), revision: 6, versions: map[string]int{"a": 1}}, own: time.Second, longest: 10 * time.Millisecond},
	} {
		h := newHistory()
		h.registered(registration{hook: "a", version: 2, revision: 7, acknowledged: start})
		if c.judgement.versions["param"] > 0 {
			h.registered(registration{hook: "param", version: 5, acknowledged: start})
		}
		if c.unknown > 0 {
			h.lost("a", c.unknown)
		}
		h.judged(c.judgement)
		escapes, longest := h.check(c.bound, c.own)
		if len(escapes) != c.escapes || longest != c.longest {
			t.Errorf("%s: %d escapes, want %d; longest %s, want %s: %q", c.name, len(escapes), c.escapes, longest, c.longest, escapes)
		}
	}
}
