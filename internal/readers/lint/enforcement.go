package lint

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// forgotten is how long an object may be warn only or audit only before lint reports it.
const forgotten = 30 * 24 * time.Hour

var enforcementForgotten = &Rule{
	ID: "enforcement-forgotten", Level: Warning,
	check: func(p *pass) {
		if p.Snapshot.Kubernetes {
			return
		}
		for _, o := range enforced(p) {
			w := p.Written[o]
			if age := p.Now.Sub(w.Enforced); !w.Enforced.IsZero() && age > forgotten && soft(w.Annotations) {
				p.finds(place{o, []any{"metadata", "annotations", registration.EnforcementAnnotation}},
					"%s has had the enforcement %q for %d days", o, w.Annotations[registration.EnforcementAnnotation], int(age/(24*time.Hour)))
			}
		}
	},
}

var enforcementUntried = &Rule{
	ID: "enforcement-untried", Level: Note,
	check: func(p *pass) {
		var first time.Time
		for _, o := range enforced(p) {
			if at := p.Written[o].Enforced; !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
		if first.IsZero() || p.Snapshot.Kubernetes {
			return
		}
		seen := map[Object]bool{}
		p.entries(func(e *snapshot.Entry) {
			o := objectOf(e.Entry)
			w := p.Written[o]
			_, tried := w.Annotations[registration.EnforcementAnnotation]
			if e.Binding != nil && !tried {
				// A binding is enforced as its policy is (S28.6).
				if policy := p.Snapshot.Bound(e); policy != nil {
					_, tried = p.Written[objectOf(policy.Entry)].Annotations[registration.EnforcementAnnotation]
				}
			}
			if tried || seen[o] || e.Source == registration.Initializing || e.Static() || w.Created.Before(first) {
				return
			}
			seen[o] = true
			if p := e.Entry.Policy; p != nil && e.Bindings != nil && slices.ContainsFunc(e.Bindings.All, func(b *snapshot.Entry) bool { return b.Enforcement != nil }) {
				return
			}
			p.finds(place{o, []any{"metadata", "name"}}, "%s was registered on %s, after others had started in the mode Warn or Audit, and has been enforced from the beginning", o, w.Created.Format(time.DateOnly))
		})
	},
}

var enforcementIgnored = &Rule{
	ID: "enforcement-ignored", Level: Warning,
	check: func(p *pass) {
		for _, o := range enforced(p) {
			if annotations := p.Written[o].Annotations; soft(annotations) && !p.Gatehouse {
				p.finds(place{o, []any{"metadata", "annotations", registration.EnforcementAnnotation}},
					"%s has the enforcement %q, and a kube-apiserver ignores that: there it rejects and changes requests", o, annotations[registration.EnforcementAnnotation])
			}
		}
	},
}

var rolloutOptOut = &Rule{
	ID: "rollout-opt-out", Level: Warning,
	check: eachEntry(func(p *pass, e *snapshot.Entry) {
		if e.Enforcement == nil || e.Enforcement.Rollout == nil || e.Enforcement.Rollout.Selector == nil {
			return
		}
		requirements, _ := e.Enforcement.Rollout.Selector.Requirements()
		for _, r := range requirements {
			// Only a requirement that namespaces without labels meet is reported: the other
			// requirements exclude a namespace only after it gets a label.
			if r.Key() != corev1.LabelMetadataName && r.Matches(labels.Set{}) {
				p.finds(place{objectOf(e.Entry), []any{"metadata", "annotations", registration.RolloutAnnotation}},
					"a user that may label a namespace can end the enforcement of %s there: it is enforced only in namespaces with %s", e, &r)
			}
		}
	}),
}

// EnforcedSince returns the time of the last write of the annotation about the enforcement of an
// object, from its managed fields; zero if these do not have the annotation.
func EnforcedSince(m metav1.Object) time.Time {
	var last time.Time
	for _, f := range m.GetManagedFields() {
		if f.FieldsV1 != nil && f.Time != nil && strings.Contains(f.FieldsV1.GetRawString(), `"f:`+registration.EnforcementAnnotation+`"`) && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}

// enforced returns the objects with the annotation, in order.
func enforced(p *pass) []Object {
	var list []Object
	for _, o := range slices.SortedFunc(maps.Keys(p.Written), func(a, b Object) int { return strings.Compare(a.String(), b.String()) }) {
		if _, ok := p.Written[o].Annotations[registration.EnforcementAnnotation]; ok {
			list = append(list, o)
		}
	}
	return list
}

// soft reports whether the annotation of an object makes it warn only or audit only.
func soft(annotations map[string]string) bool {
	return registration.Softens(annotations[registration.EnforcementAnnotation])
}
