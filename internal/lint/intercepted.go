package lint

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/report"
)

// intercepted is a webhook and the probes to which it applies.
type intercepted struct {
	hit
	// probes describe the intercepted requests, each once.
	probes []string
}

// interceptors returns the webhooks that apply to any of the probes, if want is true of them.
func (p *pass) interceptors(probes []*probe, want func(*snapshot.Entry) bool) []*intercepted {
	var list []*intercepted
	of := map[*snapshot.Entry]*intercepted{}
	for _, q := range probes {
		for _, h := range p.hits(q, func(e *snapshot.Entry) bool { return p.isWanted(e) && want(e) }) {
			i := of[h.Entry]
			if i == nil {
				i = &intercepted{hit: h}
				of[h.Entry] = i
				list = append(list, i)
			}
			if h.unsure == "" {
				// One probe to which the webhook applies for sure is enough.
				i.unsure = ""
			}
			if !slices.Contains(i.probes, q.what) {
				i.probes = append(i.probes, q.what)
			}
		}
	}
	return list
}

// closed returns a level for webhooks that fail closed. It is not Error if the hit depends on a
// part that cannot be seen.
func closed(h hit, level report.Level) report.Level {
	if h.unsure != "" && level == Error {
		return Warning
	}
	return level
}

func mutates(e *snapshot.Entry) bool { return e.Source == registration.Mutating }
