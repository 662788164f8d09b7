package lint

import (
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// forgotten is how long an object may be soft before lint reports it.
const forgotten = 30 * 24 * time.Hour

var enforcementForgotten = &Rule{
	ID: "enforcement-forgotten", Level: Warning,
	Title: "A webhook or policy has been soft for 30 days",
	Why: "A soft webhook or policy rejects and changes nothing. After 30 days it has seen what there is to see, and what it is to prevent still gets " +
		"through.",
	Fix: "See what it would have done (gatehouse rollout status KIND/NAME), and make it hard, in a part of the namespaces first; or delete it. The rule sees the age " +
		"where metadata.managedFields has the time of the annotation.",
	Fails:  strings.ReplaceAll(softly(true), "2026-01-01", "2020-01-01"),
	Passes: softly(false),
	check: func(p *pass) {
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
	Title: "A webhook or policy became hard without having been soft, where others start soft",
	Why:   "Some webhooks or policies here start soft. This one was registered after the first of them and has rejected requests since, and nobody knew which.",
	Fix: "Make it soft (gatehouse rollout set KIND/NAME Warn), see what it would do, and make it hard again. Objects that have, or had, the annotation " +
		registration.EnforcementAnnotation + " are not reported.",
	Fails: softly(true) + "---\n" + strings.Replace(hook(validating, anyPod+outside+"failurePolicy: Ignore\n"), "metadata: {name: policies}",
		"metadata: {name: policies, creationTimestamp: \"2026-02-02T10:00:00Z\"}", 1),
	Passes: softly(true),
	check: func(p *pass) {
		var first time.Time
		for _, o := range enforced(p) {
			if at := p.Written[o].Enforced; !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
		if first.IsZero() {
			return
		}
		seen := map[Object]bool{}
		p.entries(func(e *snapshot.Entry) {
			o := objectOf(e.Entry)
			w := p.Written[o]
			_, tried := w.Annotations[registration.EnforcementAnnotation]
			if tried || seen[o] || e.Source == registration.Initializing || e.Static() || w.Created.Before(first) {
				return
			}
			seen[o] = true
			if p := e.Entry.Policy; p != nil && e.Bindings != nil && slices.ContainsFunc(e.Bindings.All, func(b *snapshot.Entry) bool { return b.Enforcement != nil }) {
				return
			}
			p.finds(place{o, []any{"metadata", "name"}}, "%s was registered on %s, after others had started soft, and has been hard from the beginning", o, w.Created.Format(time.DateOnly))
		})
	},
}

// EnforcedSince returns when the annotation about the enforcement of an object was last written,
// by its managed fields; zero when these do not have the annotation.
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

// soft reports whether the annotation of an object makes it soft.
func soft(annotations map[string]string) bool {
	value := annotations[registration.EnforcementAnnotation]
	return strings.Contains(value, string(registration.ModeWarn)) || strings.Contains(value, string(registration.ModeAudit))
}

// softly is an example with a policy that is soft, or, in the same way, hard again.
func softly(soft bool) string {
	mode := registration.ModeDeny
	if soft {
		mode = registration.ModeAudit
	}
	return strings.Replace(policy("validations:\n- {expression: \"!has(object.spec.hostNetwork) || !object.spec.hostNetwork\"}\n"), "metadata: {name: images}", `metadata:
  name: images
  creationTimestamp: "2026-01-01T10:00:00Z"
  annotations: {gatehouse.dev/enforcement: `+string(mode)+`}
  managedFields:
  - {manager: gatehouse, operation: Update, apiVersion: admissionregistration.k8s.io/v1, time: "2026-01-01T10:00:00Z", fieldsType: FieldsV1, fieldsV1: {"f:metadata": {"f:annotations": {"f:gatehouse.dev/enforcement": {}}}}}`, 1)
}
