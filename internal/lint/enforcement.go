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
		if first.IsZero() || p.Snapshot.Kubernetes {
			return
		}
		seen := map[Object]bool{}
		p.entries(func(e *snapshot.Entry) {
			o := objectOf(e.Entry)
			w := p.Written[o]
			_, tried := w.Annotations[registration.EnforcementAnnotation]
			if e.Binding != nil && !tried {
				// A binding is as hard as its policy (S28.6).
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
			p.finds(place{o, []any{"metadata", "name"}}, "%s was registered on %s, after others had started soft, and has been hard from the beginning", o, w.Created.Format(time.DateOnly))
		})
	},
}

var enforcementIgnored = &Rule{
	ID: "enforcement-ignored", Level: Warning,
	Title: "A webhook or policy is soft by an annotation that a kube-apiserver ignores",
	Why: "Only Gatehouse obeys the annotation " + registration.EnforcementAnnotation + ". On a kube-apiserver the webhook or policy rejects and changes requests from the " +
		"moment it is registered.",
	Fix: "Use validationActions and failurePolicy, and do not register what is to be tried, or say that the files are for a Gatehouse server: --for gatehouse, or for: gatehouse " +
		"in the configuration file.",
	Fails:  softly(true),
	Passes: softly(false),
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
	Title: "Users who may label a namespace can soften a webhook or policy that is rolled out",
	Why: "The labels of its namespace decide where a soft webhook or policy is hard already. Where a label makes it soft again, everybody who may change a namespace " +
		"can add the label.",
	Fix: "Name the namespaces in the selector by their label " + corev1.LabelMetadataName + ", which nobody can change, or use a share such as 25%; and make the webhook or policy " +
		"hard when no namespace is left.",
	Fails:  rolledOut("stage notin (dev)"),
	Passes: rolledOut(corev1.LabelMetadataName + " notin (dev)"),
	check: func(p *pass) {
		p.entries(func(e *snapshot.Entry) {
			if e.Enforcement == nil || e.Enforcement.Rollout == nil || e.Enforcement.Rollout.Selector == nil {
				return
			}
			requirements, _ := e.Enforcement.Rollout.Selector.Requirements()
			for _, r := range requirements {
				// Only a requirement that namespaces without labels meet is meant: by the others, a
				// namespace is soft unless somebody gives it a label.
				if r.Key() != corev1.LabelMetadataName && r.Matches(labels.Set{}) {
					p.finds(place{objectOf(e.Entry), []any{"metadata", "annotations", registration.RolloutAnnotation}},
						"a user who may label a namespace can soften %s there: it is hard only in namespaces with %s", e, &r)
				}
			}
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
	return registration.Softens(annotations[registration.EnforcementAnnotation])
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

// rolledOut is an example with a policy that is hard already in some namespaces.
func rolledOut(in string) string {
	return strings.Replace(softly(true), "enforcement: Audit}", "enforcement: Audit, gatehouse.dev/rollout: "+in+"}", 1)
}
