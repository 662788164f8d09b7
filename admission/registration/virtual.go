package registration

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// OwnGroup is the API group of the kinds that Gatehouse adds to Kubernetes.
const OwnGroup = "gatehouse.dev"

// virtual has the virtual resources by group: the reviews of Kubernetes, and all resources of
// Gatehouse.
var virtual = map[string][]string{
	"authentication.k8s.io": {"selfsubjectreviews", "tokenreviews"},
	"authorization.k8s.io":  {"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"},
	OwnGroup:                {"admissionexplanations", "admissionservers", "admissiontraces", "registrationstates"},
}

// VirtualResources returns the virtual resources, sorted by group and name.
func VirtualResources() []schema.GroupResource {
	var list []schema.GroupResource
	for _, group := range slices.Sorted(maps.Keys(virtual)) {
		for _, resource := range virtual[group] {
			list = append(list, schema.GroupResource{Group: group, Resource: resource})
		}
	}
	return list
}

// IsVirtual reports whether the server answers requests for a resource itself and stores no
// objects: reviews, explanations, traces and the states of servers. No webhook, policy or
// initializer applies to a virtual resource (S2.41).
func IsVirtual(resource schema.GroupResource) bool {
	return slices.Contains(virtual[resource.Group], resource.Resource)
}

// lists are the fields with hooks or initializers.
var lists = map[Source]string{
	Mutating: "webhooks", Validating: "webhooks", External: "externalAdmissionHooks", Initializing: "initializers",
}

// Warnings returns warnings for the author of a valid object: one for each virtual resource in a
// rule (S1.36). With reviews, as in Kubernetes before 1.37, webhooks are called for the reviews of
// Kubernetes, so only the resources of Gatehouse have warnings (S26.4).
func Warnings(obj runtime.Object, reviews bool) []string {
	var warnings []string
	// A valid object can be read.
	entries, _ := Entries(obj)
	for _, e := range entries {
		list, from := lists[e.Source], "admission webhooks"
		switch {
		case list == "":
			continue
		case e.Source == Initializing:
			from = list
		}
		for i := range e.Rules {
			r := &e.Rules[i]
			if slices.Contains(r.APIGroups, "*") || slices.Contains(r.Resources, "*") {
				continue
			}
			var seen []schema.GroupResource
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					gr := schema.GroupResource{Group: group, Resource: resource}
					if !IsVirtual(gr) || reviews && group != OwnGroup || slices.Contains(seen, gr) {
						continue
					}
					seen = append(seen, gr)
					path := field.NewPath(list).Index(e.Index).Child("rules").Index(i)
					warnings = append(warnings, fmt.Sprintf("%s: %s is excluded from %s; this rule will have no effect", path, gr, from))
				}
			}
		}
	}
	return warnings
}
