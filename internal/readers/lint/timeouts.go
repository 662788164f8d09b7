package lint

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// longTimeout is the longest timeout without a finding: the default of v1.
const longTimeout = 10 * time.Second

var timeoutLong = &Rule{
	ID: "timeout-long", Level: Note, Advice: "small-timeout",
	check: eachWebhook(func(p *pass, e *snapshot.Entry) {
		// The author of a timeout chooses to wait for the objects that opt in, as for the answer of a registry.
		chosen := failsClosed(e) && (!p.isAbout(e.Rules) || optsIn(e.ObjectSelector) || optsIn(e.NamespaceSelector))
		if e.Timeout > longTimeout && !chosen && !p.byOldDefault(e.Entry, "timeoutSeconds") {
			p.findsCause(p.rule.Level, at(e.Entry, "timeoutSeconds"), e.Timeout.String(), "the webhook "+e.Name, "the webhook %s may take %v: requests wait that long when it does not answer", e.Name, e.Timeout)
		}
	}),
}

// requestLimit is the API server's timeout for a write.
const requestLimit = 34 * time.Second

var timeoutsExceedRequest = &Rule{
	ID: "timeouts-exceed-request", Level: Warning, Advice: "design-admission-webhooks-low-latency",
	check: func(p *pass) {
		links := []plan.Link{}
		for _, source := range hooks {
			links = append(links, plan.Acting(source, nil))
		}
		for _, r := range p.named() {
			var worst *plan.Plan
			var most time.Duration
			var path []*plan.Step
			for _, operation := range []admission.Operation{admission.Create, admission.Update, admission.Delete} {
				q := request(operation, target{r.Group, r.Version, r.Kind.Kind, r.Resource, "", p.someNamespace(&r), "one"}, somebody, nil)
				if p.longest(q) <= requestLimit {
					continue
				}
				made := plan.New(p.ctx, links, p.Snapshot, &q.request, p.Equivalents, p.input(q), false)
				var steps silence[*plan.Step]
				for s := range made.Calls() {
					steps.add(s, s.Pass == registration.MutatingPass.String(), s.FailurePolicy != "Ignore", time.Duration(s.TimeoutSeconds*float64(time.Second)))
				}
				if steps.most > most {
					worst, most, path = made, steps.most, steps.on
				}
			}
			if most <= requestLimit {
				continue
			}
			var names []string
			var slowest *plan.Step
			patched := false
			for _, s := range path {
				names = append(names, fmt.Sprintf("%s (%vs)", s.Entry.Name, s.TimeoutSeconds))
				about := Object{Kind: s.Entry.Kind, Name: s.Entry.Configuration}
				// Often the webhook is also in another file, in the form that a kustomization
				// writes.
				patched = patched || p.Patched[about] != "" || p.byDefaultOf(about, s.Entry.Index, "timeoutSeconds")
				if p.wanted(about) && (slowest == nil || s.TimeoutSeconds > slowest.TimeoutSeconds) {
					slowest = s
				}
			}
			if slowest == nil || patched {
				continue
			}
			where := place{Object{Kind: slowest.Entry.Kind, Name: slowest.Entry.Configuration}, []any{"webhooks", slowest.Entry.Index, "timeoutSeconds"}}
			if slowest.Entry.Kind == registration.ExternalKind {
				where.path = []any{"externalAdmissionHooks", slowest.Entry.Index}
			}
			p.findsCause(p.rule.Level, where, fmt.Sprint(names), r.GroupResource().String(), "the webhooks of a %s of %s take %v together when they do not answer, longer than the %v that the request has: %s",
				worst.Request.Operation, r.GroupResource(), most, requestLimit, few(names))
		}
	},
}

// longest returns the total timeout of the webhooks of a request if no selector or condition
// excludes one. Only if that is too long, a plan is worth its cost.
func (p *pass) longest(q *probe) time.Duration {
	var calls silence[*snapshot.Entry]
	for _, source := range hooks {
		for _, c := range plan.Candidates(p.Snapshot, source, &q.request, p.Equivalents) {
			calls.add(c.Entry, source.Descriptor().Pass == registration.MutatingPass, failsClosed(c.Entry), c.Entry.Timeout)
		}
	}
	return calls.most
}

// silence measures a request whose webhooks do not answer: mutating webhooks with failurePolicy Ignore are waited for one
// after the other, and the first one with Fail ends the request, as the slowest validating webhook does.
type silence[T any] struct {
	ignored   []T
	sum, most time.Duration
	// on are the webhooks that take the time most.
	on []T
}

// add adds the calls in their order.
func (s *silence[T]) add(call T, mutating, fails bool, timeout time.Duration) {
	if s.sum+timeout > s.most {
		s.most, s.on = s.sum+timeout, append(slices.Clone(s.ignored), call)
	}
	if mutating && !fails {
		s.sum, s.ignored = s.sum+timeout, append(s.ignored, call)
	}
}

// someNamespace returns a namespace for an object of a resource, empty if the resource is not
// namespaced.
func (p *pass) someNamespace(r *Resource) string {
	if r.Namespaced {
		return "default"
	}
	return ""
}

// named returns the resources that the rules of webhooks name, in one version each, and pods.
func (p *pass) named() []Resource {
	names := map[string]bool{"pods": true}
	for _, source := range hooks {
		for _, e := range p.Snapshot.Entries(source) {
			for i := range e.Rules {
				for _, r := range e.Rules[i].Resources {
					names[r] = true
				}
			}
		}
	}
	byName := map[string]Resource{}
	for _, r := range p.Resources {
		key := r.GroupResource().String()
		if _, known := byName[key]; !known && names[r.Resource] {
			byName[key] = r
		}
	}
	list := make([]Resource, 0, len(byName))
	for _, key := range slices.Sorted(maps.Keys(byName)) {
		list = append(list, byName[key])
	}
	return list
}
