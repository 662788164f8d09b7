package lint

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// intercepted is a webhook and the probes that it applies to.
type intercepted struct {
	hit
	// probes say what is intercepted, each once.
	probes []string
}

// interceptors returns the webhooks, of those that are wanted, that apply to any of some
// probes.
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
				// One that is sure is enough.
				i.unsure = ""
			}
			if !slices.Contains(i.probes, q.what) {
				i.probes = append(i.probes, q.what)
			}
		}
	}
	return list
}

// closed is a level for webhooks that fail closed: not an error if it depends on what cannot
// be seen.
func closed(h hit, level Level) Level {
	if h.unsure != "" && level == Error {
		return Warning
	}
	return level
}

func mutates(e *snapshot.Entry) bool { return e.Source == registration.Mutating }
