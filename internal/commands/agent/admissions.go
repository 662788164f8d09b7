package agent

import (
	"sync"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// maxNames bounds the webhooks, policies and plugins that are counted under their own names.
const maxNames = 1000

// names are the names with counts of their own.
var names struct {
	sync.Mutex
	known map[string]bool
}

// named returns the label for a name: the name itself, or (others) beyond maxNames.
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

// deeds are the counted effects and their label values.
var deeds = map[trace.Deed]string{trace.Rejects: "rejected", trace.FailsOpen: "failed_open", trace.Changes: "changed", trace.Notes: "noted"}

// countAdmission counts the effects of webhooks, policies and plugins on a request, as far as its audit
// events record them.
func countAdmission(t *trace.Trace) {
	r := t.Verdicts(false)
	for c := range r.Calls() {
		if c.Known == trace.Derived && c.Deed() == "" {
			// The audit event does not record it.
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
