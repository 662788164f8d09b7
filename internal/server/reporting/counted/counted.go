package counted

import (
	"sync/atomic"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/series"
)

// name is one by which metrics count: that of a webhook or of a policy.
type name struct{ label, value string }

// prefixes are those of the metrics with such a label.
var prefixes = map[string][]string{
	"name":   {"apiserver_admission_webhook_", "apiserver_admission_match_condition_", "gatehouse_admission_webhook_"},
	"policy": {"apiserver_validating_admission_policy_", "apiserver_mutating_admission_policy_", "gatehouse_admission_policy_"},
}

// Registrations are those in force. The zero value with Gone set has none.
type Registrations struct {
	// Gone drops series.
	Gone *series.Gone

	current atomic.Pointer[map[name]bool]
}

// Observe takes in what a read of the registrations found. Reads are observed one after the other.
func (r *Registrations) Observe(read snapshot.Read) {
	if read.Snapshot == nil || !read.Changed {
		return
	}
	next := map[name]bool{}
	for _, d := range registration.Sources() {
		for _, e := range read.Snapshot.Entries(d.Source) {
			switch {
			case e.Entry.Policy != nil:
				next[name{"policy", e.Configuration}] = true
				// Match conditions count both kinds of names.
				next[name{"name", e.Configuration}] = true
			case e.Webhook != nil:
				next[name{"name", e.Name}] = true
			}
		}
	}
	before := r.current.Swap(&next)
	if before == nil {
		return
	}
	for n := range *before {
		if next[n] {
			continue
		}
		var all []series.Of
		for _, prefix := range prefixes[n.label] {
			all = append(all, series.Of{Prefix: prefix, Labels: map[string]string{n.label: n.value}})
		}
		r.Gone.Add(n.label+" "+n.value, func() bool { return (*r.current.Load())[n] }, all...)
	}
}
