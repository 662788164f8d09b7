package staleseries

import (
	"sync/atomic"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/kit/series"
)

// name is the value of a label of metrics: the name of a webhook, of a policy, or of a binding. A
// binding has the name of its policy in addition.
type name struct{ label, value, policy string }

// labels returns the labels of the series.
func (n name) labels() map[string]string {
	labels := map[string]string{n.label: n.value}
	if n.policy != "" {
		labels["policy"] = n.policy
	}
	return labels
}

// prefixes are the prefixes of the metrics that have the label.
var prefixes = map[string][]string{
	"name":   {"apiserver_admission_webhook_", "apiserver_admission_match_condition_", "gatehouse_admission_webhook_"},
	"policy": ofPolicies,
	// This drops series of a binding that is deleted while its policy exists.
	"policy_binding": ofPolicies,
}

var ofPolicies = []string{"apiserver_validating_admission_policy_", "apiserver_mutating_admission_policy_", "gatehouse_admission_policy_"}

// Registrations are the active registrations. The zero value with Gone set has none.
type Registrations struct {
	// Gone drops series.
	Gone *series.Gone

	current atomic.Pointer[map[name]bool]
}

// Observe processes the result of a read of the registrations. The caller observes one read after
// the other.
func (r *Registrations) Observe(read snapshot.Read) {
	if read.Snapshot == nil || !read.Changed {
		return
	}
	next := map[name]bool{}
	for _, d := range registration.Sources() {
		for _, e := range read.Snapshot.Entries(d.Source) {
			switch {
			case e.Entry.Policy != nil:
				next[name{label: "policy", value: e.Configuration}] = true
				// Match conditions count both kinds of names.
				next[name{label: "name", value: e.Configuration}] = true
			case e.Binding != nil:
				next[name{"policy_binding", e.Configuration, e.Binding.PolicyName}] = true
			case e.Webhook != nil:
				next[name{label: "name", value: e.Name}] = true
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
			all = append(all, series.Of{Prefix: prefix, Labels: n.labels()})
		}
		r.Gone.Add(n.label+" "+n.policy+" "+n.value, func() bool { return (*r.current.Load())[n] }, all...)
	}
}
