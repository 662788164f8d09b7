package registration

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// IsVirtual reports whether a resource is a review, which the server answers and never stores.
// No hook is called for it (S2.41).
func IsVirtual(resource schema.GroupResource) bool {
	switch resource.Group {
	case "authentication.k8s.io":
		return resource.Resource == "selfsubjectreviews" || resource.Resource == "tokenreviews"
	case "authorization.k8s.io":
		switch resource.Resource {
		case "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews":
			return true
		}
	}
	return false
}

// lists are the fields of registration objects that have hooks or initializers.
var lists = map[Source]string{
	Mutating: "webhooks", Validating: "webhooks", External: "externalAdmissionHooks", Initializing: "initializers",
}

// Warnings returns warnings for the writer of a valid registration object: one for each virtual
// resource that a rule names (S1.36).
func Warnings(obj runtime.Object) []string {
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
					if !IsVirtual(gr) || slices.Contains(seen, gr) {
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
