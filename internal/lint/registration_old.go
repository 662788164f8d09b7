package lint

import (
	"maps"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var registrationOld = &Rule{
	ID: "registration-old", Level: Warning,
	Title: "A registration is written in an old version of the API, or its webhook speaks only an old one",
	Why: "Kubernetes serves webhook configurations as v1 only since 1.22, and policies as v1 since 1.30 (validating) and 1.36 (mutating). v1beta1 also has other " +
		"defaults: failurePolicy Ignore, matchPolicy Exact, a timeout of 30 seconds. The review version v1beta1 will be removed.",
	Fix:    "Write the object as admissionregistration.k8s.io/v1, with its defaults in mind, and have the webhook answer reviews of version v1.",
	Fails:  inBeta(hook(validating, anyPod+outside+"failurePolicy: Ignore\n"), "", ""),
	Passes: hook(validating, anyPod+outside+"failurePolicy: Ignore\n"),
	check: func(p *pass) {
		for _, o := range slices.SortedFunc(maps.Keys(p.Written), compareObjects) {
			version := strings.TrimPrefix(p.Written[o].APIVersion, registration.GroupName+"/")
			i := slices.IndexFunc(registration.Sources(), func(d registration.Descriptor) bool { return d.Kind == o.Kind })
			if version == "" || i < 0 || version == registration.Sources()[i].Versions[0] {
				continue
			}
			p.findsCause(p.rule.Level, place{o, []any{"apiVersion"}}, version, o.String(), "%s is written as %s; write it as %s", o, version, registration.Sources()[i].Versions[0])
		}
		p.webhooks(func(e *snapshot.Entry) {
			if e.Source != registration.External && !slices.Contains(e.ReviewVersions, "v1") {
				p.findsCause(p.rule.Level, at(e.Entry, "admissionReviewVersions"), and(e.ReviewVersions), "the webhook "+e.Name, "the webhook %s takes reviews of version %s only, not of v1", e.Name, and(e.ReviewVersions))
			}
		})
	},
}

// inBeta returns an example in v1beta1, with a text replaced.
func inBeta(example, old, by string) string {
	example = strings.Replace(example, "admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1", 1)
	if old == "" {
		return example
	}
	return strings.Replace(example, old, by, 1)
}
