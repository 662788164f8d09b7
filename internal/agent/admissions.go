package agent

import (
	"sync"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// maxNames bounds the webhooks, policies and plugins that are counted by their names.
const maxNames = 1000

// names are those that are counted.
var names struct {
	sync.Mutex
	known map[string]bool
}

// named returns a name, and (others) for each that is one too many.
func named(name string) string {
	names.Lock()
	defer names.Unlock()
	switch {
	case names.known[name]:
	case len(names.known) >= maxNames:
		return "(others)"
	case names.known == nil:
		names.known = map[string]bool{}
	}
	names.known[name] = true
	return name
}

// deeds are what is counted of them.
var deeds = map[trace.Deed]string{trace.Rejects: "rejected", trace.FailsOpen: "failed_open", trace.Changes: "changed", trace.Notes: "noted"}

// countAdmission counts what webhooks, policies and plugins did to a request, as far as its audit events say.
func countAdmission(t *trace.Trace) {
	r := t.Verdicts(false)
	for c := range r.Calls() {
		if c.Known == trace.Derived && c.Deed() == "" {
			// The audit event does not say it.
			continue
		}
		admissions.WithLabelValues(trace.ByWebhook, named(c.Webhook.String()), "called").Inc()
	}
	for a := range r.Acts() {
		if did := deeds[a.Deed]; did != "" {
			admissions.WithLabelValues(a.Kind, named(a.By), did).Inc()
		}
	}
}
