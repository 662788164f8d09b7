package registration

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	operations = []string{"*", "CONNECT", "CREATE", "DELETE", "UPDATE"}
	scopes     = []string{"*", "Cluster", "Namespaced"}
)

// validateRule checks a rule of a hook (S1.17, S1.18, S1.20).
func validateRule[O ~string](path *field.Path, ops []O, groups, versions, resources []string, scope *v1.ScopeType) field.ErrorList {
	at := path.Child("operations")
	var errs field.ErrorList
	if len(ops) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	if len(ops) > 1 && slices.Contains(ops, "*") {
		errs = append(errs, field.Invalid(at, ops, "if '*' is present, must not specify other operations"))
	}
	for i, o := range ops {
		if !slices.Contains(operations, string(o)) {
			errs = append(errs, field.NotSupported(at.Index(i), o, operations))
		}
	}
	errs = append(errs, validateGroupVersions(path, groups, versions)...)
	errs = append(errs, validateResources(path.Child("resources"), resources)...)
	return append(errs, oneOf(path.Child("scope"), scope, scopes)...)
}

func validateGroupVersions(path *field.Path, groups, versions []string) field.ErrorList {
	var errs field.ErrorList
	if at := path.Child("apiGroups"); len(groups) == 0 {
		errs = append(errs, field.Required(at, ""))
	} else if len(groups) > 1 && slices.Contains(groups, "*") {
		errs = append(errs, field.Invalid(at, groups, "if '*' is present, must not specify other API groups"))
	}
	at := path.Child("apiVersions")
	if len(versions) == 0 {
		errs = append(errs, field.Required(at, ""))
	} else if len(versions) > 1 && slices.Contains(versions, "*") {
		errs = append(errs, field.Invalid(at, versions, "if '*' is present, must not specify other API versions"))
	}
	for i, v := range versions {
		if v == "" {
			errs = append(errs, field.Required(at.Index(i), ""))
		}
	}
	return errs
}

// validateResources checks the resources of a rule with subresources (S1.18). It reports an entry
// that an earlier entry covers.
func validateResources(path *field.Path, resources []string) field.ErrorList {
	var errs field.ErrorList
	if len(resources) == 0 {
		errs = append(errs, field.Required(path, ""))
	}
	plain := false
	for i, entry := range resources {
		resource, sub, slash := strings.Cut(entry, "/")
		switch {
		case entry == "":
			errs = append(errs, field.Required(path.Index(i), ""))
		case !slash:
			plain = plain || entry != "*"
		default:
			if before := resources[:i]; slices.Contains(before, resource+"/*") {
				errs = append(errs, field.Invalid(path.Index(i), entry, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, entry)))
			}
			if before := resources[:i]; slices.Contains(before, "*/"+sub) {
				errs = append(errs, field.Invalid(path.Index(i), entry, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, entry)))
			}
		}
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		errs = append(errs, field.Invalid(path, resources, "if '*/*' is present, must not specify other resources"))
	}
	if plain && slices.Contains(resources, "*") {
		errs = append(errs, field.Invalid(path, resources, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}

// validateMainResources checks the resources of an initializer's rule, which must not include
// subresources (S1.26).
func validateMainResources(path *field.Path, resources []string) field.ErrorList {
	var errs field.ErrorList
	if len(resources) == 0 {
		errs = append(errs, field.Required(path, ""))
	}
	everything := false
	for i, entry := range resources {
		switch {
		case entry == "":
			errs = append(errs, field.Required(path.Index(i), ""))
		case entry == "*" || entry == "*/*":
			everything = true
		case strings.Contains(entry, "/"):
			errs = append(errs, field.Invalid(path.Index(i), entry, "must not specify subresources"))
		}
	}
	if everything && len(resources) > 1 {
		errs = append(errs, field.Invalid(path, resources, "if '*' is present, must not specify other resources"))
	}
	return errs
}
